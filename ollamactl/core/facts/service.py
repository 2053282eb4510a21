"""The service as its manager has it: unit, files, complaints."""

from __future__ import annotations

from typing import Literal

from ollamactl.core.facts.record import Record
from ollamactl.core.source import Missing


class UnitName(Record, frozen=True, kw_only=True):
    name: str
    load: str = ""
    active: str = ""
    sub: str = ""
    description: str = ""
    pid: int = 0
    restarts: int = 0  # by systemd, since somebody started it
    environment: tuple[str, ...] = ()  # NAME=value of its Environment= lines


class Slice(Record, frozen=True, kw_only=True):
    """Limits of a slice, which hold for all that runs in it together; None for none. `cpus` is a number of CPUs."""

    name: str
    memory_max: int | None = None
    memory_high: int | None = None
    cpus: float | None = None


class Service(Record, frozen=True, kw_only=True):
    """`systemctl show` of one unit, typed. Lists are in systemd's order."""

    id: str
    load_state: str = ""
    active_state: str = ""
    sub_state: str = ""
    unit_file_state: str = ""
    fragment_path: str = ""
    source_path: str = ""
    dropin_paths: tuple[str, ...] = ()
    need_daemon_reload: bool = False
    invocation_id: str = ""
    main_pid: int = 0
    n_restarts: int = 0
    result: str = ""
    frozen: bool = False  # all its processes are halted
    exec_main_code: int = 0
    exec_main_status: int = 0
    exec_main_start: float | None = None  # seconds since the epoch
    active_enter: float | None = None
    type: str = ""
    restart: str = ""
    restart_seconds: float | None = None
    environment: tuple[str, ...] = ()  # NAME=value after unquoting; only Environment= lines
    environment_files: tuple[tuple[str, bool], ...] = ()  # (path or glob, missing is allowed)
    pass_environment: tuple[str, ...] = ()
    unset_environment: tuple[str, ...] = ()
    exec_start: tuple[str, ...] = ()  # argv
    exec_start_pre: tuple[str, ...] = ()
    user: str = ""
    group: str = ""
    supplementary_groups: tuple[str, ...] = ()
    working_directory: str = ""
    standard_output: str = ""  # journal, append:/path, …
    standard_error: str = ""
    log_namespace: str = ""
    log_level_max: str = ""  # by name (warning) or number; empty or -1: all is kept
    runtime_max: float | None = None  # seconds after which systemd ends it; inf for never
    private_network: bool = False
    network_namespace_path: str = ""
    protect_home: str = ""
    protect_system: str = ""
    private_devices: bool = False
    device_policy: str = ""
    device_allow: tuple[str, ...] = ()
    memory_max: int | None = None
    memory_high: int | None = None
    memory_current: int | None = None
    control_group: str = ""
    start_limit_burst: int | None = None
    start_limit_interval: float | None = None
    load_error: str = ""
    can_reload: bool = False
    drop_in_dirs_checked: tuple[str, ...] = ()
    manager: Literal["system", "user", "launchd", "compose"] = "system"
    way: str = ""  # where systemd does not run it: Launch.kind
    label: str = ""  # the launchd job that runs it now
    domain: str = ""  # gui/501, system
    log_path: str = ""  # the file that it prints to
    restart_commands: tuple[str, ...] = ()  # what a person types there to start it anew
    managed: dict[str, str | None] | None = None  # what our file wants there; None for a variable kept absent


class Assignment(Record, frozen=True, kw_only=True):
    """One `key=value` of a unit file. `value` has continuations joined; nothing is unquoted or expanded."""

    section: str
    key: str
    value: str
    line: int  # of its first line, from 1


class UnitProblem(Record, frozen=True, kw_only=True):
    """A line that systemd ignores or reads in a way its author can't have meant."""

    line: int
    text: str
    why: str  # e.g. "assignment outside of section"


class UnitFile(Record, frozen=True, kw_only=True):
    path: str
    role: Literal["main", "dropin"] = "dropin"
    assignments: tuple[Assignment, ...] = ()
    problems: tuple[UnitProblem, ...] = ()
    missing: Missing | None = None
    mtime: float | None = None
    text: str = ""  # as read, for evidence and diffs


class EnvFileEntry(Record, frozen=True, kw_only=True):
    name: str
    value: str
    line: int


class EnvFile(Record, frozen=True, kw_only=True):
    """One file read because of an `EnvironmentFile=` line."""

    path: str
    declared_in: str = ""  # unit file
    declared_line: int = 0
    optional: bool = False
    entries: tuple[EnvFileEntry, ...] = ()
    problems: tuple[UnitProblem, ...] = ()
    missing: Missing | None = None


class Complaint(Record, frozen=True, kw_only=True):
    """A line of PID 1 about a unit or one of its files."""

    text: str
    file: str = ""
    line: int | None = None
    at: float | None = None


class Stray(Record, frozen=True, kw_only=True):
    """A variable of Ollama in a file that the service does not read."""

    name: str
    value: str
    path: str
    line: int = 0
    text: str = ""
    kind: str  # unit (beside its drop-ins), user-unit, manager (DefaultEnvironment=), env-file, shell
