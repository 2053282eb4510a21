"""What `apply` asks of the memory model: the pre-flight, `--parallel auto`, and loads to remember. Imported only when
something changes."""

from __future__ import annotations

import time

import msgspec

from ollamactl.core.capacity import Budget, budget
from ollamactl.core.facts import Facts
from ollamactl.core.feeds import Collector
from ollamactl.core.loaded import held
from ollamactl.core.memory.runner_args import Settings, engine_class
from ollamactl.core.memory_settings import number, release_of, settings_of, values_now
from ollamactl.core.plan import Plan, Request, full_name
from ollamactl.core.preflight import Forecast, Preflight, Subject, preflight, values_after
from ollamactl.core.runners import model_of
from ollamactl.core.sizing import Model, auto
from ollamactl.errors import Exit, Failure
from ollamactl.host import loads, modelfiles, serving, vocabularies
from ollamactl.host.apply import Result
from ollamactl.report.plan import size


def with_auto(request: Request, facts: Facts, collector: Collector) -> tuple[Request, str]:
    """`--parallel auto` as a number, and why. Raises Failure where no model tells how many slots fit."""
    subjects, problems = subjects_of(facts, request.models)
    if not subjects:
        raise Failure(
            "--parallel auto needs a model to count for" + (f": {problems[0]}" if problems else ""),
            hint="name one: --model NAME; or load one first: ollama run NAME",
            code=Exit.USAGE,
            id="usage",
        )
    facts = _with_memory(facts, collector)
    values = {name: request.set.get(name, text) for name, text in values_now(facts).items()}
    values["OLLAMA_NUM_PARALLEL"] = None
    release, _ = release_of(facts)
    room = budget(facts, values, leave=held(facts, modelfiles.mapped(facts)), context=_context(facts))
    current = number(values_now(facts), "OLLAMA_NUM_PARALLEL") or 0
    slots, why = auto([s.model for s in subjects], settings_of(values, release), room, current)
    if not slots:
        names = ", ".join(s.model.name for s in subjects)
        if "fit" not in request.overrides:
            raise Failure(
                f"not even one slot of {names} fits",
                hint=f"ollamactl plan {subjects[0].model.name} shows ways; or --parallel 1 --override fit",
                code=Exit.REFUSED,
                id="fit",
            )
        slots = 1
    wanted = {**request.set, "OLLAMA_NUM_PARALLEL": str(slots)}
    return msgspec.structs.replace(request, set=wanted), f"--parallel auto: {slots} ({why})"


def ground(facts: Facts, change: dict[str, str]) -> tuple[Settings, Budget]:
    """The server's settings with `change`, and what there is with nothing of it loaded. `facts` has the memory."""
    values = {**values_now(facts), **change}
    release, _ = release_of(facts)
    room = budget(facts, values, leave=held(facts, modelfiles.mapped(facts)), context=_context(facts))
    return settings_of(values, release), room


def check(plan: Plan, facts: Facts, request: Request, collector: Collector) -> Preflight:
    """The pre-flight of a plan."""
    subjects, problems = subjects_of(facts, request.models)
    if not subjects:
        return Preflight(notes=tuple(problems))
    facts = _with_memory(facts, collector)
    after = values_after(plan, facts, plan.own)
    release, _ = release_of(facts)
    room = budget(facts, after, leave=held(facts, modelfiles.mapped(facts)), context=_context(facts))
    return preflight(subjects, values_now(facts), after, release, room, problems)


def subjects_of(facts: Facts, named: tuple[str, ...]) -> tuple[list[Subject], list[str]]:
    """The loaded models, then those named, with what is said of those that can't be read."""
    folders = modelfiles.folders(facts)
    found: list[Subject] = []
    problems: list[str] = []
    whole = {h.model: h.whole for h in held(facts)}
    paths = {m.name: r.model for r in facts.runners or () if (m := model_of(r, facts)) is not None}
    seen = set()
    for before in serving.models_before(facts, time.time()):
        seen.add(before.name.lower())
        try:
            model = _model(before.name, folders, paths.get(before.name, ""))
        except Failure as error:
            problems.append(f"the memory of {before.name} is not predicted: {error.text}")
            continue
        if before.context:
            model = msgspec.structs.replace(model, num_ctx=before.context)
        found.append(Subject(model=model, loaded=True, whole=whole.get(before.name, False)))
    for name in named:
        if full_name(name).lower() in seen:
            continue
        try:
            found.append(Subject(model=_model(full_name(name), folders, "")))
        except Failure as error:
            if error.id != "model_not_found":  # that one is said by the plan itself
                problems.append(f"the memory of {name} is not predicted: {error.text}")
    return found, problems


def _model(name: str, folders: tuple[str, ...], path: str) -> Model:
    try:
        return modelfiles.model(modelfiles.find(name, folders), vocabularies.of)
    except Failure:
        if not path:
            raise
        model = modelfiles.model(modelfiles.find(path, folders), vocabularies.of)
        return msgspec.structs.replace(model, name=name)


def _with_memory(facts: Facts, collector: Collector) -> Facts:
    return msgspec.structs.replace(facts, memory=collector.get("memory"))


def _context(facts: Facts) -> dict[str, int]:
    release, _ = release_of(facts)
    return loads.spread(loads.read()[0], engine_class(release), "").context


# -- after the loads --


def remember(found: Preflight, result: Result, collector: Collector) -> list[str]:
    """Stores prediction and measurement of each model that was just loaded; says how they compare."""
    if result.after is None or not result.loaded:
        return []
    facts = msgspec.structs.replace(result.after, gpus=collector.get("gpus"))
    wanted = {name.lower() for name in result.loaded}
    kept, said = [], []
    for one in found.forecasts:
        if one.name.lower() not in wanted:
            continue
        stored = _measured(one, facts, found)
        for _ in range(3):
            if stored is not None:
                break
            time.sleep(0.05)  # the last lines of a load may still be on their way through the journal
            fresh = Collector(collector.host, collector.unit)
            stored = _measured(one, msgspec.structs.replace(facts, start=fresh.get("start")), found)
        if stored is not None:
            kept.append(stored)
            said.append(_compared(one, stored))
    try:
        vocabularies.store()
        if kept:
            loads.store(kept)
    except OSError as error:
        said.append(f"the loads could not be stored: {error.strerror}")
    return said


def _measured(one: Forecast, facts: Facts, found: Preflight) -> loads.Stored | None:
    kind = found.budget.places[one.after.places[0]].device.kind if one.after.places else ""
    for runner in facts.runners or ():
        model = model_of(runner, facts)
        if model is not None and model.name.lower() == one.name.lower():
            return loads.measured(one.subject.model, one.after, facts, runner, kind)
    return None


def _compared(one: Forecast, stored: loads.Stored) -> str:
    def kv(sums: dict[str, dict[str, int]]) -> int:
        return sum(side.get("kv", 0) + side.get("rs", 0) for side in sums.values())

    has, planned = kv(stored.buffers), kv(stored.predicted)
    as_planned = "as planned" if abs(has - planned) < 1 << 20 else f"planned {size(planned)}"
    off = f"all buffers within {size(abs(stored.error)) if stored.error else '1 MiB'} of the prediction"
    return f"{one.name}: KV {size(has)} {as_planned}, {off}"
