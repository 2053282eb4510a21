"""The wheel in an environment of its own, as pipx makes it: without pystemd all but changing systemd works."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ollamactl import __version__
from tests.lab import ollama
from tests.lab.machine import Machine

RECORDED = Path(__file__).resolve().parents[1] / "recorded"


@pytest.fixture(scope="session")
def program(wheel: Path, out: Path) -> Path:
    """`ollamactl` as pipx installs it from the wheel, with its dependencies and nothing else."""
    pipx(out, "install", str(wheel))
    return out / "home/.local/bin/ollamactl"


def pipx(out: Path, *words: str) -> None:
    """The real pipx, for a user whose home is in `out`."""
    local = out / "home/.local"
    env = {
        **os.environ, "PIPX_HOME": str(local / "share/pipx"), "PIPX_BIN_DIR": str(local / "bin"),
        "PIPX_MAN_DIR": str(local / "share/man"), "PIPX_DEFAULT_PYTHON": sys.executable,
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-m", "pipx", *words], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def host(program: Path) -> Iterator[Machine]:
    ollama.stage()
    with Machine() as machine:
        ollama.setup(machine)
        machine.run(["useradd", "-m", "guest"])
        yield machine


def test_it_has_no_pystemd_and_runs(program: Path) -> None:
    python = program.resolve().parent / "python"
    assert subprocess.run([python, "-c", "import pystemd"], capture_output=True).returncode == 1
    assert subprocess.check_output([program, "--version"], text=True) == f"ollamactl {__version__}\n"


@pytest.mark.parametrize(("shell", "line", "word"), [
    ("fish", "ollamactl hist", "history"),
    ("fish", "ollamactl apply --paral", "--parallel"),
    ("zsh", "ollamactl hist", "history"),
    ("zsh", "ollamactl apply --paral", "--parallel"),
])  # fmt: skip
def test_completions(program: Path, out: Path, shell: str, line: str, word: str) -> None:
    folder = Path(__file__).resolve().parents[2] / "packaging/completions"
    env = {"PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(out), "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    if shell == "fish":
        script = f"source {folder}/ollamactl.fish; complete -C '{line}'"
        shown = subprocess.check_output(["fish", "--no-config", "-c", script], text=True, env=env, timeout=60)
        assert word in shown.split()
    else:
        assert word in zsh_completes(folder, line, word, env)


def zsh_completes(folder: Path, line: str, word: str, env: dict[str, str]) -> str:
    """What an interactive zsh makes of a line when TAB is pressed; zsh's own pseudo terminal types it."""
    script = f"""
zmodload zsh/zpty
zpty shell 'PS1= zsh -f -i'
zpty -w shell 'fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D; setopt no_beep; print read''y'
zpty -r shell out '*ready*'
zpty -w -n shell $'{line}\\t'
sleep 0.1
zpty -r -m shell out '*{word}*'
print -r -- $out
zpty -d shell
"""
    return subprocess.run(["zsh", "-f", "-c", script], capture_output=True, text=True, env=env, timeout=60).stdout


@pytest.mark.lab
def test_all_but_changing_systemd_works_and_that_says_what_to_install(program: Path, host: Machine) -> None:
    for args, code in ((["facts"], 0), (["verify"], 0), (["doctor"], 0), (["plan", ollama.CHAT], 0),
                       (["history"], 0), (["apply", "--parallel", "2", "--check"], 0)):  # fmt: skip
        done = host.run([program, *args, "--json"], check=False)
        assert done.returncode == code, (args, done.stdout[-2000:], done.stderr)
        assert json.loads(done.stdout)["exit_code"] == code
    before = host.run(["find", "/etc/systemd/system", "/etc/ollamactl"], check=False).stdout
    refused = host.run([program, "apply", "--parallel", "2"], check=False)
    assert refused.returncode == 6
    assert "libsystemd-dev" in refused.stderr and "pipx inject ollamactl pystemd" in " ".join(refused.stderr.split())
    assert host.run(["find", "/etc/systemd/system", "/etc/ollamactl"], check=False).stdout == before


@pytest.mark.lab
def test_what_it_says_to_install_makes_it_change_systemd(program: Path, host: Machine, out: Path) -> None:
    refused = host.run([program, "apply", "--parallel", "2"], check=False)
    line = re.search(r"pipx (inject ollamactl pystemd)", " ".join(refused.stderr.split()))
    assert line, refused.stderr
    pipx(out, *line[1].split())
    host.refresh()
    done = host.run([program, "apply", "--parallel", "2", "--json"], check=False)
    assert json.loads(done.stdout)["status"] == "applied", done.stdout
    assert host.run([program, "rollback"], check=False).returncode == 0


@pytest.mark.lab
def test_the_hint_names_the_program_where_sudo_finds_it(program: Path, host: Machine) -> None:
    refused = host.run([program, "apply", "--parallel", "2"], user="guest", check=False)
    assert refused.returncode == 5
    words = " ".join(refused.stderr.split()).split("hint: sudo ")[1].split()
    assert words == [str(program), "apply", "--parallel", "2"]
    sudo = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    assert host.run(["env", *words, "--check"], env=sudo, check=False).returncode == 0
