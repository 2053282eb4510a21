"""The devices that can hold a model, and their drivers, of NVML and /sys together.

All functions raise msgspec.MsgspecError for a text that is not such a body.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ollamactl.core.facts import Gpu, GpuDriver
from ollamactl.core.parse import gpu_sysfs, nvml
from ollamactl.core.source import Reading, Source, native


def devices(read: Callable[[Source], Reading]) -> tuple[Gpu, ...]:
    """Every device of every vendor. One that is there but does not tell its memory has `total` None and a note."""
    of_nvml, sysfs = read(native("nvml")), read(native("gpu_sysfs"))
    if of_nvml.missing is None and of_nvml.body:
        nvidia = nvml.gpus(of_nvml.body)
    else:
        problem = "" if of_nvml.missing is None else of_nvml.missing.detail
        nvidia = nvml.silent_gpus(of_nvml.body or msgspec.json.encode({"problem": problem}), sysfs.body)
    return nvidia + (gpu_sysfs.gpus(sysfs.body) if sysfs.body else ())


def drivers(read: Callable[[Source], Reading]) -> tuple[GpuDriver, ...]:
    """The driver of each vendor with a device or a driver here; `problem` where it does not work."""
    of_nvml, sysfs = read(native("nvml")), read(native("gpu_sysfs"))
    found: list[GpuDriver] = []
    if of_nvml.body:
        found.append(nvml.driver(of_nvml.body))
    elif of_nvml.missing is not None and of_nvml.missing.kind not in ("absent", "unasked"):
        found.append(GpuDriver(vendor="nvidia", problem=of_nvml.missing.detail))
    for driver in gpu_sysfs.drivers(sysfs.body) if sysfs.body else ():
        if driver.vendor != "nvidia" or not found:
            found.append(driver)
    return tuple(found)
