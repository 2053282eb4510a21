"""The folders that the server needs: without access, missing, read-only, out of its sandbox."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, assignments, check, stated
from ollamactl.core.checks.homes import denied, other_home, other_user, without_home
from ollamactl.core.checks.tmp import of_temporary
from ollamactl.core.facts import Effective, Facts, PathState, Service
from ollamactl.core.needs import NO_SIGNS, Given, Signs
from ollamactl.core.remedies import edited


def _models(effective: Effective | None, given: tuple[Given, ...]) -> str:
    value = effective.value("OLLAMA_MODELS") if effective else ""
    value = value or next((g.value for g in given if g.name == "OLLAMA_MODELS"), "")
    return value or ""


def _sandboxed(facts: Facts, signs: Signs) -> str:
    """The line that hides /home from the service, or nothing."""
    service = facts.service
    lines = list(assignments(facts.unit_files or (), "ProtectHome"))
    if lines:  # the last one counts
        file, one = lines[-1]
        hides = one.value.lower() in ("yes", "true", "1", "on", "tmpfs")
        return stated(file, one) if hides else ""
    if service is not None and service.protect_home in ("yes", "true", "tmpfs"):
        return f"systemctl show: ProtectHome={service.protect_home}"
    if signs.has("protect_home"):
        return signs.lines("protect_home")[0]
    return ""


@check(
    weight=92,
    explains=(
        "models_dir_no_access",
        "models_dir_missing",
        "service_home_missing",
        "service_home_read_only",
        "service_restart_loop",
    ),
)
def protecthome_blocks_models_dir(
    facts: Facts, signs: Signs = NO_SIGNS, effective: Effective | None = None, given: tuple[Given, ...] = ()
) -> Iterator[Finding]:
    """The unit's ProtectHome= hides the models folder.

    Why: some distributions' units hide /home, /root and /run/user from the service; no chmod can help.
    Seen: ProtectHome= of the unit, and a models folder below /home.
    Do: ProtectHome=no in a drop-in, or models elsewhere.
    """
    hidden = _sandboxed(facts, signs)
    folder = _models(effective, given)
    events = [e for e in denied(signs) if e.fields.get("path", "").startswith(("/home", "/root"))]
    events += [e for e in (signs.of("folder_read_only")) if e.fields.get("path", "").startswith("/home")]
    below = folder.startswith(("/home/", "/root/"))
    distribution = facts.service is not None and facts.service.fragment_path.startswith("/usr/lib/systemd") and below
    failing = facts.service is not None and facts.service.active_state in ("failed", "activating")
    told = signs.has("models_under_home") and signs.has("distribution_unit") and signs.has("unit:main_exited")
    told = told or signs.has("home_in_distribution")
    if (hidden and (below or events)) or (distribution and failing and not events) or told:
        yield Finding(
            "error",
            "the unit's ProtectHome= hides the models folder below /home from the service",
            (
                hidden,
                f"OLLAMA_MODELS={folder}" if folder else "",
                *signs.quotes(events),
                *signs.lines("models_under_home", "distribution_unit", "home_in_distribution"),
            ),
            "sudo mkdir -p /etc/systemd/system/ollama.service.d && printf '[Service]\\nProtectHome=no\\n' | "
            "sudo tee /etc/systemd/system/ollama.service.d/zz-home.conf "
            "&& sudo systemctl daemon-reload && sudo systemctl restart ollama",
        )


@check(weight=86, explains=("service_restart_loop", "models_dir_missing", "model_not_pulled"))
def models_dir_no_access(
    facts: Facts,
    signs: Signs = NO_SIGNS,
    effective: Effective | None = None,
    service: Service | None = None,
    given: tuple[Given, ...] = (),
) -> Iterator[Finding]:
    """The service's user cannot read or write the models folder.

    Why: the folder or one above it belongs to somebody else, or a parent lacks x for others; the leaf alone does not
    decide.
    Seen: the refusal of the start, and owner and mode of each folder on the way.
    Do: chown the folder, o+x for its parents.
    """
    for event in denied(signs):
        path = event.fields.get("path", "")
        if of_temporary(event) or re.search(r"/dev/|/proc/|/sys/|^/tmp/ollama|runners/|ollama_llama_server", path):
            continue
        user = service.user if service and service.user else "ollama"
        parent = path.rsplit("/", 1)[0] or "/"
        folder = _models(effective, given) or path
        fix = (
            f"sudo chmod o+x {parent} && sudo install -d -o {user} -g {user} {folder} "
            f"&& sudo chown -R {user}: {folder} && sudo systemctl restart ollama"
        )
        if "\\" in path:
            fix = f'icacls "{path}" /grant "%USERNAME%:(OI)(CI)F" /T    # or another OLLAMA_MODELS'
        other = other_home(facts, path)
        if other:
            fix = without_home(other)
        elif other := other_user(facts):
            fix = edited(*(line.partition(":")[0] for line in other)) + "    # no User="
        said = f"the service may not {event.fields.get('call', 'open')} {path}"
        yield Finding("error", said, (*signs.quotes([event]), *other, *_ways(facts, folder)), fix)
        return
    for event in signs.of("manifest_unwritten"):
        path = event.fields.get("path", "the manifest")
        folder = path.partition("/manifests/")[0]
        said = f"a pulled model is lost: {path} could not be written"
        fix = f"namei -l {folder}; df -h {folder}    # the service's user must be able to write there"
        yield Finding("warning", said, signs.quotes([event]), fix)
        return
    if signs.has("folder_told"):
        said = "the service's user may not enter the models folder or one above it"
        fix = "namei -l FOLDER; sudo chmod o+x PARENT && sudo systemctl restart ollama"
        yield Finding("error", said, signs.lines("folder_told"), fix)
        return
    folder = _models(effective, given)
    closed = [e for e in signs.of("folder_closed") if (folder + "/").startswith(e.text.split()[-1].rstrip("/") + "/")]
    if folder and closed and not (service and service.user == closed[0].text.split()[2]):
        yield Finding(
            "error",
            f"only {closed[0].text.split()[2]} may pass {closed[0].text.split()[-1]}, on the way to {folder}",
            signs.quotes(closed),
            f"sudo chmod o+x {closed[0].text.split()[-1]} && sudo systemctl restart ollama",
        )
        return
    blocked = _blocked(facts, folder)
    if folder and blocked and service is not None:
        user = service.user or "root"
        yield Finding(
            "error",
            f"{user} cannot get to {folder}: {blocked}",
            _ways(facts, folder),
            f"sudo chmod o+x {blocked.split()[0]} && sudo chown -R {user}: {folder}",
        )
    elif service is not None and (state := _closed(facts, _used(facts))):
        said = f"{service.user} may not read {_shown(state)}"
        yield Finding("error", said, _ways(facts, state.path), f"sudo chown -R {service.user}: {state.path}")


def _shown(state: PathState) -> str:
    """What a file of the models is, and of which model."""
    *_, parent, name = state.path.rsplit("/", 2)
    if name.startswith("sha256"):
        return f"a model's file: {name[:19]}…"
    return f"the folder {state.path}" if state.type == "folder" else f"the manifest of {parent}:{name}"


def _closed(facts: Facts, folder: str) -> PathState | None:
    """A file or folder of the models that the service's user may not read."""
    account = (facts.paths or {}).get("account")
    for path, state in (facts.paths or {}).items():
        its = re.search(r"/blobs(/|$)|/manifests/", path) or path == f"{folder}/manifests"  # others' are looked at too
        if not its or state.missing is not None or account is None or account.uid <= 0:
            continue
        if state.type and not may_read(account, state):
            return state
    return None


def may_read(account: PathState, state: PathState) -> bool:
    """Whether a user (uid and gid of `account`) may read a file, or enter a folder too, by owner and mode."""
    shift = 6 if state.uid == account.uid else 3 if state.gid == account.gid else 0
    need = 5 if state.type == "folder" else 4
    return (state.mode >> shift) & need == need


def _ways(facts: Facts, folder: str) -> tuple[str, ...]:
    found = []
    for path, state in (facts.paths or {}).items():
        if folder == path or folder.startswith(path.rstrip("/") + "/"):
            if state.missing is None:
                found.append(f"stat {path}: mode {state.mode & 0o7777:04o}, owner {state.uid}:{state.gid}")
            else:
                found.append(f"stat {path}: {state.missing}")
    return tuple(found)


def _blocked(facts: Facts, folder: str) -> str:
    """The folder on the way to the models that the service's user may not pass, and why."""
    account = (facts.paths or {}).get("account")
    if account is None or account.uid <= 0:
        return ""
    for path, state in (facts.paths or {}).items():
        if (
            not path.startswith("/")
            or not (folder + "/").startswith(path.rstrip("/") + "/")
            or state.missing is not None
        ):
            continue
        mode = state.mode & 0o777
        need = 7 if path == folder else 1
        has = mode >> 6 if state.uid == account.uid else mode >> 3 if state.gid == account.gid else mode
        if (has & need) != need:
            return f"{path} has mode {mode:04o} and belongs to {state.uid}:{state.gid}"
    return ""


@check(weight=84, explains=("service_restart_loop", "model_not_pulled"))
def models_dir_missing(
    facts: Facts, signs: Signs = NO_SIGNS, effective: Effective | None = None, given: tuple[Given, ...] = ()
) -> Iterator[Finding]:
    """OLLAMA_MODELS names a folder that does not exist.

    Why: a mount that is not there, a path cut at a blank, or a typing error; the server makes a folder or fails.
    Seen: the folder's state, or the error of the start.
    Do: correct the path, or make the folder for the service's user.
    """
    folder = _models(effective, given)
    state = (facts.paths or {}).get(folder)
    events = [
        e
        for e in (signs.of("file_missing"))
        if e.fields.get("call") in ("mkdir", "stat", "lstat")
        and folder
        and e.fields.get("path", "").startswith(folder)
    ]
    absent = [e for e in signs.of("path_absent") if folder and _holds(re.findall(r"/[^'\"’:]+", e.text)[0], folder)]
    made = [
        e
        for e in signs.of("file_missing")
        if e.fields.get("call") == "mkdir" and e.text.startswith("Error: ") and not of_temporary(e)
    ]
    if folder and state is not None and state.missing is not None and state.missing.kind == "absent":
        yield Finding(
            "error",
            f"OLLAMA_MODELS={folder} does not exist",
            (f"stat {folder}: {state.missing}",),
            f"sudo install -d -o ollama -g ollama {folder} && sudo systemctl restart ollama",
        )
    elif folder and state is not None and state.type == "file":
        said = f"OLLAMA_MODELS={folder} is a file, no folder"
        fix = "sudo ollamactl apply --set OLLAMA_MODELS=/srv/ollama/models"
        lines = (f"stat {folder}: a file of {state.size} bytes", *signs.quotes(denied(signs)))
        yield Finding("error", said, lines, fix, weight=87, explains=("models_dir_no_access",))
    elif events or made or absent:
        wanted = folder or (made[-1].fields.get("path", "") if made else "")
        cannot = f"{wanted} cannot be made: a folder on the way to it is not there"
        yield Finding(
            "error",
            f"OLLAMA_MODELS={folder} does not exist" if events or absent else cannot,
            signs.quotes(events or made or absent),
            f"sudo install -d -o ollama -g ollama {wanted} && sudo systemctl restart ollama",
        )


def _holds(path: str, folder: str) -> bool:
    """Whether a folder is that path, or lies in it."""
    return (folder.rstrip("/") + "/").startswith(path.rstrip("/") + "/")


def _used(facts: Facts) -> str:
    """Where the service looks for models."""
    environ = (facts.process.environ if facts.process else None) or {}
    values = [
        environ.get(name) or (facts.effective.value(name) if facts.effective else None) or ""
        for name in ("OLLAMA_MODELS", "HOME")
    ]
    return values[0] or f"{values[1].rstrip('/') or '/usr/share/ollama'}/.ollama/models"


def _folders_given(given: tuple[Given, ...]) -> list[Given]:
    """OLLAMA_MODELS as somebody set it for his own programs."""
    own = ("windows", "env", "shell", "launchctl")
    return [g for g in given if g.name == "OLLAMA_MODELS" and g.scope in own]


@check(weight=62, explains=("server_not_reachable", "model_not_pulled"))
def models_in_two_dirs(
    facts: Facts, signs: Signs = NO_SIGNS, given: tuple[Given, ...] = ()
) -> Iterator[Finding]:
    """Models lie in two folders, of which the server sees one.

    Why: a server started by hand keeps its models in the user's home, the service in its own.
    Seen: model folders of both, or a list that lacks what was pulled.
    Do: move blobs and manifests to the service's folder.
    """
    holding = [p for p, s in (facts.paths or {}).items() if p.endswith("/manifests") and s.missing is None]
    own = _used(facts).rstrip("/") + "/manifests"
    others = [p for p in holding if p != own]
    empty = facts.installed == ()
    if others and facts.service is not None and (own in holding or empty):
        other = others[0].removesuffix("/manifests")
        where = own.removesuffix("/manifests")
        yield Finding(
            "warning" if empty else "info",
            f"the service looks for models in {where}, which holds none; they lie in {other}"
            if empty
            else f"models also lie in {other}, where the service does not look",
            (*other_user(facts), *(f"stat {p}" for p in holding)),
            f"sudo cp -rn {other}/. {own.removesuffix('manifests')} && sudo chown -R ollama: "
            f"{own.removesuffix('/manifests')}",
        )
    elif signs.has("nothing_listed") and (elsewhere := _folders_given(given)):
        log = r"findstr OLLAMA_MODELS %LOCALAPPDATA%\Ollama\server.log"
        if elsewhere[-1].scope != "windows":
            log = "journalctl -u ollama | grep 'server config' | tail -1"
        yield Finding(
            "warning",
            f"nothing is listed though OLLAMA_MODELS={elsewhere[-1].value} is set: the server runs with another",
            (elsewhere[-1].place, *signs.lines("nothing_listed")),
            f"{log}    # what it runs with; the desktop app has a setting of its own",
        )
    elif (
        signs.has("models_gone", "lists_differ")
        and not (signs.has("remote_client") and signs.has("not_allowed"))
        and not signs.has("remote_refused", "connection_refused")
    ):
        yield Finding(
            "warning",
            "models that were pulled are not listed: the server looks in another folder",
            signs.lines("models_gone", "lists_differ"),
            "sudo find / -type d -path '*/.ollama/models/manifests' 2>/dev/null",
            explains=() if any(g.name == "OLLAMA_MODELS" for g in given) else ("env_set_in_shell_not_service",),
        )
