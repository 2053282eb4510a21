"""Everything known of one host at one moment: frozen records, JSON both ways.

A fact that could not be read is None, and `Facts.missing` holds the reason under the name of the field.
Bytes are int, durations and times are float seconds (times since the epoch), text is as read.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ollamactl.core.source import Missing


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all facts."""


class Evidence(Record, frozen=True, kw_only=True):
    """A line that a statement rests on. `where` is a file, `journal`, or the name of a command."""

    where: str
    text: str
    line: int | None = None
    at: float | None = None


# -- the machine --


class System(Record, frozen=True, kw_only=True):
    os: str  # linux, darwin, windows, or unknown
    kernel: str = ""
    arch: str = ""
    hostname: str = ""
    distribution: str = ""  # PRETTY_NAME
    init: str = ""  # systemd, launchd, openrc, …, none
    container: str = ""  # docker, podman, lxc, wsl, systemd-nspawn, or empty
    euid: int | None = None
    cpus: int = 0
    boot_id: str = ""


class HostMemory(Record, frozen=True, kw_only=True):
    total: int
    available: int
    swap_total: int = 0
    swap_free: int = 0


class GpuProcess(Record, frozen=True, kw_only=True):
    pid: int
    used: int | None = None  # None where the driver does not say
    name: str = ""


class Gpu(Record, frozen=True, kw_only=True):
    """One device that can hold a model, or one MIG slice. `total`/`free` are None where it is the host's."""

    index: int
    vendor: Literal["nvidia", "amd", "intel", "apple"]
    name: str = ""
    uuid: str = ""
    pci: str = ""
    total: int | None = None
    free: int | None = None
    used: int | None = None
    unified: bool = False  # shares the host's memory
    mig_of: int | None = None  # index of the parent GPU of a MIG slice
    compute: str = ""  # "8.9", "gfx1100"
    processes: tuple[GpuProcess, ...] = ()
    notes: tuple[str, ...] = ()


class GpuDriver(Record, frozen=True, kw_only=True):
    vendor: Literal["nvidia", "amd", "intel", "apple"]
    version: str = ""
    api: str = ""  # CUDA or ROCm version
    problem: str = ""  # why the library or driver does not work, as it says


# -- the service as systemd has it --


class UnitName(Record, frozen=True, kw_only=True):
    name: str
    load: str = ""
    active: str = ""
    sub: str = ""
    description: str = ""


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


class Launch(Record, frozen=True, kw_only=True):
    """One way in which Ollama is started on a Mac. `unit` is the name that it is asked for by."""

    unit: str
    kind: Literal["brew", "agent", "daemon", "app", "hand"]
    domain: str = ""  # gui/501, user/501 or system
    label: str = ""  # its own launchd job; empty for the app and for what was started by hand
    plist: str = ""  # of that job
    own_label: str = ""  # the job that stands in for it once we manage it
    own_file: str = ""  # our file: that job's plist, brew's environment file, or an agent that sets variables at login
    holds: Literal["plist", "brew-file", "session"] = "plist"  # what our file is
    managed: bool = False  # our file is there, with something of ours
    pid: int | None = None  # of `ollama serve`
    app: str = ""  # folder of Ollama.app
    app_pid: int | None = None
    program: tuple[str, ...] = ()  # the server's command
    log: str = ""


class Session(Record, frozen=True, kw_only=True):
    """Who asks on a Mac, and for whom: the user at the screen, whose session starts agents and apps. `uid` is None
    where nobody is logged in there."""

    euid: int
    uid: int | None = None
    user: str = ""
    home: str = ""
    config_home: str = ""  # XDG_CONFIG_HOME, which decides where brew looks for its files


class Brew(Record, frozen=True, kw_only=True):
    program: str
    version: str = ""
    prefix: str = ""
    reads_env_files: bool = False
    env_file: str = ""  # where it looks for variables of the service


class BrewService(Record, frozen=True, kw_only=True):
    """An entry of `brew services info --json`. `command` is made from the formula and the environment file as they are
    now; it is not what a running job has."""

    name: str = ""
    service_name: str = ""
    running: bool | None = None
    loaded: bool | None = None
    pid: int | None = None
    exit_code: int | None = None
    user: str | None = None
    status: str = ""  # started, stopped, none, error, other, …
    file: str | None = None
    registered: bool | None = None
    loaded_file: str | None = None
    command: str | None = None
    log_path: str | None = None


class AppSettings(Record, frozen=True, kw_only=True):
    """What Ollama.app's own settings put into its server's environment, whatever the session has."""

    path: str
    schema: int = 0
    variables: dict[str, str] = msgspec.field(default_factory=dict)


class UnifiedMemory(Record, frozen=True, kw_only=True):
    """Memory that GPU and programs of a Mac share. `working_set` is what Metal lets a program use of it."""

    total: int
    working_set: int
    source: str  # the setting that decides it, or `default`
    pressure: Literal["", "normal", "warning", "critical"] = ""
    swap_used: int = 0
    wired: int | None = None
    compressed: int | None = None


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


class Origin(Record, frozen=True, kw_only=True):
    """Where a variable's value comes from. `layer` is one of: manager, service (what systemd itself adds),
    pass, environment, environment-file, unset, wrapper; on a Mac also brew-file (brew's environment file) and app
    (Ollama.app's own settings)."""

    layer: str
    file: str = ""
    line: int = 0


class Variable(Record, frozen=True, kw_only=True):
    name: str
    value: str | None  # None: removed
    origin: Origin
    shadowed: tuple[tuple[str, Origin], ...] = ()  # earlier values that lost, oldest first


class Effective(Record, frozen=True, kw_only=True):
    """The environment that systemd will pass at the next start, computed in its order."""

    variables: dict[str, Variable]
    problems: tuple[str, ...] = ()  # what could not be computed, e.g. an unreadable environment file
    wrapper: tuple[str, ...] = ()  # programs in ExecStart before `ollama`

    def value(self, name: str) -> str | None:
        found = self.variables.get(name)
        return found.value if found else None


# -- what else runs Ollama --


class Compose(Record, frozen=True, kw_only=True):
    """Which compose project a container belongs to, from its labels."""

    project: str
    service: str
    folder: str = ""  # project.working_dir
    files: tuple[str, ...] = ()  # project.config_files, in the order in which they are merged
    hash: str = ""  # config-hash: of all that the container was made of


class Port(Record, frozen=True, kw_only=True):
    """A port of a container: `address` and `host` are empty and 0 where it is not published."""

    inside: int
    host: int = 0
    address: str = ""


class Container(Record, frozen=True, kw_only=True):
    """A container that runs Ollama, as `inspect` has it. `environment` is the image's and its own in one."""

    engine: Literal["docker", "podman"]
    id: str
    name: str
    image: str = ""
    status: str = ""  # created, running, paused, restarting, exited, dead
    pid: int = 0  # of its first process, as the host sees it
    started: str = ""  # RFC 3339, as printed
    exit_code: int = 0
    error: str = ""
    oom_killed: bool = False
    restarts: int = 0
    restart_policy: str = ""  # as --restart takes it
    environment: tuple[str, ...] = ()  # NAME=value
    command: tuple[str, ...] = ()  # entrypoint and its arguments
    ports: tuple[Port, ...] = ()
    network: str = ""  # bridge, host, PROJECT_default, …
    gpu: bool = False
    gpu_requests: tuple[str, ...] = ()  # what was asked for: all, 2, device=0, nvidia.com/gpu=all, /dev/kfd, …
    mounts: tuple[str, ...] = ()  # as -v takes them: volume or folder, where it is seen inside, and how
    options: tuple[str, ...] = ()  # what else `run` was given, in its own words
    networks: tuple[str, ...] = ()  # beside the first
    memory_max: int | None = None
    log_driver: str = ""
    compose: Compose | None = None
    unit: str = ""  # the systemd unit that podman's label names (quadlet)


Way = Literal[
    "unit", "user-unit", "snap", "nixos", "docker", "podman", "compose", "quadlet", "kubernetes", "lxc", "openrc",
    "runit", "hand", "app", "brew", "agent", "daemon",
]  # fmt: skip


class Install(Record, frozen=True, kw_only=True):
    """One way in which Ollama runs, or is set up to run, on this host. `name` is a unit, a container, a service of
    another init, or a command line."""

    way: Way
    name: str
    pid: int | None = None
    uid: int | None = None
    running: bool = False
    why: str = ""  # what shows it
    source: str = ""  # the .container file of a quadlet

    @property
    def key(self) -> str:
        """How it is named on a command line (`--unit`)."""
        return self.name if self.way in ("unit", "snap", "nixos") else f"{self.way}:{self.name}"


# -- processes and sockets --


class Process(Record, frozen=True, kw_only=True):
    pid: int
    ppid: int = 0
    comm: str = ""
    exe: str = ""
    argv: tuple[str, ...] = ()
    environ: dict[str, str] | None = None  # None: not readable (missing["environ"] or without root)
    started: float | None = None
    uid: int | None = None
    user: str = ""
    rss: int | None = None
    cgroup: str = ""
    state: str = ""
    net_ns: int | None = None  # inode of its network namespace


class Listener(Record, frozen=True, kw_only=True):
    address: str
    port: int
    pid: int | None = None
    name: str = ""


class Connections(Record, frozen=True, kw_only=True):
    """TCP connections accepted on the server's port, judged by tcp_info (inet_diag)."""

    port: int
    established: int = 0
    awaiting_reply: int = 0  # a request was received and no byte sent since
    replying: int = 0  # bytes sent within the last seconds: a stream under way
    close_wait: int = 0  # the client has gone away
    backlog: int = 0  # connections that the server has not accepted yet
    oldest_wait: float | None = None  # seconds since the last byte received on the longest waiting one


# -- the log --


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
    gap: str = ""  # why lines between its head and its tail were not read
    first_at: float | None = None
    last_at: float | None = None

    def start_of(self, invocation: str) -> Start | None:
        """The newest start of a systemd invocation, or None."""
        return next((s for s in reversed(self.starts) if invocation and s.invocation == invocation), None)


# -- the server and its runners --


class Slot(Record, frozen=True, kw_only=True):
    id: int
    context: int
    busy: bool


class Runner(Record, frozen=True, kw_only=True):
    """A child of the server that serves one model, from its process and its own port."""

    process: Process
    model: str = ""  # the file it serves
    name: str = ""  # the loaded model whose manifest names that file
    port: int | None = None
    port_owned: bool | None = None  # that process itself listens on the port; None: not readable
    context_total: int | None = None
    slots: int | None = None
    batch: int | None = None
    kv_type_k: str = ""
    kv_type_v: str = ""
    flash_attention: str = ""
    props_slots: int | None = None  # /props total_slots
    slot_list: tuple[Slot, ...] | None = None
    loading: bool = False  # it does not serve yet: its own API or the log says so


class LoadedModel(Record, frozen=True, kw_only=True):
    """An entry of /api/ps."""

    name: str
    digest: str = ""
    size: int = 0
    size_vram: int = 0
    context: int | None = None  # per slot; absent before 0.10
    expires: str = ""
    family: str = ""
    families: tuple[str, ...] = ()
    parameters: str = ""
    quantization: str = ""


class InstalledModel(Record, frozen=True, kw_only=True):
    name: str
    digest: str = ""
    size: int = 0
    family: str = ""
    parameters: str = ""
    quantization: str = ""
    capabilities: tuple[str, ...] = ()


class ToldVariable(Record, frozen=True, kw_only=True):
    """A variable that a pasted text sets outside of unit files: in a shell, `docker run -e`, a compose file, …"""

    name: str
    value: str
    scope: str  # shell, docker, compose, launchctl, plist, windows, snap, env
    where: str = ""
    line: int = 0
    text: str = ""


class Told(Record, frozen=True, kw_only=True):
    """What a pasted text holds beside log lines and unit files."""

    variables: tuple[ToldVariable, ...] = ()
    messages: tuple[LogEvent, ...] = ()  # of clients, tools and other programs; `kind` as in core/parse/told
    world: str = ""  # docker, snap, nixos, wsl, darwin, windows, or empty


class PathState(Record, frozen=True, kw_only=True):
    """What `stat` says of one path, or why it can't."""

    path: str
    type: str = ""  # file, dir, link, char, …
    mode: int = 0
    uid: int = -1
    gid: int = -1
    size: int = 0
    mtime: float = 0.0
    expected: int | None = None  # the size that a manifest names
    missing: Missing | None = None


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
    complaints: tuple[Complaint, ...] | None = None
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
    paths: dict[str, PathState] | None = None  # files and folders that checks look at, by path

    def why(self, field: str) -> Missing:
        """The reason why `field` is None."""
        return self.missing.get(field) or Missing("unasked", "not read")
