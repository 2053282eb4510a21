"""One change of a host: journal the undo, change, verify layer by layer, commit; or put everything back.

The caller holds the lock and has made the plan inside it. Everything that can go wrong after the undo is on disk
ends in `_undo`, so a host is all new and proven, or all old.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

import msgspec

from ollamactl.core import settings
from ollamactl.core.cause import cause
from ollamactl.core.facts import Complaint, Facts
from ollamactl.core.feeds import Collector
from ollamactl.core.parse import journal as journal_lines
from ollamactl.core.plan import Plan, full_name, lost, lost_lint
from ollamactl.core.source import Host, command
from ollamactl.core.verify import Judgement, Mismatch, judge
from ollamactl.errors import Exit, Failure
from ollamactl.host import files, journal, serving
from ollamactl.host.journal import Entry, FileUndo, ModelBefore, ServiceBefore, Store
from ollamactl.host.serving import VERIFY, LoadFailed, Manager, NotServing, gather

Kind = Literal["apply", "rollback", "reset"]


class Interrupted(BaseException):
    """SIGINT, SIGTERM or SIGHUP: undo, then leave."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Report(Protocol):
    """Where progress goes. Never raises: a closed terminal does not stop a transaction."""

    def step(
        self, text: str, *, ok: bool = True, seconds: float | None = None, detail: tuple[str, ...] = ()
    ) -> None: ...
    def undone(self, text: str, seconds: float | None = None) -> None: ...
    def note(self, text: str) -> None: ...
    def working(self, text: str) -> None: ...


class Context(msgspec.Struct, frozen=True):
    host: Host
    manager: Manager
    store: Store
    report: Report
    command: str = "ollamactl apply"
    user: str = ""
    timeout: float = 300.0  # for a load; an answer is waited for at most 60 s of it
    start: bool = False  # start a unit that does not run


class Result(msgspec.Struct, frozen=True, kw_only=True):
    status: Literal["applied", "restored", "not-restored", "unchanged", "unproven"]
    entry: int
    mismatches: tuple[Mismatch, ...] = ()
    judgement: Judgement = Judgement()
    after: Facts | None = None
    loaded: tuple[str, ...] = ()  # models that were loaded as a proof
    conflicts: tuple[str, ...] = ()
    seconds: float = 0.0
    problems: tuple[str, ...] = ()  # what the undo could not do


class _Lost(Exception):
    """The change did not take; the mismatches say why."""

    def __init__(self, *mismatches: Mismatch) -> None:
        super().__init__(mismatches[0].text)
        self.mismatches = mismatches


@contextmanager
def signals_raise() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP raise Interrupted in the main thread; a closed output is an error like others."""

    def stop(number: int, frame: Any) -> None:
        raise Interrupted(number)

    before = {n: signal.signal(n, stop) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_wait() -> Iterator[None]:
    """Signals are not heard while the host is put back or a transaction is closed: half of it helps nobody."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {n: signal.signal(n, signal.SIG_IGN) for n in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def change(ctx: Context, plan: Plan, before: Facts, models: tuple[str, ...], kind: Kind = "apply") -> Result:
    """Carries out a plan that is not empty. `models` are names to load as a proof beside those that were loaded."""
    began = time.monotonic()
    assert before.service is not None
    entry = _entry(ctx, plan, before, kind)
    ctx.store.begin(entry)
    try:
        found, facts, loaded = _forward(ctx, plan, before, entry, models)
        with signals_wait():
            ctx.store.end(msgspec.structs.replace(entry, outcome="applied", summary=_summary(plan)))
        return Result(
            status="applied",
            entry=entry.id,
            judgement=found,
            after=facts,
            loaded=loaded,
            seconds=time.monotonic() - began,
        )
    except BaseException as error:
        with signals_wait():
            wrong = _mismatches(error)
            for mismatch in wrong:
                ctx.report.step(mismatch.text, ok=False, detail=mismatch.evidence)
            conflicts, problems = undo(ctx, entry)
            status: Literal["restored", "not-restored"] = "not-restored" if conflicts or problems else "restored"
            summary = wrong[0].text if wrong else str(error)
            done = msgspec.structs.replace(entry, outcome=status, summary=summary, conflicts=conflicts)
            ctx.store.end(done)
        if not isinstance(error, (Exception, Interrupted)):
            raise
        return Result(
            status=status,
            entry=entry.id,
            mismatches=wrong,
            conflicts=conflicts,
            problems=problems,
            seconds=time.monotonic() - began,
        )


def prove(ctx: Context, plan: Plan, before: Facts, models: tuple[str, ...]) -> Result:
    """Nothing is changed: the named models are loaded, and their runners must be as the settings say."""
    began = time.monotonic()
    entry = _entry(ctx, plan, before, "apply")
    now = msgspec.structs.replace(entry, models=tuple(m for m in entry.models if m.name in map(full_name, models)))
    try:
        found, facts, loaded = _prove(ctx, plan, before, now, models, _planned_host(ctx, plan))
        wrong: tuple[Mismatch, ...] = ()
    except (_Lost, Failure, OSError) as error:
        found, facts, loaded, wrong = Judgement(), before, (), _mismatches(error)
        for mismatch in wrong:
            ctx.report.step(mismatch.text, ok=False, detail=mismatch.evidence)
    return Result(
        status="unproven" if wrong else "unchanged",
        entry=0,
        mismatches=wrong,
        judgement=found,
        after=facts,
        loaded=loaded,
        seconds=time.monotonic() - began,
    )


def _mismatches(error: BaseException) -> tuple[Mismatch, ...]:
    if isinstance(error, _Lost):
        return error.mismatches
    if isinstance(error, Failure):
        return (Mismatch(error.id, "", "", error.text, (error.hint,) if error.hint else ()),)
    if isinstance(error, Interrupted):
        return (Mismatch("interrupted", "", "", f"interrupted by {error}"),)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return (Mismatch("system_error", "", "", f"{where}{error.strerror or error}"),)
    return (Mismatch("internal_error", "", "", f"{type(error).__name__}: {error}"),)


def _entry(ctx: Context, plan: Plan, before: Facts, kind: Kind) -> Entry:
    assert before.service is not None
    undos = []
    made: set[str] = set()
    for change_ in plan.files:
        was = files.image(change_.path)
        folders = tuple(f for f in journal.folders_to_make(change_.path) if f not in made)
        made.update(folders)
        undos.append(FileUndo(change_.path, was, _after(change_.after, change_.mode, was), folders))
    config = (before.start.config if before.start else None) or {}
    touched = {n: config[n] for n in {**plan.wanted, **dict.fromkeys(plan.asked)} if n in config}
    service = before.service
    return Entry(
        id=ctx.store.next_id(),
        kind=kind,
        command=ctx.command,
        user=ctx.user,
        unit=plan.unit,
        started=time.time(),
        files=tuple(undos),
        service=ServiceBefore(service.active_state, service.sub_state, service.invocation_id, service.main_pid),
        models=serving.models_before(before, time.time()),
        values=touched,
        overrides=plan.overrides,
        changes=tuple((c.name, "" if c.secret else c.now, "(secret)" if c.secret else c.new) for c in plan.changes),
    )


def _after(text: str | None, mode: int, was: files.Image) -> files.Image:
    if text is None:
        return files.Image("absent")
    return files.Image("file", text.encode("utf-8", "surrogateescape"), mode, label=was.label)


def _summary(plan: Plan) -> str:
    return ", ".join(f"{c.name}={'(secret)' if c.secret else c.new}" for c in plan.changes) or "as before"


# -- forward --


def _forward(
    ctx: Context, plan: Plan, before: Facts, entry: Entry, models: tuple[str, ...]
) -> tuple[Judgement, Facts, tuple[str, ...]]:
    assert before.service is not None
    began = time.monotonic()
    if plan.reload:
        cursor = _cursor(ctx, before)
        journal.do_files(entry)
        ctx.manager.reload()
        what = "files written, systemd reloaded" if entry.files else "systemd reloaded"
        ctx.report.step(what, seconds=time.monotonic() - began)
        _check_complaints(ctx, plan, cursor, before)
        _check_effective(ctx, plan)
    if not plan.running and not ctx.start:
        facts = gather(ctx.host, plan.unit)
        ctx.report.note(f"{plan.unit} is {before.service.active_state}: not started (--start starts it)")
        return judge(facts, plan.wanted), facts, ()
    ollama_host = _planned_host(ctx, plan)
    began = time.monotonic()
    ctx.report.working("restarting")
    ctx.manager.reset_failed(plan.unit)
    if plan.running:
        ctx.manager.restart(plan.unit, ctx.timeout)
    else:
        ctx.manager.start(plan.unit, ctx.timeout)
    _wait_answer(ctx, plan.unit, ollama_host)
    ctx.report.step("restarted, answers" if plan.running else "started, answers", seconds=time.monotonic() - began)
    _check_config(ctx, plan)
    return _prove(ctx, plan, before, entry, models, ollama_host)


def _cursor(ctx: Context, before: Facts) -> str:
    """Where the journal ends now: PID 1's complaints about our files come after it, without an invocation id."""
    reading = ctx.host.read(command("journalctl", "-q", "--no-pager", "-n", "1", "-o", "json", "--output-fields=_PID"))
    return journal_lines.cursor(reading.body or b"")


def _check_complaints(ctx: Context, plan: Plan, cursor: str, before: Facts) -> None:
    if not cursor:
        return
    args = ("journalctl", "-q", "--no-pager", "-o", "json", f"--after-cursor={cursor}", "_PID=1", f"UNIT={plan.unit}")
    ours = {f.path for f in plan.files}
    found: tuple[Complaint, ...] = journal_lines.complaints(ctx.host.read(command(*args)).body or b"")
    wrong = [c for c in found if c.file in ours]
    if wrong:
        said = "systemd ignores a line of ours: {}"
        raise _Lost(*(Mismatch("dropin_refused_by_systemd", "", "drop-in", said.format(c.text)) for c in wrong))


def _check_effective(ctx: Context, plan: Plan) -> None:
    """The environment that systemd will pass, computed anew from what it now has: a later file that wins is found
    here, before the restart, with nothing harmed."""
    fields = ("service", "unit_files", "env_files", "manager_environment", "effective")
    facts = gather(ctx.host, plan.unit, fields)
    if facts.service is None:
        raise Failure(f"{plan.unit}: {facts.why('service')}", id="service_gone")
    if facts.effective is None:
        raise Failure(f"the environment can't be computed: {facts.why('effective')}", id="effective_unknown")
    wrong = []
    for name, value, origin in lost(plan.wanted, facts.effective, ""):
        why = lost_lint(name, plan.wanted[name], value, origin)
        wrong.append(Mismatch(why.id, name, "unit", why.text, (why.hint,) if why.hint else ()))
    if wrong:
        raise _Lost(*wrong)
    shown = [f"{c.name.removeprefix('OLLAMA_').lower()} {'(secret)' if c.secret else c.new}" for c in plan.changes]
    if shown:
        ctx.report.step(f"systemd will pass {', '.join(shown)} (checked before the restart)")


def _planned_host(ctx: Context, plan: Plan) -> str:
    effective = Collector(ctx.host, plan.unit).get("effective")
    return (effective.value("OLLAMA_HOST") if effective else None) or ""


def _wait_answer(ctx: Context, unit: str, ollama_host: str) -> None:
    try:
        serving.wait_answer(ctx.host, ctx.manager, unit, ollama_host, min(60.0, ctx.timeout))
    except NotServing as error:
        facts = gather(ctx.host, unit, (*VERIFY, "log"))
        why = cause(facts)
        if why is None:
            raise
        raise _Lost(Mismatch(why.id, "", "process", f"{error.text}: {why.text}", why.evidence)) from None


def _check_config(ctx: Context, plan: Plan) -> None:
    start = serving.wait_start(ctx.host, plan.unit, 5.0)
    if start is None or start.config is None:
        ctx.report.note("this start printed no `server config` line: proven by the process's environment instead")
        return
    facts = gather(ctx.host, plan.unit)
    found = [m for m in judge(facts, plan.wanted).mismatches if m.name in plan.wanted and m.layer != "runner"]
    if found:
        raise _Lost(*found)
    shown = [f"{n}={start.config[n] or '(empty)'}" for n in plan.asked if n in start.config and not _secret(n)]
    if shown:
        ctx.report.step(f"server config: {', '.join(shown)}")


def _secret(name: str) -> bool:
    setting = settings.lookup(name)
    return setting is not None and setting.secret


def _prove(
    ctx: Context, plan: Plan, before: Facts, entry: Entry, models: tuple[str, ...], ollama_host: str
) -> tuple[Judgement, Facts, tuple[str, ...]]:
    """Every model that was loaded, and those named, in memory again; the runner and its memory as wanted."""
    todo = {m.name: m for m in entry.models}
    for name in models:
        todo.setdefault(full_name(name), ModelBefore(full_name(name), 300.0))
    facts = gather(ctx.host, plan.unit)
    for model in todo.values():
        facts, took = _load(ctx, plan.unit, ollama_host, model)
        runner = next((r for r in reversed(facts.runners or ()) if r.slots), None)
        shown = f" with -c {runner.context_total} -np {runner.slots}" if runner else ""
        ctx.report.step(f"{model.name} loaded{shown}", seconds=took)
    named = tuple(full_name(n) for n in models)
    found = judge(facts, plan.wanted, named=named, proof=bool(todo))
    ours = {*plan.wanted, *plan.asked}
    wrong = [m for m in found.mismatches if not m.name or m.name in ours]
    wrong += [] if "fit" in plan.overrides else _slipped(facts, entry, before)
    if wrong:
        raise _Lost(*wrong)
    if not todo:
        ctx.report.note("no model was loaded, so slots and memory are not proven by a runner (--model NAME does)")
    return found, facts, tuple(todo)


def _load(ctx: Context, unit: str, ollama_host: str, model: ModelBefore) -> tuple[Facts, float]:
    ctx.report.working(f"loading {model.name}")
    try:
        took = serving.load(ctx.host, ollama_host, model, ctx.timeout)
    except LoadFailed as error:
        why = cause(gather(ctx.host, unit, (*VERIFY, "log")))
        text = f"{error.text}: {why.text}" if why and why.text not in error.text else error.text
        kind = error.id if error.id == "model_not_found" or why is None else why.id
        raise _Lost(Mismatch(kind, "", "runner", text, why.evidence if why else ())) from None
    return gather(ctx.host, unit), took


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
            text = f"{model.name} is {share:.0%} on the GPU, {limit:.0%} before" if old else (
                f"{model.name} is only {share:.0%} on the GPU"
            )
            found.append(Mismatch("partial_offload", "", "runner", text))
    return found


# -- back --


def undo(ctx: Context, entry: Entry) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The host as the entry found it: files, systemd, the service and its models. Returns files that someone else
    changed meanwhile, which are left, and what could not be done."""
    began = time.monotonic()
    problems: list[str] = []
    ctx.report.working("putting the host back")
    conflicts: tuple[str, ...] = ()
    try:
        conflicts = journal.undo_files(entry)
    except OSError as error:
        problems.append(f"{error.filename or 'a file'}: {error.strerror or error}")
    try:
        if entry.files or conflicts:
            ctx.manager.reload()
        _restore_service(ctx, entry, problems)
    except (Failure, OSError) as error:
        problems.append(error.text if isinstance(error, Failure) else str(error))
    if not problems and not conflicts:
        ctx.report.undone("previous settings restored and verified", time.monotonic() - began)
    return conflicts, tuple(problems)


def _restore_service(ctx: Context, entry: Entry, problems: list[str]) -> None:
    """The service in the state that it had, and reading what it read. A process that was never touched stays."""
    was, now = entry.service, ctx.manager.state(entry.unit)
    ran = was.active in ("active", "activating", "reloading")
    if not ran:
        if now.active in ("active", "activating") and now.invocation != was.invocation:
            ctx.manager.stop(entry.unit, ctx.timeout)
        return
    untouched = now.active == "active" and now.invocation == was.invocation and now.main_pid == was.main_pid
    if untouched:
        return
    ctx.manager.reset_failed(entry.unit)
    ctx.manager.restart(entry.unit, ctx.timeout)
    effective = Collector(ctx.host, entry.unit).get("effective")
    ollama_host = (effective.value("OLLAMA_HOST") if effective else None) or ""
    if was.active != "active":
        return  # it did not serve before either (flapping): it is as it was
    serving.wait_answer(ctx.host, ctx.manager, entry.unit, ollama_host, min(60.0, ctx.timeout))
    start = serving.wait_start(ctx.host, entry.unit, 5.0)
    for name, value in entry.values.items():
        has = (start.config or {}).get(name) if start else None
        if has is not None and has != value:
            problems.append(f"{name} runs with {has}, before it was {value}")
    for model in entry.models:
        try:
            serving.load(ctx.host, ollama_host, model, ctx.timeout)
        except LoadFailed as error:
            ctx.report.note(f"{error.text} (it was loaded before)")


def recover(ctx: Context, tell: Callable[[Entry], None]) -> Result | None:
    """Finishes an interrupted transaction by undoing it; None where there is none."""
    entry = ctx.store.open_entry()
    if entry is None:
        return None
    if entry.outcome != "open":  # it had ended; only the rename was cut off
        ctx.store.end(entry)
        return None
    tell(entry)
    with signals_wait():
        conflicts, problems = undo(ctx, entry)
        status: Literal["restored", "not-restored"] = "not-restored" if conflicts or problems else "restored"
        done = msgspec.structs.replace(entry, outcome=status, conflicts=conflicts, summary="interrupted")
        ctx.store.end(done)
    return Result(status=status, entry=entry.id, conflicts=conflicts, problems=problems)


def recover_first(ctx: Context, tell: Callable[[Entry], None]) -> None:
    """Before another change: an interrupted one is undone. Raises Failure where that can't be done."""
    result = recover(ctx, tell)
    if result is not None and result.status == "not-restored":
        raise Failure(
            "an interrupted change could not be undone: " + "; ".join((*result.conflicts, *result.problems)),
            hint="look at what is named, then: sudo ollamactl verify",
            code=Exit.NOT_RESTORED,
            id="not_restored",
        )


def wait_for(ctx: Context, plan: Plan, seconds: float) -> bool:
    """`--drain`: before the first write, until no request is in flight."""
    return serving.wait_idle(ctx.host, plan.unit, seconds, ctx.report.working)

