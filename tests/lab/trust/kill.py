"""A lab machine on which changes are killed, recovered and judged: all old or all new, and serving."""

from __future__ import annotations

import base64
import io
import json
import re
import tarfile
from typing import Any

from tests.lab import ollama
from tests.lab.machine import Machine

from . import strace
from .strace import Call, Tree

QUIET = {"PYTHONDONTWRITEBYTECODE": "1"}
OURS = "/etc/systemd/system/ollama.service.d/zz-ollamactl.conf"
# One line: digests of the folders that we may touch and of the process's environment, our value in it, whether it
# serves.
STATE = r"""
etc=$(cd /etc && { find systemd/system ollamactl -printf '%p %y %m %U:%G %l\n' 2>/dev/null
  find systemd/system ollamactl -type f 2>/dev/null | sort | xargs -r sha256sum; } | sort | sha256sum | cut -c1-16)
pid=$(systemctl show -P MainPID ollama)
tr '\0' '\n' </proc/$pid/environ 2>/dev/null | grep -vE '^(INVOCATION_ID|JOURNAL_STREAM|SYSTEMD_EXEC_PID)=' >/tmp/env
value=$(grep '^OLLAMA_NUM_PARALLEL=' /tmp/env)
env=$(sort /tmp/env | sha256sum | cut -c1-8)
serves=no; curl -sf --max-time 5 http://127.0.0.1:11434/api/version >/dev/null && serves=yes
reload=$(systemctl show -P NeedDaemonReload ollama)
open=no; ls -A /var/lib/ollamactl 2>/dev/null | grep -qvxE 'lock|history|loads.jsonl|vocabularies.json' && open=yes
echo "STATE $etc env=$env value=${value#*=} serves=$serves reload=$reload open=$open"
"""


class Victim:
    """A machine with Ollama's stand-in, whose changes are killed."""

    def __init__(self) -> None:
        self.machine = Machine()

    def __enter__(self) -> Victim:
        self.machine.boot()
        ollama.setup(self.machine)
        self.machine.run([*ollama.OLLAMACTL, "verify"], check=False)  # its modules are looked up once
        return self

    def __exit__(self, *_: object) -> None:
        self.machine.stop()

    def ctl(self, *args: str, before: list[str] | None = None) -> Any:
        return self.machine.run([*(before or []), *ollama.OLLAMACTL, *args], check=False, env=QUIET, timeout=120)

    def state(self) -> str:
        return self._state(self.machine.run(["bash", "-c", STATE]).stdout)

    def _state(self, text: str) -> str:
        found = re.search(r"^STATE (.*)$", text, re.M)
        assert found, text
        return found.group(1)

    def trace(self, *args: str) -> list[Call]:
        """A change that goes well, traced."""
        done = self.ctl(*args, before=strace.arguments("/tmp/trace"))
        assert done.returncode == 0, done.stdout + done.stderr
        return list(strace.calls(self.machine.read("/tmp/trace")))

    def kill(self, call: Call, *args: str) -> str:
        """The change killed before that very call. Empty where that came off, else what happened instead."""
        inject = f"inject={call.name}:signal=SIGKILL:when={call.number}"
        only = ["-P", call.via] if call.via else []
        done = self.ctl(*args, before=strace.arguments("/tmp/killed", *only, "-e", inject, calls=[call.name]))
        if done.returncode != -9:
            return f"it ended with {done.returncode}: {done.stderr[-200:]}"
        seen = list(strace.calls(self.machine.read("/tmp/killed")))
        hit = any(c.result is None and (c.text, c.number) == (call.text, call.number) for c in seen)
        return "" if hit else f"it was killed before {seen[-1].text if seen else 'anything'}"

    def recover(self) -> tuple[dict[str, Any], str]:
        """One `ollamactl recover`, and the state after it."""
        script = f"{ollama.OLLAMACTL[0]} recover --json; {STATE}"
        out = self.machine.run(["bash", "-c", script], env=QUIET, timeout=120).stdout
        return json.loads(out[: out.index("STATE ")]), self._state(out)

    def tree(self) -> Tree:
        """What stands below the folders that a change touches."""
        roots = " ".join(r.lstrip("/") for r in strace.ROOTS)
        script = f"cd / && tar -cf - --ignore-failed-read {roots} 2>/dev/null | base64 -w0"
        packed = base64.b64decode(self.machine.run(["bash", "-c", script]).stdout)
        found: Tree = {}
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            for member in tar:
                body = tar.extractfile(member) if member.isreg() else None
                kind = "folder" if member.isdir() else "link" if member.issym() else "file"
                data = member.linkname.encode() if member.issym() else body.read() if body else b""
                found[f"/{member.name}"] = (kind, member.mode, data)
        return found

    def boot_with(self, tree: Tree) -> None:
        """As after a power loss: nothing ran, these files are found, the service is started by systemd alone."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for path, (kind, mode, data) in sorted(tree.items()):
                info = tarfile.TarInfo(path.lstrip("/"))
                info.mode = mode
                if kind == "folder":
                    info.type = tarfile.DIRTYPE
                elif kind == "link":
                    info.type, info.linkname = tarfile.SYMTYPE, data.decode()
                info.size = len(data) if kind == "file" else 0
                tar.addfile(info, io.BytesIO(data) if kind == "file" else None)
        roots = " ".join(r.lstrip("/") for r in strace.ROOTS)
        script = f"""
set -e
systemctl kill -s KILL ollama; systemctl stop ollama
cd / && rm -rf {roots} && base64 -d | tar -xf -
systemctl daemon-reload; systemctl reset-failed ollama || true; systemctl start --no-block ollama
"""
        self.machine.run(["bash", "-c", script], input=base64.b64encode(packed.getvalue()).decode())
