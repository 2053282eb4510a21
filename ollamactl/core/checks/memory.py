"""Memory that runs out: loads that fail, processes that are killed, warnings that mean nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check, gib, times, under_wsl
from ollamactl.core.facts import Facts, HostMemory, LogEvent, Start
from ollamactl.core.needs import NO_SIGNS, Signs
from ollamactl.core.parse.engine import parse_size

OOM = ("alloc_failed", "out_of_memory")
HARMLESS = re.compile("mlock|pinned memory")  # the engine goes on without


@check(
    weight=58,
    explains=(
        "runner_crash_on_load",
        "runner_killed",
        "server_panic_restarts",
        "vram_recovery_timeout",
        "service_restart_loop",
        "partial_offload",
    ),
)
def load_oom(signs: Signs, facts: Facts, start: Start | None = None) -> Iterator[Finding]:
    """Memory ran out while a model was loaded or used.

    Why: weights, cache and compute buffers are more than is free, or the estimate before the load was too low.
    Seen: the allocation that failed, with its size and device.
    Do: shorter context, fewer slots, smaller batch, another model unloaded first.
    """
    events = [e for e in signs.of(*OOM) if not HARMLESS.search(e.text) and not _recovered(e, signs, start)]
    if not events:
        return
    failed = [x for x in (start.loads if start else ()) if x.outcome == "failed"]
    loads = [x for x in (start.loads if start else ()) if x.outcome == "loaded" and (x.at, x.seconds) != (None, None)]
    later = [x for x in loads if (x.line or 0) > (events[-1].line or 0)]
    retried = signs.has("context_reduced", "oom_retry") and bool(later)
    told = facts.told is not None and events[-1] in facts.told.messages  # a sentence's place says nothing of the order
    cured = bool(later) and not told and (not failed or later[-1].model in {x.model for x in failed} or retried)
    size = next((v for e in reversed(events) if (v := _size(e))), 0)
    device = next(
        (m[1] for e in reversed(events) if (m := re.search(r"(CUDA\d|ROCm\d|Vulkan\d|Metal|CPU|device \d)", e.text))),
        "",
    )
    said = (
        "memory ran out"
        + (f" on {device}" if device else "")
        + (f": {gib(size)} could not be allocated" if size else "")
    )
    said += "; a later load of the same model went well" if cured else ""
    last = failed[-1] if failed else None
    yield Finding(
        "info" if cured else "error",
        said,
        (*signs.quotes(events), last.text if last else ""),
        "sudo ollamactl plan --context-length 4096 --parallel 1",
        weight=58 if not cured else 25,
    )


def _recovered(event: LogEvent, signs: Signs, start: Start | None) -> bool:
    """Whether the engine went on with a smaller buffer, and the load under way went well."""
    at = event.line or 0
    if not any((e.line or 0) >= at for e in signs.of("alloc_recovered")):
        return False
    load = next((x for x in reversed(start.loads if start else ()) if (x.line or 0) <= at), None)
    return load is not None and load.outcome == "loaded"


def _size(event: LogEvent) -> int:
    fields = event.fields
    for name, unit in (("bytes", 1), ("mib", 1 << 20), ("mb", 1 << 20)):
        if re.fullmatch(r"[\d.]+", fields.get(name, "")):
            return int(float(fields[name].rstrip(".") or 0) * unit)
    return 0


@check(weight=66, explains=("runner_killed", "runner_crash_on_load", "service_restart_loop", "load_oom"))
def oom_killed(signs: Signs, facts: Facts) -> Iterator[Finding]:
    """The operating system killed a process for memory.

    Why: host memory ran out: weights on the CPU, caches, other programs.
    Seen: the kernel's and systemd's lines; "signal: killed" of a runner.
    Do: a smaller model or context, more swap, OLLAMA_MAX_LOADED_MODELS=1.
    """
    kernel = [
        e
        for e in signs.of("kernel:oom_killed", "kernel:oom_report", "unit:oom_killed")
        if e.fields.get("ours") or e.kind == "unit:oom_killed" or "ollama" in e.text or "llama" in e.text
    ]
    result = signs.matching("oom-kill", kinds=("unit:failed", "unit:main_exited"))
    killed = signs.of("runner_killed")
    memcg = signs.matching("constraint_memcg", "memory cgroup out of memory")
    loads = facts.start.loads if facts.start else ()
    gone = signs.has("runner_gone") and not any(x.outcome == "failed" for x in loads)
    if (kernel or result) and not memcg:
        who = next((e.fields["name"] for e in kernel if e.fields.get("name")), "a process of the service")
        yield Finding(
            "error",
            f"the kernel killed {who}: host memory ran out",
            signs.quotes([*kernel[-2:], *result[-1:], *killed[-1:]]),
            "sudo ollamactl plan --context-length 4096 --parallel 1; free -h",
        )
    elif killed and not gone and not memcg and not _limit(facts):
        yield Finding(
            "error",
            "the runner was killed by the operating system, most often for memory",
            signs.quotes(killed),
            "sudo journalctl -k --grep 'Out of memory|oom-kill'; free -h",
        )


def _limit(facts: Facts) -> int:
    service = facts.service
    return service.memory_max if service and service.memory_max else 0


@check(weight=64, explains=("runner_crash_on_load", "load_oom"))
def ram_too_small(signs: Signs, facts: Facts, memory: HostMemory | None = None) -> Iterator[Finding]:
    """The model needs more host memory than is free.

    Why: Ollama refuses before the load; memory and swap count, not the disk.
    Seen: "model requires more system memory (…) than is available (…)".
    Do: a smaller model or context; close other programs; more swap.
    """
    events = signs.of("ram_too_small") + [
        e
        for e in signs.of("host_memory_projection")
        if (parse_size(e.fields.get("needed", "")) or 0) > (parse_size(e.fields.get("free", "")) or 1 << 62)
    ]
    if not events and signs.has("load_failed", "runner_terminated", "runner_killed"):
        events = [
            e
            for e in signs.of("estimate_told")
            if "library=" not in e.text
            and (parse_size(e.fields["needed"]) or 0) > (parse_size(e.fields["free"]) or 1 << 62)
        ]
    if not events:
        return
    fields = events[-1].fields
    start = facts.start
    after = [
        x for x in (start.loads if start else ()) if x.outcome == "loaded" and (x.line or 0) > (events[-1].line or 0)
    ]
    needed, free = fields.get("needed", "more memory"), fields.get("free", "less")
    said = f"a model needs {needed}, {free} of host memory is available"
    yield Finding(
        "info" if after else "error",
        said,
        signs.quotes(events),
        "free -h; ollama ps; sudo ollamactl plan --context-length 4096",
        weight=64 if not after else 20,
    )


@check(weight=16)
def vram_recovery_timeout(signs: Signs, facts: Facts) -> Iterator[Finding]:
    """VRAM did not come back within five seconds after a model was unloaded.

    Why: the wait is fixed (no setting governs it) and its end is harmless; mostly something else uses the GPU, or a
    runner crashed before.
    Seen: the warning, and what stands before it.
    Do: look for the error before it; nothing for the warning itself.
    """
    if signs.has("vram_recovery_timeout"):
        count = signs.count("vram_recovery_timeout")
        yield Finding(
            "info",
            f"{times(count, 'time')} VRAM did not come back in time after an unload: harmless by itself",
            signs.lines("vram_recovery_timeout"),
            "nvidia-smi    # who else uses the GPU",
        )


@check(weight=15)
def vram_recovery_warning_benign(signs: Signs, facts: Facts) -> Iterator[Finding]:
    """The VRAM warning is not the cause of what was seen.

    Why: people take it for the fault; on WSL and small hosts lack of host memory is the likelier cause.
    Seen: the warning under WSL without another error.
    Do: give WSL more memory (.wslconfig), or take a smaller model.
    """
    if under_wsl(facts) and signs.has("vram_recovery_timeout") and not signs.has("load_failed", "panic"):
        yield Finding(
            "info",
            "the VRAM warning is no cause; under WSL look at the host memory first",
            signs.lines("vram_recovery_timeout"),
            "free -h; notepad.exe .wslconfig    # memory=24GB",
            weight=17,
        )


@check(weight=18)
def prompt_cache_growth(signs: Signs, facts: Facts) -> Iterator[Finding]:
    """The runner's prompt cache takes host memory beside the model.

    Why: since 0.30 it keeps up to 8192 MiB of earlier prompts per runner.
    Seen: the engine's own lines.
    Do: LLAMA_ARG_CACHE_RAM bounds it, 0 turns it off.
    """
    sizes = [
        float(e.fields["mib"]) for e in signs.of("prompt_cache") if re.fullmatch(r"[\d.]+\d", e.fields.get("mib", ""))
    ]
    memory = facts.memory
    if sizes and max(sizes) >= 100:
        tight = memory is not None and memory.available < (2 << 30)
        yield Finding(
            "warning" if tight else "info",
            f"the prompt cache of a runner holds {max(sizes):,.0f} MiB of host memory",
            signs.lines("prompt_cache"),
            "sudo ollamactl apply --set LLAMA_ARG_CACHE_RAM=1024",
        )


@check(weight=62, explains=("slow_model_storage",))
def swap_thrash(facts: Facts, memory: HostMemory | None = None, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """The host has swapped while a model is loaded.

    Why: weights in swap are read from the disk for each token.
    Seen: swap in use and little memory available.
    Do: a smaller model, or OLLAMA_MAX_LOADED_MODELS=1.
    """
    if signs.has("swapping"):
        said = "the host swaps: weights in swap are read from the disk for each token"
        fix = "sudo ollamactl apply --max-loaded-models 1; ollama stop MODEL"
        yield Finding("warning", said, signs.lines("swapping"), fix)
    if memory is None:
        return
    used = memory.swap_total - memory.swap_free
    holds = facts.loaded or (facts.loaded is None and facts.start and facts.start.loads[-1:])
    if holds and used > max(1 << 30, memory.swap_total // 2) and memory.available < memory.total // 20:
        yield Finding(
            "warning",
            f"{gib(used)} of swap is in use and {gib(memory.available)} of memory available while a model is loaded",
            (f"memory: {gib(memory.available)} of {gib(memory.total)} available",),
            "sudo ollamactl apply --max-loaded-models 1; ollama stop MODEL",
        )
