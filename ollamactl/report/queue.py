"""The queue's part of `plan`: how many may wait, and whether the slots meet the demand."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from ollamactl.core.queueing import Demand
from ollamactl.host.measured import Measured
from ollamactl.report import text
from ollamactl.report.probe import seconds
from ollamactl.report.text import Terminal

ONLY_LOADING = (
    "Ollama holds to OLLAMA_MAX_QUEUE only while a model loads: who waits for a slot of a loaded model is never "
    "refused. A front enforces it there:"
)


def show_queue(out: Terminal, found: Demand, seen: Measured | None) -> None:
    room = found.room
    out.wrap(f"Clients that wait {seconds(room.patience)} for a whole reply, {_share(room.share)} of them in time:")
    for line in rows(found, seen):
        out.wrap(line, indent=2, hang=4)
    out.wrap(ONLY_LOADING)
    out.line(f"    {command(found)}")


def rows(found: Demand, seen: Measured | None) -> list[str]:
    """Sentences, each of which stands alone."""
    room, of = found.room, found.service
    slots = f"{room.slots} slot{'s' * (room.slots != 1)}"
    source = "as given"
    if seen is not None:
        at_once = f", {seen.clients} at once" if seen.clients else ""
        source = f"{of.samples} replies of {seen.model}{at_once}, measured {text.day(seen.at)}"
    lines = [f"a request holds its slot {seconds(of.mean)} ({source}{_spread(of.variation)})"]
    lines.append(f"{slots} serve{'s' * (room.slots == 1)} {per_second(room.rate)} at most")
    if room.per_slot:
        lines.append(f"{room.per_slot} may wait for each slot: OLLAMA_MAX_QUEUE={room.queue}")
        lines.append(
            f"the last of them waits {seconds(room.last_wait)} on average ({_share(room.share)}: "
            f"{seconds(room.last_wait_high)}), and has its whole reply after {seconds(room.last_done)}"
        )
    else:
        lines.append("nobody may wait: a reply alone takes what the clients allow")
    return lines + _demanded(found)


def _demanded(found: Demand) -> list[str]:
    load, turned = found.load, found.turned
    if found.rate is None or load is None or turned is None:
        return []
    lines = []
    arrive = f"{per_second(found.rate)} arrive"
    if math.isinf(load.wait):
        lines.append(f"{arrive}: {_busy(load.busy)} what the slots serve, so without a limit the queue only grows")
    else:
        lines.append(f"{arrive}: slots {load.busy:.0%} busy, {load.chance:.0%} have to wait, {seconds(load.wait)} on "
                     "average over all")  # fmt: skip
    lines.append(f"with that queue {turned.refused:.1%} would be refused, the others wait {seconds(turned.wait)}")
    if found.met:
        return lines
    lines.append(_more(found))
    pages = found.paged
    if pages is not None and not _reachable(found):
        held = f"in pages, the same memory would hold {pages.sequences} sequences as long as those measured"
        held += f" ({pages.tokens_each} tokens) in place of {pages.slots}"
        end = "more memory, shorter replies or fewer requests would help, another kind of server would not"
        if pages.worth_it:
            end = "a server with a paged cache (vLLM, SGLang) is then the honest answer"
        lines.append(f"{held}: {end}")
    return lines


def _reachable(found: Demand) -> bool:
    return found.needed is not None and (found.fits is None or found.needed <= found.fits)


def _more(found: Demand) -> str:
    if found.needed is None:
        return "no number of slots would meet that with this service time"
    if found.fits is None:
        return f"{found.needed} slots would do, if the service time stays what it is (tune measures it)"
    if _reachable(found):
        return f"{found.needed} slots would do, and {found.fits} fit: ollamactl tune measures what they then give"
    return f"{found.needed} slots would do, of which the memory holds {found.fits}"


def _spread(variation: float) -> str:
    return f", ± {variation:.0%}" if variation >= 0.005 else ""


def _share(share: float) -> str:
    return f"{100 * share:g} %"


def per_second(rate: float) -> str:
    """Requests a second, or in the shortest time in which it is not next to nothing."""
    units = {"s": 1, "min": 60, "h": 3600, "day": 86400}
    unit = next((u for u, seconds in units.items() if rate * seconds >= 0.1), "day")
    value = rate * units[unit]
    return f"{value:,.0f} requests/{unit}" if value >= 100 else f"{value:.2g} requests/{unit}"


def _busy(share: float) -> str:
    return f"{share:.0%} of" if share < 10 else f"{share:,.0f} times"


def command(found: Demand) -> str:
    return f"sudo ollamactl front nginx --install --requests-in-flight {found.room.slots} --queue {found.room.queue}"


def queue_data(found: Demand, seen: Measured | None) -> dict[str, Any]:
    """For the envelope: every key is always there, what is endless is null."""
    load = found.load
    return {
        "service": {
            "seconds": found.service.mean,
            "variation": found.service.variation,
            "samples": found.service.samples,
            "model": seen.model if seen else None,
            "measured": seen.at if seen else None,
        },
        **msgspec.structs.asdict(found.room),
        "max_queue": found.room.queue,
        "arrivals": None if load is None else {
            "rate": load.rate,
            "busy": load.busy,
            "waiting": None if math.isinf(load.waiting) else load.waiting,
            "wait": None if math.isinf(load.wait) else load.wait,
            "chance": load.chance,
            "refused": found.turned.refused if found.turned else None,
            "met": found.met,
            "slots_needed": found.needed,
        },
        "slots_that_fit": found.fits,
        "paged": None if found.paged is None else msgspec.structs.asdict(found.paged),
        "enforced_by_ollama": "while a model loads",
        "command": command(found),
    }  # fmt: skip
