"""How long a cache the release and the slots make: the default by VRAM, context times slots."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, Severity, check, configured, gib
from ollamactl.core.checks.context import kv_bytes, newest, spilled
from ollamactl.core.checks.slots import is_embedding
from ollamactl.core.facts import Facts, Load, Start
from ollamactl.core.needs import NO_SIGNS, Given, Signs

# failures that no shorter context cures
_NOT_OF_CONTEXT = re.compile(r"(?i)no kernel image|illegal instruction|unknown model architecture|unsupported PTX")


def _tiered(load: Load, start: Start) -> bool:
    """Whether the load has the context that the VRAM tier gave."""
    default = start.default_context or 0
    chosen = (start.config or {}).get("OLLAMA_CONTEXT_LENGTH", "0") not in ("", "0")
    return default > 4096 and load.context == default and not chosen and not _NOT_OF_CONTEXT.search(load.error)


def _spills(start: Start | None) -> bool:
    return start is not None and bool(spilled(start))


@check(
    weight=74,
    explains=(
        "partial_offload",
        "kv_cache_exceeds_vram",
        "load_oom",
        "context_multiplied_by_parallel",
        "runner_crash_on_load",
        "discovery_ok_but_runner_cpu",
    ),
)
def vram_tiered_default_context(
    facts: Facts, signs: Signs = NO_SIGNS, given: tuple[Given, ...] = ()
) -> Iterator[Finding]:
    """The default context comes from the amount of VRAM, and is too long for it.

    Why: since 0.15.5 it is 32k from 23 GiB and 256k from 47 GiB of total VRAM; each slot gets that much, so that
    layers go to the CPU or the load fails.
    Seen: "vram-based default context", and a load that spills or fails with it.
    Do: set OLLAMA_CONTEXT_LENGTH.
    """
    start = facts.start
    fix = "sudo ollamactl apply --context-length 8192"
    set_length = (start.config or {}).get("OLLAMA_CONTEXT_LENGTH", "0") if start else "0"
    tiers = (start.default_context,) if start and start.default_context else (32768, 262144)
    big = [m for m in facts.loaded or () if m.context in tiers and (m.context or 0) > 4096 and m.size_vram < m.size]
    if set_length not in ("", "0"):
        big = []
    if start is None or not start.default_context or start.default_context <= 4096:
        if big:
            yield Finding(
                "warning",
                f"{big[0].name} is loaded with a context of {big[0].context:,} and part of it is on the CPU",
                (f"ollama ps: {big[0].name} {gib(big[0].size)} CONTEXT {big[0].context}",),
                fix,
            )
        elif signs.has("tier_default") or (signs.has("tier_told") and (signs.has("spills_told") or _spills(start))):
            lines = signs.lines("tier_default", "tier_told")
            yield Finding("warning", "the default context follows the VRAM and is long", lines, fix)
        return
    tier = f"the default context is {start.default_context:,} tokens, by {gib(start.total_vram)} of VRAM"
    line = next((f"log: default_num_ctx={start.default_context}" for _ in (0,)), "")
    bad = [x for x in start.loads if _tiered(x, start) and (x.outcome == "failed" or x in spilled(start))]
    load = newest(bad, start) or (bad[-1] if bad else None)
    if load is not None:
        part = f"{load.offloaded[0]} of {load.offloaded[1]} layers on the GPU" if load.offloaded else ""
        what = "the load fails" if load.outcome == "failed" else part
        kv = kv_bytes(load)
        said = f"{tier}: {what}" + (f", the KV cache takes {gib(kv)}" if kv else "")
        evidence = (load.text, *(b.text for b in load.buffers if b.kind == "kv"), load.error[:200])
        yield Finding("error" if load.outcome == "failed" else "warning", said, evidence, fix)
        return
    if big:
        said = f"{tier}: part of {big[0].name} is on the CPU"
        yield Finding("warning", said, (f"ollama ps: {big[0].name} {gib(big[0].size)} CONTEXT {big[0].context}",), fix)
        return
    slots = (start.config or {}).get("OLLAMA_NUM_PARALLEL", "1")
    many = slots.isdigit() and int(slots) > 1 and not (start.loads and all(is_embedding(x) for x in start.loads))
    reduced = signs.has("context_reduced")
    unset = (start.config or {}).get("OLLAMA_CONTEXT_LENGTH", "0") in ("", "0")
    chosen = bool(start.loads) and all(x.context and x.context != start.default_context for x in start.loads)
    if not unset or (chosen and not reduced):  # clients ask for a context of their own: the tier's is nobody's
        return
    if many or reduced:
        said = f"{tier}" + (
            f", times {slots} slots: {int(slots) * start.default_context:,} tokens of cache" if many else ""
        )
        failing = signs.has("unit:oom_killed", "kernel:oom_killed")
        severity: Severity = "error" if failing else "warning" if reduced else "info"
        yield Finding(
            severity,
            said,
            (
                line,
                configured(start, "OLLAMA_CONTEXT_LENGTH", "OLLAMA_NUM_PARALLEL"),
                *(signs.lines("context_reduced")),
            ),
            fix,
        )
    else:
        yield Finding("info", tier, (line, configured(start, "OLLAMA_CONTEXT_LENGTH")), fix, weight=14)


HUGE = 1 << 20  # tokens of a cache


@check(weight=70, explains=("load_oom", "kv_cache_exceeds_vram", "runner_crash_on_load", "ram_too_small"))
def context_multiplied_by_parallel(
    facts: Facts, signs: Signs = NO_SIGNS, release: tuple[int, ...] = ()
) -> Iterator[Finding]:
    """Each slot has a context of its own: the cache is context × slots.

    Why: Ollama passes the engine -c = num_ctx × slots; 20 slots of 32k are a cache of 655,360 tokens.
    Seen: -c and -np of the load, and what became of it.
    Do: fewer slots, or a shorter context; ollamactl plan computes both.
    """
    start = facts.start
    loads = [x for x in (start.loads if start else ()) if (x.slots or 1) > 1 and x.context_total and x.slots]
    if not loads or start is None:
        if signs.has("kv_size_times"):
            event = signs.of("kv_size_times")[-1]
            total, each = int(event.fields.get("total", "0")), int(event.fields.get("each", "0") or 1)
            if signs.has("kv_each"):
                each = int(signs.of("kv_each")[-1].fields.get("each", "1"))
            if each and total >= 2 * each:
                failed = signs.has("alloc_failed", "out_of_memory", "load_failed")
                said = f"a cache of {total:,} tokens: {total // each} slots of {each:,}"
                yield Finding(
                    "error" if failed else "info",
                    said,
                    signs.lines("kv_size_times", "alloc_failed"),
                    "sudo ollamactl apply --parallel 2",
                )
        elif signs.has("context_times_slots", "slots_fill_memory"):
            tight = signs.has("kv_too_large", "out_of_memory", "alloc_failed", "cpu_instead", "slots_fill_memory")
            said = "each slot has a context of its own: the cache is context × OLLAMA_NUM_PARALLEL"
            fix = "sudo ollamactl plan --parallel 1,2,4"
            lines = signs.lines("context_times_slots", "slots_fill_memory")
            yield Finding("warning" if tight else "info", said, lines, fix)
        return
    load = loads[-1]
    slots, total = load.slots or 1, load.context_total or 0
    auto = (start.config or {}).get("OLLAMA_NUM_PARALLEL", "0") == "0" and () < release < (0, 10)
    failed = (
        load.outcome in ("failed", "loading")
        and re.search(
            r"(?i)alloc|memory|buffer",
            load.error + " ".join(e.text for e in (signs.of("alloc_failed", "out_of_memory"))),
        )
        is not None
    )
    spill = load in spilled(start)
    said = f"the cache holds {total:,} tokens: {slots} slots of {total // slots:,} each"
    said += ", and cannot be allocated" if failed else ", and layers go to the CPU" if spill else ""
    evidence = (load.text, load.error[:300] if failed else "", *(b.text for b in load.buffers if b.kind == "kv"))
    severity: Severity = "error" if failed else "warning" if spill else "info"
    huge = failed and total >= HUGE  # no memory limit is to blame for that
    on_cpu = facts.gpus is None and bool(start.computes) and all(c.library.lower() == "cpu" for c in start.computes)
    chosen = (start.config or {}).get("OLLAMA_NUM_PARALLEL", "0") not in ("0", "")
    quiet = 6 if auto else 32 if on_cpu and chosen else 13  # a choice comes before the GPU that is not there
    yield Finding(
        severity,
        said,
        evidence,
        f"sudo ollamactl plan --parallel 1,2,{slots}",
        weight=78 if huge else 70 if failed else 38 if spill else quiet,
        explains=("memory_limit_below_need",) if huge else (),
    )


@check(weight=26, explains=("context_multiplied_by_parallel",))
def per_slot_context_smaller_than_believed(
    facts: Facts, release: tuple[int, ...] = (), signs: Signs = NO_SIGNS
) -> Iterator[Finding]:
    """A slot has less context than the number in the command line.

    Why: -c (--ctx-size) is the sum over the slots; one request gets -c divided by -np.
    Seen: both numbers of the load.
    Do: divide; ask for num_ctx per request.
    """
    start = facts.start
    loads = [x for x in (start.loads if start else ()) if x.context_total and x.slots]
    several = {x.slots for x in loads if not is_embedding(x)}
    small = [x for x in loads if (x.slots or 1) > 1 and (x.context_total or 0) // (x.slots or 1) < 2048]
    differ = len(several) > 1 and start is not None and (start.config or {}).get("OLLAMA_NUM_PARALLEL", "0") == "0"
    load = small[-1] if small else next((x for x in reversed(loads) if (x.slots or 1) > 1), None) if differ else None
    asked = release >= (0, 1, 34)  # since then the sum is made of what a request, or the model, asks for
    if load is not None:
        each = (load.context_total or 0) // (load.slots or 1)
        others = tuple(x.text for x in loads if x.slots != load.slots)[-1:]
        yield Finding(
            "warning" if small and not asked else "info",
            f"one request has {each:,} tokens: {load.context_total:,} for {load.slots} slots",
            (load.text, *others),
            f"sudo ollamactl apply --parallel {load.slots} --context-length {max(4096, each * 2)}",
            weight=26,
        )
    elif signs.has("slots_share_context"):
        yield Finding(
            "info",
            "the slots share the context of the command line",
            signs.lines("slots_share_context"),
            "sudo ollamactl plan --parallel 4",
        )
