"""Hyperparameters of a model, from the header of its file."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from ollamactl.core.memory.families import family
from ollamactl.core.memory.keys import Keys
from ollamactl.core.memory.layers import absorbs, layers_of, window
from ollamactl.core.memory.model import Block, Hyper, widths_of
from ollamactl.core.memory.weights import device_bytes, weigh

if TYPE_CHECKING:
    from ollamactl.core.parse.gguf import GgufHeader


_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")


def _block_tensors(header: GgufHeader, count: int) -> tuple[Block, ...]:
    found: list[list[tuple[str, int, int, int]]] = [[] for _ in range(count)]
    experts = [0] * count
    for tensor in header.tensors:
        match = _BLOCK.match(tensor.name)
        if match is None or int(match[1]) >= count:
            continue
        index, dims = int(match[1]), tensor.dims
        found[index].append((match[2], dims[0], dims[1] if len(dims) > 1 else 1, device_bytes(tensor)))
        if match[2] == "ffn_down_exps.weight":
            experts[index] = dims[2] if len(dims) > 2 else 1
    known: dict[object, Block] = {}
    blocks = []
    for names, number in zip(found, experts, strict=True):
        key = (tuple(sorted(names)), number)
        if key not in known:
            known[key] = Block(
                key[0],
                number,
                {name: second for name, _, second, _ in names},
                {name: size for name, _, _, size in names},
            )
        blocks.append(known[key])
    return tuple(blocks)


def from_header(header: GgufHeader) -> Hyper:
    """Hyperparameters of the model in a GGUF header. Missing keys take llama.cpp's defaults."""
    row, known = family(header.architecture)
    keys = Keys(header)
    count = min(keys.number("block_count"), 4096)
    drafts = min(keys.number("nextn_predict_layers"), count)
    embedding = keys.number("embedding_length")
    layers = layers_of(keys, row, header.architecture, count, drafts)
    tensors = {t.name: t for t in header.tensors}
    table = tensors.get("token_embd.weight")
    vocabulary = table.dims[1] if table is not None and len(table.dims) > 1 else keys.number("vocab_size")
    quantization = header.metadata.get("general.file_type", -1)
    return Hyper(
        architecture=header.architecture,
        family=row,
        known=known,
        layers=layers,
        trained_context=keys.number("context_length"),
        embedding=embedding,
        vocabulary=vocabulary,
        window=window(keys, row, count - drafts) if any(layer.swa for layer in layers) else 0,
        latent=absorbs(keys, row),
        is_embedding=keys.has("pooling_type")
        or (row.cache == "none" and not row.recurrent and not keys.number("attention.causal", 1)),
        heads=keys.number("attention.head_count"),
        feed_forward=max(keys.each("feed_forward_length", max(count, 1)), default=0),
        keys=keys.all(),
        weights=weigh(header, count, drafts, parts=row.draft_parts, logits=row.loads_output),
        widths=widths_of(layers),
        block_tensors=_block_tensors(header, count),
        groups=tuple(Counter(layers).items()),
        file_size=header.size,
        position_parts=4 if row.sections and all(keys.above("rope.dimension_sections", 2)) else 1,
        learned_positions="position_embd.weight" in tensors,
        quantization=quantization if isinstance(quantization, int) else -1,
    )
