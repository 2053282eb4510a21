"""Fixtures and rules of the tests that boot a real systemd.

Where the lab can't run, its tests are left out with one line that says so; with OLLAMACTL_LAB=required in the
environment they fail instead (`make test` sets it when it runs as root).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from . import ollama
from .machine import Machine, missing
from .trust.host import clean

_left_out = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    """One lab machine for the whole run; a test that changes it puts it back, or boots its own."""
    with Machine() as booted:
        yield booted


@pytest.fixture(scope="session")
def serving() -> Iterator[Machine]:
    """One lab machine for the whole run with Ollama's stand-in as its service."""
    with Machine() as booted:
        ollama.setup(booted)
        yield booted


@pytest.fixture
def lab(serving: Machine) -> Machine:
    """That machine as it was installed, and serving: nothing set, nothing open, no history."""
    clean(serving)
    return serving


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Say why, once a lab test, when the lab is required and can't run."""
    if item.get_closest_marker("lab") and (why := missing()):
        pytest.fail(f"OLLAMACTL_LAB=required, but {why}", pytrace=False)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the lab's tests out where it can't run."""
    why = missing()
    if why is None or os.environ.get("OLLAMACTL_LAB") == "required":
        return
    lab = [item for item in items if item.get_closest_marker("lab")]
    if lab:
        config.hook.pytest_deselected(items=lab)
        items[:] = [item for item in items if item not in lab]
        config.stash[_left_out] = f"left out: {len(lab)} tests of the lab, because {why}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was left out."""
    if line := config.stash.get(_left_out, None):
        del config.stash[_left_out]
        terminalreporter.write_line(line, yellow=True)
