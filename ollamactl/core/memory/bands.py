"""How far the compute rule may be off, by family: shares of the compute buffer, measured against real engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ollamactl.core.memory.compute import Graph
    from ollamactl.core.memory.model import Hyper


class Band(NamedTuple):
    """The truth lies between (1 - below) and (1 + above) times the prediction."""

    below: float
    above: float


UNKNOWN = Band(0.4, 0.6)
BUILT = Band(0.002, 0.002)


def band(hyper: Hyper, graph: Graph, *, built: bool) -> Band:
    """The band of a compute buffer."""
    if not hyper.known:
        return UNKNOWN
    if built:
        return BUILT
    return Band(0.1, 0.1)
