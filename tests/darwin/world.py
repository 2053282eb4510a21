"""A Mac's folders under a temporary root, with stand-ins of its programs (standin/) and a real server of the lab's
stand-in of Ollama behind every way in which it is started."""

from __future__ import annotations

import contextlib
import json
import os
import plistlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.lab.standin import install as standin
from tests.lab.standin.process import free_port

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
LABEL = "homebrew.mxcl.ollama"
FORMULA = {"OLLAMA_FLASH_ATTENTION": "1", "OLLAMA_KV_CACHE_TYPE": "q8_0"}
SYSCTL = {
    "hw.memsize": "34359738368", "machdep.cpu.brand_string": "Apple M2 Pro", "iogpu.wired_limit_mb": "0",
    "vm.swapusage": "total = 2048.00M  used = 100.25M  free = 1947.75M  (encrypted)",
    "kern.memorystatus_vm_pressure_level": "1", "hw.perflevel0.physicalcpu": "8",
}  # fmt: skip
VM_STAT = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                              120000.
Pages active:                            800000.
Pages inactive:                          700000.
Pages speculative:                        20000.
Pages throttled:                              0.
Pages wired down:                        250000.
Pages purgeable:                          10000.
"Translation faults":                 900000000.
Pages stored in compressor:              300000.
Pages occupied by compressor:            100000.
"""


class World:
    """`home` is of the user `me` (501), who is logged in at the screen."""

    def __init__(self, root: Path, port: int = 0) -> None:
        self.root = root
        self.port = port or free_port()
        self.home = root / "Users/me"
        self.agents = self.home / "Library/LaunchAgents"
        self.prefix = root / "opt/homebrew"
        self.log = self.prefix / "var/log/ollama.log"
        self.env = {
            "MAC_ROOT": str(root), "HOME": str(self.home), "MAC_EUID": "501", "MAC_BREW": "6.0.16",
            "PATH": f"{root}/bin:{HERE}/standin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "COLUMNS": "80",
        }  # fmt: skip

    def build(self) -> World:
        system, mine = self.root / "Library", self.home / "Library"
        for folder in (
            self.agents, self.prefix / "var/log", system / "LaunchDaemons", system / "LaunchAgents", mine / "Logs",
            self.root / "bin", self.home / ".ollama/models",
        ):  # fmt: skip
            folder.mkdir(parents=True)
        session = {"OLLAMA_HOST": f"127.0.0.1:{self.port}", "SSH_AUTH_SOCK": "/private/tmp/x/Listeners"}
        domain = {"environment": session, "services": {}, "disabled": {}}
        system = {"environment": {"OLLAMA_HOST": f"127.0.0.1:{self.port}"}, "services": {}, "disabled": {}}
        domains = {"gui/501": domain, "system": system}
        now = {"console": 501, "domains": domains, "dropped": {}}
        (self.root / "state.json").write_text(json.dumps(now))
        (self.root / "sysctl.json").write_text(json.dumps(SYSCTL))
        (self.root / "vm_stat.txt").write_text(VM_STAT)
        (self.root / "bin/python3").symlink_to(Path(sys.executable).resolve())
        program = self.root / "bin/ollamactl"
        program.write_text(f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(CHECKOUT)!r})\n"
                           "from tests.darwin.mac import main\nmain()\n")  # fmt: skip
        program.chmod(0o755)
        return self

    # -- what is installed --

    def server(self, folder: Path) -> Path:
        """The stand-in of Ollama's server as `folder/ollama`, with its library beside it."""
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy2(standin.launcher(standin.cache_folder()), folder / "ollama")
        library = folder.parent / "lib/ollama"
        library.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / "ollama", library / "llama-server")
        shutil.copy2(standin.HERE / "standin_main.py", library)
        shutil.copytree(standin.HERE / "standin", library / "standin", dirs_exist_ok=True)
        return folder / "ollama"

    def formula(self) -> Path:
        """`brew install ollama`: the keg's plist."""
        program = self.server(self.prefix / "opt/ollama/bin")
        return self.plist(self.prefix / f"opt/ollama/{LABEL}.plist", LABEL, program, FORMULA, self.log)

    def plist(
        self, path: Path, label: str, program: Path, environment: dict[str, str], log: Path, **more: Any
    ) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        values = {
            "Label": label, "ProgramArguments": [str(program), "serve"], "KeepAlive": True, "RunAtLoad": True,
            "StandardOutPath": str(log), "StandardErrorPath": str(log), "WorkingDirectory": str(self.prefix / "var"),
            "EnvironmentVariables": environment, **more,
        }  # fmt: skip
        path.write_bytes(plistlib.dumps(values))
        return path

    def app(self, context_length: int = 0, expose: int = 0) -> Path:
        """Ollama.app, and its own settings."""
        path = self.root / "Applications/Ollama.app"
        self.server(path / "Contents/Resources")
        (path / "Contents/MacOS").mkdir(parents=True)
        folder = self.home / "Library/Application Support/Ollama"
        folder.mkdir(parents=True)
        with contextlib.closing(sqlite3.connect(folder / "db.sqlite")) as db, db:
            db.execute("CREATE TABLE settings (id INTEGER, expose INTEGER, browser INTEGER, models TEXT, "
                       "context_length INTEGER, schema_version INTEGER)")  # fmt: skip
            db.execute("INSERT INTO settings VALUES (1, ?, 0, '', ?, 18)", (expose, context_length))
        return path

    # -- what is done with it --

    def run(self, *argv: str, code: int | None = 0, **env: str) -> subprocess.CompletedProcess[str]:
        """A program of this Mac. `code` None: any exit."""
        done = subprocess.run(argv, env=self.env | env, capture_output=True, text=True, timeout=120, cwd=self.root)
        assert code is None or done.returncode == code, f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def ctl(self, *argv: str, code: int | None = 0, **env: str) -> subprocess.CompletedProcess[str]:
        return self.run(str(self.root / "bin/ollamactl"), *argv, code=code, **env)

    def json(self, *argv: str, code: int | None = 0, **env: str) -> Any:
        done = self.ctl(*argv, "--json", code=code, **env)
        return json.loads(done.stdout)

    def state(self) -> Any:
        return json.loads((self.root / "state.json").read_text())

    def change(self, **values: Any) -> None:
        now = self.state() | values
        (self.root / "state.json").write_text(json.dumps(now))

    def session(self) -> dict[str, str]:
        return dict(self.state()["domains"]["gui/501"]["environment"])

    def wait_answer(self, seconds: float = 30.0) -> str:
        """Until a server answers; its release."""
        until = time.monotonic() + seconds
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/version", timeout=5) as answer:
                    return str(json.load(answer)["version"])
            except (urllib.error.URLError, OSError):
                assert time.monotonic() < until, self.log.read_text() if self.log.exists() else "no log"
                time.sleep(0.05)

    def environ(self) -> dict[str, str]:
        """Of the server that listens."""
        said = self.run(str(HERE / "standin/lsof"), "-nP", "+c0", "-iTCP", "-sTCP:LISTEN", "-F", "pcn").stdout
        pid = next(x[1:] for x in said.splitlines() if x.startswith("p"))
        pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return dict(p.decode().split("=", 1) for p in pairs if b"=" in p)

    def end(self) -> None:
        """Every process of this world, by its pid."""
        for _ in range(3):
            mine = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._mine(pid)]
            for pid in mine:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            if not mine:
                return
            time.sleep(0.1)

    def _mine(self, pid: int) -> bool:
        if pid == os.getpid():
            return False
        try:
            return f"MAC_ROOT={self.root}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
