"""`rollback`, `recover`, `reset`: how what was changed here is taken back."""

from __future__ import annotations

import os
from collections.abc import Callable

import click
import msgspec

from ollamactl import platforms
from ollamactl.cli.common import (
    chosen_unit,
    command_line,
    json_option,
    manager_of,
    recorded_command,
    timeout_option,
    transaction,
    unit_option,
    wait_option,
)
from ollamactl.cli.history import numbered
from ollamactl.cli.restoring import Planned, everything, left_behind, since
from ollamactl.core.feeds import Collector
from ollamactl.core.source import Host
from ollamactl.errors import Exit, Failure
from ollamactl.host import apply as changing
from ollamactl.host import nginxd
from ollamactl.host.apply import Context, Kind
from ollamactl.host.journal import Entry, Store
from ollamactl.host.live import LiveHost
from ollamactl.host.written import all_since
from ollamactl.report import envelope, screens
from ollamactl.report.text import Terminal


@click.command()
@click.argument("number", required=False, type=click.IntRange(1), metavar="[N]")
@unit_option
@click.option("--check", is_flag=True, help="Only show what would be done.")
@click.option("--diff", is_flag=True, help="Show the lines of the files that change.")
@timeout_option
@wait_option
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
    if _of_front(store, number, unit):
        from ollamactl.cli.front import roll_back

        return roll_back(lambda: _entry(store, number, unit), check, timeout, wait, as_json)

    def plan_it(host: Host, screen: screens.Apply) -> Planned:
        entry = _entry(store, number, unit)
        return since(entry, store, host)

    return _run("rollback", plan_it, check, diff, timeout, wait, as_json)


@click.command()
@unit_option
@click.option("--check", is_flag=True, help="Only show what would be done.")
@click.option("--diff", is_flag=True, help="Show the lines of the files that change.")
@timeout_option
@wait_option
@json_option
def reset(unit: str, check: bool, diff: bool, timeout: float, wait: float, as_json: bool) -> int:
    """Take everything of ours away from a unit: its drop-in, its environment file, and the front before it (its keys
    stay); also of one that was uninstalled meanwhile. The history stays."""
    host = LiveHost()
    platforms.of(host).may_change(host, unit, command_line())
    store = Store()

    def plan_it(host: Host, screen: screens.Apply) -> Planned:
        return everything(_unit_to_clear(unit, store, host), store, host)

    def front_first(context: Context | None, screen: screens.Apply) -> None:
        if context is not None:
            from ollamactl.platforms import nginx_install

            nginx_install.take_away(context)
        elif os.path.lexists(nginxd.CONF):
            screen.note(f"the front before it would go: {nginxd.CONF}")

    return _run("reset", plan_it, check, diff, timeout, wait, as_json, front_first)


@click.command()
@timeout_option
@wait_option
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
    return Context(host, manager_of(host, store, ""), store, screen, recorded_command(), user, timeout)


def _unit_to_clear(unit: str, store: Store, host: Host) -> str:
    """The unit that is meant, or the one that was uninstalled and has something of ours. Raises Failure for none."""
    try:
        return chosen_unit(Collector(host, unit))
    except Failure as error:
        if error.id != "no_unit" or not (gone := left_behind(store, host)):
            raise
        return gone


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
    screen = screens.Apply(Terminal(), quiet=as_json, diff=diff, command=kind)
    if check:
        first(None, screen)
        plan, screen.facts, _ = plan_it(LiveHost(), screen)
        return screen.finish(plan, None, as_json, check=True)
    with transaction(LiveHost(), "", screen, wait, timeout) as context:
        first(context, screen)
        plan, facts, images = plan_it(context.host, screen)
        screen.facts = facts
        if plan.refused or plan.empty:
            return screen.finish(plan, None, as_json)
        context = msgspec.structs.replace(context, manager=manager_of(context.host, context.store, plan.unit))
        screen.plan(plan, facts)
        result = changing.change(context, plan, facts, (), kind, images)
    return screen.finish(plan, result, as_json)


def _of_front(store: Store, number: int | None, unit: str) -> bool:
    """Whether the change to undo is a front's. Where only an interrupted one is there, that is undone first."""
    if store.open_entry() is not None and not store.ids():
        return False
    return _entry(store, number, unit).unit == nginxd.UNIT


def _entry(store: Store, number: int | None, unit: str) -> Entry:
    """The change to undo: number N, or the last one that was applied (and not itself taken back)."""
    if number is not None:
        found = numbered(store, number)
        if found.outcome != "applied":
            raise Failure(
                f"change {number} was not applied ({found.outcome}): there is nothing to undo",
                hint="ollamactl history",
                code=Exit.USAGE,
                id="usage",
            )
        return found
    last = max((e.id for e in store.entries()[0] if e.outcome == "applied" and e.of(unit)), default=0)
    if last:
        return all_since(store, last)[0]
    of = f" of {unit}" if unit else ""
    raise Failure(f"no change{of} was made here yet", hint="ollamactl history", code=Exit.USAGE, id="usage")
