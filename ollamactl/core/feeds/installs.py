"""Feeds of what runs Ollama where it is no unit of systemd: containers, user units, a server started by hand."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ollamactl.core import govalues
from ollamactl.core.facts import Container, Effective, Install, Origin, Process, UnitName, Variable, Way
from ollamactl.core.feeds.collector import Collector, Unknown, ahead, feed
from ollamactl.core.parse import containers as parsing
from ollamactl.core.parse.cgroup import Home, home
from ollamactl.core.source import Missing, Source, command, stat

ENGINES: tuple[Literal["docker", "podman"], ...] = ("docker", "podman")
INITS: dict[str, Way] = {"openrc": "openrc", "runit": "runit"}
HEAD_BYTES = 512 << 10  # of the log of one container's start: its first lines tell the settings
TAIL_LINES = 4000


class Inspected(msgspec.Struct, frozen=True):
    """The containers of every engine that answers, and why others do not."""

    records: dict[str, tuple[dict[str, Any], ...]] = {}
    reasons: tuple[Missing, ...] = ()


def _listing(engine: str) -> Source:
    return command(engine, "ps", "-aq", "--no-trunc", timeout=3.0)


@ahead(lambda c: tuple(map(_listing, ENGINES)))
@feed
def inspected(c: Collector) -> Inspected:
    records: dict[str, tuple[dict[str, Any], ...]] = {}
    reasons: list[Missing] = []
    for engine in ENGINES:
        listed = c.read(_listing(engine))
        if listed.missing is not None:
            said = listed.stderr or listed.missing.detail
            down = "annot connect" in said or "ailed to connect" in said or "daemon running" in said
            reasons.append(Missing("absent", f"{engine}: its daemon does not run") if down else listed.missing)
        elif "Emulate Docker CLI using podman" in listed.stderr and engine == "docker":
            reasons.append(Missing("absent", "docker: it is podman's"))
        elif ids := listed.text.split():
            records[engine] = parsing.inspected(c.read(command(engine, "inspect", *ids, any_exit=True)).body or b"")
        else:
            records[engine] = ()
    return Inspected(records, tuple(reasons))


@feed
def gpu_containers(c: Collector) -> tuple[str, ...]:
    """Running containers with a GPU, which a daemon-reload can take from them."""
    found = _answered(c)
    return tuple(name for records in found.records.values() for name in parsing.with_gpu(records))


@feed
def containers(c: Collector) -> tuple[Container, ...]:
    found = _answered(c)
    return tuple(x for e in ENGINES for x in parsing.with_ollama(found.records.get(e, ()), e))


def _answered(c: Collector) -> Inspected:
    found: Inspected = c.need("inspected")
    if not found.records:
        raise Unknown(next((r for r in found.reasons if r.kind != "absent"), found.reasons[0]))
    return found


@feed
def installs(c: Collector) -> tuple[Install, ...]:
    """Units first, then containers, then what else runs a server."""
    units: tuple[UnitName, ...] = c.get("units") or ()
    boxes: tuple[Container, ...] = c.get("containers") or ()
    servers: tuple[Process, ...] = c.get("servers") or ()
    found = [_of_unit(u) for u in units] + [_with_source(c, of_container(b), b) for b in boxes]
    known = {i.pid for i in found if i.pid} | {b.pid for b in boxes if b.pid}
    names = {i.name for i in found} | {b.id for b in boxes}
    inside = c.get("system")
    untold = c.missing.get("units")
    silent = untold is not None and untold.kind not in ("absent", "unsupported")
    for server in servers:
        where = home(server.cgroup)
        if server.pid in known or where.name in names or server.ppid in known:
            continue
        if silent and where.owner == "unit":
            continue  # whose it is, only systemd can say
        found.append(_of_server(server, where, inside.init if inside else ""))
    if not found and untold is not None and servers:  # all of them are some unit's
        raise Unknown(untold)
    if not found and untold is not None and c.missing.get("containers") and c.missing.get("servers"):
        raise Unknown(c.missing["servers"])
    return tuple(found)


def _of_unit(unit: UnitName) -> Install:
    way: Literal["snap", "unit"] = "snap" if unit.name.startswith("snap.") else "unit"
    return Install(way=way, name=unit.name, running=unit.active == "active", why=f"systemd has {unit.name}")


def of_container(box: Container) -> Install:
    way: Literal["docker", "podman", "compose", "quadlet"] = box.engine
    why = f"{box.engine} has the container {box.name} ({box.image}, {box.status})"
    if box.unit:
        way, why = "quadlet", f"{why} of the unit {box.unit}"
    elif box.compose is not None:
        way, why = "compose", f"{why} of the compose project {box.compose.project}"
    running = box.status in ("running", "paused")
    return Install(way=way, name=box.name, pid=box.pid or None, running=running, why=why)


def _with_source(c: Collector, found: Install, box: Container) -> Install:
    """A quadlet with its .container file; a unit that has none is one that runs podman itself (`podman generate`)."""
    if found.way != "quadlet":
        return found
    reading = c.read(command("systemctl", "show", "-P", "SourcePath", "--", box.unit))
    if reading.missing is not None:
        return found
    source = reading.text.strip()
    return msgspec.structs.replace(found, source=source) if source.endswith(".container") else found


def _of_server(server: Process, where: Home, init: str) -> Install:
    said = f"pid {server.pid} runs `{' '.join(server.argv[:2])}`"
    if where.owner == "user-unit":
        why = f"{said} in the user unit {where.name}"
        return Install(way="user-unit", name=where.name, pid=server.pid, uid=where.uid, running=True, why=why)
    if where.owner in ("docker", "podman", "quadlet", "kubernetes", "lxc"):
        why = f"{said} in a container of {where.owner}"
        return Install(way=where.owner, name=where.name[:12], pid=server.pid, uid=where.uid, running=True, why=why)
    if (way := INITS.get(init)) is not None and server.ppid == 1:
        why = f"{said} below {init}"
        return Install(way=way, name="ollama", pid=server.pid, uid=server.uid, running=True, why=why)
    why = f"{said}, started by hand" + (f" as {server.user}" if server.user else "")
    return Install(way="hand", name=" ".join(server.argv), pid=server.pid, uid=server.uid, running=True, why=why)


@feed
def install(c: Collector) -> Install:
    """The one that is meant: `--unit` names it, or it is the only one. A unit of systemd comes before others."""
    found: tuple[Install, ...] = c.need("installs")
    if c.unit:
        mine = [i for i in found if c.unit in (i.key, i.name, i.name.removesuffix(".service"), _named(i))]
        if not mine:
            raise Unknown(Missing("absent", f"nothing runs Ollama here as {c.unit}"))
        return mine[0]
    units = [i for i in found if i.way in ("unit", "snap")]
    running = [i for i in found if i.running]
    for some in (units, running, list(found)):
        if len(some) == 1:
            return some[0]
        if some:
            raise Unknown(Missing("unasked", "several run Ollama: " + ", ".join(map(_named, some)), "--unit NAME"))
    raise Unknown(Missing("absent", "nothing runs Ollama on this host"))


def _named(one: Install) -> str:
    """What tells it from the others: servers started by hand have no name but their pid."""
    return f"hand:{one.pid}" if one.way == "hand" and one.pid else one.key


def apart(c: Collector) -> Install:
    """The install that is judged where it is no unit of systemd. Raises Unknown where there is none, or a unit is."""
    found: Install = c.need("install")
    if found.way in ("unit", "snap"):
        raise Unknown(Missing("unasked", f"{found.name} is a unit of systemd"))
    return found


def container_of(c: Collector, found: Install) -> Container | None:
    return next((b for b in c.get("containers") or () if b.name == found.name or b.pid == found.pid), None)


def log_source(c: Collector, found: Install) -> tuple[Source, ...]:
    """Where the lines of that server are: (all,) or (its head, its tail). Raises Unknown where nothing keeps them."""
    box = container_of(c, found)
    if box is not None:
        since = ("--since", box.started) if box.started[:4].isdigit() and box.started[:4] != "0001" else ()
        head = command(box.engine, "logs", *since, box.name, merge=True, limit=HEAD_BYTES)
        return head, command(box.engine, "logs", *since, "--tail", str(TAIL_LINES), box.name, merge=True)
    if found.way == "user-unit":
        mine = (f"_SYSTEMD_USER_UNIT={found.name}", *((f"_UID={found.uid}",) if found.uid is not None else ()))
        return (command("journalctl", "-o", "json", "--no-pager", "-q", "-b", "-n", str(TAIL_LINES), *mine),)
    if found.pid is None:
        raise Unknown(Missing("absent", f"{found.key} does not run"))
    for number in (2, 1):
        reading = c.read(stat(f"/proc/{found.pid}/fd/{number}"))
        if reading.missing is not None:
            raise Unknown(reading.missing)
        target = str(msgspec.json.decode(reading.body or b"{}").get("target") or "")
        if target.startswith("/") and not target.startswith("/dev/"):
            return (command("tail", "-c", str(HEAD_BYTES * 8), "--", target, limit=HEAD_BYTES * 8),)
    where = target or "nowhere"
    raise Unknown(Missing("absent", f"the output of pid {found.pid} goes to {where}, which keeps no lines"))


def container_environment(box: Container) -> Effective:
    """What the container is started with: its image's and its own variables in one, in the engine's words."""
    variables = {}
    for entry in box.environment:
        name, _, value = entry.partition("=")
        variables[name] = Variable(name=name, value=value, origin=Origin(layer="container", file=box.name))
    return Effective(variables=variables)


def published(box: Container) -> str:
    """host:port at which a client on this host reaches the server in a container; empty where it is not published."""
    if box.network == "host":
        return ""
    for port in box.ports:
        if port.host and port.inside == 11434:
            address = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(port.address, port.address)
            return govalues.joined(address, port.host)
    return ""
