"""Measurements for tests of what shows them."""

from __future__ import annotations

import random

from ollamactl.core.judge import phase
from ollamactl.core.measure import Baseline, Probe, Reply, Sample, Sent

BASE = Baseline(requests=3, first=0.2, first_max=0.25, wait_max=0.01, gap=0.02, rate=40.0)


def burst(
    clients: int, slots: int, *, refuse: int = 0, load: float = 0.0, seed: int = 1
) -> tuple[list[Sent], list[Sample]]:
    """What a server with `slots` does to so many at once: service in order, 0.2 s of prompt and 32 tokens each."""
    rng = random.Random(seed)
    free = [load] * slots
    sent = []
    for n in range(clients):
        at = n * 0.001
        if n >= clients - refuse:
            sent.append(Sent(number=n, at=at, end=at + 0.08, status=503, error="server busy, please try again.",
                             ended_by="error"))  # fmt: skip
            continue
        begin = max(min(free), at)
        gap = 0.02 * (1 + rng.random() * 0.2)
        first, end = begin + 0.2, begin + 0.2 + 31 * gap
        free[free.index(min(free))] = end
        reply = Reply(total=end - at, load=max(0.0, load - at), prompt=0.2, generation=31 * gap, prompt_tokens=30,
                      tokens=32, reason="length")  # fmt: skip
        sent.append(Sent(number=n, at=at, end=end, connected=at, first=first, status=200, tokens=32, reply=reply,
                         arrivals=tuple(first + k * gap for k in range(32))))  # fmt: skip
    ends = max(s.end for s in sent)
    busy = [s for s in sent if s.status == 200]
    moments = [k * 0.05 for k in range(int(ends / 0.05) + 1)]
    samples = [
        Sample(asked=t, answered=t, slots=slots, busy=sum(s.first - 0.2 <= t < s.end for s in busy if s.first))
        for t in moments
        if t >= load
    ]
    return sent, samples


def probe(
    model: str = "gemma3:270m", sweep: tuple[int, ...] = (8,), slots: int | None = 4, cold: int = 0, **more: object
) -> Probe:
    """A whole measurement; `cold` requests were sent while the model was not loaded."""
    phases = []
    if cold:
        sent, samples = burst(cold, slots or 4, refuse=cold // 2, load=1.5)
        phases.append(phase("cold", sent, samples, BASE, clients=cold))
    for clients in sweep:
        sent, samples = burst(clients, slots or 4, seed=clients)
        phases.append(phase("warm", sent, samples, BASE, clients=clients))
    fields = {"url": "http://127.0.0.1:11434", "model": model, "version": "0.33.0", "taken": 1.79e9, "baseline": BASE,
              "phases": tuple(phases), "slots": slots, "output_tokens": 32} | more  # fmt: skip
    return Probe(**fields)  # type: ignore[arg-type]
