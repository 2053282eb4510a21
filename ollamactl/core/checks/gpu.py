"""GPUs: not found, not usable, lost, used in part."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check, configured, gib
from ollamactl.core.checks.context import spilled
from ollamactl.core.facts import Compute, Facts, Gpu, GpuDriver, Start
from ollamactl.core.needs import NO_SIGNS, Given, Signs

CPU = ("no_gpu_found", "discovery_ok_but_runner_cpu", "cuda_init_999", "partial_offload", "vram_recovery_timeout")


def gpus_of(start: Start | None) -> list[Compute]:
    return [c for c in (start.computes if start else ()) if c.library.lower() not in ("cpu", "") and c.id != "cpu"]


def cpu_only(start: Start | None) -> bool:
    """Whether this start said that it found no GPU."""
    return start is not None and bool(start.computes) and not gpus_of(start)


def used(signs: Signs, start: Start | None) -> bool:
    """Whether a GPU is in use after all: then complaints of one library or one device are no fault."""
    return bool(gpus_of(start)) or any(x.offloaded and x.offloaded[0] > 0 for x in (start.loads if start else ()))


def _config(start: Start | None, given: tuple[Given, ...], name: str) -> str:
    value = ((start.config or {}) if start else {}).get(name, "")
    return value or next((g.value for g in given if g.name == name), "")


@check(weight=8)
def no_gpu_found(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """No GPU was found: models run on the CPU.

    Why: there is none, or none that this release can use; in 0.11 the RAM was printed as "total vram".
    Seen: `inference compute` names only the CPU.
    Do: nothing where there is none; else look at what the driver says (nvidia-smi, rocminfo).
    """
    start = facts.start
    if cpu_only(start) or (signs.has("no_compatible_gpu") and not gpus_of(start)):
        there = list(facts.gpus or ())
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
        yield Finding(
            "warning" if there else "info", said, (*lines, line), "nvidia-smi || rocminfo || vulkaninfo --summary"
        )


@check(weight=78, explains=CPU)
def nvidia_driver_too_old(
    signs: Signs, release: tuple[int, ...] = (), drivers: tuple[GpuDriver, ...] = (), start: Start | None = None
) -> Iterator[Finding]:
    """The NVIDIA driver is too old for this release.

    Why: 0.30 needs 570 (550 from 0.30.11), 0.7 needs 525 (531 on Windows); older ones are passed over silently.
    Seen: Ollama's or CUDA's own words, or the driver's version.
    Do: upgrade the driver.
    """
    fix = "ubuntu-drivers install nvidia:580 || sudo apt install nvidia-driver-580    # then reboot"
    if signs.has("nvidia_driver_too_old") and not (used(signs, start) and not _below(signs, start)):
        snap = signs.has("snap_paths") or "/snap/" in " ".join(e.text for e in signs.of("nvidia_driver_too_old"))
        if not snap:
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
    if signs.has("driver_version_told") and not gpus_of(start):
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
def driver_library_mismatch(signs: Signs, drivers: tuple[GpuDriver, ...] = ()) -> Iterator[Finding]:
    """The NVIDIA library and the loaded kernel module are of different versions.

    Why: the driver was updated and the old module is still loaded.
    Seen: "Driver/library version mismatch", NVML 18, "forward compatibility was attempted".
    Do: reboot, or reload the module.
    """
    told = next((d.problem for d in drivers if re.search(r"(?i)mismatch", d.problem)), "")
    if signs.has("driver_mismatch", "kernel:driver_mismatch") or told:
        yield Finding(
            "error",
            "the NVIDIA driver was updated and the old kernel module is still loaded",
            (*signs.lines("driver_mismatch", "kernel:driver_mismatch"), told),
            "sudo systemctl stop ollama; sudo reboot",
        )


@check(weight=80, explains=(*CPU, "gpu_lost_after_suspend", "service_started_before_gpu", "container_lost_gpu_cgroup"))
def nvidia_uvm_not_loaded(signs: Signs, facts: Facts, world: str = "") -> Iterator[Finding]:
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
    elif signs.has("uvm_missing"):
        yield Finding(
            "error",
            "nvidia_uvm is not loaded, or its device nodes are missing",
            signs.lines("uvm_missing", "cuda_init_failed"),
            fix,
        )


def _suspended(signs: Signs) -> bool:
    return signs.has("kernel:suspend", "suspend")


@check(weight=82, explains=(*CPU, "runner_crash_on_load", "service_started_before_gpu", "nvidia_uvm_not_loaded"))
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
    later = [e for e in signs.of("gpu_error") if re.search(r"(?i)unspecified|unknown error", e.text)]
    if _suspended(signs) and (errors or cpu_only(start) or signs.has("uvm_in_use")):
        yield Finding(
            "error",
            "the GPU was lost by a suspend",
            signs.lines("kernel:suspend", "suspend", "uvm_in_use", "cuda_init_failed", "gpu_error", most=4),
            fix,
        )
    elif signs.has("uvm_in_use") or (later and worked):
        yield Finding(
            "error",
            "the GPU worked and then gave only errors: most often after a suspend",
            signs.lines("gpu_error", "uvm_in_use"),
            fix,
        )


@check(
    weight=70,
    explains=("no_gpu_found", "discovery_ok_but_runner_cpu", "runner_crash_on_load", "vram_recovery_timeout"),
)
def cuda_init_999(signs: Signs, start: Start | None = None) -> Iterator[Finding]:
    """CUDA cannot be initialised (999, unknown error).

    Why: the driver's UVM state is broken, after a suspend or because nvidia_uvm is not loaded.
    Seen: code 999 of CUDA.
    Do: reload nvidia_uvm with the service stopped.
    """
    events = [e for e in signs.of("cuda_init_failed", "gpu_error", "cuda_999") if re.search(r"\b999\b", e.text)]
    if events and not used(signs, start):
        yield Finding(
            "error",
            "CUDA cannot be initialised: 999, unknown error",
            signs.quotes(events),
            "sudo systemctl stop ollama && sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm && sudo "
            "systemctl start ollama",
        )


@check(
    weight=82,
    explains=(*CPU, "nvidia_uvm_not_loaded", "service_started_before_gpu", "daemon_reload_breaks_gpu_containers"),
)
def container_lost_gpu_cgroup(signs: Signs, facts: Facts, start: Start | None = None) -> Iterator[Finding]:
    """A container lost its GPU while it ran.

    Why: its device cgroup was rewritten; the nodes are there, and may no longer be opened.
    Seen: "Failed to initialize NVML: Unknown Error", CUDA's 800 (not permitted).
    Do: restart the container; with the systemd cgroup driver make the /dev/char links.
    """
    lost = [e for e in signs.of("nvml_failed") if "Unknown Error" in e.text]
    lost += [e for e in signs.of("cuda_init_failed") if re.search(r"\b800\b", e.text)]
    if lost and not signs.has("driver_mismatch") and not signs.has("daemon_reload_done"):
        yield Finding(
            "error",
            "the container lost its GPU: the device cgroup no longer allows it",
            signs.quotes(lost),
            "docker restart ollama; sudo nvidia-ctk system create-dev-char-symlinks --create-all",
        )


@check(weight=83, explains=("container_lost_gpu_cgroup", *CPU))
def daemon_reload_breaks_gpu_containers(signs: Signs) -> Iterator[Finding]:
    """systemctl daemon-reload takes the GPU from running containers.

    Why: with the systemd cgroup driver a reload applies device rules anew, without the GPU's nodes.
    Seen: a daemon-reload, and NVML's "Unknown Error" in a container.
    Do: make the /dev/char links, or use CDI or the cgroupfs driver.
    """
    lost = [e for e in signs.of("nvml_failed") if "Unknown Error" in e.text]
    if signs.has("daemon_reload_done") and (lost or signs.has("containers_lose_gpu")):
        yield Finding(
            "warning",
            "daemon-reload took the GPU from running containers",
            (*signs.lines("daemon_reload_done"), *signs.quotes(lost)),
            "sudo nvidia-ctk system create-dev-char-symlinks --create-all; docker restart ollama",
        )


@check(weight=60, explains=("no_gpu_found", "discovery_ok_but_runner_cpu"))
def service_started_before_gpu(
    signs: Signs, facts: Facts, start: Start | None = None, gpus: tuple[Gpu, ...] = ()
) -> Iterator[Finding]:
    """The service started before the GPU was ready.

    Why: devices are looked for once, at the start; a driver that comes later is not seen.
    Seen: a GPU on the host, and a start that found none though nothing is wrong now.
    Do: restart the service; order it after the driver.
    """
    fix = "sudo systemctl restart ollama    # for good: After=nvidia-persistenced.service in a drop-in"
    early = [
        e
        for e in signs.of("no_gpu_usable", "cuda_init_failed", "no_nvidia_device")
        if re.search(r"no CUDA-capable device|no usable GPU|no nvidia devices", e.text)
    ]
    hidden = _config(start, (), "CUDA_VISIBLE_DEVICES") in ("-1", "none") or signs.has(
        "igpu_dropped",
        "nvidia_driver_too_old",
        "kfd_denied",
        "rocm_library_missing",
        "driver_mismatch",
        "gpu_unsupported",
    )
    usable = [g for g in gpus if g.vendor in ("nvidia", "amd") and not g.unified]
    if cpu_only(start) and usable and not hidden and not (facts.service and facts.service.private_devices):
        yield Finding(
            "warning",
            f"{usable[0].name or 'a GPU'} is there now, and was not found when the service started",
            (start.computes[0].text if start else "", f"driver: GPU {usable[0].index} {usable[0].name}"),
            fix,
        )
    elif signs.has("after_reboot_cpu"):
        yield Finding(
            "warning",
            "after a reboot the service found no GPU; started by hand it does",
            signs.lines("after_reboot_cpu"),
            fix,
        )
    elif early and not used(signs, start):
        yield Finding("warning", "no CUDA device was there when the service looked for one", signs.quotes(early), fix)


@check(weight=80, explains=(*CPU, "amdgpu_version_file_missing"))
def kfd_permission_denied(signs: Signs, facts: Facts) -> Iterator[Finding]:
    """The service may not open the AMD GPU's device.

    Why: /dev/kfd and /dev/dri/renderD* belong to the groups render and video; a container needs them passed in.
    Seen: "permission problems block access", "/dev/kfd: permission denied".
    Do: put the user into the groups, or give the container the devices and groups.
    """
    found = signs.of("kfd_denied", "render_denied")
    found += [e for e in signs.of("folder_denied") if re.search(r"/dev/(kfd|dri)", e.text)]
    if found:
        docker = bool(signs.matching("rocminfo", "container", "docker")) or (
            facts.told is not None and facts.told.world == "docker"
        )
        fix = "sudo usermod -aG render,video ollama && sudo systemctl restart ollama"
        if docker:
            groups = "--group-add video --group-add $(getent group render | cut -d: -f3)"
            fix = f"docker run --device /dev/kfd --device /dev/dri {groups} … ollama/ollama:rocm"
        yield Finding("error", "the AMD GPU's device may not be opened by the service", signs.quotes(found), fix)


@check(weight=78, explains=(*CPU, "amdgpu_version_file_missing", "runner_crash_on_load"))
def package_without_gpu_libs(signs: Signs, facts: Facts, start: Start | None = None) -> Iterator[Finding]:
    """The installed package has no libraries for this GPU.

    Why: the ROCm archive is a separate one, distributions split CUDA off, a snap has no NVIDIA user libraries, or only
    the program was copied.
    Seen: "no compatible rocm library found", missing libllama/libggml, CUDA 35 inside a snap.
    Do: unpack or install the part that is missing.
    """
    rocm = signs.lines("rocm_library_missing")
    libs = [
        e
        for e in signs.of("library_missing")
        if re.search(r"lib(?:llama|ggml|cudart|cublas|hipblas|rocblas|amdhip)", e.text)
    ]
    exit127 = [
        e
        for e in signs.of("load_failed", "runner_terminated", "runner_exit")
        if "127" in e.text and "exit status 127" in e.text
    ]
    if rocm and not used(signs, start):
        yield Finding(
            "error",
            "an AMD GPU is there, and the ROCm libraries are not installed",
            rocm,
            "curl -fsSL https://ollama.com/download/ollama-linux-amd64-rocm.tgz | sudo tar zx -C /usr",
        )
    elif libs or exit127:
        yield Finding(
            "error",
            "libraries of the engine are missing: only a part of the package was installed",
            signs.quotes([*libs, *exit127]),
            "curl -fsSL https://ollama.com/install.sh | sh",
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


@check(weight=70, explains=("no_gpu_found", "vram_tiered_default_context"))
def igpu_dropped(
    signs: Signs, start: Start | None = None, given: tuple[Given, ...] = (), release: tuple[int, ...] = ()
) -> Iterator[Finding]:
    """An integrated GPU is not used.

    Why: since 0.30 integrated GPUs are left out unless OLLAMA_IGPU_ENABLE=1 is set.
    Seen: "dropping integrated GPU".
    Do: OLLAMA_IGPU_ENABLE=1 (for gfx1151 and the like also HSA_OVERRIDE_GFX_VERSION, or Vulkan).
    """
    fix = "sudo ollamactl apply --set OLLAMA_IGPU_ENABLE=1"
    if signs.has("igpu_dropped"):
        names = sorted(
            {e.fields.get("description", "") or e.fields.get("name", "") for e in signs.of("igpu_dropped")} - {""}
        )
        other = gpus_of(start)
        alone = not other
        said = f"the integrated GPU {names[0] if names else ''} is left out".replace("  ", " ")
        said += "" if alone else f": {other[0].description or other[0].name} is used"
        yield Finding(
            "warning" if alone else "info", said, signs.lines("igpu_dropped"), fix, weight=70 if alone else 10
        )
    elif signs.has("gfx_undiscovered") or signs.has("ps_gpu_to_cpu"):
        yield Finding(
            "warning",
            "the integrated GPU is not used since the upgrade",
            signs.lines("ps_gpu_to_cpu", "gfx_undiscovered"),
            fix,
        )


@check(
    weight=72,
    explains=(
        "no_gpu_found",
        "runner_crash_on_load",
        "amdgpu_version_file_missing",
        "service_started_before_gpu",
        "kfd_permission_denied",
    ),
)
def gpu_not_supported_by_backend(
    signs: Signs, start: Start | None = None, given: tuple[Given, ...] = ()
) -> Iterator[Finding]:
    """This release cannot use the GPU.

    Why: its compute capability or gfx target is not among those that the libraries were built for.
    Seen: "GPU is too old", "amdgpu is not supported", "no kernel image is available".
    Do: a release that has it, Vulkan (OLLAMA_VULKAN=1), or the CPU.
    """
    events = signs.of("gpu_unsupported", "gpu_below_minimum", "device_skipped", "gfx_unsupported")
    skipped = [e for e in events if e.kind == "device_skipped"]
    hard = [e for e in events if e.kind != "device_skipped"]
    if _config(start, given, "HSA_OVERRIDE_GFX_VERSION") and (signs.has("gfx_override") or not hard):
        return
    if (hard or skipped) and not used(signs, start):
        yield Finding(
            "error" if hard else "warning",
            "this release has no code for the GPU",
            signs.quotes(events),
            "sudo ollamactl apply --set OLLAMA_VULKAN=1    # or another release",
        )
    elif any("no kernel image" in e.text for e in hard):
        yield Finding(
            "error", "the libraries have no code for the GPU", signs.quotes(hard), "ollama --version    # upgrade"
        )


@check(
    weight=74,
    explains=("gpu_not_supported_by_backend", "runner_crash_on_load", "no_gpu_found", "amdgpu_version_file_missing"),
)
def gfx_override(signs: Signs, given: tuple[Given, ...] = (), start: Start | None = None) -> Iterator[Finding]:
    """HSA_OVERRIDE_GFX_VERSION is set, and harms or does nothing.

    Why: it must be x.y.z; per-device names (…_0) are not read by Ollama; on a GPU that is supported by itself, and on
    Windows, it breaks or does nothing.
    Seen: its value beside what discovery says.
    Do: take it out, or correct it.
    """
    fix = "sudo ollamactl apply --unset HSA_OVERRIDE_GFX_VERSION"
    value = _config(start, given, "HSA_OVERRIDE_GFX_VERSION")
    device = next((g for g in given if re.match(r"HSA_OVERRIDE_GFX_VERSION_\d", g.name)), None)
    unsupported = signs.has("gpu_unsupported", "load_failed", "runner_terminated", "gpu_error", "conn_closed")
    place = next(
        (g.place for g in given if g.name == "HSA_OVERRIDE_GFX_VERSION"),
        f"server config: HSA_OVERRIDE_GFX_VERSION:{value}",
    )
    if device is not None:
        yield Finding(
            "warning", f"{device.name} is not read by Ollama's discovery: only the plain name is", (device.place,), fix
        )
    elif value and not re.fullmatch(r"\d+\.\d+\.\d+", value):
        yield Finding(
            "error" if unsupported else "warning",
            f"HSA_OVERRIDE_GFX_VERSION={value} is not of the form x.y.z",
            (place, *signs.lines("gfx_override", "gpu_unsupported")),
            "sudo ollamactl apply --set HSA_OVERRIDE_GFX_VERSION=11.0.0",
        )
    elif value and unsupported:
        yield Finding(
            "error",
            f"HSA_OVERRIDE_GFX_VERSION={value} does not help this GPU, and may be what breaks it",
            (place, *signs.lines("gfx_override", "gpu_unsupported", "runner_terminated")),
            fix,
        )
    elif value and signs.has("gfx_native"):
        yield Finding(
            "warning",
            f"HSA_OVERRIDE_GFX_VERSION={value} is set for a GPU that is supported by itself",
            (place, *signs.lines("gfx_native")),
            fix,
        )


@check(weight=76, explains=("load_oom", "visible_devices_override", "runner_crash_on_load", "igpu_dropped"))
def gpu_hidden_in_one_backend_only(signs: Signs, start: Start, given: tuple[Given, ...] = ()) -> Iterator[Finding]:
    """A GPU that was hidden is used through another backend.

    Why: CUDA_VISIBLE_DEVICES hides it from CUDA only; Vulkan, on by default since 0.30, still sees it.
    Seen: the variable, and `inference compute` with another library.
    Do: OLLAMA_VULKAN=0, or hide it there too.
    """
    hides = {
        "cuda": _config(start, given, "CUDA_VISIBLE_DEVICES"),
        "rocm": _config(start, given, "ROCR_VISIBLE_DEVICES") or _config(start, given, "HIP_VISIBLE_DEVICES"),
    }
    for library, value in hides.items():
        if value.strip() not in ("-1", "none", "None", "NoDevFiles", ""):
            continue
        if not value.strip():
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
    signs: Signs = NO_SIGNS, start: Start | None = None, given: tuple[Given, ...] = ()
) -> Iterator[Finding]:
    """Variables choose the visible devices of two backends.

    Why: numbers differ between backends; two of them together may leave none, or the wrong one.
    Seen: more than one *_VISIBLE_DEVICES.
    Do: unset all of them first.
    """
    names = (
        "CUDA_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "GGML_VK_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
    )
    set_ = {n: v for n in names if (v := _config(start, given, n))}
    backends = {"cuda" if "CUDA" in n else "vulkan" if "VK" in n else "rocm" for n in set_}
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
            "info",
            f"{told} chooses what is visible, and no GPU was found",
            (configured(start, *set_),),
            "sudo ollamactl apply " + " ".join(f"--unset {n}" for n in set_),
        )


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
        if re.search(r"(?i)deadline|timed? ?out|timeout|killed", e.text)
    ]
    if found and not gpus_of(start):
        yield Finding(
            "error",
            "looking for GPUs timed out: the CPU is used until the next start",
            signs.quotes(found),
            "sudo systemctl restart ollama",
        )


@check(weight=45, explains=("partial_offload",))
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
        zero = load.offloaded is not None and load.offloaded[0] == 0
        only_cpu = (
            load.offloaded is None
            and bool(load.buffers)
            and all(b.device.upper().startswith("CPU") for b in load.buffers)
        )
        if devices and (zero or only_cpu) and load.gpu_layers != 0 and "--embedding" not in load.argv:
            yield Finding(
                "warning",
                f"{devices[0].description or devices[0].name or 'the GPU'} was found, and a model runs on the CPU",
                (devices[0].text, load.text),
                fix,
            )
            return
    on_cpu = [m for m in facts.loaded or () if m.size and m.size_vram == 0]
    if devices and on_cpu:
        yield Finding(
            "warning",
            f"{devices[0].description or devices[0].name or 'the GPU'} was found, and {on_cpu[0].name} runs "
            "on the CPU",
            (devices[0].text, f"ollama ps: {on_cpu[0].name} 100% CPU"),
            fix,
        )
    elif signs.has("no_layer_fits") and not (start and start.loads):
        yield Finding("warning", "no layer went to the GPU, said only at DEBUG", signs.lines("no_layer_fits"), fix)
    elif devices and signs.has("no_nvidia_device") and signs.has("rocm_runner_failed"):
        yield Finding(
            "warning", "the GPU was found and the runner fell back to the CPU", signs.lines("no_nvidia_device"), fix
        )


@check(weight=44)
def ps_says_gpu_but_cpu_busy(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """`ollama ps` says GPU, the CPU does the work.

    Why: it shows the estimate; with a quantised cache and a head size that the GPU lacks, attention is on the CPU.
    Seen: a busy CPU under "100% GPU".
    Do: OLLAMA_KV_CACHE_TYPE=f16 as a trial; look at the buffers of the load.
    """
    if signs.has("cpu_busy_though_gpu"):
        yield Finding(
            "warning",
            "`ollama ps` says GPU while the CPU is at work",
            signs.lines("cpu_busy_though_gpu"),
            "sudo ollamactl apply --kv-cache-type f16",
        )


@check(weight=12)
def amdgpu_version_file_missing(signs: Signs, start: Start | None = None) -> Iterator[Finding]:
    """The version file of the AMD driver is missing: harmless.

    Why: the in-kernel driver has none; only AMD's own package does.
    Seen: the warning beside a GPU that is used.
    Do: nothing.
    """
    if signs.has("amdgpu_version_missing"):
        yield Finding(
            "info",
            "the version file of the AMD driver is missing: harmless with the kernel's own driver",
            signs.lines("amdgpu_version_missing"),
            "journalctl -u ollama | grep 'inference compute'    # is the GPU there?",
        )


@check(weight=76, explains=("no_gpu_found",))
def cpu_lacks_avx(signs: Signs, release: tuple[int, ...] = ()) -> Iterator[Finding]:
    """The CPU has no AVX.

    Why: older builds need it, for the GPU too; virtual machines with CPU type kvm64 or qemu64 hide it.
    Seen: Ollama's own words, an illegal instruction, or the CPU's flags.
    Do: CPU type "host" in the virtual machine; a newer release.
    """
    if signs.has("cpu_lacks_avx", "illegal_instruction", "cpu_type_kvm"):
        yield Finding(
            "error",
            "the CPU lacks AVX, which this release needs",
            signs.lines("cpu_lacks_avx", "illegal_instruction", "cpu_type_kvm"),
            "grep -o -m1 'avx[^ ]*' /proc/cpuinfo; qm set VMID --cpu host    # on the Proxmox host",
        )


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
        spread = _config(start, (), "OLLAMA_SCHED_SPREAD") == "true"
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
    failing = bool(start and (spilled(start) or any(x.outcome == "failed" for x in start.loads)))
    if uneven and (failing or (_config(start, (), "OLLAMA_SCHED_SPREAD") == "true" and start and start.loads)):
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
        )


@check(weight=70, explains=("cuda_init_999", "no_gpu_found", "nvidia_uvm_not_loaded", "service_started_before_gpu"))
def vgpu_uvm_unsupported(signs: Signs, start: Start | None = None) -> Iterator[Finding]:
    """The virtual GPU has no unified memory.

    Why: vGPU profiles do not offer UVM, which CUDA's allocator needs.
    Seen: a GRID or vGPU device, and failing CUDA.
    Do: pass the whole GPU through.
    """
    vgpu = signs.of("vgpu")
    named = [c for c in gpus_of(start) if re.search(r"(?i)grid|vgpu", c.description + c.name)]
    failing = signs.has("cuda_init_failed", "gpu_error", "load_failed") or cpu_only(start) or signs.has("uvm_missing")
    if (vgpu or named) and failing:
        yield Finding(
            "error",
            "the virtual GPU offers no unified memory (UVM)",
            (*signs.quotes(vgpu), *(c.text for c in named[:1])),
            "nvidia-smi -q | grep -i -A3 virtualization",
        )


@check(weight=40)
def gpu_error_in_kernel(signs: Signs) -> Iterator[Finding]:
    """The kernel's GPU driver reports an error.

    Why: an Xid or a reset takes the GPU from running processes.
    Seen: NVRM: Xid, "fallen off the bus", amdgpu: GPU reset.
    Do: look the code up; power, heat, PCIe, driver.
    """
    found = signs.of("kernel:gpu_xid", "kernel:gpu_lost", "kernel:gpu_reset")
    if found:
        lost = any(e.kind == "kernel:gpu_lost" for e in found)
        yield Finding(
            "error" if lost else "warning",
            "the GPU driver reports an error",
            signs.quotes(found),
            "sudo journalctl -k --grep 'Xid|fallen off|GPU reset'",
        )
