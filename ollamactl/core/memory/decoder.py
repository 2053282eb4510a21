"""Graphs of decoders, built from the tensors that a block has: the order and sizes of what llama.cpp's code makes.

One builder serves every architecture whose blocks are attention and feed-forward in the usual order (build_qkv,
build_attn, build_ffn and build_moe_ffn of llama-graph.cpp); what a block has is read off the names of its tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ollamactl.core.memory import altup, delta, encoder, gemma, hybrid, latent, recurrent, rwkv
from ollamactl.core.memory.ggml import quantized, row_bytes
from ollamactl.core.memory.graph import ALIGNMENT, HOST_ALIGNMENT, Tensor, in_parts, peak
from ollamactl.core.memory.graph import Graph as Nodes
from ollamactl.core.memory.indexer import Indexer

if TYPE_CHECKING:
    from ollamactl.core.memory.compute import Graph
    from ollamactl.core.memory.model import Block, Hyper, Layer

F = 4  # bytes of an f32
NEWEST = "newest"


class Part(NamedTuple):
    """What one device evaluates: blocks, of which some (or their experts) lie in host memory; the output or not."""

    blocks: tuple[int, ...]
    hosted: frozenset[int] = frozenset()
    hosted_experts: frozenset[int] = frozenset()
    output: bool = True
    first: bool = True  # it gets the embeddings, and with them what depends on these
    copies: int = 1  # of every input: 4 where devices work as a pipeline


class Builder:
    """Builds one graph. Sizes in bytes; `tok` tokens, `out` rows that are put out."""

    def __init__(
        self, hyper: Hyper, graph: Graph, tok: int, *, on_host: bool = False, part: Part | None = None
    ) -> None:
        self.hyper, self.graph, self.tok = hyper, graph, tok
        self.out = tok if hyper.is_embedding else graph.slots
        self.nodes = Nodes()
        self.late = hyper.family.late_rows if graph.engine != NEWEST else ""
        self.on_host = on_host
        self.part = part if part is not None else Part(tuple(range(hyper.blocks)))
        self.hosted = False  # the current block's weights and cache are in host memory
        self.hosted_experts = False
        self.number = 0  # of the current block
        self.borrowed: dict[tuple[int, str], Tensor] = {}  # copied once, however often they are used
        self.inputs: list[Tensor] = []
        at = graph.cells
        width = 2 if graph.flash else 4
        # Fewer in the last block after its attention, and where only the output is.
        self.rows = tok if self.part.blocks or self.late in ("before", "after") else self.out
        embedding = F * hyper.embedding * self.rows
        self.per_layer: gemma.PerLayer | None = None
        deep = 1 + hyper.deep_inputs
        self.padded: Tensor | None = None  # embeddings and, beside them, what pictures add to the first blocks
        if on_host:
            tokens, self.place = self.new_input(4 * tok), self.new_input(embedding * deep)
            self.place.output = True  # for embeddings as input: never read here, never given back
            self.embedding = Tensor(embedding, (tokens,))
            if self.newest and gemma.per_layer_width(hyper) and not hyper.family.streams:
                self.per_layer = gemma.PerLayer(self)
            self.nodes.expand(self.embedding)
        elif deep > 1:
            self.embedding = self.new_input(embedding)
        mixes = self.newest and self.part.first and (on_host or not (hyper.family.positions or hyper.family.streams))
        if mixes:  # where something is looked up after it, it stays on the host
            self.mix(embedding, deep, on_host)
        elif deep > 1 and self.part.first:
            self.padded = self.nodes.expand(Tensor(embedding * deep, (self.embedding,)))
        if not on_host and deep == 1:
            self.embedding = self.new_input(embedding)
        self.positions = self.new_input(4 * tok * hyper.position_parts)
        caches = not hyper.family.attends_batch
        mixed = hyper.window and (hyper.widths.swa or not caches)
        self.mask: dict[bool, Tensor] = {}
        self.index: dict[bool, tuple[Tensor, Tensor]] = {}
        self.turn: dict[bool, tuple[Tensor | None, Tensor | None]] = {}
        for swa in (False, True) if mixed else (False,):
            cells = tok if not caches else at.swa if swa else at.full
            if caches:
                index_v = 8 * tok * (hyper.widths.vw if graph.transposed else 1)
                self.turn[swa] = self.rotations(swa if mixed else None)
                self.index[swa] = (self.new_input(8 * tok), self.new_input(index_v))
            self.mask[swa] = self.new_input(width * cells * tok)
        self.indexer = Indexer(self) if hyper.family.indexer == "keys" else None
        self.outputs = self.new_input(4 * self.out)
        self.states = self.new_input(4 * graph.slots)
        self.state_numbers: dict[str, Tensor] = {}
        self.first_value: Tensor | None = None  # of RWKV 7: every block mixes the first one's values in

    @property
    def scaled_on_host(self) -> bool:
        """Whether the embeddings come to the device scaled: where something is looked up after that."""
        return self.newest and self.hyper.family.streams and not self.on_host

    @property
    def newest(self) -> bool:
        return self.graph.engine == NEWEST

    def mix(self, size: int, deep: int, on_host: bool) -> None:
        """The newest engines merge embeddings and tokens in the graph, and keep the merged ones."""
        given = self.new_input(size * deep)
        rows = self.nodes.expand(Tensor(size, (self.new_input(4 * self.tok),))) if on_host else self.new_input(size)
        slots = self.new_input(8 * self.tok)
        if deep > 1:
            self.padded = self.nodes.expand(Tensor(size * deep, (self.embedding,)))
            rows = self.nodes.expand(Tensor(size * deep, (rows,)))
        merged = self.nodes.expand(Tensor(size * deep, (given,)))
        self.nodes.expand(Tensor(0, (rows, slots, merged), outside=True))
        merged.output = True

    def rotations(self, swa: bool | None) -> tuple[Tensor | None, Tensor | None]:
        """Matrices that turn keys and values before they are quantized (llama_kv_cache::build_input_k_rot)."""
        if self.hyper.family.hybrid and self.hyper.window:
            return None, None  # llm_graph_context::build_inp_mem_hybrid_iswa has none
        layers = [x for x in self.hyper.layers if x.k and (swa is None or x.swa == swa)]
        keys, values = {x.key for x in layers}, {x.value for x in layers if x.v}
        turn_k = turn_v = None
        first = self.hyper.layers[0]  # whose widths decide for all
        if quantized(self.graph.type_k) and len(keys) == 1 and not first.key % 64:
            side = 64
            while next(iter(keys)) % (2 * side) == 0:
                side *= 2
            turn_k = self.new_input(F * side * side)
        if quantized(self.graph.type_v) and len(values) == 1 and not first.value % 64:
            turn_v = self.new_input(F * 64 * 64)
        return turn_k, turn_v

    def turned(self, tensor: Tensor, matrix: Tensor | None) -> Tensor:
        if matrix is None:
            return tensor
        if tensor.root is not None and isinstance(tensor.layout, tuple) and tensor.layout[0] in ("q", "k", "v"):
            # A slice of a fused matrix is copied before it is multiplied.
            tensor = Tensor(tensor.size, (tensor,), layout=tensor.layout)
        return self.view(Tensor(tensor.size, (matrix, self.view(tensor, "turn"))), tensor.layout)

    # -- tensors --

    def new_input(self, size: int) -> Tensor:
        tensor = Tensor(size)
        self.inputs.append(tensor)
        return tensor

    def make(
        self, width: int, *sources: Tensor, rows: int | None = None, inplace: bool = False, layout: object = None
    ) -> Tensor:
        rows = self.rows if rows is None else rows
        return Tensor(
            F * width * rows, sources, inplace=inplace, layout=layout if layout is not None else (width, rows)
        )

    def same(self, tensor: Tensor, *others: Tensor) -> Tensor:
        """An operation that may take its first input's place (add, mul, norm, rope, scale)."""
        return Tensor(tensor.size, (tensor, *others), inplace=True, layout=tensor.layout)

    def view(self, tensor: Tensor, layout: object, offset: int = 0, size: int | None = None) -> Tensor:
        root = tensor.root if tensor.root is not None else tensor
        return Tensor(
            tensor.size if size is None else size, (tensor,), root=root, layout=layout, offset=offset + tensor.offset
        )

    def norm(self, tensor: Tensor, block: Block, name: str) -> Tensor:
        if name not in block.widths:
            name = name.removesuffix(".weight")  # some families name their norms so
            if name not in block.widths:
                return tensor
        tensor = self.weigh(self.same(self.normed(tensor)), block, name)
        bias = name.replace(".weight", ".bias")
        return self.weigh(self.same(tensor), block, bias) if bias in block.widths else tensor

    def normed(self, tensor: Tensor) -> Tensor:
        """A norm without its weights. One by mean and variance makes a new tensor."""
        if self.hyper.family.layer_norm:
            return Tensor(tensor.size, (tensor,), layout=tensor.layout)
        return self.same(tensor)

    def matrix(self, width: int, tensor: Tensor, block: Block, name: str) -> Tensor:
        made = self.weigh(self.make(width, tensor), block, name + ".weight")
        bias = name + ".bias"
        return self.weigh(self.same(made), block, bias) if bias in block.widths else made

    def weigh(self, tensor: Tensor, block: Block, name: str) -> Tensor:
        """Note the matrix that a result needs where it lies in host memory."""
        if self.hosted or (self.hosted_experts and "_exps." in name):
            size = block.sizes.get(name, 0)
            if size:
                tensor.weight = self.borrowed.setdefault((self.number, name), Tensor(size))
        return tensor

    # -- parts --

    def attention(self, cur: Tensor, layer: Layer, block: Block, last: bool) -> Tensor:
        heads, kv, tok = layer.heads, layer.kv_heads, self.tok
        gate: Tensor | None = None
        q_width, k_width, v_width = heads * layer.key, kv * layer.key, kv * layer.value
        if "attn_qkv.weight" in block.widths:
            total = block.widths["attn_qkv.weight"]
            qkv = self.matrix(total, cur, block, "attn_qkv")
            q = self.view(qkv, ("q", total, q_width), 0, F * q_width * tok)
            k = self.view(qkv, ("k", total, k_width), F * q_width, F * k_width * tok)
            v = self.view(qkv, ("v", total, v_width), F * (q_width + k_width), F * v_width * tok)
            fused = True
        elif block.widths.get("attn_q.weight") == 2 * q_width:  # queries and a gate for the result in one matrix
            both = self.matrix(2 * q_width, cur, block, "attn_q")
            q = self.view(both, ("q of both", q_width), 0, F * q_width * tok)
            k = self.view(self.matrix(k_width, cur, block, "attn_k"), (layer.key, kv, tok))
            v = self.view(self.matrix(v_width, cur, block, "attn_v"), (layer.value, kv, tok))
            fused = False
            gate = self.same(
                Tensor(F * q_width * tok, (self.view(both, "gate", 1, F * q_width * tok),), layout=(q_width, tok))
            )
        else:
            q = self.view(self.matrix(q_width, cur, block, "attn_q"), (layer.key, heads, tok))
            k = self.view(self.matrix(k_width, cur, block, "attn_k"), (layer.key, kv, tok))
            v = self.view(
                self.matrix(v_width, cur, block, "attn_v") if "attn_v.weight" in block.widths else k,
                (layer.value, kv, tok),
            )
            fused = False
            if "attn_gate.weight" in block.widths:
                gate = self.same(self.matrix(block.widths["attn_gate.weight"], cur, block, "attn_gate"))
        if not self.hyper.family.turned_norm:
            q = self.head_norm(q, block, "attn_q_norm.weight", (layer.key, heads, tok))
            k = self.head_norm(k, block, "attn_k_norm.weight", (layer.key, kv, tok))
        if layer.swa or not self.hyper.family.rope_windowed:
            q = self.roped(q, (layer.key, heads, tok), q_width, layer.swa)
            k = self.roped(k, (layer.key, kv, tok), k_width, layer.swa)
        if self.hyper.family.turned_norm:
            q = self.head_norm(q, block, "attn_q_norm.weight", (layer.key, heads, tok))
            k = self.head_norm(k, block, "attn_k_norm.weight", (layer.key, kv, tok))
        if self.hyper.family.normed_v:
            v = self.same(v)
        if self.hyper.family.scaled_q:
            q = self.same(q)
        return self.attend(q, k, v, layer, block, fused, gate)

    def head_norm(self, tensor: Tensor, block: Block, name: str, layout: tuple[int, ...]) -> Tensor:
        if name not in block.widths:
            return tensor
        if (
            tensor.root is not None and tensor.layout != layout
        ):  # a slice of a fused matrix: the norm makes a new tensor
            normed = Tensor(tensor.size, (tensor,), inplace=True, layout=layout)
        else:
            normed = self.normed(tensor)
        return self.weigh(self.same(normed), block, name)

    def roped(self, tensor: Tensor, layout: tuple[int, ...], width: int, windowed: bool) -> Tensor:
        row = self.hyper.family
        if not row.rope or (row.rope_switch and not self.hyper.keys.get("rope.scaling.finetuned", 1)):
            return tensor
        turned = Tensor(F * width * self.tok, (tensor, self.positions), inplace=True, layout=layout)
        if self.hosted and self.hyper.weights.other and not (row.per_layer_input and windowed):
            # factors of the rotation, which are one tensor for all blocks
            turned.weight = self.borrowed.setdefault((-1, "rope"), Tensor(self.hyper.weights.other))
        return turned

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, layer: Layer, block: Block, fused: bool, gate: Tensor | None = None
    ) -> Tensor:
        if self.hyper.family.attends_batch:
            return encoder.attend(self, q, k, v, layer, block)
        graph, nodes, tok, heads = self.graph, self.nodes, self.tok, layer.heads
        turn_k, turn_v = self.turn[layer.swa if len(self.turn) > 1 else False]
        q, k, v = self.turned(q, turn_k), self.turned(k, turn_k), self.turned(v, turn_v)
        nodes.expand(q)
        if layer.k:  # blocks without a cache of their own read that of an earlier one
            for tensor in (k, v) if len(self.mask) > 1 else (v, k):
                nodes.expand(tensor)
            index_k, index_v = self.index[layer.swa if len(self.index) > 1 else False]
            nodes.expand(self.store(k, "k2d", index_k))
            if graph.transposed:
                flat = self.view(v, "v2d") if not fused else self.make(layer.kv_heads * layer.value, v)
                wide = self.hyper.widths.vw
                if layer.kv_heads * layer.value < wide:
                    flat = self.make(wide, flat)
                nodes.expand(self.store(flat, "v1", index_v))
            else:
                nodes.expand(self.store(v, "v2d", index_v))
        mask = self.mask[layer.swa if len(self.mask) > 1 else False]
        q = self.view(self.view(q, "q4"), "q4p")
        cells = graph.cells.swa if layer.swa else graph.cells.full
        out = heads * layer.value
        keeper, away = self.keeper(layer)
        on_host = graph.attend_on_host or recurrent.attends_on_host(self.hyper, self.part.hosted, self.number)
        kept_k = self.cached(keeper.k, graph.type_k, cells, away and not on_host)
        kept_v = self.cached(keeper.v, graph.type_v, cells, away and not on_host)
        if on_host:
            cur = self.from_host(q, out)
        elif graph.flash:
            kept_k = self.cast(kept_k, graph.type_k, layer.k, cells)
            kept_v = self.cast(kept_v, graph.type_v, layer.v, cells)
            cur = self.weigh(self.make(out, q, *kept_k, *kept_v, mask), block, "attn_sinks.weight")
            cur.size += self.copies(layer, cells)
            cur = self.view(cur, (out, tok))
            cur.size = F * out * tok
        else:
            kq = Tensor(F * cells * heads * tok, (*kept_k, q), layout=("kq", cells, heads, tok))
            for _ in range(3 if self.hyper.keys.get("attn_logit_softcapping") else 0):
                kq = self.same(kq)
            kq = Tensor(kq.size, (kq, mask), inplace=True, layout=kq.layout)
            kq = self.weigh(kq, block, "attn_sinks.weight")
            if graph.transposed:
                cur = self.make(out, *kept_v, kq)
            else:
                flipped = Tensor(2 * cells * graph.cells.streams * layer.kv_heads * layer.value, kept_v)
                cur = self.make(out, flipped, kq)
            cur = self.make(out, self.view(cur, "kqvp"))
        nodes.expand(cur)
        cur = self.turned(cur, turn_v)
        if gate is not None:  # one of a head is multiplied in another shape, which takes no place over
            whole = gate.size == cur.size
            cur = Tensor(
                cur.size, (cur, gate), inplace=whole, layout=(out, tok) if cur.layout == (out, tok) else cur.layout
            )
        cur = self.norm(cur, block, "attn_sub_norm.weight")
        return self.matrix(self.hyper.embedding, cur, block, "attn_output")

    def from_host(self, given: Tensor, width: int) -> Tensor:
        """What the host made of a tensor that was copied to it."""
        self.nodes.expand(Tensor(0, (given,), outside=True))
        made = self.make(width)
        made.layout = (width, self.tok)
        return self.nodes.expand(made)

    def store(self, tensor: Tensor, how: str, index: Tensor) -> Tensor:
        """Rows put into the cache. A cache in host memory is written by the host."""
        stored = Tensor(0, (self.view(tensor, how), index), outside=True)
        stored.on_host = self.hosted
        return stored

    def keeper(self, layer: Layer) -> tuple[Layer, bool]:
        """The block whose cache one reads, and whether that lies in other memory."""
        number, away = _keeper(self.hyper, self.part, self.number)
        return (layer, self.hosted) if number == self.number else (self.hyper.layers[number], away)

    def cached(self, width: int, kind: str, cells: int, away: bool) -> tuple[Tensor, ...]:
        """A copy of one layer's cache where that lies in other memory."""
        if not away or not width:
            return ()
        tensor = Tensor(row_bytes(kind, width) * cells * self.graph.cells.streams)
        self.inputs.append(tensor)
        return (tensor,)

    def cast(self, kept: tuple[Tensor, ...], kind: str, width: int, cells: int) -> tuple[Tensor, ...]:
        """Flash attention takes no f32: one layer's cache is cast to f16 in the graph."""
        if kind != "f32" or not width:
            return kept
        return (Tensor(2 * width * cells * self.graph.cells.streams, kept),)

    def copies(self, layer: Layer, cells: int) -> int:
        """CUDA's flash attention reads f16: a cache of another type is copied, and the copy lies behind the result."""
        if not self.graph.cuda:
            return 0
        count = 2 * cells * self.graph.cells.streams
        read = ("f16", "f32")  # f32 was cast
        k = layer.kv_heads * layer.key if self.graph.type_k not in read else 0
        v = layer.kv_heads * layer.value if self.graph.type_v not in read else 0
        return count * (k + v)

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
        return self.matrix(e, self.norm(act, block, "ffn_sub_norm.weight"), block, "ffn_down")

    def experts(
        self, cur: Tensor, layer: Layer, block: Block, *, routed: Tensor | None = None, width_out: int = 0
    ) -> Tensor:
        """The mixture of experts. `routed`: what the router sees, if not `cur`; `width_out`: of what comes out."""
        w, e, rows = block.widths, width_out or self.hyper.embedding, self.rows
        keys = self.hyper.keys
        count, used = block.experts, int(keys.get("expert_used_count", 0)) or 2
        width = block.expert_width
        logits = self.weigh(self.make(count, routed or cur), block, "ffn_gate_inp.weight")
        if "ffn_gate_inp.bias" in w:
            logits = self.weigh(self.same(logits), block, "ffn_gate_inp.bias")
        gating = int(keys.get("expert_gating_func", 0)) or self.hyper.family.gating
        probs = logits if gating == 3 else self.same(logits)
        chosen = (
            logits
            if self.hyper.family.expert_rows
            else self.weigh(self.same(probs), block, "exp_probs_b.bias")
            if "exp_probs_b.bias" in w
            else probs
        )
        top = Tensor(4 * count * rows, (chosen,))
        picked = self.view(top, ("top", used), 0, 4 * used * rows)
        weights = self.make(used, self.view(probs, "probs3"), picked, layout=(1, used, rows))
        if gating == 3:
            weights = self.view(self.same(self.view(weights, (used, rows))), (1, used, rows))
        if self.hyper.family.norm_weights(keys):
            flat = self.view(weights, (used, rows))
            total = self.make(1, flat)  # and limited, which was a view of it before the newest engines
            total = Tensor(total.size, (total,), layout=(1, rows)) if self.newest else self.view(total, (1, rows))
            weights = self.view(Tensor(flat.size, (flat, total), inplace=True, layout=flat.layout), (1, used, rows))
        if float(keys.get("expert_weights_scale", 0.0)) not in (0.0, 1.0):
            weights = self.same(weights)
        self.nodes.expand(weights)
        cur3 = self.view(cur, ("cur3", rows))
        first = self.hyper.family.expert_rows  # llama4 weighs what goes in, not what comes out
        if first:
            repeated = self.make(e * used, cur3, layout=(e, used, rows))
            cur3 = self.same(repeated, weights)
        if "ffn_gate_up_exps.weight" in w:
            both = self.weigh(self.make(2 * width * used, cur3, picked), block, "ffn_gate_up_exps.weight")
            act = self.make(width * used, self.view(both, "g"), self.view(both, "u", 1))
        else:
            up = self.weigh(self.make(width * used, cur3, picked), block, "ffn_up_exps.weight")
            if "ffn_up_exps.bias" in w:
                up = self.weigh(self.same(up, picked), block, "ffn_up_exps.bias")
            if "ffn_gate_exps.weight" in w:
                gate = self.weigh(self.make(width * used, cur3, picked), block, "ffn_gate_exps.weight")
                if "ffn_gate_exps.bias" in w:
                    gate = self.weigh(self.same(gate, picked), block, "ffn_gate_exps.bias")
                act = self.make(width * used, gate, up)
            else:
                act = self.same(up)
                if self.hyper.family.squared:
                    act = self.same(act)
        down = self.weigh(self.make(e * used, act, picked, layout=(e, used, rows)), block, "ffn_down_exps.weight")
        if "ffn_down_exps.bias" in w:
            down = self.weigh(self.same(down, picked), block, "ffn_down_exps.bias")
        if not first:
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
            up = self.weigh(self.make(width, cur), block, "ffn_up_shexp.weight")
            gate = self.weigh(self.make(width, cur), block, "ffn_gate_shexp.weight")
            act = self.make(width, gate, up) if "ffn_gate_shexp.weight" in block.widths else self.same(up)
            shared = self.weigh(self.make(self.hyper.embedding, act), block, "ffn_down_shexp.weight")
            if "ffn_gate_inp_shexp.weight" in block.widths:
                share = self.same(self.weigh(self.make(1, cur), block, "ffn_gate_inp_shexp.weight"))
                shared = Tensor(shared.size, (shared, share), inplace=True, layout=shared.layout)
            out = Tensor(out.size, (out, shared), inplace=True, layout=out.layout)
        return out

    def late_rows(self, cur: Tensor) -> Tensor:
        """Rows chosen from those of all tokens, which stay: a draft model would read them."""
        cur.output = True
        return self.picked_rows(cur)

    def picked_rows(self, tensor: Tensor) -> Tensor:
        return self.make(self.hyper.embedding, tensor, self.outputs, rows=self.out)

    def block(self, inp: Tensor, layer: Layer, block: Block, last: bool) -> Tensor:
        row = self.hyper.family
        if row.encoder:
            return encoder.block(self, inp, layer, block, last)
        if row.gaps and not (layer.heads and layer.kv_heads and layer.ff):
            return self.block_with_gaps(inp, layer, block, last)
        parallel = self.parallel(block)
        self.rows = self.tok
        if row.whole in BLOCKS:
            return BLOCKS[row.whole](self, inp, layer, block, last)
        normed = self.norm(inp, block, "attn_norm.weight") if "attn_norm.weight" in block.widths else inp
        if row.recurrent == "delta":
            self.nodes.expand(normed)
        if layer.r and row.recurrent in MIXERS:
            cur = MIXERS[row.recurrent](self, normed, layer, block)
        elif row.latent:
            cur = latent.attention(self, normed, layer, block)
        else:
            second = self.norm(inp, block, "attn_norm_2.weight") if "attn_norm_2.weight" in block.widths else normed
            cur = self.attention(second, layer, block, last)
        if last and not self.late:
            self.rows = self.out
            cur, inp = self.picked_rows(cur), self.picked_rows(inp)
            if parallel == "shared":
                normed = self.picked_rows(normed)
        if parallel:
            attended = cur
            if parallel == "own":
                normed = self.norm(inp, block, "ffn_norm.weight")
            cur = self.mixed(normed, layer, block)
            match row.parallel_sum:
                case "input":
                    parts = cur, inp, attended
                case "attention":
                    parts = cur, attended, inp
                case "attention-first":
                    parts = attended, cur, inp
                case "residual":
                    return self.same(cur, self.same(attended, inp))
            return self.same(self.same(parts[0], parts[1]), parts[2])
        before = "ffn_norm.weight"
        if (
            "attn_norm.weight" in block.widths
            and before not in block.widths
            and "post_attention_norm.weight" in block.widths
        ):
            before = "post_attention_norm.weight"  # gpt-oss, glm4moe: so is the feed-forward's own norm called there
        else:
            cur = self.norm(cur, block, "post_attention_norm.weight")
        cur = self.scaled_residual(cur)
        residual = self.added(cur, inp, "attention")
        if not block.feeds:
            return residual
        if "pre_ffw_norm_2.weight" in block.widths:
            cur = gemma.two_feeds(self, residual, layer, block)
        else:
            cur = self.mixed(self.norm(residual, block, before), layer, block)
        cur = self.norm(cur, block, "post_ffw_norm.weight")
        if last and self.late == "sum":
            self.rows = self.out
            cur, residual = self.picked_rows(cur), self.picked_rows(residual)
        cur = self.added(self.scaled_residual(cur), residual, "feed-forward")
        return gemma.with_per_layer(self, cur, block, last) if gemma.per_layer_width(self.hyper) else cur

    def block_with_gaps(self, inp: Tensor, layer: Layer, block: Block, last: bool) -> Tensor:
        """A pruned block (src/models/deci.cpp): without attention, with one matrix for it, or without feed-forward."""
        self.rows = self.tok
        cur = inp
        if layer.heads:
            cur = self.norm(inp, block, "attn_norm.weight")
            if layer.kv_heads:
                cur = self.attention(cur, layer, block, last)
            else:
                cur = self.matrix(self.hyper.embedding, cur, block, "attn_output")
        if not layer.ff:
            return inp
        if last:
            self.rows = self.out
            cur, inp = self.picked_rows(cur), self.picked_rows(inp)
        residual = Tensor(cur.size, (cur, inp), inplace=True, layout=cur.layout) if layer.heads else cur
        cur = self.mixed(self.norm(residual, block, "ffn_norm.weight"), layer, block)
        return Tensor(cur.size, (cur, residual), inplace=True, layout=cur.layout)

    def added(self, cur: Tensor, residual: Tensor, part: str) -> Tensor:
        """The sum of a part's result and the residual; which one comes first decides whose place it may take."""
        both = (residual, cur) if self.hyper.family.residual_first in (part, "both") else (cur, residual)
        return Tensor(cur.size, both, inplace=True, layout=residual.layout)

    def scaled_residual(self, cur: Tensor) -> Tensor:
        return self.same(cur) if self.hyper.keys.get("residual_scale") else cur

    def parallel(self, block: Block) -> str:
        """How attention and feed-forward stand beside each other, which some families leave to the file."""
        how = self.hyper.family.parallel
        if how == "own" and not self.hyper.keys.get("use_parallel_residual", 1):
            return ""
        return "" if how == "shared" and "ffn_norm.weight" in block.widths else how

    def learned_positions(self) -> Tensor:
        """Rows of the table of positions, looked up on the host."""
        width = self.hyper.embedding
        if self.on_host:
            return self.make(width, self.positions, rows=self.tok)
        rows = self.new_input(F * width * self.tok)
        rows.layout = (width, self.tok)
        return rows

    def bytes(self) -> int:
        """Build everything and lay it out."""
        hyper = self.hyper
        cur = self.embedding
        cur.layout = (hyper.embedding, self.rows)
        if self.padded is not None:
            cur = self.view(self.padded, cur.layout, 0, cur.size)
        if gemma.per_layer_width(hyper) and self.per_layer is None:
            self.per_layer = gemma.PerLayer(self)
        if self.part.first:
            if hyper.family.token_types:
                cur = self.same(cur, self.new_input(F * hyper.embedding))
            if hyper.family.positions:  # an encoder adds the embeddings to them, a decoder them to the embeddings
                rows = self.learned_positions()
                cur = self.same(rows, cur) if hyper.family.encoder else self.same(cur, rows)
        if hyper.keys.get("embedding_scale") and self.part.first:
            cur = self.nodes.expand(self.same(cur))
        if hyper.family.scaled_input and self.part.first and not self.scaled_on_host:
            cur = self.same(cur)
        if hyper.family.input_norm and self.part.first:
            cur = self.same(self.same(self.normed(cur)))
        if self.per_layer is not None:
            self.per_layer.given = cur
        if hyper.family.streams and self.part.first:
            cur = altup.stacked(self, cur)
        last = hyper.blocks - 1
        for number in _sample(hyper, self.part):
            self.number, self.hosted = number, number in self.part.hosted
            self.hosted_experts = number in self.part.hosted_experts
            layer, block = hyper.layers[number], hyper.block_tensors[number]
            if hyper.family.streams:
                cur = altup.block(self, cur, layer, block, number)
            else:
                cur = self.block(cur, layer, block, number == last)
            if number < hyper.deep_inputs and self.padded is not None:
                cur = self.same(cur, self.view(self.padded, ("deep", number), 1))
        if self.part.output:
            if hyper.family.streams and self.part.blocks:
                cur = altup.merged(self, cur)
            if self.late == "before":
                cur = self.late_rows(cur)
            if not hyper.family.encoder:
                cur = self.same(self.normed(cur))
            if self.late == "after":
                cur = self.late_rows(cur)
            if not hyper.family.pooled:
                logits = self.make(hyper.vocabulary, cur, rows=self.out)
                logits.output = True
                self.nodes.expand(logits)
                cur = logits
            if hyper.is_embedding:
                cur = encoder.pooled(self, cur)
        cur.output = True
        self.nodes.expand(cur)
        for tensor in self.inputs:
            tensor.sources = ()
        nodes = self.nodes.nodes
        ready = self.indexer.zeros if self.indexer is not None else []
        known = {id(t) for t in (*self.inputs, *ready)}
        nodes = [n for n in nodes if id(n) not in known]
        known -= {id(t) for t in ready}
        if self.part.hosted or self.part.hosted_experts:
            return peak(in_parts(nodes, self.inputs))
        first = list({id(s): s for node in nodes for s in node.sources if id(s) in known}.values())  # as asked for
        if self.on_host:
            first.insert(1, self.place)
        if self.part.copies > 1:
            first = [twin for t in first for twin in (t, *(Tensor(t.size) for _ in range(self.part.copies - 1)))]
            for tensor in first:
                tensor.output = True  # the others of a pipeline still read it
        return peak(ready + first + nodes, HOST_ALIGNMENT if self.on_host else ALIGNMENT)


# What makes a block's rows where it is not attention, and families whose blocks are laid out in their own way.
MIXERS = {
    "mamba": recurrent.mamba,
    "mamba2": recurrent.mamba2,
    "conv": recurrent.short_convolution,
    "delta": delta.recurrent,
}
BLOCKS = {"both": hybrid.both, "single": hybrid.single, "rwkv": rwkv.block}


def _keeper(hyper: Hyper, part: Part, number: int) -> tuple[int, bool]:
    """The block whose cache another reads, and whether it is another in other memory.

    Late blocks read that of the last block of their kind which keeps one (llama_model::create_memory, reuse).
    """
    layer = hyper.layers[number]
    if layer.k or hyper.family.cache != "from-start":
        return number, False
    keeper = sum(bool(other.k) for other in hyper.layers) - (2 if layer.swa else 1)
    return keeper, keeper in part.hosted or keeper not in part.blocks


def _sample(hyper: Hyper, part: Part) -> list[int]:
    """Enough blocks to reach the peak: the allocator repeats itself after a few of a kind, and the last differs.

    Each kind of block keeps its first three, in their order, after what came before them, and all whose copies of a
    cache in other memory add up. Where recurrent blocks are
    mixed with others, or blocks give back what they were handed at the start, gaps drift through the buffer for
    longer: all of them are followed, unless a part of them is on
    the host, where the search for the layers that fit needs many graphs.
    """
    drifts = hyper.family.recurrent or hyper.family.indexer
    if drifts and not part.hosted and not part.hosted_experts:
        return list(part.blocks)
    seen: dict[tuple[object, ...], int] = {}
    kept = []
    before: object = None
    for number in part.blocks:
        layer, block = hyper.layers[number], hyper.block_tensors[number]
        kind = (hash(layer), id(block), number in part.hosted, number in part.hosted_experts)
        key = (*kind, before)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= 3 or number == part.blocks[-1] or (layer.heads and _keeper(hyper, part, number)[1]):
            kept.append(number)
        before = kind
    return kept


def exact(hyper: Hyper, graph: Graph, tok: int, *, on_host: bool = False, part: Part | None = None) -> int | None:
    """The compute buffer of a device (or of the host alone), to the byte; None where the builder has no rule, or where
    the file lacks a tensor that its family has (the engine refuses such a file)."""
    if not hyper.family.built:
        return None
    try:
        return Builder(hyper, graph, tok, on_host=on_host, part=part).bytes()
    except KeyError:
        return None
