"""Whether a model fits wholly on the devices, how many layers spill, how many slots fit, and what else would fit.

The rules are those of llama.cpp's own fit (common/fit.cpp): every device shall keep a margin free; if one does not,
the devices are filled from the last layer back to front, dense models by whole layers, mixtures of experts first with
all experts on the host and then with whole blocks from the front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from ollamactl.core.memory.cache import pad
from ollamactl.core.memory.model import Hyper
from ollamactl.core.memory.predict import COPIES, HOST, Device, Layout, Prediction, Request, predict, refusal, whole

MiB = 1 << 20
MARGIN = 1024 * MiB  # llama.cpp's --fit-target
Verdict = Literal["fits", "spills", "cannot load"]


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
    keep = margin(request.projector, target)
    if not devices:
        return _on_host(hyper, request, host_free)
    layout = split(hyper, devices)
    full = predict(hyper, request, devices, layout)
    headroom = _headroom(full, devices, keep)
    beyond = _projected_beyond(hyper, request, layout, devices)
    if all(d.free - full.most(i) - beyond[i] >= keep for i, d in enumerate(devices)):
        certain = True
        return Fit("fits", 0, layout, full, headroom, certain)
    certain = any(d.free - full.least(i) - beyond[i] < keep for i, d in enumerate(devices))
    placed = _place(hyper, request, devices, keep)
    if placed.spilled == 0 and len(devices) == 1:
        placed = full_minus_one(hyper)  # it may fit, but the band says that it need not
    partial = predict(hyper, request, devices, placed)
    if placed.spilled == 0:
        more = _projected_beyond(hyper, request, placed, devices)
        safe = all(d.free - partial.most(i) - more[i] >= keep for i, d in enumerate(devices))
        verdict: Verdict = "fits" if safe else "spills"
        return Fit(verdict, 0 if safe else 1, placed, partial, _headroom(partial, devices, keep), certain)
    if host_free is not None and partial.least(HOST) > host_free:
        why = f"the host would need {partial.on(HOST) / MiB:.0f} MiB and has {host_free / MiB:.0f}"
        return Fit("cannot load", placed.spilled, placed, partial, _headroom(partial, devices, keep), certain, why)
    return Fit("spills", placed.spilled, placed, partial, headroom, certain)


def _projected_beyond(hyper: Hyper, request: Request, layout: Layout, devices: tuple[Device, ...]) -> list[int]:
    """Bytes that the engine's fit projects for a device beyond what it will hold.

    In its dry run the copies of the row that a device takes from the one before are counted twice.
    """
    if len(devices) == 1:
        return [0]
    total = request.context * request.slots
    rows = pad(min(request.batch, pad(total, 256)), request.slots)
    row = COPIES * 4 * rows * hyper.embedding
    places = layout.layers[:-1]
    return [row if device in places and device != places[0] else 0 for device in range(len(devices))]


def full_minus_one(hyper: Hyper) -> Layout:
    """All but the first layer: the smallest spill there is."""
    return Layout((HOST,) + (0,) * hyper.blocks)


def _headroom(prediction: Prediction, devices: tuple[Device, ...], keep: int) -> tuple[int, ...]:
    return tuple(d.free - keep - prediction.on(i) for i, d in enumerate(devices))


def _on_host(hyper: Hyper, request: Request, host_free: int | None) -> Fit:
    layout = whole(hyper, HOST)
    prediction = predict(hyper, request, (), layout)
    if host_free is not None and prediction.least(HOST) > host_free:
        why = f"it needs {prediction.on(HOST) / MiB:.0f} MiB of host memory, {host_free / MiB:.0f} are available"
        return Fit("cannot load", hyper.blocks + 1, layout, prediction, (), prediction.least(HOST) > host_free, why)
    spare = () if host_free is None else (host_free - prediction.on(HOST),)
    return Fit("fits", 0, layout, prediction, spare, True)


def _place(hyper: Hyper, request: Request, devices: tuple[Device, ...], keep: int) -> Layout:
    """Where the engine's fit puts the layers of a model that does not fit wholly; see the module's docstring."""
    last = len(devices) - 1
    blocks = hyper.blocks
    experts = hyper.weights.experts
    sparse = any(experts)
    layers = [0] * len(devices)  # a device: blocks, and on the last one the output
    partial = [0] * len(devices)  # of these, with their experts on the host: the last ones of the device's slice

    def layout(of: list[int], part: list[int]) -> Layout:
        places = [HOST] * (blocks + 1 - sum(of))
        hosted: set[int] = set()
        for device, number in enumerate(of):
            end = len(places) + number - (1 if device == last and number else 0)
            hosted.update(range(end - part[device], end))
            places += [device] * number
        return Layout(tuple(places), frozenset(i for i in hosted if 0 <= i < blocks and experts[i]))

    def holds(device: int, of: list[int], part: list[int]) -> bool:
        trial = layout(of, part)
        more = 0 if trial.spilled else _projected_beyond(hyper, request, trial, devices)[device]
        return predict(hyper, request, devices, trial).on(device) + more <= devices[device].free - keep

    def parts(device: int, number: int) -> int:
        return 0 if not sparse else max(number - 1, 0) if device == last else number

    for device in reversed(range(len(devices))):

        def filled(
            number: int, device: int = device, layers: list[int] = layers, partial: list[int] = partial
        ) -> tuple[list[int], list[int]]:
            of, part = layers.copy(), partial.copy()
            of[device], part[device] = number, parts(device, number)
            return of, part

        number = _largest(_holding(holds, device, filled), blocks + 1 - sum(layers))
        layers, partial = filled(number)
    if not sparse or _surplus_without_experts(hyper, request, devices, keep) <= 0:
        return layout(layers, partial)
    start = next((d for d in range(len(devices)) if all(layers[d:])), last)  # first of the devices with such blocks
    for device in range(start + 1):

        def converted(
            number: int,
            device: int = device,
            start: int = start,
            layers: list[int] = layers,
            partial: list[int] = partial,
        ) -> tuple[list[int], list[int]]:
            of, part, left = layers.copy(), partial.copy(), number
            for other in range(start, len(devices)):
                moved = min(left, part[other])
                of[other] -= moved
                part[other] -= moved
                of[device] += moved
                left -= moved
                if part[other]:
                    break
            return of, part

        number = _largest(_holding(holds, device, converted), sum(partial[start:]))
        layers, partial = converted(number)
        if device != start and layers[start] > (0 if start < last else 1) and partial[start]:
            of, part = layers.copy(), partial.copy()  # at least part of one more layer
            of[start], part[start] = of[start] - 1, part[start] - 1
            of[device], part[device] = of[device] + 1, part[device] + 1
            if holds(device, of, part):
                layers, partial = of, part
        while start < last and not partial[start]:
            start += 1
        if device >= start and not partial[start]:
            break
    return layout(layers, partial)


def _holding(
    holds: Callable[[int, list[int], list[int]], bool], device: int, made: Callable[[int], tuple[list[int], list[int]]]
) -> Callable[[int], bool]:
    """Whether a device holds what `made` makes of a number."""
    return lambda number: holds(device, *made(number))


def _surplus_without_experts(hyper: Hyper, request: Request, devices: tuple[Device, ...], keep: int) -> int:
    """Bytes left on all devices together when every layer is there but all experts are on the host."""
    hosted = frozenset(i for i, size in enumerate(hyper.weights.experts[: hyper.blocks]) if size)
    prediction = predict(hyper, request, devices, Layout(split(hyper, devices).layers, hosted))
    return sum(d.free - keep - prediction.on(i) for i, d in enumerate(devices))


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
