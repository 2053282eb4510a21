"""Engines before Ollama 0.30: what they hold, where that differs from the llama-server of today. Pure.

Two runners shared the work: llama.cpp of its time, compiled in, and Ollama's own engine for the architectures of OWN.
Sources: llm/server.go, llm/memory.go, fs/ggml/ggml.go, kvcache/causal.go and kvcache/recurrent.go of those releases,
and the llama.cpp that they carried.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ollamactl.core.memory.bands import UNKNOWN, Band
from ollamactl.core.memory.cache import Cells, cells, pad
from ollamactl.core.memory.model import Hyper, Layer, with_layers

MiB = 1 << 20
Release = tuple[int, int, int]
LLAMA_SERVER: Release = (0, 30, 0)  # from here on every GGUF is served by llama-server
# From here on llama.cpp has a stream of cells for each slot and none for encoders, and a runner is told by a request.
STREAMS: Release = (0, 11, 5)
AUTO_FLASH: Release = (0, 13, 4)  # llama.cpp decides about flash attention where nothing is set

# Architectures that Ollama's own engine serves, by the release that began it (OllamaEngineRequired).
OWN: dict[str, Release] = {
    "gemma3": (0, 6, 0), "mistral3": (0, 6, 5), "llama4": (0, 6, 7), "mllama": (0, 7, 0), "qwen25vl": (0, 7, 0),
    "gemma3n": (0, 9, 3), "gptoss": (0, 11, 0), "gpt-oss": (0, 11, 0), "bert": (0, 12, 0), "qwen3": (0, 12, 0),
    "qwen3moe": (0, 12, 0), "deepseek2": (0, 12, 6), "qwen3vl": (0, 12, 7), "qwen3vlmoe": (0, 12, 7),
    "deepseekocr": (0, 13, 0), "nomic-bert": (0, 13, 1), "olmo3": (0, 13, 3), "glm4moelite": (0, 15, 0),
    "qwen3next": (0, 15, 0), "lfm2": (0, 15, 0), "lfm2moe": (0, 15, 0), "glmocr": (0, 15, 5),
    "qwen35": (0, 16, 0), "qwen35moe": (0, 16, 0), "nemotron_h": (0, 18, 0), "nemotron_h_moe": (0, 18, 0),
    "nemotron_h_omni": (0, 22, 1), "gemma4": (0, 20, 0), "laguna": (0, 23, 0),
}  # fmt: skip
# Those for which flash attention is on where nothing is set (FlashAttention()); of OWN nearly all, some later.
_FLASH: dict[str, Release] = {
    "gptoss": (0, 11, 8), "gpt-oss": (0, 11, 8), "qwen3": (0, 12, 4), "qwen3moe": (0, 12, 4), "gemma3": (0, 12, 6),
    "bert": (0, 13, 2), "mistral3": (0, 13, 2), "qwen3vl": (0, 13, 2), "qwen3vlmoe": (0, 13, 2), "olmo3": (0, 13, 3),
}  # fmt: skip
_FLASH_SINCE_SERVED = (
    "gemma4", "glm4moelite", "glmocr", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe", "nemotron_h_omni",
    "qwen35", "qwen35moe", "qwen3next",
)  # fmt: skip
_KEEPS_MORE = {"gptoss": 4096, "gpt-oss": 4096, "gemma4": 4096}  # tokens kept behind a shorter window
CHECKPOINTS = 24  # copies of a slot's recurrent state that Ollama's own engine keeps beside it
_FEWEST_CHECKPOINTS = 8

LLAMA_BAND = Band(0.15, 0.2)
OWN_BAND = Band(0.3, 0.5)  # compared with a handful of public logs


class Era(msgspec.Struct, frozen=True):
    """What an old engine does in its own way."""

    own: bool = False  # Ollama's own engine, else llama.cpp compiled in
    unified: bool = False  # all slots share one stream of cells
    padding: int = 256  # cells are rounded up to it
    encoders_cache: bool = False  # embedding models have a key-value cache too
    by_request: bool = False  # the runner is told its numbers by a load request, not by arguments


def era(architecture: str, release: Release, *, flash: bool) -> Era | None:
    """The engine of a release for an architecture; None from Ollama 0.30 on."""
    if release >= LLAMA_SERVER:
        return None
    own = serves(architecture, release)
    return Era(
        own=own,
        unified=own or release < STREAMS,
        padding=256 if flash or release >= (0, 13, 0) else 32,
        encoders_cache=not own and release < STREAMS,
        by_request=release >= STREAMS,
    )


def serves(architecture: str, release: Release) -> bool:
    """Whether Ollama's own engine loads an architecture in a release before 0.30."""
    since = OWN.get(architecture)
    return since is not None and since <= release < LLAMA_SERVER


def flash_attention(hyper: Hyper, release: Release, chosen: bool | None) -> Literal["auto", "on", "off"]:
    """What a release before 0.30 makes of OLLAMA_FLASH_ATTENTION. Embedding models and models with keys and values of
    two lengths never get it."""
    architecture = hyper.architecture
    alike = all(x.key == x.value for x, _ in hyper.groups if x.heads)
    able = alike and architecture not in ("gemma2", "grok") and not hyper.keys.get("pooling_type")
    if chosen is not None:
        return "on" if chosen and able else "off"
    since = OWN.get(architecture) if architecture in _FLASH_SINCE_SERVED else _FLASH.get(architecture)
    if since is not None and release >= since:
        return "on" if able else "off"
    if serves(architecture, release) or release < AUTO_FLASH:
        return "off"
    return "auto" if able else "off"


def seen_by(hyper: Hyper, old: Era) -> Hyper:
    """The model as the old engine sees it: V of absorbed latent attention is cached, encoders may have a cache, and
    llama.cpp was asked to keep everything in windowed blocks too."""
    encoder = old.encoders_cache and hyper.family.cache == "none" and not hyper.family.recurrent
    all_kept = bool(hyper.window) and not old.own
    if not (encoder or hyper.latent or all_kept):
        return hyper

    def seen(layer: Layer) -> Layer:
        layer = msgspec.structs.replace(layer, swa=layer.swa and old.own)
        if not (encoder or (hyper.latent and layer.k)):
            return layer
        k, v = layer.kv_heads * layer.key, layer.kv_heads * layer.value
        return msgspec.structs.replace(layer, k=k, v=v, cached=True)

    return with_layers(hyper, tuple(map(seen, hyper.layers)))


def cells_of(hyper: Hyper, old: Era, total: int, slots: int, batch: int) -> Cells:
    """Cells of an old engine for a total context."""
    if not old.own:
        return cells(total, slots, batch, 0, unified=old.unified, padding=old.padding)
    full = pad(slots * (total // slots), old.padding)
    kept = _KEEPS_MORE.get(hyper.architecture, hyper.window)
    if slots > 1:
        kept = max(kept, hyper.window + 1)
    short = hyper.window and hyper.architecture != "llama4" and kept < total // slots  # llama4 keeps its chunks
    return Cells(full, pad(slots * kept + batch, old.padding) if short else full, 1)


def state_rows(old: Era) -> int:
    """Copies of a slot's recurrent state that are kept beside it."""
    return CHECKPOINTS if old.own else 0


def state_band(old: Era) -> float:
    """Share of the recurrent state that may be missing: fewer copies are kept where memory is short."""
    return 1 - (1 + _FEWEST_CHECKPOINTS) / (1 + CHECKPOINTS) if old.own else 0.0


def compute_bytes(hyper: Hyper, old: Era, at: Cells, batch: int, *, flash: bool) -> int:
    """The compute buffer of what holds everything. llama.cpp reserved logits for a whole batch then; Ollama's own
    engine does not, and casts its masks."""
    embedding, heads = hyper.embedding, hyper.heads
    vocabulary = 0 if hyper.is_embedding else hyper.vocabulary
    if not flash:
        seen = at.full if hyper.widths.caches else batch if hyper.family.attends_batch else 0
        attention = 4 * batch * (1 + 4 * embedding + seen * (1 + heads))
    elif old.own:
        attention = 6 * batch * _masks(hyper, at) + 4 * batch * (3 * _active(hyper) + 4 * embedding)
    else:
        attention = 6 * batch * at.full + 4 * batch * (hyper.feed_forward + 4 * embedding)
    if old.own:
        routed = int(hyper.keys.get("expert_used_count", 0)) * embedding
        return attention + 4 * batch * routed
    return max(4 * batch * (vocabulary + embedding), attention)


def reserved(hyper: Hyper, old: Era, total: int, slots: int, batch: int, *, flash: bool) -> int:
    """Bytes by which Ollama's own estimate of the compute buffer is above what llama.cpp takes: it decides by a graph
    without flash attention. Its own engine is asked for what it takes."""
    if old.own or not flash:
        return 0
    seen = seen_by(hyper, old)
    at = cells_of(seen, old, total, slots, batch)
    estimate, taken = (compute_bytes(seen, old, at, batch, flash=on) for on in (False, True))
    return max(0, estimate - taken)


def _masks(hyper: Hyper, at: Cells) -> int:
    return (at.full if hyper.widths.kw_full else 0) + (at.swa if hyper.widths.swa else 0)


def _active(hyper: Hyper) -> int:
    """Width of the feed-forward that a token takes."""
    used = int(hyper.keys.get("expert_used_count", 0))
    width = int(hyper.keys.get("expert_feed_forward_length", 0)) or hyper.feed_forward
    return used * width if used else hyper.feed_forward


def band(hyper: Hyper, old: Era) -> Band:
    """How far the compute buffer may be off."""
    if not hyper.known or hyper.family.recurrent:
        return UNKNOWN
    return OWN_BAND if old.own else LLAMA_BAND
