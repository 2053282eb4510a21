"""The tool on Debian's own Python, click, psutil, jinja2 and pystemd; only msgspec and pynvml come along.

That is what a package can carry without a compiler on the host: both are copied here from the development
environment, as a package would vendor them.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab import ollama
from tests.lab.machine import Machine

pytestmark = pytest.mark.lab
PYTHON = "/usr/bin/python3"
ENTRY = "from ollamactl.cli import main; main()"


def vendored() -> str:
    """Shell lines that lay msgspec and pynvml into /opt/vendor."""
    lines = ["mkdir -p /opt/vendor"]
    for name in ("msgspec", "pynvml"):
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None
        path = Path(spec.origin)
        lines.append(f"cp -r {path.parent if path.name == '__init__.py' else path} /opt/vendor/")
    return " && ".join(lines)


def debian_runs_our_wheels() -> bool:
    """Compiled wheels of the development environment load in Debian's Python only where both are one release."""
    done = subprocess.run([PYTHON, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True)
    return done.stdout.split() == [str(n) for n in sys.version_info[:2]]


@pytest.mark.skipif(not debian_runs_our_wheels(), reason="Debian's Python is of another release than this one")
def test_apply_and_verify_run_on_debians_own_packages() -> None:
    with Machine() as machine:
        ollama.setup(machine)
        machine.run(["bash", "-c", vendored()])
        path = {"PYTHONPATH": f"{ollama.CHECKOUT}:/opt/vendor"}

        def run(*args: str) -> dict[str, object]:
            done = machine.run([PYTHON, "-c", ENTRY, *args, "--json"], env=path, check=False, timeout=120)
            shown: dict[str, object] = json.loads(done.stdout)
            return shown

        where = "import click, psutil, jinja2, pystemd; print(click.__file__, psutil.__file__, pystemd.__file__)"
        assert machine.run([PYTHON, "-c", where], env=path).stdout.count("/usr/lib/python3/dist-packages/") == 3
        assert machine.run([PYTHON, "-c", ENTRY, "--help"], env=path).stdout.startswith("Usage")
        done = run("apply", "--parallel", "2", "--model", ollama.CHAT)
        assert done["exit_code"] == 0, done
        assert run("verify")["exit_code"] == 0
        assert run("rollback")["exit_code"] == 0
