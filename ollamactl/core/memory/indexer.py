"""Sparse attention in a graph: an indexer chooses which tokens a latent attention sees (src/models/glm-dsa.cpp).

Where a block has no indexer of its own, the choice of the last one before it counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ollamactl.core.memory import cached
from ollamactl.core.memory.graph import Tensor

if TYPE_CHECKING:
    from ollamactl.core.memory.builder import Builder
    from ollamactl.core.memory.model import Block, Layer

F = 4


class Indexer:
    """What all blocks share: the mask and the rotation of the indexer, and the last choice."""

    def __init__(self, b: Builder) -> None:
        keys = b.hyper.keys
        self.b = b
        self.heads = int(keys.get("attention.indexer.head_count", 0))
        self.width = int(keys.get("attention.indexer.key_length", 0))
        self.most = min(int(keys.get("attention.indexer.top_k", 0)), b.graph.cells.full)
        side = 64
        while self.width % (2 * side) == 0:
            side *= 2
        self.turn = b.new_input(F * side * side)
        self.index = b.new_input(8 * b.tok)
        self.mask = b.new_input(2 * b.graph.cells.full * b.tok)
        # Zeros that are written over the mask: of every block, and all at hand from the start.
        self.zeros = [Tensor(F * self.most * b.tok, layout=("zeros", b.tok)) for _ in b.part.blocks]
        self.taken = 0
        self.chosen: Tensor | None = None

    def keys(self, cur: Tensor, layer: Layer, block: Block) -> None:
        """The indexer's keys of the batch, put into its cache."""
        b = self.b
        if not layer.index_k:
            return
        made = b.weigh(b.make(self.width, cur), block, "indexer.attn_k.weight")
        made = b.same(Tensor(made.size, (made,), layout=made.layout))
        made = b.weigh(made, block, "indexer.k_norm.weight")
        if "indexer.k_norm.bias" in block.widths:
            made = b.weigh(b.same(made), block, "indexer.k_norm.bias")
        made = b.make(self.width, b.view(made, "k3"), b.positions)
        made = b.make(self.width, self.turn, made)
        b.nodes.expand(cached.store(b, made, "k2d", self.index))

    def limited(self, cur: Tensor, query: Tensor, layer: Layer, block: Block) -> Tensor:
        """The mask of one block, in which only the chosen tokens can be seen."""
        b, tok, at = self.b, self.b.tok, self.b.graph.cells
        zeros = b.same(self.zeros[self.taken])
        self.taken += 1
        b.nodes.expand(zeros)
        if layer.index_k or self.chosen is None:
            q = b.weigh(b.make(self.heads * self.width, query), block, "indexer.attn_q_b.weight")
            q = b.make(self.heads * self.width, b.view(q, "q3"), b.positions)
            q = b.make(self.heads * self.width, self.turn, q)
            weights = b.weigh(b.make(self.heads, cur), block, "indexer.proj.weight")
            weights = b.make(self.heads, b.view(weights, "w4"))
            kept = cached.kept(b, layer.index_k, b.graph.type_k, at.full, b.hosted)
            scores = Tensor(F * at.full * tok, (b.view(q, "q4"), *kept, weights, self.mask))
            top = Tensor(4 * self.most * tok, (scores,))
            self.chosen = Tensor(top.size, (top,))
        mask = b.mask[False]
        hidden = Tensor(mask.size, (mask,), layout=("mask", tok))
        opened = b.view(hidden, "opened")
        opened.sources = (zeros, self.chosen, hidden)
        return Tensor(mask.size, (b.view(opened, "whole"), mask), inplace=True, layout=mask.layout)
