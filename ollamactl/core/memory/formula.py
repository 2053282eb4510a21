"""The widest point of a graph as a formula, in f32 numbers a token, for families whose graph is not followed.

llama.cpp reserves its worst graph before the first request. ggml's allocator reuses memory as soon as a tensor is no
longer needed, so the buffer is what is alive at the widest point of one block: the inputs, which live throughout, and
the larger of the attention, the feed-forward and the recurrent phase with what is still needed beside it ("hole").
The formulas restate what the graphs in src/models/*.cpp keep alive and are checked against dry loads in real engines.
"""

from __future__ import annotations

from ollamactl.core.memory.ggml import quantized
from ollamactl.core.memory.model import OVERLAPPING, Hyper
from ollamactl.core.memory.shape import NEWEST, Graph, tokens


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
    if row.per_layer_input and (pl := per_layer(hyper)):
        e, f = hyper.embedding, w.ff
        if int(hyper.keys.get("altup.num_inputs", 0)):
            return max(3 * f + pl + 7 * e, 3 * pl + 11 * e)
        return max(3 * f + pl + 2 * e, 3 * pl + e + 2 * w.hv)
    return max(phases, default=0)


def per_layer(hyper: Hyper) -> int:
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


def peak(hyper: Hyper, graph: Graph) -> float:
    """Numbers a token above the inputs at the widest point of a block."""
    feed_forward = _feed_forward(hyper, graph)
    if graph.engine == NEWEST and hyper.family.per_layer_input and hyper.keys.get("altup.num_inputs"):
        feed_forward -= 2 * hyper.embedding  # the rows that its inputs are merged from leave room that is used again
    return max(feed_forward, attention(hyper, graph)) + _streams(hyper, graph)


def _streams(hyper: Hyper, graph: Graph) -> float:
    """Streams of embeddings that blocks mix by hyper connections, and what an indexer beside them scores."""
    scores = 2.0 * graph.cells.full if hyper.family.indexer else 0.0
    streams = int(hyper.keys.get("hyper_connection.count", 0))
    if hyper.family.compressed:  # the rows of the window and the compressed ones, put together
        rows = graph.cells.streams * (graph.cells.swa + graph.cells.full // OVERLAPPING)
        scores += rows * hyper.layers[0].k / tokens(graph)
    return 3 * streams * hyper.embedding + scores if streams else 0


def cache_copies(hyper: Hyper, graph: Graph, kinds: tuple[str, ...] = ()) -> int:
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
