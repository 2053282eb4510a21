"""Numeric keys of an architecture in the header of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ollamactl.core.memory.model import Number

if TYPE_CHECKING:
    from ollamactl.core.parse.gguf import GgufHeader


class Keys:
    """Reads `ARCHITECTURE.name` keys as numbers or per-layer arrays."""

    def __init__(self, header: GgufHeader) -> None:
        self._metadata, self._prefix = header.metadata, header.architecture + "."

    def number(self, name: str, default: int = 0) -> int:
        value = self._metadata.get(self._prefix + name)
        if isinstance(value, tuple):
            value = value[0] if value else default
        return int(value) if isinstance(value, (int, float)) else default

    def has(self, name: str) -> bool:
        return self._prefix + name in self._metadata

    def each(self, name: str, count: int, default: int = 0) -> list[int]:
        value = self._metadata.get(self._prefix + name)
        if isinstance(value, tuple):
            numbers = [int(v) if isinstance(v, (int, float)) else default for v in value]
            return (numbers + [default] * count)[:count]
        return [int(value) if isinstance(value, (int, float)) else default] * count

    def above(self, name: str, count: int) -> list[bool]:
        """Whether a number, or one for each block, is above 0."""
        value = self._metadata.get(self._prefix + name, 0)
        each = list(value[:count]) if isinstance(value, tuple) else [value] * count
        return [isinstance(v, (int, float)) and v > 1e-6 for v in each] + [False] * (count - len(each))

    def is_array(self, name: str) -> bool:
        return isinstance(self._metadata.get(self._prefix + name), tuple)

    def all(self) -> dict[str, Number]:
        start = len(self._prefix)
        return {
            name[start:]: value
            for name, value in self._metadata.items()
            if name.startswith(self._prefix) and isinstance(value, (int, float))
        }
