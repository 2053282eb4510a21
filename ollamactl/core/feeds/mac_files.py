"""Feeds on a Mac: files, environment, process and log of the way in which Ollama is started."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ollamactl.core import launchd
from ollamactl.core.environment import Extra
from ollamactl.core.facts import (
    AppSettings,
    Complaint,
    Effective,
    EnvFile,
    Launch,
    Listener,
    Log,
    LogEvent,
    Process,
    Service,
    Session,
    UnitFile,
)
from ollamactl.core.feeds.collector import Collector, Unknown, mac
from ollamactl.core.feeds.log import HEAD_BYTES
from ollamactl.core.parse import brew as brew_words
from ollamactl.core.parse import launchctl, log, macos
from ollamactl.core.source import Missing, command, file, native, stat


@mac
def unit_files(c: Collector) -> tuple[UnitFile, ...]:
    """The plist of the job that we stand in for, then ours. Of a formula with an environment file: the plist that
    comes with it, since brew writes the registered one anew at each start."""
    has: Launch = c.need("launch")
    found = []
    for path in dict.fromkeys(p for p in (_base(c, has), has.own_file if has.holds != "brew-file" else "") if p):
        ours = path == has.own_file
        reading = c.read(file(path, limit=1 << 20))
        if reading.missing is not None and ours and reading.missing.kind == "absent":
            continue
        if reading.missing is not None:
            found.append(UnitFile(path=path, role="dropin" if ours else "main", missing=reading.missing))
            continue
        one = launchd.unit_file(path, reading.text, ours=ours)
        state = c.read(stat(path))
        mtime = msgspec.json.decode(state.body)["mtime"] if state.body and not state.missing else None
        found.append(msgspec.structs.replace(one, mtime=mtime))
    return tuple(found)


def _base(c: Collector, has: Launch) -> str:
    if has.holds == "brew-file" and (homebrew := c.get("brew")) is not None:
        keg = f"{homebrew.prefix}/opt/ollama/{brew_words.LABEL}.plist"
        if c.read(stat(keg)).missing is None:
            return keg
    return has.plist


@mac
def env_files(c: Collector) -> tuple[EnvFile, ...]:
    has: Launch = c.need("launch")
    if has.holds != "brew-file":
        return ()
    mode = c.read(stat(has.own_file))
    reading = c.read(file(has.own_file, limit=1 << 20))
    if reading.missing is not None and reading.missing.kind == "absent":
        return ()
    if reading.missing is not None:
        return (EnvFile(path=has.own_file, optional=True, missing=reading.missing),)
    found = launchd.brew_file(has.own_file, reading.text)
    bits: dict[str, Any] = msgspec.json.decode(mode.body) if mode.body and not mode.missing else {}
    if bits.get("type") == "file" and int(bits.get("mode", 0)) & 0o022:
        said = f"brew ignores it: others may write it (mode {int(bits['mode']):04o}); chmod go-w {has.own_file}"
        return (msgspec.structs.replace(found, entries=(), missing=Missing("failed", said)),)
    return (found,)


@mac
def manager_environment(c: Collector) -> dict[str, str]:
    """What launchd gives to processes that the domain starts from now on (`launchctl setenv` is in it)."""
    has: Launch = c.need("launch")
    reading = c.once(command("launchctl", "print", has.domain, any_exit=True))
    if reading.missing is not None:
        raise Unknown(reading.missing)
    if reading.status:
        raise Unknown(Missing("failed", f"launchctl print {has.domain}: {reading.stderr} (exit {reading.status})"))
    return launchctl.parse_domain(reading.text).environment


@mac
def app_settings(c: Collector) -> AppSettings:
    """Ollama.app's own settings, as the variables that they become; these win over the session's."""
    has: Session = c.need("session")
    path = f"{has.home}/Library/Application Support/Ollama/db.sqlite"
    body = c.body(native("app_settings", path))
    try:
        said: dict[str, Any] = msgspec.json.decode(body)
        row: dict[str, Any] = said["row"]
    except (msgspec.DecodeError, KeyError, TypeError):
        raise Unknown(Missing("unparsable", f"{path}: no row of settings")) from None
    found = {}
    if row.get("expose"):
        found["OLLAMA_HOST"] = "0.0.0.0"
    if row.get("browser"):
        found["OLLAMA_ORIGINS"] = "*"
    models = str(row.get("models") or "")
    if models and c.read(stat(models)).missing is None:  # a folder that is not there is passed over
        found["OLLAMA_MODELS"] = models
    context = row.get("context_length")
    if isinstance(context, int) and context > 0:
        found["OLLAMA_CONTEXT_LENGTH"] = str(context)
    return AppSettings(path=path, schema=int(said.get("schema") or 0), variables=found)


@mac
def effective(c: Collector) -> Effective:
    has: Launch = c.need("launch")
    app: AppSettings | None = c.get("app_settings") if has.kind == "app" else None
    found = launchd.effective(has, c.get("manager_environment"), c.need("unit_files"), c.need("env_files"), app)
    why = c.missing.get("app_settings")
    if has.kind == "app" and why is not None and why.kind != "absent":
        said = f"the app's own settings are not known: {why}"
        return msgspec.structs.replace(found, problems=(*found.problems, said))
    return found


@mac
def extra(c: Collector) -> Extra:
    return Extra()


@mac
def complaints(c: Collector) -> tuple[Complaint, ...]:
    return ()


@mac
def kernel(c: Collector) -> tuple[LogEvent, ...]:
    raise Unknown(Missing("unsupported", "the kernel's lines are not read on macOS"))


@mac
def inspected(c: Collector) -> None:
    raise Unknown(Missing("unsupported", "containers are not looked at on macOS"))


@mac
def process(c: Collector) -> Process:
    """The server. Where its environment can't be read (another user's, or a program that is signed against it), `ps`
    is asked too; an environment without a variable is one that may not be read."""
    has: Service = c.need("service")
    if not has.main_pid:
        raise Unknown(Missing("absent", f"{has.id} is {has.active_state or 'not running'}: no process"))
    found = c.record(native("process", str(has.main_pid)), Process)
    if found.environ:
        return found
    said = c.read(command("ps", "-Eww", "-p", str(has.main_pid), "-o", "command=", any_exit=True))
    return msgspec.structs.replace(found, environ=macos.parse_ps_environment(said.text, found.argv))


@mac
def listeners(c: Collector) -> tuple[Listener, ...]:
    """By lsof, which shows the sockets of others only to root: nothing found is not nothing there."""
    reading = c.read(command("lsof", "-nP", "+c0", "-iTCP", "-sTCP:LISTEN", "-F", "pcn", any_exit=True))
    if reading.missing is not None:
        raise Unknown(reading.missing)
    found = macos.parse_lsof(reading.text)
    if not found:
        raise Unknown(Missing("denied", "lsof shows no listening socket", "sudo shows it"))
    return found


@mac
def log_(c: Collector) -> Log:
    has: Service = c.need("service")
    if not has.log_path:
        raise Unknown(Missing("absent", f"the output of {has.id} goes to no file"))
    if not re.match(r"/(?!dev/)", has.log_path):
        raise Unknown(Missing("absent", f"the output of {has.id} goes to {has.log_path}, which keeps no lines"))
    size = HEAD_BYTES * 8
    body = c.body(command("tail", "-c", str(size), "--", has.log_path, limit=size))
    return log.parse_log([body], where=has.log_path, unit=has.id)
