"""The service itself: not installed, masked, not starting, dying, another server in its place."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core import settings
from ollamactl.core.checks.base import Finding, check, quote
from ollamactl.core.facts import Effective, Facts, Listener, Service, Start
from ollamactl.core.needs import NO_SIGNS, Given, Signs

LOOP = ("service_restart_loop",)


@check(weight=90)
def ollama_not_installed(facts: Facts) -> Iterator[Finding]:
    """Neither a program nor a service of Ollama was found.

    Why: nothing can be judged where there is no server.
    Seen: no unit, no running server, no program at the usual places.
    Do: install it, or name what is looked for: --unit, --from.
    """
    if facts.origin != "live" and not facts.origin.startswith("bundle"):
        return
    program = any(p.missing is None for path, p in (facts.paths or {}).items() if path.endswith("/ollama"))
    if facts.service is None and facts.servers == () and facts.paths is not None and not program:
        why = facts.why("service")
        yield Finding(
            "warning",
            "no Ollama was found on this host: no unit, no running server, no program",
            (f"unit: {why}",),
            "curl -fsSL https://ollama.com/install.sh | sh",
        )


@check(weight=96, explains=("service_not_started_at_boot", "user_unit_absent"))
def service_masked(facts: Facts, signs: Signs = NO_SIGNS, service: Service | None = None) -> Iterator[Finding]:
    """The unit is masked, so that it cannot start.

    Why: a masked unit points to /dev/null; start and enable are refused.
    Seen: LoadState=masked, or systemctl's refusal.
    Do: unmask it.
    """
    masked = next((u.name for u in facts.units or () if u.load == "masked"), "")
    if service is not None and "masked" in (service.load_state, service.unit_file_state):
        masked = service.id
    if masked:
        yield Finding(
            "error",
            f"{masked} is masked: it cannot be started",
            (f"systemctl show: LoadState=masked ({masked})",),
            f"sudo systemctl unmask {masked} && sudo systemctl enable --now {masked}",
        )
    elif signs.has("unit:masked", "unit_masked"):
        yield Finding(
            "error",
            "the unit is masked: it cannot be started",
            signs.lines("unit:masked", "unit_masked"),
            "sudo systemctl unmask ollama && sudo systemctl enable --now ollama",
        )


@check(weight=60)
def service_not_started_at_boot(signs: Signs = NO_SIGNS, service: Service | None = None) -> Iterator[Finding]:
    """The service is not running and will not, or did not, start at boot.

    Why: a disabled unit, an ordering cycle or a failed dependency leaves it out, without a line of its own.
    Seen: inactive (dead) without a result; systemd's lines on cycles and dependencies.
    Do: enable it, break the cycle.
    """
    if signs.has("unit:ordering_cycle", "unit:dependency_failed"):
        yield Finding(
            "error",
            "systemd left the service out at boot: an ordering cycle or a failed dependency",
            signs.lines("unit:ordering_cycle", "unit:dependency_failed"),
            "systemd-analyze verify ollama.service",
        )
    elif service is not None and service.active_state == "inactive" and service.load_state != "masked":
        enabled = service.unit_file_state.startswith(("enabled", "static", "generated"))
        if service.result in ("", "success"):
            said = f"{service.id} is not running" + ("" if enabled else " and not enabled")
            yield Finding(
                "warning",
                said,
                (f"systemctl show: ActiveState=inactive UnitFileState={service.unit_file_state}",),
                f"sudo systemctl enable --now {service.id}",
            )


@check(weight=40)
def service_restart_loop(
    signs: Signs = NO_SIGNS, service: Service | None = None, start: Start | None = None
) -> Iterator[Finding]:
    """The service dies and is started again and again.

    Why: Restart=always brings it back every few seconds, `systemctl restart` returns 0 all the same.
    Seen: systemd's restart counter, or its exit lines with no start that serves after them.
    Do: look at the last lines before the exit: journalctl -u ollama -n 50.
    """
    counter = 0
    for event in signs.of("unit:restart_scheduled", "restart_counter"):
        counter = max(counter, int(event.fields.get("counter", "1")[:6] or 1))
    respawns = [int(e.fields.get("count", "0") or 0) for e in signs.of("app_respawns")]
    limit = signs.has("unit:start_limit")
    flapping = service is not None and service.sub_state in ("auto-restart", "auto-restart-queued")
    serves = start is not None and bool(start.listening) and not start.ended
    if service is not None and service.n_restarts and flapping:
        counter = max(counter, service.n_restarts)
    failed = service is not None and service.active_state == "failed"
    exited = signs.has("unit:main_exited") and not serves
    if not (limit or flapping or failed or respawns or (counter and not serves) or exited):
        return
    lines = signs.lines(
        "app_respawns", "unit:main_exited", "unit:failed", "unit:start_limit", "unit:restart_scheduled", most=4
    )
    said = "the service dies at once"
    if respawns:
        said = f"the app restarts its server again and again ({max(respawns)} times)"
    elif limit or failed:
        said = "systemd has given the service up" if limit else "the service has failed"
    if counter > 1:
        said += f" and was restarted {counter} times"
    unit = service.id if service else "ollama"
    state = ""
    if service is not None:
        states = f"ActiveState={service.active_state} SubState={service.sub_state}"
        state = f"systemctl show: {states} NRestarts={service.n_restarts}"
    yield Finding(
        "error", said, (*lines, state), f"journalctl -u {unit} -n 50 --no-pager && sudo systemctl reset-failed {unit}"
    )


@check(weight=92, explains=LOOP)
def exec_path_missing(facts: Facts, signs: Signs = NO_SIGNS, service: Service | None = None) -> Iterator[Finding]:
    """The program that ExecStart= names is not there.

    Why: the installer puts it in /usr/local/bin, packages in /usr/bin; a unit of the other kind fails with 203/EXEC.
    Seen: systemd's line with the path, and the file that is missing.
    Do: correct ExecStart=.
    """
    found = signs.of("unit:exec_failed", "unit:exec_missing")
    for event in found:
        program = event.fields.get("program", "").strip("'\"")
        why = event.fields.get("why", "")
        if any(" " in e.fields.get("program", "").strip("'\"") for e in found):
            return  # quotes around the whole command
        if not program or "EXEC" not in event.fields.get("step", "EXEC"):
            continue
        if re.search(r"(?i)permission|exec format", why):
            continue
        yield Finding(
            "error",
            f"{program or 'the program of ExecStart='} is not there: 203/EXEC",
            signs.lines("unit:exec_failed", "unit:exec_missing", "unit:main_exited"),
            f"command -v ollama; sudo systemctl edit --full {service.id if service else 'ollama'}"
            "    # ExecStart= with that path",
        )
        return
    argv = service.exec_start if service else ()
    state = (facts.paths or {}).get(argv[0]) if argv else None
    if service and argv and state is not None and state.missing is not None and state.missing.kind == "absent":
        yield Finding(
            "error",
            f"ExecStart= names {argv[0]}, which does not exist",
            (f"ExecStart={' '.join(argv)}",),
            f"command -v ollama; sudo systemctl edit --full {service.id}",
        )


@check(weight=93, explains=(*LOOP, "exec_path_missing", "malformed_env_assignment"))
def execstart_203_exec(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """systemd cannot execute what ExecStart= names.

    Why: quotes around the whole command make one path of it; a file without x, on noexec, of another machine or
    with a wrong SELinux label is refused.
    Seen: "Failed at step EXEC", "Unable to locate executable '/usr/bin/ollama serve'", status=203/EXEC.
    Do: ExecStart=/usr/local/bin/ollama serve, without quotes.
    """
    for file in facts.unit_files or ():
        for one in file.assignments:
            if one.key == "ExecStart" and re.match(r"[\"'][^\"']*\s[^\"']*[\"']\s*$", one.value):
                plain = one.value.strip("\"'")
                yield Finding(
                    "error",
                    "ExecStart= has quotes around the whole command: systemd takes it for one path",
                    (f"{file.path}:{one.line}: ExecStart={one.value}",),
                    f"sudo sed -i '{one.line}s|.*|ExecStart={plain}|' {file.path} "
                    "&& sudo systemctl daemon-reload && sudo systemctl restart ollama",
                )
                return
    found = signs.of("unit:exec_failed", "unit:exec_missing")
    status = signs.matching("203/exec", kinds=("unit:main_exited", "status_203"))
    for event in found:
        program, why = event.fields.get("program", "").strip(), event.fields.get("why", "")
        quoted = " " in program.strip("'\"")
        if quoted or re.search(r"(?i)permission|exec format", why):
            said = (
                f"systemd takes '{program}' for one path: quotes around the whole command"
                if quoted
                else (f"systemd may not execute {program}: {why}")
            )
            yield Finding(
                "error",
                said,
                signs.quotes([*found, *status]),
                "sudo systemctl edit --full ollama    # ExecStart=/usr/local/bin/ollama serve",
            )
            return
    if status and not found:
        yield Finding(
            "error",
            "systemd cannot execute the program of ExecStart=: 203/EXEC",
            signs.quotes(status),
            "systemctl cat ollama | grep ExecStart; command -v ollama",
        )


def _owner(facts: Facts, port: int) -> Listener | None:
    """Who listens on a port and is not the service's own process."""
    if facts.service is None or facts.listeners is None:
        return None
    mine = {facts.service.main_pid} | {r.process.pid for r in facts.runners or ()}
    for listener in facts.listeners:
        if listener.port == port and listener.pid is not None and listener.pid not in mine:
            same = next((s for s in facts.servers or () if s.pid == listener.pid), None)
            if same is not None and facts.service.control_group and same.cgroup.endswith(facts.service.control_group):
                continue
            return listener
    return None


def wanted_port(effective: Effective | None) -> int:
    value = (effective.value("OLLAMA_HOST") if effective else "") or ""
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
    dead = service is not None and (not service.main_pid or service.sub_state == "auto-restart")
    if owner is not None and (dead or lines):
        who = f"{owner.name or 'a process'}, pid {owner.pid}"
        restarts = (
            (f"the unit was restarted {service.n_restarts} times and never serves",)
            if service and service.n_restarts
            else ()
        )
        yield Finding(
            "error",
            f"another process holds {owner.address}:{owner.port}: {who}",
            (f"socket: LISTEN {owner.address}:{owner.port} {who}", *lines),
            f"sudo kill {owner.pid} && sudo systemctl restart {service.id if service else 'ollama'}",
            consequences=(*restarts, "settings of the service do not apply to who answers"),
        )
        return
    if lines and not serves and not _hand_asked(signs, start, facts):
        event = signs.of("bind_error")[-1]
        address = event.fields.get("address", "the port")
        tray = "Only one usage" in event.text
        said = f"{address} is taken by another process, so the server cannot start"
        fix = "taskkill /im ollama.exe /f" if tray else f"sudo ss -ltnp 'sport = :{address.rsplit(':', 1)[-1]}'"
        if not tray:
            fix += "    # its pid: sudo kill PID, then sudo systemctl restart ollama"
        yield Finding("error", said, lines, fix)


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


@check(weight=60)
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


@check(weight=70)
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
    elif signs.has("serve_by_hand") and signs.has("unit_is_active"):
        yield Finding(
            "warning",
            "a server is started by hand beside the service: it has another environment and home",
            signs.lines("serve_by_hand", "unit_is_active"),
            "sudo systemctl restart ollama",
        )


def _other_unit(cgroup: str, facts: Facts) -> bool:
    return any(cgroup.endswith(f"/{u.name}") for u in facts.units or ()) or "docker" in cgroup or "libpod" in cgroup


@check(weight=72, explains=(*LOOP, "runner_crash_on_load"))
def server_panic_restarts(signs: Signs, start: Start | None = None) -> Iterator[Finding]:
    """The server itself crashed.

    Why: an unrecovered panic of the Go server ends it with status 2; systemd calls that INVALIDARGUMENT, no setting
    is meant.
    Seen: the panic or the signal in the journal.
    Do: upgrade; report the trace.
    """
    found = signs.of("panic", "segfault")
    fatal = [
        e for e in found if not re.search(r"panic recovered|http: panic serving|unable to (?:load|create)", e.text)
    ]
    own = [e for e in fatal if start is None or e.pid is None or e.pid == start.pid]
    exited = signs.matching("status=2/invalidargument", "code=dumped", kinds=("unit:main_exited",))
    last_load = start.loads[-1] if start and start.loads else None
    runner = last_load is not None and last_load.outcome == "failed" and not exited
    if exited and (own or not signs.has("home_missing")) and not signs.has("preload_missing", "panic_models"):
        yield Finding(
            "error",
            "the server crashed and systemd starts it again",
            signs.quotes([*own[:2], *exited]),
            "journalctl -u ollama | grep -A20 -m1 -E 'panic|SIGSEGV'; ollama --version    # upgrade",
        )
    elif own and not runner and not signs.has("home_missing", "panic_models"):
        yield Finding(
            "error", "the server crashed", signs.quotes(own), "ollama --version    # upgrade, report the trace"
        )


@check(weight=60)
def version_outdated(facts: Facts, signs: Signs = NO_SIGNS, release: tuple[int, ...] = ()) -> Iterator[Finding]:
    """The release is older than the model, or than what is asked of it.

    Why: new architectures and variables need a release that knows them.
    Seen: "unknown model architecture", "requires a newer version", or a very old release.
    Do: upgrade.
    """
    fix = "curl -fsSL https://ollama.com/install.sh | sh"
    if signs.has("unknown_architecture", "needs_newer"):
        kind = [e.fields.get("architecture", "") for e in signs.of("unknown_architecture")]
        who = f" the architecture {kind[-1]}" if kind and kind[-1] else " a model"
        yield Finding(
            "error", f"this release does not know{who}", signs.lines("unknown_architecture", "needs_newer"), fix
        )
    elif () < release < (0, 6):
        yield Finding(
            "info",
            f"release {'.'.join(map(str, release))} is old: newer models and settings need a newer one",
            (quote(facts.start.listening_line) if facts.start else "",),
            fix,
            weight=4,
        )


@check(weight=70)
def client_server_version_mismatch(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """The `ollama` command and the running server are of different releases.

    Why: after an upgrade the old server still runs, or two installations are on the path.
    Seen: `ollama --version` warns, or the two numbers.
    Do: restart the server; remove the older installation.
    """
    if signs.has("client_version_differs"):
        yield Finding(
            "warning",
            "the command and the running server are of different releases",
            signs.lines("client_version_differs"),
            "sudo systemctl restart ollama && ollama --version",
        )


@check(weight=5)
def version_unknown(start: Start, release: tuple[int, ...]) -> Iterator[Finding]:
    """The release is not known, or a build of one's own.

    Why: what a setting means depends on the release; 0.0.0 is printed by builds without a version.
    Seen: the `Listening on` line.
    Do: ollama --version.
    """
    if start.listening and not release:
        yield Finding(
            "info",
            f"the release is not known ({start.version or 'none printed'})",
            (quote(start.listening_line),),
            "curl -s http://127.0.0.1:11434/api/version",
        )


@check(weight=70)
def user_unit_absent(signs: Signs) -> Iterator[Finding]:
    """There is no unit of that name.

    Why: Ollama ships a system unit only; `systemctl --user` knows none, and a manual install has none at all.
    Seen: systemctl's refusal.
    Do: create one, or use the system unit.
    """
    if signs.has("unit_absent"):
        bool(signs.matching("--user", kinds=("unit_absent", "unit_command")))
        fix = "systemctl edit --user --force --full ollama.service" if True else ""
        yield Finding("error", "systemd knows no unit of that name", signs.lines("unit_absent"), fix)


@check(weight=75)
def no_init_system(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """There is no systemd here, so nothing starts or supervises the server.

    Why: in containers, codespaces and WSL without systemd the installer makes no service, though it says that the API
    is available.
    Seen: the installer's or systemctl's line.
    Do: start it under a supervisor of that place: nohup ollama serve &
    """
    if signs.has("no_systemd"):
        yield Finding(
            "warning",
            "systemd is not running here: no service was installed or started",
            signs.lines("no_systemd"),
            "nohup ollama serve > ~/ollama.log 2>&1 &",
        )
        return
    system = facts.system
    other = system is not None and system.os == "linux" and system.init not in ("systemd", "")
    if system is not None and other and facts.servers == () and facts.origin == "live":
        yield Finding(
            "info",
            f"this host's init is {system.init}: no service can be judged",
            (f"init: {system.init}",),
            "ollama serve",
        )


@check(weight=88, explains=LOOP)
def home_not_defined(signs: Signs, given: tuple[Given, ...] = ()) -> Iterator[Finding]:
    """HOME is not set for the service.

    Why: a unit without User= (or with an own environment) has no HOME; the server needs one for its models and key.
    Seen: "$HOME is not defined", or a panic in envconfig.Models.
    Do: Environment=HOME=… or OLLAMA_MODELS=… in a drop-in.
    """
    if signs.has("home_missing", "panic_models"):
        yield Finding(
            "error",
            "HOME is not defined for the service",
            signs.lines("home_missing", "panic_models"),
            "printf '[Service]\\nEnvironment=HOME=/usr/share/ollama\\n' | sudo tee "
            "/etc/systemd/system/ollama.service.d/home.conf && sudo systemctl daemon-reload "
            "&& sudo systemctl restart ollama",
        )
