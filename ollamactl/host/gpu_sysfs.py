"""Graphics devices as the kernel shows them in /sys and /dev: every vendor's, without any vendor's library."""

from __future__ import annotations

import errno
import glob
import json
import os
import re
import stat
from typing import Any

_CARD_TEXTS = ("vendor", "device", "product_name", "unique_id", "power_state", "mem_info_vram_vendor", "board_info")
_CARD_NUMBERS = (
    "mem_info_vram_total",
    "mem_info_vram_used",
    "mem_info_vis_vram_total",
    "mem_info_gtt_total",
    "mem_info_gtt_used",
    "lmem_total_bytes",
    "lmem_avail_bytes",
)
_DEVICES = ("/dev/kfd", "/dev/dri/renderD*", "/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/dxg")


def read() -> bytes:
    """Body: `{"cards": [{"card", "pci", "driver", "render", and the sysfs names above}…], "kfd": [{"node", properties
    as int, "banks": [properties]}…], "pci": [{"address", "class", "vendor", "device", "driver"}…] (display and
    accelerator classes), "nodes": [{"path", "mode", "uid", "gid", "group", "usable"}…], "modules": {"amdgpu":
    version…}, "rocm", "tegra" (a Jetson's own name), "denied": [path…]}`. Sizes in bytes."""
    denied: list[str] = []
    body = {
        "cards": [_card(path, denied) for path in sorted(glob.glob("/sys/class/drm/card*")) if _is_card(path)],
        "kfd": _kfd(denied),
        "pci": _pci(denied),
        "nodes": _nodes(),
        "modules": {
            name: _text(f"/sys/module/{name}/version", denied) or ""
            for name in ("amdgpu", "i915", "xe", "nvidia", "nvidia_uvm", "nouveau")
            if os.path.isdir(f"/sys/module/{name}")
        },
        "rocm": _text("/opt/rocm/.info/version", denied) or "",
        "tegra": _tegra(denied),
        "denied": denied,
    }
    return json.dumps(body).encode()


def _is_card(path: str) -> bool:
    return re.fullmatch(r"card\d+", os.path.basename(path)) is not None  # card0-DP-1 is a socket of card0


def _text(path: str, denied: list[str]) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4096).strip()
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            denied.append(path)
        return None


def _number(path: str, denied: list[str]) -> int | None:
    text = _text(path, denied)
    return int(text) if text and text.isdigit() else None


def _link_name(path: str) -> str:
    return os.path.basename(os.path.realpath(path)) if os.path.lexists(path) else ""


def _card(path: str, denied: list[str]) -> dict[str, Any]:
    device = f"{path}/device"
    renders = sorted(glob.glob(f"{device}/drm/renderD*"))
    return {
        "card": os.path.basename(path),
        "pci": _link_name(device),
        "driver": _link_name(f"{device}/driver"),
        "render": os.path.basename(renders[0]) if renders else "",
        **{name: _text(f"{device}/{name}", denied) for name in _CARD_TEXTS},
        **{name: _number(f"{device}/{name}", denied) for name in _CARD_NUMBERS},
        "tiles": [_sized(path, denied) for path in sorted(glob.glob(f"{device}/tile*/physical_vram_size_bytes"))],
    }


def _sized(path: str, denied: list[str]) -> int | None:
    """A size that xe prints as decimal, some kernels as hexadecimal."""
    text = _text(path, denied) or ""
    return int(text, 0) if re.fullmatch(r"\d+|0x[0-9a-fA-F]+", text) else None


def _tegra(denied: list[str]) -> str:
    """The name of the board, where the GPU is a Jetson's: before JetPack 6 it has no NVML."""
    if not os.path.exists("/etc/nv_tegra_release"):
        return ""
    return (_text("/proc/device-tree/model", denied) or "Jetson").strip("\0 ")


def _kfd(denied: list[str]) -> list[dict[str, Any]]:
    nodes = []
    for path in glob.glob("/sys/class/kfd/kfd/topology/nodes/*"):
        number = os.path.basename(path)
        if number.isdigit():
            banks = sorted(glob.glob(f"{path}/mem_banks/*/properties"))
            found = {"node": int(number), **_properties(f"{path}/properties", denied)}
            nodes.append(found | {"banks": [_properties(bank, denied) for bank in banks]})
    return sorted(nodes, key=lambda node: int(node["node"]))


def _properties(path: str, denied: list[str]) -> dict[str, int]:
    pairs = (line.split() for line in (_text(path, denied) or "").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _pci(denied: list[str]) -> list[dict[str, str]]:
    found = []
    for path in sorted(glob.glob("/sys/bus/pci/devices/*")):
        kind = _text(f"{path}/class", denied) or ""
        if kind.startswith(("0x03", "0x12")):  # display controllers; processing accelerators
            found.append(
                {
                    "address": os.path.basename(path),
                    "class": kind,
                    "vendor": _text(f"{path}/vendor", denied) or "",
                    "device": _text(f"{path}/device", denied) or "",
                    "driver": _link_name(f"{path}/driver"),
                }
            )
    return found


def _nodes() -> list[dict[str, Any]]:
    found = []
    for pattern in _DEVICES:
        for path in sorted(glob.glob(pattern)):
            try:
                at = os.stat(path)
            except OSError:
                continue
            found.append(
                {
                    "path": path,
                    "mode": stat.S_IMODE(at.st_mode),
                    "uid": at.st_uid,
                    "gid": at.st_gid,
                    "group": _group(at.st_gid),
                    "usable": os.access(path, os.R_OK | os.W_OK),
                }
            )
    return found


def _group(gid: int) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""
