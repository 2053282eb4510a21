"""Facts → a row per setting with the value in each layer, and where it was lost. Pure; used by verify and apply.

The layers, in the order in which a value travels: our drop-in, the unit's Environment= lines, environment files,
the process, `server config` of this start, the runner.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from ollamactl.core import dropin, govalues, settings
from ollamactl.core.cause import cause
from ollamactl.core.facts import Effective, Facts, LoadedModel, Runner, Start, Variable
from ollamactl.core.lint import PASSED_BY_OLLAMA
from ollamactl.core.plan import lost, lost_lint

LAYERS = ("drop-in", "unit", "env file", "process", "server", "runner")
ALWAYS = ("OLLAMA_NUM_PARALLEL", "OLLAMA_CONTEXT_LENGTH", "OLLAMA_KV_CACHE_TYPE", "OLLAMA_KEEP_ALIVE")
ABSENT = "–"
UNSET = "(unset)"


class Mismatch(msgspec.Struct, frozen=True):
    """A setting that does not run as wanted, and the layer where it was lost."""

    id: str
    name: str
    layer: str
    text: str
    evidence: tuple[str, ...] = ()
    fix: str = ""


class Row(msgspec.Struct, frozen=True):
    name: str
    cells: dict[str, str]  # layer → text; "–" for nothing, "denied" etc. for what could not be read
    lost: str = ""  # layer whose value does not follow from the one before it
    default: str = ""  # what runs where no layer sets it


class Note(msgspec.Struct, frozen=True):
    """Something that a reader should know and that is not wrong."""

    id: str
    text: str


class Judgement(msgspec.Struct, frozen=True):
    rows: tuple[Row, ...] = ()
    mismatches: tuple[Mismatch, ...] = ()
    notes: tuple[Note, ...] = ()
    unproven: tuple[str, ...] = ()  # layers that could not be looked at, with the reason


def names(facts: Facts, wanted: Iterable[str] = ()) -> list[str]:
    """Variables worth a row: those that any layer sets, and the ones that decide about slots and memory."""
    found = dict.fromkeys((*wanted, *ALWAYS))
    for source in (
        facts.effective.variables if facts.effective else {},
        (facts.process.environ or {}) if facts.process else {},
    ):
        found |= dict.fromkeys(n for n in source if n.startswith("OLLAMA_") or n in settings.REGISTRY)
    return [n for n in found if settings.lookup(n)] + [n for n in found if not settings.lookup(n)]


def managed_now(facts: Facts, env_file: str | None = None) -> dict[str, str | None]:
    """What our own files want, from the unit files that were read."""
    if facts.service is None:
        return {}
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
    for name in names(facts, wanted):
        row, mismatch = _row(name, facts, wanted)
        rows.append(row)
        wrong += [mismatch] if mismatch else []
    more, said = _runners(facts, named, proof)
    first = (*_not_serving(facts), *_ignored_lines(facts))
    said += _without_effect(facts)
    return Judgement(tuple(rows), (*first, *wrong, *more), tuple(said), tuple(_unproven(facts)))


def _not_serving(facts: Facts) -> Iterable[Mismatch]:
    """A service that systemd can't keep up: nothing of it runs as wanted."""
    service = facts.service
    if service is None or service.active_state in ("active", "inactive", "reloading"):
        return
    why = cause(facts)
    text = f"{service.id} does not serve: {service.active_state} ({service.sub_state}), result {service.result}"
    if why is not None:
        yield Mismatch(why.id, "", "process", f"{text}: {why.text}", why.evidence, why.fix)
    elif service.active_state != "activating" or service.sub_state == "auto-restart":
        yield Mismatch("service_restart_loop", "", "process", text, (), f"journalctl -u {service.id} -n 50")


def _ignored_lines(facts: Facts) -> Iterable[Mismatch]:
    """Lines of unit files that mean to set a variable and that systemd does not take."""
    for file in facts.unit_files or ():
        for problem in file.problems:
            if not re.search(r"Environment|OLLAMA|^\s*\[|LLAMA_ARG", problem.text):
                continue
            sections = "section" in problem.why or problem.text.lstrip().startswith("[")
            kind = "dropin_missing_section_header" if sections else "malformed_env_assignment"
            text = f"systemd ignores a line of {file.path}: {problem.why}"
            evidence = (f"{file.path}:{problem.line}: {problem.text}",)
            yield Mismatch(kind, "", "unit", text, evidence, f"sudoedit {file.path}")


def _without_effect(facts: Facts) -> list[Note]:
    found = []
    for name, instead in PASSED_BY_OLLAMA.items():
        if facts.effective is not None and facts.effective.value(name) is not None:
            hint = f" ({instead} sets it)" if instead else ""
            found.append(Note("llama_arg_without_effect", f"{name} has no effect: Ollama passes it itself{hint}"))
    return found


def _row(name: str, facts: Facts, wanted: dict[str, str | None]) -> tuple[Row, Mismatch | None]:
    release = facts.version or (facts.start.version if facts.start else "") or ""
    setting = settings.lookup(name)
    cells = dict.fromkeys(LAYERS, ABSENT)
    managed = managed_now(facts)
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
    cells["server"] = _cell(facts, "start", config.get(name) if config else None)
    if config and name not in config and setting and setting.printed:
        cells["server"] = "unknown"
    cells["runner"] = ", ".join(dict.fromkeys(_runner_cell(name, r) for r in facts.runners or ())) or ABSENT
    default = setting.default(release) if setting else ""
    mismatch = _lost_at(name, facts, wanted, variable, ran, config, release)
    return Row(name, cells, mismatch.layer if mismatch else "", default), mismatch


def _shown(name: str, value: str) -> str:
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
            if origin.layer == "environment-file":
                env_file = value
            elif origin.layer in ("environment", "manager", "pass"):
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


def _lost_at(
    name: str,
    facts: Facts,
    wanted: dict[str, str | None],
    variable: Variable | None,
    ran: str | None,
    config: dict[str, str] | None,
    release: str,
) -> Mismatch | None:
    """The first layer whose value does not follow from the one before it, or None."""
    setting = settings.lookup(name)
    will = variable.value if variable else None
    if name in wanted and facts.effective is not None:
        for _, value, origin in lost({name: wanted[name]}, facts.effective, release):
            why = lost_lint(name, wanted[name], value, origin)
            layer = {"environment-file": "env file", "wrapper": "process"}.get(origin.layer, "unit")
            evidence = (f"{origin.file}:{origin.line}: {name}={value}",) if origin.file else ()
            return Mismatch(why.id, name, layer, why.text, evidence, why.hint)
    knows_process = facts.process is not None and facts.process.environ is not None
    if facts.effective is not None and knows_process and not _in_doubt(name, facts.effective):
        stays = settings.meaning(name, ran, release) == settings.meaning(name, will, release)
        if not stays:
            stale = facts.service is not None and facts.service.need_daemon_reload
            text = f"{name}: the files say {will or UNSET}, the process runs with {ran or UNSET}"
            why_id = "need_daemon_reload" if stale else "config_newer_than_process"
            text += ": systemd was not told of the change" if stale else ": it was not restarted since the change"
            unit = facts.service.id if facts.service else "ollama"
            fix = "sudo systemctl daemon-reload && " if stale else ""
            return Mismatch(why_id, name, "process", text, (), f"{fix}sudo systemctl restart {unit}")
    text_now = ran if knows_process else will
    if setting is None:
        if text_now is not None and name.startswith("OLLAMA_"):
            near = settings.nearest(name)
            hint = f"; did you mean {near}?" if near else ""
            text = f"{name} is no variable of Ollama and is ignored{hint}"
            return Mismatch("unknown_ollama_variable", name, "server", text, (), "")
        return None
    if config is None or not setting.printed:
        return None
    if name not in config:
        if text_now is None:
            return None
        text = f"{name} is not known to this release ({release or 'its server config lacks it'}) and is ignored"
        return Mismatch("variable_unknown_to_release", name, "server", text, (), "")
    if text_now is not None and (problem := setting.read(text_now, release).problem):
        kind = "boolean_counts_as_true" if setting.kind == "bool" else "invalid_value"
        return Mismatch(kind, name, "server", f"{name}={text_now}: {problem}", (), "")
    chosen = govalues.trimmed(text_now or "").lower()
    if setting.choices and chosen and chosen not in setting.choices:
        text = f"{name}={text_now}: the engine has no such type, so every model fails to load"
        return Mismatch("kv_type_invalid", name, "runner", text, (), "one of " + ", ".join(setting.choices))
    if (knows_process or text_now is not None) and not settings.same(setting, text_now, config[name], release):
        if text_now is None and not _default_known(setting.name, release):
            return None
        text = f"{name}: the process has {text_now or UNSET}, the server runs with {config[name] or '(empty)'}"
        evidence = (facts.start.config_line.text,) if facts.start and facts.start.config_line else ()
        return Mismatch("env_not_in_server_config", name, "server", text, evidence, "")
    return None


def _in_doubt(name: str, effective: Effective) -> bool:
    """Whether the computed value of this variable may be another: something could not be read, or it names it."""
    others = re.compile(r"\S+ is set .* not known here$")
    return any(p.startswith(f"{name} ") or not others.match(p) for p in effective.problems)


def _default_known(name: str, release: str) -> bool:
    """Defaults differ between releases; only those of the settings that decide about slots are worth a verdict."""
    return bool(settings.version(release)) and name in ALWAYS


def _unproven(facts: Facts) -> Iterable[str]:
    for field, what in (
        ("effective", "the environment that systemd passes"),
        ("process", "the running process"),
        ("start", "the `server config` line of this start"),
        ("runners", "the runners"),
    ):
        if getattr(facts, field) is None:
            yield f"{what}: {facts.why(field)}"
    if facts.process is not None and facts.process.environ is None:
        yield "the environment of the process: denied (sudo shows it)"
    if facts.start is not None and facts.start.config is None:
        yield "`server config`: this start printed no such line"


# -- the runner --


def expected_slots(start: Start | None, release: str) -> int | None:
    """Slots that a model of this server gets, None where the release chooses by itself."""
    printed = (start.config or {}).get("OLLAMA_NUM_PARALLEL") if start else None
    if printed is None or not printed.isdigit():
        return None
    chooses = () < settings.version(release) < (0, 10)
    return None if printed == "0" and chooses else max(1, int(printed))


def single_slot_cause(runner: Runner, loaded: LoadedModel | None, start: Start | None) -> tuple[str, str, str]:
    """Why a runner has one slot: (id, text, evidence)."""
    if any(a in ("--embedding", "--embeddings") for a in runner.process.argv):
        return ("parallel_forced_to_1_embedding", "Ollama gives embedding models one slot", "--embedding")
    family = loaded.family if loaded else ""
    for event in reversed(start.events if start else ()):
        if event.kind == "parallel_forced_to_1":
            named = event.fields.get("architecture", "")
            if not family or not named or named == family:
                text = f"Ollama forces the family {named or family or 'of this model'} to one slot"
                return ("parallel_forced_to_1_by_architecture", text, event.text)
    return ("parallel_lower_than_configured", "the log does not say why", "")


def model_of(runner: Runner, facts: Facts) -> LoadedModel | None:
    """The /api/ps entry that a runner serves. The runner knows a blob, /api/ps a name; the only one left fits."""
    loaded, runners = facts.loaded or (), facts.runners or ()
    if runner.name:
        return next((m for m in loaded if m.name == runner.name), None)
    if len(loaded) == 1 and len(runners) == 1:
        return loaded[0]
    same = [m for m in loaded if runner.context_total and runner.slots and m.context]
    same = [m for m in same if m.context == (runner.context_total or 0) // (runner.slots or 1)]
    return same[0] if len(same) == 1 else None


def _runners(facts: Facts, named: tuple[str, ...], proof: bool) -> tuple[list[Mismatch], list[Note]]:
    wrong: list[Mismatch] = []
    notes: list[Note] = []
    release = facts.version or ""
    config = (facts.start.config if facts.start else None) or {}
    slots = expected_slots(facts.start, release)
    forced: list[Mismatch] = []
    proven = False
    for runner in facts.runners or ():
        loaded = model_of(runner, facts)
        who = loaded.name if loaded else runner.model.rsplit("/", 1)[-1][:19]
        wrong += _disagreements(runner, facts, who)
        if slots is not None and runner.slots is not None:
            if runner.slots == slots:
                proven = True
            else:
                found = _slots_mismatch(runner, loaded, facts, who, slots)
                single = found.id.startswith("parallel_forced")
                (forced if single and not (loaded and loaded.name in named) else wrong).append(found)
        kv = config.get("OLLAMA_KV_CACHE_TYPE", "").lower() or "f16"
        has = runner.kv_type_k or "f16"
        if config and runner.process.argv and has != kv and "--embedding" not in runner.process.argv:
            text = f"{who} runs with a {has} cache, the server is set to {kv}"
            wrong.append(Mismatch("kv_type_ignored_by_architecture", "OLLAMA_KV_CACHE_TYPE", "runner", text))
        notes += _context_notes(runner, facts, who, config)
    if forced and not proven and proof:
        wrong += forced
    else:
        notes += [Note(m.id, m.text) for m in forced]
    return wrong, notes


def _slots_mismatch(runner: Runner, loaded: LoadedModel | None, facts: Facts, who: str, slots: int) -> Mismatch:
    text = f"{who} was loaded with -np {runner.slots}, wanted {slots}"
    if runner.slots == 1:
        kind, cause, evidence = single_slot_cause(runner, loaded, facts.start)
    else:
        kind, cause, evidence = "parallel_lower_than_configured", "the log does not say why", ""
    return Mismatch(kind, "OLLAMA_NUM_PARALLEL", "runner", f"{text}: {cause}", (evidence,) if evidence else ())


def _disagreements(runner: Runner, facts: Facts, who: str) -> list[Mismatch]:
    """Where the runner's command line, its own API and the log's start line do not tell the same."""
    found = []
    say = "OLLAMA_NUM_PARALLEL"
    counts = {"/props": runner.props_slots, "/slots": len(runner.slot_list) if runner.slot_list else None}
    for source, count in counts.items():
        if count is not None and runner.slots is not None and count != runner.slots:
            text = f"{who}: {source} of the runner says {count} slots, its command line -np {runner.slots}"
            found.append(Mismatch("runner_disagrees_with_itself", say, "runner", text))
    loads = [x for x in (facts.start.loads if facts.start else ()) if x.port and x.port == runner.port]
    if loads and (loads[-1].slots, loads[-1].context_total) != (runner.slots, runner.context_total):
        text = f"{who}: the log's start line and the process's command line differ"
        evidence = (loads[-1].text, " ".join(runner.process.argv))
        found.append(Mismatch("runner_disagrees_with_log", say, "runner", text, evidence))
    return found


def _context_notes(runner: Runner, facts: Facts, who: str, config: dict[str, str]) -> list[Note]:
    """A context that differs from the setting has three ordinary causes; none of them is a fault of the setting."""
    wanted = config.get("OLLAMA_CONTEXT_LENGTH", "0")
    if not (wanted.isdigit() and int(wanted) and runner.context_total and runner.slots):
        return []
    per_slot = runner.context_total // runner.slots
    if per_slot == int(wanted):
        return []
    capped = [e for e in (facts.start.events if facts.start else ()) if e.kind == "num_ctx_capped"]
    if capped and per_slot < int(wanted):
        text = f"{who}: {per_slot} tokens per slot, not {wanted}: the model was trained for no more"
        return [Note("num_ctx_capped_to_trained_context", text)]
    text = f"{who}: {per_slot} tokens per slot, not {wanted}: its Modelfile or a client's request sets num_ctx"
    return [Note("num_ctx_differs_from_declared", text)]
