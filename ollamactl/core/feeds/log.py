"""Feeds of the log: the lines of the current invocation, from wherever the unit sends them."""

from __future__ import annotations

import msgspec

from ollamactl.core.facts import (
    Install,
    Log,
    Service,
    Start,
    UnitFile,
)
from ollamactl.core.feeds import installs
from ollamactl.core.feeds.collector import FEEDS, Collector, Unknown, ahead, feed
from ollamactl.core.parse import (
    journal,
    unitfile,
)
from ollamactl.core.source import Missing, Reading, Source, command

HEAD_BYTES = 512 << 10  # of the journal of one invocation: the lines of a start stand at its head
TAIL_LINES = 4000  # of it, for loads and requests
DEATH_LINES = 400  # of a unit that systemd starts again and again
SIFTED_BYTES = 48 << 20  # of what is left of it without chatter
SIFTED_SECONDS = 60.0  # journalctl passes over some 150,000 lines a second
JOURNAL_FIELDS = (
    "MESSAGE,PRIORITY,_PID,_COMM,_SYSTEMD_UNIT,_SYSTEMD_INVOCATION_ID,UNIT,INVOCATION_ID,SYSLOG_IDENTIFIER,_TRANSPORT,"
    "_LINE_BREAK,OBJECT_SYSTEMD_UNIT"
)


def journal_args(service: Service) -> tuple[str, ...]:
    """`journalctl` with what every reading of this service's journal needs."""
    namespace = (f"--namespace={service.log_namespace}",) if service.log_namespace else ()
    # --all: without it a message of 4096 bytes or more is printed as null
    return ("journalctl", "--all", "-o", "json", "--no-pager", "-q", f"--output-fields={JOURNAL_FIELDS}", *namespace)


def invocation_match(service: Service) -> tuple[str, ...]:
    """`journalctl`'s match for the lines of the current invocation, PID 1's and journald's about it among them."""
    of = service.invocation_id
    return (
        f"_SYSTEMD_INVOCATION_ID={of}", "+", "_PID=1", f"INVOCATION_ID={of}",
        "+", "_TRANSPORT=driver", f"OBJECT_SYSTEMD_INVOCATION_ID={of}",
    )  # fmt: skip


def sifted(service: Service) -> Source:
    """All lines of the current invocation but the engine's chatter. journalctl looks for it before it makes JSON of a
    line, which is nine tenths of its work."""
    from ollamactl.core.parse import sift

    pattern = f"--grep=^(?!{sift.CHATTER_PATTERN.decode()})"
    args = (*journal_args(service), "--case-sensitive=yes", pattern, *invocation_match(service))
    return command(*args, timeout=SIFTED_SECONDS, limit=SIFTED_BYTES)


def log_sources(
    service: Service, files: tuple[UnitFile, ...], *, whole: bool = False, last: int = 0
) -> tuple[Source, ...]:
    """Where the lines of the current invocation are: its head and its tail, or all of it. A file that the output
    goes to stands in the unit's files only: systemd's own property has no path."""
    for key in ("StandardOutput", "StandardError"):
        target = next((value for value, _, _ in reversed(unitfile.values(files, "Service", key))), "")
        kind, _, path = target.partition(":")
        if kind in ("append", "file", "truncate") and path:
            return (command("tail", "-c", str(HEAD_BYTES * 8), "--", path, limit=HEAD_BYTES * 8),)
    base = journal_args(service)
    if whole:
        lines = (f"_SYSTEMD_UNIT={service.id}", "+", "_PID=1", f"UNIT={service.id}")
        count = ("-n", str(last)) if last else ()
        return (command(*base, *count, *lines, timeout=60.0, limit=1 << 30),)
    mine, *rest = invocation_match(service)
    return (command(*base, mine, limit=HEAD_BYTES), command(*base, "-n", str(TAIL_LINES), mine, *rest))


def _parsed(bodies: list[bytes], *, where: str, unit: str | None = None) -> Log:
    """What lines say. Their parser, with its tables of messages, is imported while journalctl is at work."""
    from ollamactl.core.parse import log

    return log.parse_log(bodies, where=where, unit=unit)


@feed
def log_(c: Collector) -> Log:
    has: Service | None = c.get("service")
    if has is None:
        return of_install(c, installs.apart(c))
    if not has.invocation_id and not c.whole_log:
        raise Unknown(Missing("absent", f"{has.id} was not started since boot"))
    sources = log_sources(has, c.get("unit_files") or (), whole=c.whole_log, last=c.lines)
    if len(sources) == 1:
        where = "journal" if sources[0].args[0] == "journalctl" else sources[0].args[-1]
        return _parsed([c.body(sources[0])], where=where, unit=has.id)
    parsed = _thorough(c, has, sources) if c.thorough else _ends(c, has, sources)
    return _deaths(c, has) if _may_die_again(c, has, parsed.start_of(has.invocation_id)) else parsed


def _may_die_again(c: Collector, service: Service, start: Start | None) -> bool:
    """Whether systemd has started it anew by itself, and the new process has neither said nor done anything yet."""
    said = start is not None and (start.config or start.listening or start.events)
    if not service.n_restarts or said:
        return False
    return not any(x.pid == service.main_pid for x in c.get("listeners") or ())


def _died(lines: Log, start: Start) -> bool:
    """Whether that start ended by itself, and nobody stopped it."""
    since = [e.kind for e in lines.systemd if (e.line or 0) > (start.first_line or 0)]
    return not start.listening or ("main_exited" in since and "stopping" not in since)


def _deaths(c: Collector, service: Service) -> Log:
    """The unit's last lines, of whichever invocation: why the process before died is what matters."""
    lines = (f"_SYSTEMD_UNIT={service.id}", "+", "_PID=1", f"UNIT={service.id}")
    body = c.body(command(*journal_args(service), "-b", "-n", str(DEATH_LINES), *lines))
    return _parsed([body], where="journal", unit=service.id)


FEEDS["log"] = FEEDS.pop("log_")


def _ends(c: Collector, service: Service, sources: tuple[Source, ...]) -> Log:
    """The last lines of an invocation, and where they do not hold its start, the first ones too."""
    tail = c.body(sources[1])
    parsed = _parsed([tail], where="journal", unit=service.id)
    mine = parsed.start_of(service.invocation_id)
    if mine is not None and mine.config is not None and mine.listening:
        return parsed
    head = c.read(sources[0])
    if head.missing is None:
        return _parsed(journal.joined(head.body or b"", tail), where="journal", unit=service.id)
    if head.missing.kind == "unasked":  # a bundle, whose lines are all of that start already
        return parsed
    return msgspec.structs.replace(parsed, gap=str(head.missing))


def _thorough(c: Collector, service: Service, sources: tuple[Source, ...]) -> Log:
    """All of an invocation that says something. Where journalctl can't sift (built without PCRE) or does not come to
    an end, what it gave and the last lines, with the gap named."""
    all_of_it = c.read(sifted(service))
    gap = _gap(all_of_it)
    if not gap:
        return _parsed([all_of_it.body or b""], where="journal", unit=service.id)
    if not all_of_it.body:
        return msgspec.structs.replace(_ends(c, service, sources), gap=gap)
    parsed = _parsed(journal.joined(all_of_it.body, c.body(sources[1])), where="journal", unit=service.id)
    return msgspec.structs.replace(parsed, gap=gap)


def _gap(reading: Reading) -> str:
    """Why a reading of the journal does not hold all that was asked for; empty where it does."""
    if reading.missing is not None:
        return str(reading.missing)
    return reading.stderr if reading.stderr.startswith("cut:") else ""


def of_install(c: Collector, found: Install) -> Log:
    """The log of a server that is no unit of systemd: all of it, or its head and its tail."""
    first, *rest = installs.log_source(c, found)
    head = c.read(first)
    if head.missing is not None:
        raise Unknown(head.missing)
    bodies = [head.body or b""]
    if rest and head.stderr.startswith("cut:"):
        bodies.append(c.body(rest[0]))
    where = "journal" if first.args[0] == "journalctl" else " ".join(first.args[:2])
    return _parsed(bodies, where=where if first.args[0] != "tail" else first.args[-1])


def _last_lines(c: Collector) -> tuple[Source, ...]:
    """The reading that every look at the journal of an invocation begins with."""
    has: Service | None = c.known.get("service")
    if has is None or not has.invocation_id or "unit_files" not in c.known:
        return ()
    if c.whole_log or ":" in c.unit:
        return ()
    _, *last = log_sources(has, c.known["unit_files"])
    return (sifted(has),) if c.thorough and last else tuple(last)


@ahead(_last_lines)
@feed
def start(c: Collector) -> Start:
    has: Service | None = c.get("service")
    lines: Log = c.need("log")
    if has is None:
        if not lines.starts:
            raise Unknown(Missing("absent", f"{lines.where} holds no start of a server"))
        return lines.starts[-1]
    mine = lines.start_of(has.invocation_id)
    if lines.where == "journal" and _may_die_again(c, has, mine):
        mine = next((s for s in reversed(lines.starts) if s.invocation != has.invocation_id), mine)
        mine = mine if mine is not None and _died(lines, mine) else None
    if mine is None and lines.where != "journal":  # a file: nothing ties a line to the invocation but its time
        since = (has.exec_main_start or 0.0) - 1.0
        mine = next((s for s in reversed(lines.starts) if s.at is None or s.at >= since), None)
    if mine is None:
        raise Unknown(Missing("absent", f"no line of invocation {has.invocation_id[:8] or '-'} in the log"))
    return mine
