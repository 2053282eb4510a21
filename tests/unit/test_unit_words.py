"""Words, escapes and specifiers of unit files, and commands with wrappers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollamactl.core.parse import execstart, quoting, specifiers

NONE = dict.fromkeys(specifiers.KNOWN, "?")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", []),
        ("  A=1\tB=2  ", ["A=1", "B=2"]),
        ('"A=1 2" \'B=3 4\'', ["A=1 2", "B=3 4"]),
        ('A="1 2"x\'3 4\'', ["A=1 2x3 4"]),
        ("A='\"' B=\"'\"", ['A="', "B='"]),
        (r"A=\x41\101\u00e9\U0001f600\s\t", ["A=AAé\U0001f600 \t"]),
        (r"A=\xc3\xa9", ["A=é"]),
        (r"'A=\'x\"'", ["A='x\""]),
        (r"A=1 B=\q C=3", ["A=1"]),
        (r"A=1 B=\x00", ["A=1"]),
        (r"A=1 B=\400", ["A=1"]),
        (r"A=1 B=\ud800", ["A=1", "B=\udced\udca0\udc80"]),
        (r"A=1 B=\U0000d800", ["A=1"]),
        ("A=1 B=2\\", ["A=1"]),
        ('A=1 "B=2', ["A=1"]),
        ('""', [""]),
        ("A=\udcff", ["A=\udcff"]),
    ],
)
def test_words_as_systemd_cuts_them(value: str, words: list[str]) -> None:
    assert quoting.split_environment(value) == words


def test_without_escapes_a_backslash_makes_the_next_character_plain() -> None:
    assert quoting.split(r"A\tB \"C", escapes=False).words == ("AtB", '"C')


def test_relaxed_words_keep_unknown_escapes_and_name_them() -> None:
    found = quoting.split(r"/bin/x \q \n", relaxed=True)
    assert (found.words, found.kept, found.error) == (("/bin/x", "\\q", "\n"), ("\\q",), "")


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_quoted_values_come_back_or_are_refused(value: str) -> None:
    try:
        line = quoting.quote_environment("A", value)
    except ValueError:
        assert "\n" in value or "\0" in value or not quoting.is_utf8(value)
        return
    assert not set(line) & set("\n\r\0")
    (word,) = quoting.split_environment(line)
    assert specifiers.expand(word, NONE).text == f"A={value}"


@pytest.mark.parametrize(
    ("name", "value"),
    [("A", "a\nb"), ("A", "a\0"), ("A", "\udcff"), ("A", "\uffff"), ("A", "\ufdd0"), ("1A", "x"), ("", "x"),
     ("A=B", "x"), ("Ä", "x"), ("A", "x" * 131072)],
)  # fmt: skip
def test_what_cannot_arrive_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError):
        quoting.quote_environment(name, value)


def test_what_cannot_be_seen_is_written_as_an_escape() -> None:
    assert quoting.quote_environment("A", "\x1b\r\u200b\U000e0001é%\"\\") == (
        '"A=\\x1b\\x0d\\u200b\\U000e0001é%%\\"\\\\"'
    )  # fmt: skip


def test_lists_of_systemctl_show() -> None:
    shown = 'PATH=/bin "A=two words" "B=a\\"b\\\\c\\$d\\`e" "C=\\001\\n\\303" D=ü $\'E=\\n\''
    assert quoting.split_shown(shown) == [
        "PATH=/bin", "A=two words", 'B=a"b\\c$d`e', "C=\x01\n\udcc3", "D=ü", "E=\n",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "made"),
    [("a%%b", "a%b"), ("%n|%p|%i|%j", "a-b@c\\x2dd.service|a-b|c\\x2dd|b"), ("%I %P", "c-d a/b"), ("50%", "50%"),
     ("%/ %é %", "%/ %é %"), ("%t/x %S %E", "/run/x /var/lib /etc"), ("%h %u %U", "/root root 0"), ("%f", "/c-d")],
)  # fmt: skip
def test_specifiers_of_a_unit(text: str, made: str) -> None:
    assert specifiers.expand(text, specifiers.unit_context("a-b@c\\x2dd.service")).text == made


def test_specifiers_that_are_not_known_are_named_and_wrong_ones_refused() -> None:
    context = specifiers.unit_context("a.service", hostname="h.example")
    assert specifiers.expand("%H %l", context).text == "h.example h"
    assert specifiers.expand("%m %b %m", context) == specifiers.Expansion(None, ("%m", "%b"))
    assert specifiers.expand("%m %x", context) == specifiers.Expansion(None, (), "%x")
    assert specifiers.expand("%h", specifiers.unit_context("a.service", manager="user")).unknown == ("%h",)


def unwrapped(line: str) -> execstart.Wrapping:
    return execstart.unwrap(execstart.parse(line).argv)


@pytest.mark.parametrize(
    ("line", "programs", "argv"),
    [
        ("/usr/local/bin/ollama serve", [], ["/usr/local/bin/ollama", "serve"]),
        ("-@/usr/bin/ollama name serve", [], ["/usr/bin/ollama", "serve"]),
        ("/usr/bin/env -i -u X A=b ollama serve", ["/usr/bin/env"], ["ollama", "serve"]),
        ("/bin/sh -c 'export A=1; B=2 exec ollama serve'", ["/bin/sh"], ["ollama", "serve"]),
        ("/usr/bin/nice -n 5 /usr/bin/env A=1 ollama serve", ["/usr/bin/nice", "/usr/bin/env"], ["ollama", "serve"]),
        ("numactl -N 0 --localalloc ollama serve", ["numactl"], ["ollama", "serve"]),
        ("taskset -c 0-3 ollama serve", ["taskset"], ["ollama", "serve"]),
    ],
)
def test_wrappers_are_seen_through(line: str, programs: list[str], argv: list[str]) -> None:
    found = unwrapped(line)
    assert (list(found.programs), list(found.argv), found.unknown) == (programs, argv, "")


def test_changes_of_wrappers() -> None:
    assert [(c.kind, c.name, c.value) for c in unwrapped("env -i -uX --unset=Y A=b=c ollama").changes] == [
        ("clear", "", ""), ("unset", "X", ""), ("unset", "Y", ""), ("set", "A", "b=c"),
    ]  # fmt: skip
    shell = unwrapped("sh -c 'export A=\"x y\"; L=1; export L; N=2; unset Z; B=3 exec ollama serve'")
    assert [(c.kind, c.name, c.value) for c in shell.changes] == [
        ("set", "A", "x y"), ("set", "L", "1"), ("unset", "Z", ""), ("set", "B", "3"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    ["/usr/local/bin/start.sh", "/bin/bash -c '. /etc/profile; exec ollama serve'", "/bin/bash -lc 'ollama serve'",
     "/bin/sh -c 'A=$(cat /x) ollama serve'", "/bin/sh -c 'export A=$HOME/x; ollama serve'", "/bin/sh /opt/x.sh",
     "/bin/sh -c 'if true; then ollama serve; fi'", "/usr/bin/env -S 'A=1 ollama'", "/bin/sh -c 'source /x; ollama'"],
)  # fmt: skip
def test_wrappers_whose_doings_are_not_known_are_said(line: str) -> None:
    assert unwrapped(line).unknown or unwrapped(line).argv[0].endswith("start.sh")


@given(st.text("ab=1 '\"\\$;&\n.{}!#", max_size=40))
def test_no_shell_line_is_too_odd(script: str) -> None:
    found = execstart.unwrap(("/bin/sh", "-c", script))
    assert found.programs[0] == "/bin/sh" and (found.argv or found.unknown)
