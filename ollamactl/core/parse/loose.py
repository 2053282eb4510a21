"""Values out of JSON of somebody else, whose shape may differ: what is not of the asked kind counts as not there."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def of(record: Json, key: str) -> Json:
    """The object below a key."""
    found = record.get(key)
    return found if isinstance(found, dict) else {}


def items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def rows(value: Any) -> list[Json]:
    """The objects of a list."""
    return [row for row in items(value) if isinstance(row, dict)]


def texts(value: Any) -> list[str]:
    """The texts of a list."""
    return [text for text in items(value) if isinstance(text, str)]


def number(value: Any) -> int:
    """A whole number that a size or a count can be; 0 for all else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62 else 0
