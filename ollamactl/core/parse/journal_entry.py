"""`journalctl -o json` and docker's json-file: one record -> one message.

journald breaks a line that is longer than its LineMax= (48 KiB); all parts but the last say `_LINE_BREAK=line-max`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from ollamactl.core.parse.entry import LONGEST, Entry, Tally, clean
from ollamactl.core.parse.sift import CHATTER, wanted
from ollamactl.core.parse.slog import seconds_of

MOST_BEGUN = 64  # processes of which a part of a line is held
_CUT_JSON = re.compile(rb'\{"log":"(?:[^"\\]|\\.)*"(?=\s*$)')  # docker's json-file, copied without what follows


class _Journal(msgspec.Struct, gc=False):
    """The fields that are needed of an entry. A field given twice is a list, one that is too long is null."""

    MESSAGE: str | list[Any] | None = None
    pid: str = msgspec.field(name="_PID", default="")
    invocation: str = msgspec.field(name="_SYSTEMD_INVOCATION_ID", default="")
    of: str = msgspec.field(name="INVOCATION_ID", default="")
    ident: str = msgspec.field(name="SYSLOG_IDENTIFIER", default="")
    comm: str = msgspec.field(name="_COMM", default="")
    own_unit: str = msgspec.field(name="_SYSTEMD_UNIT", default="")
    own_user_unit: str = msgspec.field(name="_SYSTEMD_USER_UNIT", default="")
    unit: str = msgspec.field(name="UNIT", default="")
    user_unit: str = msgspec.field(name="USER_UNIT", default="")
    transport: str = msgspec.field(name="_TRANSPORT", default="")
    stamp: str = msgspec.field(name="__REALTIME_TIMESTAMP", default="")
    container: str = msgspec.field(name="CONTAINER_ID", default="")
    line_break: str = msgspec.field(name="_LINE_BREAK", default="")
    object_unit: str = msgspec.field(name="OBJECT_SYSTEMD_UNIT", default="")
    log: str = ""  # docker's json-file
    time: str = ""


_decode = msgspec.json.Decoder(_Journal).decode


class _Begun(NamedTuple):
    """A line of which journald has given some parts."""

    number: int
    first: _Journal
    parts: list[bytes]


class Records:
    """Reads records one by one, and holds what journald broke until its last part has come."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.begun: dict[str, _Begun] = {}  # by pid

    def worth(self, piece: bytes, lines: int) -> list[tuple[int, bytes]] | None:
        """The lines worth a look, with their numbers from 1, of a piece that is all journal entries; None where each
        has to be read: one may be a part of another."""
        return None if self.begun or b'"_LINE_BREAK"' in piece else _worth(piece, lines)

    def read(self, line: bytes, number: int) -> Entry | None:
        try:
            found = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            cut = _CUT_JSON.match(line)
            repaired = _repaired(cut[0] + b"}" if cut else line)
            if repaired is None:
                self.tally.unread += 1
                return None
            found = repaired
        if found.MESSAGE is None and found.log:
            return self._of_docker(found, number)
        message = _message(found.MESSAGE)
        if message is None and line.startswith(b'{"error":'):
            return _of_api(line, number)
        if message is None:
            self.tally.unread += 1  # journalctl prints null for a message that is too long
            return None
        self.tally.forms["journal-json"] += 1
        if found.line_break == "line-max" or found.pid in self.begun:
            return self._part(found, message, number)
        return _entry(found, message, number)

    def rest(self) -> Iterator[Entry]:
        """What was begun and not ended."""
        whole = (_entry(one.first, b"".join(one.parts), one.number) for one in self.begun.values())
        yield from (entry for entry in whole if entry is not None)
        self.begun = {}

    def _part(self, found: _Journal, message: bytes, number: int) -> Entry | None:
        begun = self.begun.get(found.pid) or _Begun(number, found, [])
        if sum(map(len, begun.parts)) < LONGEST:
            begun.parts.append(message)
        if found.line_break == "line-max":
            if len(self.begun) < MOST_BEGUN:
                self.begun[found.pid] = begun
            return None
        self.begun.pop(found.pid, None)
        return _entry(begun.first, b"".join(begun.parts), begun.number)

    def _of_docker(self, found: _Journal, number: int) -> Entry | None:
        self.tally.forms["docker-json"] += 1
        message = clean(found.log.rstrip("\n").encode("utf-8", "replace"))
        if not wanted(message, 0, len(message)):
            return None
        return Entry(number, message.decode("utf-8", "replace"), at=seconds_of(found.time))


class _Reply(msgspec.Struct):
    """What the API answers with: its own form, and that of OpenAI."""

    error: str | dict[str, Any]


def _of_api(line: bytes, number: int) -> Entry | None:
    """A refusal of the API that was pasted as it came, in the words of the client that would have had it."""
    try:
        said = msgspec.json.decode(line, type=_Reply).error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    text = said if isinstance(said, str) else str(said.get("message", ""))
    return Entry(number, f"Error: {text}") if text else None


def _entry(found: _Journal, message: bytes, number: int) -> Entry | None:
    if not wanted(message, 0, len(message)):
        return None
    pid = int(found.pid) if found.pid.isdecimal() else None
    manager = bool(found.unit or found.user_unit) and (
        pid == 1 or found.comm == "systemd" or found.comm.startswith("(")
    )
    journald = found.transport == "driver"
    unit = (found.user_unit or found.unit) if manager else (found.own_user_unit or found.own_unit)
    return Entry(
        number,
        message.decode("utf-8", "replace"),
        None if found.container else pid,
        found.container or (found.of if manager else found.invocation),
        found.ident or found.comm,
        found.object_unit if journald else unit,
        int(found.stamp) / 1e6 if found.stamp.isdecimal() else None,
        manager,
        found.transport == "kernel",
        journald,
    )


def _worth(piece: bytes, lines: int) -> list[tuple[int, bytes]] | None:
    """The lines worth a look, with their numbers from 1, of a piece that is all journal entries as JSON; else None.
    Each line then holds one MESSAGE key: quotes within values are escaped, so what looks like the key is the key."""
    parts = piece.split(b'"MESSAGE":')
    if len(parts) != lines + 1:
        return None
    worth = []
    last = parts[0]
    for number, part in enumerate(parts):
        if number:
            if part[:1] != b'"' or (CHATTER(part, 1) is None and _escaped_wanted(part)):
                start = last.rfind(b"\n") + 1
                if last[start : start + 1] != b"{":
                    return None
                end = part.find(b"\n")
                worth.append((number, last[start:] + b'"MESSAGE":' + (part if end < 0 else part[:end])))
            elif b"\n" not in part and number != lines:
                return None
        last = part
    return worth


def _escaped_wanted(part: bytes) -> bool:
    """`wanted` for a message that is still JSON text, from its opening quote on."""
    if part[1:2] in (b"\\", b"\xe2"):  # an escape or a spinner stands before what it begins with
        return True
    end = part.find(b'","', 1)
    return wanted(part, 1, end if end >= 0 else len(part))


def _repaired(line: bytes) -> _Journal | None:
    """An entry with bytes that are not UTF-8, or with fields that are not text, which are left out."""
    try:
        whole = msgspec.json.decode(line.decode("utf-8", "replace"))
        fields = {name: value for name, value in whole.items() if isinstance(value, str) or name == "MESSAGE"}
        return msgspec.convert(fields, _Journal)
    except (msgspec.DecodeError, msgspec.ValidationError, AttributeError, RecursionError):
        return None


def _message(value: str | list[Any] | None) -> bytes | None:
    """The bytes of a MESSAGE field: text, a list of byte numbers, or a list of several."""
    if isinstance(value, list):
        if all(isinstance(one, int) and 0 <= one < 256 for one in value):
            return clean(bytes(value))
        value = next((one for one in value if isinstance(one, str)), None)
    if not isinstance(value, str):
        return None
    return clean(value.encode("utf-8", "replace"))
