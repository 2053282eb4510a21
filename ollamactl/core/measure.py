"""What requests experienced: what was sent, what was seen meanwhile, and the figures of many.

Times are float seconds; a moment is seconds since its phase began (a phase is one burst, loop or stream of arrivals).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Literal

from ollamactl.core.facts import Record

Result = Literal["served", "queued", "rejected", "gave_up", "failed", "cut"]
Kind = Literal["warm", "cold", "arrivals"]
Proof = Literal["slots", "time", "status", "none"]

ENOUGH = 20  # samples below which a 95th percentile is no more than the slowest


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
