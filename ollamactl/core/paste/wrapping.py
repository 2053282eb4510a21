"""What copying, shipping and quoting did to a text, undone: the lines are those that the programs printed again.

    &quot;  OLLAMA\\_HOST  “…”  blanks that do not break                         characters
    > quoted    12: numbered    | table | cell |    server.log:12: found    - listed
    {"message": "time=2026-01-02T03:04:05Z level=WARN msg=\\"…\\""}             Loki, Datadog, ECS, a string of code
    {"level": "WARN", "source": "runner.go:152", "msg": "…", "limit": 4096}    a record that a shipper took apart
    time=… level=INFO …  time=… level=WARN …                                   lines that were run together

Only lines that hold a record of the server, of the engine or of systemd are touched by more than characters and marks.
"""

# ruff: noqa: E501 - a pattern is read more easily whole
from __future__ import annotations

import html
import itertools
import json
import re
from typing import Any

from ollamactl.core.paste.shape import LONGEST

WIDEST = 1 << 18  # characters of a line that is looked into: some ship a whole log in one
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BLANK = re.compile("[\u00a0\u2007\u2009\u202f]")
_INVISIBLE = re.compile("[\u200b-\u200e\u2060\ufeff]")
_STRAIGHT = str.maketrans("“”„‟‘’‚", '""""\'\'\'')
_ENTITY = re.compile(r"&(?:quot|apos|lt|gt|amp|nbsp|#0?(?:34|39|60|62|38|160)|#x(?:22|27|3[ceCE]|26|[aA]0));")
_TAG = re.compile(r"</?(?:pre|code|br|p|div|span|td|th|tr|li|blockquote|em|b|strong)(?: [^<>\n]{0,200})?/?>")
_ESCAPED_MARK = re.compile(r"\\([_\[\]*#~])")
_QUOTE = re.compile(r" ?> ?")

_START = re.compile(r"time=\d{4}-\d\d-\d\dT\S+ level=|level=[A-Z]+ source=\S+\.go:\d+ msg=|\[GIN\] \d{4}/\d\d/\d\d - ")
_STAMP = r"(?:\w{3} +\d{1,2} [\d:]{8}|\d{4}-\d\d-\d\dT[\d:.]{8,15}(?:Z|[+-]\d\d:?\d\d)?)"
_JOURNAL = rf"{_STAMP} [\w.-]+ [\w.@-]+\[\d+\]: "
_ENGINE = r"(?:llama_\w+|ggml_\w+|load_tensors|print_info|llm_load_\w+|cudaMalloc\w*)(?:\(\))?: "
_PRINTED = re.compile(
    rf"{_START.pattern}|{_JOURNAL}|{_ENGINE}|Error: listen |\d{{4}}/\d\d/\d\d \d\d:\d\d:\d\d \w+\.go:\d+: |panic: "
)
_BEFORE = re.compile(  # what the readers of logs take off themselves, and learn from
    rf"\s*(?:{_STAMP} )?(?:\S+ )?(?:[\w.@()-]+\[\d+\]|kernel|ollama\S*): ?"
    r"|[ \t]{0,8}(?:[A-Za-z0-9][\w.-]* +\| ?)?(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)? ?)?(?:std(?:out|err) [FP] )?"
    r"|\[pod/[\w.-]+/[\w.-]+\] (?:\d{4}-\S+ )?|time=\S{1,40} *"
)
FARTHEST = 240  # characters before a record
_FIELD = r"\b(?:msg|error|err|env|cmd|requested|available|description|library|compute|total)="
_SINGLE = re.compile(r"(?<==)'(.*?)'(?=\s+\"?[\w. ]+\"?=|\s*$|[\"`])|(?<= )'(/\S*)'")
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
_READ = re.compile(r'"(?:MESSAGE|__CURSOR|_PID|__REALTIME_TIMESTAMP|SYSLOG_IDENTIFIER)"|^\s*\{"log":')
_BEGINS = re.compile(rf"(?:^|(?<=\s))(?={_JOURNAL}|{_START.pattern}|{_ENGINE}|Error: listen )")
_JOURNAL_BEGINS = re.compile(rf"(?:^\s*|(?<=\s))(?={_JOURNAL})")
_DOUBLED = re.compile(_FIELD + r'""\w|\[GIN\].*""/')
_BACKSLASHED = re.compile(_FIELD + r'\\"|\[GIN\].*\\"/')
_SINGLED = re.compile(_FIELD + r"'|\[GIN\].*'/")
_UNICODE = re.compile(r"\\u([0-9a-fA-F]{4})")
_GO = re.compile(r"[\w/]+\.go:\d+")

_RECORD = re.compile(r"\blevel=(?:DEBUG|INFO|WARN|ERROR)\b|^\s*time=\d{4}-")
_KEY = r"(?:\"[\w .]+\"|[A-Za-z_][\w.]*)="
FOLDS = 60  # lines that one value is folded into
_OPENS = re.compile(rf"[ \t]*{_KEY}\"?\S")
_GOES_ON = re.compile(rf"[ \t]+{_KEY}\S|(?:{_KEY}(?:\"[^\"]*\"|\S+)\s*)+$")


def unwrapped(text: str) -> tuple[str, tuple[int, ...] | None]:
    """The text without its wrappings; the line (from 1) that each of its lines stood on, or None where all stand where
    they did."""
    lines = _unmarked(_characters(text).split("\n"))
    found: list[str] = []
    places: list[int] = []
    for number, line in enumerate(lines, 1):
        for one in _printed(line):
            found.append(one)
            places.append(number)
    moved = len(found) > len(lines)
    return "\n".join(_unfolded(_joined(_outdented(found)))), tuple(places) if moved else None


# -- characters and marks --


def _characters(text: str) -> str:
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    if not text.isascii():
        text = _INVISIBLE.sub("", _BLANK.sub(" ", text))
    if "&" in text:
        text = _ENTITY.sub(lambda found: html.unescape(found[0]), text).replace("\u00a0", " ")
    if "</" in text or "<br" in text:
        text = _TAG.sub("", text)
    return _ESCAPED_MARK.sub(r"\1", text) if "\\_" in text or "\\[" in text else text


def _unmarked(lines: list[str]) -> list[str]:
    """Without the marks of a mail's or Markdown's quotation. A single line that begins with `>` is a prompt."""
    for _ in range(2):
        marked = [line.startswith((">", " >")) for line in lines]
        if not any(marked):
            break
        for n, line in enumerate(lines):
            near = (n > 0 and marked[n - 1]) or (n + 1 < len(lines) and marked[n + 1])
            if marked[n] and near:
                lines[n] = _QUOTE.sub("", line, count=1)
    return lines


def _outdented(lines: list[str]) -> list[str]:
    """Without an indentation that all lines share."""
    said = [line for line in lines if line.strip()]
    if said and all(line[:2] in ("  ", "\t") or line[:1] == "\t" for line in said):
        by = min(len(line) - len(line.lstrip(" \t")) for line in said)
        return [line[by:] if line.strip() else line for line in lines]
    return lines


# -- one line --


def _printed(line: str) -> list[str]:
    """The lines that were printed, of one line of the text."""
    if len(line) > WIDEST or not _holds(line) or _READ.search(line[:LONGEST]):
        return [line]
    if '""' in line and _DOUBLED.search(line):
        line = line.replace('""', '"')
        lines = [line]
    else:
        told = _of_json(line) if line.lstrip()[:1] in ("{", "[", '"') else None
        lines = _escaped(line) if told is None else told
    return [_bare(_straight(one)) for whole in lines for one in _apart(whole)]


def _holds(line: str) -> bool:
    return any(sign in line for sign in ("level=", "msg=", "[GIN]", "systemd[", '":', ": listen "))


def _of_json(line: str) -> list[str] | None:
    """What a JSON line or one of its lines has in its strings, where a program printed it; None where nothing is."""
    found: list[str] = []
    for literal in _LITERAL.finditer(line):
        if len(literal[1]) < 12 or not (_START.search(literal[1]) or _PRINTED.match(literal[1])):
            continue
        lines = _decoded(literal[0]).split("\n")
        if any(_PRINTED.match(one) for one in lines):
            found += [one for one in lines if one.strip()]
    return found or _taken_apart(line)


def _decoded(literal: str) -> str:
    try:
        return str(json.loads(literal, strict=False))
    except ValueError:
        return literal.strip('"')


def _taken_apart(line: str) -> list[str] | None:
    """A record whose fields a shipper made keys of a JSON object, as the server had printed it."""
    if ".go:" not in line or not line.lstrip().startswith("{"):
        return None
    try:
        record = _record_of(json.loads(line, strict=False), 3)
    except (ValueError, RecursionError):
        return None
    return [record] if record else None


def _record_of(value: Any, depth: int) -> str:
    if not isinstance(value, dict):
        return ""
    message, source = value.get("msg") or value.get("message"), value.get("source")
    if isinstance(message, str) and isinstance(source, str) and _GO.fullmatch(source):
        level = str(value.get("level", "INFO")).upper()
        rest = {k: v for k, v in value.items() if k not in ("time", "level", "source", "msg", "message")}
        fields = " ".join(f"{k}={json.dumps(str(v))}" for k, v in rest.items() if isinstance(v, (str, int, float)))
        return (
            f"level={level if level.isalpha() else 'INFO'} source={source} msg={json.dumps(message)} {fields}".rstrip()
        )
    return next((made for one in value.values() if depth and (made := _record_of(one, depth - 1))), "")


def _escaped(line: str) -> list[str]:
    """The lines of a string literal that was copied without its quotation marks."""
    if '\\"' not in line or not _BACKSLASHED.search(line):
        return [line]
    line = line.replace('\\"', '"').replace("\\\\", "\\")
    line = _UNICODE.sub(lambda found: chr(int(found[1], 16)), line)
    return re.split(rf"(?:\\r)?\\n(?={_PRINTED.pattern})", line)


def _apart(line: str) -> list[str]:
    """Lines that were run together, on lines of their own."""
    begins: list[int] = []
    last = 0
    pattern = _JOURNAL_BEGINS if _JOURNAL_BEGINS.match(line) else _BEGINS
    for found in pattern.finditer(line):
        if begins and line.count('"', last, found.start()) % 2:
            continue  # within a value
        own = begins and _BEFORE.fullmatch(line, last, found.start())  # its own time and name stand before it
        if not own:
            begins.append(found.start())
        last = found.start()
    if len(begins) < 2:
        return [line]
    cuts = [0, *begins[1:], len(line)]
    return [line[at:end].rstrip() for at, end in itertools.pairwise(cuts)]


def _straight(line: str) -> str:
    """A record's values in straight double quotation marks."""
    if not line.isascii() and ("level=" in line or "msg=" in line or "[GIN]" in line):
        line = line.translate(_STRAIGHT)
    if "'" in line and len(line) < 4 * LONGEST and _SINGLED.search(line):
        line = _SINGLE.sub(lambda found: '"' + (found[1] or found[2] or "").replace('"', '\\"') + '"', line)
    return line


def _bare(line: str) -> str:
    """A record without what stands before it: a number, a file's name, a table's other cells, a pod's name."""
    found = _START.search(line, 0, FARTHEST)
    if found is None or not found.start() or _BEFORE.fullmatch(line, 0, found.start()) or _JOURNAL_BEGINS.match(line):
        return line
    before = line[: found.start()]
    if before[-1].isalnum() or "`" in before:
        return line  # the CUDA library's words without an end of line, a quotation in a sentence
    record = line[found.start() :].rstrip()
    if before[-1] in "\"'|" and record.endswith(before[-1]):
        record = record[:-1].rstrip()
    return record.rstrip("|").rstrip() if before.lstrip().startswith("|") else record


# -- lines together --


def _joined(lines: list[str]) -> list[str]:
    """Quotations within a sentence that its line's end broke (`bind: address` / `already in use`) are whole again, on
    the first of their lines."""
    for n in range(len(lines) - 1):
        line, after = lines[n], lines[n + 1]
        if line.count("`") % 2 and after.count("`") % 2 and "```" not in line + after and len(line) < LONGEST:
            rest, _, more = after.partition("`")
            lines[n], lines[n + 1] = f"{line} {rest.lstrip()}`", more.lstrip(" ,;")
    return lines


def _unfolded(lines: list[str]) -> list[str]:
    """Records that were folded for the reader, or by a console at its width, as one line; the others are left empty."""
    record, last, n = -1, "", 0
    width = _width(lines)
    while n < len(lines):
        line, first = lines[n], n + 1  # of the lines that are put behind the record
        after = first + _rest_of_value(lines, n)
        if _RECORD.search(line):
            record, last = n, line
        elif (
            record >= 0
            and len(lines[record]) < LONGEST
            and (_GOES_ON.match(line) or (_OPENS.match(line) and after > first))
        ):
            first = n
        elif line.strip():
            record, after = -1, first
        else:
            after = first
        for at in range(first, after):
            seam = "" if last.endswith(" ") or len(last) == width else " "
            last = lines[at].rstrip("\r")
            lines[record], lines[at] = lines[record] + seam + (last.lstrip() if seam else last), ""
        n = after
    return lines


def _open(text: str) -> bool:
    """Whether a value's quotation mark is open at the end of it."""
    return text.replace('\\"', "").count('"') % 2 == 1


def _rest_of_value(lines: list[str], at: int) -> int:
    """How many lines after that one belong to a value that it leaves open; 0 where that is never closed, as in a line
    that was cut."""
    text = lines[at]
    if not _open(text):
        return 0
    for n in range(at + 1, min(at + 1 + FOLDS, len(lines))):
        if _RECORD.search(lines[n]) or _PRINTED.match(lines[n]) or not lines[n].strip():
            return 0
        text += lines[n]
        if not _open(text):
            return n - at
    return 0


def _width(lines: list[str]) -> int:
    """The width at which a console broke the lines, in characters; 0 where they have none in common."""
    longest = max(map(len, lines), default=0)
    return longest if longest >= 79 and sum(len(line) == longest for line in lines) > 1 else 0
