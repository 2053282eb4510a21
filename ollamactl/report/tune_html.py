"""A search for the number of slots as one HTML file that needs no network and no script."""

from __future__ import annotations

import time
from typing import Any

from ollamactl.host.trial import Trial
from ollamactl.platforms import templates
from ollamactl.report import tune as text
from ollamactl.report.probe_html import curve
from ollamactl.report.text import size
from ollamactl.report.tune import Report


def page(done: Report) -> str:
    """The whole file. Everything that came from a server or a user is escaped by the template."""
    step = done.tuned.step
    stopped = [f"Stopped: {m.text}." for m in done.tuned.result.mismatches]
    return templates.page(
        "html/tune.html.j2",
        title=done.model,
        at=time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(done.taken)) if done.taken else "",
        facts=_facts(done),
        conclusions=text.conclusions(done) if step else stopped or ["Nothing is recommended."],
        command=text.recommended(done),
        loads=[_load(n, t) for n, t in enumerate(done.tuned.trials, 1)],
        rows=text.table(done),
        figures=text.figures(done),
    )


def _facts(done: Report) -> list[tuple[str, str]]:
    wish = done.subject.wish
    rows = [("Service", done.unit), ("Ollama", done.version or "version unknown")]
    rows.append(("Slots before", str(done.slots_now or "not known")))
    rows.append(("Context per slot", f"{done.context_now:,} tokens"))
    rows.append(("Predicted to fit", f"{wish.first} of {wish.most} at most"))
    if len(done.subject.cells) > 1:
        rows.append(("Each slot", size(text.step_bytes(done.subject))))
    if wish.first_token is not None:
        rows.append(("First token within", f"{wish.first_token:g} s"))
    if wish.rate is not None:
        rows.append(("Tokens/s of each", f"{wish.rate:g} at least"))
    return rows


def _load(number: int, t: Trial) -> dict[str, Any]:
    points = t.tried.points
    firsts = [(p.at_once, p.first_token) for p in points if p.first_token is not None]
    rates = [(p.at_once, p.rate) for p in points if p.rate is not None]
    totals = [(p.at_once, p.total_rate) for p in points if p.total_rate is not None]
    curves = [
        curve("First token, seconds", [("slowest", firsts)]),
        curve("Tokens per second", [("in all", totals), ("each", rates)]),
    ]
    return {
        "title": f"Load {number}: {t.tried.slots} slot{'s' * (t.tried.slots != 1)}",
        "why": t.why,
        "changes": [f"{c.name}: {c.now or 'unset'} → {c.new or 'unset'}" for c in t.changes],
        "failure": t.tried.why,
        "curves": [c for c in curves if c],
    }
