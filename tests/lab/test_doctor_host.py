"""What doctor tells of a live host beyond the server's own words: files that are not read, units that cannot start,
a server that is stopped, systemd that does not answer. journald breaks the server's long lines here."""

# ruff: noqa: E501 - lines of shells
from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.lab import ollama
from tests.lab.machine import Machine
from tests.lab.ollama import MODELS, TINY, api, ctl_json
from tests.lab.test_doctor import FOLDER, UNIT, ask, background, from_bundle, loud, paste, report, restore, service, sh

pytestmark = pytest.mark.lab

AGAIN = """
[ -e /run/systemd/private.off ] && mv /run/systemd/private.off /run/systemd/private
[ -e /run/dbus/system_bus_socket.off ] && mv /run/dbus/system_bus_socket.off /run/dbus/system_bus_socket
rm -rf /etc/systemd/system/ollama.d /run/systemd/system/ollama.service.d /etc/profile.d/ollama.sh /var/tmp/home
systemctl unset-environment OLLAMA_GPU_OVERHEAD; systemctl thaw ollama
systemctl stop ollama2 user@1500; systemctl reset-failed ollama2; rm -rf /etc/systemd/system/ollama2.service /home/someone
rm -rf /tmp/models /usr/share/ollama/.ollama/id_ed25519 /etc/systemd/system/small.slice; umount /srv/models
[ -f /var/tmp/ollama ] && mv /var/tmp/ollama /usr/local/bin/ollama
"""
SETTLED = """
systemctl is-failed -q ollama || [ "$(systemctl show -P NRestarts ollama)" -gt 0 ] ||
[ "$(systemctl show -P ConditionResult ollama)" = no ] ||
curl -sf -m 1 -o /dev/null http://127.0.0.1:11434/api/version
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


def wait(machine: Machine, script: str, seconds: float = 30.0) -> None:
    """Until a script inside ends with 0."""
    until = time.monotonic() + seconds
    while machine.run(["bash", "-c", script], check=False).returncode:
        assert time.monotonic() < until, script
        time.sleep(0.05)


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
    wait(lab, SETTLED)
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
    wait(lab, "curl -s http://127.0.0.1:11434/api/version; journalctl -b -q -t systemd-journald -n 3 | grep -q 'Suppressed .* messages'")
    assert "log_lines_suppressed" in [f["check"] for f in report(lab)["findings"]]
    service(lab, "LogLevelMax=warning")
    ollama.wait_answer(lab)
    assert loud(lab) == ["log_not_kept"]


HOME = "/usr/share/ollama/.ollama"
UNITS: dict[tuple[str, ...], str] = {
    ("MemoryMax=200M",): "memory_limit_below_need",
    ("LimitNOFILE=64",): "resource_limit_low",
    ("CPUAffinity=0",): "cpu_quota_low",
    ("RuntimeMaxSec=90",): "runtime_limit_ends_server",
    (f"ReadOnlyPaths={HOME}",): "sandbox_makes_models_read_only",
    (f"InaccessiblePaths={HOME}",): "sandbox_hides_models_dir",
    ("RestrictAddressFamilies=~AF_INET AF_INET6",): "sandbox_blocks_network",
    ("SystemCallFilter=@basic-io",): "system_call_filter_kills_server",
    ("User=root", "Group=root"): "models_in_two_dirs",
    ("ExecStart=", "ExecStart=/usr/local/bin/ollama server"): "execstart_runs_no_server",
    ("PassEnvironment=OLLAMA_NUM_PARALLEL",): "pass_environment_passes_nothing",
    ("Environment=OLLAMA_MODELS=/srv/my models",): "malformed_env_assignment",
    ("Environment=OLLAMA_NUM_PARALLEL=4", "Environment=OLLAMA_NUM_PARALLEL=2"): "dropin_overridden_by_later_dropin",
    ("Environment=OLLAMA_HOST=YOUR_IP",): "placeholder_value_in_config",
    ("Environment=HTTP_PROXY=http://10.0.0.9:3128",): "http_proxy_hijacks_local_api",
    ("NoExecPaths=/usr/local",): "execstart_203_exec",
    ("SystemCallFilter=~@process",): "system_call_filter_forbids_runners",
    ("ExecStart=", "ExecStart=/bin/sh -c '/usr/local/bin/ollama serve &'"): "unit_type_unfit",
    ("WatchdogSec=9min",): "watchdog_ends_server",
    ("Environment=HOME=/srv/none",): "service_home_missing",
    ("Slice=small.slice",): "memory_limit_below_need",
    ("[Unit]", "Requires=none.service", "[Service]"): "required_unit_missing",
    ("[Unit]", "ConditionPathIsMountPoint=/srv", "[Service]"): "service_not_started_at_boot",
}  # fmt: skip


def test_lines_of_a_drop_in_that_take_something_from_the_server(lab: Machine) -> None:
    """One after another in the same file; when it is gone, nothing is left (see the fixture)."""
    lab.write("/etc/systemd/system/small.slice", "[Slice]\nMemoryMax=100M\n")
    first = {}
    for lines in UNITS:
        sh(lab, "systemctl reset-failed ollama")
        service(lab, *lines, "RestartSec=200ms")
        wait(lab, SETTLED)
        first[lines] = [f["check"] for f in report(lab)["findings"] if f["severity"] != "info"][:1]
    assert first == {lines: [check] for lines, check in UNITS.items()}


def small_disk(m: Machine) -> None:
    sh(m, f"mkdir -p /srv/models; mount -t tmpfs -o size=8m tmpfs /srv/models; mkdir /srv/models/blobs; cp -r {MODELS}/manifests /srv/models/;"
          f"for b in {MODELS}/blobs/*; do [ $(stat -c %s $b) -lt 3000000 ] && cp $b /srv/models/blobs/; done; "
          "find /srv/models/manifests -name 270m -delete; rm -r /srv/models/manifests/*/*/fake-embed; "
          "head -c 8m /dev/zero >/srv/models/filled; chown -R ollama: /srv/models")  # fmt: skip
    service(m, "Environment=OLLAMA_MODELS=/srv/models")
    ollama.wait_answer(m)


def own_tmp(m: Machine) -> None:
    sh(m, "mkdir -p /tmp/models/manifests /tmp/models/blobs; chown -R ollama: /tmp/models")
    service(m, "PrivateTmp=yes", "Environment=OLLAMA_MODELS=/tmp/models")
    ollama.wait_answer(m)


def replaced(m: Machine) -> None:
    sh(m, "cp -p /usr/local/bin/ollama /var/tmp/ollama; cp -p /usr/local/bin/ollama /usr/local/bin/new; mv /usr/local/bin/new /usr/local/bin/ollama")


def second_unit(m: Machine) -> None:
    sh(m, f"sed s/RestartSec=3/RestartSec=200ms/ {UNIT} >/etc/systemd/system/ollama2.service; systemctl daemon-reload; systemctl start ollama2")
    wait(m, '[ "$(systemctl show -P NRestarts ollama2)" -gt 0 ]')


def users_unit(m: Machine) -> None:
    m.write("/home/someone/.config/systemd/user/ollama.service", "[Service]\nExecStart=/usr/local/bin/ollama serve\nRestart=always\n")
    # Without a login manager: what pam_systemd does at a login is done here.
    m.write("/run/systemd/system/user@1500.service.d/lab.conf", "[Service]\nPAMName=\nEnvironment=XDG_RUNTIME_DIR=/run/user/1500\n")
    sh(m, "id someone || useradd -M -d /home/someone -u 1500 someone; chown -R someone: /home/someone; "
          "install -d -o someone -m 700 /run/user/1500; systemctl daemon-reload; systemctl start user@1500; "
          "setpriv --reuid=1500 --regid=1500 --clear-groups env HOME=/home/someone XDG_RUNTIME_DIR=/run/user/1500 systemctl --user start ollama")  # fmt: skip
    wait(m, "journalctl --sync; journalctl -b _SYSTEMD_USER_UNIT=ollama.service | grep -q 'address already in use'")


def link_to_nowhere(m: Machine) -> None:
    sh(m, f"mkdir -p {FOLDER}; ln -s /srv/none.conf {FOLDER}/override.conf; systemctl daemon-reload; systemctl restart ollama")
    ollama.wait_answer(m)


def unloads(m: Machine) -> None:
    for _ in range(4):
        api(m, "/api/generate", {"model": TINY, "prompt": "x", "stream": False, "keep_alive": 0, "options": {"num_predict": 1}})  # fmt: skip


def other_server(m: Machine) -> None:
    sh(m, "systemctl stop ollama")
    background(m, "HOME=/tmp setsid /usr/local/bin/ollama serve")
    ollama.wait_answer(m)


STATES: dict[str, Callable[[Machine], None]] = {
    "disk_full": small_disk,
    "sandbox_hides_models_dir": own_tmp,
    "client_server_version_mismatch": replaced,
    "port_in_use by a unit": second_unit,
    "port_in_use by a user's unit": users_unit,
    "dropin_not_readable": link_to_nowhere,
    "client_overrides_keep_alive": unloads,
    "running_server_is_not_the_service": other_server,
    "service_key_not_readable": lambda m: sh(m, f"install -m 600 /dev/null {HOME}/id_ed25519"),
    "server_process_stopped": lambda m: sh(m, "systemctl freeze ollama"),
}


@pytest.mark.parametrize("state", STATES)
def test_what_becomes_of_a_host(lab: Machine, state: str) -> None:
    STATES[state](lab)
    found = report(lab)["findings"]
    assert found[0]["check"] == state.partition(" ")[0] and found[0]["severity"] != "info", [f["summary"] for f in found]
