"""The folder for temporary files, to which releases before 0.5.7 unpack their runners."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check
from ollamactl.core.checks.service import LOOP
from ollamactl.core.facts import Facts, LogEvent
from ollamactl.core.needs import NO_SIGNS, Given, Signs

UNPACKS = (0, 5, 7)  # the first release that unpacks nothing


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
        if re.search(r"/tmp|/var/tmp|runners", e.fields.get("path", ""))
        and re.search(r"permission|map segment", e.fields.get("why", ""))
    ]
    failing = signs.has("runner_exit", "exec_denied", "runner_gone", "load_failed")
    told = signs.of("tmp_noexec_told")
    told = told if failing else [e for e in told if re.search(r"(?i)cannot start|fails?\b|denied", e.text)]
    if found or told:
        yield Finding(
            "error",
            "/tmp is mounted noexec: the runners cannot be started",
            signs.quotes([*found, *told]),
            "findmnt -no OPTIONS /tmp; curl -fsSL https://ollama.com/install.sh | sh",
        )


@check(weight=85, explains=("runner_crash_on_load",))
def runners_removed_from_tmp(signs: Signs) -> Iterator[Finding]:
    """The runners in the folder for temporary files were removed while the server ran.

    Why: releases before 0.5.7 unpack them to /tmp at the start, and systemd-tmpfiles cleans what nobody used for days.
    Seen: "fork/exec /tmp/…: no such file or directory".
    Do: restart the server; OLLAMA_TMPDIR elsewhere (before 0.5.7), or upgrade.
    """
    found = [
        e
        for e in signs.of("exec_denied")
        if re.search(r"/tmp/ollama\w*/", e.fields.get("path", "")) and "no such file" in e.fields.get("why", "")
    ]
    if found:
        said = "the runners in /tmp are gone: something cleaned it while the server ran"
        fix = "sudo systemctl restart ollama    # for good: a newer release"
        yield Finding("error", said, signs.quotes(found), fix)


def of_temporary(event: LogEvent) -> bool:
    """Whether a refusal of the file system is about the folder for temporary files, not about models."""
    path = event.fields.get("path", "")
    made = event.fields.get("call") == "mkdir" and re.search(r"/ollama-?\d{3,}/?$", path)
    looked = event.fields.get("call") == "stat" and re.match(
        r"Error: stat (?:/tmp|/var/tmp|/run/user/\d+)(?:/|:)", event.text
    )
    return bool(made or looked) or "failed to generate tmp dir" in event.text


@check(weight=88, explains=LOOP)
def tmp_dir_missing(
    facts: Facts, signs: Signs = NO_SIGNS, given: tuple[Given, ...] = (), release: tuple[int, ...] = ()
) -> Iterator[Finding]:
    """The folder for temporary files does not exist, or may not be written.

    Why: TMPDIR (or OLLAMA_TMPDIR, before 0.5.7) names a folder of a shell or a job that has ended. Releases before
    0.5.7 unpack their runners there and do not start; later ones need it for `ollama create`.
    Seen: the error of the start, or the folder's state.
    Do: unset it, or make the folder.
    """
    wanted = {g.value.rstrip("/"): g for g in given if g.name in ("TMPDIR", "OLLAMA_TMPDIR") and g.value}
    events = [
        e
        for e in signs.of("file_missing", "folder_denied", "folder_read_only")
        if of_temporary(e) or e.fields.get("path", "").rstrip("/") in wanted
    ]
    if events:
        path = re.sub(r"/ollama-?\d{3,}/?$", "", events[-1].fields.get("path", ""))
        refused = events[-1].kind != "file_missing"
        what = "may not be written" if refused else "is not there"
        said = f"the folder for temporary files {path} {what}: the server cannot unpack its runners"
        places = tuple(g.place for folder, g in wanted.items() if folder == path)
        yield Finding("error", said, (*signs.quotes(events), *places), _mended(path, refused))
        return
    for folder, one in wanted.items():
        state = (facts.paths or {}).get(folder)
        if state is None or state.missing is None or state.missing.kind != "absent" or one.scope not in SERVERS:
            continue
        starts = release >= UNPACKS
        said = f"{one.name}={folder} does not exist"
        said += ": `ollama create` fails" if starts else ": the server cannot unpack its runners"
        yield Finding(
            "warning" if starts else "error",
            said,
            (one.place, f"stat {folder}: {state.missing}"),
            _mended(folder, False),
        )


SERVERS = ("service", "process")


def _mended(folder: str, refused: bool) -> str:
    mode = "sudo chmod 1777" if refused else "sudo install -d -m 1777"
    return f"{mode} {folder} && sudo systemctl restart ollama    # or start the server without TMPDIR"
