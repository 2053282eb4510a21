"""The machine: system, memory, GPUs, paths."""

from __future__ import annotations

from typing import Literal

from ollamactl.core.facts.record import Record
from ollamactl.core.source import Missing


class System(Record, frozen=True, kw_only=True):
    os: str  # linux, darwin, windows, or unknown
    kernel: str = ""
    arch: str = ""
    hostname: str = ""
    distribution: str = ""  # PRETTY_NAME
    init: str = ""  # systemd, launchd, openrc, …, none
    container: str = ""  # docker, podman, lxc, wsl, systemd-nspawn, or empty
    euid: int | None = None
    cpus: int = 0
    boot_id: str = ""


class HostMemory(Record, frozen=True, kw_only=True):
    total: int
    available: int
    swap_total: int = 0
    swap_free: int = 0


class GpuProcess(Record, frozen=True, kw_only=True):
    pid: int
    used: int | None = None  # None where the driver does not say
    name: str = ""


class Gpu(Record, frozen=True, kw_only=True):
    """One device that can hold a model, or one MIG slice. `total`/`free` are None where it is the host's."""

    index: int
    vendor: Literal["nvidia", "amd", "intel", "apple"]
    name: str = ""
    uuid: str = ""
    pci: str = ""
    total: int | None = None
    free: int | None = None
    used: int | None = None
    unified: bool = False  # shares the host's memory
    mig_of: int | None = None  # index of the parent GPU of a MIG slice
    compute: str = ""  # "8.9", "gfx1100"
    processes: tuple[GpuProcess, ...] = ()
    notes: tuple[str, ...] = ()


class GpuDriver(Record, frozen=True, kw_only=True):
    vendor: Literal["nvidia", "amd", "intel", "apple"]
    version: str = ""
    api: str = ""  # CUDA or ROCm version
    problem: str = ""  # why the library or driver does not work, as it says


class PathState(Record, frozen=True, kw_only=True):
    """What `stat` says of one path, or why it can't."""

    path: str
    type: str = ""  # file, folder, link, char, …
    mode: int = 0
    uid: int = -1
    gid: int = -1
    size: int = 0
    mtime: float = 0.0
    expected: int | None = None  # the size that a manifest names
    free: int | None = None  # bytes of its file system that others than root may write
    total: int | None = None
    files_free: int | None = None  # of its file system; None where it does not count them
    read_only: bool | None = None  # its file system
    missing: Missing | None = None
