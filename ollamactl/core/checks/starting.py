"""A unit that systemd refuses, or whose process it could not set up."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from ollamactl.core import remedies
from ollamactl.core.checks.base import Finding, check, in_force, seconds, stated
from ollamactl.core.checks.service import LOOP
from ollamactl.core.facts import EnvFile, Facts, Process, Service, UnitFile
from ollamactl.core.needs import NO_SIGNS, Signs
from ollamactl.core.remedies import edited

# systemd's name of a step before the program is executed -> its exit status, what is wrong, the settings it reads
STEPS: dict[str, tuple[int, str, tuple[str, ...]]] = {
    "CHDIR": (200, "the folder of WorkingDirectory= is not there or may not be entered", ("WorkingDirectory",)),
    "LIMITS": (205, "a limit can't be set", ("LimitNOFILE", "LimitMEMLOCK", "LimitNPROC", "LimitAS")),
    "STDIN": (208, "its standard input can't be opened", ("StandardInput",)),
    "STDOUT": (209, "the file of StandardOutput= can't be opened", ("StandardOutput",)),
    "CHROOT": (210, "RootDirectory= can't be entered", ("RootDirectory", "RootImage")),
    "CPUAFFINITY": (215, "CPUAffinity= names no CPU of this host", ("CPUAffinity", "NUMAMask")),
    "GROUP": (216, "a group does not exist", ("Group", "SupplementaryGroups")),
    "USER": (217, "the user of User= does not exist", ("User",)),
    "CAPABILITIES": (218, "its capabilities can't be set", ("CapabilityBoundingSet", "AmbientCapabilities")),
    "CGROUP": (219, "its control group can't be set up", ("Slice", "Delegate")),
    "STDERR": (222, "the file of StandardError= can't be opened", ("StandardError",)),
    "NAMESPACE": (
        226,
        "a path of its sandbox is not there",
        ("ReadWritePaths", "ReadOnlyPaths", "BindPaths", "BindReadOnlyPaths", "InaccessiblePaths"),
    ),
    "SECCOMP": (228, "its system call filter can't be set", ("SystemCallFilter",)),
    "RUNTIME_DIRECTORY": (233, "RuntimeDirectory= can't be made", ("RuntimeDirectory",)),
    "STATE_DIRECTORY": (238, "StateDirectory= can't be made", ("StateDirectory",)),
    "CACHE_DIRECTORY": (239, "CacheDirectory= can't be made", ("CacheDirectory",)),
    "LOGS_DIRECTORY": (240, "LogsDirectory= can't be made", ("LogsDirectory",)),
    "CREDENTIALS": (243, "a credential can't be loaded", ("LoadCredential", "SetCredential")),
}  # fmt: skip
LISTS = {*STEPS["NAMESPACE"][2], "SupplementaryGroups", "LoadCredential", "SetCredential"}
_BY_STATUS = {f"{status}/{name}": name for name, (status, *_) in STEPS.items()}
SILENT = "systemd does not answer"  # how the reason begins why units are not known
UNFIT = ("notify", "notify-reload", "forking", "dbus", "oneshot")
NEVER = ("0", "0s", "infinity")
REFUSED = ("bad-setting", "error")
# not of ExecStartPre= or ExecStartPost=, whose own program is what takes long
_MAIN_START = re.compile(r"(?i)(?:^|: )start operation$")


@check(weight=98)
def systemd_does_not_answer(facts: Facts) -> Iterator[Finding]:
    """systemd runs and can't be asked, so that nothing about the service is known.

    Why: its sockets are gone (somebody emptied /run, or the bus died); services run on, but none can be restarted.
    Seen: systemctl's own refusal.
    Do: make systemd listen again, or boot.
    """
    untold = facts.why("units")
    if facts.units is None and untold.kind == "failed" and untold.detail.startswith(SILENT):
        servers = tuple(f"process {s.pid}: {' '.join(s.argv)} ({s.cgroup})" for s in facts.servers or ())
        said = "systemd does not answer: settings, state and log of the service are not known"
        fix = f"{remedies.LISTEN_AGAIN}    # systemd executes itself anew and listens again; services run on"
        yield Finding("warning", said, (f"systemctl: {untold.detail}", *servers), fix)


@check(weight=94, explains=(*LOOP, "need_daemon_reload", "service_not_started_at_boot", "config_newer_than_process"))
def unit_refused(facts: Facts, service: Service | None = None, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """systemd refuses the unit as its files make it.

    Why: two ExecStart= lines without an empty one between them, none at all, or a path that is not absolute: the unit
    can't be started any more; a process that was started before runs on.
    Seen: LoadState=bad-setting, and systemd's line that ends in "Refusing.".
    Do: correct that line; a drop-in replaces a command with an empty ExecStart= before its own.
    """
    complaints = [c.text for c in facts.complaints or (facts.log.complaints if facts.log else ())]
    refusing = [text for text in complaints if text.endswith("Refusing.")][-2:]
    if service is None and signs.has("bad_setting"):
        said = "systemd refuses the unit: a line of its files is none that it takes"
        fix = "systemd-analyze verify ollama.service; systemctl cat ollama"
        yield Finding("error", said, signs.lines("bad_setting"), fix)
        return
    if service is None or service.load_state not in REFUSED:
        serves = facts.start is not None and bool(facts.start.listening)
        if service is None and refusing and not serves:
            said = "systemd refuses the unit"
            yield Finding("error", said, tuple(refusing), "systemctl cat ollama; sudo systemctl edit --full ollama")
        return
    lines = _settings(facts, ("ExecStart",))
    places = [line.split(":", 1)[0] for line in lines[1:] or lines] or [service.fragment_path]
    state = f"systemctl show: LoadState={service.load_state} {service.load_error}".rstrip()
    yield Finding(
        "error",
        f"systemd refuses {service.id}: it can't be started any more",
        (state, *refusing, *lines),
        edited(*places, unit=service.id),
    )


@check(weight=92, explains=(*LOOP, "execstart_203_exec", "exec_path_missing", "malformed_env_assignment"))
def service_setup_failed(facts: Facts, signs: Signs = NO_SIGNS, service: Service | None = None) -> Iterator[Finding]:
    """systemd could not set up the process, so the server was never executed.

    Why: a user or group that does not exist, a working directory, a file or a path of the sandbox that is not there.
    Seen: "Failed at step USER spawning …", status=217/USER and the like.
    Do: correct the setting, or make what it names.
    """
    failed = [e for e in signs.of("unit:exec_failed") if e.fields.get("step") in STEPS]
    exits = [e for e in signs.of("unit:main_exited") if e.fields.get("status") in _BY_STATUS]
    if not failed and not exits:
        return
    step = failed[-1].fields["step"] if failed else _BY_STATUS[exits[-1].fields["status"]]
    status, said, keys = STEPS[step]
    why = failed[-1].fields.get("why", "") if failed else ""
    lines = _settings(facts, keys)
    unit = service.id if service else "ollama"
    yield Finding(
        "error",
        f"the server was not executed ({status}/{step}): {said}" + (f" ({why})" if why else ""),
        (*lines, *signs.quotes(failed[-1:] + exits[-1:])),
        _editing(lines, unit),
    )


def _settings(facts: Facts, keys: tuple[str, ...]) -> list[str]:
    return [stated(f, one) for key in keys for f, one in in_force(facts.unit_files or (), key)]


def _editing(lines: list[str], unit: str) -> str:
    if lines:
        return edited(*(line.split(":", 1)[0] for line in lines), unit=unit)
    return f"sudo systemctl edit {unit} && sudo systemctl restart {unit}"


@check(weight=92, explains=LOOP)
def environment_file_missing(
    signs: Signs = NO_SIGNS, service: Service | None = None, env_files: tuple[EnvFile, ...] = ()
) -> Iterator[Finding]:
    """A file of EnvironmentFile= is not there, so systemd does not start the service.

    Why: without a `-` before its path the file is needed; the failure is "resources", with no line of the server.
    Seen: the file, and "Failed to load environment files".
    Do: make the file, or write EnvironmentFile=-PATH.
    """
    lines = signs.lines("unit:environment_file_failed")
    gone = [
        f for f in env_files if not f.optional and f.missing is not None and f.missing.kind in ("absent", "denied")
    ]
    unit = service.id if service else "ollama"
    for one in gone:
        up = service is not None and bool(service.main_pid)
        yield Finding(
            "warning" if up else "error",
            f"EnvironmentFile={one.path} is not there: "
            + ("the next start fails" if up else "the service can't start"),
            (f"{one.declared_in}:{one.declared_line}: EnvironmentFile={one.path}", *lines),
            f"sudo touch {one.path} && sudo systemctl restart {unit}    # or EnvironmentFile=-{one.path}",
        )
    if lines and not gone and (service is None or not service.main_pid):
        said = "systemd could not read a file of EnvironmentFile=, so the service is not started"
        yield Finding("error", said, lines, f"systemctl cat {unit} | grep EnvironmentFile")


_BEHIND = re.compile(r"ollama['\"]?\s+serve\b.*(?<!&)&\s*['\"]?\s*$")


@check(weight=91, explains=LOOP)
def unit_type_unfit(
    facts: Facts, signs: Signs = NO_SIGNS, service: Service | None = None, unit_files: tuple[UnitFile, ...] = ()
) -> Iterator[Finding]:
    """The unit's Type= waits for something that Ollama does not do.

    Why: `ollama serve` neither forks nor tells systemd that it is up; with Type=notify, forking, dbus or oneshot
    systemd takes it for not started, and kills it after TimeoutStartSec=.
    Seen: Type= of a unit that does not become active; a start that timed out though the server listened.
    Do: Type=simple or exec.
    """
    lines = [stated(file, one) for file, one in in_force(unit_files, "Type")[-1:]]
    kind = service.type if service and service.type else lines[0].rsplit("=", 1)[-1].strip() if lines else ""
    kind = kind or next((e.fields["type"] for e in signs.of("unit_type_told")), "")
    expired = [e for e in signs.of("unit:timeout") if _MAIN_START.search(e.fields.get("what", ""))]
    served = any(start.listening for start in (facts.log.starts if facts.log else ()))
    stuck = service is not None and service.active_state in ("activating", "failed")
    behind = [(file, one) for file, one in in_force(unit_files, "ExecStart") if _BEHIND.search(one.value)]
    if behind and kind in ("", "simple", "exec"):
        yield Finding(
            "error",
            "ExecStart= sends the server into the background: its shell ends at once, and systemd ends the rest",
            tuple(stated(*line) for line in behind),
            edited(*(file.path for file, _ in behind), unit=service.id if service else "ollama")
            + "    # ExecStart=/usr/local/bin/ollama serve",
        )
    elif (kind in UNFIT and (stuck or expired)) or (not kind and expired and served):
        unit = service.id if service and service.id else "ollama.service"
        state = f"systemctl show: ActiveState={service.active_state} Result={service.result}" if service else ""
        said = f"{f'Type={kind}' if kind else 'the Type= of the unit'} waits for what Ollama never does"
        yield Finding(
            "error",
            f"{said}: the start times out",
            (*lines, state if stuck else "", *signs.quotes(expired[-1:])),
            _editing(lines, unit) + "    # Type=simple",
        )


@check(weight=90, explains=LOOP)
def watchdog_ends_server(
    signs: Signs = NO_SIGNS, service: Service | None = None, unit_files: tuple[UnitFile, ...] = ()
) -> Iterator[Finding]:
    """The unit's watchdog kills the server.

    Why: with WatchdogSec= systemd waits for a sign of life that a program must send by itself, and Ollama sends none:
    it is ended with SIGABRT after that time, whatever it does.
    Seen: WatchdogSec= of the unit; "Watchdog timeout", or the result `watchdog`.
    Do: take WatchdogSec= out.
    """
    bitten = [*signs.of("unit:watchdog"), *signs.matching("result 'watchdog'", kinds=("unit:failed",))]
    set_ = [(file, one) for file, one in in_force(unit_files, "WatchdogSec")[-1:] if one.value.strip() not in NEVER]
    lines = [stated(file, one) for file, one in set_]
    if bitten or lines:
        fix = _editing(lines, service.id if service else "ollama") + "    # no WatchdogSec="
        said = "systemd ends the server for want of a sign of life, which Ollama never sends: WatchdogSec="
        yield Finding("error" if bitten else "warning", said, (*lines, *signs.quotes(bitten)), fix)


@check(weight=60, explains=(*LOOP, "models_in_two_dirs"))
def runtime_limit_ends_server(
    signs: Signs = NO_SIGNS, service: Service | None = None, unit_files: tuple[UnitFile, ...] = ()
) -> Iterator[Finding]:
    """The unit ends the server after a fixed time.

    Why: RuntimeMaxSec= kills it in the middle of its answers, as a failure; Restart= brings it back without models.
    Seen: the setting; systemd's line "Service reached runtime time limit".
    Do: take it out.
    """
    unit = service.id if service and service.id else "ollama.service"
    reached = signs.lines("unit:runtime_limit", most=2)
    lines = [stated(file, one) for file, one in in_force(unit_files, "RuntimeMaxSec")[-1:]]
    spans = [line.rsplit("=", 1)[-1].strip() for line in lines]
    after = f"{spans[0]} s" if spans and spans[0].isdigit() else spans[0] if spans else ""
    if not lines and service is not None and service.runtime_max is not None:
        after = "infinity" if math.isinf(service.runtime_max) else seconds(service.runtime_max)
        lines = [] if math.isinf(service.runtime_max) else [f"systemctl show: RuntimeMaxUSec={after}"]
    if after != "infinity" and (lines or reached):
        places = lines if spans else []
        fix = _editing(places, unit) + "    # no RuntimeMaxSec="
        said = f"systemd ends the server {after or 'a fixed time'} after each start"
        yield Finding("warning", said, (*lines, *reached), fix)


@check(weight=65, explains=("server_not_reachable",))
def api_answers_nothing(facts: Facts, service: Service, process: Process) -> Iterator[Finding]:
    """The server listens, and its API does not answer on this host.

    Why: a firewall drops or refuses what goes to the port, on the loopback interface too, or the server hangs.
    Seen: the socket of the service's own process beside a request that is refused or waits in vain.
    Do: look through the firewall's rules; where none is of that port, restart the server.
    """
    silent, where = facts.why("loaded"), facts.address or ""
    listens = any(x.pid == process.pid and where.endswith(f":{x.port}") for x in facts.listeners or ())
    if facts.loaded is not None or not listens or service.n_restarts or silent.kind not in ("timeout", "absent"):
        return
    rules = f"sudo nft list ruleset | grep -n {where.rpartition(':')[2]}"
    yield Finding(
        "error",
        f"{service.id} listens on {where}, and nothing comes back from there",
        (f"socket: LISTEN {where}, pid {process.pid}", f"/api/ps: {silent}"),
        f"{rules}; sudo systemctl restart {service.id}    # the first where a firewall is the reason",
    )


@check(
    weight=86,
    explains=("client_timeout_500_clusters", "model_stuck_stopping", "queue_building_up", "api_answers_nothing"),
)
def server_process_stopped(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """The server's process is stopped, so that nobody gets an answer.

    Why: SIGSTOP (a debugger, a shell's ^Z, a freezer of the control group) halts it; systemd goes on showing it as
    active, and clients wait without end.
    Seen: the state of the process.
    Do: let it go on: kill -CONT.
    """
    process, service = facts.process, facts.service
    if service is not None and service.frozen:
        state = "systemctl show: FreezerState=frozen"
        said = f"{service.id} is frozen: its server takes connections and answers nothing"
        yield Finding("error", said, (state,), f"sudo systemctl thaw {service.id}")
    elif process is not None and re.match(r"[Tt]$|stopped|tracing", process.state):
        silent = facts.why("loaded") if facts.loaded is None else None
        yield Finding(
            "error",
            f"the server (pid {process.pid}) is stopped: it takes connections and answers nothing",
            (f"process {process.pid}: state {process.state}", f"/api/ps: {silent}" if silent else ""),
            f"sudo kill -CONT {process.pid}",
        )
    elif lines := signs.lines("server_stopped"):
        said = "the server's process is stopped: it takes connections and answers nothing"
        yield Finding("error", said, lines, "sudo pkill -CONT -x ollama    # a container: docker unpause")
