"""Hyperparameters of a model, from the header of its file. Widths are in numbers (elements), sizes in bytes."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from ollamactl.core.memory.families import family
from ollamactl.core.memory.family import Family
from ollamactl.core.memory.weights import Weights, device_bytes, weigh

if TYPE_CHECKING:
    from ollamactl.core.parse.gguf import GgufHeader

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
    expert_width: int = 0
    widths: dict[str, int] = {}
    sizes: dict[str, int] = {}

    @property
    def feeds(self) -> bool:
        """Whether it has a feed-forward."""
        return bool(self.experts) or "ffn_up.weight" in self.widths

    def inner(self, name: str) -> int:
        """First dimension of a tensor, 0 if the block has none."""
        return next((first for other, first, *_ in self.names if other == name), 0)


_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")


def _block_tensors(header: GgufHeader, count: int) -> tuple[Block, ...]:
    found: list[list[tuple[str, int, int, int]]] = [[] for _ in range(count)]
    experts, widths = [0] * count, [0] * count
    for tensor in header.tensors:
        match = _BLOCK.match(tensor.name)
        if match is None or int(match[1]) >= count:
            continue
        index, dims = int(match[1]), tensor.dims
        found[index].append((match[2], dims[0], dims[1] if len(dims) > 1 else 1, device_bytes(tensor)))
        if match[2] in ("ffn_down_exps.weight",):
            experts[index], widths[index] = dims[2] if len(dims) > 2 else 1, dims[0]
    known: dict[object, Block] = {}
    blocks = []
    for names, number, width in zip(found, experts, widths, strict=True):
        key = (tuple(sorted(names)), number, width)
        if key not in known:
            known[key] = Block(
                key[0],
                number,
                width,
                {name: second for name, _, second, _ in names},
                {name: size for name, _, _, size in names},
            )
        blocks.append(known[key])
    return tuple(blocks)


class Widths(msgspec.Struct, frozen=True):
    """Maxima over the blocks, in numbers."""

    heads: int
    hk: int  # query rows
    hv: int  # attention results
    kw: int
    vw: int
    kw_full: int
    vw_full: int
    kw_swa: int
    vw_swa: int
    caches: bool
    swa: bool
    ff: int


def _widths(layers: tuple[Layer, ...]) -> Widths:
    full = [x for x in layers if (x.k or x.v) and not x.swa]
    swa = [x for x in layers if (x.k or x.v) and x.swa]
    return Widths(
        heads=max((x.heads for x in layers), default=0),
        hk=max((x.heads * x.key for x in layers), default=0),
        hv=max((x.heads * x.value for x in layers), default=0),
        kw=max((x.kv_heads * x.key for x in layers), default=0),
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


class _Keys:
    """Reads `ARCHITECTURE.name` keys as numbers or per-layer arrays."""

    def __init__(self, header: GgufHeader) -> None:
        self._metadata, self._prefix = header.metadata, header.architecture + "."

    def number(self, name: str, default: int = 0) -> int:
        value = self._metadata.get(self._prefix + name)
        if isinstance(value, tuple):
            value = value[0] if value else default
        return int(value) if isinstance(value, (int, float)) else default

    def has(self, name: str) -> bool:
        return self._prefix + name in self._metadata

    def each(self, name: str, count: int, default: int = 0) -> list[int]:
        value = self._metadata.get(self._prefix + name)
        if isinstance(value, tuple):
            numbers = [int(v) if isinstance(v, (int, float)) else default for v in value]
            return (numbers + [default] * count)[:count]
        return [int(value) if isinstance(value, (int, float)) else default] * count

    def above(self, name: str, count: int) -> list[bool]:
        """Whether a number, or one for each block, is above 0."""
        value = self._metadata.get(self._prefix + name, 0)
        each = list(value[:count]) if isinstance(value, tuple) else [value] * count
        return [isinstance(v, (int, float)) and v > 1e-6 for v in each] + [False] * (count - len(each))

    def is_array(self, name: str) -> bool:
        return isinstance(self._metadata.get(self._prefix + name), tuple)

    def all(self) -> dict[str, Number]:
        start = len(self._prefix)
        return {
            name[start:]: value
            for name, value in self._metadata.items()
            if name.startswith(self._prefix) and isinstance(value, (int, float))
        }


def from_header(header: GgufHeader) -> Hyper:
    """Hyperparameters of the model in a GGUF header. Missing keys take llama.cpp's defaults."""
    row, known = family(header.architecture)
    keys = _Keys(header)
    count = min(keys.number("block_count"), 4096)
    drafts = min(keys.number("nextn_predict_layers"), count)
    embedding = keys.number("embedding_length")
    layers = _layers(keys, row, header.architecture, count, drafts)
    tensors = {t.name: t for t in header.tensors}
    table = tensors.get("token_embd.weight")
    vocabulary = table.dims[1] if table is not None and len(table.dims) > 1 else keys.number("vocab_size")
    quantization = header.metadata.get("general.file_type", -1)
    return Hyper(
        architecture=header.architecture,
        family=row,
        known=known,
        layers=layers,
        trained_context=keys.number("context_length"),
        embedding=embedding,
        vocabulary=vocabulary,
        window=_window(keys, row, count - drafts) if any(layer.swa for layer in layers) else 0,
        latent=_absorbed(keys, row),
        is_embedding=keys.has("pooling_type")
        or (row.cache == "none" and not row.recurrent and not keys.number("attention.causal", 1)),
        heads=keys.number("attention.head_count"),
        feed_forward=max(keys.each("feed_forward_length", max(count, 1)), default=0),
        keys=keys.all(),
        weights=weigh(header, count, drafts, logits=row.loads_output),
        widths=_widths(layers),
        block_tensors=_block_tensors(header, count),
        groups=tuple(Counter(layers).items()),
        file_size=header.size,
        position_parts=4 if row.sections and all(keys.above("rope.dimension_sections", 2)) else 1,
        learned_positions="position_embd.weight" in tensors,
        quantization=quantization if isinstance(quantization, int) else -1,
    )


def with_layers(hyper: Hyper, layers: tuple[Layer, ...]) -> Hyper:
    """The same model with other caches in its blocks."""
    return msgspec.structs.replace(
        hyper, layers=layers, widths=_widths(layers), groups=tuple(Counter(layers).items())
    )


def _absorbed(keys: _Keys, row: Family) -> bool:
    if row.keys_only:
        return True
    return row.latent and bool(keys.number("attention.key_length_mla") and keys.number("attention.value_length_mla"))


def _window(keys: _Keys, row: Family, trunk: int) -> int:
    """Tokens of the sliding window, 0 where the family has none or the file turns it off."""
    rule = row.window
    if rule is None:
        return 0
    found, size = keys.has("attention.sliding_window"), keys.number("attention.sliding_window")
    if rule.when == "deep" and trunk != 64:  # exaone4: only the 64-block model has a window
        return 0
    if rule.when == "positive" and size <= 0:
        return 0
    if rule.when == "present" and not found:
        return 0
    if rule.when == "not-zero" and found and size == 0:
        return 0
    return rule.size if rule.forced or not found else size


def _windowed(keys: _Keys, row: Family, count: int, trunk: int) -> list[bool]:
    """Which blocks have a sliding window. Draft blocks are always full."""
    rule = row.window
    if rule is None or not _window(keys, row, trunk):
        return [False] * count
    name = "attention.sliding_window_pattern"
    if keys.is_array(name):
        if rule.pattern != "integer":
            return [bool(flag) for flag in keys.each(name, trunk)] + [False] * (count - trunk)
        period = rule.period  # families with a compiled-in period ignore an array
    else:
        period = rule.period if rule.pattern == "none" else keys.number(name, rule.period)
    flags = (
        [i % period != 0 if rule.full_first else i % period < period - 1 for i in range(trunk)]
        if period
        else [True] * trunk
    )
    return flags + [False] * (count - trunk)


def _recurrent_blocks(
    keys: _Keys, row: Family, count: int, kv: list[int], ff: list[int], architecture: str
) -> list[bool]:
    if not row.recurrent:
        return [False] * count
    if row.both or row.cache == "none":
        return [True] * count
    if row.cache == "interval":
        if keys.is_array("attention.recurrent_layers"):
            return [bool(flag) for flag in keys.each("attention.recurrent_layers", count)]
        period = keys.number("full_attention_interval", row.interval) or row.interval
        return [(i + 1) % period != 0 for i in range(count)]
    if not row.gate and row.hybrid:  # nemotron_h: a block is attention, state or feed-forward
        return [kv[i] == 0 and ff[i] == 0 for i in range(count)]
    return [kv[i] == 0 for i in range(count)]


def _state(keys: _Keys, row: Family, heads: int, embedding: int) -> tuple[int, int]:
    """Values a sequence of one recurrent block: (convolution R, state S), as llama_hparams::n_embd_r and n_embd_s."""
    inner, state = keys.number("ssm.inner_size"), keys.number("ssm.state_size")
    conv = keys.number("ssm.conv_kernel")
    match row.recurrent:
        case "rwkv6" | "rwkv7":
            return keys.number("token_shift_count", 2) * embedding, embedding * keys.number("wkv.head_size")
        case "conv":
            return embedding * (keys.number("shortconv.l_cache") - 1), 0
        case "kda":
            size = keys.number("kda.head_dim")
            return 3 * ((conv - 1) if conv else 3) * heads * size, size * size * heads
        case "lightning":
            size = keys.number("attention.key_length") or embedding // max(heads, 1)
            return 0, size * size * heads
        case "":
            return 0, 0
        case _:
            groups = 0 if row.recurrent == "mamba" else keys.number("ssm.group_count")  # only Mamba 2 has groups
            return max(conv - 1, 0) * (inner + 2 * groups * state), state * inner


def _layers(keys: _Keys, row: Family, architecture: str, count: int, drafts: int) -> tuple[Layer, ...]:
    trunk = count - drafts
    heads = keys.each("attention.head_count", count)
    kv = keys.each("attention.head_count_kv", count) if keys.has("attention.head_count_kv") else list(heads)
    ff = keys.each("feed_forward_length", count)
    first = heads[0] if heads else 0
    default = keys.number("embedding_length") // first if first else 0
    key = keys.number("attention.key_length", default) if first else 0
    value = keys.number("attention.value_length", default) if first else 0
    key_swa = keys.number("attention.key_length_swa", key) if first else 0
    value_swa = keys.number("attention.value_length_swa", value) if first else 0
    windowed = _windowed(keys, row, count, trunk)
    recurrent = _recurrent_blocks(keys, row, count, kv, ff, architecture)
    r, s = _state(keys, row, first, keys.number("embedding_length"))
    caching = _caching(keys, row, count, trunk, kv, ff, recurrent)
    absorbed = _absorbed(keys, row)
    index = keys.number("attention.indexer.key_length")
    index *= row.index_parts
    limited = keys.above("swiglu_clamp_shexp", count if row.limits else 0)
    limited_experts = keys.above("swiglu_clamp_exp", count if row.limits else 0)
    lead = keys.number("leading_dense_block_count")
    full_index = _indexed(keys, row, count, trunk, architecture)
    kept = [i < trunk or not row.draft_apart for i in range(count)]
    ratios = keys.each("attention.compress_ratios", count) if row.compressed else [0] * count
    found = []
    for i in range(count):
        k, v = (key_swa, value_swa) if windowed[i] else (key, value)
        caches = caching[i]
        index_k = (
            index
            if caches and ((row.indexer == "keys" and full_index[i]) or (row.indexer == "keys-values" and i >= lead))
            else 0
        )
        found.append(
            Layer(
                heads=heads[i],
                kv_heads=kv[i],
                key=k,
                value=v,
                k=kv[i] * k if caches else 0,
                v=kv[i] * v if caches and not absorbed else 0,
                swa=windowed[i],
                ff=ff[i],
                r=_compressing(ratios[i], kv[i] * k, index) if ratios[i] else r if recurrent[i] and kept[i] else 0,
                s=s if recurrent[i] and kept[i] else 0,
                index_k=index if ratios[i] == OVERLAPPING else index_k,
                compressed=ratios[i],
                index_v=v if index_k and row.indexer == "keys-values" else 0,
                draft=i >= trunk,
                cached=caches and not absorbed,
                limited=row.limits and limited[i],
                limited_experts=row.limits and limited_experts[i],
            )
        )
    return tuple(found)


def _compressing(ratio: int, key: int, index: int) -> int:
    """Values a sequence that wait to be compressed, and their scores (llama_kv_cache_dsv4)."""
    if ratio == OVERLAPPING:
        return 2 * 2 * ratio * 2 * (key + index)
    return 2 * ratio * key


def _caching(
    keys: _Keys, row: Family, count: int, trunk: int, kv: list[int], ff: list[int], recurrent: list[bool]
) -> list[bool]:
    """Which blocks have a place in the key-value cache of the main context."""
    if row.cache == "none":
        return [False] * count
    if row.cache == "from-start":
        if keys.has("attention.shared_kv_layers") and row.window is not None and row.window.pattern == "array":
            limit = count - keys.number("attention.shared_kv_layers")
        else:
            limit = 20 if row.window is not None and row.window.pattern == "integer" else count
        return [i < limit for i in range(count)]
    end = trunk if row.draft_apart else count
    if row.both:
        return [i < end for i in range(count)]
    if row.recurrent and not row.gate:
        return [i < end and not recurrent[i] and ff[i] == 0 for i in range(count)]
    return [i < end and not recurrent[i] for i in range(count)]


def _indexed(keys: _Keys, row: Family, count: int, trunk: int, architecture: str) -> list[bool]:
    """Blocks with an indexer of their own. Models trained for a million tokens share one among four (glm-dsa)."""
    if row.indexer != "keys":
        return [False] * count
    if keys.is_array("attention.indexer.types"):
        return [bool(flag) for flag in keys.each("attention.indexer.types", count)]
    if architecture == "glm-dsa" and keys.number("context_length") >= 1 << 20:
        return [i < trunk and (i < 2 or (i - 2) % 4 == 0) for i in range(count)]
    return [i < trunk for i in range(count)]
