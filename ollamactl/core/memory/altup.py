"""Gemma 3n in a graph: several streams of embeddings, of which a block predicts all, computes one and corrects all.

The order of operations is that of src/models/gemma3n.cpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ollamactl.core.memory import gemma
from ollamactl.core.memory.attention import attention
from ollamactl.core.memory.graph import Tensor

if TYPE_CHECKING:
    from ollamactl.core.memory.builder import Builder
    from ollamactl.core.memory.model import Block, Layer

F = 4
SPARSE = 10  # first blocks, whose gates are cut off at a quantile


def streams(b: Builder) -> int:
    """How many streams of embeddings the model has."""
    return int(b.hyper.keys.get("altup.num_inputs", 4))


def stacked(b: Builder, cur: Tensor) -> Tensor:
    """All streams from the one that the tokens give."""
    e, more = b.hyper.embedding, streams(b) - 1
    magnitude = _magnitude(b, cur, e)
    made = b.make(more * e, b.make(more * e, cur))
    scaled = b.same(made, magnitude)
    made = b.same(scaled, _magnitude(b, made, more))
    return b.make(streams(b) * e, cur, made)


def merged(b: Builder, cur: Tensor) -> Tensor:
    """One stream from all, for the chosen rows."""
    e, more = b.hyper.embedding, streams(b) - 1
    magnitude = _magnitude(b, _slice(b, cur), e)
    made = b.make(more * e, b.view(cur, "others", 1))
    scaled = b.same(made, magnitude)
    made = b.same(scaled, _magnitude(b, made, more))
    cur = _slice(b, cur)
    for number in range(more):
        cur = Tensor(cur.size, (cur, b.view(made, "one", number)), inplace=True, layout=(e, b.tok))
    return b.picked_rows(b.same(cur))


def block(b: Builder, inp: Tensor, layer: Layer, block: Block, number: int) -> Tensor:
    """One block: `inp` and the result are all streams."""
    e, tok, count = b.hyper.embedding, b.tok, streams(b)
    b.rows = tok
    predictions = _predict(b, inp, block)
    active = _slice(b, predictions)
    normed = b.norm(active, block, "attn_norm.weight")
    laurel = b.matrix(
        e, b.matrix(block.widths.get("laurel_l.weight", 0), normed, block, "laurel_l"), block, "laurel_r"
    )
    laurel = b.same(b.norm(laurel, block, "laurel_post_norm.weight"), normed)
    cur = b.norm(attention(b, normed, layer, block), block, "post_attention_norm.weight")
    cur = b.same(b.same(b.same(cur, active), laurel))
    attended = cur
    cur = b.norm(cur, block, "ffn_norm.weight")
    up = b.matrix(layer.ff, cur, block, "ffn_up")
    gate = b.matrix(layer.ff, cur, block, "ffn_gate")
    if number < SPARSE:
        gate = _cut(b, gate)
    cur = b.matrix(e, b.same(up, b.same(gate)), block, "ffn_down")
    cur = b.same(b.norm(cur, block, "post_ffw_norm.weight"), attended)
    corrected = _correct(b, predictions, cur, block)
    first = b.weigh(b.same(_slice(b, corrected)), block, "altup_correct_scale.weight")
    first = gemma.per_layer_part(b, first, block, False)
    rest = b.view(corrected, "others", 1)
    rest = Tensor(F * (count - 1) * e * tok, (rest, first), inplace=True, layout=("others", tok))
    return b.make(count * e, b.view(corrected, "first"), rest)


def _slice(b: Builder, tensor: Tensor) -> Tensor:
    return b.view(tensor, (b.hyper.embedding, b.tok), 0, F * b.hyper.embedding * b.tok)


def _magnitude(b: Builder, tensor: Tensor, width: int) -> Tensor:
    rows = tensor.size // (F * b.hyper.embedding)
    return b.same(Tensor(F * rows, (b.same(tensor),), layout=("magnitude", rows)))


def _router(b: Builder, tensor: Tensor, block: Block) -> Tensor:
    tensor = b.same(b.norm(tensor, block, "altup_router_norm.weight"))
    return b.same(b.matrix(streams(b), tensor, block, "altup_router"))


def _predict(b: Builder, inp: Tensor, block: Block) -> Tensor:
    count = streams(b)
    width = count * b.hyper.embedding
    router = _router(b, _slice(b, inp), block)
    coefficients = b.matrix(count * count, router, block, "altup_predict_coef")
    turned = b.make(width, b.view(inp, "permuted"))
    made = b.make(width, turned, b.view(coefficients, "coefficients"))
    made = b.make(width, b.view(made, "permuted"), layout=inp.layout)
    return b.same(made, inp)


def _correct(b: Builder, predictions: Tensor, cur: Tensor, block: Block) -> Tensor:
    count = streams(b)
    router = _router(b, cur, block)
    innovation = b.same(cur, _slice(b, predictions))
    coefficients = b.same(b.matrix(count, router, block, "altup_correct_coef"))
    coefficients = b.make(count, b.view(coefficients, "transposed"))
    repeated = b.make(count * b.hyper.embedding, innovation, layout=predictions.layout)
    return b.same(b.same(repeated, coefficients), predictions)


def _cut(b: Builder, gate: Tensor) -> Tensor:
    """Gates below a quantile of their row become 0."""
    mean = b.make(1, gate)
    spread = b.same(b.same(b.make(1, b.same(b.same(gate, mean)))))
    cutoff = b.same(mean, b.same(spread))
    return b.same(b.same(gate, cutoff))
