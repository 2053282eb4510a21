"""Folders, disks and model files: without access, missing, full, read-only, damaged."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, assignments, check
from ollamactl.core.facts import Effective, Facts, LogEvent, Service
from ollamactl.core.needs import NO_SIGNS, Given, Signs

LOOP = ("service_restart_loop", "service_home_missing_key")


def _denied(signs: Signs) -> list[LogEvent]:
    return signs.of("folder_denied")


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
        return f"{file.path}:{one.line}: ProtectHome={one.value}" if hides else ""
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
    events = [e for e in _denied(signs) if e.fields.get("path", "").startswith(("/home", "/root"))]
    events += [e for e in (signs.of("folder_read_only")) if e.fields.get("path", "").startswith("/home")]
    below = folder.startswith(("/home/", "/root/"))
    distribution = facts.service is not None and facts.service.fragment_path.startswith("/usr/lib/systemd") and below
    failing = facts.service is not None and facts.service.active_state in ("failed", "activating")
    told = signs.has("models_under_home") and signs.has("distribution_unit") and signs.has("unit:main_exited")
    if (hidden and (below or events)) or (distribution and failing and not events) or told:
        yield Finding(
            "error",
            "the unit's ProtectHome= hides the models folder below /home from the service",
            (
                hidden,
                f"OLLAMA_MODELS={folder}" if folder else "",
                *signs.quotes(events),
                *signs.lines("models_under_home", "distribution_unit"),
            ),
            "sudo mkdir -p /etc/systemd/system/ollama.service.d && printf '[Service]\\nProtectHome=no\\n' | "
            "sudo tee /etc/systemd/system/ollama.service.d/zz-home.conf "
            "&& sudo systemctl daemon-reload && sudo systemctl restart ollama",
        )


@check(weight=89, explains=("service_restart_loop", "models_dir_no_access"))
def service_home_missing(signs: Signs, facts: Facts) -> Iterator[Finding]:
    """The home of the service's user does not exist.

    Why: a user of that name from a distribution's package has another home; the server cannot make its key there.
    Seen: `mkdir HOME: permission denied` right after the key was not found.
    Do: make that home, or give the user the installer's.
    """
    events = [e for e in _denied(signs) if e.fields.get("call") == "mkdir"]
    keys = signs.of("key_created")
    for event in events:
        path = event.fields.get("path", "")
        homes = [k.fields.get("path", "").partition("/.ollama")[0] for k in keys]
        known = path in ("/var/lib/ollama", "/usr/share/ollama", "/home/ollama")
        if path in homes or (known and "/.ollama" not in path):
            yield Finding(
                "error",
                f"{path}, the home of the service's user, is not there",
                signs.quotes([*keys[-1:], event]),
                f"sudo install -d -o ollama -g ollama {path} && sudo systemctl restart ollama",
            )
            return


@check(weight=89, explains=("service_restart_loop", "models_dir_no_access"))
def service_home_read_only(signs: Signs) -> Iterator[Finding]:
    """The home of the service's user lies on a read-only file system.

    Why: image-based systems have a read-only /usr; the installer's home /usr/share/ollama cannot be written there.
    Seen: "read-only file system".
    Do: give the user a home in /var/lib, and OLLAMA_MODELS there.
    """
    for event in signs.of("folder_read_only"):
        path = event.fields.get("path", "")
        yield Finding(
            "error",
            f"{path} is on a read-only file system",
            signs.quotes([event]),
            "sudo install -d -o ollama -g ollama /var/lib/ollama && sudo usermod -d /var/lib/ollama ollama "
            "&& sudo systemctl restart ollama",
        )
        return


@check(weight=86, explains=("service_restart_loop", "models_dir_missing"))
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
    for event in _denied(signs):
        path = event.fields.get("path", "")
        if re.search(r"/dev/|/proc/|/sys/|^/tmp/ollama|runners/|ollama_llama_server", path):
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
        said = f"the service may not {event.fields.get('call', 'open')} {path}"
        yield Finding("error", said, (*signs.quotes([event]), *_ways(facts, folder)), fix)
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


@check(weight=84, explains=("service_restart_loop",))
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
    if folder and state is not None and state.missing is not None and state.missing.kind == "absent":
        yield Finding(
            "error",
            f"OLLAMA_MODELS={folder} does not exist",
            (f"stat {folder}: {state.missing}",),
            f"sudo install -d -o ollama -g ollama {folder} && sudo systemctl restart ollama",
        )
    elif events and signs is not None:
        yield Finding(
            "error",
            f"OLLAMA_MODELS={folder} does not exist",
            signs.quotes(events),
            f"sudo install -d -o ollama -g ollama {folder} && sudo systemctl restart ollama",
        )


@check(weight=62, explains=("server_not_reachable",))
def models_in_two_dirs(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """Models lie in two folders, of which the server sees one.

    Why: a server started by hand keeps its models in the user's home, the service in its own.
    Seen: model folders of both, or a list that lacks what was pulled.
    Do: move blobs and manifests to the service's folder.
    """
    holding = [p for p, s in (facts.paths or {}).items() if p.endswith("/manifests") and s.missing is None]
    used = facts.effective.value("OLLAMA_MODELS") if facts.effective else None
    own = (used or "/usr/share/ollama/.ollama/models").rstrip("/") + "/manifests"
    if len(holding) > 1 and facts.service is not None and own in holding:
        other = next(p for p in holding if p != own).removesuffix("/manifests")
        yield Finding(
            "info",
            f"models also lie in {other}, where the service does not look",
            tuple(f"stat {p}" for p in holding),
            f"sudo cp -rn {other}/. {own.removesuffix('manifests')} && sudo chown -R ollama: "
            f"{own.removesuffix('/manifests')}",
        )
    elif signs.has("models_gone", "lists_differ"):
        yield Finding(
            "warning",
            "models that were pulled are not listed: the server looks in another folder",
            signs.lines("models_gone", "lists_differ"),
            "sudo find / -type d -path '*/.ollama/models/manifests' 2>/dev/null",
        )


@check(weight=84, explains=("runner_crash_on_load", "no_gpu_found", "service_restart_loop"))
def tmp_full(signs: Signs) -> Iterator[Finding]:
    """The folder for temporary files is full.

    Why: releases before 0.5.7 unpack their runners to /tmp, which a tmpfs of half the memory may not hold.
    Seen: "no space left on device" below /tmp.
    Do: OLLAMA_TMPDIR on a disk (before 0.5.7), or upgrade.
    """
    found = [e for e in signs.of("disk_full") if re.search(r"/tmp|TMPDIR|/run/", e.text)]
    if found:
        yield Finding(
            "error",
            "/tmp is full: the runners cannot be unpacked",
            signs.quotes(found),
            "df -h /tmp; curl -fsSL https://ollama.com/install.sh | sh",
        )


@check(weight=70)
def disk_full(signs: Signs) -> Iterator[Finding]:
    """The disk of the models is full.

    Why: a pull needs the whole size of the model.
    Seen: "no space left on device".
    Do: free space, or OLLAMA_MODELS on another disk.
    """
    found = [e for e in signs.of("disk_full") if not re.search(r"/tmp|TMPDIR", e.text)]
    if found:
        pull = all(re.search(r"Error: |max retries|pull|download", e.text) for e in found)
        yield Finding(
            "warning" if pull else "error",
            "the disk is too small for a pull" if pull else "the disk is full",
            signs.quotes(found),
            "df -h; ollama rm MODEL",
        )


@check(weight=86, explains=("runner_crash_on_load", "models_dir_no_access"))
def tmp_noexec(signs: Signs) -> Iterator[Finding]:
    """The runners lie on a file system where nothing may be executed.

    Why: releases before 0.5.7 unpack them to /tmp, which is mounted noexec on hardened hosts.
    Seen: "fork/exec /tmp/…: permission denied".
    Do: OLLAMA_TMPDIR elsewhere (before 0.5.7), or upgrade.
    """
    found = [
        e
        for e in signs.of("exec_denied")
        if re.search(r"/tmp|/var/tmp|runners", e.fields.get("path", "")) and "permission" in e.fields.get("why", "")
    ]
    told = signs.of("tmp_noexec_told") if signs.has("runner_exit", "exec_denied", "runner_gone", "load_failed") else []
    if found or told:
        yield Finding(
            "error",
            "/tmp is mounted noexec: the runners cannot be started",
            signs.quotes([*found, *told]),
            "findmnt -no OPTIONS /tmp; curl -fsSL https://ollama.com/install.sh | sh",
        )


DAMAGED = (
    r"invalid file magic|not within the file bounds|corrupted or incomplete|offset\+size|unexpected EOF|"
    r"failed to read|invalid magic|bad magic|truncated"
)


@check(weight=82, explains=("runner_crash_on_load", "server_panic_restarts", "version_outdated", "load_oom"))
def model_blob_truncated(signs: Signs, facts: Facts) -> Iterator[Finding]:
    """A model's file is damaged, or shorter than its header says.

    Why: a pull or copy that broke off, or a full disk.
    Seen: the engine's words about the file, or its size beside the manifest's.
    Do: pull the model again.
    """
    found = [
        e
        for e in signs.of("model_file_damaged", "model_metadata_error", "load_failed", "load_damaged")
        if e.kind in ("model_file_damaged", "model_metadata_error", "load_damaged")
    ]
    last = facts.start.loads[-1] if facts.start and facts.start.loads else None
    cured = last is not None and last.outcome == "loaded" and found and (last.line or 0) > (found[-1].line or 0)
    for path, state in (facts.paths or {}).items():
        if state.expected and state.missing is None and state.size != state.expected:
            blob = path.rsplit("/", 1)[-1][:19]
            yield Finding(
                "error",
                f"a model's file has {state.size:,} bytes, its manifest says {state.expected:,}: {blob}…",
                (f"stat {path}: {state.size} bytes", *signs.quotes(found, 2)),
                "ollama list; ollama rm MODEL && ollama pull MODEL",
            )
            return
    if found and not cured:
        match = re.search(r"sha256-[0-9a-f]{12}", " ".join(e.text for e in found))
        who = f" ({match[0]}…)" if match else ""
        yield Finding(
            "error",
            f"a model's file is damaged or cut off{who}",
            signs.quotes(found),
            "ollama list; ollama rm MODEL && ollama pull MODEL",
        )


@check(weight=82, explains=("runner_crash_on_load",))
def model_blob_missing(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """A manifest names a blob that is not there.

    Why: blobs were deleted or moved by hand, or copied without them.
    Seen: the file that could not be opened, or the manifest beside the folder.
    Do: pull the model again.
    """
    for event in signs.of("file_missing"):
        path = event.fields.get("path", "")
        if "/blobs/sha256" in path and event.fields.get("call") in ("open", "stat", "lstat"):
            yield Finding(
                "error",
                f"a model's file is not there: {path.rsplit('/', 1)[-1][:19]}…",
                signs.quotes([event]),
                "ollama list; ollama rm MODEL && ollama pull MODEL",
            )
            return
    for path, state in (facts.paths or {}).items():
        if "/blobs/sha256" in path and state.missing is not None and state.missing.kind == "absent":
            yield Finding(
                "error",
                f"a manifest names {path.rsplit('/', 1)[-1][:19]}…, which is not there",
                (f"stat {path}: {state.missing}",),
                "ollama list; ollama pull MODEL",
            )
            return


@check(weight=55)
def slow_model_storage(signs: Signs, facts: Facts) -> Iterator[Finding]:
    """Models load slowly: the storage, not the GPU.

    Why: network storage or a hard disk gives some ten MB/s; OLLAMA_LOAD_TIMEOUT does not govern the warning on VRAM.
    Seen: seconds of each load, or models on network storage with a raised load timeout.
    Do: measure the disk; put OLLAMA_MODELS on local flash.
    """
    start = facts.start
    config = (start.config if start else None) or {}
    slow = []
    for load in start.loads if start else ():
        weights = sum(b.bytes for b in load.buffers if b.kind == "model")
        if load.outcome == "loaded" and load.seconds and load.seconds > 60 and weights:
            rate = weights / load.seconds / (1 << 20)
            if rate < 150:
                slow.append(f"{load.text[:200]} ({load.seconds:.0f} s, {rate:.0f} MiB/s)")
    raised = config.get("OLLAMA_LOAD_TIMEOUT", "5m0s") not in ("5m0s", "")
    default = config.get("OLLAMA_MODELS", "").endswith("/.ollama/models") or not config.get("OLLAMA_MODELS")
    waits = signs.has("vram_recovery_timeout") and raised and not default
    if slow:
        yield Finding("warning", f"{len(slow)} loads read the model slowly", tuple(slow), "ollamactl facts; df -h")
    elif waits or signs.has("network_storage"):
        yield Finding(
            "info",
            "models lie on other storage and loads take long: the VRAM warning is an after-effect",
            (
                *signs.lines("vram_recovery_timeout", "network_storage"),
                f"server config: OLLAMA_MODELS:{config.get('OLLAMA_MODELS', '')}",
            ),
            "sudo dd if=$(ls -S /models/blobs/* | head -1) of=/dev/null bs=16M count=128",
        )


@check(weight=20)
def library_missing(signs: Signs) -> Iterator[Finding]:
    """A shared library of the engine is missing.

    Why: only the program was copied from the archive, or a package of the GPU libraries is not installed.
    Seen: the dynamic linker's line.
    Do: unpack the whole archive (lib/ollama too).
    """
    found = [e for e in signs.of("library_missing") if "libllama" not in e.text and "ggml" not in e.text]
    if found:
        yield Finding(
            "error",
            f"the library {found[-1].fields.get('library', '')} is missing",
            signs.quotes(found),
            "curl -fsSL https://ollama.com/install.sh | sh",
        )
