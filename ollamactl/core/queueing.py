"""Slots, service time, waiting time, and how long a queue may be.

A server with c slots serves c requests at a time; others wait in order of arrival. Times are seconds, rates per
second. Formulas: D. Gross et al., Fundamentals of Queueing Theory, 4th ed., ch. 2 (M/M/c, Erlang's C) and ch. 5-6
(the two-moment approximation of Allen and Cunneen for other distributions); J. D. C. Little 1961 (L = λ·W).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from ollamactl.core.facts import Record

COUNTED = 65_535  # nginx counts no further
MOST = 65_000  # requests that a queue may ever hold: slots beside it are counted too


class Service(Record, frozen=True, kw_only=True):
    """How long a request holds its slot. `variation` is the standard deviation over the mean: 0 for replies of equal
    length, about 1 for lengths that are wildly different."""

    mean: float
    variation: float = 0.0
    samples: int = 0  # 0: given, not measured


def service(seconds: Sequence[float]) -> Service | None:
    """From measured times that requests held a slot; None without any."""
    if not seconds or (mean := sum(seconds) / len(seconds)) <= 0:
        return None
    spread = sum((s - mean) ** 2 for s in seconds) / max(1, len(seconds) - 1)
    return Service(mean=mean, variation=math.sqrt(spread) / mean, samples=len(seconds))


# -- how many may wait --


def wait_behind(rounds: int, of: Service) -> float:
    """Mean wait of the last one where `rounds` requests a slot wait: each slot has to serve as many before."""
    return rounds * of.mean


def high(mean: float, variance: float, share: float) -> float:
    """The value that `share` of cases stay below, for times that are never negative: the gamma distribution of that
    mean and variance, by Wilson and Hilferty's cube (within 1 % from the median to the 99th percentile, where the
    variation is at most 1)."""
    if variance <= 0 or mean <= 0:
        return mean
    ninth = variance / (9 * mean * mean)
    return mean * max(0.0, 1 - ninth + quantile(share) * math.sqrt(ninth)) ** 3


def done_behind(rounds: int, slots: int, of: Service, share: float) -> float:
    """Seconds within which `share` of the requests that meet `rounds` others a slot have their whole reply: the wait
    for rounds·slots gaps of mean/slots, with their variance, and a service time of their own."""
    own = (of.variation * of.mean) ** 2
    return high((rounds + 1) * of.mean, own + rounds * own / slots, share)


class Room(Record, frozen=True, kw_only=True):
    """The queue that a client's patience allows."""

    slots: int
    per_slot: int  # requests that may wait for each slot
    queue: int  # in all: the MAX_QUEUE that follows
    last_wait: float  # of the last one in a full queue, on average
    last_wait_high: float  # and at the percentile
    last_done: float  # until its reply is whole, at the percentile
    share: float
    rate: float  # the most that can be served for long, a second: slots / mean
    patience: float


def room(patience: float, slots: int, of: Service, share: float = 0.95) -> Room:
    """How many may wait so that the last of them has its whole reply within `patience` seconds, in `share` of cases.

    `slots` give back slots/mean places a second (Little's law, L = λ·W): who has n·slots before it waits n·mean, with
    the variance of n·slots gaps of mean/slots, and then needs a service time of its own. Nobody may wait where a reply
    alone takes the patience. With equal replies of 10 s and 60 s of patience that is one in service and 5 behind it.
    """

    rounds, over = 0, MOST // slots + 1
    while rounds + 1 < over:  # who waits behind more is done later
        middle = (rounds + over) // 2
        in_time = done_behind(middle, slots, of, share) <= patience
        rounds, over = (middle, over) if in_time else (rounds, middle)
    spread = (of.variation * of.mean) ** 2
    return Room(
        slots=slots,
        per_slot=rounds,
        queue=rounds * slots,
        last_wait=wait_behind(rounds, of),
        last_wait_high=high(rounds * of.mean, rounds * spread / slots, share),
        last_done=done_behind(rounds, slots, of, share),
        share=share,
        rate=slots / of.mean,
        patience=patience,
    )


# -- what a rate of arrivals does --


class Load(Record, frozen=True, kw_only=True):
    """A steady stream of arrivals (Poisson) at `slots`. Infinite where more arrives than can be served."""

    slots: int
    rate: float
    busy: float  # share of the slots that is busy on average; 1 and above: the queue grows without end
    waiting: float  # requests in the queue on average
    wait: float  # of all, on average
    chance: float  # of having to wait


def load(rate: float, slots: int, of: Service) -> Load:
    """M/M/c by Erlang's C, and Allen-Cunneen's (1 + variation²)/2 for other service times."""
    busy = rate * of.mean / slots
    if busy >= 1:
        return Load(slots=slots, rate=rate, busy=busy, waiting=math.inf, wait=math.inf, chance=1.0)
    chance = erlang_c(slots, rate * of.mean)
    wait = chance * of.mean / (slots * (1 - busy)) * (1 + of.variation**2) / 2
    return Load(slots=slots, rate=rate, busy=busy, waiting=rate * wait, wait=wait, chance=chance)


def erlang_c(slots: int, offered: float) -> float:
    """The chance of finding all `slots` busy, at `offered` = rate × mean service time < slots; by Erlang's B, whose
    recursion needs no factorials."""
    blocked = 1.0
    for k in range(1, slots + 1):
        blocked = offered * blocked / (k + offered * blocked)
    return blocked / (1 - offered / slots * (1 - blocked))


class Turned(Record, frozen=True, kw_only=True):
    """With a queue that has an end: who finds it full is turned away."""

    refused: float  # share of the arrivals
    served: float  # a second
    wait: float  # of the served, on average


def with_limit(rate: float, slots: int, queue: int, of: Service) -> Turned:
    """M/M/c/K with K = slots + queue, from the balance of its states; exponential service times, so a cautious figure
    for replies of equal length."""
    logs = [0.0]
    for n in range(1, slots + queue + 1):
        logs.append(logs[-1] + math.log(rate * of.mean) - math.log(min(n, slots)))
    top = max(logs)
    weights = [math.exp(x - top) for x in logs]
    total = sum(weights)
    refused = weights[-1] / total
    waiting = sum((n - slots) * w for n, w in enumerate(weights) if n > slots) / total
    served = rate * (1 - refused)
    return Turned(refused=refused, served=served, wait=waiting / served)


def slots_for(rate: float, of: Service, patience: float, share: float = 0.95, most: int = 1024) -> int | None:
    """The fewest slots at which at most 1 − `share` of the arrivals find a queue full that is as long as `patience`
    allows; None if `most` are too few. The service time is taken as it is: on one GPU it grows with the slots, so
    measure at the count that comes out."""
    for slots in range(1, most + 1):
        queue = room(patience, slots, of, share).queue
        if with_limit(rate, slots, queue, of).refused <= 1 - share:
            return slots
    return None


# -- another kind of server --


class Paged(Record, frozen=True, kw_only=True):
    """The same memory in pages: a sequence takes what it holds, not the whole context that each slot keeps ready."""

    sequences: int
    slots: int
    tokens_each: int  # what a measured sequence takes, in whole pages
    worth_it: bool


def paged(slots: int, context: int, tokens: Sequence[int], share: float = 0.95, page: int = 16) -> Paged | None:
    """How many sequences of the measured lengths the cache of `slots` × `context` tokens would hold if it were paged.
    Mean length plus a margin for the spread of the sum, so that they fit in `share` of cases. None without lengths.
    Twice the sequences is where another server is worth its trouble."""
    if not tokens or slots < 1 or context < 1:
        return None
    whole = [math.ceil(max(1, t) / page) * page for t in tokens]
    mean = sum(whole) / len(whole)
    spread = math.sqrt(sum((w - mean) ** 2 for w in whole) / max(1, len(whole) - 1))
    cells, z = slots * context, quantile(share)
    # n·mean + z·spread·√n ≤ cells, solved for √n
    root = (-z * spread + math.sqrt((z * spread) ** 2 + 4 * mean * cells)) / (2 * mean)
    found = max(slots, math.floor(root**2 + 1e-9))
    return Paged(sequences=found, slots=slots, tokens_each=math.ceil(mean), worth_it=found >= 2 * slots)


def quantile(share: float) -> float:
    """The standard normal distribution's quantile (Acklam's rational approximation, relative error below 1.2e-9).
    Raises ValueError outside (0, 1)."""
    if not 0 < share < 1:
        raise ValueError(f"{share} is no share between 0 and 1")
    a = (-3.969683028665376e1, 2.209460984245205e2, -2.759285104469687e2, 1.383577518672690e2, -3.066479806614716e1,
         2.506628277459239)  # fmt: skip
    b = (-5.447609879822406e1, 1.615858368580409e2, -1.556989798598866e2, 6.680131188771972e1, -1.328068155288572e1)
    c = (-7.784894002430293e-3, -3.223964580411365e-1, -2.400758277161838, -2.549732539343734, 4.374664141464968,
         2.938163982698783)  # fmt: skip
    d = (7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416)
    if 0.02425 <= share <= 1 - 0.02425:
        q = share - 0.5
        r = q * q
        top = (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q
        return top / (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1)
    q = math.sqrt(-2 * math.log(min(share, 1 - share)))
    low = (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) / (
        (((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1
    )
    return low if share < 0.5 else -low


# -- all of it --


class Demand(Record, frozen=True, kw_only=True):
    """What clients of some patience can expect. The last five are None where no rate of arrivals was given, nothing
    says how many slots fit, or no lengths were measured. `needed` None beside a `rate`: no number would do."""

    service: Service
    room: Room
    rate: float | None = None
    load: Load | None = None
    turned: Turned | None = None  # with the queue of `room`
    needed: int | None = None  # slots that would do
    fits: int | None = None  # slots that the memory holds
    paged: Paged | None = None

    @property
    def met(self) -> bool:
        """Whether the slots meet the demand, as far as one is known."""
        return self.rate is None or (self.needed is not None and self.needed <= self.room.slots)


def demand(
    patience: float,
    slots: int,
    of: Service,
    *,
    share: float = 0.95,
    rate: float | None = None,
    fits: int | None = None,
    context: int = 0,
    lengths: Sequence[int] = (),
) -> Demand:
    """`context`: tokens that each slot keeps ready; `lengths`: tokens of measured sequences, prompt and reply."""
    found = Demand(
        service=of, room=room(patience, slots, of, share), fits=fits, paged=paged(slots, context, lengths, share)
    )
    if rate is None:
        return found
    return msgspec.structs.replace(
        found,
        rate=rate,
        load=load(rate, slots, of),
        turned=with_limit(rate, slots, found.room.queue, of),
        needed=slots_for(rate, of, patience, share),
    )
