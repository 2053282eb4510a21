"""Three hosts and a controller for the whole run. Rules as in tests/lab."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

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


@pytest.fixture(scope="session")
def deb() -> Path:
    """The package that the role installs, as `make deb` builds it."""
    build = [sys.executable, TOP / "packaging/deb/build.py", "--output", HOME / "deb"]
    return Path(subprocess.run(build, capture_output=True, text=True, check=True).stdout.strip())


@pytest.fixture(scope="session")
def fleet() -> Iterator[Fleet]:
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    with Fleet(HOSTS, HOME) as found:
        yield found


@pytest.fixture(scope="session")
def controller(fleet: Fleet, deb: Path) -> Iterator[Controller]:
    found = Controller(fleet, {"ollamactl_deb": str(deb), "ollamactl_update_cache": False})
    yield found
    found.close()
