"""`doctor --from FOLDER`: a folder of collected output that no `bundle` wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ollamactl.cli import group
from ollamactl.cli.folder import is_collection, join
from ollamactl.errors import Failure
from tests.system.small import drop_in, served

SHOW = """LoadState=loaded
ActiveState=active
SubState=running
MainPID=4411
NeedDaemonReload=no
FragmentPath=/etc/systemd/system/ollama.service
DropInPaths=/etc/systemd/system/ollama.service.d/override.conf
"""


LOADED = {"name": "a:8b", "size": 10, "size_vram": 10, "context_length": 4096}


def collected(folder: Path, **more: str) -> Path:
    files = {
        "journal.log": served().load(4096, 1, layers=(33, 33)).gin(200, "2s").text(),
        "systemctl_show.txt": SHOW,
        "api_version.json": '{"version":"0.33.0"}',
        "api_ps.json": json.dumps({"models": [LOADED]}, indent=1),
        "env.json": json.dumps({"OLLAMA_CONTEXT_LENGTH": "8192", "OLLAMA_NUM_PARALLEL": "1"}, indent=1),
    }  # fmt: skip
    for name, text in (files | more).items():
        path = folder / name.replace("__", ".")
        path.write_text(text)
    return folder


def doctor(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    group.main(["doctor", "--from", str(folder), "--json"], standalone_mode=False)
    found: dict[str, object] = json.loads(capsys.readouterr().out)["data"]
    return found


def test_a_collected_folder_is_looked_at_as_a_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = "\n".join(served().rows) + "\n"
    typo = drop_in('Environment="OLLAMA_NUM_PARALEL=4"')
    data = doctor(collected(tmp_path, dropin__txt=typo, journal__log=cut), capsys)
    findings = data["findings"]
    assert isinstance(findings, list)
    assert findings[0]["check"] == "unknown_ollama_variable"
    assert findings[0]["evidence"][0].startswith("dropin.txt:3: ")
    assert data["crashed"] == []


def test_a_copy_that_systemd_does_not_read_is_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = drop_in('Environment="OLLAMA_NUM_PARALEL=4"', name="override.conf.bak")
    findings = doctor(collected(tmp_path, dropin__txt=copy, env__json="{}"), capsys)["findings"]
    assert isinstance(findings, list)
    assert [f["check"] for f in findings if f["severity"] != "info"] == []


def test_which_folders_are_collections(tmp_path: Path) -> None:
    assert is_collection(tmp_path)
    with pytest.raises(Failure, match="holds no files"):
        join(tmp_path)
    (tmp_path / "picture").write_bytes(b"\0" * 100)
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "z.log").write_text("three\n")
    joined = join(tmp_path)
    assert joined.text == b"one\ntwo\n\nthree\n\n"
    assert [joined.place(n) for n in (1, 2, 4)] == [("a.txt", 1), ("a.txt", 2), ("z.log", 1)]
    (tmp_path / "index.json").write_text("{}")
    assert not is_collection(tmp_path)
