"""Gated delta net in a graph: the recurrent blocks of qwen3next and qwen3.5 (src/models/delta-net-base.cpp)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ollamactl.core.memory.graph import Tensor

if TYPE_CHECKING:
    from ollamactl.core.memory.decoder import Builder
    from ollamactl.core.memory.model import Block, Layer

F = 4


def recurrent(b: Builder, cur: Tensor, layer: Layer, block: Block) -> Tensor:
    """One recurrent block, up to its output projection."""
    keys, tok, nodes, slots = b.hyper.keys, b.tok, b.nodes, b.graph.slots
    inner, state = int(keys.get("ssm.inner_size", 0)), int(keys.get("ssm.state_size", 0))
    groups, heads = int(keys.get("ssm.group_count", 0)), int(keys.get("ssm.time_step_rank", 0))
    conv = int(keys.get("ssm.conv_kernel", 0))
    c = inner + 2 * groups * state
    copies = b.states
    qkv = b.make(c, cur)
    z = b.make(inner, cur)
    if b.hyper.family.delta_early:
        nodes.expand(qkv)
        nodes.expand(z)
    old = _rows(b, layer.r, copies)
    joined = Tensor(F * c * (tok + (conv - 1) * slots), (b.view(old, "old"), b.view(qkv, "qkv_t")))
    nodes.expand(Tensor(0, (b.view(joined, "last", 1),), outside=True))
    held = _rows(b, layer.s, copies)
    raw = b.make(c, joined)
    act = b.same(raw)
    q = b.make(groups * state, b.view(act, "q"))
    k = b.make(groups * state, b.view(act, "k", 1))
    v = b.view(act, "v", 2)
    alpha = b.same(b.same(b.same(b.view(b.make(heads, cur), "alpha"))))
    beta = b.same(b.view(b.make(heads, cur), "beta"))
    result = Tensor(F * (inner * tok + layer.s * slots), (q, k, v, b.view(alpha, "gate"), beta, b.view(held, "state")))
    nodes.expand(Tensor(0, (b.view(result, "new state", 1),), outside=True))
    normed = b.same(b.same(b.view(result, "output")))
    gate = b.same(b.view(z, "z"))
    out = Tensor(F * inner * tok, (normed, gate), inplace=True, layout=normed.layout)
    return b.view(b.make(b.hyper.embedding, b.view(out, "final")), (b.hyper.embedding, tok))


def _rows(b: Builder, width: int, copies: Tensor) -> Tensor:
    """A slot's state, read by its number."""
    taken = Tensor(F * width * b.graph.slots, (b.view(copies, "main"),))
    b.nodes.expand(taken)
    return taken
