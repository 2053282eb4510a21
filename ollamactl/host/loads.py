"""Verified loads of this host: what was predicted for each and what it took, so that later plans can say how far off
they may be. `/var/lib/ollamactl/loads.jsonl`, one load a line, 0600, the newest LIMIT of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec

from ollamactl.core.facts import Buffer, Facts, Load, Runner
from ollamactl.core.memory.layout import HOST
from ollamactl.core.memory.terms import Term
from ollamactl.core.sizing import Cell, Model
from ollamactl.host import files
from ollamactl.host.journal import FOLDER

NAME = "loads.jsonl"
LIMIT = 200
_BYTES = 4 << 20
_KINDS = {
    "weights": "model", "cache": "kv", "window cache": "kv", "indexer cache": "kv", "recurrent": "rs",
    "compute": "compute", "output": "output",
}  # fmt: skip


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """One load. `predicted` and `buffers`: bytes by kind of buffer, on the devices and on the host; `rss`: of the
    runner's process; `driver`: its bytes in the driver's words; `context`: the part of them in no buffer."""

    schema: int = 1
    at: float
    unit: str = ""
    release: str = ""
    engine: str = ""
    model: str = ""
    digest: str = ""
    architecture: str = ""
    context_length: int = 0
    slots: int = 0
    batch: int = 0
    kv_type: str = ""
    flash_attention: str = ""
    device: str = ""  # kind of device, empty for CPU only
    predicted: dict[str, dict[str, int]]  # "device" | "host" -> kind -> bytes
    buffers: dict[str, dict[str, int]]
    band: int = 0  # bytes, above
    rss: int | None = None
    driver: int | None = None
    context: int | None = None

    @property
    def error(self) -> int:
        """Measured less predicted bytes: all buffers but weights in host memory, which are mapped and repacked there
        in ways of the processor's own."""

        def total(sums: dict[str, dict[str, int]]) -> int:
            host = sum(size for kind, size in sums.get("host", {}).items() if kind != "model")
            return sum(sums.get("device", {}).values()) + host

        return total(self.buffers) - total(self.predicted)


class Spread(msgspec.Struct, frozen=True):
    """What the stored loads say: how many there are of this kind, the largest error in bytes, and the driver's
    context by kind of device. `why`: why they could not be read."""

    count: int = 0
    error: int = 0
    context: dict[str, int] = {}
    why: str = ""


def on_host(device: str) -> bool:
    """Whether a buffer's device, as the engine names it, is host memory."""
    return device.startswith("CPU") or device.endswith("_Host") or device in ("BLAS", "AMX", "Host")


def summed_buffers(buffers: Iterable[Buffer]) -> dict[str, dict[str, int]]:
    sums: dict[str, dict[str, int]] = {}
    for buffer in buffers:
        if buffer.kind in ("projector", "other"):
            continue
        side = sums.setdefault("host" if on_host(buffer.device) else "device", {})
        side[buffer.kind] = side.get(buffer.kind, 0) + buffer.bytes
    return sums


def summed_terms(terms: Iterable[Term]) -> dict[str, dict[str, int]]:
    sums: dict[str, dict[str, int]] = {}
    for term in terms:
        kind = _KINDS.get(term.name)
        if kind is not None:
            side = sums.setdefault("host" if term.device == HOST else "device", {})
            side[kind] = side.get(kind, 0) + term.bytes
    return sums


def measured(model: Model, one: Cell, facts: Facts, runner: Runner, kind: str) -> Stored | None:
    """A load that was just verified, from the facts after it; None where the log has no complete buffers of it, or
    where it runs otherwise than was predicted. `kind`: of the devices, empty for CPU only."""
    logged = [x for x in (facts.start.loads if facts.start else ()) if x.port == runner.port and x.buffers]
    if not logged or not _whole(logged[-1]):
        return None
    if (runner.context_total, runner.slots) != (one.args.total_context, one.args.slots):
        return None
    if runner.batch not in (None, one.args.batch):
        return None
    buffers = summed_buffers(logged[-1].buffers)
    used = [p.used for g in facts.gpus or () for p in g.processes if p.pid == runner.process.pid and p.used]
    driver = sum(used) if used else None
    on_devices = sum(buffers.get("device", {}).values())
    return Stored(
        at=facts.taken or 0.0,
        unit=facts.service.id if facts.service else "",
        release=facts.version or "",
        engine=one.args.engine,
        model=model.name,
        digest=model.digest,
        architecture=model.hyper.architecture,
        context_length=one.args.context,
        slots=one.args.slots,
        batch=one.args.batch,
        kv_type=one.args.kv_cache_type,
        flash_attention=logged[-1].flash_attention_used or one.args.flash_attention,
        device=kind,
        predicted=summed_terms(one.fit.prediction.terms),
        buffers=buffers,
        band=one.band[1],
        rss=runner.process.rss,
        driver=driver,
        context=max(0, driver - on_devices) if driver is not None and on_devices else None,
    )


def _whole(load: Load) -> bool:
    kinds = {b.kind for b in load.buffers}
    return "compute" in kinds and bool(kinds & {"kv", "rs", "output"}) and load.outcome == "loaded"


def read(folder: str = FOLDER) -> tuple[tuple[Stored, ...], str]:
    """The stored loads, oldest first, and why there are none to read. Lines that are no loads are passed over."""
    path = os.path.join(folder, NAME)
    try:
        with open(path, "rb") as f:
            data = f.read(_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return (), ""
    except PermissionError:
        return (), "sudo shows them"
    except OSError as error:
        return (), f"{path}: {error.strerror}"
    found = []
    for line in data.splitlines():
        try:
            found.append(msgspec.json.decode(line, type=Stored))
        except msgspec.MsgspecError:
            continue
    return tuple(found), ""


def store(new: Iterable[Stored], folder: str = FOLDER) -> None:
    """Adds loads; the caller holds the lock of the folder. Raises OSError."""
    kept = [*read(folder)[0], *new][-LIMIT:]
    files.sweep(folder, NAME)
    files.write(os.path.join(folder, NAME), b"".join(msgspec.json.encode(x) + b"\n" for x in kept), 0o600)


def spread(loads: Iterable[Stored], engine: str, device: str, why: str = "") -> Spread:
    """What the loads of the same class of engine and kind of device say."""
    loads = tuple(loads)
    same = [x for x in loads if x.engine == engine and x.device == device][-50:]
    context: dict[str, int] = {}
    for kind in {x.device for x in loads if x.device}:
        seen = sorted(x.context for x in loads if x.device == kind and x.context is not None)
        if seen:
            context[kind] = seen[len(seen) // 2]
    return Spread(len(same), max((abs(x.error) for x in same), default=0), context, why)
