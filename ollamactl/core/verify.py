"""Facts → a row per setting with the value in each layer, and where it was lost. Pure; used by verify and apply.

The layers, in the order in which a value travels: our drop-in, the unit's Environment= lines, environment files,
the process, `server config` of this start, the runner.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ollamactl.core import dropin, remedies, settings, verify_notes
from ollamactl.core.facts import Facts, Runner, Variable
from ollamactl.core.losses import ALWAYS, lost_at
from ollamactl.core.mismatch import Mismatch, Note
from ollamactl.core.runners import judge_runners, served

LAYERS = ("drop-in", "unit", "env file", "process", "server", "runner")
ABSENT = "–"


class Row(msgspec.Struct, frozen=True):
    name: str
    cells: dict[str, str]  # layer → text; "–" for nothing, "denied" etc. for what could not be read
    lost: str = ""  # layer whose value does not follow from the one before it
    default: str = ""  # what runs where no layer sets it


class Judgement(msgspec.Struct, frozen=True):
    rows: tuple[Row, ...] = ()
    mismatches: tuple[Mismatch, ...] = ()
    notes: tuple[Note, ...] = ()
    unproven: tuple[str, ...] = ()  # layers that could not be looked at, with the reason


def names(facts: Facts, wanted: Iterable[str] = ()) -> list[str]:
    """Variables worth a row: those that any layer sets, and the ones that decide about slots and memory."""
    found = dict.fromkeys((*wanted, *ALWAYS))
    config = (facts.start.config if facts.start else None) or {}
    if facts.service is None:  # a log alone: what the server was set to, where it is not the default
        set_there = (n for n, v in config.items() if (s := settings.lookup(n)) and v != s.default(facts.version or ""))
        found |= dict.fromkeys(n for n in set_there if settings.REGISTRY[n].kind not in ("origins", "path"))
    for source in (
        facts.effective.variables if facts.effective else {},
        (facts.process.environ or {}) if facts.process else {},
    ):
        found |= dict.fromkeys(n for n in source if n.startswith("OLLAMA_") or n in settings.REGISTRY)
    return [n for n in found if settings.lookup(n)] + [n for n in found if not settings.lookup(n)]


def managed_now(facts: Facts) -> dict[str, str | None]:
    """What our own files want, from the unit files that were read."""
    if facts.service is None:
        return {}
    if facts.service.managed is not None:
        return facts.service.managed
    unit = facts.service.id
    ours = next((f for f in facts.unit_files or () if f.path == dropin.dropin_path(unit)), None)
    if ours is None or ours.missing:
        return {}
    own = next((f for f in facts.env_files or () if f.path == dropin.env_file_path(unit)), None)
    state = dropin.managed(unit, ours.text, None)
    values = dict(state.values) | ({e.name: e.value for e in own.entries} if own else {})
    return dict(values) | dict.fromkeys(state.unset)


def judge(
    facts: Facts, wanted: dict[str, str | None], *, named: tuple[str, ...] = (), proof: bool = False
) -> Judgement:
    """All layers of all rows. `wanted` is what should run (text, or None for absent). A model that Ollama forces to
    one slot is a note; it is a mismatch for models that the user `named`, and where the loaded models are to be the
    `proof` of the slots and none has them."""
    rows: list[Row] = []
    wrong: list[Mismatch] = []
    managed = managed_now(facts)
    for name in names(facts, wanted):
        row, mismatch = _row(name, facts, wanted, managed)
        rows.append(row)
        wrong += [mismatch] if mismatch else []
    more, said = judge_runners(facts, named, proof)
    said += verify_notes.notes(facts, managed)
    found = (*verify_notes.mismatches(facts), *wrong, *more)
    if facts.service is not None and facts.service.manager == "launchd":
        found = tuple(msgspec.structs.replace(m, fix=remedies.local(m.fix, facts.service)) for m in found)
    return Judgement(tuple(rows), found, tuple(said), tuple(verify_notes.unproven(facts)))


def _row(
    name: str, facts: Facts, wanted: dict[str, str | None], managed: dict[str, str | None]
) -> tuple[Row, Mismatch | None]:
    release = facts.version or (facts.start.version if facts.start else "") or ""
    setting = settings.lookup(name)
    cells = dict.fromkeys(LAYERS, ABSENT)
    if name in managed:
        value = managed[name]
        cells["drop-in"] = "absent" if value is None else _shown(name, value)
    variable = facts.effective.variables.get(name) if facts.effective else None
    unit, env_file = _unit_layers(variable)
    cells["unit"] = _cell(facts, "effective", None if unit is None else _shown(name, unit))
    cells["env file"] = _cell(facts, "effective", None if env_file is None else _shown(name, env_file))
    ran = facts.process.environ.get(name) if facts.process and facts.process.environ is not None else None
    cells["process"] = _cell(facts, "environ", None if ran is None else _shown(name, ran))
    config = facts.start.config if facts.start else None
    printed = config.get(name) if config else None
    cells["server"] = _cell(facts, "start", None if printed is None else settings.shown(name, printed))
    if config and name not in config and setting and setting.printed:
        cells["server"] = "unknown"
    cells["runner"] = ", ".join(dict.fromkeys(_runner_cell(name, r) for r in served(facts))) or ABSENT
    default = setting.default(release) if setting else ""
    mismatch = lost_at(name, facts, wanted, release)
    if mismatch is not None:
        mismatch = _hidden(mismatch, name, [wanted.get(name), unit, env_file, ran, printed])
    return Row(name, cells, mismatch.layer if mismatch else "", default), mismatch


def _hidden(mismatch: Mismatch, name: str, values: list[str | None]) -> Mismatch:
    """The mismatch without values that are not for everyone."""
    for value in values:
        if value and (instead := settings.shown(name, value)) != value:
            mismatch = msgspec.structs.replace(
                mismatch,
                text=mismatch.text.replace(value, instead),
                evidence=tuple(e.replace(value, instead) for e in mismatch.evidence),
            )
    return mismatch


def _shown(name: str, value: str) -> str:
    value = settings.shown(name, value)
    return value if value.strip() == value and value else f'"{value}"'


def _cell(facts: Facts, source: str, value: str | None) -> str:
    """The text of a cell, or why it can't be known."""
    missing = None
    if source == "environ":
        if facts.process is None:
            missing = facts.why("process")
        elif facts.process.environ is None:
            missing = facts.missing.get("environ")
            return "denied" if missing is None else missing.kind
    elif getattr(facts, source) is None:
        missing = facts.why(source)
    return missing.kind if missing is not None and missing.kind in ("denied", "failed", "timeout") else value or ABSENT


def _unit_layers(variable: Variable | None) -> tuple[str | None, str | None]:
    """The last values that Environment= lines and environment files give, whichever wins."""
    unit = env_file = None
    if variable is not None:
        for value, origin in (*variable.shadowed, (variable.value, variable.origin)):
            if origin.layer in ("environment-file", "brew-file"):
                env_file = value
            elif origin.layer in ("environment", "manager", "pass", "app", "container"):
                unit = value
    return unit, env_file


def _runner_cell(name: str, runner: Runner) -> str:
    if name == "OLLAMA_NUM_PARALLEL" and runner.slots is not None:
        return f"-np {runner.slots}"
    if name == "OLLAMA_CONTEXT_LENGTH" and runner.context_total and runner.slots:
        return str(runner.context_total // runner.slots)
    if name == "OLLAMA_KV_CACHE_TYPE":
        return runner.kv_type_k or "f16"
    if name == "OLLAMA_FLASH_ATTENTION" and runner.flash_attention:
        return runner.flash_attention
    return ABSENT
