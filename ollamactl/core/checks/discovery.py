"""The search for devices at a start: nothing found, too early, too long."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check, gib
from ollamactl.core.checks.fit import FOR_CPU
from ollamactl.core.checks.gpu import cpu_only, gpus_of, named, previous, used, value_of
from ollamactl.core.checks.nvidia import not_loaded
from ollamactl.core.facts import Facts, Gpu, Load, Start
from ollamactl.core.needs import NO_SIGNS, Signs


@check(weight=11)
def no_gpu_found(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """No GPU was found: models run on the CPU.

    Why: there is none, or none that this release can use; in 0.11 the RAM was printed as "total vram".
    Seen: `inference compute` names only the CPU.
    Do: nothing where there is none; else look at what the driver says (nvidia-smi, rocminfo).
    """
    start = facts.start
    mute = signs.lines("driver_mute", most=1)
    if signs.has("container_refused"):
        said = "the container engine cannot give a GPU to the container, which does not start"
        fix = "sudo apt install nvidia-container-toolkit && sudo nvidia-ctk runtime configure --runtime=docker"
        yield Finding("error", said, signs.lines("container_refused"), f"{fix} && sudo systemctl restart docker")
    elif signs.has("container_on_mac") and not used(signs, start):
        said = "a container on a Mac has no GPU: Docker's machine cannot be given the one of Apple"
        fix = "brew install ollama && brew services start ollama    # beside the containers, not in one"
        yield Finding("warning", said, signs.lines("container_on_mac"), fix)
    elif mute and not gpus_of(start):
        said = "nvidia-smi cannot talk to the driver: its kernel module is not loaded, no GPU can be used"
        fix = "sudo modprobe nvidia || sudo dkms autoinstall    # then: sudo systemctl restart ollama"
        yield Finding("warning", said, mute, fix)
    elif cpu_only(start) or (signs.has("no_compatible_gpu") and not gpus_of(start)):
        there = list(facts.gpus or ())
        outside = signs.has("container_without_gpu") or (facts.told is not None and facts.told.world == "docker")
        line = start.computes[0].text if start and start.computes else ""
        lines = signs.lines("no_compatible_gpu", most=1)
        said = "no GPU was found, models run on the CPU"
        said += (
            f" ({gib(start.computes[0].total)} of host memory)"
            if start and start.computes and start.computes[0].total
            else ""
        )
        if there:
            said = f"{there[0].name or 'a GPU'} is in this host, and the server found none"
        elif facts.loaded or any(x.status == 200 and x.seconds > 120 for x in (start.recent if start else ())):
            said += ": answers take their time"
        fix = "nvidia-smi || rocminfo || vulkaninfo --summary"
        if there and there[0].vendor == "apple":
            fix = 'system_profiler SPDisplaysDataType | grep Metal; file "$(command -v ollama)"    # arm64?'
        if (there and outside) or signs.has("container_without_gpu"):
            said = f"the container was given no GPU{': ' + there[0].name + ' is in the host' if there else ''}"
            fix = "docker run --gpus=all …    # AMD: --device /dev/kfd --device /dev/dri, image ollama/ollama:rocm"
        evidence = (*lines, line, *signs.lines("container_without_gpu"))
        weight = 31 if facts.gpus is None else 11  # where nobody could look for one, most of a log follows from it
        yield Finding("warning" if there else "info", said, evidence, fix, weight=weight)
    elif signs.has("management_library_absent") and not signs.has("management_library") and not used(signs, start):
        said = "no library of a GPU's driver was found: models run on the CPU"
        lines = signs.lines("management_library_absent")
        yield Finding("info", said, lines, "nvidia-smi || rocminfo", weight=12)
    elif signs.has("cpu_backend_only") and start is not None and not start.computes and not used(signs, start):
        said = "a runner has loaded the backend of the CPU and no other"
        yield Finding("info", said, signs.lines("cpu_backend_only", most=1), "nvidia-smi || rocminfo", weight=12)
    elif (unloaded := not_loaded(signs)) and not used(signs, start):
        said = "the library of the NVIDIA driver finds no loaded driver: models run on the CPU"
        fix = "nvidia-smi; sudo modprobe nvidia    # then: sudo systemctl restart ollama"
        yield Finding("warning", said, signs.quotes(unloaded), fix)
    elif not gpus_of(start) and signs.has("installed_without_gpu"):
        said = "the installer found no GPU that Ollama knows: models run on the CPU"
        yield Finding("info", said, signs.lines("installed_without_gpu"), "lspci | grep -iE 'vga|3d|display'")
    elif start is not None and not start.computes and not used(signs, start):
        fix = "nvidia-smi || rocminfo || vulkaninfo --summary"
        if told := _memory_of_cpu(signs, start):
            yield Finding("info", "no memory of a GPU was found: models run on the CPU", (told,), fix, weight=12)
        elif load := _in_memory(start):
            said = "a model was loaded into host memory as a whole; the excerpt does not say why"
            yield Finding("info", said, (load.text,), fix, weight=12)


def _memory_of_cpu(signs: Signs, start: Start) -> str:
    """The line that says that there is no memory but the host's, where the one of the devices was not pasted."""
    if start.total_vram == 0:
        return 'vram-based default context: total_vram="0 B"'
    events = [e for e in signs.of("memory_estimate", "fits") if FOR_CPU(e.text)]
    events += [e for e in signs.of("low_vram_mode") if re.search(r"total vram\W+0 B", e.text)]
    return next(iter(signs.quotes(events, most=1)), "")


def _in_memory(start: Start) -> Load | None:
    """The last load, where all that it printed of its buffers is in host memory and nobody asked for that."""
    load = start.loads[-1] if start.loads else None
    if load is None or load.outcome != "loaded" or load.gpu_layers == 0 or not load.buffers:
        return None
    held = sum(b.bytes for b in load.buffers)
    return load if held >= LARGE and all(b.device.upper().startswith("CPU") for b in load.buffers) else None


LARGE = 128 << 20  # less than any model that answers holds
VISIBLE = (
    "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES",
    "OLLAMA_LLM_LIBRARY",
)  # fmt: skip


@check(weight=60, explains=("no_gpu_found", "discovery_ok_but_runner_cpu"))
def service_started_before_gpu(
    signs: Signs, facts: Facts, start: Start | None = None, gpus: tuple[Gpu, ...] = ()
) -> Iterator[Finding]:
    """The service started before the GPU was ready.

    Why: devices are looked for once, at the start; a driver that comes later is not seen.
    Seen: a GPU on the host, or in the start before, and a start that found none though nothing is wrong now.
    Do: restart the service; order it after the driver.
    """
    fix = "sudo systemctl restart ollama    # for good: After=nvidia-persistenced.service in a drop-in"
    early = [
        e
        for e in signs.of("cuda_init_failed", "no_nvidia_device")
        if re.search(r"no CUDA-capable device|no nvidia devices", e.text)
    ]
    if any(x.offloaded and x.offloaded[0] for x in (start.loads if start else ())):
        early = []  # the server gave layers to a GPU: it had found one
    hidden = any(value_of(start, (), name) for name in VISIBLE) or signs.has(
        "igpu_dropped",
        "nvidia_driver_too_old",
        "kfd_denied",
        "rocm_library_missing",
        "driver_mismatch",
        "gpu_unsupported",
        "gpu_libraries_absent",
    )
    usable = [g for g in gpus if g.vendor in ("nvidia", "amd") and not g.unified]
    inside = signs.has("container_without_gpu") or (facts.told is not None and facts.told.world == "docker")
    if inside:
        usable = []  # what the host shows need not be in the container
    if cpu_only(start) and usable and not hidden and not (facts.service and facts.service.private_devices):
        yield Finding(
            "warning",
            f"{usable[0].name or 'a GPU'} is there now, and was not found when the service started",
            (start.computes[0].text if start else "", f"driver: GPU {usable[0].index} {usable[0].name}"),
            fix,
        )
    elif (before := previous(facts, start, same=True)) and cpu_only(start) and gpus_of(before) and not hidden:
        lost = gpus_of(before)[0]
        yield Finding(
            "warning",
            f"{named(lost)} was found by the start before this one, and not by this one",
            (lost.text, start.computes[0].text if start else ""),
            "docker restart ollama; docker exec ollama nvidia-smi" if inside else f"nvidia-smi || rocminfo; {fix}",
        )
    elif before and cpu_only(before) and gpus_of(start) and not hidden:
        yield Finding(
            "info",
            "the start before this one found no GPU, this one does: it was too early",
            (before.computes[0].text, gpus_of(start)[0].text),
            fix,
        )
    elif signs.has("after_reboot_cpu"):
        yield Finding(
            "warning",
            "after a reboot the service found no GPU; started by hand it does",
            signs.lines("after_reboot_cpu"),
            fix,
        )
    elif (
        early and not used(signs, start) and not (all(e.kind == "no_nvidia_device" for e in early) and _by_hand(facts))
    ):
        yield Finding("warning", "no CUDA device was there when the service looked for one", signs.quotes(early), fix)


def _by_hand(facts: Facts) -> bool:
    """Whether a log is what a terminal showed of a server that somebody started there."""
    return facts.log is not None and not facts.log.form.startswith("journal") and not facts.log.systemd


@check(weight=68, explains=("no_gpu_found", "service_started_before_gpu"))
def gpu_discovery_timeout(signs: Signs, start: Start | None = None) -> Iterator[Finding]:
    """Looking for GPUs took too long and was given up.

    Why: the probe has 30 seconds; a slow driver or container start goes past it, and the CPU is used from then on.
    Seen: "failure during GPU discovery" with a deadline.
    Do: restart until `inference compute` lists the GPU.
    """
    found = [
        e
        for e in signs.of("discovery_failed", "discovery_timeout")
        if re.search(r"(?i)deadline|tim(?:ed?|es|ing)[ -]?out|watchdog|killed", e.text)
    ]
    if found and not gpus_of(start):
        yield Finding(
            "error",
            "looking for GPUs timed out: the CPU is used until the next start",
            signs.quotes(found),
            "sudo systemctl restart ollama",
        )
    elif found:
        yield Finding(
            "info",
            "asking the GPUs for their free memory timed out: the last figures are used",
            signs.quotes(found),
            "nvidia-smi    # does it answer at once?",
        )
