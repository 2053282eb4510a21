"""A stream of bytes in any form that people paste -> the messages in it, with what the form says about each.

Forms, told apart line by line: `journalctl -o json`, journal text (short, -iso, -precise, -full, -monotonic,
with-unit, cat; localised months), `docker logs` and compose prefixes, docker's json-file, Kubernetes' CRI form, plain server.log,
tails of `systemctl status`, and console copies with spinners, colours, NULs and carriage returns.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from ollamactl.core.parse.sift import wanted
from ollamactl.core.parse.slog import seconds_of

PIECE = 1 << 20  # bytes that are split at once
LONGEST = 1 << 20  # bytes of one line that are looked at


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
    repeated: str = ""  # raw stamp of the prefix, where it has no year


class Tally:
    """What is counted while streaming."""

    def __init__(self) -> None:
        self.lines = 0
        self.unread = 0
        self.forms: Counter[str] = Counter()


class _Journal(msgspec.Struct):
    MESSAGE: Any = None
    pid: Any = msgspec.field(name="_PID", default=None)
    invocation: Any = msgspec.field(name="_SYSTEMD_INVOCATION_ID", default="")
    of: Any = msgspec.field(name="INVOCATION_ID", default="")
    ident: Any = msgspec.field(name="SYSLOG_IDENTIFIER", default="")
    comm: Any = msgspec.field(name="_COMM", default="")
    own_unit: Any = msgspec.field(name="_SYSTEMD_UNIT", default="")
    own_user_unit: Any = msgspec.field(name="_SYSTEMD_USER_UNIT", default="")
    unit: Any = msgspec.field(name="UNIT", default="")
    user_unit: Any = msgspec.field(name="USER_UNIT", default="")
    transport: Any = msgspec.field(name="_TRANSPORT", default="")
    stamp: Any = msgspec.field(name="__REALTIME_TIMESTAMP", default=None)
    container: Any = msgspec.field(name="CONTAINER_ID", default="")
    log: Any = None  # docker's json-file
    time: Any = None


_decode = msgspec.json.Decoder(_Journal).decode
_STAMP = (
    rb"(?:\S+ {1,3}\d{1,2}\.?,? \d\d:\d\d:\d\d(?:[.,]\d+)?"  # May 18 17:01:52, 9\xe6\x9c\x88 22 …
    rb"|\d{1,2}\.? \S+ \d\d:\d\d:\d\d(?:[.,]\d+)?"  # 18 mai 17:01:52
    rb"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
    rb"|\S{1,12} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?(?: \S+)?"
    rb"|\[ *\d+\.\d+\]|\d{9,11}\.\d{3,9})"
)
_SYSLOG = re.compile(
    rb"\s*(" + _STAMP + rb") (\S+) (\(?[^\s:\[\]()]+\)?)(?:\[(\d+)\])?:(?: |$)|\s*(" + _STAMP + rb") (\S+) kernel: ()"
)
_DIRT = re.compile(rb"[\x1b\0]")
_COMPOSE = re.compile(rb"([A-Za-z0-9][\w.-]*) +\| ?")
_STAMPED = re.compile(
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) (?:(?:stdout|stderr) [FP] )?(?=\S)"
)
_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_SPINNER = re.compile(
    rb"^(?:.{0,120}\xe2[\xa0-\xa3][\x80-\xbf]\s*(?=time=|\[GIN\])|(?:\s*\xe2[\xa0-\xa3][\x80-\xbf]\s*)+)", re.S
)
_PROMPT = re.compile(rb"[^\n]{0,80}?[$#%>] ?(?=time=\d{4}|\[GIN\])")
_CONTAINER = re.compile(r"[0-9a-f]{12}|[0-9a-f]{64}|dockerd|podman|conmon")
_PRETTY = re.compile(rb'\s*"MESSAGE" : ("(?:[^"\\]|\\.)*")')


def split(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Lists of whole lines without their ends, in constant memory. UTF-16 (a redirect on Windows) becomes UTF-8."""
    carry, first = b"", True
    utf16: codecs.IncrementalDecoder | None = None
    for chunk in chunks:
        if first and chunk:
            first = False
            if chunk[:2] in (b"\xff\xfe", b"\xfe\xff"):
                utf16 = codecs.getincrementaldecoder("utf-16")("replace")
            chunk = chunk.removeprefix(b"\xef\xbb\xbf")
        if utf16 is not None:
            chunk = utf16.decode(chunk).encode("utf-8", "replace")
        for start in range(0, len(chunk), PIECE):
            lines = (carry + chunk[start : start + PIECE] if carry else chunk[start : start + PIECE]).split(b"\n")
            carry = lines.pop()
            if len(carry) > LONGEST:
                carry = carry[:LONGEST]
            yield lines
    if carry:
        yield [carry]


def entries(chunks: Iterable[bytes], tally: Tally) -> Iterator[Entry]:
    """The messages that may say something, in order."""
    number = 0
    text = _Text(tally)
    line: bytes
    for lines in split(chunks):
        for line in lines:
            number += 1
            if line[:1] == b"{":
                at = line.find(b'"MESSAGE":"')
                if at >= 0:
                    if not wanted(line, at + 11, line.find(b'","', at + 11) if line[-2:] != b'"}' else len(line)):
                        continue
                elif line.startswith(b'{"function":'):
                    yield from text.read(line, number)
                    continue
                yield from _from_json(line, number, tally)
            else:
                yield from text.read(line, number)
        tally.lines = number


def _from_json(line: bytes, number: int, tally: Tally) -> Iterator[Entry]:
    try:
        found = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            found = _decode(line.decode("utf-8", "replace").encode())
        except (msgspec.DecodeError, UnicodeDecodeError):
            tally.unread += 1
            return
    if found.MESSAGE is None and isinstance(found.log, str):
        tally.forms["docker-json"] += 1
        message = clean(found.log.encode("utf-8", "replace"))
        if wanted(message, 0, len(message)):
            yield Entry(number, message.decode("utf-8", "replace"), at=seconds_of(_text(found.time)))
        return
    message = _message(found.MESSAGE)
    if message is None:
        tally.unread += 1  # journalctl prints null for a message that is too long
        return
    tally.forms["journal-json"] += 1
    if not wanted(message, 0, len(message)):
        return
    container = _text(found.container)
    pid = int(found.pid) if isinstance(found.pid, str) and found.pid.isdecimal() else None
    comm, ident = _text(found.comm), _text(found.ident)
    manager = bool(found.unit or found.user_unit) and (pid == 1 or comm == "systemd" or comm.startswith("("))
    own = _text(found.own_user_unit) or _text(found.own_unit)
    yield Entry(
        number,
        message.decode("utf-8", "replace"),
        None if container else pid,
        container or _text(found.of if manager else found.invocation),
        ident or comm,
        _text(found.user_unit or found.unit) if manager else own,
        int(found.stamp) / 1e6 if isinstance(found.stamp, str) and found.stamp.isdecimal() else None,
        manager,
        found.transport == "kernel",
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _message(value: Any) -> bytes | None:
    """The bytes of a MESSAGE field: text, a list of byte numbers, or a list of several."""
    if isinstance(value, list):
        if all(isinstance(one, int) and 0 <= one < 256 for one in value):
            return clean(bytes(value))
        value = next((one for one in value if isinstance(one, str)), None)
    if not isinstance(value, str):
        return None
    return clean(value.encode("utf-8", "replace"))


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


class _Text:
    """Unwraps text lines. Remembers the prefix of the last journal line: most have the same."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.token = b"\xff"
        self.offset = 0
        self.seen: tuple[str, int | None, bool, bool] = ("", None, False, False)

    def read(self, line: bytes, number: int) -> Iterator[Entry]:
        if line.startswith(self.token, self.offset) and line[-1:] != b"\r" and not _DIRT.search(line):
            at = self.offset + len(self.token)
            if wanted(line, at, len(line)) or line[at : at + 1] in (b"\xe2", b" "):
                yield from self._journal(line[: self.offset], line[at:], number)
            return
        line = clean(line)
        if wanted(line, 0, len(line)) and line[:4] in (b"time", b"[GIN", b"llam"):
            self.tally.forms["slog"] += 1
            yield Entry(number, line.decode("utf-8", "replace"))
            return
        found = _SYSLOG.match(line)
        if found is not None:
            self._remember(found)
            yield from self._journal(line[found.start(1) : found.end(1)], line[found.end() :], number)
            return
        yield from self._bare(line, number)

    def _remember(self, found: re.Match[bytes]) -> None:
        self.tally.forms["journal-text"] += 1
        if found[1] is None:
            self.token, self.seen = b"\xff", ("kernel", None, False, True)
            return
        ident = found[3].decode("utf-8", "replace")
        pid = int(found[4]) if found[4] and len(found[4]) < 12 else None
        manager = pid == 1 or ident.startswith("(") or ident == "systemd"
        self.seen = (ident, None if _CONTAINER.fullmatch(ident) else pid, manager, ident == "kernel" and pid is None)
        self.offset = found.end(1)
        self.token = found[0][found.end(1) - found.start() :] if found[0].endswith(b" ") else b"\xff"

    def _journal(self, stamp: bytes, message: bytes, number: int) -> Iterator[Entry]:
        ident, pid, manager, kernel = self.seen
        message = clean(message)
        if manager or kernel or wanted(message, 0, len(message)):
            when = stamp.decode("utf-8", "replace").strip()
            at = seconds_of(when) if when[:4].isdecimal() else None
            text = message.decode("utf-8", "replace")
            yield Entry(number, text, pid, "", ident, "", at, manager, kernel)

    def _bare(self, line: bytes, number: int) -> Iterator[Entry]:
        """A line without a journal prefix: behind docker's, compose's or a shell's, or as it is."""
        at: float | None = None
        for _ in range(3):
            found = _COMPOSE.match(line) or _STAMPED.match(line)
            if found is None:
                break
            self.tally.forms["docker"] += 1
            if found.re is _STAMPED:
                at = seconds_of(found[1].decode())
            line = clean(line[found.end() :])
        else:
            return
        if line[:1] in (b" ", b"\t", b">"):
            bare = line.lstrip(b" \t>")
            if bare.startswith((b"time=", b"[GIN]", b"llama_", b"load_tensors")) or _SYSLOG.match(bare):
                yield from self.read(bare, number)
                return
            pretty = _PRETTY.match(line)
            if pretty is not None:
                line = msgspec.json.decode(pretty[1].decode("utf-8", "replace").encode(), type=str).encode()
        if (line[:4] != b"time" and b"time=20" in line[:90]) or b"[GIN]" in line[1:90]:
            line = _PROMPT.sub(b"", line, count=1)
        if wanted(line, 0, len(line)):
            self.tally.forms["slog"] += 1
            yield Entry(number, line.decode("utf-8", "replace"), at=at)
