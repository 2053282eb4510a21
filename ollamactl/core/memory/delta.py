"""Gated delta net in a graph: the recurrent blocks of Qwen3-Next and Qwen3.5 (delta-net-base.cpp, qwen3next.cpp,
qwen35.cpp of src/models)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ollamactl.core.memory.graph import Tensor
from ollamactl.core.memory.recurrent import keep, made, number, rows

if TYPE_CHECKING:
    from ollamactl.core.memory.builder import Builder
    from ollamactl.core.memory.model import Block, Layer

F = 4


def recurrent(b: Builder, cur: Tensor, layer: Layer, block: Block) -> Tensor:
    """One recurrent block, up to its output projection."""
    slots, each = b.graph.slots, b.tok // b.graph.slots
    inner, state, conv = number(b, "ssm.inner_size"), number(b, "ssm.state_size"), number(b, "ssm.conv_kernel")
    groups, heads = number(b, "ssm.group_count"), number(b, "ssm.time_step_rank")
    channels = inner + 2 * groups * state
    qkv, z = _projected(b, cur, block, channels, inner)
    alpha, beta = _steps(b, cur, block, groups, heads)
    old = rows(b, layer.r)
    joined = made(conv - 1 + each, channels, slots, sources=(b.view(old, "conv"), b.view(qkv, "qkv_t")))
    keep(b, joined)
    held = rows(b, layer.s)
    act = b.same(made(channels, each, slots, sources=(joined,)))
    q = made(state, groups, each, slots, sources=(b.view(act, "q"),))
    k = made(state, groups, each, slots, sources=(b.view(act, "k"),))
    if groups != heads and b.hyper.family.repeated_keys:
        q = b.view(made(state, heads // max(groups, 1), groups, b.tok, sources=(b.view(q, "q4"),)), "repeated q")
        k = b.view(made(state, heads // max(groups, 1), groups, b.tok, sources=(b.view(k, "k4"),)), "repeated k")
    result = Tensor(F * (inner * b.tok + layer.s * slots),
                    (q, k, b.view(act, "v"), b.view(alpha, "gate"), beta, b.view(held, "state")))  # fmt: skip
    keep(b, result)
    shape = (inner // max(heads, 1), heads, each, slots)
    normed = b.same(made(*shape, sources=(b.view(result, "output"),)))
    out = made(*shape, sources=(normed, made(*shape, sources=(b.view(z, "z"),))), inplace=True)
    cur = made(b.hyper.embedding, each, slots, sources=(b.view(out, "flat"),))
    return b.view(b.weigh(cur, block, "ssm_out.weight"), (b.hyper.embedding, b.tok))


def _projected(b: Builder, cur: Tensor, block: Block, channels: int, inner: int) -> tuple[Tensor, Tensor]:
    """What is convolved, and the gate z. Older files of Qwen3-Next have both in one matrix, head by head."""
    if "attn_qkv.weight" in block.widths:
        qkv = b.weigh(b.make(channels, cur), block, "attn_qkv.weight")
        return qkv, b.weigh(b.make(inner, cur), block, "attn_gate.weight")
    slots, each = b.graph.slots, b.tok // b.graph.slots
    side = (channels - inner) // 2
    packed = b.weigh(b.make(channels + inner, cur), block, "ssm_in.weight")
    q, k, v = (
        made(width, each, slots, sources=(b.view(packed, name),))
        for name, width in (("q", side), ("k", side), ("v", inner))
    )
    both = made(2 * side, each, slots, sources=(q, k))
    return made(channels, each, slots, sources=(both, v)), b.make(inner, b.view(packed, "z"))


def _steps(b: Builder, cur: Tensor, block: Block, groups: int, heads: int) -> tuple[Tensor, Tensor]:
    """Decay and learning rate of every head, of two matrices or of one."""
    slots, each = b.graph.slots, b.tok // b.graph.slots
    if "ssm_ba.weight" in block.widths:
        packed = b.weigh(b.make(2 * heads, cur), block, "ssm_ba.weight")
        beta = b.same(made(heads // max(groups, 1), groups, each, slots, sources=(b.view(packed, "b"),)))
        alpha = made(heads, each, slots, sources=(b.view(packed, "a"),))
        return b.same(b.same(b.same(alpha))), b.view(beta, "beta")
    alpha = b.weigh(b.make(heads, cur), block, "ssm_alpha.weight")
    beta = b.weigh(b.make(heads, cur), block, "ssm_beta.weight")
    alpha = made(heads, each, slots, sources=(b.view(alpha, "alpha"),))
    return b.same(b.same(alpha)), made(1, heads, each, slots, sources=(b.view(beta, "beta"),))
