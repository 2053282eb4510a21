"""The options of a request: types as Ollama demands them, where each comes from, and what the engine is sent."""

from __future__ import annotations

from typing import Any

from . import envconfig, gofmt, store
from .gofmt import MAX_DURATION, log

INTS = {
    "num_ctx",
    "num_batch",
    "num_gpu",
    "main_gpu",
    "num_thread",
    "num_keep",
    "seed",
    "num_predict",
    "top_k",
    "repeat_last_n",
}
FLOATS = {"top_p", "min_p", "typical_p", "repeat_penalty", "temperature", "presence_penalty", "frequency_penalty"}
DEFAULT_CTX = 4096  # a host without a GPU
_DEFAULTS: dict[str, Any] = {
    "num_keep": 4, "seed": -1, "num_predict": -1, "top_k": 40, "top_p": 0.9, "min_p": 0.0, "typical_p": 1.0,
    "repeat_last_n": 64, "repeat_penalty": 1.0, "temperature": 0.8, "presence_penalty": 0.0, "frequency_penalty": 0.0,
}  # fmt: skip


class BadOption(Exception):
    """The text is the error body."""


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    out = {}
    for name, value in given.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if name in INTS and not number:
            raise BadOption(f'option "{name}" must be of type integer')
        if name in FLOATS and not number:
            raise BadOption(f'option "{name}" must be of type float32')
        if name == "use_mmap" and not isinstance(value, bool):
            raise BadOption(f'option "{name}" must be of type boolean')
        if name == "stop" and not isinstance(value, list):
            raise BadOption(f'option "{name}" must be of type array')
        if name not in INTS | FLOATS | {"use_mmap", "stop"}:
            log.warn("types.go:1007", "invalid option provided", option=name)
            continue
        out[name] = int(value) if name in INTS else value
    return out


def merged(model: store.Model, given: dict[str, Any]) -> dict[str, Any]:
    """Request over Modelfile over environment over defaults. Raises BadOption."""
    envconfig.uint("OLLAMA_CONTEXT_LENGTH")  # Ollama reads it twice a request, and warns as often
    context = envconfig.uint("OLLAMA_CONTEXT_LENGTH") or DEFAULT_CTX
    out = _DEFAULTS | {"num_ctx": context} | _checked(model.params) | _checked(given)
    out["num_ctx"] = max(out["num_ctx"], 4)
    return out


def keep_alive(value: Any) -> int | None:
    """Nanoseconds of a request's keep_alive; None where it has none. Raises ValueError with Go's text."""
    if value is None:
        return None
    if isinstance(value, str):
        parsed = gofmt.parse_duration(value)
        if parsed is None:
            raise ValueError(f"time: invalid duration {gofmt.quote(value)}")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        parsed = int(value * 10**9)
    else:
        raise ValueError("json: cannot unmarshal into Go value of type api.Duration")
    return MAX_DURATION if parsed < 0 else min(parsed, MAX_DURATION)


def completion(options: dict[str, Any], prompt: Any) -> dict[str, Any]:
    """Body of the engine's /completion."""
    names = {"num_predict": "n_predict", "num_keep": "n_keep"}
    skip = {"num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "use_mmap"}
    out = {names.get(name, name): value for name, value in options.items() if name not in skip}
    return out | {"prompt": prompt, "stream": True, "cache_prompt": True}
