"""Lines of a bench: a figure, its goal, and whether it holds."""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Iterator, Sequence


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def goal(what: str, value: float, limit: float, unit: str = "") -> bool:
    """Prints `what`, and whether it is at most `limit`. True where it is missed."""
    missed = value > limit
    print(f"   {what:<58} {value:8.3f} {unit:<3} goal ≤ {limit:g}  {'MISSED' if missed else 'ok'}")
    return missed


def figure(what: str, value: float, unit: str = "") -> None:
    print(f"   {what:<58} {value:8.3f} {unit}")


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """This process, and what it starts meanwhile, has a core before any other program, where the system lets us: both
    sides of a comparison are measured, and not who else uses the machine."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        print("   (not root: other programs have their share of the cores)")
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)
