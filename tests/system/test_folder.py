"""`doctor --from FOLDER`: a folder of collected output that no `bundle` wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ollamactl.cli import group
from ollamactl.cli.folder import is_collection, join
from ollamactl.cli.sources import text_facts
from ollamactl.core.checks import run
from ollamactl.core.paste.screens import heading
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
    assert joined.text == b"$ cat a.txt\none\ntwo\n\n$ cat z.log\nthree\n\n"
    assert [joined.place(n) for n in (2, 3, 6)] == [("a.txt", 1), ("a.txt", 2), ("z.log", 1)]
    (tmp_path / "index.json").write_text("{}")
    assert not is_collection(tmp_path)


UNIT = """# /etc/systemd/system/ollama.service
[Service]
ExecStart=/usr/bin/ollama serve
EnvironmentFile=/etc/default/ollama
User=ollama
"""
SHOWN = (
    "MainPID=4411\nResult=success\nEnvironment=OLLAMA_CONTEXT_LENGTH=8192\nActiveState=active\nNeedDaemonReload=no\n"
)


@pytest.mark.parametrize(
    "names",
    [
        ("systemctl-cat.txt", "systemctl-show.txt", "proc-environ.txt", "etc-default-ollama"),
        ("01_systemctl_cat_ollama.out", "02_systemctl_show.out", "03_proc_4411_environ.out", "04_etc_default_ollama"),
        ("a.txt", "b.txt", "server environ", "etc.default.ollama.txt"),
    ],
)  # fmt: skip
def test_each_file_begins_anew_and_its_name_says_what_it_is(tmp_path: Path, names: tuple[str, ...]) -> None:
    ran = "PATH=/usr/bin\0USER=ollama\0OLLAMA_NUM_PARALLEL=2\0OLLAMA_CONTEXT_LENGTH=4096\0"
    override = "# /etc/systemd/system/ollama.service.d/override.conf\n[Service]\n"
    texts = (
        UNIT + "\n" + override + 'Environment="OLLAMA_NUM_PARALLEL=8"\nEnvironment="OLLAMA_CONTEXT_LENGTH=8192"\n',
        SHOWN,
        ran,
        "OLLAMA_NUM_PARALLEL=2\n",
    )
    for name, text in zip(names, texts, strict=True):
        (tmp_path / name).write_text(text)
    facts = text_facts(join(tmp_path).text, "folder")
    assert [[p.why for p in f.problems] for f in facts.unit_files or ()] == [[], []]
    assert facts.service is not None and facts.service.main_pid == 4411
    assert facts.process is not None and (facts.process.environ or {})["OLLAMA_CONTEXT_LENGTH"] == "4096"
    found = [f.check for f in run(facts).findings if f.severity != "info"]
    assert sorted(found) == ["config_newer_than_process", "environment_file_overrides_dropin"]


def test_the_environment_of_a_shell_is_not_the_services(tmp_path: Path) -> None:
    (tmp_path / "env.txt").write_text("HOME=/home/ann\nOLLAMA_FLASH_ATTENTION=1\nOLLAMA_HOST=http://10.0.0.7:11434\n")
    (tmp_path / "journal.txt").write_text(served().load(4096, 1, layers=(33, 33)).gin(200, "2s").text())
    found = [f for f in run(text_facts(join(tmp_path).text, "folder")).findings if f.severity != "info"]
    assert [f.check for f in found] == ["env_set_in_shell_not_service"]
    assert any("OLLAMA_FLASH_ATTENTION=1" in one for one in found[0].evidence)


@pytest.mark.parametrize(
    ("name", "prompt"),
    [
        ("systemctl-show.txt", "$ systemctl show"),
        ("systemctl_is-enabled_ollama.log", "$ systemctl is-enabled ollama"),
        ("07 - nvidia-smi.out", "$ nvidia-smi"),
        ("host/override.conf", "$ cat /etc/systemd/system/ollama.service.d/override.conf"),
        ("ollama.service", "$ cat /etc/systemd/system/ollama.service"),
        ("nginx.conf", "$ cat nginx.conf"),
        ("20-gpu.conf", "$ cat /etc/systemd/system/ollama.service.d/20-gpu.conf"),
        ("docker-compose.yml", "$ cat docker-compose.yml"),
        ("show-modelfile.txt", "$ cat show-modelfile.txt"),
        (".bashrc", "$ cat ~/.bashrc"),
        ("proc-77-environ", "$ cat /proc/77/environ"),
        ("etc-environment.txt", "$ cat /etc/environment"),
        ("bashrc", "$ cat ~/.bashrc"),
        ("show.txt", "$ systemctl show ollama"),
        ("my notes, oom; killed!.txt", "$ cat my-notes-oom-killed-.txt"),
    ],
)
def test_what_a_files_name_stands_for(name: str, prompt: str) -> None:
    assert heading(name) == prompt


def test_drop_ins_of_a_folder_come_after_the_unit_and_in_the_order_of_their_names(tmp_path: Path) -> None:
    texts = {
        "10-a.conf": drop_in('Environment="OLLAMA_NUM_PARALLEL=2"').split("\n", 1)[1],
        "ollama.service": UNIT,
        "zz.conf": drop_in('Environment="OLLAMA_NUM_PARALLEL=6"').split("\n", 1)[1],
        "resolv.conf": "nameserver 10.0.0.1\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    facts = text_facts(join(tmp_path).text, "folder")
    folder = "/etc/systemd/system/ollama.service.d"
    files = [file.path for file in facts.unit_files or ()]
    assert files == ["/etc/systemd/system/ollama.service", f"{folder}/10-a.conf", f"{folder}/zz.conf"]
    assert facts.effective is not None and facts.effective.value("OLLAMA_NUM_PARALLEL") == "6"
