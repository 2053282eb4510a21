"""Facts that only doctor asks for: files and folders on the way to the models, device nodes, the kernel's words."""

from __future__ import annotations

import posixpath
from typing import Any

import msgspec

from ollamactl.core.facts import Effective, LogEvent, PathState, Process, Service
from ollamactl.core.feeds import api
from ollamactl.core.feeds.collector import Collector, Unknown, feed
from ollamactl.core.feeds.processes import manifest_layers
from ollamactl.core.parse import journal
from ollamactl.core.parse.manager import read_manager
from ollamactl.core.source import Missing, command, file, listing, native, stat

DEVICES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/kfd")
PROGRAMS = ("/usr/local/bin/ollama", "/usr/bin/ollama")
MANIFESTS = 60  # whose blobs are looked at
KEY = "id_ed25519"  # of the server, with which pulls are signed
MAGIC = b"GGUF"  # with which a model's file begins
KERNEL = (
    "Killed process|oom-kill|NVRM|fallen off|API mismatch|PM: (suspend|hibernation)|GPU reset|segfault.*(ollama|llama)"
)


@feed
def paths(c: Collector) -> dict[str, PathState]:
    """What is at the paths that decide whether the service can start and find its models. The key `account` is the
    service's user (uid, gid), where /etc/passwd names it."""
    found: dict[str, PathState] = {}
    service: Service | None = c.get("service")
    process: Process | None = c.get("process")
    programs = (*(service.exec_start[:1] if service else ()), *((process.exe,) if process else ()))
    for path in dict.fromkeys((*PROGRAMS, *programs, *DEVICES)):
        if path.startswith("/"):
            found[path] = _state(c, path)
    account = _account(c, service)
    if account is not None:
        found["account"] = PathState(path="account", uid=int(account[2]), gid=int(account[3]))
    folder = models_folder(c)
    for path in _ways(folder):
        found[path] = _state(c, path)
    for path in _temporary(c):
        found.setdefault(path, _state(c, path))
    if account is not None and account[5].startswith("/"):
        key = posixpath.join(account[5], ".ollama", KEY)
        found[key] = _state(c, key)
    for store in _stores(c, folder):
        found.setdefault(store, _state(c, store))
    if folder:
        found[folder] = _with_space(c, found[folder])
        found[f"{folder}/blobs"] = _state(c, f"{folder}/blobs")
        found |= _blobs(c, folder)
    return found


def _with_space(c: Collector, state: PathState) -> PathState:
    """The folder with the room that its file system has."""
    reading = c.read(native("space", state.path))
    if reading.missing is not None:
        return state
    try:
        room: dict[str, Any] = msgspec.json.decode(reading.body or b"{}")
    except msgspec.DecodeError:
        return state
    return msgspec.structs.replace(state, **{k: room.get(k) for k in ("free", "total", "files_free", "read_only")})


def _state(c: Collector, path: str) -> PathState:
    reading = c.read(stat(path))
    if reading.missing is not None:
        return PathState(path=path, missing=reading.missing)
    try:
        values: dict[str, Any] = msgspec.json.decode(reading.body or b"{}")
    except msgspec.DecodeError as error:
        return PathState(path=path, missing=Missing("unparsable", str(error)))
    known = {k: v for k, v in values.items() if k in ("type", "mode", "uid", "gid", "size", "mtime")}
    return PathState(path=path, **known)


def _account(c: Collector, service: Service | None) -> list[str] | None:
    """The passwd entry of the service's user."""
    user = service.user if service else ""
    reading = c.read(file("/etc/passwd", limit=1 << 20)) if user else None
    for line in reading.text.splitlines() if reading is not None and reading.missing is None else ():
        fields = line.split(":")
        if len(fields) >= 6 and fields[0] == user and fields[2].isdigit() and fields[3].isdigit():
            return fields
    return None


def models_folder(c: Collector) -> str:
    """Where the server looks for models: its variable, or below its home. Empty where neither is known."""
    account = _account(c, c.get("service"))
    process: Process | None = c.get("process")
    environ = (process.environ or {}) if process else {}
    effective: Effective | None = c.get("effective")
    given = environ.get("OLLAMA_MODELS") or (effective.value("OLLAMA_MODELS") if effective else "")
    home = environ.get("HOME") or (effective.value("HOME") if effective else "") or (account[5] if account else "")
    path = (given or "").strip(" '\"") or (posixpath.join(home, ".ollama/models") if home else "")
    return posixpath.normpath(path) if path.startswith("/") else ""


def _temporary(c: Collector) -> list[str]:
    """The folders for temporary files that somebody chose for the server."""
    process: Process | None = c.get("process")
    effective: Effective | None = c.get("effective")
    environ = (process.environ or {}) if process else {}
    names = ("TMPDIR", "OLLAMA_TMPDIR")
    given = [environ.get(name) or (effective.value(name) if effective else "") or "" for name in names]
    return [path.rstrip("/") for path in given if path.startswith("/") and path.rstrip("/")]


def _ways(folder: str) -> list[str]:
    parts = [p for p in folder.split("/") if p]
    return ["/" + "/".join(parts[: n + 1]) for n in range(len(parts))]


def _stores(c: Collector, folder: str) -> list[str]:
    """Folders of manifests: the service's, and those of people on this host."""
    usual = ["/usr/share/ollama/.ollama/models", "/root/.ollama/models", "/var/lib/ollama/.ollama/models", folder]
    reading = c.read(listing("/home/*/.ollama/models/manifests"))
    homes = msgspec.json.decode(reading.body, type=list[str]) if reading.body and not reading.missing else []
    return list(dict.fromkeys([*(f"{u}/manifests" for u in usual if u), *homes]))


class _Layer(msgspec.Struct):
    digest: str = ""
    size: int = 0
    mediaType: str = ""  # the manifest's own word


class _Manifest(msgspec.Struct):
    layers: list[_Layer] = []


def _blobs(c: Collector, folder: str) -> dict[str, PathState]:
    """The model files that manifests name, with the size that they should have."""
    reading = c.read(listing(f"{folder}/manifests/*/*/*/*"))
    names = msgspec.json.decode(reading.body, type=list[str]) if reading.body and not reading.missing else []
    found: dict[str, PathState] = {}
    for name in names[:MANIFESTS]:
        manifest = c.read(file(name, limit=1 << 20))
        found[name] = _state(c, name)
        if manifest.missing is not None:
            continue
        try:
            layers = msgspec.json.decode(manifest.body or b"", type=_Manifest).layers
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            found[name] = PathState(path=name, missing=Missing("unparsable", str(error)))
            continue
        for layer in layers:
            path = f"{folder}/blobs/{layer.digest.replace(':', '-')}"
            if layer.mediaType.endswith(".model") and path not in found:
                found[path] = _blob(c, path, layer.size)
    return found


def _blob(c: Collector, path: str, size: int) -> PathState:
    state = msgspec.structs.replace(_state(c, path), expected=size)
    if state.missing is not None or state.size != size:
        return state
    begin = c.read(file(path, limit=len(MAGIC)))
    if begin.missing is None and begin.body != MAGIC:
        damaged = Missing("unparsable", f"begins with {(begin.body or b'').hex(' ')}, not with {MAGIC.decode()}")
        return msgspec.structs.replace(state, missing=damaged)
    return state


@feed
def kernel(c: Collector) -> tuple[LogEvent, ...]:
    """Lines of the kernel since the service's process was started (or ten minutes before, where systemd has restarted
    it since) that say something of memory, drivers or sleep."""
    service: Service = c.need("service")
    reading = c.read(command("journalctl", "-k", "-b", "-o", "json", "--no-pager", "-q", "-n", "300", "--grep", KERNEL,
                             "--output-fields=MESSAGE,_TRANSPORT", timeout=4.0, any_exit=True))  # fmt: skip
    if reading.missing is not None:
        raise Unknown(reading.missing)
    since = (service.exec_main_start or 0.0) - (600.0 if service.n_restarts else 0.0)
    found = []
    for at, text in journal.messages(reading.body or b""):
        row = read_manager(text, kernel=True)
        if row is None or (at is not None and at < since):
            continue
        name = row[1].get("name", "")
        ours = name.startswith(("ollama", "llama")) or "ollama" in row[1].get("cgroup", "")
        if ours or not name:
            fields = row[1] | ({"ours": "1"} if ours else {})
            found.append(LogEvent(kind=row[0].kind, text=text[:2000], at=at, fields=fields))
    return tuple(found)


def model_files(c: Collector, name: str) -> tuple[str, ...]:
    """Files that hold a model: by its manifest, or where that can't be read, as the server tells."""
    full = name if ":" in name.rsplit("/", 1)[-1] else f"{name}:latest"
    folder = models_folder(c)
    digests = manifest_layers(c, folder, full) if folder else ()
    if digests:
        return tuple(f"{folder}/blobs/{digest.replace(':', '-')}" for digest in digests)
    told = api.shown(c, full)
    return (told,) if told else ()
