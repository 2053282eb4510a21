"""Which of several GPUs are used, and which are hidden."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check, configured, gib
from ollamactl.core.checks.context import spilled
from ollamactl.core.checks.fit import estimates
from ollamactl.core.checks.gpu import cpu_only, gpus_of, named, value_of
from ollamactl.core.facts import Facts, Start
from ollamactl.core.needs import NO_SIGNS, Given, Signs


@check(weight=76, explains=("load_oom", "visible_devices_override", "runner_crash_on_load", "igpu_dropped"))
def gpu_hidden_in_one_backend_only(signs: Signs, start: Start, given: tuple[Given, ...] = ()) -> Iterator[Finding]:
    """A GPU that was hidden is used through another backend.

    Why: CUDA_VISIBLE_DEVICES hides it from CUDA only; Vulkan, on by default since 0.30, still sees it.
    Seen: the variable, and `inference compute` with another library.
    Do: OLLAMA_VULKAN=0, or hide it there too.
    """
    hides = {
        "cuda": value_of(start, given, "CUDA_VISIBLE_DEVICES"),
        "rocm": value_of(start, given, "ROCR_VISIBLE_DEVICES") or value_of(start, given, "HIP_VISIBLE_DEVICES"),
    }
    for library, value in hides.items():
        some = any(device.library.lower() == library for device in gpus_of(start))  # are left to it by the value
        if not value.strip() or not (some or value.strip() in ("-1", "none", "None", "NoDevFiles")):
            continue
        for device in gpus_of(start):
            if device.library.lower() == "vulkan":
                maker = r"(?i)nvidia|geforce|quadro|tesla|rtx|gtx" if library == "cuda" else r"(?i)amd|radeon|gfx"
                if re.search(maker, f"{device.description} {device.name}"):
                    yield Finding(
                        "warning",
                        f"{device.description or device.name} is hidden from {library.upper()} and used "
                        "through Vulkan",
                        (
                            device.text,
                            configured(start, "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "OLLAMA_VULKAN"),
                        ),
                        "sudo ollamactl apply --set OLLAMA_VULKAN=0",
                    )
                    return


@check(weight=32)
def visible_devices_override(
    facts: Facts, signs: Signs = NO_SIGNS, start: Start | None = None, given: tuple[Given, ...] = ()
) -> Iterator[Finding]:
    """Variables choose the visible devices of two backends.

    Why: numbers differ between backends; two of them together may leave none, or the wrong one. OLLAMA_LLM_LIBRARY
    leaves one set of libraries, which may be none of this release.
    Seen: more than one *_VISIBLE_DEVICES, or one of these variables where no GPU was found.
    Do: unset all of them first.
    """
    names = (
        "CUDA_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "GGML_VK_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
        "OLLAMA_LLM_LIBRARY",
    )
    set_ = {n: v for n in names if (v := value_of(start, given, n))}
    for event in signs.of("visible_devices_overridden"):  # the server names those that are set
        set_ = {n: v for n, v in event.fields.items() if n in names and v} | set_
    backends = {"cuda" if "CUDA" in n else "vulkan" if "VK" in n else "rocm" for n in set_ if "DEVICE" in n}
    gone = cpu_only(start) or (signs.has("gpu_no_longer_used"))
    if len(backends) > 1 and not gpus_of(start):
        told = ", ".join(f"{n}={v}" for n, v in set_.items())
        yield Finding(
            "warning",
            f"variables of two backends choose devices: {told}",
            (configured(start, *set_), *(signs.lines("visible_devices_overridden"))),
            "sudo ollamactl apply " + " ".join(f"--unset {n}" for n in set_),
        )
    elif set_ and gone:
        told = ", ".join(f"{n}={v}" for n, v in set_.items())
        yield Finding(
            "warning" if facts.gpus and not _on_purpose(set_) else "info",
            f"{told} chooses what is visible, and no GPU was found",
            (configured(start, *set_), *signs.lines("visible_devices_overridden", most=1)),
            "sudo ollamactl apply " + " ".join(f"--unset {n}" for n in set_),
            weight=30 if all(re.match(r"cpu|0$", value) for value in set_.values()) else 32,  # they hide no device
        )


def _on_purpose(chosen: dict[str, str]) -> bool:
    """Whether every value is one of those that hide all devices."""
    return all(value in ("-1", "none", "NoDevFiles") or value.startswith("cpu") for value in chosen.values())


@check(weight=46)
def llm_library_forces_cpu(
    signs: Signs = NO_SIGNS, start: Start | None = None, given: tuple[Given, ...] = (), release: tuple[int, ...] = ()
) -> Iterator[Finding]:
    """OLLAMA_LLM_LIBRARY puts models on the CPU though a GPU was found.

    Why: before 0.5.7 it names the runner itself: with one of the CPU's the GPU is found, counted and not used. Later
    ones take no such name, and since 0.12.4 it hides all GPUs from the start on.
    Seen: the setting, and a device of `inference compute`.
    Do: unset it.
    """
    name = "OLLAMA_LLM_LIBRARY"
    forced = [e for e in signs.of("library_forced") if e.fields.get(name, "").startswith("cpu")]
    value = value_of(start, given, name) or (forced[-1].fields[name] if forced else "")
    names_the_runner = () < release < (0, 5, 7) or bool(forced)
    if value.startswith("cpu") and names_the_runner and (gpus := gpus_of(start)):
        said = f"{name}={value} keeps models on the CPU, though {named(gpus[0])} was found"
        lines = (configured(start, name), gpus[0].text, *signs.quotes(forced, 1))
        fix = f"sudo ollamactl apply --unset {name}    # where that was not meant"
        yield Finding("info", said, lines, fix, explains=("discovery_ok_but_runner_cpu", "ps_says_gpu_but_cpu_busy"))


@check(weight=24)
def gpu_subset_used(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """Only some of the GPUs are used.

    Why: a model that fits on one GPU is put on one; more are used when it does not fit, or with OLLAMA_SCHED_SPREAD=1.
    Seen: devices of `inference compute` beside those that hold buffers.
    Do: nothing; OLLAMA_SCHED_SPREAD=1 spreads on purpose.
    """
    start = facts.start
    devices = gpus_of(start)
    for load in [x for x in (start.loads if start else ()) if x.outcome == "loaded" and x.buffers][-1:]:
        names = {b.device for b in load.buffers if re.fullmatch(r"(?:CUDA|ROCm|Vulkan)\d+", b.device)}
        if len(devices) > 1 and 0 < len(names) < len(devices):
            yield Finding(
                "info",
                f"{len(names)} of {len(devices)} GPUs hold the model: it fits there",
                (load.text, *(d.text for d in devices[:3])),
                "sudo ollamactl apply --set OLLAMA_SCHED_SPREAD=1    # only if wanted",
            )
            return
    if len(devices) > 2 and not (start and start.loads):
        yield Finding(
            "info",
            f"{len(devices)} GPUs were found; a model that fits on one is put on one",
            tuple(d.text for d in devices[:5]),
            "sudo ollamactl apply --set OLLAMA_SCHED_SPREAD=1    # only if wanted",
            weight=9,
        )
    elif signs.has("one_gpu_used"):
        yield Finding(
            "info",
            "one of several GPUs is used: the model fits there",
            signs.lines("one_gpu_used"),
            "sudo ollamactl apply --set OLLAMA_SCHED_SPREAD=1    # only if wanted",
        )


@check(weight=25)
def gpu_spread_unneeded(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """A model is spread over GPUs though one would hold it.

    Why: 0.30 estimates before it chooses, with a margin; OLLAMA_SCHED_SPREAD=1 does it always.
    Seen: buffers on several GPUs that together fit on one.
    Do: CUDA_VISIBLE_DEVICES with one GPU.
    """
    start = facts.start
    devices = gpus_of(start)
    for load in [x for x in (start.loads if start else ()) if x.outcome == "loaded"][-1:]:
        parts: dict[str, int] = {}
        for b in load.buffers:
            if re.fullmatch(r"(?:CUDA|ROCm|Vulkan)\d+", b.device):
                parts[b.device] = parts.get(b.device, 0) + b.bytes
        most = max((d.available or d.total or 0 for d in devices), default=0)
        spread = value_of(start, (), "OLLAMA_SCHED_SPREAD") == "true"
        if len(parts) > 1 and sum(parts.values()) < most * 0.85:
            said = f"a model of {gib(sum(parts.values()))} is spread over {len(parts)} GPUs, one has {gib(most)} free"
            yield Finding(
                "info",
                said,
                (load.text,),
                "sudo ollamactl apply --unset OLLAMA_SCHED_SPREAD"
                if spread
                else "sudo ollamactl apply --set CUDA_VISIBLE_DEVICES=0",
            )
            return
    if signs.has("spread_unneeded"):
        yield Finding(
            "info",
            "a model is spread over GPUs though one would hold it",
            signs.lines("spread_unneeded"),
            "sudo ollamactl apply --set CUDA_VISIBLE_DEVICES=0",
        )


@check(weight=26, explains=("gpu_spread_unneeded", "gpu_subset_used", "partial_offload"))
def gpu_uneven_split(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """Layers are split over unequal GPUs, and the small one is full.

    Why: the split follows free memory before caches and buffers; with a large context it is too much for the smallest.
    Seen: GPUs of different size, a split, and a failure or spill.
    Do: hide the small GPU, one slot, flash attention.
    """
    start = facts.start
    devices = gpus_of(start)
    totals = [d.total for d in devices if d.total]
    uneven = len(totals) > 1 and max(totals) > 1.9 * min(totals)
    last = [n for _, n in estimates(signs)[-1:]]
    estimated = any(0 < n.get("layers.offload", 0) < n["layers.model"] for n in last)
    free = sum(d.available or 0 for d in devices)
    if free and any(n.get("memory.required.full", 0) > free for n in last):
        return  # no split would hold it
    failing = estimated or bool(start and (spilled(start) or any(x.outcome == "failed" for x in start.loads)))
    if uneven and (failing or (value_of(start, (), "OLLAMA_SCHED_SPREAD") == "true" and start and start.loads)):
        yield Finding(
            "warning" if failing else "info",
            "GPUs of unequal size share a model, and the smaller one is full",
            tuple(d.text for d in devices[:3]),
            "sudo ollamactl apply --set CUDA_VISIBLE_DEVICES=0 --parallel 1",
            weight=38 if failing else 26,
        )
    elif signs.has("uneven_split"):
        yield Finding(
            "info",
            "GPUs of unequal size share a model",
            signs.lines("uneven_split"),
            "sudo ollamactl apply --set CUDA_VISIBLE_DEVICES=0",
            explains=("load_oom",),
        )
