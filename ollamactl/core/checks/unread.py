"""Settings that the service does not read, drops, or loses at the next boot."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ollamactl.core import settings
from ollamactl.core.checks.arrived import SHELLS, mismatches
from ollamactl.core.checks.base import Finding, check, configured, in_force, stated
from ollamactl.core.facts import Effective, Facts, Service, Start, Stray
from ollamactl.core.needs import NO_SIGNS, Given, Gone, Signs
from ollamactl.core.remedies import edited
from ollamactl.core.settings import Setting

OFF = re.compile(r"\.(?:disabled?|off|example|sample|dist|default)$|\.dpkg-\w+$|\.rpm\w+$|\.sw[a-z]$|/README", re.I)
UNTOLD = "systemd was not told of it"
LOOPBACK = ("127.", "localhost", "[::1]")
CLIENT = ("OLLAMA_HOST", "OLLAMA_NOHISTORY", "OLLAMA_EDITOR")  # which the `ollama` command reads too


def differs(setting: Setting, value: str, facts: Facts) -> bool:
    """Whether the service neither runs with that value nor will be started with it."""
    start: Start | None = facts.start
    config = (start.config if start else None) or {}
    release = (start.version if start else "") or facts.version or ""
    will = facts.effective.value(setting.name) if facts.effective else None
    runs = setting.name in config and settings.same(setting, value, config[setting.name], release)
    return not runs and settings.meaning(setting.name, will, release) != settings.meaning(setting.name, value, release)


def _lost(strays: Iterable[Stray], facts: Facts) -> Iterator[tuple[Stray, Setting]]:
    for one in strays:
        setting = settings.lookup(one.name)
        if setting is not None and differs(setting, one.value, facts):
            yield one, setting


@check(weight=81)
def settings_file_not_read(
    facts: Facts, signs: Signs = NO_SIGNS, strays: tuple[Stray, ...] | None = None, service: Service | None = None
) -> Iterator[Finding]:
    """A file sets something for the service, and systemd does not read it.

    Why: of the folder UNIT.d only files that end in .conf are read; a folder with another name, one for users' units,
    and an environment file that no EnvironmentFile= names are passed over without a word.
    Seen: the file beside the environment that systemd passes.
    Do: give it the name, or the place, that is read.
    """
    shown = [e for e in signs.of("file_not_read") if _lacks(e.fields, facts)]
    if shown:
        path = shown[-1].fields.get("path", "")
        why, fix = _passed_over(path, shown[-1].fields.get("kind", "drop-in"), service or Service(id="ollama.service"))
        yield Finding("warning", f"{path} is not read by systemd: {why}", signs.quotes(shown), fix)
        return
    if service is None or strays is None:
        raise Gone(facts.why("service" if service is None else "strays"), "service" if service is None else "strays")
    files: dict[str, list[tuple[Stray, Setting]]] = {}
    for one, setting in _lost(strays, facts):
        if one.kind not in ("shell", "manager") and not _copy(one.path, service):
            files.setdefault(one.path, []).append((one, setting))
    for path, found in files.items():
        why, fix = _passed_over(path, found[0][0].kind, service)
        if why == UNTOLD and service.need_daemon_reload:
            continue  # which is a finding of its own
        names = ", ".join(dict.fromkeys(f"{one.name}={one.value}" for one, _ in found))
        yield Finding(
            "info" if OFF.search(path) else "warning",
            f"{path} sets {names}, and the service does not get it: {why}",
            tuple(f"{path}:{one.line}: {one.text.strip()}" for one, _ in found),
            fix,
        )


def _lacks(told: dict[str, str], facts: Facts) -> bool:
    """Whether the service does not have what a file that was shown sets."""
    setting = settings.lookup(told.get("name", ""))
    return setting is not None and differs(setting, told.get("value", ""), facts)


def _copy(path: str, service: Service) -> bool:
    """Whether it is a copy that is kept beside a drop-in, or one that a file of the same name hides."""
    folder, _, name = path.rpartition("/")
    mine = [p.rpartition("/") for p in (*service.dropin_paths, service.fragment_path)]
    beside = any(name != n and name.lstrip(".#").startswith(n) and folder == f for f, _, n in mine)
    return beside or (
        name.endswith(".conf") and any(name == n for _, _, n in mine) and folder.endswith(f"/{service.id}.d")
    )


def _passed_over(path: str, kind: str, service: Service) -> tuple[str, str]:
    """Why systemd does not read a file, and what makes it."""
    folder, _, name = path.rpartition("/")
    own = f"/etc/systemd/system/{service.id}.d"
    again = f"sudo systemctl daemon-reload && sudo systemctl restart {service.id.removesuffix('.service')}"
    stem = re.sub(r"\.conf\b.*|\.\w+$", "", name) or "override"
    move = f"sudo install -D -m 644 {path} {own}/{stem}.conf && sudo rm {path} && {again}"
    if kind == "env-file":
        return (
            "no EnvironmentFile= of the unit names it",
            f"sudo systemctl edit {service.id}    # [Service] EnvironmentFile={path}",
        )
    if kind == "user-unit":
        return "it is for units of users' own managers", move
    if not folder.endswith(f"/{service.id}.d") or not folder.startswith(("/etc/systemd/system/", "/usr/lib", "/lib")):
        return f"its folder is not {own}", move
    if not name.endswith(".conf"):
        return "its name does not end in .conf", move
    return UNTOLD, f"sudo {again.removeprefix('sudo ')}"


@check(weight=78)
def env_set_in_shell_not_service(
    facts: Facts,
    given: tuple[Given, ...],
    start: Start | None = None,
    signs: Signs = NO_SIGNS,
    strays: tuple[Stray, ...] = (),
) -> Iterator[Finding]:
    """A variable was exported in a shell, and the service never sees it.

    Why: a systemd service has an environment of its own; ~/.bashrc, /etc/environment and `export` do not reach it.
    Seen: the export, beside the `server config` of the service or its lines in the journal.
    Do: set it for the service: sudo ollamactl apply --set NAME=VALUE.
    """
    for stray, setting in _lost(strays, facts):
        if stray.kind != "shell" or (stray.name in CLIENT and "0.0.0.0" not in stray.value):
            continue
        said = f"{stray.name}={stray.value} is set for shells only, in {stray.path}"
        place = f"{stray.path}:{stray.line}: {stray.text.strip()}"
        fix = f"sudo ollamactl apply {settings.option(setting)} {stray.value}".replace("= ", "=")
        yield Finding("warning", said, (place, configured(start, stray.name)), fix)
    for one in given:
        row = settings.lookup(one.name)
        if one.scope not in SHELLS or row is None or not one.name.startswith(("OLLAMA_", "CUDA_", "HSA_")):
            continue
        if one.scope == "client" and one.name in CLIENT and "0.0.0.0" not in one.value:
            continue  # the server that a client asks
        config = (start.config if start else None) or {}
        if one.name in config and settings.same(row, one.value, config[one.name], start.version if start else ""):
            continue
        by_hand = signs.has("serve_by_hand")
        if by_hand and (one.name not in config or (one.name == "OLLAMA_HOST" and one.value.startswith(LOOPBACK))):
            continue  # of a server beside the service
        where = "a client's program" if one.scope == "client" else "a shell"
        said = f"{one.name}={one.value} is set in {where} only"
        if one.name in config:
            said += f"; the server runs with {config[one.name] or '(empty)'}"
        fix = f"sudo ollamactl apply {settings.option(row)} {one.value}".replace("= ", "=")
        yield Finding("warning", said, (one.place, configured(start, one.name)), fix)
        return
    if signs.has("in_profile") and signs.has("no_effect"):
        name = signs.of("in_profile")[-1].fields.get("name", "")
        profiled = settings.lookup(name)
        config = (start.config if start else None) or {}
        if profiled is not None and not any(g.name == name for g in given):
            said = f"{name} is set in a shell's profile, which a service or an app does not read"
            fix = f"sudo ollamactl apply {settings.option(profiled)} {profiled.example}".replace("= ", "=")
            shown = configured(start, name) if config else ""
            yield Finding("warning", said, (*signs.lines("in_profile"), shown), fix)


@check(weight=81)
def unset_environment_drops_setting(effective: Effective, service: Service) -> Iterator[Finding]:
    """UnsetEnvironment= takes away what another line sets.

    Why: systemd applies it last, after all Environment= lines and environment files.
    Seen: both lines.
    Do: take the name out of UnsetEnvironment=.
    """
    for name, v in effective.variables.items():
        if v.origin.layer == "unset" and v.shadowed and settings.lookup(name) is not None:
            value, origin = v.shadowed[-1]
            yield Finding(
                "warning",
                f"{name}={value} is taken away again by UnsetEnvironment=",
                (
                    f"{v.origin.file}:{v.origin.line}: UnsetEnvironment={name}",
                    f"{origin.file}:{origin.line}: {name}={value}",
                ),
                edited(v.origin.file, unit=service.id),
            )


@check(weight=79)
def pass_environment_passes_nothing(effective: Effective, service: Service, facts: Facts) -> Iterator[Finding]:
    """PassEnvironment= names a variable that systemd itself does not have.

    Why: it passes on what systemd's own process was started with, or was told by set-environment; not what a shell or
    /etc/environment sets.
    Seen: the line, and no value anywhere.
    Do: Environment= in a drop-in: ollamactl apply writes it.
    """
    lines = [(file, one) for file, one in in_force(facts.unit_files or (), "PassEnvironment")]
    for name in service.pass_environment:
        setting = settings.lookup(name)
        if setting is not None and effective.value(name) is None:
            yield Finding(
                "warning",
                f"PassEnvironment={name} passes nothing: systemd has no such variable",
                tuple(stated(file, one) for file, one in lines if name in one.value.split()),
                f"sudo ollamactl apply {settings.option(setting)} {setting.example}".replace("= ", "="),
            )


@check(weight=82, explains=("config_newer_than_process", "env_not_in_server_config"))
def command_sets_own_value(
    facts: Facts, effective: Effective, service: Service, start: Start | None = None
) -> Iterator[Finding]:
    """What ExecStart= runs sets a variable itself, so that the unit's value does not count.

    Why: `env NAME=VALUE ollama serve`, or a script that exports it, comes after everything that systemd passes.
    Seen: the command, or the process: it was started after the files were written, and has another value.
    Do: take it out of that command.
    """
    for m in mismatches(facts, "command_sets_own_value"):
        v = effective.variables[m.name]
        place = f"{v.origin.file}:{v.origin.line}: {m.name}={v.value}"
        yield Finding("warning", m.text, (place, f"ExecStart={' '.join(service.exec_start)}"), m.fix)
    for name, v in effective.variables.items():
        lost = [(value, o) for value, o in v.shadowed if o.layer in ("environment", "environment-file")]
        if v.origin.layer == "wrapper" and lost and lost[-1][0] != v.value and settings.lookup(name) is not None:
            value, origin = lost[-1]
            yield Finding(
                "warning",
                f"{name}={value} does not count: the command of ExecStart= sets {v.value}",
                (
                    f"{v.origin.file}:{v.origin.line}: ExecStart={' '.join(service.exec_start)}",
                    f"{origin.file}:{origin.line}: {name}={value}",
                    configured(start, name),
                ),
                f"sudo systemctl edit --full {service.id}    # ExecStart= without {name}=",
            )


@check(weight=57)
def setting_lost_at_reboot(
    effective: Effective, service: Service, strays: tuple[Stray, ...] = ()
) -> Iterator[Finding]:
    """A setting is there until the next boot only.

    Why: `systemctl edit --runtime` writes below /run, and `systemctl set-environment` into systemd's memory: both are
    empty after a boot.
    Seen: where the effective value comes from.
    Do: write it into a drop-in: ollamactl apply does.
    """
    kept = {(one.name, one.value) for one in strays if one.kind == "manager"}  # DefaultEnvironment= gives it again
    for name, v in effective.variables.items():
        runtime = v.origin.file.startswith("/run/systemd/system/")
        if v.value is None or settings.lookup(name) is None or not (runtime or v.origin.layer == "manager"):
            continue
        if not runtime and (name, v.value) in kept:
            continue
        if not name.startswith(("OLLAMA_", "LLAMA_ARG_")) or service.manager != "system":
            continue
        place = f"{v.origin.file}:{v.origin.line}: " if runtime else "systemctl show-environment: "
        drop = f"sudo rm {v.origin.file}" if runtime else f"sudo systemctl unset-environment {name}"
        yield Finding(
            "warning",
            f"{name}={v.value} is gone after the next boot: it stands in {'/run' if runtime else 'memory'} only",
            (f"{place}{name}={v.value}",),
            f"{drop} && sudo ollamactl apply --set {name}={v.value}",
        )
