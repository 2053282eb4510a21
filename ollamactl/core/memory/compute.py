"""The compute buffer: the peak of what a graph of one full batch holds, in f32 numbers a token.

llama.cpp reserves its worst graph before the first request. ggml's allocator reuses memory as soon as a tensor is no
longer needed, so the buffer is what is alive at the widest point of one block: the inputs, which live throughout, and
the larger of the attention, the feed-forward and the recurrent phase with what is still needed beside it ("hole").
The formulas restate what the graphs in src/models/*.cpp keep alive and are checked against dry loads in real engines.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from ollamactl.core.memory import blockwise, eras, kernels, lightning
from ollamactl.core.memory.builder import Part, rotation_sides
from ollamactl.core.memory.cache import Cells, pad
from ollamactl.core.memory.curve import Curve
from ollamactl.core.memory.decoder import exact
from ollamactl.core.memory.eras import Era
from ollamactl.core.memory.ggml import quantized, row_bytes
from ollamactl.core.memory.model import OVERLAPPING, Hyper, Layer

T = TypeVar("T")
CLASSIC, CURRENT, NEWEST = "classic", "current", "newest"  # classes of engine: see engine_class()


class Graph(msgspec.Struct, frozen=True):
    """What the size of a graph depends on. `flash`: it ends on; `transposed`: it was switched off explicitly."""

    ubatch: int
    context: int
    slots: int
    cells: Cells
    flash: bool
    transposed: bool
    type_k: str
    type_v: str
    cuda: bool = False
    engine: str = CURRENT
    attend_on_host: bool = False  # flash attention is on though the device has no kernel for some heads
    era: Era | None = None  # of a release before 0.30


class Buffers(msgspec.Struct, frozen=True):
    """Bytes on what holds everything; `built`: by the graph itself, not by a formula."""

    device: int
    built: bool


def tokens(graph: Graph) -> int:
    """Tokens of the reserved graph: a whole batch, the same number for every slot."""
    return pad(min(graph.ubatch, pad(graph.context, 256)), graph.slots)


def mask(hyper: Hyper, graph: Graph) -> float:
    """Numbers a token of all attention masks: one for each cache, half as wide (f16) for flash attention."""
    w, at, row = hyper.widths, graph.cells, hyper.family
    windowed = hyper.window > 0
    if row.attends_batch:
        width = 0 if row.recurrent else tokens(graph) * _kinds(hyper)
    else:
        width = ((at.full if w.kw_full else 0) + (at.swa if w.swa and windowed else 0)) if w.caches else 0
    width += hyper.trained_context if row.crosses else 0
    distances = (tokens(graph) if row.attends_batch else at.full) if row.biased else 0
    return (width / 2 if graph.flash else width) + distances


def inputs(hyper: Hyper, graph: Graph) -> float:
    """Numbers a token that live from start to end: embeddings, masks, and where V goes if it is transposed."""
    w = hyper.widths
    index = 0.0
    if graph.transposed and w.caches and not hyper.latent and not hyper.family.unread:
        index = 2 * w.vw * _kinds(hyper)
    embeddings = 4 if graph.engine == NEWEST and hyper.family.mixes else 2
    if hyper.family.crosses:
        index += hyper.embedding * hyper.trained_context / tokens(graph)
    return embeddings * hyper.embedding + mask(hyper, graph) + index + 5


def _kinds(hyper: Hyper) -> int:
    """How many kinds of attention there are: with a window, without one, or both."""
    return len({layer.swa for layer, _ in hyper.groups if layer.heads and (layer.k or hyper.family.attends_batch)})


def _experts(hyper: Hyper) -> tuple[int, int]:
    """(experts a token, width of one): 0, 0 for a dense model."""
    used = int(hyper.keys.get("expert_used_count", 0)) if hyper.keys.get("expert_count", 0) else 0
    if hyper.architecture == "grok" and not used:
        used = 2
    own = int(hyper.keys.get("expert_feed_forward_length", 0))
    width = hyper.feed_forward if hyper.family.experts_ff or not own else own
    return used, width


def _hole(hyper: Hyper, graph: Graph) -> float:
    row, w, embedding = hyper.family, hyper.widths, hyper.embedding
    k_packed, v_packed = quantized(graph.type_k), quantized(graph.type_v)
    if k_packed and v_packed:
        return 0 if w.hk == embedding else 2 * w.hk if w.hk < embedding else w.hk
    if k_packed:
        return w.hk if w.hk <= embedding else 0
    if not graph.flash:
        if row.hole_plain == "always":
            return 2 * w.hk
        return 0 if w.hk >= embedding else 2 * w.hk
    match row.hole:
        case "none":
            return 0
        case "embedding":
            return embedding
        case "half":
            return embedding / 2
        case _:
            if hyper.latent:
                return w.heads * int(hyper.keys.get("attention.value_length_mla", 0))
            return w.hv


def _feed_forward(hyper: Hyper, graph: Graph) -> float:
    row, w = hyper.family, hyper.widths
    hole = _hole(hyper, graph)
    if graph.engine == NEWEST:
        hole = max(0, hole - 2 * hyper.embedding)
    times = 3 if row.gate else 1
    phases = []
    used, width = _experts(hyper)
    dense = not used or (row.dense_lead and hyper.keys.get("leading_dense_block_count", 0) > 0)
    if dense and w.ff:
        phases.append(2 * w.ff + hole if row.gate and w.ff <= hole else times * w.ff + hole)
    if used:
        a = used * width
        top = (2 * a + hole) if a <= hole else (times * a + hole)
        if used * hyper.embedding > 2 * a or row.expert_rows:
            top += used * hyper.embedding
        phases.append(top + int(hyper.keys.get("expert_count", 0)) / 16)
    if row.per_layer_input and (pl := _per_layer(hyper)):
        e, f = hyper.embedding, w.ff
        if int(hyper.keys.get("altup.num_inputs", 0)):
            return max(3 * f + pl + 7 * e, 3 * pl + 11 * e)
        return max(3 * f + pl + 2 * e, 3 * pl + e + 2 * w.hv)
    return max(phases, default=0)


def _per_layer(hyper: Hyper) -> int:
    return len(hyper.layers) * int(hyper.keys.get("embedding_length_per_layer_input", 0))


def attention(hyper: Hyper, graph: Graph) -> float:
    """The widest point of an attention, numbers a token above the inputs."""
    row, w, tok, at = hyper.family, hyper.widths, tokens(graph), graph.cells
    heads, n = w.heads, at.full if w.kw_full else at.swa
    if row.compressed:
        n += at.full // OVERLAPPING
    if not heads or not (w.caches or row.attends_batch):
        return 0
    if row.biased:
        return max(3 * (tok if row.attends_batch else n) * heads + 3 * w.hk, _crossed(hyper, graph))
    if row.attends_batch:
        if row.recurrent:
            return 0
        n = tok
        if graph.flash:
            return 2 * w.hk
        return n * heads + (2 if hyper.window else 3) * w.hk
    if row.latent:
        return _latent(hyper, graph, n, heads)
    if row.indexer == "keys-values" and graph.flash:
        return (2 * hyper.layers[0].kv_heads + 1) * n + 2 * w.hk + 6 * hyper.embedding
    if graph.flash:
        return 2 * w.hk
    if quantized(graph.type_k):
        return n * heads + w.hk
    extra = n * graph.slots * w.vw / (2 * tok) if not graph.transposed else 0
    return n * heads + 2 * w.hk + extra


def _crossed(hyper: Hyper, graph: Graph) -> float:
    """Keys and values of what an encoder gave, copied for flash attention or beside scores for all of it."""
    if not hyper.family.crosses:
        return 0
    given, scores = hyper.trained_context, 0 if graph.flash else hyper.trained_context * hyper.widths.heads
    return 3 * hyper.widths.hk * given / tokens(graph) + scores


def _latent(hyper: Hyper, graph: Graph, n: int, heads: int) -> float:
    keys, tok = hyper.keys, tokens(graph)
    lora, rope = int(keys.get("attention.kv_lora_rank", 0)), int(keys.get("rope.dimension_count", 0))
    layer = hyper.layers[0]
    if not hyper.latent:
        top = heads * (3 * layer.key + 2 * layer.value + layer.key - rope)
        return top if graph.flash else max(top, n * heads + heads * (2 * layer.key + layer.value))
    q = heads * (int(keys.get("attention.key_length_mla", 0)) + 2 * lora + rope) + hyper.embedding + lora
    v = n * graph.slots * lora / (2 * tok)
    v = v if v > heads * lora else 0
    if hyper.family.indexer:
        if graph.flash:
            return max(q + n / 2 + 2 * hyper.embedding, q + 1.5 * n)
        return n * heads + q + n / 2 + hyper.embedding + v
    return q if graph.flash else n * heads + q + v


def host_bytes(hyper: Hyper, graph: Graph, copies: int = 1, hosted: tuple[Layer, ...] = ()) -> int:
    """The host's part beside devices: the inputs again, and what the input layer computes.

    `copies`: of what all devices of a pipeline read; `hosted`: blocks whose cache is written in host memory.
    """
    tok, row = tokens(graph), hyper.family
    newest = graph.engine == NEWEST and row.mixes
    embeddings = 2 * hyper.embedding  # rows of the table, and, as inputs, what is given instead of tokens
    read = inputs(hyper, graph) + 1 - embeddings
    if row.indexer == "keys":
        read += graph.cells.full / 2
    own = embeddings + hyper.deep_inputs * hyper.embedding * (2 if newest else 1)
    own += _per_layer(hyper) if row.per_layer_input and row.per_layer_table else 0
    own += hyper.embedding if hyper.learned_positions or (row.streams and newest) else 0
    written = max((x.kv_heads * (x.key + x.value) for x in hosted), default=0)
    own += max(0, written - (2 if newest else 1) * hyper.embedding)  # it lies where the embeddings were
    size = int(4 * tok * (own + copies * read)) + copies * _side_inputs(hyper, graph, tok)
    return size + _attended(hyper, graph) if graph.attend_on_host else size


def _side_inputs(hyper: Hyper, graph: Graph, tok: int) -> int:
    """Bytes of inputs that few graphs have: rotations of quantized caches, choices of blocks, decays."""
    size = blockwise.input_bytes(hyper, graph, tok) + lightning.input_bytes(hyper, graph, tok)
    if hyper.family.attends_batch or not (quantized(graph.type_k) or quantized(graph.type_v)):
        return size
    for swa in (False, True) if hyper.widths.swa and hyper.window else (None,):
        k, v = rotation_sides(hyper, graph, swa)
        size += 4 * (k * k + v * v)
    return size


def _attended(hyper: Hyper, graph: Graph) -> int:
    """What the host holds to attend for a device: queries, one layer's cache, the result."""
    w, at, tok = hyper.widths, graph.cells, tokens(graph)
    caches = max(
        (row_bytes(graph.type_k, layer.k) + row_bytes(graph.type_v, layer.v)) * (at.swa if layer.swa else at.full)
        for layer in hyper.layers
        if not kernels.has_kernel(hyper, layer)
    )
    return 4 * tok * (w.hk + w.hv) + caches * at.streams


def peak(hyper: Hyper, graph: Graph) -> float:
    """Numbers a token above the inputs at the widest point of a block."""
    feed_forward = _feed_forward(hyper, graph)
    if graph.engine == NEWEST and hyper.family.per_layer_input and hyper.keys.get("altup.num_inputs"):
        feed_forward -= 2 * hyper.embedding  # the rows that its inputs are merged from leave room that is used again
    return max(feed_forward, attention(hyper, graph)) + _streams(hyper, graph)


def _streams(hyper: Hyper, graph: Graph) -> float:
    """Streams of embeddings that blocks mix by hyper connections, and what an indexer beside them scores."""
    scores = 2 * graph.cells.full if hyper.family.indexer else 0
    streams = int(hyper.keys.get("hyper_connection.count", 0))
    return 3 * streams * hyper.embedding + scores if streams else 0


def buffers(hyper: Hyper, graph: Graph, *, on_host: bool = False) -> Buffers:
    """The compute buffer of what holds everything: one device, or the host."""
    if graph.era is not None:
        return Buffers(eras.compute_bytes(hyper, graph.era, graph.cells, tokens(graph), flash=graph.flash), False)
    built = built_bytes(hyper, graph, on_host=on_host)
    if built is not None:
        return Buffers(built, True)
    tok, base = tokens(graph), inputs(hyper, graph)
    if on_host:
        base += hyper.embedding
    size = 4 * tok * (base + peak(hyper, graph))
    if graph.flash and "f32" in (graph.type_k, graph.type_v):
        size = max(size, 4 * tok * (base + 2 * hyper.widths.hk) + _copies(hyper, graph, ("f32",)))
    size = max(size, 4 * graph.slots * (hyper.vocabulary + hyper.embedding))
    if graph.cuda and graph.flash:
        size = max(size, 4 * tok * (base + 2 * hyper.widths.hk) + _copies(hyper, graph))
    return Buffers(int(size), False)


# A plan asks for the same graphs in many of its cells. Keys hold the identity of a model, values the model itself.
_built: dict[tuple[object, ...], tuple[Hyper, int | None]] = {}
_curves: dict[tuple[object, ...], tuple[Hyper, Curve]] = {}


def built_bytes(hyper: Hyper, graph: Graph, *, on_host: bool = False, part: Part | None = None) -> int | None:
    """The buffer by the graph itself (decoder.py), or None."""
    if not hyper.family.built:
        return None
    tok = tokens(graph)
    hosted = part is not None and bool(part.hosted)
    if _frees_masks(hyper, part) or not graph.flash or hosted or (part is not None and not part.blocks):
        return _followed(hyper, graph, tok, on_host, part)
    kinds = _alike(graph.type_k, graph.cuda), _alike(graph.type_v, graph.cuda)
    at, windowed = graph.cells, bool(hyper.widths.swa and hyper.window)
    key = (id(hyper), tok, on_host, part, kinds, graph.slots, at.streams, windowed and at.swa, graph.transposed,
           graph.cuda, graph.engine, graph.attend_on_host)  # fmt: skip
    found = _curves.get(key)
    if found is None or found[0] is not hyper:
        graph = msgspec.structs.replace(graph, type_k=kinds[0], type_v=kinds[1])
        found = _remember(_curves, key, (hyper, _curve(hyper, graph, tok, on_host, part)))
    return found[1].at(at.full)


def _curve(hyper: Hyper, graph: Graph, tok: int, on_host: bool, part: Part | None) -> Curve:
    """The buffer of graphs that differ in their number of cells only."""
    windowed = hyper.widths.swa and hyper.window

    def laid_out(full: int) -> int:
        cells = Cells(full, graph.cells.swa if windowed else full, graph.cells.streams)
        at = msgspec.structs.replace(graph, context=full * graph.slots, cells=cells)
        return exact(hyper, at, tok, on_host=on_host, part=part) or 0

    mask = 2 * tok * (part.copies if part is not None else 1)
    copied = sum(
        width
        for kind, width in ((graph.type_k, hyper.widths.kw_full), (graph.type_v, hyper.widths.vw_full))
        if kind == "f32" or (graph.cuda and kind != "f16")
    )
    slopes = (mask, mask + 2 * graph.cells.streams * copied)
    return Curve(laid_out, (0, *slopes) if graph.attend_on_host else slopes)


def _frees_masks(hyper: Hyper, part: Part | None) -> bool:
    """Whether blocks may lie where a mask was that is read no more: those without attention, or with a window."""
    last = hyper.layers[part.blocks[-1] if part is not None and part.blocks else hyper.blocks - 1]
    return hyper.family.attends_batch or bool(hyper.family.recurrent) or (bool(hyper.window) and last.swa)


def _alike(kind: str, cuda: bool) -> str:
    """One of the cache types whose graphs are laid out alike: plain ones, or those that are stored in blocks."""
    return "q8_0" if quantized(kind) else "f16" if kind == "bf16" and not cuda else kind


def _followed(hyper: Hyper, graph: Graph, tok: int, on_host: bool, part: Part | None) -> int | None:
    """`exact`, remembered."""
    key = (id(hyper), tok, on_host, part, graph)
    found = _built.get(key)
    if found is None or found[0] is not hyper:
        found = _remember(_built, key, (hyper, exact(hyper, graph, tok, on_host=on_host, part=part)))
    return found[1]


def _remember(known: dict[tuple[object, ...], T], key: tuple[object, ...], value: T) -> T:
    if len(known) > 4096:
        known.clear()
    known[key] = value
    return value


def _copies(hyper: Hyper, graph: Graph, kinds: tuple[str, ...] = ()) -> int:
    """Flash attention of CUDA reads f16 only, of all others no f32: one layer's cache is copied, K and V each.

    `kinds`: the types that are copied; none given means all but f16.
    """
    w, at = hyper.widths, graph.cells
    largest = 0
    for k, v, n in ((w.kw_full, w.vw_full, at.full), (w.kw_swa, w.vw_swa, at.swa)):
        copied = [kind in kinds if kinds else kind != "f16" for kind in (graph.type_k, graph.type_v)]
        width = k * copied[0] + v * copied[1]
        largest = max(largest, 2 * n * at.streams * width)
    return largest
