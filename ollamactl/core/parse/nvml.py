"""Readings of NVML → NVIDIA's devices and their driver.

The body is described in `host/nvml.py`. All functions raise msgspec.MsgspecError for a text that is not such a body.
"""

from __future__ import annotations

import re

import msgspec

from ollamactl.core.facts import Gpu, GpuDriver, GpuProcess
from ollamactl.core.parse import gpu_sysfs


class _Memory(msgspec.Struct):
    total: int
    free: int
    used: int
    reserved: int | None = None


class _Process(msgspec.Struct):
    pid: int
    used: int | None = None
    name: str = ""


class _Device(msgspec.Struct):
    index: int
    name: str = ""
    uuid: str = ""
    pci: str = ""
    memory: _Memory | None = None
    compute: tuple[int, int] | None = None
    mig: bool | None = None
    slices: tuple[_Device, ...] = ()
    processes: tuple[_Process, ...] | None = None
    said: dict[str, str] = {}


class _Proc(msgspec.Struct):
    version: str = ""
    gpus: tuple[dict[str, str], ...] = ()


class _Nvml(msgspec.Struct):
    driver: str | None = None
    cuda: int | None = None
    gpus: tuple[_Device, ...] = ()
    problem: str = ""
    proc: _Proc | None = None


def gpus(body: bytes) -> tuple[Gpu, ...]:
    """Every NVIDIA device. A device in MIG mode is replaced by its slices (`mig_of` is its index): it can't hold a
    model itself. A device that does not say how much memory it has (Jetson, GB10) shares the host's."""
    found: list[Gpu] = []
    for device in msgspec.json.decode(body, type=_Nvml).gpus:
        if not device.mig:
            found.append(_nvidia(device))
        elif device.slices:
            found += [_slice(device, inner) for inner in device.slices]
        else:
            size = device.memory.total if device.memory else 0
            note = f"MIG mode is on and no instance exists, so none of its {size} bytes can be used"
            found.append(msgspec.structs.replace(_nvidia(device), total=0, free=0, unified=False, notes=(note,)))
    return tuple(found)


def _nvidia(device: _Device) -> Gpu:
    memory = device.memory
    lost = "handle" in device.said
    silent = not lost and memory is None and _unsupported(device.said.get("memory", ""))
    notes = [f"{what}: {words}" for what, words in sorted(device.said.items()) if what in ("handle", "memory")]
    if memory and memory.reserved:
        notes.append(f"{memory.reserved} bytes reserved by the driver")
    return Gpu(
        index=device.index,
        vendor="nvidia",
        name=device.name,
        uuid=device.uuid,
        pci=device.pci.lower(),
        total=memory.total if memory else None,
        free=memory.free if memory else None,
        used=memory.used if memory else None,
        unified=silent,
        compute="{}.{}".format(*device.compute) if device.compute else "",
        processes=tuple(GpuProcess(pid=p.pid, used=p.used, name=p.name) for p in device.processes or ()),
        notes=tuple(notes),
    )


def _slice(parent: _Device, inner: _Device) -> Gpu:
    own = _nvidia(inner)
    return msgspec.structs.replace(
        own,
        mig_of=parent.index,
        name=own.name or f"{parent.name} MIG {inner.index}",
        pci=parent.pci.lower(),
        compute="{}.{}".format(*parent.compute) if parent.compute else "",
    )


def _unsupported(words: str) -> bool:
    return "not supported" in words.lower()


def driver(body: bytes) -> GpuDriver:
    """NVIDIA's driver: from NVML, else (with `problem`) from what its kernel module says of itself."""
    reading = msgspec.json.decode(body, type=_Nvml)
    version = reading.driver or ""
    if not version and reading.proc:
        found = re.search(r"Kernel Module\D*?(\d+\.[\d.]+)", reading.proc.version)
        version = found.group(1) if found else ""
    cuda = reading.cuda
    return GpuDriver(
        vendor="nvidia",
        version=version,
        api=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
        problem=reading.problem,
    )


def silent_gpus(body: bytes, sysfs: bytes | None) -> tuple[Gpu, ...]:
    """NVIDIA devices that are there though NVML does not answer: their memory is unknown."""
    reading = msgspec.json.decode(body, type=_Nvml)
    notes = (reading.problem,) if reading.problem else ()
    named = reading.proc.gpus if reading.proc else ()
    found = [
        Gpu(
            index=index,
            vendor="nvidia",
            name=one.get("Model", ""),
            uuid=one.get("GPU UUID", ""),
            pci=one.get("Bus Location", "").lower(),
            notes=notes,
        )
        for index, one in enumerate(named)
    ]
    if not found and sysfs and (board := gpu_sysfs.tegra(sysfs)):
        return (Gpu(index=0, vendor="nvidia", name=board, unified=True, notes=notes),)
    if not found and sysfs:
        devices = [d for d in gpu_sysfs.pci_devices(sysfs) if d.vendor == "0x10de"]
        found = [
            Gpu(index=i, vendor="nvidia", name=f"NVIDIA {d.device}", pci=d.address, notes=notes)
            for i, d in enumerate(devices)
        ]
    return tuple(found)
