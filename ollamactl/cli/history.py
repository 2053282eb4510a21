"""`history`: what was changed here, and what one change did."""

from __future__ import annotations

import click

from ollamactl.cli.common import color_option, json_option, unit_option
from ollamactl.cli.restoring import as_text
from ollamactl.core.ours import FileChange
from ollamactl.core.redact import Redactor
from ollamactl.errors import Exit, Failure
from ollamactl.host.journal import Entry, FileUndo, Store
from ollamactl.report import envelope, text
from ollamactl.report.screens import diff
from ollamactl.report.text import Terminal, columns


@click.command()
@click.argument("number", required=False, type=click.IntRange(1), metavar="[N]")
@unit_option
@color_option
@json_option
def history(number: int | None, unit: str, no_color: bool, as_json: bool) -> int:
    """List the changes that ollamactl made on this host, newest last; with N what that one did to which file."""
    store = Store()
    entries, damaged = _entries(store, number, unit)
    try:
        pending = store.open_entry()
    except Failure as error:
        pending, damaged = None, [*damaged, error.text]
    pending = pending if pending is not None and pending.outcome == "open" else None
    if as_json:
        data = {
            "entries": [_shown(e) | ({"diff": "\n".join(_diff(e))} if number else {}) for e in entries],
            "open": _shown(pending) if pending else None,
            "damaged": damaged,
        }
        envelope.write(envelope.envelope("history", Exit.OK, data))
        return Exit.OK
    out = Terminal(colour=False if no_color else None)
    if number:
        _one(out, entries[0])
    elif entries:
        rows = [["#", "when", "unit", "", "what"]]
        rows += [[str(e.id), text.day(e.started), e.unit, _word(e), _what(e)] for e in entries]
        out.lines(*columns(rows, {0}, out.table_width))
    else:
        out.line(f"No change of {unit} was made here yet." if unit else "No change was made here yet.")
    for said in damaged:
        out.wrap(said, hang=2, mark="✗", kind="error")
    if pending is not None:
        out.line()
        said = f"#{pending.id} of {text.day(pending.started)} was interrupted: {pending.command}"
        out.wrap(said, hang=2, mark="✗", kind="error")
        out.wrap("fix: sudo ollamactl recover", indent=2)
    return Exit.OK


def _entries(store: Store, number: int | None, unit: str) -> tuple[list[Entry], list[str]]:
    """The changes that are meant, and what is wrong with those that can't be read."""
    if number is not None:
        return [numbered(store, number)], []
    found, damaged = store.entries()
    return [e for e in found if e.of(unit)], [error.text for error in damaged.values()]


def numbered(store: Store, number: int) -> Entry:
    found = store.entry(number)
    if found is None:
        raise Failure(f"there is no change {number}", hint="ollamactl history", code=Exit.USAGE, id="usage")
    return found


def _what(entry: Entry) -> str:
    changes = [_from_to(n.removeprefix("OLLAMA_"), a, b) for n, a, b in entry.changes]
    return ", ".join(changes) or entry.summary


def _from_to(name: str, before: str, after: str) -> str:
    if before == after and after:
        return f"{name} {after} as before"  # it only moved to another file
    return f"{name} {before or '–'} → {after or '–'}"


def _one(out: Terminal, entry: Entry) -> None:
    by = f" by {entry.user}" if entry.user else ""
    took = f", {entry.ended - entry.started:.1f} s" if entry.ended else ""
    out.wrap(f"#{entry.id} {_word(entry)} · {entry.unit} · {text.day(entry.started)}{by}{took}")
    out.wrap(entry.command, indent=2, hang=4)
    out.line()
    for name, before, after in entry.changes:
        out.wrap(_from_to(name, before, after), indent=2, hang=4)
    if entry.outcome != "applied" and entry.summary:
        out.wrap(entry.summary, indent=2, hang=4, mark="✗", kind="error")
    for path in entry.conflicts:
        out.wrap(f"{path} was changed by someone else meanwhile and was left", indent=2, hang=4)
    out.lines(*("  " + text.clean(line) for line in _diff(entry)))


def _diff(entry: Entry) -> list[str]:
    """What it did to its files, without what may be secret."""
    changes = [
        FileChange(path=f.path, before=as_text(f.before), after=as_text(f.after), secret=_secret(f))
        for f in entry.files
    ]
    redactor = Redactor()
    lines = diff(changes, context=0)
    redactor.learn("\n".join(lines).encode("utf-8", "surrogateescape"))
    return [redactor.text(line) for line in lines]


def _secret(file: FileUndo) -> bool:
    """Environment files, and keys: whatever others may not read."""
    private = any(i.kind == "file" and not i.mode & 0o077 for i in (file.before, file.after))
    return private or file.path.endswith(".env")


def _word(entry: Entry) -> str:
    return entry.kind if entry.outcome == "applied" else f"{entry.kind}, {entry.outcome}"


def _shown(entry: Entry) -> dict[str, object]:
    """An entry without before-images: these may hold secrets."""
    return {
        "id": entry.id,
        "kind": entry.kind,
        "unit": entry.unit,
        "command": entry.command,
        "user": entry.user,
        "started": entry.started,
        "ended": entry.ended,
        "outcome": entry.outcome,
        "files": [f.path for f in entry.files],
        "changes": [{"name": n, "before": a, "after": b} for n, a, b in entry.changes],
        "summary": entry.summary,
        "conflicts": list(entry.conflicts),
    }
