"""Which source supplies which fact, through which parser.

A feed is a function of the collector; its name is the field of `Facts`. Feeds ask for one another, and each is
read once. A feed that can't know its fact raises `Unknown` with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

import msgspec

from ollamactl.core import environment, settings
from ollamactl.core.facts import (
    Complaint,
    Connections,
    Effective,
    EnvFile,
    Facts,
    Gpu,
    GpuDriver,
    HostMemory,
    InstalledModel,
    Listener,
    Load,
    LoadedModel,
    Log,
    Process,
    Runner,
    Service,
    Slot,
    Start,
    System,
    UnitFile,
    UnitName,
)
from ollamactl.core.govalues import address as split_address
from ollamactl.core.parse import (
    api,
    containers,
    envfile,
    environ,
    gpu,
    journal,
    log,
    runner,
    sockets,
    systemctl,
    unitfile,
)
from ollamactl.core.source import Host, Missing, Reading, Source, command, file, http, listing, native, stat

T = TypeVar("T")
Reader = Callable[[Source], Reading]

HEAD_BYTES = 512 << 10  # of the journal of one invocation: the lines of a start stand at its head
TAIL_LINES = 4000  # of it, for loads and requests
JOURNAL_FIELDS = (
    "MESSAGE,PRIORITY,_PID,_COMM,_SYSTEMD_UNIT,_SYSTEMD_INVOCATION_ID,UNIT,INVOCATION_ID,"
    "SYSLOG_IDENTIFIER,_TRANSPORT"
)


class Unknown(Exception):
    """A fact that can't be known, and why."""

    def __init__(self, missing: Missing) -> None:
        super().__init__(str(missing))
        self.missing = missing


class Collector:
    """Reads facts of one host on demand. `unit` is a full unit name, or empty: the only one that there is."""

    def __init__(self, host: Host, unit: str = "", *, whole_log: bool = False, lines: int = 0) -> None:
        self.host = host
        self.unit = unit
        self.whole_log = whole_log
        self.lines = lines  # the last so many of a whole log; 0 for all
        self.known: dict[str, Any] = {}
        self.missing: dict[str, Missing] = {}

    def read(self, source: Source) -> Reading:
        return self.host.read(source)

    def body(self, source: Source) -> bytes:
        """The body of a reading; raises Unknown with the reason why there is none."""
        reading = self.host.read(source)
        if reading.missing is not None:
            raise Unknown(reading.missing)
        return reading.body or b""

    def text(self, source: Source) -> str:
        return self.body(source).decode("utf-8", "surrogateescape")

    def record(self, source: Source, kind: type[T]) -> T:
        """A reading of JSON, as a record."""
        try:
            return msgspec.json.decode(self.body(source), type=kind)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise Unknown(Missing("unparsable", f"{source.key}: {error}")) from None

    def get(self, field: str) -> Any:
        """A fact, or None with `missing[field]` set."""
        if field in self.known:
            return self.known[field]
        if field in self.missing:
            return None
        try:
            self.known[field] = FEEDS[field](self)
        except Unknown as unknown:
            self.missing[field] = unknown.missing
            return None
        return self.known[field]

    def need(self, field: str) -> Any:
        """A fact that another stands on; raises Unknown with its reason."""
        found = self.get(field)
        if found is None:
            raise Unknown(self.missing[field])
        return found

    def facts(self, fields: Iterable[str], *, taken: float | None = None, origin: str = "live") -> Facts:
        wanted = list(fields)
        values = {field: self.get(field) for field in wanted}
        return Facts(
            taken=taken,
            origin=origin,
            missing={k: v for k, v in self.missing.items() if k in wanted},
            **values,
        )


Feed = Callable[[Collector], Any]
FEEDS: dict[str, Feed] = {}


def feed(function: Callable[[Collector], T]) -> Callable[[Collector], T]:
    FEEDS[function.__name__] = function
    return function


# -- the machine --


@feed
def system(c: Collector) -> System:
    return c.record(native("system"), System)


@feed
def memory(c: Collector) -> HostMemory:
    return c.record(native("memory"), HostMemory)


@feed
def gpus(c: Collector) -> tuple[Gpu, ...]:
    return gpu.devices(c.read)


@feed
def drivers(c: Collector) -> tuple[GpuDriver, ...]:
    return gpu.drivers(c.read)


# -- the service --


def _is_server(argv: Iterable[str]) -> bool:
    return re.search(r"ollama(-[\w.]+)?\S*\s+(\S+\s+)*serve\b|ollama-serve", " ".join(argv)) is not None


@feed
def units(c: Collector) -> tuple[UnitName, ...]:
    """Every unit that runs `ollama serve`: by the name of its file, and by the cgroup of a running server, which
    also shows instances, transient units and those with other names."""
    files = c.text(command("systemctl", "list-unit-files", "--no-legend", "--full", "--type=service", "ollama*"))
    names = [line.split()[0] for line in files.splitlines() if line.split()]
    for process in c.get("servers") or ():
        if found := re.search(r"/([^/]+\.service)(/|$)", process.cgroup):
            names.append(found[1])
    names = [n for n in dict.fromkeys(names) if n.endswith(".service") and not n.endswith("@.service")]
    if not names:
        return ()
    properties = "--property=Id,LoadState,ActiveState,SubState,Description,ExecStart"
    shown = c.read(command("systemctl", "show", properties, *names, any_exit=True))
    running: dict[str, UnitName] = {}
    for block in shown.text.split("\n\n"):
        has = systemctl.parse_show(block)
        argv = has.exec_start
        if has.id and (_is_server(argv) or (has.load_state == "masked" and has.id == "ollama.service")):
            running[has.id] = UnitName(name=has.id, load=has.load_state, active=has.active_state, sub=has.sub_state)
    return tuple(running.values())


@feed
def unit(c: Collector) -> str:
    """The unit that is meant. Several and none named: unknown, with the list."""
    if c.unit:
        return c.unit if c.unit.endswith(".service") else f"{c.unit}.service"
    known: tuple[UnitName, ...] = c.need("units")
    found = [u.name for u in known if u.load != "not-found"]
    if not found:
        raise Unknown(Missing("absent", "no systemd unit runs `ollama serve`"))
    if len(found) > 1:
        raise Unknown(Missing("unasked", "several units run Ollama: " + ", ".join(found), "--unit NAME"))
    return found[0]


@feed
def service(c: Collector) -> Service:
    name = c.need("unit")
    shown = c.text(command(*systemctl.SHOW, name))
    found = systemctl.parse_show(shown)
    if found.load_state == "not-found":
        raise Unknown(Missing("absent", f"systemd knows no unit {name}"))
    return found


@feed
def unit_files(c: Collector) -> tuple[UnitFile, ...]:
    has = c.need("service")
    found = []
    for path in ([has.fragment_path] if has.fragment_path else []) + list(has.dropin_paths):
        role: Literal["main", "dropin"] = "main" if path == has.fragment_path else "dropin"
        reading = c.read(file(path))
        if reading.missing is not None:
            found.append(UnitFile(path=path, role=role, missing=reading.missing))
        else:
            parsed = unitfile.parse(path, reading.text, role)
            found.append(msgspec.structs.replace(parsed, text=reading.text, mtime=_mtime(c, path)))
    return tuple(found)


def _mtime(c: Collector, path: str) -> float | None:
    reading = c.read(stat(path))
    return msgspec.json.decode(reading.body)["mtime"] if reading.body and not reading.missing else None


@feed
def env_files(c: Collector) -> tuple[EnvFile, ...]:
    return read_env_files(c.need("service"), c.need("unit_files"), c.read)


def read_env_files(service: Service, files: tuple[UnitFile, ...], read: Reader) -> tuple[EnvFile, ...]:
    """The environment files that are in force with these unit files, in systemd's order."""
    letters = environment.context(service, environment.Extra())
    refs = environment.files_to_read(files, letters)

    def paths(pattern: str) -> list[str]:
        reading = read(listing(pattern))
        return [] if reading.missing else msgspec.json.decode(reading.body or b"[]", type=list[str])

    def one(ref: environment.EnvFileRef, path: str) -> EnvFile:
        reading = read(file(path))
        found = envfile.parse(
            reading.text, path, declared_in=ref.declared_in, declared_line=ref.declared_line, optional=ref.optional
        )
        return msgspec.structs.replace(found, missing=reading.missing) if reading.missing else found

    return environment.assemble(refs, paths, one)


@feed
def manager_environment(c: Collector) -> dict[str, str]:
    return systemctl.parse_show_environment(c.text(command("systemctl", "show-environment")))


@feed
def effective(c: Collector) -> Effective:
    return environment.effective(
        c.need("service"), c.need("unit_files"), c.need("env_files"), c.get("manager_environment"), c.need("extra")
    )


@feed
def extra(c: Collector) -> environment.Extra:
    """What else of the host decides the environment: PID 1's own variables, the user's home, specifiers."""
    has: Service = c.need("service")
    manager = c.read(file("/proc/1/environ"))
    letters = {}
    for letter, path in (("m", "/etc/machine-id"), ("b", "/proc/sys/kernel/random/boot_id")):
        reading = c.read(file(path))
        if reading.missing is None:
            letters[letter] = reading.text.strip().replace("-", "")
    if (host := c.get("system")) is not None and host.hostname:
        letters |= {"H": host.hostname, "l": host.hostname.partition(".")[0], "q": host.hostname, "v": host.kernel}
    home, shell = _account(c, has.user)
    return environment.Extra(
        manager_process=environ.parse(manager.body) if manager.body and not manager.missing else None,
        home=home,
        shell=shell,
        specifiers=letters,
    )


def _account(c: Collector, user: str) -> tuple[str | None, str | None]:
    """Home and shell of a user in /etc/passwd; None where it is not there (another user database has it)."""
    for line in c.read(file("/etc/passwd")).text.splitlines():
        fields = line.split(":")
        if user and len(fields) == 7 and user in (fields[0], fields[2]):
            return fields[5], fields[6]
    return None, None


@feed
def complaints(c: Collector) -> tuple[Complaint, ...]:
    name = c.need("unit")
    found = c.body(command("journalctl", "-o", "json", "--no-pager", "-q", "-b", "-n", "200",
                          "_PID=1", f"UNIT={name}", "PRIORITY=4", "+", "_PID=1", f"UNIT={name}",
                          "PRIORITY=3"))  # fmt: skip
    return journal.complaints(found)


# -- processes --


@feed
def servers(c: Collector) -> tuple[Process, ...]:
    return c.record(native("servers"), tuple[Process, ...])


@feed
def process(c: Collector) -> Process:
    has = c.need("service")
    if not has.main_pid:
        raise Unknown(Missing("absent", f"{has.id} is {has.active_state or 'not running'}: no process"))
    return c.record(native("process", str(has.main_pid)), Process)


@feed
def listeners(c: Collector) -> tuple[Listener, ...]:
    return c.record(native("listeners"), tuple[Listener, ...])


@feed
def connections(c: Collector) -> Connections:
    where = split_address(f"http://{c.need('address')}")
    if where is None:
        raise Unknown(Missing("unparsable", f"address {c.need('address')}"))
    args = [str(where[1])]
    if (has := c.get("process")) is not None:
        args.append(str(has.pid))
    return sockets.connections(c.body(native("sockets", *args)))


@feed
def runners(c: Collector) -> tuple[Runner, ...]:
    """Children of the server that serve a model. A runner's port is asked only if that child owns it."""
    parent = c.need("process")
    children = c.record(native("children", str(parent.pid)), tuple[Process, ...])
    listening = c.get("listeners")
    found: list[Runner] = []
    for child in children:
        args = runner.parse_argv(child.argv)
        if not args.loads:
            continue
        owners = [x for x in listening or () if x.port == args.port and x.pid is not None]
        owned = None if listening is None or not owners else any(x.pid == child.pid for x in owners)
        props, slots = _runner_api(c, args.port) if owned and args.port else (None, None)
        told = _load_of(c, args.port) if args.slots is None else None
        found.append(
            Runner(
                process=child,
                model=args.model,
                name=_model_name(c, args.model),
                port=args.port,
                port_owned=owned,
                context_total=told.context_total if told else args.context_total,
                slots=told.slots if told else args.slots,
                batch=told.batch if told else args.batch,
                kv_type_k=told.kv_type_k if told else args.kv_type_k,
                kv_type_v=told.kv_type_v if told else args.kv_type_v,
                flash_attention=told.flash_attention if told else args.flash_attention,
                props_slots=props,
                slot_list=slots,
            )
        )
    return tuple(found)


def _load_of(c: Collector, port: int | None) -> Load | None:
    """The log's account of a runner whose command line does not tell its slots (0.11.5 to 0.24)."""
    begun: Start | None = c.get("start")
    return next((x for x in reversed(begun.loads if begun else ()) if port and x.port == port), None)


def _model_name(c: Collector, path: str) -> str:
    """The loaded model that a file belongs to: the only one, or the one whose manifest names the file's digest."""
    loaded: tuple[LoadedModel, ...] = c.get("loaded") or ()
    folder, slash, blob = path.rpartition("/blobs/")
    found = [m.name for m in loaded if slash and blob.replace("-", ":", 1) in _layers(c, folder, m.name)]
    return found[0] if found else ""


def _layers(c: Collector, folder: str, name: str) -> tuple[str, ...]:
    """Digests of the model layers in a model's manifest; empty where it can't be read."""
    parts, tag = name.rpartition(":")[0].split("/"), name.rpartition(":")[2]
    full = [*("registry.ollama.ai", "library")[: max(0, 3 - len(parts))], *parts]
    return api.model_layers(c.read(file(f"{folder}/manifests/{'/'.join(full)}/{tag}", limit=1 << 20)).body or b"")


def _runner_api(c: Collector, port: int) -> tuple[int | None, tuple[Slot, ...] | None]:
    base = f"http://127.0.0.1:{port}"
    return api.props_slots(c.read(http(f"{base}/props"))), api.slots(c.read(http(f"{base}/slots")))


# -- the log --


def journal_args(service: Service) -> tuple[str, ...]:
    """`journalctl` with what every reading of this service's journal needs."""
    namespace = (f"--namespace={service.log_namespace}",) if service.log_namespace else ()
    return ("journalctl", "-o", "json", "--no-pager", "-q", f"--output-fields={JOURNAL_FIELDS}", *namespace)


def log_sources(
    service: Service, files: tuple[UnitFile, ...], *, whole: bool = False, last: int = 0
) -> tuple[Source, ...]:
    """Where the lines of the current invocation are: its head and its tail, or all of it. A file that the output
    goes to stands in the unit's files only: systemd's own property has no path."""
    for key in ("StandardOutput", "StandardError"):
        target = next((value for value, _, _ in reversed(unitfile.values(files, "Service", key))), "")
        kind, _, path = target.partition(":")
        if kind in ("append", "file", "truncate") and path:
            return (command("tail", "-c", str(HEAD_BYTES * 8), "--", path, limit=HEAD_BYTES * 8),)
    base = journal_args(service)
    if whole:
        lines = (f"_SYSTEMD_UNIT={service.id}", "+", "_PID=1", f"UNIT={service.id}")
        count = ("-n", str(last)) if last else ()
        return (command(*base, *count, *lines, timeout=60.0, limit=1 << 30),)
    mine = f"_SYSTEMD_INVOCATION_ID={service.invocation_id}"
    tail = command(*base, "-n", str(TAIL_LINES), mine, "+", "_PID=1", f"INVOCATION_ID={service.invocation_id}")
    return (command(*base, mine, limit=HEAD_BYTES), tail)


@feed
def log_(c: Collector) -> Log:
    has = c.need("service")
    if not has.invocation_id and not c.whole_log:
        raise Unknown(Missing("absent", f"{has.id} was not started since boot"))
    sources = log_sources(has, c.get("unit_files") or (), whole=c.whole_log, last=c.lines)
    if len(sources) == 1:
        where = "journal" if sources[0].args[0] == "journalctl" else sources[0].args[-1]
        return log.parse_log([c.body(sources[0])], where=where, unit=has.id)
    tail = c.body(sources[1])
    parsed = log.parse_log([tail], where="journal", unit=has.id)
    mine = parsed.start_of(has.invocation_id)
    if mine is None or mine.config is None or not mine.listening:
        head = c.body(sources[0])
        parsed = log.parse_log(journal.joined(head, tail), where="journal", unit=has.id)
    return parsed


FEEDS["log"] = FEEDS.pop("log_")


@feed
def start(c: Collector) -> Start:
    has: Service = c.need("service")
    lines: Log = c.need("log")
    mine = lines.start_of(has.invocation_id)
    if mine is None and lines.where != "journal":  # a file: nothing ties a line to the invocation but its time
        since = (has.exec_main_start or 0.0) - 1.0
        mine = next((s for s in reversed(lines.starts) if s.at is None or s.at >= since), None)
    if mine is None:
        raise Unknown(Missing("absent", f"no line of invocation {has.invocation_id[:8] or '-'} in the log"))
    return mine


@feed
def gpu_containers(c: Collector) -> tuple[str, ...]:
    """Running containers with a GPU, which a daemon-reload can take from them."""
    found: list[str] = []
    reasons: list[Missing] = []
    for engine in ("docker", "podman"):
        listed = c.read(command(engine, "ps", "-q", "--no-trunc", timeout=3.0))
        if listed.missing is not None:
            reasons.append(listed.missing)
        elif listed.text.split():
            found += containers.with_gpu(c.read(command(engine, "inspect", *listed.text.split())).body or b"")
    if len(reasons) == 2:
        raise Unknown(next((r for r in reasons if r.kind != "absent"), reasons[0]))
    return tuple(found)


# -- the API --


@feed
def address(c: Collector) -> str:
    """host:port to ask, from what the process was started with; wildcard addresses are asked on loopback."""
    value = None
    if (has := c.get("process")) is not None and has.environ is not None:
        value = has.environ.get("OLLAMA_HOST", "")
    elif (begun := c.get("start")) is not None and begun.config is not None:
        value = begun.config.get("OLLAMA_HOST")
    elif (will := c.get("effective")) is not None:
        value = will.value("OLLAMA_HOST")
    return client_address(value or "")


def client_address(value: str) -> str:
    """Where a client on this host reaches a server with that OLLAMA_HOST."""
    read = settings.REGISTRY["OLLAMA_HOST"].read(value)
    found = split_address(read.printed)
    name, port = found if found else ("127.0.0.1", 11434)
    name = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(name, name)
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _api(c: Collector, path: str) -> bytes:
    if (has := c.get("service")) is not None and not has.main_pid:
        raise Unknown(Missing("absent", f"{has.id} is {has.active_state}: no server to ask"))
    return c.body(http(f"http://{c.need('address')}{path}"))


@feed
def version(c: Collector) -> str:
    try:
        return api.version(_api(c, "/api/version"))
    except Unknown:
        begun = c.get("start")
        if begun is None or not begun.version:
            raise
        return str(begun.version)


@feed
def loaded(c: Collector) -> tuple[LoadedModel, ...]:
    return api.loaded(_api(c, "/api/ps"))


@feed
def installed(c: Collector) -> tuple[InstalledModel, ...]:
    return api.installed(_api(c, "/api/tags"))
