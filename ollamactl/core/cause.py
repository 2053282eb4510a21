"""Why a start or a load of ours did not come off: from this invocation's own lines, else nothing is claimed."""

from __future__ import annotations

import msgspec

from ollamactl.core.facts import Facts, Start


class Cause(msgspec.Struct, frozen=True):
    id: str
    text: str
    evidence: tuple[str, ...] = ()
    fix: str = ""


# Event of the log → (id of the cause, what it says in a sentence). The first that occurred is the cause.
_EVENTS: dict[str, tuple[str, str]] = {
    "bind_error": ("port_in_use", "another process holds {address}"),
    "bind_refused": ("bind_refused", "{address} can't be listened on: {why}"),
    "folder_denied": ("models_dir_no_access", "the service's user may not {call} {path}"),
    "folder_read_only": ("service_home_read_only", "{path} is on a read-only file system"),
    "disk_full": ("disk_full", "the disk is full"),
    "home_missing": ("home_not_defined", "HOME is not defined for the service"),
    "exec_denied": ("execstart_203_exec", "{path} could not be executed: {why}"),
    "library_missing": ("library_missing", "the library {library} is missing"),
    "kv_type_unsupported": ("kv_type_invalid", "the engine has no cache type {type}"),
    "kv_type_without_flash_attention": ("kv_type_without_flash_attention", "that cache type needs flash attention"),
    "parallel_above_maximum": ("parallel_above_maximum", "the engine loads no more than {limit} slots"),
    "unknown_architecture": ("version_outdated", "this release does not know the architecture {architecture}"),
    "model_file_damaged": ("model_blob_truncated", "the model's file is damaged"),
    "model_metadata_error": ("model_blob_truncated", "the model's file can't be read"),
    "ram_too_small": ("ram_too_small", "the model needs {needed} of memory, {free} are free"),
    "alloc_failed": ("load_oom", "memory could not be allocated"),
    "out_of_memory": ("load_oom", "memory ran out"),
    "load_timeout": ("load_timeout", "the load took longer than OLLAMA_LOAD_TIMEOUT"),
    "runner_killed": ("runner_killed", "the runner was killed"),
    "panic": ("server_panic_restarts", "the server crashed"),
    "invalid_environment": ("invalid_value", "Ollama refused {key}={value}"),
}


class _Blank(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "it"


def cause(facts: Facts) -> Cause | None:
    """The cause that this invocation's log names, or systemd's own words; None where neither says anything."""
    start: Start | None = facts.start
    order = {kind: at for at, kind in enumerate(_EVENTS)}
    found = [e for e in (start.events if start else ()) if e.kind in order]
    if found:
        first = min(found, key=lambda e: order[e.kind])
        kind, text = _EVENTS[first.kind]
        said = text.format_map(_Blank({k: v for k, v in first.fields.items() if v}))
        evidence = [first.text]
        if kind == "port_in_use":
            holder = _holder(facts, first.fields.get("address", ""))
            said, evidence = (f"{said}: {holder}", [*evidence, holder]) if holder else (said, evidence)
        return Cause(kind, said, tuple(evidence))
    if facts.log is not None:
        for event in reversed(facts.log.systemd):
            if event.kind in ("exec_failed", "exec_missing", "start_limit", "oom_killed", "chdir_failed"):
                return Cause("execstart_203_exec" if "exec" in event.kind else event.kind, event.text, (event.text,))
    failed = [load for load in (start.loads if start else ()) if load.outcome == "failed" and load.error]
    if failed:
        return Cause("runner_crash_on_load", failed[-1].error, (failed[-1].text,))
    return None


def _holder(facts: Facts, address: str) -> str:
    port = address.rsplit(":", 1)[-1]
    mine = facts.service.main_pid if facts.service else 0
    for listener in facts.listeners or ():
        if str(listener.port) == port and listener.pid and listener.pid != mine:
            return f"{listener.name or 'a process'}, pid {listener.pid}"
    return ""
