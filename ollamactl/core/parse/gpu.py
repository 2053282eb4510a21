"""Readings of NVML and of /sys → the devices that can hold a model, and their drivers.

The bodies are described in `host/nvml.py` and `host/gpu_sysfs.py`. All functions raise msgspec.MsgspecError for a
text that is not such a body.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from ollamactl.core.facts import Gpu, GpuDriver, GpuProcess
from ollamactl.core.source import Reading, Source, native

# Processors with graphics inside (LLVM's AMDGPU targets, "APU"): their memory is the host's, carved out or shared.
APU = frozenset(
    [
        "gfx902",
        "gfx909",
        "gfx90c",
        "gfx1013",
        "gfx1033",
        "gfx1035",
        "gfx1036",
        "gfx1037",
        "gfx1103",
        "gfx1150",
        "gfx1151",
        "gfx1152",
        "gfx1153",
    ]
)

_VENDORS: dict[str, Literal["nvidia", "amd", "intel"]] = {
    "0x10de": "nvidia",
    "0x1002": "amd",
    "0x8086": "intel",
}


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


def nvml_gpus(body: bytes) -> tuple[Gpu, ...]:
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


def nvml_driver(body: bytes) -> GpuDriver:
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


def _nvml_silent(body: bytes, sysfs: bytes | None) -> tuple[Gpu, ...]:
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
    if not found and sysfs and (board := msgspec.json.decode(sysfs, type=_Sysfs).tegra):
        return (Gpu(index=0, vendor="nvidia", name=board, unified=True, notes=notes),)
    if not found and sysfs:
        devices = [d for d in pci_devices(sysfs) if d.vendor == "0x10de"]
        found = [
            Gpu(index=i, vendor="nvidia", name=f"NVIDIA {d.device}", pci=d.address, notes=notes)
            for i, d in enumerate(devices)
        ]
    return tuple(found)


def devices(read: Callable[[Source], Reading]) -> tuple[Gpu, ...]:
    """Every device of every vendor. One that is there but does not tell its memory has `total` None and a note."""
    nvml, sysfs = read(native("nvml")), read(native("gpu_sysfs"))
    if nvml.missing is None and nvml.body:
        nvidia = nvml_gpus(nvml.body)
    else:
        problem = "" if nvml.missing is None else nvml.missing.detail
        nvidia = _nvml_silent(nvml.body or msgspec.json.encode({"problem": problem}), sysfs.body)
    return nvidia + (sysfs_gpus(sysfs.body) if sysfs.body else ())


def drivers(read: Callable[[Source], Reading]) -> tuple[GpuDriver, ...]:
    """The driver of each vendor with a device or a driver here; `problem` where it does not work."""
    nvml, sysfs = read(native("nvml")), read(native("gpu_sysfs"))
    found: list[GpuDriver] = []
    if nvml.body:
        found.append(nvml_driver(nvml.body))
    elif nvml.missing is not None and nvml.missing.kind not in ("absent", "unasked"):
        found.append(GpuDriver(vendor="nvidia", problem=nvml.missing.detail))
    for driver in sysfs_drivers(sysfs.body) if sysfs.body else ():
        if driver.vendor != "nvidia" or not found:
            found.append(driver)
    return tuple(found)


# -- /sys --


class _Card(msgspec.Struct):
    card: str
    pci: str = ""
    driver: str = ""
    render: str = ""
    vendor: str | None = None
    device: str | None = None
    product_name: str | None = None
    unique_id: str | None = None
    mem_info_vram_total: int | None = None
    mem_info_vram_used: int | None = None
    mem_info_gtt_total: int | None = None
    mem_info_gtt_used: int | None = None
    lmem_total_bytes: int | None = None
    lmem_avail_bytes: int | None = None
    mem_info_vram_vendor: str | None = None
    board_info: str | None = None
    tiles: tuple[int | None, ...] = ()  # what xe says of each tile's memory


class PciDevice(msgspec.Struct, frozen=True):
    address: str
    vendor: str
    device: str
    driver: str = ""


class Node(msgspec.Struct, frozen=True):
    """A device file. `usable`: the process that read it may open it for reading and writing."""

    path: str
    mode: int
    uid: int
    gid: int
    group: str = ""
    usable: bool = False


class _Sysfs(msgspec.Struct):
    cards: tuple[_Card, ...] = ()
    kfd: tuple[dict[str, Any], ...] = ()
    pci: tuple[PciDevice, ...] = ()
    nodes: tuple[Node, ...] = ()
    modules: dict[str, str] = {}
    rocm: str = ""
    tegra: str = ""
    denied: tuple[str, ...] = ()


def sysfs_gpus(body: bytes) -> tuple[Gpu, ...]:
    """AMD's and Intel's devices, numbered per vendor in the kernel's order. NVIDIA's do not tell their memory here."""
    reading = msgspec.json.decode(body, type=_Sysfs)
    nodes = {node.get("drm_render_minor"): node for node in reading.kfd if node.get("simd_count")}
    found: list[Gpu] = []
    for card in sorted(reading.cards, key=lambda c: int(re.sub(r"\D", "", c.card) or 0)):
        vendor = _VENDORS.get(card.vendor or "")
        index = sum(g.vendor == vendor for g in found)
        if vendor == "amd" and card.driver == "amdgpu":
            found.append(_amd(index, card, nodes.get(_minor(card.render))))
        elif vendor == "intel" and card.driver in ("i915", "xe"):
            found.append(_intel(index, card))
    return tuple(found)


def _minor(render: str) -> int | None:
    number = render.removeprefix("renderD")
    return int(number) if number.isdigit() else None


def _amd(index: int, card: _Card, node: dict[str, Any] | None) -> Gpu:
    gfx = gfx_name(int(node.get("gfx_target_version", 0))) if node else ""
    total, used = card.mem_info_vram_total, card.mem_info_vram_used
    notes = []
    if node is None:
        notes.append("not in the compute topology (/sys/class/kfd): ROCm can't use it")
    if card.mem_info_gtt_total is not None:
        notes.append(f"{card.mem_info_gtt_total} bytes of host memory addressable, {card.mem_info_gtt_used} used")
    return Gpu(
        index=index,
        vendor="amd",
        name=card.product_name or f"AMD {card.device or ''}".strip(),
        uuid=_amd_uuid(card.unique_id),
        pci=card.pci,
        total=total,
        used=used,
        free=total - used if total is not None and used is not None else None,
        unified=gfx in APU or bool(node and node.get("cpu_cores_count")) or _integrated(card),
        compute=gfx,
        notes=tuple(notes),
    )


def _integrated(card: _Card) -> bool:
    """Ollama's own rule since 0.30 (discover/): no maker of memory and no board are named, little memory of its own,
    much of the host's."""
    own, host = card.mem_info_vram_total, card.mem_info_gtt_total
    named = card.mem_info_vram_vendor or (card.board_info or "").partition(":")[2].strip() not in ("", "Unknown")
    if named or own is None or host is None:
        return False
    return own <= 4 << 30 and host >= 8 << 30 and host >= 4 * own


def _amd_uuid(unique_id: str | None) -> str:
    """As ROCm prints it: GPU- and the hexadecimal id."""
    return f"GPU-{unique_id}" if unique_id and unique_id.strip("0") else ""


def gfx_name(version: int) -> str:
    """kfd's gfx_target_version (major × 10000 + minor × 100 + stepping) as LLVM names it: 90010 is gfx90a."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version else ""


def _intel(index: int, card: _Card) -> Gpu:
    tiles = [size for size in card.tiles if size]
    total, free = card.lmem_total_bytes or sum(tiles) or None, card.lmem_avail_bytes
    # Graphics inside the processor are always function 0 of device 2 on the first bus.
    inside = card.pci == "0000:00:02.0"
    what = "is free" if total else "it has"
    return Gpu(
        index=index,
        vendor="intel",
        name=card.product_name or f"Intel {card.device or ''}".strip(),
        pci=card.pci,
        total=total,
        free=free,
        used=total - free if total is not None and free is not None else None,
        unified=inside,
        notes=() if inside or (total and free is not None) else (f"the kernel does not say how much memory {what}",),
    )


def sysfs_drivers(body: bytes) -> tuple[GpuDriver, ...]:
    """Drivers of the AMD and Intel devices, and of an NVIDIA one only where it is not NVIDIA's or is missing."""
    reading = msgspec.json.decode(body, type=_Sysfs)
    found: list[GpuDriver] = []
    for name, vendor in _VENDORS.items():
        devices = [device for device in reading.pci if device.vendor == name]
        if not devices:
            continue
        used = sorted({d.driver for d in devices if d.driver})
        if vendor == "nvidia":
            if "nvidia" not in used:
                said = f"its device is driven by {', '.join(used)}" if used else "its device has no driver"
                found.append(GpuDriver(vendor="nvidia", problem=f"NVIDIA's driver is not loaded: {said}"))
            continue
        problem = "" if used else "its device has no driver"
        if vendor == "amd" and used and not any(n.path == "/dev/kfd" for n in reading.nodes):
            problem = "no /dev/kfd"
        version = next((reading.modules[u] for u in used if reading.modules.get(u)), "")
        api = reading.rocm if vendor == "amd" else ""
        found.append(GpuDriver(vendor=vendor, version=version, api=api, problem=problem))
    return tuple(found)


def pci_devices(body: bytes) -> tuple[PciDevice, ...]:
    """Display and accelerator devices, also those without a driver."""
    return msgspec.json.decode(body, type=_Sysfs).pci
