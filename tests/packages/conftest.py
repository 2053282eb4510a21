"""The package, built once for a run, and clean Debian machines to install it on. Rules as in tests/lab."""

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

TOP = Path(__file__).resolve().parents[2]
OUT = TOP / ".cache" / "packages"  # below the checkout, where machines see it at the same place


@pytest.fixture(scope="session")
def out() -> Iterator[Path]:
    """A folder for what is built."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    yield OUT


@pytest.fixture(scope="session")
def deb(out: Path) -> Path:
    """The package as `make deb` builds it."""
    done = subprocess.run(
        [sys.executable, TOP / "packaging/deb/build.py", "--output", out], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="session")
def wheel(out: Path) -> Path:
    """The wheel."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out], check=True, cwd=TOP)
    return next(out.glob("*.whl"))
