"""Graphs without a cache: embedding models, and models that write by diffusion (build_attn_inp_no_cache)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ollamactl.core.memory.graph import Tensor

if TYPE_CHECKING:
    from ollamactl.core.memory.decoder import Builder
    from ollamactl.core.memory.model import Block, Layer

F = 4
MEAN, FIRST, LAST, RANK = 1, 2, 3, 4  # pooling_type of the format; 0: one vector a token


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


def block(b: Builder, inp: Tensor, layer: Layer, block: Block, last: bool) -> Tensor:
    """A block of BERT and what is built like it: normed after attention and feed-forward (src/models/bert.cpp)."""
    b.rows = b.tok
    cur = b.attention(inp, layer, block, last)
    if last:
        b.rows = b.out
        cur, inp = b.picked_rows(cur), b.picked_rows(inp)
    cur = Tensor(cur.size, (cur, inp), inplace=True, layout=cur.layout)
    cur = b.norm(cur, block, "attn_output_norm.weight")
    if "attn_norm_2.weight" in block.widths:
        cur = Tensor(cur.size, (cur, inp), inplace=True, layout=cur.layout)
        cur = b.norm(cur, block, "attn_norm_2.weight")
    attended = cur
    cur = b.mixed(cur, layer, block)
    cur = Tensor(cur.size, (cur, attended), inplace=True, layout=cur.layout)
    return b.norm(cur, block, "layer_output_norm.weight")


def pooled(b: Builder, cur: Tensor) -> Tensor:
    """One vector a slot of all that came out (llm_graph_context::build_pooling)."""
    cur.output = True
    b.nodes.expand(cur)
    width, slots = b.hyper.embedding, b.graph.slots
    how = int(b.hyper.keys.get("pooling_type", 0))
    if how == MEAN:
        weights = b.new_input(F * b.tok * slots)
        return b.make(width, b.make(width, b.view(cur, "transposed")), weights, rows=slots)
    if how in (FIRST, LAST, RANK):
        return b.make(width, cur, b.new_input(4 * slots), rows=slots)
    return cur
