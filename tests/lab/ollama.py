"""The stand-in of Ollama as a service of a lab machine: what `ollamactl` is tried on."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from .machine import Machine
from .standin import install as standin

CHECKOUT = Path(__file__).resolve().parents[2]
OLLAMACTL = [str(Path(sys.executable).parent / "ollamactl")]
MODELS = "/usr/share/ollama/.ollama/models"
CHAT, EMBED, FORCED = "gemma3:270m", "fake-embed:latest", "tiny-lfm2:latest"
TINY = "tiny-gemma3:latest"  # for what takes a load, and no answer worth reading


def stage() -> tuple[Path, set[Path]]:
    """The stand-in's files laid out under the checkout's cache (a machine sees them at the same place), and the
    folders that its account has to get through: an interpreter may live in the home of root."""
    root = CHECKOUT / ".cache" / "lab-root"
    root.mkdir(parents=True, exist_ok=True)
    sources = sorted(path for path in Path(standin.__file__).parent.rglob("*") if path.suffix in (".py", ".c"))
    digest = hashlib.sha256(sys.executable.encode() + b"".join(path.read_bytes() for path in sources)).hexdigest()
    stamp = root.with_suffix(".json")
    with open(root.with_suffix(".lock"), "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # machines of other runs copy from it: it is laid anew only where it changed
        known = json.loads(stamp.read_text()) if stamp.exists() else {}
        if known.get("digest") != digest:
            stamp.unlink(missing_ok=True)
            known = {"digest": digest, "needed": [str(path) for path in standin.install(root).needed]}
            stamp.write_text(json.dumps(known))
    needed = [root, *map(Path, known["needed"])]
    ways = {parent for path in needed for parent in (path, *path.parents) if parent.is_dir()}
    return root, ways


def setup(machine: Machine) -> None:
    """Ollama installed, enabled, started and answering in a machine that was just booted."""
    root, ways = stage()
    machine.refresh()
    script = f"""
set -e
chmod o+x {" ".join(shlex.quote(str(w)) for w in sorted(ways))}
cp {root}/usr/local/bin/ollama /usr/local/bin/ollama
rm -rf /usr/local/lib/ollama
cp -r {root}/usr/local/lib/ollama /usr/local/lib/ollama
cp {root}/etc/systemd/system/ollama.service /etc/systemd/system/ollama.service
mkdir -p {MODELS}
mount --bind {root}{MODELS} {MODELS}
find {MODELS} -type d -exec chown ollama:ollama {{}} +
chown ollama:ollama /usr/share/ollama /usr/share/ollama/.ollama
systemctl daemon-reload
systemctl enable -q ollama
systemctl start ollama
"""
    machine.run(["bash", "-c", script])
    wait_answer(machine)


def wait_answer(machine: Machine, port: int = 11434, seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while machine.run(["curl", "-sf", f"http://127.0.0.1:{port}/api/version"], check=False).returncode:
        assert time.monotonic() < until, machine.run(["journalctl", "-u", "ollama", "-n", "30"]).stdout
        time.sleep(0.05)


def api(machine: Machine, path: str, body: dict[str, Any] | None = None, port: int = 11434) -> Any:
    """One request inside the machine; the reply's JSON (the last line of a stream)."""
    argv = ["curl", "-s", "--max-time", "120", f"http://127.0.0.1:{port}{path}"]
    if body is not None:
        argv += ["-d", json.dumps(body)]
    lines = machine.run(argv, timeout=130).stdout.strip().splitlines()
    return json.loads(lines[-1]) if lines else None


def ctl(machine: Machine, *args: str, **more: Any) -> Any:
    """`ollamactl …` inside the machine, as root unless told otherwise; never raises for its exit code."""
    return machine.run([*OLLAMACTL, *args], check=False, timeout=more.pop("timeout", 180), **more)


def ctl_json(machine: Machine, *args: str, **more: Any) -> Any:
    """`ollamactl … --json`: the envelope."""
    done = ctl(machine, *args, "--json", **more)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)
