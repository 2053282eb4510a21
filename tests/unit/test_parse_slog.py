"""Ollama's own lines: slog text and the plain Go log."""
# ruff: noqa: E501  (log lines stand as they are printed)

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollamactl.core.parse import slog


def go_quote(text: str) -> str:
    """strconv.Quote of printable text."""
    out = []
    for char in text:
        if char in '"\\':
            out.append("\\" + char)
        elif char in "\n\t\r\a\b\f\v":
            out.append("\\" + {"\n": "n", "\t": "t", "\r": "r", "\a": "a", "\b": "b", "\f": "f", "\v": "v"}[char])
        elif ord(char) < 32 or ord(char) == 127:
            out.append(f"\\x{ord(char):02x}")
        elif not char.isprintable():
            out.append(f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}")
        else:
            out.append(char)
    return '"' + "".join(out) + '"'


def slog_value(text: str) -> str:
    plain = text and all(char.isprintable() and char not in ' "=\\' for char in text)
    return text if plain else go_quote(text)


keys = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=12)
values = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=40)


def test_quoted_values_and_keys_with_blanks() -> None:
    line = slog.parse(
        'time=2025-08-15T11:49:46.246Z level=INFO source=routes.go:1398 msg="entering low vram mode" '
        '"total vram"="7.8 GiB" threshold="20.0 GiB"'
    )
    assert line is not None
    assert (line.level, line.source, line.msg) == ("INFO", "routes.go:1398", "entering low vram mode")
    assert line.fields == {"total vram": "7.8 GiB", "threshold": "20.0 GiB"}
    assert not line.cut


def test_escaped_quotes_and_backslashes() -> None:
    line = slog.parse(r'time=2026-11-30T02:56:38Z level=WARN source=a.go:1 msg=m error="Get \"x\": C:\\Users\\a\nb" n=1')
    assert line is not None
    assert line.fields == {"error": 'Get "x": C:\\Users\\a\nb', "n": "1"}


def test_plain_form_before_slog_is_set_up() -> None:
    line = slog.parse('2024/05/18 17:01:52 routes.go:1008: INFO server config env="map[A:b OLLAMA_X:]"')
    assert line is not None
    assert (line.level, line.source, line.msg, line.plain) == ("INFO", "routes.go:1008", "server config", True)
    assert line.fields == {"env": "map[A:b OLLAMA_X:]"}


def test_plain_warning_has_fields() -> None:
    line = slog.parse(
        "2026/11/30 02:58:54 config.go:263: WARN invalid environment variable, using default "
        "key=OLLAMA_NUM_PARALLEL value=abc default=1"
    )
    assert line is not None
    assert line.msg == "invalid environment variable, using default"
    assert line.fields == {"key": "OLLAMA_NUM_PARALLEL", "value": "abc", "default": "1"}


def test_oldest_form_has_neither_level_nor_fields() -> None:
    line = slog.parse("2024/01/10 12:36:43 routes.go:930: Listening on 127.0.0.1:11434 (version 0.1.19)")
    assert line is not None
    assert (line.level, line.msg) == ("", "Listening on 127.0.0.1:11434 (version 0.1.19)")


def test_lost_blanks_of_console_copies() -> None:
    line = slog.parse('time=2024-03-12T18:54:03.674Zlevel=INFOsource=images.go:710msg="total blobs: 0"')
    assert line is not None
    assert (line.time, line.level, line.source, line.msg) == (
        "2024-03-12T18:54:03.674Z", "INFO", "images.go:710", "total blobs: 0"
    )  # fmt: skip


@pytest.mark.parametrize("end", ["…", ">", ""])
def test_cut_lines_say_so(end: str) -> None:
    line = slog.parse(f'time=2026-11-30T02:56:38Z level=INFO source=routes.go:1 msg="server config" env="map[CUDA_VISIB{end}')
    assert line is not None
    assert line.cut
    assert line.fields["env"] == "map[CUDA_VISIB"


@pytest.mark.parametrize(
    "text",
    [
        'the prompt said time=2026-11-30T02:56:38Z level=INFO source=routes.go:1 msg="server config"',
        "time=now level=INFO msg=x",
        "time=",
        "",
        "2024-05-18 17:01:52 not this",
    ],
)
def test_only_a_line_that_begins_so_counts(text: str) -> None:
    assert slog.parse(text) is None


@given(values, st.lists(st.tuples(keys, values), max_size=6, unique_by=lambda pair: pair[0]))
def test_reads_back_what_slog_writes(msg: str, pairs: list[tuple[str, str]]) -> None:
    text = f"time=2026-11-30T02:56:38.618Z level=INFO source=a.go:1 msg={slog_value(msg)}"
    text += "".join(f" {slog_value(key)}={slog_value(value)}" for key, value in pairs)
    line = slog.parse(text)
    assert line is not None
    assert line.msg == msg
    assert line.fields == dict(pairs)
    assert not line.cut


@given(st.text(max_size=200))
def test_never_raises(text: str) -> None:
    slog.parse(text)
    slog.parse("time=2026-11-30T02:56:38Z level=INFO source=a.go:1 msg=" + text)
    slog.parse("2026/11/30 02:58:54 a.go:1: WARN " + text)
    slog.unquote(text)
    slog.seconds_of(text)


@pytest.mark.parametrize(
    ("stamp", "offset", "seconds"),
    [
        ("2024-05-18T09:01:52.740Z", 0.0, 1716022912.74),
        ("2024-05-18T17:01:52.740+08:00", 0.0, 1716022912.74),
        ("2024-05-18T17:01:52+0800", 0.0, 1716022912.0),
        ("2024/05/18 17:01:52", 28800.0, 1716022912.0),
        ("2024/05/18 - 17:01:52", 28800.0, 1716022912.0),
        ("2024/13/18 17:01:52", 0.0, None),
        ("soon", 0.0, None),
    ],
)
def test_times(stamp: str, offset: float, seconds: float | None) -> None:
    found = slog.seconds_of(stamp, offset)
    assert found == pytest.approx(seconds, abs=1e-3) if seconds is not None else found is None
