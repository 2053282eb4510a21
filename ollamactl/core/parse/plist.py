"""Property lists of launchd, XML or binary, as plistlib reads them."""

from __future__ import annotations

import plistlib
from typing import Any
from xml.parsers.expat import ExpatError

import msgspec


class LaunchPlist(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that matter here. `problem` says why the file is none that launchd would take."""

    label: str = ""
    program: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    stdout: str = ""
    stderr: str = ""
    user: str = ""
    working_directory: str = ""
    keep_alive: bool = False
    run_at_load: bool = False
    disabled: bool = False
    problem: str = ""


def load(body: bytes) -> dict[str, Any] | None:
    """The dictionary at the top; None where there is none."""
    try:
        found = plistlib.loads(body)
    except (plistlib.InvalidFileException, ExpatError, ValueError, TypeError, AttributeError, IndexError, KeyError,
            OverflowError, RecursionError, UnicodeError, MemoryError):  # fmt: skip
        return None
    return found if isinstance(found, dict) else None


def parse(body: bytes) -> LaunchPlist:
    """A LaunchAgent or LaunchDaemon. A value in EnvironmentVariables that is no text makes a job that can't start."""
    values = load(body)
    if values is None:
        return LaunchPlist(problem="not a property list")
    environment = values.get("EnvironmentVariables", {})
    if not isinstance(environment, dict):
        return LaunchPlist(label=_text(values.get("Label")), problem="EnvironmentVariables is no dictionary")
    wrong = [str(k) for k, v in environment.items() if not isinstance(v, str)]
    words = values.get("ProgramArguments") or []
    program = tuple(_text(w) for w in words) if isinstance(words, list) else ()
    if not program and values.get("Program"):
        program = (_text(values["Program"]),)
    alive = values.get("KeepAlive", False)
    return LaunchPlist(
        label=_text(values.get("Label")),
        program=program,
        environment={str(k): v for k, v in environment.items() if isinstance(v, str)},
        stdout=_text(values.get("StandardOutPath")),
        stderr=_text(values.get("StandardErrorPath")),
        user=_text(values.get("UserName")),
        working_directory=_text(values.get("WorkingDirectory")),
        keep_alive=bool(alive),
        run_at_load=bool(values.get("RunAtLoad", False)) or alive is True,
        disabled=bool(values.get("Disabled", False)),
        problem=f"EnvironmentVariables: {', '.join(wrong)}: no text" if wrong else "",
    )


def key_line(text: str, key: str) -> int:
    """The line of an XML list on which a key stands; 0 where it does not."""
    mark = f"<key>{key}</key>"
    return next((n for n, line in enumerate(text.splitlines(), 1) if mark in line), 0)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
