"""The package as a file: what is in it, what it asks for, and that it is the same each time."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import click

from ollamactl import __version__
from ollamactl.cli import COMMANDS, group

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TOP = Path(__file__).resolve().parents[2]


def field(deb: Path, name: str) -> str:
    return subprocess.run(["dpkg-deb", "-f", deb, name], capture_output=True, text=True, check=True).stdout.strip()


def names(deb: Path) -> dict[str, str]:
    """Mode and owner of every file, by its path."""
    listed = subprocess.run(["dpkg-deb", "-c", deb], capture_output=True, text=True, check=True).stdout
    return {row[5]: f"{row[0]} {row[1]}" for row in (line.split(None, 5) for line in listed.splitlines())}


def test_the_same_commit_gives_the_same_bytes(deb: Path, out: Path) -> None:
    script = f"umask 077; cd /; exec {sys.executable} {TOP}/packaging/deb/build.py --output {out}/again"
    env = {**os.environ, "TZ": "Asia/Tokyo", "LC_ALL": "C"}
    subprocess.run(["sh", "-c", script], check=True, capture_output=True, env=env)
    first, second = (hashlib.sha256(path.read_bytes()).hexdigest() for path in (deb, out / "again" / deb.name))
    assert first == second


def test_lintian_finds_nothing(deb: Path) -> None:
    done = subprocess.run(
        ["lintian", "--allow-root", "--display-info", "--fail-on", "error,warning,info", deb],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_files_are_roots_and_nothing_compiled_by_this_host_is_in_it(deb: Path) -> None:
    found = names(deb)
    assert {mode[1:] for mode in found.values()} == {f"{mode} root/root" for mode in ("rwxr-xr-x", "rw-r--r--")}
    assert [name for name in found if "__pycache__" in name or name.startswith("./usr/local")] == []
    modules = [name for name in found if name.endswith(".so")]
    assert {re.search(r"cpython-(\d+)-", name)[1] for name in modules} == {"310", "311", "312", "313", "314"}  # type: ignore[index]
    for wanted in ("systemd/dropin.conf.j2", "nginx/front.conf.j2"):
        assert f"./usr/lib/ollamactl/ollamactl/templates/{wanted}" in found


def test_every_dependency_is_debians_or_comes_along(deb: Path) -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    asked = field(deb, "Depends")
    pins = (TOP / "packaging/deb/vendor.txt").read_text()
    for need in project["dependencies"] + project["optional-dependencies"]["systemd"]:
        name, least = need.split(";")[0].strip().split(">=")
        pinned = re.search(rf"^{name}==(\S+)", pins, re.M)
        if pinned:
            assert [int(n) for n in re.findall(r"\d+", pinned[1])] >= [int(n) for n in re.findall(r"\d+", least)]
        else:
            assert f"python3-{name} (>= {least})" in asked, need


def test_one_version(deb: Path) -> None:
    assert field(deb, "Version") == __version__
    program = subprocess.run([sys.executable, "-m", "ollamactl", "--version"], capture_output=True, text=True)
    assert program.stdout == f"ollamactl {__version__}\n"


def test_the_manual_has_every_command_and_option() -> None:
    made = [sys.executable, TOP / "packaging/man/manpage.py"]
    roff = subprocess.run(made, capture_output=True, text=True, check=True, cwd=TOP).stdout
    done = subprocess.run(
        ["man", "--warnings", "-l", "-"], input=roff, capture_output=True, text=True, check=True,
        env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "200"},
    )  # fmt: skip
    assert done.stderr == ""
    page = done.stdout
    for name in COMMANDS:
        command = group.get_command(click.Context(group), name)
        assert command is not None
        section = page.split(f"\n   ollamactl {name} ")[1].split("\n   ollamactl ")[0]
        missing = [
            option for parameter in command.params if isinstance(parameter, click.Option) and not parameter.hidden
            for option in parameter.opts if option not in section
        ]  # fmt: skip
        assert missing == [], name
    assert "sudo ollamactl verify                 what runs, layer by layer" in page, "examples keep their columns"
