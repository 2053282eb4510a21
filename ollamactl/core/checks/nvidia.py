"""NVIDIA GPUs: driver, modules, device nodes, and what a suspend takes away."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check, under_wsl
from ollamactl.core.checks.gpu import CPU, cpu_only, driver_of_then, gpus_of, lost_by_upgrade, named, used
from ollamactl.core.facts import Facts, GpuDriver, LogEvent, Start
from ollamactl.core.needs import Signs

RUNNER = r"ggml_cuda_init|(?:CUDA|ROCm) error"  # how the engine's own lines about a device begin
UNKNOWN = r"\b999\b|ggml_cuda_init: failed to initialize CUDA: unknown error"
NO_UVM = r"init failure: 304|cuInit err: 304|OS call failed or operation not supported"  # CUDA_ERROR_OPERATING_SYSTEM
# too old, no device, of another version, not permitted, no unified memory, unknown error: each has its check
NOT_YET = "system not yet initialized"
KNOWN_WORDS = re.compile(
    r"insufficient|no CUDA-capable|\(null\)|forward compat|display driver|not permitted|OS call failed|not supported"
    r"|unknown|mismatch|out of memory"
)
KNOWN_CODES = ("35", "100", "18", "803", "804", "800", "304", "999")


@check(
    weight=78,
    explains=(
        *CPU,
        "gpu_not_supported_by_backend",
        "package_without_gpu_libs",
        "runner_crash_on_load",
        "runner_killed",
    ),
)
def nvidia_driver_too_old(
    signs: Signs,
    facts: Facts,
    release: tuple[int, ...] = (),
    drivers: tuple[GpuDriver, ...] = (),
    start: Start | None = None,
) -> Iterator[Finding]:
    """The NVIDIA driver is too old for this release.

    Why: 0.30 needs 570 (550 from 0.30.11), 0.7 needs 525 (531 on Windows); older ones are passed over silently.
    Seen: Ollama's or CUDA's own words, or the driver's version.
    Do: upgrade the driver.
    """
    fix = "ubuntu-drivers install nvidia:580 || sudo apt install nvidia-driver-580    # then reboot"
    symbols = all("undefined symbol" in e.text for e in signs.of("nvidia_driver_too_old"))
    another = symbols and signs.has("no_nvidia_device")  # library of the driver works
    unused = not used(signs, start) or _below(signs, start) or _engine_said("nvidia_driver_too_old", signs, start)
    if signs.has("nvidia_driver_too_old") and not another and unused:
        snap = signs.has("snap_paths") or "/snap/" in " ".join(e.text for e in signs.of("nvidia_driver_too_old"))
        amd = signs.has("gpu_unsupported") and signs.matching("gfx", "firepro", "radeon")
        if not (snap or amd):  # else it says only that there is no NVIDIA driver
            fields = signs.of("nvidia_driver_too_old")[-1].fields
            has, wants = fields.get("driver", ""), fields.get("required_driver", "")
            said = f"the NVIDIA driver {has} is too old" + (f": {wants} is needed" if wants else " for this release")
            yield Finding("error", said, signs.lines("nvidia_driver_too_old"), fix)
        return
    version = next((d.version for d in drivers if d.vendor == "nvidia" and d.version), "")
    floor = (
        570 if (0, 30) <= release < (0, 30, 11) else 550 if release >= (0, 30, 11) else 525 if release >= (0, 7) else 0
    )
    if version and floor and re.match(r"\d+", version) and int(version.split(".")[0]) < floor and not gpus_of(start):
        yield Finding(
            "error",
            f"the NVIDIA driver {version} is too old: {floor} is needed by {'.'.join(map(str, release))}",
            (f"driver: {version}",),
            fix,
        )
        return
    old = [c for c in gpus_of(start) if c.library.lower() == "cuda" and re.fullmatch(r"1[12]\.[01]|11\.\d+", c.driver)]
    old = [c for c in old if "variant=v11" not in c.text]  # this build has libraries for it
    lost = lost_by_upgrade(facts, start)
    invalid = [e for e in signs.of("gpu_unsupported") if "kernel image is invalid" in e.text]
    if invalid and release >= (0, 30) and (behind := [c for c in gpus_of(start) if driver_of_then(c)]):
        said = f"the driver of {named(behind[0])} has CUDA {behind[0].driver}: too old for this release's code"
        yield Finding("error", said, (*signs.quotes(invalid), behind[0].text), fix)
    elif lost is not None and release >= (0, 30) and driver_of_then(lost):
        said = f"a newer release leaves {named(lost)} unused: its driver has CUDA {lost.driver}"
        yield Finding("warning", said, (lost.text, start.computes[0].text if start else ""), fix)
    elif signs.has("nvidia_unused_since") and not gpus_of(start) and not old:
        said = "a newer release leaves the NVIDIA GPU unused: most often the driver is too old for it"
        yield Finding("warning", said, signs.lines("nvidia_unused_since"), fix)
    elif signs.has("driver_version_told") and not gpus_of(start):
        event = signs.of("driver_version_told")[-1]
        major = int(re.sub(r"\D.*", "", event.fields.get("version", "0")) or 0)
        if major and major < (floor or 525):
            yield Finding(
                "error",
                f"the NVIDIA driver {event.fields['version']} is too old for this release",
                signs.quotes([event]),
                fix,
            )
    elif old and (0, 6, 7) <= release < (0, 30) and re.fullmatch(r"11\.\d+|12\.[01]", old[0].driver):
        yield Finding(
            "warning",
            f"the driver offers CUDA {old[0].driver} only: releases from 0.7 need a newer one",
            (old[0].text,),
            fix,
        )


def _engine_said(kind: str, signs: Signs, start: Start | None) -> list[LogEvent]:
    """What the runner of the last load said of the driver, where that load put no layer on a GPU: then it does not
    matter that the device was found before."""
    load = start.loads[-1] if start and start.loads else None
    if load is None or (load.offloaded is not None and load.offloaded[0] > 0 and load.outcome == "loaded"):
        return []
    return [e for e in signs.of(kind) if (e.line or 0) > (load.line or 0) and re.search(RUNNER, e.text)]


def _below(signs: Signs, start: Start | None) -> bool:
    """Whether what was left out is a device that no library took."""
    ids = {c.id for c in gpus_of(start)}
    return any(
        e.fields.get("device", "")
        and e.fields["device"] not in ids
        and not any(e.fields["device"] in c.text for c in gpus_of(start))
        for e in signs.of("nvidia_driver_too_old")
    )


@check(weight=86, explains=(*CPU, "nvidia_uvm_not_loaded", "container_lost_gpu_cgroup", "service_started_before_gpu"))
def driver_library_mismatch(
    signs: Signs, facts: Facts, drivers: tuple[GpuDriver, ...] = (), start: Start | None = None
) -> Iterator[Finding]:
    """The NVIDIA library and the loaded kernel module are of different versions.

    Why: the driver was updated and the old module is still loaded.
    Seen: "Driver/library version mismatch", NVML 18, "forward compatibility was attempted".
    Do: reboot, or reload the module.
    """
    told = next((d.problem for d in drivers if re.search(r"(?i)mismatch", d.problem)), "")
    updated = signs.has("driver_updated") and signs.has("cpu_instead") and not signs.has("nvidia_driver_too_old")
    if signs.has("driver_mismatch", "kernel:driver_mismatch") or told or updated:
        yield Finding(
            "error",
            "the NVIDIA driver was updated and the old kernel module is still loaded",
            (*signs.lines("driver_mismatch", "kernel:driver_mismatch", "driver_updated"), told),
            "sudo systemctl stop ollama; sudo reboot",
        )
    elif (mute := not_loaded(signs)) and not used(signs, start) and under_wsl(facts):
        yield Finding(
            "error",
            "under WSL a driver library of Linux stands before the one of Windows, and finds no driver",
            signs.quotes(mute),
            "ls -l /usr/lib/wsl/lib/libnvidia-ml.so.1; dpkg -S libnvidia-ml.so    # take that package away",
        )


def not_loaded(signs: Signs) -> list[LogEvent]:
    """Failures of NVML for want of a loaded driver: NVML_ERROR_DRIVER_NOT_LOADED is 9."""
    return [e for e in signs.of("nvml_failed") if e.fields.get("code") == "9"]


@check(weight=80, explains=(*CPU, "gpu_lost_after_suspend", "service_started_before_gpu", "container_lost_gpu_cgroup"))
def nvidia_uvm_not_loaded(signs: Signs, facts: Facts, start: Start | None = None) -> Iterator[Finding]:
    """The kernel module nvidia_uvm is not loaded.

    Why: CUDA needs it and its device nodes; nvidia-smi does not. After a boot nobody may have loaded it yet.
    Seen: no /dev/nvidia-uvm, or CUDA's error 999 right after a start.
    Do: load it before the service.
    """
    fix = "sudo modprobe nvidia_uvm && sudo nvidia-modprobe -u -c=0; sudo systemctl restart ollama"
    node = (facts.paths or {}).get("/dev/nvidia-uvm")
    card = (facts.paths or {}).get("/dev/nvidiactl")
    if (
        node is not None
        and node.missing is not None
        and node.missing.kind == "absent"
        and card is not None
        and card.missing is None
    ):
        yield Finding(
            "error", "nvidia_uvm is not loaded: there is no /dev/nvidia-uvm", ("stat /dev/nvidia-uvm: absent",), fix
        )
    elif (
        signs.has("uvm_unlisted")
        and not used(signs, start)
        and (cpu_only(start) or signs.has("cuda_init_failed", "cuda_999", "cpu_instead", "no_nvidia_device"))
    ):
        lines = signs.lines("uvm_unlisted", "cuda_init_failed", "no_nvidia_device")
        yield Finding("error", "nvidia_uvm is not loaded", lines, fix)
    elif not used(signs, start) and any(re.search(NO_UVM, e.text) for e in signs.of("cuda_init_failed")):
        lines = signs.lines("cuda_init_failed")
        yield Finding("error", "CUDA may not use the driver's unified memory", lines, fix)
    elif signs.has("uvm_missing"):
        yield Finding(
            "error",
            "nvidia_uvm is not loaded, or its device nodes are missing",
            signs.lines("uvm_missing", "cuda_init_failed"),
            fix,
        )


def _lost(signs: Signs, start: Start | None) -> bool:
    """Whether CUDA fails after the devices were found: at a refresh of their memory, or in a runner."""
    looked = [e for e in signs.of("gpu_memory_lookup_failed") if re.search(UNKNOWN, e.text)]
    return bool(looked or _engine_said("cuda_init_failed", signs, start))


def _suspended(signs: Signs) -> bool:
    return signs.has("kernel:suspend", "suspend")


@check(
    weight=82,
    explains=(*CPU, "runner_crash_on_load", "runner_killed", "service_started_before_gpu", "nvidia_uvm_not_loaded"),
)
def gpu_lost_after_suspend(signs: Signs, facts: Facts, start: Start | None = None) -> Iterator[Finding]:
    """The GPU was lost by suspend or hibernation.

    Why: the NVIDIA driver loses its state; a restart of the service is not enough while the module stays loaded.
    Seen: a GPU that worked, a suspend, and CUDA errors since.
    Do: stop the service, reload nvidia_uvm, start it.
    """
    reload = "sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm"
    fix = f"sudo systemctl stop ollama && {reload} && sudo systemctl start ollama"
    errors = signs.of("cuda_init_failed", "gpu_error", "no_gpu_usable", "nvml_failed")
    worked = any(x.offloaded and x.offloaded[0] for x in (start.loads if start else ())) or bool(gpus_of(start))
    later = [e for e in signs.of("gpu_error") if "unknown error" in e.text]
    said_lost = signs.has("uvm_in_use", "uvm_missing", "cpu_instead", "slow_since_sleep")
    if _suspended(signs) and (errors or cpu_only(start) or said_lost):
        yield Finding(
            "error",
            "the GPU was lost by a suspend",
            signs.lines(
                "kernel:suspend", "suspend", "uvm_in_use", "cpu_instead", "cuda_init_failed", "gpu_error", most=4
            ),
            fix,
        )
    elif signs.has("uvm_in_use") or (later and worked and not signs.has("kernel:gpu_xid", "kernel:gpu_lost")):
        yield Finding(
            "error",
            "the GPU worked and then gave only errors: most often after a suspend",
            signs.lines("gpu_error", "uvm_in_use"),
            fix,
        )


@check(
    weight=70,
    explains=(
        "no_gpu_found",
        "discovery_ok_but_runner_cpu",
        "runner_crash_on_load",
        "runner_killed",
        "vram_recovery_timeout",
    ),
)
def cuda_init_999(signs: Signs, start: Start | None = None) -> Iterator[Finding]:
    """CUDA cannot be initialised (999, unknown error, and codes that say no more).

    Why: the driver's UVM state is broken, after a suspend or because nvidia_uvm is not loaded.
    Seen: code 999 of CUDA, or another one of its start that no other check explains.
    Do: reload nvidia_uvm with the service stopped.
    """
    kinds = ("cuda_init_failed", "gpu_error", "nvml_failed", "gpu_memory_lookup_failed", "cuda_999")
    events = [e for e in signs.of(*kinds) if re.search(UNKNOWN, e.text)]
    if events and (not used(signs, start) or _lost(signs, start)):
        yield Finding(
            "error",
            "CUDA cannot be initialised: 999, unknown error",
            signs.quotes(events),
            "sudo systemctl stop ollama && sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm && sudo "
            "systemctl start ollama",
        )
    elif not events and not used(signs, start) and (mute := _unexplained(signs)):
        said = mute[-1].fields.get("error") or f"the driver's code {mute[-1].fields['code']}"
        fix = "nvidia-smi; sudo dmesg | grep -i -E 'nvrm|nvidia' | tail    # what the driver says"
        if said == NOT_YET or mute[-1].fields.get("code") == "802":
            said = f"{NOT_YET} (802): with NVSwitch the fabric manager does that, of the driver's own version"
            fix = "systemctl status nvidia-fabricmanager; sudo systemctl enable --now nvidia-fabricmanager"
        yield Finding("error", f"CUDA cannot be initialised: {said}", signs.quotes(mute), fix, weight=62)


def _unexplained(signs: Signs) -> list[LogEvent]:
    """Failures of CUDA's start with a code, or in words, that no other check knows."""
    failures = signs.of("cuda_init_failed")
    coded = [e for e in failures if e.fields.get("code", "") not in {"", *KNOWN_CODES}]
    return coded or [e for e in failures if e.fields.get("error") and not KNOWN_WORDS.search(e.fields["error"])]


@check(weight=70, explains=("cuda_init_999", "no_gpu_found", "nvidia_uvm_not_loaded", "service_started_before_gpu"))
def vgpu_uvm_unsupported(signs: Signs, start: Start | None = None) -> Iterator[Finding]:
    """The virtual GPU has no unified memory.

    Why: vGPU profiles do not offer UVM, which CUDA's allocator needs.
    Seen: a GRID or vGPU device, and failing CUDA.
    Do: pass the whole GPU through.
    """
    vgpu = signs.of("vgpu")
    named = [c for c in gpus_of(start) if re.search(r"(?i)grid|vgpu", c.description + c.name)]
    failing = signs.has("cuda_init_failed", "gpu_error") or cpu_only(start)
    failing = failing or signs.has("uvm_missing", "uvm_unsupported", "cpu_instead")
    if (vgpu or named) and failing:
        yield Finding(
            "error",
            "the virtual GPU offers no unified memory (UVM)",
            (*signs.quotes(vgpu), *(c.text for c in named[:1])),
            "nvidia-smi -q | grep -i -A3 virtualization",
        )
