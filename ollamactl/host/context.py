"""What a transaction works with, how it ends, and the signals that may stop it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

import msgspec

from ollamactl.core.facts import Facts
from ollamactl.core.mismatch import Mismatch
from ollamactl.core.source import Host
from ollamactl.core.verify import Judgement
from ollamactl.host.journal import Store
from ollamactl.host.serving import Manager

SIGNALS = tuple(getattr(signal, n) for n in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, n))  # Windows has two


class Interrupted(BaseException):
    """SIGINT, SIGTERM or SIGHUP: undo, then leave."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Lost(Exception):
    """The change did not take; the mismatches say why."""

    def __init__(self, *mismatches: Mismatch) -> None:
        super().__init__(mismatches[0].text)
        self.mismatches = mismatches


class Report(Protocol):
    """Where progress goes. Never raises: a closed terminal does not stop a transaction."""

    def step(
        self, text: str, *, ok: bool = True, seconds: float | None = None, detail: tuple[str, ...] = ()
    ) -> None: ...
    def undone(self, text: str, seconds: float | None = None) -> None: ...
    def note(self, text: str) -> None: ...
    def working(self, text: str) -> None: ...


class Context(msgspec.Struct, frozen=True):
    host: Host
    manager: Manager
    store: Store
    report: Report
    command: str = "ollamactl apply"
    user: str = ""
    timeout: float = 300.0  # for a load; an answer is waited for at most 60 s of it
    start: bool = False  # start a unit that does not run
    watch: float = 0.0  # s that the process has to go on serving after all is proven


class Result(msgspec.Struct, frozen=True, kw_only=True):
    status: Literal["applied", "restored", "not-restored", "unchanged", "unproven"]
    entry: int
    mismatches: tuple[Mismatch, ...] = ()
    judgement: Judgement = Judgement()
    after: Facts | None = None
    loaded: tuple[str, ...] = ()  # models that were loaded as a proof
    restarted: bool = False  # the service, to have back what was before
    conflicts: tuple[str, ...] = ()
    seconds: float = 0.0
    problems: tuple[str, ...] = ()  # what the undo could not do
    commands: tuple[str, ...] = ()  # to be typed, in this order, where the host could not be put back


@contextmanager
def signals_raise() -> Iterator[None]:
    """The first SIGINT, SIGTERM or SIGHUP raises Interrupted in the main thread; those after it are not heard, since
    the first is being answered. One that is ignored from the start (nohup) stays so."""
    heard = False

    def stop(number: int, frame: Any) -> None:
        nonlocal heard
        if not heard:
            heard = True
            raise Interrupted(number)

    before = {n: signal.signal(n, stop) for n in SIGNALS if signal.getsignal(n) is not signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def deafen() -> None:
    """No signal is heard any more, until `signals_raise` ends: the transaction's outcome is decided, and half of
    it helps nobody."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def signals_wait() -> Iterator[None]:
    """Signals are not heard within the block."""
    before = {n: signal.signal(n, signal.SIG_IGN) for n in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
