"""A host in a file: every raw reading, redacted, so that what was judged there can be judged anywhere.

A bundle is a folder or `.tar.gz` of `index.json` and one member per reading. The index holds `{"schema", "version",
"taken", "removed": {kind: count}, "readings": [{"key", "member", "status", "missing", "at", "seconds",
"stderr"}…]}`; `key` is that of the source, redacted like everything else, so that paths found in one reading lead to
the next one. An entry without `member` is a reading without a body.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ollamactl import __version__
from ollamactl.core.redact import Redactor
from ollamactl.core.source import Host, Missing, Reading, Source
from ollamactl.errors import Exit, Failure
from ollamactl.host import archive, files
from ollamactl.host.archive import INDEX
from ollamactl.host.commands import Outcome
from ollamactl.host.live import LiveHost, Stream

SCHEMA = 1
STREAM_KEPT = 128 << 20  # of one stream


class Entry(msgspec.Struct, omit_defaults=True):
    key: str
    member: str | None = None
    status: int | None = None
    missing: Missing | None = None
    at: float = 0.0
    seconds: float = 0.0
    stderr: str = ""


class Index(msgspec.Struct):
    schema: int
    readings: list[Entry]
    version: str = ""
    taken: float = 0.0
    removed: dict[str, int] = {}


# -- recording --


class Recorder:
    """Passes readings through and keeps them; of several readings of one source the last."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.readings: dict[str, tuple[Source, Reading]] = {}

    def read(self, source: Source) -> Reading:
        reading = self.host.read(source)
        self.readings[source.key] = source, reading
        return reading

    def stream(self, source: Source) -> Stream:
        """Like the host's, kept up to `STREAM_KEPT` bytes. A host that can't stream is read whole."""
        outcome = Outcome()
        return Stream(source.key, self._passed(source, outcome), outcome)

    def _passed(self, source: Source, outcome: Outcome) -> Iterator[bytes]:
        kept, room = [], STREAM_KEPT
        if not isinstance(self.host, LiveHost | Replay):
            reading = self.read(source)
            outcome.missing, outcome.status, outcome.stderr = reading.missing, reading.status, reading.stderr
            if reading.body:
                yield reading.body
            return
        inner = self.host.stream(source)
        try:
            for chunk in inner:
                if room > 0:
                    kept.append(chunk[:room])
                    room -= len(chunk)
                yield chunk
        finally:
            inner.close()
            reading = inner.reading
            outcome.missing, outcome.status, outcome.stderr = reading.missing, reading.status, reading.stderr
            body = b"".join(kept)
            note = f"cut: at {STREAM_KEPT} bytes" if room < 0 else reading.stderr
            full = msgspec.structs.replace(
                reading, body=body if body or reading.missing is None else None, stderr=note
            )
            self.readings[source.key] = source, full

    def write(self, path: str) -> dict[str, int]:
        """Writes a `.tar.gz`, mode 0600, beside `path` and then in its place; a link there is replaced, not followed.

        Returns how much was taken out, by kind (`core.redact.KINDS`). Failure where it can't be written.
        """
        index, members = redacted(self.readings.values())
        try:
            _write(path, index, members)
        except OSError as error:
            raise Failure(
                f"cannot write {path}: {error.strerror}",
                hint="name a file in a folder that you may write to",
                code=Exit.USAGE,
                id="bundle_not_written",
            ) from error
        return dict(index.removed)


def redacted(readings: object) -> tuple[Index, dict[str, bytes]]:
    """The index of a bundle, and its members by name."""
    pairs: list[tuple[Source, Reading]] = list(readings)  # type: ignore[call-overload]
    redactor = Redactor()
    for source, reading in pairs:
        if source.args[:1] == ("/etc/hostname",) and reading.body:
            redactor.learn(b"HOSTNAME=" + reading.body.strip())
        for text in (reading.body or b"", *(a.encode("utf-8", "surrogateescape") for a in source.args)):
            redactor.learn(text)
    entries, members = [], {}
    for number, (source, reading) in enumerate(pairs, 1):
        safe = msgspec.structs.replace(source, args=tuple(_argument(redactor, a) for a in source.args))
        member = None
        if reading.body is not None:
            name = re.sub(r"[^A-Za-z0-9.]+", "_", safe.key)[:60].strip("_")
            member = f"readings/{number:04d}-{name}"
            members[member] = redactor.body(reading.body)
        missing = reading.missing and Missing(
            reading.missing.kind, redactor.text(reading.missing.detail), redactor.text(reading.missing.hint)
        )
        entries.append(
            Entry(
                safe.key,
                member,
                reading.status,
                missing,
                reading.at,
                reading.seconds,
                redactor.text(reading.stderr),
            )
        )
    removed = {kind: count for kind, count in sorted(redactor.taken.items()) if count}
    return Index(SCHEMA, entries, __version__, time.time(), removed), members


def _argument(redactor: Redactor, argument: str) -> str:
    return redactor.body(argument.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


def _write(path: str, index: Index, members: dict[str, bytes]) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, body in {INDEX: msgspec.json.encode(index), **members}.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(body), int(index.taken), 0o600
            tar.addfile(member, io.BytesIO(body))
    files.write(os.path.abspath(path), packed.getvalue(), 0o600)


# -- replaying --


class Replay:
    """A bundle in the place of a host. What it does not hold is Missing("unasked").

    Read in memory, at most `archive.TOTAL_BYTES` in `archive.MEMBERS` members; archives with links, absolute names
    or `..` are refused whole. Failure where `path` is no bundle.

    Three sources are also answered by a near one, so that a bundle serves releases that ask a little otherwise:
    `systemctl show` of a unit whatever the list of properties, `journalctl` whatever is left out of its lines,
    and native readings of a namespace whatever the pid that names it.
    """

    def __init__(self, path: str) -> None:
        if os.path.isdir(path):
            files = archive.folder(Path(path), _members)
        else:
            files = archive.packed(path)
        self.index = _index(path, files)
        self.taken = self.index.taken
        self.name = Path(path).name
        self._readings: dict[str, Reading] = {}
        self._near: dict[str, Reading] = {}
        for entry in self.index.readings:
            body = None
            if entry.member is not None:
                body = files.get(entry.member)
                if body is None:
                    raise archive.bad(path, f"its index names {entry.member}, which is missing")
            reading = Reading(entry.key, body, entry.missing, entry.at, entry.seconds, entry.status, entry.stderr)
            self._readings[entry.key] = reading
            self._near.setdefault(near(entry.key), reading)

    def read(self, source: Source) -> Reading:
        key = source.key
        found = self._readings.get(key) or self._near.get(near(key))
        if found is None:
            return Reading(key, missing=Missing("unasked", "not in this bundle"))
        if found.body is not None and len(found.body) > source.limit:
            note = f"cut: at {source.limit} bytes"
            found = msgspec.structs.replace(found, body=found.body[: source.limit], stderr=note)
        return msgspec.structs.replace(found, key=key)

    def stream(self, source: Source) -> Stream:
        reading = self.read(source)
        outcome = Outcome()
        outcome.missing, outcome.status, outcome.stderr = reading.missing, reading.status, reading.stderr
        return Stream(source.key, iter([reading.body] if reading.body else []), outcome)


def near(key: str) -> str:
    """A key without what may differ between releases and still be answered by the same reading."""
    if key.startswith("command:systemctl show "):
        return re.sub(r" --property=\S*| -p \S+", "", key)
    if key.startswith("command:journalctl "):
        about = r" \+ _TRANSPORT=driver OBJECT_SYSTEMD_INVOCATION_ID=\S*"
        return re.sub(rf" -n \d+| --(?:lines|output-fields|case-sensitive|grep)=\S*| --all\b|{about}", "", key)
    if key.startswith(("native:sockets ", "native:listeners ")):
        return re.sub(r"^(native:sockets \d+|native:listeners) \d+$", r"\1", key)
    return key


def _index(path: str, files: dict[str, bytes]) -> Index:
    if INDEX not in files:
        raise archive.bad(path, f"it has no {INDEX}")
    try:
        index = msgspec.json.decode(files[INDEX], type=Index)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise archive.bad(path, f"{INDEX}: {error}") from None
    if index.schema != SCHEMA:
        raise archive.bad(path, f"its schema is {index.schema}, this release reads {SCHEMA}")
    return index


def _members(path: str, index: bytes) -> list[str]:
    return [e.member for e in _index(path, {INDEX: index}).readings if e.member is not None]
