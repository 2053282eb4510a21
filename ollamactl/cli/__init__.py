"""The command line: chooses where facts come from, calls, renders, exits. No rule lives here.

Commands are imported when they are called, so that `--help` stays fast.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import sys
from typing import Any

import click

from ollamactl import __version__
from ollamactl.errors import Exit, Failure

# command → (module of ollamactl.cli, what `--help` says of it); the order is the order of the list.
COMMANDS: dict[str, tuple[str, str]] = {
    "apply": ("apply", "Change settings, prove that they took, or put the host back."),
    "plan": ("plan", "Say how much memory a model takes, and how many slots fit."),
    "verify": ("verify", "Show each setting in each layer, and where a value was lost."),
    "doctor": ("doctor", "Say what is wrong with this host, with evidence and remedy."),
    "explain": ("doctor", "Explain a check of doctor: why it matters, what to do."),
    "facts": ("facts", "Show what is known of this host, as JSON or in short."),
    "bundle": ("facts", "Write the raw readings, redacted, to a file for others to look at."),
    "tune": ("tune", "Find the number of slots by loading and measuring."),
    "probe": ("probe", "Send concurrent requests: who is served, queued, refused."),
    "front": ("front", "Show or install a reverse proxy with limits, keys and a queue."),
    "history": ("history", "List the changes made here, or show one."),
    "rollback": ("rollback", "Undo a change, as a change that can be undone too."),
    "recover": ("rollback", "Finish a change that was interrupted, by undoing it."),
    "reset": ("rollback", "Take away everything of ours from a unit."),
}


# What is there while a change is open.
OPEN = (
    "/etc/systemd/system/ollamactl-recover.service",
    "/var/lib/ollamactl/open.json",
    "~/Library/Application Support/ollamactl/open.json",
)


class Lazy(click.Group):
    """A group whose commands are imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, text = COMMANDS[name]
        command: click.Command = getattr(importlib.import_module(f"ollamactl.cli.{module}"), name)
        command.short_help = text
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        import difflib

        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            near = difflib.get_close_matches(name, COMMANDS, 1)
            hint = f"did you mean {near[0]}?" if near else "ollamactl --help lists the commands"
            raise Failure(f"there is no command {name}", hint=hint, code=Exit.USAGE, id="usage")
        return super().resolve_command(ctx, args)


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ollamactl", message="%(prog)s %(version)s")
def group() -> None:
    """Changes the settings of an Ollama host and proves that the change took, or puts the host back.

    \b
    sudo ollamactl apply --parallel 4     four requests at a time, proven
    sudo ollamactl verify                 what runs, layer by layer
    """


def main(argv: list[str] | None = None) -> None:
    """Runs a command. Everything that may go wrong for a user leaves as one error with a hint, never a traceback."""
    gc.set_threshold(50_000)  # what is imported stays: looking through it for cycles every 700 objects finds none
    args = sys.argv[1:] if argv is None else argv
    as_json = "--json" in args
    try:
        on_windows(args)
        tell_open(args)
        code: Any = group.main(args=args, standalone_mode=False)
        leave(int(code) if isinstance(code, int) else Exit.OK)
    except Failure as failure:
        fail(failure, args, as_json)
    except click.exceptions.Exit as done:
        leave(done.exit_code)
    except click.UsageError as error:
        hint = " ".join(["ollamactl", *(a for a in args[:1] if a in COMMANDS), "--help"])
        fail(Failure(error.format_message().rstrip("."), hint=hint, code=Exit.USAGE, id="usage"), args, as_json)
    except (click.Abort, KeyboardInterrupt):
        fail(Failure("interrupted", code=Exit.UNSEEN, id="interrupted"), args, as_json)
    except BrokenPipeError:
        leave(Exit.OK)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        fail(Failure(f"{where}{error.strerror or error}", id="system_error"), args, as_json)
    except Exception as error:
        if os.environ.get("OLLAMACTL_TRACEBACK"):
            raise
        said = f"ollamactl itself failed: {type(error).__name__}: {error}"
        hint = "OLLAMACTL_TRACEBACK=1 shows where; ollamactl bundle FILE.tar.gz has what a report needs"
        fail(Failure(said, hint=hint, id="internal_error"), args, as_json)


def on_windows(args: list[str]) -> None:
    """Raises Failure for what can't work on Windows. Ollama's service there is an app of the user's session, whose
    settings are the user's environment variables."""
    if sys.platform != "win32":
        return
    name = next((a for a in args if not a.startswith("-")), "")
    given = {a.partition("=")[0] for a in args}
    works = {"doctor": "--from", "verify": "--from", "facts": "--from", "plan": "", "probe": "--url", "explain": ""}
    if name not in COMMANDS or given & {"-h", "--help"} or works.get(name, "-") in ("", *given):
        return
    raise Failure(
        "ollamactl does not read or change a Windows host",
        hint="what works here: ollamactl plan MODEL.gguf; ollamactl probe MODEL --url http://HOST:11434; ollamactl "
        "doctor --from %LOCALAPPDATA%\\Ollama\\server.log; or run it inside WSL, where Ollama runs under systemd",
        code=Exit.REFUSED,
        id="unsupported",
    )


def tell_open(args: list[str]) -> None:
    """Commands that only read say on standard error that a change is open, and leave it to those that change."""
    name = next((a for a in args if not a.startswith("-")), "")
    elsewhere = any(a in ("-h", "--help") or a.startswith("--from") for a in args)
    changes = name in ("apply", "tune", "rollback", "reset", "recover") and "--check" not in args
    changes = changes or (name == "front" and "--install" in args)
    if name not in COMMANDS or changes or name == "history" or elsewhere:
        return
    if any(map(os.path.lexists, map(os.path.expanduser, OPEN))):  # nothing is imported where nothing is open
        from ollamactl.cli.common import open_transaction
        from ollamactl.report import envelope, text

        if said := open_transaction():
            envelope.OPEN = said
            text.Terminal(sys.stderr).wrap(f"note: {said}", hang=6)


def fail(failure: Failure, args: list[str], as_json: bool) -> None:
    """Shows a failure and leaves with its code: on stderr, or as the JSON envelope."""
    from ollamactl.report import envelope, text

    if as_json:
        name = next((a for a in args if not a.startswith("-")), "")
        failure.hint = text.for_sudo(failure.hint)
        with contextlib.suppress(OSError):
            envelope.write(envelope.envelope(name, failure.code, None, [failure]))
    else:
        terminal = text.Terminal(sys.stderr)
        terminal.wrap(failure.text, hang=7, mark="error:", kind="error")
        if failure.hint:
            terminal.wrap(f"hint: {failure.hint}", hang=6)
    leave(failure.code)


def leave(code: int) -> None:
    """Ends the process; a closed output must not turn into a traceback of the interpreter's own flush."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    atexit.register(gc.freeze)  # all goes with the process: the interpreter need not search it for cycles before
    sys.exit(int(code))
