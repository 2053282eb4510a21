"""RWKV 6 and 7 in a graph, whole blocks: a time mix over a state a head and a channel mix over the token before.

They restate src/models/rwkv6-base.cpp, rwkv7-base.cpp and the blocks of rwkv6.cpp, rwkv7.cpp and arwkv7.cpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ollamactl.core.memory.feed_forward import dense
from ollamactl.core.memory.graph import Tensor
from ollamactl.core.memory.recurrent import keep, made, number, rows

if TYPE_CHECKING:
    from ollamactl.core.memory.builder import Builder
    from ollamactl.core.memory.model import Block, Layer


def block(b: Builder, inp: Tensor, layer: Layer, tensors: Block, last: bool) -> Tensor:
    """One block from residual to residual. ARWKV has a gated feed-forward where the others mix channels."""
    slots, each, e, tok = b.graph.slots, b.tok // b.graph.slots, b.hyper.embedding, b.tok
    own = "channel_mix_key.weight" in tensors.widths
    if inp is b.embedding and not b.on_host:
        inp.layout = made(e, each, slots, sources=()).layout  # the device gets a copy of the reshaped rows
    else:
        inp = b.view(inp, "3d")
    shift = b.view(rows(b, layer.r), "shift")
    normed = b.same(made(e, each, slots, sources=(inp,)))
    normed = b.same(normed) if own else normed
    before = made(e, each, slots, sources=(b.view(shift, "att"), b.view(normed, "but last")))
    mixed = _time_mix(b, normed, before, layer, tensors)
    if not own:
        keep(b, b.view(normed, "last"))
        inner = b.view(made(e, each, slots, sources=(mixed, inp), inplace=True), "2d")
        if last:
            b.rows = b.out
            inner = b.picked_rows(inner)
        cur = dense(b, b.norm(inner, tensors, "ffn_norm.weight"), tensors)
        return Tensor(cur.size, (cur, inner), inplace=True, layout=cur.layout)
    inner = made(e, each, slots, sources=(mixed, inp), inplace=True)
    second = b.same(b.same(made(e, each, slots, sources=(inner,))))
    before = made(e, each, slots, sources=(b.view(shift, "ffn"), b.view(second, "but last")))
    keep(b, made(e, 2, slots, sources=(b.view(normed, "last"), b.view(second, "last"))))
    inner, second, before = b.view(inner, "2d"), b.view(second, "2d"), b.view(before, "2d")
    if last:
        b.rows = b.out
        inner, second, before = b.picked_rows(inner), b.picked_rows(second), b.picked_rows(before)
    shape = (e, b.rows if last else tok)
    change = made(*shape, sources=(before, second), inplace=True)
    if "channel_mix_receptance.weight" in tensors.widths:
        key = made(*shape, sources=(made(*shape, sources=(change,), inplace=True), second), inplace=True)
        gate = made(*shape, sources=(made(*shape, sources=(change,), inplace=True), second), inplace=True)
        gate = b.same(b.weigh(made(*shape, sources=(gate,)), tensors, "channel_mix_receptance.weight"))
        cur = made(*shape, sources=(gate, _channel_mix(b, key, tensors, shape[1])), inplace=True)
    else:
        key = made(*shape, sources=(b.same(change), second), inplace=True)
        cur = _channel_mix(b, key, tensors, shape[1])
    cur = made(*shape, sources=(cur, inner), inplace=True)
    return b.same(cur) if number(b, "rescale_every_n_layers") else cur


def _channel_mix(b: Builder, key: Tensor, tensors: Block, count: int) -> Tensor:
    wide = b.weigh(made(tensors.widths["channel_mix_key.weight"], count, sources=(key,)), tensors,
                   "channel_mix_key.weight")  # fmt: skip
    wide = b.same(b.same(wide))
    return b.weigh(made(b.hyper.embedding, count, sources=(wide,)), tensors, "channel_mix_value.weight")


def _time_mix(b: Builder, cur: Tensor, before: Tensor, layer: Layer, tensors: Block) -> Tensor:
    change = made(b.hyper.embedding, b.tok // b.graph.slots, b.graph.slots, sources=(before, cur), inplace=True)
    if "time_mix_w0.weight" in tensors.widths:
        return _seven(b, cur, change, layer, tensors)
    return _six(b, cur, change, layer, tensors)


def _state(b: Builder, layer: Layer, *sources: Tensor) -> Tensor:
    """The recurrence itself: rows of all tokens and, behind them, the new states."""
    size = number(b, "wkv.head_size")
    held = rows(b, layer.s)
    result = made(b.hyper.embedding, b.tok + size * b.graph.slots, sources=(*sources, held))
    keep(b, result)
    return b.view(result, "cur")


def _project(b: Builder, source: Tensor, tensors: Block, name: str) -> Tensor:
    """A matrix of the time mix; RWKV 6 made of a Qwen model has biases."""
    width = tensors.widths[f"time_mix_{name}.weight"]
    result = b.weigh(made(width, b.tok, sources=(source,)), tensors, f"time_mix_{name}.weight")
    return b.same(result) if f"time_mix_{name}.bias" in tensors.widths else result


def _normed(b: Builder, cur: Tensor, tensors: Block, heads: int, size: int) -> Tensor:
    """A norm a head, where the file has one; else the rows themselves."""
    if "time_mix_ln.weight" not in tensors.widths:
        return b.view(cur, "2d")
    cur = made(size, heads, b.tok, sources=(b.view(cur, "heads"),))
    cur = made(b.hyper.embedding, b.tok, sources=(b.view(cur, "2d"),))
    return b.same(cur)


def _back(b: Builder, cur: Tensor, tensors: Block) -> Tensor:
    return b.view(_project(b, cur, tensors, "output"), "3d")


def _six(b: Builder, cur: Tensor, change: Tensor, layer: Layer, tensors: Block) -> Tensor:
    e, tok, size = b.hyper.embedding, b.tok, number(b, "wkv.head_size")
    heads = e // max(size, 1)
    change, cur = b.view(change, "2d"), b.view(cur, "2d")
    flat = made(e, tok, sources=(made(e, tok, sources=(change,)), cur), inplace=True)
    wide = tensors.widths["time_mix_w1.weight"]
    low = b.same(b.weigh(made(wide, tok, sources=(flat,)), tensors, "time_mix_w1.weight"))
    low = made(wide // 5, 1, tok, 5, sources=(b.view(b.view(low, "5"), "perm"),))
    five = b.weigh(made(e, 1, tok, 5, sources=(low,)), tensors, "time_mix_w2.weight")
    change3, cur3 = b.view(change, "3"), b.view(cur, "3")
    if "time_mix_lerp_fused.weight" in tensors.widths:
        five = Tensor(five.size, (b.same(five), change3), inplace=True, layout=five.layout)
        five = Tensor(five.size, (five, cur3), inplace=True, layout=five.layout)
        w, k, v, r, g = (b.view(five, name) for name in "wkvrg")
    else:
        w, k, v, r, g = (
            made(e, tok, sources=(made(e, tok, sources=(made(e, tok, sources=(b.view(five, name),)), change3),
                                       inplace=True), cur3), inplace=True)
            for name in "wkvrg"
        )  # fmt: skip
    receptance, key = _project(b, r, tensors, "receptance"), _project(b, k, tensors, "key")
    value, gate = _project(b, v, tensors, "value"), b.same(_project(b, g, tensors, "gate"))
    plain = "time_mix_first.weight" in tensors.widths
    fewer = tensors.widths["time_mix_key.weight"]
    if fewer != e:  # heads that share keys and values
        key = made(size, e // fewer, fewer // size, tok, sources=(b.view(key, "4d"),))
        value = made(size, e // fewer, fewer // size, tok, sources=(b.view(value, "4d"),))
    key, value, receptance = (b.view(t, (size, heads, tok)) for t in (key, value, receptance))
    decay = b.same(_project(b, w, tensors, "decay_w1"))
    decay = b.same(b.same(b.same(b.same(_project(b, decay, tensors, "decay_w2")))))
    decay = b.view(decay, (size, heads, tok))
    if not plain:
        key = made(size, heads, tok, sources=(key, made(size, heads, tok, sources=(key, decay))), inplace=True)
    out = _state(b, layer, key, value, receptance, decay)
    out = _normed(b, out, tensors, heads, size) if plain else b.view(out, "2d")
    return _back(b, made(e, tok, sources=(out, gate), inplace=True), tensors)


def _seven(b: Builder, cur: Tensor, change: Tensor, layer: Layer, tensors: Block) -> Tensor:
    e, tok, slots, size = b.hyper.embedding, b.tok, b.graph.slots, number(b, "wkv.head_size")
    heads, each = e // max(size, 1), b.tok // b.graph.slots
    gated = "time_mix_g1.weight" in tensors.widths and "time_mix_g2.weight" in tensors.widths
    all_of = made(e, each, slots, 6 if gated else 5, sources=(change,))
    all_of = Tensor(all_of.size, (b.same(all_of), cur), inplace=True, layout=all_of.layout)
    xr, xw, xk, xv, xa, xg = (b.view(all_of, name) for name in ("r", "w", "k", "v", "a", "g"))
    r = _project(b, xr, tensors, "receptance")
    w = b.same(b.same(b.same(b.same(_project(b, b.same(_project(b, xw, tensors, "w1")), tensors, "w2")))))
    k, v = _project(b, xk, tensors, "key"), _project(b, xv, tensors, "value")
    if b.first_value is None:
        b.first_value = v
    else:
        share = b.same(b.same(_project(b, _project(b, xv, tensors, "v1"), tensors, "v2")))
        share = made(e, tok, sources=(made(e, tok, sources=(b.first_value, v), inplace=True), share), inplace=True)
        v = made(e, tok, sources=(v, share), inplace=True)
    gate = _project(b, b.same(_project(b, xg, tensors, "g1")), tensors, "g2") if gated else None
    a = b.same(b.same(_project(b, _project(b, xa, tensors, "a1"), tensors, "a2")))
    kk = made(size, heads, tok, sources=(b.view(b.same(k), "heads"),))
    ka = b.same(k)
    k = made(e, tok, sources=(k, made(e, tok, sources=(made(e, tok, sources=(a, ka), inplace=True), ka),
                                      inplace=True)), inplace=True)  # fmt: skip
    r, w, k, v, a = (b.view(t, (size, heads, tok)) for t in (r, w, k, v, a))
    out = _state(b, layer, r, w, k, v, b.same(kk), made(size, heads, tok, sources=(kk, a), inplace=True))
    out = _normed(b, out, tensors, heads, size)
    shape = (size, heads, tok)
    bonus = made(1, heads, tok, sources=(b.same(made(*shape, sources=(k, r))),))
    bonus = made(*shape, sources=(v, bonus))
    out = made(e, tok, sources=(out, b.view(bonus, "2d")), inplace=True)
    if gate is not None:
        out = made(e, tok, sources=(out, gate), inplace=True)
    return _back(b, out, tensors)
