"""Time-outs: how long clients and proxies wait, and what they cut short."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check, seconds, times
from ollamactl.core.facts import Request, Start
from ollamactl.core.inflight import is_work
from ollamactl.core.needs import NO_SIGNS, Signs

CLUSTER = 3  # failures with the same duration that make a time-out
NEAR = 0.02  # of it


SHORTEST = 9.5  # seconds after which a failure of the server's own is rare
HURRIED = 0.9  # the same, where the log says of as many requests that their clients hung up


def clusters(failed: tuple[Request, ...], shortest: float = SHORTEST) -> list[tuple[float, list[Request]]]:
    """Requests given up after the same time, `shortest` seconds at least, the largest group first: (seconds,
    requests)."""
    rows = sorted(
        (r for r in failed if r.status in (499, 500, 504) and is_work(r.path) and r.seconds >= shortest),
        key=lambda r: r.seconds,
    )
    groups: list[list[Request]] = []
    for row in rows:
        if groups and row.seconds <= groups[-1][0].seconds * (1 + NEAR) + 0.3:
            groups[-1].append(row)
        else:
            groups.append([row])
    found = [
        (_round(g), g)
        for g in groups
        if len(g) >= CLUSTER or (len(g) >= 2 and _is_round(g[0].seconds)) or _is_limit(g[0].seconds)
    ]
    return sorted(found, key=lambda one: -len(one[1]))


EXACT = 0.02  # seconds after a limit at which a client that keeps it hangs up
LIMITS = (10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 600, 900, 1800, 3600)  # seconds that clients wait for


def _is_round(value: float) -> bool:
    return any(abs(value - limit) < max(0.6, limit * 0.006) for limit in LIMITS)


def _is_limit(value: float) -> bool:
    """Whether it is a usual limit to the second and so long that this is no chance: then one request tells. A client
    that counts minutes may need a second more."""
    return value >= 119 and any(-0.6 <= value - limit <= (0.6 if limit < 300 else 1.5) for limit in LIMITS)


def _round(group: list[Request]) -> float:
    middle = group[len(group) // 2].seconds
    return float(round(middle)) if middle >= 10 else middle


def shown(group: list[Request]) -> tuple[str, ...]:
    return tuple(
        f"log{f':{r.line}' if r.line else ''}: [GIN] {r.status} | {seconds(r.seconds)} | {r.method} {r.path}"
        for r in group[-3:]
    )


@check(
    weight=62,
    explains=(
        "queue_wait_exceeds_client_timeout",
        "request_never_reaches_slot",
        "request_running_invisible_in_log",
        "overload_512_default_queue",
    ),
)
def client_timeout_500_clusters(signs: Signs, start: Start | None = None) -> Iterator[Finding]:
    """Clients give up after a fixed time, and the server writes 500.

    Why: when a client hangs up the request ends with 500 (499 during a load); many of the same length are its
    time-out,
    not a fault of the server.
    Seen: failed requests with the same duration.
    Do: raise the client's time-out, or make answers faster (GPU, smaller model, more slots).
    """
    groups = clusters(start.failed) if start else []
    if start and not groups and signs.count("client_gone") >= CLUSTER:
        groups = [one for one in clusters(start.failed, HURRIED) if len(one[1]) >= CLUSTER]
    found = [] if groups and _is_minute(groups[0][0]) else groups
    rising = _rising(start) if start else 0.0
    if found and not rising:
        at, group = found[0]
        said = f"{times(len(group), 'request')} ended with {group[0].status} after {seconds(at)}: a client's time-out"
        yield Finding(
            "warning",
            said,
            (*shown(group), *(signs.lines("client_gone", most=1))),
            f"raise the client's time-out above {seconds(at)}, or shorten answers: ollamactl plan",
        )
    elif start and not groups and not rising and (cut := _cut_short(start, signs)):
        yield Finding(
            "warning",
            f"clients hung up {times(signs.count('client_gone'), 'time')}, each after about "
            f"{seconds(cut[-1].seconds)}: their time-out",
            (*shown(cut), *signs.lines("client_gone", most=1)),
            f"raise the client's time-out above {seconds(cut[-1].seconds)}, or shorten answers: ollamactl plan",
        )
    elif start and not groups and not rising and (ended := _given_up(start, signs)):
        yield Finding(
            "warning",
            f"a client gave up after {seconds(ended[-1].seconds)}, as it says itself: its time-out",
            (*signs.lines("awaiting_headers", most=1), *shown(ended)),
            f"raise the client's time-out above {seconds(ended[-1].seconds)}, or shorten answers: ollamactl plan",
        )
    elif signs.has("fixed_time") and not groups:
        said = "requests fail after a fixed time: a client's or a proxy's time-out, not a limit of the server"
        yield Finding("warning", said, signs.lines("fixed_time"), "raise the client's and the proxy's time-out")
    elif start and not groups and not rising and (exact := _to_the_moment(start)):
        after = seconds(exact[-1].seconds)
        said = f"a request failed after {after} to the hundredth: what a client's time-out looks like"
        fix = f"raise the client's time-out above {after}, or shorten answers: ollamactl plan"
        yield Finding("info", said, shown(exact), fix, weight=20)
    elif start and (single := _hung_up(start, signs)) and not groups and not rising:
        said = f"a client hung up after {seconds(single[-1].seconds)}, before its answer was there"
        fix = "raise the client's time-out, if nobody cancelled it; or shorten answers: ollamactl plan"
        yield Finding("info", said, (*shown(single), *signs.lines("client_gone", most=1)), fix, weight=20)
    elif signs.has("given_up_after") and not groups and not signs.has("load_timeout", "gateway_timeout"):
        after = signs.of("given_up_after")[-1].fields.get("time", "a fixed time")
        yield Finding(
            "warning",
            f"requests are given up after {after}: a client's time-out",
            signs.lines("given_up_after"),
            "raise the client's time-out, or shorten answers: ollamactl plan",
        )


def _to_the_moment(start: Start) -> list[Request]:
    """Failed requests that ended right at a limit that clients keep."""
    failed = [r for r in start.failed if r.status in (499, 500) and is_work(r.path)]
    return [r for r in failed if any(0 <= r.seconds - limit <= EXACT for limit in LIMITS)]


def _hung_up(start: Start, signs: Signs) -> list[Request]:
    """Requests that failed as their client closed the connection, where the log says so and names no other cause."""
    if not signs.has("client_gone") or signs.has("load_failed", "runner_terminated", "panic", "alloc_failed"):
        return []
    return [r for r in start.failed if r.status in (499, 500) and r.seconds >= 1 and is_work(r.path)]


def _given_up(start: Start, signs: Signs) -> list[Request]:
    """Long requests that failed beside a client's word of its own time-out."""
    if not signs.has("awaiting_headers"):
        return []
    return [r for r in start.failed if r.status in (499, 500) and r.seconds >= 20 and is_work(r.path)]


def _cut_short(start: Start, signs: Signs) -> list[Request]:
    """Requests that ended with 200 when their clients hung up (0.5 and 0.6 do so), all after the same time."""
    rows = [r for r in start.recent if r.status == 200 and r.seconds >= 30 and is_work(r.path)]
    if len(rows) < CLUSTER or signs.count("client_gone") < CLUSTER:
        return []
    middle = sorted(r.seconds for r in rows)[len(rows) // 2]
    near = [r for r in rows if abs(r.seconds - middle) <= middle * 2 * NEAR]
    return near if len(near) >= CLUSTER and len(near) >= 0.7 * len(rows) else []


def _is_minute(at: float) -> bool:
    return 59 <= at <= 61


@check(weight=63, explains=("client_timeout_500_clusters",))
def proxy_timeout_60s(start: Start | None = None, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """Something between client and server cuts at 60 seconds.

    Why: 60 s is the default of nginx and of load balancers; Ollama sends nothing before the first token.
    Seen: failed requests of 60 s, or 504 of a proxy.
    Do: raise proxy_read_timeout, or stream.
    """
    found = [c for c in clusters(start.failed)[:1] if _is_minute(c[0])] if start else []
    single = (
        []
        if start and clusters(start.failed)
        else [
            r
            for r in (start.failed if start else ())
            if r.status in (500, 499, 504) and 59 <= r.seconds <= 60.6 and is_work(r.path)
        ]
    )
    gateway = signs.lines("gateway_timeout")
    fix = "proxy_read_timeout 600s; proxy_buffering off;    # in the location of nginx, then: sudo nginx -s reload"
    if found or single:
        group = found[0][1] if found else single
        several = len(group) > 1 or bool(gateway)
        said = f"{times(len(group), 'request')} ended with {group[0].status} after 60 s"
        said += ": a proxy's time-out" if several else ", which is what a proxy's time-out looks like"
        yield Finding(
            "warning" if several else "info", said, (*shown(group), *gateway), fix, weight=63 if several else 21
        )
    elif gateway:
        yield Finding("warning", "a proxy in front gave up waiting (504)", gateway, fix)


@check(weight=64, explains=("client_timeout_500_clusters",))
def queue_wait_exceeds_client_timeout(start: Start | None = None, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """Requests wait longer for a slot than their clients do.

    Why: with few slots a burst is served one by one; Ollama sends no header while a request waits, so the client's or
    proxy's clock runs.
    Seen: durations that rise by a fixed step, and time-outs at the end of them.
    Do: more slots if they fit, fewer requests at once, or a longer time-out.
    """
    step = _rising(start) if start else 0.0
    waiting = signs.lines("awaiting_headers", "durations_rise")
    fix = "sudo ollamactl plan --parallel 1,2,4 --client-timeout 300"
    if step and start is not None:
        slow = [r for r in start.recent if r.seconds > 60][-3:]
        longest = seconds(max(r.seconds for r in start.recent))
        said = f"requests wait for one another: each ends {seconds(step)} after the one before, up to {longest}"
        yield Finding("warning", said, (*shown(slow), *shown(list(start.failed[-2:]))), fix)
    elif waiting and not (start and _given_up(start, signs)):
        yield Finding(
            "warning",
            "a client or proxy gave up while its request waited: nothing is sent before the first token",
            waiting,
            fix,
        )


def _rising(start: Start) -> float:
    """The step in seconds by which durations of requests sent together rise, or 0."""
    rows = [r for r in start.recent if r.at is not None and r.status in (200, 500, 499) and r.seconds > 30]
    best: list[float] = []
    run: list[float] = []
    for before, after in itertools.pairwise(rows):
        begun = abs((after.at or 0) - after.seconds - ((before.at or 0) - before.seconds))
        step = after.seconds - before.seconds
        if begun < 3 and 1 <= step <= 60 and after.path == before.path:
            run.append(step)
            best = max(best, run, key=len)
        else:
            run = []
    if len(best) < 4:
        return 0.0
    middle = sorted(best)[len(best) // 2]
    return middle if sum(abs(s - middle) < middle * 0.6 for s in best) >= len(best) * 0.7 else 0.0


@check(weight=66, explains=("vram_recovery_timeout", "load_timeout", "client_timeout_500_clusters"))
def client_timeout_during_load(signs: Signs, start: Start | None = None) -> Iterator[Finding]:
    """A client gave up while its model was being loaded, so the load was thrown away.

    Why: a cold load takes longer than the client waits; each attempt starts anew.
    Seen: "client connection closed before … finished loading", GIN 499.
    Do: raise the client's time-out, or keep the model loaded (OLLAMA_KEEP_ALIVE).
    """
    gone = signs.of("client_gone_during_load", "load_cancelled")
    if not gone:
        return
    after = [
        x for x in (start.loads if start else ()) if x.outcome == "loaded" and (x.line or 0) > (gone[-1].line or 0)
    ]
    served = [r for r in (start.recent if start else ()) if r.status == 200 and (r.line or 0) > (gone[-1].line or 0)]
    cured = bool(served) and bool(after) and len(gone) < 3
    yield Finding(
        "info" if cured else "warning",
        f"{times(signs.count('client_gone_during_load') or len(gone), 'load')} given up because the client hung up",
        signs.lines("client_gone_during_load", "load_cancelled"),
        "sudo ollamactl apply --keep-alive 1h    # and raise the client's time-out",
        weight=66 if not cured else 20,
    )
