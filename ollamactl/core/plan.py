"""Request + facts → plan: settings chosen, what follows for files and service. Data; printing it is the dry run."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import msgspec

from ollamactl.core import adopt, dropin, settings
from ollamactl.core.dropin import Managed
from ollamactl.core.facts import Effective, Facts, Origin
from ollamactl.core.lint import Lint, lint
from ollamactl.core.ours import FileChange, Ours

# What a plan must know. Wanted beside them, without being needed: NICE.
NEEDS = ("service", "unit_files", "env_files", "manager_environment", "effective")
NICE = (
    "system", "process", "gpus", "version", "loaded", "runners", "start", "installed", "connections", "address",
)  # fmt: skip

RUNS = ("active", "activating", "reloading")  # states of a unit that has a process, or gets one


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asks for. `secret` names values that must not stand in Environment= (readable by all)."""

    set: dict[str, str] = {}
    unset: tuple[str, ...] = ()
    release: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    adopt: bool = False  # take over the OLLAMA_* lines of the main unit and of override.conf


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One variable: how the running server reads it, and how it will."""

    name: str
    now: str
    new: str
    where: str  # file that will hold it, or how it is kept absent
    secret: bool = False


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    unit: str
    managed: Managed
    wanted: dict[str, str | None]  # every managed variable: text, or None for absent
    asked: tuple[str, ...]
    changes: tuple[Change, ...] = ()
    files: tuple[FileChange, ...] = ()
    lints: tuple[Lint, ...] = ()
    refused: tuple[Lint, ...] = ()  # the errors that are not overridden
    overrides: tuple[str, ...] = ()  # ids of the errors that are
    running: bool = True  # the service runs, so it is restarted and verified
    restart: bool = True  # the process must be started anew for the wanted state
    reload: bool = True  # systemd must read its files anew
    own: tuple[str, ...] = ()  # paths of our files

    @property
    def empty(self) -> bool:
        return not self.files and not self.restart and not self.reload


def running_value(facts: Facts, name: str) -> str | None:
    """A variable as the running server reads it: from `server config`, else from its environment."""
    setting = settings.lookup(name)
    if facts.service is not None and facts.service.active_state not in RUNS:
        return None  # what its last start has logged runs no more
    if facts.start is not None and facts.start.config is not None and name in facts.start.config:
        printed = facts.start.config[name]
        return settings.own_part(setting, printed) if setting else printed
    if facts.process is None or facts.process.environ is None:
        return None
    text = facts.process.environ.get(name, "")
    return setting.read(text, facts.version or "").printed if setting else text


def lost(wanted: dict[str, str | None], after: Effective, release: str) -> list[tuple[str, str | None, Origin]]:
    """Wanted variables that the effective environment has otherwise: (name, its value, where that is from)."""
    found = []
    for name, text in wanted.items():
        has = after.variables.get(name)
        value = has.value if has else None
        same = value is None if text is None else value == text
        if not same:
            found.append((name, value, has.origin if has else Origin(layer="absent")))
    return found


_LOST_BY = {
    "environment-file": "environment_file_overrides_dropin",
    "environment": "dropin_overridden_by_later_dropin",
    "unset": "unset_environment_wins",
    "wrapper": "wrapper_overrides_environment",
    "brew-file": "environment_file_overrides_dropin",
    "app": "app_setting_wins",
}


def lost_lint(name: str, text: str | None, value: str | None, origin: Origin) -> Lint:
    """Why a value would not arrive, with file and line."""
    where = f"{origin.file}:{origin.line}" if origin.file and origin.line else origin.file or "systemd"
    what = f"{name}={settings.shown(name, text)}" if text is not None else f"{name} unset"
    wins = f"{where} sets {settings.shown(name, value)}" if value is not None else f"{where} removes it"
    if origin.layer == "absent":
        wins = "systemd drops it"
    if origin.layer == "app":
        wins = f"Ollama.app's own settings set {settings.shown(name, value or '')}"
        return Lint(_LOST_BY["app"], "error", f"{what} would not reach the server: {wins}, which beats the session",
                    "change it in the app: Ollama menu, Settings", name)  # fmt: skip
    kind = {"environment-file": "EnvironmentFile=", "unset": "UnsetEnvironment=", "wrapper": "in ExecStart="}
    by = f" ({kind[origin.layer]})" if origin.layer in kind else ""
    return Lint(
        _LOST_BY.get(origin.layer, "env_not_in_server_config"),
        "error",
        f"{what} would not reach the service: {wins}{by} and is read last",
        f"remove that line: sudoedit {origin.file}" if origin.file else "",
        name,
    )


def plan(request: Request, facts: Facts, ours: Ours) -> Plan:
    """`facts` must hold NEEDS; `ours` are our files of that server."""
    service, now = facts.service, facts.effective
    assert service is not None and now is not None
    unit, release = service.id, facts.version or (facts.start.version if facts.start else "") or ""
    before = ours.managed()
    taken = ours.adoptable(before, release) if request.adopt else adopt.Adopted()
    from_file = [n for n in taken.values if (known := settings.lookup(n)) is not None and known.secret]
    after = dropin.merged(
        before,
        set=taken.values | {n: _kept(n, v, before.values, release) for n, v in request.set.items()},
        unset=request.unset,
        release=request.release,
        in_file=(*request.secret, *ours.in_file(request.set), *from_file),
    )
    files = ours.changes(after)
    will = ours.effective(files, taken.edits)
    files += tuple(FileChange(path=e.path, before=e.before, after=e.after, mode=None) for e in taken.edits)
    wanted: dict[str, str | None] = dict(after.values) | dict.fromkeys(after.unset)
    keys = frozenset(facts.start.config) if facts.start is not None and facts.start.config else frozenset[str]()
    lints = [*lint(after, request.set, release, keys), *taken.left, *(ours.lints(after) if files else ())]
    lints += [lost_lint(n, wanted[n], value, origin) for n, value, origin in lost(wanted, will, release)]
    lints += _absent_models(request.models, facts)
    unmanaged = [n for n in request.release if n not in before.values and n not in before.unset]
    said = "{} is not managed here, so nothing is released"
    lints += [Lint("not_managed", "warning", said.format(n), "", n) for n in unmanaged]
    refused = tuple(x for x in lints if x.severity == "error" and x.id not in request.overrides)
    running = service.active_state in RUNS
    stale = bool(lost(wanted, now, release)) or service.need_daemon_reload
    released = [n for n in request.release if n not in unmanaged]
    asked = tuple(dict.fromkeys((*request.set, *request.unset, *released, *taken.values)))
    other = stale or _other(now, will) or _process_differs(facts, will, wanted, asked)
    return Plan(
        unit=unit,
        managed=after,
        wanted=wanted,
        asked=asked,
        changes=tuple(_changes(facts, asked, after, will, ours, release)),
        files=files,
        lints=tuple(lints),
        refused=refused,
        overrides=tuple(dict.fromkeys(x.id for x in lints if x.severity == "error" and x.id in request.overrides)),
        running=running,
        restart=running and other,
        reload=bool(files) or stale,
        own=ours.paths,
    )


def _other(now: Effective, will: Effective) -> bool:
    """Whether a start would get another environment than one before the change."""
    return {n: v.value for n, v in now.variables.items() if v.value is not None} != {
        n: v.value for n, v in will.variables.items() if v.value is not None
    }


def full_name(model: str) -> str:
    """A model's name with its tag, as /api/ps and /api/tags print it."""
    return model if ":" in model.rsplit("/", 1)[-1] else f"{model}:latest"


def _absent_models(models: tuple[str, ...], facts: Facts) -> list[Lint]:
    """Named models that are not installed: their load would fail after the restart."""
    if facts.installed is None:
        return []
    names = [m.name for m in facts.installed]
    found = []
    for model in models:
        if full_name(model).lower() not in (n.lower() for n in names):
            near = difflib.get_close_matches(model, names, 1)
            hint = f"did you mean {near[0]}?" if near else f"installed: {', '.join(names[:5]) or 'none'}"
            found.append(Lint("model_not_found", "error", f"the model {model} is not installed", hint))
    return found


def _kept(name: str, value: str, managed: dict[str, str], release: str) -> str:
    """The text to manage: the one that stands there, where Ollama reads both the same (5m and 300)."""
    old = managed.get(name)
    same = old is not None and settings.meaning(name, old, release) == settings.meaning(name, value, release)
    return old if same and old is not None else value


def _changes(
    facts: Facts, asked: tuple[str, ...], after: Managed, will: Effective, ours: Ours, release: str
) -> Iterable[Change]:
    for name in asked:
        setting = settings.lookup(name)
        text = will.value(name)
        new = setting.read(text or "", release).printed if setting else (text or "")
        now = running_value(facts, name)
        if name in after.values:
            where = ours.where(name, after)
        else:
            where = "kept absent" if name in after.unset else "no longer managed"
        secret = name in after.in_file and (setting is None or setting.secret)
        yield Change(name=name, now="not running" if now is None else now, new=new, where=where, secret=secret)


def _process_differs(
    facts: Facts, will: Effective, wanted: dict[str, str | None], asked: tuple[str, ...]
) -> bool:
    """Whether the running process was started with other values, by meaning, than the files now give."""
    release = facts.version or ""
    if facts.process is None:
        return False
    for name in {**wanted, **dict.fromkeys(asked)}:
        text = will.value(name)
        setting = settings.lookup(name)
        if facts.process.environ is not None:
            ran = facts.process.environ.get(name)
            if settings.meaning(name, ran, release) != settings.meaning(name, text, release):
                return True
        config = facts.start.config if facts.start is not None else None
        if setting is not None and config is not None and name in config:
            same = settings.same(setting, text, config[name], release)
            if not same:
                return True
    return False


def plan_of_files(files: tuple[FileChange, ...], asked: tuple[str, ...], facts: Facts, ours: Ours) -> Plan:
    """A plan that puts files to given texts (a rollback, a reset). What is wanted is what our files will then
    manage."""
    service, now = facts.service, facts.effective
    assert service is not None and now is not None
    after = ours.managed({c.path: c.after for c in files})
    edits = tuple(
        adopt.Edit(c.path, c.before, c.after)
        for c in files
        if c.path not in ours.paths and c.before is not None and c.after is not None
    )
    will = ours.effective(tuple(c for c in files if c.path in ours.paths), edits)
    wanted: dict[str, str | None] = dict(after.values) | dict.fromkeys(after.unset)
    running = service.active_state in RUNS
    other = _other(now, will) or _process_differs(facts, will, wanted, asked) or service.need_daemon_reload
    return Plan(
        unit=service.id,
        managed=after,
        wanted=wanted,
        asked=asked,
        changes=tuple(_changes(facts, asked, after, will, ours, facts.version or "")),
        files=files,
        running=running,
        restart=running and bool(files) and other,
        reload=bool(files),
        own=ours.paths,
    )
