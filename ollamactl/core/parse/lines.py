"""A stream of bytes in any form that people paste -> the messages in it, with what the form says about each.

Forms, told apart line by line: `journalctl -o json`, journal text (short, -iso, -precise, -full, -monotonic,
with-unit, cat; localised months), `docker logs` and compose prefixes, docker's json-file, Kubernetes' CRI form,
plain server.log, tails of `systemctl status`, and console copies with spinners, colours, NULs and carriage returns.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from ollamactl.core.parse.sift import CHATTER, wanted
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


class Tally:
    """What is counted while streaming."""

    def __init__(self) -> None:
        self.lines = 0
        self.unread = 0
        self.forms: Counter[str] = Counter()


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
    log: str = ""  # docker's json-file
    time: str = ""


_decode = msgspec.json.Decoder(_Journal).decode
_STAMP = (
    rb"(?:\S+ {1,3}\d{1,2}\.?,? \d\d:\d\d:\d\d(?:[.,]\d+)?"  # May 18 17:01:52, 9\xe6\x9c\x88 22 …
    rb"|\d{1,2}\.? \S+ \d\d:\d\d:\d\d(?:[.,]\d+)?"  # 18 mai 17:01:52
    rb"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
    rb"|\S{1,12} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?(?: \S+)?"
    rb"|\[ *\d+\.\d+\]|\d{9,11}\.\d{3,9})"
)
_SYSLOG = re.compile(  # a name without a pid only where no line of the engine can look so
    rb"\s*(" + _STAMP + rb") (\S+) (?:(\(?[^\s:\[\]()]+\)?)\[(\d+)\]|(kernel|ollama\S*)):(?: |$)"
)
_DIRT = re.compile(rb"[\x1b\0]")
_CUT_JSON = re.compile(rb'\{"log":"(?:[^"\\]|\\.)*"(?=\s*$)')  # docker's json-file, copied without what follows
_UNHOSTED = re.compile(  # systemd's line of which host and name, or all before the name, were left out
    rb"[\s`>]*(?:" + _STAMP + rb" (?=[\w@-]*ollama[\w@-]*\.service: [A-Z])|(?:\xe2\x80\xa6|\.\.\.)? ?systemd\[1\]: )"
)
_CUT = re.compile(  # a journal's line of which time and host were left out
    rb"[\s`>]*(?:\xe2\x80\xa6|\.\.\.|" + _STAMP + rb")? {0,3}ollama\[\d{1,9}\]: "
    rb"(?=time=|level=|source=\w+\.go|\[GIN\]|\d{4}/\d\d/\d\d |[a-z_]+: |Error: )"
)
_COMPOSE = re.compile(rb"([A-Za-z0-9][\w.-]*) +\| ?")
_STAMPED = re.compile(
    rb"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)?)"
    rb"(?: {1,4}(?:stdout|stderr) [FP] (?=\S)|[ \t|]{0,4}(?:INFO|info|stderr|stdout)?[ \t|]{0,4}"
    rb"(?=time=\d|\d{4}/\d\d/\d\d |\[GIN\]|[a-z_]+: |Error: )|(?<=[Z\d]) (?=\S))"
)
_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_SPINNER = re.compile(
    rb"^(?:.{0,120}\xe2[\xa0-\xa3][\x80-\xbf]\s*(?=time=|\[GIN\])|(?:\s*\xe2[\xa0-\xa3][\x80-\xbf]\s*)+)", re.S
)
_PROMPT = re.compile(rb"[^\n]{0,80}?[$#%>] ?(?=time=\d{4}|\[GIN\])")
_CONTAINER = re.compile(r"[0-9a-f]{12}|[0-9a-f]{64}|dockerd|podman|conmon")
_PRETTY = re.compile(rb'\s*"MESSAGE" : ("(?:[^"\\]|\\.)*")')


def pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The stream in pieces of whole lines, in constant memory. UTF-16 (a redirect on Windows) becomes UTF-8."""
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
            piece = chunk[start : start + PIECE]
            last = piece.rfind(b"\n") + 1
            if last:
                yield carry + piece[:last]
                carry = piece[last:]
            elif len(carry) < LONGEST:
                carry += piece
    if carry:
        yield carry


def entries(chunks: Iterable[bytes], tally: Tally) -> Iterator[Entry]:
    """The messages that may say something, in order."""
    text = _Text(tally)
    for piece in pieces(chunks):
        before = tally.lines
        tally.lines += piece.count(b"\n") + (piece[-1:] != b"\n")
        if piece[:1] == b"{":
            worth = _journal_entries(piece, tally.lines - before)
            if worth is not None:
                for number, line in worth:
                    entry = _from_json(line, before + number, tally)
                    if entry is not None:
                        yield entry
                continue
        for number, line in enumerate(piece.split(b"\n"), before + 1):
            if line[:1] == b"{" and not line.startswith(b'{"function":'):
                entry = _from_json(line, number, tally)
            else:
                entry = text.read(line, number)
            if entry is not None:
                yield entry


def _journal_entries(piece: bytes, lines: int) -> list[tuple[int, bytes]] | None:
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


def _from_json(line: bytes, number: int, tally: Tally) -> Entry | None:
    try:
        found = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        cut = _CUT_JSON.match(line)
        repaired = _repaired(cut[0] + b"}" if cut else line)
        if repaired is None:
            tally.unread += 1
            return None
        found = repaired
    if found.MESSAGE is None and found.log:
        tally.forms["docker-json"] += 1
        message = clean(found.log.rstrip("\n").encode("utf-8", "replace"))
        if wanted(message, 0, len(message)):
            return Entry(number, message.decode("utf-8", "replace"), at=seconds_of(found.time))
        return None
    read = _message(found.MESSAGE)
    if read is None:
        tally.unread += 1  # journalctl prints null for a message that is too long
        return None
    tally.forms["journal-json"] += 1
    if not wanted(read, 0, len(read)):
        return None
    pid = int(found.pid) if found.pid.isdecimal() else None
    manager = bool(found.unit or found.user_unit) and (
        pid == 1 or found.comm == "systemd" or found.comm.startswith("(")
    )
    return Entry(
        number,
        read.decode("utf-8", "replace"),
        None if found.container else pid,
        found.container or (found.of if manager else found.invocation),
        found.ident or found.comm,
        (found.user_unit or found.unit) if manager else (found.own_user_unit or found.own_unit),
        int(found.stamp) / 1e6 if found.stamp.isdecimal() else None,
        manager,
        found.transport == "kernel",
    )


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

    def read(self, line: bytes, number: int) -> Entry | None:
        if line.startswith(self.token, self.offset) and line[-1:] != b"\r" and _DIRT.search(line) is None:
            if CHATTER(line, self.offset + len(self.token)) is not None:
                return None
            return self._journal(line[: self.offset], line[self.offset + len(self.token) :], number)
        if CHATTER(line) is not None:
            return None
        line = clean(line)
        if line[:4] in (b"time", b"[GIN", b"llam") and wanted(line, 0, len(line)):
            self.tally.forms["slog"] += 1
            return Entry(number, line.decode("utf-8", "replace"))
        found = _SYSLOG.match(line)
        if found is not None:
            self._remember(found)
            return self._journal(found[1], line[found.end() :], number)
        return self._bare(line, number)

    def _remember(self, found: re.Match[bytes]) -> None:
        self.tally.forms["journal-text"] += 1
        ident = (found[3] or found[5]).decode("utf-8", "replace")
        pid = int(found[4]) if found[4] and len(found[4]) < 12 else None
        manager = pid == 1 or ident.startswith("(") or ident == "systemd"
        self.seen = (ident, None if _CONTAINER.fullmatch(ident) else pid, manager, ident == "kernel" and pid is None)
        self.offset = found.end(1)
        self.token = found[0][found.end(1) - found.start() :] if found[0].endswith(b" ") else b"\xff"

    def _journal(self, stamp: bytes, message: bytes, number: int) -> Entry | None:
        ident, pid, manager, kernel = self.seen
        message = clean(message)
        if not (manager or kernel or wanted(message, 0, len(message))):
            return None
        when = stamp.decode("utf-8", "replace").strip()
        at = seconds_of(when) if when[:4].isdecimal() else None
        return Entry(number, message.decode("utf-8", "replace"), pid, "", ident, "", at, manager, kernel)

    def _bare(self, line: bytes, number: int, depth: int = 0) -> Entry | None:
        """A line without a journal prefix: behind docker's, compose's or a shell's, or as it is."""
        at: float | None = None
        if b"ollama[" in line[:40]:
            line = _CUT.sub(b"", line, count=1)
        elif (b".service: " in line[:80] or b"systemd[1]" in line[:20]) and (found := _UNHOSTED.match(line)):
            return Entry(number, line[found.end() :].decode("utf-8", "replace"), ident="systemd", manager=True)
        for _ in range(3):
            found = _COMPOSE.match(line) or _STAMPED.match(line)
            if found is None:
                break
            self.tally.forms["docker"] += 1
            if found.re is _STAMPED:
                at = seconds_of(found[1].decode()) or at
            line = clean(line[found.end() :])
        if line[:1] in (b" ", b"\t", b">", b"*"):
            bare = line.lstrip(b" \t>*")
            if bare.startswith((b"time=", b"[GIN]", b"llama_", b"load_tensors")):
                line = bare
            elif depth == 0 and _SYSLOG.match(bare):
                return self.read(bare, number)
            elif (pretty := _PRETTY.match(line)) is not None:
                line = msgspec.json.decode(pretty[1].decode("utf-8", "replace").encode(), type=str).encode()
        if (line[:4] != b"time" and b"time=20" in line[:90]) or b"[GIN]" in line[1:90]:
            line = _PROMPT.sub(b"", line, count=1)
        if not wanted(line, 0, len(line)):
            return None
        self.tally.forms["slog"] += 1
        return Entry(number, line.decode("utf-8", "replace"), at=at)
