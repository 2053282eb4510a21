"""How many bytes of a model's weights each block, the input and the output hold, and how a device would round them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from ollamactl.core.parse.gguf import GgufHeader, GgufTensor

DEVICE_ALIGNMENT = 128  # CUDA, and most others; the host's is 32
CUDA_ROW = 512  # quantized rows are padded to this many values

_BLOCK = re.compile(r"(?:enc\.|dec\.)?blk\.(\d+)\.")
_EXPERTS = re.compile(r"ffn_(up|down|gate_up|gate)_(ch|)exps")
# Tensors of the input stay in host memory whatever is offloaded (llama-arch.cpp, LLM_TENSOR_LAYER_INPUT).
_INPUT = ("token_embd.", "position_embd.", "token_types.", "per_layer_token_embd.", "masked_embd")
_HEAD = r"nextn\.(embed_tokens|shared_head)"
_DRAFT_PARTS = {
    "head": re.compile(_HEAD),
    "feed-forward": re.compile(_HEAD + r"|ffn_(gate|up|down)|exp_probs_b|attn_([qk]_norm|gate)"),
}
_PROJECTOR = ("v.", "mm.", "a.", "s.")


class Weights(msgspec.Struct, frozen=True):
    """Bytes, each tensor rounded as on a device. `blocks[i]` and `experts[i]` (of which experts) a block.

    `input`: embeddings that stay on the host; `output`: the output layer, including its copy of a tied embedding;
    `tied`: that copy; `largest[i]`: the largest single matrix a block; `projector`: inline vision or audio tensors.
    """

    blocks: tuple[int, ...]
    experts: tuple[int, ...]
    largest: tuple[int, ...]
    input: int
    output: int
    tied: int
    output_largest: int
    projector: int
    other: int  # small tensors that every device gets (rope factors)

    @property
    def device(self) -> int:
        """Bytes on one device that holds every layer."""
        return sum(self.blocks) + self.output + self.other


def device_bytes(tensor: GgufTensor) -> int:
    """Bytes that a tensor takes on a device: rows of quantized types padded, the whole aligned."""
    from ollamactl.core.memory.ggml import BY_NAME

    size = tensor.nbytes
    kind = BY_NAME[tensor.type]
    if kind.block > 1 and tensor.dims[0] % CUDA_ROW:
        size += (CUDA_ROW - tensor.dims[0] % CUDA_ROW) * kind.size // kind.block
    return -(-size // DEVICE_ALIGNMENT) * DEVICE_ALIGNMENT


def weigh(header: GgufHeader, count: int, skipped: int = 0, *, parts: str = "", logits: bool = True) -> Weights:
    """Sum the tensors of a header with `count` blocks, the last `skipped` of which are not loaded, but for `parts`
    (Family.draft_parts), which lie where the output does. `logits`: the model ends in them, so that a tied embedding
    is loaded once more as the output."""
    blocks, experts, largest = [0] * count, [0] * count, [0] * count
    input_, output, tied, other, projector, output_largest = 0, 0, 0, 0, 0, 0
    has_output = not logits or any(t.name == "output.weight" for t in header.tensors)
    for tensor in header.tensors:
        size = device_bytes(tensor)
        match = _BLOCK.match(tensor.name)
        if match is not None:
            index = int(match[1])
            if index >= count - skipped:
                output += size if parts and _DRAFT_PARTS[parts].search(tensor.name) else 0
                continue
            blocks[index] += size
            if _EXPERTS.search(tensor.name):
                experts[index] += size
            largest[index] = max(largest[index], size)
        elif tensor.name.startswith(_INPUT):
            input_ += size
            if tensor.name == "token_embd.weight" and not has_output:
                tied = size
        elif tensor.name.startswith("per_layer_") and count:
            blocks[0] += size  # made once, where the first block is
        elif tensor.name.startswith("rope_"):
            other += size
        elif tensor.name.startswith(_PROJECTOR):
            projector += size
        else:
            output += size
            output_largest = max(output_largest, size)
    return Weights(
        tuple(blocks),
        tuple(experts),
        tuple(largest),
        input_,
        output + tied,
        tied,
        max(output_largest, tied),
        projector,
        other,
    )
