"""Whether a model fits wholly on the devices, how many layers spill, how many slots fit, and what else would fit.

The rules are those of llama.cpp's own fit (common/fit.cpp): every device shall keep a margin free; if one does not,
the layers are put where they fit (placement.py). A split that this finds is kept though it may use some of a margin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from ollamactl.core.memory import eras, placement
from ollamactl.core.memory.cache import pad
from ollamactl.core.memory.layout import HOST, Layout, whole
from ollamactl.core.memory.model import Hyper
from ollamactl.core.memory.placement import Slices
from ollamactl.core.memory.predict import predict
from ollamactl.core.memory.request import Device, Request, flash, refusal
from ollamactl.core.memory.terms import Prediction

MiB = 1 << 20
MARGIN = 1024 * MiB  # llama.cpp's --fit-target
Verdict = Literal["fits", "spills", "cannot load"]
End = Callable[[Prediction, int], int]  # Prediction.on, or one end of its bands


class Fit(msgspec.Struct, frozen=True):
    """The answer for one start.

    `spilled`: layers (the output counted) not wholly on a device; `headroom`: bytes that each device has above its
    margin, negative where it lacks; `certain`: the answer holds at both ends of every band.
    """

    verdict: Verdict
    spilled: int
    layout: Layout
    prediction: Prediction
    headroom: tuple[int, ...]
    certain: bool
    why: str = ""


def margin(projector: int = 0, target: int | None = None) -> int:
    """Bytes that each device shall keep free: LLAMA_ARG_FIT_TARGET if set, else 1024 MiB and the projector's size."""
    if target is not None:
        return target
    return pad(projector + MARGIN, MiB) if projector else MARGIN


def reserve(hyper: Hyper, request: Request, devices: tuple[Device, ...]) -> int:
    """Bytes of each device that a release before 0.30 counts as taken when it places layers, though they are not."""
    if request.era is None:
        return 0
    total = request.context * request.slots
    on = flash(hyper, request, devices)
    return eras.reserved(hyper, request.era, total, request.slots, min(request.batch, total), flash=on)


def split(hyper: Hyper, devices: tuple[Device, ...], layers: int | None = None) -> Layout:
    """llama.cpp's own split of all layers: in proportion to each device's free memory (llama_model::load_tensors)."""
    count = hyper.blocks + 1
    if len(devices) == 1:
        return Layout((0,) * count)
    total = float(sum(d.free for d in devices)) or 1.0
    bounds, reached = [], 0.0
    for device in devices:
        reached += device.free
        bounds.append(reached / total)
    places = []
    for layer in range(count):
        share = layer / count
        places.append(next((i for i, bound in enumerate(bounds) if bound > share), len(devices) - 1))
    return Layout(tuple(places))


def fit(
    hyper: Hyper,
    request: Request,
    devices: tuple[Device, ...],
    *,
    host_free: int | None = None,
    target: int | None = None,
) -> Fit:
    """Decide for one start. `host_free`: bytes of host memory available (None: not considered)."""
    refused = refusal(hyper, request)
    if refused is not None:
        layout = whole(hyper, HOST)
        return Fit("cannot load", hyper.blocks + 1, layout, Prediction((), False), (), True, refused.why)
    if not devices:
        return _on_host(hyper, request, host_free)
    keep = margin(request.projector, target) + reserve(hyper, request, devices)
    layout = split(hyper, devices)
    full = predict(hyper, request, devices, layout, projected=True)
    headroom = _headroom(full, devices, keep)
    targets = [d.free - keep for d in devices]
    if _held(_sums(full, Prediction.most, devices), targets):
        loaded = predict(hyper, request, devices, layout)
        return Fit("fits", 0, layout, loaded, _headroom(loaded, devices, keep), True)
    certain = not _held(_sums(full, Prediction.least, devices), targets)
    placed = _place(hyper, request, devices, targets, Prediction.on)
    if placed.whole:  # it may fit, but does it at the upper end of every band?
        placed = _place(hyper, request, devices, targets, Prediction.most)
    partial = predict(hyper, request, devices, placed)
    if placed.whole and _held(_sums(partial, Prediction.on, devices), [d.free for d in devices]):
        return Fit("fits", 0, placed, partial, _headroom(partial, devices, keep), certain)
    shared = [i for i, device in enumerate(devices) if device.unified]
    if host_free is not None and partial.least(HOST) + sum(map(partial.least, shared)) > host_free:
        need = partial.on(HOST) + sum(map(partial.on, shared))
        whose = "host and GPU share memory: together they" if shared else "the host"
        why = f"{whose} would need {_gib(need)} and {'there are' if shared else 'has'} {_gib(host_free)}"
        return Fit("cannot load", placed.spilled, placed, partial, _headroom(partial, devices, keep), certain, why)
    return Fit("spills", max(placed.spilled, 1), placed, partial, headroom, certain)


def _gib(size: int) -> str:
    return f"{size / (1 << 30):,.1f} GiB"


def _held(used: list[int], targets: list[int]) -> bool:
    return all(size <= target for size, target in zip(used, targets, strict=True))


def _sums(prediction: Prediction, end: End, devices: tuple[Device, ...]) -> list[int]:
    """Bytes on each device at one end of the bands."""
    return [end(prediction, index) for index in range(len(devices))]


def _place(hyper: Hyper, request: Request, devices: tuple[Device, ...], targets: list[int], end: End) -> Layout:
    """Where the engine's fit puts the layers, were the memory that of one `end` of the bands."""

    def used(slices: Slices) -> list[int]:
        return _sums(predict(hyper, request, devices, placement.layout(hyper, slices), projected=True), end, devices)

    apart = placement.sparse(hyper) and _surplus_without_experts(hyper, request, devices, targets) > 0
    return placement.layout(hyper, placement.place(hyper, used, targets, experts_apart=apart))


def _headroom(prediction: Prediction, devices: tuple[Device, ...], keep: int) -> tuple[int, ...]:
    return tuple(d.free - keep - prediction.on(i) for i, d in enumerate(devices))


def _on_host(hyper: Hyper, request: Request, host_free: int | None) -> Fit:
    layout = whole(hyper, HOST)
    prediction = predict(hyper, request, (), layout)
    if host_free is not None and prediction.least(HOST) > host_free:
        why = f"it needs {_gib(prediction.on(HOST))} of host memory, {_gib(host_free)} are available"
        return Fit("cannot load", hyper.blocks + 1, layout, prediction, (), prediction.least(HOST) > host_free, why)
    spare = () if host_free is None else (host_free - prediction.on(HOST),)
    return Fit("fits", 0, layout, prediction, spare, True)


def _surplus_without_experts(
    hyper: Hyper, request: Request, devices: tuple[Device, ...], targets: list[int]
) -> int:
    """Bytes left on all devices together when every layer is there but all experts are on the host."""
    hosted = frozenset(i for i, size in enumerate(hyper.weights.experts[: hyper.blocks]) if size)
    prediction = predict(hyper, request, devices, Layout(split(hyper, devices).layers, hosted), projected=True)
    return sum(target - prediction.on(i) for i, target in enumerate(targets))


def _largest(holds: Callable[[int], bool], most: int) -> int:
    """Largest number up to `most` that holds, given that smaller ones hold too; 0 needs no proof."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


class Alternative(msgspec.Struct, frozen=True):
    """Something else that fits: what to change, what it costs the user, and the fit itself."""

    what: str  # cache q8_0, shorter context, fewer slots, cache q4_0
    request: Request
    cost: str
    fit: Fit


def alternatives(
    hyper: Hyper,
    request_for: Callable[[int, int, str], Request],
    wanted: Request,
    devices: tuple[Device, ...],
    *,
    target: int | None = None,
    host_free: int | None = None,
) -> Iterator[Alternative]:
    """Ways to stay on the devices, cheapest for the user first. `request_for(context, slots, cache type)`: a start.

    Order: q8_0 cache (hardly any loss), a shorter context, fewer slots, q4_0 cache (a loss that can be seen).
    """

    def tried(context: int, slots: int, kind: str) -> Fit | None:
        request = request_for(context, slots, kind)
        found = fit(hyper, request, devices, target=target, host_free=host_free)
        return found if found.verdict == "fits" else None

    def made(what: str, cost: str, context: int, slots: int, kind: str) -> Alternative | None:
        found = tried(context, slots, kind)
        return Alternative(what, request_for(context, slots, kind), cost, found) if found else None

    now = wanted.type_k
    if now in ("f16", "f32", "bf16") and (
        found := made("cache q8_0", "almost no loss of quality", wanted.context, wanted.slots, "q8_0")
    ):
        yield found
    step = _largest(lambda n: tried(n * 1024, wanted.slots, now) is not None, max(wanted.context // 1024, 1) - 1)
    if step and (
        found := made(
            "shorter context",
            f"{step * 1024} tokens a slot instead of {wanted.context}",
            step * 1024,
            wanted.slots,
            now,
        )
    ):
        yield found
    slots = _largest(lambda n: tried(wanted.context, n, now) is not None, wanted.slots - 1)
    if slots and (
        found := made(
            "fewer slots", f"{slots} at once instead of {wanted.slots}, the others wait", wanted.context, slots, now
        )
    ):
        yield found
    if now != "q4_0" and (
        found := made("cache q4_0", "answers get worse with long contexts", wanted.context, wanted.slots, "q4_0")
    ):
        yield found
