"""Variables of a server that decide about memory, as it has them or will have them, and its release. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ollamactl.core import settings as registry
from ollamactl.core.facts import Facts
from ollamactl.core.memory.runner_args import Settings

NEWEST_RELEASE = (0, 33, 0)  # what is assumed where no release is known


def release_of(facts: Facts) -> tuple[tuple[int, int, int], bool]:
    """The release that runs, and whether it is known; the newest where not."""
    text = facts.version or (facts.start.version if facts.start else "") or ""
    numbers = registry.version(text)
    return ((numbers[0], numbers[1], numbers[2]), True) if len(numbers) == 3 else (NEWEST_RELEASE, False)


def values_now(facts: Facts) -> dict[str, str | None]:
    """The variables that decide about memory, as the running server has them, else as the next start will."""
    found: dict[str, str | None] = {}
    config = (facts.start.config if facts.start else None) or {}
    environ = facts.process.environ if facts.process else None
    for name in RELEVANT:
        if environ is not None:
            found[name] = environ.get(name)
        elif name in config:
            printed = config[name]
            default = registry.REGISTRY[name].default(facts.version or "")
            found[name] = None if printed in ("", default) else printed
        elif facts.process is None and facts.effective is not None:
            found[name] = facts.effective.value(name)
        else:
            found[name] = None
    return found


RELEVANT = (
    "OLLAMA_NUM_PARALLEL", "OLLAMA_CONTEXT_LENGTH", "OLLAMA_KV_CACHE_TYPE", "OLLAMA_FLASH_ATTENTION",
    "OLLAMA_GPU_OVERHEAD", "OLLAMA_MAX_LOADED_MODELS", "OLLAMA_SCHED_SPREAD", "LLAMA_ARG_FIT_TARGET",
    "OLLAMA_IGPU_ENABLE", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
    "GGML_VK_VISIBLE_DEVICES",
)  # fmt: skip


def number(values: Mapping[str, str | None], name: str) -> int | None:
    """A variable as Ollama reads it; None where it is unset or no number (its default counts then)."""
    text = values.get(name)
    if text is None or not text.strip(" \t\"'"):
        return None
    read = registry.REGISTRY[name].read(text)
    return int(read.printed) if not read.problem and read.printed.isdigit() else None


def truth(values: Mapping[str, str | None], name: str) -> bool | None:
    """A boolean variable as Ollama reads it: any text that is no boolean counts as true; None where unset."""
    text = values.get(name)
    if text is None or not text.strip(" \t\"'"):
        return None
    return registry.REGISTRY[name].read(text).printed != "false"


def settings_of(values: Mapping[str, str | None], release: tuple[int, int, int]) -> Settings:
    """The variables as the memory model takes them."""
    return Settings(
        parallel=number(values, "OLLAMA_NUM_PARALLEL"),
        context_length=number(values, "OLLAMA_CONTEXT_LENGTH") or None,
        kv_cache_type=(values.get("OLLAMA_KV_CACHE_TYPE") or "").strip(" \t\"'").lower(),
        flash_attention=truth(values, "OLLAMA_FLASH_ATTENTION"),
        gpu_overhead=number(values, "OLLAMA_GPU_OVERHEAD") or 0,
        release=release,
    )
