"""Feeds of processes and sockets: the server, its runners, who waits."""

from __future__ import annotations

from ollamactl.core.facts import (
    Connections,
    Listener,
    Load,
    LoadedModel,
    Process,
    Runner,
    Service,
    Slot,
    Start,
)
from ollamactl.core.feeds import installs
from ollamactl.core.feeds.collector import Collector, Unknown, feed
from ollamactl.core.feeds.service import is_server
from ollamactl.core.govalues import address as split_address
from ollamactl.core.parse import (
    api,
    runner,
    sockets,
)
from ollamactl.core.source import Missing, file, http, native


@feed
def servers(c: Collector) -> tuple[Process, ...]:
    return c.record(native("servers"), tuple[Process, ...])


@feed
def process(c: Collector) -> Process:
    """The server: MainPID of the service, or what a script there has started; where no unit of systemd runs Ollama,
    the process that serves instead."""
    has: Service | None = c.get("service")
    if has is None:
        return _apart(c)
    if not has.main_pid:
        raise Unknown(Missing("absent", f"{has.id} is {has.active_state or 'not running'}: no process"))
    main = c.record(native("process", str(has.main_pid)), Process)
    if has.manager in ("launchd", "compose") or _serves(main):
        return main
    return next((child for child in descendants(c, main.pid) if _serves(child)), main)


def _serves(process: Process) -> bool:
    """Whether it is the server itself, and no shell whose command names it."""
    return process.argv[:1] != () and "ollama" in process.argv[0].rpartition("/")[2] and is_server(process.argv)


def _apart(c: Collector) -> Process:
    found = installs.apart(c)
    if not found.pid:
        raise Unknown(Missing("absent", f"{found.key} does not run: no process"))
    return server_of(c, found.pid)


def server_of(c: Collector, pid: int) -> Process:
    """The server that a process is, or that runs below it: a container's first process may be an init of its own."""
    servers: tuple[Process, ...] = c.get("servers") or ()
    for server in servers:
        if pid in (server.pid, server.ppid):
            return server
    return c.record(native("process", str(pid)), Process)


@feed
def listeners(c: Collector) -> tuple[Listener, ...]:
    """Of the service's own network, where it has one."""
    has: Process | None = c.get("process")
    return listeners_of(c, has.pid if has else None)


def listeners_of(c: Collector, pid: int | None) -> tuple[Listener, ...]:
    """Of the network that a process has; None is ours."""
    return c.record(native("listeners", *([str(pid)] if pid is not None else [])), tuple[Listener, ...])


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
    children = descendants(c, parent.pid)
    listening = c.get("listeners")
    found: list[Runner] = []
    for child in children:
        args = runner.parse_argv(child.argv)
        if not args.loads:
            continue
        owners = [x for x in listening or () if x.port == args.port and x.pid is not None]
        owned = None if listening is None or not owners else any(x.pid == child.pid for x in owners)
        props, slots, busy = _runner_api(c, args.port, parent) if owned and args.port else (None, None, False)
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
                loading=busy or (slots is None and _is_loading(_load_of(c, args.port))),
            )
        )
    return tuple(found)


def descendants(c: Collector, pid: int) -> tuple[Process, ...]:
    """All processes below one, nearest first."""
    return c.record(native("children", str(pid)), tuple[Process, ...])


def _load_of(c: Collector, port: int | None) -> Load | None:
    """The log's account of a runner whose command line does not tell its slots (0.11.5 to 0.24)."""
    begun: Start | None = c.get("start")
    return next((x for x in reversed(begun.loads if begun else ()) if port and x.port == port), None)


def _model_name(c: Collector, path: str) -> str:
    """The loaded model that a file belongs to: the only one, or the one whose manifest names the file's digest."""
    loaded: tuple[LoadedModel, ...] = c.get("loaded") or ()
    folder, slash, blob = path.rpartition("/blobs/")
    found = [m.name for m in loaded if slash and blob.replace("-", ":", 1) in manifest_layers(c, folder, m.name)]
    return found[0] if found else ""


def manifest_layers(c: Collector, folder: str, name: str) -> tuple[str, ...]:
    """Digests of the model layers in a model's manifest; empty where it can't be read."""
    parts, tag = name.rpartition(":")[0].split("/"), name.rpartition(":")[2]
    full = [*("registry.ollama.ai", "library")[: max(0, 3 - len(parts))], *parts]
    return api.model_layers(c.read(file(f"{folder}/manifests/{'/'.join(full)}/{tag}", limit=1 << 20)).body or b"")


def _is_loading(load: Load | None) -> bool:
    return load is not None and load.outcome == "loading"


def _runner_api(c: Collector, port: int, parent: Process) -> tuple[int | None, tuple[Slot, ...] | None, bool]:
    """What /props and /slots tell, and whether they say that the model is still being loaded: with 503."""
    base, inside = f"http://127.0.0.1:{port}", parent.pid if parent.net_ns is not None else 0
    props, slots = http(f"{base}/props", inside=inside), http(f"{base}/slots", inside=inside)
    said = c.read(props)
    if said.missing is not None and said.missing.kind == "timeout":  # the other would wait as long
        return None, None, False
    listed = c.read(slots)
    return api.props_slots(said), api.slots(listed), 503 in (said.status, listed.status)
