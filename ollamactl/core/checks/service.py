"""The service: masked, not started, flapping, without a home."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check, times
from ollamactl.core.facts import Facts, LogEvent, Service, Start
from ollamactl.core.needs import NO_SIGNS, Given, Signs

LOOP = ("service_restart_loop",)


@check(weight=90, explains=("user_unit_absent",))
def ollama_not_installed(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """Neither a program nor a service of Ollama was found.

    Why: nothing can be judged where there is no server.
    Seen: no unit, no running server, no program at the usual places.
    Do: install it, or name what is looked for: --unit, --from.
    """
    if facts.origin != "live" and not facts.origin.startswith("bundle"):
        if signs.has("command_missing") and facts.start is None and not facts.loaded:
            yield Finding(
                "error",
                "the shell finds no program ollama",
                signs.lines("command_missing"),
                "command -v ollama || curl -fsSL https://ollama.com/install.sh | sh",
            )
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

    Why: a disabled unit, an ordering cycle, a failed dependency or a Condition…= of the unit leaves it out, without a
    line of its own.
    Seen: inactive (dead) without a result; systemd's lines on cycles, dependencies and conditions.
    Do: enable it, break the cycle, make what the condition asks for.
    """
    if signs.has("unit:ordering_cycle", "unit:dependency_failed"):
        yield Finding(
            "error",
            "systemd left the service out at boot: an ordering cycle or a failed dependency",
            signs.lines("unit:ordering_cycle", "unit:dependency_failed"),
            "systemd-analyze verify ollama.service",
        )
    elif (skipped := signs.of("unit:condition_failed")) and (service is None or service.active_state != "active"):
        what = next((e.fields["what"] for e in reversed(skipped) if e.fields.get("what")), "")
        said = "systemd left the service out: a condition of its unit is not met" + (f", {what}" if what else "")
        fix = "systemctl cat ollama | grep -nE 'Condition|Assert'    # make what it asks for, or take the line away"
        yield Finding("error", said, signs.quotes(skipped), fix)
    elif signs.has("unit_disabled", "unit_inactive") and service is None:
        yield Finding(
            "warning",
            "the service is not enabled" if signs.has("unit_disabled") else "the service is not running",
            signs.lines("unit_disabled", "unit_inactive"),
            "sudo systemctl enable --now ollama",
        )
    elif service is not None and service.active_state == "active" and service.unit_file_state == "disabled":
        yield Finding(
            "info",
            f"{service.id} runs and is not enabled: it will not be there after the next boot",
            ("systemctl show: ActiveState=active UnitFileState=disabled",),
            f"sudo systemctl enable {service.id}",
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


@check(weight=40, explains=("server_not_reachable",))
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
    counter = max(counter, signs.count("unit:restart_scheduled"))
    respawns = [int(e.fields.get("count", "0") or 0) for e in signs.of("app_respawns")]
    limit = signs.has("unit:start_limit")
    flapping = service is not None and service.sub_state in ("auto-restart", "auto-restart-queued")
    serves = start is not None and bool(start.listening) and not start.ended
    if service is not None and service.n_restarts and flapping:
        counter = max(counter, service.n_restarts)
    unasked = service is not None and not service.active_state and service.result not in ("", "success")
    failed = unasked or (service is not None and service.active_state == "failed")
    if service is not None and service.n_restarts and serves and service.active_state == "active" and not limit:
        yield Finding(
            "info",
            f"the server died and systemd started it again, {times(service.n_restarts, 'time')}; now it serves",
            (f"systemctl show: NRestarts={service.n_restarts}",),
            f"journalctl -u {service.id} -b --no-pager | grep -B5 'Main process exited'",
        )
        return
    exited = signs.has("unit:main_exited", "unit:failed", "unit:watchdog", "unit:timeout") and not serves
    if not (limit or flapping or failed or respawns or (counter and not serves) or exited):
        return
    lines = signs.lines(
        "app_respawns",
        "unit:main_exited",
        "unit:watchdog",
        "unit:timeout",
        "unit:failed",
        "unit:start_limit",
        "unit:restart_scheduled",
        most=4,
    )
    ended = [re.search(r"killed, status=\d+/(\w+)", e.text) for e in signs.of("unit:main_exited")[-1:]]
    killed = f"the server was killed by SIG{ended[0][1]}" if ended and ended[0] else ""
    said = killed or "the service dies at once"
    if respawns:
        said = f"the app restarts its server again and again ({max(respawns)} times)"
    elif limit or failed:
        said = "systemd has given the service up" if limit else killed or "the service has failed"
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


OF_RUNNER = r"unable to (?:load|create)|runner (?:failed|process)"
CAUGHT = r"panic recovered|http: panic serving"
RUNNER_DIED = ("runner_dropped", "runner_gone", "runner_terminated")


@check(weight=72, explains=(*LOOP, "runner_crash_on_load", "runner_killed"))
def server_panic_restarts(signs: Signs, start: Start | None = None) -> Iterator[Finding]:
    """The server itself crashed.

    Why: an unrecovered panic of the Go server ends it with status 2; systemd calls that INVALIDARGUMENT, no setting
    is meant.
    Seen: the panic or the signal in the journal.
    Do: upgrade; report the trace.
    """
    found = signs.of("panic", "segfault")
    fatal = [e for e in found if not re.search(rf"{CAUGHT}|{OF_RUNNER}", e.text)]
    own = [e for e in fatal if start is None or ((e.pid is None or e.pid == start.pid) and not _went_on(start, e))]
    if signs.has("runner_trace") and not signs.has("server_trace"):
        own = []  # each process prints the stacks of its own goroutines
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
    elif (caught := [e for e in signs.of("panic") if re.search(CAUGHT, e.text)]) and not signs.has(*RUNNER_DIED):
        yield Finding(
            "warning",
            "a request made the server panic, which it survived",
            signs.quotes(caught),
            "ollama --version    # upgrade, report the trace",
            weight=30,
        )


def _went_on(start: Start, event: LogEvent) -> bool:
    """Whether the server itself wrote on after that: then what died was a runner, whose words it passes on."""
    line = event.line or 0
    own = [e for e in start.events if e.level and (e.line or 0) > line]
    return bool(own) or any((r.line or 0) > line for r in (*start.recent, *start.failed))


@check(weight=70)
def user_unit_absent(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """There is no unit of that name.

    Why: Ollama ships a system unit only; `systemctl --user` knows none, and a manual install has none at all.
    Seen: systemctl's refusal, or a server that runs on in a unit whose file is gone.
    Do: create one, or use the system unit.
    """
    for unit in facts.units or ():
        if unit.load == "not-found" and unit.active == "active":
            yield Finding(
                "warning",
                f"the file of {unit.name} is gone: its server still runs, and can't be started again",
                (f"systemctl show {unit.name}: LoadState=not-found ActiveState=active MainPID={unit.pid}",),
                "curl -fsSL https://ollama.com/install.sh | sh    # writes the unit anew",
            )
    if signs.has("unit_absent"):
        fix = "systemctl edit --user --force --full ollama.service"
        yield Finding("error", "systemd knows no unit of that name", signs.lines("unit_absent"), fix)


@check(weight=75, explains=("server_not_reachable",))
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
            "sudo mkdir -p /etc/systemd/system/ollama.service.d && "
            "printf '[Service]\\nEnvironment=HOME=/usr/share/ollama\\n' | sudo tee "
            "/etc/systemd/system/ollama.service.d/zz-home.conf && sudo systemctl daemon-reload "
            "&& sudo systemctl restart ollama",
        )
