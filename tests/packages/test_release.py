"""What is released agrees: one version, a section of the changelog, and a collection that knows every setting."""

from __future__ import annotations

import ast
import importlib.util
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from ollamactl import __version__
from ollamactl.core import settings

TOP = Path(__file__).resolve().parents[2]
COLLECTION = TOP / "packaging/ansible"
MODULES = sorted((COLLECTION / "plugins/modules").glob("*.py"))


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def written(path: Path, name: str) -> Any:
    """A constant of a module: its documentation, or its table of flags."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            found = ast.literal_eval(node.value)
            return yaml.safe_load(found) if isinstance(found, str) else found
    raise AssertionError(f"{path.name} has no {name}")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with the files that say a version, agreeing and with a section of the changelog."""
    for name in ("ollamactl/__init__.py", "packaging/CHANGELOG.md", "packaging/ansible/galaxy.yml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(TOP / name, tmp_path / name)
    changes = tmp_path / "packaging/CHANGELOG.md"
    changes.write_text(changes.read_text() + f"\n## [{__version__}] - 2026-12-01\n")
    return tmp_path


def test_a_release_wants_one_version_and_a_section_of_the_changelog(tree: Path) -> None:
    disagreements = loaded(TOP / "packaging/release.py").disagreements
    assert disagreements(tree) == []
    galaxy = tree / "packaging/ansible/galaxy.yml"
    galaxy.write_text(galaxy.read_text().replace(f"version: {__version__}", "version: 9.9.9"))
    assert disagreements(tree) == [f"packaging/ansible/galaxy.yml says 9.9.9, the program {__version__}"]
    shutil.copyfile(COLLECTION / "galaxy.yml", galaxy)
    (tree / "packaging/CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n")
    assert disagreements(tree) == [f"packaging/CHANGELOG.md has no section `## [{__version__}] - YYYY-MM-DD`"]


def test_the_versions_of_this_tree_agree() -> None:
    assert set(loaded(TOP / "packaging/release.py").versions(TOP).values()) == {__version__}


def test_the_collection_has_every_setting_of_the_registry() -> None:
    config = COLLECTION / "plugins/modules/config.py"
    flags = written(config, "FLAGS")
    assert set(flags.values()) == {setting.flag for setting in settings.FLAGGED}
    options = written(config, "DOCUMENTATION")["options"]
    for name, flag in flags.items():
        variable = next(setting.name for setting in settings.FLAGGED if setting.flag == flag)
        assert f"E({variable})" in str(options[name]["description"])
    profile = (COLLECTION / "roles/ollamactl/tasks/profile.yml").read_text()
    assert [name for name in options if name != "state" and f"ollamactl_profile.{name} |" not in profile] == []


@pytest.mark.parametrize("path", [*MODULES, COLLECTION / "plugins/module_utils/cli.py"], ids=lambda path: path.stem)
def test_modules_are_python_3_9(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 9))


def test_a_profile_of_the_role_has_every_option_of_the_module() -> None:
    check, apply = yaml.safe_load((COLLECTION / "roles/ollamactl/tasks/profile.yml").read_text())
    options = set(written(COLLECTION / "plugins/modules/config.py", "DOCUMENTATION")["options"]) - {"state"} | {"unit"}
    assert set(check["vars"]["ollamactl_options"]) == set(apply["ollamactl.host.config"]) == options


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_options_and_results_are_documented(path: Path) -> None:
    documentation = written(path, "DOCUMENTATION")
    assert documentation["module"] == path.stem
    for name, row in {**documentation.get("options", {}), **written(path, "RETURN")}.items():
        assert row["description"] and row["type"], name


def test_the_collection_is_built_as_galaxy_wants_it(out: Path) -> None:
    galaxy = Path(sys.executable).parent / "ansible-galaxy"
    argv = [galaxy, "collection", "build", "--force", "--output-path", out, COLLECTION]
    subprocess.run(argv, check=True, capture_output=True)
    with tarfile.open(out / f"ollamactl-host-{__version__}.tar.gz") as archive:
        names = archive.getnames()
    assert {"MANIFEST.json", "meta/runtime.yml", "README.md", "LICENSE"} <= set(names)
    assert [name for name in names if "__pycache__" in name or name.endswith(".deb")] == []
