"""A pasted text of whatever mixture -> facts: unit files, `systemctl` output, `ollama ps`, sockets, variables of shells
and containers, words of clients, and a log around and between them.

Pieces are told by their own form, line by line; what is recognised is taken out of what the log parser reads (numbers
of lines stay). Nothing is guessed from prose but what `parse/phrases` names.
"""

# ruff: noqa: E501 - a pattern is read more easily whole
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from ollamactl.core import environment
from ollamactl.core.facts import (
    Facts,
    Listener,
    LoadedModel,
    LogEvent,
    Service,
    Start,
    Told,
    ToldVariable,
    UnitFile,
)  # fmt: skip
from ollamactl.core.parse import log, ollama_ps, phrases, systemctl, unitfile
from ollamactl.core.paste.canonical import canonical, quoted
from ollamactl.core.source import Missing

SMALL = 4 << 20  # bytes of a text that is looked through for more than log lines
LONGEST = 2000  # characters of a line
ASIDE = 2000  # lines that are looked at so

_LOG_LINE = re.compile(
    r"[^`'\"“]{0,90}?\btime=\d{4}-|[^`'\"“]{0,60}?\blevel=[A-Z]+ source=|\W*\[GIN\] \d{4}|.{0,90}\bollama(?:\.service|-serve|\.listener)?\[\d+\]:"
    r"|(?:llama|ggml|llm|load|print_info|common|clip|set_|alloc|init|system_info|main|cmn|resolve|sched|graph_reserve|done_getting|create_)[\w.]*(?:\(\))?: "
    r"|(?:slot|srv|que) +\w+[: ]|  Device \d|\d{4}/\d\d/\d\d \d\d:\d\d:\d\d "
)
_SECTION = re.compile(r"\s*\[(?:Unit|Service|Install|Socket|X-\w+)\]?\s*$", re.I)
_PATH_LINE = re.compile(r"\s*#+ (/\S+\.(?:service|conf))(?:\.\w+)?\s*$")
_ASSIGN = re.compile(r"\s*[A-Za-z][A-Za-z-]*\s*=")
_SHOW = re.compile(rf"({'|'.join(systemctl.PROPERTIES)})=")
_SHOW_ONLY = {
    "ActiveState", "SubState", "LoadState", "MainPID", "NRestarts", "InvocationID", "UnitFileState", "FragmentPath",
    "DropInPaths", "NeedDaemonReload", "Result", "ExecMainStatus", "ExecMainStartTimestamp", "LoadError",
}  # fmt: skip
_PS_HEAD = re.compile(r"\s*NAME\s+ID\s+SIZE\s+PROCESSOR")
_LISTEN = (
    re.compile(r"(?:tcp6?\s+)?LISTEN\s+\d+\s+\d+\s+(?P<at>\S+):(?P<port>\d+)\s+\S+(?:.*\(\(\"(?P<name>[^\"]+)\",pid=(?P<pid>\d+))?"),
    re.compile(r"tcp6?\s+\d+\s+\d+\s+(?P<at>\S+):(?P<port>\d+)\s+\S+\s+LISTEN(?:\s+(?P<pid>\d+)/(?P<name>\S+))?"),
    re.compile(r"(?P<name>\S+)\s+(?P<pid>\d+)\s+\S+.*TCP (?P<at>\S+):(?P<port>\d+) \(LISTEN\)"),
)  # fmt: skip
_NAME = r"(?P<name>O?LL?AMA_\w+|OLAMA_\w+|LLAMA_ARG_\w+|CUDA_VISIBLE_DEVICES|RO?CR_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|" \
        r"GGML_VK_VISIBLE_DEVICES|HSA_OVERRIDE_GFX_VERSION\w*|LD_PRELOAD|HTTPS?_PROXY|NO_PROXY|https?_proxy|no_proxy)"  # fmt: skip
_VALUE = r"(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s\"',;\\]*)"
_SETS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("launchctl", re.compile(rf"launchctl setenv {_NAME} {_VALUE}")),
    ("snap", re.compile(r"snap set ollama (?P<name>[a-z][a-z-]*)=(?P<value>\S+)")),
    ("windows", re.compile(rf"(?:\bsetx {_NAME.replace('?P<name>', '')} )", re.I)),
    ("windows", re.compile(rf"\bsetx(?:\.exe)?\s+{_NAME}\s+{_VALUE}", re.I)),
    ("windows", re.compile(rf"\$env:{_NAME}\s*=\s*{_VALUE}", re.I)),
    ("windows", re.compile(rf"^\s*set {_NAME}={_VALUE}", re.I)),
    ("service", re.compile(rf"\s*Environment=[\"']?{_NAME}={_VALUE}")),
    ("docker", re.compile(rf"(?:-e|--env)[ =][\"']?{_NAME}={_VALUE}")),
    ("shell", re.compile(rf"\bexport\s+{_NAME}={_VALUE}")),
    ("shell", re.compile(rf"^\s*(?:[$#]\s*)?(?:\w+=\S+\s+)*{_NAME}={_VALUE}\s+(?:\w+=\S+\s+)*(?:nohup\s+)?(?:\S*/)?ollama\b")),
    ("compose", re.compile(rf"^\s*-\s*[\"']?{_NAME}=(?P<value>[^\"'\n]*?)[\"']?\s*$")),
    ("compose", re.compile(rf"^\s+[\"']?{_NAME}[\"']?:\s+(?P<value>.*?)\s*$")),
    ("plist", re.compile(rf"<key>{_NAME}</key>\s*<string>(?P<value>[^<]*)</string>")),
    ("nix", re.compile(rf"^\s*{_NAME}\s*=\s*\"(?P<value>[^\"]*)\";")),
    ("env", re.compile(rf"^\s*{_NAME}={_VALUE}\s*$")),
)  # fmt: skip
_SETS = tuple(row for row in _SETS if "value" in row[1].groupindex)
_PLIST_KEY = re.compile(rf"<key>{_NAME}</key>\s*$")
_PLIST_VALUE = re.compile(r"<string>(?P<value>[^<]*)</string>")
_WORLDS = (
    ("wsl", r"\bWSL2?\b|microsoft-standard|/mnt/[a-z]/(?:Users|Windows)|\bsetx\b.*\bwsl\b|/etc/wsl\.conf|usr/lib/wsl"),
    ("snap", r"\bsnap (?:set|install|restart|get|list|services|logs|connect)\b|/snap/ollama|/var/snap/"),
    ("nixos", r"\bnixos\b|/nix/store/|services\.ollama"),
    (
        "docker",
        r"\bdocker (?:run|compose|exec|logs|ps)\b|ollama/ollama|container_name:|^services:|\bpodman run\b|\brootless\b|rocminfo in container"
        r"|^\s*[\w.-]*ollama[\w.-]*\s+\| ",
    ),
    ("darwin", r"launchctl|brew services|LaunchAgents?|/Applications/Ollama\.app|homebrew|\bmacOS\b"),
    ("windows", r"[A-Z]:\\|AppData|\$env:|\bsetx\b|ollama\.exe|taskkill"),
)


def facts_of(data: bytes, where: str) -> Facts | None:
    """Facts of a pasted text; None where nothing in it is of an Ollama server or its surroundings."""
    if len(data) > SMALL or _is_binary(data[:4096]):
        return facts_of_long([data], where)
    text = data.decode("utf-8", "surrogateescape")
    split = _Splitter(where)
    rest = split.take(text)
    facts = split.facts()
    return _with_log(facts, [rest.encode("utf-8", "surrogateescape")], where)


def facts_of_long(chunks: Iterable[bytes], where: str) -> Facts | None:
    """Facts of a long text, which is taken for a log alone, in one pass and constant memory."""
    return _with_log(Facts(origin=f"log:{where}"), chunks, where)


def _is_binary(head: bytes) -> bool:
    return head[:2] in (b"\xff\xfe", b"\xfe\xff") or head.count(b"\0") > len(head) // 8


def _with_log(facts: Facts, chunks: Iterable[bytes], where: str) -> Facts | None:
    parsed = log.parse_log(chunks, where=where)
    start = _own(parsed.starts[-1]) if parsed.starts else None
    says = start is not None and _says(start)
    told = facts.told
    has = (
        (told is not None and (told.variables or told.messages))
        or facts.service
        or facts.unit_files
        or facts.loaded is not None
    )
    if (
        not says
        and not parsed.systemd
        and not parsed.kernel
        and not parsed.complaints
        and not has
        and not facts.listeners
    ):
        return None
    gone = Missing("unasked", "only a text was given")
    missing = {f: gone for f in Facts.__struct_fields__ if f not in ("schema", "taken", "origin", "missing", "told")}
    version = start.version if start and says and start.version else facts.version
    if not says:
        missing["start"] = Missing("absent", "the text holds no line of a server's start")
    made = msgspec.structs.replace(
        facts, log=parsed, start=start if says else None, version=version or None, missing=missing
    )
    return msgspec.structs.replace(made, missing={k: v for k, v in missing.items() if getattr(made, k) is None})


# what a start says before its `server config`
EARLY = {"key_created", "invalid_environment", "no_systemd", "app_respawns", "client_cannot_connect"}


def _own(start: Start) -> Start:
    """A start without what stands before its `server config`: a text that begins in the middle of an older process
    has lines of that one there, which nothing tells apart but their place."""
    line = start.config_line.line if start.config_line else None
    if line is None or not start.first_line or start.first_line >= line:
        return start
    older = [e for e in start.events if (e.line or line) < line and e.kind not in EARLY]
    lines = [x.line for x in start.loads] + [r.line for r in (*start.recent, *start.failed)]
    if not older and not any((at or line) < line for at in lines):
        return start
    counts = dict(start.counts)
    for event in older:
        counts[event.kind] = max(0, counts.get(event.kind, 0) - 1)
    return msgspec.structs.replace(
        start,
        events=tuple(e for e in start.events if e not in older),
        counts={k: v for k, v in counts.items() if v},
        loads=tuple(x for x in start.loads if (x.line or line) >= line),
        requests=tuple(r for r in start.requests if (r.first_line or line) >= line),
        recent=tuple(r for r in start.recent if (r.line or line) >= line),
        failed=tuple(r for r in start.failed if (r.line or line) >= line),
    )


def _says(start: Start) -> bool:
    return bool(start.config or start.listening or start.events or start.loads or start.requests or start.computes)


class _Splitter:
    def __init__(self, where: str) -> None:
        self.where = where
        self.files: list[UnitFile] = []
        self.tables: list[tuple[LoadedModel, ...]] = []
        self.variables: list[ToldVariable] = []
        self.messages: list[LogEvent] = []
        self.listeners: list[Listener] = []
        self.show: list[str] = []
        self.status: dict[str, str] = {}
        self.drop_ins: list[str] = []
        self.worlds: list[str] = []

    def take(self, text: str) -> str:
        """Reads the pieces; returns the text with them blanked."""
        lines = text.split("\n")
        keep = list(lines)
        for first, last, path in _unit_blocks(lines):
            self._unit(lines[first:last], path, first)
            for n in range(first, last):
                keep[n] = ""
        self._tables(lines, keep)
        looked = 0
        plist = ""
        for n, line in enumerate(lines):
            if not keep[n].strip() or _LOG_LINE.match(line[:300]):
                if n < 400:
                    self._world(line)
                continue
            if _foreign(line):
                continue
            looked += 1
            if looked > ASIDE:
                break
            line = _plain(line[:LONGEST])
            if (own := canonical(line)) is not None:
                keep[n] = own
                self._world(line)
                continue
            for clause in _clauses(line):
                if clause is not line and (own := canonical(clause)) is not None:
                    keep[n] = own if keep[n] == lines[n] else keep[n]
                for kind, fields in quoted(clause):
                    self.messages.append(LogEvent(kind=kind, text=line.strip()[:400], line=n + 1, fields=fields))
            self._status(line)
            if self._show(line):
                keep[n] = ""
                continue
            self._listener(line)
            self._world(line)
            plist = self._variables(line, n + 1, plist)
            for kind, fields in phrases.find(line):
                self.messages.append(LogEvent(kind=kind, text=line.strip()[:400], line=n + 1, fields=fields))
        return "\n".join(keep)

    # -- pieces --

    def _unit(self, lines: list[str], path: str, first: int) -> None:
        path = path or ("pasted unit" if not self.files else f"pasted unit {len(self.files) + 1}")
        main = path.endswith(".service") or (path.startswith("pasted") and any("ExecStart" in x for x in lines))
        text = "\n" * first + "\n".join("" if _PATH_LINE.match(x) else x for x in lines) + "\n"
        parsed = unitfile.parse(path, text, "main" if main else "dropin")
        self.files.append(msgspec.structs.replace(parsed, text=""))

    def _tables(self, lines: list[str], keep: list[str]) -> None:
        rows: list[str] = []
        inside = False
        for n, line in enumerate([*lines, ""]):
            if _PS_HEAD.match(line):
                self._table(rows)
                rows, inside = [line], True
                keep[n] = ""
            elif inside:
                found = ollama_ps.parse(line)
                if found:
                    rows.append(line)
                    keep[n] = ""
                elif line.strip():
                    inside = False
        self._table(rows)

    def _table(self, rows: list[str]) -> None:
        if rows:
            self.tables.append(ollama_ps.parse("\n".join(rows)))

    def _show(self, line: str) -> bool:
        found = _SHOW.match(line)
        if (found and (found[1] in _SHOW_ONLY or self.show)) or (
            line.startswith("Environment=") and line.count("=") > 2
        ):
            self.show.append(line)
            return True
        return False

    def _status(self, line: str) -> None:
        found = re.match(r"\s*(Loaded|Active|Main PID|Process|Drop-In): (.*)", line)
        if found:
            self.status.setdefault(found[1], found[2])
        found = re.match(r"\s*[└├]─(\S+\.conf(?:, \S+\.conf)*)", line)
        if found and self.status.get("Drop-In"):
            self.drop_ins += [f"{self.status['Drop-In']}/{name}" for name in found[1].split(", ")]

    def _listener(self, line: str) -> None:
        if "LISTEN" not in line or len(line) > 400:
            return
        for pattern in _LISTEN:
            found = pattern.search(line)
            if found is not None:
                at = found["at"].strip("[]")
                at = {"*": "::", "localhost": "127.0.0.1", "": "::"}.get(at, at)
                pid = found["pid"]
                self.listeners.append(
                    Listener(
                        address=at,
                        port=int(found["port"][:6]),
                        pid=int(pid[:9]) if pid else None,
                        name=found["name"] or "",
                    )
                )
                return

    def _variables(self, line: str, number: int, plist: str) -> str:
        if plist and (found := _PLIST_VALUE.search(line)):
            self._set(plist, found["value"], "plist", number, line)
            return ""
        if found := _PLIST_KEY.search(line):
            return found["name"]
        seen: set[str] = set()
        for scope, pattern in _SETS:
            for found in pattern.finditer(line[:4000]):
                name = found["name"]
                if scope == "snap":
                    name = "OLLAMA_" + name.upper().replace("-", "_")
                if name not in seen:
                    seen.add(name)
                    self._set(name, found["value"].strip("\"'"), scope, number, line)
        return ""

    def _set(self, name: str, value: str, scope: str, number: int, line: str) -> None:
        if len(self.variables) < 400:
            self.variables.append(
                ToldVariable(
                    name=name, value=value, scope=scope, where=self.where, line=number, text=line.strip()[:300]
                )
            )

    def _world(self, line: str) -> None:
        for name, pattern in _WORLDS:
            if name not in self.worlds and re.search(pattern, line[:400]):
                self.worlds.append(name)

    # -- together --

    def facts(self) -> Facts:
        service = self._service()
        effective = None
        if self.files:
            service = service or _stub(self.files)
            effective = environment.effective(service, self.files, (), {})
        self._compare()
        world = next((name for name, _ in _WORLDS if name in self.worlds), "")
        told = Told(variables=tuple(self.variables), messages=tuple(self.messages), world=world)
        return Facts(
            origin=f"log:{self.where}",
            service=service,
            unit_files=tuple(self.files) or None,
            effective=effective,
            loaded=self.tables[-1] if self.tables else None,
            listeners=tuple(self.listeners) or None,
            told=told if told.variables or told.messages or told.world else None,
        )

    def _service(self) -> Service | None:
        if len(self.show) >= 2:
            return systemctl.parse_show("\n".join(self.show))
        if "Active" not in self.status and "Loaded" not in self.status:
            return None
        loaded = re.match(r"(\w+)(?: \(([^;)]+)(?:; (\w+))?)?", self.status.get("Loaded", ""))
        active = re.match(r"(\w+)(?: \(([\w-]+)\))?(?: \(Result: ([\w-]+)\))?", self.status.get("Active", ""))
        pid = re.match(r"(\d+)(?! \(code)", self.status.get("Main PID", ""))
        return Service(
            id="ollama.service",
            load_state=loaded[1] if loaded else "",
            fragment_path=(loaded[2] or "") if loaded else "",
            unit_file_state=(loaded[3] or "") if loaded else "",
            active_state=active[1] if active else "",
            sub_state=(active[2] or "") if active else "",
            result=(active[3] or "") if active else "",
            main_pid=int(pid[1][:9]) if pid else 0,
            dropin_paths=tuple(self.drop_ins),
        )

    def _compare(self) -> None:
        """What two `ollama ps` of one text say together."""
        for before, after in zip(self.tables, self.tables[1:], strict=False):
            old = {m.name: m for m in before}
            for model in after:
                was = old.get(model.name)
                if was is None:
                    continue
                text = f"ollama ps: {model.name} {was.context or ''} {was.size} → {model.context or ''} {model.size}"
                if was.size_vram and not model.size_vram:
                    self._say("ps_gpu_to_cpu", text + " (GPU → CPU)")
                elif was.context == model.context and model.size > was.size * 1.2:
                    self._say("size_grew", text)
                elif was.size and abs(model.size - was.size) > was.size * 0.2:
                    self._say("ps_flips", text)
        wild = any(v.name == "OLLAMA_HOST" and "0.0.0.0" in v.value for v in self.variables)
        for listener in self.listeners if wild else ():
            if listener.address == "::":
                self._say("ipv6_only_shown", f"socket: LISTEN [::]:{listener.port} {listener.name}")
        for model in self.tables[-1] if self.tables else ():
            if "stopping" in model.expires.lower():
                self._say("stopping_model", f"ollama ps: {model.name} UNTIL {model.expires}")
            elif re.match(r"[1-5] minutes? from now|Less than a minute", model.expires):
                self._say("until_soon", f"ollama ps: {model.name} UNTIL {model.expires}")

    def _say(self, kind: str, text: str) -> None:
        self.messages.append(LogEvent(kind=kind, text=text))


_JOURNAL = re.compile(
    r"(?:\S{1,6} +\d{1,2} [\d:.]{8,20}|\d{4}-\d\d-\d\dT\S{8,40}) \S{1,80} ([\w@.-]{1,60})(?:\[\d+\])?: "
)


def _foreign(line: str) -> bool:
    """Whether a journal's line is of another program, or of systemd about another unit."""
    found = _JOURNAL.match(line)
    if found is None or found[1] == "kernel":
        return False
    text = line[:LONGEST].lower()
    return "ollama" not in text and "suspend" not in text and "hibernat" not in text


def _clauses(line: str) -> list[str]:
    """The parts of a sentence between semicolons, where it is one: code and configuration have no blank after them."""
    parts = line.split("; ")
    return (
        parts if 1 < len(parts) < 12 and not re.search(r"[{}$&]|^\s*(?:export|set|for|if|while)\b", line) else [line]
    )


def _plain(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line.rstrip("\r")).replace("\0", "")


def _stub(files: list[UnitFile]) -> Service:
    main = next((f.path for f in files if f.role == "main"), "")
    return Service(
        id="ollama.service", fragment_path=main, dropin_paths=tuple(f.path for f in files if f.role != "main")
    )


def _unit_blocks(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """(first line, line after the last, path) of each unit file in the text."""
    n = 0
    path, path_at = "", -1
    while n < len(lines):
        line = lines[n].rstrip("\r")
        if found := _PATH_LINE.match(line):
            path, path_at = found[1], n
            if n + 1 < len(lines) and _ASSIGN.match(lines[n + 1]) and not _LOG_LINE.match(lines[n + 1][:300]):
                end = _block_end(lines, n + 1)
                yield n, end, path
                n, path = end, ""
                continue
        elif _SECTION.match(line):
            end = _block_end(lines, n)
            yield n, end, path if n - path_at <= 2 else ""
            n, path = end, ""
            continue
        n += 1


def _block_end(lines: list[str], n: int) -> int:
    """The line after the last one of a unit file that begins at n."""
    last = n
    continued = False
    for at in range(n, len(lines)):
        line = lines[at].rstrip("\r")
        if continued or _ASSIGN.match(line) or _SECTION.match(line):
            if not continued and _LOG_LINE.match(line[:300]):
                break
            last = at
        elif _PATH_LINE.match(line) and at > n:
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
