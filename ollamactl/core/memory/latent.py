"""Latent attention (MLA) in a graph: DeepSeek V2 and V3 and what is built like them (src/models/deepseek2.cpp)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ollamactl.core.memory import cached, kernels
from ollamactl.core.memory.attention import Projected, attend
from ollamactl.core.memory.ggml import row_bytes
from ollamactl.core.memory.graph import OFFLOADED, Tensor

if TYPE_CHECKING:
    from ollamactl.core.memory.builder import Builder
    from ollamactl.core.memory.model import Block, Layer

F = 4


def attention(b: Builder, cur: Tensor, layer: Layer, block: Block) -> Tensor:
    """Attention of one block. The file decides between the absorbed form (one latent head) and full heads."""
    keys, tok, heads = b.hyper.keys, b.tok, layer.heads
    lora, rope = int(keys.get("attention.kv_lora_rank", 0)), int(keys.get("rope.dimension_count", 0))
    key = int(keys.get("attention.key_length_mla", 0)) if b.hyper.latent else layer.key
    q = query = cur
    if b.indexer is not None:
        b.indexer.keys(cur, layer, block)
    if "attn_q_a.weight" in block.widths:
        query = b.norm(b.matrix(block.widths["attn_q_a.weight"], q, block, "attn_q_a"), block, "attn_q_a_norm.weight")
        q = b.weigh(b.make(heads * key, query), block, "attn_q_b.weight")
    else:
        q = b.matrix(heads * key, q, block, "attn_q")
    q_nope = b.view(q, "q_nope", 0, F * heads * (key - rope) * tok)
    q_pe = _roped(b, b.view(q, "q_pe", 1, F * heads * rope * tok), heads * rope)
    packed = b.weigh(b.make(lora + rope, cur), block, "attn_kv_a_mqa.weight")
    k_pe_view = b.view(packed, "k_pe", 1, F * rope * tok)
    latent_view = b.view(packed, "kv_cmpr", 0, F * lora * tok)
    if b.hyper.latent:
        absorbed = b.weigh(b.make(heads * lora, b.view(q_nope, "q_nope_perm")), block, "attn_k_b.weight")
        q = b.make(heads * (lora + rope), b.view(absorbed, "absorbed"), q_pe)
        value = b.view(b.norm(latent_view, block, "attn_kv_a_norm.weight"), "Vcur")
        k = b.make(lora + rope, value, _roped(b, k_pe_view, rope))
        made = _attend_latent(b, q, k, value, layer, block, lora, lambda: _mask(b, cur, query, layer, block))
        return b.matrix(b.hyper.embedding, _gated(b, made, cur, block), block, "attn_output")
    latent = b.norm(latent_view, block, "attn_kv_a_norm.weight")
    if "attn_kv_b.weight" in block.widths:
        width = block.widths["attn_kv_b.weight"]
    else:
        width = heads * (key - rope + layer.value)
    kv = b.weigh(b.make(width, latent), block, "attn_kv_b.weight")
    v = b.make(heads * layer.value, b.view(kv, "v_view", 1))
    if not b.hyper.family.rope:
        q = b.view(q, "q3")
    elif b.newest:  # rotated in one piece
        q = b.make(heads * key, b.view(q, "q3"), b.positions)
    else:
        q = b.make(heads * key, q_nope, q_pe)
    k_pe = _roped(b, k_pe_view, rope)
    k = b.make(heads * key, b.view(kv, "k_nope"), b.make(heads * rope, k_pe))
    return attend(b, Projected(q, k, v), layer, block)


def _roped(b: Builder, tensor: Tensor, width: int) -> Tensor:
    if not b.hyper.family.rope:
        return tensor
    return Tensor(F * width * b.tok, (tensor, b.positions), inplace=True, layout=("pe", width, b.tok))


def _mask(b: Builder, cur: Tensor, query: Tensor, layer: Layer, block: Block) -> Tensor:
    return b.mask[False] if b.indexer is None else b.indexer.limited(cur, query, layer, block)


def _attend_latent(
    b: Builder, q: Tensor, k: Tensor, v: Tensor, layer: Layer, block: Block, lora: int, mask_of: Callable[[], Tensor]
) -> Tensor:
    graph, nodes, tok, heads = b.graph, b.nodes, b.tok, layer.heads
    out = heads * int(b.hyper.keys.get("attention.value_length_mla", 0))
    nodes.expand(q)
    nodes.expand(v)
    nodes.expand(k)
    nodes.expand(cached.store(b, k, "k2d", b.index[False][0]))
    if b.hosted and b.indexer is None and tok // graph.cells.streams < OFFLOADED:  # so is the matrix after attention
        return cached.from_host(b, q, out)
    cells = graph.cells.full
    kept_k, kept_v = (cached.kept(b, layer.k, graph.type_k, cells, b.hosted) for _ in "kv")
    for copy in kept_v:  # values are the front of the same rows
        copy.size -= row_bytes(graph.type_k, layer.k - lora)
    q = b.view(b.view(q, "q4"), "q4p")
    if graph.flash:
        if graph.attend_on_host and not kernels.has_kernel(b.hyper, layer):
            if b.indexer is not None:  # what is seen is chosen on the device all the same
                nodes.expand(Tensor(0, (mask_of(),), outside=True))
            cur = cached.from_host(b, q, heads * lora)
        else:
            cur = b.make(heads * lora, q, *kept_k, *kept_v, mask_of())
            if graph.cuda and graph.type_k != "f16":  # values are part of the keys: one copy is enough
                cur.size += 2 * cells * graph.cells.streams * layer.k
        cur = b.weigh(b.make(out, b.view(cur, "perm")), block, "attn_v_b.weight")
        cur = b.make(out, b.view(cur, "perm"))
        cur = b.view(cur, (out, tok))
    else:
        flipped = Tensor(2 * cells * graph.cells.streams * lora, kept_v or (Tensor(0, outside=True),))
        kq = Tensor(F * cells * heads * tok, (*kept_k, q), layout=("kq", cells, heads, tok))
        nodes.expand(flipped)
        nodes.expand(kq)
        kq = Tensor(kq.size, (kq, mask_of()), inplace=True, layout=kq.layout)
        cur = b.make(heads * lora, flipped, kq)
        cur = b.weigh(b.make(out, cur), block, "attn_v_b.weight")
        cur = b.make(out, b.view(cur, "kqvp"))
    return nodes.expand(cur)


def _gated(b: Builder, cur: Tensor, given: Tensor, block: Block) -> Tensor:
    """The result of every head, multiplied by a number that is made of what the block was given (bailingmoe3)."""
    name = "attn_gate.weight"
    if name not in block.widths:
        return cur
    gate = b.weigh(b.make(block.widths[name], given), block, name)
    gate = Tensor(gate.size, (b.view(gate, "heads"),))
    product = Tensor(cur.size, (b.view(cur, "heads"), gate))
    return Tensor(cur.size, (product,))
