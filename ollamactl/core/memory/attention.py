"""Attention in a graph, as build_qkv and build_attn of llama-graph.cpp make it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ollamactl.core.memory import cached, kernels, recurrent, uncached
from ollamactl.core.memory.graph import Tensor

if TYPE_CHECKING:
    from ollamactl.core.memory.builder import Builder
    from ollamactl.core.memory.model import Block, Hyper, Layer

F = 4  # bytes of an f32


class Projected(NamedTuple):
    """Queries, keys and values. `fused`: slices of one matrix' result; `gate`: what the result is multiplied by."""

    q: Tensor
    k: Tensor
    v: Tensor
    fused: bool = False
    gate: Tensor | None = None


def attention(b: Builder, cur: Tensor, layer: Layer, block: Block) -> Tensor:
    """Attention of one block, from its normed input to its output projection."""
    row, made = b.hyper.family, _projected(b, cur, layer, block)
    q, k, v = made.q, made.k, made.v
    if not row.turned_norm:
        q, k = _normed(b, q, k, layer, block)
    if turns(b.hyper, b.number):
        q = _roped(b, q, (layer.key, layer.heads, b.tok), layer.swa)
        k = _roped(b, k, (layer.key, layer.kv_heads, b.tok), layer.swa)
    if row.turned_norm:
        q, k = _normed(b, q, k, layer, block)
    if row.normed_v:
        v = b.same(v)
    if row.scaled_q:
        q = b.same(q)
    made = Projected(q, k, v, made.fused, made.gate)
    if b.blockwise is not None and b.number >= b.blockwise.lead:
        return b.blockwise.attend(b, cur, made, layer, block)
    return attend(b, made, layer, block)


def turns(hyper: Hyper, number: int) -> bool:
    """Whether a block rotates queries and keys: in some families all but every so manieth, in some only those with a
    window, or that are dense and early."""
    row = hyper.family
    if row.rope_step and (number + 1) % row.rope_step == 0:
        return False
    if not row.rope_windowed or not hyper.window or hyper.layers[number].swa:
        return True
    if row.early_router:  # smallthinker takes a period of as many blocks as there are for none
        return row.window is not None and row.window.period == hyper.blocks
    return row.dense_lead and number < hyper.keys.get("leading_dense_block_count", 0)


def _projected(b: Builder, cur: Tensor, layer: Layer, block: Block) -> Projected:
    heads, kv, tok = layer.heads, layer.kv_heads, b.tok
    q_width, k_width, v_width = heads * layer.key, kv * layer.key, kv * layer.value
    if "attn_qkv.weight" in block.widths:
        total = block.widths["attn_qkv.weight"]
        qkv = b.matrix(total, cur, block, "attn_qkv")
        q = b.view(qkv, ("q", total, q_width), 0, F * q_width * tok)
        k = b.view(qkv, ("k", total, k_width), F * q_width, F * k_width * tok)
        v = b.view(qkv, ("v", total, v_width), F * (q_width + k_width), F * v_width * tok)
        return Projected(q, k, v, fused=True)
    gate: Tensor | None = None
    if block.widths.get("attn_q.weight") == 2 * q_width:  # queries and a gate for the result in one matrix
        both = b.matrix(2 * q_width, cur, block, "attn_q")
        q = b.view(both, ("q of both", q_width), 0, F * q_width * tok)
        k = b.view(b.matrix(k_width, cur, block, "attn_k"), (layer.key, kv, tok))
        v = b.view(b.matrix(v_width, cur, block, "attn_v"), (layer.value, kv, tok))
        gate = b.view(both, "gate", 1, F * q_width * tok)
        return Projected(q, k, v, gate=b.same(Tensor(F * q_width * tok, (gate,), layout=(q_width, tok))))
    q = b.view(b.matrix(q_width, cur, block, "attn_q"), (layer.key, heads, tok))
    k = b.view(b.matrix(k_width, cur, block, "attn_k"), (layer.key, kv, tok))
    v = b.matrix(v_width, cur, block, "attn_v") if "attn_v.weight" in block.widths else k
    v = b.view(v, (layer.value, kv, tok))
    if "attn_gate.weight" in block.widths:
        gate = b.same(b.matrix(block.widths["attn_gate.weight"], cur, block, "attn_gate"))
    return Projected(q, k, v, gate=gate)


def _normed(b: Builder, q: Tensor, k: Tensor, layer: Layer, block: Block) -> tuple[Tensor, Tensor]:
    return (
        _head_norm(b, q, block, "attn_q_norm.weight", (layer.key, layer.heads, b.tok)),
        b.normed(k)
        if b.hyper.family.bare_k_norm
        else _head_norm(b, k, block, "attn_k_norm.weight", (layer.key, layer.kv_heads, b.tok)),
    )


def _head_norm(b: Builder, tensor: Tensor, block: Block, name: str, layout: tuple[int, ...]) -> Tensor:
    if name not in block.widths:
        return tensor
    if tensor.root is not None and tensor.layout != layout:  # a slice of a fused matrix: the norm makes a new tensor
        normed = Tensor(tensor.size, (tensor,), inplace=True, layout=layout)
    else:
        normed = b.normed(tensor)
    return b.weigh(b.same(normed), block, name)


def _roped(b: Builder, tensor: Tensor, layout: tuple[int, int, int], windowed: bool) -> Tensor:
    row = b.hyper.family
    if not row.rope or (row.rope_switch and not b.hyper.keys.get("rope.scaling.finetuned", 1)):
        return tensor
    if row.rope_depth not in (0, b.hyper.blocks):
        return tensor
    size, heads, rows = layout
    turned = Tensor(F * size * heads * rows, (tensor, b.positions), inplace=True, layout=layout)
    if b.hosted and b.hyper.weights.other and not (row.per_layer_input and windowed):
        # factors of the rotation, which are one tensor for all blocks
        turned.weight = b.borrowed.setdefault((-1, "rope"), Tensor(b.hyper.weights.other))
    return turned


def attend(b: Builder, made: Projected, layer: Layer, block: Block) -> Tensor:
    """Attention to the cache (or, without one, to the batch) and the output projection."""
    if b.hyper.family.attends_batch:
        return uncached.attend(b, made.q, made.k, made.v, layer, block)
    turn_k, turn_v = b.turn[layer.swa if len(b.turn) > 1 else False]
    q, k, v = turned(b, made.q, turn_k), turned(b, made.k, turn_k), turned(b, made.v, turn_v)
    b.nodes.expand(q)
    if layer.k:  # blocks without a cache of their own read that of an earlier one
        _write(b, k, v, layer, made.fused)
    cur = _read(b, b.view(b.view(q, "q4"), "q4p"), layer, block)
    b.nodes.expand(cur)
    cur = _gated(b, turned(b, cur, turn_v), made.gate, layer)
    cur = b.norm(cur, block, "attn_sub_norm.weight")
    return b.matrix(b.hyper.embedding, cur, block, "attn_output")


def turned(b: Builder, tensor: Tensor, matrix: Tensor | None) -> Tensor:
    """Queries, keys, values or what comes of them, turned as what is quantized in the cache is."""
    if matrix is None:
        return tensor
    if tensor.root is not None and isinstance(tensor.layout, tuple) and tensor.layout[0] in ("q", "k", "v"):
        # A slice of a fused matrix is copied before it is multiplied.
        tensor = Tensor(tensor.size, (tensor,), layout=tensor.layout)
    return b.view(Tensor(tensor.size, (matrix, b.view(tensor, "turn"))), tensor.layout)


def _write(b: Builder, k: Tensor, v: Tensor, layer: Layer, fused: bool) -> None:
    for tensor in (k, v) if len(b.mask) > 1 else (v, k):
        b.nodes.expand(tensor)
    index_k, index_v = b.index[layer.swa if len(b.index) > 1 else False]
    b.nodes.expand(cached.store(b, k, "k2d", index_k))
    if not b.graph.transposed:
        b.nodes.expand(cached.store(b, v, "v2d", index_v))
        return
    flat = b.make(layer.kv_heads * layer.value, v) if fused else b.view(v, "v2d")
    wide = b.hyper.widths.vw
    if layer.kv_heads * layer.value < wide:
        flat = b.make(wide, flat)
    b.nodes.expand(cached.store(b, flat, "v1", index_v))


def _read(b: Builder, q: Tensor, layer: Layer, block: Block) -> Tensor:
    """What the queries see in the cache."""
    graph, out = b.graph, layer.heads * layer.value
    cells = graph.cells.swa if layer.swa else graph.cells.full
    number, other_memory = cached.keeper(b.hyper, b.part, b.number)
    keeper, away = (layer, b.hosted) if number == b.number else (b.hyper.layers[number], other_memory)
    without_kernel = graph.attend_on_host and not kernels.has_kernel(b.hyper, layer)
    on_host = without_kernel or recurrent.attends_on_host(b.hyper, b.part.hosted, b.number)
    kept_k = cached.kept(b, keeper.k, graph.type_k, cells, away and not on_host)
    kept_v = cached.kept(b, keeper.v, graph.type_v, cells, away and not on_host)
    if on_host:
        return cached.from_host(b, q, out)
    mask = b.mask[layer.swa if len(b.mask) > 1 else False]
    if not graph.flash:
        return _plain(b, q, kept_k, kept_v, mask, layer, block)
    kept_k = cached.cast(b, kept_k, graph.type_k, layer.k, cells)
    kept_v = cached.cast(b, kept_v, graph.type_v, layer.v, cells)
    cur = b.weigh(b.make(out, q, *kept_k, *kept_v, mask), block, "attn_sinks.weight")
    cur.size += cached.cuda_copies(b, layer, cells)
    cur = b.view(cur, (out, b.tok))
    cur.size = F * out * b.tok
    return cur


Kept = tuple[Tensor, ...]  # a copy of a cache, or nothing


def _plain(b: Builder, q: Tensor, kept_k: Kept, kept_v: Kept, mask: Tensor, layer: Layer, block: Block) -> Tensor:
    """Attention step by step: products with keys, masked and weighed, with values."""
    graph, out = b.graph, layer.heads * layer.value
    cells = graph.cells.swa if layer.swa else graph.cells.full
    kq = Tensor(F * cells * layer.heads * b.tok, (*kept_k, q), layout=("kq", cells, layer.heads, b.tok))
    for _ in range(3 if b.hyper.family.softcaps and b.hyper.keys.get("attn_logit_softcapping") else 0):
        kq = b.same(kq)
    kq = b.weigh(b.same(kq, mask), block, "attn_sinks.weight")
    if not graph.transposed:
        kept_v = (Tensor(2 * cells * graph.cells.streams * layer.kv_heads * layer.value, kept_v),)
    return b.make(out, b.view(b.make(out, *kept_v, kq), "kqvp"))


def _gated(b: Builder, cur: Tensor, gate: Tensor | None, layer: Layer) -> Tensor:
    if gate is None:
        return cur
    whole = gate.size == cur.size  # one of a head is multiplied in another shape, which takes no place over
    return Tensor(cur.size, (cur, gate), inplace=whole, layout=cur.layout)
