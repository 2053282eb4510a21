"""What a change of settings does to the models that are loaded or named: refused where it would push one off the GPU
or keep it from loading. Pure; the words of the screen are made here, the table in report/."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ollamactl.core.answer import gib, tokens
from ollamactl.core.capacity import Budget
from ollamactl.core.facts import Facts
from ollamactl.core.lint import Lint
from ollamactl.core.memory.runner_args import Settings
from ollamactl.core.memory_settings import RELEVANT, number, settings_of
from ollamactl.core.plan import Plan, Request
from ollamactl.core.sizing import Cell, Model, args_for, largest, settings_for, start, together
from ollamactl.core.ways import options

SAID_BEFORE = frozenset({"kv_type_invalid", "kv_type_without_flash_attention", "parallel_above_maximum"})


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A model that the change concerns. `loaded`: it is now; `whole`: and wholly on the GPU."""

    model: Model
    loaded: bool = False
    whole: bool = False


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """One model before and after the change."""

    subject: Subject
    before: Cell
    after: Cell

    @property
    def name(self) -> str:
        return self.subject.model.name


class Preflight(msgspec.Struct, frozen=True, kw_only=True):
    forecasts: tuple[Forecast, ...] = ()
    lints: tuple[Lint, ...] = ()
    impossible: tuple[Lint, ...] = ()  # of them, those where the engine takes no such settings at all
    budget: Budget = Budget()
    notes: tuple[str, ...] = ()


def values_after(plan: Plan, facts: Facts, own: tuple[str, ...]) -> dict[str, str | None]:
    """The variables that decide about memory as the plan leaves them. `own`: paths of our files, which the plan may
    take away, so that the value of whoever came before counts again."""
    found: dict[str, str | None] = {}
    for name in RELEVANT:
        if name in plan.wanted:
            found[name] = plan.wanted[name]
            continue
        variable = facts.effective.variables.get(name) if facts.effective else None
        if variable is None:
            found[name] = None
            continue
        sources = [*variable.shadowed, (variable.value, variable.origin)]
        others = [value for value, origin in sources if origin.file not in own]
        found[name] = others[-1] if others else None
    return found


def preflight(
    subjects: Iterable[Subject],
    before: Mapping[str, str | None],
    after: Mapping[str, str | None],
    release: tuple[int, int, int],
    budget: Budget,
    notes: Iterable[str] = (),
) -> Preflight:
    """Judges each model alone, then those side by side that are to be loaded together. `budget`: with none of them
    loaded."""
    subjects = tuple(subjects)
    old, new = settings_of(before, release), settings_of(after, release)
    forecasts: list[Forecast] = []
    lints: list[Lint] = []
    impossible: list[Lint] = []
    for subject in subjects:
        found = Forecast(
            subject=subject, before=_start(subject.model, old, budget), after=_start(subject.model, new, budget)
        )
        forecasts.append(found)
        lint = _alone(found, new, budget)
        lints += [lint] if lint else []
        impossible += [lint] if lint and not found.after.need else []
    wanted = any(f.after.args != f.before.args for f in forecasts)
    most = number(after, "OLLAMA_MAX_LOADED_MODELS") or 3
    if 1 < len(subjects) <= most and wanted and not lints:
        lints += _side_by_side([s.model for s in subjects], old, new, budget)
    return Preflight(
        forecasts=tuple(forecasts), lints=tuple(lints), impossible=tuple(impossible), budget=budget, notes=tuple(notes)
    )


def judged(plan: Plan, found: Preflight, request: Request) -> Plan:
    """The plan with what the pre-flight refuses. Settings that the engine takes for no model are refused by ids of
    their own: who overrides one of those need not say it twice."""
    said = not {x.id for x in plan.lints}.isdisjoint(SAID_BEFORE)
    lints = (*plan.lints, *(x for x in found.lints if not (said and x in found.impossible)))
    refused = tuple(x for x in lints if x.severity == "error" and x.id not in request.overrides)
    overrides = tuple(dict.fromkeys(x.id for x in lints if x.severity == "error" and x.id in request.overrides))
    return msgspec.structs.replace(plan, lints=lints, refused=refused, overrides=overrides)


def _start(model: Model, settings: Settings, budget: Budget) -> Cell:
    return start(model, args_for(model, settings_for(model, settings), budget), budget)


def _alone(one: Forecast, new: Settings, budget: Budget) -> Lint | None:
    after, before = one.after, one.before
    if after.fits or (one.subject.loaded and 0 < after.need <= before.need):
        return None  # what takes no more than what is loaded now, this host can hold, whatever is predicted
    count = after.args.slots
    what = f"{one.name} with {count} slot{'s' * (count != 1)} × {tokens(after.args.context)}"
    name = "OLLAMA_NUM_PARALLEL" if count > before.args.slots else ""
    if after.verdict == "cannot load":
        room = f" needs {gib(after.need)}, {gib(max(0, after.room))} may be used" if after.room is not None else ""
        why = f"can't load: {after.fit.why}" if not room else f"can't load:{room}"
        doubted = one.subject.loaded and before.verdict == "cannot load"  # it is loaded, so this host has ways
        return Lint("fit", "warning" if doubted else "error", f"{what} {why}", _hint(one, new, budget), name)
    pushed = one.subject.whole if one.subject.loaded else before.fits
    spilled = f"{after.fit.spilled} of {len(after.fit.layout.layers)} layers would run on the CPU"
    room = "" if after.room is None else f"needs {gib(after.need)}, {gib(max(0, after.room))} may be used: "
    maybe = "" if after.fit.certain else " (within the band of the prediction)"
    if pushed:
        return Lint("fit", "error", f"{what} {room}{spilled}{maybe}", _hint(one, new, budget), name)
    if before.fits or after.fit.spilled > before.fit.spilled:
        now = "" if before.fits else f", {before.fit.spilled} do now"
        return Lint("fit", "warning", f"{what} {room}{spilled}{now}{maybe}", _hint(one, new, budget), name)
    return None


def _hint(one: Forecast, new: Settings, budget: Budget) -> str:
    """What would fit, in few words."""
    model = one.subject.model
    settings = settings_for(model, new)
    most = largest(model, settings, budget)
    said = [f"{most} slot{'s' * (most != 1)} fit{'s' * (most == 1)}"] if most else []
    for way in options(model, settings, budget, one.after)[:4]:
        if way.command and not way.command.startswith("--parallel") and way.left is not None:
            said.append(f"{way.command} fits, {gib(way.left)} left")
    return "; ".join([*said, f"ollamactl plan {one.name} shows it all"])


def _side_by_side(models: list[Model], old: Settings, new: Settings, budget: Budget) -> list[Lint]:
    """Models that fit beside each other now and would not any more."""
    if not all(c.fits for c in together(models, old, budget)):
        return []
    found = together(models, new, budget)
    wrong = [m.name for m, c in zip(models, found, strict=True) if not c.fits]
    if not wrong:
        return []
    names = ", ".join(m.name for m in models)
    text = f"{names} would no longer fit beside each other: no room is left for {', '.join(wrong)}"
    return [Lint("fit", "error", text, f"fewer slots, or let {wrong[0]} go: ollama stop {wrong[0]}")]
