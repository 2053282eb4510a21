"""What may import what: core is pure, and arrows of import point downwards only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "ollamactl"
MODULES = sorted(PACKAGE.rglob("*.py"))

# A layer may import itself and those that stand after it. `errors` and the package itself may be imported by all.
LAYERS = ("cli", "report", "platforms", "host", "core")
BELOW = {
    "cli": {"cli", "report", "platforms", "host", "core"},
    "report": {"report", "platforms", "host", "core"},
    "platforms": {"platforms", "host", "core"},
    "host": {"host", "core"},
    "core": {"core"},
}
# Of the standard library: what has no clock, file, process or network. A new name here needs a reason.
PURE = {
    "__future__", "abc", "bisect", "codecs", "collections", "copy", "dataclasses", "datetime", "decimal",
    "difflib", "enum", "fnmatch", "functools", "hashlib", "heapq", "html", "inspect", "ipaddress", "itertools",
    "json", "math", "operator", "posixpath", "re", "shlex", "statistics", "string", "struct", "textwrap",
    "types", "typing", "unicodedata", "urllib.parse", "zlib", "msgspec",
    "plistlib", "xml.parsers.expat",  # bytes to values, and its errors
}  # fmt: skip
IMPURE_CALLS = {"open", "exec", "eval", "input", "print", "breakpoint", "__import__"}
IMPURE_MEMBERS = {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today")}


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file names, at its top or within a function."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from ((name.name, node.lineno) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            module = node.module or ""
            yield module, node.lineno
            if module.startswith("ollamactl"):
                yield from ((f"{module}.{name.name}", node.lineno) for name in node.names)


def layer(module: str) -> str:
    part = module.split(".")[1] if module.count(".") else ""
    return part if part in LAYERS else ""


def name_of(path: Path) -> str:
    return "ollamactl." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def wrong_arrows(path: Path) -> list[str]:
    own = layer(name_of(path))
    if not own:
        return []
    return [
        f"{path}:{line}: {own} imports {module}"
        for module, line in imports(path)
        if module.startswith("ollamactl.") and layer(module) and layer(module) not in BELOW[own]
    ]


def impurities(path: Path) -> list[str]:
    found = []
    for module, line in imports(path):
        root = module.partition(".")[0]
        if root != "ollamactl" and module not in PURE and root not in PURE - {"urllib"}:
            found.append(f"{path}:{line}: imports {module}")
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            found.append(f"{path}:{node.lineno}: calls {node.func.id}")
        if isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
            if (owner, node.attr) in IMPURE_MEMBERS:
                found.append(f"{path}:{node.lineno}: reads the clock")
    return found


def test_there_is_something_to_judge() -> None:
    assert {layer(name_of(path)) for path in MODULES} >= {"core", "host"}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_downwards(path: Path) -> None:
    assert wrong_arrows(path) == []


@pytest.mark.parametrize("path", [p for p in MODULES if layer(name_of(p)) == "core"], ids=name_of)
def test_core_is_pure(path: Path) -> None:
    assert impurities(path) == []


@pytest.mark.parametrize(
    "text",
    [
        "import os",
        "import os.path",
        "from pathlib import Path",
        "import subprocess",
        "def f():\n    import time",
        "import psutil",
        "from urllib.request import urlopen",
        "import urllib",
        "x = open('a')",
        "import datetime\nx = datetime.datetime.now()",
        "from datetime import datetime\nx = datetime.now()",
    ],
)
def test_the_rule_of_purity_bites(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(text)
    assert impurities(path)


@pytest.mark.parametrize(
    "text", ["from ollamactl.host import live", "from ollamactl import cli", "import ollamactl.report.text"]
)
def test_the_rule_of_arrows_bites(text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    (tmp_path / "core").mkdir()
    path = tmp_path / "core" / "a.py"
    path.write_text(text)
    assert wrong_arrows(path)
