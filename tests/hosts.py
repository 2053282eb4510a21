"""Hosts that answer from texts: what a recorded or invented machine says to each reading."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import msgspec

from ollamactl.core.facts import Facts, Process
from ollamactl.core.feeds import Collector
from ollamactl.core.parse import environ
from ollamactl.core.source import Missing, Reading, Source

RECORDED = Path(__file__).parent / "recorded"
LOGS = Path(__file__).parent / "data" / "logs" / "recorded"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
UNIT = f"""[Unit]
Description=Ollama Service
[Service]
ExecStart=/usr/local/bin/ollama serve
User=ollama
Group=ollama
Restart=always
RestartSec=3
Environment="PATH={PATH}"
[Install]
WantedBy=default.target
"""
UNIT_PATH = "/etc/systemd/system/ollama.service"
VERIFY = (
    "service", "unit_files", "env_files", "manager_environment", "effective", "process", "listeners", "runners",
    "start", "log", "address", "version", "loaded",
)  # fmt: skip


class TextHost:
    """Answers by the first pattern that is found in a source's key; everything else is absent. `files` are paths."""

    def __init__(self, answers: dict[str, str | bytes | Missing], files: dict[str, str] | None = None) -> None:
        self.answers = answers
        self.files = files or {}
        self.asked: list[str] = []

    def read(self, source: Source) -> Reading:
        self.asked.append(source.key)
        if source.kind == "file" and source.args[0] in self.files:
            return Reading(source.key, self.files[source.args[0]].encode())
        if source.kind == "list":
            found = sorted(p for p in self.files if Path(p).match(source.args[0]))
            return Reading(source.key, json.dumps(found).encode())
        for pattern, answer in self.answers.items():
            if re.search(pattern, source.key):
                if isinstance(answer, Missing):
                    return Reading(source.key, None, answer)
                body = answer.encode() if isinstance(answer, str) else answer
                return Reading(source.key, body, status=200 if source.kind == "http" else 0)
        return Reading(source.key, None, Missing("absent", f"{source.key}: not here"))


def _text(path: Path) -> str:
    """What was recorded, or nothing: not every scenario has every file."""
    return path.read_text() if path.exists() else ""


def recorded(scenario: str, **changes: str) -> TextHost:
    """A recorded machine, as far as the copies in tests/recorded and tests/data go."""
    folder = RECORDED / scenario
    show = (folder / "systemctl_show.txt").read_text()
    files = {UNIT_PATH: UNIT, "/etc/passwd": "ollama:x:999:999::/usr/share/ollama:/bin/false\n"}
    dropins = _text(folder / "dropin.txt")
    for path, text in re.findall(r"^### (\S+)\n(.*?)(?=^### |\Z)", dropins, re.M | re.S):
        files[path] = text
    fields = dict(line.split("=", 1) for line in show.splitlines() if "=" in line)
    pid = int(fields.get("MainPID", "0"))
    answers: dict[str, str | bytes | Missing] = {
        r"systemctl.*show.*ollama\.service": f"Id=ollama.service\n{show}",
        r"systemctl.*show-environment": f"LANG=C.UTF-8\nPATH={PATH}\n",
        r"^command:journalctl": gzip.decompress((LOGS / f"{scenario}.jsonl.gz").read_bytes()),
        r"native:listeners": "[]",
        r"native:system": '{"os":"linux","hostname":"lab","init":"systemd"}',
        r"api/version": '{"version":"0.33.0-rc2"}',
    }
    if loaded := _text(folder / "api_ps.json"):
        answers[r"api/ps"] = loaded
    if pid:
        raw = _text(folder / "proc_environ.txt").encode().replace(b"\n", b"\0")
        main = Process(pid=pid, comm="ollama", argv=("/usr/local/bin/ollama", "serve"), environ=environ.parse(raw))
        answers[f"native:process {pid}"] = msgspec.json.encode(main)
        commands: list[list[str]] = json.loads(_text(folder / "runner_cmdline.json") or "[]")
        runners = [Process(pid=pid + 1 + n, ppid=pid, argv=tuple(argv)) for n, argv in enumerate(commands)]
        answers[f"native:children {pid}"] = msgspec.json.encode(runners)
    for name, value in changes.items():
        answers[name] = value
    return TextHost(answers, files)


def facts_of(host: Any, unit: str = "ollama.service", fields: tuple[str, ...] = VERIFY) -> Facts:
    return Collector(host, unit).facts(fields, taken=0.0)
