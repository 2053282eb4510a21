"""What the README says is what the code does."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from ollamactl.cli import COMMANDS
from ollamactl.errors import Exit
from tests.contract.readme import README, with_table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TOP = README.parent


def test_the_table_of_settings_is_the_registry() -> None:
    text = README.read_text()
    assert with_table(text) == text, "python -m tests.contract.readme writes it"


def test_every_command_is_in_the_readme() -> None:
    text = README.read_text()
    assert [name for name in COMMANDS if f"`{name}`" not in text] == []


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    needed = project["dependencies"] + project["optional-dependencies"]["systemd"]
    names = [re.split(r"[<>=!\[ ]", need)[0] for need in needed]
    table = README.read_text().split("| dependency | why |")[1]
    assert [n for n in names if f"| {n} " not in table] == []


def test_every_exit_code_is_explained() -> None:
    text = README.read_text().split("Exit codes:")[1][:400]
    assert [int(c) for c in Exit if f"{int(c)} " not in text] == []


def test_make_targets_that_the_readme_names_exist() -> None:
    makefile = (TOP / "Makefile").read_text()
    for target in set(re.findall(r"^(?:`|\| `)?make ([a-z][a-z-]+)", README.read_text(), re.M)):
        assert re.search(rf"^{target}:", makefile, re.M), target


@pytest.mark.touches("process")
def test_nothing_names_a_path_of_one_machine() -> None:
    done = subprocess.run(["git", "-C", str(TOP), "grep", "-nE", r"/work/(main|shared)|\.\./shared"],
                          capture_output=True, text=True, check=False)  # fmt: skip
    found = [line for line in done.stdout.splitlines() if not line.startswith("tests/contract/test_readme.py")]
    assert found == []
