"""What takes the GPU from a container while it runs: its device cgroup, written anew."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check
from ollamactl.core.checks.gpu import CPU
from ollamactl.core.facts import Facts, Start
from ollamactl.core.needs import Signs

NOT_PERMITTED = r"\b800(?!\d)|CUDA: operation not permitted"
OTHER_LOSSES = ("daemon_reload_done", "suspend", "kernel:suspend", "container_refused")


@check(
    weight=82,
    explains=(
        *CPU,
        "nvidia_uvm_not_loaded",
        "service_started_before_gpu",
        "daemon_reload_breaks_gpu_containers",
        "runner_crash_on_load",
    ),
)
def container_lost_gpu_cgroup(signs: Signs, facts: Facts, start: Start | None = None) -> Iterator[Finding]:
    """A container lost its GPU while it ran.

    Why: its device cgroup was rewritten; the nodes are there, and may no longer be opened.
    Seen: "Failed to initialize NVML: Unknown Error", CUDA's 800 (not permitted).
    Do: restart the container; with the systemd cgroup driver make the /dev/char links.
    """
    lost = [e for e in signs.of("nvml_failed") if "Unknown Error" in e.text]
    lost += [e for e in signs.of("cuda_init_failed") if re.search(NOT_PERMITTED, e.text)]
    fix = "docker restart ollama; sudo nvidia-ctk system create-dev-char-symlinks --create-all"
    if lost and not signs.has("driver_mismatch") and not signs.has("daemon_reload_done"):
        said = "the container lost its GPU: the device cgroup no longer allows it"
        yield Finding("error", said, signs.quotes(lost), fix)
    elif not signs.has(*OTHER_LOSSES) and (told := _container_told(signs, facts)):
        said = "a container loses its GPU while it runs: most often its device cgroup is rewritten"
        yield Finding("warning", said, told, fix)


def _container_told(signs: Signs, facts: Facts) -> tuple[str, ...]:
    """The words of somebody whose container lost the GPU and got it back by a restart, or after a while."""
    if signs.has("cuda_999"):
        return ()  # the driver itself is broken
    inside = facts.told is not None and facts.told.world == "docker"
    later = signs.has("gpu_lost_later") or (signs.has("container_restart_helps") and signs.has("cpu_instead"))
    if signs.has("containers_lose_gpu") or (later and (inside or signs.has("container_restart_helps"))):
        return signs.lines("containers_lose_gpu", "gpu_lost_later", "container_restart_helps", "cpu_instead", most=3)
    return ()


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
