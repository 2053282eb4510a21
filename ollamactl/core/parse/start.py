"""Gathers one start of the server while its lines pass: configuration, devices, loads, requests, events."""

from __future__ import annotations

import re
from collections import Counter, deque

from ollamactl.core.facts import Compute, Evidence, LogEvent, Request, Start
from ollamactl.core.parse import events, gin
from ollamactl.core.parse.engine import Loading, is_of_load, parse_size
from ollamactl.core.parse.runner import RunnerArgs, parse_argv, parse_load_request, split_command
from ollamactl.core.parse.server_config import parse_map
from ollamactl.core.parse.slog import Line

LOADS = 500  # the newest are kept
TEXT = 4000  # characters of a line that are kept
ASKED = 3.0  # seconds from a request to the load that it makes, as whole seconds of [GIN] lines show them
_LISTENING = re.compile(r"Listening on (\S+) \(version ([^)]*)\)")
_STARTED = re.compile(r"(?:llama runner|llama-server|runner) started in ([0-9.]+) seconds")
# how the engine's lines about a load begin, where a log is cut in the middle of one
_LOADING = re.compile(
    r"(?:llm_)?load_tensors: |llama_model_loader: loaded meta data|llama_(?:new_context_with_model|context): n_ctx "
    r"|llama_kv_cache\w*: +\S+ KV buffer"
)
_BEGINS = re.compile(r"(?:llm_)?load_tensors: |llama_model_loader: ")  # of them, what a new runner says first
_RUNNER_STARTS = {"starting llama server", "starting runner", "starting llama-server"}
# events that say nothing against a load during which they occur
_HARMLESS = {
    "slot_launched", "prompt_cache", "prompt_cache_enabled", "prompt_cache_disabled", "flash_attention_forced_on",
    "llama_arg_overridden", "context_shift", "key_created", "host_memory_projection", "server_trace", "runner_trace",
    "fit_reduces", "fit_by_context",
}  # fmt: skip


class Kept:
    """Events by kind: all counted, the first and the last so many kept."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.first: dict[str, list[LogEvent]] = {}
        self.last: dict[str, deque[LogEvent]] = {}

    def add(self, event: LogEvent, keep: int) -> None:
        self.counts[event.kind] += 1
        first = self.first.setdefault(event.kind, [])
        if len(first) < keep:
            first.append(event)
        else:
            self.last.setdefault(event.kind, deque(maxlen=keep)).append(event)

    def all(self) -> tuple[LogEvent, ...]:
        found = [one for some in (*self.first.values(), *self.last.values()) for one in some]
        return tuple(sorted(found, key=lambda one: one.line or 0))


def _asked_for(one: Request, load: Loading) -> bool:
    """Whether a request that was answered is the one for which the model is loaded: it began right before."""
    if one.status != 200 or one.path not in gin.RUNS_A_MODEL or one.at is None or load.at is None:
        return False
    return -ASKED <= one.at - one.seconds - load.at <= 1.0


class Run:
    """One process of the server, as its log tells it."""

    def __init__(self, where: str, invocation: str, pid: int | None, line: int) -> None:
        self.where, self.invocation, self.pid = where, invocation, pid
        self.first_line = self.last_line = line
        self.at: float | None = None
        self.version = self.listening = ""
        self.config: dict[str, str] | None = None
        self.config_line: Evidence | None = None
        self.config_before_listening = False
        self.listening_line: Evidence | None = None
        self.computes: list[Compute] = []
        self.default_context: int | None = None
        self.total_vram: int | None = None
        self.loads: deque[Loading] = deque(maxlen=LOADS)
        self.events = Kept()
        self.requests = gin.Requests()
        self.ended = False
        self.provisional: Run | None = None  # the start that goes on if this one was none
        self.real = False
        self.slog = False

    # -- Ollama's own lines --

    def own(self, line: Line, text: str, at: float | None, number: int, pid: int | None) -> None:
        msg = line.msg
        if line.plain is False:
            self.slog = True
        if msg == "server config":
            self._config(line, text, at, number, pid)
        elif msg.startswith("Listening on "):
            self._listening(msg, text, at, number)
        elif msg == "inference compute":
            self._compute(line.fields, text)
        elif msg in _RUNNER_STARTS:
            self._runner(line.fields.get("cmd", ""), text, at, number)
        elif msg.startswith("Loading Dynamic llm server: "):  # up to 0.1.31: in the server's own process
            self._begin(Loading(RunnerArgs(), (), msg.split(": ", 1)[1], at, number, text[:TEXT]))
        elif msg == "load" and self.loads and "request" in line.fields:
            request = parse_load_request(line.fields["request"])
            if request is not None and request.operation == "commit" and self.loads[-1].outcome == "loading":
                self.loads[-1].request = request
        elif msg == "vram-based default context":
            context = line.fields.get("default_num_ctx", "")
            self.default_context = int(context) if context.isdecimal() and len(context) < 16 else None
            self.total_vram = parse_size(line.fields.get("total_vram", ""))
        else:
            started = _STARTED.match(msg)
            if started is not None:
                self._loaded(float(started[1]) if started[1].count(".") < 2 and started[1] != "." else None)
            elif self.loads and self.loads[-1].outcome == "loading":
                self.loads[-1].go_line(msg, line.fields, text[:TEXT])
            elif not self.loads and self.config is None and is_of_load(msg):
                self._imply(text, at, number)
                self.loads[-1].go_line(msg, line.fields, text[:TEXT])
        for row, fields in events.find(text, line):
            self.note(row.kind, text, at, number, pid, line.level, fields, row.keep)
            self._judge(row.kind, line.fields)

    def _config(self, line: Line, text: str, at: float | None, number: int, pid: int | None) -> None:
        if self.config is not None or self.listening:
            return  # not the one of this start: somebody's text, or a line that was copied
        config = parse_map(line.fields.get("env", ""))
        if config is None:
            self.note("config_cut", text, at, number, pid, line.level, {}, 5)
            return
        self.config = config
        self.config_line = Evidence(where=self.where, text=text[:TEXT], line=number, at=at)

    def _listening(self, msg: str, text: str, at: float | None, number: int) -> None:
        found = _LISTENING.match(msg)
        if found is None or self.listening:
            return
        self.listening, self.version = found[1], found[2]
        self.listening_line = Evidence(where=self.where, text=text[:TEXT], line=number, at=at)
        self.config_before_listening = self.config is not None

    def _compute(self, fields: dict[str, str], text: str) -> None:
        if len(self.computes) < 64:
            names = ("id", "library", "name", "description", "compute", "driver", "type")
            known = {name: fields[name] for name in names if fields.get(name)}
            total, free = parse_size(fields.get("total", "")), parse_size(fields.get("available", ""))
            self.computes.append(Compute(**({"id": ""} | known), total=total, available=free, text=text[:TEXT]))

    # -- loads --

    def _runner(self, command: str, text: str, at: float | None, number: int) -> None:
        argv = split_command(command)
        args = parse_argv(argv)
        if not args.loads:  # discovery of devices, or a refresh of free memory
            self.events.counts["discovery"] += 1
            return
        program = args.program.replace("\\", "/").rsplit("/", 1)[-1]
        runner = " ".join([program, *(word for word in argv[1:3] if word in ("runner", "--ollama-engine"))])
        self._begin(Loading(args, argv, runner, at, number, text[:TEXT]))

    def _imply(self, text: str, at: float | None, number: int) -> None:
        """A load of which the log shows no beginning: what is pasted is often a part of it."""
        self._begin(Loading(RunnerArgs(), (), "", at, number, text[:TEXT], implied=True))

    def _begin(self, load: Loading) -> None:
        if self.loads and self.loads[-1].outcome == "loading":
            self.loads[-1].outcome = "aborted"  # loads come one after another: this one was given up
        self.loads.append(load)

    def _loaded(self, seconds: float | None) -> None:
        if self.loads and self.loads[-1].outcome in ("loading", "loaded") and self.loads[-1].seconds is None:
            self.loads[-1].outcome, self.loads[-1].seconds = "loaded", seconds

    def _judge(self, kind: str, fields: dict[str, str]) -> None:
        """What an event says about the load under way."""
        if not self.loads:
            return
        load = self.loads[-1]
        under_way = load.outcome == "loading" or (load.outcome == "loaded" and load.seconds is None)
        if kind == "client_gone_during_load" and under_way:
            load.outcome = "aborted"
        elif kind == "load_failed" and (under_way or load.outcome == "failed"):
            load.outcome, load.error = "failed", fields.get("error", "") or load.error
        elif kind in ("runner_terminated", "runner_gone") and load.outcome == "loading":
            load.outcome, load.error = "failed", fields.get("error", "") or fields.get("string", "")

    # -- raw lines and requests --

    def raw(self, text: str, at: float | None, number: int, pid: int | None) -> None:
        load = self.loads[-1] if self.loads else None
        idle = load is None or (load.implied and load.outcome != "loading")
        failed = load.outcome == "failed" if load is not None else self.events.counts["load_failed"] > 0
        begins = _BEGINS if failed else _LOADING  # a runner that was given up may go on talking
        if idle and self.config is None and begins.match(text):
            self._imply(text, at, number)
            load = self.loads[-1]
        if load is not None and load.outcome == "loading":
            load.engine_line(text[:TEXT])
            if pid != self.pid and load.pid is None:
                load.pid = pid
            if "model loaded" in text or '"msg":"new slot"' in text:
                load.outcome = "loaded"
        elif load is not None and load.outcome == "loaded" and load.seconds is None and "new slot" in text:
            load.engine_line(text[:TEXT])
        for row, fields in events.find(text, None):
            self.note(row.kind, text, at, number, pid, "", fields, row.keep)
            harmless = row.kind in _HARMLESS or "pinned memory" in text  # without it the engine goes on, only slower
            if load is not None and load.outcome in ("loading", "failed") and not harmless:
                load.error_line(text[:500])
        if text.startswith("Error: "):
            self.note("fatal_error", text, at, number, pid, "", {"error": text[7:607]}, 20)

    def request(self, one: Request, text: str) -> None:
        self.requests.add(one, text[:400])
        if self.loads and self.loads[-1].outcome == "loading" and _asked_for(one, self.loads[-1]):
            self.loads[-1].outcome = "loaded"  # the line that says so is not there

    def note(
        self,
        kind: str,
        text: str,
        at: float | None,
        line: int,
        pid: int | None,
        level: str,
        fields: dict[str, str],
        keep: int,
    ) -> None:
        event = LogEvent(kind=kind, text=text[:TEXT], at=at, line=line, pid=pid, level=level, fields=fields)
        self.events.add(event, keep)

    def build(self) -> Start:
        return Start(
            invocation=self.invocation,
            pid=self.pid,
            at=self.at,
            version=self.version,
            config=self.config,
            config_line=self.config_line,
            config_before_listening=self.config_before_listening,
            listening=self.listening,
            listening_line=self.listening_line,
            computes=tuple(self.computes),
            default_context=self.default_context,
            total_vram=self.total_vram,
            loads=tuple(load.build() for load in self.loads),
            events=self.events.all(),
            counts=dict(self.events.counts),
            requests=self.requests.stats(),
            recent=tuple(self.requests.recent),
            failed=tuple(self.requests.failed),
            first_line=self.first_line,
            last_line=self.last_line,
            ended=self.ended,
        )
