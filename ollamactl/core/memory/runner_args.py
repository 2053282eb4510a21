"""What Ollama starts its runner with, and why: -c, -np, -b and the cache type, from settings, model and devices.

Sources: Ollama's server/routes.go (default context), server/sched.go (slots, batch), llm/llama_server.go (arguments).
"""

from __future__ import annotations

import msgspec

from ollamactl.core.memory import eras
from ollamactl.core.memory.eras import LLAMA_SERVER, Era
from ollamactl.core.memory.model import Hyper
from ollamactl.core.memory.request import Device, FlashAttention, Request
from ollamactl.core.memory.shape import CLASSIC, CURRENT, NEWEST

GiB = 1 << 30
MiB = 1 << 20
Release = tuple[int, int, int]

# Families for which Ollama forces one slot, by the release that began it (server/sched.go).
ONE_SLOT: dict[str, Release] = {
    "mllama": (0, 4, 1),
    "qwen3vl": (0, 12, 7), "qwen3vlmoe": (0, 12, 7),
    "qwen3next": (0, 15, 5), "lfm2": (0, 15, 5), "lfm2moe": (0, 15, 5),
    "qwen35": (0, 17, 1), "qwen35moe": (0, 17, 1),
    "nemotron_h": (0, 17, 1), "nemotron_h_moe": (0, 17, 1), "nemotron_h_omni": (0, 22, 0),
}  # fmt: skip
_TIERS = ((47 * GiB, 262_144), (23 * GiB, 32_768))


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What is set. None: not set, so Ollama's default counts. `num_ctx`, `num_batch`: of the model or the request."""

    parallel: int | None = None
    context_length: int | None = None
    kv_cache_type: str = ""
    flash_attention: bool | None = None
    gpu_overhead: int = 0  # bytes
    num_ctx: int | None = None
    num_batch: int | None = None
    release: Release = (0, 33, 0)
    vision: bool = False


class RunnerArgs(msgspec.Struct, frozen=True):
    """The runner's numbers and the reasons for each that is not simply what was set. `context` is a slot's."""

    context: int
    slots: int
    batch: int
    kv_cache_type: str
    flash_attention: FlashAttention
    engine: str
    reasons: tuple[str, ...]
    era: Era | None = None  # of a release before 0.30

    @property
    def total_context(self) -> int:
        """What -c says."""
        return self.context * self.slots

    @property
    def told(self) -> str:
        """The numbers as the runner is told them: its arguments, or the fields of a load request."""
        kind = "" if self.kv_cache_type == "f16" else self.kv_cache_type
        if self.era is None:
            said = f"-c {self.total_context} -np {self.slots} -b {self.batch} -ub {self.batch}"
            said += f" --flash-attn {self.flash_attention}"
            return said + (f" --cache-type-k {kind} --cache-type-v {kind}" if kind else "")
        if self.era.by_request:
            said = f"KvSize:{self.total_context} Parallel:{self.slots} BatchSize:{self.batch}"
            return said + (f" KvCacheType:{kind}" if kind else "") + f", flash attention {self.flash_attention}"
        said = f"--ctx-size {self.total_context} --parallel {self.slots} --batch-size {self.batch}"
        said += " --flash-attn" if self.flash_attention == "on" else ""
        return said + (f" --kv-cache-type {kind}" if kind else "")

    def request(self, *, projector: int = 0) -> Request:
        """The same as a request to the memory model."""
        return Request(
            context=self.context, slots=self.slots, type_k=self.kv_cache_type, type_v=self.kv_cache_type,
            flash_attention=self.flash_attention, batch=self.batch, engine=self.engine, projector=projector,
            era=self.era,
        )  # fmt: skip


def engine_class(release: Release, build: int | None = None) -> str:
    """Class of engine of an Ollama release, or of a llama.cpp build where that is known."""
    if build is not None:
        return NEWEST if build >= 11_000 else CURRENT
    return CURRENT if release >= LLAMA_SERVER else CLASSIC


def default_context(devices: tuple[Device, ...], release: Release, overhead: int = 0) -> tuple[int, str]:
    """Default context of a release, and why. Total memory of all devices counts, free memory does not."""
    if release < (0, 6, 7):
        return 2048, "the default of this release"
    if release < (0, 15, 5):
        return 4096, "the default of this release"
    total = sum(max(d.total - overhead, 0) for d in devices)
    for least, context in _TIERS:
        if total >= least:
            return context, f"the devices have {total / GiB:.1f} GiB in all, {least // GiB} or more"
    return 4096, f"the devices have {total / GiB:.1f} GiB in all, less than 23" if devices else "there is no GPU"


def default_slots(release: Release) -> int:
    """Default of OLLAMA_NUM_PARALLEL."""
    if release >= (0, 10, 0) or release < (0, 2, 0):
        return 1
    return 2 if release >= (0, 6, 7) else 4


def slots_asked(settings: Settings) -> int:
    """Slots that are set or the default. Releases 0.2 to 0.9 take 0 as not set, later ones as 1."""
    chosen = settings.parallel
    if chosen is None or (not chosen and settings.release < (0, 10, 0)):
        return default_slots(settings.release)
    return max(1, chosen)


def runner_args(
    hyper: Hyper, settings: Settings, devices: tuple[Device, ...], *, available: int | None = None
) -> RunnerArgs:
    """What Ollama starts the runner with. `available`: bytes that its batch rule sees (default: all free memory)."""
    reasons: list[str] = []
    slots = _slots(hyper, settings, reasons)
    context = _context(hyper, settings, devices, reasons)
    kind = settings.kv_cache_type.lower() or "f16"
    flash = _flash(hyper, settings)
    if settings.release < LLAMA_SERVER and kind != "f16":
        kind = _cache_type(kind, flash, settings.release, reasons)
    batch = _batch(hyper, settings, context, slots, devices, available, flash, reasons)
    era = eras.era(hyper.architecture, settings.release, flash=flash != "off")
    return RunnerArgs(context, slots, batch, kind, flash, engine_class(settings.release), tuple(reasons), era)


def _flash(hyper: Hyper, settings: Settings) -> FlashAttention:
    chosen = settings.flash_attention
    if settings.release < LLAMA_SERVER:
        return eras.flash_attention(hyper, settings.release, chosen)
    return "auto" if chosen is None else "on" if chosen else "off"


def _cache_type(kind: str, flash: FlashAttention, release: Release, reasons: list[str]) -> str:
    """The cache type of a release before 0.30, which drops in silence what it does not take."""
    if release < (0, 5, 0):
        why = "releases before 0.5.0 know no other"
    elif kind not in ("q8_0", "q4_0"):
        why = f"this release does not know {kind}"
    elif flash == "off":
        why = f"this release takes {kind} only with flash attention, which is off here (OLLAMA_FLASH_ATTENTION=1)"
    else:
        return kind
    reasons.append(f"cache f16: {why}")
    return "f16"


def _slots(hyper: Hyper, settings: Settings, reasons: list[str]) -> int:
    slots = slots_asked(settings)
    if hyper.is_embedding and settings.release >= (0, 3, 7):
        if slots > 1:
            reasons.append("one slot: Ollama gives embedding models one, without a warning")
        return 1
    since = ONE_SLOT.get(hyper.architecture)
    if since is not None and settings.release >= since:
        if slots > 1:
            reasons.append(f"one slot: Ollama forces it for the family {hyper.architecture}")
        return 1
    if not settings.parallel:
        otherwise = ", or 1 where they would not fit" if slots > 1 else ""
        reasons.append(f"{slots} slot{'s' if slots > 1 else ''}: the default of this release{otherwise}")
    return slots


def _context(hyper: Hyper, settings: Settings, devices: tuple[Device, ...], reasons: list[str]) -> int:
    if settings.num_ctx:
        context = settings.num_ctx
        reasons.append(f"context {context}: num_ctx of the model or the request goes before OLLAMA_CONTEXT_LENGTH")
    elif settings.context_length:
        context = settings.context_length
    else:
        context, why = default_context(devices, settings.release, settings.gpu_overhead)
        reasons.append(f"context {context}: {why}")
    least = 2048 if settings.vision else 4
    if context < least:
        reasons.append(f"context {least} instead of {context}: the least that Ollama takes")
        context = least
    if 0 < hyper.trained_context < context:
        reasons.append(f"context {hyper.trained_context} instead of {context}: the model was trained for no more")
        context = hyper.trained_context
    return context


def _batch(
    hyper: Hyper,
    settings: Settings,
    context: int,
    slots: int,
    devices: tuple[Device, ...],
    available: int | None,
    flash: FlashAttention,
    reasons: list[str],
) -> int:
    if settings.num_batch:
        return settings.num_batch
    if settings.release < LLAMA_SERVER:
        return 512
    if hyper.is_embedding:
        return min(2048, context)
    total = context * slots
    if flash == "off" and any(d.kind == "cuda" for d in devices):
        return 256 if context > 4096 and any(d.total <= 8 * GiB for d in devices) else 512
    wanted = 2048 if total > 32_768 else 1024 if total > 4096 else 512
    room = available if available is not None else sum(d.free for d in devices) or None
    batch = wanted
    while batch > 512 and room is not None and not _affordable(hyper, total, batch, room):
        batch //= 2
    if batch == wanted > 512:
        reasons.append(f"batch {batch}: {total} tokens of context in all")
    if batch < wanted:
        reasons.append(f"batch {batch} instead of {wanted}: memory is short")
    return batch


def _affordable(hyper: Hyper, total: int, batch: int, room: int) -> bool:
    """Ollama's own guess (file and a plain f16 cache) against its shares of the memory (server/sched.go)."""
    guess = hyper.file_size + plain_cache(hyper, total)
    share, surcharge = (0.60, 2 * GiB) if batch == 2048 else (0.75, 768 * MiB)
    return guess <= share * room and guess + surcharge <= 0.80 * room


def plain_cache(hyper: Hyper, total: int) -> int:
    """The plain formula of guides and Ollama's pre-flight: 2 * layers * KV heads * head size * context * 2 bytes."""
    heads = hyper.heads or 1
    kv = [layer.kv_heads for layer in hyper.layers if layer.kv_heads]
    return 2 * len(hyper.layers) * (min(kv) if kv else heads) * (hyper.embedding // heads) * total * 2
