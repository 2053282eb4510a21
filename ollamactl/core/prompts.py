"""Prompts that no cache has seen: the prefix that a server may have kept ends at the first word.

Chance comes from the caller: `draw()` gives uniform numbers in [0, 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ollamactl.core.facts import Record

Draw = Callable[[], float]
_TEXT = (
    "time year people way day man thing woman life child world school state family student group country problem "
    "hand part place case week company system program question work night point home water room mother area money "
    "story fact month lot right study book eye job word business issue side kind head house service friend father "
    "power hour game line end member law car city name team minute idea body back parent face level office door"
)
WORDS = tuple(_TEXT.split())


class Size(Record, frozen=True, kw_only=True):
    """How many tokens a prompt of so many words takes: `overhead` for the template, `each` a word."""

    overhead: float = 12.0
    each: float = 1.1

    def words(self, tokens: int) -> int:
        return max(1, round((tokens - self.overhead) / self.each))


def prompt(draw: Draw, words: int) -> str:
    """A list of words to be continued. Its first word is a number that no other prompt of this run begins with
    (but once in 10¹²)."""
    return " ".join([str(int(draw() * 10**12)), *(WORDS[int(draw() * len(WORDS))] for _ in range(max(1, words) - 1))])


def size(small: tuple[int, int], large: tuple[int, int]) -> Size | None:
    """From two prompts, each (words, tokens). None where the figures can't be (cached prompts, no count)."""
    (w1, t1), (w2, t2) = small, large
    if w2 <= w1 or t2 <= t1 or t1 <= 0:
        return None
    each = (t2 - t1) / (w2 - w1)
    return Size(overhead=max(0.0, t1 - each * w1), each=each)


def arrivals(draw: Draw, rate: float, seconds: float, most: int) -> list[float]:
    """Moments of a Poisson process: exponential gaps of mean 1/rate, until `seconds` or `most` of them."""
    found: list[float] = []
    at = _gap(draw, rate)
    while at < seconds and len(found) < most:
        found.append(at)
        at += _gap(draw, rate)
    return found


def _gap(draw: Draw, rate: float) -> float:
    return -math.log(1.0 - draw()) / rate
