"""What doctor tells of a live host beyond the server's own words: files that are not read, units that cannot start,
a server that is stopped, systemd that does not answer. journald breaks the server's long lines here."""

# ruff: noqa: E501 - lines of shells
from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.lab import ollama
from tests.lab.machine import Machine
from tests.lab.ollama import ctl_json
from tests.lab.test_doctor import FOLDER, UNIT, ask, from_bundle, loud, paste, report, restore, service, sh

pytestmark = pytest.mark.lab

AGAIN = """
[ -e /run/systemd/private.off ] && mv /run/systemd/private.off /run/systemd/private
[ -e /run/dbus/system_bus_socket.off ] && mv /run/dbus/system_bus_socket.off /run/dbus/system_bus_socket
rm -rf /etc/systemd/system/ollama.d /run/systemd/system/ollama.service.d /etc/profile.d/ollama.sh /var/tmp/home
systemctl unset-environment OLLAMA_GPU_OVERHEAD
"""


@pytest.fixture(scope="module")
def host() -> Iterator[Machine]:
    with Machine(journald=["LineMax=600"]) as machine:
        ollama.setup(machine)
        machine.run(["cp", UNIT, "/var/tmp/ollama.service"])
        yield machine


@pytest.fixture
def lab(host: Machine) -> Iterator[Machine]:
    yield host
    sh(host, AGAIN)
    restore(host)
    assert loud(host) == []


def test_a_broken_line_of_the_server_is_read_as_one(lab: Machine) -> None:
    broken = lab.run(["bash", "-c", "journalctl -u ollama -o json | grep -c '_LINE_BREAK.*line-max'"], check=False)
    assert int(broken.stdout) >= 1
    (row, *_) = ctl_json(lab, "verify")["data"]["rows"]
    assert row["layers"]["server"] == "1"


def test_settings_that_do_not_arrive_or_do_not_last(lab: Machine) -> None:
    """All at once, each of a variable of its own."""
    lab.write(f"{FOLDER}/old.conf.bak", "[Service]\nEnvironment=OLLAMA_NUM_PARALLEL=4\n")
    lab.write("/etc/systemd/system/ollama.d/a.conf", "[Service]\nEnvironment=OLLAMA_KEEP_ALIVE=1h\n")
    lab.write("/etc/default/ollama", "OLLAMA_MAX_QUEUE=64\n")
    lab.write("/etc/profile.d/ollama.sh", "export OLLAMA_CONTEXT_LENGTH=8192\nexport OLLAMA_HOST=127.0.0.1:9999\n")
    lab.write("/run/systemd/system/ollama.service.d/r.conf", "[Service]\nEnvironment=OLLAMA_MAX_LOADED_MODELS=2\n")
    sh(lab, "systemctl set-environment OLLAMA_GPU_OVERHEAD=1048576; systemctl disable -q ollama")
    service(lab, "Environment=OLLAMA_LOAD_TIMEOUT=9m OLLAMA_DEBUG=0", "UnsetEnvironment=OLLAMA_LOAD_TIMEOUT",
            "ExecStart=", "ExecStart=/usr/bin/env OLLAMA_DEBUG=1 /usr/local/bin/ollama serve",
            "CPUQuota=90%", "ProtectSystem=full")  # fmt: skip
    ollama.wait_answer(lab)
    found = report(lab)["findings"]
    text = {check: [f["summary"] for f in found if f["check"] == check] for check in {f["check"] for f in found}}
    named = " ".join(text["settings_file_not_read"])
    assert all(word in named for word in ("old.conf.bak", "ollama.d/a.conf", "/etc/default/ollama"))
    assert any("OLLAMA_CONTEXT_LENGTH=8192" in said for said in text["env_set_in_shell_not_service"])
    assert {said[:20] for said in text["setting_lost_at_reboot"]} == {"OLLAMA_MAX_LOADED_MO", "OLLAMA_GPU_OVERHEAD="}
    wanted = {"unset_environment_drops_setting", "command_sets_own_value", "client_host_differs_from_server",
              "cpu_quota_low", "sandbox_makes_models_read_only", "service_not_started_at_boot"}  # fmt: skip
    assert wanted <= set(text)
    assert from_bundle(lab) == [(f["check"], f["severity"]) for f in found]
    strays = ctl_json(lab, "facts")["data"]["strays"]
    assert {one["path"] for one in strays} == {
        f"{FOLDER}/old.conf.bak", "/etc/systemd/system/ollama.d/a.conf", "/etc/default/ollama", "/etc/profile.d/ollama.sh",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "check"),
    [
        (("User=nobody-here",), "service_setup_failed"),
        (("WorkingDirectory=/srv/none",), "service_setup_failed"),
        (("EnvironmentFile=/etc/default/none",), "environment_file_missing"),
        (("ExecStart=/usr/local/bin/ollama serve",), "unit_refused"),
        (("Environment=OLLAMA_HOST=https://127.0.0.1",), "invalid_value"),
        (("Environment=OLLAMA_HOST=10.99.99.99",), "bind_refused"),
    ],
)
def test_a_unit_that_cannot_start_is_told_by_its_cause(lab: Machine, lines: tuple[str, ...], check: str) -> None:
    service(lab, *lines, "RestartSec=200ms")
    time.sleep(0.6)
    found = report(lab)["findings"]
    assert (found[0]["check"], found[0]["severity"]) == (check, "error"), [f["check"] for f in found]
    assert "service_restart_loop" not in [f["check"] for f in found]


def test_a_stopped_server_and_its_remedy(lab: Machine) -> None:
    sh(lab, "kill -STOP $(systemctl show -P MainPID ollama)")
    found = report(lab)["findings"]
    assert found[0]["check"] == "server_process_stopped"
    paste(lab, found[0]["remedy"], "")
    assert loud(lab) == []


def test_systemd_that_does_not_answer(lab: Machine) -> None:
    sh(lab, "for s in /run/systemd/private /run/dbus/system_bus_socket; do mv $s $s.off; done")
    found = report(lab)["findings"]
    assert found[0]["check"] == "systemd_does_not_answer"
    known = ctl_json(lab, "facts")["data"]
    assert known.get("install") is None and "does not answer" in str(known["missing"]["install"])


def test_lines_that_journald_dropped_and_output_that_goes_nowhere(lab: Machine) -> None:
    service(lab, "LogRateLimitIntervalSec=1s", "LogRateLimitBurst=12")
    ollama.wait_answer(lab)
    ask(lab)
    time.sleep(1.2)
    ask(lab)
    assert "log_lines_suppressed" in [f["check"] for f in report(lab)["findings"]]
    service(lab, "LogLevelMax=warning")
    ollama.wait_answer(lab)
    assert loud(lab) == ["log_not_kept"]
