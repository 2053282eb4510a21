"""What a host's own state tells, without a line of the log: limits, folders, whether it comes back."""

from __future__ import annotations

from typing import Any

import pytest

from ollamactl.core.checks import run
from ollamactl.core.facts import (
    Effective,
    Facts,
    InstalledModel,
    Origin,
    PathState,
    Process,
    Service,
    Start,
    UnitFile,
    Variable,
)
from ollamactl.core.source import Missing
from tests.unit.check_machines import host

MIB = 1 << 20
SERVED = Start(invocation="a" * 32, config={}, listening="127.0.0.1:11434")


def service(**more: Any) -> Service:
    return Service(**{"id": "ollama.service", "load_state": "loaded", "active_state": "active", "main_pid": 900,
                      "unit_file_state": "enabled", "invocation_id": "a" * 32, **more})  # fmt: skip


def found(facts: Facts, check: str) -> list[str]:
    report = run(facts, only=[check])
    assert not report.crashed
    return [f.severity for f in report.findings]


@pytest.mark.parametrize(
    ("facts", "check", "says"),
    [
        (host(service=service(unit_file_state="disabled")), "service_not_started_at_boot", ["info"]),
        (host(), "service_not_started_at_boot", []),
        (host(service=service(n_restarts=2), start=SERVED), "service_restart_loop", ["info"]),
        (host(service=service(), start=SERVED), "service_restart_loop", []),
    ],
)
def test_whether_it_comes_back(facts: Facts, check: str, says: list[str]) -> None:
    assert found(facts, check) == says


@pytest.mark.parametrize(("limit", "says"), [(64 * MIB, ["warning"]), (900 * MIB, []), (None, [])])
@pytest.mark.parametrize("key", ["memory_max", "memory_high"])
def test_a_memory_limit_below_the_smallest_model(key: str, limit: int | None, says: list[str]) -> None:
    models = (InstalledModel(name="a", size=300 * MIB), InstalledModel(name="b", size=9000 * MIB))
    facts = host(service=service(**{key: limit}), installed=models, start=SERVED)
    assert found(facts, "memory_limit_below_need") == says


@pytest.mark.parametrize(
    ("own", "installed", "says"),
    [
        (True, (InstalledModel(name="a"),), ["info"]),  # both hold some
        (True, (), ["warning"]),
        (False, (), ["warning"]),  # a new folder, which has no manifests yet
    ],
)
def test_a_service_that_looks_where_no_models_are(own: bool, installed: Any, says: list[str]) -> None:
    there, gone = PathState(path="x", type="dir"), PathState(path="x", missing=Missing("absent", "no"))
    used = Variable(name="OLLAMA_MODELS", value="/srv/models", origin=Origin(layer="environment"))
    paths = {"/srv/models/manifests": there if own else gone, "/usr/share/ollama/.ollama/models/manifests": there}
    facts = host(paths=paths, installed=installed, effective=Effective(variables={"OLLAMA_MODELS": used}))
    assert found(facts, "models_in_two_dirs") == says


@pytest.mark.parametrize(
    ("value", "says"), [("~/models", True), ("models/x", True), ("/srv/models", False), ("", False)]
)
def test_a_folder_that_is_no_absolute_path(value: str, says: bool) -> None:
    used = Variable(name="OLLAMA_MODELS", value=value, origin=Origin(layer="environment", file="/x", line=1))
    facts = host(effective=Effective(variables={"OLLAMA_MODELS": used}))
    assert found(facts, "invalid_value") == ["warning"] * says


def test_a_process_that_is_not_known_is_not_well() -> None:
    """Whether the process is older than its configuration can't be told without its environment."""
    value = Variable(name="OLLAMA_NUM_PARALLEL", value="4", origin=Origin(layer="environment", file="/x", line=1))
    for process in (None, Process(pid=900, environ=None)):
        facts = host(effective=Effective(variables={"OLLAMA_NUM_PARALLEL": value}), process=process)
        report = run(facts, only=["config_newer_than_process"])
        assert not report.well and [s.check for s in report.skipped] == ["config_newer_than_process"]


def test_a_process_younger_than_the_files_was_not_forgotten() -> None:
    """Its command sets the variable itself: a restart would change nothing."""
    file = "/etc/systemd/system/ollama.service.d/a.conf"
    value = Variable(name="OLLAMA_NUM_PARALLEL", value="4", origin=Origin(layer="environment", file=file, line=2))
    for written, check in ((50.0, "command_sets_own_value"), (150.0, "config_newer_than_process")):
        facts = host(
            effective=Effective(variables={"OLLAMA_NUM_PARALLEL": value}),
            unit_files=(UnitFile(path=file, mtime=written),),
            process=Process(pid=900, started=100.0, environ={"OLLAMA_NUM_PARALLEL": "1"}),
        )
        both = run(facts, only=["command_sets_own_value", "config_newer_than_process"])
        assert [f.check for f in both.findings] == [check]


BLOB = "/srv/models/blobs/sha256-" + "a" * 64
ACCOUNT = PathState(path="account", uid=990, gid=990)
FILES = ("model_blob_truncated", "model_blob_missing", "models_dir_no_access")


@pytest.mark.parametrize(
    ("path", "state", "says"),
    [
        (BLOB, PathState(path=BLOB, type="file", mode=0o644, uid=0, size=9, expected=9), []),
        (BLOB, PathState(path=BLOB, type="file", mode=0o600, uid=990, size=9, expected=9), []),
        (BLOB, PathState(path=BLOB, type="file", mode=0o600, uid=0, size=9, expected=9), ["models_dir_no_access"]),
        (BLOB, PathState(path=BLOB, missing=Missing("unparsable", "begins with 00")), ["model_blob_truncated"]),
        ("/m/manifests/r/l/a/1b", PathState(path="x", missing=Missing("unparsable", "")), ["model_blob_missing"]),
    ],
)  # fmt: skip
def test_a_model_s_files(path: str, state: PathState, says: list[str]) -> None:
    facts = host(paths={"account": ACCOUNT, path: state}, service=service(user="ollama"), start=SERVED)
    assert [f.check for f in run(facts, only=FILES).findings] == says
