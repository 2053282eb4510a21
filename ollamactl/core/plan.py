"""Request + facts → plan: settings chosen, what follows for files and service. Data; printing it is the dry run."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

import msgspec

from ollamactl.core import adopt, dropin, environment, settings
from ollamactl.core.dropin import Managed
from ollamactl.core.facts import Effective, Facts, Origin
from ollamactl.core.feeds import read_env_files
from ollamactl.core.lint import Lint, lint
from ollamactl.core.source import Host, Reading, Source

# What a plan must know. Wanted beside them, without being needed: NICE.
NEEDS = ("service", "unit_files", "env_files", "manager_environment", "effective")
NICE = (
    "system", "process", "start", "version", "loaded", "installed", "runners", "connections", "gpus", "address",
)  # fmt: skip


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asks for. `secret` names values that must not stand in Environment= (readable by all)."""

    set: dict[str, str] = {}
    unset: tuple[str, ...] = ()
    release: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    adopt: bool = False  # take over the OLLAMA_* lines of the main unit and of override.conf


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    before: str | None  # None: absent
    after: str | None
    mode: int | None = 0o644  # None: a file of others, which keeps its owner and mode
    secret: bool = False


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

    @property
    def empty(self) -> bool:
        return not self.files and not self.restart and not self.reload


class Overlay:
    """A host as it will be when some files hold other text."""

    def __init__(self, read: Callable[[Source], Reading], files: dict[str, str | None]) -> None:
        self._read = read
        self._files = files

    def read(self, source: Source) -> Reading:
        if source.kind == "file" and self._files.get(source.args[0]) is not None:
            return Reading(source.key, (self._files[source.args[0]] or "").encode("utf-8", "surrogateescape"))
        return self._read(source)


def running_value(facts: Facts, name: str) -> str | None:
    """A variable as the running server reads it: from `server config`, else from its environment."""
    if facts.start is not None and facts.start.config is not None and name in facts.start.config:
        return facts.start.config[name]
    setting = settings.lookup(name)
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
}


def lost_lint(name: str, text: str | None, value: str | None, origin: Origin) -> Lint:
    """Why a value would not arrive, with file and line."""
    where = f"{origin.file}:{origin.line}" if origin.file and origin.line else origin.file or "systemd"
    what = f"{name}={settings.shown(name, text)}" if text is not None else f"{name} unset"
    wins = f"{where} sets {settings.shown(name, value)}" if value is not None else f"{where} removes it"
    if origin.layer == "absent":
        wins = "systemd drops it"
    kind = {"environment-file": "EnvironmentFile=", "unset": "UnsetEnvironment=", "wrapper": "in ExecStart="}
    by = f" ({kind[origin.layer]})" if origin.layer in kind else ""
    return Lint(
        _LOST_BY.get(origin.layer, "env_not_in_server_config"),
        "error",
        f"{what} would not reach the service: {wins}{by} and is read last",
        f"remove that line: sudoedit {origin.file}" if origin.file else "",
        name,
    )


def plan(
    request: Request,
    facts: Facts,
    host: Host,
    extra: environment.Extra,
    own: tuple[str | None, str | None],
    render: Callable[[str, Managed], tuple[str | None, str | None]],
) -> Plan:
    """`facts` must hold NEEDS; `extra` is the feed of that name. `own` is the text of our drop-in and of our
    environment file as they are (None: absent); `render(unit, managed)` gives their new texts."""
    service, files, now = facts.service, facts.unit_files, facts.effective
    assert service is not None and files is not None and now is not None
    unit, release = service.id, facts.version or (facts.start.version if facts.start else "") or ""
    before = dropin.managed(unit, *own)
    from_file = _set_by_env_file(now, request.set, dropin.env_file_path(unit))
    taken = adopt.adoptable(unit, files, now, before, release) if request.adopt else adopt.Adopted()
    from_file += [n for n in taken.values if (known := settings.lookup(n)) is not None and known.secret]
    after = dropin.merged(
        before,
        set=taken.values | {n: _kept(n, v, before.values, release) for n, v in request.set.items()},
        unset=request.unset,
        release=request.release,
        in_file=(*request.secret, *from_file),
    )
    texts = own if after == before else render(unit, after)  # other words for the same are no change
    paths = (dropin.dropin_path(unit), dropin.env_file_path(unit))
    changes_of_files = tuple(
        FileChange(path=p, before=b, after=a, mode=0o600 if p.endswith(".env") else 0o644, secret=p.endswith(".env"))
        for p, b, a in zip(paths, own, texts, strict=True)
        if a != b
    )
    # The environment file must be there before the drop-in names it, and must outlive the drop-in's removal.
    changes_of_files = tuple(reversed(changes_of_files)) if texts[1] is not None else changes_of_files
    changes_of_files += tuple(FileChange(path=e.path, before=e.before, after=e.after, mode=None) for e in taken.edits)
    wanted: dict[str, str | None] = dict(after.values) | dict.fromkeys(after.unset)
    will = _effective_after(facts, host, extra, paths, texts, taken.edits)
    keys = frozenset(facts.start.config) if facts.start is not None and facts.start.config else frozenset[str]()
    lints = [*lint(after, request.set, release, keys), *taken.left]
    lints += [lost_lint(n, wanted[n], value, origin) for n, value, origin in lost(wanted, will, release)]
    lints += _absent_models(request.models, facts)
    refused = tuple(x for x in lints if x.severity == "error" and x.id not in request.overrides)
    running = service.active_state in ("active", "activating", "reloading")
    stale = bool(lost(wanted, now, release)) or service.need_daemon_reload
    asked = tuple(dict.fromkeys((*request.set, *request.unset, *request.release, *taken.values)))
    other = stale or _other(now, will) or _process_differs(facts, will, wanted, asked)
    return Plan(
        unit=unit,
        managed=after,
        wanted=wanted,
        asked=asked,
        changes=tuple(_changes(facts, asked, after, will, paths, release)),
        files=changes_of_files,
        lints=tuple(lints),
        refused=refused,
        overrides=tuple(dict.fromkeys(x.id for x in lints if x.severity == "error" and x.id in request.overrides)),
        running=running,
        restart=running and other,
        reload=bool(changes_of_files) or stale,
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


def _set_by_env_file(now: Effective, names: Iterable[str], own: str) -> list[str]:
    """Names that an EnvironmentFile= of others sets: an Environment= line can't win against it."""
    found = []
    for name in names:
        has = now.variables.get(name)
        origins = [o for _, o in has.shadowed] + [has.origin] if has else []
        if any(o.layer == "environment-file" for o in origins):
            found.append(name)
    return found


def _effective_after(
    facts: Facts,
    host: Host,
    extra: environment.Extra,
    paths: tuple[str, str],
    texts: tuple[str | None, str | None],
    edits: tuple[adopt.Edit, ...],
) -> Effective:
    assert facts.service is not None and facts.unit_files is not None
    files = adopt.with_edits(dropin.with_file(facts.unit_files, paths[0], texts[0]), edits)
    overlay = Overlay(host.read, {paths[1]: texts[1]})
    env_files = read_env_files(facts.service, files, overlay.read)
    return environment.effective(facts.service, files, env_files, facts.manager_environment, extra)


def _changes(
    facts: Facts, asked: tuple[str, ...], after: Managed, will: Effective, paths: tuple[str, str], release: str
) -> Iterable[Change]:
    for name in asked:
        setting = settings.lookup(name)
        text = will.value(name)
        new = setting.read(text or "", release).printed if setting else (text or "")
        now = running_value(facts, name)
        if name in after.values:
            where = (paths[1] if name in after.in_file else paths[0]).rsplit("/", 1)[-1]
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


def plan_of_files(unit: str, files: tuple[FileChange, ...], asked: tuple[str, ...], facts: Facts) -> Plan:
    """A plan that puts files to given texts (a rollback). What is wanted is what our files will then manage."""
    service, now = facts.service, facts.effective
    assert service is not None and now is not None and facts.unit_files is not None
    paths = (dropin.dropin_path(unit), dropin.env_file_path(unit))
    current = {f.path: f.text for f in facts.unit_files if f.missing is None}
    texts = {c.path: c.after for c in files}
    env_text = texts.get(paths[1]) if paths[1] in texts else None
    after = dropin.managed(unit, texts.get(paths[0], current.get(paths[0])), env_text)
    wanted: dict[str, str | None] = dict(after.values) | dict.fromkeys(after.unset)
    changes = []
    for name in asked:
        setting, value = settings.lookup(name), wanted.get(name)
        new = setting.read(value or "", facts.version or "").printed if setting else value or ""
        secret = name in after.in_file or (setting is not None and setting.secret)
        was = running_value(facts, name)
        where = paths[0].rsplit("/", 1)[-1] if name in wanted else "no longer managed"
        now_text = "not running" if was is None else was
        changes.append(Change(name=name, now=now_text, new=new, where=where, secret=secret))
    running = service.active_state in ("active", "activating", "reloading")
    return Plan(
        unit=unit,
        managed=after,
        wanted=wanted,
        asked=asked,
        changes=tuple(changes),
        files=files,
        running=running,
        restart=running and bool(files),
        reload=bool(files),
    )
