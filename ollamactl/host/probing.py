"""A measurement of a server: baseline, bursts, arrivals, and where its runner's slots can be seen."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator

import msgspec

from ollamactl.core import prompts
from ollamactl.core.judge import phase
from ollamactl.core.measure import Baseline, Kind, Phase, Probe, Sent, baseline
from ollamactl.core.parse import api
from ollamactl.core.plan import full_name
from ollamactl.errors import Exit, Failure
from ollamactl.host import load
from ollamactl.host.context import SIGNALS
from ollamactl.host.load import Halt, Session
from ollamactl.host.slots import Slots
from ollamactl.host.wire import Target

Tell = Callable[[str], None]

MOST_CLIENTS = 4096
MOST_REQUESTS = 100_000
BASELINE = 3  # requests that are alone


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be measured."""

    model: str
    clients: tuple[int, ...] = (8,)
    rounds: int = 1
    rate: float | None = None
    seconds: float = 30.0  # of arrivals
    cold: bool = False
    prompt_tokens: int | None = None
    output_tokens: int = 64
    client_timeout: float | None = None
    time_limit: float = 600.0
    seed: int = 0


# -- the measurement --


def measure(where: Target, wanted: Wanted, slots: Slots, tell: Tell) -> Probe:
    """Runs it all; ^C ends it with what there is. Raises Failure where not even one request was answered."""
    most = _most(wanted)
    # The loop leaves the signals that it hears at their defaults; whoever called may be hearing them too.
    mine = _hears()
    before = {n: signal.getsignal(n) or signal.SIG_DFL for n in SIGNALS} if mine else {}
    try:
        return asyncio.run(_measure(where, wanted, slots, tell, most))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if mine:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _most(wanted: Wanted) -> int:
    """How many requests may be in flight. Raises Failure where that is fewer than are wanted at once."""
    if wanted.rate:
        return load.allow_connections(MOST_CLIENTS)
    need = max(wanted.clients)
    most = load.allow_connections(need)
    if most < need:
        raise Failure(
            f"{need} connections at once are more than this process may open ({most})",
            hint=f"ulimit -n {need + load.SPARE}, or fewer at once",
            code=Exit.USAGE,
            id="too_many_files",
        )
    return most


def _hears() -> bool:
    """Whether signals can be heard by the loop: in the main thread, and not on Windows."""
    return threading.current_thread() is threading.main_thread() and sys.platform != "win32"


async def _measure(where: Target, wanted: Wanted, slots: Slots, tell: Tell, most: int) -> Probe:
    halt = Halt()
    loop = asyncio.get_running_loop()
    mine = _hears()
    for number in SIGNALS if mine else ():
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            loop.add_signal_handler(number, halt.set, "interrupt", number)
    limit = loop.call_later(wanted.time_limit, halt.set, "limit")
    taken = time.time()
    try:
        run = _Run(where, wanted, slots, tell, halt)
        await run.alone()
        if wanted.cold and not halt.event.is_set():
            await run.cold()
        for clients in () if wanted.rate else wanted.clients:
            if not halt.event.is_set():
                await run.burst("warm", clients)
        if wanted.rate and not halt.event.is_set():
            await run.arrivals(wanted.rate, most)
    finally:
        limit.cancel()
        if mine:
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the caller's own handlers are there again
    seen = [p.summary.slots for p in run.phases if p.summary.slots is not None]
    return Probe(
        url=where.url,
        model=wanted.model,
        version=run.version,
        taken=taken,
        baseline=run.base,
        phases=tuple(run.phases),
        slots=seen[-1] if seen else None,
        unseen="" if seen else slots.why or "no sample was taken",
        interrupted=halt.event.is_set() and halt.by == "interrupt",
        limited=halt.event.is_set() and halt.by == "limit",
        signal=halt.signal,
        prompt_tokens=wanted.prompt_tokens,
        output_tokens=wanted.output_tokens,
        client_timeout=wanted.client_timeout,
        seed=wanted.seed,
        notes=tuple(run.notes),
    )


class _Run:
    """What the steps of one measurement share."""

    def __init__(self, where: Target, wanted: Wanted, slots: Slots, tell: Tell, halt: Halt) -> None:
        self.where, self.wanted, self.slots, self.tell, self.halt = where, wanted, slots, tell, halt
        self.draw = random.Random(wanted.seed).random
        self.words = 24
        self.version = ""
        self.base: Baseline | None = None
        self.phases: list[Phase] = []
        self.notes: list[str] = []

    def body(self, words: int, tokens: int) -> bytes:
        # No option that concerns the runner: the server would load the model anew for it.
        options = {"num_predict": tokens, "seed": int(self.draw() * 2**31)}
        asked = {"model": self.wanted.model, "prompt": prompts.prompt(self.draw, words), "options": options}
        return msgspec.json.encode(asked)

    def bodies(self) -> Iterator[bytes]:
        while True:
            yield self.body(self.words, self.wanted.output_tokens)

    async def alone(self) -> None:
        """Loads the model, learns how many tokens a word is, and measures requests that have the server alone."""
        found = await load.get(self.where, "/api/version")
        self.version = api.version(found or b"")
        self.tell(f"loading {self.wanted.model}")
        session = Session(self.where, self.halt)
        small = await session.generate(0, self.body(16, 2))
        self._refused(small)
        if self.halt.event.is_set():
            return
        large = await session.generate(1, self.body(80, 2))
        if self.wanted.prompt_tokens is not None and small.reply and large.reply:
            size = prompts.size((16, small.reply.prompt_tokens), (80, large.reply.prompt_tokens)) or prompts.Size()
            self.words = size.words(self.wanted.prompt_tokens)
            await self._fits()
        await asyncio.to_thread(self.slots)
        session = Session(self.where, self.halt)
        async with _watching(session, self.slots):
            for n in range(BASELINE):
                self.tell(f"baseline: request {n + 1} of {BASELINE}, alone")
                await session.generate(n, self.body(self.words, min(self.wanted.output_tokens, 16)))
                if self.halt.event.is_set():
                    return
        self.base = baseline(session.sent, session.samples)
        if self.base is None:
            last = session.sent[-1]
            raise Failure(f"no request was answered: {last.error}", id="no_answer")
        if self.base.foreign:
            self.notes.append("others used the server during the baseline: it is no idle server's")

    def _refused(self, sent: Sent) -> None:
        """Raises Failure for a request that shows that no other can be answered either."""
        if sent.complete or sent.ended_by in ("interrupt", "limit"):
            return
        model, said = self.wanted.model, sent.error or f"HTTP {sent.status}"
        if sent.status is None:
            raise Failure(
                f"{self.where.url}: {said}",
                hint="another server? --url http://HOST:PORT; is it up? systemctl status ollama",
                id="absent",
            )
        if sent.status == 404:
            raise Failure(f"{model}: {said}", hint=f"ollama pull {model}", id="model_not_found")
        if sent.status in (401, 403):
            raise Failure(f"{self.where.url} refuses us: {said}", hint="--key-file FILE", id="denied")
        if sent.status in (429, 503):
            raise Failure(f"{self.where.url} refuses: {said}", hint="it is busy with others: try later", id="busy")
        if "does not support generate" in said:
            raise Failure(
                f"{model} is an embedding model: it generates no tokens to measure",
                hint="name a model that completes text",
                code=Exit.USAGE,
                id="no_generation",
            )
        raise Failure(f"{model} could not be run: {said}", hint="ollamactl doctor", id="load_failed")

    async def _fits(self) -> None:
        """A prompt that does not fit into the context is cut by the server: its time would be another prompt's."""
        loaded = api.loaded(await load.get(self.where, "/api/ps") or b"")
        mine = next((m for m in loaded if m.name == full_name(self.wanted.model)), None)
        need = (self.wanted.prompt_tokens or 0) + self.wanted.output_tokens
        if mine and mine.context and need > mine.context:
            raise Failure(
                f"{need} tokens are more than {self.wanted.model} has per slot ({mine.context})",
                hint=f"--prompt-tokens {max(1, mine.context - self.wanted.output_tokens)}, or a longer context: "
                f"sudo ollamactl apply --context-length {need}",
                code=Exit.USAGE,
                id="context_too_short",
            )

    async def cold(self) -> None:
        """The model unloaded, then as many requests at once as in the last burst."""
        self.tell(f"unloading {self.wanted.model}")
        body = msgspec.json.encode({"model": self.wanted.model, "keep_alive": 0, "stream": False})
        await Session(self.where, self.halt, 60.0).generate(0, body)
        until = time.monotonic() + 60.0
        while not self.halt.event.is_set():
            loaded = api.loaded(await load.get(self.where, "/api/ps") or b"")
            if all(m.name != full_name(self.wanted.model) for m in loaded):
                self.slots.port = None
                return await self.burst("cold", max(self.wanted.clients))
            if time.monotonic() > until:
                self.notes.append("the model could not be unloaded within 60 s: nothing was measured cold")
                return None
            await asyncio.sleep(0.1)
        return None

    async def burst(self, kind: Kind, clients: int) -> None:
        rounds = 1 if kind == "cold" else self.wanted.rounds
        session = Session(self.where, self.halt, self.wanted.client_timeout)
        total = clients * rounds
        shown = f"{clients} at once" + (", model not loaded" if kind == "cold" else "")

        def tell() -> None:
            self.tell(f"{shown}: {len(session.sent)} of {total} requests done")

        tell()
        async with _watching(session, self.slots):
            await session.closed(clients, rounds, self.bodies(), tell)
        self._keep(kind, session, clients, rounds)

    async def arrivals(self, rate: float, most: int) -> None:
        moments = prompts.arrivals(self.draw, rate, self.wanted.seconds, MOST_REQUESTS)
        session = Session(self.where, self.halt, self.wanted.client_timeout)

        def tell() -> None:
            self.tell(f"{rate:g} requests/s: {len(session.sent)} of {len(moments)} done")

        tell()
        async with _watching(session, self.slots):
            left_out = await session.open(moments, self.bodies(), most, tell)
        if left_out:
            self.notes.append(f"{left_out} arrivals were left out: {most} requests were in flight")
        self._keep("arrivals", session, 0, 1, rate)

    def _keep(self, kind: Kind, session: Session, clients: int, rounds: int, rate: float | None = None) -> None:
        found = phase(kind, session.sent, session.samples, self.base, clients=clients, rounds=rounds, rate=rate)
        self.phases.append(found)


@contextlib.asynccontextmanager
async def _watching(session: Session, slots: Slots) -> AsyncIterator[None]:
    """The runner's slots are sampled meanwhile; what begins after the first sample can be judged by them."""
    watcher = asyncio.ensure_future(load.watch(session, slots))
    for _ in range(40):
        if session.samples or not slots.port:
            break
        await asyncio.sleep(0.025)
    try:
        yield
    finally:
        # Before Python 3.12, wait_for loses a cancellation that comes in the moment of its result.
        while not watcher.done():
            watcher.cancel()
            await asyncio.wait({watcher}, timeout=0.2)
        if not watcher.cancelled() and (error := watcher.exception()):
            raise error
