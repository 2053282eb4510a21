"""Memory: models that do not fit, spill, are killed; warnings that mean nothing."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check, gib, times
from ollamactl.core.checks.context import kv_bytes, newest, spilled
from ollamactl.core.facts import Facts, HostMemory, Load, LogEvent, Service, Start
from ollamactl.core.needs import NO_SIGNS, Given, Signs
from ollamactl.core.parse.engine import parse_size

OOM = ("alloc_failed", "out_of_memory")


def _estimate(event: LogEvent) -> dict[str, float]:
    """Numbers of a memory estimate (0.1.32 to 0.12.10): sizes in bytes, layers as counts."""
    found: dict[str, float] = {}
    for name, value in re.findall(r"([a-z_.]+)=\"?(\[[^\]]*\]|[0-9.]+ ?[KMGT]?i?B|\d+)\"?", event.text):
        if value.startswith("["):
            sizes = [parse_size(x) or 0 for x in re.findall(r"[0-9.]+ [KMGT]?i?B", value)]
            found[name] = float(sum(sizes))
            found[name + ".most"] = float(max(sizes, default=0))
        elif value.isdigit():
            found[name] = float(value)
        else:
            found[name] = float(parse_size(value.replace("B", " B") if re.search(r"\dB", value) else value) or 0)
    return found


def estimates(signs: Signs) -> list[tuple[LogEvent, dict[str, float]]]:
    found = [(e, _estimate(e)) for e in signs.of("memory_estimate")]
    return [(e, n) for e, n in found if "layers.model" in n and "library=cpu" not in e.text]


def gpu_there(facts: Facts) -> bool:
    """Whether anything says that a GPU is used or usable."""
    start = facts.start
    if start is not None and any(c.library.lower() not in ("cpu", "") for c in start.computes):
        return True
    return bool(facts.gpus) or (start is not None and any(x.offloaded and x.offloaded[0] for x in start.loads))


@check(weight=40)
def partial_offload(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """Part of the model runs on the CPU.

    Why: weights, cache and buffers together are larger than the free VRAM; each token then waits for the CPU.
    Seen: "offloaded N/M layers", PROCESSOR of `ollama ps`, size_vram below size.
    Do: shorter context, fewer slots, a quantised cache or a smaller build: ollamactl plan shows what fits.
    """
    fix = "sudo ollamactl plan --context-length 4096 --parallel 1"
    for model in facts.loaded or ():
        if model.size and 0 < model.size_vram < model.size and model.size_vram / model.size < 0.995:
            share = 100 * (1 - model.size_vram / model.size)
            yield Finding(
                "warning",
                f"{share:.0f} % of {model.name} ({gib(model.size)}) is on the CPU",
                (f"ollama ps: {model.name} {gib(model.size)}, {gib(model.size_vram)} on the GPU",),
                fix,
            )
            return
    if facts.loaded:
        return
    start = facts.start
    load = newest(spilled(start), start) if start else None
    if (load is not None and load.offloaded and load.offloaded[0] and load.gpu_layers is None) or (
        load is not None and load.offloaded and 0 < load.offloaded[0] < load.offloaded[1] - 1
    ):
        on, of = load.offloaded or (0, 0)
        if of - on <= 1 and not _old_engine(load):
            return
        said = f"{on} of {of} layers are on the GPU, the others on the CPU"
        yield Finding("warning", said, (load.text, *_sizes(load)), fix)
        return
    for event, n in estimates(signs)[-1:] if not (start and start.loads) else ():
        on, of = int(n.get("layers.offload", 0)), int(n.get("layers.model", 0))
        if 0 < on < of:
            yield Finding("warning", f"{on} of {of} layers fit on the GPU", signs.quotes([event]), fix)
            return


def _old_engine(load: Load) -> bool:
    return load.gpu_layers is not None and load.gpu_layers < (load.offloaded or (0, 0))[1]


def _sizes(load: Load) -> tuple[str, ...]:
    kinds: dict[str, int] = {}
    for buffer in load.buffers:
        kinds[f"{buffer.kind} on {buffer.device}"] = kinds.get(f"{buffer.kind} on {buffer.device}", 0) + buffer.bytes
    return (", ".join(f"{name} {gib(size)}" for name, size in kinds.items()),) if kinds else ()


@check(weight=50, explains=("partial_offload", "discovery_ok_but_runner_cpu", "load_oom"))
def kv_cache_exceeds_vram(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """The KV cache of the context that was asked for does not fit beside the model.

    Why: it grows with context × slots, by an amount that depends on the architecture, not on the number of parameters.
    Seen: cache and buffers of the load, or its estimate, beside the free VRAM.
    Do: shorter context, q8_0 cache: ollamactl plan shows both.
    """
    start = facts.start
    fix = "sudo ollamactl plan --context-length 8192 --kv-cache-type q8_0"
    for load in [x for x in (start.loads if start else ()) if x.outcome == "loaded"][-1:]:
        kv, weights = kv_bytes(load), sum(b.bytes for b in load.buffers if b.kind == "model")
        on, of = load.offloaded or (0, 0)
        if start is not None and load in spilled(start) and kv > weights * 0.6 and of - on > 1 and gpu_there(facts):
            yield Finding(
                "warning",
                f"a KV cache of {gib(kv)} leaves room for {on} of {of} layers ({load.context:,} tokens × "
                f"{load.slots or 1})",
                (load.text, *_sizes(load)),
                fix,
            )
            return
    for event, n in estimates(signs)[-1:]:
        on, of = int(n.get("layers.offload", 0)), int(n.get("layers.model", 0))
        kv = int(n.get("memory.required.kv", n.get("required.kv", n.get("kv", 0))))
        graph = n.get("memory.graph.full", n.get("graph.full", 0))
        have = n.get("memory.available", n.get("available", 0))
        full = n.get("memory.required.full", n.get("required.full", 0))
        if on < of and have and kv + graph > have * 0.35 and kv > full * 0.25:
            yield Finding(
                "warning",
                f"KV cache {gib(kv)} and graph {gib(graph)} do not fit beside the model: {on} of {of} "
                "layers on the GPU",
                signs.quotes([event]),
                fix,
            )
            return
    long = [m for m in facts.loaded or () if m.context and m.context > 32768 and m.size_vram < m.size * 0.9]
    if long:
        yield Finding(
            "warning",
            f"{long[0].name} has a context of {long[0].context:,} tokens and does not fit the GPU",
            (
                f"ollama ps: {long[0].name} {gib(long[0].size)}, {gib(long[0].size_vram)} on the GPU, "
                f"CONTEXT {long[0].context}",
            ),
            fix,
        )
    elif signs.has("kv_too_large"):
        yield Finding("warning", "the KV cache of that context does not fit", signs.lines("kv_too_large"), fix)


@check(weight=52, explains=("partial_offload", "discovery_ok_but_runner_cpu", "kv_cache_exceeds_vram"))
def below_minimum_vram_for_any_layer(signs: Signs) -> Iterator[Finding]:
    """Not even one layer goes to the GPU though the sum would fit.

    Why: the minimum is projector, its graph, the largest graph and two layers on each GPU; "required" is not the gate.
    Seen: the estimate: 0 layers, and required below available.
    Do: a smaller model or context; without the vision projector.
    """
    for event, n in estimates(signs)[-1:]:
        have = n.get("memory.available", n.get("available", 0))
        full = n.get("memory.required.full", n.get("required.full", 0))
        kv = n.get("memory.required.kv", n.get("required.kv", 0))
        if n.get("layers.offload") == 0 and 0 < full < have and kv < full * 0.4:
            yield Finding(
                "warning",
                f"no layer is on the GPU though {gib(full)} are needed and {gib(have)} free: graphs and "
                "projector come on top",
                signs.quotes([event]),
                "sudo ollamactl plan --context-length 2048",
            )


@check(
    weight=58,
    explains=(
        "runner_crash_on_load",
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
    events = [e for e in signs.of(*OOM) if "mlock" not in e.text]
    if not events:
        return
    failed = [x for x in (start.loads if start else ()) if x.outcome == "failed"]
    later = [
        x for x in (start.loads if start else ()) if x.outcome == "loaded" and (x.line or 0) > (events[-1].line or 0)
    ]
    retried = signs.has("context_reduced", "oom_retry") and bool(later)
    cured = bool(later) and (not failed or later[-1].model in {x.model for x in failed} or retried)
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


@check(
    weight=76,
    explains=(
        "oom_killed",
        "runner_killed",
        "runner_crash_on_load",
        "load_oom",
        "ram_too_small",
        "service_restart_loop",
        "context_multiplied_by_parallel",
    ),
)
def memory_limit_below_need(
    signs: Signs, facts: Facts, service: Service | None = None, given: tuple[Given, ...] = ()
) -> Iterator[Finding]:
    """The unit's or container's memory limit is below what the model needs.

    Why: Ollama compares with the host's memory, never with MemoryMax=; the kernel then kills within the limit.
    Seen: MemoryMax= (or mem_limit) beside the kill or the refusal.
    Do: raise the limit, or shrink context × slots first.
    """
    limit = ""
    for file in facts.unit_files or ():
        for one in file.assignments:
            if one.key in ("MemoryMax", "MemoryHigh", "MemoryLimit") and one.value not in ("infinity", ""):
                limit = f"{file.path}:{one.line}: {one.key}={one.value}"
    if not limit and service is not None and service.memory_max:
        limit = f"systemctl show: MemoryMax={gib(service.memory_max)}"
    if not limit and signs.has("memory_limit"):
        limit = signs.lines("memory_limit")[-1]
    memcg = signs.matching("constraint_memcg", "memory cgroup out of memory")
    killed = signs.of("runner_killed", "unit:oom_killed", "kernel:oom_killed") + signs.matching(
        "oom-kill", kinds=("unit:failed",)
    )
    need = signs.of("ram_too_small") + signs.of(*OOM)
    if memcg or (limit and (killed or need)):
        yield Finding(
            "error",
            "a memory limit of the unit or container is below what the model needs",
            (limit, *signs.quotes([*memcg[-1:], *killed[-2:], *need[-2:]])),
            "sudo systemctl set-property ollama.service MemoryMax=infinity && sudo systemctl restart ollama",
        )


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
    wsl = (facts.told is not None and facts.told.world == "wsl") or (
        facts.system is not None and facts.system.container == "wsl"
    )
    if wsl and signs.has("vram_recovery_timeout") and not signs.has("load_failed", "panic"):
        yield Finding(
            "info",
            "the VRAM warning is no cause; under WSL look at the host memory first",
            signs.lines("vram_recovery_timeout"),
            "free -h; notepad.exe .wslconfig    # memory=24GB",
            weight=17,
        )


@check(weight=48, explains=("partial_offload",))
def vram_used_by_other_process(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """Other programs hold the GPU's memory.

    Why: what is free at the moment of the load decides how many layers go to the GPU.
    Seen: the driver's list of processes, or the free memory of two loads.
    Do: stop them, then load the model anew.
    """
    mine = {r.process.pid for r in facts.runners or ()} | {s.pid for s in facts.servers or ()}
    other = [
        (g, p)
        for g in facts.gpus or ()
        for p in g.processes
        if p.pid not in mine and (p.used or 0) > 1 << 30 and not re.search(r"llama|ollama", p.name)
    ]
    spill = any(m.size_vram < m.size for m in facts.loaded or ())
    if other:
        held = sum(p.used or 0 for _, p in other)
        names = ", ".join(sorted({f"{p.name or 'process'} ({p.pid})" for _, p in other})[:3])
        yield Finding(
            "warning" if spill else "info",
            f"{gib(held)} of GPU memory is held by others: {names}",
            tuple(f"GPU {g.index}: pid {p.pid} {p.name} {gib(p.used)}" for g, p in other[:5]),
            "nvidia-smi; kill PID && ollama stop MODEL",
        )
        return
    found = [(e, n) for e, n in (estimates(signs)) if n.get("memory.available") or n.get("available")]
    for (e1, a), (e2, b) in itertools.pairwise(found):
        same = abs(
            a.get("memory.required.full", a.get("required.full", 0))
            - b.get("memory.required.full", b.get("required.full", 0))
        ) < (1 << 28)
        free1, free2 = (n.get("memory.available", n.get("available", 0)) for n in (a, b))
        if (
            same
            and min(free1, free2) < 0.85 * max(free1, free2)
            and a.get("layers.offload") != b.get("layers.offload")
        ):
            yield Finding(
                "warning",
                f"{gib(free1)} were free at one load and {gib(free2)} at another: other programs use the GPU",
                signs.quotes([e1, e2]),
                "nvidia-smi",
            )
            return
    if signs.has("gpu_memory_taken"):
        yield Finding("warning", "other programs hold the GPU's memory", signs.lines("gpu_memory_taken"), "nvidia-smi")


@check(weight=60)
def runner_killed(signs: Signs, facts: Facts) -> Iterator[Finding]:
    """A runner died by a signal; /api/ps may still list its model.

    Why: killed from outside, by the OOM killer, or crashed; the server notices at the next request.
    Seen: "signal: killed", or a model in /api/ps without a process.
    Do: ask the model again: it is loaded anew; look who killed it.
    """
    if signs.has("runner_killed"):
        line = signs.of("runner_killed")[-1].line or 0
        later = any(x.outcome == "loaded" and (x.line or 0) > line for x in (facts.start.loads if facts.start else ()))
        yield Finding(
            "warning" if later else "error",
            "a runner was killed" + ("; its model was loaded again since" if later else ""),
            signs.lines("runner_killed"),
            "sudo journalctl -k -b --grep 'Killed process'",
        )
    elif (
        facts.loaded
        and facts.runners == ()
        and facts.process is not None
        and facts.start is not None
        and facts.start.loads
    ):
        names = ", ".join(m.name for m in facts.loaded)
        yield Finding(
            "warning",
            f"/api/ps lists {names}, but no runner is there: it was killed or is gone",
            (f"processes: no child of pid {facts.process.pid} serves a model", facts.start.loads[-1].text),
            f"ollama stop {facts.loaded[0].name}",
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


@check(weight=17)
def size_understated_by_ps(facts: Facts) -> Iterator[Finding]:
    """SIZE of a model with a sliding window is lower than what is held.

    Why: Ollama keeps only the last KV line of each device; the full-attention cache is missing in it.
    Seen: the engine's buffers beside SIZE.
    Do: count with the buffers: ollamactl verify shows them.
    """
    start = facts.start
    for model in facts.loaded or ():
        for runner in facts.runners or ():
            if runner.name != model.name:
                continue
            loads = [x for x in (start.loads if start else ()) if x.port == runner.port and x.buffers]
            held = sum(b.bytes for b in loads[-1].buffers) if loads else 0
            if held > model.size * 1.25 and held - model.size > (256 << 20):
                yield Finding(
                    "info",
                    f"{model.name} holds {gib(held)}, `ollama ps` says {gib(model.size)}",
                    (*(b.text for b in loads[-1].buffers if b.kind == "kv"), f"ollama ps: SIZE {gib(model.size)}"),
                    "ollamactl verify",
                )


@check(weight=62, explains=("slow_model_storage",))
def swap_thrash(facts: Facts, memory: HostMemory) -> Iterator[Finding]:
    """The host has swapped while a model is loaded.

    Why: weights in swap are read from the disk for each token.
    Seen: swap in use and little memory available.
    Do: a smaller model, or OLLAMA_MAX_LOADED_MODELS=1.
    """
    used = memory.swap_total - memory.swap_free
    if facts.loaded and used > max(1 << 30, memory.swap_total // 2) and memory.available < memory.total // 20:
        yield Finding(
            "warning",
            f"{gib(used)} of swap is in use and {gib(memory.available)} of memory available while a model is loaded",
            (f"memory: {gib(memory.available)} of {gib(memory.total)} available",),
            "sudo ollamactl apply --max-loaded-models 1; ollama stop MODEL",
        )


@check(weight=22)
def memory_regression_after_upgrade(signs: Signs) -> Iterator[Finding]:
    """A model takes more memory since an upgrade.

    Why: estimates and graphs differ between releases.
    Seen: SIZE of the same model and context before and after.
    Do: compare releases with the same context; report it.
    """
    if signs.has("size_grew"):
        yield Finding(
            "info",
            "the same model with the same context is larger since the upgrade",
            signs.lines("size_grew"),
            "ollama --version; ollama ps",
        )
