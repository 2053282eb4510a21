"""What `doctor` and `explain` show: findings, worst first; and what was not looked at, with what would show it."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from ollamactl.core.checks import Check, Finding, Report, Skipped
from ollamactl.core.facts import Facts
from ollamactl.report.text import Terminal, clean, day

LABEL = {"error": "ERROR", "warning": "WARN ", "info": "info "}
PAINT = {"error": "error", "warning": "warning", "info": "dim"}
LINE = 300  # characters of a line of evidence on the screen
_DIGEST = re.compile(r"\b(sha256[-:][0-9a-f]{12})[0-9a-f]{52}\b")


def judged(facts: Facts) -> dict[str, Any]:
    """Which start, which release, out of what."""
    start, log = facts.start, facts.log
    return {
        "origin": facts.origin,
        "unit": facts.service.id if facts.service else None,
        "release": (start.version if start else "") or facts.version or None,
        "invocation": (start.invocation if start else "") or None,
        "started": start.at if start else None,
        "starts": len(log.starts) if log else 0,
        "lines": [start.first_line, start.last_line] if start else None,
        "log": {"form": log.form, "where": log.where, "lines": log.lines, "unread": log.unread, "gap": log.gap}
        if log
        else None,
    }


def document(facts: Facts, report: Report, seconds: float) -> dict[str, Any]:
    """`data` of the JSON envelope."""
    return {
        "judged": judged(facts),
        "findings": [
            {
                "check": f.check,
                "severity": f.severity,
                "title": f.title,
                "summary": f.summary,
                "evidence": list(f.evidence),
                "remedy": f.remedy,
                "consequences": list(f.consequences),
            }
            for f in report.findings
        ],
        "skipped": [
            {"check": s.check, "needs": s.fact, "reason": s.reason, "kind": s.kind, "hint": s.hint}
            for s in report.skipped
        ],
        "crashed": [{"check": c.check, "error": c.error} for c in report.crashed],
        "ignored": [
            {"check": i.check, "severity": i.severity, "summary": i.summary, "reason": i.reason}
            for i in report.ignored
        ],
        "checks": report.ran,
        "well": report.well,
        "seconds": round(seconds, 3),
    }


def headline(facts: Facts, report: Report, seconds: float) -> str:
    parts = []
    release = (facts.start.version if facts.start else "") or facts.version
    parts.append(f"Ollama {release}" if release else "Ollama, release not known")
    if facts.origin == "live":
        init = facts.system.init if facts.system else ""
        parts.append(f"{facts.service.id} ({init})" if facts.service else init or "no service")
        if facts.gpus is not None:
            parts.append(f"{len(facts.gpus)} GPU{'s' * (len(facts.gpus) != 1)}" if facts.gpus else "no GPU")
    else:
        parts.append(facts.origin)
    parts.append(f"{report.ran} checks in {seconds:.1f} s")
    return " · ".join(parts)


def which_start(facts: Facts) -> str:
    """The start that was judged, where a log holds several, and what of the log was not read."""
    start, log = facts.start, facts.log
    if start is None or log is None:
        return ""
    gap = f"not read: lines in the middle of the {log.where} ({log.gap})" if log.gap else ""
    if len(log.starts) < 2:
        return gap
    number = next((n for n, s in enumerate(log.starts, 1) if s == start), 0)
    at = f", {day(start.at)}" if start.at else ""
    where = f"lines {start.first_line} to {start.last_line}"
    return f"judged: start {number} of {len(log.starts)} in the log{at} ({where}){'; ' * bool(gap)}{gap}"


def screen(out: Terminal, facts: Facts, report: Report, seconds: float, *, details: bool = False) -> None:
    out.wrap(headline(facts, report, seconds), hang=2)
    if said := which_start(facts):
        out.wrap(said, hang=2)
    for finding in report.findings:
        out.line()
        _finding(out, finding)
    for crash in report.crashed:
        out.line()
        out.wrap(f"{crash.check}: {crash.error}", hang=6, mark="CRASH", kind="error")
    out.line()
    out.wrap(summary(report), hang=2)
    _unseen(out, report, details)


def _finding(out: Terminal, finding: Finding) -> None:
    label = LABEL[finding.severity]
    out.line(f"{out.paint(label, PAINT[finding.severity])} {out.paint(finding.check, 'bold')}")
    out.wrap(finding.summary, indent=2, hang=2)
    for line in finding.evidence:
        out.wrap(_line(line), indent=4, hang=6)
    for text in finding.consequences:
        out.wrap(f"so   {_line(text)}", indent=2, hang=7)
    if finding.remedy:
        out.line(f"  fix  {clean(finding.remedy)}")


def _line(text: str) -> str:
    """A line of evidence for the screen: digests by their beginning, which tells them apart; --json has all of it."""
    return _DIGEST.sub("\\1…", text)[:LINE]


def summary(report: Report) -> str:
    counts = Counter(f.severity for f in report.findings)
    parts = [
        f"{counts[s]} {s}{'s' * (counts[s] != 1 and s != 'info')}" for s in ("error", "warning", "info") if counts[s]
    ]
    well = f"{report.well} well"
    unseen = f"{len(report.skipped)} could not look"
    tail = [well] + ([unseen] if report.skipped else [])
    tail += [f"{len(report.crashed)} crashed"] if report.crashed else []
    tail += [f"{len(report.ignored)} ignored"] if report.ignored else []
    return ", ".join(parts or ["nothing wrong was found"]) + " · " + " · ".join(tail)


def _unseen(out: Terminal, report: Report, details: bool) -> None:
    """Reasons why checks could not look, each once; with the checks where asked for."""
    reasons: dict[tuple[str, str], list[Skipped]] = {}
    for one in report.skipped:
        reasons.setdefault((one.reason, one.hint), []).append(one)
    for (reason, hint), some in reasons.items():
        facts = ", ".join(sorted({one.fact for one in some}))
        names = f": {', '.join(one.check for one in some)}" if details else f" ({len(some)} checks)"
        out.wrap(f"not seen: {facts}: {reason}{f' ({hint})' if hint else ''}{names}", indent=2, hang=4)
    for gone in report.ignored:
        out.wrap(f"ignored: {gone.check} ({gone.severity}): {gone.reason or 'no reason given'}", indent=2, hang=4)


def explanation(out: Terminal, check: Check) -> None:
    out.line(out.paint(check.id, "bold"))
    out.wrap(check.title + ".")
    for name, label in (("Why", "why   "), ("Seen", "seen  "), ("Do", "do    ")):
        if text := check.part(name):
            out.wrap(f"{label} {text}", hang=7)
    out.wrap(
        f"needs  {', '.join(check.needs) or 'nothing'}" + (f"; wants {', '.join(check.wants)}" if check.wants else ""),
        hang=7,
    )
    if check.explains:
        out.wrap(f"stands above  {', '.join(sorted(check.explains))}", hang=7)
