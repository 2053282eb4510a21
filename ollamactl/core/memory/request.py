"""How a runner is started and on what devices, and which starts the engine refuses."""

from __future__ import annotations

from typing import Literal

import msgspec

from ollamactl.core.memory import kernels
from ollamactl.core.memory.eras import Era
from ollamactl.core.memory.ggml import quantized
from ollamactl.core.memory.model import Hyper
from ollamactl.core.memory.shape import CURRENT

FlashAttention = Literal["auto", "on", "off"]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """How a runner is started. `context` is a slot's, in tokens; `batch` is both -b and -ub."""

    context: int
    slots: int = 1
    type_k: str = "f16"
    type_v: str = "f16"
    flash_attention: FlashAttention = "auto"
    batch: int = 512
    engine: str = CURRENT
    era: Era | None = None  # of a release before 0.30
    unified: bool = False
    swa_full: bool = False
    draft_tokens: int = 0  # of speculative decoding with the model's own draft blocks
    projector: int = 0  # bytes of a separate projector file


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A device that can hold layers. `free` and `total` in bytes; `free` after the runner's own context."""

    name: str = "GPU0"
    kind: str = "cuda"  # cuda, rocm, vulkan, metal, other
    free: int = 0
    total: int = 0
    unified: bool = False  # its memory is the host's


class Refused(msgspec.Struct, frozen=True):
    """The engine will not start with this request; `why` in the user's words."""

    why: str


def refusal(hyper: Hyper, request: Request) -> Refused | None:
    """Why the engine would refuse to create the context, or None (llama_init_from_model)."""
    if request.slots > 256:
        return Refused(f"the engine takes at most 256 slots, not {request.slots}")
    for name in (request.type_k, request.type_v):
        if name not in ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"):
            return Refused(f"the engine does not know the cache type {name}")
    off = request.flash_attention == "off" or not hyper.family.flash_attention
    if quantized(request.type_v) and off and hyper.widths.caches:
        return Refused(f"a {request.type_v} cache needs flash attention")
    if hyper.latent and request.type_k != request.type_v:
        return Refused("latent attention needs the same cache type for keys and values")
    for layer in hyper.layers:
        if quantized(request.type_k) and layer.k and not off and layer.key % 32:
            return Refused(f"heads of {layer.key} cannot be stored as {request.type_k}")
        if quantized(request.type_v) and layer.v and layer.value % 32:
            return Refused(f"heads of {layer.value} cannot be stored as {request.type_v}")
    return None


def flash(hyper: Hyper, request: Request, devices: tuple[Device, ...]) -> bool:
    """Whether flash attention ends up on."""
    if request.flash_attention == "off" or not hyper.family.flash_attention:
        return False
    if request.flash_attention == "on" or quantized(request.type_v):
        return True
    return not any(d.kind == "cuda" and not kernels.has_kernels(hyper) for d in devices)
