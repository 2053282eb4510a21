"""The log itself: lines that nothing kept."""

from __future__ import annotations

from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check, in_force, stated, times
from ollamactl.core.facts import Facts, Log, Service
from ollamactl.core.needs import NO_SIGNS, Signs

KEPT = ("", "-1", "[not set]", "info", "debug", "6", "7")  # LogLevelMax= that leaves the server's lines in
THROWN = "the unit throws the server's lines away: most faults can't be seen here"
CLIENT_ONLY = ("runner_crash_on_load",)  # what only a client's error tells, of which the log would say the reason


@check(weight=58)
def log_lines_suppressed(log: Log, service: Service | None = None) -> Iterator[Finding]:
    """journald dropped lines of the service, since it wrote too many at once.

    Why: journald keeps 10,000 lines of a unit in 30 seconds (RateLimitBurst=); what the others said is lost, so that
    a fault may not be seen here.
    Seen: journald's own line: "Suppressed 1234 messages from ollama.service".
    Do: take the limit off for this unit: LogRateLimitIntervalSec=0.
    """
    if log.suppressed:
        unit = service.id if service else "ollama"
        yield Finding(
            "info",
            f"journald dropped {times(log.suppressed, 'line')} of the service, which came too fast: the log has gaps",
            (f"{log.where}: Suppressed {log.suppressed} messages from {unit}",),
            f"sudo systemctl edit {unit}    # [Service] LogRateLimitIntervalSec=0",
        )


@check(weight=58)
def log_not_kept(facts: Facts, signs: Signs = NO_SIGNS, service: Service | None = None) -> Iterator[Finding]:
    """The unit throws its lines away.

    Why: StandardOutput=null or a LogLevelMax= above info: all of Ollama's lines have priority info, failures too.
    Seen: the setting; no line of the current start.
    Do: take it out; without lines most faults can't be seen here.
    """
    if facts.start is not None and facts.start.listening:
        return
    if service is None:
        if told := signs.lines("output_thrown_away"):
            fix = "sudo systemctl edit ollama    # [Service] StandardOutput=journal, no LogLevelMax="
            yield Finding("warning", THROWN, told, fix, explains=CLIENT_ONLY)
        return
    level = service.log_level_max
    shown = [
        f"systemctl show: {said}"
        for said, quiet in (
            ("StandardOutput=null", service.standard_output == "null"),
            (f"LogLevelMax={level}", level not in KEPT),
        )
        if quiet
    ]
    lines = [
        stated(file, one)
        for key in ("StandardOutput", "StandardError", "LogLevelMax")
        for file, one in in_force(facts.unit_files or (), key)[-1:]
        if one.value == "null" or (key == "LogLevelMax" and one.value not in KEPT)
    ]
    if service.active_state not in ("inactive", "failed") and (shown or lines):
        yield Finding(
            "warning",
            THROWN,
            tuple(lines or shown),
            f"sudo systemctl edit {service.id or 'ollama'}    # [Service] StandardOutput=journal, no LogLevelMax=",
            explains=() if facts.start is not None and facts.start.config else CLIENT_ONLY,
        )
