"""The door to this machine: `LiveHost.read(source)` answers with what is there, or why nothing is.

Readings never change the host, never ask for input, and never raise for what a host may lack. What is larger
than the source's `limit` is cut, and `Reading.stderr` says so ("cut: …"); the rest is never held in memory.
"""

from __future__ import annotations

import errno
import fnmatch
import json
import os
import stat as modes
import threading
import time
from collections.abc import Callable, Iterator

from ollamactl.core.source import Missing, Reading, Source
from ollamactl.host import commands

CHUNK = 256 << 10
SUDO = "sudo shows it"


class Stream:
    """The body of one source in chunks. `reading` (without a body) is complete once the chunks have ended; a
    consumer that stops early calls `close`."""

    def __init__(self, key: str, chunks: Iterator[bytes], outcome: commands.Outcome) -> None:
        self._key, self._chunks, self._outcome = key, chunks, outcome
        self._at, self._began = time.time(), time.monotonic()
        self._seconds: float | None = None

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._chunks
        finally:
            self.close()

    def close(self) -> None:
        close = getattr(self._chunks, "close", None)
        if close:
            close()
        if self._seconds is None:
            self._seconds = time.monotonic() - self._began

    @property
    def reading(self) -> Reading:
        o = self._outcome
        return Reading(self._key, None, o.missing, self._at, self._seconds or 0.0, o.status, o.stderr)


class LiveHost:
    """This machine."""

    def begin(self, source: Source) -> Callable[[], Reading]:
        """Starts a reading that will be needed in a moment; the function returned waits for it. A host spends most of
        a reading waiting for another program."""
        answer: list[Reading] = []
        thread = threading.Thread(target=lambda: answer.append(self.read(source)))
        thread.start()

        def wait() -> Reading:
            thread.join()
            return answer[0] if answer else self.read(source)

        return wait

    def read(self, source: Source) -> Reading:
        """The answer of one source, at most `source.limit` bytes of it."""
        if source.kind in ("command", "file"):
            stream = self.stream(source)
            body = b"".join(stream)
            reading = stream.reading
            keep = reading.missing is None or (source.kind == "command" and body)
            return Reading(
                reading.key,
                body if keep else None,
                reading.missing,
                reading.at,
                reading.seconds,
                reading.status,
                reading.stderr,
            )
        at, began = time.time(), time.monotonic()
        outcome = commands.Outcome()
        answer = self._answer(source, outcome)
        if answer is not None and len(answer) > source.limit:
            answer, outcome.stderr = answer[: source.limit], f"cut: at {source.limit} bytes"
        return Reading(
            source.key,
            answer,
            outcome.missing,
            at,
            time.monotonic() - began,
            outcome.status,
            outcome.stderr,
        )

    def stream(self, source: Source) -> Stream:
        """The answer in chunks, for what is too large to hold. `source.timeout` counts waiting for the host,
        not the time that the consumer takes."""
        outcome = commands.Outcome()
        if source.kind == "command":
            chunks = commands.run(source, outcome)
        elif source.kind == "file":
            chunks = _file(source.args[0], source.limit, outcome)
        else:
            chunks = self._once(source, outcome)
        return Stream(source.key, chunks, outcome)

    def _once(self, source: Source, outcome: commands.Outcome) -> Iterator[bytes]:
        answer = self._answer(source, outcome)
        if answer is not None:
            yield answer

    def _answer(self, source: Source, outcome: commands.Outcome) -> bytes | None:
        try:
            if source.kind == "stat":
                return _stat(source.args[0])
            if source.kind == "list":
                return _list(source.args[0], outcome)
            if source.kind == "http":
                return self._http(source, outcome)
            return _within(source.timeout, lambda: _native(source, outcome))
        except OSError as error:
            outcome.missing = why(error, " ".join(source.args))
        except Unanswered as unanswered:
            outcome.missing = unanswered.missing
            return unanswered.body
        return None

    def _http(self, source: Source, outcome: commands.Outcome) -> bytes | None:
        from ollamactl.host import http

        method, url, *rest = source.args
        answer = http.ask(
            url,
            method=method,
            body=rest[0].encode() if rest else None,
            timeout=source.timeout,
            limit=source.limit,
            service_pid=source.inside or None,
        )
        outcome.missing, outcome.status, outcome.stderr = answer.missing, answer.status, answer.note
        return answer.body


class Unanswered(Exception):
    """A native reading that the host can't give; `missing` says why, `body` is what it gave instead."""

    def __init__(self, missing: Missing, body: bytes | None = None) -> None:
        super().__init__(str(missing))
        self.missing = missing
        self.body = body


def why(error: OSError, what: str) -> Missing:
    """The class of an operating system error."""
    said = error.strerror or str(error) or type(error).__name__
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESRCH, errno.ENXIO):
        return Missing("absent", f"{what}: {said}")
    if error.errno in (errno.EACCES, errno.EPERM):
        return Missing("denied", f"{what}: {said}", SUDO if os.geteuid() else "")
    if error.errno == errno.ETIMEDOUT or isinstance(error, TimeoutError):
        return Missing("timeout", f"{what}: {said}")
    return Missing("failed", f"{what}: {said}")


def _file(path: str, limit: int, outcome: commands.Outcome) -> Iterator[bytes]:
    try:
        # Non-blocking: opening a FIFO, or reading a kernel log, must not hang.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        outcome.missing = why(error, path) if isinstance(error, OSError) else Missing("absent", str(error))
        return
    try:
        found = os.fstat(fd)
        if modes.S_ISDIR(found.st_mode):
            outcome.missing = Missing("failed", f"{path}: is a folder")
            return
        if modes.S_ISCHR(found.st_mode) and os.path.realpath(path) == os.devnull:
            return  # a masked unit is a link to /dev/null
        if not modes.S_ISREG(found.st_mode):
            outcome.missing = Missing("failed", f"{path}: not a regular file")
            return
        left = limit
        while chunk := os.read(fd, min(CHUNK, left + 1)):
            if len(chunk) > left:
                yield chunk[:left]
                size = f" of {found.st_size}" if found.st_size > limit else ""
                outcome.stderr = f"cut: first {limit} bytes{size}"
                return
            left -= len(chunk)
            yield chunk
    except OSError as error:
        outcome.missing = why(error, path)
    finally:
        os.close(fd)


_TYPES = (
    (modes.S_ISREG, "file"),
    (modes.S_ISDIR, "folder"),
    (modes.S_ISLNK, "link"),
    (modes.S_ISCHR, "char"),
    (modes.S_ISBLK, "block"),
    (modes.S_ISFIFO, "fifo"),
    (modes.S_ISSOCK, "socket"),
)


def _stat(path: str) -> bytes:
    """`mode` holds the permission bits as an int; `target` is set for a link, which is not followed."""
    found = os.lstat(path)
    return json.dumps(
        {
            "type": next((name for test, name in _TYPES if test(found.st_mode)), "other"),
            "mode": modes.S_IMODE(found.st_mode),
            "uid": found.st_uid,
            "gid": found.st_gid,
            "size": found.st_size,
            "mtime": found.st_mtime,
            "target": os.readlink(path) if modes.S_ISLNK(found.st_mode) else None,
        }
    ).encode()


def _list(pattern: str, outcome: commands.Outcome) -> bytes:
    if not any(c in pattern for c in "*?["):
        return json.dumps(sorted(os.listdir(pattern))).encode()
    denied: list[str] = []
    found = _glob(pattern, denied)
    if not found:
        # The folder above the first wildcard decides between "nothing matches" and "can't be looked at".
        base = os.path.dirname(pattern[: min(i for i in map(pattern.find, "*?[") if i >= 0)]) or "/"
        os.stat(base)
        if denied:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if denied:
        outcome.stderr = "denied: " + " ".join(denied)
    return json.dumps(found).encode()


def _glob(pattern: str, denied: list[str]) -> list[str]:
    """Like glob(3), but tells which folders could not be looked into."""
    heads = ["/" if pattern.startswith("/") else ""]
    for part in (p for p in pattern.split("/") if p):
        if not any(c in part for c in "*?["):
            heads = [path for head in heads if os.path.lexists(path := os.path.join(head, part))]
            continue
        matched = []
        for head in heads:
            try:
                names = os.listdir(head or ".")
            except PermissionError:
                denied.append(head)
                continue
            except OSError:
                continue  # a file, or gone meanwhile: glob(3) passes over it too
            matched += [
                os.path.join(head, name)
                for name in names
                if fnmatch.fnmatchcase(name, part) and (part[0] == "." or name[0] != ".")
            ]
        heads = matched
    return sorted(heads)


def _within(timeout: float, work: Callable[[], bytes]) -> bytes:
    """A driver's library can hang for ever: after `timeout` its thread is left to itself."""
    result: list[bytes] = []
    raised: list[BaseException] = []

    def body() -> None:
        try:
            result.append(work())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(timeout)
    if raised:
        raise raised[0]
    if not result:
        raise Unanswered(Missing("timeout", f"no answer within {timeout:g} s"))
    return result[0]


def _native(source: Source, outcome: commands.Outcome) -> bytes:
    """`process PID`, `children PID`, `servers`, `sockets PORT [PID]`, `listeners [PID]`, `nvml`, `gpu_sysfs`,
    `system`, `memory`, `space PATH`, `session`, `app_settings PATH`. The PID of sockets and listeners is a process
    whose network namespace is looked at."""
    name, *rest = source.args
    if name in ("process", "children", "servers"):
        from ollamactl.host import processes

        if name == "servers":
            return processes.servers()
        pid = int(rest[0])
        return processes.process(pid) if name == "process" else processes.children(pid)
    if name in ("system", "memory"):
        from ollamactl.host import machine

        return machine.system() if name == "system" else machine.memory()
    if name == "space":
        from ollamactl.host import machine

        return machine.space(rest[0])
    if name == "session":
        from ollamactl.host import session

        return session.session()
    if name == "app_settings":
        from ollamactl.host import appdb

        return appdb.settings(rest[0])
    if name == "nvml":
        from ollamactl.host import nvml

        body, missing = nvml.read()
        if missing:
            raise Unanswered(missing, body)
        return body or b""
    if name == "gpu_sysfs":
        from ollamactl.host import gpu_sysfs

        return gpu_sysfs.read()
    if name in ("sockets", "listeners"):
        from ollamactl.host import sockets

        try:
            if name == "sockets":
                return sockets.table(int(rest[0]), int(rest[1]) if rest[1:] else None, source.timeout)
            body, outcome.stderr = sockets.listeners(int(rest[0]) if rest else None, source.timeout)
            return body
        except sockets.Unsupported as error:
            raise Unanswered(error.missing) from None
    raise Unanswered(Missing("unsupported", f"no such reading: {name}"))
