"""Everything known of one host at one moment: frozen records, JSON both ways.

A fact that could not be read is None, and `Facts.missing` holds the reason under the name of the field.
Bytes are int, durations and times are float seconds (times since the epoch), text is as read.
"""

from __future__ import annotations

import msgspec

from ollamactl.core.facts.environment import Effective, Origin, Variable
from ollamactl.core.facts.installs import Compose, Container, Install, Port, Way
from ollamactl.core.facts.log import Buffer, Compute, Load, Log, LogEvent, Request, RequestStats, Start
from ollamactl.core.facts.mac import AppSettings, Brew, BrewService, Launch, Session, UnifiedMemory
from ollamactl.core.facts.machine import Gpu, GpuDriver, GpuProcess, HostMemory, PathState, System
from ollamactl.core.facts.processes import Connections, Listener, Process
from ollamactl.core.facts.record import Evidence, Record
from ollamactl.core.facts.server import InstalledModel, LoadedModel, Runner, Slot
from ollamactl.core.facts.service import (
    Assignment,
    Complaint,
    EnvFile,
    EnvFileEntry,
    Service,
    Slice,
    Stray,
    UnitFile,
    UnitName,
    UnitProblem,
)
from ollamactl.core.facts.told import Told, ToldVariable
from ollamactl.core.source import Missing

__all__ = [
    "AppSettings",
    "Assignment",
    "Brew",
    "BrewService",
    "Buffer",
    "Complaint",
    "Compose",
    "Compute",
    "Connections",
    "Container",
    "Effective",
    "EnvFile",
    "EnvFileEntry",
    "Evidence",
    "Facts",
    "Gpu",
    "GpuDriver",
    "GpuProcess",
    "HostMemory",
    "Install",
    "InstalledModel",
    "Launch",
    "Listener",
    "Load",
    "LoadedModel",
    "Log",
    "LogEvent",
    "Missing",
    "Origin",
    "PathState",
    "Port",
    "Process",
    "Record",
    "Request",
    "RequestStats",
    "Runner",
    "Service",
    "Session",
    "Slice",
    "Slot",
    "Start",
    "Stray",
    "System",
    "Told",
    "ToldVariable",
    "UnifiedMemory",
    "UnitFile",
    "UnitName",
    "UnitProblem",
    "Variable",
    "Way",
]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """One host at one moment. Fields are None where not known; `missing[field]` says why."""

    schema: int = 1
    taken: float | None = None
    origin: str = "live"  # live, bundle:NAME, log:NAME
    missing: dict[str, Missing] = msgspec.field(default_factory=dict)
    system: System | None = None
    memory: HostMemory | None = None
    gpus: tuple[Gpu, ...] | None = None
    drivers: tuple[GpuDriver, ...] | None = None
    units: tuple[UnitName, ...] | None = None  # services that run `ollama serve`
    containers: tuple[Container, ...] | None = None  # those that run Ollama
    installs: tuple[Install, ...] | None = None  # every way in which Ollama runs or could here
    install: Install | None = None  # the one that is judged
    service: Service | None = None
    unit_files: tuple[UnitFile, ...] | None = None  # main unit, then drop-ins in systemd's order
    env_files: tuple[EnvFile, ...] | None = None
    manager_environment: dict[str, str] | None = None
    required: tuple[UnitName, ...] | None = None  # units without which systemd does not start it
    slices: tuple[Slice, ...] | None = None  # those with limits of their own that it runs in
    complaints: tuple[Complaint, ...] | None = None
    strays: tuple[Stray, ...] | None = None  # settings in files that the service does not read
    effective: Effective | None = None
    process: Process | None = None  # MainPID
    runners: tuple[Runner, ...] | None = None  # its children
    servers: tuple[Process, ...] | None = None  # every `ollama serve` on the host
    listeners: tuple[Listener, ...] | None = None
    connections: Connections | None = None
    log: Log | None = None
    start: Start | None = None  # the start that is judged: of the current invocation, or the log's last
    gpu_containers: tuple[str, ...] | None = None  # running containers that use a GPU
    address: str | None = None  # host:port that clients on this host use
    version: str | None = None
    loaded: tuple[LoadedModel, ...] | None = None
    installed: tuple[InstalledModel, ...] | None = None
    told: Told | None = None  # only of a pasted text
    launches: tuple[Launch, ...] | None = None  # macOS: how Ollama is started here
    session: Session | None = None
    brew: Brew | None = None
    brew_service: BrewService | None = None
    app_settings: AppSettings | None = None
    unified: UnifiedMemory | None = None
    kernel: tuple[LogEvent, ...] | None = None  # lines of the kernel that say something, of this boot
    user_log: tuple[LogEvent, ...] | None = None  # what users' own units that run Ollama said of late
    paths: dict[str, PathState] | None = None  # files and folders that checks look at, by path

    def why(self, field: str) -> Missing:
        """The reason why `field` is None."""
        return self.missing.get(field) or Missing("unasked", "not read")
