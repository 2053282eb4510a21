"""Figures of real engines: headers are made from metadata or hyperparameters, files are not needed."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from ollamactl.core.memory.ggml import TYPES
from ollamactl.core.memory.model import Hyper
from ollamactl.core.memory.reading import from_header
from ollamactl.core.parse.gguf import GgufHeader, GgufTensor

DATA = Path(__file__).parents[1] / "data" / "memory"


def rows(name: str) -> list[dict[str, Any]]:
    """Rows of a JSON-lines file, packed or not."""
    path = DATA / name
    text = gzip.decompress(path.read_bytes()).decode() if name.endswith(".gz") else path.read_text()
    return [json.loads(line) for line in text.splitlines()]


def _tuples(metadata: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in metadata.items()}


def hyper(metadata: dict[str, Any], tensors: tuple[GgufTensor, ...] = ()) -> Hyper:
    """Hyperparameters of a model of which the metadata is known, and perhaps the tensors."""
    return from_header(GgufHeader(3, _tuples(metadata), tensors, 32, 0, 0))


@cache
def stored_tensors() -> dict[str, tuple[GgufTensor, ...]]:
    """Tensors of the stored models by name."""
    found = {}
    for row in rows("models.jsonl.gz"):
        tensors = []
        for name, dims, kind in row["tensors"]:
            values = 1
            for width in dims:
                values *= width
            tensors.append(
                GgufTensor(name, TYPES[kind].name, tuple(dims), 0, values // TYPES[kind].block * TYPES[kind].size)
            )
        found[row["name"]] = tuple(tensors)
    return found


# Hyperparameter of an observation -> key of the format.
_KEYS = {
    "block_count": "block_count", "head_count": "attention.head_count", "head_count_kv": "attention.head_count_kv",
    "key_length": "attention.key_length", "value_length": "attention.value_length",
    "embedding_length": "embedding_length",
    "feed_forward_length": "feed_forward_length", "vocab": "vocab_size", "sliding_window": "attention.sliding_window",
    "full_attention_interval": "full_attention_interval", "kv_lora_rank": "attention.kv_lora_rank",
    "rope_dim": "rope.dimension_count", "shared_kv_layers": "attention.shared_kv_layers",
    "nextn_layers": "nextn_predict_layers",
    "shortconv_l_cache": "shortconv.l_cache", "head_count_kv_list": "attention.head_count_kv",
}  # fmt: skip
_SSM = {
    "conv": "conv_kernel",
    "state": "state_size",
    "group": "group_count",
    "inner": "inner_size",
    "dt": "time_step_rank",
}


def observed_metadata(row: dict[str, Any]) -> dict[str, Any]:
    """Metadata as the observed model's file has it."""
    arch, given = row["arch"], row["hyperparameters"]
    metadata: dict[str, Any] = {"general.architecture": arch}
    for key, value in given.items():
        if key in _KEYS and value is not None:
            metadata[f"{arch}.{_KEYS[key]}"] = value
    for key, value in (given.get("ssm") or {}).items():
        if key in _SSM:
            metadata[f"{arch}.ssm.{_SSM[key]}"] = value
    metadata.setdefault(f"{arch}.attention.head_count", 1)
    blocks = int(given["block_count"])
    if (full := given.get("full_heads")) and (swa := given.get("swa_heads")):  # gemma4: two kinds of heads
        windowed = [(i + 1) % 6 != 0 for i in range(blocks)]
        metadata |= {
            f"{arch}.attention.sliding_window_pattern": windowed,
            f"{arch}.attention.head_count_kv": [swa["KV"] if w else full["KV"] for w in windowed],
            f"{arch}.attention.key_length": full["K"], f"{arch}.attention.value_length": full["V"],
            f"{arch}.attention.key_length_swa": swa["K"], f"{arch}.attention.value_length_swa": swa["V"],
            f"{arch}.attention.shared_kv_layers": blocks - given["n_full_layers"] - given["n_swa_layers"],
        }  # fmt: skip
    if given.get("mla_absorbed") or given.get("mla_v_less"):
        lora, rope = given["kv_lora_rank"], given["rope_dim"]
        metadata |= {
            f"{arch}.attention.head_count_kv": 1, f"{arch}.attention.key_length": lora + rope,
            f"{arch}.attention.value_length": lora,
            f"{arch}.attention.key_length_mla": 192, f"{arch}.attention.value_length_mla": 128,
        }  # fmt: skip
    if isinstance(given.get("sliding_window_pattern"), (int, list)):
        metadata[f"{arch}.attention.sliding_window_pattern"] = given["sliding_window_pattern"]
    return metadata
