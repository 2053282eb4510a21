"""Disks and the files on them: full, damaged, missing, slow."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check, gib, times
from ollamactl.core.checks.folders import may_read
from ollamactl.core.facts import Facts, Service
from ollamactl.core.needs import NO_SIGNS, Gone, Signs

MIB = 1 << 20
FULL, TIGHT = 64 * MIB, 1024 * MIB  # bytes free: no model fits into the first, hardly one into the second


@check(weight=70, explains=("model_not_pulled", "pull_stalled"))
def disk_full(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """The disk of the models is full.

    Why: a pull needs the whole size of the model.
    Seen: "no space left on device", or the room that the file system of the models folder has.
    Do: free space, or OLLAMA_MODELS on another disk.
    """
    for path, state in (facts.paths or {}).items():
        if state.free is None or not state.total:
            continue
        full = state.free < FULL or state.files_free == 0
        if not full and state.free >= TIGHT:
            continue
        said = f"the disk of {path} is {'' if full else 'nearly '}full: {gib(state.free)} free"
        said += ", less than most models need" if not full else ""
        said += ", and it takes no file more (inodes)" if full and state.free >= FULL else ""
        room = f"statvfs {path}: {gib(state.free)} of {gib(state.total)} free, {state.files_free} files more"
        evidence = (room, *signs.lines("disk_full"))
        yield Finding("error" if full else "warning", said, evidence, f"df -h {path}; ollama rm MODEL")
        return
    found = [e for e in signs.of("disk_full") if not re.search(r"/tmp|TMPDIR", e.text)]
    if found:
        pull = all(re.search(r"Error: |max retries|pull|download", e.text) for e in found)
        yield Finding(
            "warning" if pull else "error",
            "the disk is too small for a pull" if pull else "the disk is full",
            signs.quotes(found),
            "df -h; ollama rm MODEL",
        )


ENDS = ("unexpected EOF", "EOF")  # of a file whose header the server itself could not read to its end
ABSENT = r"(?i)no such file|cannot find the|permission denied"  # no fault of what is in the file


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
        if (e.kind != "load_failed" or e.fields.get("error") in ENDS) and not re.search(ABSENT, e.text)
    ]
    if signs.matching("has invalid ggml type", kinds=("unknown_architecture",)):
        found = []  # a type that this release does not know: it stops at the tensor, the file is whole
    cured = bool(found) and _loaded_since(facts, found[-1].line or 0)
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
        if "/blobs/sha256" in path and state.missing is not None and state.missing.kind == "unparsable":
            said = f"a model's file is damaged: {path.rsplit('/', 1)[-1][:19]}…"
            fix = "ollama list; ollama rm MODEL && ollama pull MODEL"
            yield Finding("error", said, (f"{path}: {state.missing.detail}", *signs.quotes(found, 2)), fix)
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


def _loaded_since(facts: Facts, line: int) -> bool:
    """Whether the model whose load failed by that line was loaded later."""
    loads = facts.start.loads if facts.start else ()
    failed = [x.model for x in loads if x.outcome == "failed" and (x.line or 0) <= line][-1:]
    later = [x for x in loads if x.outcome == "loaded" and (x.line or 0) > line]
    return any(not failed or not x.model or x.model in failed for x in later)


@check(weight=82, explains=("runner_crash_on_load", "model_not_pulled"))
def model_blob_missing(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """A manifest names a blob that is not there.

    Why: blobs were deleted or moved by hand, or copied without them.
    Seen: the file that could not be opened, or the manifest beside the folder.
    Do: pull the model again.
    """
    for event in signs.of("file_missing"):
        path = event.fields.get("path", "")
        blob = re.search(r"[/\\]blobs[/\\]+(sha256.{0,13})", path)
        if blob and event.fields.get("call") not in ("mkdir", "rename"):
            yield Finding(
                "error",
                f"a model's file is not there: {blob[1]}…",
                signs.quotes([event]),
                "ollama list; ollama rm MODEL && ollama pull MODEL",
            )
            return
    for path, state in (facts.paths or {}).items():
        if "/manifests/" in path and state.missing is not None and state.missing.kind == "unparsable":
            name = ":".join(path.rsplit("/", 2)[-2:])
            said = f"the manifest of {name} can't be read: the model is not listed"
            yield Finding("error", said, (f"{path}: {state.missing.detail}",), f"ollama pull {name}")
            return
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
        said = f"{times(len(slow), 'load')} read the model slowly"
        yield Finding("warning", said, tuple(slow), "ollamactl facts; df -h")
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


@check(weight=20, explains=("runner_crash_on_load",))
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


@check(weight=63)
def service_key_not_readable(
    facts: Facts, signs: Signs = NO_SIGNS, service: Service | None = None
) -> Iterator[Finding]:
    """The service's user may not read its own key.

    Why: Ollama signs what it asks the registry with ~/.ollama/id_ed25519; one that root has made, or that was copied
    there, is not readable for the service: it serves, and pulls fail.
    Seen: owner and mode of the file.
    Do: give it to the service's user.
    """
    user = service.user if service else "ollama"
    if signs.has("key_empty"):
        said = "the key that pulls are signed with holds nothing: each pull fails"
        fix = f"sudo -u {user} rm ~{user}/.ollama/id_ed25519*    # a start makes a new one: restart Ollama"
        yield Finding("error", said, signs.lines("key_empty"), fix)
        return
    if service is None:
        raise Gone(facts.why("service"), "service")
    account = (facts.paths or {}).get("account")
    for path, state in (facts.paths or {}).items():
        if not path.endswith("/.ollama/id_ed25519") or state.missing is not None or account is None or not account.uid:
            continue
        if not may_read(account, state):
            yield Finding(
                "warning",
                f"{user} may not read its key {path}: pulls fail",
                (f"stat {path}: mode {state.mode & 0o7777:04o}, owner {state.uid}:{state.gid}",),
                f"sudo chown {user}: {path}*",
            )
