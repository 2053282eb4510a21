"""Readings of `journalctl -o json`: a cursor, PID 1's complaints about unit files, head and tail put together."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ollamactl.core.facts import Complaint
from ollamactl.core.parse.manager import read_complaint


def _records(body: bytes) -> list[dict[str, Any]]:
    found = []
    for line in body.splitlines():
        try:
            record = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            continue
        if isinstance(record, dict):
            found.append(record)
    return found


def cursor(body: bytes) -> str:
    """`__CURSOR` of the last record, or an empty string."""
    records = _records(body)
    found = records[-1].get("__CURSOR") if records else ""
    return found if isinstance(found, str) else ""


def complaints(body: bytes) -> tuple[Complaint, ...]:
    """Lines of PID 1 about a unit or one of its files, oldest first, each once."""
    found: dict[str, Complaint] = {}
    for record in _records(body):
        text, at = record.get("MESSAGE"), record.get("__REALTIME_TIMESTAMP")
        if isinstance(text, str) and str(record.get("_PID", "1")) == "1":
            seen = read_complaint(text, int(at) / 1e6 if isinstance(at, str) and at.isdigit() else None)
            if seen is not None:
                found[text] = seen
    return tuple(found.values())


def messages(body: bytes) -> list[tuple[float | None, str]]:
    """(seconds since the epoch, text) of each record whose message is text."""
    found = []
    for record in _records(body):
        text, at = record.get("MESSAGE"), record.get("__REALTIME_TIMESTAMP")
        if isinstance(text, str):
            found.append((int(at) / 1e6 if isinstance(at, str) and at.isdigit() else None, text))
    return found


def joined(head: bytes, tail: bytes) -> list[bytes]:
    """The head and the tail of one journal as one, without the records that both have. The head's last line may
    be cut off; records are ordered by time, and those of one time are told by their cursors: journald gives all lines
    that it reads at once the same time."""
    whole = head[: head.rfind(b"\n") + 1]
    last, seen = 0, set()
    for line in reversed(whole.splitlines()):
        time = _time(line)
        if time < last:
            break
        last = time
        seen.add(_cursor(line))
    later = [line for line in tail.splitlines(keepends=True) if _is_later(line, last, seen)]
    return [whole, *later]


def _is_later(line: bytes, last: int, seen: set[bytes]) -> bool:
    time = _time(line)
    return time > last or (time == last and _cursor(line) not in seen)


def _time(line: bytes) -> int:
    """`__REALTIME_TIMESTAMP` of a record in microseconds, 0 where there is none."""
    found = re.search(rb'"__REALTIME_TIMESTAMP"\s*:\s*"(\d+)"', line)
    return int(found[1]) if found else 0


def _cursor(line: bytes) -> bytes:
    found = re.search(rb'"__CURSOR"\s*:\s*"([^"]*)"', line)
    return found[1] if found else b""
