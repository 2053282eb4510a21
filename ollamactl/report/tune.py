"""A search for the number of slots, for the terminal and as JSON."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from ollamactl.core.plan import Plan
from ollamactl.core.tune import Step
from ollamactl.errors import Exit, Failure
from ollamactl.host.trial import Trial
from ollamactl.host.tuning import Subject, Tuned
from ollamactl.report import screens
from ollamactl.report.probe import per_second, seconds
from ollamactl.report.text import Terminal, columns, size


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is shown. `kept`: --apply was given."""

    unit: str
    subject: Subject
    tuned: Tuned
    slots_now: int | None
    context_now: int  # tokens of each slot, as measured
    context: int | None  # as asked for
    taken: float | None
    version: str
    kept: bool

    @property
    def model(self) -> str:
        return self.subject.model.name

    @property
    def where(self) -> str:
        return "on the GPU" if self.subject.cells[0].places else "in host memory"


def exit_code(done: Report) -> Exit:
    result, step = done.tuned.result, done.tuned.step
    if result.status == "not-restored":
        return Exit.NOT_RESTORED
    if step is None or result.mismatches:
        return Exit.RESTORED
    return Exit.OK if step.slots else Exit.FINDINGS


def failures(done: Report) -> list[Failure]:
    found = [Failure(m.text, hint=m.fix, id=m.id) for m in done.tuned.result.mismatches]
    step = done.tuned.step
    if step is not None and not step.slots:
        found.append(Failure(step.why, hint=_ways(done), id="nothing_fits"))
    return found


def _ways(done: Report) -> str:
    return f"ollamactl plan {shlex.quote(done.model)} shows what would fit"


# -- while it runs --


def opening(out: Terminal, facts: Any, subject: Subject, slots_now: int | None) -> None:
    out.wrap(screens.header(facts))
    out.wrap(f"{subject.model.name}: {predicted(subject, slots_now)}")


def predicted(subject: Subject, slots_now: int | None) -> str:
    """What is expected, in one sentence or two."""
    wish, cells = subject.wish, subject.cells
    count = max(1, wish.first)
    where = "GPU" if cells[0].places else "host"
    now = f", {_slots(slots_now)} now" if slots_now else ""
    said = f"{cells[0].context:,} tokens per slot{now}. "
    room = f", {size(wish.room)} of {where} memory may be used" if wish.room < 1 << 62 else ""
    said += f"Predicted: {_slots(count)} take{'s' * (count == 1)} {size(cells[count - 1].need)}{room}"
    if len(cells) > 1:
        said += f"; each slot {size(step_bytes(subject))} more"
    return said + ("" if wish.first else ", so not even one fits") + "."


def step_bytes(subject: Subject) -> int:
    """Bytes that one more slot takes by the prediction, over the range that fits."""
    cells = subject.cells
    last = max(2, min(len(cells), subject.wish.first))
    return (cells[last - 1].need - cells[0].need) // (last - 1)


def _slots(count: int) -> str:
    return f"{count} slot{'s' * (count != 1)}"


def load(out: Terminal, step: Step, number: int) -> None:
    out.line()
    out.wrap(f"load {number}: {_slots(step.slots)} ({step.why})")


def changed(out: Terminal, plan: Plan, asked: tuple[str, ...]) -> None:
    """`asked`: variables that the user wants otherwise, whatever the number of slots."""
    for c in plan.changes:
        if c.now != c.new:
            why = ", as asked for" if c.name in asked else ""
            out.wrap(f"changes {c.name} {c.now or '–'} → {c.new or '–'}{why}", indent=2, hang=4)


# -- the end --


def screen(out: Terminal, done: Report, transaction: screens.Apply) -> None:
    tuned = done.tuned
    if any(t.tried.points for t in tuned.trials):
        out.line()
        out.lines(*columns(table(done), set(range(8)), out.table_width))
        for text in figures(done):
            out.wrap(text)
    out.line()
    if tuned.result.status == "not-restored":
        transaction.left(tuned.result)
        out.line("The host could not be put back wholly.   (exit 4)")
        return
    if tuned.step is None:
        for m in tuned.result.mismatches[:1]:
            out.wrap(f"Stopped: {m.text}.")
        out.line(f"Nothing is recommended; the host is as it was.{'':<9}(exit 3)")
        return
    for text in conclusions(done):
        out.wrap(text)
    if command := recommended(done):
        out.line(f"    {command}")
    if tuned.result.mismatches:
        out.line(f"It could not be applied; the host is as it was.{'':<8}(exit 3)")


def table(done: Report) -> list[list[str]]:
    rows = [["slots", "held", "error", "cache/slot", "at once", "first token", "tok/s", "each"]]
    for t in done.tuned.trials:
        tried = t.tried
        per_slot = size(t.cache / tried.slots) if t.cache is not None else "–"
        left = [str(tried.slots), size(tried.held), off(t.error), per_slot]
        for p in tried.points:
            rows.append([*left, str(p.at_once), seconds(p.first_token), per_second(p.total_rate), per_second(p.rate)])
            left = [""] * 4
        if not tried.points:
            rows.append([*left, "–", "–", "–", "–"])
    return rows


def off(error: int | None) -> str:
    """Bytes beyond the prediction."""
    if error is None:
        return "–"
    return "< 1 MiB" if abs(error) < 1 << 20 else f"{'+' if error > 0 else '−'}{size(abs(error))}"


def figures(done: Report) -> list[str]:
    """What the table's columns mean, where that is not plain."""
    firsts = [p.summary.first_token for t in done.tuned.trials if t.probe for p in t.probe.phases]
    few = any(s is not None and s.p95 is None for s in firsts)
    first = "the slowest" if few else "the 95th percentile"
    found = [f"First token: {first}. Error: held beyond the prediction."]
    for t in done.tuned.trials:
        if t.tried.why:
            found.append(f"{_slots(t.tried.slots)}: {t.tried.why}.")
        if t.probe and any(p.summary.foreign for p in t.probe.phases):
            found.append(f"Others used the server while {_slots(t.tried.slots)} were measured.")
        if t.probe and t.probe.limited:
            found.append(f"The time limit ended the measurement with {_slots(t.tried.slots)} (--time-limit).")
    return found


def conclusions(done: Report) -> list[str]:
    """The knee, what is recommended and why, and how the host is left."""
    tuned, step = done.tuned, done.tuned.step
    assert step is not None
    found = []
    if step.knee is not None and step.slots:
        found.append(f"Knee: {step.knee} at once. {_sentence(step.why)}.")
    if not step.slots:
        found.append(f"No number of slots is recommended: {step.why}. {_ways(done)}.")
    else:
        why = list(step.reasons) if step.knee is not None else [step.why, *step.reasons]
        found.append(f"Recommended: {_slots(step.slots)}" + (f": {'; '.join(why)}." if why else "."))
    if tuned.result.status == "applied":
        kept = "is applied and verified" if tuned.changes else "is what runs already"
        undo = ". To undo: sudo ollamactl rollback" if tuned.changes else ""
        found.append(f"It {kept}{undo}")
    elif tuned.trials and not tuned.result.mismatches:
        times = f"{tuned.restarts} restart{'s' * (tuned.restarts != 1)} in all"
        found.append(f"What was before is back ({times}). To have it:" if _changes(done) else
                     f"That is what runs already ({times}).")  # fmt: skip
    return found


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _changes(done: Report) -> bool:
    step = done.tuned.step
    first = {c.name for t in done.tuned.trials for c in t.changes} - {"OLLAMA_NUM_PARALLEL"}
    return bool(step and step.slots and (step.slots != done.slots_now or first))


def recommended(done: Report) -> str:
    """The command that applies what is recommended; empty where nothing is, or it is applied."""
    step = done.tuned.step
    if step is None or not _changes(done) or done.tuned.result.status == "applied":
        return ""
    words = ["sudo", "ollamactl", "apply", "--parallel", str(step.slots)]
    words += ["--context-length", str(done.context)] if done.context is not None else []
    words += ["--unit", done.unit] if done.unit != "ollama.service" else []
    return shlex.join([*words, "--model", done.model])


# -- JSON --


def document(done: Report) -> dict[str, Any]:
    """For the envelope. Every key is always there."""
    step, wish = done.tuned.step, done.subject.wish
    result = done.tuned.result
    return {
        "unit": done.unit,
        "model": done.model,
        "version": done.version or None,
        "taken": done.taken,
        "context": done.context_now,
        "slots_before": done.slots_now,
        "max": wish.most,
        "ttft": wish.first_token,
        "min_tokens_per_second": wish.rate,
        "where": "gpu" if done.subject.cells[0].places else "host",
        "predicted": {
            "slots": wish.first,
            "room": wish.room if wish.room < 1 << 62 else None,
            "per_slot": step_bytes(done.subject) if len(done.subject.cells) > 1 else None,
        },
        "loads": [_load(t) for t in done.tuned.trials],
        "knee": step.knee if step else None,
        "recommendation": {
            "slots": step.slots,
            "why": step.why,
            "reasons": list(step.reasons),
            "command": recommended(done) or None,
        } if step and step.slots else None,
        "restarts": done.tuned.restarts,
        "applied": result.status == "applied",
        "restored": result.status in ("restored", "unchanged"),
        "history": result.entry or None,
        "conclusions": conclusions(done) if step else [],
        "conflicts": [*result.conflicts, *result.problems],
        "commands": list(result.commands),
    }  # fmt: skip


def _load(t: Trial) -> dict[str, Any]:
    tried = t.tried
    return {
        "slots": tried.slots,
        "why": t.why,
        "changes": [{"name": c.name, "now": c.now, "new": c.new} for c in t.changes],
        "restarted": t.restarted,
        "loaded": tried.loaded,
        "resident": tried.resident,
        "failure": tried.why or None,
        "predicted": t.predicted,
        "held": tried.held,
        "error": t.error,
        "cache": t.cache,
        "cache_per_slot": t.cache // tried.slots if t.cache is not None else None,
        "points": [
            {
                "at_once": p.at_once,
                "first_token": p.first_token,
                "tokens_per_second": p.rate,
                "tokens_per_second_in_all": p.total_rate,
                "failed": p.failed,
                "cut": p.cut,
            }
            for p in tried.points
        ],
    }
