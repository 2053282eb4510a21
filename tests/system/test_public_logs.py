"""Logs from public repositories, read where they lie: third parties' data, of which nothing is kept here.

The folder is named by the environment variable OLLAMACTL_PUBLIC_LOGS; each file's name holds its release.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from ollamactl.cli.sources import text_facts
from ollamactl.core.checks import run
from ollamactl.core.facts import Log
from ollamactl.core.parse.log import parse_log

FOLDER = Path(os.environ.get("OLLAMACTL_PUBLIC_LOGS", "") or "/nonexistent")
FILES = sorted(FOLDER.glob("*.log"))
EXPECTED = json.loads((FOLDER / "expected.json").read_text()) if (FOLDER / "expected.json").exists() else {}

pytestmark = pytest.mark.skipif(not FILES, reason="OLLAMACTL_PUBLIC_LOGS names no folder with logs")


def release(path: Path) -> tuple[int, ...] | None:
    found = re.match(r"raw-(\d+)\.(\d+)\.(\d+)", path.name)
    return tuple(int(part) for part in found.groups()) if found else None


def read(path: Path) -> Log:
    with path.open("rb") as file:
        return parse_log(iter(lambda: file.read(1 << 16), b""), where=path.name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_release_configuration_and_devices(path: Path) -> None:
    log = read(path)
    assert log.lines == path.read_bytes().count(b"\n") + (not path.read_bytes().endswith(b"\n"))
    assert log.starts
    text = path.read_text(errors="replace")
    for start in log.starts:
        if start.version and release(path):
            assert start.version.startswith(".".join(map(str, release(path) or ())))
        if start.listening and (release(path) or (9,)) >= (0, 1, 34):
            assert start.config is not None and start.config_before_listening
            assert "OLLAMA_NUM_PARALLEL" in start.config or "OLLAMA_HOST" in start.config
            assert start.computes
    assert sum(start.version != "" for start in log.starts) == len(re.findall(r"Listening on \S+ \(version", text))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_loads_are_whole(path: Path) -> None:
    log = read(path)
    text = path.read_text(errors="replace")
    starting = r"(?:starting (?:llama server|llama-server|runner)\" cmd=.* --model |Loading Dynamic llm server)"
    loads = [load for start in log.starts for load in start.loads]
    assert len(loads) == len(re.findall(starting, text))
    for load in loads:
        assert load.outcome in ("loaded", "failed")
        assert load.context_total and load.slots and load.context
        assert load.context == load.context_total // load.slots
        if load.outcome == "loaded":
            kinds = {buffer.kind for buffer in load.buffers}
            assert {"model", "compute"} <= kinds
            assert all(buffer.bytes >= 0 for buffer in load.buffers)
        else:
            assert load.error
    if "layers to GPU" in text:
        assert any(load.offloaded for load in loads)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_requests_and_warnings_are_all_counted(path: Path) -> None:
    log = read(path)
    text = path.read_text(errors="replace")
    counted = sum(one.count for start in log.starts for one in start.requests)
    assert counted == len(re.findall(r"\[GIN\] ?\d{4}/", text))
    truncated = sum(start.counts.get("prompt_truncated", 0) for start in log.starts)
    assert truncated == len(re.findall(r'truncating input prompt|"msg":"input truncated"', text))
    recovery = sum(start.counts.get("vram_recovery_timeout", 0) for start in log.starts)
    assert recovery == len(re.findall(r"gpu VRAM usage didn't recover within timeout", text))


@pytest.mark.parametrize("name", EXPECTED)
def test_right_finding_first(name: str) -> None:
    """`expected.json` names the finding of each log; `baseline_ok` is one that must give none at warning or above."""
    check = EXPECTED[name]["check"]
    report = run(text_facts((FOLDER / name).read_bytes(), name))
    assert not report.crashed
    found = [(f.check, f.severity) for f in report.findings]
    if check == "baseline_ok":
        assert [one for one in found if one[1] != "info"] == []
    else:
        assert [one[0] for one in found][:1] == [check], found
