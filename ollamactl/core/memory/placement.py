"""Where the engine's fit puts the layers of a model that does not fit wholly on its devices.

The search of llama.cpp's common/fit.cpp, step by step: devices are filled from the last layer back to front, dense
models by whole layers. Mixtures of experts are filled with all experts in host memory first; blocks are then made
whole from the front as far as they go, and a part of one more is tried. A number of layers is looked for between one
that fits and one that does not, by assuming that memory grows evenly, and the last trial that fits is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from ollamactl.core.memory.layout import HOST, Layout, Overflow
from ollamactl.core.memory.model import Hyper

Fraction = Literal["experts", "attention", "up", "gate"]

# Matrices of a block that lie elsewhere when only this fraction of it is on its device (get_overflow_pattern).
_ELSEWHERE: dict[Fraction, re.Pattern[str]] = {
    "experts": re.compile(r"ffn_(up|down|gate_up|gate)_(ch|)exps"),
    "attention": re.compile(r"ffn_(gate|up|gate_up|down)"),
    "up": re.compile(r"ffn_(gate|gate_up|down)"),
    "gate": re.compile(r"ffn_down"),
}


class Slice(NamedTuple):
    """The layers of one device: how many, and how many of these, the last ones, are there in part only.

    `fraction`: what the first of those keeps, the others keep all but their experts; `to`: where the rest of it lies.
    """

    layers: int = 0
    partial: int = 0
    fraction: Fraction = "experts"
    to: int = HOST

    @property
    def whole(self) -> int:
        return self.layers - self.partial


Slices = tuple[Slice, ...]
Used = Callable[[Slices], list[int]]  # bytes on each device


class _Trial(NamedTuple):
    slices: Slices
    used: list[int]
    start: int = 0  # first device that has partial layers


def layout(hyper: Hyper, slices: Slices) -> Layout:
    """Slices as places of layers. The engine names blocks without experts too: nothing of these lies elsewhere."""
    places = [HOST] * (hyper.blocks + 1 - sum(one.layers for one in slices))
    hosted: set[int] = set()
    overflow = []
    for device, one in enumerate(slices):
        first = len(places) + one.whole
        for index in range(first, min(first + one.partial, hyper.blocks)):
            if index == first and one.fraction != "experts":
                if size := _elsewhere(hyper, index, one.fraction):
                    overflow.append(Overflow(index, one.to, size))
            elif hyper.weights.experts[index]:
                hosted.add(index)
        places += [device] * one.layers
    return Layout(tuple(places), frozenset(hosted), tuple(overflow), any(one.partial for one in slices))


def _elsewhere(hyper: Hyper, index: int, fraction: Fraction) -> int:
    """Bytes of a block that are not where the block is."""
    pattern = _ELSEWHERE[fraction]
    return sum(size for name, size in hyper.block_tensors[index].sizes.items() if pattern.match(name))


def place(hyper: Hyper, used: Used, targets: list[int], *, experts_apart: bool) -> Slices:
    """Slices of all devices, the most that `targets` allow. `experts_apart`: everything but experts fits."""
    filled = _fill(hyper, used, targets)
    return _complete(used, targets, filled).slices if experts_apart else filled.slices


def sparse(hyper: Hyper) -> bool:
    """Whether the engine treats it as a mixture of experts."""
    return hyper.keys.get("expert_count", 0) > 0


def _fill(hyper: Hyper, used: Used, targets: list[int]) -> _Trial:
    """From the last device to the first: as many layers as each takes, those of a mixture without experts."""
    last = len(targets) - 1
    parts = sparse(hyper)

    def given(slices: Slices, device: int, count: int) -> _Trial:
        partial = count - (device == last and count > 0) if parts else 0  # the output is always whole
        return _tried(used, _with(slices, device, Slice(count, partial)))

    found = _tried(used, (Slice(),) * len(targets))
    for device in reversed(range(len(targets))):
        left = hyper.blocks + 1 - sum(one.layers for one in found.slices)
        if not left:
            break
        base = found.slices

        def trial(count: int, device: int = device, base: Slices = base) -> _Trial:
            return given(base, device, count)

        found = _most(trial, found, left, device, targets[device])
    return found


def _complete(used: Used, targets: list[int], found: _Trial) -> _Trial:
    """From the first device on: blocks at the end give way to whole ones in front. The engine looks for these in the
    devices with layers up to the last one, and finds none where that got nothing."""
    last = len(targets) - 1
    if not found.slices[last].layers:
        return found
    start = last
    while start and found.slices[start - 1].layers:
        start -= 1
    found = found._replace(start=start)
    device = 0
    while device <= found.start <= last:
        base = found

        def trial(count: int, device: int = device, base: _Trial = base) -> _Trial:
            return _converted(used, base, device, count)

        found = _most(trial, found, sum(one.partial for one in base.slices), device, targets[device])
        found = _one_more(used, targets, found, device)
        device += 1
    return found


def _converted(used: Used, base: _Trial, device: int, count: int) -> _Trial:
    """`count` partial layers, from the first device that has some on, become whole ones of `device`."""
    slices, start, left = list(base.slices), base.start, count
    while start < len(slices):
        moved = min(left, slices[start].partial)
        slices[start] = slices[start]._replace(
            layers=slices[start].layers - moved, partial=slices[start].partial - moved
        )
        slices[device] = slices[device]._replace(layers=slices[device].layers + moved)
        left -= moved
        if slices[start].partial:
            break
        start += 1
    return _tried(used, tuple(slices), min(start, len(slices) - 1))


def _one_more(used: Used, targets: list[int], found: _Trial, device: int) -> _Trial:
    """A part of one more layer, whose rest lies on the next device or, behind the last, on the host."""
    last, start = len(targets) - 1, found.start
    if start > last or found.slices[start].layers <= (0 if device < last else 1):
        return found
    giving = found.slices[start]
    if not giving.partial and start == device:
        return found
    # Where none is left in part, the engine hands over a whole one all the same, be it the output.
    slices = _with(found.slices, start, giving._replace(layers=giving.layers - 1, partial=max(giving.partial - 1, 0)))
    start += giving.partial == 1 and start != device
    grown = slices[device]._replace(layers=slices[device].layers + 1, partial=slices[device].partial + 1)

    def trial(fraction: Fraction) -> _Trial | None:
        one = grown._replace(fraction=fraction, to=device + 1 if device < last else HOST)
        made = _tried(used, _with(slices, device, one), start)
        held = [made.used[d] < targets[d] for d in (device, device + 1) if d <= last]
        return made if all(held) else None

    up = trial("up")
    if up is not None:
        return trial("gate") or up
    return trial("attention") or found


def _most(trial: Callable[[int], _Trial], low: _Trial, most: int, device: int, target: int) -> _Trial:
    """The trial with the most that fits; `low` is the one with nothing. All of it is tried first."""
    if most <= 0:
        return low
    high = trial(most)
    if high.used[device] <= target:
        return high
    at, end = 0, most
    while end - at > 1:
        rise, room = high.used[device] - low.used[device], (end - at) * (target - low.used[device])
        beyond = room < 0 and -room >= rise  # a negative step is taken for a very large one
        step = end - at - 1 if beyond or rise <= 0 else min(max(room // rise, 1), end - at - 1)
        tested = trial(at + step)
        if tested.used[device] <= target:
            at, low = at + step, tested
        else:
            end, high = at + step, tested
    return low


def _tried(used: Used, slices: Slices, start: int = 0) -> _Trial:
    return _Trial(slices, used(slices), start)


def _with(slices: Slices, device: int, one: Slice) -> Slices:
    return (*slices[:device], one, *slices[device + 1 :])
