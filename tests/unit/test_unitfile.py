"""Unit files: systemd's grammar, and the lines that it ignores or reads otherwise than meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollamactl.core.parse import unitfile
from ollamactl.core.parse.unitkeys import KEYS

RECORDED = Path(__file__).resolve().parents[1] / "recorded"
COMPLAINTS = {  # what PID 1 wrote in the recorded scenarios; in all others it wrote nothing
    "10b-no-section-header": {("override.conf", 1)},
    "10c-spaces-percent-quotes": {("override.conf", 2)},
    "10h-broken-section": {("override.conf", 1)},
}


def problems(text: str) -> list[tuple[int, str]]:
    return [(p.line, p.why) for p in unitfile.parse("/x.conf", text).problems]


def assignments(text: str) -> list[tuple[int, str, str, str]]:
    return [(a.line, a.section, a.key, a.value) for a in unitfile.parse("/x.conf", text).assignments]


def recorded_files(scenario: str) -> dict[str, str]:
    path = RECORDED / scenario / "dropin.txt"
    parts = re.split(r"^### (.*)\n", path.read_text() if path.exists() else "", flags=re.MULTILINE)
    return {name: text.removesuffix("\n") for name, text in zip(parts[1::2], parts[2::2], strict=True)}


@pytest.mark.parametrize("scenario", sorted(p.parent.name for p in RECORDED.glob("*/dropin.txt")))
def test_recorded_dropins_have_the_problems_that_systemd_told(scenario: str) -> None:
    silent = ("not read:", "%b in OLLAMA_ORIGINS expands")
    found = set()
    for path, text in recorded_files(scenario).items():
        for line, why in problems(text):
            if not why.startswith(silent):
                found.add((path.rpartition("/")[2], line))
    assert found == COMPLAINTS.get(scenario, set())


def test_values_that_are_read_otherwise_than_meant_are_told_in_10c() -> None:
    (text,) = recorded_files("10c-spaces-percent-quotes").values()
    assert [line for line, _ in problems(text)] == [2, 4]  # of line 6 Ollama strips the quotes: it ran with 9


def test_sections_comments_and_blanks() -> None:
    text = "# c\n ; c\n\n [Unit] \n  After = a  b \n[Service]\nUser=\nUser=x"
    assert assignments(text) == [
        (5, "Unit", "After", "a  b"), (7, "Service", "User", ""), (8, "Service", "User", "x"),
    ]  # fmt: skip
    assert problems(text) == []


def test_continuations_hold_the_first_line_and_skip_comments() -> None:
    text = "[Service]\nEnvironment=A=1 \\\n# a comment \\\n  B=2\\\n\nUser=x\\\\\nGroup=y \\"
    assert assignments(text) == [
        (2, "Service", "Environment", "A=1    B=2"), (6, "Service", "User", "x\\\\"), (7, "Service", "Group", "y"),
    ]  # fmt: skip
    (joined,) = [line for line in unitfile.lines(text) if line.first == 2]
    assert joined.last == 5


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
def test_line_ends_and_byte_order_mark(end: str) -> None:
    text = end.join(["\ufeff[Service]", "Environment=A=1 \\", " B=2", "User=x", ""])
    assert assignments(text) == [(2, "Service", "Environment", "A=1   B=2"), (4, "Service", "User", "x")]
    assert problems(text) == []


def test_a_comment_behind_a_byte_order_mark_is_no_comment() -> None:
    assert [line for line, _ in problems("\ufeff# A=1\n[Service]\n")] == [1]


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("Environment=A=1", 1, "assignment outside of section"),
        ("[service]\nEnvironment=A=1", 1, r"it is called \[Service\]"),
        ("[service]\nEnvironment=A=1", 2, r"in section \[service\] \(line 1\)"),
        ("[Servce]\n", 1, "unknown section"),
        ("[Service\nUser=x", 1, "broken section header"),
        ("[Service\nUser=x", 2, "not read: systemd stopped at the broken section header in line 1"),
        ("[Service]\nenvironment=A=1", 2, "it is called Environment"),
        ("[Unit]\nEnvironment=A=1", 2, r"belongs under \[Service\], not \[Unit\]"),
        ("[Install]\nEnvironment=A=1", 2, r"belongs under \[Service\], not \[Install\]"),
        ("[Service]\nWantedBy=x", 2, r"belongs under \[Install\]"),
        ("[Service]\nexport OLLAMA_HOST=1", 2, 'write Environment="OLLAMA_HOST=1" under'),
        ('[Service]\nOLLAMA_HOST="1"', 2, 'write Environment="OLLAMA_HOST=1" under'),
        ("[Service]\nEnviroment=A=1", 2, "did its author mean Environment"),
        ("[Service]\nOLLAMA", 2, "no `=`"),
        ("[Service]\n=1", 2, "no name before"),
        ("[Service]\nEnvironment=A:1", 2, "it takes `=`, not `:`"),
        ("[Service]\nEnvironment=A", 2, "is no assignment"),
        ("[Service]\nEnvironment=A = 1", 2, "no blanks may stand around"),
        ("[Service]\nEnvironment=A= 1", 2, "no blanks may stand around"),
        ("[Service]\nEnvironment=M=/my models", 2, "must be quoted as a whole"),
        ('[Service]\nEnvironment="A=1', 2, 'a " that is not closed'),
        ("[Service]\nEnvironment='A=1", 2, "a ' that is not closed"),
        ("[Service]\nEnvironment=A=C:\\path", 2, r"\\p is no escape"),
        ("[Service]\nEnvironment=A=1 # why", 2, "a comment needs a line of its own"),
        ("[Service]\nEnvironment=“A=1”", 2, "typographic quotes"),
        ("[Service]\nEnvironment=A=“1”", 2, "typographic quotes are part of A's value"),
        ("[Service]\nEnvironment=A=a%2Fb", 2, "%2 in .* is no specifier"),
        ("[Service]\nEnvironment=A=a%bc", 2, "%b in A expands"),
        ("[Service]\nEnvironment=\"A='1'\"", 2, "A's value holds the quotes: '1'"),
        ("[Service]\nEnvironment=\"A=1\",\"B=2\"", 2, "several assignments in the value of A"),
        ("[Service]\nEnvironment=OLLAMA_A=1,OLLAMA_B=2", 2, "several assignments in the value of OLLAMA_A"),
        ("[Service]\nEnvironment=export A=1", 2, "belongs to a shell"),
        ("[Service]\nEnvironment=Environment=A=1", 2, "a variable called Environment"),
        ("[Service]\nEnvironment=A=\u00a01", 2, r"invisible character \(U\+00A0\)"),
        ("[Service]\nEnvironment=A=1 \\\nEnvironment=B=2", 2, "the backslash before line 3"),
        ("[Service]\nPassEnvironment=A=1", 2, "only names"),
        ('[Service]\nUnsetEnvironment=A "B', 2, 'a " that is not closed'),
        ('[Service]\nEnvironmentFile="/etc/x"', 2, "without quotes"),
        ("[Service]\nEnvironmentFile=-etc/x", 2, "not absolute"),
        ("[Service]\nEnvironmentFile=/a /b", 2, "one file a line"),
        ('[Service]\nExecStart=/bin/x "a\nUser=x', 2, "stops reading the file here"),
        ('[Service]\nExecStart=/bin/x "a\nUser=x', 3, r"not read: systemd stopped at line 2 \(ExecStart=\)"),
        ('[Service]\nExecStart="/bin/ollama serve"', 2, "the quotes make"),
        ("[Service]\nExecStart=/bin/ollama serve >> /x", 2, "this is no shell"),
        ("[Service]\nWorkingDirectory=x", 2, "stops reading the file here"),
        ("[Service]\nRestart=Always", 2, "not a value of Restart="),
        ("[Service]\nRestartSec=3 # seconds", 2, "not a time span; a comment needs"),
        ("[Service]\nPrivateDevices=ja", 2, "not a value of PrivateDevices="),
        ("[Service]\nMemoryMax=12Q", 2, "not a size"),
        ("[Service]\nUser=x\nEnvironment=A=\udcff\nUser=y", 3, "not UTF-8"),
        ("[Service]\nUser=x\nEnvironment=A=\udcff\nUser=y", 4, "not read"),
    ],
)  # fmt: skip
def test_what_is_ignored_or_misread_is_said(text: str, line: int, why: str) -> None:
    found = [said for number, said in problems(text) if number == line]
    assert any(re.search(why, said) for said in found), found


@pytest.mark.parametrize(
    "line",
    [
        'Environment="A=1" \'B=a b\' C=x"y z"w D=', 'Environment="A=100%%"', "Environment=A=%h/x:%t", "Environment=",
        'Environment="A=\\"quoted\\""', "Environment=A=1,2", "EnvironmentFile=-/etc/default/*", "RestartSec=1min 30s",
        "MemoryMax=8G", "MemoryMax=90%", "PrivateTmp=disconnected", "NoNewPrivileges=YES", "X-Own=1",
        "ExecStart=/bin/sh -c 'a && b > c'", "UnsetEnvironment=A B=1", "WorkingDirectory=-/x", "Type=notify-reload",
        'Environment="A= \'\\";"', """Environment="A=x';'y" """, 'Environment="A=[\\"a\\",\\"b\\"]"',
    ],
)  # fmt: skip
def test_lines_that_are_well_have_no_problem(line: str) -> None:
    assert problems(f"[Service]\n{line}\n") == []


def test_sections_of_others_are_passed_over() -> None:
    text = "[X-Ours]\nanything\nEnvironment=A=1\n[Service]\nUser=x"
    assert (assignments(text), problems(text)) == ([(5, "Service", "User", "x")], [])


def test_an_ignored_assignment_is_no_assignment_but_one_good_word_saves_the_rest() -> None:
    text = '[Service]\nEnvironment=A:1\nEnvironment=B:1 C=1\nEnvironment=D=1 "E=2\nRestart=Always'
    assert [a[0] for a in assignments(text)] == [3, 4]


def test_stop_tells_the_line_where_the_file_ends_for_systemd() -> None:
    broken = unitfile.parse("/x", "[Service]\nUser=a\n[Serv\nUser=b\n", "main")
    stopped = unitfile.stop(broken)
    assert stopped is not None and stopped.line == 3
    assert [a.value for a in broken.assignments] == ["a"]
    assert unitfile.stop(unitfile.parse("/x", "[service]\nA:1\n")) is None


def test_keys_of_later_releases_are_known_and_no_key_is_in_two_cases() -> None:
    assert {"RestartSteps", "SetLoginEnvironment", "PrivatePIDs"} <= KEYS["Service"]
    for names in KEYS.values():
        assert len({name.lower() for name in names}) == len(names)


KEYS_OFTEN = ["[Service]", "[Unit]", "Environment=", "ExecStart=", "RestartSec=", "MemoryMax=", "EnvironmentFile="]


ODD = st.text("AB=1 '\"\\%n#;\r\0[]\ufeff\udcffé", max_size=9)


@given(st.lists(st.one_of(st.sampled_from([*KEYS_OFTEN, "\n"]), ODD)))
def test_no_text_is_too_odd(parts: list[str]) -> None:
    text = "".join(parts)
    found = unitfile.parse("/x", text)
    assert found.text == text
    assert [p.line for p in found.problems] == sorted(p.line for p in found.problems)
    numbers = {line.first for line in unitfile.lines(text)}
    assert {a.line for a in found.assignments} | {p.line for p in found.problems} <= numbers


@pytest.mark.parametrize(
    "value",
    ["Environment=" + "a" * 200_000, "Environment=" + "a=" * 100_000, "Environment=" + "a # " * 50_000,
     "RestartSec=" + "1" * 200_000 + "x", "MemoryMax=" + "1 " * 100_000 + "x", "ExecStart=" + "'a' " * 50_000,
     "Environment=" + "\\\n" * 50_000 + "A=1", "Environment=A=" + "%%" * 100_000 + "\\q"],
)  # fmt: skip
def test_hostile_lines_take_no_endless_time(value: str) -> None:
    found = unitfile.parse("/x", f"[Service]\n{value}\nUser=x\n")
    assert [a.value for a in found.assignments if a.key == "User"] == ["x"]


def test_the_line_that_is_too_long_ends_the_file() -> None:
    found = unitfile.parse("/x", "[Service]\nUser=a\nDescription=" + "a" * (1 << 20) + "\nUser=b\n")
    assert [a.value for a in found.assignments] == ["a"]
    stopped = unitfile.stop(found)
    assert stopped is not None and stopped.line == 3
