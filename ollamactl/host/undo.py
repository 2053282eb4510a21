"""How a change begins and ends; putting the host back after one that failed or was interrupted."""

from __future__ import annotations

import errno
import os
import shlex
import time
from collections.abc import Callable

import msgspec

from ollamactl.core.cause import cause
from ollamactl.core.facts import Start
from ollamactl.core.feeds import Collector
from ollamactl.core.mismatch import Mismatch
from ollamactl.core.plan import RUNS
from ollamactl.errors import Exit, Failure
from ollamactl.host import entryfiles, journal, serving
from ollamactl.host.context import Context, Interrupted, Lost, Result, deafen, signals_wait
from ollamactl.host.journal import Entry
from ollamactl.host.serving import VERIFY, LoadFailed, NotServing, gather

AGAIN = "sudo ollamactl recover"


class UnderWay(msgspec.Struct):
    """A change while it is made: how all of it so far is undone, and what the history will say of it."""

    entry: Entry
    summary: str


class Back(Exception):
    """All went well, and what was before is to come back: the text is what the history says."""


def transact(ctx: Context, change: UnderWay, forward: Callable[[], Result]) -> Result:
    """The undo on the disk, then `forward`; then the end is written down, or everything is put back. What is neither
    an error nor a signal is raised again afterwards. The caller holds the lock."""
    began = time.monotonic()
    try:
        result = _transact(ctx, change, forward)
    except Interrupted as error:  # heard in the instant between two handlers; no other signal is heard after it
        deafen()
        if ctx.store.open_entry() is None:
            raise
        result = _given_up(ctx, change.entry, error)
    return msgspec.structs.replace(result, seconds=time.monotonic() - began)


def _transact(ctx: Context, change: UnderWay, forward: Callable[[], Result]) -> Result:
    try:
        if (wrong := _unwritten(ctx, change.entry)) is not None:
            return Result(status="restored", entry=change.entry.id, mismatches=(wrong,))
        ctx.manager.arm(change.entry.unit)
        result = forward()
        deafen()
        close(ctx, msgspec.structs.replace(change.entry, outcome="applied", summary=change.summary))
        return result
    except BaseException as error:
        deafen()
        result = _given_up(ctx, change.entry, error)
        if not isinstance(error, (Exception, Interrupted)):
            raise
        return result


def _unwritten(ctx: Context, entry: Entry) -> Mismatch | None:
    """Writes how to undo; why it could not be: nothing is touched then."""
    try:
        ctx.store.begin(entry)
        return None
    except OSError as error:
        ctx.store.drop()
        found = mismatches(error)[0]
        wrong = msgspec.structs.replace(found, text=f"{found.text}; how to undo can't be kept, so nothing was touched")
        ctx.report.step(wrong.text, ok=False)
        return wrong


def _given_up(ctx: Context, entry: Entry, error: BaseException) -> Result:
    wrong = mismatches(error)
    for mismatch in wrong:
        ctx.report.step(mismatch.text, ok=False, detail=mismatch.evidence)
    return back(ctx, entry, wrong, wrong[0].text if wrong else str(error))


class Undone(msgspec.Struct):
    """What an undo could not do. `conflicts` are files that someone else changed meanwhile: they are left.
    `problems` can be mended, by `commands`; the transaction stays open for `recover`."""

    restarted: bool = False
    conflicts: tuple[str, ...] = ()
    problems: list[str] = msgspec.field(default_factory=list)
    commands: list[str] = msgspec.field(default_factory=list)

    def problem(self, text: str, *commands: str) -> None:
        self.problems.append(text)
        self.commands += [c for c in commands if c not in self.commands]


def undo(ctx: Context, entry: Entry) -> Undone:
    """The host as the entry found it: files, systemd, the service and its models."""
    began = time.monotonic()
    found = Undone()
    ctx.report.working("putting the host back")
    found.conflicts, failed = entryfiles.undo_files(entry)
    for error in failed:
        found.problem(f"{error.filename or 'a file'}: {error.strerror or error}", *_look(error))
    if failed:
        found.commands.append(AGAIN)
    try:
        if entry.unit == journal.FRONT:
            from ollamactl.host import nginxd  # only where a front is undone

            nginxd.restore(ctx.manager, entry, ctx.timeout)
        else:
            ctx.manager.reload(entry.kept, entry.unit)
            _restore_service(ctx, entry, found)
    except Exception as error:  # whatever it is: the transaction stays open, and it is said
        said = mismatches(error)[0].text
        first = ("sudo nginx -t",) if entry.unit == journal.FRONT else ()
        found.problem(said, *first, *ctx.manager.restart_commands(entry.unit), AGAIN)
    if not found.problems and not found.conflicts:
        ctx.report.undone("previous settings restored and verified", time.monotonic() - began)
    return found


def _look(error: OSError) -> tuple[str, ...]:
    """What shows why a file could not be written."""
    where = shlex.quote(os.path.dirname(str(error.filename or "")) or "/")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (f"df -h {where}",)
    return (f"findmnt -T {where}",) if error.errno == errno.EROFS else ()


def _restore_service(ctx: Context, entry: Entry, found: Undone) -> None:
    """The service in the state that it had, and reading what it read. A process that was never touched stays."""
    was, now = entry.service, ctx.manager.state(entry.unit)
    if was.active not in RUNS:
        if now.active in (*RUNS, "deactivating") and now.invocation != was.invocation:
            ctx.manager.stop(entry.unit, ctx.timeout)
            now = ctx.manager.state(entry.unit)
        if now.active == "failed" and was.active != "failed":
            ctx.manager.reset_failed(entry.unit)
        elif was.active == "failed" and now.active != "failed":
            ctx.report.note(f"{entry.unit} had failed before; it is stopped now")
        return
    untouched = now.invocation == was.invocation and now.main_pid == was.main_pid and not now.job
    if untouched and now.active in RUNS:
        return
    if now.load == "not-found" and not now.main_pid:
        ctx.report.note(f"{entry.unit} is no longer installed; only its files were put back")
        return
    try:
        ctx.manager.reset_failed(entry.unit)
        found.restarted = True
        ctx.manager.restart(entry.unit, ctx.timeout)
        if was.active == "active":  # else it did not serve before either (flapping): it is as it was
            _serves_again(ctx, entry, found)
    except Failure as error:
        _explain(ctx, entry, error, found)


def _serves_again(ctx: Context, entry: Entry, found: Undone) -> None:
    now = Collector(ctx.host, entry.unit)
    door = serving.door(ctx.host, entry.unit, now.get("effective"), now.get("service"))
    pid = serving.wait_answer(ctx.host, ctx.manager, entry.unit, door, min(60.0, ctx.timeout)).main_pid
    start: Start | None = serving.wait_start(ctx.host, entry.unit, 5.0).get("start")
    all_back = not found.conflicts and not found.problems  # else it reads something else, and that has been said
    for name, value in entry.values.items():
        has = (start.config or {}).get(name) if start else None
        if all_back and has is not None and has != value:
            found.problem(f"{name} runs with {has}, before it was {value}", "sudo ollamactl verify", AGAIN)
    for model in entry.models:
        left = serving.remaining(model, entry.started, time.time())
        if left is None:
            continue  # it would have been unloaded by now
        try:
            serving.load(ctx.host, door, pid, msgspec.structs.replace(model, keep_alive=left), ctx.timeout)
        except LoadFailed as error:
            ctx.report.note(f"{error.text} (it was loaded before)")


def _explain(ctx: Context, entry: Entry, error: Failure, found: Undone) -> None:
    """Why the service could not be brought back, and what to type."""
    unit = shlex.quote(entry.unit)
    load = ctx.manager.state(entry.unit).load
    if load == "masked":
        found.problem(f"{error.text}: someone masked it meanwhile", f"sudo systemctl unmask {unit}", AGAIN)
        return
    if load == "not-found":
        text = f"{error.text}: its unit file is gone"
        found.problem(text, f"put {unit}'s unit file back (Ollama's installer writes it)", AGAIN)
        return
    facts = gather(ctx.host, entry.unit, (*VERIFY, "log"))
    why = cause(facts) if isinstance(error, NotServing) else None
    text = f"{error.text}: {why.text}" if why else error.text
    look = ctx.manager.log_command(entry.unit)
    holder = serving.port_holder(facts) if why is not None and why.id == "port_in_use" else None
    found.problem(text, f"sudo kill {holder}" if holder else look, AGAIN)


def mismatches(error: BaseException) -> tuple[Mismatch, ...]:
    """What an error that ended a change says to its reader."""
    if isinstance(error, Back):
        return ()
    if isinstance(error, Lost):
        return error.mismatches
    if isinstance(error, Failure):
        return (Mismatch(error.id, "", "", error.text, (error.hint,) if error.hint else ()),)
    if isinstance(error, Interrupted):
        return (Mismatch("interrupted", "", "", f"interrupted by {error}"),)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return (Mismatch("system_error", "", "", f"{where}{error.strerror or error}"),)
    return (Mismatch("internal_error", "", "", f"{type(error).__name__}: {error}"),)


def back(ctx: Context, entry: Entry, wrong: tuple[Mismatch, ...], summary: str) -> Result:
    """Undoes an open transaction and closes it, unless something is left to do: then it stays open for `recover`."""
    done = undo(ctx, entry)
    restored = not done.conflicts and not done.problems
    if not done.problems:
        outcome: journal.Outcome = "restored" if restored else "not-restored"
        close(ctx, msgspec.structs.replace(entry, outcome=outcome, summary=summary, conflicts=done.conflicts))
    elif AGAIN not in done.commands:
        done.commands.append(AGAIN)
    return Result(
        status="restored" if restored else "not-restored",
        entry=entry.id,
        mismatches=wrong,
        restarted=done.restarted,
        conflicts=done.conflicts,
        problems=tuple(done.problems),
        commands=tuple(done.commands),
    )


def close(ctx: Context, entry: Entry) -> None:
    """Ends the transaction in the journal and disarms the recovery at boot. Where an undone one can't be written
    down (a full disk), it is left out of the history rather than left open."""
    try:
        ctx.store.end(entry)
    except OSError as error:
        if entry.outcome == "applied":
            raise
        ctx.store.drop()
        ctx.report.note(f"the history could not be written: {error.filename}: {error.strerror}")
    try:
        ctx.manager.disarm()
    except OSError as error:
        ctx.report.note(f"{error.filename}: {error.strerror} (it does nothing, and can be removed)")


def recover(ctx: Context, tell: Callable[[Entry], None]) -> Result | None:
    """Finishes an interrupted transaction by undoing it; None where there is none. Removes what a kill left behind.
    The caller holds the lock."""
    with signals_wait():
        ctx.store.sweep()
        entry = ctx.store.open_entry()
        if entry is None:
            ctx.manager.disarm()
            return None
        if entry.outcome != "open":  # it had ended; only the rename was cut off
            close(ctx, entry)
            return None
        tell(entry)
        return back(ctx, entry, (), "interrupted")


def recover_first(ctx: Context, tell: Callable[[Entry], None]) -> None:
    """Before another change: an interrupted one is undone. Raises Failure where that can't be done."""
    result = recover(ctx, tell) if ctx.store.open_entry() is not None else None
    if result is not None and result.status == "not-restored":
        said = "; ".join((*result.conflicts, *result.problems))
        hint = " && ".join(result.commands) or "look at what is named, then: sudo ollamactl verify"
        raise Failure(
            f"an interrupted change could not be undone: {said}", hint=hint, code=Exit.NOT_RESTORED, id="not_restored"
        )
