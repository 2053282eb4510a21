"""Feed-forward parts of a graph: dense, experts, shared experts (build_ffn and build_moe_ffn of llama-graph.cpp)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ollamactl.core.memory.graph import Tensor

if TYPE_CHECKING:
    from ollamactl.core.memory.builder import Builder
    from ollamactl.core.memory.model import Block

F = 4  # bytes of an f32


def mixed(b: Builder, cur: Tensor, block: Block) -> Tensor:
    """The feed-forward of a block: dense, experts, or experts beside a shared or a dense one."""
    if not block.experts:
        return dense(b, cur, block)
    if "ffn_up_chexps.weight" in block.widths:
        return _chunked(b, cur, block)
    out = experts(b, cur, block)
    if b.hyper.family.dense_beside and "ffn_up.weight" in block.widths:
        return b.same(b.add(dense(b, cur, block), out))
    return b.add(out, _shared(b, cur, block)) if "ffn_up_shexp.weight" in block.widths else out


def dense(b: Builder, cur: Tensor, block: Block) -> Tensor:
    """One feed-forward for all tokens."""
    w = block.widths
    up_width, down_in = w.get("ffn_up.weight", 0), block.inner("ffn_down.weight")
    tmp = b.matrix(up_width, cur, block, "ffn_up")
    if "ffn_gate.weight" in w:
        gate = b.matrix(up_width, cur, block, "ffn_gate")
        act = _product(b, gate, tmp, limited=b.layer.limited)
    elif down_in and up_width == 2 * down_in:
        act = b.make(down_in, tmp)
    else:
        act = activated(b, tmp)
    return b.matrix(b.hyper.embedding, b.norm(act, block, "ffn_sub_norm.weight"), block, "ffn_down")


def _product(b: Builder, gate: Tensor, up: Tensor, *, limited: bool) -> Tensor:
    """An activated gate times what it gates, in one operation; step by step where both are limited, which were views
    of them before the newest engines."""
    if not limited:
        return Tensor(up.size, (gate, up), layout=up.layout)
    gate = b.same(gate)
    if b.newest:
        return b.same(b.same(gate), b.same(up))
    return Tensor(up.size, (b.view(gate, "limited"), b.view(up, "limited")), layout=up.layout)


def activated(b: Builder, tensor: Tensor) -> Tensor:
    """An activation without a gate, which may be squared."""
    act = b.same(tensor)
    return b.same(act) if b.hyper.family.squared else act


def _shared(b: Builder, cur: Tensor, block: Block) -> Tensor:
    """The expert that all tokens go through."""
    width = block.widths["ffn_up_shexp.weight"]
    up = b.weigh(b.make(width, cur), block, "ffn_up_shexp.weight")
    gate = b.weigh(b.make(width, cur), block, "ffn_gate_shexp.weight")
    act = _product(b, gate, up, limited=b.layer.limited) if "ffn_gate_shexp.weight" in block.widths else b.same(up)
    shared = b.weigh(b.make(b.hyper.embedding, act), block, "ffn_down_shexp.weight")
    if "ffn_gate_inp_shexp.weight" in block.widths:
        share = b.same(b.weigh(b.make(1, cur), block, "ffn_gate_inp_shexp.weight"))
        shared = b.add(shared, share)
    return shared


def experts(b: Builder, cur: Tensor, block: Block, *, logits: Tensor | None = None, width_out: int = 0) -> Tensor:
    """The mixture of experts. `logits`: of the router, if it does not see `cur`; `width_out`: of what comes out."""
    picked, weights = _weighed(b, logits or router(b, cur, block), block)
    b.nodes.expand(weights)
    return _evaluated(b, cur, picked, weights, block, width_out or b.hyper.embedding)


def _chunked(b: Builder, cur: Tensor, block: Block) -> Tensor:
    """Grove MoE: what experts gave goes through smaller ones, which groups of them share, and both are added."""
    logits = router(b, cur, block)
    out = experts(b, cur, block, logits=logits)
    shared = block.experts // max(int(b.hyper.keys.get("experts_per_group", 0)), 1)
    picked, weights = _weighed(b, logits, block, shared=shared)
    b.nodes.expand(weights)
    adjusted = _evaluated(b, out, picked, weights, block, b.hyper.embedding, "_chexps", min(_used(b), shared))
    return b.same(out, b.same(adjusted))


def guests(b: Builder, block: Block) -> Tensor:
    """The experts of a block on another device, with their matrices on the host: the rows come from there."""
    e, rows = b.hyper.embedding, b.rows
    cur, picked = b.new_input(F * e * rows), b.new_input(4 * block.experts * rows)
    weights, residual = b.new_input(F * _used(b) * rows), b.new_input(F * e * rows)
    residual.layout = (e, rows)
    return b.nodes.expand(b.add(_evaluated(b, cur, picked, weights, block, e), residual))


def _evaluated(
    b: Builder, cur: Tensor, picked: Tensor, weights: Tensor, block: Block, e: int,
    kind: str = "_exps", used: int = 0,
) -> Tensor:  # fmt: skip
    """The sum of what the picked experts make of `cur`. `kind`: how their tensors' names end."""
    rows, used = b.rows, used or _used(b)
    cur = b.view(cur, ("cur3", rows))
    first = b.hyper.family.expert_rows  # llama4 weighs what goes in, not what comes out
    if first:
        cur = b.same(b.make(e * used, cur, layout=(e, used, rows)), weights)
    act = _inside(b, cur, picked, block, kind, used)
    down = b.weigh(b.make(e * used, act, picked, layout=(e, used, rows)), block, f"ffn_down{kind}.weight")
    if f"ffn_down{kind}.bias" in block.widths:
        down = b.weigh(b.same(down, picked), block, f"ffn_down{kind}.bias")
    if not first:
        down = b.same(down, weights)
    b.nodes.expand(down)
    return _summed(b, down, e, used)


def _used(b: Builder) -> int:
    """Experts that a token goes through."""
    return int(b.hyper.keys.get("expert_used_count", 0)) or 2


def router(b: Builder, cur: Tensor, block: Block) -> Tensor:
    """How much every expert is wanted for every token."""
    return b.matrix(block.experts, cur, block, "ffn_gate_inp")


def _weighed(b: Builder, logits: Tensor, block: Block, shared: int = 0) -> tuple[Tensor, Tensor]:
    """Which experts every token goes to, and their weights. `shared`: of that many, each chosen for a group."""
    row, keys, rows, count = b.hyper.family, b.hyper.keys, b.rows, block.experts
    used = min(_used(b), shared or count)
    gating = int(keys.get("expert_gating_func", 0)) or row.gating
    probs = logits if gating == 3 else b.same(logits)
    chosen = logits if row.expert_rows else probs
    if "exp_probs_b.bias" in block.widths and not row.expert_rows:
        chosen = b.weigh(b.same(probs), block, "exp_probs_b.bias")
    if "ffn_up_chexps.weight" in block.widths:
        chosen = b.same(logits)
    top = Tensor(4 * count * rows, (chosen,))
    picked = b.view(top, ("top", used), 0, 4 * used * rows)
    if shared not in (0, count):  # the number of its group, reckoned as a number of floating point
        picked = Tensor(picked.size, (b.same(Tensor(picked.size, (picked,), layout=("picked", used))),))
    weights = b.make(used, b.view(probs, "probs3"), picked, layout=(1, used, rows))
    if gating == 3:
        weights = b.view(b.same(b.view(weights, (used, rows))), (1, used, rows))
    if row.norm_weights(keys):
        flat = b.view(weights, (used, rows))
        total = b.make(1, flat)  # and limited, which was a view of it before the newest engines
        total = b.same(total) if b.newest else b.view(total, (1, rows))
        weights = b.view(b.add(flat, total), (1, used, rows))
    if float(keys.get("expert_weights_scale", 0.0)) not in (0.0, 1.0):
        weights = b.same(weights)
    return picked, weights


def _inside(b: Builder, cur: Tensor, picked: Tensor, block: Block, kind: str, used: int) -> Tensor:
    """What the experts hold before their last matrix."""
    w, width = block.widths, block.inner(f"ffn_down{kind}.weight") * used
    if "ffn_gate_up_exps.weight" in w:
        both = b.weigh(b.make(2 * width, cur, picked), block, "ffn_gate_up_exps.weight")
        return b.make(width, b.view(both, "g"), b.view(both, "u", 1))
    up = _expert_matrix(b, width, cur, picked, block, f"ffn_up{kind}")
    if f"ffn_gate{kind}.weight" not in w:
        return activated(b, up)
    gate = _expert_matrix(b, width, cur, picked, block, f"ffn_gate{kind}")
    return _product(b, gate, up, limited=b.layer.limited_experts)


def _expert_matrix(b: Builder, width: int, cur: Tensor, picked: Tensor, block: Block, name: str) -> Tensor:
    made = b.weigh(b.make(width, cur, picked), block, name + ".weight")
    return b.weigh(b.same(made, picked), block, name + ".bias") if name + ".bias" in block.widths else made


def _summed(b: Builder, down: Tensor, e: int, used: int) -> Tensor:
    """The sum of the chosen experts' results."""
    size, rows = F * e * b.rows, b.rows
    parts = [b.nodes.expand(b.view(down, ("part", used, rows), i, size)) for i in range(used)]
    if used == 1:
        return Tensor(size, (parts[0],), layout=(e, rows))
    out = parts[0]
    for part in parts[1:]:
        out = Tensor(size, (out, part), inplace=True, layout=(e, rows))
        b.nodes.expand(out)
    return out
