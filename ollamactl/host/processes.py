"""Processes through psutil, as JSON of `facts.Process`, less what may not be read."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

import msgspec
import psutil

from ollamactl.core.facts import Process


def process(pid: int) -> bytes:
    """One process. ProcessLookupError (an OSError) where there is none."""
    try:
        return msgspec.json.encode(_record(psutil.Process(pid)))
    except (psutil.NoSuchProcess, OverflowError, ValueError):
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from None


def children(pid: int) -> bytes:
    """All descendants of a process, nearest first. ProcessLookupError where there is none."""
    try:
        found = psutil.Process(pid).children(recursive=True)
    except (psutil.NoSuchProcess, OverflowError, ValueError):
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from None
    return _records(found)


def servers() -> bytes:
    """Every `ollama serve` of the machine, containers' too where they can be seen, by pid."""
    return _records(p for p in map(_find, filter(_serves, psutil.pids())) if p)


def _serves(pid: int) -> bool:
    """By its command line alone where /proc has it: psutil reads more of each of a machine's processes."""
    try:
        raw = _proc(pid, "cmdline")
    except OSError:
        return False
    if raw is None:
        return (found := _find(pid)) is not None and is_server(_argv(found))
    return is_server(_words(raw))


def is_server(argv: tuple[str, ...]) -> bool:
    """Whether a command line is that of a server: `ollama serve` or its alias `start`, also under a Python
    that runs a script of that name. Wrappers that go on running (sudo, sh -c, tini) are not servers."""
    names = [a.rsplit("/", 1)[-1] for a in argv[:2]]
    if names and names[0].startswith("python"):
        names, argv = names[1:], argv[1:]
    if not names or names[0] not in ("ollama", "ollama.exe"):
        return False
    return next((a for a in argv[1:] if not a.startswith("-")), "") in ("serve", "start")


def _find(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def _records(found: Iterable[psutil.Process]) -> bytes:
    records = []
    for each in found:
        try:
            records.append(_record(each))
        except psutil.NoSuchProcess:
            continue  # ended meanwhile
    return msgspec.json.encode(records)


def _record(p: psutil.Process) -> Process:
    with p.oneshot():
        try:
            parent, comm, state, started = p.ppid(), p.name(), p.status(), p.create_time()
        except psutil.AccessDenied:  # macOS: another user's process
            return Process(pid=p.pid)
        uid = _uid(p)
        return Process(
            pid=p.pid,
            ppid=parent,
            comm=_text(comm),
            exe=_exe(p),
            exe_gone=_exe_gone(p.pid),
            argv=_argv(p),
            environ=_environ(p),
            started=started,
            uid=uid,
            user=_user(uid),
            rss=_rss(p),
            cgroup=_cgroup(p.pid),
            state=state,
            net_ns=net_ns(p.pid),
        )


def net_ns(pid: int | str) -> int | None:
    """Inode of a process's network namespace; None without the right to see it, or without namespaces."""
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return None


def _exe(p: psutil.Process) -> str:
    try:
        return _text(p.exe())
    except psutil.AccessDenied:
        return ""


def _exe_gone(pid: int) -> bool:
    # Not psutil's: it takes the kernel's mark away.
    try:
        return os.readlink(f"/proc/{pid}/exe").endswith(" (deleted)")
    except OSError:
        return False


def _argv(p: psutil.Process) -> tuple[str, ...]:
    # Not psutil's: it splits at spaces where a process has rewritten its command line.
    try:
        raw = _proc(p.pid, "cmdline")
        if raw is None:
            return tuple(map(_text, p.cmdline()))
    except (psutil.Error, OSError):
        return ()
    return _words(raw)


def _words(raw: bytes) -> tuple[str, ...]:
    words = raw.removesuffix(b"\0").split(b"\0") if raw else ()
    return tuple(w.decode("utf-8", "backslashreplace") for w in words)


def _environ(p: psutil.Process) -> dict[str, str] | None:
    # Not psutil's: it stops at the first empty string.
    try:
        raw = _proc(p.pid, "environ")
        if raw is None:
            return {_text(k): _text(v) for k, v in p.environ().items()}
    except (psutil.Error, OSError):
        return None
    pairs = (e.decode("utf-8", "backslashreplace").partition("=") for e in raw.split(b"\0") if b"=" in e)
    return {name: value for name, _, value in pairs}


def _proc(pid: int, name: str) -> bytes | None:
    """A file of /proc/PID, or None on systems without /proc."""
    if not os.path.isdir("/proc/self"):
        return None
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read(4 << 20)


def _uid(p: psutil.Process) -> int | None:
    try:
        return p.uids().effective
    except (psutil.AccessDenied, AttributeError):  # Windows has none
        return None


def _user(uid: int | None) -> str:
    if uid is None:
        return ""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def _rss(p: psutil.Process) -> int | None:
    try:
        return int(p.memory_info().rss)
    except psutil.AccessDenied:
        return None


def _cgroup(pid: int) -> str:
    """The path in the unified hierarchy, else in systemd's of the first version."""
    try:
        lines = (_proc(pid, "cgroup") or b"").decode("utf-8", "backslashreplace").splitlines()
    except OSError:
        return ""
    rows = (line.split(":", 2) for line in lines if line.count(":") >= 2)
    paths = {controllers: path for _, controllers, path in rows}
    return paths.get("") or paths.get("name=systemd", "")


def _text(text: str) -> str:
    """JSON holds no lone surrogates: bytes that are not UTF-8 become \\xNN."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
