"""Blocks of a decoder: attention or a mixer, then a feed-forward, in the orders that families have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ollamactl.core.memory import delta, encoder, gemma, hybrid, kda, latent, lightning, recurrent, rwkv
from ollamactl.core.memory.attention import attention
from ollamactl.core.memory.feed_forward import dense, experts, mixed, router
from ollamactl.core.memory.graph import Tensor

if TYPE_CHECKING:
    from ollamactl.core.memory.builder import Builder
    from ollamactl.core.memory.model import Block, Layer

# What makes a block's rows where it is not attention, and families whose blocks are laid out in their own way.
MIXERS = {
    "mamba": recurrent.mamba,
    "mamba2": recurrent.mamba2,
    "conv": recurrent.short_convolution,
    "delta": delta.recurrent,
    "kda": kda.recurrent,
}
BLOCKS = {"both": hybrid.both, "single": hybrid.single, "rwkv": rwkv.block, "lightning": lightning.block,
          "encoder": encoder.block}  # fmt: skip


def decoded(b: Builder, inp: Tensor, layer: Layer, block: Block, last: bool) -> Tensor:
    """One block. The last one computes its feed-forward only for the rows that are put out."""
    row = b.hyper.family
    b.rows = b.tok
    if row.whole in BLOCKS:
        return BLOCKS[row.whole](b, inp, layer, block, last)
    if row.gaps and not (layer.heads and layer.kv_heads and layer.ff):
        return _with_gaps(b, inp, layer, block, last)
    normed = b.normed(inp) if row.bare_norms else b.norm(inp, block, "attn_norm.weight")
    early = router(b, inp, block) if row.early_router else None
    cur = _attended(b, inp, normed, layer, block)
    parallel = _parallel(b, block)
    if last and not b.late:
        b.rows = b.out
        cur, inp = b.picked_rows(cur), b.picked_rows(inp)
        if early is not None:
            early = b.make(block.experts, early, b.outputs)
        if parallel == "shared":
            normed = b.picked_rows(normed)
    if parallel:
        return _beside(b, inp, normed, cur, block, parallel)
    return _after(b, inp, cur, block, last, early)


def _attended(b: Builder, inp: Tensor, normed: Tensor, layer: Layer, block: Block) -> Tensor:
    """The first part of a block: a mixer, latent attention or attention."""
    row = b.hyper.family
    if row.recurrent in ("delta", "kda") and not row.states_first:
        b.nodes.expand(normed)
    if layer.r and row.recurrent in MIXERS:
        return MIXERS[row.recurrent](b, normed, layer, block)
    if row.latent:
        return latent.attention(b, normed, layer, block)
    second = b.norm(inp, block, "attn_norm_2.weight") if "attn_norm_2.weight" in block.widths else normed
    return attention(b, second, layer, block)


def _beside(b: Builder, inp: Tensor, normed: Tensor, attended: Tensor, block: Block, parallel: str) -> Tensor:
    """The feed-forward beside the attention, and the sum of both."""
    if parallel == "own":
        normed = b.norm(inp, block, "ffn_norm.weight")
    cur = mixed(b, normed, block)
    match b.hyper.family.parallel_sum:
        case "residual":
            return b.same(cur, b.same(attended, inp))
        case "attention":
            parts = cur, attended, inp
        case "attention-first":
            parts = attended, cur, inp
        case _:
            parts = cur, inp, attended
    return b.same(b.same(parts[0], parts[1]), parts[2])


def _after(b: Builder, inp: Tensor, cur: Tensor, block: Block, last: bool, early: Tensor | None) -> Tensor:
    """The feed-forward after the attention, and both sums. `early`: of a router that saw what the block was given."""
    row = b.hyper.family
    before, after = _norms_between(block)
    cur = b.norm(cur, block, after)
    residual = _added(b, _scaled(b, cur), inp, "attention")
    if not block.feeds:
        return residual
    if "ffn_norm_exps.weight" in block.widths:
        return _experts_aside(b, inp, residual, block)
    if "pre_ffw_norm_2.weight" in block.widths:
        cur = gemma.two_feeds(b, residual, block)
    elif early is not None:
        cur = experts(b, b.norm(residual, block, before), block, logits=early)
    else:
        cur = mixed(b, b.normed(residual) if row.bare_norms else b.norm(residual, block, before), block)
    cur = b.norm(b.norm(cur, block, "post_ffw_norm.weight"), block, "layer_output_norm.weight")
    if last and b.late == "sum":
        b.rows = b.out
        cur, residual = b.picked_rows(cur), b.picked_rows(residual)
    cur = _added(b, _scaled(b, cur), residual, "feed-forward")
    if b.given is not None:
        cur = b.same(cur, b.same(b.picked_rows(b.given) if last else b.given))
    return gemma.with_per_layer(b, cur, block, last) if gemma.per_layer_width(b.hyper) else cur


def _norms_between(block: Block) -> tuple[str, str]:
    """What the norms before the feed-forward and after the attention are called.

    In gpt-oss, glm4moe and dbrx the one before the feed-forward has the name that others give to the one after.
    """
    names = block.widths
    after = "attn_output_norm.weight" if "attn_output_norm.weight" in names else "post_attention_norm.weight"
    if "attn_norm.weight" in names and "ffn_norm.weight" not in names and after in names:
        return after, ""
    return "ffn_norm.weight", after


def _experts_aside(b: Builder, inp: Tensor, residual: Tensor, block: Block) -> Tensor:
    """Arctic: a dense feed-forward after the attention, and experts that see what the block was given."""
    out = b.add(dense(b, b.norm(residual, block, "ffn_norm.weight"), block), residual)
    return b.add(experts(b, b.norm(inp, block, "ffn_norm_exps.weight"), block), out)


def _with_gaps(b: Builder, inp: Tensor, layer: Layer, block: Block, last: bool) -> Tensor:
    """A pruned block (src/models/deci.cpp): without attention, with one matrix for it, or without feed-forward."""
    cur = inp
    if layer.heads:
        cur = b.norm(inp, block, "attn_norm.weight")
        if layer.kv_heads:
            cur = attention(b, cur, layer, block)
        else:
            cur = b.matrix(b.hyper.embedding, cur, block, "attn_output")
    if not layer.ff:
        return inp
    if last:
        b.rows = b.out
        cur, inp = b.picked_rows(cur), b.picked_rows(inp)
    residual = b.add(cur, inp) if layer.heads else cur
    return b.add(mixed(b, b.norm(residual, block, "ffn_norm.weight"), block), residual)


def _added(b: Builder, cur: Tensor, residual: Tensor, part: str) -> Tensor:
    """The sum of a part's result and the residual; which one comes first decides whose place it may take."""
    both = (residual, cur) if b.hyper.family.residual_first in (part, "both") else (cur, residual)
    return Tensor(cur.size, both, inplace=True, layout=residual.layout)


def _scaled(b: Builder, cur: Tensor) -> Tensor:
    return b.same(cur) if b.hyper.family.scales and b.hyper.keys.get("residual_scale") else cur


def _parallel(b: Builder, block: Block) -> str:
    """How attention and feed-forward stand beside each other, which some families leave to the file."""
    how = b.hyper.family.parallel
    if how == "own" and not b.hyper.keys.get("use_parallel_residual", 1):
        return ""
    return "" if how == "shared" and "ffn_norm.weight" in block.widths else how
