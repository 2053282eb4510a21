"""GPUs that were found, or ought to be usable, and are not used."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check
from ollamactl.core.facts import Buffer, Compute, Facts, Load, Start
from ollamactl.core.needs import Given, Signs

# said by the engine at work, so that a device which was found does not excuse it
NO_CODE = r"kernel image is|TensileLibrary|invalid device function|hipErrorNoBinaryForGpu"
ENGINE = r"lib(?:llama|ggml|cudart|cublas|hipblas|rocblas|amdhip)"  # parts of the package
DIED = r"crashed|: signal: |exit status (?:0x|1\d\d)"  # of a probe
DLL = r"exit status (?:127\b|0xc0000135|0xc0000139)"  # of Windows: a DLL, or what it should hold, is not there
CPU = ("no_gpu_found", "discovery_ok_but_runner_cpu", "cuda_init_999", "partial_offload", "vram_recovery_timeout")


def gpus_of(start: Start | None) -> list[Compute]:
    return [
        c
        for c in (start.computes if start else ())
        if c.library.lower() not in ("cpu", "") and c.id != "cpu" and "…" not in c.library  # cut by systemctl
    ]


def named(device: Compute) -> str:
    return device.description or device.name or "the GPU"


def cpu_only(start: Start | None) -> bool:
    """Whether this start said that it found no GPU."""
    return start is not None and bool(start.computes) and not gpus_of(start)


def previous(facts: Facts, start: Start | None, *, same: bool) -> Start | None:
    """The last start before the judged one that named its devices, where its release is the same (or another)."""
    starts = [s for s in (facts.log.starts if facts.log else ()) if s.computes or s is start]
    if (
        start is None
        or len(starts) < 2
        or starts[-1] is not start
        or (starts[-2].version == start.version) is not same
    ):
        return None
    return starts[-2]


def lost_by_upgrade(facts: Facts, start: Start | None) -> Compute | None:
    """A device that another release found in the same log, and the one that runs now does not."""
    before = previous(facts, start, same=False)
    return next(iter(gpus_of(before)), None) if before and cpu_only(start) else None


def driver_of_then(device: Compute) -> bool:
    """Whether its driver is older than what releases from 0.30 take (550: CUDA 12.4)."""
    return device.library.lower() == "cuda" and re.fullmatch(r"1[01]\.\d+|12\.[0-3]", device.driver) is not None


def used(signs: Signs, start: Start | None) -> bool:
    """Whether a GPU is in use after all: then complaints of one library or one device are no fault."""
    return bool(gpus_of(start)) or any(on_gpu(x) for x in (start.loads if start else ()))


def on_gpu(load: Load) -> bool:
    """Whether layers went to a GPU, and not only were meant to: a runner without its backend counts them all the
    same, and has weights and cache in host memory."""
    on, of = load.offloaded or (0, 0)
    whole = on == of and {"model", "kv"} <= {b.kind for b in load.buffers}  # else other devices' lines may be left out
    return on > 0 and not (whole and all(map(in_memory, load.buffers)))


def in_memory(buffer: Buffer) -> bool:
    """Whether a buffer lies in the host's memory."""
    return re.match(r"(?i)CPU|\w+_Host$", buffer.device) is not None


def value_of(start: Start | None, given: tuple[Given, ...], name: str) -> str:
    value = ((start.config or {}) if start else {}).get(name, "")
    return value or next((g.value for g in given if g.name == name), "")


@check(weight=78, explains=(*CPU, "amdgpu_version_file_missing", "runner_crash_on_load", "library_missing"))
def package_without_gpu_libs(signs: Signs, facts: Facts, start: Start | None = None) -> Iterator[Finding]:
    """The installed package has no libraries for this GPU.

    Why: the ROCm archive is a separate one, distributions split CUDA off, a snap has no NVIDIA user libraries, or only
    the program was copied.
    Seen: "no compatible rocm library found", missing libllama/libggml, CUDA 35 inside a snap.
    Do: unpack or install the part that is missing.
    """
    rocm = signs.lines("rocm_library_missing")
    libs = [e for e in signs.of("library_missing") if re.search(ENGINE, e.text)]
    exit127 = [e for e in signs.of("load_failed", "runner_terminated", "runner_exit") if re.search(DLL, e.text)]
    if signs.has("library_missing") and not libs:
        exit127 = []  # what is missing is named, and is no part of the package
    if rocm and not used(signs, start):
        yield Finding(
            "error",
            "an AMD GPU is there, and the ROCm libraries are not installed",
            rocm,
            "curl -fsSL https://ollama.com/download/ollama-linux-amd64-rocm.tgz | sudo tar zx -C /usr",
        )
    elif libs or exit127 or signs.has("engine_missing"):
        yield Finding(
            "error",
            "libraries of the engine are missing: only a part of the package was installed",
            signs.quotes([*libs, *exit127, *signs.of("engine_missing")]),
            "curl -fsSL https://ollama.com/install.sh | sh",
        )
    elif signs.has("mlx_missing"):
        yield Finding(
            "error",
            "the model is for MLX, which this installation does not have: such models run on Apple silicon",
            signs.lines("mlx_missing"),
            "ollama list; ollama pull MODEL    # a build of it that is no MLX one",
        )
    elif signs.has("builtin_runner_only") and not used(signs, start) and not _on_mac(facts):
        yield Finding(
            "warning",
            "this build has no runner for a GPU: compiled without, or copied without its lib/ollama",
            signs.lines("builtin_runner_only"),
            "curl -fsSL https://ollama.com/install.sh | sh",
        )
    elif signs.has("cpu_runners_only") and (there := _gpu_there(signs, facts, start)):
        yield Finding(
            "error",
            "a GPU is there, and the installed package has runners for the CPU only",
            (*signs.lines("cpu_runners_only"), there),
            "curl -fsSL https://ollama.com/install.sh | sh",
        )
    elif signs.has("gpu_libraries_incompatible") and not cpu_only(start) and not signs.has("no_compatible_gpu"):
        yield Finding(
            "warning",
            "no library of the installed package goes with the GPU",
            signs.lines("gpu_libraries_incompatible"),
            "ls /usr/local/lib/ollama /usr/lib/ollama; curl -fsSL https://ollama.com/install.sh | sh",
        )
    elif signs.has("gpu_libraries_gone") and not used(signs, start) and signs.has("cpu_instead", "no_compatible_gpu"):
        yield Finding(
            "error",
            "the folder with the libraries for GPUs is not there: only the program was installed",
            signs.lines("gpu_libraries_gone"),
            "curl -fsSL https://ollama.com/install.sh | sh",
        )
    elif signs.has("gpu_libraries_absent") and not used(signs, start):
        yield Finding(
            "error",
            "the installed package has libraries for the CPU only",
            signs.lines("gpu_libraries_absent"),
            "sudo pacman -S ollama-cuda    # ollama-rocm, ollama-vulkan; elsewhere: https://ollama.com/install.sh",
        )
    elif signs.has("arch_linux") and signs.has("cpu_backend_only") and not used(signs, start):
        yield Finding(
            "warning",
            "the distribution's package ollama has the CPU's backend only; those of GPUs are packages of their own",
            signs.lines("cpu_backend_only", most=1),
            "sudo pacman -S ollama-cuda    # or ollama-rocm, ollama-vulkan",
        )
    elif signs.has("package_variant"):
        yield Finding(
            "warning",
            "the installed package is the one without GPU libraries",
            signs.lines("package_variant"),
            "sudo pacman -S ollama-cuda || sudo apt install ollama-cuda",
        )
    elif signs.has("nvidia_driver_too_old") and (
        "/snap/" in " ".join(e.text for e in signs.of("nvidia_driver_too_old")) or signs.has("snap_paths")
    ):
        yield Finding(
            "error",
            "the snap has no NVIDIA user libraries",
            signs.lines("nvidia_driver_too_old", "snap_paths"),
            "curl -fsSL https://ollama.com/install.sh | sh    # in place of the snap",
        )


def _gpu_there(signs: Signs, facts: Facts, start: Start | None) -> str:
    """What says that a GPU is there, or was meant to be used; empty where nothing does."""
    lines = [c.text for c in gpus_of(start)] + list(signs.lines("gpu_in_use", most=1))
    told = facts.told.variables if facts.told else ()
    return next(iter([*lines, *(v.text for v in told if v.name == "HSA_OVERRIDE_GFX_VERSION" and v.value)]), "")


def _on_mac(facts: Facts) -> bool:
    """Whether the built-in runner is the one for the GPU."""
    return facts.told is not None and facts.told.world == "darwin"


@check(
    weight=72,
    explains=(
        "no_gpu_found",
        "runner_crash_on_load",
        "runner_killed",
        "amdgpu_version_file_missing",
        "service_started_before_gpu",
        "ps_says_gpu_but_cpu_busy",
        "kfd_permission_denied",
    ),
)
def gpu_not_supported_by_backend(
    signs: Signs, facts: Facts, start: Start | None = None, given: tuple[Given, ...] = ()
) -> Iterator[Finding]:
    """This release cannot use the GPU.

    Why: its compute capability or gfx target is not among those that the libraries were built for.
    Seen: "GPU is too old", "amdgpu is not supported", "no kernel image is available", or a GPU that an older release
    found in the same log.
    Do: a release that has it, Vulkan (OLLAMA_VULKAN=1), or the CPU.
    """
    events = signs.of("gpu_unsupported", "gpu_below_minimum", "device_skipped", "gfx_unsupported")
    skipped = [e for e in events if e.kind == "device_skipped"]
    hard = [e for e in events if e.kind != "device_skipped"]
    if value_of(start, given, "HSA_OVERRIDE_GFX_VERSION") and (signs.has("gfx_override") or not hard):
        return
    if (hard or (skipped and not signs.has("gpu_works_told"))) and not used(signs, start):
        yield Finding(
            "error" if hard else "warning",
            "this release has no code for the GPU",
            signs.quotes(events),
            "sudo ollamactl apply --set OLLAMA_VULKAN=1    # or another release",
        )
    elif signs.has("mac_with_radeon") and signs.has("cpu_instead") and not used(signs, start):
        yield Finding(
            "warning",
            "a Mac with an Intel processor computes on it: Ollama uses Metal on Apple silicon only",
            signs.lines("mac_with_radeon", "cpu_instead"),
            "ollama ps    # PROCESSOR; a smaller model is quicker there",
        )
    elif mute := [e for e in hard if re.search(NO_CODE, e.text)]:
        yield Finding(
            "error", "the libraries have no code for the GPU", signs.quotes(mute), "ollama --version    # upgrade"
        )
    elif (crashed := [e for e in signs.of("discovery_failed") if re.search(DIED, e.text)]) and cpu_only(start):
        yield Finding(
            "warning",
            "a GPU library of this release crashes while it looks for GPUs; the CPU is used",
            signs.quotes(crashed),
            "sudo ollamactl apply --set OLLAMA_VULKAN=1    # or another release",
        )
    elif (lost := lost_by_upgrade(facts, start)) and not (lost.type == "iGPU" or driver_of_then(lost)):
        yield Finding(
            "warning",
            f"{named(lost)} was found by the release before, and not by this one",
            (lost.text, start.computes[0].text if start else ""),
            "sudo ollamactl apply --set OLLAMA_VULKAN=1    # or a newer driver, or the release before",
        )


@check(weight=76, explains=("no_gpu_found",))
def cpu_lacks_avx(signs: Signs, release: tuple[int, ...] = ()) -> Iterator[Finding]:
    """The CPU has no AVX.

    Why: older builds need it, for the GPU too; virtual machines with CPU type kvm64 or qemu64 hide it.
    Seen: Ollama's own words, an illegal instruction, or the CPU's flags.
    Do: CPU type "host" in the virtual machine; a newer release.
    """
    kinds = ("cpu_lacks_avx", "illegal_instruction", "kernel:illegal_instruction", "cpu_type_kvm", "no_avx_told")
    found = [*signs.of(*kinds), *signs.matching("status=4/ill", kinds=("unit:main_exited",))]
    if found:
        yield Finding(
            "error",
            "the CPU lacks AVX, which this release needs",
            signs.quotes(found),
            "grep -o -m1 'avx[^ ]*' /proc/cpuinfo; qm set VMID --cpu host    # on the Proxmox host",
        )


@check(
    weight=40,
    explains=(
        "no_gpu_found",
        "gpu_discovery_timeout",
        "discovery_ok_but_runner_cpu",
        "cuda_init_999",
        "runner_crash_on_load",
        "runner_killed",
        "service_started_before_gpu",
    ),
)
def gpu_error_in_kernel(signs: Signs) -> Iterator[Finding]:
    """The kernel's GPU driver reports an error.

    Why: an Xid or a reset takes the GPU from running processes.
    Seen: NVRM: Xid, "fallen off the bus", "RmInitAdapter failed", amdgpu: GPU reset.
    Do: look the code up; power, heat, PCIe, driver.
    """
    found = signs.of("kernel:gpu_xid", "kernel:gpu_lost", "kernel:gpu_reset") or signs.of("gpu_error_told")
    if found:
        lost = any(e.kind == "kernel:gpu_lost" or "fallen off" in e.text for e in found)
        yield Finding(
            "error" if lost else "warning",
            "the GPU driver reports an error",
            signs.quotes(found),
            "sudo journalctl -k --grep 'Xid|fallen off|GPU reset'",
        )
