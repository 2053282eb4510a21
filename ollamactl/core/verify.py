"""Facts → a row per setting with the value in each layer, and where it was lost. Pure; used by verify and apply.

The layers, in the order in which a value travels: our drop-in, the unit's Environment= lines, environment files,
the process, `server config` of this start, the runner.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from ollamactl.core import dropin, govalues, remedies, settings
from ollamactl.core.cause import cause
from ollamactl.core.facts import Effective, Facts, Runner, Variable
from ollamactl.core.lint import PASSED_BY_OLLAMA
from ollamactl.core.mismatch import Mismatch, Note
from ollamactl.core.plan import lost, lost_lint
from ollamactl.core.runners import judge_runners, served

LAYERS = ("drop-in", "unit", "env file", "process", "server", "runner")
ALWAYS = ("OLLAMA_NUM_PARALLEL", "OLLAMA_CONTEXT_LENGTH", "OLLAMA_KV_CACHE_TYPE", "OLLAMA_KEEP_ALIVE")
ABSENT = "–"
UNSET = "(unset)"


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


def managed_now(facts: Facts, env_file: str | None = None) -> dict[str, str | None]:
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
    for name in names(facts, wanted):
        row, mismatch = _row(name, facts, wanted)
        rows.append(row)
        wrong += [mismatch] if mismatch else []
    more, said = judge_runners(facts, named, proof)
    first = (*_not_serving(facts), *_ignored_lines(facts), *_refused_values(facts))
    said += [*_without_effect(facts), *_shadowed(facts), *_unread(facts), *_not_loaded(facts)]
    found = (*first, *wrong, *more)
    if facts.service is not None and facts.service.manager == "launchd":
        found = tuple(msgspec.structs.replace(m, fix=remedies.local(m.fix, facts.service)) for m in found)
    return Judgement(tuple(rows), found, tuple(said), tuple(_unproven(facts)))


def _unread(facts: Facts) -> Iterable[Note]:
    """A file that systemd has not read yet may win at the next start; which one it is, systemd does not tell."""
    if facts.service is not None and facts.service.need_daemon_reload:
        text = (
            f"systemd has not read the files of {facts.service.id} since they were changed: this is what runs now, "
            "another start may get something else (sudo systemctl daemon-reload, then verify again)"
        )
        yield Note("need_daemon_reload", text)


def _not_loaded(facts: Facts) -> Iterable[Note]:
    """Where no model is loaded, why the last load came to nothing."""
    last = facts.start.loads[-1] if facts.start and facts.start.loads else None
    if facts.loaded == () and last is not None and last.outcome == "failed":
        why = f": {last.error}" if last.error else ""
        yield Note("load_failed", f"the last load failed{why} (ollamactl doctor)")


def _not_serving(facts: Facts) -> Iterable[Mismatch]:
    """A service that systemd can't keep up: nothing of it runs as wanted."""
    service = facts.service
    begun = facts.start
    never_up = service is None and begun is not None and not (begun.listening or begun.loads or begun.requests)
    if never_up and (why := cause(facts)):
        yield Mismatch(why.id, "", "process", f"the server did not come up: {why.text}", why.evidence, why.fix)
    if service is None or service.active_state in ("active", "inactive", "reloading"):
        return
    why = cause(facts)
    text = f"{service.id} does not serve: {service.active_state} ({service.sub_state}), result {service.result}"
    if why is not None:
        yield Mismatch(why.id, "", "process", f"{text}: {why.text}", why.evidence, why.fix)
    elif service.active_state != "activating" or service.sub_state == "auto-restart":
        yield Mismatch("service_restart_loop", "", "process", text, (), f"journalctl -u {service.id} -n 50")


def _refused_values(facts: Facts) -> Iterable[Mismatch]:
    """Of a log alone: values that this start warned of."""
    seen = set()
    for event in facts.start.events if facts.start and facts.process is None else ():
        name, value = event.fields.get("key", ""), event.fields.get("value", "")
        if event.kind == "invalid_environment" and name and name not in seen:
            seen.add(name)
            text = f"{name}={value}: Ollama refused it and uses {event.fields.get('default', 'its default')}"
            yield Mismatch("invalid_value", name, "server", text, (event.text,))


def _ignored_lines(facts: Facts) -> Iterable[Mismatch]:
    """Lines of unit files that mean to set a variable and that systemd does not take."""
    for file in facts.unit_files or ():
        for problem in file.problems:
            if not re.search(r"Environment|OLLAMA|^\s*\[|LLAMA_ARG", problem.text):
                continue
            sections = "section" in problem.why or problem.text.lstrip().startswith("[")
            kind = "dropin_missing_section_header" if sections else "malformed_env_assignment"
            who = "launchd" if facts.service and facts.service.manager == "launchd" else "systemd"
            text = f"{who} does not take a line of {file.path} as it is meant: {problem.why}"
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
    printed = config.get(name) if config else None
    cells["server"] = _cell(facts, "start", None if printed is None else settings.shown(name, printed))
    if config and name not in config and setting and setting.printed:
        cells["server"] = "unknown"
    cells["runner"] = ", ".join(dict.fromkeys(_runner_cell(name, r) for r in served(facts))) or ABSENT
    default = setting.default(release) if setting else ""
    mismatch = _lost_at(name, facts, wanted, variable, ran, config, release)
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
            layers = {"environment-file": "env file", "brew-file": "env file", "wrapper": "process"}
            layer = layers.get(origin.layer, "unit")
            evidence = (f"{origin.file}:{origin.line}: {name}={value}",) if origin.file else ()
            return Mismatch(why.id, name, layer, why.text, evidence, why.hint)
    knows_process = facts.process is not None and facts.process.environ is not None
    if facts.effective is not None and knows_process and not _in_doubt(name, facts.effective):
        stays = settings.meaning(name, ran, release) == settings.meaning(name, will, release)
        if not stays:
            stale = facts.service is not None and facts.service.need_daemon_reload
            if not stale and variable is not None and _started_since(facts, variable):
                text = f"{name}: systemd passes {will or UNSET}, the process has {ran or UNSET}"
                text += ": it was started after the files were written, so what ExecStart= runs sets it"
                unit = facts.service.id if facts.service else "ollama"
                fix = f"systemctl cat {unit} | grep ExecStart    # take {name} out of that program"
                return Mismatch("command_sets_own_value", name, "process", text, (), fix)
            text = f"{name}: the files say {will or UNSET}, the process runs with {ran or UNSET}"
            why_id = "need_daemon_reload" if stale else "config_newer_than_process"
            who = "launchd" if facts.service and facts.service.manager == "launchd" else "systemd"
            text += f": {who} was not told of the change" if stale else ": it was not restarted since the change"
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
    if name == "OLLAMA_NUM_PARALLEL" and config[name].isdecimal() and int(config[name]) > settings.MAX_SLOTS:
        text = (
            f"{name}={config[name]}: the engine has at most {settings.MAX_SLOTS} slots, so every model fails to load"
        )
        return Mismatch("parallel_above_maximum", name, "runner", text, (), f"at most {settings.MAX_SLOTS}")
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


def _started_since(facts: Facts, variable: Variable) -> bool:
    """Whether the process is younger than the unit's file that sets this variable."""
    began = facts.process.started if facts.process else None
    written = next((f.mtime for f in facts.unit_files or () if f.path == variable.origin.file), None)
    return began is not None and written is not None and written < began and variable.origin.layer == "environment"


def _in_doubt(name: str, effective: Effective) -> bool:
    """Whether the computed value of this variable may be another: something could not be read, or it names it."""
    others = re.compile(r"\S+ is set .* not known here$")
    return any(p.startswith(f"{name} ") or not others.match(p) for p in effective.problems)


def _default_known(name: str, release: str) -> bool:
    """Defaults differ between releases; only those of the settings that decide about slots are worth a verdict."""
    return bool(settings.version(release)) and name in ALWAYS


def _shadowed(facts: Facts) -> Iterable[Note]:
    """Lines of others that ours outdo, with another value: an admin's `systemctl edit` that has no effect."""
    if facts.service is None or facts.effective is None:
        return
    unit, release = facts.service.id, facts.version or ""
    own = (dropin.dropin_path(unit), dropin.env_file_path(unit))
    edited = {f.path: f.mtime for f in facts.unit_files or ()}
    for name, value in managed_now(facts).items():
        variable = facts.effective.variables.get(name)
        if variable is None or variable.origin.file not in own:
            continue
        for lost_value, origin in variable.shadowed[-1:]:
            same = settings.meaning(name, lost_value, release) == settings.meaning(name, value, release)
            if not origin.file or origin.file in own or same:
                continue
            ours, theirs = edited.get(own[0]), edited.get(origin.file)
            later = " later" if ours is not None and theirs is not None and theirs > ours else ""
            shown = settings.shown(name, lost_value)
            text = (
                f"{origin.file}:{origin.line}, written{later} by someone else, sets {name}={shown}, but ours is read "
                f"last; to let it count: sudo ollamactl apply --release {name}"
            )
            yield Note("edit_shadowed", text if later else text.replace("written by", "of"))


def _unproven(facts: Facts) -> Iterable[str]:
    for field, what in (
        ("effective", "the environment that the next start gets"),
        ("process", "the running process"),
        ("start", "the `server config` line of this start"),
        ("runners", "the runners"),
    ):
        if facts.service is None and facts.why(field).kind == "unasked":
            continue  # only a text was given: that is said once, not for each layer
        if getattr(facts, field) is None:
            yield f"{what}: {facts.why(field)}"
    if facts.process is not None and facts.process.environ is None:
        yield "the environment of the process: denied (sudo shows it)"
    if facts.start is not None and facts.start.config is None:
        yield "`server config`: the log of this start holds no such line"
