"""The queue's arithmetic, against a simulation that moves from event to event."""

from __future__ import annotations

import heapq
import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollamactl.core import queueing
from ollamactl.core.queueing import Service

MEAN = 10.0


class Run:
    """Requests that arrive at random at `slots`, with at most `queue` waiting; who finds more is refused."""

    def __init__(self, rate: float, slots: int, queue: float, variation: float, count: int, seed: int = 7) -> None:
        rng = random.Random(seed)

        def holds() -> float:
            if variation == 0:
                return MEAN
            shape = 1 / variation**2
            return rng.gammavariate(shape, MEAN / shape)

        free = [0.0] * slots
        starts: list[float] = []  # of those in the queue, in order of arrival
        now = 0.0
        self.waits: list[float] = []
        self.last: list[tuple[float, float]] = []  # (wait, wait and service) of those that took the last place
        self.refused = 0
        for _ in range(count):
            now += rng.expovariate(rate)
            while starts and starts[0] <= now:
                heapq.heappop(starts)
            if len(starts) >= queue and free[0] > now:
                self.refused += 1
                continue
            own = holds()
            begin = max(now, free[0])
            heapq.heapreplace(free, begin + own)
            if begin > now:
                heapq.heappush(starts, begin)
            self.waits.append(begin - now)
            if len(starts) == queue:
                self.last.append((begin - now, begin - now + own))
        self.count = count


def share_below(values: list[float], limit: float) -> float:
    return sum(v <= limit for v in values) / len(values)


# -- how many may wait --


def test_the_guides_rule() -> None:
    """10 s each and 60 s of patience: six a slot, of which one is being served."""
    found = queueing.room(60.0, 4, Service(mean=10.0))
    assert (found.per_slot, found.queue, found.last_wait, found.last_done) == (5, 20, 50.0, 60.0)
    assert found.rate == pytest.approx(0.4)


def test_no_room_where_a_reply_takes_the_patience() -> None:
    for patience in (5.0, 10.0, 19.9):
        found = queueing.room(patience, 4, Service(mean=10.0))
        assert (found.per_slot, found.queue, found.last_wait) == (0, 0, 0.0)


@pytest.mark.parametrize("variation", [0.3, 0.7, 1.0])
@pytest.mark.parametrize("slots", [1, 4, 8])
@pytest.mark.parametrize("share", [0.8, 0.95])
def test_the_last_in_the_queue_is_served_in_time(slots: int, variation: float, share: float) -> None:
    """Eight times as many arrive as can be served, so the queue is full for most of the time."""
    found = queueing.room(100.0, slots, Service(mean=MEAN, variation=variation), share)
    assert found.per_slot >= 1
    run = Run(8 * slots / MEAN, slots, found.queue, variation, 60_000)
    waits, done = [w for w, _ in run.last], [d for _, d in run.last]
    assert len(waits) > 4_000
    assert statistics.fmean(waits) == pytest.approx(found.last_wait, rel=0.06)
    assert share_below(done, 100.0) >= share - 0.02
    assert share - 0.02 <= share_below(done, found.last_done) <= share + 0.05
    # and it is no smaller than need be: with one more a slot, too many come too late
    more = Run(8 * slots / MEAN, slots, found.queue + slots, variation, 60_000)
    assert share_below([d for _, d in more.last], 100.0) < share + 0.025


@given(
    st.floats(0.1, 1000),
    st.integers(1, 64),
    st.floats(0.05, 100),
    st.floats(0, 1.5),
    st.sampled_from([0.5, 0.95, 0.99]),
)
def test_room_grows_with_patience_and_shrinks_with_caution(
    patience: float, slots: int, mean: float, variation: float, share: float
) -> None:
    of = Service(mean=mean, variation=variation)
    found = queueing.room(patience, slots, of, share)
    assert found.queue == found.per_slot * slots <= queueing.MOST + slots
    assert queueing.room(patience * 2, slots, of, share).queue >= found.queue
    assert queueing.room(patience, slots, of, 0.999).queue <= queueing.room(patience, slots, of, 0.6).queue
    assert found.last_wait <= patience or found.queue == 0


# -- arrivals --


@pytest.mark.parametrize("variation", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("slots", "busy"), [(1, 0.5), (1, 0.8), (4, 0.7), (4, 0.9), (16, 0.9)])
def test_the_wait_at_a_rate_of_arrivals(slots: int, busy: float, variation: float) -> None:
    rate = busy * slots / MEAN
    found = queueing.load(rate, slots, Service(mean=MEAN, variation=variation))
    run = Run(rate, slots, math.inf, variation, 150_000)
    mean = statistics.fmean(run.waits)
    # exact for one slot and for variation 1; elsewhere an approximation of two moments
    assert mean == pytest.approx(found.wait, rel=0.13)
    assert found.waiting == pytest.approx(rate * mean, rel=0.13)
    if variation == 1.0:
        assert sum(w > 0 for w in run.waits) / len(run.waits) == pytest.approx(found.chance, rel=0.05)


def test_more_than_can_be_served_never_ends() -> None:
    for rate in (0.4, 0.5):
        found = queueing.load(rate, 4, Service(mean=10.0))
        assert (found.wait, found.waiting, found.chance) == (math.inf, math.inf, 1.0)
    assert queueing.load(0.39, 4, Service(mean=10.0)).wait < math.inf


def test_erlangs_own_tables() -> None:
    """C(1, a) = a; C(2, 1) = 1/3; 10 servers at 8 erlang 0.4092; 100 at 90 0.2169."""
    assert queueing.erlang_c(1, 0.3) == pytest.approx(0.3)
    assert queueing.erlang_c(2, 1.0) == pytest.approx(1 / 3)
    assert queueing.erlang_c(10, 8.0) == pytest.approx(0.4092, abs=5e-4)
    assert queueing.erlang_c(100, 90.0) == pytest.approx(0.2169, abs=5e-4)


@pytest.mark.parametrize(("patience", "rate"), [(60.0, 0.5), (25.0, 1.0), (12.0, 0.3)])
def test_the_fewest_slots_for_a_rate(patience: float, rate: float) -> None:
    of = Service(mean=MEAN, variation=1.0)
    found = queueing.slots_for(rate, of, patience)
    assert found is not None and found > 1

    def refused(slots: int) -> float:
        run = Run(rate, slots, queueing.room(patience, slots, of).queue, 1.0, 100_000)
        return run.refused / run.count

    assert refused(found) <= 0.055
    assert refused(found - 1) > 0.045
    assert queueing.slots_for(500.0, of, patience, most=64) is None


@pytest.mark.parametrize(("slots", "queue", "busy"), [(1, 0, 0.8), (2, 3, 0.9), (4, 8, 1.5), (8, 2, 3.0)])
def test_a_queue_with_an_end_turns_away(slots: int, queue: int, busy: float) -> None:
    rate = busy * slots / MEAN
    found = queueing.with_limit(rate, slots, queue, Service(mean=MEAN, variation=1.0))
    run = Run(rate, slots, queue, 1.0, 150_000)
    assert found.refused == pytest.approx(run.refused / run.count, abs=0.01)
    assert found.wait == pytest.approx(statistics.fmean(run.waits), rel=0.06, abs=0.01)
    assert found.served == pytest.approx(rate * (1 - found.refused))


def test_a_demand_that_slots_meet_or_do_not() -> None:
    of = Service(mean=MEAN, variation=0.3, samples=20)
    alone = queueing.demand(60.0, 4, of)
    assert alone.met and (alone.load, alone.turned, alone.needed, alone.paged) == (None, None, None, None)
    light = queueing.demand(60.0, 4, of, rate=0.2, fits=8, context=8192, lengths=[500] * 9)
    assert light.met and light.load and light.load.busy == 0.5 and light.turned and light.turned.refused < 0.01
    heavy = queueing.demand(60.0, 4, of, rate=2.0, fits=8, context=8192, lengths=[500] * 9)
    assert not heavy.met and heavy.needed and heavy.needed > 8
    assert heavy.load and heavy.load.wait == math.inf and heavy.turned and heavy.turned.refused > 0.7
    assert heavy.paged and heavy.paged.sequences == 4 * 8192 // 512 and heavy.paged.worth_it


# -- measured times --


def test_service_from_what_was_measured() -> None:
    rng = random.Random(3)
    found = queueing.service([rng.gammavariate(4.0, 2.5) for _ in range(50_000)])
    assert found is not None
    assert (found.mean, found.variation) == (pytest.approx(10.0, rel=0.02), pytest.approx(0.5, rel=0.03))
    assert queueing.service([]) is None and queueing.service([0.0]) is None
    one = queueing.service([3.0])
    assert one and (one.mean, one.variation) == (3.0, 0.0)


def test_the_normal_quantile() -> None:
    normal = statistics.NormalDist()
    for share in (0.001, 0.01, 0.02, 0.03, 0.3, 0.5, 0.8, 0.95, 0.99, 0.999):
        assert queueing.quantile(share) == pytest.approx(normal.inv_cdf(share), abs=1e-7)
    for share in (0.0, 1.0, -1.0):
        with pytest.raises(ValueError):
            queueing.quantile(share)


# -- pages --


@pytest.mark.parametrize("share", [0.8, 0.95])
def test_as_many_sequences_as_pages_hold(share: float) -> None:
    rng = random.Random(4)
    lengths = [int(rng.gammavariate(2.0, 400)) for _ in range(2_000)]
    found = queueing.paged(8, 8192, lengths, share)
    assert found is not None and found.worth_it and found.sequences > 16

    def fits(n: int) -> float:
        tries = 2_000
        taken = (sum(math.ceil(max(1, rng.choice(lengths)) / 16) * 16 for _ in range(n)) for _ in range(tries))
        return sum(t <= 8 * 8192 for t in taken) / tries

    assert fits(found.sequences) >= share - 0.025
    assert fits(round(found.sequences * 1.1)) < share


def test_full_contexts_gain_nothing_from_pages() -> None:
    found = queueing.paged(4, 8192, [8192] * 50)
    assert found and (found.sequences, found.worth_it, found.tokens_each) == (4, False, 8192)
    assert queueing.paged(4, 8192, []) is None
