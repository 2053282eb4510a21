"""A buffer by the number of cells of the cache, laid out at few of them.

With flash attention little but the masks grows with the context, and the largest of several such lines counts. Where
the buffers of a smaller and a larger context lie on lines of slopes that such growth has, so do those between, and
need not be laid out themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

STEP = 256  # cells come in multiples of it
SPAN = 4  # how many times as many cells the far end of a stretch has


class _Stretch(NamedTuple):
    """A line from the first buffer up to `before` cells, and one to the last buffer from `after` on."""

    first: int
    flat: int  # bytes a cell
    before: int
    last: int
    steep: int  # bytes a cell
    after: int


class Curve:
    """`laid_out(cells)`: the buffer in bytes; `slopes`: bytes that a further cell may take, ascending."""

    def __init__(self, laid_out: Callable[[int], int], slopes: tuple[int, ...]) -> None:
        self._laid_out, self._slopes = laid_out, slopes
        self._sizes: dict[int, int] = {}
        self._stretches: dict[tuple[int, int], _Stretch | None] = {}

    def at(self, cells: int) -> int:
        """Bytes at a number of cells, a multiple of STEP."""
        low = STEP
        while SPAN * low <= cells:
            low *= SPAN
        high = SPAN * low
        while low < cells:
            if (low, high) not in self._stretches:
                self._stretches[low, high] = self._stretch(low, high)
            found = self._stretches[low, high]
            if found is not None:
                if cells <= found.before:
                    return found.first + found.flat * (cells - low)
                return found.last - found.steep * (high - cells) if cells >= found.after else self._size(cells)
            middle = _up((low + high) // 2)
            low, high = (low, middle) if cells < middle else (middle, high)
        return self._size(low)

    def _size(self, cells: int) -> int:
        size = self._sizes.get(cells)
        if size is None:
            size = self._sizes[cells] = self._laid_out(cells)
        return size

    def _stretch(self, low: int, high: int) -> _Stretch | None:
        """Both ends on one line, or on two that reach as far as to where they meet; None where it's neither."""
        first, last, count = self._size(low), self._size(high), high - low
        for slope in self._slopes:
            if last - first == slope * count:
                return _Stretch(first, slope, high, last, slope, low)
        for flat, steep in combinations(self._slopes, 2):
            above = last - first - flat * count
            if not 0 < above < (steep - flat) * count:
                continue
            meet = _up(high - above // (steep - flat))
            # So far from there that a point of one line is not one of the other too.
            before, after = max(meet - 2 * STEP, low), min(meet + STEP, high)
            on_flat = self._size(before) == first + flat * (before - low)
            if on_flat and self._size(after) == last - steep * (high - after):
                return _Stretch(first, flat, before, last, steep, after)
        return None


def _up(cells: int) -> int:
    return -(-cells // STEP) * STEP
