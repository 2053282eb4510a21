"""Blocks that are not attention or a mixer followed by a feed-forward (src/models/falcon-h1.cpp, nemotron-h.cpp)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ollamactl.core.memory.attention import attention
from ollamactl.core.memory.feed_forward import dense, experts, router
from ollamactl.core.memory.graph import Tensor
from ollamactl.core.memory.recurrent import mamba2

if TYPE_CHECKING:
    from ollamactl.core.memory.builder import Builder
    from ollamactl.core.memory.model import Block, Layer


def both(b: Builder, inp: Tensor, layer: Layer, block: Block, last: bool) -> Tensor:
    """Falcon H1: attention and a mixer side by side, each with a norm of its own, then a feed-forward."""
    attended = attention(b, b.norm(inp, block, "attn_norm.weight"), layer, block)
    mixed = mamba2(b, b.norm(inp, block, "attn_norm.weight"), layer, block)
    cur = Tensor(attended.size, (attended, mixed), inplace=True, layout=attended.layout)
    residual = Tensor(cur.size, (cur, inp), inplace=True, layout=cur.layout)
    if last:
        b.rows = b.out
        residual = b.picked_rows(residual)
    cur = dense(b, b.norm(residual, block, "ffn_norm.weight"), block)
    return Tensor(cur.size, (cur, residual), inplace=True, layout=cur.layout)


def single(b: Builder, inp: Tensor, layer: Layer, block: Block, last: bool) -> Tensor:
    """Nemotron H: a block is a mixer, an attention or a feed-forward, and nothing else."""
    cur = b.norm(inp, block, "attn_norm.weight")
    if layer.s:
        cur = mamba2(b, cur, layer, block)
    elif "attn_output.weight" in block.widths:
        cur = attention(b, cur, layer, block)
    elif block.experts:
        cur = _experts(b, cur, block)
    else:
        cur = dense(b, cur, block)
    if last:
        b.rows = b.out
        cur, inp = b.picked_rows(cur), b.picked_rows(inp)
    return Tensor(cur.size, (cur, inp), inplace=True, layout=cur.layout)


def _experts(b: Builder, cur: Tensor, block: Block) -> Tensor:
    """Experts may work on a narrower latent row, which the router and the shared expert do not."""
    inner = cur
    narrow = block.widths.get("ffn_latent_down.weight", 0)
    if narrow:
        inner = b.weigh(b.make(narrow, cur), block, "ffn_latent_down.weight")
    out = experts(b, inner, block, logits=router(b, cur, block), width_out=narrow)
    if narrow:
        out = b.weigh(b.make(b.hyper.embedding, out), block, "ffn_latent_up.weight")
    wide = b.weigh(b.make(block.widths["ffn_up_shexp.weight"], cur), block, "ffn_up_shexp.weight")
    shared = b.weigh(b.make(b.hyper.embedding, b.same(b.same(wide))), block, "ffn_down_shexp.weight")
    return Tensor(out.size, (out, shared), inplace=True, layout=out.layout)
