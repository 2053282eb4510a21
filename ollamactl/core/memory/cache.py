"""Key-value cache, recurrent state and output buffer: exact sizes, as llama.cpp allocates them.

Sources: llama_context's constructor (padding of the context), llama-kv-cache.cpp, llama-kv-cache-iswa.cpp,
llama-memory-recurrent.cpp and llama_context::output_reserve; all sizes in bytes.
"""

from __future__ import annotations

import msgspec

from ollamactl.core.memory.ggml import quantized, row_bytes
from ollamactl.core.memory.model import Hyper, Layer

ALIGNMENT = 128


class Cells(msgspec.Struct, frozen=True):
    """Token positions a layer: `full` and `swa` a stream, and the number of streams (one a slot unless unified)."""

    full: int
    swa: int
    streams: int


def pad(value: int, to: int) -> int:
    return -(-value // to) * to


def cells(
    context: int,
    slots: int,
    ubatch: int,
    window: int,
    *,
    unified: bool = False,
    swa_full: bool = False,
    padding: int = 256,
) -> Cells:
    """Cells for a total context (all slots together, as -c). `window`: 0 for models without one.

    `padding`: 32 for llama.cpp before November 2025 without flash attention, else 256.
    """
    total = pad(context, padding)
    stream = total if unified else pad(total // slots, padding)
    if not window or swa_full:
        return Cells(stream, stream, 1 if unified else slots)
    seen = window * (slots if unified else 1) + ubatch
    return Cells(stream, pad(min(stream, seen), padding), 1 if unified else slots)


def v_width(hyper: Hyper, layer: Layer, *, transposed: bool) -> int:
    """Width of a layer's V rows. Without flash attention a transposed V is as wide as the widest of all layers."""
    if not transposed or not layer.cached:
        return layer.v
    return hyper.widths.vw


def layer_bytes(
    hyper: Hyper, layer: Layer, at: Cells, type_k: str, type_v: str, *, transposed: bool, padded: bool = True
) -> tuple[int, int]:
    """(full or sliding-window cache, indexer cache) of one layer in all streams. `padded`: it is on a device."""
    count = (at.swa if layer.swa else at.full) * at.streams
    main = _tensor(layer.k, type_k, count, padded) + _tensor(
        v_width(hyper, layer, transposed=transposed), type_v, count, padded
    )
    rows = at.full * at.streams  # an indexer keeps all tokens, also beside a window
    if layer.compressed:
        rows = pad(max(1, -(-at.full // layer.compressed)), 256) * at.streams
        return main, _tensor(layer.k, type_k, rows, padded) + _tensor(layer.index_k, type_k, rows, padded)
    index = _tensor(layer.index_k, type_k, rows, padded) + _tensor(layer.index_v, type_v, rows, padded)
    return main, index


def state_bytes(layer: Layer, slots: int, rollback: int = 0) -> int:
    """Recurrent state of one layer: f32, one row a slot and one more for each token that can be rolled back."""
    rows = slots * (1 + rollback)
    return pad(layer.r * 4 * rows, ALIGNMENT) + pad(layer.s * 4 * rows, ALIGNMENT)


def output_bytes(hyper: Hyper, slots: int) -> int:
    """Host buffer of the results: logits a slot; embeddings beside them for embedding models."""
    return slots * 4 * (hyper.vocabulary + (hyper.embedding if hyper.is_embedding else 0))


def _tensor(width: int, type_name: str, count: int, padded: bool) -> int:
    """One cache tensor of `count` rows. Devices pad quantized rows to 512 values, once a tensor."""
    if not width:
        return 0
    size = row_bytes(type_name, width) * count
    if not padded or width % 512 == 0 or not quantized(type_name):
        return pad(size, ALIGNMENT)
    return pad(size + row_bytes(type_name, 512 - width % 512), ALIGNMENT)
