"""What a model will hold on each device: weights, caches, recurrent state, compute and output buffers, in bytes."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec

from ollamactl.core.memory import cached, compute, eras, kernels, recurrent
from ollamactl.core.memory.bands import HOSTED, Band, band
from ollamactl.core.memory.builder import Part
from ollamactl.core.memory.cache import Cells, cells, layer_bytes, output_bytes, state_bytes
from ollamactl.core.memory.compute import CURRENT, NEWEST, Graph
from ollamactl.core.memory.eras import Era
from ollamactl.core.memory.ggml import quantized
from ollamactl.core.memory.graph import OFFLOADED
from ollamactl.core.memory.model import Hyper

Kind = Literal["exact", "modelled", "unknown"]
FlashAttention = Literal["auto", "on", "off"]
HOST = -1
SEVERAL = 1.0  # upper band of an estimated buffer, as a share, where devices copy from each other
COPIES = 4  # of every input, when several devices work as a pipeline


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """How a runner is started. `context` is a slot's, in tokens; `batch` is both -b and -ub."""

    context: int
    slots: int = 1
    type_k: str = "f16"
    type_v: str = "f16"
    flash_attention: FlashAttention = "auto"
    batch: int = 512
    engine: str = CURRENT
    era: Era | None = None  # of a release before 0.30
    unified: bool = False
    swa_full: bool = False
    draft_tokens: int = 0  # of speculative decoding with the model's own draft blocks
    projector: int = 0  # bytes of a separate projector file


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A device that can hold layers. `free` and `total` in bytes; `free` after the runner's own context."""

    name: str = "GPU0"
    kind: str = "cuda"  # cuda, rocm, vulkan, metal, other
    free: int = 0
    total: int = 0
    unified: bool = False  # its memory is the host's
    compute_capability: float = 0.0


class Overflow(NamedTuple):
    """So many bytes of a block's matrices lie on another device than the block, or on the host."""

    block: int
    to: int
    bytes: int


class Layout(msgspec.Struct, frozen=True):
    """Where each layer lies: `layers[i]` is the device of block i, the last entry that of the output; HOST is -1.

    `host_experts`: blocks whose expert matrices stay in host memory though the block is on a device.
    `overflow`: blocks of which other parts lie elsewhere. `named`: the engine's fit names parts of blocks, if perhaps
    none that are there; devices do not work as a pipeline then.
    """

    layers: tuple[int, ...]
    host_experts: frozenset[int] = frozenset()
    overflow: tuple[Overflow, ...] = ()
    named: bool = False

    @property
    def devices(self) -> int:
        """How many devices hold something."""
        return len(set(self.layers) - {HOST})

    @property
    def spilled(self) -> int:
        """Layers, the output counted, that are not wholly on a device."""
        return self.layers.count(HOST) + len(self.host_experts) + len(self.overflow)

    @property
    def whole(self) -> bool:
        """Whether every layer is wholly on a device."""
        return not self.spilled and not self.named

    @property
    def lent(self) -> frozenset[int]:
        """Blocks on devices of which matrices lie on the host."""
        return self.host_experts | {one.block for one in self.overflow if one.to == HOST}


class Term(msgspec.Struct, frozen=True):
    """One part of the memory. `below`, `above`: bytes that the truth may be under or over it."""

    name: str  # weights, cache, window cache, indexer cache, recurrent, compute, output, projector
    device: int
    bytes: int
    kind: Kind
    below: int = 0
    above: int = 0


class Prediction(msgspec.Struct, frozen=True):
    """All terms of one start, and what the engine does with flash attention."""

    terms: tuple[Term, ...]
    flash: bool
    notes: tuple[str, ...] = ()

    def on(self, device: int) -> int:
        """Bytes on a device (or the host)."""
        return sum(t.bytes for t in self.terms if t.device == device)

    def most(self, device: int) -> int:
        """Bytes on a device at the upper end of every band."""
        return sum(t.bytes + t.above for t in self.terms if t.device == device)

    def least(self, device: int) -> int:
        """Bytes on a device at the lower end of every band."""
        return sum(t.bytes - t.below for t in self.terms if t.device == device)

    def total(self, name: str | None = None) -> int:
        """Bytes of one term, or of all, over all devices and the host."""
        return sum(t.bytes for t in self.terms if name is None or t.name == name)


class Refused(msgspec.Struct, frozen=True):
    """The engine will not start with this request; `why` in the user's words."""

    why: str


def whole(hyper: Hyper, device: int = 0) -> Layout:
    """Everything on one device (or, with HOST, on the host)."""
    return Layout((device,) * (hyper.blocks + 1))


def refusal(hyper: Hyper, request: Request) -> Refused | None:
    """Why the engine would refuse to create the context, or None (llama_init_from_model)."""
    if request.slots > 256:
        return Refused(f"the engine takes at most 256 slots, not {request.slots}")
    for name in (request.type_k, request.type_v):
        if name not in ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"):
            return Refused(f"the engine does not know the cache type {name}")
    off = request.flash_attention == "off" or not hyper.family.flash_attention
    if quantized(request.type_v) and off and hyper.widths.caches:
        return Refused(f"a {request.type_v} cache needs flash attention")
    if hyper.latent and request.type_k != request.type_v:
        return Refused("latent attention needs the same cache type for keys and values")
    for layer in hyper.layers:
        if quantized(request.type_k) and layer.k and not off and layer.key % 32:
            return Refused(f"heads of {layer.key} cannot be stored as {request.type_k}")
        if quantized(request.type_v) and layer.v and layer.value % 32:
            return Refused(f"heads of {layer.value} cannot be stored as {request.type_v}")
    return None


def flash(hyper: Hyper, request: Request, devices: tuple[Device, ...]) -> bool:
    """Whether flash attention ends up on."""
    if request.flash_attention == "off" or not hyper.family.flash_attention:
        return False
    if request.flash_attention == "on" or quantized(request.type_v):
        return True
    return not any(d.kind == "cuda" and not kernels.has_kernels(hyper) for d in devices)


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
    terms += _computes(hyper, graph, layout, len(devices), projected or not layout.whole)
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


def _computes(hyper: Hyper, graph: Graph, layout: Layout, devices: int, handed: bool) -> list[Term]:
    """The compute buffers of every device and of the host. `handed`: devices hand over norms too (Part)."""
    buffers = compute.buffers(hyper, graph, on_host=not devices)
    limits = band(hyper, graph, built=buffers.built) if graph.era is None else eras.band(hyper, graph.era)
    used = set(layout.layers) - {HOST}
    if not devices:
        return [_modelled(HOST, buffers.device, limits, hyper)]
    spilled = layout.spilled > 0
    pipeline = devices > 1 and layout.whole
    if spilled and hyper.family.recurrent:
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
        found.append(_modelled(device, size + known, limits, hyper, less, more))
    hosted = (
        tuple(x for x, place in zip(hyper.layers, layout.layers[:-1], strict=False) if place == HOST)
        if HOST in layout.layers
        else ()
    )
    host = compute.host_bytes(hyper, graph, COPIES if pipeline else 1, hosted)
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
    tok = compute.tokens(graph)
    size = full
    if pipeline:
        size = _share(hyper, graph, layout, device, full)
        size += 4 * tok * (hyper.embedding + int(compute.mask(hyper, graph))) * (COPIES - 1)
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
    row, places, token = hyper.family, layout.layers[:-1], 4 * compute.tokens(graph)
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
    return int(4 * compute.tokens(graph) * (compute.inputs(hyper, graph) + compute.attention(hyper, graph)))


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
