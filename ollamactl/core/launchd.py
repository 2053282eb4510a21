"""What we manage of a server that launchd starts: our file read back, and the environment that follows from it.

Our file is one of three (`Launch.holds`):

    brew-file  lines between two marks in brew's environment file of the formula, which `brew services` merges with
               the formula's own variables at each start
    plist      an agent or daemon of our own, which stands in for another one (that is left as it is, and disabled):
               all its keys, and its environment with ours over it
    session    an agent that runs `launchctl setenv` at login, for what Ollama.app inherits
"""

from __future__ import annotations

import plistlib
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from ollamactl.core.dropin import Managed
from ollamactl.core.facts import AppSettings, Effective, EnvFile, Launch, Origin, UnitFile, Variable
from ollamactl.core.parse import brew as brew_words
from ollamactl.core.parse import plist
from ollamactl.core.parse.launchctl import Job

DAEMONS = "/Library/LaunchDaemons"
AGENTS = "/Library/LaunchAgents"
PREFIX = "ollamactl."  # of the labels of our jobs
SESSION = "ollamactl.environment"  # label of the agent that sets variables at login
OURS = "ollamactl.ollama"  # label of an agent that stands in for none
BEGIN = "# ollamactl: begin. Written by `ollamactl apply`, taken away by `ollamactl reset`."
END = "# ollamactl: end"
_MARK = re.compile(r"<!-- ollamactl (set|absent|secret): ([\w ]*)-->")
_ADDED = frozenset({"XPC_SERVICE_NAME", "OSLogRateLimit", "XPC_FLAGS"})  # by launchd itself


def state_of(job: Job | None) -> tuple[str, str]:
    """A job's state in the words that systemd has for it: (active, sub). None: it is not loaded."""
    if job is None:
        return "inactive", "not loaded"
    if job.state == "running":
        return "active", "running"
    failed = bool(job.last_signal) or job.last_exit not in (None, 0)
    if job.state in ("spawn scheduled", "waiting") or not job.runs:
        return "activating", "auto-restart" if failed else job.state
    return ("failed" if failed else "inactive"), job.state or "not running"


def invocation(label: str, pid: int | None, started: float | None) -> str:
    """What tells one run of a server from another."""
    return f"{label}/{pid}/{started or 0:.2f}" if pid else ""


def given(job: Job) -> dict[str, str]:
    """A loaded job's own variables: those of its plist as it was when it was loaded."""
    return {k: v for k, v in job.environment.items() if k not in _ADDED}


# -- our file --


def managed(holds: str, text: str | None) -> Managed:
    """Our file, read back; a file that is absent, or not ours, manages nothing."""
    if text is None:
        return Managed()
    if holds == "brew-file":
        return _of_block(text)
    marks = {kind: names.split() for kind, names in _MARK.findall(text)}
    values = plist.load(text.encode("utf-8", "surrogateescape")) or {}
    if holds == "session":
        words = [w for w in values.get("ProgramArguments", []) if isinstance(w, str)]
        pairs = words[2:] if words[1:2] == ["setenv"] else []
        environment = dict(zip(pairs[::2], pairs[1::2], strict=False))
    else:
        environment = values.get("EnvironmentVariables", {})
    found = {n: environment[n] for n in marks.get("set", ()) if isinstance(environment.get(n), str)}
    secret = tuple(n for n in marks.get("secret", ()) if n in found)
    return Managed(dict(sorted(found.items())), tuple(marks.get("absent", ())), secret)


def _of_block(text: str) -> Managed:
    values: dict[str, str] = {}
    absent: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    lines = text.split("\n")
    block = lines[_span(lines)[0] : _span(lines)[1]]
    for line in block[1:-1]:
        if line.startswith("# absent: "):
            absent = tuple(line.removeprefix("# absent: ").split())
        elif line.startswith("# secret: "):
            secret = tuple(line.removeprefix("# secret: ").split())
        elif "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            values[name.strip()] = value.strip()
    values = {n: v for n, v in values.items() if n not in absent}
    return Managed(dict(sorted(values.items())), absent, tuple(n for n in secret if n in values))


def _span(lines: list[str]) -> tuple[int, int]:
    """Where our block stands in the lines of a file: [from, to), empty at the end where there is none."""
    start = next((n for n, line in enumerate(lines) if line.strip() == BEGIN), None)
    if start is None:
        return len(lines), len(lines)
    stop = next((n for n, line in enumerate(lines) if n > start and line.strip() == END), len(lines) - 1)
    return start, stop + 1


def with_block(text: str | None, after: Managed) -> str | None:
    """brew's environment file with our block at its end, where a later line wins; every other byte as it is. None:
    nothing is left in it. Raises ValueError for a value that brew's reader would change."""
    for name, value in after.values.items():
        if value != value.strip() or "\n" in value or "\r" in value:
            raise ValueError(f"{name}: brew's environment file can't hold a value with blanks at its ends")
    lines = (text or "").split("\n")
    start, stop = _span(lines)
    rest = "\n".join(lines[:start] + lines[stop:])
    rest += "\n" if rest and not rest.endswith("\n") else ""
    if after.empty:
        return rest or None
    block = [BEGIN]
    block += [f"# secret: {' '.join(after.in_file)}"] if after.in_file else []
    block += [f"# absent: {' '.join(after.unset)}"] if after.unset else []
    block += [f"{n}={v}" for n, v in after.values.items()] + [f"{n}=" for n in after.unset] + [END]
    return rest + "\n".join(block) + "\n"


def merged_environment(base: Mapping[str, str], now: Managed) -> dict[str, str]:
    """A plist's variables with ours over them."""
    return {n: v for n, v in ({**base, **now.values}).items() if n not in now.unset}


def other_keys(base: bytes | None, program: tuple[str, ...], log: str) -> str:
    """The XML of every key but Label and EnvironmentVariables that our plist takes from the one for which it stands
    in; where there is none, those that a server needs."""
    values: dict[str, Any] | None = plist.load(base) if base is not None else None
    if values is None:
        values = {"ProgramArguments": list(program), "KeepAlive": True, "RunAtLoad": True}
        values |= {"StandardOutPath": log, "StandardErrorPath": log} if log else {}
    kept = {k: v for k, v in values.items() if k not in ("Label", "EnvironmentVariables", "Disabled")}
    text = plistlib.dumps(kept).decode()
    return text[text.index("<dict>") + 7 : text.rindex("</dict>")] if kept else ""


# -- the environment --


def effective(
    launch: Launch,
    domain: Mapping[str, str] | None,
    unit_files: Iterable[UnitFile],
    env_files: Iterable[EnvFile],
    app: AppSettings | None,
) -> Effective:
    """What the next start gets: the domain's variables, over them the job's plist and brew's environment file; over
    the domain's, for Ollama.app, its own settings. `unit_files` are the base plist, then ours."""
    made: dict[str, Variable] = {}
    problems = [] if domain is not None else [f"the environment of {launch.domain or 'launchd'} is not known"]

    def put(name: str, value: str | None, origin: Origin) -> None:
        old = made.get(name)
        lost = (*old.shadowed, (old.value, old.origin)) if old is not None else ()
        shadowed = tuple((v, o) for v, o in lost if v is not None)
        made[name] = Variable(name=name, value=value, origin=origin, shadowed=shadowed)

    session = managed("session", next((f.text for f in unit_files if f.path == launch.own_file), None))
    for name, value in (domain or {}).items():
        ours = launch.holds == "session" and session.values.get(name) == value
        put(name, value, Origin(layer="environment", file=launch.own_file) if ours else Origin(layer="manager"))
    for file in unit_files if launch.holds != "session" else ():
        problems += [f"{file.path}: {file.missing}"] if file.missing else []
        problems += [f"{file.path}: {p.why}" for p in file.problems]
        if file.path == launch.own_file and launch.holds == "plist":
            gone = managed("plist", file.text).unset
            for name in gone:
                put(name, None, Origin(layer="unset", file=file.path))
        for one in file.assignments:
            has = made.get(one.key)
            if has is None or has.value != one.value or has.origin.layer == "manager":
                put(one.key, one.value, Origin(layer="environment", file=file.path, line=one.line))
    for env in env_files:
        problems += [f"{env.path}: {env.missing}"] if env.missing and env.missing.kind != "absent" else []
        for entry in env.entries:
            # brew can't take a variable away; to Ollama an empty one is none.
            put(entry.name, entry.value or None, Origin(layer="brew-file", file=env.path, line=entry.line))
    if app is not None and launch.kind == "app":
        for name, value in app.variables.items():
            put(name, value, Origin(layer="app", file=app.path))
    return Effective(variables=made, problems=tuple(problems))


def unit_file(path: str, text: str, *, ours: bool = False) -> UnitFile:
    """A plist as a file of the service: its variables as assignments, with the lines on which they stand."""
    from ollamactl.core.facts import Assignment, UnitProblem

    found = plist.parse(text.encode("utf-8", "surrogateescape"))
    lines = tuple(
        Assignment(section="EnvironmentVariables", key=n, value=v, line=plist.key_line(text, n))
        for n, v in found.environment.items()
    )
    wrong = (UnitProblem(line=0, text="EnvironmentVariables", why=found.problem),) if found.problem else ()
    return UnitFile(path=path, role="dropin" if ours else "main", assignments=lines, problems=wrong, text=text)


def brew_file(path: str, text: str) -> EnvFile:
    return brew_words.parse_env_file(path, text)


def restart_commands(launch: Launch, label: str = "") -> tuple[str, ...]:
    """What a person types to start the server anew with what the files say. `label`: the job that runs it now."""
    if launch.kind == "app":
        return (f"pkill -x Ollama; open -j -a {shlex.quote(launch.app)}",)
    if launch.holds == "brew-file":
        return ("brew services restart ollama",)
    path = launch.own_file if launch.managed else launch.plist
    sudo = "sudo " if launch.domain == "system" else ""
    name = label or (launch.own_label if launch.managed else launch.label)
    if not path:
        return ()
    return (
        f"{sudo}launchctl bootout {launch.domain}/{name}",
        f"{sudo}launchctl bootstrap {launch.domain} {shlex.quote(path)}",
    )
