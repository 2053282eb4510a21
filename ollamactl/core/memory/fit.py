"""Whether a model fits wholly on the devices, how many layers spill, how many slots fit, and what else would fit.

The rules are those of llama.cpp's own fit (common/fit.cpp): every device shall keep a margin free; if one does not, the
devices are filled from the last layer back to front, dense models by whole layers, mixtures of experts first with all
experts on the host and then with whole blocks from the front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from ollamactl.core.memory.cache import pad
from ollamactl.core.memory.model import Hyper
from ollamactl.core.memory.predict import HOST, Device, Layout, Prediction, Request, predict, refusal, whole

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
    if all(d.free - full.most(i) >= keep for i, d in enumerate(devices)):
        certain = True
        return Fit("fits", 0, layout, full, headroom, certain)
    certain = any(d.free - full.least(i) < keep for i, d in enumerate(devices))
    placed = _place(hyper, request, devices, keep)
    if placed.spilled == 0 and len(devices) == 1:
        placed = full_minus_one(hyper)
    partial = predict(hyper, request, devices, placed)
    if placed.spilled == 0:
        return Fit("fits", 0, placed, partial, _headroom(partial, devices, keep), certain)
    if host_free is not None and partial.least(HOST) > host_free:
        why = f"the host would need {partial.on(HOST) / MiB:.0f} MiB and has {host_free / MiB:.0f}"
        return Fit("cannot load", placed.spilled, placed, partial, _headroom(partial, devices, keep), certain, why)
    return Fit("spills", placed.spilled, placed, partial, headroom, certain)


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
    """Fill the devices from the last to the first, as the engine's fit does; see the module's docstring."""
    experts = any(hyper.weights.experts)
    blocks = hyper.blocks
    all_experts = frozenset(i for i in range(blocks) if hyper.weights.experts[i]) if experts else frozenset()
    counts = [0] * len(devices)

    def layout(of: list[int], host_experts: frozenset[int] = all_experts) -> Layout:
        start = blocks + 1 - sum(of)
        places = [HOST] * start
        for device, number in enumerate(of):
            places += [device] * number
        return Layout(tuple(places), frozenset(i for i in host_experts if places[i] != HOST))

    def holds(of: list[int], device: int, host_experts: frozenset[int] = all_experts) -> bool:
        return predict(hyper, request, devices, layout(of, host_experts)).on(device) <= devices[device].free - keep

    for device in reversed(range(len(devices))):
        unassigned = blocks + 1 - sum(counts)

        def tried(number: int, device: int = device) -> bool:
            trial = counts.copy()
            trial[device] = number
            return holds(trial, device)

        counts[device] = _largest(tried, unassigned)
    if not experts or sum(counts) < blocks + 1:
        return layout(counts)
    return _fill_experts(counts, all_experts, layout, lambda of, hosted: all(holds(of, d, hosted) for d in range(len(devices)) if of[d]))


def _fill_experts(
    counts: list[int],
    hosted: frozenset[int],
    layout: Callable[[list[int], frozenset[int]], Layout],
    holds: Callable[[list[int], frozenset[int]], bool],
) -> Layout:
    """Bring blocks' experts back onto the devices, front to back, as many as fit."""
    order = sorted(hosted)

    def tried(number: int) -> bool:
        return holds(counts, frozenset(order[number:]))

    number = _largest(tried, len(order))
    return layout(counts, frozenset(order[number:]))


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


def largest_slots(
    hyper: Hyper, request_for: Callable[[int], Request], devices: tuple[Device, ...], *, most: int = 256, target: int | None = None, host_free: int | None = None
) -> int:
    """Most slots that stay wholly on the devices; 0 if not even one does. `request_for(slots)` makes the start."""

    def tried(slots: int) -> bool:
        return fit(hyper, request_for(slots), devices, target=target, host_free=host_free).verdict == "fits"

    return _largest(tried, most)


class Alternative(msgspec.Struct, frozen=True):
    """Something else that fits: what to change, what it costs the user, and the fit itself."""

    what: str  # cache q8_0, shorter context, fewer slots, cache q4_0
    request: Request
    cost: str
    fit: Fit


def alternatives(
    hyper: Hyper, request_for: Callable[[int, int, str], Request], wanted: Request, devices: tuple[Device, ...], *, target: int | None = None, host_free: int | None = None
) -> Iterator[Alternative]:
    """Ways to stay on the devices, cheapest for the user first. `request_for(context, slots, cache type)` makes a start.

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
    if now in ("f16", "f32", "bf16") and (found := made("cache q8_0", "almost no loss of quality", wanted.context, wanted.slots, "q8_0")):
        yield found
    step = _largest(lambda n: tried(n * 1024, wanted.slots, now) is not None, max(wanted.context // 1024, 1) - 1)
    if step and (found := made("shorter context", f"{step * 1024} tokens a slot instead of {wanted.context}", step * 1024, wanted.slots, now)):
        yield found
    slots = _largest(lambda n: tried(wanted.context, n, now) is not None, wanted.slots - 1)
    if slots and (found := made("fewer slots", f"{slots} at once instead of {wanted.slots}, the others wait", wanted.context, slots, now)):
        yield found
    if now != "q4_0" and (found := made("cache q4_0", "answers get worse with long contexts", wanted.context, wanted.slots, "q4_0")):
        yield found
