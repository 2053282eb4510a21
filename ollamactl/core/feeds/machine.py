"""Feeds of the machine: system, memory, GPUs."""

from __future__ import annotations

from ollamactl.core.facts import (
    Gpu,
    GpuDriver,
    HostMemory,
    System,
)
from ollamactl.core.feeds.collector import Collector, ahead, feed
from ollamactl.core.parse import gpu
from ollamactl.core.source import native


@feed
def system(c: Collector) -> System:
    return c.record(native("system"), System)


@feed
def memory(c: Collector) -> HostMemory:
    return c.record(native("memory"), HostMemory)


@ahead(lambda c: (native("nvml"), native("gpu_sysfs")))
@feed
def gpus(c: Collector) -> tuple[Gpu, ...]:
    return gpu.devices(c.once)


@feed
def drivers(c: Collector) -> tuple[GpuDriver, ...]:
    return gpu.drivers(c.once)
