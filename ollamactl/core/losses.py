"""Where a value was lost: the first layer that does not follow from the one before it."""

from __future__ import annotations

import re

from ollamactl.core import govalues, settings
from ollamactl.core.facts import Effective, Facts, Variable
from ollamactl.core.mismatch import Mismatch
from ollamactl.core.plan import lost, lost_lint
from ollamactl.core.settings import Setting

# Defaults differ between releases; only those of the settings that decide about slots are worth a verdict.
ALWAYS = ("OLLAMA_NUM_PARALLEL", "OLLAMA_CONTEXT_LENGTH", "OLLAMA_KV_CACHE_TYPE", "OLLAMA_KEEP_ALIVE")
UNSET = "(unset)"


def lost_at(name: str, facts: Facts, wanted: dict[str, str | None], release: str) -> Mismatch | None:
    """The first layer whose value of that variable does not follow from the one before it, or None. `wanted` is what
    our files want (text, or None for absent)."""
    variable = facts.effective.variables.get(name) if facts.effective else None
    will = variable.value if variable else None
    environ = facts.process.environ if facts.process is not None else None
    found = _before_the_start(name, facts, wanted, release)
    if found is None and environ is not None:
        found = _at_the_start(name, facts, variable, environ.get(name), release)
    return found or _in_the_server(name, facts, environ.get(name) if environ is not None else will, release)


def _before_the_start(name: str, facts: Facts, wanted: dict[str, str | None], release: str) -> Mismatch | None:
    """A file that is read later than ours wins."""
    if name not in wanted or facts.effective is None:
        return None
    for _, value, origin in lost({name: wanted[name]}, facts.effective, release):
        why = lost_lint(name, wanted[name], value, origin)
        layers = {"environment-file": "env file", "brew-file": "env file", "wrapper": "process"}
        evidence = (f"{origin.file}:{origin.line}: {name}={value}",) if origin.file else ()
        return Mismatch(why.id, name, layers.get(origin.layer, "unit"), why.text, evidence, why.hint)
    return None


def _at_the_start(
    name: str, facts: Facts, variable: Variable | None, ran: str | None, release: str
) -> Mismatch | None:
    """The process has another value than the one that a start passes now."""
    will = variable.value if variable else None
    if facts.effective is None or _in_doubt(name, facts.effective):
        return None
    if settings.meaning(name, ran, release) == settings.meaning(name, will, release):
        return None
    service = facts.service
    unit = service.id if service else "ollama"
    stale = service is not None and service.need_daemon_reload
    if not stale and variable is not None and _started_since(facts, variable):
        text = f"{name}: systemd passes {will or UNSET}, the process has {ran or UNSET}"
        text += ": it was started after the files were written, so what ExecStart= runs sets it"
        fix = f"systemctl cat {unit} | grep ExecStart    # take {name} out of that program"
        return Mismatch("command_sets_own_value", name, "process", text, (), fix)
    who = "launchd" if service and service.manager == "launchd" else "systemd"
    text = f"{name}: the files say {will or UNSET}, the process runs with {ran or UNSET}"
    text += f": {who} was not told of the change" if stale else ": it was not restarted since the change"
    why = "need_daemon_reload" if stale else "config_newer_than_process"
    fix = "sudo systemctl daemon-reload && " if stale else ""
    return Mismatch(why, name, "process", text, (), f"{fix}sudo systemctl restart {unit}")


def _in_the_server(name: str, facts: Facts, text_now: str | None, release: str) -> Mismatch | None:
    """The server ignores the variable, reads it otherwise than it was meant, or can load nothing with it."""
    setting = settings.lookup(name)
    if setting is None:
        if text_now is None or not name.startswith("OLLAMA_"):
            return None
        near = settings.nearest(name)
        hint = f"; did you mean {near}?" if near else ""
        text = f"{name} is no variable of Ollama and is ignored{hint}"
        return Mismatch("unknown_ollama_variable", name, "server", text, (), "")
    config = facts.start.config if facts.start else None
    if config is None or not setting.printed:
        return None
    if name not in config:
        if text_now is None:
            return None
        text = f"{name} is not known to this release ({release or 'its server config lacks it'}) and is ignored"
        return Mismatch("variable_unknown_to_release", name, "server", text, (), "")
    return _misread(setting, text_now, config[name], release) or _unequal(setting, facts, text_now, release)


def _misread(setting: Setting, text_now: str | None, printed: str, release: str) -> Mismatch | None:
    name = setting.name
    if text_now is not None and (problem := setting.read(text_now, release).problem):
        kind = "boolean_counts_as_true" if setting.kind == "bool" else "invalid_value"
        return Mismatch(kind, name, "server", f"{name}={text_now}: {problem}", (), "")
    if name == "OLLAMA_NUM_PARALLEL" and printed.isdecimal() and int(printed) > settings.MAX_SLOTS:
        most = settings.MAX_SLOTS
        text = f"{name}={printed}: the engine has at most {most} slots, so every model fails to load"
        return Mismatch("parallel_above_maximum", name, "runner", text, (), f"at most {most}")
    chosen = govalues.trimmed(text_now or "").lower()
    if setting.choices and chosen and chosen not in setting.choices:
        text = f"{name}={text_now}: the engine has no such type, so every model fails to load"
        return Mismatch("kv_type_invalid", name, "runner", text, (), "one of " + ", ".join(setting.choices))
    return None


def _unequal(setting: Setting, facts: Facts, text_now: str | None, release: str) -> Mismatch | None:
    """`server config` prints another value than what Ollama makes of the text."""
    name, start = setting.name, facts.start
    assert start is not None and start.config is not None
    if text_now is None:
        knows_process = facts.process is not None and facts.process.environ is not None
        if not (knows_process and settings.version(release) and name in ALWAYS):
            return None
    printed = start.config[name]
    if settings.same(setting, text_now, printed, release):
        return None
    text = f"{name}: the process has {text_now or UNSET}, the server runs with {printed or '(empty)'}"
    evidence = (start.config_line.text,) if start.config_line else ()
    return Mismatch("env_not_in_server_config", name, "server", text, evidence, "")


def _started_since(facts: Facts, variable: Variable) -> bool:
    """Whether the process is younger than the unit's file that sets this variable."""
    began = facts.process.started if facts.process else None
    written = next((f.mtime for f in facts.unit_files or () if f.path == variable.origin.file), None)
    return began is not None and written is not None and written < began and variable.origin.layer == "environment"


def _in_doubt(name: str, effective: Effective) -> bool:
    """Whether the computed value of this variable may be another: something could not be read, or it names it."""
    others = re.compile(r"\S+ is set .* not known here$")
    return any(p.startswith(f"{name} ") or not others.match(p) for p in effective.problems)
