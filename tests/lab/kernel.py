"""The few system calls of Linux that the lab needs and Python 3.10 doesn't have, and what /proc says of processes."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path

NEWNS, NEWCGROUP, NEWPID = 0x00020000, 0x02000000, 0x20000000
NOSUID, NODEV, NOEXEC, BIND, REC, SLAVE = 2, 4, 8, 4096, 16384, 1 << 19
MNT_DETACH = 2
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """unshare(2)."""
    _checked(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    arguments = (
        source.encode(),
        target.encode(),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        data.encode() or None,
    )
    _checked(_libc.mount(*arguments), f"mount {kind or 'flags'} at {target}")


def umount(target: str) -> None:
    """umount2(2), detached: what still uses the mount keeps it until it ends."""
    _checked(_libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def die_with_parent() -> None:
    """SIGKILL for this process when its parent ends."""
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")


def children(pid: int) -> list[int]:
    """Pids of the children of all threads of `pid`; none when it is gone."""
    found: list[int] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):
        return [child for child in _pids() if parent(child) == pid] if os.path.exists(f"/proc/{pid}") else []
    return found


def parent(pid: int) -> int | None:
    """Pid of the parent, None when the process is gone."""
    row = _stat(pid)
    return int(row[1]) if row else None


def started(pid: int) -> int | None:
    """When `pid` started, in clock ticks since boot: with the pid it names one process.

    None when it is gone, or has ended and only waits for its parent to ask (a zombie)."""
    row = _stat(pid)
    return int(row[19]) if row and row[0] not in "ZX" else None


def cgroup(pid: int) -> str:
    """Path of a process's cgroup in the v2 hierarchy, as this process's cgroup namespace shows it."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return line[3:]
    raise OSError("this kernel has no cgroup v2 hierarchy")


def namespace_pids(pid: int) -> list[int]:
    """The process's pid in each nested pid namespace, outermost first."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return [int(word) for word in line.split()[1:]]
    return []


def bounding_set(pid: int) -> list[int]:
    """Numbers of the capabilities that the process and its children can ever have."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("CapBnd:"):
            mask = int(line.split()[1], 16)
            return [number for number in range(mask.bit_length()) if mask >> number & 1]
    return []


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on (field 3 of proc(5)); the name before it may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())
