"""What the blocks of Gemma 3n and Gemma 4 have beside attention and feed-forward (src/models/gemma4.cpp)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ollamactl.core.memory.feed_forward import dense, experts, router
from ollamactl.core.memory.graph import Tensor

if TYPE_CHECKING:
    from ollamactl.core.memory.builder import Builder
    from ollamactl.core.memory.model import Block, Hyper

F = 4


def per_layer_width(hyper: Hyper) -> int:
    """Width of the embeddings that every block has of its own; 0 where there are none."""
    return int(hyper.keys.get("embedding_length_per_layer_input", 0)) if hyper.family.per_layer_input else 0


class PerLayer:
    """The embeddings of all blocks: a part that is made of the tokens' embeddings (`given`) and, mostly, rows of a
    table. A later device gets the slices of its own blocks."""

    def __init__(self, b: Builder) -> None:
        self.b, self.width = b, per_layer_width(b.hyper)
        self.total = self.width * len(b.hyper.layers)
        self.made: Tensor | None = None
        self.given: Tensor = b.embedding
        self.table: Tensor | None = None
        self.handed: Tensor | None = None
        if not (b.on_host or b.part.first or b.hyper.family.streams):
            self.handed = b.new_input(F * self.width * len(b.part.blocks) * b.tok)
            return
        if not b.hyper.family.per_layer_table:
            return
        size = F * self.total * b.tok
        rows = b.nodes.expand(Tensor(size)) if b.on_host else b.new_input(size)
        if b.newest and not b.hyper.family.streams:  # scaled only where it is used
            self.table = b.same(rows)
        else:
            self.table = b.nodes.expand(b.same(b.view(rows, "table") if b.on_host else rows))

    def slice(self) -> Tensor:
        """A block's own."""
        return self.b.view(self.handed if self.handed is not None else self._all(), "slice")

    def _all(self) -> Tensor:
        """The embeddings of all blocks, made where the first block needs them."""
        if self.made is None:
            b = self.b
            made = b.make(self.total, self.given, rows=b.tok)
            if b.hosted:  # the matrix is no block's own, but lies where the first one is
                made.weight = Tensor(b.hyper.weights.blocks[0] - sum(b.hyper.block_tensors[0].sizes.values()))
            made = b.same(made)
            made = b.same(b.same(b.view(made, (self.width, self.total // self.width, b.tok))))
            if b.hosted:
                made.weight = Tensor(F * self.width)
            if self.table is not None:
                made = b.same(b.same(made, self.table))
            self.made = b.make(self.total, b.view(made, "perm"), rows=b.tok)
        return self.made


def per_layer_part(b: Builder, cur: Tensor, block: Block, last: bool) -> Tensor:
    """What the block's own slice of the per-layer embeddings makes of `cur`."""
    assert b.per_layer is not None
    gate = b.same(b.matrix(b.per_layer.width, cur, block, "inp_gate"))
    own = b.per_layer.slice()
    if last and b.rows != b.tok:
        own = b.make(b.per_layer.width, own, b.outputs)
    gate = Tensor(gate.size, (gate, own), inplace=True, layout=gate.layout)
    return b.norm(b.matrix(b.hyper.embedding, gate, block, "proj"), block, "post_norm.weight")


def with_per_layer(b: Builder, cur: Tensor, block: Block, last: bool) -> Tensor:
    made = per_layer_part(b, cur, block, last)
    cur = Tensor(cur.size, (cur, made), inplace=True, layout=cur.layout)
    scale = "layer_output_scale.weight"
    return b.weigh(b.same(cur), block, scale) if scale in block.widths else cur


def two_feeds(b: Builder, residual: Tensor, block: Block) -> Tensor:
    """A dense feed-forward and experts beside each other, each with norms of its own; the router sees the residual."""
    routed = b.weigh(b.same(b.same(b.normed(residual))), block, "ffn_gate_inp.scale")
    mixture = experts(b, b.norm(residual, block, "pre_ffw_norm_2.weight"), block, logits=router(b, routed, block))
    plain = b.norm(dense(b, b.norm(residual, block, "ffn_norm.weight"), block), block, "post_ffw_norm_1.weight")
    return b.add(plain, b.norm(mixture, block, "post_ffw_norm_2.weight"))
