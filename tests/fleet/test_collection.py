"""The collection as Ansible's own tools judge it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from .control import BIN, TOP, environment, install_collection

HOME = TOP / ".cache" / "sanity"  # kept: ansible-test makes an environment for each of its tests


@pytest.fixture(scope="module")
def home() -> Path:
    """A home with the collection in it. ansible-test fetches a script that brings pip; Python has one of its own."""
    cache = HOME / ".ansible/test/cache"
    cache.mkdir(parents=True, exist_ok=True)
    import ansible_test

    source = Path(ansible_test.__file__).parent / "_internal/python_requirements.py"
    (version,) = re.findall(r"pip='([\d.]+)'", source.read_text())
    script = cache / f"get_pip_{version.replace('.', '_')}.py"
    script.write_text("import ensurepip\nensurepip.bootstrap(default_pip=True)\n")
    return HOME


@pytest.fixture(scope="module")
def collection(home: Path) -> Path:
    """The collection where it is installed, as a repository: that is how ansible-test finds its files."""
    found = install_collection(home)
    subprocess.run(["git", "init", "-q", found], check=True)
    return found


@pytest.mark.lab
def test_sanity(collection: Path, home: Path) -> None:
    argv = [BIN / "ansible-test", "sanity", "--color", "no", "--truncate", "0"]
    done = subprocess.run(argv, cwd=collection, env=environment(home), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]


def test_ansible_doc_shows_every_module(collection: Path, home: Path) -> None:
    env = {**environment(home), "ANSIBLE_COLLECTIONS_PATH": str(home / "collections")}
    names = [f"ollamactl.host.{name}" for name in ("config", "doctor", "info", "plan")]
    done = subprocess.run([BIN / "ansible-doc", "--json", *names], env=env, capture_output=True, text=True, check=True)
    shown = json.loads(done.stdout)
    assert sorted(shown) == names
    assert all(row["examples"] and row["return"] and row["doc"]["options"] for row in shown.values())


