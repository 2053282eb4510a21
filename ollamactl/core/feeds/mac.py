"""Feeds on a Mac: who is logged in, and how Ollama is started there.

They stand in for the feeds of the same name that ask systemd (see `mac` in collector.py).
"""

from __future__ import annotations

import re

import msgspec

from ollamactl.core import launchd
from ollamactl.core.facts import Brew, BrewService, Launch, Process, Session
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
    if left or (not found and _program(c)) or text_of(c, own) is not None:
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
    there = text_of(c, own_file)
    homebrew: Brew | None = c.get("brew") if brewed else None
    if homebrew is not None and homebrew.reads_env_files and not system and there is None:
        own_file, holds = homebrew.env_file, "brew-file"
        there = text_of(c, own_file)
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
        managed=not launchd.managed("session", text_of(c, own_file)).empty,
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
    text = text_of(c, own)
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


def text_of(c: Collector, path: str) -> str | None:
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
