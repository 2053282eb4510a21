"""What a check may ask for by the name of an argument: a field of `Facts`, or something made of several.

A made one is a function here; it raises `Gone` with the reason where what it stands on is missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from ollamactl.core import settings
from ollamactl.core.facts import Compute, Container, Facts, Load, LogEvent, Start
from ollamactl.core.parse.gin import RUNS_A_MODEL
from ollamactl.core.source import Missing


class Gone(Exception):
    """What is needed is not known: which fact, where that is not told by who asked, and why."""

    def __init__(self, missing: Missing, field: str = "") -> None:
        super().__init__(str(missing))
        self.missing = missing
        self.field = field


MADE: dict[str, Callable[[Facts], Any]] = {}


def made(function: Callable[[Facts], Any]) -> Callable[[Facts], Any]:
    MADE[function.__name__] = function
    return function


def lookup(facts: Facts, name: str) -> Any:
    """The value of a need, or Missing."""
    if name in MADE:
        try:
            return MADE[name](facts)
        except Gone as gone:
            return gone.missing
    value = getattr(facts, name)
    return facts.why(name) if value is None else value


def need(facts: Facts, name: str) -> Any:
    value = lookup(facts, name)
    if isinstance(value, Missing):
        raise Gone(value)
    return value


@made
def facts(facts: Facts) -> Facts:
    return facts


class Signs:
    """Lines that say something about the start that is judged, by kind: the server's own, systemd's (`unit:KIND`),
    the kernel's (`kernel:KIND`), and what else a pasted text holds."""

    def __init__(self, events: Iterable[LogEvent], counts: dict[str, int], where: str) -> None:
        self.events = tuple(events)
        self.counts = counts
        self.where = where.rsplit("/", 1)[-1]
        self.by_kind: dict[str, list[LogEvent]] = {}
        for event in self.events:
            self.by_kind.setdefault(event.kind, []).append(event)

    def of(self, *kinds: str) -> list[LogEvent]:
        return [e for kind in kinds for e in self.by_kind.get(kind, ())]

    def has(self, *kinds: str) -> bool:
        return any(kind in self.by_kind for kind in kinds)

    def count(self, *kinds: str) -> int:
        return sum(self.counts.get(kind, len(self.by_kind.get(kind, ()))) for kind in kinds)

    def lines(self, *kinds: str, most: int = 3) -> tuple[str, ...]:
        """The newest lines of these kinds, as evidence."""
        found = self.of(*kinds)[-most:]
        return tuple(f"{self.where}{f':{e.line}' if e.line else ''}: {e.text.strip()}" for e in found)

    def matching(self, *words: str, kinds: Iterable[str] = ()) -> list[LogEvent]:
        """Events whose text holds one of the words (lower case)."""
        events = self.of(*kinds) if kinds else self.events
        return [e for e in events if any(word in e.text.lower() for word in words)]

    def quotes(self, events: Iterable[LogEvent], most: int = 3) -> tuple[str, ...]:
        return tuple(f"{self.where}{f':{e.line}' if e.line else ''}: {e.text.strip()}" for e in list(events)[-most:])


NO_SIGNS = Signs((), {}, "log")


@made
def signs(facts: Facts) -> Signs:
    """Every line about the judged start. Missing where neither a log nor a pasted text was read."""
    if facts.log is None and facts.start is None and not facts.told:
        raise Gone(facts.why("log"))
    start = facts.start
    events = list(start.events) if start else []
    counts = dict(start.counts) if start else {}
    where = facts.log.where if facts.log else "log"
    if facts.log is not None:
        for prefix, some in (("unit:", facts.log.systemd), ("kernel:", facts.log.kernel)):
            for event in some:
                if _of_now(event, facts):
                    events.append(msgspec.structs.replace(event, kind=prefix + event.kind))
    for event in facts.told.messages if facts.told else ():
        events.append(event)
    for event in facts.kernel or ():
        events.append(msgspec.structs.replace(event, kind="kernel:" + event.kind))
    return Signs(events, counts, where)


def _of_now(event: LogEvent, facts: Facts) -> bool:
    """Whether a line of systemd or the kernel is about the state that is judged: not older than a start that serves
    now, or than the last one that served."""
    serving = [s for s in (facts.log.starts if facts.log else ()) if s.listening]
    if not serving:
        return True
    last = serving[-1]
    if facts.start is None and facts.service is not None:  # what is judged has not said anything yet
        return (event.line or 0) > (last.last_line or 0)
    newest = facts.start or last
    if newest is last and not newest.ended:
        here = (event.line or 0) >= (last.first_line or 0) or _crash_before(event, newest, facts)
        return here or (_without_gpu(event, newest) and (event.line or 0) > _end_before(newest, serving))
    return (event.line or 0) > _end_before(newest, serving)


def _end_before(start: Start, serving: list[Start]) -> int:
    """The last line of the newest other start that served."""
    before = next((s for s in reversed(serving) if s is not start), None)
    return (before.last_line if before else 0) or 0


def _without_gpu(event: LogEvent, start: Start) -> bool:
    """Whether this is the kernel on a GPU that cannot be used, as at a boot, and the start found none since."""
    none = bool(start.computes) and all(c.library.lower() == "cpu" for c in start.computes)
    return none and (event.kind in ("gpu_lost", "driver_mismatch") or "fallen off the bus" in event.text)


# how a process ends that the kernel kills for memory: its own report, and systemd's words
OUT_OF_MEMORY = {"oom_killed", "oom_report", "oom_invoked"}


def _crash_before(event: LogEvent, start: Start, facts: Facts) -> bool:
    """Whether this is the server's end after which systemd began this start by itself. Only a log is there, and
    nothing in it shows that the server works since: it may well end so at the next request again."""
    worked = start.loads or any(r.path in RUNS_A_MODEL for r in start.requests)
    if facts.service is not None or facts.log is None or worked:
        return False
    since = [e.kind for e in facts.log.systemd if (event.line or 0) < (e.line or 0) < (start.first_line or 0)]
    if "restart_scheduled" not in since or "stopping" in since:
        return False
    if event.kind in OUT_OF_MEMORY or (event.kind in ("failed", "main_exited") and "oom-kill" in event.text):
        return since.count("restart_scheduled") == 1
    crash = event.kind == "main_exited" and re.search(r"code=dumped|status=2/", event.text) is not None
    return crash and "main_exited" not in since


@made
def release(facts: Facts) -> tuple[int, ...]:
    """Numbers of the release; empty where not known."""
    start: Start | None = facts.start
    return settings.version((start.version if start else "") or facts.version or "")


@made
def config(facts: Facts) -> dict[str, str]:
    """`server config` of the judged start."""
    start: Start = need(facts, "start")
    if start.config is None:
        raise Gone(Missing("absent", "this start printed no `server config`"))
    return start.config


@made
def loads(facts: Facts) -> tuple[Load, ...]:
    """Loads of the judged start, oldest first."""
    start: Start = need(facts, "start")
    return start.loads


@made
def devices(facts: Facts) -> tuple[Compute, ...]:
    """GPUs that the judged start found. Missing where it printed no `inference compute` line."""
    start: Start = need(facts, "start")
    if not start.computes:
        raise Gone(Missing("absent", "this start printed no `inference compute` line"))
    return tuple(c for c in start.computes if c.library.lower() != "cpu" and c.id != "cpu")


class Given(msgspec.Struct, frozen=True):
    """A variable that somebody gave: its value, and where that stands. `scope` is service, process, or where a
    pasted text sets it: shell, docker, compose, launchctl, plist, windows, snap, …"""

    name: str
    value: str
    scope: str
    place: str


@made
def given(facts: Facts) -> tuple[Given, ...]:
    """Variables as given to the service, its process, or named in a pasted text."""
    found: list[Given] = []
    if facts.effective is not None:
        for name, v in facts.effective.variables.items():
            if v.value is not None:
                boxed = v.origin.layer == "container"
                place = f"{v.origin.file}:{v.origin.line}" if v.origin.file else v.origin.layer
                place = f"docker inspect {v.origin.file}: {name}={v.value}" if boxed else place
                mac = facts.service is not None and facts.service.manager == "launchd"
                session = mac and v.origin.layer == "manager" and settings.lookup(name) is not None
                scope = "docker" if boxed else "launchctl" if session else "service"
                found.append(Given(name, v.value, scope, "launchctl print" if session else place))
    if facts.process is not None and facts.process.environ is not None:
        known = {g.name for g in found}
        for name, value in facts.process.environ.items():
            if name not in known:
                found.append(Given(name, value, "process", f"environment of pid {facts.process.pid}"))
    elif facts.service is not None and facts.effective is None:
        for item in facts.service.environment:
            name, _, value = item.partition("=")
            found.append(Given(name, value, "service", "systemctl show"))
    for one in facts.told.variables if facts.told else ():
        found.append(Given(one.name, one.value, one.scope, f"{one.where}:{one.line}: {one.text.strip()}"[:300]))
    if not found and facts.effective is None and not facts.told:
        raise Gone(facts.why("effective"))
    return tuple(found)


@made
def box(facts: Facts) -> Container:
    """The container that is judged. Missing where no container runs Ollama, or a unit does."""
    found = facts.install
    for one in facts.containers or ():
        if found is not None and found.way in ("docker", "podman", "compose", "quadlet") and one.name == found.name:
            return one
    raise Gone(Missing("unasked", "no container is judged") if found is not None else facts.why("install"))


@made
def world(facts: Facts) -> str:
    """What kind of host: linux, darwin, windows, docker, snap, nixos, wsl, colab; empty where nothing tells."""
    if facts.told and facts.told.world:
        return facts.told.world
    if facts.install is not None and facts.install.way in ("docker", "podman", "compose", "quadlet"):
        return "docker"
    if facts.system is not None:
        return facts.system.container or facts.system.os
    return ""
