"""Recorded machines in a host's place: each reading is made of what was recorded there."""

from __future__ import annotations

import fnmatch
import gzip
import json
import re
from pathlib import Path
from typing import Any

from ollamactl.core.source import Missing, Reading, Source

HERE = Path(__file__).parent
JOURNALS = HERE.parent / "data" / "logs" / "recorded"
SCENARIOS = sorted(path.stem for path in (HERE / "recorded").glob("*.json"))
CGROUP = "/system.slice/ollama.service"
EXTRA = f"""Id=ollama.service
Type=simple
Restart=always
RestartUSec=3s
ExecStart={{ path=/usr/local/bin/ollama ; argv[]=/usr/local/bin/ollama serve ; ignore_errors=no ; start_time=[n/a] }}
User=ollama
Group=ollama
ControlGroup={CGROUP}
StandardOutput=journal
ProtectHome=no
"""


class Recorded:
    """A `Host` that answers from one recorded scenario. `change` is called with the recording before anything is read,
    for machines that differ from it in one thing."""

    def __init__(self, scenario: str, change: Any = None) -> None:
        self.data: dict[str, Any] = json.loads((HERE / "recorded" / f"{scenario}.json").read_text())
        packed = JOURNALS / f"{scenario}.jsonl.gz"
        self.journal = gzip.decompress(packed.read_bytes()) if packed.exists() else b""
        if change is not None:
            change(self)
        self.show = dict(line.split("=", 1) for line in self.data["show"].splitlines() if "=" in line)
        self.asked: list[str] = []

    @property
    def pid(self) -> int:
        return int(self.show.get("MainPID", "0"))

    def read(self, source: Source) -> Reading:
        self.asked.append(source.key)
        answer = getattr(self, f"_{source.kind}")(source)
        if isinstance(answer, Missing):
            return Reading(source.key, missing=answer)
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return Reading(source.key, body[: source.limit], status=200 if source.kind == "http" else 0)

    def _file(self, source: Source) -> bytes | Missing:
        text = self.data["files"].get(source.args[0])
        return Missing("absent", source.args[0]) if text is None else text.encode()

    def _stat(self, source: Source) -> Any:
        if source.args[0] in self.data["files"]:
            return {"type": "file", "mode": 0o644, "uid": 0, "gid": 0, "size": 1, "mtime": 1.0, "target": ""}
        state = self.data.get("stats", {}).get(source.args[0])
        return state if state is not None else Missing("unasked", "not recorded")

    def _list(self, source: Source) -> list[str]:
        pattern = source.args[0]
        if any(c in pattern for c in "*?["):
            return sorted(p for p in self.data["files"] if fnmatch.fnmatch(p, pattern))
        return sorted(p.rsplit("/", 1)[1] for p in self.data["files"] if p.rsplit("/", 1)[0] == pattern.rstrip("/"))

    def _command(self, source: Source) -> bytes | Missing:
        words = " ".join(source.args)
        if "list-units" in words:
            return b"ollama.service loaded active running Ollama Service\n"
        if "list-unit-files" in words:
            return b"ollama.service enabled enabled\n"
        if "systemctl show " in words:
            return (EXTRA + self.data["show"]).encode()
        if "show-environment" in words:
            return b"LANG=C.UTF-8\nPATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
        if "journalctl" in words and " -k" not in words:
            if "_PID=1" in words and "PRIORITY=4" in words:
                lines = [x for x in self.journal.splitlines() if b'"_PID":"1"' in x.replace(b": ", b":")]
                return b"\n".join([*lines, b""])
            return self.journal
        return Missing("absent", f"no {source.args[0]} here")

    def _native(self, source: Source) -> Any:
        name, *rest = source.args
        if name == "system":
            return {"os": "linux", "init": "systemd", "hostname": "vm", "cpus": 2, "euid": 0}
        if name == "memory":
            return {"total": 25 << 30, "available": 23 << 30}
        if name == "servers":
            return list(self._listening_servers())
        if name == "process":
            return self._process() if self.pid else Missing("absent", "no such process")
        if name == "children":
            return [self._runner(r) for r in self.data["runners"]] if self.pid else []
        if name == "listeners":
            return self._listeners()
        if name == "sockets":
            return {"port": int(rest[0]), "established": 0, "awaiting_reply": 0}
        return Missing("absent", "no GPU here")

    def _process(self) -> dict[str, Any]:
        env = dict(line.split("=", 1) for line in self.data["environ"].splitlines() if "=" in line)
        return {"pid": self.pid, "comm": "ollama", "argv": ["/usr/local/bin/ollama", "serve"], "environ": env or None,
                "user": "ollama", "uid": 999, "cgroup": CGROUP, "state": "S"}  # fmt: skip

    def _listening_servers(self) -> list[dict[str, Any]]:
        found = [self._process()] if self.pid else []
        for row in self._listeners():
            if row["name"] == "ollama" and row["pid"] != self.pid and not self.pid:
                found.append({"pid": row["pid"], "comm": "ollama", "argv": ["/usr/local/bin/ollama", "serve"],
                              "user": "ollama", "cgroup": "/user.slice/user-0.slice/session-1.scope"})  # fmt: skip
        return found

    def _listeners(self) -> list[dict[str, Any]]:
        found = []
        for line in self.data["ss"]:
            row = re.match(r'LISTEN\s+\d+\s+\d+\s+(\S+):(\d+)\s.*\(\("([^"]+)",pid=(\d+)', line)
            if row:
                at = row[1].strip("[]").replace("*", "::")
                pid = self.pid if row[3] == "ollama" and self.pid else int(row[4])
                found.append({"address": at, "port": int(row[2]), "pid": pid, "name": row[3]})
        return found

    def _runner(self, one: dict[str, Any]) -> dict[str, Any]:
        pid = int((one.get("nspid") or "0").split()[-1] or 0)
        return {"pid": pid, "ppid": self.pid, "comm": "llama-server", "argv": one["cmd"], "state": "S",
                "rss": (one.get("rss_kib") or 0) * 1024, "cgroup": CGROUP}  # fmt: skip

    def _http(self, source: Source) -> Any:
        url = source.args[1]
        dead = Missing("failed", "connection refused")
        for name in ("version", "ps", "tags", "slots", "props"):
            end = f"/api/{name}" if name in ("version", "ps", "tags") else f"/{name}"
            if url.endswith(end):
                found = self.data.get(name)
                return dead if found is None else found
        return dead
