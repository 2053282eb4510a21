"""Lines of others that ollamactl takes over: OLLAMA_* variables of the main unit and of `override.conf`.

The main unit is overwritten by Ollama's installer at each upgrade, so what a user wrote there is lost. What is taken
over stands in our drop-in afterwards, and exactly those assignments are gone from the admin's file: every other byte
stays.
"""

from __future__ import annotations

import re

import msgspec

from ollamactl.core import lint, settings
from ollamactl.core.dropin import Managed, dropin_path, env_file_path
from ollamactl.core.facts import Effective, UnitFile
from ollamactl.core.lint import Lint
from ollamactl.core.parse import unitfile
from ollamactl.core.parse.quoting import split

_ENDS = re.compile(r"[^\n\r\0]*(?:\n\r?\0?|\r\n?\0?|\0|$)")
# Values with these are taken over as they are: they work, and the warning is shown.
_HARMLESS = ("api_exposed_without_auth", "client_side_variable_in_service", "kv_type_without_flash_attention")


class Edit(msgspec.Struct, frozen=True):
    """A file of others with lines taken out."""

    path: str
    before: str
    after: str


class Adopted(msgspec.Struct, frozen=True):
    values: dict[str, str] = {}
    edits: tuple[Edit, ...] = ()
    left: tuple[Lint, ...] = ()  # what stays where it is, and why


class _Place(msgspec.Struct, frozen=True):
    """OLLAMA_* words of one logical `Environment=` line."""

    names: tuple[str, ...]
    others: bool  # other variables stand in the line too
    line: unitfile.Line


def paths(unit: str) -> tuple[str, str]:
    """The files of this unit alone that may be edited: not those that a package owns, or that instances share."""
    return f"/etc/systemd/system/{unit}", f"/etc/systemd/system/{unit}.d/override.conf"


def adoptable(unit: str, files: tuple[UnitFile, ...], now: Effective, ours: Managed, release: str) -> Adopted:
    """What can be taken over, and what not. Only variables whose value in force comes from such a line, or from us,
    move: the service's environment stays the same."""
    values: dict[str, str] = {}
    left: list[Lint] = []
    places = {f.path: _places(f) for f in files if f.path in paths(unit) and f.missing is None}
    names = dict.fromkeys(n for found in places.values() for p in found for n in p.names)
    for name in names:
        why = _stays(name, unit, now, ours, release)
        if why:
            left.append(Lint("not_adopted", "warning", f"{name} stays where it is: {why}", "", name))
            continue
        variable = now.variables[name]
        if name not in ours.values and variable.value is not None:
            values[name] = variable.value
    kept = {x.name for x in left}
    edits = []
    for file in files:
        if file.path not in places:
            continue
        after, hard = _without(file, places[file.path], {n for n in names if n not in kept})
        for number in hard:
            text = f"{file.path}:{number} holds other variables over several lines too and is not edited; ours wins"
            left.append(Lint("not_adopted", "warning", text))
        if after != file.text:
            edits.append(Edit(file.path, file.text, after))
    for other in files:
        if other.path not in (*paths(unit), dropin_path(unit)) and other.missing is None:
            found = dict.fromkeys(n for p in _places(other) for n in p.names)
            if found:
                text = f"{', '.join(found)} in {other.path} stays: only {unit} itself and its override.conf are edited"
                left.append(Lint("not_adopted", "warning", text))
    return Adopted(values, tuple(edits), tuple(left))


def taken(before: str, after: str) -> list[str]:
    """The OLLAMA_* assignments that a text had before an edit and has no more."""
    kept = _words(after)
    return [w for w in _words(before) if w not in kept]


def _words(text: str) -> list[str]:
    lines = unitfile.parse("", text, "main").assignments
    values = [a.value for a in lines if (a.section, a.key) == ("Service", "Environment")]
    return [w for v in values for w in split(v).words if w.startswith("OLLAMA_")]


def with_edits(files: tuple[UnitFile, ...], edits: tuple[Edit, ...]) -> tuple[UnitFile, ...]:
    """The unit's files as they will be."""
    texts = {e.path: e.after for e in edits}
    return tuple(
        msgspec.structs.replace(unitfile.parse(f.path, texts[f.path], f.role), text=texts[f.path])
        if f.path in texts
        else f
        for f in files
    )


def _stays(name: str, unit: str, now: Effective, ours: Managed, release: str) -> str:
    variable = now.variables.get(name)
    setting = settings.lookup(name)
    if name in ours.unset:
        return ""
    if variable is None:
        return "its value holds a specifier that is not known here"
    if setting is None:
        near = settings.nearest(name)
        return "Ollama knows no such variable" + (f"; did its author mean {near}?" if near else "")
    own = (*paths(unit), dropin_path(unit), env_file_path(unit))
    if variable.value is None or variable.origin.file not in own:
        origin = variable.origin
        where = f"{origin.file}:{origin.line}" if origin.file else origin.layer
        return f"{where} wins over it"
    wrong = [
        x
        for x in lint.lint(Managed({name: variable.value}), {name: variable.value}, release, frozenset())
        if x.severity == "error" and x.id not in _HARMLESS
    ]
    return wrong[0].text if wrong else ""


def _places(file: UnitFile) -> list[_Place]:
    found: list[_Place] = []
    section = ""
    heard = {a.line for a in file.assignments if a.section == "Service" and a.key == "Environment"}
    for line in unitfile.lines(file.text):
        body = line.text.strip(unitfile.BLANKS)
        if body.startswith("["):
            section = body[1:-1]
        _, equals, value = line.text.partition("=")
        if section != "Service" or not equals or line.first not in heard:
            continue
        words = split(value.strip(unitfile.BLANKS))
        names = [w.partition("=")[0] for w in words.words]
        mine = tuple(n for n in names if n.startswith("OLLAMA_"))
        if mine and not words.error:
            found.append(_Place(mine, len(mine) < len(names), line))
    return found


def _without(file: UnitFile, places: list[_Place], names: set[str]) -> tuple[str, list[int]]:
    """The file's text without the assignments of `names`, and the lines where that can't be done."""
    rows = [row for row in _ENDS.findall(file.text) if row]
    gone: set[int] = set()
    hard: list[int] = []
    for place in places:
        taken = [n for n in place.names if n in names]
        line = place.line
        if not taken:
            continue
        if not place.others and len(taken) == len(place.names):
            gone |= {line.first, *(number for number, _ in line.joined)}
        elif line.joined:
            hard.append(line.first)
        else:
            rows[line.first - 1] = _spliced(rows[line.first - 1], set(taken))
    return "".join(row for number, row in enumerate(rows, 1) if number not in gone), hard


def _spliced(row: str, names: set[str]) -> str:
    """A line without some of its words, each with the blanks before it (the first: those after it)."""
    at = row.index("=") + 1
    head, rest = row[:at], row[at:]
    for start, end in reversed(_spans(rest)):
        if split(rest[start:end]).words[0].partition("=")[0] not in names:
            continue
        if rest[:start].strip(unitfile.BLANKS):
            start = len(rest[:start].rstrip(unitfile.BLANKS))
        else:
            end += len(rest[end:]) - len(rest[end:].lstrip(" \t"))
        rest = rest[:start] + rest[end:]
    return head + rest


def _spans(value: str) -> list[tuple[int, int]]:
    """Where the words of a value stand."""
    found: list[tuple[int, int]] = []
    at, size = 0, len(value)
    while at < size:
        if value[at] in unitfile.BLANKS:
            at += 1
            continue
        start, quote = at, ""
        while at < size and (quote or value[at] not in unitfile.BLANKS):
            if value[at] == "\\":
                at += 1
            elif quote:
                quote = "" if value[at] == quote else quote
            elif value[at] in "\"'":
                quote = value[at]
            at += 1
        found.append((start, min(at, size)))
    return found
