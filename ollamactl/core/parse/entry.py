"""A message as its form gives it, what is counted while reading, and the cleaning that all forms need."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

LONGEST = 1 << 20  # bytes of one line that are looked at
_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_SPINNER = re.compile(
    rb"^(?:.{0,120}\xe2[\xa0-\xa3][\x80-\xbf]\s*(?=time=|\[GIN\])|(?:\s*\xe2[\xa0-\xa3][\x80-\xbf]\s*)+)", re.S
)


class Entry(NamedTuple):
    """One message. Only what the form itself says: a claim inside the message fills none of these."""

    number: int  # of its line, from 1
    text: str
    pid: int | None = None
    invocation: str = ""
    ident: str = ""  # SYSLOG_IDENTIFIER, or the name before the pid
    unit: str = ""
    at: float | None = None
    manager: bool = False  # from PID 1, or its child before exec
    kernel: bool = False
    journald: bool = False  # journald's own word about the unit's lines


class Tally:
    """What is counted while streaming."""

    def __init__(self) -> None:
        self.lines = 0
        self.unread = 0
        self.forms: Counter[str] = Counter()


def clean(line: bytes) -> bytes:
    """A line without colours, NULs, spinner characters and what a carriage return has overwritten."""
    if b"\x1b" in line:
        line = _ANSI.sub(b"", line)
    if b"\0" in line:
        line = line.replace(b"\0", b"")
    if b"\r" in line:
        line = line.rstrip(b"\r")
        line = line[line.rfind(b"\r") + 1 :]
    if b"\xe2" in line[:124]:
        line = _SPINNER.sub(b"", line)
    return line
