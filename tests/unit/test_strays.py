"""Settings in files that the service does not read: which lines set what, and of which files doctor speaks."""

# ruff: noqa: E501 - lines of files
from __future__ import annotations

import re

import pytest

from ollamactl.core.checks import run
from ollamactl.core.facts import Facts, Start, Stray
from ollamactl.core.parse import strays
from tests.unit.check_machines import UNIT, host, stray

FOLDER = f"{UNIT}.d"


@pytest.mark.parametrize(
    ("line", "only", "sets"),
    [
        ("export OLLAMA_NUM_PARALLEL=4", "", [("OLLAMA_NUM_PARALLEL", "4")]),
        ("export OLLAMA_HOST='0.0.0.0' OLLAMA_DEBUG=1", "", [("OLLAMA_HOST", "0.0.0.0"), ("OLLAMA_DEBUG", "1")]),
        ("set -gx OLLAMA_KEEP_ALIVE 1h", "", [("OLLAMA_KEEP_ALIVE", "1h")]),
        ("setenv OLLAMA_KEEP_ALIVE 1h", "", [("OLLAMA_KEEP_ALIVE", "1h")]),
        ("OLLAMA_MAX_QUEUE=64; export OLLAMA_MAX_QUEUE", "", [("OLLAMA_MAX_QUEUE", "64")]),
        ('Environment="OLLAMA_NUM_PARALLEL=4" OLLAMA_DEBUG=1', "Environment", [("OLLAMA_NUM_PARALLEL", "4"), ("OLLAMA_DEBUG", "1")]),
        ("ExecStart=/usr/bin/env OLLAMA_DEBUG=1 ollama serve", "Environment", []),
        ("DefaultEnvironment=OLLAMA_NUM_PARALLEL=4 LANG=C", "DefaultEnvironment", [("OLLAMA_NUM_PARALLEL", "4")]),
        ("ManagerEnvironment=OLLAMA_NUM_PARALLEL=4", "DefaultEnvironment", []),
        ("# export OLLAMA_NUM_PARALLEL=4", "", []),
        ("echo $OLLAMA_HOST=", "", []),
    ],
)
def test_what_a_line_sets(line: str, only: str, sets: list[tuple[str, str]]) -> None:
    assert strays.assignments(line, only=only) == sets
    if sets:
        assert re.match(strays.PATTERN, line)


def test_lines_of_grep_keep_their_file_and_number() -> None:
    text = "/etc/profile.d/a.sh:3:export OLLAMA_HOST=127.0.0.1:9\nBinary file /etc/x matches\n"
    assert list(strays.lines(text)) == [("/etc/profile.d/a.sh", 3, "export OLLAMA_HOST=127.0.0.1:9")]


def found(facts: Facts) -> list[tuple[str, str]]:
    checks = ("settings_file_not_read", "env_set_in_shell_not_service", "client_host_differs_from_server")
    return [(f.check, f.severity) for f in run(facts, only=checks).findings]


@pytest.mark.parametrize(
    ("file", "kind", "says"),
    [
        (f"{FOLDER}/override.conf.bak", "unit", [("settings_file_not_read", "warning")]),
        (f"{FOLDER}/override", "unit", [("settings_file_not_read", "warning")]),
        (f"{FOLDER}/override.conf.disabled", "unit", [("settings_file_not_read", "info")]),
        ("/etc/systemd/system/ollama.d/override.conf", "unit", [("settings_file_not_read", "warning")]),
        ("/etc/systemd/user/ollama.service.d/a.conf", "user-unit", [("settings_file_not_read", "warning")]),
        ("/etc/default/ollama", "env-file", [("settings_file_not_read", "warning")]),
        ("/root/.bashrc", "shell", [("env_set_in_shell_not_service", "warning")]),
    ],
)
def test_a_file_that_is_not_read_is_named(file: str, kind: str, says: list[tuple[str, str]]) -> None:
    assert found(stray(file, kind)) == says


def test_what_the_service_has_anyway_is_no_matter() -> None:
    facts = stray("/root/.bashrc", "shell")
    assert facts.start and facts.start.config is not None
    facts.start.config["OLLAMA_NUM_PARALLEL"] = "4"
    assert found(facts) == []


def test_a_drop_in_that_systemd_has_not_read_yet_is_told_as_such() -> None:
    new = f"{FOLDER}/new.conf"
    assert found(stray(new, "unit")) == [("settings_file_not_read", "warning")]
    assert found(stray(new, "unit", need_daemon_reload=True)) == []


def test_a_file_of_the_same_name_elsewhere_is_hidden_and_no_matter() -> None:
    packaged = "/usr/lib/systemd/system/ollama.service.d/override.conf"
    assert found(stray(packaged, "unit", dropin_paths=(f"{FOLDER}/override.conf",))) == []


@pytest.mark.parametrize(("value", "says"), [("127.0.0.1:9999", True), ("127.0.0.1", False), ("gpu.lan:9999", False)])
def test_the_address_of_shells_is_the_clients_own(value: str, says: bool) -> None:
    one = Stray(name="OLLAMA_HOST", value=value, path="/root/.bashrc", line=1, text="x", kind="shell")
    start = Start(config={"OLLAMA_HOST": "http://127.0.0.1:11434"}, listening="127.0.0.1:11434")
    assert found(host(strays=(one,), start=start)) == [("client_host_differs_from_server", "warning")] * says
