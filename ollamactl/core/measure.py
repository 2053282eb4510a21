"""What requests experienced, and what that says of the server: served, queued or rejected, by evidence.

Times are float seconds; a moment is seconds since its phase began (a phase is one burst, loop or stream of arrivals).
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Literal

from ollamactl.core.facts import Record

Result = Literal["served", "queued", "rejected", "gave_up", "failed", "cut"]
Kind = Literal["warm", "cold", "arrivals"]
Proof = Literal["slots", "time", "status", "none"]

BUSY = "maximum pending requests exceeded"  # of Ollama's 503, in every release
ENOUGH = 20  # samples below which a 95th percentile is no more than the slowest
QUICK = 0.05  # seconds of wait that nobody notices


class Reply(Record, frozen=True, kw_only=True):
    """What the last object of a reply says of itself, seconds and tokens."""

    total: float
    load: float = 0.0  # until the model was in memory
    prompt: float = 0.0  # reading the prompt
    generation: float = 0.0
    prompt_tokens: int = 0  # less those that were cached
    tokens: int = 0
    reason: str = ""  # done_reason: stop, length

    @property
    def wait(self) -> float:
        """Seconds that were spent on nothing else: total − load − prompt − generation, the wait for a slot."""
        return max(0.0, self.total - self.load - self.prompt - self.generation)


class Sent(Record, frozen=True, kw_only=True):
    """One request as its client saw it."""

    number: int
    at: float  # its connection was begun
    end: float
    connected: float | None = None  # and was there: the request went out
    first: float | None = None  # the first token arrived
    status: int | None = None
    tokens: int = 0  # as counted by the reply; where it was cut, lines with text
    arrivals: tuple[float, ...] = ()  # of tokens; at most a few thousand
    reply: Reply | None = None
    error: str = ""  # what the server or the connection said
    ended_by: Literal["reply", "error", "timeout", "interrupt", "limit"] = "reply"

    @property
    def asked(self) -> float:
        """The moment the request went out; where it never did, the one its connection was begun."""
        return self.at if self.connected is None else self.connected

    @property
    def first_token(self) -> float | None:
        """Time to first token, from the moment the request went out."""
        return None if self.first is None else self.first - self.asked

    @property
    def complete(self) -> bool:
        """Whether the reply came to its end. Ollama breaks off one that repeats a single token more than 30 times: the
        stream ends well, without the object that holds the durations."""
        answered = self.reply is not None or self.first is not None
        return self.ended_by == "reply" and not self.error and self.status == 200 and answered

    @property
    def gaps(self) -> list[float]:
        """Inter-token latencies."""
        return [b - a for a, b in itertools.pairwise(self.arrivals)]

    @property
    def rate(self) -> float | None:
        """Tokens per second of this request, as `ollama run --verbose` counts: eval_count / eval_duration."""
        has = self.reply
        return has.tokens / has.generation if has and has.generation > 0 and has.tokens else None


class Sample(Record, frozen=True, kw_only=True):
    """The runner's /slots at some moment between `asked` and `answered`."""

    asked: float
    answered: float
    slots: int
    busy: int


class Baseline(Record, frozen=True, kw_only=True):
    """The server with nothing else to do: requests one after the other."""

    requests: int
    first: float  # median time to first token
    first_max: float
    wait_max: float  # of Reply.wait: what the server spends on no wait at all
    gap: float | None = None  # median inter-token latency
    rate: float | None = None  # median tokens/s
    foreign: bool = False  # slots were busy with requests of others meanwhile


class Judged(Record, frozen=True, kw_only=True):
    """One request, and what happened to it. `wait` is the time without a slot, None where it can't be known."""

    sent: Sent
    result: Result
    proof: Proof
    wait: float | None = None
    why: str = ""
    waiting: bool = False  # it ended while it waited for a slot
    holds: float | None = None  # the moment from which it held a slot


class Among(Record, frozen=True, kw_only=True):
    """What the other requests of a phase say about one of them."""

    loaded: float | None = None  # the model was in memory, where that was awaited
    freed: tuple[float, ...] = ()  # moments at which replies of ours gave a slot back, ascending
    crowd: int = 1  # most of ours that were in flight at once


def among(sent: Sequence[Sent]) -> Among:
    waited = [s.reply.load + s.asked for s in sent if s.reply and s.reply.load > 0.2]
    # A slot is free from the last token on: what follows it is the server's own work.
    freed = sorted(s.arrivals[-1] if s.complete and s.arrivals else s.end for s in sent if s.first is not None)
    steps = sorted([(s.at, 1) for s in sent] + [(s.end, -1) for s in sent])
    crowd = max(itertools.accumulate(step for _, step in steps), default=1)
    return Among(loaded=max(waited, default=None), freed=tuple(freed), crowd=max(1, crowd))


def judge(sent: Sent, samples: Sequence[Sample], base: Baseline | None, others: Among = Among()) -> Judged:  # noqa: B008
    """What happened to a request. Queued is who met no free slot (a sample between its sending and the moment it held
    one) and had its first token later than the idle server explains. Where no sample lies there, time alone tells:
    late, and a slot was given back just before, or later than reading all prompts of the crowd explains."""
    if sent.ended_by in ("interrupt", "limit"):
        return Judged(sent=sent, result="cut", proof="none", why="ended by ollamactl", waiting=_waits(sent, samples))
    if sent.status in (429, 503):
        full = "the load queue was full (OLLAMA_MAX_QUEUE)" if BUSY in sent.error else ""
        who = full or sent.error or f"HTTP {sent.status}"
        return Judged(sent=sent, result="rejected", proof="status", why=who)
    if sent.ended_by == "timeout":
        waiting = sent.first is None and _waits(sent, samples)
        while_ = "waiting for a slot" if waiting else "before its first token" if sent.first is None else "mid-stream"
        return Judged(sent=sent, result="gave_up", proof="slots" if waiting else "none", why=while_, waiting=waiting)
    if not sent.complete:
        why = sent.error or (f"HTTP {sent.status}" if sent.status else "no answer")
        return Judged(sent=sent, result="failed", proof="status", why=why)
    return _answered(sent, samples, base, others)


def _answered(sent: Sent, samples: Sequence[Sample], base: Baseline | None, others: Among) -> Judged:
    has = sent.reply
    asked = sent.asked
    first = sent.end if sent.first is None else sent.first
    timed = has is not None and (has.prompt > 0 or has.generation > 0)
    if has is not None and timed:
        load = has.load
        # What the server does after the last token is in has.wait too, but not before the first one.
        wait = has.wait if sent.first is None else min(has.wait, max(0.0, first - asked - load - has.prompt))
    else:
        load = max(0.0, others.loaded - asked) if others.loaded is not None else 0.0
        wait = max(0.0, first - asked - load - (base.first if base else 0.0))
    holds = asked + load + wait
    between = [s for s in samples if s.asked >= sent.asked and s.answered <= holds]
    late = wait > _usual(base, timed)
    if late and any(s.busy >= s.slots for s in between):
        return Judged(sent=sent, result="queued", proof="slots", wait=wait, holds=holds)
    if samples and (between or not late):
        return Judged(sent=sent, result="served", proof="slots", wait=wait, holds=holds)
    # The moment it held a slot is known to within a token: the first one is there a token after the prompt.
    given = bisect.bisect_left(others.freed, sent.at) < bisect.bisect_right(others.freed, holds + QUICK)
    crowded = QUICK + 1.5 * others.crowd * (base.first_max if base else 0.0)
    queued = late and (given or wait > crowded)
    return Judged(sent=sent, result="queued" if queued else "served", proof="time", wait=wait, holds=holds)


def _usual(base: Baseline | None, timed: bool) -> float:
    """Seconds of wait that an idle server explains. Without the reply's own durations the wait is a guess from the
    first token, and prompts that are read side by side slow each other."""
    if base is None:
        return QUICK
    return max(QUICK, 2 * base.wait_max) if timed else max(2 * QUICK, 3 * base.first_max)


def _waits(sent: Sent, samples: Sequence[Sample]) -> bool:
    """Whether a request that never had a token found no free slot until it ended."""
    seen = [s for s in samples if s.asked >= sent.at and s.answered <= sent.end]
    return sent.first is None and bool(seen) and all(s.busy >= s.slots for s in seen[-3:])


# -- many --


class Stat(Record, frozen=True, kw_only=True):
    """Of `count` samples. `p95` is None below 20 of them: `max` is all that can be said."""

    count: int
    p50: float
    min: float
    max: float
    mean: float
    p95: float | None = None


def percentile(values: Sequence[float], share: float) -> float:
    """Linear between the two nearest ranks (Hyndman and Fan's type 7). `values` may not be empty."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def stat(values: Iterable[float | None]) -> Stat | None:
    """None where there is nothing to count."""
    known = [v for v in values if v is not None]
    if not known:
        return None
    return Stat(
        count=len(known),
        p50=percentile(known, 0.5),
        p95=percentile(known, 0.95) if len(known) >= ENOUGH else None,
        min=min(known),
        max=max(known),
        mean=sum(known) / len(known),
    )


class Summary(Record, frozen=True, kw_only=True):
    """Of one phase. Only complete replies are in the statistics; the others are counted."""

    sent: int
    counts: dict[str, int]
    seconds: float
    waiting: int = 0  # that gave up while they waited for a slot
    slots: int | None = None
    busy_max: int | None = None
    first_token: Stat | None = None
    wait: Stat | None = None  # of the queued
    load: Stat | None = None  # of those that waited for the model longer than a moment
    gap: Stat | None = None  # between tokens
    rate: Stat | None = None  # tokens/s of each request
    total_rate: float | None = None  # tokens of complete replies over the phase
    service: Stat | None = None  # seconds that a request held its slot
    tokens: Stat | None = None
    prompt_tokens: Stat | None = None
    broken_off: int = 0  # complete replies without durations
    foreign: bool = False  # more slots were busy than requests of ours were there
    by_time: bool = False  # judged without /slots


def summarize(judged: Sequence[Judged], samples: Sequence[Sample], seconds: float) -> Summary:
    done = [j for j in judged if j.result in ("served", "queued")]
    counts: dict[str, int] = {}
    for j in judged:
        counts[j.result] = counts.get(j.result, 0) + 1
    tokens = sum(j.sent.tokens for j in done)
    span = max((j.sent.end for j in done), default=0.0) - min((j.sent.at for j in done), default=0.0)
    replies = [j.sent.reply for j in done if j.sent.reply]
    return Summary(
        sent=len(judged),
        counts=counts,
        seconds=seconds,
        waiting=sum(j.waiting and j.result == "gave_up" for j in judged),
        slots=max((s.slots for s in samples), default=None),
        busy_max=max((s.busy for s in samples), default=None),
        first_token=stat(j.sent.first_token for j in done),
        wait=stat(j.wait for j in done if j.result == "queued"),
        load=stat(r.load for r in replies if r.load > 0.2),
        gap=stat(g for j in done for g in j.sent.gaps),
        rate=stat(j.sent.rate for j in done),
        total_rate=tokens / span if tokens and span > 0 else None,
        service=stat(r.prompt + r.generation for r in replies if r.prompt or r.generation),
        tokens=stat(float(j.sent.tokens) for j in done),
        prompt_tokens=stat(float(r.prompt_tokens) for r in replies),
        broken_off=sum(j.sent.reply is None for j in done),
        foreign=foreign(judged, samples),
        by_time=not samples,
    )


def foreign(judged: Sequence[Judged], samples: Sequence[Sample]) -> bool:
    """Whether requests of others held slots: more slots busy than ours were in flight, twice in a row at least."""
    row = 0
    for s in samples:
        ours = sum(j.sent.at <= s.answered and j.sent.end >= s.asked - QUICK for j in judged)
        row = row + 1 if s.busy > ours else 0
        if row >= 2:
            return True
    return False


def baseline(sent: Sequence[Sent], samples: Sequence[Sample]) -> Baseline | None:
    """From requests that were alone; None where none was answered."""
    done = [s for s in sent if s.complete and s.first_token is not None]
    if not done:
        return None
    firsts = [s.first_token or 0.0 for s in done]
    gaps = stat(g for s in done for g in s.gaps)
    rates = stat(s.rate for s in done)
    return Baseline(
        requests=len(done),
        first=percentile(firsts, 0.5),
        first_max=max(firsts),
        wait_max=max(s.reply.wait if s.reply else 0.0 for s in done),
        gap=gaps.p50 if gaps else None,
        rate=rates.p50 if rates else None,
        foreign=any(s.busy > 1 for s in samples),
    )


# -- phases --


class Phase(Record, frozen=True, kw_only=True):
    """Requests that were sent for one purpose. `clients` at once (closed loop), or `rate` a second (arrivals)."""

    kind: Kind
    clients: int
    rounds: int = 1
    rate: float | None = None
    judged: tuple[Judged, ...] = ()
    samples: tuple[Sample, ...] = ()
    summary: Summary


def phase(
    kind: Kind,
    sent: Sequence[Sent],
    samples: Sequence[Sample],
    base: Baseline | None,
    *,
    clients: int,
    rounds: int = 1,
    rate: float | None = None,
) -> Phase:
    others = among(sent)
    judged = tuple(judge(s, samples, base, others) for s in sorted(sent, key=lambda s: (s.at, s.number)))
    seconds = max((s.end for s in sent), default=0.0)
    return Phase(
        kind=kind,
        clients=clients,
        rounds=rounds,
        rate=rate,
        judged=judged,
        samples=tuple(samples),
        summary=summarize(judged, samples, seconds),
    )


class Probe(Record, frozen=True, kw_only=True):
    """A whole measurement."""

    url: str
    model: str
    version: str = ""
    taken: float | None = None
    baseline: Baseline | None = None
    phases: tuple[Phase, ...] = ()
    slots: int | None = None
    unseen: str = ""  # why /slots could not be sampled
    interrupted: bool = False
    limited: bool = False  # the time limit ended it
    signal: int = 0  # that interrupted it
    prompt_tokens: int | None = None  # as asked for
    output_tokens: int = 0
    client_timeout: float | None = None
    seed: int = 0
    notes: tuple[str, ...] = ()
