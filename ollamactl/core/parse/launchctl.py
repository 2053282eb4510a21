"""What `launchctl print` and `print-disabled` say. Its output is no interface, so everything is read leniently: a line
that is not understood is passed over, and a block ends where a brace stands at the depth at which it began.

    gui/501/homebrew.mxcl.ollama = {
    <tab>state = running
    <tab>environment = {
    <tab><tab>OLLAMA_KV_CACHE_TYPE => q8_0
    <tab>}
    <tab>pid = 4321
    <tab>last exit code = (never exited)
    }
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

_PAIR = re.compile(r"(.+?) =>? ?(.*)")
_ROW = re.compile(r"(\d+|-)\s+(\S+)\s+(.+)")


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One service. `environment` is what its plist gave when it was bootstrapped; `inherited` is the domain's now,
    which only the next process gets: neither proves what a running process has."""

    target: str = ""
    path: str = ""  # of the plist
    type: str = ""  # LaunchAgent, LaunchDaemon, Submitted, …
    state: str = ""  # running, not running, spawn scheduled, waiting
    program: str = ""
    arguments: tuple[str, ...] = ()
    working_directory: str = ""
    stdout_path: str = ""
    stderr_path: str = ""
    environment: dict[str, str] = {}
    inherited: dict[str, str] = {}
    default: dict[str, str] = {}
    pid: int | None = None
    runs: int = 0
    last_exit: int | None = None  # None: never exited, or ended by a signal
    last_signal: str = ""  # "Killed: 9"
    properties: tuple[str, ...] = ()


class Row(msgspec.Struct, frozen=True):
    """A service in the list of a domain."""

    label: str
    pid: int | None
    status: str  # last exit code, or "-"


class Domain(msgspec.Struct, frozen=True, kw_only=True):
    target: str = ""
    environment: dict[str, str] = {}
    services: tuple[Row, ...] = ()
    disabled: dict[str, bool] = {}  # only labels with an override


class _Block(msgspec.Struct):
    values: dict[str, str] = {}
    lines: list[str] = []
    blocks: dict[str, _Block] = {}


def _tree(text: str) -> tuple[str, _Block]:
    """The outermost block: pairs, bare lines, blocks by their name. What is nested deeper than that is kept too."""
    top = _Block({}, [], {})
    stack: list[tuple[int, _Block]] = [(-1, top)]
    title = ""
    for raw in text.splitlines():
        line = raw.strip("\r ")
        depth = len(line) - len(line.lstrip("\t"))
        body = line.strip()
        if not body:
            continue
        if body == "}":
            while len(stack) > 1 and stack[-1][0] >= depth:
                stack.pop()
            continue
        at = stack[-1][1]
        if body.endswith(" = {") and "=>" not in body:
            name = body.removesuffix(" = {")
            title = title or name
            inner = _Block({}, [], {})
            at.blocks.setdefault(name, inner)
            stack.append((depth, inner))
            continue
        at.lines.append(body)
        if found := _PAIR.fullmatch(body):
            at.values.setdefault(found[1], found[2])
    return title, top.blocks.get(title, top)


def parse_print(text: str) -> Job:
    """`launchctl print DOMAIN/LABEL`."""
    title, block = _tree(text)
    values = block.values
    code = re.match(r"-?\d+", values.get("last exit code", ""))
    arguments = block.blocks.get("arguments")

    def pairs(name: str) -> dict[str, str]:
        found = block.blocks.get(name)
        return dict(found.values) if found else {}

    return Job(
        target=title,
        path=values.get("path", ""),
        type=values.get("type", ""),
        state=values.get("state", ""),
        program=values.get("program", ""),
        arguments=tuple(arguments.lines) if arguments else (),
        working_directory=values.get("working directory", ""),
        stdout_path=values.get("stdout path", ""),
        stderr_path=values.get("stderr path", ""),
        environment=pairs("environment"),
        inherited=pairs("inherited environment"),
        default=pairs("default environment"),
        pid=_number(values.get("pid", "")),
        runs=_number(values.get("runs", "")) or 0,
        last_exit=int(code[0]) if code else None,
        last_signal=values.get("last terminating signal", ""),
        properties=tuple(p.strip() for p in values.get("properties", "").split("|") if p.strip()),
    )


def parse_domain(text: str) -> Domain:
    """`launchctl print DOMAIN`: the environment that its next processes get, its services, what is disabled."""
    title, block = _tree(text)
    rows = []
    listed = block.blocks.get("services")
    for line in listed.lines if listed else ():
        if found := _ROW.fullmatch(line):
            pid = _number(found[1])
            rows.append(Row(found[3].strip(), pid or None, found[2]))
    environment = block.blocks.get("environment")
    off = block.blocks.get("disabled services")
    return Domain(
        target=title,
        environment=dict(environment.values) if environment else {},
        services=tuple(rows),
        disabled=_overrides(off.values) if off else {},
    )


def parse_disabled(text: str) -> dict[str, bool]:
    """`launchctl print-disabled DOMAIN`: label → whether it is disabled; labels without an override are not in it.
    `=> true` of releases before macOS 13 means disabled."""
    found: dict[str, bool] = {}
    for line in text.splitlines():
        if match := re.fullmatch(r'\s*"(.+)" => (\w+)\s*', line):
            found |= _overrides({match[1]: match[2]})
    return found


def _overrides(values: dict[str, str]) -> dict[str, bool]:
    words = {"disabled": True, "true": True, "enabled": False, "false": False}
    return {k.strip('"'): words[v] for k, v in values.items() if v in words}


def _number(text: str) -> int | None:
    found: Any = re.match(r"\d{1,18}", text)
    return int(found[0]) if found else None
