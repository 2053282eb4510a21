"""Sparse attention by blocks in a graph: an indexer chooses blocks of the cache for every group of heads, and what it
has not chosen is masked, for each slot apart (src/models/minimax-m3.cpp)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ollamactl.core.memory import cached
from ollamactl.core.memory.attention import turned
from ollamactl.core.memory.graph import Tensor

if TYPE_CHECKING:
    from ollamactl.core.memory.attention import Projected
    from ollamactl.core.memory.builder import Builder
    from ollamactl.core.memory.model import Block, Hyper, Layer
    from ollamactl.core.memory.shape import Graph

F = 4  # bytes of an f32
POSITIONS = 256  # that a reserved graph of an empty cache covers


def applies(hyper: Hyper, graph: Graph) -> bool:
    """Whether the graph chooses: with flash attention, and where every slot has a part of the cache of its own."""
    return hyper.family.indexer == "keys-values" and graph.flash and graph.cells.streams == graph.slots


def _positions(hyper: Hyper) -> tuple[int, int]:
    """Positions that a reserved graph covers, and blocks of these."""
    side = max(int(hyper.keys.get("attention.indexer.block_size", 0)), 1)
    blocks = -(-POSITIONS // side)
    return blocks * side, blocks


def input_bytes(hyper: Hyper, graph: Graph, tok: int) -> int:
    """Bytes of the inputs that the choice takes; 0 where nothing is chosen."""
    if not applies(hyper, graph):
        return 0
    positions, blocks = _positions(hyper)
    return 4 * ((2 + blocks + positions) * tok + (positions + graph.cells.full) * graph.slots)


class Blockwise:
    """What all blocks share: positions of cells, blocks of cells, and the mask as plain numbers."""

    def __init__(self, b: Builder) -> None:
        keys = b.hyper.keys
        self.heads = int(keys.get("attention.indexer.head_count", 0))
        self.width = int(keys.get("attention.indexer.key_length", 0))
        self.lead = int(keys.get("leading_dense_block_count", 0))
        self.positions, self.blocks = _positions(b.hyper)
        self.most = min(int(keys.get("attention.indexer.top_k", 0)), self.blocks)
        self.index = b.new_input(8 * b.tok)
        self.near = b.new_input(F * self.blocks * b.tok)
        self.seen = b.new_input(F * self.positions * b.tok)
        self.cell_of = b.new_input(4 * self.positions * b.graph.slots)
        self.block_of = b.new_input(4 * b.graph.cells.full * b.graph.slots)
        self.plain = Tensor(F * b.graph.cells.full * b.tok, (b.mask[False],))

    def attend(self, b: Builder, cur: Tensor, made: Projected, layer: Layer, block: Block) -> Tensor:
        """Attention of one block to what the indexer chooses, and the output projection."""
        query = self._index(b, cur, block, "q", self.heads)
        b.nodes.expand(cached.store(b, self._index(b, cur, block, "k", 1), "k2d", self.index))
        turn_k, turn_v = b.turn[False]
        q, k, v = turned(b, made.q, turn_k), turned(b, made.k, turn_k), turned(b, made.v, turn_v)
        for tensor in (q, k, v):
            b.nodes.expand(tensor)
        for tensor, index in zip((k, v), b.index[False], strict=True):
            b.nodes.expand(cached.store(b, tensor, "2d", index))
        cur = self._slot(b, q, query, layer)
        for slot in range(1, b.graph.slots):
            other = self._slot(b, q, query, layer)
            cur = Tensor(cur.size // slot * (slot + 1), (cur, other))
        return b.matrix(b.hyper.embedding, turned(b, cur, turn_v), block, "attn_output")

    def _index(self, b: Builder, cur: Tensor, block: Block, letter: str, heads: int) -> Tensor:
        """Queries or keys of the indexer: projected, normed and turned."""
        name = f"indexer.{letter}_proj.weight"
        made = b.view(b.weigh(b.make(heads * self.width, cur), block, name), "heads")
        made = Tensor(made.size, (made,), layout=("index", heads))
        return b.same(b.weigh(b.same(made), block, f"indexer.{letter}_norm.weight"), b.positions)

    def _slot(self, b: Builder, q: Tensor, query: Tensor, layer: Layer) -> Tensor:
        """Attention of one slot."""
        each = b.tok // b.graph.slots
        mask = self._mask(b, query, each, layer)
        out = F * layer.heads * layer.value * each
        copies = cached.cuda_copies(b, layer, b.graph.cells.full) // b.graph.slots
        result = b.view(Tensor(out + copies, (b.view(q, "slot"), mask)), "permuted", 0, out)
        return Tensor(out, (result,)) if layer.kv_heads > 1 else result

    def _mask(self, b: Builder, query: Tensor, each: int, layer: Layer) -> Tensor:
        """The mask of one slot, one for every group of heads."""
        rows, cells = self.heads * each, b.graph.cells.full
        near = _of_slot(b, self.near, F * self.blocks * each)
        chosen = self._chosen(b, query, rows, near)
        zero = Tensor(F * self.most * rows, (chosen,), layout="zeros")
        zero = b.same(zero)
        hidden = Tensor(F * self.blocks * each, (near,))
        hidden = Tensor(2 * self.blocks * rows, (Tensor(2 * self.blocks * each, (hidden,)),))
        opened = b.view(hidden, "opened")
        opened.sources = (zero, chosen, hidden)
        turned = Tensor(hidden.size, (b.view(Tensor(hidden.size, (opened,)), "turned"),))
        spread = Tensor(F * rows * cells, (turned, _of_slot(b, self.block_of, 4 * cells)))
        spread = Tensor(spread.size, (b.view(spread, "turned"),))
        masked = b.view(spread, "masked")
        masked.sources = (spread, b.view(self.plain, "slot"))
        return Tensor(2 * rows * cells, (masked,))

    def _chosen(self, b: Builder, query: Tensor, rows: int, near: Tensor) -> Tensor:
        """The best blocks for every row, by the best product of a query with a key in them."""
        cell_of = _of_slot(b, self.cell_of, 4 * self.positions)
        seen = _of_slot(b, self.seen, F * self.positions * (rows // self.heads))
        keys = Tensor(F * self.width * self.positions, (cell_of,))
        scores = Tensor(F * self.positions * rows, (keys, b.view(query, "slot")))
        limited = b.view(scores, "limited")
        limited.sources = (scores, seen)
        best = Tensor(F * self.blocks * rows, (limited,), layout="best")
        return Tensor(4 * self.most * rows, (b.same(best, near),))


def _of_slot(b: Builder, shared: Tensor, size: int) -> Tensor:
    """One slot's part of an input. A device gets a copy of every part that is asked for."""
    return b.view(shared, "slot") if b.on_host else b.new_input(size)
