"""The search for a number of slots on a real host: one transaction over all its loads, so that whatever ends it, what
was before comes back as after any other change."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from ollamactl.core import tune as search
from ollamactl.core.capacity import Budget
from ollamactl.core.facts import Facts, LoadedModel, Runner
from ollamactl.core.feeds import Collector
from ollamactl.core.measure import Probe
from ollamactl.core.mismatch import Mismatch
from ollamactl.core.plan import Change, Plan
from ollamactl.core.runners import model_of
from ollamactl.core.sizing import Cell, Model
from ollamactl.core.tune import Step, Try, Wish
from ollamactl.errors import Exit, Failure
from ollamactl.host import apply as changing
from ollamactl.host import loads, probing, undo, wire
from ollamactl.host.apply import Context, Interrupted, Result
from ollamactl.host.context import Lost
from ollamactl.host.journal import Entry, FileUndo
from ollamactl.host.loads import Stored
from ollamactl.host.probing import Wanted
from ollamactl.host.slots import Slots
from ollamactl.host.trial import Trial, cache_of, is_cut, missing, point

NOTHING = "no number of slots is recommended"

# (slots, for good) → the plan that leads there from what is now, and the facts that it was made of
Planner = Callable[[int, bool], tuple[Plan, Facts]]


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What is tuned: one model on one unit, what is predicted for it, and how each load is measured."""

    model: Model
    wish: Wish
    cells: tuple[Cell, ...]  # one for each number of slots, from 1
    budget: Budget
    wanted: Callable[[int], Wanted]
    address: str


class Tuned(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended. `step`: the recommendation, None where it was stopped before there was one."""

    trials: tuple[Trial, ...]
    step: Step | None
    result: Result
    restarts: int  # of the service in all, the last one among them
    changes: tuple[Change, ...] = ()  # that stay


def tune(ctx: Context, subject: Subject, plan_at: Planner, keep: bool, begin: Callable[[Step, int], None]) -> Tuned:
    """Loads, measures, moves as `core.tune.step` says; then what was before is put back, or (keep) what is recommended
    stays. `begin(step, number)` is told of each load. The caller holds the lock."""
    step = search.step([], subject.wish, search.RESTARTS - 1)
    if step.done:  # nothing has to be loaded to see that nothing fits
        return Tuned(trials=(), step=step, result=Result(status="unchanged", entry=0), restarts=0)
    begin(step, 1)
    first = _planned(plan_at, step.slots, False)
    run = _Run(ctx, subject, plan_at, begin, first)
    result = undo.transact(ctx, run.change, lambda: run.all(step, first, keep))
    return Tuned(
        trials=tuple(run.trials),
        step=run.step,
        result=result,
        restarts=run.restarts + result.restarted,
        changes=run.kept if result.status == "applied" else (),
    )


def _planned(plan_at: Planner, slots: int, good: bool) -> tuple[Plan, Facts]:
    plan, facts = plan_at(slots, good)
    if plan.refused:
        first = plan.refused[0]
        raise Failure(first.text, hint=first.hint, code=Exit.REFUSED, id=first.id)
    return plan, facts


class _Run:
    def __init__(
        self,
        ctx: Context,
        subject: Subject,
        plan_at: Planner,
        begin: Callable[[Step, int], None],
        first: tuple[Plan, Facts],
    ) -> None:
        self.ctx, self.subject, self.plan_at, self.begin = ctx, subject, plan_at, begin
        self.trials: list[Trial] = []
        self.restarts = 0
        self.step: Step | None = None
        self.kept: tuple[Change, ...] = ()
        self.first: dict[str, str] = {}  # variables as they were before the first load
        self.change = undo.UnderWay(self._entry_for(*first), "")

    def all(self, step: Step, planned: tuple[Plan, Facts], keep: bool) -> Result:
        self.trials.append(self._load(step, *planned))
        while not (step := self._next()).done:
            self.begin(step, len(self.trials) + 1)
            self.trials.append(self._load(step, *self._planned(step.slots, False)))
        self.step = step
        if not keep or step.slots == 0:
            raise undo.Back(f"recommends OLLAMA_NUM_PARALLEL={step.slots}" if step.slots else NOTHING)
        return self._keep(step)

    def _next(self) -> Step:
        tries = [t.tried for t in self.trials]
        return search.step(tries, self.subject.wish, search.RESTARTS - 1 - self.restarts)

    # -- one load --

    def _entry_for(self, plan: Plan, facts: Facts) -> Entry:
        for change in plan.changes:
            self.first.setdefault(change.name, change.now)
        entry = changing.entry_for(self.ctx, plan, facts, "tune", {})
        return msgspec.structs.replace(entry, changes=())  # nothing of it is meant to stay

    def _planned(self, slots: int, good: bool) -> tuple[Plan, Facts]:
        """The plan, and the undo of it beside that of the loads before, on the disk."""
        plan, facts = _planned(self.plan_at, slots, good)
        self.change.entry = merged(self.change.entry, self._entry_for(plan, facts))
        self.ctx.store.begin(self.change.entry)
        return plan, facts

    def _load(self, step: Step, plan: Plan, before: Facts) -> Trial:
        subject = self.subject
        cell = subject.cells[step.slots - 1]
        trial = Trial(
            tried=Try(slots=step.slots, loaded=False, resident=False),
            why=step.why,
            changes=plan.changes,
            restarted=plan.restart,
            predicted=cell.need,
        )
        self.restarts += plan.restart
        try:
            _, facts, _ = self._forward(plan, before)
        except Lost as error:
            wrong = error.mismatches
            if not all(m.layer in ("runner", "process") for m in wrong) or _fixed(wrong):
                raise
            for m in wrong:
                self.ctx.report.step(m.text, ok=False, detail=m.evidence)
            tried = msgspec.structs.replace(trial.tried, why=wrong[0].text)
            return msgspec.structs.replace(trial, tried=tried)
        runner, loaded, stored = self._seen(cell, facts)
        held = cell.need + stored.error if stored is not None else None
        whole = missing(cell, loaded, runner, facts, self.change.entry)
        found = None
        if not whole:
            self._remember(stored)
            try:
                found = self._measure(step.slots, facts)
            except Failure as error:
                if error.code == Exit.USAGE or error.id not in ("load_failed", "no_answer", "absent"):
                    raise
                whole = error.text  # it died of so many requests at once
        if whole:
            self.ctx.report.step(whole, ok=False)
        points = tuple(point(p) for p in found.phases) if found else ()
        return msgspec.structs.replace(
            trial,
            tried=Try(slots=step.slots, loaded=True, resident=not whole, held=held, points=points, why=whole),
            error=stored.error if stored is not None else None,
            cache=cache_of(stored) if stored is not None else None,
            probe=found,
        )

    def _forward(self, plan: Plan, before: Facts) -> tuple[object, Facts, tuple[str, ...]]:
        """The model itself is loaded as the settings say, not with the context that a client once asked for."""
        name = self.subject.model.name
        entry = self.change.entry
        models = tuple(msgspec.structs.replace(m, context=None) if m.name == name else m for m in entry.models)
        entry = msgspec.structs.replace(entry, models=models)
        return changing.forward(self.ctx, plan, before, entry, (name,))

    def _seen(self, cell: Cell, facts: Facts) -> tuple[Runner | None, LoadedModel | None, Stored | None]:
        """The runner of the load, its entry in /api/ps, and its memory as the log says it."""
        subject, ctx = self.subject, self.ctx
        kind = subject.budget.places[cell.places[0]].device.kind if cell.places else ""
        facts = msgspec.structs.replace(facts, gpus=Collector(ctx.host, self.change.entry.unit).get("gpus"))
        for runner in facts.runners or ():
            loaded = model_of(runner, facts)
            if loaded is None or loaded.name != subject.model.name:
                continue
            for _ in range(4):
                stored = loads.measured(subject.model, cell, facts, runner, kind)
                if stored is not None:
                    break
                time.sleep(0.05)  # the last lines of a load may still be on their way through the journal
                facts = msgspec.structs.replace(facts, start=Collector(ctx.host, self.change.entry.unit).get("start"))
            return runner, loaded, stored
        return None, None, None

    def _measure(self, slots: int, facts: Facts) -> Probe:
        where = wire.target(f"http://{facts.address or self.subject.address}")
        began = time.monotonic()
        seen = Slots(self.ctx.host, where, self.subject.model.name, facts.process)
        found = probing.measure(where, self.subject.wanted(slots), seen, self.ctx.report.working)
        if found.interrupted:
            raise Interrupted(found.signal)
        if not found.phases or is_cut(found.phases[0]):
            raise Failure("nothing could be measured within the time limit", hint="--time-limit 1200", id="limit")
        counts = ", ".join(str(p.clients) for p in found.phases)
        self.ctx.report.step(f"measured with {counts} at once", seconds=time.monotonic() - began)
        return found

    def _remember(self, stored: Stored | None) -> None:
        if stored is None:
            return
        try:
            loads.store([stored])
        except OSError as error:
            self.ctx.report.note(f"the load could not be stored: {error.strerror}")

    # -- the end --

    def _keep(self, step: Step) -> Result:
        """What is recommended stays, through one more change where the last load was another."""
        plan, facts = self._planned(step.slots, True)
        loaded: tuple[str, ...] = (self.subject.model.name,)
        if not plan.empty:
            self.restarts += plan.restart
            _, facts, loaded = self._forward(plan, facts)
        self.kept = self._changes(plan)
        shown = tuple((c.name, c.now, c.new) for c in self.kept)
        self.change.summary = ", ".join(f"{c.name}={c.new}" for c in self.kept) or "as before"
        self.change.entry = msgspec.structs.replace(self.change.entry, changes=shown)
        return Result(status="applied", entry=self.change.entry.id, after=facts, loaded=loaded)

    def _changes(self, last: Plan) -> tuple[Change, ...]:
        """What is otherwise than before the first load."""
        now = {c.name: c for t in self.trials for c in t.changes} | {c.name: c for c in last.changes}
        found = [msgspec.structs.replace(c, now=self.first[name]) for name, c in now.items()]
        return tuple(c for c in found if c.now != c.new)


def _fixed(wrong: tuple[Mismatch, ...]) -> bool:
    """Whether fewer slots would not help."""
    return any(m.id in ("model_not_found", "parallel_forced_to_1_by_architecture") for m in wrong)


def merged(so_far: Entry, new: Entry) -> Entry:
    """One undo for both: what was before the first, and every text that was written since."""
    files = {f.path: f for f in so_far.files}
    for f in new.files:
        was = files.get(f.path)
        if was is not None:
            between = tuple(dict.fromkeys((*was.between, was.after.digest)))
            f = FileUndo(f.path, was.before, f.after, was.made, f.emptied, between)
        files[f.path] = f
    return msgspec.structs.replace(
        so_far,
        files=tuple(files.values()),
        values={**new.values, **so_far.values},
        overrides=tuple(dict.fromkeys((*so_far.overrides, *new.overrides))),
    )
