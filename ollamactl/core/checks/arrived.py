"""Settings that did not arrive: lost between a file, systemd, the process and the server."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core import settings, verify
from ollamactl.core.checks.base import Finding, check, configured, stated
from ollamactl.core.dropin import DROPIN_NAME
from ollamactl.core.facts import Effective, Facts, Process, Service, Start, ToldVariable
from ollamactl.core.mismatch import Mismatch
from ollamactl.core.needs import NO_SIGNS, Given, Gone, Signs
from ollamactl.core.remedies import edited
from ollamactl.core.source import Missing

SHELLS = ("shell", "profile", "client")


def mismatches(facts: Facts, *ids: str) -> list[Mismatch]:
    return [m for m in verify.judge(facts, verify.managed_now(facts)).mismatches if m.id in ids]


@check(weight=84, explains=("config_newer_than_process", "env_not_in_server_config"))
def need_daemon_reload(facts: Facts, signs: Signs = NO_SIGNS, service: Service | None = None) -> Iterator[Finding]:
    """Unit files were changed and systemd was not told.

    Why: systemd keeps the unit as it was read; a restart without daemon-reload starts the old one, and says nothing.
    Seen: NeedDaemonReload=yes, or systemctl's own warning; the values that differ are beside it.
    Do: systemctl daemon-reload, then restart the service.
    """
    unit = service.id if service else "ollama"
    fix = f"sudo systemctl daemon-reload && sudo systemctl restart {unit}"
    if service is not None and service.need_daemon_reload:
        lost = tuple(m.text for m in mismatches(facts, "need_daemon_reload"))
        broken = any("header" in p.why for f in facts.unit_files or () for p in f.problems)
        if not broken:
            said = "the unit's files were changed after systemd read them: NeedDaemonReload=yes"
            yield Finding("warning", said, lost or ("systemctl show: NeedDaemonReload=yes",), fix)
    elif signs.has("daemon_reload_needed"):
        yield Finding(
            "warning", "systemd says that the unit's files changed on disk", signs.lines("daemon_reload_needed"), fix
        )
    elif signs.has("not_reloaded_told"):
        said = "a changed file of the unit counts after a daemon-reload and a restart only"
        yield Finding("warning", said, signs.lines("not_reloaded_told"), fix)


def _kept(service: Service, process: Process) -> tuple[str, ...]:
    """Ollama's variables of `systemctl show` that the process has otherwise, or not; where no file beats them."""
    if process.environ is None or service.environment_files:
        return ()
    pairs = dict(item.partition("=")[::2] for item in service.environment)
    names = [n for n in pairs if n.startswith("OLLAMA_") and n not in service.unset_environment]
    return tuple(
        f"systemctl show: {name}={pairs[name]}; process {process.pid}: {name}={process.environ.get(name, '(unset)')}"
        for name in names
        if process.environ.get(name) != pairs[name]
    )


@check(weight=80)
def config_newer_than_process(
    facts: Facts,
    service: Service | None = None,
    effective: Effective | None = None,
    process: Process | None = None,
    signs: Signs = NO_SIGNS,
) -> Iterator[Finding]:
    """The running process is older than its configuration.

    Why: a process keeps the environment with which it was started; files and systemd show what the next one gets.
    Seen: the environment of the process beside the one that systemd would pass now.
    Do: restart the service.
    """
    if signs.has("process_older") and (process is None or effective is None):
        said = "the process began before its configuration was changed, and has what it was given then"
        yield Finding("warning", said, signs.lines("process_older"), "sudo systemctl restart ollama")
        return
    if signs.has("container_older"):
        said = "the container was made before its compose file was changed, and a restart keeps the old one"
        yield Finding("warning", said, signs.lines("container_older"), "docker compose up -d")
        return
    if service is not None and process is not None and effective is None and (kept := _kept(service, process)):
        said = "the process has another environment than systemd would give it now"
        yield Finding("warning", said, kept, "sudo systemctl restart ollama")
        return
    if service is None or effective is None:
        if signs.has("config_only_future"):
            said = "what files and systemd show counts for the next start, the running process keeps what it was given"
            yield Finding("warning", said, signs.lines("config_only_future"), "sudo systemctl restart ollama")
        return
    if process is None:
        raise Gone(facts.why("process"), "process")
    if process.environ is None:
        denied = Missing("denied", f"the environment of process {process.pid}")
        raise Gone(facts.missing.get("environ", denied), "environ")
    for m in mismatches(facts, "config_newer_than_process"):
        will = effective.variables.get(m.name)
        origin = f"{will.origin.file}:{will.origin.line}: " if will and will.origin.file else "systemd: "
        ran = (process.environ or {}).get(m.name)
        evidence = (
            f"{origin}{m.name}={will.value if will else '(unset)'}",
            f"process {process.pid}: {m.name}={'(unset)' if ran is None else ran}",
        )
        yield Finding("warning", m.text, (*m.evidence, *evidence), f"sudo systemctl restart {service.id}")


@check(weight=60)
def env_not_in_server_config(facts: Facts, start: Start | None = None, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """A variable that was set is not what the server runs with.

    Why: only the `server config` line of the running start proves what Ollama read.
    Seen: the value that was given beside the one in `server config`.
    Do: put it into a drop-in of the service (ollamactl apply does, and proves it), then restart.
    """
    if start is None or not start.config:
        lost = [e for e in signs.of("stays_unset") if e.text in {x.text for x in signs.of("no_effect")}]
        if lost:
            said = "a setting has no effect: the `server config` line of the log tells whether it reached the server"
            fix = "journalctl -u ollama --no-pager | grep 'server config' | tail -1"
            yield Finding("info", said, signs.quotes(lost), fix, weight=3)
            return
    if start is None:
        raise Gone(facts.why("start"), "start")
    for m in mismatches(facts, "env_not_in_server_config"):
        flag = settings.option(settings.REGISTRY[m.name]) if m.name in settings.REGISTRY else "--set"
        yield Finding("warning", m.text, (*m.evidence, configured(start, m.name)), f"sudo ollamactl apply {flag} …")
    config = start.config or {}
    named = [one for one in (facts.told.variables if facts.told else ()) if one.scope not in SHELLS and one.value]
    for one in named:
        setting = settings.lookup(one.name)
        if setting is None or one.name not in config or _runs_with(one, start) or _is_trial(one, named, start):
            continue
        if setting.read(one.value, start.version).problem or _unprinted(one.name, config):
            continue
        said = f"{one.name}={one.value} was set, the server runs with {config[one.name] or '(empty)'}"
        evidence = (f"{one.where}:{one.line}: {one.text}", configured(start, one.name))
        yield Finding("warning", said, evidence, f"sudo ollamactl apply {settings.option(setting)} {one.value}")
    for event in signs.of("stays_unset"):
        name = event.fields.get("name", "")
        if _unprinted(name, config):
            continue
        cut = [e for e in signs.of("config_cut") if re.search(rf"\b{name}:(?:0|false)?[ \]]", e.text)]
        if cut or (name in config and config[name] in ("", "0", "0s", "false")):
            said = f"{name} was set, the server runs with {config.get(name) or '(empty)'}"
            fix = f"sudo ollamactl apply --set {name}=VALUE    # and proves that it arrived"
            yield Finding("warning", said, (*signs.quotes([event, *cut]), configured(start, name)), fix)


def _unprinted(name: str, config: dict[str, str]) -> bool:
    """Whether that is the address, which some releases of 0.1 print empty whatever it is."""
    return name == "OLLAMA_HOST" and config.get(name) == ""


def _runs_with(told: ToldVariable, start: Start) -> bool:
    """Whether the server's configuration has that value."""
    setting, printed = settings.lookup(told.name), (start.config or {}).get(told.name)
    return setting is not None and printed is not None and settings.same(setting, told.value, printed, start.version)


def _is_trial(told: ToldVariable, named: list[ToldVariable], start: Start) -> bool:
    """Whether it is one of several values that were tried one after another, of which the server has one now."""
    values = {one.value: one for one in named if one.name == told.name}
    return len(values) > 2 and any(_runs_with(one, start) for one in values.values())


@check(weight=82)
def environment_file_overrides_dropin(
    facts: Facts, effective: Effective | None = None, signs: Signs = NO_SIGNS
) -> Iterator[Finding]:
    """An EnvironmentFile= wins over Environment= in a drop-in.

    Why: systemd reads environment files after all Environment= lines, whatever the order of the files.
    Seen: the environment computed from the files, with the values that lost.
    Do: take the line out of the environment file, or set it there.
    """
    if effective is None and signs.has("envfile_wins"):
        said = "the value of an environment file wins over the drop-in's"
        yield Finding("warning", said, signs.lines("envfile_wins"), "systemctl cat ollama | grep EnvironmentFile")
        return
    if effective is None:
        raise Gone(facts.why("effective"), "effective")
    for name, v in effective.variables.items():
        if v.origin.layer != "environment-file" or v.value is None:
            continue
        lost = [(value, o) for value, o in v.shadowed if o.layer == "environment" and value != v.value]
        if lost and (name.startswith(("OLLAMA_", "LLAMA_")) or name in settings.REGISTRY):
            value, origin = lost[-1]
            yield Finding(
                "warning",
                f"{name} is {v.value} by {v.origin.file}:{v.origin.line}, not {value} of {origin.file}:{origin.line}",
                (f"{v.origin.file}:{v.origin.line}: {name}={v.value}", f"{origin.file}:{origin.line}: {name}={value}"),
                f"sudoedit {v.origin.file} && sudo systemctl restart ollama    # without {name}",
            )


@check(weight=80)
def dropin_overridden_by_later_dropin(
    effective: Effective | None = None, service: Service | None = None, signs: Signs = NO_SIGNS
) -> Iterator[Finding]:
    """A drop-in sets a variable that a later drop-in sets again.

    Why: drop-ins are merged by file name and the last one wins; `override.conf` of `systemctl edit` sorts after
    names that begin with a digit.
    Seen: the environment computed from the files in systemd's order, with the values that lost.
    Do: keep one of the two lines, or give the file that shall win a name that sorts last (zz-).
    """
    if effective is None or service is None:
        if signs.has("overridden_by_other_file"):
            said = "another drop-in is read later, or was written over this one"
            yield Finding("warning", said, signs.lines("overridden_by_other_file"), "systemctl cat ollama")
        return
    for name, v in effective.variables.items():
        if v.origin.layer != "environment" or v.origin.file == service.fragment_path:
            continue
        lost = [
            (value, o)
            for value, o in v.shadowed
            if o.layer == "environment" and o.file != service.fragment_path and value != v.value
        ]
        if lost and (name.startswith(("OLLAMA_", "LLAMA_")) or name in settings.REGISTRY):
            value, origin = lost[-1]
            ours = v.origin.file.rsplit("/", 1)[-1] == DROPIN_NAME  # written to win
            line, does = f"{name}={v.value}", f"sets {v.value}"
            if v.value is None:
                line, does = f"no {name}", "drops it"
            later = f"{v.origin.file} is read later"
            if v.origin.file == origin.file:
                later = f"line {v.origin.line} comes later"
            yield Finding(
                "info" if ours else "warning",
                f"{name}={value} of {origin.file} is overridden: {later} and {does}",
                (f"{origin.file}:{origin.line}: {name}={value}", f"{v.origin.file}:{v.origin.line}: {line}"),
                edited(origin.file, v.origin.file) + "    # keep one of the two lines",
            )


@check(weight=83, explains=("dropin_overridden_by_later_dropin", "env_not_in_server_config"))
def dropin_drops_earlier_environment(effective: Effective, facts: Facts) -> Iterator[Finding]:
    """An empty Environment= drops everything that earlier files set.

    Why: an empty assignment resets the list, of the main unit and its PATH too.
    Seen: the line, and the variables that it took away.
    Do: delete that line.
    """
    gone: list[str] = []
    place = ""
    for file in facts.unit_files or ():
        for one in file.assignments:
            if one.section == "Service" and one.key == "Environment":
                if not one.value.strip() and gone:
                    yield Finding(
                        "warning",
                        f"{file.path}:{one.line} drops {len(gone)} earlier Environment= lines",
                        (f"{file.path}:{one.line}: Environment=", *gone[:4]),
                        f"sudo sed -i '{one.line}d' {file.path} && sudo systemctl daemon-reload "
                        "&& sudo systemctl restart ollama",
                    )
                    gone = []
                elif one.value.strip():
                    place = stated(file, one)
                    gone.append(place)


@check(weight=82)
def env_wrong_side_of_wsl(
    given: tuple[Given, ...] = (), world: str = "", signs: Signs = NO_SIGNS
) -> Iterator[Finding]:
    """Variables are set in Windows, the server runs in WSL.

    Why: Windows' variables do not cross into WSL unless WSLENV names them; the Linux service has its own.
    Seen: setx, $env: or the Windows environment beside a server in WSL.
    Do: set them in the service inside WSL.
    """
    for one in given:
        if world == "wsl" and one.scope == "windows" and one.name.startswith("OLLAMA_"):
            fix = f"sudo ollamactl apply --set {one.name}={one.value}    # inside WSL"
            yield Finding("warning", f"{one.name} is set in Windows, the server runs in WSL", (one.place,), fix)
            return
    if signs.has("windows_and_wsl") or (world == "wsl" and signs.has("set_in_windows")):
        said = "variables that are set in Windows do not reach a server in WSL"
        fix = "sudo ollamactl apply --set NAME=VALUE    # inside WSL"
        yield Finding("warning", said, signs.lines("windows_and_wsl", "set_in_windows"), fix)


def _set_later(effective: Effective | None, value: str, path: str) -> bool:
    """Whether each variable of this line is set again in another file, which an upgrade leaves alone."""
    names = re.findall(r"(?:^|[\s\"'])([A-Z]\w*)=", value)
    found = [effective.variables.get(name) for name in names] if effective else []
    return bool(found) and all(v is not None and v.origin.file not in ("", path) for v in found)


def _in_dropin(facts: Facts) -> bool:
    """Whether there is a drop-in, into which settings may have been moved."""
    listed = facts.service.dropin_paths if facts.service else ()
    return bool(listed) or any(file.role == "dropin" for file in facts.unit_files or ())


@check(weight=55)
def settings_in_main_unit(facts: Facts, service: Service | None = None, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """Settings stand in the unit file itself, which the installer rewrites.

    Why: Ollama's install script writes /etc/systemd/system/ollama.service anew at each upgrade; drop-ins survive.
    Seen: OLLAMA_… assignments in the main unit file.
    Do: move them to a drop-in: ollamactl apply writes its own.
    """
    lines, values = [], []
    for file in facts.unit_files or ():
        if file.role != "main" or file.path.startswith(("/nix/", "/run/")):
            continue
        for one in file.assignments:
            if one.section == "Service" and one.key == "Environment" and "OLLAMA_" in one.value:
                if _set_later(facts.effective, one.value, file.path):
                    continue
                lines.append(stated(file, one))
                values.append(one.value.strip("\"'"))
    if lines:
        fix = "sudo ollamactl apply " + " ".join(f"--set {v}" for v in values[:4])
        said = f"{len(lines)} setting{'s' * (len(lines) != 1)} in the main unit file: the next upgrade takes them away"
        yield Finding("warning", said, tuple(lines), fix)
    elif signs.has("unit_rewritten") and not _in_dropin(facts):
        said = "the unit file was written anew, and the settings that stood in it are gone"
        fix = "sudo ollamactl apply --set NAME=VALUE    # writes a drop-in, which upgrades leave alone"
        yield Finding("warning", said, signs.lines("unit_rewritten"), fix)
    elif signs.has("main_unit_told"):
        said = "settings stand in the unit file itself: the next upgrade takes them away"
        fix = "sudo ollamactl apply --set NAME=VALUE    # writes a drop-in, which upgrades leave alone"
        yield Finding("warning", said, signs.lines("main_unit_told", "overwritten_by_upgrade"), fix)
    elif signs.has("overwritten_on_linux") or (signs.has("overwritten_by_upgrade") and signs.has("service_file_told")):
        yield Finding(
            "warning",
            "an upgrade writes the unit file anew: settings belong into a drop-in",
            signs.lines("overwritten_by_upgrade", "overwritten_on_linux", "service_file_told"),
            "sudo ollamactl apply --set NAME=VALUE    # writes a drop-in, which upgrades leave alone",
        )
