"""Releases: too old, unknown, or two at once."""

from __future__ import annotations

from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check, quote, times
from ollamactl.core.checks.refused import IN_A_ROW, older_than
from ollamactl.core.facts import Facts, LogEvent, RequestStats, Start
from ollamactl.core.needs import NO_SIGNS, Signs

# why a load may fail on a release that knows the model
OTHER_REASONS = (
    "alloc_failed", "out_of_memory", "model_file_damaged", "load_damaged", "file_missing", "folder_denied",
    "gpu_error", "gpu_unsupported", "assertion_failed", "segfault", "abort", "illegal_instruction", "runner_killed",
    "kv_type_without_flash_attention", "nvidia_driver_too_old",
)  # fmt: skip


@check(weight=60)
def version_outdated(facts: Facts, signs: Signs = NO_SIGNS, release: tuple[int, ...] = ()) -> Iterator[Finding]:
    """The release is older than the model, or than what is asked of it.

    Why: new architectures and variables need a release that knows them.
    Seen: "unknown model architecture", "requires a newer version", or a very old release.
    Do: upgrade.
    """
    fix = "curl -fsSL https://ollama.com/install.sh | sh"
    if signs.has("unknown_architecture", "needs_newer"):
        kind = [e.fields.get("architecture", "") for e in signs.of("unknown_architecture")]
        who = f" the architecture {kind[-1]}" if kind and kind[-1] else " a model"
        yield Finding(
            "error", f"this release does not know{who}", signs.lines("unknown_architecture", "needs_newer"), fix
        )
    elif signs.has("model_refused") and not signs.has(*OTHER_REASONS):
        said = "this release cannot load the model: most often it is older than the model"
        yield Finding("error", said, signs.lines("model_refused"), fix)
    elif missing := _paths_that_came_later(facts.start, release):
        count, path = sum(r.count for r in missing), missing[-1].path
        said = f"release {'.'.join(map(str, release))} has no {path}: {times(count, 'request')} answered 404"
        yield Finding("warning" if count >= IN_A_ROW else "info", said, tuple(r.text for r in missing[-3:]), fix)
    elif () < release < (0, 6):
        yield Finding(
            "info",
            f"release {'.'.join(map(str, release))} is old: newer models and settings need a newer one",
            (quote(facts.start.listening_line) if facts.start else "",),
            fix,
            weight=4,
        )


def _paths_that_came_later(start: Start | None, release: tuple[int, ...]) -> list[RequestStats]:
    return [r for r in (start.requests if start else ()) if r.status == 404 and older_than(release, r.path)]


@check(weight=70, explains=("version_outdated",))
def client_server_version_mismatch(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """The `ollama` command and the running server are of different releases.

    Why: after an upgrade the old server still runs, or two installations are on the path.
    Seen: `ollama --version` warns, the two numbers, or the program of the running process: the kernel marks it as
    deleted.
    Do: restart the server; remove the older installation.
    """
    process = facts.process
    if facts.service is not None and process is not None and process.exe_gone and _is_there(facts, process.exe):
        yield Finding(
            "warning",
            f"{process.exe} was replaced since the server was started: the old program still runs",
            (f"/proc/{process.pid}/exe -> {process.exe} (deleted)", *signs.lines("client_version_differs")),
            f"sudo systemctl restart {facts.service.id} && ollama --version",
        )
    elif differing := two_releases(signs):
        yield Finding(
            "warning",
            "the command and the running server are of different releases",
            signs.quotes(differing),
            "sudo systemctl restart ollama && ollama --version",
        )


def two_releases(signs: Signs) -> list[LogEvent]:
    """Where the command says its own release beside the server's. It also does where no server answers it."""
    unanswered = {e.line for e in signs.of("client_cannot_connect")}
    told = signs.of("client_version_differs")
    return [e for e in told if e.line is None or e.line - 1 not in unanswered]


def _is_there(facts: Facts, path: str) -> bool:
    state = (facts.paths or {}).get(path)
    return state is not None and state.missing is None


@check(weight=5)
def version_unknown(start: Start, release: tuple[int, ...]) -> Iterator[Finding]:
    """The release is not known, or a build of one's own.

    Why: what a setting means depends on the release; 0.0.0 is printed by builds without a version.
    Seen: the `Listening on` line.
    Do: ollama --version.
    """
    if start.listening and not release:
        yield Finding(
            "info",
            f"the release is not known ({start.version or 'none printed'})",
            (quote(start.listening_line),),
            "curl -s http://127.0.0.1:11434/api/version",
            weight=12 if start.version else 5,
        )
