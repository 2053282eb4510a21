"""How much of a Mac's memory Metal lets a program use: the limit that was set, else the system's default share.

The default is recommendedMaxWorkingSetSize as it was reported for the sizes that Macs are sold with. Up to macOS 15 it
is two thirds up to 32 GiB and three quarters above; macOS 26 (Darwin 25) gives more, by size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MiB = 1 << 20
GiB = 1 << 30
# macOS 26: (GiB up to which it counts, share). Sizes that nobody has reported take the share of the next smaller one.
_NEWER = ((8, 0.667), (24, 0.74), (48, 0.78), (96, 0.81))
_NEWEST = 0.84


def limit_set(said: Mapping[str, str]) -> tuple[int, str] | None:
    """Bytes that somebody set by sysctl, and the name; None where the system decides (0, or not known)."""
    for name, unit in (("iogpu.wired_limit_mb", MiB), ("debug.iogpu.wired_limit", 1)):
        text = said.get(name, "")
        if text.isdigit() and int(text):
            return int(text) * unit, f"{name}={text}"
    return None


def default_working_set(total: int, kernel: str) -> int:
    """Bytes of the default share. `kernel` is Darwin's release ("25.1.0")."""
    major = re.match(r"\d+", kernel)
    size = total / GiB
    if major is not None and int(major[0]) >= 25:
        share = next((s for most, s in _NEWER if size <= most), _NEWEST)
        return int(total * share)
    return total * 3 // 4 if size > 32 else total * 2 // 3
