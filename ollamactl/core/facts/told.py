"""What a pasted text tells beside log lines and unit files."""

from __future__ import annotations

from ollamactl.core.facts.log import LogEvent
from ollamactl.core.facts.record import Record


class ToldVariable(Record, frozen=True, kw_only=True):
    """A variable that a pasted text sets outside of unit files: in a shell, `docker run -e`, a compose file, …"""

    name: str
    value: str
    scope: str  # shell, docker, compose, launchctl, plist, windows, snap, env
    where: str = ""
    line: int = 0
    text: str = ""


class Told(Record, frozen=True, kw_only=True):
    """What a pasted text holds beside log lines and unit files."""

    variables: tuple[ToldVariable, ...] = ()
    messages: tuple[LogEvent, ...] = ()  # of clients, tools and other programs; `kind` as in core/parse/told
    world: str = ""  # docker, snap, nixos, wsl, darwin, windows, or empty
