"""The screen of a change that ollamactl leaves to the user: why, what to type, how to take it back."""

from __future__ import annotations

from ollamactl.core.advice import Advice
from ollamactl.errors import Exit
from ollamactl.report import envelope
from ollamactl.report.text import Terminal, clean


def show(out: Terminal, advice: Advice, as_json: bool, command: str = "apply") -> int:
    """Exit code 6: nothing was touched. Lines to type or to put into a file are never broken."""
    if as_json:
        document = envelope.envelope(command, Exit.REFUSED, {"unit": None, "changed": False, "advice": advice})
        envelope.write(document)
        return Exit.REFUSED
    out.wrap(f"{advice.said}. Nothing was changed.")
    for step in advice.steps:
        out.line()
        out.wrap(step.what)
        for line in step.lines:
            out.line(f"    {clean(line)}")
    if advice.undo:
        out.line()
        out.wrap("To take it back:")
        for line in advice.undo:
            out.line(f"    {clean(line)}")
    return Exit.REFUSED
