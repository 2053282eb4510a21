"""Served, queued, refused: judged as the recordings of a real server show it."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollamactl.core import prompts
from ollamactl.core.judge import Among, among, judge, phase
from ollamactl.core.measure import Baseline, Judged, Reply, Sample, Sent, baseline, percentile, stat

# Bursts at a real Ollama 0.33.0-rc2: each request [number, sent at, status, first byte, total, its last object],
# each sample of /slots [at, slots, busy].
BURSTS = json.loads((Path(__file__).resolve().parents[1] / "data" / "probe_bursts.json").read_text())
ALONE = Baseline(requests=3, first=0.05, first_max=0.06, wait_max=0.003)


def recorded(scenario: str) -> tuple[list[Sent], list[Sample]]:
    sent = []
    for number, at, status, first, total, last in BURSTS[scenario]["requests"]:
        reply = None
        if status == 200 and "total_duration" in last:  # else: broken off
            ns = {k: v / 1e9 for k, v in last.items() if k.endswith("_duration")}
            reply = Reply(
                total=ns["total_duration"],
                load=ns["load_duration"],
                prompt=ns["prompt_eval_duration"],
                generation=ns["eval_duration"],
                tokens=last["eval_count"],
            )
        sent.append(
            Sent(
                number=number,
                at=at,
                end=at + total,
                first=at + first if status == 200 else None,
                status=status,
                tokens=reply.tokens if reply else 0,
                reply=reply,
                error=last.get("error", ""),
            )
        )
    samples = [Sample(asked=t, answered=t, slots=n, busy=busy) for t, n, busy in BURSTS[scenario]["samples"]]
    return sent, samples


def counts(judged: list[Judged]) -> dict[str, int]:
    return {r: sum(j.result == r for j in judged) for r in ("served", "queued", "rejected")}


CASES = [
    ("04a-queue2-12conc-warm", {"served": 1, "queued": 11, "rejected": 0}),
    ("04b-queue2-12conc-cold", {"served": 1, "queued": 2, "rejected": 9}),
    ("04c-queue0-12conc-cold", {"served": 1, "queued": 0, "rejected": 11}),
    ("05a-parallel4-8conc", {"served": 4, "queued": 4, "rejected": 0}),
    ("05b-parallel1-8conc", {"served": 1, "queued": 7, "rejected": 0}),
    ("05c-parallel4-8conc-cold", {"served": 4, "queued": 4, "rejected": 0}),
]


@pytest.mark.parametrize(("scenario", "expected"), CASES)
def test_recorded_bursts_by_slots(scenario: str, expected: dict[str, int]) -> None:
    sent, samples = recorded(scenario)
    judged = [judge(s, ALONE, among(sent, samples)) for s in sent]
    assert counts(judged) == expected
    assert {j.proof for j in judged if j.result == "queued"} <= {"slots"}
    assert all(j.why == "the load queue was full (OLLAMA_MAX_QUEUE)" for j in judged if j.result == "rejected")


@pytest.mark.parametrize(("scenario", "expected"), CASES)
def test_recorded_bursts_by_time_alone(scenario: str, expected: dict[str, int]) -> None:
    sent, _ = recorded(scenario)
    judged = [judge(s, ALONE, among(sent)) for s in sent]
    assert counts(judged) == expected
    assert all(j.proof == "time" for j in judged if j.result in ("served", "queued"))


def test_the_wait_is_what_the_reply_spent_on_nothing_else() -> None:
    sent, samples = recorded("05b-parallel1-8conc")
    ordered = sorted((judge(s, ALONE, among(sent, samples)) for s in sent), key=lambda j: j.wait or 0.0)
    runs = [j.sent.reply.prompt + j.sent.reply.generation for j in ordered if j.sent.reply]
    waits = [j.wait or 0.0 for j in ordered]
    for n in range(1, 8):  # one slot: each waits for all before it
        assert waits[n] == pytest.approx(sum(runs[:n]), rel=0.1)


def answered(wait: float, *, at: float = 0.0, status: int = 200, **more: Any) -> Sent:
    reply = Reply(total=wait + 0.5, prompt=0.05, generation=0.45, tokens=10)
    fields = {"first": at + wait + 0.06, "end": at + wait + 0.5, "reply": reply, "tokens": 10} | more
    return Sent(number=0, at=at, status=status, **fields)


def test_time_after_the_last_token_is_no_wait_before_the_first() -> None:
    slow_end = answered(0.0, reply=Reply(total=1.5, prompt=0.05, generation=0.45, tokens=10), end=1.5)
    busy = [Sample(asked=t, answered=t, slots=1, busy=1) for t in (0.02, 0.3, 0.9)]
    assert judge(slow_end, ALONE, among([slow_end], busy)).result == "served"


def test_a_free_slot_means_served_however_late() -> None:
    free = [Sample(asked=t / 10, answered=t / 10, slots=4, busy=3) for t in range(10)]
    late = answered(0.9)
    assert judge(late, ALONE, among([late], free)).result == "served"
    full = [Sample(asked=t / 10, answered=t / 10, slots=4, busy=4) for t in range(10)]
    found = judge(late, ALONE, among([late], full))  # others held them
    assert (found.result, found.proof) == ("queued", "slots")


def test_who_holds_a_slot_before_any_is_given_back_met_a_free_one() -> None:
    """Of a burst whose prompts are read one after the other: the only sample in between lies at its very beginning."""
    beside = [answered(0.06, at=0.026) for _ in range(4)]
    samples = [Sample(asked=at, answered=at, slots=4, busy=busy) for at, busy in ((0.001, 0), (0.03, 1), (0.104, 4))]
    waiting = [answered(0.96, at=0.026) for _ in range(4)]
    of_all = among([*beside, *waiting], samples)
    assert {(j.result, j.proof) for j in (judge(one, ALONE, of_all) for one in beside)} == {("served", "slots")}


def test_full_slots_alone_are_no_queue() -> None:
    """The request holds one of them itself."""
    full = [Sample(asked=t / 100, answered=t / 100, slots=4, busy=4) for t in range(100)]
    assert judge(answered(0.004), ALONE, among([answered(0.004)], full)).result == "served"


def test_without_durations_the_first_token_tells() -> None:
    bare = Reply(total=0.0)
    assert judge(answered(0.0, reply=bare, first=2.0, end=3.0), ALONE, Among()).result == "queued"
    assert judge(answered(0.0, reply=bare, first=0.09, end=3.0), ALONE, Among()).result == "served"


def test_by_time_alone_a_slot_has_to_be_given_back_first() -> None:
    """Four at once on four slots: prompts that are read one after the other are no queue."""
    four = [answered(0.06 * n, first=0.06 * n + 0.06) for n in range(4)]
    fifth = answered(0.6, first=0.66)
    results = [judge(s, ALONE, among([*four, fifth])).result for s in (*four, fifth)]
    assert results == ["served"] * 4 + ["queued"]
    assert judge(answered(5.0), ALONE, among([answered(5.0)])).result == "queued"  # others held the slot


def crowded(seed: int, clients: int, slots: int, every: float) -> tuple[list[Sent], list[Sample], list[str]]:
    """A burst at a machine with too few cores: requests are taken in any order and up to a second late, their prompts
    are read one after the other, and the runner is asked every so many seconds. And what became of each."""
    rng = random.Random(seed)
    coming = sorted((rng.uniform(0, 1), n) for n in range(clients))
    free, reading = [0.0] * slots, 0.0
    sent, held, truth = [], [], [""] * clients
    for comes, n in coming:
        begin = max(comes, min(free))
        truth[n] = "queued" if begin > comes else "served"
        prompt, generation = rng.uniform(0.1, 0.4), rng.uniform(1.5, 3)
        reading = max(begin, reading) + prompt
        end = reading + generation
        free[free.index(min(free))] = end
        held.append((begin, end))
        reply = Reply(total=end, prompt=prompt, generation=generation, tokens=2)
        sent.append(Sent(number=n, at=0.0, end=end, first=reading, arrivals=(reading, end), status=200, reply=reply))
    samples, at = [], rng.uniform(0, every)
    while at < max(free):
        seen = at + rng.uniform(0, every / 2)
        busy = sum(begin <= seen < end for begin, end in held)
        samples.append(Sample(asked=at, answered=at + every / 2, slots=slots, busy=busy))
        at += every / 2 + rng.uniform(0, every)
    return sent, samples, truth


@pytest.mark.parametrize("every", [0.05, 0.4, 1.2])
@pytest.mark.parametrize(("clients", "slots"), [(1, 1), (4, 4), (8, 4), (8, 1), (5, 4), (16, 3), (3, 8)])
def test_a_busy_machine_makes_nobody_queue(clients: int, slots: int, every: float) -> None:
    """A prompt that waits for others to be read holds a slot: full slots are then full with itself."""
    base = Baseline(requests=3, first=0.3, first_max=0.45, wait_max=0.02)
    for seed in range(20):
        sent, samples, truth = crowded(seed, clients, slots, every)
        others = among(sent, samples)
        assert [judge(s, base, others).result for s in sent] == [truth[s.number] for s in sent], seed


@pytest.mark.parametrize(
    ("status", "error", "why"),
    [
        (503, "server busy, please try again.  maximum pending requests exceeded", "OLLAMA_MAX_QUEUE"),
        (503, "", "HTTP 503"),
        (503, "server busy, please try again: all places before it are taken", "all places before it are taken"),
        (429, "too many requests", "too many requests"),
    ],
)
def test_refusals_name_who_refused(status: int, error: str, why: str) -> None:
    found = judge(Sent(number=0, at=0.0, end=0.1, status=status, error=error, ended_by="error"), ALONE, Among())
    assert found.result == "rejected" and why in found.why


def test_who_gives_up_in_the_queue_and_who_mid_stream() -> None:
    full = [Sample(asked=t / 10, answered=t / 10, slots=1, busy=1) for t in range(20)]
    two = [Sent(number=0, at=0.0, end=1.0, ended_by="timeout"),
           Sent(number=1, at=0.0, end=1.0, first=0.4, status=200, ended_by="timeout")]  # fmt: skip
    waiting, mid = (judge(s, ALONE, among(two, full)) for s in two)
    assert (waiting.result, waiting.waiting, waiting.proof) == ("gave_up", True, "slots")
    assert (mid.result, mid.waiting, mid.why) == ("gave_up", False, "mid-stream")


def test_failed_requests_are_in_no_average() -> None:
    good = answered(0.0)
    bad = Sent(number=1, at=0.0, end=60.0, first=30.0, status=200, tokens=500, error="llama-server died", reply=None)
    found = phase("warm", [good, bad], [], ALONE, clients=2).summary
    assert found.counts == {"served": 1, "failed": 1}
    assert found.first_token and (found.first_token.count, found.first_token.max) == (1, pytest.approx(0.06))
    assert found.total_rate == pytest.approx(10 / 0.5)


def test_slots_that_others_hold_are_noticed() -> None:
    ours = [answered(0.0)]
    two = [Sample(asked=t, answered=t, slots=4, busy=2) for t in (0.1, 0.2)]
    assert among(ours, two).foreign
    assert not among(ours, two[:1]).foreign
    assert not among(ours, [Sample(asked=t, answered=t, slots=4, busy=1) for t in (0.1, 0.2)]).foreign


def test_a_baseline_needs_an_answer() -> None:
    assert baseline([Sent(number=0, at=0.0, end=1.0, status=500, error="x")], []) is None
    found = baseline([answered(0.0), answered(0.002)], [])
    assert found and found.requests == 2 and found.first == pytest.approx(0.061)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.floats(0, 1))
def test_percentiles_lie_within_and_meet_the_ends(values: list[float], share: float) -> None:
    assert min(values) <= percentile(values, share) <= max(values) or len(set(values)) > 1
    assert percentile(values, 0.0) == min(values)
    assert percentile(values, 1.0) == max(values)


def test_percentiles_are_those_of_numpy() -> None:
    import numpy

    rng = random.Random(1)
    for size in (1, 2, 3, 19, 20, 101):
        values = [rng.random() for _ in range(size)]
        for share in (0.5, 0.95, 0.99):
            assert percentile(values, share) == pytest.approx(float(numpy.percentile(values, share * 100)))


def test_few_samples_have_no_95th_percentile() -> None:
    few, enough = stat([1.0] * 19), stat([1.0] * 20)
    assert few and few.p95 is None
    assert enough and enough.p95 == 1.0
    assert stat([None, None]) is None


# -- prompts and arrivals --


def test_no_two_prompts_share_a_beginning() -> None:
    draw = random.Random(5).random
    made = [prompts.prompt(draw, 30) for _ in range(2000)]
    assert len({p.split()[0] for p in made}) == 2000
    assert {len(p.split()) for p in made} == {30}


def test_words_for_a_number_of_tokens() -> None:
    learned = prompts.size((16, 30), (80, 110))
    assert learned is not None
    assert learned.each == pytest.approx(80 / 64) and learned.overhead == pytest.approx(10)
    assert learned.words(260) == 200
    assert learned.words(1) == 1
    assert prompts.size((16, 30), (80, 4)) is None  # a cached prompt counts almost nothing


def test_arrivals_are_a_poisson_process() -> None:
    found = prompts.arrivals(random.Random(2).random, 50.0, 200.0, 10**6)
    gaps = [b - a for a, b in itertools.pairwise(found)]
    mean = sum(gaps) / len(gaps)
    variance = sum((g - mean) ** 2 for g in gaps) / len(gaps)
    assert mean == pytest.approx(1 / 50, rel=0.05)
    assert variance**0.5 == pytest.approx(mean, rel=0.05)  # of an exponential distribution
    assert prompts.arrivals(random.Random(2).random, 50.0, 200.0, 7) == found[:7]
