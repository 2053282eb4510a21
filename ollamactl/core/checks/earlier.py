"""What a pasted log shows of the start before the last, where the last has served nothing yet.

A restart alone cures nothing that only a load or a request shows; nor does it prove that the fault is still there. So
such findings are told after all others, as info.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from ollamactl.core.checks import base
from ollamactl.core.checks.base import Finding, Report
from ollamactl.core.facts import Facts, Start


def run(facts: Facts, *, only: Iterable[str] = (), ignore: dict[str, str] | None = None) -> Report:
    """Every check (or those of `only`) on these facts; `ignore` maps ids to reasons."""
    only = tuple(only)
    report = base.run(facts, only=only, ignore=ignore)
    served = _served_before(facts)
    if served is None or report.worst() in ("warning", "error"):
        return report
    then = base.run(msgspec.structs.replace(facts, start=served, version=served.version or facts.version), only=only)
    told = {finding.check for finding in report.findings} | set(ignore or ())
    old = [_as_info(f, served) for f in then.findings if f.check not in told and _of_work(f, served)]
    return msgspec.structs.replace(report, findings=(*old, *report.findings)) if old else report


def _served_before(facts: Facts) -> Start | None:
    """The last start that served something, where only a text tells, and the one that is judged has served nothing."""
    judged = facts.start
    if judged is None or facts.log is None or not facts.origin.startswith("log:") or _work(judged):
        return None
    before = [s for s in facts.log.starts if (s.last_line or 0) < (judged.first_line or 0)]
    return next((s for s in reversed(before) if _work(s)), None)


def _work(start: Start) -> int:
    """The line at which a start begins to serve; 0 where it never does."""
    lines = [load.line for load in start.loads] + [r.line for r in (*start.recent, *start.failed)]
    config = start.config_line.line if start.config_line else None
    return min((n for n in lines if n and n >= (config or 0)), default=0)


def _of_work(finding: Finding, start: Start) -> bool:
    """Whether a finding rests on what a start did when it served, not on how it was set up: the last start shows that
    itself."""
    places = [re.match(r"[^:]*:(\d+): ", line) for line in finding.evidence]
    served = range(_work(start), (start.last_line or 0) + 1)
    at_work = any(int(place[1]) in served for place in places if place)
    of_load = any(load.text[: base.TEXT] in finding.evidence for load in start.loads)
    return finding.severity != "info" and (at_work or of_load)


def _as_info(finding: Finding, start: Start) -> Finding:
    said = f"before the last start, which has served nothing yet: {finding.summary}"
    return msgspec.structs.replace(finding, severity="info", summary=said)
