"""Lines of a bench: a figure, its goal, and whether it holds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def goal(what: str, value: float, limit: float, unit: str = "") -> bool:
    """Prints `what`, and whether it is at most `limit`. True where it is missed."""
    missed = value > limit
    print(f"   {what:<58} {value:8.3f} {unit:<3} goal ≤ {limit:g}  {'MISSED' if missed else 'ok'}")
    return missed


def figure(what: str, value: float, unit: str = "") -> None:
    print(f"   {what:<58} {value:8.3f} {unit}")
