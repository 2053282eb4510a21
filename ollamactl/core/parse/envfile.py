"""The grammar of files named by `EnvironmentFile=`: systemd's own, near to a shell's but not one.

    # a comment (; too)             NAME=value            trailing blanks are dropped
    NAME='as it is'                 NAME="with \\" \\\\ \\` \\$"
    NAME=one\\                       a backslash joins the next line, also within double quotes
    two                             quotes may follow each other: 'a'"b" is ab

Nothing is expanded: no `$OTHER`, no `%` specifiers. Written after systemd.exec(5); the states and their quirks
were checked against systemd 252 by starting units.
"""

from __future__ import annotations

from ollamactl.core.facts import EnvFile, EnvFileEntry, UnitProblem
from ollamactl.core.parse.quoting import decode, encode, is_env_name, is_utf8
from ollamactl.core.source import Missing

_NEWLINE = frozenset(b"\n\r")
_BLANK = frozenset(b" \t\n\r")
_COMMENT = frozenset(b"#;")
_SHELL = frozenset(b'"\\`$')  # what a backslash makes plain within double quotes
COMMENT_JOINS_BEFORE = 254  # up to 253 a backslash at the end of a comment made the next line a comment too


class _Value:
    """A key or value under construction; blanks at its end are dropped unless `pin`ned by quotes or
    escapes."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.blank: int | None = None  # where the blanks at the end begin

    def add(self, char: int) -> None:
        if char not in _BLANK:
            self.blank = None
        elif self.blank is None:
            self.blank = len(self.data)
        self.data.append(char)

    def text(self, *, chomp: bool) -> str:
        end = self.blank if chomp and self.blank is not None else len(self.data)
        return decode(bytes(self.data[:end]))


def parse(
    text: str,
    path: str = "",
    *,
    declared_in: str = "",
    declared_line: int = 0,
    optional: bool = False,
    systemd: int | None = None,
) -> EnvFile:
    """Entries and problems of one file. `missing` is set where systemd gives the whole file up: a NUL byte,
    or an assignment that is not UTF-8. `systemd` is the version's number, or None: then 252's ways, said."""
    data = encode(text)
    found = EnvFile(path=path, declared_in=declared_in, declared_line=declared_line, optional=optional)
    if b"\0" in data:
        return _with(found, (), (), Missing("unparsable", "it holds a NUL byte, so systemd reads none of it"))
    rows = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    raw, problems = _scan(data, rows, systemd is None or systemd < COMMENT_JOINS_BEFORE)
    entries: list[EnvFileEntry] = []
    for name, value, line in raw:
        if not is_utf8(name) or not is_utf8(value):
            problem = UnitProblem(line=line, text=_line(rows, line), why="not UTF-8")
            reason = Missing("unparsable", f"line {line} is not UTF-8, so systemd reads none of the file")
            return _with(found, (), (*problems, problem), reason)
        if not is_env_name(name):
            problems.append(UnitProblem(line=line, text=_line(rows, line), why=_bad_name(name)))
        else:
            problems += _misread(name, value, line, _line(rows, line))
            entries.append(EnvFileEntry(name=name, value=value, line=line))
    problems.sort(key=lambda p: p.line)
    return _with(found, tuple(entries), tuple(problems), None)


def _with(
    found: EnvFile, entries: tuple[EnvFileEntry, ...], problems: tuple[UnitProblem, ...], missing: Missing | None
) -> EnvFile:
    return EnvFile(
        path=found.path,
        declared_in=found.declared_in,
        declared_line=found.declared_line,
        optional=found.optional,
        entries=entries,
        problems=problems,
        missing=missing,
    )


def _line(rows: list[bytes], number: int) -> str:
    return decode(rows[number - 1]) if number <= len(rows) else ""


def _bad_name(name: str) -> str:
    if name.startswith("export ") and is_env_name(name[7:].strip()):
        return "`export` belongs to a shell; here it is taken for a part of the name, so the line is ignored"
    if name.startswith("\ufeff"):
        return "a byte order mark stands before the name, so the line is ignored"
    return f"{name!r} is no name of a variable, so the line is ignored"


def _misread(name: str, value: str, line: int, text: str) -> list[UnitProblem]:
    """Lines that are read, but hardly as meant."""
    why = ""
    if value[:1] in "“”‘’«»„" and value:
        why = f"typographic quotes are part of {name}'s value; systemd knows only \" and '"
    elif name == "Environment" and "=" in value:
        why = "this file takes NAME=value; so this sets a variable called Environment"
    elif " #" in value and "#" in text and text.partition("=")[2].lstrip()[:1] not in ('"', "'"):
        why = f"a comment needs a line of its own; here it is part of {name}'s value"
    return [UnitProblem(line=line, text=text, why=why)] if why else []


def _scan(
    data: bytes, rows: list[bytes], comment_joins: bool
) -> tuple[list[tuple[str, str, int]], list[UnitProblem]]:
    """(name, value, line) of every assignment, and the lines that hold none. Names are not judged yet."""
    made: list[tuple[str, str, int]] = []
    problems: list[UnitProblem] = []
    state = "pre-key"
    key, value = _Value(), _Value()
    line = start = 1
    previous = 0

    def push() -> None:
        made.append((key.text(chomp=True), value.text(chomp=state == "value"), start))

    def problem(number: int, why: str) -> None:
        problems.append(UnitProblem(line=number, text=_line(rows, number), why=why))

    for char in data:
        newline = char in _NEWLINE
        here = line
        if newline and not (char == 0x0A and previous == 0x0D):
            line += 1
        previous = char
        if state == "pre-key":
            if char in _COMMENT:
                state, start = "comment", here
            elif char not in _BLANK:
                key, value, start, state = _Value(), _Value(), here, "key"
                key.add(char)
        elif state == "key":
            if newline:
                problem(start, "no `=` in the line, so it is ignored")
                state = "pre-key"
            elif char == 0x3D:
                state = "pre-value"
            else:
                key.add(char)
        elif state == "pre-value":
            if newline:
                push()
                state = "pre-key"
            elif char == 0x27:
                state = "single"
            elif char == 0x22:
                state = "double"
            elif char == 0x5C:
                state = "escape"
            elif char not in _BLANK:
                state = "value"
                value.data.append(char)
        elif state == "value":
            if newline:
                push()
                state = "pre-key"
            elif char == 0x5C:
                state, value.blank = "escape", None
            else:
                value.add(char)
        elif state == "escape":
            state = "value"
            if not newline:
                value.data.append(char)
            elif char == 0x0D:
                problem(here, "the line ends with CR LF, so its backslash does not join the next line")
        elif state == "single":
            if char == 0x27:
                state = "pre-value"
            else:
                value.data.append(char)
        elif state == "double":
            if char == 0x22:
                state = "pre-value"
            elif char == 0x5C:
                state = "double-escape"
            else:
                value.data.append(char)
        elif state == "double-escape":
            state = "double"
            if char in _SHELL:
                value.data.append(char)
            elif char != 0x0A:
                value.data += bytes((0x5C, char))
        elif state == "comment":
            if char == 0x5C:
                state = "comment-escape"
            elif newline:
                state = "pre-key"
        elif state == "comment-escape":
            state = "comment"
            if newline and not comment_joins:
                state = "pre-key"
            elif newline and char == 0x0A and _line(rows, line).strip()[:1] not in ("", "#", ";"):
                problem(line, "the comment before ends with a backslash: up to systemd 253 this line is comment too")
    if state in ("single", "double", "double-escape"):
        problem(start, "a quote is not closed: everything to the end of the file is this value")
    if state in ("pre-value", "value", "escape", "single", "double", "double-escape"):
        push()
    elif state == "key":
        problem(start, "no `=` in the line, so it is ignored")
    return made, problems


def quote(name: str, value: str) -> str:
    """An assignment whose value arrives byte for byte. ValueError for a value that no such file can hold."""
    if not is_env_name(name) or not is_utf8(value) or any(c in value for c in "\n\r\0"):
        raise ValueError(f"{name}: a line end, a NUL or broken text can't stand in an environment file")
    escaped = "".join("\\" + c if ord(c) < 128 and ord(c) in _SHELL else c for c in value)
    return f'{name}="{escaped}"'
