"""Whole graphs, built from the tensors that a model has: the order and sizes of what llama.cpp's code makes.

One builder serves every architecture; inputs and operations are in builder.py, what a block does in blocks.py and in
the modules that it names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ollamactl.core.memory import altup, cached, encoder, gemma
from ollamactl.core.memory.attention import turns
from ollamactl.core.memory.blocks import decoded
from ollamactl.core.memory.builder import Builder, Part
from ollamactl.core.memory.feed_forward import guests
from ollamactl.core.memory.graph import ALIGNMENT, HOST_ALIGNMENT, Tensor, in_parts, peak, with_inputs

if TYPE_CHECKING:
    from ollamactl.core.memory.model import Hyper
    from ollamactl.core.memory.shape import Graph

F = 4  # bytes of an f32


def exact(hyper: Hyper, graph: Graph, tok: int, *, on_host: bool = False, part: Part | None = None) -> int:
    """The compute buffer of a device (or of the host alone), to the byte, of a family that the builder has rules for.
    Raises KeyError where the file lacks a tensor that its family has (the engine refuses such a file)."""
    return _laid_out(_built(Builder(hyper, graph, tok, on_host=on_host, part=part)))


def _built(b: Builder) -> Builder:
    """The builder with all nodes of its part."""
    cur = _through(b, _begun(b))
    if b.part.output:
        cur = _ended(b, cur)
    cur.output = True
    b.nodes.expand(cur)
    for number in b.part.guests[:3]:  # more of them use the same room
        b.number, b.hosted, b.hosted_experts, b.rows = number, False, True, b.tok
        guests(b, b.hyper.block_tensors[number])
    return b


def _begun(b: Builder) -> Tensor:
    """What the first block gets."""
    hyper, row = b.hyper, b.hyper.family
    cur = b.embedding
    cur.layout = (hyper.embedding, b.rows)
    if b.padded is not None:
        cur = b.view(b.padded, cur.layout, 0, cur.size)
    if gemma.per_layer_width(hyper) and b.per_layer is None:
        b.per_layer = gemma.PerLayer(b)
    if b.part.first:
        if row.token_types:
            cur = b.same(cur, b.new_input(F * hyper.embedding))
        if hyper.learned_positions:  # an encoder adds the embeddings to them, a decoder them to the embeddings
            rows = _learned_positions(b)
            cur = b.same(rows, cur) if row.whole == "encoder" else b.same(cur, rows)
        if row.scales and hyper.keys.get("embedding_scale"):
            cur = b.nodes.expand(b.same(cur))
        if row.scaled_input and not b.scaled_on_host:
            cur = b.same(cur)
        if row.input_norm:
            cur = b.same(b.same(b.normed(cur)))
    if b.per_layer is not None:
        b.per_layer.given = cur
    if row.adds_input:
        b.given = cur if b.part.first else b.new_input(cur.size)
    return altup.stacked(b, cur) if row.streams and b.part.first else cur


def _learned_positions(b: Builder) -> Tensor:
    """Rows of the table of positions, looked up on the host."""
    width = b.hyper.embedding
    if b.on_host:
        return b.make(width, b.positions, rows=b.tok)
    rows = b.new_input(F * width * b.tok)
    rows.layout = (width, b.tok)
    return rows


def _through(b: Builder, cur: Tensor) -> Tensor:
    """The blocks."""
    hyper = b.hyper
    for number in _sample(hyper, b.part):
        b.number, b.hosted = number, number in b.part.hosted
        b.hosted_experts = number in b.part.hosted_experts
        layer, block = hyper.layers[number], hyper.block_tensors[number]
        if hyper.family.streams:
            cur = altup.block(b, cur, layer, block, number)
        else:
            cur = decoded(b, cur, layer, block, number == hyper.blocks - 1)
        if number < hyper.deep_inputs and b.padded is not None:
            cur = b.same(cur, b.view(b.padded, ("deep", number), 1))
    return cur


def _ended(b: Builder, cur: Tensor) -> Tensor:
    """The last norm, the logits, or what embedding models give instead."""
    hyper, row = b.hyper, b.hyper.family
    if row.streams and b.part.blocks:
        cur = altup.merged(b, cur)
    if b.late == "before" and b.part.blocks:
        cur = _late_rows(b, cur)
    if row.whole != "encoder":
        cur = b.same(b.normed(cur))
    if b.late == "after":
        cur = _late_rows(b, cur)
    if not row.pooled:
        cur = b.make(hyper.vocabulary, cur, rows=b.out)
        if row.picture_tokens:
            cur = b.make(hyper.vocabulary, cur, Tensor(F * row.picture_tokens), rows=b.out)
        cur.output = True
        b.nodes.expand(cur)
    elif row.projected:
        cur = b.make(int(hyper.keys.get("embedding_length_out", 0)) or hyper.embedding, cur)
    return encoder.pooled(b, cur) if hyper.is_embedding else cur


def _late_rows(b: Builder, cur: Tensor) -> Tensor:
    """Rows chosen from those of all tokens, which stay: a draft model would read them."""
    cur.output = True
    return b.picked_rows(cur)


def _laid_out(b: Builder) -> int:
    """Bytes of the buffer that the graph needs."""
    for tensor in b.inputs:
        tensor.sources = ()
    inputs, ready = set(b.inputs), b.indexer.zeros if b.indexer is not None else []
    given = inputs.union(ready)
    nodes = [n for n in b.nodes.nodes if n not in given]
    if b.part.hosted or b.part.hosted_experts or b.part.guests:
        return peak(in_parts(nodes, b.inputs))
    if b.on_host:
        first = list(dict.fromkeys(s for node in nodes for s in node.sources if s in inputs))  # as asked for
        return peak([*ready, first[0], b.place, *first[1:], *nodes], HOST_ALIGNMENT)
    return peak(ready + with_inputs(nodes, inputs, b.part.copies), ALIGNMENT)


def _sample(hyper: Hyper, part: Part) -> list[int]:
    """Enough blocks to reach the peak: the allocator repeats itself after a few of a kind, and the last differs.

    Each kind of block keeps its first three, in their order, after what came before them, and all whose copies of a
    cache in other memory add up. Where recurrent blocks are mixed with others, or blocks give back what they were
    handed at the start, gaps drift through the buffer for longer: all of them are followed, unless a part of them is
    on the host, where the search for the layers that fit needs many graphs.
    """
    drifts = hyper.family.recurrent or hyper.family.indexer
    if drifts and not part.hosted and not part.hosted_experts:
        return list(part.blocks)
    seen: dict[tuple[object, ...], int] = {}
    kept = []
    before: object = None
    for number in part.blocks:
        layer, block = hyper.layers[number], hyper.block_tensors[number]
        kind = (hash(layer), id(block), turns(hyper, number), number in part.hosted, number in part.hosted_experts)
        key = (*kind, before)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= 3 or number == part.blocks[-1] or (layer.heads and cached.keeper(hyper, part, number)[1]):
            kept.append(number)
        before = kind
    return kept
