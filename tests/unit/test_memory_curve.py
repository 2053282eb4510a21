"""Buffers between those that are laid out: the larger of two lines, and whatever is on no line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ollamactl.core.memory.curve import Curve

FLAT, STEEP = 1024, 5120


def lines(cells: int) -> int:
    return max(7_000_000 + FLAT * cells, 100_000 + STEEP * cells)


def with_a_jump(cells: int) -> int:
    return lines(cells) + (900_000 if cells >= 11_008 else 0)


def with_a_gap(cells: int) -> int:
    """A room that is found again for a while: lower there, on the same slopes."""
    return lines(cells) - (300_000 if 1536 <= cells < 3072 else 0)


def on_no_line(cells: int) -> int:
    return cells * cells // 256


@pytest.mark.parametrize("size", [lines, with_a_jump, with_a_gap, on_no_line])
def test_every_number_of_cells_gets_what_would_be_laid_out(size: Callable[[int], int]) -> None:
    curve = Curve(size, (FLAT, STEEP))
    assert [curve.at(cells) for cells in range(256, 65_536, 256)] == [size(c) for c in range(256, 65_536, 256)]


def test_few_are_laid_out_where_lines_meet() -> None:
    asked = []

    def laid_out(cells: int) -> int:
        asked.append(cells)
        return lines(cells)

    curve = Curve(laid_out, (FLAT, STEEP))
    for cells in range(256, 65_536, 256):
        curve.at(cells)
    assert len(asked) == len(set(asked)) <= 10


def test_lines_of_three_slopes() -> None:
    def size(cells: int) -> int:
        return max(9_000_000, FLAT * cells, STEEP * cells - 200_000_000)

    curve = Curve(size, (0, FLAT, STEEP))
    assert all(curve.at(cells) == size(cells) for cells in range(256, 262_144, 256))
