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


def band(hyper: Hyper, graph: Graph) -> Band:
    if not hyper.known:
        return UNKNOWN
    return Band(0.02, 0.02)
