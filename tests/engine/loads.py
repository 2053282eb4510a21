"""What a load is to the engine and to the memory model: the same settings for both, and what cannot be loaded."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ollamactl.core.memory import shape
from ollamactl.core.memory.ggml import TYPES
from ollamactl.core.memory.model import Hyper
from ollamactl.core.memory.reading import from_header
from ollamactl.core.memory.request import Device, Request
from ollamactl.core.parse.gguf import read_header
from tests.engine.engine import Load, build_number

NUMBERS = {kind.name: number for number, kind in TYPES.items()}
FLASH = {"auto": -1, "off": 0, "on": 1}

# What this engine cannot load, with the reason; every other model has to load.
UNLOADABLE = {
    "t5": "the server has no graph for an encoder and a decoder",
    "rwkv6qwen2": "its own tensors are refused by the engine",
    "minimax-01": "crashes with these toy widths",
}

# Toys whose widths make the engine itself stop; named, so that no other can hide behind them. The kimi-linear ones
# stop only with 3 or 5 slots (GGML_ASSERT(ggml_can_repeat(b, a))), which the model at its real widths takes.
STOPS = {"afmoe-c", "bailingmoe2-b", "kimi-linear-a", "kimi-linear-c", "llama4-b"}


@cache
def hyper_of(path: Path) -> Hyper:
    size = path.stat().st_size
    with path.open("rb") as file:

        def read(offset: int, length: int) -> bytes:
            file.seek(offset)
            return file.read(length)

        return from_header(read_header(read, size))


def engine_class() -> str:
    return shape.NEWEST if build_number() >= 11_000 else shape.CURRENT


def request_of(load: Load, projector: int = 0) -> Request:
    flash = {value: key for key, value in FLASH.items()}[load.flash_attention]
    return Request(
        context=load.context // load.slots, slots=load.slots,
        type_k=TYPES[load.type_k].name, type_v=TYPES[load.type_v].name,
        flash_attention=flash, batch=load.ubatch, engine=engine_class(),
        unified=load.kv_unified, swa_full=load.swa_full, projector=projector,
    )  # fmt: skip


def other(devices: int, free: int = 1 << 40, *, cuda: bool = False) -> tuple[Device, ...]:
    """Devices without hardware, that behave as CUDA's or as any."""
    kind = "cuda" if cuda else "other"
    return tuple(Device(name=f"BARE{i}", kind=kind, free=free, total=free) for i in range(devices))
