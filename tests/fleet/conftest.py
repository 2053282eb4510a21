"""Three hosts and a controller for the whole run. Rules as in tests/lab."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import debian
from tests.lab.conftest import (  # noqa: F401
    pytest_collection_modifyitems,
    pytest_runtest_setup,
    pytest_terminal_summary,
)

from .control import Controller
from .hosts import Fleet

TOP = Path(__file__).resolve().parents[2]
HOME = TOP / ".cache" / "fleet"
HOSTS = {"alpha": "bookworm", "beta": "trixie", "gamma": "bookworm"}
SMALLER = {"gamma": ["--cpu-affinity=0"]}  # it has one processor, the others have all
OLDER = "ansible-core==2.18.*"


@pytest.fixture(scope="session")
def deb() -> Path:
    """The package that the role installs, as `make deb` builds it."""
    build = [sys.executable, TOP / "packaging/deb/build.py", "--output", HOME / "deb"]
    return Path(subprocess.run(build, capture_output=True, text=True, check=True).stdout.strip())


@pytest.fixture(scope="session")
def fleet() -> Iterator[Fleet]:
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    with Fleet(HOSTS, HOME, SMALLER) as found:
        yield found


@pytest.fixture(scope="session")
def older() -> Path:
    """Folder with the programs of the older ansible-core, in an environment of its own."""
    venv = TOP / ".cache" / OLDER.replace("==", "-").removesuffix(".*")
    if not (venv / "bin/ansible-playbook").exists():
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([venv / "bin/python", "-m", "pip", "install", "-q", OLDER], check=True, capture_output=True)
    return venv / "bin"


@pytest.fixture(scope="session")
def python39() -> Path:
    """Python 3.9 as a host may have it, of Debian 11."""
    packages = ("python3.9-minimal", "libpython3.9-minimal", "libpython3.9-stdlib")
    return debian.unpacked("bullseye", packages, TOP / ".cache" / "python3.9") / "usr/bin/python3.9"


@pytest.fixture(scope="session")
def controller(fleet: Fleet, deb: Path) -> Iterator[Controller]:
    found = Controller(fleet, {"ollamactl_deb": str(deb), "ollamactl_update_cache": False})
    yield found
    found.close()
