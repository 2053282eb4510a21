"""What the size of a graph of one full batch depends on."""

from __future__ import annotations

import msgspec

from ollamactl.core.memory.cache import Cells, pad
from ollamactl.core.memory.eras import Era

CLASSIC, CURRENT, NEWEST = "classic", "current", "newest"  # classes of engine: see engine_class()


class Graph(msgspec.Struct, frozen=True):
    """What the size of a graph depends on. `flash`: it ends on; `transposed`: it was switched off explicitly."""

    ubatch: int
    context: int
    slots: int
    cells: Cells
    flash: bool
    transposed: bool
    type_k: str
    type_v: str
    cuda: bool = False
    engine: str = CURRENT
    attend_on_host: bool = False  # flash attention is on though the device has no kernel for some heads
    era: Era | None = None  # of a release before 0.30


def tokens(graph: Graph) -> int:
    """Tokens of the reserved graph: a whole batch, the same number for every slot."""
    return pad(min(graph.ubatch, pad(graph.context, 256)), graph.slots)
