"""A log in any form that people paste -> `facts.Log`: which lines belong to which start of the server.

What the form says of a line (invocation, pid, unit) decides; what stands in the line never does. A `server config`
counts for a start only if the process that printed it is the one that says `Listening on`, and only before that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ollamactl.core.facts import Complaint, Log, LogEvent, Request
from ollamactl.core.parse import gin, slog
from ollamactl.core.parse.entry import Entry, Tally
from ollamactl.core.parse.lines import entries
from ollamactl.core.parse.manager import read_complaint, read_manager
from ollamactl.core.parse.start import Kept, Run

STARTS = 200  # the newest are kept
_SUPPRESSED = re.compile(r"Suppressed (\d+) messages from (\S+)")
_OLLAMA_CHILDREN = ("ollama", "llama")


def parse_log(chunks: Iterable[bytes], *, where: str, unit: str | None = None) -> Log:
    """Reads a log in one pass and constant memory. `where` names it in evidence; `unit` (with or without
    `.service`) leaves out other units' lines, where the form names the unit. Never raises for any content."""
    tally = Tally()
    reader = _Reader(where, unit)
    for entry in entries(chunks, tally):
        reader.take(entry, tally)
    return reader.build(tally)


class _Reader:
    def __init__(self, where: str, unit: str | None) -> None:
        self.where = where
        self.unit = unit if unit is None or "." in unit else unit + ".service"
        self.bound = ""  # a name without "ollama" in it whose lines are the server's
        self.runs: dict[tuple[str, int | None], Run] = {}
        self.by_invocation: dict[str, Run] = {}
        self.order: list[Run] = []
        self.current: Run | None = None
        self.boundary = False  # systemd said that a process ended or began
        self.systemd, self.kernel = Kept(), Kept()
        self.complaints: list[Complaint] = []
        self.suppressed = 0
        self.zone, self.offset = "", 0.0
        self.first_at: float | None = None
        self.last_at: float | None = None

    # -- which lines are the server's --

    def take(self, entry: Entry, tally: Tally) -> None:
        if entry.kernel:
            self._kernel(entry)
        elif entry.journald or entry.ident == "systemd-journald":
            self._journald(entry)
        elif not self._accepts(entry):
            return
        elif entry.manager:
            self._manager(entry)
        else:
            self._service(entry, tally)

    def _accepts(self, entry: Entry) -> bool:
        if self.unit and entry.unit:
            return entry.unit == self.unit
        if entry.manager and not entry.unit:  # text: systemd's lines name the unit
            named = self.unit.removesuffix(".service") if self.unit else "ollama"
            return named in entry.text or "ollama" in entry.text.lower()
        name = entry.unit or entry.ident
        if not name or "ollama" in name.lower():
            self.bound = self.bound or name
            return True
        if not self.bound and (entry.text.startswith("[GIN]") or slog.parse(entry.text) is not None):
            self.bound = name
        return name == self.bound

    def _seen(self, at: float | None) -> None:
        if at is not None:
            self.first_at = at if self.first_at is None else self.first_at
            self.last_at = at

    def _kernel(self, entry: Entry) -> None:
        found = read_manager(entry.text, kernel=True)
        if found is None:
            return
        row, fields = found
        ours = fields.get("name", "").startswith(_OLLAMA_CHILDREN) or "ollama" in fields.get("cgroup", "")
        if ours or "name" not in fields:
            self._seen(entry.at)
            self.kernel.add(_event(row.kind, entry, fields | ({"ours": "1"} if ours else {})), 100)

    def _journald(self, entry: Entry) -> None:
        """Lines that journald did not keep, since there were too many at once."""
        found = _SUPPRESSED.match(entry.text)
        if found is not None and (found[2] == self.unit if self.unit else "ollama" in found[2]):
            self.suppressed += int(found[1][:9])

    def _manager(self, entry: Entry) -> None:
        complaint = read_complaint(entry.text, entry.at)
        if complaint is not None and len(self.complaints) < 500:
            self.complaints.append(complaint)
            return
        found = read_manager(entry.text)
        if found is None:
            return
        row, fields = found
        self._seen(entry.at)
        self.systemd.add(_event(row.kind, entry, fields), 100)
        if row.ends or row.begins:
            run = self.by_invocation.get(entry.invocation) if entry.invocation else self.current
            if row.ends and run is not None:
                run.ended = True
            self.boundary = True

    # -- the server's lines --

    def _service(self, entry: Entry, tally: Tally) -> None:
        text = entry.text
        if text.startswith("[GIN]"):
            self._gin(entry)
            return
        line = slog.parse(text) if text.startswith(("time=", "level=", "source=", "20", "19")) else None
        if line is not None:
            tally.unread += line.cut
            zone = line.time[-6:]
            if zone and zone != self.zone:
                self.zone, self.offset = zone, slog.offset_of(line.time) or (0.0 if zone[-1] == "Z" else self.offset)
        at = entry.at
        if at is None and line is not None:
            at = slog.seconds_of(line.time, self.offset)
        run = self._route(entry, line)
        run.last_line = entry.number
        if run.at is None:
            run.at = at
        self._seen(at)
        if line is not None:
            run.own(line, text, at, entry.number, entry.pid)
            if (run.listening or run.computes) and not run.real:
                self._promote(run)
            if run.listening and run.provisional is not None:
                run.provisional.ended, run.provisional = True, None
        else:
            run.raw(text, at, entry.number, entry.pid)
            if text.startswith("Error: ") and entry.pid is not None and not run.listening and run.pid == entry.pid:
                run.ended = True
                self._promote(run)

    def _gin(self, entry: Entry) -> None:
        found = gin.parse(entry.text)
        if found is None:
            return
        stamp, status, seconds, client, method, path = found
        at = entry.at if entry.at is not None else slog.seconds_of(stamp, self.offset)
        run = self._route(entry, None)
        run.last_line = entry.number
        if run.at is None:
            run.at = at
        self._seen(at)
        run.request(
            Request(
                method=method, path=path, status=status, seconds=seconds, at=at, client=client, line=entry.number
            ),
            entry.text,
        )  # fmt: skip

    # -- which start a line belongs to --

    def _route(self, entry: Entry, line: slog.Line | None) -> Run:
        if entry.pid is None:
            return self._route_without_pid(entry, line)
        run = self.runs.get((entry.invocation, entry.pid))
        begins = line is not None and line.msg == "server config"
        if run is not None and not (run.ended and run.listening and begins):
            return run
        own = line is not None or entry.text.startswith(("Error: ", "Couldn't find '"))
        known = self.by_invocation.get(entry.invocation) if entry.invocation else self.current
        if run is None and known is not None and not own and not (self.boundary and known.ended):
            return known  # a runner that writes for itself (up to 0.3)
        if known is not None and known.pid is None and own and not (known.listening or known.config or known.ended):
            known.pid = entry.pid  # lines without a prefix stood before the journal's: one text, one server
            self.runs[entry.invocation, entry.pid] = known
            return known
        run = self.runs[entry.invocation, entry.pid] = Run(self.where, entry.invocation, entry.pid, entry.number)
        if known is None or (self.boundary and known.ended):
            self._promote(run)
        return run

    def _promote(self, run: Run) -> None:
        """Takes a process for a start of the server."""
        if run.real:
            return
        if run.invocation:
            rival = self.by_invocation.get(run.invocation)
            if rival is not None and rival.listening and not rival.ended:
                return  # an invocation has one server; another process that says so isn't it
            if rival is not None and not rival.listening:
                rival.real = False  # what ran before the server: ExecStartPre
            self.by_invocation[run.invocation] = run
        if self.current is not None and (self.current.invocation != run.invocation or not run.invocation):
            self.current.ended = True
        run.real = True
        self._begin(run)

    def _begin(self, run: Run) -> None:
        self.order.append(run)
        self.current, self.boundary = run, False
        if len(self.order) > STARTS:
            gone = self.order.pop(0)
            self.runs = {key: one for key, one in self.runs.items() if one is not gone}
            self.by_invocation = {key: one for key, one in self.by_invocation.items() if one is not gone}

    def _route_without_pid(self, entry: Entry, line: slog.Line | None) -> Run:
        """Forms that name no process. A second `server config` begins a start only if `Listening on` follows
        before the server is at work; else it was somebody's text."""
        run = self.by_invocation.get(entry.invocation) if entry.invocation else self.current
        if run is None:
            return self._new(entry, None)
        if line is not None:
            routes = line.source.startswith("routes.go") or not line.source
            if line.msg == "server config" and routes and (run.listening or run.config is not None):
                return self._new(entry, run)
            if line.msg.startswith("Listening on ") and routes and run.listening and run.config is None:
                run.ended = True
                return self._new(entry, None)  # releases without `server config`
            if line.plain and line.level and run.slog and run.listening:
                return self._new(entry, run)  # printed before slog is set up
            at_work = line.msg in ("starting llama-server", "starting llama server", "loaded runners")
        else:
            if entry.text.startswith("Error: listen tcp") and run.listening:
                failed = self._new(entry, None)
                failed.ended = True
                return failed
            at_work = entry.text.startswith("[GIN]")
        if run.ended and self.boundary:
            of_client = run.pid is not None and entry.text.startswith("Error: ")  # the journal names the server's pid
            return run if of_client else self._new(entry, None)
        if at_work and run.provisional is not None and not run.listening:
            before = run.provisional
            self.order.remove(run)
            self.current = before
            if entry.invocation:
                self.by_invocation[entry.invocation] = before
            return before
        return run

    def _new(self, entry: Entry, provisional: Run | None) -> Run:
        run = Run(self.where, entry.invocation, entry.pid, entry.number)
        run.provisional, run.real = provisional, True
        if entry.invocation:
            self.by_invocation[entry.invocation] = run
        self._begin(run)
        return run

    def build(self, tally: Tally) -> Log:
        starts = [run for run in self.order if run.real]
        for run in self.runs.values():  # a start whose log ends before it listens
            rival = self.by_invocation.get(run.invocation)
            if run.real or run.config is None or not run.invocation or rival is None:
                continue
            if rival.config is None and not rival.listening:
                starts = [*(one for one in starts if one is not rival), run]
        forms = tally.forms
        form = forms.most_common(1)[0][0] if len(forms) == 1 else "mixed" if forms else ""
        return Log(
            form=form,
            where=self.where,
            starts=tuple(run.build() for run in sorted(starts, key=lambda one: one.first_line)),
            systemd=self.systemd.all(),
            kernel=self.kernel.all(),
            complaints=tuple(self.complaints),
            lines=tally.lines,
            unread=tally.unread,
            suppressed=self.suppressed,
            first_at=self.first_at,
            last_at=self.last_at,
        )


def _event(kind: str, entry: Entry, fields: dict[str, str]) -> LogEvent:
    return LogEvent(
        kind=kind, text=entry.text[:4000], at=entry.at, line=entry.number, pid=entry.pid, fields=fields
    )  # fmt: skip
