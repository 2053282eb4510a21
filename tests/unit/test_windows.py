"""Windows, as far as it can be had without one: a process that lacks the modules and calls that Windows lacks.
A file's plan, a probe by URL and a pasted log work there; everything else is refused, and says what works."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.models import write
from tests.unit.planned import qwen3

pytestmark = pytest.mark.touches("process")

LOG = Path(__file__).parents[1] / "recorded" / "02-parallel4" / "journal.txt"
# Libraries look at the platform when they are imported: they are Linux's here. Ours are imported afterwards.
LIKE_WINDOWS = """
import sys, os, signal, asyncio, click, msgspec, pathlib, platform, psutil, shlex, shutil, socket, ssl, subprocess
import importlib.abc, tempfile, threading
GONE = {"fcntl", "grp", "pwd", "pystemd", "resource", "termios"}
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in GONE:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
for name in GONE & set(sys.modules): del sys.modules[name]
sys.meta_path.insert(0, Absent())
for name in ("geteuid", "getuid", "getegid", "killpg", "setsid", "fchown", "uname", "sched_getaffinity", "O_NOFOLLOW"):
    delattr(os, name)
for name in ("SIGHUP", "pthread_sigmask"): delattr(signal, name)
from ollamactl.host import processes
processes._uid = lambda p: None  # psutil has none there
sys.platform = "win32"
from ollamactl.cli import main
main(sys.argv[1:])
"""


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", LIKE_WINDOWS, *args], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("command", ["apply --parallel 4", "doctor", "front nginx --print", "bundle x.tar.gz"])
def test_what_needs_the_host_is_refused_and_says_what_works(command: str) -> None:
    done = run(*command.split())
    assert done.returncode == 6, done.stderr
    for word in ("Windows", "plan", "probe", "--url", "doctor", "--from", "WSL"):
        assert word in done.stderr, done.stderr


def test_the_refusal_is_an_envelope_too() -> None:
    refused = json.loads(run("verify", "--json").stdout)
    assert (refused["exit_code"], refused["errors"][0]["id"]) == (6, "unsupported")


def test_a_pasted_log_a_file_and_an_address_are_looked_at(tmp_path: Path) -> None:
    doctor = json.loads(run("doctor", "--json", "--from", str(LOG)).stdout)
    assert doctor["exit_code"] in (0, 1) and doctor["data"]["judged"] and not doctor["data"]["crashed"]
    assert run("verify", "--from", str(LOG)).returncode == 0
    model = write(tmp_path / "q.gguf", *qwen3())
    plan = json.loads(run("plan", str(model), "--parallel", "1,2", "--json").stdout)
    assert plan["exit_code"] == 0, plan["errors"]
    probe = run("probe", "x", "--url", "http://127.0.0.1:9", "-n", "1")
    assert probe.returncode == 5 and "nothing listens there" in probe.stderr, probe.stderr
    for args in (("explain", "port_in_use"), ("--help",), ("apply", "--help")):
        assert run(*args).returncode == 0
