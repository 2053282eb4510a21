"""`ollama ps`: read from what people paste, and written as Ollama writes it.

    NAME           ID              SIZE      PROCESSOR    CONTEXT    UNTIL
    gemma3:270m    14f8ac0fb3c4    287 MB    100% CPU     4096       4 minutes from now
CONTEXT is there from 0.10.0 on. SIZE is decimal; PROCESSOR gives the CPU's share first: `33%/67% CPU/GPU`.
"""

from __future__ import annotations

import re
from decimal import Decimal

from ollamactl.core.facts import LoadedModel

_ROW = re.compile(
    r"(?P<name>\S+)\s+(?P<id>[0-9a-f]{12})\s+(?P<size>[0-9.]+ ?[KMGT]?B)\s+"
    r"(?P<processor>\d+%/\d+% CPU/GPU|\d+% (?:GPU|CPU)|Unknown)"
    r"(?:\s+(?P<context>\d+)(?! \w))?(?:\s+(?P<until>\S.*?))?\s*(?:…|>)?"
)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def parse(text: str) -> tuple[LoadedModel, ...]:
    """The models in pasted `ollama ps` text, other lines left out. `size` and `size_vram` are as exact as the
    text: two or three digits, and whole percents."""
    found = []
    for line in text.splitlines():
        row = _ROW.fullmatch(line.strip().lstrip("│|> "))
        if row is None:
            continue
        size = size_bytes(row["size"])
        if size is None:
            continue
        context = row["context"]
        found.append(
            LoadedModel(
                name=row["name"],
                digest=row["id"],
                size=size,
                size_vram=round(size * _gpu_share(row["processor"])),
                context=int(context) if context and len(context) < 12 else None,
                expires=row["until"] or "",
            )
        )
    return tuple(found)


def size_bytes(text: str) -> int | None:
    """Bytes of a SIZE cell, or None."""
    number = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?) ?([KMGT]?)B", text)
    return int(Decimal(number[1]) * _UNITS[number[2]]) if number else None


def _gpu_share(processor: str) -> float:
    if processor.endswith("CPU/GPU"):
        return int(processor.split("%/")[1].split("%")[0]) / 100
    return 1.0 if processor.endswith("% GPU") else 0.0


def format_row(model: LoadedModel) -> tuple[str, str, str]:
    """(SIZE, PROCESSOR, CONTEXT) of one model as `ollama ps` prints them."""
    return format_size(model.size), format_processor(model.size, model.size_vram), str(model.context or "")


def format_size(size: int) -> str:
    """As Ollama prints it: 999 B, 287 MB, 3.0 GB, 3 GB. From ten on whole units, cut and not rounded; below ten
    one decimal, and none for a whole number of units."""
    for unit, scale in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size >= scale:
            if size >= 10 * scale or size % scale == 0:
                return f"{size // scale} {unit}"
            return f"{size / scale:.1f} {unit}"  # rounds the binary value half to even, as Go does
    return f"{size} B"


def format_processor(size: int, size_vram: int) -> str:
    """Ollama's PROCESSOR column. The shares are rounded: 99.6 % on the GPU prints `0%/100% CPU/GPU`."""
    if size_vram == 0:
        return "100% CPU"
    if size_vram == size:
        return "100% GPU"
    if size_vram > size or size == 0:
        return "Unknown"
    cpu = (size - size_vram) / size * 100
    share = int(cpu + 0.5)  # math.Round of a positive number
    return f"{share}%/{100 - share}% CPU/GPU"
