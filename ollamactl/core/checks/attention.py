"""Flash attention, and the type of the KV cache that needs it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core import govalues, settings
from ollamactl.core.checks.base import Finding, check, configured
from ollamactl.core.checks.slots import is_embedding
from ollamactl.core.facts import LogEvent, Start
from ollamactl.core.needs import NO_SIGNS, Given, Signs

QUANTISED = ("q8_0", "q4_0")  # which need flash attention


@check(weight=78, explains=("runner_crash_on_load", "kv_type_ignored_by_architecture", "load_oom"))
def kv_type_invalid(
    signs: Signs = NO_SIGNS, given: tuple[Given, ...] = (), start: Start | None = None
) -> Iterator[Finding]:
    """The type of the KV cache is none that the engine has.

    Why: Ollama does not look at it at the start; the engine refuses it at every load, or f16 is used instead.
    Seen: the engine's refusal, or the value in `server config`.
    Do: choose f16, q8_0 or q4_0.
    """
    config = (start.config if start else None) or {}
    value = config.get("OLLAMA_KV_CACHE_TYPE", "")
    place = f"server config: OLLAMA_KV_CACHE_TYPE:{value}"
    for one in given:
        if one.name == "OLLAMA_KV_CACHE_TYPE" and not value:
            value, place = govalues.trimmed(one.value), one.place
    if signs.has("kv_falls_back") and not value and not signs.has("kv_by_architecture"):
        said = "a type of the KV cache that the engine does not have is not used: the cache is f16"
        fix = "sudo ollamactl apply --kv-cache-type q8_0    # or q4_0, f16"
        yield Finding("warning", said, signs.lines("kv_falls_back"), fix)
        return
    bad = bool(value) and value.lower() not in settings.KV_TYPES
    if bad or (signs.has("kv_type_unsupported") and signs.of("kv_type_unsupported")[0].fields.get("type")):
        shown = value or signs.of("kv_type_unsupported")[0].fields["type"]
        evidence = (place if bad else "", *(signs.lines("kv_type_unsupported", "load_failed")))
        said = f"OLLAMA_KV_CACHE_TYPE={shown} is no type that the engine has"
        yield Finding(
            "error",
            said,
            evidence,
            "sudo ollamactl apply --kv-cache-type q8_0",
            consequences=("models fail to load, or run with an f16 cache",),
        )


@check(weight=76, explains=("runner_crash_on_load", "load_oom", "flash_attention_unsupported_gpu"))
def kv_type_without_flash_attention(
    signs: Signs = NO_SIGNS,
    start: Start | None = None,
    release: tuple[int, ...] = (),
    given: tuple[Given, ...] = (),
) -> Iterator[Finding]:
    """A quantised KV cache without flash attention.

    Why: q8_0 and q4_0 caches need flash attention; without it older releases use f16, newer ones fail to load.
    Seen: Ollama's or the engine's own line, or both settings in `server config`.
    Do: turn flash attention on, or take the cache type away where a model or GPU cannot do it.
    """
    fix = "sudo ollamactl apply --flash-attention 1 --kv-cache-type q8_0"
    config = (start.config if start else None) or {}
    kv = config.get("OLLAMA_KV_CACHE_TYPE", "").lower()
    if signs.has("kv_without_fa") and not signs.has("kv_type_without_flash_attention"):
        said = "a quantised KV cache needs flash attention"
        yield Finding("warning", said, signs.lines("kv_without_fa"), "sudo ollamactl apply --flash-attention 1")
        return
    if signs.has("kv_type_without_flash_attention"):
        forced = signs.of("flash_attention_forced_off")
        failed = bool(forced) or signs.has("load_failed", "panic")
        who = f" {forced[-1].fields.get('model', 'the model')} forces it off;" if forced else ""
        said = f"a quantised KV cache was asked for without flash attention:{who}"
        said += " the load fails" if failed else " f16 is used"
        evidence = signs.lines("flash_attention_forced_off", "kv_type_without_flash_attention", "load_failed", "panic")
        small = not failed and start is not None and _of_embedding(start, signs.of("kv_type_without_flash_attention"))
        yield Finding(
            "error" if failed else "info" if small else "warning",
            said,
            evidence,
            "sudo ollamactl apply --unset OLLAMA_KV_CACHE_TYPE" if forced else fix,
        )
    elif kv in QUANTISED and config.get("OLLAMA_FLASH_ATTENTION") == "false" and () < release < (0, 30):
        said = f"OLLAMA_KV_CACHE_TYPE={kv} counts only with OLLAMA_FLASH_ATTENTION=1, which is off"
        yield Finding(
            "warning", said, (f"server config: OLLAMA_FLASH_ATTENTION:false OLLAMA_KV_CACHE_TYPE:{kv}",), fix
        )
    elif not kv and not release:  # of a text that names both
        told = {g.name: g for g in given}
        kind, attention = told.get("OLLAMA_KV_CACHE_TYPE"), told.get("OLLAMA_FLASH_ATTENTION")
        off = config.get("OLLAMA_FLASH_ATTENTION") or (attention.value.lower() if attention else "")
        if kind and kind.value.lower() in QUANTISED and off in ("false", "0"):
            said = f"OLLAMA_KV_CACHE_TYPE={kind.value} counts only with flash attention, which is off"
            place = attention.place if attention else configured(start, "OLLAMA_FLASH_ATTENTION")
            yield Finding("warning", said, (kind.place, place), fix)


def _of_embedding(start: Start, events: list[LogEvent]) -> bool:
    """Whether each of these lines stands before the load of an embedding model, whose cache is small or none."""
    loads = [next((x for x in start.loads if (x.line or 0) > (event.line or 0)), None) for event in events]
    return bool(loads) and all(load is not None and is_embedding(load) for load in loads)


@check(weight=60)
def kv_type_ignored_by_architecture(
    signs: Signs = NO_SIGNS, start: Start | None = None, given: tuple[Given, ...] = ()
) -> Iterator[Finding]:
    """The runner uses another cache type than the setting.

    Why: some models or releases drop the type silently and use f16.
    Seen: the type in `server config` beside the one in the runner's own lines.
    Do: plan the memory with f16, or set OLLAMA_FLASH_ATTENTION=1 where the model allows it.
    """
    wanted = ((start.config or {}) if start else {}).get("OLLAMA_KV_CACHE_TYPE", "").lower()
    wanted = wanted or next((g.value.lower() for g in given if g.name == "OLLAMA_KV_CACHE_TYPE"), "")
    if signs.has("kv_by_architecture"):
        said = "for some architectures the type of the KV cache is dropped, and f16 is used"
        yield Finding("warning", said, signs.lines("kv_by_architecture"), "ollamactl plan    # with an f16 cache")
        return
    if wanted in ("", "f16") or signs.has("kv_type_without_flash_attention"):
        return
    if wanted in QUANTISED and signs.has("kv_is_f16"):
        said = f"OLLAMA_KV_CACHE_TYPE is {wanted}, the cache is f16 all the same"
        yield Finding("warning", said, signs.lines("kv_is_f16"), "sudo ollamactl apply --flash-attention 1")
        return
    for load in start.loads[-3:] if start else ():
        has = load.kv_type_k.lower()
        if load.outcome == "loaded" and has and has != wanted and "--embedding" not in load.argv:
            said = f"OLLAMA_KV_CACHE_TYPE is {wanted}, {load.model.rsplit('/', 1)[-1][:19]} runs with {has}"
            yield Finding("warning", said, (load.text,), "sudo ollamactl apply --flash-attention 1")
            return
    if signs.has("kv_type_unsupported"):
        yield Finding(
            "warning",
            "the model does not support the KV cache type that is set",
            signs.lines("kv_type_unsupported"),
            "ollamactl plan    # with an f16 cache",
        )


@check(weight=66)
def flash_attention_unsupported_gpu(signs: Signs) -> Iterator[Finding]:
    """Flash attention was asked for and a GPU cannot do it.

    Why: the decision is taken over all GPUs; where it falls, a quantised cache type falls with it. A model that has
    no use for it (most embedding models) says so as well: that is harmless.
    Seen: Ollama's own warning.
    Do: unset OLLAMA_FLASH_ATTENTION and OLLAMA_KV_CACHE_TYPE, or hide the weak GPU.
    """
    events = signs.of("flash_attention_unsupported")
    if events:
        of_a_model = all("by model" in e.text for e in events)
        by = "by a model" if of_a_model else "here"
        yield Finding(
            "info" if of_a_model else "warning",
            f"flash attention is enabled and not supported {by}; it stays off",
            signs.quotes(events),
            "sudo ollamactl apply --unset OLLAMA_FLASH_ATTENTION --unset OLLAMA_KV_CACHE_TYPE",
            weight=10 if of_a_model else 66,
        )


@check(weight=68, explains=("flash_attention_unsupported_gpu",))
def flash_attention_disabled_by_other_gpu(signs: Signs, start: Start | None = None) -> Iterator[Finding]:
    """One weak GPU turns flash attention off for all.

    Why: Ollama decides for the whole host: one device below compute 7.0, or a CPU entry, is enough.
    Seen: its warning, and GPUs of which some could do it.
    Do: hide the weak device with CUDA_VISIBLE_DEVICES.
    """
    if signs.has("flash_attention_refused"):
        said = "flash attention is off though the GPU can do it: one weaker device of the host decides for all"
        fix = "sudo ollamactl apply --set CUDA_VISIBLE_DEVICES=…"
        yield Finding("warning", said, signs.lines("flash_attention_refused"), fix)
    if not signs.has("flash_attention_unsupported") or start is None:
        return
    able = [c for c in start.computes if _compute(c.compute) >= 7.0]
    weak = [c for c in start.computes if 0 < _compute(c.compute) < 7.0]
    hidden_cpu = [load for load in start.loads if load.offloaded and load.offloaded[0] == 0]
    if able and (weak or hidden_cpu):
        who = weak[0].name if weak else "a load on the CPU"
        yield Finding(
            "warning",
            f"flash attention is off for all GPUs because of {who}",
            (*signs.lines("flash_attention_unsupported"), *(c.text for c in start.computes[:4])),
            "sudo ollamactl apply --set CUDA_VISIBLE_DEVICES=…",
        )


def _compute(text: str) -> float:
    return float(text) if re.fullmatch(r"\d+\.\d+", text) else 0.0
