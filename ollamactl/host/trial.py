"""One load of a search for a number of slots: where it lies, and what was measured on it."""

from __future__ import annotations

import msgspec
import psutil

from ollamactl.core.facts import Facts, LoadedModel, Runner
from ollamactl.core.measure import Phase, Probe
from ollamactl.core.plan import Change
from ollamactl.core.sizing import Cell
from ollamactl.core.tune import Point, Try
from ollamactl.host.journal import Entry
from ollamactl.host.loads import Stored


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One load. `changes`: what was changed for it; `restarted`: the service was started anew; `error`: bytes held
    beyond the prediction; `cache`: bytes of caches and states. None where the log does not tell."""

    tried: Try
    why: str
    changes: tuple[Change, ...] = ()
    restarted: bool = False
    predicted: int = 0
    error: int | None = None
    cache: int | None = None
    probe: Probe | None = None


def missing(cell: Cell, loaded: LoadedModel | None, runner: Runner | None, facts: Facts, entry: Entry) -> str:
    """Why a load is not wholly where it should be; empty where it is."""
    if loaded is None or runner is None:
        return "its runner can't be seen"
    if cell.places and loaded.size_vram < loaded.size:
        return f"only {100 * loaded.size_vram // loaded.size}% of it is on the GPU"
    if not cell.places:
        try:
            swapped = psutil.Process(runner.process.pid).memory_full_info().swap
        except (psutil.Error, AttributeError):
            swapped = 0
        if swapped:
            return f"{swapped >> 20} MiB of it are in swap"
    now = {m.name: m for m in facts.loaded or ()}
    for model in entry.models:
        if model.name == loaded.name:
            continue
        there = now.get(model.name)
        if there is None:
            return f"{model.name} had to make room for it"
        if model.size and model.size_vram >= model.size and there.size_vram < there.size:
            return f"it pushes {model.name} off the GPU"
    return ""


def cache_of(stored: Stored) -> int:
    return sum(side.get("kv", 0) + side.get("rs", 0) for side in stored.buffers.values())


def point(phase: Phase) -> Point:
    s = phase.summary
    done = s.counts.get("served", 0) + s.counts.get("queued", 0)
    first = s.first_token
    return Point(
        at_once=phase.clients,
        first_token=None if first is None else first.p95 if first.p95 is not None else first.max,
        rate=s.rate.p50 if s.rate else None,
        total_rate=s.total_rate,
        failed=s.sent - done - s.counts.get("cut", 0),
        cut=is_cut(phase),
    )


def is_cut(phase: Phase) -> bool:
    """Whether the time limit ended it."""
    return bool(phase.summary.counts.get("cut"))
