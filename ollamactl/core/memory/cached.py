"""Caches in a graph: what is written to them and read from them, also where they lie in other memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ollamactl.core.memory.ggml import row_bytes
from ollamactl.core.memory.graph import Tensor

if TYPE_CHECKING:
    from ollamactl.core.memory.builder import Builder, Part
    from ollamactl.core.memory.model import Hyper, Layer


def store(b: Builder, tensor: Tensor, how: str, index: Tensor) -> Tensor:
    """Rows put into the cache. A cache in host memory is written by the host."""
    stored = Tensor(0, (b.view(tensor, how), index), outside=True)
    stored.on_host = b.hosted
    return stored


def kept(b: Builder, width: int, kind: str, cells: int, away: bool) -> tuple[Tensor, ...]:
    """A copy of one layer's cache where that lies in other memory."""
    if not away or not width:
        return ()
    tensor = Tensor(row_bytes(kind, width) * cells * b.graph.cells.streams)
    b.inputs.append(tensor)
    return (tensor,)


def cast(b: Builder, kept: tuple[Tensor, ...], kind: str, width: int, cells: int) -> tuple[Tensor, ...]:
    """Flash attention takes no f32: one layer's cache is cast to f16 in the graph."""
    if kind != "f32" or not width:
        return kept
    return (Tensor(2 * width * cells * b.graph.cells.streams, kept),)


def cuda_copies(b: Builder, layer: Layer, cells: int) -> int:
    """CUDA's flash attention reads f16: a cache of another type is copied, and the copy lies behind the result."""
    if not b.graph.cuda:
        return 0
    count = 2 * cells * b.graph.cells.streams
    read = ("f16", "f32")  # f32 was cast
    k = layer.kv_heads * layer.key if b.graph.type_k not in read else 0
    v = layer.kv_heads * layer.value if b.graph.type_v not in read else 0
    return count * (k + v)


def from_host(b: Builder, given: Tensor, width: int) -> Tensor:
    """What the host made of a tensor that was copied to it."""
    b.nodes.expand(Tensor(0, (given,), outside=True))
    made = b.make(width)
    made.layout = (width, b.tok)
    return b.nodes.expand(made)


def keeper(hyper: Hyper, part: Part, number: int) -> tuple[int, bool]:
    """The block whose cache another reads, and whether it is another in other memory.

    Late blocks read that of the last block of their kind which keeps one (llama_model::create_memory, reuse).
    """
    layer = hyper.layers[number]
    if layer.k or hyper.family.cache != "from-start":
        return number, False
    found = sum(bool(other.k) for other in hyper.layers) - (2 if layer.swa else 1)
    return found, found in part.hosted or found not in part.blocks
