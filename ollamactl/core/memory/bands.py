"""How far the compute rule may be off, by family: shares of the compute buffer, measured against real engines.

Measured on dry loads of two engines (llama.cpp builds 10566 and 11549) of up to twenty models of each architecture
with random widths: two in a hundred loads lie below the lower end, one in a hundred above the upper.
"""

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
BUILT = Band(0.0005, 0.0005)  # the graph is followed step by step; what is left are a few numbers a token
HOSTED = Band(0.3, 0.4)  # recurrent blocks in host memory: what runs there depends on the tokens a sequence
FORMULA = Band(0.15, 0.25)  # architectures of which no load was measured
CLASSIC = Band(0.1, 0.2)  # engines before Ollama 0.30, where the rule was compared with a few dozen public logs only

_MEASURED: dict[str, Band] = {
    "cohere2": Band(0.02, 0.01),
    "command-r": Band(0.01, 0.16),
    "deepseek2": Band(0.01, 0.01),
    "gemma-embedding": Band(0.21, 0.2),
    "gemma3": Band(0.01, 0.01),
    "gemma3n": Band(0.02, 0.3),
    "gemma4": Band(0.01, 0.15),
    "glm-dsa": Band(0.09, 0.35),
    "gpt-oss": Band(0.01, 0.15),
    "gpt2": Band(0.14, 0.35),
    "kimi-linear": Band(0.11, 0.01),
    "llama4": Band(0.01, 0.12),
    "minimax-01": Band(0.13, 0.24),
    "mistral4": Band(0.02, 0.01),
    "openelm": Band(0.1, 0.1),
    "step35": Band(0.09, 0.07),
}


def band(hyper: Hyper, graph: Graph, *, built: bool) -> Band:
    """The band of a compute buffer."""
    if not hyper.known:
        return UNKNOWN
    if graph.engine == "classic":
        return CLASSIC
    measured = _MEASURED.get(hyper.architecture)
    if measured is not None:
        return measured
    return BUILT if built else FORMULA
