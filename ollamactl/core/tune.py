"""How many slots: a search that asks for few restarts, because one load tells of every smaller number of requests.

A model that is loaded with n slots is measured with 1, 2, 4 … n requests at once. Only its memory, and where it lies,
belong to n alone. Bytes are int, seconds float.
"""

from __future__ import annotations

from collections.abc import Sequence

from ollamactl.core.facts import Record

RESTARTS = 3
GAIN = 0.10  # more tokens/s in all that twice the requests have to bring, or they only wait for each other


class Point(Record, frozen=True, kw_only=True):
    """So many requests at once. Figures are of complete replies only; `failed` counts the others."""

    at_once: int
    first_token: float | None  # the slowest or 95th percentile, as the limit is meant
    rate: float | None  # tokens/s of one request, median
    total_rate: float | None  # tokens/s in all
    failed: int = 0


class Try(Record, frozen=True, kw_only=True):
    """One load with `slots`, and what was measured on it."""

    slots: int
    loaded: bool  # with that number of slots
    resident: bool  # all of it on the GPU; on a host without one: in memory, without swap
    held: int | None = None  # bytes
    points: tuple[Point, ...] = ()
    why: str = ""  # not loaded: in the server's words


class Wish(Record, frozen=True, kw_only=True):
    """What is wanted, and what is predicted. `predicted(n)` = fixed + per_slot·n bytes."""

    most: int  # --max, or the engine's limit
    fixed: int
    per_slot: int
    room: int  # bytes that may be used
    first_token: float | None = None
    rate: float | None = None

    def fits(self, correction: int = 0) -> int:
        """The most slots that fit, 0 if not even one; `correction` bytes more are held than predicted."""
        left = self.room - self.fixed - correction
        return max(0, min(self.most, left // self.per_slot if self.per_slot > 0 else self.most))


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
    """Walks up from one request: stops before the first number that breaks a limit that the user named, fails
    requests, or brings too few tokens/s more than the last."""
    kept: Point | None = None
    for p in sorted(points, key=lambda p: p.at_once):
        broken = breaks(p, wish)
        if broken:
            return Knee(at_once=kept.at_once if kept else p.at_once, why=broken, within=kept is not None)
        if kept is not None and kept.total_rate and p.total_rate is not None:
            needed = 1 + GAIN * min(1.0, (p.at_once - kept.at_once) / kept.at_once)
            if p.total_rate < kept.total_rate * needed:
                more = 100 * (p.total_rate / kept.total_rate - 1)
                why = f"{p.at_once} at once bring {more:+.0f} % tokens/s in all against {kept.at_once}"
                return Knee(at_once=kept.at_once, why=why)
        kept = p
    return Knee(at_once=kept.at_once if kept else 0, why="", within=kept is not None)


def breaks(p: Point, wish: Wish) -> str:
    """Which limit a point breaks; empty for none."""
    if p.failed or p.first_token is None:
        return f"{p.failed or 'all'} of {p.at_once} requests at once failed"
    if wish.first_token is not None and p.first_token > wish.first_token:
        return f"{p.at_once} at once have their first token after {p.first_token:.2f} s, {wish.first_token:g} allowed"
    if wish.rate is not None and p.rate is not None and p.rate < wish.rate:
        return f"{p.at_once} at once have {p.rate:.1f} tokens/s each, {wish.rate:g} wanted"
    return ""


def step(tries: Sequence[Try], wish: Wish) -> Step:
    """What follows from the loads so far; pure, so that the same measurements lead to the same end. At most RESTARTS
    loads are asked for, and nothing is recommended that was not loaded and resident; but one slot, unseen, where no
    number keeps the limits."""
    if not tries:
        first = wish.fits()
        if first == 0:
            return Step(slots=0, done=True, why="not even one slot fits, by the prediction")
        return Step(slots=first, done=False, why=f"the prediction says that {first} fit")
    good = [t for t in tries if t.loaded and t.resident]
    bad = [t.slots for t in tries if not (t.loaded and t.resident)]
    if not good:
        return _lower(tries, wish, min(bad))
    best = max(good, key=lambda t: t.slots)
    found = knee(best.points, wish)
    if not found.within:
        return Step(slots=1, done=True, knee=1, why=f"even one request breaks a limit: {found.why}")
    if found.why:
        return _settle(tries, best, found, wish)
    ceiling = min([wish.most, *(b - 1 for b in bad)])
    more = min(ceiling, wish.fits(_error(best, wish)))
    left = RESTARTS - len(tries)
    if more > best.slots and left > 0:
        why = f"{best.slots} hold less than predicted, and still gain: {more} should fit"
        return Step(slots=more, done=False, why=why)
    limit = "more slots would not fit" if best.slots < wish.most else "no more were asked for"
    return Step(
        slots=best.slots,
        done=True,
        why=f"{best.slots} slots: all of it is resident, and the last doubling still gained; {limit}",
        knee=None,
        reasons=_reasons(best, best.slots),
    )


def _lower(tries: Sequence[Try], wish: Wish, too_many: int) -> Step:
    """Nothing was resident yet: fewer, by what is held beyond the prediction, and half where that is not known."""
    if too_many <= 1:
        return Step(slots=0, done=True, why="not even one slot is resident")
    if len(tries) >= RESTARTS:
        return Step(slots=0, done=True, why=f"{too_many} slots were not resident, and {RESTARTS} loads are spent")
    last = min(tries, key=lambda t: t.slots)
    if len(tries) == RESTARTS - 1:
        return Step(slots=1, done=False, why="the last load is for what is surest: one slot")
    by_error = wish.fits(_error(last, wish)) if last.held is not None else too_many // 2
    slots = max(1, min(by_error or 1, too_many - 1))
    return Step(slots=slots, done=False, why=f"{too_many} were not all resident: {last.why or 'part of it spilled'}")


def _settle(tries: Sequence[Try], best: Try, found: Knee, wish: Wish) -> Step:
    """There is a knee below what is loaded: load exactly so many, if they were not loaded yet, and see it hold."""
    at = next((t for t in tries if t.slots == found.at_once), None)
    if at is not None and at is not best and at.loaded and at.resident:
        again = knee(at.points, wish)  # the same number, on slots of its own
        if again.why and again.within and again.at_once < at.slots:
            return _settle(tries, at, again, wish)
    if at is None and len(tries) < RESTARTS and found.at_once < best.slots:
        return Step(slots=found.at_once, done=False, knee=found.at_once, why=found.why)
    if at is not None and not (at.loaded and at.resident):
        return Step(slots=best.slots, done=True, knee=found.at_once, why=found.why, reasons=_reasons(best, best.slots))
    chosen = at or best
    return Step(
        slots=chosen.slots,
        done=True,
        knee=found.at_once,
        why=found.why,
        reasons=_reasons(chosen, min(found.at_once, chosen.slots)),
    )


def _error(t: Try, wish: Wish) -> int:
    """Bytes held beyond the prediction for that number of slots; negative: fewer."""
    return 0 if t.held is None else t.held - wish.fixed - wish.per_slot * t.slots


def _reasons(t: Try, at_once: int) -> tuple[str, ...]:
    p = next((p for p in t.points if p.at_once == at_once), None)
    if p is None or p.first_token is None:
        return ()
    found = [f"first token {p.first_token:.2f} s with {at_once} at once"]
    if p.total_rate is not None and p.rate is not None:
        found.append(f"{p.total_rate:.0f} tokens/s in all, {p.rate:.1f} each")
    return tuple(found)
