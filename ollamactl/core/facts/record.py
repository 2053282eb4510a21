"""What all facts are made of."""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all facts."""


class Evidence(Record, frozen=True, kw_only=True):
    """A line that a statement rests on. `where` is a file, `journal`, or the name of a command."""

    where: str
    text: str
    line: int | None = None
    at: float | None = None
