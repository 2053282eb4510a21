"""Runs one program and hands on what it prints, in chunks."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Generator, Iterator

from ollamactl.core.source import Missing, Source

CHUNK = 256 << 10
STDERR_KEPT = 8 << 10
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LINUX_SETPIPE = 1031  # F_SETPIPE_SZ


class Outcome:
    """How a reading ended; filled in while its chunks are drawn."""

    def __init__(self) -> None:
        self.missing: Missing | None = None
        self.status: int | None = None
        self.stderr = ""


def environment() -> dict[str, str]:
    """Ours, with messages in English and without pagers, colours or a proxy for what is on this machine."""
    env = {k: v for k, v in os.environ.items() if k not in ("LANGUAGE", "LANG") and not k.startswith("LC_")}
    # A user's PATH may lack the sbin folders, where ss and others live.
    env["PATH"] = ":".join(p for p in (env.get("PATH", ""), _SYSTEM_PATH) if p)
    return env | {"LC_ALL": "C.UTF-8", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0", "TERM": "dumb"}


def run(source: Source, outcome: Outcome) -> Iterator[bytes]:
    """Standard output of a program (with `merge` standard error too) in chunks, at most `limit` bytes. No shell, no
    standard input, a process group of its own, killed as a whole at the end. `timeout` counts waiting for the
    program, in seconds, not the time that the consumer takes."""
    argv = source.args
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if source.merge else subprocess.PIPE,
            env=environment(),
            start_new_session=True,
            bufsize=0,
        )
    except (OSError, ValueError) as error:
        outcome.missing = _not_started(argv[0], error)
        return
    tail = bytearray()
    try:
        left = yield from _output(source, process, tail, outcome)
        if outcome.missing is None and not outcome.stderr.startswith("cut:"):
            try:
                outcome.status = process.wait(max(left, 0.05))
            except subprocess.TimeoutExpired:
                outcome.missing = Missing("timeout", f"{argv[0]}: did not end within {source.timeout:g} s")
    finally:
        _end(process)
    said = tail.decode("utf-8", "replace").strip()
    if not outcome.stderr and not source.merge:
        outcome.stderr = said
    if outcome.status and not source.any_exit:
        last = said.splitlines()[-1] if said else ""
        what = f"exit {outcome.status}" if outcome.status > 0 else f"signal {-outcome.status}"
        kind = "denied" if _refused(said) and os.geteuid() else "failed"
        hint = "sudo shows it" if kind == "denied" else ""
        outcome.missing = Missing(
            "denied" if kind == "denied" else "failed",
            f"{argv[0]}: {last} ({what})" if last else f"{argv[0]}: {what}",
            hint,
        )


def _output(
    source: Source, process: subprocess.Popen[bytes], tail: bytearray, outcome: Outcome
) -> Generator[bytes, None, float]:
    """Yields standard output, keeps the end of standard error (of all, where they are one); returns the seconds of
    patience left."""
    assert process.stdout
    _widen(process.stdout.fileno())
    left, room = source.timeout, source.limit
    with selectors.DefaultSelector() as selector:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            began = time.monotonic()
            ready = selector.select(max(left, 0))
            left -= time.monotonic() - began
            if not ready:
                outcome.missing = Missing("timeout", f"{source.args[0]}: no end within {source.timeout:g} s")
                return left
            for key, _ in ready:
                chunk = os.read(key.fd, CHUNK)
                if not chunk:
                    selector.unregister(key.fileobj)
                    continue
                if source.merge or key.fileobj is process.stderr:
                    tail += chunk
                    del tail[:-STDERR_KEPT]
                if key.fileobj is process.stderr:
                    continue
                if len(chunk) > room:
                    if room:
                        yield chunk[:room]
                    outcome.stderr = f"cut: at {source.limit} bytes"
                    return left
                room -= len(chunk)
                yield chunk
    return left


def _widen(fd: int) -> None:
    """A larger pipe: fewer switches between a journal and its reader. Best effort, Linux only."""
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.fcntl(fd, _LINUX_SETPIPE, 1 << 20)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills what is left of the process's own group and reaps it."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()


def _not_started(program: str, error: Exception) -> Missing:
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOENT, errno.ENOTDIR):
        return Missing("absent", f"{program}: not installed")
    if number in (errno.EACCES, errno.EPERM):
        return Missing("denied", f"{program}: {os.strerror(number)}", "sudo shows it" if os.geteuid() else "")
    return Missing("failed", f"{program}: {error}")


def _refused(said: str) -> bool:
    words = ("permission denied", "access denied", "operation not permitted", "authentication is required")
    return any(w in said.lower() for w in (*words, "insufficient permissions"))
