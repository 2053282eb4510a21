"""The last proof of a change: models in memory again, their runners as wanted, and the same process still serving."""

from __future__ import annotations

import time

import msgspec

from ollamactl.core.cause import cause
from ollamactl.core.facts import Facts
from ollamactl.core.mismatch import Mismatch
from ollamactl.core.plan import RUNS, Plan, full_name
from ollamactl.core.verify import Judgement, judge
from ollamactl.host import serving
from ollamactl.host.context import Context, Lost
from ollamactl.host.journal import Entry, ModelBefore
from ollamactl.host.serving import VERIFY, Door, LoadFailed, gather

PROOF = tuple(f for f in VERIFY if f != "connections")  # who waits proves nothing
KEEP_ALIVE = 300.0  # s that a model stays loaded which was loaded as a proof only


def proof(
    ctx: Context,
    plan: Plan,
    before: Facts,
    entry: Entry,
    models: tuple[str, ...],
    door: Door,
    facts: Facts,
    serves: tuple[str, int, int] | None = None,
) -> tuple[Judgement, Facts, tuple[str, ...]]:
    """Every model that was loaded, and those named, in memory again; the runner and its memory as wanted. `facts`
    are those before the loads; `serves` is who answered after the restart, and has to serve at the end too."""
    todo = {m.name: m for m in entry.models}
    for name in models:
        todo.setdefault(full_name(name), ModelBefore(full_name(name), serving.proof_keep_alive(facts, KEEP_ALIVE)))
    serves = serves or ctx.manager.state(plan.unit).identity
    for model in todo.values():
        facts, took = _load(ctx, plan.unit, door, model, serves, entry.started)
        runner = next((r for r in reversed(facts.runners or ()) if r.slots), None)
        shown = f" with -c {runner.context_total} -np {runner.slots}" if runner else ""
        ctx.report.step(f"{model.name} loaded{shown}", seconds=took)
    if not todo:
        facts = gather(ctx.host, plan.unit, PROOF)
    named = tuple(full_name(n) for n in models)
    found = judge(facts, plan.wanted, named=named, proof=bool(todo))
    ours = {*plan.wanted, *plan.asked}
    wrong = [m for m in found.mismatches if not m.name or m.name in ours]
    wrong += [] if "fit" in plan.overrides else _slipped(facts, entry, before)
    if not wrong:
        _watch(ctx, plan.unit, serves)
    wrong += _died(ctx, plan.unit, serves, entry.started) or _unseen(facts, plan.unit)
    if wrong:
        raise Lost(*wrong)
    if not todo:
        ctx.report.note("no model was loaded, so slots and memory are not proven by a runner (--model NAME does)")
    return found, facts, tuple(todo)


def _load(
    ctx: Context, unit: str, door: Door, model: ModelBefore, serves: tuple[str, int, int], since: float
) -> tuple[Facts, float]:
    ctx.report.working(f"loading {model.name}")
    try:
        took = serving.load(ctx.host, door, serves[1], model, ctx.timeout)
    except LoadFailed as error:
        why = cause(gather(ctx.host, unit, (*VERIFY, "log")))
        gone = _died(ctx, unit, serves, since)
        if why is None and gone:
            raise Lost(msgspec.structs.replace(gone[0], text=f"{error.text}: {gone[0].text}")) from None
        text = f"{error.text}: {why.text}" if why and why.text not in error.text else error.text
        kind = error.id if error.id == "model_not_found" or why is None else why.id
        raise Lost(Mismatch(kind, "", "runner", text, why.evidence if why else ())) from None
    return gather(ctx.host, unit, PROOF), took


def _watch(ctx: Context, unit: str, serves: tuple[str, int, int]) -> None:
    """`--watch`: some time longer, until it is over or another process serves."""
    if not ctx.watch:
        return
    began = time.monotonic()
    while (left := ctx.watch - (time.monotonic() - began)) > 0:
        ctx.report.working(f"watching it for {left:.0f} s more")
        if ctx.manager.state(unit).identity != serves:
            return
        time.sleep(min(0.2, left))
    ctx.report.step("still the same process", seconds=ctx.watch)


def _died(ctx: Context, unit: str, serves: tuple[str, int, int], since: float) -> list[Mismatch]:
    """Whether the invocation that was started has ended meanwhile. `since`: when the change began."""
    now = ctx.manager.state(unit)
    if now.identity == serves and now.active in RUNS:
        return []
    facts = gather(ctx.host, unit, (*VERIFY, "log"))
    ends = [e for e in facts.log.systemd if e.kind == "main_exited" and (e.at or 0.0) >= since] if facts.log else []
    by_itself = now.active == "failed" or now.sub.startswith("auto-restart") or now.n_restarts > serves[2]
    if not (ends or by_itself or (now.invocation == serves[0] and not now.job)):
        done = "restarted" if now.active in RUNS or now.job else "stopped"
        said = f"{unit} was {done} by someone else before the change was proven"
        return [Mismatch("restarted_meanwhile", "", "process", said)]
    why = cause(facts)
    how = why.text if why else ends[-1].text if ends else f"{now.active}/{now.sub}"
    evidence = why.evidence if why else ()
    return [Mismatch("service_restart_loop", "", "process", f"{unit} died after it had answered: {how}", evidence)]


def _unseen(facts: Facts, unit: str) -> list[Mismatch]:
    """What can't be looked at proves nothing: the unit may have been deleted or masked meanwhile."""
    for field in ("service", "unit_files", "effective", "process"):
        if getattr(facts, field) is None:
            text = f"{unit} can't be verified: {facts.why(field)}"
            return [Mismatch("service_gone", "", "unit", text)]
    if facts.service is not None and facts.service.load_state not in ("loaded", ""):
        text = f"{unit} was changed meanwhile: its unit file is {facts.service.load_state}"
        return [Mismatch("service_gone", "", "unit", text)]
    return []


def _slipped(facts: Facts, entry: Entry, before: Facts) -> list[Mismatch]:
    """Models with a smaller share on the GPU than before the change; without a before, any share below all where
    this start found a usable GPU."""
    found = []
    was = {m.name: m for m in entry.models}
    usable = any(c.library.lower() != "cpu" and c.id != "cpu" for c in (facts.start.computes if facts.start else ()))
    for model in facts.loaded or ():
        share = model.size_vram / model.size if model.size else 1.0
        old = was.get(model.name)
        limit = (old.size_vram / old.size if old.size else 0.0) if old else (1.0 if usable else 0.0)
        if share < limit:
            text = (
                f"{model.name} is {share:.0%} on the GPU, {limit:.0%} before"
                if old
                else (f"{model.name} is only {share:.0%} on the GPU")
            )
            found.append(Mismatch("partial_offload", "", "runner", text))
    return found
