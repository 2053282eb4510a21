"""Attention of all tokens of a batch to each other: embedding models, and models that write by diffusion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ollamactl.core.memory.graph import Tensor

if TYPE_CHECKING:
    from ollamactl.core.memory.builder import Builder
    from ollamactl.core.memory.model import Block, Layer

F = 4  # bytes of an f32


def attend(b: Builder, q: Tensor, k: Tensor, v: Tensor, layer: Layer, block: Block) -> Tensor:
    """Attention of all tokens of the batch to each other."""
    graph, nodes, tok, heads = b.graph, b.nodes, b.tok, layer.heads
    for tensor in (q, k, v):
        nodes.expand(tensor)
    mask = b.mask[layer.swa if len(b.mask) > 1 else False]
    q = b.view(b.view(q, "q4"), "q4p")
    k, v = b.view(k, "k4p"), b.view(v, "v4p")
    out = heads * layer.value
    if graph.flash:  # which takes f16 only
        k16 = Tensor(2 * layer.kv_heads * layer.key * tok, (k,))
        v16 = Tensor(2 * layer.kv_heads * layer.value * tok, (v,))
        cur = b.view(b.make(out, q, k16, v16, mask), (out, tok))
    else:
        flipped = Tensor(F * layer.kv_heads * layer.value * tok, (b.view(v, "v4t"),))
        kq = Tensor(F * tok * heads * tok, (k, q), layout=("kq", heads, tok))
        kq = Tensor(kq.size, (kq, mask), inplace=True, layout=kq.layout)
        cur = b.make(out, flipped, kq)
        cur = b.make(out, b.view(cur, "kqvp"))
    nodes.expand(cur)
    return b.matrix(b.hyper.embedding, cur, block, "attn_output")
