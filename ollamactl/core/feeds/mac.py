"""Feeds on a Mac: who is logged in, how Ollama is started there, and the one that is meant, as a service.

They stand in for the feeds of the same name that ask systemd (see `mac` in collector.py).
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from ollamactl.core import launchd
from ollamactl.core.facts import Brew, BrewService, Install, Launch, Process, Service, Session, UnitName
from ollamactl.core.feeds.collector import Collector, Unknown, mac
from ollamactl.core.parse import brew as brew_words
from ollamactl.core.parse import launchctl, plist
from ollamactl.core.parse.launchctl import Job
from ollamactl.core.parse.plist import LaunchPlist
from ollamactl.core.source import Missing, command, file, listing, native, stat

BREWS = ("brew", "/opt/homebrew/bin/brew", "/usr/local/bin/brew")
APP = "Ollama.app"
NOT_LOADED = (113, 112, 125, 64)  # launchctl's codes for no such service, no such domain, not in this domain


@mac
def session(c: Collector) -> Session:
    return c.record(native("session"), Session)


def domain_of(has: Session) -> str:
    """Where a user's agents run: the session at the screen, else what there is without a login there."""
    return f"gui/{has.uid}" if has.uid is not None else f"user/{has.euid}"


@mac
def brew(c: Collector) -> Brew:
    """Homebrew, and whether it reads an environment file for a service."""
    has: Session = c.need("session")
    for program in BREWS:
        said = c.read(command(program, "--version", timeout=20.0))
        if said.missing is not None and said.missing.kind == "absent":
            continue
        if said.missing is not None:
            raise Unknown(said.missing)
        version = brew_words.parse_version(said.text)
        prefix = c.text(command(program, "--prefix", timeout=20.0)).strip()
        above = f"{has.config_home}/homebrew" if has.config_home else f"{has.home}/.homebrew"
        return Brew(
            program=program,
            version=".".join(map(str, version)),
            prefix=prefix,
            reads_env_files=version >= brew_words.ENV_FILES_SINCE,
            env_file=f"{above}/services/ollama.env",
        )
    raise Unknown(Missing("absent", "Homebrew is not installed"))


@mac
def brew_service(c: Collector) -> BrewService:
    """What `brew services` itself says of the formula; slow, so that only `facts` and `doctor` ask."""
    has: Brew = c.need("brew")
    reading = c.read(command(has.program, "services", "info", "ollama", "--json", timeout=60.0))
    if reading.missing is not None:
        raise Unknown(reading.missing)
    found = brew_words.parse_info(reading.body or b"")
    if found is None:
        raise Unknown(Missing("unparsable", "brew services info: no entry of ollama"))
    return found


@mac
def launches(c: Collector) -> tuple[Launch, ...]:
    """Every way in which Ollama is started here: jobs whose plist runs `ollama serve`, Ollama.app, and a server that
    was started by hand."""
    has: Session = c.need("session")
    here = domain_of(has)
    folders = ((f"{has.home}/Library/LaunchAgents", here), (launchd.AGENTS, here), (launchd.DAEMONS, "system"))
    found: list[Launch] = []
    for folder, domain in folders:
        for path, one in _plists(c, folder).items():
            if not one.label.startswith(launchd.PREFIX) and all(x.unit != one.label for x in found):
                found.append(_of_plist(c, has, path, one, domain))
    keg = _keg(c)
    if keg is not None and all(x.kind != "brew" for x in found):  # installed, and never registered
        found.append(_of_plist(c, has, keg[0], keg[1], here))
    if (app := _app(c, has)) is not None:
        found.append(app)
    known = {x.pid for x in found if x.pid}
    left = [p for p in c.get("servers") or () if p.pid not in known]
    own = f"{has.home}/Library/LaunchAgents/{launchd.OURS}.plist"
    if left or (not found and _program(c)) or _text(c, own) is not None:
        found.append(_alone(c, has, left, own))
    return tuple(found)


def _plists(c: Collector, folder: str) -> dict[str, LaunchPlist]:
    """Jobs of a folder that run an Ollama server."""
    reading = c.read(listing(f"{folder}/*.plist"))
    paths = msgspec.json.decode(reading.body, type=list[str]) if reading.body and not reading.missing else []
    found = {}
    for path in paths:
        text = c.read(file(path, limit=1 << 20))
        if text.missing is None and b"ollama" in (text.body or b"").lower():
            one = plist.parse(text.body or b"")
            if one.label and is_server(one.program):
                found[path] = one
    return found


def is_server(argv: tuple[str, ...]) -> bool:
    """`ollama serve`, also below a shell or another program."""
    return re.search(r"(^|[/ ])ollama\s+(-\S+\s+)*(serve|start)\b", " ".join(argv)) is not None


def _keg(c: Collector) -> tuple[str, LaunchPlist] | None:
    """The plist that comes with the formula."""
    has: Brew | None = c.get("brew")
    if has is None:
        return None
    path = f"{has.prefix}/opt/ollama/{brew_words.LABEL}.plist"
    reading = c.read(file(path, limit=1 << 20))
    return (path, plist.parse(reading.body or b"")) if reading.missing is None else None


def _of_plist(c: Collector, has: Session, path: str, one: LaunchPlist, domain: str) -> Launch:
    brewed = one.label == brew_words.LABEL
    system = domain == "system"
    own_label = launchd.PREFIX + one.label
    folder = launchd.DAEMONS if system else f"{has.home}/Library/LaunchAgents"
    own_file, holds = f"{folder}/{own_label}.plist", "plist"
    there = _text(c, own_file)
    homebrew: Brew | None = c.get("brew") if brewed else None
    if homebrew is not None and homebrew.reads_env_files and not system and there is None:
        own_file, holds = homebrew.env_file, "brew-file"
        there = _text(c, own_file)
    label = own_label if holds == "plist" and there is not None else one.label
    job = loaded(c, domain, label) or (loaded(c, domain, one.label) if label != one.label else None)
    return Launch(
        unit=one.label,
        kind="brew" if brewed else "daemon" if system else "agent",
        domain=domain,
        label=one.label,
        plist=path,
        own_label=own_label,
        own_file=own_file,
        holds="brew-file" if holds == "brew-file" else "plist",
        managed=not launchd.managed(holds, there).empty,
        pid=serving(c, job.pid, one.program) if job else None,
        program=one.program,
        log=one.stderr or one.stdout,
    )


def serving(c: Collector, pid: int | None, program: tuple[str, ...]) -> int | None:
    """The server of a job: its process, or the child of the shell that it is."""
    if not pid or (program and program[0].rpartition("/")[2] == "ollama"):
        return pid
    servers: tuple[Process, ...] = c.get("servers") or ()
    return next((p.pid for p in servers if pid and p.ppid == pid and p.pid != pid), pid)


def _app(c: Collector, has: Session) -> Launch | None:
    server = next((p for p in c.get("servers") or () if ".app/Contents/" in _program_of(p)), None)
    path = _program_of(server).partition("/Contents/")[0] if server else ""
    places = [p for p in (path, f"/Applications/{APP}", f"{has.home}/Applications/{APP}") if p]
    path = next((p for p in places if c.read(stat(p)).missing is None), "")
    if not path:
        return None
    own_file = f"{has.home}/Library/LaunchAgents/{launchd.SESSION}.plist"
    pid = server.ppid if server is not None and server.ppid > 1 else _app_pid(c, has)
    return Launch(
        unit=APP,
        kind="app",
        domain=domain_of(has),
        own_label=launchd.SESSION,
        own_file=own_file,
        holds="session",
        managed=not launchd.managed("session", _text(c, own_file)).empty,
        pid=server.pid if server else None,
        app=path,
        app_pid=pid,
        program=(f"{path}/Contents/Resources/ollama", "serve"),
        log=f"{has.home}/.ollama/logs/server.log",
    )


def _program_of(process: Process) -> str:
    return process.exe or (process.argv[0] if process.argv else "")


def _app_pid(c: Collector, has: Session) -> int | None:
    """The app where its server does not run: launchd lists what was opened."""
    rows = launchctl.parse_domain(c.once(command("launchctl", "print", domain_of(has), any_exit=True)).text).services
    return next((r.pid for r in rows if r.pid and r.label.startswith("application.com.electron.ollama.")), None)


def _program(c: Collector) -> str:
    """An `ollama` that is installed, where nothing starts it."""
    has: Brew | None = c.get("brew")
    places = ([f"{has.prefix}/opt/ollama/bin/ollama"] if has else []) + ["/usr/local/bin/ollama"]
    return next((p for p in places if c.read(stat(p)).missing is None), "")


def _alone(c: Collector, has: Session, left: list[Process], own: str) -> Launch:
    """A server without a job; once we manage it, an agent of our own runs it."""
    text = _text(c, own)
    domain = domain_of(has)
    job = loaded(c, domain, launchd.OURS) if text is not None else None
    mine = plist.parse((text or "").encode()) if text is not None else LaunchPlist()
    program = mine.program or ((_program_of(left[0]), "serve") if left else (_program(c), "serve"))
    other = next((p.pid for p in left if job is None or p.pid != job.pid), None)
    return Launch(
        unit="ollama",
        kind="agent" if text is not None or other is None else "hand",
        domain=domain,
        own_label=launchd.OURS,
        own_file=own,
        managed=text is not None,
        pid=job.pid if job is not None else other,
        program=program,
        log=mine.stderr or f"{has.home}/Library/Logs/ollama.log",  # launchd makes no folder for it
    )


def _text(c: Collector, path: str) -> str | None:
    reading = c.read(file(path, limit=1 << 20))
    return reading.text if reading.missing is None else None


def loaded(c: Collector, domain: str, label: str) -> Job | None:
    """A job as launchd has it; None where it is not loaded. Raises Unknown where launchctl can't tell."""
    reading = c.once(command("launchctl", "print", f"{domain}/{label}", any_exit=True))
    if reading.missing is not None:
        raise Unknown(reading.missing)
    if reading.status in NOT_LOADED:
        return None
    if reading.status:
        raise Unknown(Missing("failed", f"launchctl print {domain}/{label}: {reading.stderr} (exit {reading.status})"))
    return launchctl.parse_print(reading.text)


@mac
def launch(c: Collector) -> Launch:
    """The one that is meant: by its name, the only one, the only one that runs, or the one that owns the port."""
    found: tuple[Launch, ...] = c.need("launches")
    if c.unit:
        named = [x for x in found if c.unit in (x.unit, f"{x.kind}:{x.unit}", x.kind, x.own_label)]
        if not named:
            raise Unknown(Missing("absent", f"nothing starts Ollama here as {c.unit}"))
        return named[0]
    running = [x for x in found if x.pid]
    owners = {x.pid for x in c.get("listeners") or () if x.port == 11434} if len(running) > 1 else set()
    for some in ([x for x in running if x.pid in owners], running, list(found)):
        if len(some) == 1:
            return some[0]
    if found:
        names = ", ".join(x.unit for x in found)
        raise Unknown(Missing("unasked", f"several start Ollama: {names}", "--unit NAME"))
    raise Unknown(Missing("absent", "nothing starts Ollama on this Mac"))


@mac
def unit(c: Collector) -> str:
    return str(c.need("launch").unit)


@mac
def units(c: Collector) -> tuple[UnitName, ...]:
    known: tuple[Launch, ...] = c.need("launches")
    return tuple(UnitName(name=x.unit, load="loaded", active="active" if x.pid else "inactive") for x in known)


@mac
def installs(c: Collector) -> tuple[Install, ...]:
    known: tuple[Launch, ...] = c.need("launches")
    return tuple(Install(way=x.kind, name=x.unit, pid=x.pid, running=bool(x.pid), why=_why(x)) for x in known)


def _why(one: Launch) -> str:
    if one.kind == "app":
        return one.app
    return one.plist or one.own_file if one.kind != "hand" else f"pid {one.pid}, started by hand"


@mac
def install(c: Collector) -> Install:
    meant: Launch = c.need("launch")
    known: tuple[Install, ...] = c.need("installs")
    return next(x for x in known if x.name == meant.unit)


@mac
def job(c: Collector) -> Job:
    """The loaded job that runs the server that is meant."""
    has: Launch = c.need("launch")
    for label in (has.own_label if has.holds == "plist" else "", has.label):
        if label and (found := loaded(c, has.domain, label)) is not None:
            return found
    raise Unknown(Missing("absent", f"{has.unit} is not loaded"))


@mac
def service(c: Collector) -> Service:
    """The server as launchd has it, in the terms that systemd has for a service. `id` is the name of the way."""
    has: Launch = c.need("launch")
    running = c.get("job")
    active, sub = launchd.state_of(running)
    if has.kind in ("app", "hand"):
        active, sub = ("active", "running") if has.pid else ("inactive", "not running")
    process = process_of(c, has.pid)
    label = running.target.rpartition("/")[2] if running else has.label
    since = process.started if process else None
    stale = bool(running) and has.holds == "plist" and _changed(c, has, running)
    user: Session = c.need("session")
    return Service(
        id=has.unit,
        load_state="loaded" if has.kind in ("app", "hand") or has.plist or has.managed else "not-found",
        active_state=active,
        sub_state=sub,
        unit_file_state=_enabled(c, has, label),
        fragment_path=has.plist or has.app,
        dropin_paths=(has.own_file,) if has.managed else (),
        need_daemon_reload=stale,
        invocation_id=launchd.invocation(label or has.unit, has.pid, since),
        main_pid=has.pid or 0,
        n_restarts=max(0, running.runs - 1) if running else 0,
        result=running.last_signal or f"exit {running.last_exit}" if running and running.last_exit else "",
        exec_main_status=(running.last_exit or 0) if running else 0,
        exec_main_start=since,
        active_enter=since,
        environment=tuple(f"{k}={v}" for k, v in launchd.given(running).items()) if running else (),
        exec_start=(running.arguments if running else ()) or has.program,
        user=user.user if has.domain != "system" else (process.user if process else ""),
        working_directory=running.working_directory if running else "",
        standard_output=f"append:{has.log}" if has.log else "",
        standard_error=f"append:{has.log}" if has.log else "",
        manager="launchd",
        way=has.kind,
        label=label,
        domain=has.domain,
        log_path=has.log,
        restart_commands=launchd.restart_commands(has, label),
        managed=_managed(c, has),
    )


def process_of(c: Collector, pid: int | None) -> Process | None:
    """A process; None where it has ended meanwhile."""
    try:
        return c.record(native("process", str(pid)), Process) if pid else None
    except Unknown:
        return None


def _managed(c: Collector, has: Launch) -> dict[str, str | None]:
    now = launchd.managed(has.holds, _text(c, has.own_file))
    return {**now.values, **dict.fromkeys(now.unset)}


def _changed(c: Collector, has: Launch, running: Job) -> bool:
    """Whether the plist on the disk has other variables than the job that was loaded from one."""
    text = _text(c, has.own_file) or _text(c, has.plist)
    return text is not None and plist.parse(text.encode()).environment != launchd.given(running)


def _enabled(c: Collector, has: Launch, label: str) -> Literal["enabled", "disabled", ""]:
    if not label:
        return ""
    said = c.read(command("launchctl", "print-disabled", has.domain, any_exit=True))
    return "disabled" if launchctl.parse_disabled(said.text).get(label) else "enabled"
