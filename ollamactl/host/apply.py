"""One change of a host: journal the undo, change, verify layer by layer, commit; or put everything back.

The caller holds the lock and has made the plan inside it. Everything that can go wrong after the undo is on disk
ends in `undo.transact`, so a host is all new and proven, or all old.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import msgspec

from ollamactl.core import settings
from ollamactl.core.cause import cause
from ollamactl.core.facts import Complaint, Facts, Service
from ollamactl.core.feeds import Collector
from ollamactl.core.mismatch import Mismatch
from ollamactl.core.ours import FileChange
from ollamactl.core.parse import journal as journal_lines
from ollamactl.core.plan import Plan, full_name, lost, lost_lint
from ollamactl.core.source import command
from ollamactl.core.verify import Judgement, judge
from ollamactl.errors import Exit, Failure
from ollamactl.host import entryfiles, files, serving, undo
from ollamactl.host.context import Context, Interrupted, Lost, Report, Result, signals_raise, signals_wait
from ollamactl.host.files import Image
from ollamactl.host.journal import Entry, FileUndo, Kind, ServiceBefore
from ollamactl.host.proving import PROOF, proof
from ollamactl.host.serving import VERIFY, NotServing, gather
from ollamactl.host.undo import recover, recover_first

__all__ = [
    "Context", "Interrupted", "Kind", "Report", "Result", "change", "entry_for", "forward", "prove", "recover",
    "recover_first", "signals_raise", "signals_wait", "wait_for",
]  # fmt: skip
CONFIG = tuple(f for f in PROOF if f not in ("listeners", "runners", "loaded"))  # before any load
PASSED = ("unit_files", "env_files", "manager_environment", "effective")  # what a start is given


def change(
    ctx: Context,
    plan: Plan,
    before: Facts,
    models: tuple[str, ...],
    kind: Kind = "apply",
    images: Mapping[str, Image] | None = None,
) -> Result:
    """Carries out a plan that is not empty. `models` are names to load as a proof beside those that were loaded.
    `images` gives what files are to be, where that is more than the plan's text (a link, an owner)."""
    entry = entry_for(ctx, plan, before, kind, images or {})

    def carried_out() -> Result:
        found, facts, loaded = forward(ctx, plan, before, entry, models)
        return Result(status="applied", entry=entry.id, judgement=found, after=facts, loaded=loaded)

    return undo.transact(ctx, undo.UnderWay(entry, _summary(plan)), carried_out)


def prove(ctx: Context, plan: Plan, before: Facts, models: tuple[str, ...]) -> Result:
    """Nothing is changed: the named models are loaded, and their runners must be as the settings say."""
    began = time.monotonic()
    entry = entry_for(ctx, plan, before, "apply", {})
    try:
        facts = gather(ctx.host, plan.unit, CONFIG)
        door = serving.door(ctx.host, plan.unit, facts.effective, before.service)
        found, facts, loaded = proof(ctx, plan, before, _only(entry, models), models, door, facts)
        wrong: tuple[Mismatch, ...] = ()
    except (Lost, Failure, OSError) as error:
        found, facts, loaded, wrong = Judgement(), before, (), undo.mismatches(error)
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


def entry_for(ctx: Context, plan: Plan, before: Facts, kind: Kind, images: Mapping[str, Image]) -> Entry:
    """How everything is put back. Raises Failure where a file is no longer what the plan was made of."""
    assert before.service is not None
    undos = []
    made: set[str] = set()
    for wanted in plan.files:
        was = files.image(wanted.path)
        if was.data != _bytes(wanted.before) or (was.kind == "link" and wanted.mode is None):
            what = "is a link" if was.kind == "link" else "was changed a moment ago"
            raise Failure(
                f"{wanted.path} {what}; nothing was touched", hint="look at it, then try again", code=Exit.REFUSED,
                id="changed_meanwhile",
            )  # fmt: skip
        after = images.get(wanted.path) or _after(wanted, was)
        folders = tuple(f for f in entryfiles.folders_to_make(wanted.path) if f not in made)
        made.update(folders)
        undos.append(FileUndo(wanted.path, was, after, folders, _emptied(wanted.path, after)))
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
        kept=ctx.manager.remember(plan.unit, plan.managed),
    )


def _after(wanted: FileChange, was: Image) -> Image:
    """What a file is to be. One of others (no mode of ours) keeps its owner and mode."""
    if wanted.after is None:
        return Image("absent")
    if wanted.mode is None:
        return msgspec.structs.replace(was, data=_bytes(wanted.after))
    return Image("file", _bytes(wanted.after), wanted.mode, label=was.label)


def _bytes(text: str | None) -> bytes:
    return (text or "").encode("utf-8", "surrogateescape")


def _emptied(path: str, after: Image) -> tuple[str, ...]:
    folder = os.path.dirname(path)
    return (folder,) if after.kind == "absent" and folder.endswith((".d", "/ollamactl")) else ()


def _summary(plan: Plan) -> str:
    return ", ".join(f"{c.name}={'(secret)' if c.secret else c.new}" for c in plan.changes) or "as before"


# -- forward --


def forward(
    ctx: Context, plan: Plan, before: Facts, entry: Entry, models: tuple[str, ...]
) -> tuple[Judgement, Facts, tuple[str, ...]]:
    """Files, systemd, service, models: changed and proven. Raises what `undo.mismatches` understands; the undo is the
    caller's."""
    assert before.service is not None
    began = time.monotonic()
    will: Facts | None = None
    if plan.reload:
        cursor = _cursor(ctx, before)
        entryfiles.do_files(entry)
        done = ctx.manager.reload()
        what = ", ".join(filter(None, (_did(entry), done)))
        ctx.report.step(what, seconds=time.monotonic() - began)
        if before.service.load_state == "not-found" and ctx.manager.state(plan.unit).load == "not-found":
            ctx.report.note(f"{plan.unit} is not installed: only its files were changed")
            return Judgement(), before, ()
        now = Collector(ctx.host, plan.unit)
        now.begin("service", "manager_environment")
        _check_complaints(ctx, plan, cursor, before)
        will = _check_effective(ctx, plan, now)
    if not plan.running and not ctx.start:
        facts = gather(ctx.host, plan.unit)
        ctx.report.note(f"{plan.unit} is {before.service.active_state}: not started (--start starts it)")
        return judge(facts, plan.wanted), facts, ()
    passed = will.effective if will is not None else Collector(ctx.host, plan.unit).get("effective")
    door = serving.door(ctx.host, plan.unit, passed, before.service)
    if plan.running and not plan.restart:
        facts = _check_config(ctx, plan, will)
        ctx.report.note(f"{plan.unit} keeps running: what it was started with stays the same")
        return proof(ctx, plan, before, _only(entry, models), models, door, facts)
    began = time.monotonic()
    ctx.report.working("restarting")
    ctx.manager.reset_failed(plan.unit)
    if plan.running:
        ctx.manager.restart(plan.unit, ctx.timeout)
    else:
        ctx.manager.start(plan.unit, ctx.timeout)
    started = Collector(ctx.host, plan.unit)
    started.begin("service")
    serves = _wait_answer(ctx, plan.unit, door).identity
    ctx.report.step("restarted, answers" if plan.running else "started, answers", seconds=time.monotonic() - began)
    service: Service | None = started.get("service")
    same = service if service is not None and (service.invocation_id, service.main_pid) == serves[:2] else None
    return proof(ctx, plan, before, entry, models, door, _check_config(ctx, plan, will, same), serves)


def _did(entry: Entry) -> str:
    """What was done to the files, in words."""
    if entry.files and all(f.after.kind == "absent" for f in entry.files):
        return f"{' and '.join(f.path for f in entry.files)} removed"
    return "files written" if entry.files else ""


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
        raise Lost(*(Mismatch("dropin_refused_by_systemd", "", "drop-in", said.format(c.text)) for c in wrong))


def _check_effective(ctx: Context, plan: Plan, now: Collector) -> Facts:
    """The environment that the manager will pass, computed anew from what it now has: a later file that wins is found
    here, before the restart, with nothing harmed."""
    facts = now.facts(("service", *PASSED), taken=time.time())
    if facts.service is None:
        raise Failure(f"{plan.unit}: {facts.why('service')}", id="service_gone")
    if facts.effective is None:
        raise Failure(f"the environment can't be computed: {facts.why('effective')}", id="effective_unknown")
    wrong = []
    for name, value, origin in lost(plan.wanted, facts.effective, ""):
        why = lost_lint(name, plan.wanted[name], value, origin)
        wrong.append(Mismatch(why.id, name, "unit", why.text, (why.hint,) if why.hint else ()))
    if wrong:
        raise Lost(*wrong)
    shown = []
    for c in plan.changes:
        name, passed = c.name.removeprefix("OLLAMA_").lower(), facts.effective.value(c.name) is not None
        shown.append(f"{name} {'(secret)' if c.secret else c.new}" if passed else f"no {name}")
    if shown:
        ctx.report.step(f"{ctx.manager.name} will pass {', '.join(shown)} (checked before the restart)")
    return facts


def _wait_answer(ctx: Context, unit: str, door: serving.Door) -> serving.UnitState:
    try:
        return serving.wait_answer(ctx.host, ctx.manager, unit, door, min(60.0, ctx.timeout))
    except NotServing as error:
        facts = gather(ctx.host, unit, (*VERIFY, "log"))
        why = cause(facts)
        if why is None:
            raise
        raise Lost(Mismatch(why.id, "", "process", f"{error.text}: {why.text}", why.evidence)) from None


def _check_config(ctx: Context, plan: Plan, checked: Facts | None, started: Service | None = None) -> Facts:
    """All layers but the runner, once the server listens. Files and environment are those that were `checked` a moment
    ago, where they were, and the service that which was `started`; the proof at the end reads everything anew."""
    known = {f: getattr(checked, f) for f in PASSED} if checked is not None else {}
    known |= {"service": started}
    facts = serving.wait_start(ctx.host, plan.unit, 5.0, known).facts(CONFIG, taken=time.time())
    start = facts.start
    if start is None or start.config is None:
        ctx.report.note("this start printed no `server config` line: proven by the process's environment instead")
        return facts
    found = [m for m in judge(facts, plan.wanted).mismatches if m.name in plan.wanted and m.layer != "runner"]
    if found:
        raise Lost(*found)
    shown = [f"{n}={_printed(n, start.config[n])}" for n in plan.asked if n in start.config and not _secret(n)]
    if shown:
        ctx.report.step(f"server config: {', '.join(shown)}")
    return facts


def _only(entry: Entry, models: tuple[str, ...]) -> Entry:
    """The entry with the named models only: the others stay in memory as they are."""
    named = [full_name(m) for m in models]
    return msgspec.structs.replace(entry, models=tuple(m for m in entry.models if m.name in named))


def _printed(name: str, printed: str) -> str:
    setting = settings.lookup(name)
    return (settings.own_part(setting, printed) if setting else printed) or "(empty)"


def _secret(name: str) -> bool:
    setting = settings.lookup(name)
    return setting is not None and setting.secret


def wait_for(ctx: Context, plan: Plan, seconds: float) -> bool:
    """`--drain`: before the first write, until no request is in flight."""
    return serving.wait_idle(ctx.host, plan.unit, seconds, ctx.report.working)
