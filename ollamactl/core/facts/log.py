"""What a log tells, start by start."""

from __future__ import annotations

from typing import Literal

import msgspec

from ollamactl.core.facts.record import Evidence, Record
from ollamactl.core.facts.service import Complaint


class Buffer(Record, frozen=True, kw_only=True):
    """A memory buffer that the engine printed for one load."""

    kind: Literal["model", "kv", "rs", "compute", "output", "projector", "other"]
    device: str  # CPU, CUDA0, Metal, CUDA_Host, CPU_REPACK, …
    bytes: int
    text: str = ""
    swa: bool = False  # of the sliding-window cache


class Load(Record, frozen=True, kw_only=True):
    """One start of a runner for a model, as the log tells it. What a release does not print is None."""

    at: float | None = None
    model: str = ""  # blob path or name
    argv: tuple[str, ...] = ()  # the runner's command, if printed
    runner: str = ""  # llama-server, ollama runner --ollama-engine, …
    port: int | None = None
    context_total: int | None = None  # -c, --ctx-size, KvSize
    slots: int | None = None  # -np, --parallel, Parallel
    context: int | None = None  # per slot
    batch: int | None = None
    ubatch: int | None = None
    kv_type_k: str = ""
    kv_type_v: str = ""
    flash_attention: str = ""  # on, off, auto
    gpu_layers: int | None = None  # asked for
    offloaded: tuple[int, int] | None = None  # layers on the GPU, of
    buffers: tuple[Buffer, ...] = ()
    seconds: float | None = None  # until the runner answered
    outcome: Literal["loading", "loaded", "failed", "aborted"] = "loading"
    error: str = ""
    pid: int | None = None
    line: int | None = None
    text: str = ""
    architecture: str = ""  # as the engine names it: llama, gemma3, …
    trained_context: int | None = None  # n_ctx_train
    flash_attention_used: str = ""  # on or off, where the engine says what became of auto
    projector: str = ""  # --mmproj


class LogEvent(Record, frozen=True, kw_only=True):
    """A line that says something. `kind` is the name that core/parse/events gives it."""

    kind: str
    text: str
    at: float | None = None
    line: int | None = None
    pid: int | None = None
    level: str = ""
    fields: dict[str, str] = msgspec.field(default_factory=dict)


class RequestStats(Record, frozen=True, kw_only=True):
    """[GIN] lines (requests that have ended) of one path and status."""

    method: str
    path: str
    status: int
    count: int
    seconds_min: float
    seconds_max: float
    seconds_sum: float
    last_at: float | None = None
    first_line: int | None = None
    text: str = ""  # the last such line


class Request(Record, frozen=True, kw_only=True):
    """One request that has ended ([GIN] line). It began `seconds` before `at`."""

    method: str
    path: str
    status: int
    seconds: float
    at: float | None = None
    client: str = ""
    line: int | None = None


class Compute(Record, frozen=True, kw_only=True):
    """An `inference compute` line: a device that this start found."""

    id: str
    library: str = ""
    name: str = ""
    description: str = ""
    compute: str = ""
    driver: str = ""
    total: int | None = None
    available: int | None = None
    type: str = ""
    text: str = ""


class Start(Record, frozen=True, kw_only=True):
    """One start of the server, from its first line to the next start's first line."""

    invocation: str = ""
    pid: int | None = None
    at: float | None = None
    version: str = ""
    config: dict[str, str] | None = None  # `server config`, values as printed
    config_line: Evidence | None = None
    config_before_listening: bool = False
    listening: str = ""  # address:port as printed
    listening_line: Evidence | None = None
    computes: tuple[Compute, ...] = ()
    default_context: int | None = None  # by VRAM tier
    total_vram: int | None = None
    loads: tuple[Load, ...] = ()
    events: tuple[LogEvent, ...] = ()  # at most a few hundred of one kind
    counts: dict[str, int] = msgspec.field(default_factory=dict)  # kind of event -> how often, not bounded
    requests: tuple[RequestStats, ...] = ()
    recent: tuple[Request, ...] = ()  # the last few hundred that ran a model, oldest first
    failed: tuple[Request, ...] = ()  # the last few hundred with status 400 or above, oldest first
    first_line: int | None = None
    last_line: int | None = None
    ended: bool = False  # a later line shows that this process is gone


class Log(Record, frozen=True, kw_only=True):
    """All starts in one log, oldest first. `systemd` holds PID 1's lines about the unit."""

    form: str = ""  # journal-json, journal-text, docker, slog, mixed, …
    where: str = "journal"
    starts: tuple[Start, ...] = ()
    systemd: tuple[LogEvent, ...] = ()
    kernel: tuple[LogEvent, ...] = ()
    complaints: tuple[Complaint, ...] = ()  # of PID 1 about the unit's files
    lines: int = 0
    unread: int = 0  # lines that were cut, or not text
    suppressed: int = 0  # lines of the unit that journald dropped, since there were too many at once
    gap: str = ""  # why lines between its head and its tail were not read
    first_at: float | None = None
    last_at: float | None = None

    def start_of(self, invocation: str) -> Start | None:
        """The newest start of a systemd invocation, or None."""
        return next((s for s in reversed(self.starts) if invocation and s.invocation == invocation), None)
