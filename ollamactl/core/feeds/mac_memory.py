"""Feeds on a Mac: memory that programs and GPU share."""

from __future__ import annotations

from typing import Literal

from ollamactl.core import unified as rules
from ollamactl.core.facts import Gpu, GpuDriver, HostMemory, System, UnifiedMemory
from ollamactl.core.feeds.collector import Collector, Unknown, mac
from ollamactl.core.parse import macos
from ollamactl.core.source import Missing, command

NAMES = (
    "hw.memsize", "machdep.cpu.brand_string", "iogpu.wired_limit_mb", "debug.iogpu.wired_limit", "vm.swapusage",
    "kern.memorystatus_vm_pressure_level", "hw.perflevel0.physicalcpu",
)  # fmt: skip
PRESSURE: dict[str, Literal["normal", "warning", "critical"]] = {"1": "normal", "2": "warning", "4": "critical"}


@mac
def sysctl(c: Collector) -> dict[str, str]:
    """Names that this Mac lacks are left out: sysctl says so for each, and ends with 1."""
    reading = c.read(command("sysctl", *NAMES, any_exit=True))
    if reading.missing is not None:
        raise Unknown(reading.missing)
    return macos.parse_sysctl(reading.text)


@mac
def vm_stat(c: Collector) -> dict[str, int]:
    rows = macos.parse_vm_stat(c.text(command("vm_stat")))
    if not rows:
        raise Unknown(Missing("unparsable", "vm_stat names no page size"))
    return rows


def _total(c: Collector) -> int:
    text = c.need("sysctl").get("hw.memsize", "")
    if not text.isdigit():
        raise Unknown(Missing("unparsable", f"hw.memsize: {text or 'not known'}"))
    return int(text)


@mac
def memory(c: Collector) -> HostMemory:
    free = macos.available(c.need("vm_stat"))
    if free is None:
        raise Unknown(Missing("unparsable", "vm_stat names no free pages"))
    swap = macos.parse_swap(c.need("sysctl").get("vm.swapusage", ""))
    total = _total(c)
    return HostMemory(
        total=total,
        available=min(free, total),
        swap_total=swap.total if swap else 0,
        swap_free=swap.free if swap else 0,
    )


@mac
def unified(c: Collector) -> UnifiedMemory:
    """Only of Apple's own chips: Ollama uses no GPU of a Mac with one of Intel's."""
    host: System | None = c.get("system")
    if host is not None and host.arch not in ("arm64", "aarch64"):
        raise Unknown(Missing("unsupported", f"a Mac with {host.arch}: Ollama uses the CPU only"))
    said: dict[str, str] = c.need("sysctl")
    total = _total(c)
    limit = rules.limit_set(said)
    working_set = limit[0] if limit else rules.default_working_set(total, host.kernel if host else "")
    rows: dict[str, int] = c.get("vm_stat") or {}
    swap = macos.parse_swap(said.get("vm.swapusage", ""))
    return UnifiedMemory(
        total=total,
        working_set=min(working_set, total),
        source=limit[1] if limit else "default",
        pressure=PRESSURE.get(said.get("kern.memorystatus_vm_pressure_level", ""), ""),
        swap_used=swap.used if swap else 0,
        wired=rows.get("Pages wired down"),
        compressed=rows.get("Pages occupied by compressor"),
    )


@mac
def gpus(c: Collector) -> tuple[Gpu, ...]:
    """The chip's GPU: what Metal lets a program use of the shared memory is its size."""
    shared: UnifiedMemory | None = c.get("unified")
    if shared is None:
        why = c.missing["unified"]
        if why.kind == "unsupported":
            return ()
        raise Unknown(why)
    name = c.need("sysctl").get("machdep.cpu.brand_string", "Apple GPU")
    note = f"{shared.working_set} of {shared.total} bytes may be used ({shared.source})"
    return (
        Gpu(index=0, vendor="apple", name=name, total=shared.working_set, free=shared.working_set, unified=True,
            notes=(note,)),
    )  # fmt: skip


@mac
def drivers(c: Collector) -> tuple[GpuDriver, ...]:
    return ()
