"""Sockets made in another process's network namespace, for services with a network of their own."""

from __future__ import annotations

import os
import socket
import threading

_CLONE_NEWNET = 0x40000000


def differs(pid: int) -> bool:
    """Whether a process has a network namespace other than ours. OSError where that can't be seen."""
    return os.stat(f"/proc/{pid}/ns/net").st_ino != os.stat("/proc/self/ns/net").st_ino


def make(pid: int | None, family: int, type: int, protocol: int = 0) -> socket.socket:
    """A socket as a process of `pid`'s namespace gets it; PermissionError without root where it is not ours.

    A namespace is entered per thread and a socket stays in the one it was made in, so a thread that ends at
    once goes there in our place.
    """
    if pid is None or not differs(pid):
        return socket.socket(family, type | socket.SOCK_CLOEXEC, protocol)
    made: list[socket.socket] = []
    failed: list[BaseException] = []

    def enter() -> None:
        import ctypes

        try:
            fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(fd, _CLONE_NEWNET):
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            finally:
                os.close(fd)
            made.append(socket.socket(family, type | socket.SOCK_CLOEXEC, protocol))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]
