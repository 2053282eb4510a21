"""The findings as one page that needs nothing else."""

from __future__ import annotations

from typing import Any

from ollamactl.core.checks import CHECKS, Report
from ollamactl.core.facts import Facts
from ollamactl.platforms import templates
from ollamactl.report import findings
from ollamactl.report.text import clean


def page(facts: Facts, report: Report, seconds: float) -> str:
    """HTML of a report. All values are escaped, control characters replaced."""
    unseen: dict[str, list[str]] = {}
    for one in report.skipped:
        unseen.setdefault(clean(one.reason + (f" ({one.hint})" if one.hint else "")), []).append(one.check)
    values: dict[str, Any] = {
        "headline": clean(findings.headline(facts, report, seconds)),
        "summary": clean(findings.summary(report)),
        "start": clean(findings.which_start(facts)),
        "findings": [
            {
                "severity": f.severity,
                "check": f.check,
                "summary": clean(f.summary),
                "evidence": [clean(line) for line in f.evidence],
                "consequences": [clean(text) for text in f.consequences],
                "remedy": clean(f.remedy),
                "why": CHECKS[f.check].part("Why"),
            }
            for f in report.findings
        ],
        "crashed": [{"check": c.check, "error": clean(c.error)} for c in report.crashed],
        "ignored": [{"check": i.check, "severity": i.severity, "reason": clean(i.reason)} for i in report.ignored],
        "unseen": [(reason, ", ".join(checks)) for reason, checks in unseen.items()],
    }
    return templates.page("html/doctor.html.j2", **values)
