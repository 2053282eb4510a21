"""Where the layers of a model lie: on devices, in host memory, or in part on either."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ollamactl.core.memory.model import Hyper

HOST = -1


class Overflow(NamedTuple):
    """So many bytes of a block's matrices lie on another device than the block, or on the host."""

    block: int
    to: int
    bytes: int


class Layout(msgspec.Struct, frozen=True):
    """Where each layer lies: `layers[i]` is the device of block i, the last entry that of the output; HOST is -1.

    `host_experts`: blocks whose expert matrices stay in host memory though the block is on a device.
    `overflow`: blocks of which other parts lie elsewhere. `named`: the engine's fit names parts of blocks, if perhaps
    none that are there; devices do not work as a pipeline then.
    """

    layers: tuple[int, ...]
    host_experts: frozenset[int] = frozenset()
    overflow: tuple[Overflow, ...] = ()
    named: bool = False

    @property
    def devices(self) -> int:
        """How many devices hold something."""
        return len(set(self.layers) - {HOST})

    @property
    def spilled(self) -> int:
        """Layers, the output counted, that are not wholly on a device."""
        return self.layers.count(HOST) + len(self.host_experts) + len(self.overflow)

    @property
    def whole(self) -> bool:
        """Whether every layer is wholly on a device."""
        return not self.spilled and not self.named

    @property
    def lent(self) -> frozenset[int]:
        """Blocks on devices of which matrices lie on the host."""
        return self.host_experts | {one.block for one in self.overflow if one.to == HOST}


def whole(hyper: Hyper, device: int = 0) -> Layout:
    """Everything on one device (or, with HOST, on the host)."""
    return Layout((device,) * (hyper.blocks + 1))
