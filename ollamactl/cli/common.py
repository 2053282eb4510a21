"""Options and openings that several commands share."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from ollamactl.core.feeds import Collector
from ollamactl.core.source import Host, Missing
from ollamactl.errors import Exit, Failure

if TYPE_CHECKING:
    from ollamactl.host.context import Context
    from ollamactl.host.journal import Store
    from ollamactl.host.serving import Manager
    from ollamactl.report.screens import Apply

F = TypeVar("F", bound=Callable[..., Any])

USUAL = "127.0.0.1:11434"  # where a server listens that nothing was told


class Number(click.FloatRange):
    """A number within bounds: nan is within all of them for click."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if found != found:
            self.fail(f"{value} is no number", param, ctx)
        return found


def _unit_name(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """A name that no program takes for an option of its own."""
    if value.startswith("-"):
        raise Failure(f"{value!r} is no name of a unit", hint="--unit ollama@gpu1", code=Exit.USAGE, id="usage")
    return value


unit_option = click.option(
    "--unit", metavar="NAME", default="", callback=_unit_name,
    help="Service unit, where several run Ollama (ollama@gpu1).",
)  # fmt: skip
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
from_option = click.option(
    "--from",
    "source",
    metavar="PATH",
    help="Look at a bundle, a folder of collected output, or pasted text (- for standard input) instead of this host.",
)
timeout_option = click.option(
    "--timeout", metavar="S", default=300.0, type=Number(1, 86400), help="Seconds for one load, at most. [300]"
)
wait_option = click.option(
    "--wait", metavar="S", default=10.0, type=Number(0, 86400), help="Seconds to wait for another change. [10]"
)
color_option = click.option("--no-color", is_flag=True, help="No colours, as with NO_COLOR.")


def command_line() -> str:
    """The command as the user typed it, for hints."""
    import shlex

    return shlex.join(["ollamactl", *sys.argv[1:]])


def recorded_command() -> str:
    """The command as it is written down and shown to others: without the values of secrets."""
    import shlex

    from ollamactl.core import settings

    words = []
    for word in sys.argv[1:]:
        name, equals, value = word.removeprefix("--set=").partition("=")
        setting = settings.lookup(name)
        if equals and not value.startswith("@") and (setting is None or setting.secret):
            # A variable that is not of the registry may be anything, a token too.
            known = word.startswith("--") and not word.startswith("--set=")
            word = word if known else word[: len(word) - len(value)] + "(secret)"
        words.append(word)
    return shlex.join(["ollamactl", *words])


def open_transaction() -> str:
    """One line about a change that is open, for commands that only read; empty where there is none. Without root
    only the unit that waits for the next boot tells of it."""
    import os

    from ollamactl.host.journal import Store
    from ollamactl.platforms.systemd import BOOT

    store = Store()
    if not os.path.exists(BOOT) and not os.access(os.path.join(store.folder, "open.json"), os.F_OK):
        return ""
    try:
        entry = store.open_entry()
    except Failure as error:
        if error.id != "denied":
            return f"a change of this host is open: {error.text}"
        return "a change of this host is open, under way or interrupted (sudo ollamactl history shows it)"
    if entry is None or entry.outcome != "open":
        return ""
    if (holder := store.under_way()) is not None:
        return f"a change is under way: {holder.command} (pid {holder.pid})"
    return f"a change was interrupted: {entry.command}; to put the host back: sudo ollamactl recover"


def chosen_unit(collector: Collector) -> str:
    """The unit that is meant. Raises Failure: usage with the list where several are possible, unseen where none."""
    found = collector.get("unit")
    if found is None and (other := collector.get("install")) is not None and other.way == "compose":
        return str(other.key)
    if found is None:
        missing: Missing = collector.missing["unit"]
        if missing.kind == "unasked":
            raise Failure(missing.detail, hint="name one: --unit NAME", code=Exit.USAGE, id="several_units")
        if missing.kind == "failed":
            raise Failure(missing.detail, hint=missing.hint, id=missing.kind)
        hint = "another name? --unit NAME; is Ollama installed as a service? systemctl list-units 'ollama*'"
        host = collector.get("system")
        if host is not None and host.os == "darwin":
            hint = "brew services start ollama, or open Ollama.app; another name? --unit NAME"
        elif host is not None and host.init not in ("", "systemd"):
            hint = "start it (ollama serve); one in a container is looked at on the container's host"
        raise Failure(
            f"no Ollama service was found: {missing.detail}",
            hint=hint,
            id="no_unit" if missing.kind == "absent" else missing.kind,
        )
    return str(found)


def this_server(host: Host, unit: str) -> tuple[Collector, str]:
    """What can be known of this host's server, and its address. One that no unit runs is asked where servers usually
    are. Raises Failure (usage) where several units run one and none is named."""
    collector = Collector(host, unit)
    if collector.get("unit") is None:
        missing: Missing = collector.missing["unit"]
        if missing.kind == "unasked" or unit:
            hint = "name one: --unit NAME, or the server's address (--url, --upstream)"
            raise Failure(missing.detail, hint=hint, code=Exit.USAGE, id="several_units")
        return collector, USUAL
    return collector, str(collector.get("address") or USUAL)


def need(collector: Collector, *fields: str) -> None:
    """Facts without which a command can't say anything. Raises Failure with the reason."""
    for field in fields:
        if collector.get(field) is None:
            missing: Missing = collector.missing[field]
            hint = missing.hint or ("run it with sudo" if missing.kind == "denied" else "")
            raise Failure(f"{missing.detail or missing}", hint=hint, id=missing.kind)


def outputs(*paths: str | None) -> None:
    """Files that a command will write at its end can be written: said before minutes of measuring, not after. In /dev
    root would put them in the place of what all programs use (/dev/stdout)."""
    import os

    for path in filter(None, paths):
        folder = os.path.dirname(os.path.abspath(path))
        kernel = os.path.realpath(folder) in ("/dev", "/dev/fd") or os.path.realpath(folder).startswith("/proc/")
        if kernel or not os.path.isdir(folder) or not os.access(folder, os.W_OK):
            raise Failure(f"{folder} is no folder to write into", code=Exit.USAGE, id="usage")


def write_file(path: str, text: str) -> None:
    """A new file, readable by its owner only, takes the place of an old one at once, or not at all."""
    import os

    from ollamactl.host import files

    try:
        files.write(os.path.abspath(path), text.encode("utf-8", "surrogateescape"), 0o600)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}", code=Exit.USAGE, id="usage") from None


def manager_of(host: Host, store: Store, unit: str) -> Manager:
    """What restarts the server that is meant; while a change is open, the one that was being changed."""
    from ollamactl import platforms

    entry = store.open_entry()
    return platforms.of(host, entry.unit if entry is not None else unit).manager(host)


@contextlib.contextmanager
def transaction(host: Host, unit: str, screen: Apply, wait: float, timeout: float) -> Iterator[Context]:
    """The lock, held; a change that was interrupted has been undone. Raises Failure where a signal stops what follows
    before anything is touched: later ones are the transaction's own."""
    import os

    from ollamactl.host import apply as changing
    from ollamactl.host.journal import Store

    store, command, user = Store(), recorded_command(), os.environ.get("SUDO_USER", "")
    with changing.signals_raise():
        try:
            with store.lock(command, wait, screen.waiting):
                manager = manager_of(host, store, unit)
                context = changing.Context(host, manager, store, screen, command, user, timeout)
                changing.recover_first(context, screen.interrupted_before)
                yield msgspec.structs.replace(context, manager=manager_of(host, store, unit))
        except changing.Interrupted as stopped:
            raise Failure(f"interrupted by {stopped}; nothing was changed", id="interrupted") from None
