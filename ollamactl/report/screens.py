"""Screens of the commands that change a host."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from typing import Any

from ollamactl.core import settings
from ollamactl.core.facts import Facts
from ollamactl.core.inflight import in_flight
from ollamactl.core.ours import FileChange
from ollamactl.core.plan import RUNS, Plan
from ollamactl.errors import Exit, Failure
from ollamactl.host.apply import Result
from ollamactl.host.journal import Entry, Holder
from ollamactl.report import envelope, text
from ollamactl.report.rows import rows_json
from ollamactl.report.text import Terminal, clean, columns, size


def header(facts: Facts) -> str:
    """One line: the unit, the release, the GPUs."""
    elsewhere = facts.install.key if facts.install else "no service"
    parts = [facts.service.id if facts.service else elsewhere]
    parts.append(f"Ollama {facts.version}" if facts.version else "Ollama, release not known")
    for gpu in facts.gpus or ():
        name = gpu.name.removeprefix("NVIDIA ").removeprefix("GeForce ")
        held = size(gpu.total)
        free = size(gpu.free).removesuffix(held[-4:]) if gpu.total is not None else size(gpu.free)
        parts.append(f"{name}, {free} of {held} free" if gpu.free is not None else name)
    if facts.gpus == ():
        parts.append("no GPU")
    return " · ".join(parts)


class Apply:
    """The screen of one change; also where its steps are collected for JSON. `quiet`: JSON is wanted."""

    def __init__(self, terminal: Terminal, *, quiet: bool = False, diff: bool = False, command: str = "apply") -> None:
        self.out = terminal
        self.quiet = quiet
        self.diff = diff
        self.command = command
        self.facts = Facts()
        self.gpu_containers: tuple[str, ...] = ()
        self.steps: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.memory_rows: list[list[str]] = []  # what models are predicted to take, before and after
        self.memory: list[dict[str, Any]] = []
        self.memory_notes: list[str] = []
        self._shown = False

    # -- what the transaction reports --

    def step(self, said: str, *, ok: bool = True, seconds: float | None = None, detail: tuple[str, ...] = ()) -> None:
        self.steps.append({"text": said, "ok": ok, "seconds": seconds, "detail": list(detail)})
        if self.quiet:
            return
        self._timed("✓" if ok else "✗", said, seconds, "ok" if ok else "error")
        for line in detail:
            self.out.wrap(line, indent=6)

    def undone(self, said: str, seconds: float | None = None) -> None:
        self.steps.append({"text": said, "ok": True, "seconds": seconds, "undo": True})
        if not self.quiet:
            self._timed("↺", said, seconds)

    def _timed(self, mark: str, said: str, seconds: float | None, kind: str = "") -> None:
        width = min(self.out.width, 78)
        took = f"{seconds:.2f} s" if seconds is not None else ""
        if len(said) + len(took) + 6 > width:
            self.out.wrap(said + (f"  {took}" if took else ""), indent=2, hang=4, mark=mark, kind=kind)
        else:
            shown = self.out.paint(mark, kind) if kind else mark
            self.out.line(f"  {shown} {clean(said)}{took.rjust(width - len(clean(said)) - 4)}".rstrip())

    def note(self, said: str) -> None:
        self.notes.append(said)
        if not self.quiet:
            self.out.wrap(f"· {said}", indent=2, hang=4)

    def working(self, said: str) -> None:
        if not self.quiet:
            self.out.working(said)

    def waiting(self, holder: Holder) -> None:
        terminal = Terminal(sys.stderr)
        if not self.quiet:
            terminal.line(f"waiting for {clean(holder.command)} (pid {holder.pid}, since {text.clock(holder.since)})")

    def interrupted_before(self, entry: Entry) -> None:
        said = f"a change of {text.day(entry.started)} was interrupted ({entry.command}); it is undone first"
        self.note(said)

    # -- the plan --

    def plan(self, plan: Plan, facts: Facts) -> None:
        self.facts = facts
        if self.quiet or self._shown:
            return
        self._shown = True
        self.out.wrap(header(facts))
        self.out.line()
        if plan.changes:
            rows = [["change", "now", "new", ""]]
            for c in plan.changes:
                now, new = ("(secret)", "(secret)") if c.secret else (_short(c.now), _short(c.new))
                rows.append([c.name, now, new, c.where])
            rows += self.memory_rows or self._runner_rows(plan)
            self.out.lines(*("  " + line for line in columns(rows, {1, 2}, self.out.table_width - 2, 3)))
        self._warnings(plan)
        for said in self.memory_notes:
            self.out.wrap(said, indent=2, hang=4)
        if count := len(self.gpu_containers):
            which = ", ".join(self.gpu_containers[:5]) + (", …" if count > 5 else "")
            said = f"{count} running container{'s use' if count > 1 else ' uses'} a GPU ({which})"
            whom = "them" if count > 1 else "it"
            self.out.wrap(f"{said}; a daemon-reload can take it from {whom}", indent=2, hang=4)
        flight = in_flight(facts)
        if plan.restart and not flight.idle and flight.sentence():
            self.out.wrap(f"{flight.sentence()}; a restart cuts them (--drain 60 waits for them)", indent=2)
        self.out.line()

    def _warnings(self, plan: Plan) -> None:
        for lint in plan.lints:
            if lint not in plan.refused:
                overridden = " (overridden)" if lint.severity == "error" else ""
                self.out.wrap(f"{lint.text}{overridden}", indent=2, hang=4, mark="warning:", kind="warning")

    def _runner_rows(self, plan: Plan) -> list[list[str]]:
        """What a loaded model's runner will be started with, where the plan changes it."""
        slots = plan.wanted.get("OLLAMA_NUM_PARALLEL")
        if slots is None or "OLLAMA_NUM_PARALLEL" not in plan.asked:
            return []
        read = settings.REGISTRY["OLLAMA_NUM_PARALLEL"].read(slots).printed
        rows = []
        for runner, loaded in zip(self.facts.runners or (), self.facts.loaded or (), strict=False):
            if runner.slots and runner.context_total and "--embedding" not in runner.process.argv:
                count = max(1, int(read))
                per_slot = runner.context_total // runner.slots
                now, new = f"{runner.context_total}/{runner.slots}", f"{per_slot * count}/{count}"
                rows.append([f"{loaded.name}  -c / -np", now, new, "predicted"])
        return rows

    # -- the end --

    def finish(self, plan: Plan, result: Result | None, as_json: bool, *, check: bool = False) -> Exit:
        """Shows how it ended, as text or as JSON; the exit code."""
        code = Exit.OK
        if plan.refused:
            code = Exit.REFUSED
        elif result is not None:
            code = CODES[result.status]
        if as_json:
            self.json(plan, result, code, check=check)
        else:
            self.end(plan, result, code, check=check)
        return code

    def end(self, plan: Plan, result: Result | None, code: Exit, *, check: bool) -> None:
        if result is None and not self._shown:
            if plan.empty and not plan.refused:
                self.out.wrap(header(self.facts))
            else:
                self.plan(plan, self.facts)
        if self.diff:
            self.out.lines(*("  " + clean(line) for line in diff(plan.files)))
        if plan.refused:
            for lint in plan.refused:
                self.out.wrap(lint.text, indent=2, hang=4, mark="✗", kind="error")
                if lint.hint:
                    self.out.wrap(lint.hint, indent=4)
            self.out.line()
            self.out.line(f"Refused; nothing was touched.{'':<24}(exit 6)")
            ids = " ".join(dict.fromkeys(f"--override {x.id}" for x in plan.refused))
            self.out.wrap(f"hint: to go ahead all the same: {ids}", hang=6)
        elif result is None and plan.empty:
            self._warnings(plan)
            self.out.line(self._here(_NOTHING.get(self.command, _NOTHING["apply"])))
        elif result is None:
            for change in plan.files:
                done = "written" if change.after is not None else "removed"
                self.out.wrap(f"{change.path} would be {done}", indent=2)
            if not self._mac:
                self.out.line("  systemd would be reloaded")
            if plan.restart:
                self.out.wrap(f"{plan.unit} would be restarted, and the change verified", indent=2)
            elif not plan.running:
                self.out.wrap(f"{plan.unit} does not run and would not be started", indent=2)
            self.out.line()
            self.out.line("Only checked; nothing was touched.")
        else:
            self._ended(plan, result)

    def _ended(self, plan: Plan, result: Result) -> None:
        for note in result.judgement.notes:
            self.note(note.text)
        if result.status == "applied":
            self._memory(result)
            self.out.line()
            service = result.after.service if result.after is not None else None
            runs = plan.running or (service is not None and service.active_state in RUNS)
            proven = f"{self._done} and verified." if runs else f"{self._done}; the service does not run."
            self.out.line(f"{proven} To undo: sudo ollamactl rollback{self._unit(plan)}")
        elif result.status in ("unchanged", "unproven"):
            self._memory(result)
            self.out.line()
            same = self._here("Nothing to change: files, systemd and process already agree")
            well = result.status == "unchanged"
            self.out.wrap(f"{same}, and so does the runner." if well else f"{same}, but the runner does not (exit 1).")
        elif result.status == "restored":
            self.out.line()
            said = f"Not {self._done.lower()}; the host is as it was."
            self.out.line(f"{said:<53}(exit 3)")
        else:
            self.out.line()
            self.left(result)
            said = f"Not {self._done.lower()}, and the host could not be put back wholly."
            self.out.line(f"{said}    (exit 4)")

    def left(self, result: Result) -> None:
        """What could not be put back, and what to type."""
        for path in result.conflicts:
            self.out.wrap(f"{path} was changed by someone else meanwhile and is left as it is", indent=2, hang=4)
        for problem in result.problems:
            self.out.wrap(problem, indent=2, hang=4, mark="✗", kind="error")
        for command in result.commands:
            self.out.line(f"    {clean(command)}")

    @property
    def _done(self) -> str:
        return {"rollback": "Rolled back", "reset": "Taken away"}.get(self.command, "Applied")

    @property
    def _mac(self) -> bool:
        return self.facts.service is not None and self.facts.service.manager == "launchd"

    def _here(self, said: str) -> str:
        return said.replace("systemd", "launchd") if self._mac else said

    def _unit(self, plan: Plan) -> str:
        return "" if plan.unit == "ollama.service" else f" --unit {plan.unit}"

    def _memory(self, result: Result) -> None:
        from ollamactl.report.rows import memory_lines

        if result.after is not None:
            for line in memory_lines(result.after, self.facts):
                self.out.wrap(line, indent=2, hang=4)

    def json(self, plan: Plan, result: Result | None, code: Exit, *, check: bool) -> None:
        if result is not None:
            status: str = result.status
        else:
            status = "refused" if plan.refused else "unchanged" if plan.empty else "planned"
        mismatches = list(result.mismatches) if result else []
        data: dict[str, Any] = {
            "unit": plan.unit,
            "changed": status == "applied" or (check and not plan.empty and not plan.refused),
            "restarted": bool(plan.restart and (result or (check and not plan.refused))),
            "changes": [
                {"name": c.name, "now": "" if c.secret else c.now, "new": "" if c.secret else c.new, "where": c.where}
                for c in plan.changes
            ],
            "files": [f.path for f in plan.files],
            "diff": "\n".join(diff(plan.files)),
            "lints": [*plan.lints],
            "gpu_containers": list(self.gpu_containers),
            "steps": self.steps,
            "memory": self.memory,
            "notes": self.memory_notes + self.notes + [n.text for n in (result.judgement.notes if result else ())],
            "mismatches": mismatches,
            "rolled_back": status == "restored",
            "history": result.entry if result else None,
            "models": list(result.loaded) if result else [],
            "rows": rows_json(result.judgement) if result else [],
            "seconds": result.seconds if result else 0.0,
            "conflicts": [*result.conflicts, *result.problems] if result else [],
            "commands": list(result.commands) if result else [],
        }
        failures = [Failure(x.text, hint=x.hint, id=x.id) for x in plan.refused]
        failures += [Failure(m.text, hint=m.fix, id=m.id) for m in mismatches]
        envelope.write(envelope.envelope(self.command, code, data, failures, status))


def diff(files: Iterable[FileChange], context: int = 3) -> list[str]:
    """Lines that files lose and get, as `diff -u` shows them; not of those that may hold secrets."""
    found: list[str] = []
    for change in files:
        if change.secret:
            found.append(f"{change.path}: not shown, it may hold secrets")
            continue
        before, after = (change.before or "").splitlines(), (change.after or "").splitlines()
        names = (change.path if change.before is not None else "/dev/null",
                 change.path if change.after is not None else "/dev/null")  # fmt: skip
        lines = difflib.unified_diff(before, after, *names, lineterm="", n=context)
        found += [line.rstrip("\n") for line in lines]
    return found


_NOTHING = {
    "apply": "Nothing to do: files, systemd, process and runner already agree.",
    "rollback": "Nothing to do: the files are as they were then.",
    "reset": "Nothing to do: nothing of ollamactl is here.",
}
CODES = {
    "applied": Exit.OK,
    "unchanged": Exit.OK,
    "unproven": Exit.FINDINGS,
    "restored": Exit.RESTORED,
    "not-restored": Exit.NOT_RESTORED,
}


def _short(value: str) -> str:
    forever = "2562047h47m16.854775807s"
    return "for ever" if value == forever else value if value else "–"
