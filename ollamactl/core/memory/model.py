"""What a memory prediction knows of a model. Widths are in numbers (elements), sizes in bytes."""

from __future__ import annotations

from collections import Counter

import msgspec

from ollamactl.core.memory.family import Family
from ollamactl.core.memory.weights import Weights

Number = int | float
OVERLAPPING = 4  # rows that are made of so many tokens are made of twice as many, and have an indexer


class Layer(msgspec.Struct, frozen=True):
    """One block: query heads, row widths of its K and V in the cache, and its recurrent state.

    `cached`: it has a place in the cache, if perhaps of no width. `compressed`: tokens that share one more row of K
    and of the indexer's keys, 0 where there are none.
    `r`, `s`: values a sequence of the convolution and the recurrent state. `index_k`, `index_v`: of the indexer.
    """

    heads: int
    kv_heads: int
    key: int
    value: int
    k: int
    v: int
    swa: bool
    ff: int
    r: int = 0
    s: int = 0
    index_k: int = 0
    index_v: int = 0
    draft: bool = False
    cached: bool = False
    compressed: int = 0
    limited: bool = False  # what its feed-forward holds, and, below, its experts
    limited_experts: bool = False


class Block(msgspec.Struct, frozen=True):
    """What tensors a block has: name without the block's number -> width of its result (second dimension)."""

    names: tuple[tuple[str, int, int, int], ...]  # name, first dimension, second dimension, bytes on a device
    experts: int = 0  # number of experts
    widths: dict[str, int] = {}
    sizes: dict[str, int] = {}

    @property
    def feeds(self) -> bool:
        """Whether it has a feed-forward."""
        return bool(self.experts) or "ffn_up.weight" in self.widths

    def inner(self, name: str) -> int:
        """First dimension of a tensor, 0 if the block has none."""
        return next((first for other, first, *_ in self.names if other == name), 0)


class Widths(msgspec.Struct, frozen=True):
    """Maxima over the blocks, in numbers."""

    heads: int
    hk: int  # query rows
    hv: int  # attention results
    vw: int
    kw_full: int
    vw_full: int
    kw_swa: int
    vw_swa: int
    caches: bool
    swa: bool
    ff: int


def widths_of(layers: tuple[Layer, ...]) -> Widths:
    full = [x for x in layers if (x.k or x.v) and not x.swa]
    swa = [x for x in layers if (x.k or x.v) and x.swa]
    return Widths(
        heads=max((x.heads for x in layers), default=0),
        hk=max((x.heads * x.key for x in layers), default=0),
        hv=max((x.heads * x.value for x in layers), default=0),
        vw=max((x.kv_heads * x.value for x in layers), default=0),
        kw_full=max((x.k for x in full), default=0),
        vw_full=max((x.v for x in full), default=0),
        kw_swa=max((x.k for x in swa), default=0),
        vw_swa=max((x.v for x in swa), default=0),
        caches=bool(full or swa),
        swa=bool(swa),
        ff=max((x.ff for x in layers), default=0),
    )


class Hyper(msgspec.Struct, frozen=True, kw_only=True):
    """What a memory prediction needs of a model. `keys`: the numeric keys of its architecture, without the prefix."""

    architecture: str
    family: Family
    known: bool
    layers: tuple[Layer, ...]
    trained_context: int
    embedding: int
    vocabulary: int
    window: int  # tokens that the sliding-window layers keep; 0: none has a window
    latent: bool  # absorbed MLA: no V in the cache
    is_embedding: bool
    heads: int  # of the first block
    feed_forward: int
    keys: dict[str, Number]
    weights: Weights
    widths: Widths
    block_tensors: tuple[Block, ...]
    groups: tuple[tuple[Layer, int], ...]  # equal blocks and how many of them, so that a plan need not walk them all
    file_size: int
    quantization: int = -1  # general.file_type
    position_parts: int = 1  # numbers a position has: 4 for models that place images too
    learned_positions: bool = False  # a table of positions is added to the embeddings

    @property
    def deep_inputs(self) -> int:
        """Blocks that get a part of a picture of their own (qwen3-vl): so many more embeddings does a token take."""
        return int(self.keys.get("n_deepstack_layers", 0))

    @property
    def blocks(self) -> int:
        """Blocks that run, drafts not counted; with the output layer added this is what `-ngl` counts."""
        return sum(count for layer, count in self.groups if not layer.draft)


def with_layers(hyper: Hyper, layers: tuple[Layer, ...]) -> Hyper:
    """The same model with other caches in its blocks."""
    return msgspec.structs.replace(
        hyper, layers=layers, widths=widths_of(layers), groups=tuple(Counter(layers).items())
    )
