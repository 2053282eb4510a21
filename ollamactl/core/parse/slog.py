"""Ollama's own log lines: slog text, and the plain Go log of old releases and of the first moments of a start.

    time=2026-11-30T02:56:38.618Z level=INFO source=routes.go:1951 msg="server config" env="map[…]"
    2024/05/18 17:01:52 routes.go:1008: INFO server config env="map[…]"          (before slog is set up)
    2024/01/10 12:36:43 routes.go:930: Listening on 127.0.0.1:11434 (version 0.1.19)    (up to 0.1.20)

A line counts only if it *begins* so: the same text inside a message, a prompt or another field is not a record.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

# Console copies may lose the blanks between fields, so none is required here.
_HEAD = re.compile(  # people put `…` for the time
    r"(?:time=(\d{4}-\d\d-\d\dT\S+?|[^\w\s]\S{0,30}|)\s*)?"
    r"(?:level=([A-Z]+(?:[+-]\d+)?)|(?=source=\w+\.go:)|(?<=\d\dZ )(?=msg=)|(?<=\d[+-]\d\d:\d\d )(?=msg=))"
    r"\s*(?:source=(\S*?)\s*)?msg="
)
_PLAIN = re.compile(
    r"(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d)(?:\.\d+)? (?:(\S+\.(?:go|s):\d+): )?(?:(DEBUG|INFO|WARN|ERROR)\s+)?(.*)", re.S
)
_QUOTED = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.S)
_BARE = re.compile(r'[^\s"]\S*|')
_KEY = re.compile(r'\s*(?:"([^"\\]*(?:\\.[^"\\]*)*)"|([^\s="]+))=', re.S)
_PLAIN_TAIL = re.compile(r'(.*?)((?:\s+(?:"[^"]*"|[A-Za-z_][\w.]*)=.*)?)', re.S)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})|(.))", re.S)
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_RFC3339 = re.compile(
    r"(\d{4})[-/](\d\d)[-/](\d\d)(?:T| - | )(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?\s*(Z|[+-]\d\d:?\d\d)?"
)


class Line(NamedTuple):
    """One record. `time` is empty where it was cut off, `level` where the release prints none; `cut` is true where
    its end is missing."""

    time: str
    level: str
    source: str
    msg: str
    fields: dict[str, str]
    cut: bool = False
    plain: bool = False  # the plain Go form


def unquote(text: str) -> str:
    """The content of a Go quoted string. Unknown escapes stand for the character after the backslash."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(_unescape, text)


def _unescape(found: re.Match[str]) -> str:
    hexes = found[1] or found[2] or found[3]
    if hexes or found[4]:
        code = int(hexes, 16) if hexes else int(found[4], 8)
        return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"
    return _SIMPLE.get(found[5], found[5])


def parse(text: str) -> Line | None:
    """The record at the beginning of `text`, or None where there is none."""
    if text.startswith(("time=", "level=", "source=")):  # grep's and people's cuts leave the time out
        head = _HEAD.match(text)
        if head is None and "**" in text:  # parts of it in bold
            text = text.replace("**", "")
            head = _HEAD.match(text)
        if head is None:
            return None
        msg, end, cut = _value(text, head.end())
        fields: dict[str, str] = {}
        if not cut:
            cut = _fields(text, end, fields)
        return Line(head[1] or "", head[2] or "", head[3] or "", msg, fields, cut)
    if text[:2] in ("20", "19"):
        found = _PLAIN.fullmatch(text)
        if found is None:
            return None
        msg, fields, cut = found[4], {}, False
        if found[3]:  # only lines with a level have fields behind the message
            tail = _PLAIN_TAIL.fullmatch(msg)
            assert tail is not None  # the pattern takes any text
            msg = tail[1]
            cut = _fields(tail[2], 0, fields)
        return Line(found[1], found[3] or "", found[2] or "", msg.rstrip(), fields, cut, True)
    return None


def _value(text: str, at: int) -> tuple[str, int, bool]:
    """The value at a position: (value, where it ends, its end is missing)."""
    if text[at : at + 1] == '"':
        found = _QUOTED.match(text, at)
        if found is None:
            rest = unquote(text[at + 1 :]).rstrip()
            return rest.removesuffix("…").removesuffix(">").removesuffix("...").rstrip(), len(text), True
        return unquote(found[1]), found.end(), False
    found = _BARE.match(text, at)
    return (found[0], found.end(), False) if found else ("", at, False)


def _fields(text: str, at: int, into: dict[str, str]) -> bool:
    """Reads `key=value` pairs from a position into a dict; says whether the line was cut."""
    while at < len(text):
        key = _KEY.match(text, at)
        if key is None:
            return bool(text[at:].strip())
        value, at, cut = _value(text, key.end())
        into[unquote(key[1]) if key[1] is not None else key[2]] = value
        if cut:
            return True
    return False


def seconds_of(stamp: str, offset: float = 0.0) -> float | None:
    """Seconds since the epoch of an RFC 3339 time, or of Go's and gin's local form with `offset` seconds of
    east longitude; None where it is none."""
    found = _RFC3339.match(stamp)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found[i]) for i in range(1, 7))
    own = offset_of(stamp)
    try:
        zone = timezone(timedelta(seconds=offset if own is None else own))
        whole = datetime(year, month, day, hour, minute, second, tzinfo=zone).timestamp()
    except (ValueError, OverflowError):
        return None
    return whole + float("0." + found[7]) if found[7] else whole


def offset_of(stamp: str) -> float | None:
    """The offset from UTC that a time carries, in seconds; None where it carries none."""
    found = _RFC3339.match(stamp)
    if found is None or not found[8]:
        return None
    if found[8] == "Z":
        return 0.0
    digits = found[8][1:].replace(":", "")
    return (-1 if found[8][0] == "-" else 1) * (int(digits[:2]) * 3600.0 + int(digits[2:]) * 60)
