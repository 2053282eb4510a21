"""Unit tests can't touch the machine: what they do is watched by an audit hook (PEP 578), and whatever reaches outside
fails the test, also where the code under test swallows the error.

`@pytest.mark.touches(KIND, …)` says what a test does on purpose:

    loopback   connects to sockets on loopback that this very process has bound
    process    starts programs, and signals only those; servers of theirs on loopback may be connected to
    machine    reads /etc, /run, /proc, /sys, /var
    netlink    asks the kernel for its socket tables
    library    loads a shared library by name

Nothing allows writing outside the temporary folders and this repository, signals to others' processes, names to be
looked up, or systemd's bus. Not seen: os.stat, and what C code does by itself.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = str(Path(__file__).resolve().parents[1])
PRIVATE = ("/etc", "/run", "/proc", "/sys", "/var", "/boot")
# What Python and its libraries read by themselves.
HARMLESS = ("/etc/localtime", "/etc/mime.types", "/etc/ssl", "/etc/python", "/proc/self/status", "/proc/stat")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Touched(Exception):
    """A test reached for the machine. Code that swallows it changes nothing: the test fails at its end."""


class Watch:
    def __init__(self, allowed: set[str]) -> None:
        self.allowed = allowed
        self.violations: list[str] = []
        self.bound: list[socket.socket] = []


_watch: Watch | None = None
_inside = threading.local()


@contextlib.contextmanager
def watching(allowed: set[str]) -> Iterator[Watch]:
    """Watches what is done until the end; raises AssertionError then if anything was that `allowed` does not name."""
    global _watch
    _install()
    before, _watch = _watch, Watch(allowed)
    try:
        yield _watch
    finally:
        watch, _watch = _watch, before
    assert not watch.violations, "the test touched the machine: " + "; ".join(watch.violations)


_installed = False


def _install() -> None:
    global _installed
    if not _installed:  # a hook can't be taken away again
        sys.addaudithook(_hook)
        _installed = True


def _hook(event: str, args: tuple[Any, ...]) -> None:
    watch = _watch
    check = _CHECKS.get(event)
    if watch is None or check is None or getattr(_inside, "hook", False):
        return
    _inside.hook = True
    try:
        why = check(watch, args)
    finally:
        _inside.hook = False
    if why:
        watch.violations.append(f"{event}: {why}")
        raise Touched(f"{event}: {why}")


def _path(path: Any) -> str | None:
    """An absolute path; None for descriptors and for relative ones, which may be relative to a descriptor."""
    if isinstance(path, int) or path is None:
        return None
    text = os.fsdecode(path)
    return os.path.normpath(text) if text.startswith("/") else None


def _under(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _ours() -> tuple[str, ...]:
    return (REPOSITORY, tempfile.gettempdir(), "/tmp", "/dev/null", "/dev/shm", "/dev/tty", "/dev/ptmx", "/dev/pts")


def _read(watch: Watch, path: Any) -> str:
    at = _path(path)
    if at is None or "machine" in watch.allowed or not _under(at, PRIVATE) or _under(at, (*HARMLESS, *_ours())):
        return ""
    return f"reads {at}"


def _write(watch: Watch, path: Any) -> str:
    at = _path(path)
    return "" if at is None or _under(at, _ours()) else f"writes {at}"


def _open(watch: Watch, args: tuple[Any, ...]) -> str:
    path, mode, flags = args
    writes = any(c in mode for c in "wax+") if isinstance(mode, str) else bool((flags or 0) & _WRITING)
    return _write(watch, path) if writes else _read(watch, path)


def _spawn(watch: Watch, args: tuple[Any, ...]) -> str:
    return "" if "process" in watch.allowed else f"starts {args[0] if args else 'a process'!r}"


def _signal(watch: Watch, args: tuple[Any, ...]) -> str:
    pid, number = args
    if number == 0 or pid == os.getpid() or (pid > 1 and _parent(pid) == os.getpid()):
        return ""
    return f"signals {pid}, which is not a child of the test"


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return -1


def _new_socket(watch: Watch, args: tuple[Any, ...]) -> str:
    family = args[1]
    if family == getattr(socket, "AF_NETLINK", -1) and "netlink" not in watch.allowed:
        return "asks the kernel through netlink"
    if family == getattr(socket, "AF_PACKET", -1):
        return "a raw socket"
    return ""


def _bind(watch: Watch, args: tuple[Any, ...]) -> str:
    made, address = args
    if made.family in (socket.AF_INET, socket.AF_INET6):
        if "loopback" not in watch.allowed or not _loopback(address[0]):
            return f"binds {address}"
        watch.bound.append(made)
    elif made.family == socket.AF_UNIX and isinstance(address, str | bytes):
        return _write(watch, address)
    return ""


def _connect(watch: Watch, args: tuple[Any, ...]) -> str:
    made, address = args
    if made.family not in (socket.AF_INET, socket.AF_INET6):
        if made.family == socket.AF_UNIX and isinstance(address, str | bytes):
            at = _path(address)
            return f"connects to {at}" if at and not _under(at, _ours()) else ""
        return ""
    if "loopback" not in watch.allowed or not _loopback(address[0]):
        return f"connects to {address}"
    if "process" in watch.allowed or address[1] in _bound_ports(watch):
        return ""
    return f"connects to port {address[1]}, which the test has not opened"


def _bound_ports(watch: Watch) -> set[int]:
    """Ports that this test has bound, and those it bound and closed again are not among them."""
    ports = set()
    for each in watch.bound:
        with contextlib.suppress(OSError):
            ports.add(each.getsockname()[1])
    return ports


def _loopback(host: Any) -> bool:
    text = host.decode() if isinstance(host, bytes) else str(host)
    return text in ("localhost", "::1") or text.removeprefix("::ffff:").startswith("127.")


def _lookup(watch: Watch, args: tuple[Any, ...]) -> str:
    name = args[0]
    text = "" if name is None else name.decode() if isinstance(name, bytes) else str(name)
    numeric = not text or ":" in text or text.replace(".", "").isdigit() or text == "localhost"
    return "" if numeric else f"looks up {text}"


def _library(watch: Watch, args: tuple[Any, ...]) -> str:
    return "" if args[0] is None or "library" in watch.allowed else f"loads {args[0]}"


def _import(watch: Watch, args: tuple[Any, ...]) -> str:
    return "systemd's bus" if str(args[0]).partition(".")[0] == "pystemd" else ""


_CHECKS = {
    "open": _open,
    "os.listdir": lambda w, a: _read(w, a[0]),
    "os.scandir": lambda w, a: _read(w, a[0]),
    **{
        f"os.{name}": lambda w, a: _write(w, a[0])
        for name in ("remove", "mkdir", "rmdir", "chmod", "chown", "truncate", "utime", "setxattr", "chflags")
    },
    **{f"os.{name}": lambda w, a: _write(w, a[0]) or _write(w, a[1]) for name in ("rename", "link")},
    "os.symlink": lambda w, a: _write(w, a[1]),
    "subprocess.Popen": _spawn,
    **{f"os.{name}": _spawn for name in ("system", "posix_spawn", "exec", "fork", "forkpty")},
    "os.kill": _signal,
    "os.killpg": _signal,
    "socket.__new__": _new_socket,
    "socket.bind": _bind,
    "socket.connect": _connect,
    "socket.sendto": _connect,
    "socket.getaddrinfo": _lookup,
    "socket.gethostbyname": _lookup,
    "ctypes.dlopen": _library,
    "import": _import,
}


# -- for conftest.py of the watched folders --


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "touches(kind, …): what of the machine a test touches on purpose (tests/guard.py)"
    )


@pytest.fixture(autouse=True)
def untouched_machine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Watches each test. Those that run a real engine or a lab are about more than this process."""
    if any(request.node.get_closest_marker(name) for name in ("engine", "lab")):
        yield
        return
    allowed = {kind for mark in request.node.iter_markers("touches") for kind in mark.args}
    with watching(allowed):
        yield
