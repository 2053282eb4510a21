"""Searches for a number of slots, for tests of what shows them."""

from __future__ import annotations

from typing import Any

from ollamactl.core.plan import Change
from ollamactl.core.sizing import Model
from ollamactl.core.tune import Point, Try, counts, forecast, step
from ollamactl.host.apply import Result
from ollamactl.host.probing import Wanted
from ollamactl.host.trial import Trial
from ollamactl.host.tuning import Subject, Tuned
from ollamactl.report.tune import Report
from tests.unit.planned import gpu, model, room, settings


def subject(one: Model | None = None, most: int = 16, **limits: Any) -> Subject:
    """Qwen3 8B with 8192 tokens a slot on a GPU of 24 GiB."""
    one, free = one or model(), room(gpu())
    wish, cells = forecast(one, (), settings(), free, most, **limits)
    return Subject(model=one, wish=wish, cells=cells, budget=free, wanted=lambda n: Wanted(model=one.name),
                   address="127.0.0.1:11434")  # fmt: skip


def trial(of: Subject, slots: int, before: int, knee: int = 4, error: int = 3 << 20, **more: Any) -> Trial:
    cell = of.cells[slots - 1]
    measured = counts(slots)
    points = tuple(
        Point(at_once=n, first_token=0.2 * n, rate=40.0 * min(n, knee) / n, total_rate=40.0 * min(n, knee))
        for n in measured
    )
    tried = Try(slots=slots, loaded=True, resident=True, held=cell.need + error, points=points)
    change = Change(name="OLLAMA_NUM_PARALLEL", now=str(before), new=str(slots), where="zz-ollamactl.conf")
    return Trial(tried=tried, why="by the prediction", changes=(change,), restarted=True, predicted=cell.need,
                 error=error, cache=cell.kv, **more)  # fmt: skip


def report(of: Subject | None = None, trials: tuple[Trial, ...] | None = None, **more: Any) -> Report:
    """A search that loaded as many as fit, saw the knee at 4, and loaded 4."""
    of = of or subject()
    if trials is None:
        trials = (trial(of, of.wish.first, 1), trial(of, 4, of.wish.first))
    found = step([t.tried for t in trials], of.wish, 0)
    tuned = Tuned(trials=trials, step=found, result=Result(status="restored", entry=3), restarts=3)
    fields: dict[str, Any] = {
        "unit": "ollama.service", "subject": of, "tuned": tuned, "slots_now": 1, "context_now": 8192, "context": None,
        "taken": 1.79e9, "version": "0.33.0", "kept": False, **more,
    }  # fmt: skip
    return Report(**fields)
