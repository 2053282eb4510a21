"""A stream of bytes in any form that people paste -> the messages in it, with what the form says about each.

Forms, told apart line by line: `journalctl -o json`, journal text (short, -iso, -precise, -full, -monotonic,
with-unit, cat; localised months), `docker logs` and compose prefixes, docker's json-file, Kubernetes' CRI form,
`kubectl logs --prefix`, plain server.log, tails of `systemctl status`, and console copies with spinners, colours,
NULs and carriage returns.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator

import msgspec

from ollamactl.core.parse.entry import LONGEST, Entry, Tally, clean
from ollamactl.core.parse.journal_entry import Records
from ollamactl.core.parse.sift import CHATTER, wanted
from ollamactl.core.parse.slog import seconds_of

PIECE = 1 << 20  # bytes that are split at once
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
_UNHOSTED = re.compile(  # systemd's line of which host and name, or all before the name, were left out
    rb"[\s`>]*(?:" + _STAMP + rb" (?=[\w@-]*ollama[\w@-]*\.service: [A-Z])|(?:\xe2\x80\xa6|\.\.\.)? ?systemd\[1\]: )"
)
_ELIDED = re.compile(rb"\s*" + _STAMP + rb" (?:\xe2\x80\xa6|\.\.\.) (?=time=|level=)")  # without host and name
_CUT = re.compile(  # a journal's line of which time and host were left out
    rb"[\s`>]*(?:\xe2\x80\xa6|\.\.\.|" + _STAMP + rb")? {0,3}ollama\[\d{1,9}\]: "
    rb"(?=time=|level=|source=\w+\.go|\[GIN\]|\d{4}/\d\d/\d\d |[a-z_]+: |Error: )"
)
_COMPOSE = re.compile(rb"[ \t]{0,8}([A-Za-z0-9][\w.-]*) +\| ?")
_POD = re.compile(rb"\[pod/[\w.-]+/[\w.-]+\] ")
_STAMPED = re.compile(
    rb"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)?)"
    rb"(?: {1,4}(?:stdout|stderr) [FP] (?=\S)|[ \t|]{0,4}(?:INFO|info|stderr|stdout)?[ \t|]{0,4}"
    rb"(?=time=\d|\d{4}/\d\d/\d\d |\[GIN\]|[a-z_]+: |Error: )|(?<=[Z\d]) (?=\S))"
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
    records = Records(tally)
    for piece in pieces(chunks):
        before = tally.lines
        tally.lines += piece.count(b"\n") + (piece[-1:] != b"\n")
        if piece[:1] == b"{":
            worth = records.worth(piece, tally.lines - before)
            if worth is not None:
                for number, line in worth:
                    entry = records.read(line, before + number)
                    if entry is not None:
                        yield entry
                continue
        for number, line in enumerate(piece.split(b"\n"), before + 1):
            if line[:1] == b"{" and not line.startswith(b'{"function":'):
                entry = records.read(line, number)
            else:
                entry = text.read(line, number)
            if entry is not None:
                yield entry
    yield from records.rest()


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
        elif b" level=" in line[:90]:
            line = _ELIDED.sub(b"", line, count=1)
        elif (b".service: " in line[:80] or b"systemd[1]" in line[:20]) and (found := _UNHOSTED.match(line)):
            return Entry(number, line[found.end() :].decode("utf-8", "replace"), ident="systemd", manager=True)
        for _ in range(3):
            found = _COMPOSE.match(line) or _POD.match(line) or _STAMPED.match(line)
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
