"""Requests in flight and waiting: from the runners' slots and the server's connections, or from the access log."""

from __future__ import annotations

import msgspec

from ollamactl.core.facts import Facts, Start


class InFlight(msgspec.Struct, frozen=True):
    """`running` hold a slot now; `waiting` sent a request, hold no slot and have had no byte of reply.
    None where it could not be seen."""

    slots: int | None
    running: int | None
    waiting: int | None
    oldest_wait: float | None = None

    @property
    def idle(self) -> bool:
        return not self.running and not self.waiting

    def sentence(self) -> str:
        parts = []
        if self.running:
            parts.append(f"{self.running} request{'s' * (self.running != 1)} running")
        if self.waiting:
            parts.append(f"{self.waiting} waiting")
        return " and ".join(parts)


def in_flight(facts: Facts) -> InFlight:
    """A busy slot belongs to a connection that awaits its reply, or to one that is being streamed to; the
    connections beyond those wait. Without /slots every connection without a reply counts as running."""
    lists = [r.slot_list for r in facts.runners or () if r.slot_list is not None]
    seen = facts.connections
    if facts.runners is None and seen is None:
        return InFlight(None, None, None)
    busy = sum(s.busy for slots in lists for s in slots)
    total = sum(len(slots) for slots in lists) if lists else None
    if seen is None:
        return InFlight(total, busy if lists else None, None)
    if not lists and facts.runners:
        return InFlight(None, seen.awaiting_reply + seen.replying, 0, seen.oldest_wait)
    silent_busy = max(0, busy - seen.replying)
    return InFlight(total, busy, max(0, seen.awaiting_reply - silent_busy), seen.oldest_wait)


def is_work(path: str) -> bool:
    """Whether requests for this path make a model work, and so need a slot."""
    return any(word in path for word in ("/generate", "/chat", "/embed", "/completions", "/messages", "/responses"))


def waited(start: Start) -> int:
    """The largest number of requests in flight at one moment, of those that ended, less the slots."""
    spans = sorted(
        (r.at - r.seconds, r.at) for r in start.recent if r.at is not None and r.status == 200 and r.seconds > 0.2
    )
    most = 0
    ends: list[float] = []
    for begin, end in spans:
        ends = [e for e in ends if e > begin + 0.05] + [end]
        most = max(most, len(ends))
    slots = (start.config or {}).get("OLLAMA_NUM_PARALLEL", "1")
    return max(0, most - (int(slots) if slots.isdigit() and slots != "0" else 1))
