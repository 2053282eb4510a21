"""What a command and what it printed say together: who was refused, what a file lost, which is newer, what is listed.

    $ docker exec chat curl -s http://host.docker.internal:11434/; echo $?          7: nobody listens there
    $ diff ollama.service.old /etc/systemd/system/ollama.service                    < Environment="OLLAMA_…": lost
    $ stat -c '%y %n' …/override.conf; systemctl show -p ExecMainStartTimestamp …   a file that is newer than the process
    $ ls …/manifests/registry.ollama.ai/library                                     beside an `ollama list` without these

Times are compared as they are printed, in the host's zone; only where one is in UTC, its neighbour's offset counts.
"""

# ruff: noqa: E501 - a pattern is read more easily whole
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from ollamactl.core.paste import screens
from ollamactl.core.paste.screens import Lines

KINDS = {"remote_refused", "unit_rewritten", "process_older", "container_older", "models_gone", "nothing_listed"}
Screen = tuple[str, Lines]  # a command, and the lines below it

_ELSEWHERE = re.compile(
    r"https?://(?!localhost\b|127\.|\[::1\]|0\.0\.0\.0)[\w.-]+:11434\b|\b(?:nc|ncat|telnet)\b[^|;&]* (?!localhost\b|127\.|::1)[\w.-]+[ :]11434\b"
    r"|\bnmap\b.*11434|(?:Test-NetConnection|\btnc)\b(?!.*(?:localhost|127\.)).*11434"
)
_REFUSED = re.compile(r"curl: \(7\)|\b[Rr]efused\b|ECONNREFUSED|TcpTestSucceeded\s*:\s*False|\b11434/tcp\s+closed\b")
_STATUS = re.compile(r"(?:\w+ ?[=:]? ?)?7$")  # of curl: could not connect
_LOST = re.compile(r"\s?Environment(?:File)?=.*\bOLLAMA_")
_MAIN = re.compile(r"/ollama\.service$")
_CREATED = re.compile(r"\"?(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?Z\b")
_COMPOSE = re.compile(r"(?:^|/)(?:docker-)?compose(?:\.\w+)?\.ya?ml$")
_UNIT = re.compile(r"/ollama\.service(?:\.d/[\w.-]+\.conf)?$|^/etc/(?:default|sysconfig|conf\.d)/ollama$")
_BEGAN = re.compile(
    r"\s*(?:(?:ExecMainStart|ActiveEnter)Timestamp=|Active: active \(running\) since )(?:\w{3} )?(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?: (?P<zone>[A-Z]+|[+-]\d{2,4}))?"
)
_LSTART = re.compile(r"(?:^|\s)\w{3} (?P<month>\w{3}) +(?P<day>\d{1,2}) (?P<time>\d\d:\d\d:\d\d) (?P<year>\d{4})\b")
_DATED = re.compile(
    r"\w{3} (?P<month>\w{3}) +(?P<day>\d{1,2}) (?P<time>\d\d:\d\d:\d\d) (?:[AP]M )?\w+ (?P<year>\d{4})$"
)
_STAMP = r"(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?)(?:\.\d+)?(?: (?P<zone>[+-]\d{4}))?"
_OF_FILE = re.compile(
    rf"(?:[-l][rwx-]{{9}}[.+@]? .*? )?{_STAMP} (?P<path>[\w./@-]+)\s*$|(?P<first>/\S+) {_STAMP.replace('?P<at>', '?P<then>').replace('?P<zone>', '?P<offset>')}\s*$"
)
_OF_LS = re.compile(
    r"-[rwx-]{9}[.+@]? +\d+ \S+ +\S+ +\d+ (?P<month>\w{3}) +(?P<day>\d{1,2}) (?P<time>\d\d:\d\d) (?P<path>[\w./@-]+)\s*$"
)
_STAT_OF = re.compile(r"\bstat\b.* (?:-c|--format|--printf|-f)\b.* (?P<path>[^\s'\"]+)\s*$")
_STAT_FILE = re.compile(r"\s*File: [‘'`]?(?P<path>/[^\s’']+)")
_STAT_TIME = re.compile(rf"\s*Modify: {_STAMP}")
_FOLDER = re.compile(r"(?:/etc/systemd/system/|/run/systemd/system/)ollama\.service\.d\b")
_MONTHS = {"JanFebMarAprMayJunJulAugSepOctNovDec"[n : n + 3]: n // 3 + 1 for n in range(0, 36, 3)}
_HELD = re.compile(r"\s*[\d.]+[GT]\s+/(?:home/[^/\s]+|root)/\S*models/?\s*$")  # of `du -h`
_LIST_HEAD = re.compile(r"\s*NAME\s+ID\s+SIZE\s+MODIFIED")
_LISTED = re.compile(r"\s*(?:[\w.-]+/)*(?P<name>[\w.-]+):[\w.-]+\s+[0-9a-f]{12}\s")
_MANIFEST = re.compile(r"(?P<path>/\S*/manifests/registry\.ollama\.ai/library)/(?P<name>[a-z][\w.-]*)(?:/\S*)?")
_MANIFESTS = re.compile(r"\bls\b(?! -\S*R)[^|;&]*?(?P<path>[~/]\S*/manifests/registry\.ollama\.ai/library)/?\s*$")


def read(lines: Lines) -> Iterable[tuple[str, int, str]]:
    """(kind, number of the line, text) of what these numbered lines say."""
    found = list(_screens(lines))
    for command, below in found:
        yield from _refused(command, below)
        yield from _rewritten(command, below)
    yield from _older(found, lines)
    yield from _unlisted(found, lines)


def taken_out(command: str, line: str) -> bool:
    """Whether this is a line of a comparison's side that is in force no more."""
    if re.match(r"(?:sudo )?(?:git |colordiff|diff\b)", command) is None:
        return False
    return re.match(r"[<>+-] ?\w", line) is not None and line[0] in (_gone_side(command, []) or "<-")


def _screens(lines: Lines) -> Iterator[Screen]:
    command, below = "", Lines()
    for n, text in lines:
        if (asked := screens.prompt(text.rstrip())) is None:
            below.append((n, text))
            continue
        yield command, below
        command, below = asked, Lines()
    yield command, below


def _refused(command: str, below: Lines) -> Iterator[tuple[str, int, str]]:
    if _ELSEWHERE.search(command) is None:
        return
    for n, text in below[:12]:
        of_status = re.search(r"\$\?|\$status|LASTEXITCODE", command) and _STATUS.fullmatch(text.strip())
        if of_status or _REFUSED.search(text) or ("http_code" in command and text.strip() == "000"):
            yield "remote_refused", n, f"{command}: {text.strip()}"
            return


def _gone_side(command: str, below: Lines) -> str:
    """The marks of the lines of a comparison that the unit's main file does not have; empty where it is none."""
    headers = [text.split()[1] for _, text in below if re.match(r"(?:\+\+\+|---) \S", text)]
    paths = headers[:2] if len(headers) > 1 else [word for word in command.split() if "/" in word or "." in word][-2:]
    if len(paths) == 2 and not _MAIN.search(paths[1]) and _MAIN.search(paths[0]):
        return ">+"
    return "<-" if paths and _MAIN.search(paths[-1]) else ""


def _rewritten(command: str, below: Lines) -> Iterator[tuple[str, int, str]]:
    """Settings that a copy of the unit's main file has and the file itself does not."""
    if re.search(r"\bdiff\b", command) and (marks := _gone_side(command, below)):
        yield from (
            ("unit_rewritten", n, text.strip()) for n, text in below if text[:1] in marks and _LOST.match(text[1:])
        )


def _older(found: list[Screen], lines: Lines) -> Iterator[tuple[str, int, str]]:
    """A file of the unit that was changed after the process began, or an environment that lacks what systemd has."""
    began = next((one for _, text in lines if (one := _began(text)) is not None), None)
    created = next((at for command, below in found for at in _container(command, below)), None)
    for command, below in found:
        if re.search(r"\bfind\b.*-newer /proc/", command):
            yield from (
                ("process_older", n, f"{command}: {text.strip()}") for n, text in below if _UNIT.search(text.strip())
            )
        elif "/environ" in command and re.search(r"grep\b.*OLLAMA", command) and "2>" not in command:
            told = next((text for _, text in lines if re.match(r"Environment=.*\bOLLAMA_", text)), "")
            if told and not any(text.strip() for _, text in below):
                yield (
                    "process_older",
                    below[0][0] if below else 1,
                    f"{command}: nothing; systemctl show: {told.strip()}",
                )
        for n, path, at, offset in _changed(command, below, began[0].year if began else 0):
            if _COMPOSE.search(path):
                if created is not None and _after(at, offset, created, "UTC"):
                    yield "container_older", n, f"{path} was changed at {at}, the container was created at {created} UTC"
            elif began is not None and _after(at, offset, *began):
                yield "process_older", n, f"{path} was changed at {at}, the process began at {began[0]}"


def _container(command: str, below: Lines) -> Iterator[datetime]:
    """When a container was created, which no restart changes, as `docker inspect` prints it."""
    if re.search(r"(?:docker|podman)(?: container)? inspect\b", command) is None:
        return
    for _, text in below:
        named = '"Created": "' in text or ".Created" in command
        found = _CREATED.match(text.strip().removeprefix('"Created": ')) if named else None
        if found and (at := _moment(found["at"])):
            yield at


def _after(at: datetime, offset: str, began: datetime, zone: str) -> bool:
    if zone in ("UTC", "GMT") and offset:
        minutes = int(offset[1:3]) * 60 + int(offset[3:5])
        at += timedelta(minutes=minutes if offset[0] == "-" else -minutes)
    return timedelta(seconds=1) < at - began < timedelta(days=300)


def _began(text: str) -> tuple[datetime, str] | None:
    if found := _BEGAN.match(text):
        return (at, found["zone"] or "") if (at := _moment(found["at"])) else None
    if ("ollama" in text or len(text.strip()) == 24) and (found := _LSTART.search(text)):
        return (named, "") if (named := _named(found)) else None
    return None


def _changed(command: str, below: Lines, year: int) -> Iterator[tuple[int, str, datetime, str]]:
    """(line, path, time, offset of its zone) of the unit's files that were listed with their times."""
    inside = _FOLDER.search(command)
    asked = re.search(r"\bdate -r (/\S+)", command)
    of = _STAT_OF.search(command)
    path = asked[1] if asked else ""
    for n, text in below:
        if asked and (dated := _DATED.match(text.strip())) and (when := _named(dated)) and _UNIT.search(path):
            yield n, path, when, ""
        if found := _STAT_FILE.match(text):
            path = found["path"]
            continue
        name, at, offset = "", None, ""
        if found := _STAT_TIME.match(text):
            name, at, offset = path, _moment(found["at"]), found["zone"] or ""
        elif of and (found := re.fullmatch(_STAMP, text.strip())):
            name, at, offset = of["path"], _moment(found["at"]), found["zone"] or ""
        elif found := _OF_FILE.match(text.strip()):
            name, at = found["path"] or found["first"], _moment(found["at"] or found["then"])
            offset = found["zone"] or found["offset"] or ""
        elif year and (found := _OF_LS.match(text.strip())):
            at = _moment(f"{year}-{_MONTHS.get(found['month'], 0):02}-{int(found['day']):02} {found['time']}")
            name = found["path"]
        if inside and name and "/" not in name and name.endswith(".conf"):
            name = f"{inside[0]}/{name}"
        if at is not None and (_UNIT.search(name) or _COMPOSE.search(name)):
            yield n, name, at, offset


def _named(found: re.Match[str]) -> datetime | None:
    """The time of a match whose month is a name."""
    return _moment(f"{found['year']}-{_MONTHS.get(found['month'], 0):02}-{int(found['day']):02} {found['time']}")


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _unlisted(found: list[Screen], lines: Lines) -> Iterator[tuple[str, int, str]]:
    """Models of which a folder has manifests and that `ollama list` does not show, or two folders of other models."""
    folders = {path: some for command, below in found for path, some in _manifests(command, below).items()}
    if any(_LIST_HEAD.match(text) for _, text in lines):
        listed = {row["name"] for _, text in lines if (row := _LISTED.match(text))}
        if not listed:
            n, text = next((n, text) for n, text in lines if _LIST_HEAD.match(text))
            yield "nothing_listed", n, f"ollama list: {text.strip()}, and no model below"
        for n, text in () if listed else lines:
            if _HELD.match(text):
                yield "models_gone", n, f"du: {text.strip()}, and ollama list is empty"
        for path, some in folders.items():
            if lacking := sorted(set(some) - listed):
                said = f"{path}: {', '.join(lacking[:4])}, which ollama list does not show"
                yield "models_gone", some[lacking[0]], said
    elif len(folders) > 1 and len({frozenset(some) for some in folders.values()}) > 1:
        for path, some in folders.items():
            yield "models_gone", next(iter(some.values())), f"{path}: {', '.join(sorted(some)[:4])}"


def _manifests(command: str, below: Lines) -> dict[str, dict[str, int]]:
    """Folder of manifests -> models in it, with the lines that name them, of an `ls` or a `find`."""
    folders: dict[str, dict[str, int]] = {}
    asked = _MANIFESTS.search(command)
    for n, text in below:
        if found := _MANIFEST.match(text.strip()):
            folders.setdefault(found["path"], {})[found["name"]] = n
        elif (
            asked
            and re.match(r"d[rwxst-]{9}|[a-z][\w.-]*(?:\s|/|$)", text)
            and not text.startswith(("total ", "ls: "))
        ):
            names = text.split()[-1:] if text[:1] == "d" and text[1:2] in "r-" else text.split()
            some = folders.setdefault(asked["path"], {})
            some.update({name.rstrip("/"): n for name in names if re.fullmatch(r"[a-z][\w.-]*/?", name)})
    return {path: some for path, some in folders.items() if some}
