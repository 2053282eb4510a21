"""What a model will hold on each device: weights, caches, recurrent state, compute and output buffers, in bytes."""

from __future__ import annotations

from ollamactl.core.memory import eras, kernels, recurrent
from ollamactl.core.memory.cache import Cells, cells, layer_bytes, output_bytes, state_bytes
from ollamactl.core.memory.devices import computes
from ollamactl.core.memory.eras import Era
from ollamactl.core.memory.ggml import quantized
from ollamactl.core.memory.layout import HOST, Layout, whole
from ollamactl.core.memory.model import Hyper
from ollamactl.core.memory.request import Device, Request, flash
from ollamactl.core.memory.shape import NEWEST, Graph
from ollamactl.core.memory.terms import Kind, Prediction, Term


def predict(
    hyper: Hyper,
    request: Request,
    devices: tuple[Device, ...],
    layout: Layout | None = None,
    *,
    projected: bool = False,
) -> Prediction:
    """Predict the memory of one start. Without a layout everything lies on the first device, or on the host.

    `projected`: as the engine's own fit sees it, which does not bind norms to the device of their block.
    """
    layout = layout if layout is not None else whole(hyper, 0 if devices else HOST)
    if request.era is not None:
        hyper = eras.seen_by(hyper, request.era)
    total = request.context * request.slots
    on = flash(hyper, request, devices)
    if on and HOST in layout.layers and request.flash_attention == "auto" and not quantized(request.type_v):
        on = not recurrent.loses_flash_attention(hyper, [place == HOST for place in layout.layers[:-1]])
    transposed = request.flash_attention == "off" or not hyper.family.flash_attention
    # A batch whose tokens see each other both ways is not cut to the context.
    seen_both_ways = (
        hyper.family.attends_batch and not hyper.family.recurrent
    ) or not hyper.keys.get("attention.causal", True)
    ubatch = request.batch if seen_both_ways else min(request.batch, total)
    at = _cells(hyper, request, ubatch)
    cuda = any(d.kind == "cuda" for d in devices)
    graph = Graph(
        ubatch,
        total,
        request.slots,
        at,
        on,
        transposed,
        request.type_k,
        request.type_v,
        cuda,
        request.engine,
        on and cuda and not kernels.has_kernels(hyper),
        request.era,
    )
    terms = _weights(hyper, layout)
    terms += _caches(hyper, request, layout, at, transposed)
    terms += computes(hyper, graph, layout, len(devices), projected or not layout.whole)
    terms.append(Term("output", HOST, output_bytes(hyper, request.slots), "exact"))
    if request.projector:
        terms.append(Term("projector", 0 if devices else HOST, request.projector, "exact"))
    notes = () if hyper.known else (f"the architecture {hyper.architecture} is not known: taken for a plain decoder",)
    return Prediction(tuple(terms), on, notes)


def _cells(hyper: Hyper, request: Request, ubatch: int) -> Cells:
    total = request.context * request.slots
    if request.era is not None:
        return eras.cells_of(hyper, request.era, total, request.slots, ubatch)
    return cells(
        total, request.slots, ubatch, hyper.window, unified=request.unified, swa_full=request.swa_full
    )


def _weights(hyper: Hyper, layout: Layout) -> list[Term]:
    w = hyper.weights
    kind: Kind = "exact" if hyper.known else "modelled"
    if layout.devices == 1 and not layout.spilled:
        return [Term("weights", HOST, w.input, kind), Term("weights", layout.layers[0], w.device, kind)]
    sums: dict[int, int] = {HOST: w.input}
    for i, device in enumerate(layout.layers[:-1]):
        at = sums.get(device, w.other if device != HOST else 0)
        if i in layout.host_experts and device != HOST:
            sums[HOST] += w.experts[i]
            at -= w.experts[i]
        sums[device] = (sums[HOST] if device == HOST else at) + w.blocks[i]
    for one in layout.overflow:
        sums[layout.layers[one.block]] -= one.bytes
        sums[one.to] = sums.get(one.to, 0) + one.bytes
    last = layout.layers[-1]
    if last == HOST:
        sums[HOST] += w.output - w.tied  # a tied output is not copied where its original is
    else:
        sums[last] = sums.get(last, 0) + w.output
    return [Term("weights", device, size, kind) for device, size in sorted(sums.items()) if size]


def _caches(hyper: Hyper, request: Request, layout: Layout, at: Cells, transposed: bool) -> list[Term]:
    kind: Kind = "exact" if hyper.known else "unknown"
    sums: dict[tuple[str, int], int] = {}
    if len(set(layout.layers)) == 1:
        pairs = [(layout.layers[0], count, layer) for layer, count in hyper.groups]
    else:  # draft blocks follow the last block of the trunk
        places = layout.layers[:-1] + (layout.layers[-1],) * (len(hyper.layers) - len(layout.layers) + 1)
        pairs = [(place, 1, layer) for place, layer in zip(places, hyper.layers, strict=False)]
    for device, count, layer in pairs:
        if layer.draft and request.engine == NEWEST:
            continue  # the newest engines keep no cache for draft blocks in the main context
        if layer.k or layer.v or layer.cached:
            main, index = layer_bytes(
                hyper, layer, at, request.type_k, request.type_v, transposed=transposed, padded=device != HOST
            )
            name = "window cache" if layer.swa else "cache"
            sums[name, device] = sums.get((name, device), 0) + main * count
            if index:
                sums["indexer cache", device] = sums.get(("indexer cache", device), 0) + index * count
        if layer.r or layer.s:
            size = state_bytes(layer, request.slots, _kept_rows(request))
            sums["recurrent", device] = sums.get(("recurrent", device), 0) + size * count
    return [_cached(name, device, size, kind, request.era) for (name, device), size in sums.items()]


def _kept_rows(request: Request) -> int:
    """Copies of a slot's state beside it: for tokens that may be rolled back, or of an old engine."""
    return request.draft_tokens if request.era is None else eras.state_rows(request.era)


def _cached(name: str, device: int, size: int, kind: Kind, era: Era | None) -> Term:
    if name != "recurrent" or era is None or not era.own:
        return Term(name, device, size, kind)
    return Term(name, device, size, "modelled", int(size * eras.state_band(era)))
