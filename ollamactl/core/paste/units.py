"""Unit files and drop-ins within a pasted text: where each begins and ends."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from ollamactl.core.parse import unitkeys
from ollamactl.core.paste import screens
from ollamactl.core.paste.shape import LOG_LINE

_SECTION = re.compile(r"\s*\[(?:Unit|Service|Install|Socket|X-\w+)\]?\s*$", re.I)
PATH_LINE = re.compile(r"\s*#+ (/\S+\.(?:service|conf)(?:\.\w+)?)\s*$")
# what `systemctl edit` writes above and below the place for the drop-in's lines
_EDITOR = re.compile(r"\s*#+ Anything between here and the comment below will become")
_EDITED = re.compile(r"\s*#+ (?:Lines|Edits) below this comment will be discarded")
EDITED_FILE = "/etc/systemd/system/ollama.service.d/override.conf"
# properties that `systemctl show` prints and that no unit file may set
SHOW_ONLY = {
    "ActiveState", "SubState", "LoadState", "MainPID", "NRestarts", "InvocationID", "UnitFileState", "FragmentPath",
    "DropInPaths", "NeedDaemonReload", "Result", "ExecMainStatus", "ExecMainStartTimestamp", "LoadError",
}  # fmt: skip
_SHOWN = re.compile(rf"(?:{'|'.join(sorted(SHOW_ONLY))})=")
_KEY = re.compile(r"[A-Z][A-Za-z]+=")
_ASSIGN = re.compile(r"\s*[A-Za-z][A-Za-z-]*\s*=")
# commands that print some lines of unit files, and such a line with its file before it
_FILTERED = re.compile(
    r"\bsystemctl\b[^|]*\bcat\b[^|]*\bollama\b[^|]*\| *(?:sudo )?[efz]?grep\b"
    r"|\b[ef]?grep\b.*/systemd/.*\bollama\b|\bcat\b[^|]*/systemd/[^|]*\|.*grep\b"
)
_OF_FILE = re.compile(r"(?P<path>/\S*ollama\S*\.(?:service|conf)):(?:\d+:)?(?=[A-Z][A-Za-z]*\s*=|\[[A-Z]|#|$)")
_RECORD = re.compile(r"\s*(?:time|level|source|msg)=")  # of a log, whatever was cut from its beginning


def unit_blocks(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """(first line, line after the last, path) of each unit file in the text; one with another suffix behind
    (`.conf.bak`), which systemd does not read, is among them."""
    n = 0
    path, path_at = "", -1
    while n < len(lines):
        line = lines[n].rstrip("\r")
        if _EDITOR.match(line):
            end = next((at for at in range(n + 1, len(lines)) if _EDITED.match(lines[at])), 0) or _edited_end(lines, n)
            if any(_ASSIGN.match(one) for one in lines[n:end]):
                yield n, end, EDITED_FILE
            n = end
            continue
        if shown := _path(line):
            path, path_at = shown, n
            if n + 1 < len(lines) and _ASSIGN.match(lines[n + 1]) and not LOG_LINE.match(lines[n + 1][:300]):
                end = _block_end(lines, n + 1)
                yield n, end, path
                n, path = end, ""
                continue
        elif (end := _filtered_end(lines, n)) > n + 1:
            yield from _by_file(lines, n + 1, end)
            n = end
            continue
        elif _SECTION.match(line):
            end = _block_end(lines, n)
            yield n, end, path if n - path_at <= 2 else ""
            n, path = end, ""
            continue
        n += 1


def _path(line: str) -> str:
    """The unit file that a line says to follow: systemctl's comment, or a prompt with a command that prints it."""
    if found := PATH_LINE.match(line):
        return found[1]
    command = screens.prompt(line)
    path = screens.opened(command) if command else ""
    beside = "/systemd/" in path and (".d/" in path or path.endswith(".conf"))
    return path if beside or path.endswith(".service") else ""


PASSED_OVER = "file_not_read"
_READ = re.compile(r"/(?:ollama[\w@.-]*\.)?service\.d$|/systemd/\w+\.conf\.d$")  # folders of drop-ins


def passed_over(path: str) -> bool:
    """Whether systemd does not read a file there for Ollama's unit: by its folder's name, or its own."""
    folder, _, name = path.rpartition("/")
    if "/systemd/" not in path or name.endswith((".service", ".socket")) or not folder.endswith(".d"):
        return False
    return not name.endswith(".conf") or _READ.search(folder) is None


def sets_of(lines: list[str], first: int, last: int) -> Iterator[tuple[int, str, str]]:
    """(number of the line, name, value) of Ollama's variables that a block sets."""
    for n in range(first, last):
        for name, value in re.findall(r"\b(OLLAMA_\w+)=([^\s\"']*)", lines[n]):
            yield n + 1, name, value


def text_of(lines: list[str], first: int) -> str:
    """A block's lines as a unit file, where they stand in the paste. Those that a filter left have no section, which
    stands on the line before them: it is [Service], and what is of another by its key is left out."""
    if not lines or not (_KEY.match(lines[0]) or _OF_FILE.match(lines[0])):
        rows = ["" if PATH_LINE.match(line) or screens.prompt(line) else line for line in lines]
        return "\n" * first + "\n".join(rows) + "\n"
    rows = [_OF_FILE.sub("", line) for line in lines]
    if any(_SECTION.match(row) for row in rows):
        return "\n" * first + "\n".join(rows) + "\n"
    kept = [row if row.partition("=")[0].strip() not in unitkeys.UNIT | unitkeys.INSTALL else "" for row in rows]
    return "\n" * (first - 1) + "[Service]\n" + "\n".join(kept) + "\n"


def _filtered_end(lines: list[str], n: int) -> int:
    """The line after the last one of a unit's files that the command on line n picks out; n where it picks none."""
    command = screens.prompt(lines[n].rstrip("\r"))
    if command is None or not _FILTERED.search(command):
        return n
    end = n + 1
    while end < len(lines) and (_KEY.match(lines[end]) or _OF_FILE.match(lines[end]) or PATH_LINE.match(lines[end])):
        end += 1
    return n if end < len(lines) and _SECTION.match(lines[end]) else end


def _by_file(lines: list[str], first: int, end: int) -> Iterator[tuple[int, int, str]]:
    """The lines of a filter, by the file that stands before them or above."""
    paths: list[str | None] = []
    above = ""
    for line in lines[first:end]:
        if found := PATH_LINE.match(line):
            above = found[1]
        paths.append(None if found else named["path"] if (named := _OF_FILE.match(line)) else above)
    for path, rows in itertools.groupby(range(end - first), key=lambda at: paths[at]):
        places = list(rows)
        if path is not None:
            yield first + places[0], first + places[-1] + 1, path


def _edited_end(lines: list[str], n: int) -> int:
    """The line after the last one that is typed in an editor's copy of which the lower comment was not pasted."""
    for at in range(n + 1, len(lines)):
        line = lines[at].strip()
        if line and not (line[0] in "#;[" or _ASSIGN.match(line)):
            return at
    return len(lines)


def _block_end(lines: list[str], n: int) -> int:
    """The line after the last one of a unit file that begins at n."""
    last = n
    continued = False
    for at in range(n, len(lines)):
        line = lines[at].rstrip("\r")
        if at > n and screens.prompt(line) is not None:
            break
        if at > n and not continued and (LOG_LINE.match(line[:300]) or _RECORD.match(line)):
            break
        if _SHOWN.match(line):
            return _paragraph(lines, n, at)
        if continued or _ASSIGN.match(line) or _SECTION.match(line):
            last = at
        elif PATH_LINE.match(line) and at > n:
            break
        elif line.strip() and line.lstrip()[0] not in "#;":
            if line.lstrip()[0] in "[\"'" or (
                at == last + 1 and re.match(r"\s*\w+\s*:?\s*=?", line) and len(line) < 80 and "OLLAMA" in line
            ):
                last = at
                continue
            break
        continued = line.endswith("\\")
    return last + 1


def _paragraph(lines: list[str], first: int, at: int) -> int:
    """Where the lines around `at` begin that no blank line parts, after `first`."""
    while at > first + 1 and lines[at - 1].strip():
        at -= 1
    return at
