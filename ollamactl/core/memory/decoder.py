"""Graphs of decoders, built from the tensors that a block has: the order and sizes of what llama.cpp's code makes.

One builder serves every architecture whose blocks are attention and feed-forward in the usual order (build_qkv,
build_attn, build_ffn and build_moe_ffn of llama-graph.cpp); what a block has is read off the names of its tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ollamactl.core.memory.graph import Graph as Nodes
from ollamactl.core.memory.graph import Tensor, peak

if TYPE_CHECKING:
    from ollamactl.core.memory.compute import Graph
    from ollamactl.core.memory.model import Block, Hyper, Layer

F = 4  # bytes of an f32


class Builder:
    """Builds one graph. Sizes in bytes; `tok` tokens, `out` rows that are put out."""

    def __init__(self, hyper: Hyper, graph: Graph, tok: int) -> None:
        self.hyper, self.graph, self.tok, self.out = hyper, graph, tok, graph.slots
        self.rows = tok  # rows of the current block: fewer in the last after its attention
        self.nodes = Nodes()
        self.inputs: list[Tensor] = []
        at = graph.cells
        width = 2 if graph.flash else 4
        self.embedding = self.new_input(F * hyper.embedding * tok)
        self.positions = self.new_input(4 * tok)
        mixed = hyper.widths.swa and hyper.window
        self.mask = {}
        self.index = {}
        for swa in ((False, True) if mixed else (False,)):
            cells = at.swa if swa else at.full
            index_v = 8 * tok * (hyper.widths.vw if graph.transposed else 1)
            self.index[swa] = (self.new_input(8 * tok), self.new_input(index_v))
            self.mask[swa] = self.new_input(width * cells * tok)
        self.outputs = self.new_input(4 * self.out)

    # -- tensors --

    def new_input(self, size: int) -> Tensor:
        tensor = Tensor(size)
        self.inputs.append(tensor)
        return tensor

    def make(self, width: int, *sources: Tensor, rows: int | None = None, inplace: bool = False, layout: object = None) -> Tensor:
        rows = self.rows if rows is None else rows
        return Tensor(F * width * rows, sources, inplace=inplace, layout=layout if layout is not None else (width, rows))

    def same(self, tensor: Tensor, *others: Tensor) -> Tensor:
        """An operation that may take its first input's place (add, mul, norm, rope, scale)."""
        return Tensor(tensor.size, (tensor, *others), inplace=True, layout=tensor.layout)

    def view(self, tensor: Tensor, layout: object, offset: int = 0, size: int | None = None) -> Tensor:
        root = tensor.root if tensor.root is not None else tensor
        return Tensor(tensor.size if size is None else size, (tensor,), root=root, layout=layout, offset=offset + tensor.offset)

    def norm(self, tensor: Tensor, block: Block, name: str) -> Tensor:
        if name not in block.widths:
            return tensor
        tensor = self.same(self.same(tensor))
        return self.same(tensor) if name.replace(".weight", ".bias") in block.widths else tensor

    def matrix(self, width: int, tensor: Tensor, block: Block, name: str) -> Tensor:
        made = self.make(width, tensor)
        return self.same(made) if name + ".bias" in block.widths else made

    # -- parts --

    def attention(self, cur: Tensor, layer: Layer, block: Block, last: bool) -> Tensor:
        heads, kv, tok, graph = layer.heads, layer.kv_heads, self.tok, self.graph
        q_width, k_width, v_width = heads * layer.key, kv * layer.key, kv * layer.value
        if "attn_qkv.weight" in block.widths:
            total = block.widths["attn_qkv.weight"]
            qkv = self.matrix(total, cur, block, "attn_qkv")
            q = self.view(qkv, ("q", total, q_width), 0, F * q_width * tok)
            k = self.view(qkv, ("k", total, k_width), F * q_width, F * k_width * tok)
            v = self.view(qkv, ("v", total, v_width), F * (q_width + k_width), F * v_width * tok)
            fused = True
        else:
            q = self.view(self.matrix(q_width, cur, block, "attn_q"), (layer.key, heads, tok))
            k = self.view(self.matrix(k_width, cur, block, "attn_k"), (layer.key, kv, tok))
            v = self.view(self.matrix(v_width, cur, block, "attn_v") if "attn_v.weight" in block.widths else k, (layer.value, kv, tok))
            fused = False
        q = self.head_norm(q, block, "attn_q_norm.weight", (layer.key, heads, tok))
        k = self.head_norm(k, block, "attn_k_norm.weight", (layer.key, kv, tok))
        q = self.roped(q, (layer.key, heads, tok), q_width, fused)
        k = self.roped(k, (layer.key, kv, tok), k_width, fused)
        if self.hyper.family.scaled_q:
            q = self.same(q)
        return self.attend(q, k, v, layer, block, fused)

    def head_norm(self, tensor: Tensor, block: Block, name: str, layout: tuple[int, ...]) -> Tensor:
        if name not in block.widths:
            return tensor
        if tensor.root is not None and tensor.layout != layout:  # a slice of a fused matrix: the norm makes a new tensor
            tensor = Tensor(tensor.size, (tensor,), inplace=True, layout=layout)
            return self.same(tensor)
        return self.same(self.same(tensor))

    def roped(self, tensor: Tensor, layout: tuple[int, ...], width: int, fused: bool) -> Tensor:
        if not self.hyper.family.rope:
            return tensor
        return Tensor(F * width * self.tok, (tensor, self.positions), inplace=True, layout=layout)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, layer: Layer, block: Block, fused: bool) -> Tensor:
        graph, nodes, tok, heads = self.graph, self.nodes, self.tok, layer.heads
        nodes.expand(q)
        nodes.expand(v)
        nodes.expand(k)
        if layer.k:
            index_k, index_v = self.index[layer.swa if len(self.index) > 1 else False]
            nodes.expand(Tensor(0, (self.view(k, "k2d"), index_k), outside=True))
            if graph.transposed:
                flat = self.view(v, "v2d") if not fused else self.make(layer.kv_heads * layer.value, v)
                wide = max(self.hyper.widths.vw_full, self.hyper.widths.vw_swa)
                if layer.kv_heads * layer.value < wide:
                    flat = self.make(wide, flat)
                nodes.expand(Tensor(0, (self.view(flat, "v1"), index_v), outside=True))
            else:
                nodes.expand(Tensor(0, (self.view(v, "v2d"), index_v), outside=True))
        mask = self.mask[layer.swa if len(self.mask) > 1 else False]
        q = self.view(self.view(q, "q4"), "q4p")
        cells = graph.cells.swa if layer.swa else graph.cells.full
        out = heads * layer.value
        if graph.flash:
            cur = self.make(out, q, mask)
            cur = self.view(cur, (out, tok))
        else:
            kq = Tensor(F * cells * heads * tok, (q,), layout=("kq", cells, heads, tok))
            for _ in range(3 if self.hyper.keys.get("attn_logit_softcapping") else 0):
                kq = self.same(kq)
            kq = Tensor(kq.size, (kq, mask), inplace=True, layout=kq.layout)
            if graph.transposed:
                cur = self.make(out, kq)
            else:
                flipped = Tensor(2 * cells * graph.cells.streams * layer.kv_heads * layer.value)
                cur = self.make(out, flipped, kq)
            cur = self.make(out, self.view(cur, "kqvp"))
        nodes.expand(cur)
        return self.matrix(self.hyper.embedding, cur, block, "attn_output")

    def feed_forward(self, cur: Tensor, layer: Layer, block: Block) -> Tensor:
        w, e = block.widths, self.hyper.embedding
        up_width = w.get("ffn_up.weight", 0)
        down_in = block.inner("ffn_down.weight")
        tmp = self.matrix(up_width, cur, block, "ffn_up")
        if "ffn_gate.weight" in w:
            gate = self.matrix(up_width, cur, block, "ffn_gate")
            act = self.make(up_width, gate, tmp)
        elif down_in and up_width == 2 * down_in:
            act = self.make(down_in, tmp)
        else:
            act = self.same(tmp)
            if self.hyper.family.squared:
                act = self.same(act)
        return self.matrix(e, act, block, "ffn_down")

    def experts(self, cur: Tensor, layer: Layer, block: Block) -> Tensor:
        w, e, rows = block.widths, self.hyper.embedding, self.rows
        keys = self.hyper.keys
        count, used = block.experts, int(keys.get("expert_used_count", 0)) or 2
        width = block.expert_width
        logits = self.make(count, cur)
        if "ffn_gate_inp.bias" in w:
            logits = self.same(logits)
        gating = int(keys.get("expert_gating_func", 0)) or self.hyper.family.gating
        probs = logits if gating == 3 else self.same(logits)
        chosen = self.same(probs) if "exp_probs_b.bias" in w else probs
        top = Tensor(4 * count * rows, (chosen,))
        picked = self.view(top, ("top", used), 0, 4 * used * rows)
        weights = self.make(used, self.view(probs, "probs3"), picked, layout=(1, used, rows))
        if gating == 3:
            weights = self.view(self.same(self.view(weights, (used, rows))), (1, used, rows))
        if self.hyper.family.norm_weights(keys):
            flat = self.view(weights, (used, rows))
            total = self.make(1, flat)
            total = Tensor(total.size, (total,), layout=(1, rows))
            weights = self.view(Tensor(flat.size, (flat, total), inplace=True, layout=flat.layout), (1, used, rows))
        if float(keys.get("expert_weights_scale", 0.0)) not in (0.0, 1.0):
            weights = self.same(weights)
        self.nodes.expand(weights)
        cur3 = self.view(cur, ("cur3", rows))
        if "ffn_gate_up_exps.weight" in w:
            both = self.make(2 * width * used, cur3, picked)
            act = self.make(width * used, self.view(both, "g"), self.view(both, "u", 1))
        else:
            up = self.make(width * used, cur3, picked)
            if "ffn_up_exps.bias" in w:
                up = self.same(up, picked)
            if "ffn_gate_exps.weight" in w:
                gate = self.make(width * used, cur3, picked)
                if "ffn_gate_exps.bias" in w:
                    gate = self.same(gate, picked)
                act = self.make(width * used, gate, up)
            else:
                act = self.same(up)
                if self.hyper.family.squared:
                    act = self.same(act)
        down = self.make(e * used, act, picked, layout=(e, used, rows))
        if "ffn_down_exps.bias" in w:
            down = self.same(down, picked)
        down = self.same(down, weights)
        self.nodes.expand(down)
        parts = [self.nodes.expand(self.view(down, ("part", used, rows), i, F * e * rows)) for i in range(used)]
        out = parts[0]
        for part in parts[1:]:
            out = Tensor(F * e * rows, (out, part), inplace=True, layout=(e, rows))
            self.nodes.expand(out)
        return out if used > 1 else Tensor(F * e * rows, (out,), layout=(e, rows))

    def mixed(self, cur: Tensor, layer: Layer, block: Block) -> Tensor:
        """The feed-forward of a block: dense, experts, or experts and a shared one."""
        if not block.experts:
            return self.feed_forward(cur, layer, block)
        out = self.experts(cur, layer, block)
        if "ffn_up_shexp.weight" in block.widths:
            width = block.widths["ffn_up_shexp.weight"]
            up = self.make(width, cur)
            act = self.make(width, self.make(width, cur), up) if "ffn_gate_shexp.weight" in block.widths else self.same(up)
            shared = self.make(self.hyper.embedding, act)
            if "ffn_gate_inp_shexp.weight" in block.widths:
                shared = Tensor(shared.size, (shared, self.same(self.make(1, cur))), inplace=True, layout=shared.layout)
            out = Tensor(out.size, (out, shared), inplace=True, layout=out.layout)
        return out

    def picked_rows(self, tensor: Tensor) -> Tensor:
        return self.make(self.hyper.embedding, tensor, self.outputs, rows=self.out)

    def block(self, inp: Tensor, layer: Layer, block: Block, last: bool) -> Tensor:
        row = self.hyper.family
        self.rows = self.tok
        normed = self.norm(inp, block, "attn_norm.weight") if "attn_norm.weight" in block.widths else inp
        cur = self.attention(normed, layer, block, last)
        if last:
            self.rows = self.out
            cur, inp = self.picked_rows(cur), self.picked_rows(inp)
            if row.parallel:
                normed = self.picked_rows(normed)
        if row.parallel:
            attended = cur
            cur = self.mixed(normed, layer, block)
            return self.same(self.same(cur, inp), attended)
        cur = self.norm(cur, block, "post_attention_norm.weight")
        residual = Tensor(cur.size, (cur, inp), inplace=True, layout=cur.layout)
        cur = self.norm(residual, block, "ffn_norm.weight")
        cur = self.mixed(cur, layer, block)
        cur = self.norm(cur, block, "post_ffw_norm.weight")
        return Tensor(cur.size, (cur, residual), inplace=True, layout=cur.layout)

    def bytes(self) -> int:
        """Build everything and lay it out."""
        hyper = self.hyper
        cur = self.embedding
        cur.layout = (hyper.embedding, self.tok)
        if hyper.family.scaled_input:
            cur = self.same(cur)
            self.nodes.expand(cur)
        pairs = _sample(hyper)
        for number, (layer, block) in enumerate(pairs):
            cur = self.block(cur, layer, block, number == len(pairs) - 1)
        cur = self.same(self.same(cur))
        cur = self.make(hyper.vocabulary, cur, rows=self.out)
        cur.output = True
        self.nodes.expand(cur)
        nodes = self.nodes.nodes
        used = {id(s) for node in nodes for s in node.sources}
        first = [t for t in self.inputs if id(t) in used]
        inputs = {id(t) for t in first}
        self.nodes.nodes = first + [n for n in nodes if id(n) not in inputs]
        return peak(self.nodes)


def _sample(hyper: Hyper) -> list[tuple[Layer, Block]]:
    """Enough blocks to reach the peak: the allocator is in a steady state after a few, and the last differs."""
    pairs = [(layer, block) for layer, block in zip(hyper.layers, hyper.block_tensors, strict=True) if not layer.draft]
    if len(pairs) <= 10:
        return pairs
    return pairs[:9] + pairs[-1:]


def exact(hyper: Hyper, graph: Graph, tok: int) -> int | None:
    """The compute buffer of a device that holds everything, to the byte; None where the builder has no rule."""
    if not hyper.family.built or graph.engine == "newest" or graph.type_k != "f16" or graph.type_v != "f16":
        return None
    return Builder(hyper, graph, tok).bytes()
