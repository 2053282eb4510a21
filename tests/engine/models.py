"""Tiny GGUF files of many architectures: real metadata and tensor lists, weights of zeros in a sparse file.

`tests/data/memory/models*.jsonl` have one model a line: its metadata and its tensors (name, dimensions, ggml type);
models with recurrent state are in a file of their own. Those of `models_more` have odd widths, and keys that their
architectures do not read: no prediction may heed them.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from ollamactl.core.memory.ggml import TYPES

DATA = Path(__file__).parents[1] / "data" / "memory"
Metadata = dict[str, Any]
Tensors = list[tuple[str, list[int], int]]


@cache
def stored() -> dict[str, tuple[Metadata, Tensors]]:
    """Name -> (metadata without a vocabulary, tensors) of every stored model."""
    rows = []
    for path in sorted(DATA.glob("models*.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            rows += [json.loads(line) for line in lines]
    return {row["name"]: (row["meta"], row["tensors"]) for row in rows}


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value) if value >= 0 else struct.pack("<Ii", 5, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    first = value[0]
    if isinstance(first, str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
    if isinstance(first, bool):
        return struct.pack("<IIQ", 9, 7, len(value)) + bytes(map(int, value))
    if isinstance(first, float):
        return struct.pack("<IIQ", 9, 6, len(value)) + struct.pack(f"<{len(value)}f", *value)
    return struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)


def pieces(size: int) -> Metadata:
    """A SentencePiece vocabulary of `size` tokens that llama.cpp accepts."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    tokens += ["<|endoftext|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "\n", "a", "b", "ab"]
    kinds = [2, 3, 3, *[6] * 256, *[3] * 5, *[1] * 4]
    tokens += [f"\u2581w{i}" for i in range(size - len(tokens))]
    kinds += [1] * (size - len(kinds))
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [float(-i) for i in range(size)],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


def words(size: int) -> Metadata:
    """A WordPiece vocabulary, as BERT-like models have."""
    return {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": [
            "[PAD]",
            "[UNK]",
            "[CLS]",
            "[SEP]",
            "[MASK]",
            *(f"\u2581w{i}" for i in range(size - 5)),
        ],
        "tokenizer.ggml.token_type": [3] * 5 + [1] * (size - 5),
        "tokenizer.ggml.token_type_count": 2,
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 3,
        "tokenizer.ggml.unknown_token_id": 1,
        "tokenizer.ggml.seperator_token_id": 3,  # spelt so in the format
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.cls_token_id": 2,
        "tokenizer.ggml.mask_token_id": 4,
    }


def header(metadata: Metadata, tensors: Iterable[tuple[str, list[int], int]]) -> tuple[bytes, int]:
    """The header's bytes, and how many bytes of tensor data follow."""
    keys = b"".join(_text(name) + _value(value) for name, value in metadata.items())
    infos, offset, count = [], 0, 0
    for name, dims, kind in tensors:
        infos.append(_text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset))
        values = 1
        for width in dims:
            values *= width
        offset += -(-values * TYPES[kind].size // TYPES[kind].block // 32) * 32
        count += 1
    head = b"GGUF" + struct.pack("<IQQ", 3, count, len(metadata)) + keys + b"".join(infos)
    return head + b"\0" * (-len(head) % 32), offset


def write(path: Path, metadata: Metadata, tensors: Tensors, *, vocabulary: bool = False) -> Path:
    """Write a model. A vocabulary is what makes a load slow, and no buffer depends on it, only on its size; BERT-like
    models do not load without one."""
    architecture = metadata.get("general.architecture", "")  # none in the later files of a split model
    if vocabulary or "bert" in architecture:
        size = metadata[f"{architecture}.vocab_size"]
        tokens = words(size) if "bert" in architecture else pieces(size)
    else:
        tokens = {"tokenizer.ggml.model": "no_vocab"}
    head, data = header({**metadata, **tokens}, tensors)
    with path.open("wb") as out:
        out.write(head)
        out.truncate(len(head) + data)
    return path


def write_stored(folder: Path, names: Iterable[str] | None = None) -> Iterator[tuple[str, Path]]:
    """Write stored models into `folder` (once); yields (name, path)."""
    for name in sorted(stored()) if names is None else names:
        path = folder / f"{name}.gguf"
        yield name, path if path.exists() else write(path, *stored()[name])
