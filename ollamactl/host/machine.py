"""What machine this is, as JSON of `facts.System` and `facts.HostMemory`."""

from __future__ import annotations

import os
import platform
import sys

import msgspec

from ollamactl.core.facts import HostMemory, System


def system() -> bytes:
    """The operating system, its init and the container that we are in, if any."""
    return msgspec.json.encode(
        System(
            os=_os(),
            kernel=platform.release(),
            arch=platform.machine(),
            hostname=platform.node(),
            distribution=_distribution(),
            init=_init(),
            container=_container(),
            euid=os.geteuid() if hasattr(os, "geteuid") else None,
            cpus=_cpus(),
            boot_id=_line("/proc/sys/kernel/random/boot_id"),
        )
    )


def memory() -> bytes:
    """RAM and swap in bytes; `available` is what programs can still take without swapping."""
    import psutil

    ram, swap = psutil.virtual_memory(), psutil.swap_memory()
    return msgspec.json.encode(
        HostMemory(total=ram.total, available=ram.available, swap_total=swap.total, swap_free=swap.free)
    )


def _os() -> str:
    return {"linux": "linux", "darwin": "darwin", "win32": "windows"}.get(sys.platform, "unknown")


def _cpus() -> int:
    """The processors that we may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 0


def _distribution() -> str:
    if sys.platform == "darwin":
        return f"macOS {platform.mac_ver()[0]}"
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""


def _init() -> str:
    if sys.platform == "darwin":
        return "launchd"
    if os.path.isdir("/run/systemd/system"):  # sd_booted(3)
        return "systemd"
    if os.path.isdir("/run/openrc"):
        return "openrc"
    return {"init": "sysvinit", "runit": "runit", "s6-svscan": "s6"}.get(_line("/proc/1/comm"), "none")


def _container() -> str:
    """By the marks that docker, podman and systemd's container interface leave."""
    if said := _line("/run/systemd/container"):  # systemd's own word: a file left in an image proves less
        return said
    if os.path.exists("/.dockerenv"):
        return "docker"
    if os.path.exists("/run/.containerenv"):
        return "podman"
    if os.path.exists("/proc/sys/fs/binfmt_misc/WSLInterop") or "microsoft" in platform.release().lower():
        return "wsl"
    for entry in _line("/proc/1/environ").split("\0"):
        if entry.startswith("container="):
            return entry.removeprefix("container=")
    return "kubernetes" if "KUBERNETES_SERVICE_HOST" in os.environ else ""


def _line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536).strip()
    except OSError:
        return ""


def space(path: str) -> bytes:
    """JSON of the file system that holds a path: `free` and `total` in bytes, `files_free` or null where it does not
    count files, `read_only`. Raises OSError."""
    found = os.statvfs(path)
    return msgspec.json.encode(
        {
            "free": found.f_bavail * found.f_frsize,
            "total": found.f_blocks * found.f_frsize,
            "files_free": found.f_favail if found.f_files else None,
            "read_only": bool(found.f_flag & os.ST_RDONLY),
        }
    )
