"""Readings of /sys → AMD's and Intel's devices, the drivers of all, and what lies on the bus.

The body is described in `host/gpu_sysfs.py`. All functions raise msgspec.MsgspecError for a text that is not such a
body.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from ollamactl.core.facts import Gpu, GpuDriver

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


def gpus(body: bytes) -> tuple[Gpu, ...]:
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


def drivers(body: bytes) -> tuple[GpuDriver, ...]:
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


def tegra(body: bytes) -> str:
    """The name of a Jetson board, or ""."""
    return msgspec.json.decode(body, type=_Sysfs).tegra
