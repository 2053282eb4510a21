"""The host's part of the compute buffers beside devices, in bytes."""

from __future__ import annotations

from ollamactl.core.memory import blockwise, kernels, lightning
from ollamactl.core.memory.builder import rotation_sides
from ollamactl.core.memory.formula import inputs, per_layer
from ollamactl.core.memory.ggml import quantized, row_bytes
from ollamactl.core.memory.model import Hyper, Layer
from ollamactl.core.memory.shape import NEWEST, Graph, tokens


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
    own += per_layer(hyper) if row.per_layer_input and row.per_layer_table else 0
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
