"""What a report says of one model: the facts without all other models, beside the facts without any.

A line of the log is another model's where it names that one's file, or was printed while that one was being loaded.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import msgspec

from ollamactl.core.checks import Ignored, Report
from ollamactl.core.facts import Facts, Load, LogEvent, Start

T = TypeVar("T")
_FILE = re.compile(r"/[^\s\"=]*/blobs/sha256-[0-9a-f]{64}")


def names_in(facts: Facts) -> tuple[str, ...]:
    """Models that are installed or loaded here."""
    installed, loaded = facts.installed or (), facts.loaded or ()
    return tuple(dict.fromkeys((*(m.name for m in installed), *(m.name for m in loaded))))


def files_in(facts: Facts) -> tuple[str, ...]:
    """Files of models that were loaded, or were to be, as the log and the runners name them."""
    start = facts.start or Start()
    told = [found[0] for event in start.events if (found := _FILE.search(event.text))]
    loads = [load.model for load in start.loads]
    return tuple(dict.fromkeys(f for f in (*loads, *(r.model for r in facts.runners or ()), *told) if f))


def files_of(facts: Facts, name: str) -> frozenset[str]:
    """Those of them that are the model of that name, or whose digest or path it is. The only one there is is meant."""
    files = files_in(facts)
    digest = re.sub("^sha256:", "sha256-", name)
    found = {r.model for r in facts.runners or () if r.name == name} | {f for f in files if digest in f}
    alone = names_in(facts) in ((), (name,)) or [m.name for m in facts.loaded or ()] == [name]
    return frozenset(found or (files if len(files) == 1 and alone else ()))


def of_model(facts: Facts, name: str, files: frozenset[str]) -> Facts:
    """The facts as they were if no other model had been there."""
    return _only(facts, lambda path: path in files, lambda other: other == name)


def report_about(facts: Facts, name: str, files: frozenset[str], run: Callable[[Facts], Report]) -> Report:
    """Findings that the model is the reason of, and errors of the host, which hit it too; the other findings of the
    host are counted as ignored."""
    whole = run(of_model(facts, name, files))
    rest = run(_without(facts, files))
    hosts = {f.check for f in rest.findings}
    other = [f for f in whole.findings if f.check in hosts and f.severity != "error"]
    ignored = tuple(Ignored(f.check, f.severity, f.summary, f"not about {name}") for f in other)
    kept = tuple(f for f in whole.findings if f not in other)
    return msgspec.structs.replace(whole, findings=kept, ignored=(*whole.ignored, *ignored))


def _without(facts: Facts, files: frozenset[str]) -> Facts:
    """The facts without any model. Lines that name none belong to the model where no other one was ever loaded."""
    none = _only(facts, lambda _: False, lambda _: False)
    alone = facts.start is not None and all(load.model in files for load in facts.start.loads)
    if none.start is None or not alone:
        return none
    begun = msgspec.structs.replace(none.start, events=(), counts={}, requests=(), recent=(), failed=())
    return msgspec.structs.replace(none, start=begun)


def _only(facts: Facts, has_file: Callable[[str], bool], has_name: Callable[[str], bool]) -> Facts:
    paths = facts.paths
    if paths is not None:
        paths = {path: state for path, state in paths.items() if "/blobs/" not in path or has_file(path)}
    return msgspec.structs.replace(
        facts,
        start=_start(facts.start, has_file) if facts.start else None,
        runners=_kept(facts.runners, lambda r: has_file(r.model)),
        loaded=_kept(facts.loaded, lambda m: has_name(m.name)),
        installed=_kept(facts.installed, lambda m: has_name(m.name)),
        paths=paths,
    )


def _kept(some: tuple[T, ...] | None, keep: Callable[[T], bool]) -> tuple[T, ...] | None:
    return None if some is None else tuple(one for one in some if keep(one))


def _start(start: Start, has_file: Callable[[str], bool]) -> Start:
    pairs = itertools.zip_longest(start.loads, start.loads[1:])
    whiles = [_while(load, after) for load, after in pairs if not has_file(load.model)]

    def is_of_others(event: LogEvent) -> bool:
        named = _FILE.search(event.text)
        return not has_file(named[0]) if named else any(during(event) for during in whiles)

    kept: list[LogEvent] = []
    counts = Counter(start.counts)
    for event in start.events:
        if is_of_others(event):
            counts[event.kind] -= 1
        else:
            kept.append(event)
    return msgspec.structs.replace(
        start,
        loads=tuple(load for load in start.loads if has_file(load.model)),
        events=tuple(kept),
        counts={kind: count for kind, count in counts.items() if count > 0},
    )


def _while(load: Load, after: Load | None) -> Callable[[LogEvent], bool]:
    """Whether a line was printed while that model was being loaded: until its runner answered, or, where it never did,
    until the next load began."""
    first, last = load.line or 0, after.line if after is not None and after.line else math.inf
    began, took = load.at, load.seconds

    def during(event: LogEvent) -> bool:
        if load.outcome == "loaded":
            if began is None or took is None or event.at is None:
                return False
            return began <= event.at <= began + took
        return first < (event.line or 0) < last

    return during
