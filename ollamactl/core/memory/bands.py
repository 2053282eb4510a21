"""How far a predicted compute buffer may be off, as shares of it.

Where the graph is followed step by step nothing but a few numbers a token is left. For architectures that only the
formula describes, the band is that of the formula applied to all architectures, also to those whose graph is known: of
8,000 dry loads of two engines (llama.cpp builds 10566 and 11549) one in a hundred lies below it, one in a hundred
above; taken from all architectures but one, it holds 95 in a hundred loads of that one, on average. For unknown
architectures it is that of known ones which were taken for plain decoders: 2.5 in a hundred below, 2.5 above.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ollamactl.core.memory import blockwise, kernels

if TYPE_CHECKING:
    from ollamactl.core.memory.model import Hyper
    from ollamactl.core.memory.shape import Graph


class Band(NamedTuple):
    """The truth lies between (1 - below) and (1 + above) times the prediction."""

    below: float
    above: float


UNKNOWN = Band(0.82, 1.9)
BUILT = Band(0.0005, 0.0005)
HOSTED = Band(0.32, 0.25)  # recurrent blocks in host memory: what runs there depends on the tokens a sequence
PARTED = Band(0.05, 0.08)  # flash attention of some layers on the device, of others on the host
CHOSEN = Band(0.02, 0.2)  # sparse attention by blocks
FORMULA = Band(0.17, 0.25)


def band(hyper: Hyper, graph: Graph, *, built: bool) -> Band:
    """The band of a compute buffer."""
    if not (hyper.known and hyper.family.built):
        return UNKNOWN
    if not built:
        return FORMULA
    if blockwise.applies(hyper, graph):
        return CHOSEN
    if graph.attend_on_host and any(kernels.has_kernel(hyper, layer) for layer, _ in hyper.groups if layer.k):
        return PARTED
    return BUILT
