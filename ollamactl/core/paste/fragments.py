"""A short told case -> one statement a line.

People who report a case in a line or two join cut lines with semicolons and put a word on where each is from before it:

    log: truncating input prompt limit=4096 prompt=8942; GIN 500 | 59.8 s on /api/chat; compose: NUM_PARALLEL=4

Each piece becomes a line of its own; the word before it goes where the piece is of the server's log, and stays where
it tells whose words follow (a compose file, a unit, a shell). `places` keeps the line that each piece stood on.
"""

# ruff: noqa: E501 - a pattern is read more easily whole
from __future__ import annotations

import re
from typing import Any

import msgspec

from ollamactl.core.paste import screens, told
from ollamactl.core.paste.canonical import canonical
from ollamactl.core.paste.shape import LOG_LINE, LONGEST

SHORT = 40  # lines; more is a log or a file, and nobody's sentence
_STAMPED = re.compile(r"\s*(?:time=\d{4}-|\[GIN\] \d{4}|\{\"|\d{4}/\d\d/\d\d \d\d:|\w{3} +\d+ [\d:]{8} )")
_CODE = re.compile(r"^\s*(?:for|if|while|do|done|function|let|const|var)\b|[;{]\s*$")
_LOGS = re.compile(
    r"^(?:(?:in|from) )?(?:the )?(?:server |service |ollama |debug |engine )*"
    r"(?:logs?|debug|journal(?:ctl)?|server\.log|docker logs|ollama\.log|systemd|app\.log)\b(?: says?| shows?)?(?: \([^)]*\))?:? +(?=\S)",
    re.I,
)
_TAGGED = re.compile(r"^ollama(?:\.service|-serve)?\[\d+\]: (?=\S)")  # a journal's line without its time and host
_CONFIG = re.compile(r"(?:,| but| and| while| though|:){0,3} (?:the )?(?:(?:server )?log(?:s| says| shows| has)?:? )?(?=server config\b)", re.I)
_CONFIG_TOLD = re.compile(r"\s*(?:the )?server config\b[:=]?\s+\S")  # without the time and level of a log
_SETTING = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+=\S")
_JOINED = re.compile(r", (?=msg=\"|memory\.(?:available|required)\S*=)")  # records that somebody joined
_OPEN, _CLOSE = "([{", ")]}"


class Apart(msgspec.Struct, frozen=True):
    """`text` with a statement a line; `places[n]` is the line (from 1) of the paste that its line n+1 stood on."""

    text: str
    places: tuple[int, ...]


def apart(text: str) -> Apart | None:
    """A short text with its statements on lines of their own, or None where nothing is to be taken apart."""
    lines = text.split("\n")
    if len(lines) > SHORT:
        return None
    found: list[str] = []
    places: list[int] = []
    for number, line in enumerate(lines, 1):
        pieces = [said for piece in _pieces(line) for said in _said(_without_source(piece))]
        found += pieces
        places += [number] * len(pieces)
    told = [at for at, piece in enumerate(found) if _CONFIG_TOLD.match(piece)]
    if len(told) == 1 and told[0]:  # a start prints it first, who tells of it names it anywhere
        found.insert(0, found.pop(told[0]))
        places.insert(0, places.pop(told[0]))
    if found == lines:
        return None
    return Apart("\n".join(found), tuple(places))


def _pieces(line: str) -> list[str]:
    """A line split as `_parts` does, and before the server's configuration where a setting stands before that."""
    found: list[str] = []
    joined = [line] if _STAMPED.match(line) else _JOINED.split(line)
    for part in (part for one in joined for part in _parts(one)):
        at = _CONFIG.search(part)
        cut = at is not None and not LOG_LINE.match(part[:300]) and _SETTING.search(part[: at.start()]) is not None
        found += [part[: at.start()], part[at.end() :]] if at is not None and cut else [part]
    return found


def _parts(line: str) -> list[str]:
    """A line split at the semicolons that stand outside of quotes and brackets; a line of a log or of code is whole."""
    if "; " not in line or len(line) > LONGEST or _STAMPED.match(line) or _CODE.search(line):
        return [line]
    if "; echo " in line and screens.prompt(line) is not None:
        return [line]  # of the command before tells what it echoes
    parts: list[str] = []
    depth, quote, begin = 0, "", 0
    for at, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"`":
            quote = char
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth = max(0, depth - 1)
        elif char == ";" and not depth and line[at + 1 : at + 2] == " " and not line.startswith(" to enable,", at + 1):
            parts.append(line[begin:at].strip())
            begin = at + 2
    if quote or depth:  # what does not close was cut: every semicolon counts
        return [part.strip() for part in line.split("; ")]
    return [*parts, line[begin:].strip()] if parts else [line]


def _said(piece: str) -> list[str]:
    """The piece, and the lines of the server that it tells in its own words."""
    if len(piece) > LONGEST:
        return [piece]
    if (cached := told.prompt_cache(piece)) and not _STAMPED.match(piece):
        return [piece, *cached]
    if len(started := told.loads(piece)) > 1 and not _STAMPED.match(piece):
        return [piece, *started] if canonical(piece) is None else started
    if len(several := told.requests(piece)) > 1 and not _STAMPED.match(piece):
        return [piece, *several] if canonical(piece) is None else several
    if LOG_LINE.match(piece[:300]) or _STAMPED.match(piece) or canonical(piece) is not None:
        beside = told.loads(piece) if "OLLAMA_NUM_PARALLEL" in piece and not _STAMPED.match(piece) else []
        return [piece, *beside]
    return [piece, *told.lines(piece)]


def _without_source(piece: str) -> str:
    """Without the words that say that the piece is of the server's log."""
    piece = _TAGGED.sub("", piece, count=1)
    if LOG_LINE.match(piece[:300]):
        return piece
    return _LOGS.sub("", piece, count=1)


def renumbered(value: Any, places: tuple[int, ...]) -> Any:
    """Facts whose lines are those of the paste again."""
    if isinstance(value, msgspec.Struct):
        changed: dict[str, Any] = {}
        for field in value.__struct_fields__:
            old = getattr(value, field)
            if field == "line" or field.endswith("_line"):
                new = places[old - 1] if isinstance(old, int) and 0 < old <= len(places) else renumbered(old, places)
            else:
                new = renumbered(old, places)
            if new is not old:
                changed[field] = new
        return msgspec.structs.replace(value, **changed) if changed else value
    if isinstance(value, tuple) and value:
        items = tuple(renumbered(item, places) for item in value)
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value
