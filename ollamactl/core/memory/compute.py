"""The compute buffer of what evaluates a graph: by the graph itself where it is followed, else by the formula."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from ollamactl.core.memory import eras
from ollamactl.core.memory.builder import Part
from ollamactl.core.memory.cache import Cells
from ollamactl.core.memory.curve import Curve
from ollamactl.core.memory.decoder import exact
from ollamactl.core.memory.formula import cache_copies, inputs, peak
from ollamactl.core.memory.ggml import quantized
from ollamactl.core.memory.model import Hyper
from ollamactl.core.memory.shape import Graph, tokens

T = TypeVar("T")


class Buffers(msgspec.Struct, frozen=True):
    """Bytes on what holds everything; `built`: by the graph itself, not by a formula."""

    device: int
    built: bool


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
        size = max(size, 4 * tok * (base + 2 * hyper.widths.hk) + cache_copies(hyper, graph, ("f32",)))
    size = max(size, 4 * graph.slots * (hyper.vocabulary + hyper.embedding))
    if graph.cuda and graph.flash:
        size = max(size, 4 * tok * (base + 2 * hyper.widths.hk) + cache_copies(hyper, graph))
    return Buffers(int(size), False)


# A plan asks for the same graphs in many of its cells. Keys hold the identity of a model, values the model itself.
_built: dict[tuple[object, ...], tuple[Hyper, int]] = {}
_curves: dict[tuple[object, ...], tuple[Hyper, Curve]] = {}


def built_bytes(hyper: Hyper, graph: Graph, *, on_host: bool = False, part: Part | None = None) -> int | None:
    """The buffer by the graph itself (decoder.py); None where the builder has no rule for the family, or the file
    lacks a tensor that the family has."""
    if not hyper.family.built:
        return None
    tok = tokens(graph)
    hosted = part is not None and bool(part.hosted)
    bends = _frees_masks(hyper, part) or not graph.flash or hosted or (part is not None and not part.blocks)
    try:
        return (_followed if bends else _by_cells)(hyper, graph, tok, on_host, part)
    except KeyError:
        return None


def _by_cells(hyper: Hyper, graph: Graph, tok: int, on_host: bool, part: Part | None) -> int:
    """`exact` by the curve of graphs like this one, remembered."""
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
        return exact(hyper, at, tok, on_host=on_host, part=part)

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


def _followed(hyper: Hyper, graph: Graph, tok: int, on_host: bool, part: Part | None) -> int:
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
