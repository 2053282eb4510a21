"""Feeds of the service as systemd has it: unit, files, environment, complaints."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from ollamactl.core import environment, remedies
from ollamactl.core.facts import (
    Complaint,
    Effective,
    EnvFile,
    Service,
    UnitFile,
    UnitName,
)
from ollamactl.core.feeds import installs
from ollamactl.core.feeds.collector import Collector, Reader, Unknown, ahead, feed
from ollamactl.core.parse import (
    envfile,
    environ,
    journal,
    systemctl,
    unitfile,
)
from ollamactl.core.source import Missing, command, file, listing, native, stat


def is_server(argv: Iterable[str]) -> bool:
    """Whether a command runs `ollama serve`, by itself or at the end of another."""
    return re.search(r"ollama(-[\w.]+)?\S*\s+(\S+\s+)*serve\b|ollama-serve", " ".join(argv)) is not None


UNIT_FILES = command(
    "systemctl", "list-unit-files", "--no-legend", "--full", "--type=service",
    "ollama*", "snap.ollama.*", any_exit=True,
)  # fmt: skip


@ahead(lambda c: () if c.unit else (UNIT_FILES, native("servers")))
@feed
def units(c: Collector) -> tuple[UnitName, ...]:
    """Every unit that runs `ollama serve`: by the name of its file, and by the cgroup of a running server, which
    also shows instances, transient units and those with other names. One that is named for Ollama may run it through
    a script."""
    _needs_systemd(c)
    listed = c.read(UNIT_FILES)
    if listed.missing is not None or (listed.status and listed.stderr):  # it exits with 1 where none is found
        raise Unknown(_silent(listed.missing or Missing("failed", f"systemctl: {listed.stderr.splitlines()[-1]}")))
    names = [line.split()[0] for line in listed.text.splitlines() if line.split()]
    hold = [found[1] for p in c.get("servers") or () if (found := re.search(r"/([^/]+\.service)(/|$)", p.cgroup))]
    names = [n for n in dict.fromkeys((*names, *hold)) if n.endswith(".service") and not n.endswith("@.service")]
    if not names:
        return ()
    shown = c.once(command(*systemctl.SHOW, *names, any_exit=True))
    running: dict[str, UnitName] = {}
    for block in shown.text.split("\n\n"):
        has = systemctl.parse_show(block)
        named = has.id.startswith("snap.ollama.") or (has.id == "ollama.service" and has.load_state != "not-found")
        holds = has.id in hold and has.id.startswith("ollama")
        if has.id and (named or holds or is_server(has.exec_start)):
            running[has.id] = UnitName(
                name=has.id,
                load=has.load_state,
                active=has.active_state,
                sub=has.sub_state,
                pid=has.main_pid,
                restarts=has.n_restarts,
                environment=has.environment,
            )
    return tuple(running.values())


def _silent(missing: Missing) -> Missing:
    """The same, but where systemd runs and nobody can ask it: that, and what helps."""
    _, found, why = missing.detail.partition("Failed to connect to bus: ")
    if not found:
        return missing
    hint = f"{remedies.LISTEN_AGAIN} makes it listen again"
    return Missing("failed", f"systemd does not answer: {why.strip()}", hint)


def _needs_systemd(c: Collector) -> None:
    host = c.get("system")
    if host is not None and host.init and host.init != "systemd":
        raise Unknown(Missing("unsupported", f"this host is not run by systemd (init: {host.init})"))


@feed
def unit(c: Collector) -> str:
    """The unit that is meant. Several and none named: unknown, with the list."""
    _needs_systemd(c)
    if ":" in c.unit:  # docker:NAME and the like
        raise Unknown(Missing("absent", f"{c.unit} is no unit of systemd"))
    if c.unit:
        return _full(c.unit)
    known: tuple[UnitName, ...] = c.need("units")
    found = [u.name for u in known if u.load != "not-found"]
    if not found:
        raise Unknown(Missing("absent", "no systemd unit runs `ollama serve`"))
    if len(found) > 1:
        raise Unknown(Missing("unasked", "several units run Ollama: " + ", ".join(found), "--unit NAME"))
    return found[0]


def _full(name: str) -> str:
    return name if name.endswith(".service") else f"{name}.service"


@ahead(lambda c: (command(*systemctl.SHOW, _full(c.unit)),) if c.unit and ":" not in c.unit else ())
@feed
def service(c: Collector) -> Service:
    name = c.need("unit")
    shown = c.once(command(*systemctl.SHOW, name))  # where it is the only one, its name was found by that too
    if shown.missing is not None or shown.status:
        raise Unknown(_silent(shown.missing or Missing("failed", f"systemctl: {shown.stderr}")))
    found = systemctl.parse_show(shown.text)
    if found.load_state == "not-found":
        raise Unknown(Missing("absent", f"systemd knows no unit {name}"))
    return found


def uninstalled(c: Collector) -> Service | None:
    """The unit that is named, where systemd knows none of that name: nothing of it is ever started, though a process
    of it may still run."""
    if c.missing.get("service") is None or c.missing["service"].kind != "absent" or not c.unit or ":" in c.unit:
        return None
    found = systemctl.parse_show(c.once(command(*systemctl.SHOW, _full(c.unit))).text)
    return msgspec.structs.replace(found, active_state="inactive") if found.load_state == "not-found" else None


@feed
def unit_files(c: Collector) -> tuple[UnitFile, ...]:
    has = c.need("service")
    found = []
    for path in ([has.fragment_path] if has.fragment_path else []) + list(has.dropin_paths):
        role: Literal["main", "dropin"] = "main" if path == has.fragment_path else "dropin"
        reading = c.read(file(path))
        if reading.missing is not None:
            found.append(UnitFile(path=path, role=role, missing=_dangling(c, path) or reading.missing))
        else:
            parsed = unitfile.parse(path, reading.text, role)
            found.append(msgspec.structs.replace(parsed, text=reading.text, mtime=_mtime(c, path)))
    return tuple(found)


def _dangling(c: Collector, path: str) -> Missing | None:
    """Why a link can't be read that leads nowhere."""
    reading = c.read(stat(path))
    target = msgspec.json.decode(reading.body)["target"] if reading.body and not reading.missing else None
    return Missing("failed", f"{path}: a link to {target}, which can't be read") if target else None


def _mtime(c: Collector, path: str) -> float | None:
    reading = c.read(stat(path))
    return msgspec.json.decode(reading.body)["mtime"] if reading.body and not reading.missing else None


@feed
def env_files(c: Collector) -> tuple[EnvFile, ...]:
    return read_env_files(c.need("service"), c.need("unit_files"), c.read)


def read_env_files(service: Service, files: tuple[UnitFile, ...], read: Reader) -> tuple[EnvFile, ...]:
    """The environment files that are in force with these unit files, in systemd's order."""
    letters = environment.context(service, environment.Extra())
    refs = environment.files_to_read(files, letters)

    def paths(pattern: str) -> list[str]:
        reading = read(listing(pattern))
        return [] if reading.missing else msgspec.json.decode(reading.body or b"[]", type=list[str])

    def one(ref: environment.EnvFileRef, path: str) -> EnvFile:
        reading = read(file(path))
        found = envfile.parse(
            reading.text, path, declared_in=ref.declared_in, declared_line=ref.declared_line, optional=ref.optional
        )
        return msgspec.structs.replace(found, missing=reading.missing) if reading.missing else found

    return environment.assemble(refs, paths, one)


ENVIRONMENT = command("systemctl", "show-environment")


@ahead(lambda c: (ENVIRONMENT,))
@feed
def manager_environment(c: Collector) -> dict[str, str]:
    return systemctl.parse_show_environment(c.text(ENVIRONMENT))


@feed
def effective(c: Collector) -> Effective:
    if c.get("service") is None and (box := installs.container_of(c, installs.apart(c))) is not None:
        return installs.container_environment(box)
    return environment.effective(
        c.need("service"), c.need("unit_files"), c.need("env_files"), c.get("manager_environment"), c.need("extra")
    )


@feed
def extra(c: Collector) -> environment.Extra:
    """What else of the host decides the environment: PID 1's own variables, the user's home, specifiers."""
    has: Service = c.need("service")
    manager = c.read(file("/proc/1/environ"))
    letters = {}
    for letter, path in (("m", "/etc/machine-id"), ("b", "/proc/sys/kernel/random/boot_id")):
        reading = c.read(file(path))
        if reading.missing is None:
            letters[letter] = reading.text.strip().replace("-", "")
    if (host := c.get("system")) is not None and host.hostname:
        letters |= {"H": host.hostname, "l": host.hostname.partition(".")[0], "q": host.hostname, "v": host.kernel}
    home, shell = _account(c, has.user)
    return environment.Extra(
        manager_process=environ.parse(manager.body) if manager.body and not manager.missing else None,
        home=home,
        shell=shell,
        specifiers=letters,
    )


def _account(c: Collector, user: str) -> tuple[str | None, str | None]:
    """Home and shell of a user in /etc/passwd; None where it is not there (another user database has it)."""
    for line in c.read(file("/etc/passwd")).text.splitlines():
        fields = line.split(":")
        if user and len(fields) == 7 and user in (fields[0], fields[2]):
            return fields[5], fields[6]
    return None, None


@feed
def complaints(c: Collector) -> tuple[Complaint, ...]:
    name = c.need("unit")
    found = c.body(command("journalctl", "-o", "json", "--no-pager", "-q", "-b", "-n", "200",
                          "_PID=1", f"UNIT={name}", "PRIORITY=4", "+", "_PID=1", f"UNIT={name}",
                          "PRIORITY=3"))  # fmt: skip
    return journal.complaints(found)
