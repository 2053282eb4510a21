"""The collection as Ansible's own tools judge it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .control import BIN, TOP, environment, install_collection

HOME = TOP / ".cache" / "sanity"  # kept: ansible-test makes an environment for each of its tests


# What ansible-test fetches from the network, to bring pip into each of its environments: one that is there already.
BRING_PIP = """\
import pathlib, sysconfig
pathlib.Path(sysconfig.get_path("purelib"), "pip.pth").write_text({pip!r})
"""


@pytest.fixture(scope="module")
def home(older: Path) -> Path:
    """A home for ansible-test, which makes an environment for each of its tests."""
    cache = HOME / ".ansible/test/cache"
    cache.mkdir(parents=True, exist_ok=True)
    settings = HOME / ".config/pip/pip.conf"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text("[install]\ncompile = no\n")  # each of them runs once
    for programs in (BIN, older):
        (source,) = programs.parent.glob("lib/python3*/site-packages/ansible_test/_internal/python_requirements.py")
        (version,) = re.findall(r"pip='([\d.]+)'", source.read_text())
        pip = HOME / f"pip-{version}"
        if not pip.exists():
            argv = [sys.executable, "-m", "pip", "install", "-q", "--target", pip, f"pip=={version}"]
            subprocess.run(argv, check=True, capture_output=True)
        script = cache / f"get_pip_{version.replace('.', '_')}.py"
        script.write_text(BRING_PIP.format(pip=str(pip)))
    return HOME


@pytest.fixture(scope="module")
def collection(home: Path) -> Path:
    """The collection where it is installed, as a repository: that is how ansible-test finds its files."""
    found = install_collection(home)
    subprocess.run(["git", "init", "-q", found], check=True)
    return found


@pytest.mark.lab
@pytest.mark.parametrize("core", ["this", "older"])
def test_sanity(collection: Path, home: Path, older: Path, core: str) -> None:
    programs = older if core == "older" else BIN
    env = environment(home) | {"PATH": f"{programs}:/usr/sbin:/usr/bin:/sbin:/bin"}
    argv = [programs / "ansible-test", "sanity", "--color", "no", "--truncate", "0"]
    done = subprocess.run(argv, cwd=collection, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]


def test_ansible_doc_shows_every_module(collection: Path, home: Path) -> None:
    env = {**environment(home), "ANSIBLE_COLLECTIONS_PATH": str(home / "collections")}
    names = [f"ollamactl.host.{name}" for name in ("config", "doctor", "info", "plan")]
    done = subprocess.run([BIN / "ansible-doc", "--json", *names], env=env, capture_output=True, text=True, check=True)
    shown = json.loads(done.stdout)
    assert sorted(shown) == names
    assert all(row["examples"] and row["return"] and row["doc"]["options"] for row in shown.values())


