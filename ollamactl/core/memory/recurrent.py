"""Recurrent mixers in a graph: Mamba, Mamba 2, PLaMo 2's variant and LFM2's short convolution.

They restate what src/models/mamba-base.cpp, plamo2.cpp, lfm2.cpp and llm_graph_context::build_rs of llama.cpp make: a
mixer takes the normed input of a block and gives the rows that are added to the residual.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from ollamactl.core.memory.graph import Tensor
from ollamactl.core.memory.layout import HOST

if TYPE_CHECKING:
    from ollamactl.core.memory.builder import Builder
    from ollamactl.core.memory.model import Block, Hyper, Layer

F = 4  # bytes of an f32


def made(*dims: int, sources: tuple[Tensor, ...], inplace: bool = False) -> Tensor:
    """A contiguous f32 tensor. Dimensions of 1 at the end do not tell tensors apart."""
    shape, count = list(dims), 1
    for width in dims:
        count *= width
    while len(shape) > 1 and shape[-1] == 1:
        shape.pop()
    return Tensor(F * count, sources, inplace=inplace, layout=tuple(shape))


def rows(b: Builder, width: int) -> Tensor:
    """The states of all sequences, read by their numbers.

    States that only move within the cache are copied beside them; in a reserved graph there are none, but a tensor of
    no size has a place too. Newer engines read both at once. States in host memory are read there and copied over.
    """
    if b.hosted:
        _on_host(b)
        return b.new_input(F * width * b.graph.slots)
    taken = made(width, b.graph.slots, sources=(_numbers(b, "all" if b.newest else "main"),))
    if b.newest:
        result = b.nodes.expand(b.view(taken, "main"))
        _move(b, b.view(taken, "extra"))
        return result
    b.nodes.expand(taken)
    _move(b, Tensor(0, (_numbers(b, "extra"),)))
    return taken


def _numbers(b: Builder, which: str) -> Tensor:
    """Numbers of states. A device gets a copy of every part that is asked for, the host looks into one tensor."""
    if b.on_host:
        return b.view(b.states, which)
    if which not in b.named_inputs:
        count = {"extra": 0, "tail": b.graph.slots - 1}.get(which, b.graph.slots)
        b.named_inputs[which] = b.new_input(4 * count)
    return b.named_inputs[which]


def _move(b: Builder, tensor: Tensor) -> None:
    b.nodes.expand(Tensor(0, (tensor,), outside=True))


def _on_host(b: Builder, *sources: Tensor) -> None:
    """Something that the host evaluates in between."""
    done = Tensor(0, sources, outside=True)
    done.on_host = True
    b.nodes.expand(done) if sources else b.nodes.nodes.append(done)


def keep(b: Builder, tensor: Tensor) -> None:
    """Part of a tensor is written back to the state."""
    kept = b.view(tensor, "kept")
    if b.hosted:
        _on_host(b, kept)
    else:
        _move(b, kept)


def scan(b: Builder, width: int, layer: Layer, *sources: Tensor) -> Tensor:
    """ssm_scan: rows of all tokens and, behind them, the new states.

    It reads the old states where they are, and is evaluated there. Newer engines gather all but the first state beside
    it nevertheless.
    """
    slots = b.graph.slots
    if b.hosted:
        _on_host(b, *sources)
        return b.new_input(F * width * b.tok)
    result = Tensor(F * (width * b.tok + layer.s * slots), (*sources, _numbers(b, "main")))
    b.nodes.expand(result)
    if b.newest:
        _move(b, b.view(Tensor(F * layer.s * (slots - 1), (_numbers(b, "tail"),)), "extra"))
    else:
        _move(b, Tensor(0, (_numbers(b, "extra"),)))
    keep(b, result)
    return result


def reads_early(hyper: Hyper, index: int) -> bool:
    """Whether a block reads its states before the block before it is done.

    Its states are asked for while the end of the block before is only made when something needs it, so that the
    engine's scheduler finds nodes of one block among those of the next, and may evaluate them on the wrong device.
    """
    return hyper.family.recurrent not in ("", "delta") and index < hyper.blocks and bool(hyper.layers[index].r)


def _states_after(hyper: Hyper, index: int) -> int | None:
    """The block whose states are read right after an attention, before what comes of that; None: none."""
    layer = hyper.layers[index]
    if layer.k and layer.r:  # both are in one block
        return index
    return _reads_next(hyper, index) if layer.k else None


def _reads_next(hyper: Hyper, index: int) -> int | None:
    """The block behind one without experts that reads its states early, with but dense feed-forwards between."""
    if hyper.block_tensors[index].experts:
        return None
    after = index + 1
    while after < hyper.blocks and not (
        hyper.layers[after].k or hyper.layers[after].r or hyper.block_tensors[after].experts
    ):
        after += 1
    return after if reads_early(hyper, after) else None


def attends_on_host(hyper: Hyper, hosted: frozenset[int], index: int) -> bool:
    """Whether the attention of a block in host memory is evaluated there, between reads of states in host memory."""
    return index in hosted and _states_after(hyper, index) in hosted


def attends_for_host(hyper: Hyper, places: tuple[int, ...], device: int) -> bool:
    """Whether a device evaluates the attention of a block in host memory, as the states behind it are its own."""
    after = (_states_after(hyper, index) for index, place in enumerate(places) if place == HOST)
    return any(index is not None and places[index] == device for index in after)


def loses_flash_attention(hyper: Hyper, hosted: list[bool]) -> bool:
    """Whether an attention that is left to the engine ends off, by where the blocks are (llama_context's check).

    The attention of a block in host memory, followed by states on a device, would be evaluated on the device. Blocks
    between them that are only a dense feed-forward change nothing: theirs is asked for after the states.
    """

    after = (_states_after(hyper, index) for index, host in enumerate(hosted) if host)
    return any(index is not None and not hosted[index] for index in after)


def mixes_devices(hyper: Hyper, places: tuple[int, ...]) -> bool:
    """Whether some nodes are evaluated on another device than their block is on, which adds copies to both."""
    return any(here != there and reads_early(hyper, index + 1) for index, (here, there) in enumerate(pairwise(places)))


def crossing(hyper: Hyper, index: int) -> tuple[int, int]:
    """Numbers a token that the devices of a block and of the next one copy from each other, were they two, besides
    what the block gives: the former's, the latter's.

    Where one recurrent block is behind another, the mixer of the former is split between the devices: what is scanned
    is on the next one, and its result comes back. As seen in dry loads.
    """
    here, after = hyper.layers[index], _reads_next(hyper, index)
    if not here.r or here.k or after is None or hyper.layers[after].k:
        return 0, 0
    inner, embedding = _key(hyper, "ssm.inner_size"), hyper.embedding
    match hyper.family.recurrent:
        case "mamba":
            return inner, 2 * inner
        case "mamba2":
            states = 2 * _key(hyper, "ssm.group_count") * _key(hyper, "ssm.state_size")
            return inner, 2 * inner + states + _key(hyper, "ssm.time_step_rank")
        case "rwkv6":
            return embedding, 3 * embedding
        case "rwkv7":
            return embedding, (7 if hyper.family.layer_norm else 5) * embedding // 2  # the latter: arwkv7
        case _:
            return 0, 0


def _key(hyper: Hyper, name: str) -> int:
    return int(hyper.keys.get(name, 0))


def number(b: Builder, name: str) -> int:
    return _key(b.hyper, name)


def mamba(b: Builder, cur: Tensor, layer: Layer, block: Block) -> Tensor:
    """Mamba: every channel has a step of its own, made through a narrow matrix."""
    slots, each = b.graph.slots, b.tok // b.graph.slots
    inner, state, conv = number(b, "ssm.inner_size"), number(b, "ssm.state_size"), number(b, "ssm.conv_kernel")
    rank = number(b, "ssm.time_step_rank")
    old = rows(b, layer.r)
    xz = b.weigh(made(2 * inner, each, slots, sources=(b.view(cur, "cur"),)), block, "ssm_in.weight")
    joined = made(conv - 1 + each, inner, slots, sources=(b.view(old, "conv"), b.view(b.view(xz, "x"), "x_t")))
    keep(b, joined)
    x = b.same(b.same(made(inner, each, slots, sources=(joined,))))
    mixed = b.weigh(made(rank + 2 * state, each, slots, sources=(x,)), block, "ssm_x.weight")
    dt, left, right = b.view(mixed, "dt"), b.view(mixed, "B"), b.view(mixed, "C")
    if "ssm_dt_norm.weight" in block.widths:
        dt = b.same(made(rank, each, slots, sources=(dt,)))
        left = b.same(made(state, 1, each, slots, sources=(left,)))
        right = b.same(made(state, 1, each, slots, sources=(right,)))
    elif b.newest:
        dt = made(rank, each, slots, sources=(dt,))
    dt = b.same(b.weigh(made(inner, each, slots, sources=(dt,)), block, "ssm_dt.weight"))
    result = scan(b, inner, layer, b.view(x, "x4"), dt, left, right)
    return _gated(b, xz, b.view(result, "y"), b.same(x), block, (inner, each, slots))


def mamba2(b: Builder, cur: Tensor, layer: Layer, block: Block) -> Tensor:
    """Mamba 2: a step a head; what is scanned comes out of one convolution."""
    if "ssm_x.weight" in block.widths:
        return _plamo2(b, cur, layer, block)
    slots, each = b.graph.slots, b.tok // b.graph.slots
    inner, state, conv = number(b, "ssm.inner_size"), number(b, "ssm.state_size"), number(b, "ssm.conv_kernel")
    groups, heads = number(b, "ssm.group_count"), number(b, "ssm.time_step_rank")
    channels = inner + 2 * groups * state
    width = block.widths["ssm_in.weight"]
    old = rows(b, layer.r)
    if b.newest:
        packed = b.weigh(b.make(width, cur, rows=b.tok), block, "ssm_in.weight")
    else:
        packed = b.weigh(made(width, each, slots, sources=(b.view(cur, "cur"),)), block, "ssm_in.weight")
    joined = made(conv - 1 + each, channels, slots,
                  sources=(b.view(old, "conv"), b.view(b.view(packed, "xBC"), "xBC_t")))  # fmt: skip
    keep(b, joined)
    mixed = b.same(b.same(made(channels, each, slots, sources=(joined,))))
    x, left, right = b.view(mixed, "x"), b.view(mixed, "B"), b.view(mixed, "C")
    dt = b.same(made(heads, each, slots, sources=(b.view(packed, "dt"),)))
    result = scan(b, inner, layer, x, dt, left, right)
    shape = (inner // max(heads, 1), heads, each, slots)
    y = _gate(b, packed, b.view(result, "y"), made(*shape, sources=(x,)), shape)
    if "ssm_norm.weight" in block.widths:
        y = b.same(made(inner // max(groups, 1), groups, each, slots, sources=(b.view(y, "grouped"),)))
    out = b.view(y, "flat")
    if b.newest:
        return b.weigh(b.make(b.hyper.embedding, out, rows=b.tok), block, "ssm_out.weight")
    return _out(b, out, block)


def _plamo2(b: Builder, cur: Tensor, layer: Layer, block: Block) -> Tensor:
    slots, each = b.graph.slots, b.tok // b.graph.slots
    inner, state, conv = number(b, "ssm.inner_size"), number(b, "ssm.state_size"), number(b, "ssm.conv_kernel")
    heads = number(b, "ssm.time_step_rank")
    width, rank = inner // max(heads, 1), block.widths["ssm_x.weight"] - 2 * state
    old = rows(b, layer.r)
    packed = b.weigh(made(2 * inner, each, slots, sources=(b.view(cur, "cur"),)), block, "ssm_in.weight")
    packed = made(2 * width, heads, each, slots, sources=(b.view(packed, "perm"),))
    x = made(inner, each, slots, sources=(b.view(packed, "x"),))
    joined = made(conv - 1 + each, inner, slots, sources=(b.view(old, "conv"), b.view(x, "x_t")))
    keep(b, joined)
    x = b.same(made(inner, each, slots, sources=(joined,)))
    mixed = b.weigh(made(block.widths["ssm_x.weight"], each, slots, sources=(x,)), block, "ssm_x.weight")
    left = b.same(made(state, each, slots, sources=(b.view(mixed, "B"),)))
    right = b.same(made(state, each, slots, sources=(b.view(mixed, "C"),)))
    dt = b.same(made(rank, each, slots, sources=(b.view(mixed, "dt"),)))
    dt = b.same(b.weigh(made(heads, each, slots, sources=(dt,)), block, "ssm_dt.weight"))
    x4 = b.view(x, "x4")
    result = scan(b, inner, layer, x4, dt, b.view(left, "B4"), b.view(right, "C4"))
    shape = (width, heads, each, slots)
    y = _gate(b, packed, b.view(result, "y"), made(*shape, sources=(x4,)), shape)
    return _out(b, b.view(y, "flat"), block)


def _gate(b: Builder, packed: Tensor, y: Tensor, skipped: Tensor, shape: tuple[int, ...]) -> Tensor:
    """What was scanned, with the input's share added, gated by z."""
    y = made(*shape, sources=(y, skipped), inplace=True)
    return made(*shape, sources=(made(*shape, sources=(b.view(packed, "z"),)), y))


def _gated(b: Builder, packed: Tensor, y: Tensor, skipped: Tensor, block: Block, shape: tuple[int, ...]) -> Tensor:
    return _out(b, _gate(b, packed, y, skipped, shape), block)


def _out(b: Builder, cur: Tensor, block: Block) -> Tensor:
    slots, e = b.graph.slots, b.hyper.embedding
    out = b.weigh(made(e, b.tok // slots, slots, sources=(cur,)), block, "ssm_out.weight")
    return b.view(out, (e, b.tok))


def short_convolution(b: Builder, cur: Tensor, layer: Layer, block: Block) -> Tensor:
    """LFM2: a gated convolution over a few tokens is all the state there is."""
    slots, each, e = b.graph.slots, b.tok // b.graph.slots, b.hyper.embedding
    packed = b.weigh(made(3 * e, each, slots, sources=(b.view(cur, "cur"),)), block, "shortconv.in_proj.weight")
    first, gate, last = b.view(packed, "b"), b.view(packed, "c"), b.view(packed, "x")
    product = made(e, each, slots, sources=(first, last))
    old = rows(b, layer.r)
    joined = made(layer.r // max(e, 1) + each, e, slots, sources=(b.view(old, "conv"), b.view(product, "bx_t")))
    keep(b, joined)
    y = made(e, each, slots, sources=(gate, made(e, each, slots, sources=(joined,))), inplace=True)
    out = b.weigh(made(e, each, slots, sources=(y,)), block, "shortconv.out_proj.weight")
    return b.view(out, (e, b.tok))
