"""Unit files and drop-ins: systemd's grammar, and the lines that it ignores or reads otherwise than meant.

    [Service]                      a section; names are case-sensitive
    # a comment (; too), also between continuation lines
    Environment="A=1" \\
        "B=2"                      a backslash at the end joins the next line
    Environment=                   an empty assignment drops what came before

After systemd.syntax(7); what 252 does with broken files was checked with `systemd-analyze verify`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Literal

import msgspec

from ollamactl.core.facts import Assignment, UnitFile, UnitProblem
from ollamactl.core.parse.quoting import is_utf8
from ollamactl.core.parse.unitkeys import KEYS
from ollamactl.core.parse.unitvalues import STOPS, judge

BLANKS = " \t\n\r"
LONGEST_LINE = 1 << 20  # bytes; a longer one ends systemd's reading of the file
_LINE_END = re.compile("\n\r?\0?|\r\n?\0?|\0")
_BOM = "\ufeff"


class Line(msgspec.Struct, frozen=True):
    """One logical line: `text` with continuations joined, from physical line `first` to `last`. systemd's own
    complaints name `last`. `joined` are the numbers of the lines that continue it (comments left out)."""

    first: int
    last: int
    text: str
    joined: tuple[tuple[int, str], ...] = ()


def lines(text: str) -> Iterator[Line]:
    """Logical lines, without comments; line ends may be LF, CR LF or CR, and a first BOM is left out. A line that
    is too long is the last."""
    parts = _LINE_END.split(text)
    if parts and not parts[-1]:
        parts.pop()
    held = ""
    first = number = 0
    joined: list[tuple[int, str]] = []
    bom = False
    for number, raw in enumerate(parts, 1):
        if raw.lstrip(BLANKS)[:1] in ("#", ";"):
            continue
        if not bom and raw.startswith(_BOM):
            raw, bom = raw[1:], True
        if first:
            joined.append((number, raw))
        else:
            first = number
        held += raw
        if len(held) > LONGEST_LINE:
            yield Line(first, number, held, tuple(joined))
            return
        if (len(held) - len(held.rstrip("\\"))) % 2:
            held = held[:-1] + " "
            continue
        yield Line(first, number, held, tuple(joined))
        held, first, joined = "", 0, []
    if first:
        yield Line(first, number + 1, held, tuple(joined))


def parse(path: str, text: str, role: Literal["main", "dropin"] = "dropin") -> UnitFile:
    """One file's assignments that systemd hears, and its problems in the order of lines.

    `text` is read with surrogateescape. Lines that systemd does not read at all (after a broken header, or a
    fatal setting) are problems too; lines in a section that begins with X- are not.
    """
    assignments: list[Assignment] = []
    problems: list[UnitProblem] = []
    section, header = "", 0
    stopped = ""  # why the rest of the file is not read

    def problem(line: Line, why: str) -> None:
        problems.append(UnitProblem(line=line.first, text=line.text.strip(BLANKS), why=why))

    for line in lines(text):
        body = line.text.strip(BLANKS)
        if not body:
            continue
        if stopped:
            problem(line, f"not read: {stopped}")
            continue
        if len(line.text) > LONGEST_LINE:
            stopped = f"line {line.first} is longer than systemd reads"
            problem(line, f"the line is longer than 1 MiB; {STOPS}")
        elif not is_utf8(body):
            stopped = f"systemd stopped at line {line.first}, which is not UTF-8"
            problem(line, f"not UTF-8; {STOPS}")
        elif body.startswith("["):
            name = body[1:-1]
            if why := _broken_header(body):
                stopped = f"systemd stopped at the broken section header in line {line.first}"
                problem(line, why)
            else:
                section, header = name, line.first
                if name not in KEYS and not name.startswith("X-"):
                    problem(line, _unknown_section(name))
        elif not header:
            problem(line, "assignment outside of section: a header such as [Service] must stand before it")
        elif section.startswith("X-"):
            continue
        elif section not in KEYS:
            problem(line, f"in section [{section}] (line {header}), which systemd ignores")
        elif "=" not in body:
            problem(line, "no `=` in the line")
        else:
            key, _, value = body.partition("=")
            key, value = key.strip(BLANKS), value.strip(BLANKS)
            if key in KEYS[section]:
                judged = judge(section, key, value, _swallowed(line))
                for why in judged.problems:
                    problem(line, why)
                if judged.fatal:
                    stopped = f"systemd stopped at line {line.first} ({key}=)"
                if not judged.ignored:
                    assignments.append(Assignment(section=section, key=key, value=value, line=line.first))
            elif not key.startswith("X-"):
                problem(line, _unknown_key(section, key, value))
    return UnitFile(path=path, role=role, assignments=tuple(assignments), problems=tuple(problems), text=text)


def values(files: tuple[UnitFile, ...], section: str, key: str) -> list[tuple[str, UnitFile, Assignment]]:
    """Every assignment of one key over the files, in systemd's order."""
    return [(a.value, f, a) for f in files for a in f.assignments if a.section == section and a.key == key]


def stop(file: UnitFile) -> UnitProblem | None:
    """The line at which systemd gives the file up. A unit whose own file has one does not load; of a drop-in, the
    lines before it count."""
    return next((problem for problem in file.problems if problem.why.endswith(STOPS)), None)


def _broken_header(body: str) -> str:
    if not body.endswith("]"):
        return f"broken section header: no ] at its end; {STOPS}"
    if any(char in body for char in "\"'\\") or not body.isprintable():
        return f"broken section header: characters that can't stand there; {STOPS}"
    return ""


def _unknown_section(name: str) -> str:
    for real in KEYS:
        if name.strip().lower() == real.lower() and name != real:
            return f"unknown section: it is called [{real}], exactly so; systemd ignores all that follows"
    return "unknown section; systemd ignores all that follows"


def _unknown_key(section: str, key: str, value: str) -> str:
    if not key:
        return "no name before the `=`"
    if key.startswith("export ") or (key.isupper() and "_" in key and " " not in key):
        name = key.removeprefix("export ").strip()
        return f'not a setting of systemd: write Environment="{name}={value.strip(chr(34))}" under [Service]'
    for real in KEYS[section]:
        if key.lower() == real.lower():
            return f"unknown key: it is called {real}, with these letters in upper and lower case"
    for other, names in KEYS.items():
        if other != section and key in names:
            return f"{key}= belongs under [{other}], not [{section}]"
    for other, names in KEYS.items():
        for real in names:
            if key.lower() == real.lower():
                return f"unknown key: {real}= belongs under [{other}]"
    near = get_close_matches(key, KEYS[section], 1, 0.8)
    return "unknown key" + (f"; did its author mean {near[0]}?" if near else "")


def _swallowed(line: Line) -> str:
    """A continuation line that looks like an assignment or header of its own."""
    for number, text in line.joined:
        word = text.strip(BLANKS)
        key = word.partition("=")[0]
        if "=" in word and any(key.strip(BLANKS) in names for names in KEYS.values()):
            return f"the backslash before line {number} makes {key}= a part of this value"
        if re.fullmatch(r"\[[A-Z]\w+\]", word):
            return f"the backslash before line {number} makes {word} a part of this value"
    return ""
