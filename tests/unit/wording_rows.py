"""Rows of wordings: a check, a text that makes it fire first, and nearly the same, on which it must say nothing at
warning or above."""

from __future__ import annotations

from ollamactl.core.checks import Report, run
from ollamactl.core.pasted import facts_of

Row = tuple[str, str, str]


def report(text: str) -> Report:
    """What doctor says of a pasted text."""
    facts = facts_of(text.encode(), "text")
    return run(facts) if facts is not None else Report()


def fires_first(row: Row) -> None:
    check, text, _ = row
    found = report(text)
    assert not found.crashed, found.crashed
    assert [f.check for f in found.findings][:1] == [check], [(f.check, f.summary) for f in found.findings]


def near_miss_is_quiet(row: Row) -> None:
    check, _, text = row
    found = report(text)
    assert not found.crashed, found.crashed
    said = [(f.check, f.severity, f.summary) for f in found.findings if f.check == check and f.severity != "info"]
    assert not said, said
