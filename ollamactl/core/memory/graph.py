"""ggml's graph allocator, followed step by step: the exact peak of a graph whose tensors are known by size only.

A graph is built like llama.cpp builds it (tensors in the order in which it expands them), then laid out with the rules
of ggml-alloc.c: a result may take the place of an input that nobody else needs, otherwise the smallest free block that
is large enough is taken, and the buffer grows at its end. What comes out is the compute buffer's size, to the byte.
"""

from __future__ import annotations

ALIGNMENT = 128  # of a device's buffers (CUDA)
HOST_ALIGNMENT = 32  # of the CPU's
MOST_INPUTS = 30  # of a part of a graph (GGML_SCHED_MAX_SPLIT_INPUTS)
ENDLESS = 1 << 62  # bytes at the end of a buffer that may grow
OFFLOADED = 32  # rows from which on a device borrows a matrix of the host


class Tensor:
    """A tensor of a graph. `root` is the tensor that a view looks into; `layout` tells which tensors are alike."""

    __slots__ = (
        "allocated",
        "at",
        "children",
        "expanded",
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
        self.allocated = self.expanded = False


class Graph:
    """Nodes in the order of evaluation."""

    def __init__(self) -> None:
        self.nodes: list[Tensor] = []

    def expand(self, tensor: Tensor) -> Tensor:
        """Add a tensor and, before it, what it needs (ggml_build_forward_expand)."""
        stack = [] if tensor.expanded else [tensor]
        while stack:
            node = stack[-1]
            for source in node.sources:
                if not source.expanded:
                    stack.append(source)
                    break
            else:
                node.expanded = True
                stack.pop()
                if node.sources or not node.outside:
                    self.nodes.append(node)
        return tensor


def with_inputs(nodes: list[Tensor], inputs: set[Tensor], copies: int) -> list[Tensor]:
    """Nodes with copies of inputs before them. `copies`: of each, more than one of a pipeline.

    A part of a graph takes only so many inputs; what is first needed after these comes with the next part.
    """
    out: list[Tensor] = []
    waiting, start, taken, room = set(inputs), 0, 0, MOST_INPUTS
    for node in nodes:
        if waiting.isdisjoint(node.sources):
            out.append(node)
            continue
        if taken >= room:
            start, taken, room = len(out), 0, MOST_INPUTS
        for tensor in node.sources:
            if tensor not in waiting:
                continue
            waiting.discard(tensor)
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
    waiting, borrowed = set(inputs), set[Tensor]()
    out: list[Tensor] = []
    start, copied, was_host = 0, 0, False
    for node in nodes:
        if node.on_host:
            was_host = True
            out.append(node)
            continue
        if was_host or (node.weight is not None and copied):
            start, copied, was_host = len(out), 0, False
        fresh = [s for s in node.sources if s in waiting]
        if node.weight is not None:
            node.sources = (node.weight, *node.sources)
            if node.weight not in borrowed:
                borrowed.add(node.weight)
                fresh.insert(0, node.weight)
        for tensor in fresh:
            waiting.discard(tensor)
            out.insert(start + copied, tensor)
            copied += 1
        out.append(node)
    return out


class _Buffer:
    """The free blocks of a buffer that grows at its end, and how far it has grown (ggml_dyn_tallocr)."""

    __slots__ = ("free", "top")

    def __init__(self) -> None:
        self.free: list[list[int]] = [[0, ENDLESS]]  # offset, size
        self.top = 0

    def take(self, size: int) -> int:
        """The place of the smallest block before the last that is large enough, the last of several; else the last."""
        best, room = self.free[-1], ENDLESS
        for block in self.free[:-1]:
            if size <= block[1] <= room:
                best, room = block, block[1]
        offset = best[0]
        best[0] += size
        best[1] -= size
        if best[0] > self.top:
            self.top = best[0]
        if not best[1]:
            self.free.remove(best)
        return offset

    def give_back(self, offset: int, size: int) -> None:
        """As ggml does it, which can leave neighbours apart where a block of no size lies between them."""
        blocks, end = self.free, offset + size
        for index, (start, length) in enumerate(blocks):
            if start + length == offset:
                blocks[index][1] += size
                if index + 1 < len(blocks) and end == blocks[index + 1][0]:
                    blocks[index][1] += blocks.pop(index + 1)[1]
                return
            if end == start:
                blocks[index] = [offset, size + length]
                return
        before = next((index for index, (start, _) in enumerate(blocks) if start >= offset), len(blocks))
        blocks.insert(before, [offset, size])


def peak(nodes: list[Tensor], alignment: int = ALIGNMENT) -> int:
    """Bytes of the buffer that a list of nodes needs (ggml_gallocr_reserve)."""
    for node in nodes:
        node.size = -(-node.size // alignment) * alignment
        if node.root is not None:
            node.root.views += 1
        for source in node.sources:
            source.children += 1
    buffer = _Buffer()
    for node in nodes:
        if node.root is None and not node.outside:
            parent = _replaced(node) if node.inplace else None
            if parent is None:
                node.at = buffer.take(node.size)
            else:
                node.at = parent.at
                parent.allocated = False
                if parent.size > node.size:
                    buffer.give_back(node.at + node.size, parent.size - node.size)
            node.allocated = True
        for parent in node.sources:
            parent.children -= 1
            if parent.children or parent.views:
                continue
            owner = parent.root
            if owner is None:
                owner = parent
            else:
                owner.views -= 1
                if owner.views or owner.children:
                    continue
            if owner.allocated and not owner.output:
                buffer.give_back(owner.at, owner.size)
                owner.allocated = False
    return buffer.top


def _replaced(node: Tensor) -> Tensor | None:
    """The input whose place a result takes: never through a view, which ggml does not count as its own."""
    for parent in node.sources:
        if (
            parent.root is None and parent.allocated and parent.children == 1 and not parent.views
            and not parent.output and parent.layout == node.layout
        ):  # fmt: skip
            return parent
    return None
