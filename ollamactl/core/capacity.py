"""Facts of a host → the memory that a model may use: devices as Ollama counts them, host memory, margins. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from ollamactl.core.facts import Compute, Facts, Gpu
from ollamactl.core.loaded import Held
from ollamactl.core.memory.eras import LLAMA_SERVER
from ollamactl.core.memory.fit import margin
from ollamactl.core.memory.request import Device
from ollamactl.core.memory_settings import number, release_of, truth

MiB = 1 << 20
GiB = 1 << 30
# Bytes that a driver takes for a process that uses a device (its context and the engine's kernels), on no log line:
# 305 MiB measured on CUDA, reports from 150 to 550. Loads stored on this host take its place.
CONTEXT = {"cuda": 305 * MiB, "rocm": 305 * MiB, "vulkan": 100 * MiB, "metal": 0}
CONTEXT_BAND = 0.5
# Bytes that releases before 0.30 leave of a device for the driver (MinimumMemory of discover/gpu.go, ml/device.go).
MINIMUM = {"cuda": 457 * MiB, "rocm": 457 * MiB, "vulkan": 457 * MiB, "metal": 512 * MiB}
_VENDOR_KIND = {"nvidia": "cuda", "amd": "rocm", "intel": "vulkan", "apple": "metal"}


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A device and what it is called. `device.free` has the driver's context taken off, `free` has not."""

    device: Device
    label: str
    free: int
    context: int = 0  # bytes of the driver's context
    gpu: int | None = None  # position in Facts.gpus
    discrete: bool = True


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to hold a model. No `places`: CPU only, `host_free` is the budget and `why_cpu` says why."""

    places: tuple[Place, ...] = ()
    host_free: int | None = None
    unlimited: int | None = None  # host memory that Ollama sees, which knows nothing of MemoryMax=
    target: int | None = None  # LLAMA_ARG_FIT_TARGET in bytes
    spread: bool = False  # OLLAMA_SCHED_SPREAD
    cpus: int = 0
    why_cpu: str = ""
    beside: tuple[Held, ...] = ()  # models that stay loaded
    notes: tuple[str, ...] = ()

    @property
    def devices(self) -> tuple[Device, ...]:
        return tuple(p.device for p in self.places)

    @property
    def device_bytes(self) -> int:
        """Free bytes of all devices as the driver says."""
        return sum(p.free for p in self.places)

    def kept(self, projector: int = 0) -> int:
        """Bytes that the engine leaves free on each device."""
        return margin(projector, self.target)

    def without(self, taken: Mapping[int, int], host: int = 0) -> Budget:
        """The same after a model took `taken[i]` bytes of place i (its context included) and `host` bytes."""
        places = []
        for i, place in enumerate(self.places):
            less = taken.get(i, 0)
            device = msgspec.structs.replace(place.device, free=max(0, place.device.free - less))
            places.append(msgspec.structs.replace(place, device=device, free=max(0, place.free - less)))
        return msgspec.structs.replace(self, places=tuple(places)).with_host(-host)

    def with_host(self, more: int) -> Budget:
        """The same with so many bytes of host memory more, or less."""
        free, seen = (None if n is None else max(0, n + more) for n in (self.host_free, self.unlimited))
        return msgspec.structs.replace(self, host_free=free, unlimited=seen)


def budget(
    facts: Facts,
    values: Mapping[str, str | None],
    *,
    stay: Iterable[Held] = (),
    leave: Iterable[Held] = (),
    context: Mapping[str, int] | None = None,
    gpu_free: tuple[int, ...] | None = None,
) -> Budget:
    """What a model may use. Models of `leave` are ended first, those of `stay` are not. `context`: bytes of the
    driver's context by kind of device, where loads of this host have shown them. `gpu_free`: devices to assume."""
    stay, leave = tuple(stay), tuple(leave)
    taken = {**CONTEXT, **(context or {})}
    notes: list[str] = []
    why = ""
    if gpu_free is not None:
        places = _assumed(facts, gpu_free, taken)
        why = "as --gpu-free 0 says"
    else:
        places, why = _found(facts, values, stay, leave, taken)
    places = _one_library(places, notes)
    release, _ = release_of(facts)
    host_free = unlimited = _host_free(facts)
    if host_free is not None:
        host_free = unlimited = host_free + sum(h.host for h in leave)
        limit = facts.service.memory_max if facts.service else None
        if limit is not None and limit < host_free:
            host_free = limit
            notes.append(f"MemoryMax= of {facts.service.id if facts.service else 'the unit'} limits its memory")
    if any(p.device.unified for p in places) and host_free is not None:
        places = tuple(_unified(p, host_free) if p.device.unified else p for p in places)
    return Budget(
        places=places,
        host_free=host_free,
        unlimited=unlimited,
        target=_target(values, notes) if release >= LLAMA_SERVER else _minimum(values, places),
        spread=bool(truth(values, "OLLAMA_SCHED_SPREAD")),
        cpus=facts.system.cpus if facts.system else 0,
        why_cpu="" if places else why,
        beside=stay,
        notes=tuple(notes),
    )


def _host_free(facts: Facts) -> int | None:
    """Host memory that is available, or what the server saw at its start where nothing was asked."""
    if facts.memory is not None:
        return facts.memory.available
    seen = [c.available for c in (facts.start.computes if facts.start else ()) if c.library.lower() == "cpu"]
    return seen[0] if seen else None


def _minimum(values: Mapping[str, str | None], places: tuple[Place, ...]) -> int:
    """What releases before 0.30 keep free of each device: for the driver's context, and OLLAMA_GPU_OVERHEAD."""
    least = max((MINIMUM.get(p.device.kind, 0) - p.context for p in places), default=0)
    return max(0, least) + (number(values, "OLLAMA_GPU_OVERHEAD") or 0)


def _target(values: Mapping[str, str | None], notes: list[str]) -> int | None:
    text = (values.get("LLAMA_ARG_FIT_TARGET") or "").split(",")[0].strip()
    if not text:
        return None
    if not re.fullmatch(r"\d{1,9}", text):
        notes.append(f"LLAMA_ARG_FIT_TARGET={text} is no number of MiB")
        return None
    return int(text) * MiB


def _kind(library: str) -> str:
    low = library.lower()
    return next((k for k in ("cuda", "rocm", "vulkan", "metal") if low.startswith(k)), "rocm" if "hip" in low else low)


def _place(
    at: int, label: str, kind: str, free: int, total: int, gpu: Gpu | None, where: int | None,
    context: Mapping[str, int],
) -> Place:  # fmt: skip
    less = context.get(kind, 0)
    device = Device(
        name=f"{kind.upper() if kind == 'cuda' else kind.capitalize()}{at}",
        kind=kind,
        free=max(0, free - less),
        total=total,
        unified=bool(gpu and gpu.unified),
    )
    return Place(device=device, label=label, free=free, context=less, gpu=where, discrete=not (gpu and gpu.unified))


def _unified(place: Place, host_free: int) -> Place:
    free = min(place.free, host_free) if place.free else host_free
    device = msgspec.structs.replace(place.device, free=max(0, free - place.context))
    return msgspec.structs.replace(place, free=free, device=device)


def _assumed(facts: Facts, sizes: tuple[int, ...], context: Mapping[str, int]) -> tuple[Place, ...]:
    gpus = facts.gpus or ()
    found = []
    for at, size in enumerate(s for s in sizes if s):
        gpu = gpus[at] if at < len(gpus) else None
        kind = _VENDOR_KIND[gpu.vendor] if gpu else "cuda"
        total = max(size, (gpu.total or 0) if gpu else 0)
        label = gpu.name if gpu and gpu.name else "assumed GPU"
        found.append(_place(at, label, kind, size, total, None, None, context))
    return tuple(found)


def _found(
    facts: Facts, values: Mapping[str, str | None], stay: tuple[Held, ...], leave: tuple[Held, ...],
    context: Mapping[str, int],
) -> tuple[tuple[Place, ...], str]:  # fmt: skip
    """The devices that the running server found at its start; those of the driver where no server tells."""
    computes = facts.start.computes if facts.start else ()
    gpus = facts.gpus or ()
    pairs: list[tuple[str, str, Compute | None, int | None]] = []
    why = "this host has no GPU"
    if computes:
        usable = [c for c in computes if c.library.lower() not in ("cpu", "") and c.id != "cpu"]
        seen: set[int] = set()
        for c in usable:
            where = _gpu_of(c, gpus, seen)
            if where is not None:
                seen.add(where)
            pairs.append((_kind(c.library), c.description or c.name, c, where))
        if gpus and not usable:
            why = f"Ollama found no usable GPU at its start, though {len(gpus)} could be seen"
    else:
        hidden = 0
        for where, seen_gpu in enumerate(gpus):
            if not _visible(seen_gpu, values) or not (seen_gpu.total or seen_gpu.unified):
                hidden += 1
                continue
            pairs.append((_VENDOR_KIND[seen_gpu.vendor], seen_gpu.name, None, where))
        if facts.gpus is None:
            why = "no GPU is known of it; --gpu-free SIZE says what there is"
        elif hidden:
            why = "no GPU of this host is one that Ollama uses"
    found = []
    for at, (kind, label, compute, where) in enumerate(pairs):
        gpu: Gpu | None = gpus[where] if where is not None else None
        total = (gpu.total if gpu else None) or (compute.total if compute else None) or 0
        free = gpu.free if gpu and gpu.free is not None else None
        if free is not None:
            free += sum(_part(h, where, len(pairs)) for h in leave)
        else:  # what the server saw before any model was loaded
            free = (compute.available if compute else None) or 0
            free -= sum(_part(h, where, len(pairs)) for h in stay)
        found.append(_place(at, label, kind, max(0, min(free, total or free)), total, gpu, where, context))
    return tuple(found), why


def _part(held: Held, where: int | None, devices: int) -> int:
    unknown = held.gpus.get(-1, 0) // devices
    return unknown + (held.gpus.get(where, 0) if where is not None else 0)


def _gpu_of(compute: Compute, gpus: tuple[Gpu, ...], seen: set[int]) -> int | None:
    """The driver's device of an `inference compute` line: by its id, its PCI address, else the next of its maker."""
    free = [(i, g) for i, g in enumerate(gpus) if i not in seen]
    for i, g in free:
        if g.uuid and g.uuid == compute.id:
            return i
    for i, g in free:
        if g.pci and g.pci[-10:] in compute.text.lower():
            return i
    kind = _kind(compute.library)
    return next((i for i, g in free if _VENDOR_KIND[g.vendor] == kind or kind == "vulkan"), None)


def _visible(gpu: Gpu, values: Mapping[str, str | None]) -> bool:
    """Whether Ollama would use a device, as far as variables and kind tell."""
    if gpu.unified and gpu.vendor in ("amd", "intel") and not values.get("OLLAMA_IGPU_ENABLE"):
        return False
    names = {"nvidia": ("CUDA_VISIBLE_DEVICES",), "amd": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")}
    for name in names.get(gpu.vendor, ("GGML_VK_VISIBLE_DEVICES",)):
        chosen = values.get(name)
        if chosen is not None and chosen.strip():
            items = [item.strip() for item in chosen.split(",")]
            if str(gpu.index) not in items and not any(item and gpu.uuid.startswith(item) for item in items):
                return False
    return True


def _one_library(places: tuple[Place, ...], notes: list[str]) -> tuple[Place, ...]:
    """Ollama gives a model devices of one library only: the group with the most free memory."""
    groups: dict[str, list[Place]] = {}
    for place in places:
        groups.setdefault(place.device.kind, []).append(place)
    if len(groups) < 2:
        return places
    best = max(groups.values(), key=lambda group: sum(p.free for p in group))
    others = ", ".join(p.label for p in places if p not in best)
    notes.append(f"a model is not spread over devices of two libraries; not counted: {others}")
    return tuple(best)
