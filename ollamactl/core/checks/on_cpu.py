"""Runners that leave a GPU alone which was found."""

from __future__ import annotations

from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check
from ollamactl.core.checks.gpu import gpus_of, in_memory, named, on_gpu
from ollamactl.core.facts import Facts, Load, LogEvent, Start
from ollamactl.core.needs import NO_SIGNS, Signs


@check(weight=45, explains=("partial_offload", "client_timeout_500_clusters", "load_timeout"))
def discovery_ok_but_runner_cpu(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """The GPU was found, and the model runs on the CPU all the same.

    Why: the backend failed to load in the runner, no layer fitted, or num_gpu 0 was asked for; INFO has no warning.
    Seen: `inference compute` with a GPU beside "offloaded 0/N" or PROCESSOR 100% CPU.
    Do: look at the runner's own lines (OLLAMA_DEBUG=1).
    """
    start = facts.start
    fix = "sudo ollamactl apply --set OLLAMA_DEBUG=1; journalctl -u ollama -f"
    devices = gpus_of(start)
    for load in [x for x in (start.loads if start else ()) if x.outcome == "loaded"][-1:]:
        told = devices[0].text if devices else ""
        asked = load.offloaded is not None and load.offloaded[0] > 0
        if (devices or asked) and _on_cpu(load) and load.gpu_layers != 0 and "--embedding" not in load.argv:
            who = named(devices[0]) if devices else "a GPU"
            why = signs.quotes(_engine_without_gpu(signs, start), 2)
            said = f"{who} was found, and a model runs on the CPU"
            yield Finding("warning", said, (told, load.text, *why), fix)
            return
    on_cpu = [m for m in facts.loaded or () if m.size and m.size_vram == 0]
    if devices and on_cpu:
        yield Finding(
            "warning",
            f"{named(devices[0])} was found, and {on_cpu[0].name} runs on the CPU",
            (devices[0].text, f"ollama ps: {on_cpu[0].name} 100% CPU"),
            fix,
        )
    elif devices and signs.has("vram_empty") and not (start and start.loads):
        said = f"{named(devices[0])} was found, and a model runs on the CPU"
        yield Finding("warning", said, (devices[0].text, *signs.lines("vram_empty")), fix)
    elif signs.has("no_layer_fits") and not (start and start.loads):
        yield Finding("warning", "no layer went to the GPU, said only at DEBUG", signs.lines("no_layer_fits"), fix)
    elif (
        devices
        and not (start and start.loads and on_gpu(start.loads[-1]))
        and (failed := _engine_without_gpu(signs, start))
    ):
        yield Finding(
            "warning",
            f"{named(devices[0])} was found, and the runner could not use it",
            (*signs.quotes(failed), devices[0].text),
            fix,
        )
    elif devices and signs.has("no_nvidia_device") and signs.has("rocm_runner_failed"):
        yield Finding(
            "warning", "the GPU was found and the runner fell back to the CPU", signs.lines("no_nvidia_device"), fix
        )


def _on_cpu(load: Load) -> bool:
    """Whether a load says that all of it is in the host's memory."""
    if load.offloaded is None:
        return bool(load.buffers) and all(map(in_memory, load.buffers))
    return not on_gpu(load)


def _engine_without_gpu(signs: Signs, start: Start | None) -> list[LogEvent]:
    """What the runner of a load said of its GPU; before the loads it is a probe, and others may have gone well."""
    if start is None or not start.loads:
        return signs.of("runner_gpu_failed")
    kinds = ["cuda_init_failed", *(["no_gpu_usable", "cpu_backend_only"] if start.loads[-1].gpu_layers != 0 else [])]
    later = [e for e in signs.of(*kinds) if (e.line or 0) > (start.loads[0].line or 0)]
    return signs.of("runner_gpu_failed") or [
        e for e in later if e.kind != "cuda_init_failed" or "ggml_cuda_init" in e.text
    ]


@check(weight=44)
def ps_says_gpu_but_cpu_busy(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """`ollama ps` says GPU, the CPU does the work.

    Why: it shows the estimate; with a quantised cache and a head size that the GPU lacks, attention is on the CPU.
    Seen: a busy CPU under "100% GPU".
    Do: OLLAMA_KV_CACHE_TYPE=f16 as a trial; look at the buffers of the load.
    """
    whole = [m for m in facts.loaded or () if m.size and m.size_vram >= m.size]
    load = next((x for x in reversed(facts.start.loads if facts.start else ()) if x.buffers), None)
    if whole and load is not None and all(map(in_memory, load.buffers)):
        yield Finding(
            "warning",
            f"`ollama ps` says that {whole[0].name} is on the GPU, and all buffers of the load are on the CPU",
            (f"ollama ps: {whole[0].name} 100% GPU", *(b.text for b in load.buffers[:3])),
            "sudo ollamactl apply --set OLLAMA_DEBUG=1; journalctl -u ollama | grep -iE 'cuda|rocm|vulkan'",
        )
    elif signs.has("cpu_busy_though_gpu") or (
        whole and whole == list(facts.loaded or ()) and signs.has("runner_cpu_busy", "cpu_busy_told")
    ):
        yield Finding(
            "warning",
            "`ollama ps` says GPU while the CPU is at work",
            signs.lines("cpu_busy_though_gpu", "runner_cpu_busy", "cpu_busy_told"),
            "sudo ollamactl apply --kv-cache-type f16",
        )
