"""Models that do not fit the GPU: weights, cache, buffers, and who else holds memory there."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check, gib
from ollamactl.core.checks.context import kv_bytes, newest, spilled
from ollamactl.core.facts import Facts, Load, LogEvent
from ollamactl.core.needs import NO_SIGNS, Signs
from ollamactl.core.parse.engine import parse_size


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


TAKEN = 2 << 30  # bytes of a GPU: what a desktop holds is less
FOR_CPU = re.compile(r"library=cpu|msg=\"offload to cpu").search  # what the host has, not a GPU


def estimates(signs: Signs) -> list[tuple[LogEvent, dict[str, float]]]:
    found = [(e, _estimate(e)) for e in signs.of("memory_estimate")]
    return [(e, n) for e, n in found if "layers.model" in n and not FOR_CPU(e.text)]


def gpu_there(facts: Facts) -> bool:
    """Whether anything says that a GPU is used or usable."""
    start = facts.start
    if start is not None and any(c.library.lower() not in ("cpu", "") for c in start.computes):
        return True
    return bool(facts.gpus) or (start is not None and any(x.offloaded and x.offloaded[0] for x in start.loads))


def _of(size: int) -> str:
    """A model's size in brackets; nothing where only its shares were told."""
    return f" ({gib(size)})" if size >= 1 << 20 else ""


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
                f"{share:.0f} % of {model.name}{_of(model.size)} is on the CPU",
                (f"ollama ps: {model.name}{_of(model.size)}, {100 - share:.0f} % on the GPU",),
                fix,
            )
            return
    if facts.loaded and not signs.has("layers_on_cpu"):
        return
    start = facts.start
    load = newest(spilled(start), start) if start else None
    if (load is not None and load.offloaded and load.offloaded[0] and load.gpu_layers is None) or (
        load is not None and load.offloaded and 0 < load.offloaded[0] < load.offloaded[1] - 1
    ):
        on, of = load.offloaded or (0, 0)
        last = of - on <= 1 and not _old_engine(load)
        said = f"{on} of {of} layers are on the GPU, the {'output layer' if last else 'others'} on the CPU"
        yield Finding("info" if last else "warning", said, (load.text, *_sizes(load)), fix)
        return
    going = start.loads[-1] if start is not None and start.loads and start.loads[-1].outcome == "loading" else None
    if going is not None and going.offloaded and 0 < going.offloaded[0] < going.offloaded[1] - 1:
        on, of = going.offloaded  # of which the excerpt, or the log so far, has no end
        yield Finding("warning", f"{on} of {of} layers go to the GPU", (going.text, *_sizes(going)), fix, weight=20)
        return
    shown = start is not None and any(x.offloaded for x in start.loads)
    for event, n in estimates(signs)[-1:] if not shown else ():
        on, of = int(n.get("layers.offload", 0)), int(n.get("layers.model", 0))
        if 0 < on < of and on != n.get("layers.requested"):  # else a client asked for no more
            yield Finding("warning", f"{on} of {of} layers fit on the GPU", signs.quotes([event]), fix)
            return
    if signs.has("layers_on_cpu") and not shown and not estimates(signs):
        yield Finding("warning", "layers of the model are on the CPU", signs.lines("layers_on_cpu"), fix)
        return
    if signs.has("fit_reduces") and not shown and not signs.has("fit_by_context"):
        said = "the model does not fit the GPU's free memory: the engine leaves a part of it on the CPU"
        yield Finding("warning", said, signs.lines("fit_reduces"), fix)


def _old_engine(load: Load) -> bool:
    return load.gpu_layers is not None and load.gpu_layers < (load.offloaded or (0, 0))[1]


def _sizes(load: Load) -> tuple[str, ...]:
    kinds: dict[str, int] = {}
    for buffer in load.buffers:
        kinds[f"{buffer.kind} on {buffer.device}"] = kinds.get(f"{buffer.kind} on {buffer.device}", 0) + buffer.bytes
    return (", ".join(f"{name} {gib(size)}" for name, size in kinds.items()),) if kinds else ()


@check(weight=50, explains=("partial_offload", "discovery_ok_but_runner_cpu", "load_oom", "runner_crash_on_load"))
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
            tokens = f" ({load.context:,} tokens × {load.slots or 1})" if load.context else ""
            yield Finding(
                "warning",
                f"a KV cache of {gib(kv)} leaves room for {on} of {of} layers{tokens}",
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
        each = n.get("memory.available.most", n.get("available.most", have))
        if on == 0 and of and have and graph > each * 0.9:
            yield Finding(
                "warning",
                f"the compute graph of that context is {gib(int(graph))}, more than any GPU has ({gib(int(each))}): "
                "no layer is on the GPU",
                signs.quotes([event]),
                fix,
            )
            return
        if on < of and have and kv + graph > have * 0.35 and kv > full * 0.25:
            yield Finding(
                "warning",
                f"KV cache {gib(kv)} and graph {gib(graph)} do not fit beside the model: {on} of {of} "
                "layers on the GPU",
                signs.quotes([event]),
                fix,
            )
            return
    if signs.has("metal_full") and signs.has("gpu_error", "assertion_failed", "runner_terminated", "load_failed"):
        sizes: dict[str, float] = {}
        for event in signs.of("metal_buffer"):
            name = event.fields["name"]
            sizes[name] = max(sizes.get(name, 0), float(event.fields["mib"]) * (1 << 20))
        if sizes.get("kv", 0) > 0.6 * sizes.get("data", 0) > 0:
            said = f"a KV cache of {gib(int(sizes['kv']))} beside {gib(int(sizes['data']))} of weights"
            lines = signs.quotes([*signs.of("metal_buffer"), *signs.of("metal_full")[-1:]])
            yield Finding("error", f"{said} is more than Metal may use", lines, fix)
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
        kv = n.get("memory.required.kv", n.get("required.kv", n.get("kv", 0)))
        graph = n.get("memory.graph.full", n.get("graph.full", 0))
        fits = full < have and graph < n.get("memory.available.most", n.get("available.most", have))
        if n.get("layers.offload") == 0 and full > 0 and fits and kv < full * 0.4:
            yield Finding(
                "warning",
                f"no layer is on the GPU though {gib(full)} are needed and {gib(have)} free: graphs and "
                "projector come on top",
                signs.quotes([event]),
                "sudo ollamactl plan --context-length 2048",
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
        return
    yield from _taken_before_start(facts)


def _taken_before_start(facts: Facts) -> Iterator[Finding]:
    """Memory that was held when the server found its GPUs, before it had loaded a model, and that a load lacked."""
    start = facts.start
    gpus = [c for c in start.computes if c.total and c.available and c.type != "iGPU"] if start else []
    gpus = [c for c in gpus if c.library.lower() not in ("cpu", "metal")]
    total, free = sum(c.total or 0 for c in gpus), sum(c.available or 0 for c in gpus)
    if start is None or total - free < max(TAKEN, total // 4):
        return
    failed = [x for x in start.loads if x.outcome == "failed" and re.search(r"(?i)alloc|out of memory", x.error)]
    if any(free < sum(b.bytes for b in x.buffers) <= total for x in (*spilled(start), *failed)):
        yield Finding(
            "warning",
            f"{gib(total - free)} of {gib(total)} were held by others when the server started, and a load lacked them",
            tuple(c.text for c in gpus[:3]),
            "nvidia-smi    # stop what holds it, or another ollama's runner; then ollama stop MODEL",
            explains=("load_oom",),
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


@check(weight=42, explains=("partial_offload",))
def memory_regression_after_upgrade(signs: Signs, facts: Facts) -> Iterator[Finding]:
    """A model takes more memory since an upgrade.

    Why: estimates and graphs differ between releases.
    Seen: SIZE of the same model and context before and after.
    Do: compare releases with the same context; report it.
    """
    if signs.has("size_grew"):
        spills = any(0 <= m.size_vram < m.size for m in facts.loaded or ())
        yield Finding(
            "warning" if spills else "info",
            "the same model with the same context is larger since the upgrade",
            signs.lines("size_grew"),
            "ollama --version; ollama ps",
        )
