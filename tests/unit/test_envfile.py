"""EnvironmentFile= grammar; what is expected here was seen in processes of systemd 252."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollamactl.core.parse import envfile, environ


def entries(text: str, systemd: int | None = 252) -> list[tuple[str, str, int]]:
    return [(e.name, e.value, e.line) for e in envfile.parse(text, systemd=systemd).entries]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1\nB=2", [("A", "1", 1), ("B", "2", 2)]),
        ("\n # c\n; c\n  A = 1 2  \n", [("A", "1 2", 4)]),
        ("A='a\nb' c \nB=2", [("A", "a\nbc", 1), ("B", "2", 3)]),
        ('A="a\\qb\\"\\\\\\`\\$"d', [("A", 'a\\qb"\\`$d', 1)]),
        ('A="x\\\ny"\nB=1', [("A", "xy", 1), ("B", "1", 3)]),
        ("A=one\\\ntwo\nB=1", [("A", "onetwo", 1), ("B", "1", 3)]),
        ("A=\\\n   foo", [("A", "   foo", 1)]),
        ("A=foo\\ \nB=x # y", [("A", "foo ", 1), ("B", "x # y", 2)]),
        ("A='a'\"b\"c", [("A", "abc", 1)]),
        ("A=x 'y' ", [("A", "x 'y'", 1)]),
        ("A=\nB=''\nC", [("A", "", 1), ("B", "", 2)]),
        ("A=$B %n ${C}", [("A", "$B %n ${C}", 1)]),
        ("A=1\r\nB=2\r\n", [("A", "1", 1), ("B", "2", 2)]),
        ("A=1\\\r\nB=2\r\n", [("A", "1", 1), ("B", "2", 2)]),
        ("A==1=", [("A", "=1=", 1)]),
        ("A=\u00a01", [("A", "\u00a01", 1)]),
        ("", []),
    ],
)
def test_values(text: str, expected: list[tuple[str, str, int]]) -> None:
    assert entries(text) == expected


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("export A=1", 1, "belongs to a shell"),
        ("A=1\nB-C=1", 2, "'B-C' is no name"),
        ("A=1\nnothing\n", 2, "no `=`"),
        ("\ufeffA=1", 1, "byte order mark"),
        ("A=1\nB='x\nC=2\n", 2, "a quote is not closed"),
        ("A=1\\\r\nB=2", 1, "CR LF"),
        ("A=“1”", 1, "typographic"),
        ('Environment="A=1"', 1, "a variable called Environment"),
        ("A=1 # why", 1, "a comment needs a line of its own"),
        ("# x \\\nA=1", 2, "this line is comment too"),
    ],
)
def test_lines_that_are_ignored_or_misread_are_said(text: str, line: int, why: str) -> None:
    found = [p.why for p in envfile.parse(text).problems if p.line == line]
    assert any(re.search(why, said) for said in found), found


def test_a_comment_that_ends_with_a_backslash_depends_on_the_release() -> None:
    assert entries("# x \\\nA=1\nB=2", 253) == [("B", "2", 3)]
    assert entries("# x \\\nA=1\nB=2", 254) == [("A", "1", 2), ("B", "2", 3)]
    assert entries("# x \\\nA=1\nB=2", None) == [("B", "2", 3)]


def test_bytes_that_are_not_text_end_the_file() -> None:
    for text in ("A=1\nB=\udcff\n", "A=1\nB=\ufdd0\n", "A=1\0"):
        found = envfile.parse(text, "/etc/x", optional=True)
        assert found.missing is not None and found.missing.kind == "unparsable"
        assert (found.entries, found.path, found.optional) == ((), "/etc/x", True)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_quoted_values_come_back_or_are_refused(value: str) -> None:
    try:
        line = envfile.quote("A", value)
    except ValueError:
        return
    assert entries(line + "\nB=1") == [("A", value, 1), ("B", "1", 2)]
    assert not [p for p in envfile.parse(line).problems if "typographic" not in p.why]


def test_environ_of_a_process() -> None:
    data = b"A=1\0B=a=b\nc\0\0C=\xff\0junk\0A=2\0=x\0D="
    assert environ.parse(data) == {"A": "1", "B": "a=b\nc", "C": "\udcff", "D": ""}
    assert environ.parse(b"") == {}


@given(st.text(st.sampled_from(list("AB=1 '\"\\$#;\n\r\0\ufeff\udcffé")), max_size=60))
def test_no_text_is_too_odd(text: str) -> None:
    found = envfile.parse(text)
    assert all(entry.line <= len(re.split("\r\n|\r|\n", text)) for entry in found.entries)
    assert all(problem.why for problem in found.problems)
