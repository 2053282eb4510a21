"""Kimi's delta attention in a graph: three convolutions before a delta net (src/models/kimi-linear.cpp)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ollamactl.core.memory.graph import Tensor
from ollamactl.core.memory.recurrent import keep, made, number, rows

if TYPE_CHECKING:
    from ollamactl.core.memory.builder import Builder
    from ollamactl.core.memory.model import Block, Layer

F = 4  # bytes of an f32


def recurrent(b: Builder, cur: Tensor, layer: Layer, block: Block) -> Tensor:
    """One recurrent block, up to its output projection."""
    slots, each, size, heads = b.graph.slots, b.tok // b.graph.slots, number(b, "kda.head_dim"), b.hyper.heads
    old = rows(b, layer.r)
    q, k, v = (_convolved(b, cur, block, old, letter, heads * size) for letter in "qkv")
    decay = b.same(b.same(_low_rank(b, cur, block, "f")))
    decay = made(size, heads, b.tok, sources=(b.view(decay, "decay"),))
    beta = b.weigh(b.make(heads, cur), block, "ssm_beta.weight")
    beta = made(1, heads, each, slots, sources=(b.view(beta, "beta"),))
    held = rows(b, layer.s)
    shape = (size, heads, each, slots)
    q, k = (made(*shape, sources=(b.view(tensor, "heads"),)) for tensor in (q, k))
    result = Tensor(F * (heads * size * b.tok + layer.s * slots),
                    (q, k, b.view(v, "heads"), b.view(decay, "decay"), beta, b.view(held, "state")))  # fmt: skip
    keep(b, result)
    output = made(*shape, sources=(b.view(result, "output"),))
    normed = b.same(made(size, heads, b.tok, sources=(b.view(output, "3d"),)))
    gate = made(size, heads, b.tok, sources=(b.view(_low_rank(b, cur, block, "g"), "gate"),))
    flat = made(heads * size, b.tok, sources=(b.add(normed, gate),))
    return b.matrix(b.hyper.embedding, flat, block, "attn_output")


def _convolved(b: Builder, cur: Tensor, block: Block, old: Tensor, letter: str, width: int) -> Tensor:
    """Queries, keys or values, mixed with those of a few tokens before."""
    slots, each, conv = b.graph.slots, b.tok // b.graph.slots, number(b, "ssm.conv_kernel")
    projected = b.weigh(b.make(width, cur), block, f"attn_{letter}.weight")
    joined = made(conv - 1 + each, width, slots, sources=(b.view(old, letter), b.view(projected, "turned")))
    keep(b, joined)
    return made(width, b.tok, sources=(b.view(made(width, each, slots, sources=(joined,)), "2d"),))


def _low_rank(b: Builder, cur: Tensor, block: Block, letter: str) -> Tensor:
    """Through two narrow matrices, in newer families through one."""
    low = b.weigh(b.make(block.widths[f"ssm_{letter}_a.weight"], cur), block, f"ssm_{letter}_a.weight")
    name = f"ssm_{letter}_b.weight"
    return b.weigh(b.make(block.widths[name], low), block, name) if name in block.widths else low
