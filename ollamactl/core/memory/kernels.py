"""For which heads CUDA has a kernel of flash attention (ggml-cuda/fattn.cu)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ollamactl.core.memory.model import Hyper, Layer

_WIDTHS = (40, 64, 72, 80, 96, 112, 128, 256)  # of keys and values alike
_GROUPED = {192: (128, 8), 320: (256, 32), 512: (512, 1), 576: (512, 1)}  # key width -> (value width, heads a KV head)


def has_kernels(hyper: Hyper) -> bool:
    """Whether there is a kernel for every layer with a cache."""
    return all(has_kernel(hyper, layer) for layer, _ in hyper.groups if layer.k)


def has_kernel(hyper: Hyper, layer: Layer) -> bool:
    """Whether there is a kernel for the heads of one layer."""
    if not layer.heads:
        return True
    value = int(hyper.keys.get("attention.kv_lora_rank", layer.value)) if hyper.latent else layer.value
    if layer.key in _WIDTHS:
        return value == layer.key
    wanted, multiple = _GROUPED.get(layer.key, (0, 1))
    group = layer.heads // max(layer.kv_heads, 1)
    return wanted == value and group >= 2 and group % multiple == 0
