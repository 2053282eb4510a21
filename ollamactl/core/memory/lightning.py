"""MiniMax-01 in a graph: linear attention with decays between blocks of attention (src/models/minimax-01.cpp)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ollamactl.core.memory.attention import attention
from ollamactl.core.memory.feed_forward import experts
from ollamactl.core.memory.graph import Tensor
from ollamactl.core.memory.recurrent import keep, made, rows

if TYPE_CHECKING:
    from ollamactl.core.memory.builder import Builder
    from ollamactl.core.memory.model import Block, Hyper, Layer
    from ollamactl.core.memory.shape import Graph

F = 4  # bytes of an f32


def block(b: Builder, inp: Tensor, layer: Layer, tensors: Block, last: bool) -> Tensor:
    """One block. What is added to its parts is what their norms gave, not what the block was given."""
    normed = b.norm(inp, tensors, "attn_norm.weight")
    cur = _mixed(b, normed, layer, tensors) if layer.s else attention(b, normed, layer, tensors)
    if last:
        b.rows = b.out
        cur, normed = b.picked_rows(cur), b.picked_rows(normed)
    cur = b.norm(b.add(cur, b.same(normed)), tensors, "ffn_norm.weight")
    return b.add(experts(b, cur, tensors), b.same(cur))


def input_bytes(hyper: Hyper, graph: Graph, tok: int) -> int:
    """Bytes of the decays among the inputs; 0 for other families."""
    if hyper.family.recurrent != "lightning":
        return 0
    return F * hyper.heads * (1 + 2 * tok + tok * (tok // graph.slots))


def _mixed(b: Builder, cur: Tensor, layer: Layer, tensors: Block) -> Tensor:
    """Linear attention: what the state holds of earlier tokens, and products within the batch."""
    slots, each, heads, size = b.graph.slots, b.tok // b.graph.slots, layer.heads, layer.key
    rows(b, layer.r)
    slope = b.same(_input(b, "slopes", F * heads))
    packed = b.same(b.weigh(made(3 * heads * size, each, slots, sources=(b.view(cur, "4d"),)), tensors,
                            "attn_qkv.weight"))  # fmt: skip
    q, k, v = (b.view(packed, letter) for letter in "qkv")
    held = b.view(rows(b, layer.s), "kv")
    decay_q, decay_k = (b.same(b.same(_input(b, "decay " + letter, F * heads * b.tok))) for letter in "qk")
    within = b.same(b.same(_input(b, "decays", F * each * each * heads * slots)))
    shape = (size, heads, each, slots)
    before = made(size, each, heads, slots, sources=(held, b.view(made(*shape, sources=(q, decay_q)), "q")))
    products = b.same(Tensor(F * each * each * heads * slots, (b.view(k, "k"), b.view(q, "q"))), within)
    values = made(each, size, heads, slots, sources=(b.view(v, "v"),))
    out = b.add(before, made(size, each, heads, slots, sources=(values, products)))
    b.nodes.expand(out)
    old = Tensor(F * layer.s * slots, (held, b.view(b.same(b.same(slope)), "3d")))
    keys = made(each, size, heads, slots, sources=(b.view(made(*shape, sources=(k, decay_k)), "k"),))
    keep(b, b.add(old, Tensor(old.size, (keys, values))))
    flat = made(heads * size, each, slots, sources=(b.view(out, "perm"),))
    normed = b.weigh(b.same(made(heads * size, each, slots, sources=(b.view(flat, "flat"),))), tensors,
                     "attn_norm_2.weight")  # fmt: skip
    gate = b.same(b.weigh(made(heads * size, each, slots, sources=(b.view(cur, "4d"),)), tensors, "attn_gate.weight"))
    out = made(b.hyper.embedding, each, slots, sources=(b.add(gate, normed),))
    return b.view(b.weigh(out, tensors, "attn_output.weight"), (b.hyper.embedding, b.tok))


def _input(b: Builder, name: str, size: int) -> Tensor:
    """An input that all blocks share."""
    if name not in b.named_inputs:
        b.named_inputs[name] = b.new_input(size)
    return b.named_inputs[name]
