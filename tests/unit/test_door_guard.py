"""The guard bites: each way of touching the machine fails, also where the code under test swallows the error."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import guard
import pytest


def _swallowed(do: Callable[[], object]) -> None:
    with contextlib.suppress(BaseException):
        do()


def _connect(port: int) -> None:
    with socket.socket() as s:
        s.connect(("127.0.0.1", port))


TOUCHES = {
    "program": lambda: subprocess.run(["true"], check=False),
    "shell": lambda: os.system("true"),
    "fork": lambda: os.fork() or os._exit(0),
    "read /etc": lambda: Path("/etc/hostname").read_bytes(),
    "read /proc": lambda: Path("/proc/1/cmdline").read_bytes(),
    "list /run": lambda: os.listdir("/run"),
    "write /etc": lambda: Path("/etc/ollamactl-guard").write_text("x"),
    "write /run": lambda: os.open("/run/ollamactl-guard", os.O_WRONLY | os.O_CREAT),
    "folder": lambda: os.mkdir("/etc/ollamactl-guard.d"),
    "rename": lambda: os.rename("/etc/ollamactl-guard-none", "/etc/ollamactl-guard-other"),
    "remove": lambda: os.remove("/etc/ollamactl-guard-none"),
    "connect": lambda: _connect(11434),
    "bind": lambda: socket.socket().bind(("127.0.0.1", 0)),
    "look up": lambda: socket.getaddrinfo("example.org", 80),
    "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4),
    "bus": lambda: socket.socket(socket.AF_UNIX).connect("/run/dbus/system_bus_socket"),
    "signal": lambda: os.kill(1, signal.SIGCONT),
    "signal group": lambda: os.killpg(1, signal.SIGCONT),
    "library": lambda: ctypes.CDLL("libnvidia-ml.so.1"),
    "pystemd": lambda: __import__("pystemd"),
}


@pytest.mark.parametrize("what", TOUCHES)
def test_each_touch_fails_though_swallowed(what: str) -> None:
    sys.modules.pop("pystemd", None)
    with pytest.raises(AssertionError, match="touched the machine"), guard.watching(set()):
        _swallowed(TOUCHES[what])
    assert not Path("/etc/ollamactl-guard").exists()


@pytest.mark.parametrize("what", ["write /etc", "folder", "rename", "signal", "look up", "bus", "pystemd"])
def test_no_mark_allows_these(what: str) -> None:
    sys.modules.pop("pystemd", None)
    with (
        pytest.raises(AssertionError),
        guard.watching({"loopback", "process", "machine", "netlink", "library"}),
    ):
        _swallowed(TOUCHES[what])


def test_loopback_reaches_only_ports_of_the_test() -> None:
    with guard.watching({"loopback"}), socket.create_server(("127.0.0.1", 0)) as server:
        _connect(server.getsockname()[1])
    with pytest.raises(AssertionError, match="has not opened"), guard.watching({"loopback"}):
        _swallowed(lambda: _connect(11434))
    with pytest.raises(AssertionError), guard.watching({"loopback"}):
        _swallowed(lambda: socket.socket().bind(("0.0.0.0", 0)))


def test_own_children_may_be_signalled() -> None:
    with guard.watching({"process"}):
        child = subprocess.Popen(["sleep", "60"])
        child.kill()
        child.wait()


def test_temporary_files_are_free(tmp_path: Path) -> None:
    with guard.watching(set()):
        (tmp_path / "a").write_text("x")
        (tmp_path / "a").rename(tmp_path / "b")
        (tmp_path / "b").unlink()
