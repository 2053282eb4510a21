"""Compute buffers of every device and of the host, by where the layers lie."""

from __future__ import annotations

from itertools import pairwise

from ollamactl.core.memory import cached, compute, eras, formula, host_buffer, kernels, recurrent, shape
from ollamactl.core.memory.bands import HOSTED, Band, band
from ollamactl.core.memory.builder import Part
from ollamactl.core.memory.graph import OFFLOADED
from ollamactl.core.memory.layout import HOST, Layout
from ollamactl.core.memory.model import Hyper
from ollamactl.core.memory.shape import Graph
from ollamactl.core.memory.terms import Kind, Term

SEVERAL = 1.0  # upper band of an estimated buffer, as a share, where devices copy from each other
COPIES = 4  # of every input, when several devices work as a pipeline


def computes(hyper: Hyper, graph: Graph, layout: Layout, devices: int, handed: bool) -> list[Term]:
    """The compute buffers of every device and of the host. `handed`: devices hand over norms too (Part)."""
    buffers = compute.buffers(hyper, graph, on_host=not devices)
    limits = band(hyper, graph, built=buffers.built) if graph.era is None else eras.band(hyper, graph.era)
    used = set(layout.layers) - {HOST}
    if not devices:
        return [_modelled(HOST, buffers.device, limits, hyper)]
    spilled = layout.spilled > 0
    pipeline = devices > 1 and layout.whole
    if spilled and hyper.family.recurrent not in ("", "delta", "kda"):
        limits = HOSTED
    found = []
    for device in range(devices):
        if device not in used and not (spilled and device == 0):
            continue
        size: int | None = None
        if buffers.built:
            size = _built(hyper, graph, layout, device, pipeline, handed) if devices > 1 or spilled else buffers.device
        if size is None:
            size = _estimated(hyper, graph, layout, device, buffers.device, pipeline, spilled)
        known, less, more = 0, 0, 0
        if len(used) > 1 and not buffers.built:
            more = int(size * SEVERAL)
        elif len(used) > 1:
            known, less, more = _exchanged(hyper, graph, layout, device, COPIES if pipeline else 1)
        if device and spilled and recurrent.attends_for_host(hyper, layout.layers[:-1], device):
            more += int(4 * shape.tokens(graph) * formula.attention(hyper, graph))
        found.append(_modelled(device, size + known, limits, hyper, less, more))
    hosted = (
        tuple(x for x, place in zip(hyper.layers, layout.layers[:-1], strict=False) if place == HOST)
        if HOST in layout.layers
        else ()
    )
    host = host_buffer.host_bytes(hyper, graph, COPIES if pipeline else 1, hosted)
    found.append(Term("compute", HOST, host, "modelled", host // 20, host // 20))
    return found


def _built(hyper: Hyper, graph: Graph, layout: Layout, device: int, pipeline: bool, handed: bool) -> int | None:
    """A device's buffer by the graph of its part. Blocks in host memory are evaluated by the first device."""
    places = layout.layers[:-1]
    hosted = frozenset(i for i, d in enumerate(places) if d == HOST) if device == 0 else frozenset()
    last = len(places) - 1 if graph.slots < OFFLOADED else None  # its few rows are evaluated on the host
    lent = sorted(layout.lent) if device == 0 else []
    part = Part(
        blocks=tuple(i for i, d in enumerate(places) if d == device or (device == 0 and d == HOST)),
        hosted=hosted,
        hosted_experts=frozenset(i for i in lent if places[i] == 0),
        guests=tuple(i for i in lent if places[i] > 0 and i != last),
        output=layout.layers[-1] == device,
        first=device == places[0] or bool(hosted),
        copies=COPIES if pipeline else 1,
        handed=handed,
    )
    return compute.built_bytes(hyper, graph, part=part)


def _estimated(
    hyper: Hyper, graph: Graph, layout: Layout, device: int, full: int, pipeline: bool, spilled: bool
) -> int:
    """The same for architectures whose graph is not built: the formula, and what copies and borrowed weights add."""
    tok = shape.tokens(graph)
    size = full
    if pipeline:
        size = _share(hyper, graph, layout, device, full)
        size += 4 * tok * (hyper.embedding + int(formula.mask(hyper, graph))) * (COPIES - 1)
        size += 4 * tok * hyper.embedding if device == layout.layers[0] else 0
        if not any(d == device for d in layout.layers[:-1]):  # only the output: a row a slot
            size = 4 * graph.slots * (hyper.vocabulary + 2 * hyper.embedding)
    if spilled and device == 0:
        size += _borrowed(hyper, graph, layout)
    return size


def _exchanged(hyper: Hyper, graph: Graph, layout: Layout, device: int, copies: int) -> tuple[int, int, int]:
    """Bytes that a device takes from others beyond its part of the graph, how many less and how many more it may.

    Nodes between two blocks may be evaluated on either side where states or several streams are read. Rows as seen in
    dry loads on two and three devices.
    """
    row, places, token = hyper.family, layout.layers[:-1], 4 * shape.tokens(graph)
    rows = 11 if row.streams else 6 if _reads_others(hyper, places, device) else 0
    width = 0
    for index, pair in enumerate(pairwise(places)):
        if pair[0] != pair[1] and HOST not in pair and device in pair:
            width += recurrent.crossing(hyper, index)[pair.index(device)]
    if row.recurrent not in ("conv", "kda") and recurrent.mixes_devices(hyper, places):
        rows = 8 if row.both else 4 if row.recurrent == "rwkv7" and not row.layer_norm else 2
    if copies == 1:  # inputs give their room back
        return 0, 0, token * (rows * hyper.embedding + width)
    if graph.attend_on_host:  # what it makes of every layer is an input too
        width += sum(
            layer.heads * layer.value
            for layer, place in zip(hyper.layers, places, strict=False)
            if place == device and not kernels.has_kernel(hyper, layer)
        )
    row_bytes = copies * token * hyper.embedding
    return copies * token * width, row_bytes if width else 0, rows * row_bytes


def _share(hyper: Hyper, graph: Graph, layout: Layout, device: int, full: int) -> int:
    """A device that has only the last block computes its feed-forward for the rows that are put out, not for all."""
    if sum(d == device for d in layout.layers[:-1]) != 1 or layout.layers[-2] != device:
        return full
    return int(4 * shape.tokens(graph) * (formula.inputs(hyper, graph) + formula.attention(hyper, graph)))


def _borrowed(hyper: Hyper, graph: Graph, layout: Layout) -> int:
    """What a device borrows for large batches: the largest matrix left on the host is copied over (op offload)."""
    w = hyper.weights
    largest = max(
        (w.largest[i] for i, d in enumerate(layout.layers[:-1]) if d == HOST or i in layout.lent), default=0
    )
    if layout.layers[-1] == HOST:
        largest = max(largest, w.output_largest if graph.slots >= OFFLOADED else 0)
    return largest


def _reads_others(hyper: Hyper, places: tuple[int, ...], device: int) -> bool:
    """Whether a block of a device reads a cache that lies elsewhere."""
    part = Part(tuple(i for i, place in enumerate(places) if place == device))
    return any(cached.keeper(hyper, part, i)[1] for i in part.blocks)


def _modelled(device: int, size: int, limits: Band, hyper: Hyper, less: int = 0, more: int = 0) -> Term:
    """A compute term with its band; `less`, `more`: bytes that the truth may be under or over it besides."""
    kind: Kind = "modelled" if hyper.known else "unknown"
    return Term("compute", device, size, kind, int(size * limits.below) + less, int(size * limits.above) + more)
