"""What the unit's sandbox takes from the server."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check, in_force, stated
from ollamactl.core.checks.service import LOOP
from ollamactl.core.facts import Assignment, Effective, Facts, Service, UnitFile
from ollamactl.core.needs import NO_SIGNS, Gone, Signs
from ollamactl.core.remedies import edited

# what ProtectSystem= makes read-only
PROTECTED = {"yes": ("/usr/", "/boot/"), "full": ("/usr/", "/boot/", "/etc/"), "strict": ("/",)}
FREE = ("/dev/", "/proc/", "/sys/")  # which strict leaves alone
TRUE = ("yes", "true", "on", "1", "connected")
INTERNET = {"AF_INET", "AF_INET6"}
PROCESSES = {"@process", "clone", "clone3", "fork", "vfork", "execve"}  # calls that start a runner


def _folder(effective: Effective) -> str:
    """Where the server looks for models; empty where that is not known."""
    folder = effective.value("OLLAMA_MODELS") or posixpath.join(effective.value("HOME") or "", ".ollama/models")
    return folder.rstrip("/") if folder.startswith("/") else ""


def _paths(files: tuple[UnitFile, ...], key: str) -> Iterator[tuple[UnitFile, Assignment, str]]:
    """Paths inside the sandbox that a list of the unit's files names."""
    for file, one in in_force(files, key):
        for word in one.value.split():
            inside = word.strip("\"'").lstrip("-+")
            inside = inside.partition(":")[0] if key == "TemporaryFileSystem" else inside.split(":")[-1]
            yield file, one, f"/var/lib/{inside}" if key == "StateDirectory" else inside


def _below(folder: str, path: str) -> bool:
    return f"{folder}/".startswith(path.rstrip("/") + "/")


def _given_back(files: tuple[UnitFile, ...], folder: str, keys: tuple[str, ...]) -> bool:
    """Whether one of these lists names that folder or one above it."""
    return any(_below(folder, path) for key in keys for _, _, path in _paths(files, key) if path.startswith("/"))


def execution_forbidden(files: tuple[UnitFile, ...], program: str) -> list[tuple[UnitFile, Assignment]]:
    """Lines of NoExecPaths= because of which the service may not execute that program."""
    if _given_back(files, program, ("ExecPaths",)):
        return []
    return [(file, one) for file, one, path in _paths(files, "NoExecPaths") if _below(program, path)]


@check(weight=61, explains=("service_home_read_only", *LOOP))
def sandbox_makes_models_read_only(
    facts: Facts, signs: Signs = NO_SIGNS, service: Service | None = None, effective: Effective | None = None
) -> Iterator[Finding]:
    """The unit's sandbox makes the models folder read-only for the service.

    Why: ProtectSystem= mounts /usr (full: /etc too, strict: all) read-only for the service, DynamicUser= all, and
    ReadOnlyPaths= what it names; the installer's home is below /usr. What is there is served, but no pull, no new key
    and no start with an empty home can work.
    Seen: the setting, the folder, and no ReadWritePaths= that names it.
    Do: ReadWritePaths= with the home in a drop-in.
    """
    if service is None or effective is None:
        refused = signs.of("folder_read_only") if facts.told is not None and facts.told.world == "nixos" else []
        if not refused:
            raise Gone(facts.why("service"), "service")
        path = posixpath.dirname(refused[-1].fields.get("path", "").partition("/blobs")[0] + "/")
        yield Finding(
            "error",
            f"the unit of NixOS lets the service write to its own state folder only, not to {path}",
            signs.quotes(refused[-1:]),
            f'systemd.services.ollama.serviceConfig.ReadWritePaths = [ "{path}" ];    # then: nixos-rebuild switch',
        )
        return
    folder, files = _folder(effective), facts.unit_files or ()
    if (
        not folder
        or folder.startswith(FREE)
        or _given_back(files, folder, ("ReadWritePaths", "BindPaths", "StateDirectory"))
    ):
        return
    lines = [
        stated(f, one) for f, one, path in _paths(files, "ReadOnlyPaths") if path[:1] == "/" and _below(folder, path)
    ]
    said = "ReadOnlyPaths="
    if not lines and f"{folder}/".startswith(PROTECTED.get(service.protect_system, ())):
        said = f"ProtectSystem={service.protect_system}"
        lines = [stated(f, one) for key in ("DynamicUser", "ProtectSystem") for f, one in in_force(files, key)[-1:]]
    elif not lines:
        return
    yield Finding(
        "warning",
        f"{said} makes {folder} read-only for the service: nothing can be pulled",
        (*lines, f"models: {folder}"),
        f"sudo systemctl edit {service.id}    # [Service] ReadWritePaths={folder}",
    )


@check(
    weight=93,
    explains=(
        "models_dir_no_access",
        "models_dir_missing",
        "model_not_pulled",
        "models_in_two_dirs",
        "model_blob_missing",
        "service_home_missing",
        "service_home_read_only",
        "service_restart_loop",
    ),
)
def sandbox_hides_models_dir(facts: Facts, service: Service, effective: Effective) -> Iterator[Finding]:
    """The unit's sandbox hides the models folder from the service.

    Why: PrivateTmp= gives the service a /tmp of its own, InaccessiblePaths= locks a folder, TemporaryFileSystem= puts
    an empty one over it. On the host everything is there; no chmod helps, and what the server pulls there is lost.
    Seen: the setting, and a models folder below what it covers.
    Do: take it out, models elsewhere, or BindPaths= with the folder.
    """
    folder, files = _folder(effective), facts.unit_files or ()
    if not folder or _given_back(files, folder, ("BindPaths", "BindReadOnlyPaths")):
        return
    lines = [
        stated(file, one)
        for key in ("InaccessiblePaths", "TemporaryFileSystem")
        for file, one, path in _paths(files, key)
        if path.startswith("/") and _below(folder, path)
    ]
    if folder.startswith(("/tmp/", "/var/tmp/")):
        lines += [
            stated(file, one)
            for key in ("PrivateTmp", "DynamicUser")
            for file, one in in_force(files, key)[-1:]
            if one.value.strip().lower() in TRUE
        ]
    if lines:
        yield Finding(
            "error",
            f"{lines[0].partition(': ')[2]} hides {folder} from the service: it sees none of the models there",
            (*lines, f"models: {folder}"),
            edited(*(line.partition(":")[0] for line in lines), unit=service.id),
        )


@check(weight=74, explains=LOOP)
def system_call_filter_kills_server(signs: Signs, facts: Facts) -> Iterator[Finding]:
    """The unit's filter of system calls kills the server.

    Why: SystemCallFilter= (and what implies one) ends a process at the first call that it does not allow, by SIGSYS.
    Seen: "status=31/SYS".
    Do: take the filter out, or allow @system-service.
    """
    killed = signs.matching("31/sys", kinds=("unit:main_exited",))
    if killed:
        unit = facts.service.id if facts.service else "ollama"
        lines = [stated(file, one) for file, one in in_force(facts.unit_files or (), "SystemCallFilter")]
        yield Finding(
            "error",
            "a filter of system calls kills the server: status=31/SYS",
            (*lines, *signs.quotes(killed)),
            f"sudo systemctl edit {unit}    # [Service] SystemCallFilter= (empty)",
        )


@check(weight=66, explains=("runner_crash_on_load", "client_timeout_500_clusters"))
def system_call_filter_forbids_runners(unit_files: tuple[UnitFile, ...], service: Service) -> Iterator[Finding]:
    """The unit's filter of system calls keeps the server from starting runners.

    Why: without fork, clone and exec no program can be started; the server itself serves, and no model is loaded.
    Seen: a SystemCallFilter= that takes @process, or one of these, away.
    Do: take the line out, or allow @process.
    """
    lines = [(file, one) for file, one in in_force(unit_files, "SystemCallFilter") if PROCESSES & _refused(one.value)]
    if lines:
        yield Finding(
            "warning",
            "SystemCallFilter= forbids to start programs: no runner can be started, so no model is loaded",
            tuple(stated(*line) for line in lines),
            edited(*(file.path for file, _ in lines), unit=service.id) + "    # no SystemCallFilter=",
        )


def _refused(value: str) -> set[str]:
    """System calls, and groups of them, that a list which begins with ~ takes away."""
    words = value.strip()
    return {word.partition(":")[0] for word in words[1:].split()} if words.startswith("~") else set()


@check(weight=73, explains=(*LOOP, "server_not_reachable", "api_answers_nothing"))
def sandbox_blocks_network(service: Service, unit_files: tuple[UnitFile, ...]) -> Iterator[Finding]:
    """The unit's sandbox keeps clients from the server.

    Why: PrivateNetwork= gives it a loopback of its own, IPAddressDeny=any drops every packet, and an address family
    that RestrictAddressFamilies= does not name can't be listened on; the server knows of none of them.
    Seen: the setting.
    Do: take it out, or allow what is needed: IPAddressAllow=localhost, AF_INET AF_INET6.
    """
    denied = in_force(unit_files, "IPAddressDeny")
    families = [one.value for _, one in in_force(unit_files, "RestrictAddressFamilies")]
    closed = [(file, one) for file, one in in_force(unit_files, "PrivateNetwork")[-1:] if service.private_network]
    allowed = in_force(unit_files, "IPAddressAllow")
    closed += [pair for pair in denied if "any" in pair[1].value.split() and not allowed]
    named = [set(value.lstrip("~").split()) & INTERNET for value in families]
    shut = set().union(*(n for n, value in zip(named, families, strict=True) if value.startswith("~")))
    opened = set().union(*(n for n, value in zip(named, families, strict=True) if not value.startswith("~")))
    if families and (shut == INTERNET if families[0].startswith("~") else not opened - shut):
        closed += in_force(unit_files, "RestrictAddressFamilies")
    if closed:
        lines = [stated(file, one) for file, one in closed]
        yield Finding(
            "warning" if service.main_pid else "error",
            f"{closed[0][1].key}={closed[0][1].value} keeps clients from the server",
            tuple(lines),
            edited(*(file.path for file, _ in closed), unit=service.id),
        )
