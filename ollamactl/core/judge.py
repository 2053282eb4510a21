"""What happened to requests: served, queued or rejected, by evidence.

Times are float seconds; a moment is seconds since the requests' phase began.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence

from ollamactl.core.facts import Record
from ollamactl.core.measure import (
    Baseline,
    Judged,
    Kind,
    Phase,
    Proof,
    Result,
    Sample,
    Sent,
    Summary,
    stat,
)

BUSY = "maximum pending requests exceeded"  # of Ollama's 503, in every release
QUICK = 0.05  # seconds of wait that nobody notices


class Among(Record, frozen=True, kw_only=True):
    """What the requests of a phase, and the samples taken meanwhile, say about one of them. Moments are ascending."""

    samples: tuple[Sample, ...] = ()
    loaded: float | None = None  # the model was in memory, where that was awaited
    begun: tuple[float, ...] = ()  # requests of ours were sent
    ended: tuple[float, ...] = ()
    freed: tuple[float, ...] = ()  # replies of ours gave a slot back
    crowd: int = 1  # most of ours that were in flight at once
    foreign: bool = False  # requests of others held slots

    def between(self, since: float, until: float) -> tuple[Sample, ...]:
        low = bisect.bisect_left(self.samples, since, key=lambda s: s.asked)
        return self.samples[low : bisect.bisect_right(self.samples, until, key=lambda s: s.answered)]

    def alone(self, since: float, until: float) -> bool:
        """Whether a request that was in flight between the two had a slot for itself: never more of ours were there
        than slots, and none of others."""
        if not self.samples or self.foreign:
            return False
        ours = bisect.bisect_right(self.begun, until) - bisect.bisect_left(self.ended, since)
        return ours <= self.samples[-1].slots

    def gave_back(self, since: float, until: float) -> bool:
        """Whether a slot became free in between; those of others can't be seen to."""
        return self.foreign or bisect.bisect_left(self.freed, since) < bisect.bisect_right(self.freed, until)


def among(sent: Sequence[Sent], samples: Sequence[Sample] = ()) -> Among:
    waited = [s.reply.load + s.asked for s in sent if s.reply and s.reply.load > 0.2]
    # A slot is free from the last token on: what follows it is the server's own work.
    freed = sorted(s.arrivals[-1] if s.complete and s.arrivals else s.end for s in sent if s.first is not None)
    begun, ended = sorted(s.at for s in sent), sorted(s.end for s in sent)
    steps = sorted([*((at, 1) for at in begun), *((end, -1) for end in ended)])
    return Among(
        samples=tuple(samples),
        loaded=max(waited, default=None),
        begun=tuple(begun),
        ended=tuple(ended),
        freed=tuple(freed),
        crowd=max(itertools.accumulate(step for _, step in steps), default=1),
        foreign=foreign(begun, ended, samples),
    )


def foreign(begun: Sequence[float], ended: Sequence[float], samples: Sequence[Sample]) -> bool:
    """Whether requests of others held slots: more slots busy than ours were in flight, twice in a row at least.
    `begun` and `ended`: moments of ours, ascending."""
    row = 0
    for s in samples:
        ours = bisect.bisect_right(begun, s.answered) - bisect.bisect_left(ended, s.asked - QUICK)
        row = row + 1 if s.busy > ours else 0
        if row >= 2:
            return True
    return False


def judge(sent: Sent, base: Baseline | None, others: Among) -> Judged:
    """What happened to a request."""
    if sent.ended_by in ("interrupt", "limit"):
        return Judged(sent=sent, result="cut", proof="none", why="ended by ollamactl", waiting=_waits(sent, others))
    if sent.status in (429, 503):
        full = "the load queue was full (OLLAMA_MAX_QUEUE)" if BUSY in sent.error else ""
        who = full or sent.error or f"HTTP {sent.status}"
        return Judged(sent=sent, result="rejected", proof="status", why=who)
    if sent.ended_by == "timeout":
        waiting = _waits(sent, others)
        while_ = "waiting for a slot" if waiting else "before its first token" if sent.first is None else "mid-stream"
        return Judged(sent=sent, result="gave_up", proof="slots" if waiting else "none", why=while_, waiting=waiting)
    if not sent.complete:
        why = sent.error or (f"HTTP {sent.status}" if sent.status else "no answer")
        return Judged(sent=sent, result="failed", proof="status", why=why)
    return _answered(sent, base, others)


def _answered(sent: Sent, base: Baseline | None, others: Among) -> Judged:
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
    if wait <= _usual(base, timed):
        result, proof = _served(others)
    else:
        result, proof = _late(sent, wait, holds, base, others)
    return Judged(sent=sent, result=result, proof=proof, wait=wait, holds=holds)


def _served(others: Among) -> tuple[Result, Proof]:
    return "served", "slots" if others.samples else "time"


def _late(sent: Sent, wait: float, holds: float, base: Baseline | None, others: Among) -> tuple[Result, Proof]:
    """Of a request whose first token came later than the idle server explains. Queued is who met full slots and went
    on when one was given back: full slots alone may be full with itself, while prompts are read one after the other.
    Where no sample lies in between, time alone tells: a slot was given back just before, or it took longer than to
    read all prompts of the crowd."""
    if others.alone(sent.at, holds):
        return _served(others)
    # The moment it held a slot is known to within a token: the first one is there a token after the prompt.
    given = others.gave_back(sent.at, holds + QUICK)
    long = wait > QUICK + 1.5 * others.crowd * (base.first_max if base else 0.0)
    between = others.between(sent.asked, holds)
    if any(s.busy >= s.slots for s in between):
        if given:
            return "queued", "slots"
        return ("queued", "time") if long else ("served", "slots")
    # A burst takes its time to arrive: free slots at its very beginning are no proof.
    if any(s.asked >= holds - wait / 2 for s in between):
        return "served", "slots"
    if given or long:
        return "queued", "time"
    return _served(others)  # nobody gave a slot back before it held one: it met a free one


def _usual(base: Baseline | None, timed: bool) -> float:
    """Seconds of wait that an idle server explains. Without the reply's own durations the wait is a guess from the
    first token, and prompts that are read side by side slow each other."""
    if base is None:
        return QUICK
    return max(QUICK, 2 * base.wait_max) if timed else max(2 * QUICK, 3 * base.first_max)


def _waits(sent: Sent, others: Among) -> bool:
    """Whether a request that never had a token found no free slot until it ended."""
    if sent.first is not None or others.alone(sent.at, sent.end):
        return False
    seen = others.between(sent.at, sent.end)
    return bool(seen) and all(s.busy >= s.slots for s in seen[-3:])


# -- many --


def summarize(judged: Sequence[Judged], others: Among) -> Summary:
    samples = others.samples
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
        seconds=others.ended[-1] if others.ended else 0.0,
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
        foreign=others.foreign,
        by_time=not samples,
    )


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
    others = among(sent, samples)
    judged = tuple(judge(s, base, others) for s in sorted(sent, key=lambda s: (s.at, s.number)))
    return Phase(
        kind=kind,
        clients=clients,
        rounds=rounds,
        rate=rate,
        judged=judged,
        samples=tuple(samples),
        summary=summarize(judged, others),
    )
