"""Feeds of the machine: system, memory, GPUs, containers that use them."""

from __future__ import annotations

import re

from ollamactl.core.facts import (
    Gpu,
    GpuDriver,
    HostMemory,
    System,
)
from ollamactl.core.feeds.collector import Collector, Unknown, feed
from ollamactl.core.parse import (
    containers,
    gpu,
)
from ollamactl.core.source import Missing, command, native


@feed
def system(c: Collector) -> System:
    return c.record(native("system"), System)


@feed
def memory(c: Collector) -> HostMemory:
    return c.record(native("memory"), HostMemory)


@feed
def gpus(c: Collector) -> tuple[Gpu, ...]:
    return gpu.devices(c.read)


@feed
def drivers(c: Collector) -> tuple[GpuDriver, ...]:
    return gpu.drivers(c.read)


@feed
def gpu_containers(c: Collector) -> tuple[str, ...]:
    """Running containers with a GPU, which a daemon-reload can take from them."""
    found: list[str] = []
    reasons: list[Missing] = []
    for engine in ("docker", "podman"):
        listed = c.read(command(engine, "ps", "-q", "--no-trunc", timeout=3.0))
        if listed.missing is not None:
            down = re.search(r"[Cc]annot connect|Is the docker daemon running", listed.stderr or listed.missing.detail)
            reasons.append(Missing("absent", f"{engine}: its daemon does not run") if down else listed.missing)
        elif listed.text.split():
            found += containers.with_gpu(c.read(command(engine, "inspect", *listed.text.split())).body or b"")
    if len(reasons) == 2:
        raise Unknown(next((r for r in reasons if r.kind != "absent"), reasons[0]))
    return tuple(found)
