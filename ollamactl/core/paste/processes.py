"""The state of the server's process, as `ps`, `top`, /proc, a shell, a control group and a container's engine tell.

        PID STAT WCHAN          ELAPSED CMD                   State:  T (stopped)
       1340 Tsl  do_signal_stop 3-04:11 ollama serve          [1]+  Stopped                 ollama serve

The last one counts: what was let go on says nothing any more.
"""

from __future__ import annotations

import re

from ollamactl.core.paste import screens
from ollamactl.core.paste.screens import Lines

STOPPED = "server_stopped"
_COLUMN = ("STAT", "S")  # of `ps` and of `top`
_HEADER = re.compile(r"\s*(?:[A-Z%][\w%+]*\s+){3,}(?:CMD|COMMAND|ARGS)\s*$")
_SERVER = re.compile(r"(?:^|[\s/])ollama\s+(?:serve|start)\b|\sollama\s*$")
_STATE = re.compile(r"[RSDTtZIX][<NLsl+]*")
_OF_AUX = re.compile(r"\S+\s+\d+\s+[\d.]+\s+[\d.]+\s+\d+\s+\d+\s+\S+\s+(?P<state>[A-Zt]\S*)\s")
_OF_AX = re.compile(r"\s*\d+\s+\S+\s+(?P<state>[A-Zt][<NLsl+]*)\s+\d+:\d+\s")
_OF_PROC = re.compile(r"(?:.*\s)?State:\s+(?P<state>[A-Zt]) \(|\s*\d+ \(ollama\) (?P<stat>[A-Zt]) \d")
_OF_SHELL = re.compile(
    r"\[\d+\][+ -]*(?:\d+ )?\s*(?:Stopped|suspended|[Aa]ngehalten)\b.*\bollama (?:serve|start)\b"
    r"|Job \d+, .*\bollama (?:serve|start)\b.* has stopped"
)
_OF_CONTAINER = re.compile(r"\bollama\b.*\bUp [^()]*\(Paused\)|\"Paused\": true|\"Status\": \"paused\"")
_CGROUP = re.compile(r"ollama\S*/cgroup\.(?:freeze|events)\b")
_FROZEN = re.compile(r"1|frozen 1")
_GOES_ON = re.compile(
    r"\bkill -(?:SIG)?(?:CONT|18)\b|\b(?:docker|podman)\b.*\bunpause\b|\bsystemctl thaw\b|^(?:bg|fg)\b"
)


def stopped(lines: Lines) -> tuple[int, str] | None:
    """The line (its number and text) by which the server's process is halted, or None."""
    found: tuple[int, str] | None = None
    command, column = "", -1
    for number, text in lines:
        asked = screens.prompt(text.rstrip())
        if asked is not None:
            command, column = asked, -1
            found = None if _GOES_ON.search(asked) else found
        elif _HEADER.match(text):
            column = next((at for at, word in enumerate(text.split()) if word in _COLUMN), -1)
        elif (state := _state(text, command, column)) is not None:
            found = (number, text.strip()) if state else None
    return found


def _state(text: str, command: str, column: int) -> bool | None:
    """Whether the line shows the server halted; None where it shows no state of it."""
    if _OF_SHELL.match(text) or _OF_CONTAINER.search(text):
        return True
    if _CGROUP.search(command):
        return _FROZEN.fullmatch(text.strip()) is not None or None
    if found := _OF_PROC.match(text):
        return (found["state"] or found["stat"]) in "Tt"
    if not _SERVER.search(text):
        return None
    words = text.split()
    if 0 <= column < len(words) and _STATE.fullmatch(words[column]):
        return words[column][0] in "Tt"
    found = _OF_AUX.match(text) or _OF_AX.match(text)
    return found["state"][0] in "Tt" if found else None
