"""What every graph begins with, its inputs, and the operations that all parts of a graph are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ollamactl.core.memory import blockwise, gemma
from ollamactl.core.memory.ggml import quantized
from ollamactl.core.memory.graph import OFFLOADED, Tensor
from ollamactl.core.memory.graph import Graph as Nodes
from ollamactl.core.memory.indexer import Indexer
from ollamactl.core.memory.shape import NEWEST

if TYPE_CHECKING:
    from ollamactl.core.memory.model import Block, Hyper, Layer
    from ollamactl.core.memory.shape import Graph

F = 4  # bytes of an f32


class Part(NamedTuple):
    """What one device evaluates: blocks, of which some (or their experts) lie in host memory; the output or not."""

    blocks: tuple[int, ...]
    hosted: frozenset[int] = frozenset()
    hosted_experts: frozenset[int] = frozenset()
    guests: tuple[int, ...] = ()  # blocks of other devices with experts on the host, which it evaluates too
    output: bool = True
    first: bool = True  # it gets the embeddings, and with them what depends on these
    copies: int = 1  # of every input: 4 where devices work as a pipeline
    handed: bool = False  # the first norm of what another device hands over is made there


class Builder:
    """Builds one graph. Sizes in bytes; `tok` tokens, `out` rows that are put out."""

    def __init__(
        self, hyper: Hyper, graph: Graph, tok: int, *, on_host: bool = False, part: Part | None = None
    ) -> None:
        self.hyper, self.graph, self.tok = hyper, graph, tok
        self.out = tok if hyper.is_embedding or hyper.family.all_rows else graph.slots
        self.nodes = Nodes()
        self.late = hyper.family.late_rows if graph.engine != NEWEST else ""
        self.on_host = on_host
        self.part = part if part is not None else Part(tuple(range(hyper.blocks)))
        self.hosted = False  # the current block's weights and cache are in host memory
        self.hosted_experts = False
        self.handed = self.part.handed and not self.part.first  # the next norm is made on the device before
        self.number = 0  # of the current block
        self.borrowed: dict[tuple[int, str], Tensor] = {}  # copied once, however often they are used
        self.inputs: list[Tensor] = []
        # Fewer in the last block after its attention, and where only the output is.
        self.rows = tok if self.part.blocks or self.late == "after" else self.out
        self.per_layer: gemma.PerLayer | None = None
        self.padded: Tensor | None = None  # embeddings and, beside them, what pictures add to the first blocks
        self._take_embeddings()
        self.positions = self.new_input(4 * tok * hyper.position_parts)
        self.mask: dict[bool, Tensor] = {}
        self.index: dict[bool, tuple[Tensor, Tensor]] = {}
        self.turn: dict[bool, tuple[Tensor | None, Tensor | None]] = {}
        self._take_caches()
        self.indexer = Indexer(self) if hyper.family.indexer == "keys" else None
        self.blockwise = blockwise.Blockwise(self) if blockwise.applies(hyper, graph) else None
        self.outputs = self.new_input(4 * self.out)
        self.states = self.new_input(4 * graph.slots)
        self.named_inputs: dict[str, Tensor] = {}  # that blocks share and ask for by name
        self.given: Tensor | None = None  # the embeddings, where every block adds them to what it gives
        self.first_value: Tensor | None = None  # of RWKV 7: every block mixes the first one's values in

    @property
    def newest(self) -> bool:
        return self.graph.engine == NEWEST

    @property
    def layer(self) -> Layer:
        """The current block's widths."""
        return self.hyper.layers[self.number]

    @property
    def scaled_on_host(self) -> bool:
        """Whether the embeddings come to the device scaled: where something is looked up after that."""
        return self.newest and self.hyper.family.streams and not self.on_host

    # -- inputs --

    def _take_embeddings(self) -> None:
        hyper, on_host = self.hyper, self.on_host
        size, deep = F * hyper.embedding * self.rows, 1 + hyper.deep_inputs
        if on_host:
            tokens, self.place = self.new_input(4 * self.tok), self.new_input(size * deep)
            self.place.output = True  # for embeddings as input: never read here, never given back
            self.embedding = Tensor(size, (tokens,))
            if self.newest and gemma.per_layer_width(hyper) and not hyper.family.streams:
                self.per_layer = gemma.PerLayer(self)
            self.nodes.expand(self.embedding)
        elif deep > 1:
            self.embedding = self.new_input(size)
        looks_up = hyper.learned_positions or hyper.family.streams  # after it: then it stays on the host
        if self.newest and hyper.family.mixes and self.part.first and (on_host or not looks_up):
            self._mix(size, deep)
        elif deep > 1 and self.part.first:
            self.padded = self.nodes.expand(Tensor(size * deep, (self.embedding,)))
        if not on_host and deep == 1:
            self.embedding = self.new_input(size)

    def _mix(self, size: int, deep: int) -> None:
        """The newest engines merge embeddings and tokens in the graph, and keep the merged ones."""
        given = self.new_input(size * deep)
        if self.on_host:
            rows = self.nodes.expand(Tensor(size, (self.new_input(4 * self.tok),)))
        else:
            rows = self.new_input(size)
        slots = self.new_input(8 * self.tok)
        if deep > 1:
            self.padded = self.nodes.expand(Tensor(size * deep, (self.embedding,)))
            rows = self.nodes.expand(Tensor(size * deep, (rows,)))
        merged = self.nodes.expand(Tensor(size * deep, (given,)))
        self.nodes.expand(Tensor(0, (rows, slots, merged), outside=True))
        merged.output = True

    def _take_caches(self) -> None:
        """Mask, places of the batch and rotations of every cache; of graphs without a cache the mask alone."""
        hyper, at, tok = self.hyper, self.graph.cells, self.tok
        width = 2 if self.graph.flash else 4
        caches = not hyper.family.attends_batch
        mixed = hyper.window and (hyper.widths.swa or not caches)
        for swa in (False, True) if mixed else (False,):
            cells = tok if not caches else at.swa if swa else at.full
            if caches:
                index_v = 8 * tok * (hyper.widths.vw if self.graph.transposed else 1)
                self.turn[swa] = self._rotations(swa if mixed else None)
                self.index[swa] = (self.new_input(8 * tok), self.new_input(index_v))
            self.mask[swa] = self.new_input(width * cells * tok)

    def _rotations(self, swa: bool | None) -> tuple[Tensor | None, Tensor | None]:
        """Matrices that turn keys and values before they are quantized."""
        side_k, side_v = rotation_sides(self.hyper, self.graph, swa)
        turn_k = self.new_input(F * side_k * side_k) if side_k else None
        return turn_k, self.new_input(F * side_v * side_v) if side_v else None

    def new_input(self, size: int) -> Tensor:
        tensor = Tensor(size)
        self.inputs.append(tensor)
        return tensor

    # -- operations --

    def make(
        self, width: int, *sources: Tensor, rows: int | None = None, inplace: bool = False, layout: object = None
    ) -> Tensor:
        rows = self.rows if rows is None else rows
        return Tensor(
            F * width * rows, sources, inplace=inplace, layout=layout if layout is not None else (width, rows)
        )

    def same(self, tensor: Tensor, *others: Tensor) -> Tensor:
        """An operation that may take its first input's place (add, mul, norm, rope, scale)."""
        return Tensor(tensor.size, (tensor, *others), inplace=True, layout=tensor.layout)

    def add(self, first: Tensor, second: Tensor) -> Tensor:
        """A sum or product that may take the place of either, the first rather."""
        return Tensor(first.size, (first, second), inplace=True, layout=first.layout)

    def view(self, tensor: Tensor, layout: object, offset: int = 0, size: int | None = None) -> Tensor:
        root = tensor.root if tensor.root is not None else tensor
        return Tensor(
            tensor.size if size is None else size, (tensor,), root=root, layout=layout, offset=offset + tensor.offset
        )

    def norm(self, tensor: Tensor, block: Block, name: str) -> Tensor:
        if name not in block.widths:
            name = name.removesuffix(".weight")  # some families name their norms so
            if name not in block.widths:
                return tensor
        tensor = self.weigh(self.same(self.normed(tensor)), block, name)
        bias = name.replace(".weight", ".bias")
        return self.weigh(self.same(tensor), block, bias) if bias in block.widths else tensor

    def normed(self, tensor: Tensor) -> Tensor:
        """A norm without its weights. One by mean and variance makes a new tensor.

        That of what another device hands over may be made there: no weight binds it to this one.
        """
        if self.handed and self.embedding in (tensor, tensor.root):
            self.handed = False
            made = self.new_input(tensor.size)
            made.layout = tensor.layout
            return made
        by_mean = self.hyper.family.layer_norm
        if by_mean is None:  # as the file says
            by_mean = not self.hyper.keys.get("attention.layer_norm_rms_epsilon")
        if by_mean:
            return Tensor(tensor.size, (tensor,), layout=tensor.layout)
        return self.same(tensor)

    def matrix(self, width: int, tensor: Tensor, block: Block, name: str) -> Tensor:
        made = self.weigh(self.make(width, tensor), block, name + ".weight")
        bias = name + ".bias"
        return self.weigh(self.same(made), block, bias) if bias in block.widths else made

    def weigh(self, tensor: Tensor, block: Block, name: str) -> Tensor:
        """Note the matrix that a result needs where it lies in host memory. A few rows are evaluated there."""
        if self.rows < OFFLOADED:
            return tensor
        if self.hosted or (self.hosted_experts and "_exps." in name):
            size = block.sizes.get(name, 0)
            if size:
                tensor.weight = self.borrowed.setdefault((self.number, name), Tensor(size))
        return tensor

    def picked_rows(self, tensor: Tensor) -> Tensor:
        """The rows that are put out."""
        if self.hyper.family.all_rows:
            return tensor
        return self.make(self.hyper.embedding, tensor, self.outputs, rows=self.out)


def rotation_sides(hyper: Hyper, graph: Graph, swa: bool | None) -> tuple[int, int]:
    """Sides of the matrices that turn what is quantized in a cache, of keys and of values; 0: they are not turned.

    `swa`: of the cache with a window or of the one without, None where there is one only. As
    llama_kv_cache::build_input_k_rot and build_input_v_rot.
    """
    if hyper.family.hybrid and hyper.window:
        return 0, 0  # llm_graph_context::build_inp_mem_hybrid_iswa has none
    layers = [x for x, _ in hyper.groups if x.k and (swa is None or x.swa == swa)]
    keys, values = {x.key for x in layers}, {x.value for x in layers if x.v}
    first = hyper.layers[0]  # whose widths decide for all
    side_k = side_v = 0
    if quantized(graph.type_k) and len(keys) == 1 and not first.key % 64:
        side_k = 64
        while next(iter(keys)) % (2 * side_k) == 0:
            side_k *= 2
    if quantized(graph.type_v) and len(values) == 1 and not first.value % 64:
        side_v = 64
    return side_k, side_v
