"""What a verification can say: a setting that does not run as wanted, and what is merely worth knowing."""

from __future__ import annotations

import msgspec


class Mismatch(msgspec.Struct, frozen=True):
    """A setting that does not run as wanted, and the layer where it was lost."""

    id: str
    name: str
    layer: str
    text: str
    evidence: tuple[str, ...] = ()
    fix: str = ""


class Note(msgspec.Struct, frozen=True):
    """Something that a reader should know and that is not wrong."""

    id: str
    text: str
