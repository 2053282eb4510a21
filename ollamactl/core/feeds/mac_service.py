"""Feeds on a Mac: the way that is meant, as a service in the terms that systemd has for one."""

from __future__ import annotations

from typing import Literal

from ollamactl.core import launchd
from ollamactl.core.facts import Install, Launch, Process, Service, Session, UnitName
from ollamactl.core.feeds.collector import Collector, Unknown, mac
from ollamactl.core.feeds.mac import loaded, text_of
from ollamactl.core.parse import launchctl, plist
from ollamactl.core.parse.launchctl import Job
from ollamactl.core.source import Missing, command, native


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
    now = launchd.managed(has.holds, text_of(c, has.own_file))
    return {**now.values, **dict.fromkeys(now.unset)}


def _changed(c: Collector, has: Launch, running: Job) -> bool:
    """Whether the plist on the disk has other variables than the job that was loaded from one."""
    text = text_of(c, has.own_file) or text_of(c, has.plist)
    return text is not None and plist.parse(text.encode()).environment != launchd.given(running)


def _enabled(c: Collector, has: Launch, label: str) -> Literal["enabled", "disabled", ""]:
    if not label:
        return ""
    said = c.read(command("launchctl", "print-disabled", has.domain, any_exit=True))
    return "disabled" if launchctl.parse_disabled(said.text).get(label) else "enabled"
