"""ggml's graph allocator, followed step by step: the exact peak of a graph whose tensors are known by size only.

A graph is built like llama.cpp builds it (tensors in the order in which it expands them), then laid out with the rules
of ggml-alloc.c: a result may take the place of an input that nobody else needs, otherwise the smallest free block that
is large enough is taken, and the buffer grows at its end. What comes out is the compute buffer's size, to the byte.
"""

from __future__ import annotations

ALIGNMENT = 128  # of a device's buffers (CUDA)
HOST_ALIGNMENT = 32  # of the CPU's
MOST_INPUTS = 30  # of a part of a graph (GGML_SCHED_MAX_SPLIT_INPUTS)
OFFLOADED = 32  # rows from which on a device borrows a matrix of the host


class Tensor:
    """A tensor of a graph. `root` is the tensor that a view looks into; `layout` tells which tensors are alike."""

    __slots__ = (
        "allocated",
        "at",
        "children",
        "inplace",
        "layout",
        "offset",
        "on_host",
        "output",
        "outside",
        "root",
        "size",
        "sources",
        "views",
        "weight",
    )  # fmt: skip

    def __init__(
        self, size: int, sources: tuple[Tensor, ...] = (), *, inplace: bool = False, root: Tensor | None = None,
        layout: object = None, outside: bool = False, offset: int = 0,
    ) -> None:  # fmt: skip
        self.size, self.sources, self.inplace, self.root = size, sources, inplace, root
        self.layout = layout if layout is not None else size
        self.outside = outside  # weights, caches: not in this buffer
        self.output = False
        self.weight: Tensor | None = None  # a matrix that has to be copied to the device first
        self.on_host = False  # evaluated on the host
        self.offset = offset
        self.children = self.views = self.at = 0
        self.allocated = False


class Graph:
    """Nodes in the order of evaluation."""

    def __init__(self) -> None:
        self.nodes: list[Tensor] = []
        self._seen: set[int] = set()

    def expand(self, tensor: Tensor) -> Tensor:
        """Add a tensor and, before it, what it needs (ggml_build_forward_expand)."""
        stack: list[tuple[Tensor, int]] = [(tensor, 0)]
        while stack:
            node, index = stack.pop()
            if index == 0:
                if id(node) in self._seen:
                    continue
                self._seen.add(id(node))
            if index < len(node.sources):
                stack.append((node, index + 1))
                source = node.sources[index]
                if id(source) not in self._seen:
                    stack.append((source, 0))
                continue
            if not node.outside or node.sources:
                self.nodes.append(node)
        return tensor


def with_inputs(nodes: list[Tensor], inputs: set[int], copies: int) -> list[Tensor]:
    """Nodes with copies of inputs before them. `inputs`: their ids; `copies`: of each, more than one of a pipeline.

    A part of a graph takes only so many inputs; what is first needed after these comes with the next part.
    """
    out: list[Tensor] = []
    waiting, start, taken, room = set(inputs), 0, 0, MOST_INPUTS
    for node in nodes:
        fresh = [s for s in node.sources if id(s) in waiting]
        if fresh and taken >= room:
            start, taken, room = len(out), 0, MOST_INPUTS
        for tensor in fresh:
            if id(tensor) not in waiting:
                continue
            waiting.discard(id(tensor))
            twins = [tensor, *(Tensor(tensor.size) for _ in range(copies - 1))]
            for twin in twins:
                twin.output = copies > 1  # the others of a pipeline still read it
            at = start + taken * copies
            out[at:at] = twins
            taken += 1
            room = room if taken <= room else 2 * room  # one node is never divided
        out.append(node)
    return out


def in_parts(nodes: list[Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """Nodes with the copies of inputs and weights at the start of the part that needs them (ggml-backend.cpp).

    A new part begins after nodes that the host evaluates, and where a weight has to be copied although the part has
    copied something already, so that the room of the former weight can be used again.
    """
    waiting = {id(t) for t in inputs}
    borrowed: set[int] = set()
    out: list[Tensor] = []
    start, copied, was_host = 0, 0, False
    for node in nodes:
        if node.on_host:
            was_host = True
            out.append(node)
            continue
        if was_host or (node.weight is not None and copied):
            start, copied, was_host = len(out), 0, False
        fresh = [s for s in node.sources if id(s) in waiting]
        if node.weight is not None:
            node.sources = (node.weight, *node.sources)
            if id(node.weight) not in borrowed:
                borrowed.add(id(node.weight))
                fresh.insert(0, node.weight)
        for tensor in fresh:
            waiting.discard(id(tensor))
            out.insert(start + copied, tensor)
            copied += 1
        out.append(node)
    return out


def peak(nodes: list[Tensor], alignment: int = ALIGNMENT) -> int:
    """Bytes of the buffer that a list of nodes needs (ggml_gallocr_reserve)."""

    def aligned(size: int) -> int:
        return -(-size // alignment) * alignment

    for node in nodes:
        if node.root is not None:
            node.root.views += 1
        for source in node.sources:
            source.children += 1
    blocks: list[list[int]] = [[0, 1 << 62]]  # free: offset, size; sorted
    top = 0

    def give_back(offset: int, size: int) -> None:
        """As ggml does it, which can leave neighbours apart where a block of no size lies between them."""
        for index, block in enumerate(blocks):
            if block[0] + block[1] == offset:
                block[1] += size
                if index + 1 < len(blocks) and block[0] + block[1] == blocks[index + 1][0]:
                    block[1] += blocks[index + 1][1]
                    del blocks[index + 1]
                return
            if offset + size == block[0]:
                block[0] = offset
                block[1] += size
                if index and blocks[index - 1][0] + blocks[index - 1][1] == offset:
                    blocks[index - 1][1] += block[1]
                    del blocks[index]
                return
        index = 0
        while index < len(blocks) and blocks[index][0] < offset:
            index += 1
        blocks.insert(index, [offset, size])

    def take_over(node: Tensor, owner: Tensor) -> None:
        node.at = owner.at
        owner.allocated = False
        spare = aligned(owner.size) - aligned(node.size)
        if spare > 0:
            give_back(node.at + aligned(node.size), spare)

    for node in nodes:
        if not node.outside and node.root is None:
            node.allocated = True
            placed = False
            if node.inplace:
                for parent in node.sources:  # never through a view: ggml does not count one as its own
                    if (
                        parent.root is None and parent.allocated and not parent.output
                        and parent.children == 1 and parent.views == 0 and parent.layout == node.layout
                    ):  # fmt: skip
                        take_over(node, parent)
                        placed = True
                        break
            if not placed:
                size = aligned(node.size)
                best = -1
                for index in range(len(blocks) - 1):
                    if blocks[index][1] >= size and (best < 0 or blocks[index][1] <= blocks[best][1]):
                        best = index
                block = blocks[best]
                node.at = block[0]
                block[0] += size
                block[1] -= size
                top = max(top, node.at + size)
                if block[1] == 0:
                    del blocks[best]
        for parent in node.sources:
            parent.children -= 1
            if parent.children == 0 and parent.views == 0:
                if parent.root is not None:
                    owner = parent.root
                    owner.views -= 1
                    if owner.views == 0 and owner.children == 0 and owner.allocated and not owner.output:
                        give_back(owner.at, aligned(owner.size))
                        owner.allocated = False
                elif parent.allocated and not parent.output:
                    give_back(parent.at, aligned(parent.size))
                    parent.allocated = False
    return top
