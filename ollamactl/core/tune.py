"""How many slots: a search that asks for few restarts, because one load tells of every smaller number of requests.

A model that is loaded with n slots is measured with 1, 2, 4 … n requests at once. Only its memory, and where it lies,
belong to n alone. Bytes are int, seconds float.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ollamactl.core.capacity import Budget
from ollamactl.core.facts import Record
from ollamactl.core.memory.layout import HOST
from ollamactl.core.memory.runner_args import Settings
from ollamactl.core.sizing import Cell, Model, args_for, settings_for, start, taken, together

RESTARTS = 3  # of the service at most, the one that puts it back (or applies what is recommended) among them
GAIN = 0.10  # more tokens/s in all that twice the requests have to bring, or they only wait for each other


class Point(Record, frozen=True, kw_only=True):
    """So many requests at once. Figures are of complete replies only; `failed` counts the others."""

    at_once: int
    first_token: float | None  # the slowest or 95th percentile, as the limit is meant
    rate: float | None  # tokens/s of one request, median
    total_rate: float | None  # tokens/s in all
    failed: int = 0
    cut: bool = False  # the time limit ended it before all requests were answered


class Try(Record, frozen=True, kw_only=True):
    """One load with `slots`, and what was measured on it."""

    slots: int
    loaded: bool  # with that number of slots
    resident: bool  # all of it on the GPU; on a host without one: in memory, without swap
    held: int | None = None  # bytes
    points: tuple[Point, ...] = ()
    why: str = ""  # not loaded: in the server's words


class Wish(Record, frozen=True, kw_only=True):
    """What is wanted, and what is predicted: `needs[n - 1]` bytes with n slots, of `room` bytes that may be used."""

    needs: tuple[int, ...]  # as long as there may be slots: --max, or what the engine or the family allows
    room: int
    first: int  # the most slots that fit, by the prediction
    first_token: float | None = None
    rate: float | None = None

    @property
    def most(self) -> int:
        return len(self.needs)

    def fits(self, correction: int = 0) -> int:
        """The most slots that fit, 0 if not even one; `correction` bytes more are held than predicted."""
        if correction == 0:
            return self.first
        return max((n for n, need in enumerate(self.needs, 1) if need + correction <= self.room), default=0)


def forecast(
    model: Model,
    others: Sequence[Model],
    settings: Settings,
    budget: Budget,
    most: int,
    first_token: float | None = None,
    rate: float | None = None,
) -> tuple[Wish, tuple[Cell, ...]]:
    """What is predicted with 1 … `most` slots, the other loaded models beside it with as many each. `budget`: with
    none of them loaded. A family that Ollama gives one slot has one."""
    cells: list[Cell] = []
    needs: list[int] = []
    first = room = 0
    for slots in range(1, most + 1):
        beside, left = together(others, settings, budget, slots), budget
        for one in beside:
            left = left.without(taken(one, left), one.fit.prediction.on(HOST) if not one.places else 0)
        cell = start(model, args_for(model, settings_for(model, settings, parallel=slots), left), left, slots)
        if cell.args.slots < slots:
            break
        here = cell.room if cell.room is not None else 1 << 62
        room = room or here
        cells.append(cell)
        needs.append(cell.need + room - here)  # what the others take more is as if this model did
        if cell.fits and all(one.fits for one in beside):
            first = slots
    return Wish(needs=tuple(needs), room=room, first=first, first_token=first_token, rate=rate), tuple(cells)


class Step(Record, frozen=True, kw_only=True):
    """What to do next: load with `slots` (and measure), or, when `done`, recommend them. 0: nothing can be."""

    slots: int
    done: bool
    why: str
    knee: int | None = None
    reasons: tuple[str, ...] = ()


def counts(slots: int) -> tuple[int, ...]:
    """Numbers of requests at once to measure with: powers of two, and all slots."""
    found = [n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256) if n < slots]
    return (*found, slots)


class Knee(Record, frozen=True, kw_only=True):
    """The most requests at once that are worth having, and why no more."""

    at_once: int
    why: str  # empty: everything that was measured is worth having
    within: bool = True  # even one request keeps the limits


def knee(points: Sequence[Point], wish: Wish) -> Knee:
    """Walks up from one request: stops before the first number that breaks a limit that the user named or fails
    requests, and at the number beyond which no other brings enough tokens/s more. One number that was measured badly
    does not end it: a larger one that gains enough against the last that did is worth having."""
    kept: Point | None = None
    poor: Point | None = None  # the first beyond `kept` that gains too little
    for p in sorted(points, key=lambda p: p.at_once):
        broken = breaks(p, wish)
        if broken and poor is None:
            return Knee(at_once=kept.at_once if kept else p.at_once, why=broken, within=kept is not None)
        if broken:
            break
        if kept is None or gains(kept, p):
            kept, poor = p, None
        elif poor is None:
            poor = p
    if kept is None or poor is None:
        return Knee(at_once=kept.at_once if kept else 0, why="", within=kept is not None)
    more = 100 * ((poor.total_rate or 0.0) / (kept.total_rate or 1.0) - 1)
    return Knee(
        at_once=kept.at_once, why=f"{poor.at_once} at once bring {more:+.0f} % tokens/s in all against {kept.at_once}"
    )


def gains(less: Point, more: Point) -> bool:
    """Whether more requests at once bring enough tokens/s: GAIN for each doubling, less for less than one."""
    if not less.total_rate or more.total_rate is None:
        return True
    times = more.at_once / less.at_once
    needed = (1 + GAIN) ** math.log2(times) if times >= 2 else 1 + GAIN * (times - 1)
    return more.total_rate >= less.total_rate * needed


def breaks(p: Point, wish: Wish) -> str:
    """Which limit a point breaks; empty for none."""
    if p.cut:
        return f"the time limit ended the measurement with {p.at_once} at once"
    if p.failed or p.first_token is None:
        return f"{p.failed or 'all'} of {p.at_once} requests at once failed"
    if wish.first_token is not None and p.first_token > wish.first_token:
        return f"{p.at_once} at once have their first token after {p.first_token:.2f} s, {wish.first_token:g} allowed"
    if wish.rate is not None and p.rate is not None and p.rate < wish.rate:
        return f"{p.at_once} at once have {p.rate:.1f} tokens/s each, {wish.rate:g} wanted"
    return ""


def step(tries: Sequence[Try], wish: Wish, left: int) -> Step:
    """What follows from the loads so far, with `left` more of them to spend; pure, so that the same measurements lead
    to the same end. Nothing is recommended that was not loaded and resident, but for two: fewer slots than a load that
    was, at which the requests at once were measured; and one slot, where no number keeps the limits."""
    if not tries:
        first = wish.fits()
        if first == 0:
            return Step(slots=0, done=True, why="not even one slot fits, by the prediction")
        return Step(slots=first, done=False, why=_predicted(first, wish))
    good = [t for t in tries if t.loaded and t.resident]
    bad = [t.slots for t in tries if not (t.loaded and t.resident)]
    if not good:
        return _lower(tries, wish, min(bad), left)
    best = max(good, key=lambda t: t.slots)
    found = knee(best.points, wish)
    if not found.within:
        return Step(slots=1, done=True, knee=1, why=f"even one request breaks a limit: {found.why}")
    if found.why:
        return _settle(tries, best, found, wish, left)
    ceiling = min([wish.most, *(b - 1 for b in bad)])
    more = min(ceiling, wish.fits(_error(best, wish)))
    if more > best.slots and left > 0:
        why = f"{best.slots} hold less than predicted, and still gain: {more} should fit"
        return Step(slots=more, done=False, why=why)
    limit = "more slots would not fit" if best.slots < wish.most else "more were not to be tried"
    return Step(
        slots=best.slots,
        done=True,
        why=f"with {best.slots} all of it is resident, and each doubling of the requests still gained; {limit}",
        knee=None,
        reasons=_reasons(best, best.slots),
    )


def _predicted(first: int, wish: Wish) -> str:
    fit = f"{first} fit{'s' * (first == 1)}"
    return f"by the prediction {fit}" + (", and more are not to be tried" if first == wish.most else "")


def _lower(tries: Sequence[Try], wish: Wish, too_many: int, left: int) -> Step:
    """Nothing was resident yet: fewer, by what is held beyond the prediction, and half where that explains nothing."""
    if too_many <= 1:
        return Step(slots=0, done=True, why="not even one slot is resident")
    if left <= 0:
        return Step(slots=0, done=True, why=f"{too_many} slots were not resident, and the loads are spent")
    last = min(tries, key=lambda t: t.slots)
    slots = max(1, wish.fits(_error(last, wish)))
    if slots >= too_many:
        slots = too_many // 2
    return Step(slots=slots, done=False, why=f"{too_many} were not all resident: {last.why or 'part of it spilled'}")


def _settle(tries: Sequence[Try], best: Try, found: Knee, wish: Wish, left: int) -> Step:
    """There is a knee below what is loaded: load exactly so many, if they were not loaded yet, and see it hold."""
    at = next((t for t in tries if t.slots == found.at_once), None)
    if at is not None and at is not best and at.loaded and at.resident:
        again = knee(at.points, wish)  # the same number, on slots of its own
        if again.why and again.within and again.at_once < at.slots:
            return _settle(tries, at, again, wish, left)
    if at is None and left > 0 and found.at_once < best.slots:
        return Step(slots=found.at_once, done=False, knee=found.at_once, why=found.why)
    if at is not None and not (at.loaded and at.resident):
        return Step(slots=best.slots, done=True, knee=found.at_once, why=found.why, reasons=_reasons(best, best.slots))
    return Step(
        slots=found.at_once,
        done=True,
        knee=found.at_once,
        why=found.why,
        reasons=_reasons(at or best, found.at_once),
    )


def _error(t: Try, wish: Wish) -> int:
    """Bytes held beyond the prediction for that number of slots; negative: fewer."""
    return 0 if t.held is None else t.held - wish.needs[t.slots - 1]


def _reasons(t: Try, at_once: int) -> tuple[str, ...]:
    p = next((p for p in t.points if p.at_once == at_once), None)
    if p is None or p.first_token is None:
        return ()
    found = [f"first token {p.first_token:.2f} s with {at_once} at once"]
    if p.total_rate is not None and p.rate is not None:
        found.append(f"{p.total_rate:.0f} tokens/s in all, {p.rate:.1f} each")
    return tuple(found)
