"""The manual page, from the commands themselves: what `--help` says is what `man` says.

`python packaging/man/manpage.py > ollamactl.1`; SOURCE_DATE_EPOCH is the page's date.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import time
from collections.abc import Iterator

import click

from ollamactl import __version__
from ollamactl.cli import COMMANDS, group

EXITS = (
    ("0", "Well: applied and verified, nothing to do, or nothing found."),
    ("1", "Findings at or above --fail-on, or a setting that does not run as it was set."),
    ("2", "Usage."),
    ("3", "A change failed and the host is as it was."),
    ("4", "A change failed and the host could not be put back."),
    ("5", "Could not look: denied, locked, no server."),
    ("6", "Refused before anything was touched."),
)
FILES = (
    ("/etc/systemd/system/UNIT.d/zz-ollamactl.conf", "The settings, as a drop-in that is read last."),
    ("/etc/ollamactl/UNIT.env", "Settings that are secret, or that another environment file would win against."),
    ("/etc/ollamactl/doctor-ignore", "Checks of doctor that this host ignores: lines of an ID and a reason."),
    ("/etc/ollamactl/doctor.env", "Options of doctor as the timer runs it."),
    ("/var/lib/ollamactl", "History, and how to undo what is open."),
)
ENVIRONMENT = (
    ("NO_COLOR", "No colours."),
    ("OLLAMACTL_TRACEBACK", "Where a fault of ollamactl itself lies."),
)


def escaped(text: str) -> str:
    """Text as roff shows it unchanged: no escapes, real hyphens, no line that is taken for a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def paragraphs(help: str) -> Iterator[str]:
    """A command's help text: paragraphs are filled, those that click keeps (`\\b`) stay as they are."""
    for block in re.split(r"\n[ \t]*\n", inspect.cleandoc(help)):
        if block.startswith("\b"):
            yield ".PP\n.nf\n.RS 4\n" + escaped(block[1:].strip("\n")) + "\n.RE\n.fi"
        else:
            yield ".PP\n" + escaped(" ".join(block.split()))


def listed(rows: Iterator[tuple[str, str]]) -> Iterator[str]:
    for name, text in rows:
        yield f".TP\n\\fB{escaped(name)}\\fR\n{escaped(text)}"


def options(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, str]]:
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None and "--help" not in parameter.opts:
            yield record


def synopsis(command: click.Command, ctx: click.Context) -> str:
    return " ".join(command.collect_usage_pieces(ctx))


def page() -> str:
    """The page in roff."""
    top = click.Context(group, info_name="ollamactl")
    day = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
    lines = [
        f'.TH OLLAMACTL 1 "{day}" "ollamactl {__version__}" "User Commands"',
        ".SH NAME",
        "ollamactl \\- change the settings of an Ollama host and prove that the change took",
        ".SH SYNOPSIS",
        "\\fBollamactl\\fR [\\fB\\-\\-version\\fR] \\fICOMMAND\\fR [\\fIOPTIONS\\fR]",
        ".SH DESCRIPTION",
        *paragraphs(group.help or ""),
        ".SH COMMANDS",
    ]
    for name in COMMANDS:
        command = group.get_command(top, name)
        assert command is not None
        ctx = click.Context(command, info_name=name, parent=top)
        lines += [f'.SS "{escaped(f"ollamactl {name} {synopsis(command, ctx)}")}"', *paragraphs(command.help or "")]
        lines += listed(options(command, ctx))
    lines += [".SH EXIT STATUS", *listed(iter(EXITS)), ".SH FILES", *listed(iter(FILES))]
    lines += [".SH ENVIRONMENT", *listed(iter(ENVIRONMENT))]
    lines += [".SH SEE ALSO", ".BR systemctl (1),", ".BR journalctl (1)"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
