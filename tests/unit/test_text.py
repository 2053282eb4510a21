"""Screens: 80 columns and fewer, no colour where none is wanted, nothing a terminal would obey, closed outputs."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollamactl.report.text import Terminal, clean, columns, size


class Stream(io.StringIO):
    """A terminal, or a pipe."""

    def __init__(self, live: bool) -> None:
        super().__init__()
        self._live = live

    def isatty(self) -> bool:
        return self._live


@given(st.text())
def test_no_text_reaches_the_terminal_as_a_command(text: str) -> None:
    out = Terminal(Stream(False))
    out.wrap(text, indent=2, mark="✗", kind="error")
    out.lines(*columns([["a", text], ["b", "c"]], {1}, 60))
    shown = out.stream.getvalue()  # type: ignore[attr-defined]
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", shown)


def test_a_forged_colour_is_not_taken_for_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    stream = Stream(True)
    Terminal(stream).wrap("bad \x1b[32mgood", mark="✗", kind="error")
    assert stream.getvalue() == "\x1b[31m✗\x1b[0m bad \N{REPLACEMENT CHARACTER}[32mgood\n"


@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_are_left_out_where_they_are_not_wanted(
    variable: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variable.items():
        monkeypatch.setenv(name, value)
    stream = Stream(True)
    Terminal(stream).wrap("bad", mark="✗", kind="error")
    assert stream.getvalue() == "✗ bad\n"


def test_progress_is_shown_to_people_only() -> None:
    pipe, terminal = Stream(False), Stream(True)
    for stream in (pipe, terminal):
        out = Terminal(stream, colour=False)
        out.working("loading")
        out.line("loaded")
    assert pipe.getvalue() == "loaded\n"
    assert "loading" in terminal.getvalue()


def test_a_number_keeps_its_unit_and_words_stay_whole() -> None:
    stream = Stream(False)
    Terminal(stream).wrap("x" * 76 + " 48 MiB of memory and /a/very/long/path/" + "y" * 90)
    lines = stream.getvalue().splitlines()
    assert lines[1].startswith("48 MiB of memory")
    assert lines[-1] == "/a/very/long/path/" + "y" * 90


class Broken(Stream):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_closed_output_ends_what_is_shown_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal(Broken(False))
    out.line("a")
    out.line("b")
    assert out.closed
    monkeypatch.setattr("sys.stdout", None)
    Terminal().wrap("nobody there")


def test_tables_shrink_before_they_wrap() -> None:
    rows = [["OLLAMA_NUM_PARALLEL", "4", "x" * 40], ["short", "12", "y"]]
    for width in (30, 50, 80, 200):
        assert max(len(line) for line in columns(rows, {1}, width)) <= width
    assert columns(rows, {1}, 200)[0] == f"OLLAMA_NUM_PARALLEL   4  {'x' * 40}"


def test_sizes() -> None:
    assert [size(n) for n in (None, 0, 1 << 20, 1 << 30, 3 << 40)] == ["–", "0", "1 MiB", "1.0 GiB", "3,072.0 GiB"]
    assert clean("a\tb\nc") == "a b c"
