"""The queue before the slots: full, bounded otherwise than believed, growing."""

from __future__ import annotations

from collections.abc import Iterator

from ollamactl.core import settings
from ollamactl.core.checks.base import Finding, check, configured
from ollamactl.core.checks.slots import wanted_slots
from ollamactl.core.facts import Facts, Start
from ollamactl.core.inflight import in_flight, is_work, waited
from ollamactl.core.needs import NO_SIGNS, Given, Signs


@check(weight=58, explains=("max_queue_zero",))
def queue_full_503(signs: Signs = NO_SIGNS, start: Start | None = None) -> Iterator[Finding]:
    """Requests were refused because the queue was full.

    Why: more requests wait for a load than OLLAMA_MAX_QUEUE (512); a burst of a client, or a load that takes long.
    Seen: 503 within milliseconds in the access log, or "server busy" at a client.
    Do: bound the client's concurrency; a larger queue only if clients wait that long.
    """
    refused = [
        r for r in (start.requests if start else ()) if r.status == 503 and r.seconds_min < 10 and is_work(r.path)
    ]
    count = sum(r.count for r in refused)
    early = start is not None and settings.version(start.version)[:3] == (0, 1, 33)
    if early and start is not None:
        refused += [r for r in start.requests if r.status == 500 and r.seconds_max < 1 and r.count > 5]
        count = sum(r.count for r in refused)
    lines = signs.lines("queue_full")
    if not count and not lines:
        return
    queue = (start.config or {}).get("OLLAMA_MAX_QUEUE", "512") if start else "512"
    said = f"{count} requests were refused with 503" if count else "the server refused requests: its queue was full"
    yield Finding(
        "warning",
        f"{said} (OLLAMA_MAX_QUEUE={queue})",
        (*(r.text for r in refused[:3]), *lines),
        f"sudo ollamactl apply --max-queue {max(1024, 2 * int(queue)) if queue.isdigit() else 1024}"
        "    # or fewer requests at once in the client",
    )


@check(weight=54)
def max_queue_zero(facts: Facts, given: tuple[Given, ...] = (), start: Start | None = None) -> Iterator[Finding]:
    """OLLAMA_MAX_QUEUE=0 refuses requests while a model is loaded.

    Why: with no place in the load queue only one request at a time gets through a load; others get 503.
    Seen: the value in `server config`, or as given.
    Do: the default is 512; plan --client-timeout names a length.
    """
    told = next((g for g in given if g.name == "OLLAMA_MAX_QUEUE"), None)
    config = (start.config if start else None) or {}
    value = config.get("OLLAMA_MAX_QUEUE") or (told.value if told else "")
    if value.strip("'\" ") == "0":
        yield Finding(
            "warning",
            "OLLAMA_MAX_QUEUE=0: while a model is loaded, a second request gets 503",
            (configured(start, "OLLAMA_MAX_QUEUE"), told.place if told else ""),
            "sudo ollamactl apply --max-queue 512",
        )


@check(weight=24)
def overload_512_default_queue(start: Start, facts: Facts) -> Iterator[Finding]:
    """The load queue is far longer than any client waits.

    Why: 512 waiting requests on few slots take longer than clients' patience: they are answered to nobody.
    Seen: OLLAMA_MAX_QUEUE and the seconds that requests take.
    Do: ollamactl plan --client-timeout 60 names a length.
    """
    queue = (start.config or {}).get("OLLAMA_MAX_QUEUE", "")
    took = [r.seconds for r in start.recent if r.status == 200 and is_work(r.path)]
    slots = wanted_slots(facts, ()) or 1
    if (
        queue.isdigit()
        and int(queue) >= 512
        and len(took) >= 20
        and any(r.status in (499, 500, 503) for r in start.failed)
    ):
        mean = sum(took) / len(took)
        wait = int(queue) * mean / slots
        if wait > 1800:
            yield Finding(
                "info",
                f"{queue} requests may wait for a load, the last of them {wait / 60:.0f} min",
                (configured(start, "OLLAMA_MAX_QUEUE"),),
                "ollamactl plan --client-timeout 60",
            )


@check(weight=35)
def max_queue_not_applied_to_loaded_model(
    facts: Facts, signs: Signs = NO_SIGNS, start: Start | None = None, given: tuple[Given, ...] = ()
) -> Iterator[Finding]:
    """OLLAMA_MAX_QUEUE does not bound requests for a model that is loaded.

    Why: it counts requests that wait for a load; those for a loaded model wait for a slot without any limit.
    Seen: a small OLLAMA_MAX_QUEUE, and requests that waited all the same.
    Do: bound requests in front of the server: ollamactl front nginx.
    """
    config = (start.config if start else None) or {}
    queue = config.get("OLLAMA_MAX_QUEUE", "")
    if not queue:
        queue = next((g.value for g in given if g.name == "OLLAMA_MAX_QUEUE"), "")
    if not queue and signs.has("queue_expected"):
        said = "OLLAMA_MAX_QUEUE bounds only requests that wait for a load, not those for a loaded model"
        yield Finding("info", said, signs.lines("queue_expected"), "ollamactl front nginx")
    if not queue.isdigit() or not 0 < int(queue) < 64:
        return
    waiting = waited(start) if start else 0
    refused = sum(r.count for r in (start.requests if start else ()) if r.status == 503)
    if (waiting > int(queue) and not refused) or signs.has("queue_expected"):
        said = f"OLLAMA_MAX_QUEUE={queue} bounds only requests that wait for a load"
        said += f"; {waiting} waited for a slot of a loaded model" if waiting else ""
        yield Finding("info", said, (configured(start, "OLLAMA_MAX_QUEUE"),), "ollamactl front nginx")


@check(weight=26)
def queue_building_up(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """All slots are busy and requests wait now.

    Why: more requests arrive than the slots serve; Ollama shows no queue.
    Seen: busy slots of the runners, and connections that await their reply.
    Do: more slots if they fit (ollamactl plan), or fewer requests.
    """
    flight = in_flight(facts)
    if flight.waiting and flight.slots and flight.running is not None and flight.running >= flight.slots:
        oldest = f", the oldest for {flight.oldest_wait:.0f} s" if flight.oldest_wait else ""
        long = bool(flight.oldest_wait and flight.oldest_wait > 60)
        yield Finding(
            "warning" if long else "info",
            f"{flight.sentence()}: all {flight.slots} slots are busy{oldest}",
            (f"sockets: {flight.waiting} connections await a reply",),
            "sudo ollamactl plan --parallel 2,4",
        )
    elif signs.has("slots_busy") and signs.has("connections_wait"):
        lines = signs.lines("slots_busy", "connections_wait")
        yield Finding("info", "all slots are busy, more requests wait", lines, "sudo ollamactl plan --parallel 2,4")
