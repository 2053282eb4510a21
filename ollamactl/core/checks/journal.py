"""The log itself: lines that nothing kept."""

from __future__ import annotations

from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check, times
from ollamactl.core.facts import Log, Service


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
