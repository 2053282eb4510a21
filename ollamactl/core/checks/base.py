"""Checks: functions whose arguments name the facts that they need; what they yield; and who explains whom.

    @check(weight=70, explains=("service_restart_loop",))
    def port_in_use(service: Service, listeners: Listeners) -> Iterator[Finding]:
        \"""Another process holds the port that the service wants.

        Why: …      Seen: …      Do: …
        \"""

The function's name is the id, the first line of its docstring the title. An argument without a default is needed:
where that fact is missing the check is skipped and says why. One with a default is wanted, and may be None.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import msgspec

from ollamactl.core import remedies
from ollamactl.core.facts import Assignment, Evidence, Facts, LogEvent, Start, UnitFile
from ollamactl.core.needs import Gone, lookup
from ollamactl.core.source import Missing

Severity = Literal["info", "warning", "error"]
ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}
EVIDENCE = 6  # lines of evidence that a finding keeps
TEXT = 400  # characters of each


class Finding(msgspec.Struct, frozen=True):
    """What is wrong: `evidence` are the lines that it rests on, `remedy` a command (or what to write) that cures
    it, `consequences` what follows from it and is not reported beside it, `explains` findings of which this one is the
    reason, though its check in general is not."""

    severity: Severity
    summary: str
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    check: str = ""
    title: str = ""
    consequences: tuple[str, ...] = ()
    weight: int = 50
    explains: tuple[str, ...] = ()


class Skipped(msgspec.Struct, frozen=True):
    """A check that could not look: the fact that it lacks, why, and what would show it."""

    check: str
    fact: str
    reason: str
    hint: str = ""
    kind: str = ""


class Crashed(msgspec.Struct, frozen=True):
    """A check that failed itself. Never the same as "well"."""

    check: str
    error: str


class Ignored(msgspec.Struct, frozen=True):
    check: str
    severity: str
    summary: str
    reason: str = ""


class Report(msgspec.Struct, frozen=True):
    findings: tuple[Finding, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    crashed: tuple[Crashed, ...] = ()
    ignored: tuple[Ignored, ...] = ()
    ran: int = 0
    well: int = 0

    def worst(self) -> Severity | None:
        return self.findings[0].severity if self.findings else None


class Check(msgspec.Struct, frozen=True):
    """One check. `weight`: of several findings of one severity the heavier comes first (the nearer to the root);
    `explains`: findings that are consequences of this one where both are found."""

    id: str
    title: str
    text: str
    function: Callable[..., Iterable[Finding]]
    needs: tuple[str, ...]
    wants: tuple[str, ...]
    weight: int
    explains: frozenset[str]

    def part(self, name: str) -> str:
        """The paragraph of the docstring that begins with `name:`, as one line."""
        found = re.search(rf"^{name}: (.*?)(?=^\w+: |\Z)", self.text, re.M | re.S)
        return " ".join(found[1].split()) if found else ""


CHECKS: dict[str, Check] = {}
Function = Callable[..., Iterable[Finding]]


def check(*, weight: int = 50, explains: Iterable[str] = ()) -> Callable[[Function], Function]:
    """Registers a function as a check."""

    def register(function: Function) -> Function:
        doc = inspect.cleandoc(function.__doc__ or "")
        title, _, text = doc.partition("\n")
        needs: list[str] = []
        wants: list[str] = []
        for name, parameter in inspect.signature(function).parameters.items():
            (needs if parameter.default is inspect.Parameter.empty else wants).append(name)
        name = function.__name__
        CHECKS[name] = Check(
            name, title.rstrip("."), text.strip(), function, tuple(needs), tuple(wants), weight, frozenset(explains)
        )
        return function

    return register


def run(facts: Facts, *, only: Iterable[str] = (), ignore: dict[str, str] | None = None) -> Report:
    """Every check (or those of `only`) on these facts; `ignore` maps ids to reasons."""
    chosen = [CHECKS[name] for name in only] or list(CHECKS.values())
    found: list[Finding] = []
    skipped: list[Skipped] = []
    crashed: list[Crashed] = []
    cache: dict[str, Any] = {}
    well = 0
    for one in chosen:
        made = _arguments(one, facts, cache)
        if isinstance(made, Skipped):
            skipped.append(made)
            continue
        try:
            mine = [_named(one, f, facts) for f in one.function(**made) or ()]
        except Gone as gone:  # on this kind of host it needs more than its arguments tell
            skipped.append(_skipped(one.id, gone.field, gone.missing))
            continue
        except Exception as error:  # a check's own fault must not hide what the others say
            crashed.append(Crashed(one.id, f"{type(error).__name__}: {error}"[:TEXT]))
            continue
        found += mine
        well += not mine
    kept, ignored = _without(_merged(found), ignore or {})
    return Report(tuple(_arranged(kept)), tuple(skipped), tuple(crashed), tuple(ignored), len(chosen), well)


def _arguments(one: Check, facts: Facts, cache: dict[str, Any]) -> dict[str, Any] | Skipped:
    values = {}
    for name in (*one.needs, *one.wants):
        value = cache[name] if name in cache else cache.setdefault(name, lookup(facts, name))
        if isinstance(value, Missing):
            if name in one.needs:
                return _skipped(one.id, name, value)
            continue  # the argument's default
        values[name] = value
    return values


def _skipped(check: str, field: str, missing: Missing) -> Skipped:
    return Skipped(check, field, str(missing), missing.hint or _hint(missing), missing.kind)


def _hint(missing: Missing) -> str:
    return {"denied": "sudo ollamactl doctor", "unasked": "ollamactl doctor on the host itself"}.get(missing.kind, "")


def _named(one: Check, finding: Finding, facts: Facts) -> Finding:
    evidence = tuple(dict.fromkeys(line[:TEXT] for line in finding.evidence if line))[:EVIDENCE]
    weight = one.weight if finding.weight == 50 else finding.weight
    remedy = remedies.of_model(remedies.local(finding.remedy, facts.service), facts)
    return msgspec.structs.replace(
        finding, check=one.id, title=one.title, evidence=evidence, weight=weight, remedy=remedy
    )


def _merged(found: list[Finding]) -> list[Finding]:
    """One finding where several places (a file, the process, a shell) show the same, with the evidence of all."""
    merged: dict[tuple[str, str, str], Finding] = {}
    for one in found:
        key = (one.check, one.severity, one.summary)
        before = merged.get(key)
        if before is not None:
            evidence = tuple(dict.fromkeys((*before.evidence, *one.evidence)))[:EVIDENCE]
            one = msgspec.structs.replace(before, evidence=evidence)
        merged[key] = one
    return list(merged.values())


def _without(found: list[Finding], ignore: dict[str, str]) -> tuple[list[Finding], list[Ignored]]:
    kept = [f for f in found if f.check not in ignore]
    gone = [Ignored(f.check, f.severity, f.summary, ignore[f.check]) for f in found if f.check in ignore]
    return kept, gone


def _arranged(found: list[Finding]) -> list[Finding]:
    """Worst first, root causes before the rest, consequences under what explains them."""
    found = sorted(found, key=_rank)
    present = {f.check for f in found}
    under: dict[str, str] = {}
    for finding in found:
        by = next((c.check for c in found if _explains(c, finding)), "")
        if by:
            under[finding.check] = by
    for name in list(under):  # what is itself explained is no root
        seen = {name}
        while under[name] in under and under[name] not in seen:
            seen.add(under[name])
            under[name] = under[under[name]]
        if under[name] in under:
            del under[name]
    roots = []
    for finding in found:
        if finding.check in under and under[finding.check] in present:
            continue
        mine = [f for f in found if under.get(f.check) == finding.check]
        worst = min((finding, *mine), key=lambda f: ORDER[f.severity]).severity
        told = tuple(dict.fromkeys((*finding.consequences, *(f"{f.check}: {f.summary}" for f in mine))))
        roots.append(msgspec.structs.replace(finding, consequences=told, severity=worst))
    return sorted(roots, key=_rank)


def _explains(cause: Finding, finding: Finding) -> bool:
    if cause.check == finding.check:
        return False
    harmless = cause.severity == "info" and finding.severity != "info"  # what does no harm brings none about
    return finding.check in cause.explains or (finding.check in CHECKS[cause.check].explains and not harmless)


def _rank(finding: Finding) -> tuple[int, int]:
    return ORDER[finding.severity], -finding.weight


# -- words that the checks share --


def quote(event: LogEvent | Evidence | None, where: str = "log") -> str:
    """A line as evidence: where it stands, and its text."""
    if event is None:
        return ""
    place = (event.where if isinstance(event, Evidence) else where).rsplit("/", 1)[-1]
    return f"{place}{f':{event.line}' if event.line else ''}: {event.text.strip()}"


def configured(start: Start | None, *names: str) -> str:
    """What `server config` says of some variables, and where it stands."""
    if start is None or start.config is None:
        return ""
    line = start.config_line
    place = f"{line.where.rsplit('/', 1)[-1]}{f':{line.line}' if line.line else ''}: " if line else ""
    said = " ".join(f"{name}:{start.config[name]}" for name in names if name in start.config)
    return f"{place}server config: {said}" if said else ""


def assignments(
    files: Iterable[UnitFile], key: str, section: str = "Service"
) -> Iterator[tuple[UnitFile, Assignment]]:
    for file in files:
        for one in file.assignments:
            if one.section == section and one.key == key:
                yield file, one


def stated(file: UnitFile, one: Assignment) -> str:
    """A line of a unit file as evidence: where it stands, and what it says."""
    return f"{file.path}:{one.line}: {one.key}={one.value}"


def in_force(files: Iterable[UnitFile], key: str) -> list[tuple[UnitFile, Assignment]]:
    """The assignments of a list that count: those after the last empty one, which drops what stands before it."""
    kept: list[tuple[UnitFile, Assignment]] = []
    for file, one in assignments(files, key):
        kept = [*kept, (file, one)] if one.value.strip() else []
    return kept


def under_wsl(facts: Facts) -> bool:
    """Whether the host is a Linux below Windows."""
    told = facts.told is not None and facts.told.world == "wsl"
    return told or (facts.system is not None and facts.system.container == "wsl")


def gib(n: float | None) -> str:
    if n is None:
        return "?"
    return f"{n / (1 << 30):,.1f} GiB" if n >= 1 << 30 else f"{n / (1 << 20):,.0f} MiB"


def seconds(n: float) -> str:
    return f"{n / 60:.0f} min" if n >= 120 else f"{n:.0f} s" if n >= 10 else f"{n:.2f} s"


def times(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"
