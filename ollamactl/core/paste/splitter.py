"""Takes a pasted text apart: unit files, output of commands, variables, words of clients; what is left is a log."""

from __future__ import annotations

import re

import msgspec

from ollamactl.core import environment
from ollamactl.core.facts import Facts, Listener, LoadedModel, LogEvent, Service, Told, ToldVariable, UnitFile
from ollamactl.core.parse import events, ollama_ps, phrases, systemctl, unitfile
from ollamactl.core.paste import cells, claims, commands, listening, outcomes, screens, told
from ollamactl.core.paste.canonical import canonical, quoted
from ollamactl.core.paste.fragments import SHORT
from ollamactl.core.paste.printed import Printed
from ollamactl.core.paste.shape import LOG_LINE, LONGEST, WORLDS, clauses, foreign, named, plain
from ollamactl.core.paste.units import PASSED_OVER, SHOW_ONLY, passed_over, sets_of, text_of, unit_blocks
from ollamactl.core.paste.variables import SETS, SPLIT, advised, calls_another_host, for_a_client, mentioned

ASIDE = 2000  # lines that are looked at for more than a log's
_SHOW = re.compile(rf"({'|'.join(systemctl.PROPERTIES)})=")
_PS_HEAD = re.compile(r"\s*NAME\s+ID\s+SIZE\s+PROCESSOR")
_UNIT_FILE = re.compile(r"\s*(\S+\.(?:conf|service))\b(?: has| says| sets|:)?")

Waiting = tuple[str, str, re.Pattern[str]]  # scope and name of a variable, and what its value's line looks like


class Splitter:
    def __init__(self, where: str) -> None:
        self.where = where
        self.files: list[UnitFile] = []
        self.tables: list[tuple[LoadedModel, ...]] = []
        self.variables: list[ToldVariable] = []
        self.messages: list[LogEvent] = []
        self.listeners: list[Listener] = []
        self.show: list[str] = []
        self.asked = False  # whether a prompt with `systemctl show` is there
        self.status: dict[str, str] = {}
        self.drop_ins: list[str] = []
        self.worlds: list[str] = []
        self.commands = commands.Found()
        self.printed = Printed()
        self.long = False  # whether this is more than a told case: then only forms count, no sentences
        self.placed: dict[str, dict[str, str]] = {}  # name -> unit file that a sentence names -> value there
        self.listed = False  # whether a whole table of `ollama ps` is there

    def take(self, text: str) -> str:
        """Reads the pieces; returns the text with them blanked."""
        lines = text.split("\n")
        keep = list(lines)
        for first, last, path in unit_blocks(lines):
            if passed_over(path):
                for n, name, value in sets_of(lines, first, last):
                    self._passed_over("drop-in", path, n, name, value)
            elif path.endswith((".service", ".conf")) or not path:
                self._unit(lines[first:last], path, first)
            for n in range(first, last):
                keep[n] = ""
        self._tables(lines, keep)
        self.long = len(lines) > 3 * SHORT
        self.listed = bool(self.tables)
        looked, apart = 0, named(lines)
        waiting: Waiting | None = None
        aside: screens.Lines = []
        for n, line in enumerate(lines):
            if not keep[n].strip() or LOG_LINE.match(line[:300]):
                if n < 400:
                    self._world(line)
                continue
            if foreign(line, apart):
                continue
            looked += 1
            if looked > ASIDE:
                break
            line = plain(line[:LONGEST])
            aside.append((n + 1, line))
            if (command := screens.prompt(line)) is not None:
                self.printed.begin(command)
                self._world(line)
                line = line[: line.rindex(command)] + screens.evidence(command)
                keep[n] = ""
            else:
                line = self.printed.named(line)
                self.printed.take(n + 1, line)
            if (own := canonical(line)) is not None:
                keep[n] = own
                self._world(line)
                continue
            for clause in clauses(line):
                if clause is not line and (own := canonical(clause)) is not None:
                    keep[n] = own if keep[n] == lines[n] else keep[n]
                for kind, fields in quoted(clause):
                    self.messages.append(LogEvent(kind=kind, text=line.strip()[:400], line=n + 1, fields=fields))
            self._status(line)
            if self._show(line):
                keep[n] = ""
                continue
            if (socket := listening.listener(line)) is not None:
                self.listeners.append(socket)
            self._states(line)
            self._world(line)
            if not outcomes.taken_out(self.printed.command, line):
                waiting = self._variables(line, n + 1, waiting)
            said = phrases.find(line)
            if not self.long and command is None:
                known = {kind for kind, _ in said} | {row.kind for row, _ in events.find(line, None)}
                said += [(kind, fields) for kind, fields in claims.find(line) if kind not in known]
            for kind, fields in said:
                self.messages.append(LogEvent(kind=kind, text=line.strip()[:400], line=n + 1, fields=fields))
        if len(aside) == 1:
            self.messages = [m for m in self.messages if claims.CURE not in m.fields]
        self.commands = commands.read(aside)
        self.messages += self.commands.messages
        if (slots := self.commands.slots) is not None and slots.context:
            keep[slots.line - 1] = told.load(slots.context * slots.count, slots.count)
        return "\n".join(keep)

    # -- pieces --

    def _unit(self, lines: list[str], path: str, first: int) -> None:
        path = path or ("pasted unit" if not self.files else f"pasted unit {len(self.files) + 1}")
        main = path.endswith(".service") or (path.startswith("pasted") and any("ExecStart" in x for x in lines))
        parsed = unitfile.parse(path, text_of(lines, first), "main" if main else "dropin")
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

    def _states(self, line: str) -> None:
        """Rows of `ollama ps` that a sentence tells; several of one model are before and after."""
        for state in () if self.listed else cells.states(line):
            self.tables.append((state.model(),))

    def _show(self, line: str) -> bool:
        found = _SHOW.match(line)
        asked = "systemctl show" in self.printed.command
        self.asked = self.asked or asked
        if (found and (found[1] in SHOW_ONLY or self.show or asked)) or (
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

    def _variables(self, line: str, number: int, waiting: Waiting | None) -> Waiting | None:
        """Reads a line's variables; returns what waits for its value on the next line."""
        if waiting is not None and (found := waiting[2].search(line)):
            self._set(waiting[1], found["value"], waiting[0], number, line)
            return None
        for kind, key, after in SPLIT:
            if found := key.search(line):
                return kind, found["name"], after
        seen: set[str] = set()
        for scope, pattern in SETS:
            for found in pattern.finditer(line[:4000]):
                name = found["name"]
                if advised(line[: found.start()]):
                    continue
                if scope == "snap":
                    name = "OLLAMA_" + name.upper().replace("-", "_")
                if name not in seen:
                    seen.add(name)
                    value = found["value"].strip("\"'")
                    scope = (self.printed.scope(name, value) if scope == "env" else "") or scope
                    asks = calls_another_host(name, value) or for_a_client(name, line[found.start() :])
                    scope = "client" if scope == "shell" and asks else scope
                    self._set(name, value, scope, number, line)
        for name, value, scope in () if seen or self.long else mentioned(line):
            self._set(name, value, scope, number, line)
            if file := _UNIT_FILE.match(line):
                self.placed.setdefault(name, {})[file[1]] = value
        return None

    def _set(self, name: str, value: str, scope: str, number: int, line: str) -> None:
        if len(self.variables) < 400:
            self.variables.append(
                ToldVariable(
                    name=name, value=value, scope=scope, where=self.where, line=number, text=line.strip()[:300]
                )
            )

    def _world(self, line: str) -> None:
        for name, pattern in WORLDS:
            if name not in self.worlds and re.search(pattern, line[:400]):
                self.worlds.append(name)

    def _passed_over(self, kind: str, path: str, line: int, name: str, value: str) -> None:
        """Notes a variable of a file that systemd does not read."""
        fields = {"kind": kind, "path": path, "name": name, "value": value}
        self.messages.append(LogEvent(kind=PASSED_OVER, text=f"{path}: {name}={value}", line=line, fields=fields))

    # -- together --

    def facts(self) -> Facts:
        service = self._service()
        effective = None
        self.files.sort(key=lambda file: file.role != "main")  # as systemd reads them
        read = self.printed.environment_files(tuple(self.files))
        if self.files:
            service = service or _stub(self.files)
            effective = environment.effective(service, self.files, read, {})
        for row in self.printed.unnamed(tuple(self.files)):
            self._passed_over("env-file", *row)
        apart = self.printed.lines_of(read)
        self.variables = [v for v in self.variables if v.line not in apart]
        process = self.printed.process(service.main_pid if service else 0)
        self._compare()
        world = next((name for name, _ in WORLDS if name in self.worlds), "")
        told = Told(variables=tuple(self.variables), messages=tuple(self.messages), world=world)
        return Facts(
            origin=f"log:{self.where}",
            service=service,
            unit_files=tuple(self.files) or None,
            env_files=read or None,
            effective=effective,
            process=process,
            loaded=self._loaded(),
            gpus=self.commands.gpus,
            drivers=self.commands.drivers,
            memory=self.commands.memory,
            version=self.commands.version or None,
            listeners=tuple(self.listeners) or None,
            installed=self.commands.installed,
            told=told if told.variables or told.messages or told.world else None,
        )

    def _loaded(self) -> tuple[LoadedModel, ...] | None:
        """The last table; with those of earlier ones if no model is in both: then they are no before and after."""
        if self.commands.loaded and not self.listed:
            return self.commands.loaded
        if not self.tables:
            return None
        last = self.tables[-1]
        names = [m.name for table in self.tables for m in table]
        return last if len(set(names)) < len(names) else tuple(m for table in self.tables for m in table)

    def _service(self) -> Service | None:
        if len(self.show) >= (1 if self.asked else 2):
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
            frozen="(frozen)" in self.status.get("Active", ""),
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
                grown = (model.context or 0) > (was.context or 0) > 0
                if was.size_vram and not model.size_vram:
                    self._say("kv_too_large" if grown else "ps_gpu_to_cpu", text + " (GPU → CPU)")
                elif grown and was.size_vram == was.size and model.size_vram < model.size:
                    self._say("kv_too_large", text + " (part of it on the CPU)")
                elif min(was.size, model.size) < 1 << 20:
                    continue  # only shares were told
                elif was.context == model.context and model.size > was.size * 1.2:
                    self._say("size_grew", text)
                elif self.listed and was.size and abs(model.size - was.size) > was.size * 0.2:
                    self._say("ps_flips", text)
        contexts = [m.context for table in self.tables for m in table[:1] if m.context]
        if any(a == c != b for a, b, c in zip(contexts, contexts[1:], contexts[2:], strict=False)):
            self._say("ps_flips", "ollama ps: CONTEXT " + " → ".join(map(str, contexts[:6])))
        shown = [{m.name for m in table} for table in self.tables if table]
        for a, b, c in zip(shown, shown[1:], shown[2:], strict=False):
            if a == c and not a & b:
                self._say("loaded_in_turn", f"ollama ps: {', '.join(a)} → {', '.join(b)} → {', '.join(c)}")
                break
        for name, files in self.placed.items():
            if len(set(files.values())) > 1:
                told = ", ".join(f"{file}: {value}" for file, value in files.items())
                self._say("overridden_by_other_file", f"{name} is set in more than one file: {told}")
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


def _stub(files: list[UnitFile]) -> Service:
    main = next((f.path for f in files if f.role == "main"), "")
    return Service(
        id="ollama.service", fragment_path=main, dropin_paths=tuple(f.path for f in files if f.role != "main")
    )
