"""The address that the server wants, and who holds it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from ollamactl.core import settings
from ollamactl.core.checks.base import Finding, check, times
from ollamactl.core.checks.service import LOOP
from ollamactl.core.checks.versions import two_releases
from ollamactl.core.facts import Container, Effective, Facts, Listener, LogEvent, Start, UnitName
from ollamactl.core.needs import NO_SIGNS, Signs
from ollamactl.core.parse.cgroup import home


def _owner(facts: Facts, port: int) -> Listener | None:
    """Who listens on a port and is not the service's own process."""
    if facts.service is None or facts.listeners is None:
        return None
    mine = {facts.service.main_pid} | {r.process.pid for r in facts.runners or ()}
    start = facts.start
    if not facts.service.main_pid and start is not None and start.pid and start.listening and not start.ended:
        mine.add(start.pid)  # `systemctl show` was not asked for the pid
    for listener in facts.listeners:
        if listener.port == port and listener.pid is not None and listener.pid not in mine:
            same = next((s for s in facts.servers or () if s.pid == listener.pid), None)
            if same is not None and facts.service.control_group and same.cgroup.endswith(facts.service.control_group):
                continue
            return listener
    return None


# What holds a published port for a container, by the engine that is asked whose it is.
PROXIES = {
    "docker-proxy": "docker", "dockerd": "docker", "rootlesskit": "docker", "rootlessport": "podman",
    "conmon": "podman", "pasta": "podman", "pasta.avx2": "podman",
}  # fmt: skip


def _held(facts: Facts, owner: Listener, unit: str) -> tuple[str, str]:
    """Who holds the port, in words, and how it is given up: a container's own port is given up by its engine."""
    box = next((b for b in facts.containers or () if b.pid == owner.pid or _publishes(b, owner.port)), None)
    who = f"{owner.name or 'a process'}, pid {owner.pid}"
    again = f"&& sudo systemctl restart {unit}"
    if box is not None:
        return f"{who}, for the container {box.name}", f"sudo {box.engine} stop {shlex.quote(box.name)} {again}"
    server = next((s for s in facts.servers or () if s.pid == owner.pid), None)
    if server is not None and (other := _unit_of(server.cgroup, facts)):
        return f"{who}, of {other}", f"sudo systemctl disable --now {other} {again}"
    if server is not None and (place := home(server.cgroup)).owner == "user-unit":
        stop = f"sudo systemctl --user -M {server.user}@ disable --now {place.name}"
        return f"{who}, of the user unit {place.name} of {server.user}", f"{stop} {again}"
    if engine := PROXIES.get(owner.name):
        ask = f"sudo {engine} ps --filter publish={owner.port}    # its name: sudo {engine} stop NAME {again}"
        return f"{who}, for a container", ask
    return who, f"sudo kill {owner.pid} {again}"


def _service_holds(facts: Facts, port: int) -> bool:
    pid = facts.process.pid if facts.process and facts.service else None
    return any(x.port == port and x.pid == pid for x in facts.listeners or () if pid)


def _rival(facts: Facts, port: int) -> UnitName | None:
    """Another unit that wants the port which the service holds, so that it dies again and again."""
    holds = {x.pid for x in facts.listeners or () if x.port == port}
    for unit in facts.units or ():
        beside = facts.service is not None and unit.name != facts.service.id and unit.pid not in holds
        dies = unit.active == "failed" or unit.sub.startswith("auto-restart")
        dies = dies or (unit.active in ("active", "activating") and unit.restarts > 0)
        if beside and dies and _port(_value(unit.environment, "OLLAMA_HOST")) == port:
            return unit
    return None


LATELY = 60.0  # s; a unit that dies is started again every few seconds


def _refused_user_unit(facts: Facts, port: int) -> LogEvent | None:
    """The last line of a user's own unit that was refused the port a moment ago."""
    refused = [
        e for e in facts.user_log or () if e.kind == "bind_error" and e.fields.get("address", "").endswith(f":{port}")
    ]
    last = refused[-1] if refused else None
    return last if last and last.at and facts.taken and facts.taken - last.at < LATELY else None


def _value(environment: tuple[str, ...], name: str) -> str:
    return next((v.partition("=")[2] for v in reversed(environment) if v.startswith(f"{name}=")), "")


def _publishes(box: Container, port: int) -> bool:
    return box.status == "running" and any(p.host == port for p in box.ports)


def wanted_port(effective: Effective | None) -> int:
    return _port((effective.value("OLLAMA_HOST") if effective else "") or "")


def _port(value: str) -> int:
    printed = settings.REGISTRY["OLLAMA_HOST"].read(value).printed
    found = re.search(r":(\d+)$", printed)
    return int(found[1]) if found else 11434


@check(
    weight=90,
    explains=(
        *LOOP,
        "running_server_is_not_the_service",
        "bind_error_shows_requested_address",
        "client_server_version_mismatch",
        "model_not_pulled",
        "models_in_two_dirs",
        "version_unknown",
    ),
)
def port_in_use(facts: Facts, signs: Signs = NO_SIGNS, start: Start | None = None) -> Iterator[Finding]:
    """Another process holds the port that the server wants.

    Why: a server started by hand, the desktop app or a second unit answers there; the service starts and dies.
    Seen: the socket and its owner; "address already in use" in the journal.
    Do: stop the other one, or give one of the two another OLLAMA_HOST.
    """
    lines = signs.lines("bind_error")
    serves = start is not None and bool(start.listening) and not start.ended
    service = facts.service
    port = wanted_port(facts.effective)
    owner = _owner(facts, port)
    known = service is not None and service.active_state != ""
    dead = service is not None and known and (not service.main_pid or service.sub_state == "auto-restart")
    dead = dead or _between_two_deaths(facts, port)
    stopped = service is not None and service.active_state == "inactive" and service.result in ("", "success")
    if stopped and owner is not None and any(s.pid == owner.pid for s in facts.servers or ()):
        return  # nobody starts the service: another check says who answers in its place
    if owner is not None and (dead or lines):
        who, fix = _held(facts, owner, service.id if service else "ollama")
        restarts = (
            (f"the unit was restarted {service.n_restarts} times and never serves",)
            if service and service.n_restarts
            else ()
        )
        yield Finding(
            "error",
            f"another process holds {owner.address}:{owner.port}: {who}",
            (f"socket: LISTEN {owner.address}:{owner.port} {who}", *lines),
            fix,
            consequences=(*restarts, "settings of the service do not apply to who answers"),
        )
        return
    held = _service_holds(facts, port)
    if held and (rival := _rival(facts, port)) is not None:
        state = f"systemctl show {rival.name}: {rival.active} ({rival.sub}), restarted {times(rival.restarts, 'time')}"
        yield Finding(
            "error",
            f"{rival.name} wants port {port} too, which {service.id if service else 'the service'} holds: it dies at "
            "each start",
            (state, f"socket: LISTEN port {port}, pid {facts.process.pid if facts.process else '?'}"),
            f"sudo systemctl disable --now {rival.name}    # or another OLLAMA_HOST for it",
        )
        return
    if held and (refused := _refused_user_unit(facts, port)) is not None:
        path = refused.fields["unit"]
        name, user = path.rpartition("/")[2], re.search(r"^/home/([^/]+)|^/(root)/", path)
        stop = f"systemctl --user -M {user[1] or user[2]}@" if user else "systemctl --user"
        yield Finding(
            "error",
            f"the user unit {name} wants port {port} too, which the service holds: it dies at each start",
            (f"journal of {path}: {refused.text}",),
            f"sudo {stop} disable --now {name}" if user else f"{stop} disable --now {name}    # as its user",
        )
        return
    if two_releases(signs):
        return  # the older server still runs: that check says so
    if lines and not serves and not _hand_asked(signs, start, facts):
        event = signs.of("bind_error")[-1]
        address = event.fields.get("address", "the port")
        tray = "Only one usage" in event.text
        said = f"{address} is taken by another process, so the server cannot start"
        fix = "taskkill /im ollama.exe /f" if tray else f"sudo ss -ltnp 'sport = :{address.rsplit(':', 1)[-1]}'"
        if not tray:
            fix += "    # its pid: sudo kill PID, then sudo systemctl restart ollama"
        yield Finding("error", said, lines, fix)


def _between_two_deaths(facts: Facts, port: int) -> bool:
    """Whether the service was restarted and its process does not listen yet, so that its log does not tell yet."""
    if facts.service is None or not facts.service.n_restarts:
        return False
    mine = {facts.service.main_pid, facts.process.pid if facts.process else 0}
    return not any(x.port == port and x.pid in mine for x in facts.listeners or ())


def _hand_asked(signs: Signs, start: Start | None, facts: Facts) -> bool:
    """Whether the refused address differs from the one that somebody is shown to listen on."""
    asked = [e.fields.get("address", "") for e in signs.of("bind_error")]
    held = [x for x in facts.listeners or () if any(a.endswith(f":{x.port}") for a in asked)]
    return bool(held) and all(not a.startswith(x.address) for x in held for a in asked)


@check(weight=91, explains=("port_in_use", "bind_loopback_only", *LOOP))
def bind_error_shows_requested_address(facts: Facts, signs: Signs, start: Start | None = None) -> Iterator[Finding]:
    """The bind error names the address that was asked for, not the one in use.

    Why: a server on 127.0.0.1 also keeps 0.0.0.0 of the same port from being bound; the message says nothing of it.
    Seen: the refused address beside the one on which a server listens.
    Do: ask for the real listener.
    """
    events = signs.of("bind_error")
    if not events:
        return
    asked = events[-1].fields.get("address", "")
    port = asked.rsplit(":", 1)[-1]
    held = [x for x in facts.listeners or () if str(x.port) == port]
    loopback = next((f"{x.address}:{x.port} {x.name}" for x in held if x.address in ("127.0.0.1", "::1")), "")
    loopback = loopback or next(
        (s.listening for s in (facts.log.starts if facts.log else ()) if s.listening == f"127.0.0.1:{port}"), ""
    )
    wild = asked.startswith(("0.0.0.0:", "[::]:", ":"))
    if wild and loopback:
        yield Finding(
            "error",
            f"{asked} was asked for; what holds the port listens on {loopback}",
            signs.lines("bind_error"),
            f"sudo ss -ltnp 'sport = :{port}'",
        )


@check(weight=60, explains=LOOP)
def bind_refused(signs: Signs) -> Iterator[Finding]:
    """The server may not listen on the address that it was given.

    Why: the address is not one of this host, or the port is below 1024 and the service is not root.
    Seen: the error of the start.
    Do: correct OLLAMA_HOST.
    """
    if signs.has("bind_refused"):
        event = signs.of("bind_refused")[-1]
        said = f"{event.fields.get('address', 'the address')} cannot be listened on: {event.fields.get('why', '')}"
        yield Finding("error", said, signs.lines("bind_refused"), "sudo ollamactl apply --host 127.0.0.1:11434")


@check(weight=70, explains=("service_not_started_at_boot",))
def running_server_is_not_the_service(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """The server that answers is not the service.

    Why: a server started by hand has the user's environment, home and models; the unit's settings do not reach it.
    Seen: processes of `ollama serve` outside of the unit.
    Do: stop it, and use the service.
    """
    service = facts.service
    others = []
    for server in facts.servers or ():
        inside = service is not None and service.control_group and server.cgroup.endswith(service.control_group)
        if (
            service is not None
            and not inside
            and server.pid != service.main_pid
            and not _other_unit(server.cgroup, facts)
        ):
            others.append(server)
    if others:
        one = others[0]
        yield Finding(
            "warning",
            f"a server runs outside of {service.id if service else 'any unit'}: pid {one.pid}, user {one.user}",
            (f"process {one.pid}: {' '.join(one.argv)} ({one.cgroup})",),
            f"sudo kill {one.pid} && sudo systemctl restart {service.id if service else 'ollama'}",
        )
    elif signs.has("unit_inactive") and (mine := next((x for x in facts.listeners or () if x.name == "ollama"), None)):
        yield Finding(
            "warning",
            f"the unit is not running, and a server answers on port {mine.port}: pid {mine.pid}, started by hand",
            (f"socket: LISTEN {mine.address}:{mine.port} {mine.name}, pid {mine.pid}", *signs.lines("unit_inactive")),
            f"sudo kill {mine.pid} && sudo systemctl start ollama" if mine.pid else "sudo ss -ltnp 'sport = :11434'",
        )
    elif signs.has("by_hand_told") and not signs.has("models_gone", "lists_differ"):
        said = "a server started by hand reads nothing of the unit: it has another environment, home and models"
        yield Finding("warning", said, signs.lines("by_hand_told"), "sudo systemctl restart ollama")
    elif signs.has("answer_broken") and facts.service is None:
        yield Finding(
            "warning",
            "what listens on Ollama's port breaks each connection off: another program, most likely",
            signs.lines("answer_broken"),
            "sudo ss -ltnp 'sport = :11434'    # Windows: netstat -ano | findstr 11434",
        )
    elif signs.has("two_servers"):
        yield Finding(
            "warning",
            "two servers run under different users: each has its own environment, home and models",
            signs.lines("two_servers"),
            "sudo ss -ltnp 'sport = :11434'    # who answers; then: sudo kill the other one",
        )
    elif signs.has("serve_by_hand") and signs.has("unit_is_active") and not signs.has("models_gone", "lists_differ"):
        yield Finding(
            "warning",
            "a server is started by hand beside the service: it has another environment and home",
            signs.lines("serve_by_hand", "unit_is_active"),
            "sudo systemctl restart ollama",
        )


def _unit_of(cgroup: str, facts: Facts) -> str:
    place = home(cgroup)
    return next((u.name for u in facts.units or () if place.owner == "unit" and place.name == u.name), "")


def _other_unit(cgroup: str, facts: Facts) -> bool:
    return bool(_unit_of(cgroup, facts)) or "docker" in cgroup or "libpod" in cgroup
