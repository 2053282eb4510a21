"""AMD GPUs and integrated ones: devices, groups, what ROCm takes a chip for."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core import govalues
from ollamactl.core.checks.base import Finding, check
from ollamactl.core.checks.gpu import CPU, cpu_only, gpus_of, lost_by_upgrade, named, used, value_of
from ollamactl.core.facts import Facts, Start
from ollamactl.core.needs import Given, Signs


@check(weight=80, explains=(*CPU, "amdgpu_version_file_missing"))
def kfd_permission_denied(signs: Signs, facts: Facts) -> Iterator[Finding]:
    """The service may not open the AMD GPU's device.

    Why: /dev/kfd and /dev/dri/renderD* belong to the groups render and video; a container needs them passed in.
    Seen: "permission problems block access", "/dev/kfd: permission denied".
    Do: put the user into the groups, or give the container the devices and groups.
    """
    found = signs.of("kfd_denied", "render_denied")
    found += [e for e in signs.of("folder_denied") if re.search(r"/dev/(kfd|dri)", e.text)]
    if not found and (cpu_only(facts.start) or signs.has("cpu_instead")):
        amd = signs.has("kfd_group_foreign", "amdgpu_loaded") or signs.matching("amdgpu", "rocm", "kfd", "radeon")
        found += signs.of("kfd_group_foreign", "user_without_render") if amd else []
    if found:
        docker = bool(signs.matching("rocminfo", "container", "docker")) or (
            facts.told is not None and facts.told.world == "docker"
        )
        fix = "sudo usermod -aG render,video ollama && sudo systemctl restart ollama"
        if docker:
            groups = "--group-add video --group-add $(getent group render | cut -d: -f3)"
            fix = f"docker run --device /dev/kfd --device /dev/dri {groups} … ollama/ollama:rocm"
        yield Finding("error", "the AMD GPU's device may not be opened by the service", signs.quotes(found), fix)


@check(weight=70, explains=("no_gpu_found", "vram_tiered_default_context"))
def igpu_dropped(
    signs: Signs,
    facts: Facts,
    start: Start | None = None,
    given: tuple[Given, ...] = (),
    release: tuple[int, ...] = (),
) -> Iterator[Finding]:
    """An integrated GPU is not used.

    Why: since 0.30 integrated GPUs are left out unless OLLAMA_IGPU_ENABLE=1 is set; up to 0.12.3 Radeons with less
    than 1 GiB of their own were passed over always.
    Seen: "dropping integrated GPU", "unsupported Radeon iGPU".
    Do: OLLAMA_IGPU_ENABLE=1 (for gfx1151 and the like also HSA_OVERRIDE_GFX_VERSION, or Vulkan).
    """
    wanted = govalues.boolean(value_of(start, given, "OLLAMA_IGPU_ENABLE"), "false").printed == "true"
    fix = "sudo ollamactl apply --set OLLAMA_IGPU_ENABLE=1"
    if () < release < (0, 30):
        fix = f"curl -fsSL https://ollama.com/install.sh | sh    # from 0.30 on: {fix}"
    if signs.has("igpu_dropped"):
        names = sorted(
            {e.fields.get("description", "") or e.fields.get("name", "") for e in signs.of("igpu_dropped")} - {""}
        )
        other = gpus_of(start)
        alone = not used(signs, start)
        said = f"the integrated GPU {names[0] if names else ''} is left out".replace("  ", " ")
        said += f": {other[0].description or other[0].name} is used" if other else ""
        yield Finding(
            "warning" if alone else "info", said, signs.lines("igpu_dropped"), fix, weight=70 if alone else 10
        )
    elif signs.has("gfx_undiscovered", "ps_gpu_to_cpu", "igpu_unused") and not (() < release < (0, 30) or wanted):
        yield Finding(
            "warning",
            "the integrated GPU is not used: since 0.30 it is left out unless asked for",
            signs.lines("ps_gpu_to_cpu", "gfx_undiscovered", "igpu_unused"),
            fix,
        )
    elif (lost := lost_by_upgrade(facts, start)) and lost.type == "iGPU" and not () < release < (0, 30):
        said = f"{named(lost)} was found by the release before: since 0.30 it is left out unless asked for"
        yield Finding("warning", said, (lost.text, start.computes[0].text if start else ""), fix)


@check(
    weight=74,
    explains=(
        "gpu_not_supported_by_backend",
        "runner_crash_on_load",
        "runner_killed",
        "no_gpu_found",
        "amdgpu_version_file_missing",
    ),
)
def gfx_override(signs: Signs, given: tuple[Given, ...] = (), start: Start | None = None) -> Iterator[Finding]:
    """HSA_OVERRIDE_GFX_VERSION is set, and harms or does nothing.

    Why: it must be x.y.z; per-device names (…_0) are not read by Ollama; on a GPU that is supported by itself, and on
    Windows, it breaks or does nothing.
    Seen: its value beside what discovery says.
    Do: take it out, or correct it.
    """
    fix = "sudo ollamactl apply --unset HSA_OVERRIDE_GFX_VERSION"
    value = value_of(start, given, "HSA_OVERRIDE_GFX_VERSION")
    device = next((g for g in given if re.match(r"HSA_OVERRIDE_GFX_VERSION_\d", g.name)), None)
    unread = [e for e in signs.of("stays_unset") if "HSA_OVERRIDE_GFX_VERSION_" in e.fields.get("name", "")]
    unsupported = signs.has("gpu_unsupported", "load_failed", "runner_terminated", "gpu_error", "conn_closed")
    unsupported |= cpu_only(start) and bool(signs.matching("runner crashed", kinds=("discovery_failed",)))
    place = next(
        (g.place for g in given if g.name == "HSA_OVERRIDE_GFX_VERSION"),
        f"server config: HSA_OVERRIDE_GFX_VERSION:{value}",
    )
    if device is not None:
        yield Finding(
            "warning", f"{device.name} is not read by Ollama's discovery: only the plain name is", (device.place,), fix
        )
    elif unread:
        said = f"{unread[0].fields['name']} is not read by Ollama's discovery: only the plain name is"
        yield Finding("warning", said, signs.quotes(unread), fix)
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
    elif signs.has("gfx_override_told"):
        said = "an HSA_OVERRIDE_GFX_VERSION of former days makes the runner take the GPU for another"
        yield Finding("warning", said, signs.lines("gfx_override_told", "gpu_unsupported"), fix)
    elif signs.has("gfx_needs_none") and not start:
        said = "GPUs that ROCm supports by itself need no HSA_OVERRIDE_GFX_VERSION: it does harm there"
        yield Finding("info", said, signs.lines("gfx_needs_none"), fix)


@check(weight=66, explains=("no_gpu_found", "gpu_discovery_timeout"))
def amd_driver_too_old(signs: Signs, start: Start | None = None) -> Iterator[Finding]:
    """The AMD driver is too old for this release.

    Why: on Windows releases from 0.30 need the driver's HIP 7 (amdhip64_7.dll); an older one has HIP 6 only.
    Seen: Ollama's own words, and no GPU in use: Vulkan does without.
    Do: the newest driver of AMD.
    """
    if signs.has("amd_driver_too_old") and not used(signs, start):
        said = "the AMD driver is too old for this release: it has no HIP 7"
        fix = "start https://www.amd.com/en/support    # the newest driver, then: restart Ollama"
        yield Finding("warning", said, signs.lines("amd_driver_too_old"), fix)


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
