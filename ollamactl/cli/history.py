"""`history`, `rollback`, `recover`, `reset`: what was changed here, and how it is taken back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import click

from ollamactl import platforms
from ollamactl.cli.common import (
    chosen_unit,
    color_option,
    command_line,
    json_option,
    need,
    recorded_command,
    unit_option,
)
from ollamactl.core import plan as planning
from ollamactl.core.facts import Facts
from ollamactl.core.feeds import Collector
from ollamactl.core.ours import FileChange, Ours
from ollamactl.core.plan import Plan
from ollamactl.core.source import Host
from ollamactl.errors import Exit, Failure
from ollamactl.host import apply as changing
from ollamactl.host import files, nginxd
from ollamactl.host.apply import Context, Kind
from ollamactl.host.journal import Entry, Store
from ollamactl.host.live import LiveHost
from ollamactl.report import envelope, screens, text
from ollamactl.report.text import Terminal, columns


@click.command(short_help="List the changes made here.")
@unit_option
@color_option
@json_option
def history(unit: str, no_color: bool, as_json: bool) -> int:
    """List the changes that ollamactl made on this host, newest last."""
    store = Store()
    entries = [e for i in store.ids() if (e := store.entry(i)) is not None]
    if unit:
        entries = [e for e in entries if e.unit in (unit, f"{unit}.service")]
    pending = store.open_entry()
    if as_json:
        data = {
            "entries": [_shown(e) for e in entries],
            "open": _shown(pending) if pending and pending.outcome == "open" else None,
        }
        envelope.write(envelope.envelope("history", Exit.OK, data))
        return Exit.OK
    out = Terminal(colour=False if no_color else None)
    rows = [["#", "when", "unit", "", "what"]]
    for e in entries:
        what = ", ".join(f"{n.removeprefix('OLLAMA_')} {a or '–'} → {b or '–'}" for n, a, b in e.changes) or e.summary
        rows.append([str(e.id), text.day(e.started), e.unit, _word(e), what])
    out.lines(*(columns(rows, {0}, out.table_width) if entries else ["No change was made here yet."]))
    if pending is not None and pending.outcome == "open":
        out.line()
        said = f"#{pending.id} of {text.day(pending.started)} was interrupted: {pending.command}"
        out.wrap(said, hang=2, mark="✗", kind="error")
        out.wrap("fix: sudo ollamactl recover", indent=2)
    return Exit.OK


def _word(entry: Entry) -> str:
    return entry.kind if entry.outcome == "applied" else f"{entry.kind}, {entry.outcome}"


def _shown(entry: Entry) -> dict[str, object]:
    """An entry without before-images: these may hold secrets."""
    return {
        "id": entry.id,
        "kind": entry.kind,
        "unit": entry.unit,
        "command": entry.command,
        "user": entry.user,
        "started": entry.started,
        "ended": entry.ended,
        "outcome": entry.outcome,
        "files": [f.path for f in entry.files],
        "changes": [{"name": n, "before": a, "after": b} for n, a, b in entry.changes],
        "summary": entry.summary,
        "conflicts": list(entry.conflicts),
    }


@click.command(short_help="Undo a change, as a change that can be undone too.")
@click.argument("number", required=False, type=click.IntRange(1), metavar="[N]")
@unit_option
@click.option("--check", is_flag=True, help="Only show what would be done.")
@click.option("--diff", is_flag=True, help="Show the lines of the files that change.")
@click.option("--timeout", metavar="S", default=300.0, type=click.FloatRange(1, 86400), help="For a load. [300]")
@click.option("--wait", metavar="S", default=10.0, type=click.FloatRange(0, 86400), help="For another change. [10]")
@json_option
def rollback(
    number: int | None, unit: str, check: bool, diff: bool, timeout: float, wait: float, as_json: bool
) -> int:
    """Put the settings back to what they were before change N (see `ollamactl history`), or before the last one.

    It goes through the same transaction as `apply`: verified, and itself in the history.
    """
    host = LiveHost()
    platforms.of(host).may_change(host, unit, command_line())
    store = Store()
    if _entry(store, number, unit).unit == nginxd.UNIT:
        from ollamactl.cli.front import roll_back

        return roll_back(lambda: _entry(store, number, unit), check, timeout, wait, as_json)

    def plan_it(host: Host, screen: screens.Apply) -> Planned:
        entry = _entry(store, number, unit)
        facts = _facts(host, entry.unit)
        plan, images = _back(entry, store, facts, platforms.of(host).ours(Collector(host, entry.unit), facts))
        return plan, facts, images

    return _run("rollback", plan_it, check, diff, timeout, wait, as_json)


@click.command(short_help="Take away everything of ours from a unit.")
@unit_option
@click.option("--check", is_flag=True, help="Only show what would be done.")
@click.option("--diff", is_flag=True, help="Show the lines of the files that change.")
@click.option("--timeout", metavar="S", default=300.0, type=click.FloatRange(1, 86400), help="For a load. [300]")
@click.option("--wait", metavar="S", default=10.0, type=click.FloatRange(0, 86400), help="For another change. [10]")
@json_option
def reset(unit: str, check: bool, diff: bool, timeout: float, wait: float, as_json: bool) -> int:
    """Take everything of ours away from a unit: its drop-in, its environment file, and the front before it (its keys
    stay). The history stays."""
    host = LiveHost()
    platforms.of(host).may_change(host, unit, command_line())

    def plan_it(host: Host, screen: screens.Apply) -> Planned:
        name = chosen_unit(Collector(host, unit))
        facts = _facts(host, name)
        ours = platforms.of(host).ours(Collector(host, name), facts)
        now = ours.managed()
        request = planning.Request(release=tuple(now.values) + now.unset)
        return planning.plan(request, facts, ours), facts, {}

    def front_first(context: Context | None, screen: screens.Apply) -> None:
        if context is not None:
            from ollamactl.platforms import nginx_install

            nginx_install.take_away(context)
        elif os.path.lexists(nginxd.CONF):
            screen.note(f"the front before it would go: {nginxd.CONF}")

    return _run("reset", plan_it, check, diff, timeout, wait, as_json, front_first)


@click.command(short_help="Finish a change that was interrupted, by undoing it.")
@click.option("--timeout", metavar="S", default=300.0, type=click.FloatRange(1, 86400), help="For a load. [300]")
@click.option("--wait", metavar="S", default=10.0, type=click.FloatRange(0, 86400), help="For another change. [10]")
@json_option
def recover(timeout: float, wait: float, as_json: bool) -> int:
    """Finish a change that was interrupted (a kill, a crash, a power loss) by undoing it. Well where there is none."""
    host = LiveHost()
    platforms.of(host).may_change(host, "", command_line())
    store, screen = Store(), screens.Apply(Terminal(), quiet=as_json, command="recover")
    with changing.signals_raise(), store.lock(recorded_command(), wait, screen.waiting):
        result = changing.recover(_context(store, screen, timeout), screen.interrupted_before)
    code = Exit.NOT_RESTORED if result is not None and result.status == "not-restored" else Exit.OK
    if as_json:
        data = {
            "recovered": result is not None,
            "history": result.entry if result else None,
            "conflicts": [*result.conflicts, *result.problems] if result else [],
            "commands": list(result.commands) if result else [],
        }
        envelope.write(envelope.envelope("recover", code, data))
    elif result is None:
        screen.out.line("Nothing to recover: no change was interrupted.")
    elif code == Exit.OK:
        screen.out.line("The host is as it was before that change.")
    else:
        screen.left(result)
        screen.out.line("The host could not be put back wholly.   (exit 4)")
    return code


def _context(store: Store, screen: screens.Apply, timeout: float) -> Context:
    user = os.environ.get("SUDO_USER", "")
    host = LiveHost()
    return Context(host, platforms.of(host).manager(host), store, screen, recorded_command(), user, timeout)


Planned = tuple[Plan, Facts, dict[str, files.Image]]
Planner = Callable[[Host, screens.Apply], Planned]


def _run(
    kind: Kind,
    plan_it: Planner,
    check: bool,
    diff: bool,
    timeout: float,
    wait: float,
    as_json: bool,
    first: Callable[[Context | None, screens.Apply], None] = lambda context, screen: None,
) -> int:
    """`first`: what else is changed before, with the lock held; told without a context where it is only checked."""
    store = Store()
    screen = screens.Apply(Terminal(), quiet=as_json, diff=diff, command=kind)
    if check:
        first(None, screen)
        plan, screen.facts, _ = plan_it(LiveHost(), screen)
        return screen.finish(plan, None, as_json, check=True)
    with changing.signals_raise():
        try:
            with store.lock(recorded_command(), wait, screen.waiting):
                context = _context(store, screen, timeout)
                changing.recover_first(context, screen.interrupted_before)
                first(context, screen)
                plan, facts, images = plan_it(context.host, screen)
                screen.facts = facts
                if plan.refused or plan.empty:
                    return screen.finish(plan, None, as_json)
                screen.plan(plan, facts)
                result = changing.change(context, plan, facts, (), kind, images)
        except changing.Interrupted as stopped:
            raise Failure(f"interrupted by {stopped}; nothing was changed", id="interrupted") from None
    return screen.finish(plan, result, as_json)


def _facts(host: Host, unit: str) -> Facts:
    collector = Collector(host, unit)
    need(collector, *planning.NEEDS)
    return collector.facts((*planning.NEEDS, *planning.NICE), taken=time.time())


def _entry(store: Store, number: int | None, unit: str) -> Entry:
    """The change to undo: number N, or the last one that was applied (and not itself taken back)."""
    if number is not None:
        found = store.entry(number)
        if found is None:
            raise Failure(f"there is no change {number}", hint="ollamactl history", code=Exit.USAGE, id="usage")
        if found.outcome != "applied":
            raise Failure(
                f"change {number} was not applied ({found.outcome}): there is nothing to undo",
                hint="ollamactl history",
                code=Exit.USAGE,
                id="usage",
            )
        return found
    for i in reversed(store.ids()):
        found = store.entry(i)
        if found is not None and found.outcome == "applied" and (not unit or found.unit in (unit, f"{unit}.service")):
            return found
    raise Failure("no change was made here yet", hint="ollamactl history", code=Exit.USAGE, id="usage")


def _back(entry: Entry, store: Store, facts: Facts, ours: Ours) -> tuple[Plan, dict[str, files.Image]]:
    """A plan that restores the files of an entry. Refused where somebody else changed one of them since."""
    changes = []
    images = {}
    for undo in reversed(entry.files):
        now = files.image(undo.path)
        last = [f for i in store.ids() if i >= entry.id and (e := store.entry(i)) and e.outcome == "applied"
                for f in e.files if f.path == undo.path][-1]  # fmt: skip
        if now.digest not in (last.after.digest, undo.before.digest):
            raise Failure(
                f"{undo.path} was changed by someone else since; it is left as it is",
                hint=f"compare: ollamactl rollback --check --diff; or start over: sudo rm {undo.path}",
                code=Exit.REFUSED,
                id="changed_by_others",
            )
        if now.digest != undo.before.digest:
            secret = undo.path.endswith(".env")
            images[undo.path] = undo.before
            changes.append(
                FileChange(
                    path=undo.path,
                    before=_text(now),
                    after=_text(undo.before),
                    mode=undo.before.mode if undo.before.kind == "file" else 0o644,
                    secret=secret,
                )
            )
    names = tuple(n for n, _, _ in entry.changes)
    return planning.plan_of_files(tuple(changes), names, facts, ours), images


def _text(image: files.Image) -> str | None:
    return None if image.kind == "absent" else image.data.decode("utf-8", "surrogateescape")
