"""The parts that the memory of one start consists of, and their sums."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["exact", "modelled", "unknown"]


class Term(msgspec.Struct, frozen=True):
    """One part of the memory. `below`, `above`: bytes that the truth may be under or over it."""

    name: str  # weights, cache, window cache, indexer cache, recurrent, compute, output, projector
    device: int
    bytes: int
    kind: Kind
    below: int = 0
    above: int = 0


class Prediction(msgspec.Struct, frozen=True):
    """All terms of one start, and what the engine does with flash attention."""

    terms: tuple[Term, ...]
    flash: bool
    notes: tuple[str, ...] = ()

    def on(self, device: int) -> int:
        """Bytes on a device (or the host)."""
        return sum(t.bytes for t in self.terms if t.device == device)

    def most(self, device: int) -> int:
        """Bytes on a device at the upper end of every band."""
        return sum(t.bytes + t.above for t in self.terms if t.device == device)

    def least(self, device: int) -> int:
        """Bytes on a device at the lower end of every band."""
        return sum(t.bytes - t.below for t in self.terms if t.device == device)

    def total(self, name: str | None = None) -> int:
        """Bytes of one term, or of all, over all devices and the host."""
        return sum(t.bytes for t in self.terms if name is None or t.name == name)
