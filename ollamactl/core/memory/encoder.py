"""Encoders: blocks that are normed after their parts, and how their rows become one vector (build_pooling)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ollamactl.core.memory.attention import attention
from ollamactl.core.memory.feed_forward import mixed
from ollamactl.core.memory.graph import Tensor

if TYPE_CHECKING:
    from ollamactl.core.memory.builder import Builder
    from ollamactl.core.memory.model import Block, Layer

F = 4
MEAN, FIRST, LAST, RANK = 1, 2, 3, 4  # pooling_type of the format; 0: one vector a token


def block(b: Builder, inp: Tensor, layer: Layer, block: Block, last: bool) -> Tensor:
    """A block of BERT and what is built like it: normed after attention and feed-forward (src/models/bert.cpp)."""
    cur = attention(b, inp, layer, block)
    if last:
        b.rows = b.out
        cur, inp = b.picked_rows(cur), b.picked_rows(inp)
    cur = Tensor(cur.size, (cur, inp), inplace=True, layout=cur.layout)
    cur = b.norm(cur, block, "attn_output_norm.weight")
    if "attn_norm_2.weight" in block.widths:
        cur = Tensor(cur.size, (cur, inp), inplace=True, layout=cur.layout)
        cur = b.norm(cur, block, "attn_norm_2.weight")
    attended = cur
    cur = mixed(b, cur, block)
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
