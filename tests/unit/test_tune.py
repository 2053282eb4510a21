"""The search for the number of slots, against machines that are known."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ollamactl.core import tune
from ollamactl.core.tune import Point, Step, Try, Wish

GIB = 1 << 30


class Host(msgspec.Struct, frozen=True):
    """A machine whose every answer is known: bytes by slots, tokens/s by requests at once."""

    memory: int
    fixed: int
    per_slot: int
    alone: float = 40.0  # tokens/s of one request
    knee: float = 8.0  # requests at once up to which batching is nearly free

    def held(self, slots: int) -> int:
        return self.fixed + self.per_slot * slots

    def load(self, slots: int, tell_held: bool = True) -> Try:
        resident = self.held(slots) <= self.memory
        points = tuple(self.point(n) for n in tune.counts(slots)) if resident else ()
        held = self.held(slots) if tell_held else None
        return Try(slots=slots, loaded=True, resident=resident, held=held, points=points)

    def point(self, n: int) -> Point:
        total = self.alone * min(n, self.knee + 0.01 * n)
        return Point(at_once=n, first_token=0.1 * n, rate=total / n, total_rate=total)


LOADS = tune.RESTARTS - 1  # the last restart puts back what was


def wished(most: int, fixed: int, per_slot: int, room: int, **limits: float | None) -> Wish:
    needs = tuple(fixed + per_slot * n for n in range(1, most + 1))
    return Wish(needs=needs, room=room, first=sum(need <= room for need in needs), **limits)


def search(host: Host, wish: Wish, tell_held: bool = True, loads: int = LOADS) -> tuple[Step, list[Try]]:
    tries: list[Try] = []
    while not (step := tune.step(tries, wish, loads - len(tries))).done:
        assert len(tries) < loads, "too many restarts"
        assert 1 <= step.slots <= wish.most
        assert step.slots not in [t.slots for t in tries], "the same load twice"
        tries.append(host.load(step.slots, tell_held))
    return step, tries


def test_the_prediction_is_right_and_every_slot_gains() -> None:
    host = Host(24 * GIB, 6 * GIB, 4 * GIB, knee=100)
    step, tries = search(host, wished(16, 6 * GIB, 4 * GIB, 24 * GIB))
    assert (step.slots, step.knee, [t.slots for t in tries]) == (4, None, [4])
    assert "more slots would not fit" in step.why


def test_beyond_the_knee_slots_only_wait_for_each_other() -> None:
    host = Host(24 * GIB, 6 * GIB, GIB // 4, knee=8)
    step, tries = search(host, wished(64, 6 * GIB, GIB // 4, 24 * GIB))
    assert (step.slots, step.knee, [t.slots for t in tries]) == (8, 8, [64, 8])
    assert "16 at once bring +2 % tokens/s" in step.why
    assert step.reasons == ("first token 0.80 s with 8 at once", "320 tokens/s in all, 40.0 each")


def test_the_knee_is_seen_again_on_slots_of_its_own() -> None:
    wish = wished(8, 0, 1, 100)

    def points(*rates: float) -> tuple[Point, ...]:
        return tuple(Point(at_once=2**n, first_token=0.1, rate=r / 2**n, total_rate=r) for n, r in enumerate(rates))

    many = Try(slots=8, loaded=True, resident=True, points=points(10, 20, 30, 31))
    four = Try(slots=4, loaded=True, resident=True, points=points(10, 20, 21))
    assert tune.step([many], wish, 1).slots == 4
    assert (tune.step([many, four], wish, 1).slots, tune.step([many, four], wish, 1).done) == (2, False)
    two = Try(slots=2, loaded=True, resident=True, points=points(10, 20))
    assert (tune.step([many, four, two], wish, 0).slots, tune.step([many, four, two], wish, 0).done) == (2, True)


def test_named_limits_come_before_throughput() -> None:
    host = Host(24 * GIB, 6 * GIB, GIB, knee=100)
    wish = wished(16, 6 * GIB, GIB, 24 * GIB, first_token=0.5)
    step, _ = search(host, wish)
    assert step.slots == 4 and "8 at once have their first token after 0.80 s, 0.5 allowed" in step.why
    slow = msgspec.structs.replace(wish, first_token=None, rate=50.0)
    step, _ = search(host, slow)
    assert (step.slots, step.done) == (1, True) and "even one request breaks a limit" in step.why


def test_a_prediction_that_is_too_low_is_corrected_by_what_is_held() -> None:
    host = Host(24 * GIB, 10 * GIB, 2 * GIB, knee=100)
    step, tries = search(host, wished(16, 6 * GIB, 2 * GIB, 24 * GIB))
    assert [t.slots for t in tries] == [9, 7] and step.slots == 7


def test_a_prediction_that_is_too_high_leaves_nothing_unused() -> None:
    host = Host(24 * GIB, 6 * GIB, 2 * GIB, knee=100)
    step, tries = search(host, wished(16, 12 * GIB, 2 * GIB, 24 * GIB))
    assert [t.slots for t in tries] == [6, 9] and step.slots == 9


def test_nothing_fits() -> None:
    wish = wished(4, 30 * GIB, GIB, 24 * GIB)
    assert tune.step([], wish, LOADS) == Step(slots=0, done=True, why="not even one slot fits, by the prediction")
    step, tries = search(Host(5 * GIB, 6 * GIB, GIB), wished(4, GIB, GIB, 24 * GIB))
    assert step.slots == 0 and [t.slots for t in tries] == [4, 2] and "the loads are spent" in step.why


def test_one_bad_measurement_is_no_knee() -> None:
    wish = wished(8, 0, 1, 100)

    def knee(*rates: float) -> int:
        points = [Point(at_once=2**n, first_token=0.1, rate=1.0, total_rate=r) for n, r in enumerate(rates)]
        return tune.knee(points, wish).at_once

    assert knee(100, 95, 180, 240) == 8  # two at once were disturbed
    assert knee(100, 95, 115, 120) == 1  # four at once bring 15 %, two doublings ask for 21 %
    assert knee(100, 150, 158, 190) == 8
    assert knee(100, 150, 158, 165) == 2


def test_failed_requests_are_no_gain() -> None:
    wish = wished(4, 0, 1, 100)
    good = [Point(at_once=1, first_token=0.1, rate=9.0, total_rate=9.0)]
    bad = [Point(at_once=2, first_token=0.1, rate=90.0, total_rate=90.0, failed=1)]
    assert tune.knee(good + bad, wish).at_once == 1
    dead = Point(at_once=4, first_token=None, rate=None, total_rate=None)
    assert tune.knee([*good, dead], wish).why == "all of 4 requests at once failed"


def test_what_the_time_limit_cut_is_no_failure_and_not_recommended() -> None:
    wish = wished(8, 0, 1, 100)
    points = (
        Point(at_once=1, first_token=0.1, rate=9.0, total_rate=9.0),
        Point(at_once=2, first_token=0.1, rate=9.0, total_rate=18.0),
        Point(at_once=4, first_token=0.1, rate=9.0, total_rate=36.0, cut=True),
    )
    step = tune.step([Try(slots=8, loaded=True, resident=True, points=points)], wish, 0)
    assert (step.slots, step.knee) == (2, 2)
    assert step.why == "the time limit ended the measurement with 4 at once"


@given(
    memory=st.integers(1, 80),
    fixed=st.integers(1, 20),
    per_slot=st.integers(1, 40),
    fixed_error=st.integers(-5, 5),
    slot_error=st.integers(-8, 8),
    most=st.integers(1, 256),
    knee=st.floats(1, 300),
    ttft=st.one_of(st.none(), st.floats(0.01, 30)),
    tell_held=st.booleans(),
    loads=st.integers(1, 3),
)
def test_whatever_the_machine_few_loads_end_at_what_was_seen_resident(
    memory: int, fixed: int, per_slot: int, fixed_error: int, slot_error: int, most: int, knee: float,
    ttft: float | None, tell_held: bool, loads: int,
) -> None:  # fmt: skip
    host = Host(memory * GIB, fixed * GIB, per_slot * GIB // 8, knee=knee)
    believed = max(0, fixed + fixed_error) * GIB, max(1, per_slot + slot_error) * GIB // 8
    wish = wished(most, *believed, memory * GIB, first_token=ttft)
    step, tries = search(host, wish, tell_held, loads)
    assert len(tries) <= loads
    if step.slots and "even one request" not in step.why:
        seen = max(t.slots for t in tries if t.resident)
        assert step.slots <= seen and any(p.at_once == step.slots for t in tries for p in t.points)
    if step.knee is not None and step.slots:
        assert step.knee <= max(t.slots for t in tries)
