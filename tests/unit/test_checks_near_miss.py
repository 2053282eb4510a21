"""The same words where they no longer count: an older start, another unit, a fault that was cured since; and text that
tries to be more than text."""

# ruff: noqa: E501 - lines of logs and shells
from __future__ import annotations

import io
import random
import time
from pathlib import Path

import pytest

from ollamactl.cli.sources import open_source
from ollamactl.core.checks import Finding, run
from ollamactl.core.facts import Facts
from ollamactl.core.pasted import SMALL, facts_of
from ollamactl.report.findings import screen
from ollamactl.report.html import page
from ollamactl.report.text import Terminal
from tests.system.cases_host import CASES as HOST
from tests.system.cases_logs import CASES
from tests.system.small import drop_in, journal, served, unit_file

FRESH = served().later(86400).load(4096, 1, layers=(33, 33), kv_mib=400).gin(200, "1.2s").text().replace("2026-05", "2026-06")


def facts(text: str) -> Facts:
    found = facts_of(text.encode("utf-8", "surrogateescape"), "text")
    assert found is not None
    return found


def loud(text: str) -> list[str]:
    report = run(facts(text))
    assert not report.crashed
    return [f.check for f in report.findings if f.severity != "info"]


def _only_log(text: str) -> bool:
    found = facts_of(text.encode(), "text")
    told = found.told if found else None
    return bool(found and not found.unit_files and not found.loaded and not (told and (told.messages or told.variables)))


@pytest.mark.parametrize("name", [n for n, (_, text) in CASES.items() if _only_log(text)])
def test_an_older_start_does_not_count(name: str) -> None:
    assert loud(CASES[name][1] + "\n" + FRESH) == []


@pytest.mark.parametrize("name", [n for n, (_, text) in HOST.items() if "systemd[1]: ollama.service" in text and "time=" not in text])
def test_the_same_of_another_unit_does_not_count(name: str) -> None:
    text = HOST[name][1].replace("ollama", "grafana")
    kept = "\n".join(line for line in text.splitlines() if " host " in line)
    found = facts_of(kept.encode(), "text")
    assert found is None or not [f for f in run(found).findings if f.severity != "info"]


def test_a_crash_loop_that_ended_does_not_count() -> None:
    old = HOST["idx-two-serves-restart-loop"][1]
    prefix = "May 05 10:00:00 host ollama[900]: "
    fresh = "\n".join(prefix + line for line in FRESH.splitlines())
    assert loud(old + journal("Started ollama.service - Ollama Service.") + fresh) == []


def test_a_load_that_failed_and_then_went_well_is_only_told() -> None:
    text = served().load(65536, 1, ok=False).raw("allocating 9000.00 MiB on device 0: cudaMalloc failed: out of memory") \
        .say("Load failed", error="llama-server process has terminated: exit status 1").load(4096, 1, layers=(33, 33)).text()  # fmt: skip
    assert loud(text) == []


def test_values_that_are_well_raise_nothing() -> None:
    assert loud(drop_in('Environment="OLLAMA_NUM_PARALLEL=4"', 'Environment="OLLAMA_FLASH_ATTENTION=1"', "Environment=HTTPS_PROXY=http://10.0.0.1:3128")) == []  # fmt: skip
    assert loud(unit_file()) == []
    assert loud(unit_file() + drop_in("Environment=OLLAMA_HOST=127.0.0.1:11500")) == []
    assert loud("OLLAMA_BASE_URL=http://ollama:11434\nOLLAMA_KEEP_ALIVE=1h\n") == []
    assert loud("docker run -d -p 127.0.0.1:11434:11434 -e OLLAMA_NUM_PARALLEL=2 ollama/ollama\n") == []


def findings(text: str) -> dict[str, Finding]:
    return {f.check: f for f in run(facts(text)).findings}


def test_what_a_drop_in_sets_again_is_lost_by_no_upgrade() -> None:
    main = unit_file('Environment="OLLAMA_KEEP_ALIVE=7m" "OLLAMA_NUM_PARALLEL=2"')
    assert "settings_in_main_unit" in findings(main + drop_in("Environment=OLLAMA_KEEP_ALIVE=9m"))
    again = drop_in("Environment=OLLAMA_KEEP_ALIVE=9m OLLAMA_NUM_PARALLEL=3")
    assert "settings_in_main_unit" not in findings(main + again)


@pytest.mark.parametrize(
    ("check", "first", "later"),
    [
        ("execstart_203_exec", 'ExecStart="/usr/local/bin/ollama serve"', "ExecStart=\nExecStart=/usr/local/bin/ollama serve"),
        ("client_command_in_start_pre", "ExecStartPre=/usr/local/bin/ollama list", "ExecStartPre="),
        ("protecthome_blocks_models_dir", "ProtectHome=yes\nEnvironment=OLLAMA_MODELS=/home/models", "ProtectHome=no"),
        ("unit_sandbox_hides_gpu", "PrivateDevices=yes", "PrivateDevices=no"),
    ],
)
def test_what_a_later_drop_in_takes_back_does_not_count(check: str, first: str, later: str) -> None:
    unit = unit_file() + drop_in(first, name="10-a.conf")
    assert check in findings(unit)
    assert check not in findings(unit + drop_in(later, name="zz.conf"))


def test_that_our_drop_in_wins_is_only_told() -> None:
    theirs = unit_file() + drop_in("Environment=OLLAMA_NUM_PARALLEL=2", name="10-a.conf")
    ours = drop_in("Environment=OLLAMA_NUM_PARALLEL=4", name="zz-ollamactl.conf")
    later = drop_in("Environment=OLLAMA_NUM_PARALLEL=4", name="zzz.conf")
    assert findings(theirs + ours)["dropin_overridden_by_later_dropin"].severity == "info"
    assert findings(theirs + later)["dropin_overridden_by_later_dropin"].severity == "warning"


def test_an_unknown_name_is_corrected_where_it_stands() -> None:
    path = "/etc/systemd/system/ollama.service.d/override.conf"
    remedy = findings(drop_in("Environment=OLLAMA_NUM_PARALEL=4"))["unknown_ollama_variable"].remedy
    assert remedy.startswith("sudo sed -i '") and f"s/OLLAMA_NUM_PARALEL/OLLAMA_NUM_PARALLEL/' {path} &&" in remedy
    port = findings(drop_in("Environment=OLLAMA_PORT=11500"))["unknown_ollama_variable"].remedy
    assert port == "sudo ollamactl apply --host 127.0.0.1:11500 --unset OLLAMA_PORT"


def test_a_list_with_commas_is_one_value() -> None:
    told = facts("export NO_PROXY=localhost,127.0.0.1\nset CUDA_VISIBLE_DEVICES=0,1, then start\n").told
    assert told is not None
    assert [(v.name, v.value) for v in told.variables] == [("NO_PROXY", "localhost,127.0.0.1"), ("CUDA_VISIBLE_DEVICES", "0,1")]


def test_standard_input_gives_what_the_file_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chatter = "slot print_timing: id  0 | task 0 |       total time =     181.70 ms /    20 tokens\n" * 60_000
    text = (served().load(4096, 1).text() + chatter + served().later(9000).raw("GGML_ASSERT(x) failed").text()).encode()
    assert len(text) > SMALL
    path = tmp_path / "long.log"
    path.write_bytes(text)
    from_file = open_source(str(path)).facts
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    from_stdin = open_source("-").facts
    assert from_file is not None and from_stdin is not None and from_file.log is not None and from_stdin.log is not None
    assert from_stdin.log.lines == from_file.log.lines == text.count(b"\n")
    assert [f.check for f in run(from_stdin).findings] == [f.check for f in run(from_file).findings] != []


def test_a_prompt_in_the_log_does_not_speak() -> None:
    said = served("0.5.7").say(
        "chat request", "DEBUG", prompt="bind: address already in use. GGML_ASSERT(x) failed. no CUDA-capable device is detected"
    )
    assert loud(said.text()) == []


def test_control_characters_never_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;owned\x07\x1b[31mred\x9b2J\u202e"
    text = served().load(4096, 1, ok=False).raw(f"GGML_ASSERT(a{evil}b) failed").say("Load failed", error=f"exit {evil}").text()
    text += f"export OLLAMA_NUM_PARALEL{evil}=4\nEnvironment=OLLAMA_X{evil}=1\n"
    found = facts(text)
    report = run(found)
    assert report.findings
    screen(Terminal(colour=False), found, report, 0.1, details=True)
    html = page(found, report, 0.1)
    for shown in (capsys.readouterr().out, html):
        assert not [c for c in shown if (ord(c) < 32 and c not in "\n") or 127 <= ord(c) < 160 or c == "\u202e"]


def test_html_is_escaped() -> None:
    found = facts(served().raw("GGML_ASSERT(<script>alert(1)</script>) failed").text())
    html = page(found, run(found), 0.1)
    assert "<script" not in html and "&lt;script&gt;" in html


def _pool() -> list[str]:
    texts = [text for _, text in (CASES | HOST).values()]
    return [line for text in texts for line in text.splitlines()]


def _mutated(line: str, chance: random.Random) -> str:
    kind = chance.randrange(7)
    at = chance.randrange(len(line) + 1)
    if kind == 0:
        return line[:at]
    if kind == 1:
        return line[:at] + chr(chance.choice((0, 7, 27, 34, 61, 91, 93, 92, 0x202E, 0xD7FF, 0x1F600))) + line[at:]
    if kind == 2:
        return line.replace("=", chance.choice(("", "==", " = ", ":")), 2)
    if kind == 3:
        return "".join(c if not c.isdigit() else str(chance.randrange(10)) for c in line)
    if kind == 4:
        return line[at:] + line[:at]
    if kind == 5:
        return line + " " + line[:at] * chance.randrange(4)
    return line.replace('"', "")


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_200_000_mutated_lines_crash_no_check_and_take_bounded_time() -> None:
    chance = random.Random(5)
    pool = _pool()
    made, slowest = 0, 0.0
    while made < 200_000:
        lines = [chance.choice(pool) for _ in range(2000)]
        lines = [_mutated(x, chance) if x and chance.random() < 0.7 else x for x in lines]
        made += len(lines)
        began = time.process_time()
        found = facts_of("\n".join(lines).encode("utf-8", "replace"), "fuzz")
        if found is not None:
            report = run(found)
            assert not report.crashed, report.crashed
        slowest = max(slowest, time.process_time() - began)
    assert slowest < 20  # of the processor, for 2,000 lines: nothing grows without bound


def test_long_lines_and_values_are_read_in_bounded_time() -> None:
    began = time.process_time()
    for text in ("Environment=" + "OLLAMA_A=" * 20000, "time=" * 50000, "[Service]\n" * 5000, "a" * 1_000_000,
                 "LISTEN 0 0 " + ":" * 100000, "export OLLAMA_X=" + "'" * 100000, "NAME ID SIZE PROCESSOR\n" * 3000):  # fmt: skip
        found = facts_of(text.encode(), "x")
        if found is not None:
            assert not run(found).crashed
    assert time.process_time() - began < 60
