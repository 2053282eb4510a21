"""What runs Ollama on a host that has no unit for it: found from processes, cgroups and container engines."""

from __future__ import annotations

import json

import msgspec
import pytest

from ollamactl.core.checks import run
from ollamactl.core.facts import Effective, Facts, Listener, Origin, Process, Service, Variable
from ollamactl.core.parse.cgroup import Home, home
from ollamactl.core.parse.containers import with_ollama
from ollamactl.core.source import Missing
from tests.hosts import TextHost, facts_of
from tests.unit.test_containers import ollama

HEX = "0123456789abcdef" * 4
START = (
    'time=2026-01-02T03:04:05.700Z level=INFO source=routes.go:1850 msg="server config" env="map[OLLAMA_HOST:'
    'http://0.0.0.0:11434 OLLAMA_NUM_PARALLEL:2]"\n'
    'time=2026-01-02T03:04:05.800Z level=INFO source=routes.go:1900 msg="Listening on [::]:11434 (version 0.33.0)"\n'
)
NO_SYSTEMD = '{"os":"linux","hostname":"h","init":"none"}'


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/system.slice/ollama.service", Home("unit", "ollama.service")),
        ("/system.slice/snap.ollama.listener.service", Home("unit", "snap.ollama.listener.service")),
        (f"/system.slice/docker-{HEX}.scope", Home("docker", HEX)),
        (f"/docker/{HEX}", Home("docker", HEX)),
        (f"/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{HEX}.scope", Home("docker", HEX, 1000)),
        (f"/machine.slice/libpod-{HEX}.scope/container", Home("podman", HEX)),
        (f"/machine.slice/libpod-conmon-{HEX}.scope", Home("", "")),
        (f"/system.slice/ollama.service/libpod-payload-{HEX}", Home("quadlet", "ollama.service")),
        (f"/kubepods.slice/kubepods-pod1.slice/cri-containerd-{HEX}.scope", Home("kubernetes", HEX)),
        ("/lxc.payload.ct1/system.slice/x", Home("lxc", "ct1")),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/ollama.service",
            Home("user-unit", "ollama.service", 1000),
        ),
        ("/user.slice/user-1000.slice/session-3.scope", Home("session")),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/app-org.gnome.Terminal.slice/vte-spawn-1.scope",
         Home("session", "", 1000)),
        ("/", Home("")),
        ("", Home("")),
    ],
)  # fmt: skip
def test_who_runs_a_process_by_its_cgroup(path: str, expected: Home) -> None:
    assert home(path) == expected


def serving(pid: int, cgroup: str, **more: object) -> Process:
    base = Process(pid=pid, argv=("/usr/bin/ollama", "serve"), environ={"OLLAMA_NUM_PARALLEL": "2"}, cgroup=cgroup)
    return msgspec.structs.replace(base, **more)


def facts(*servers: Process, fields: tuple[str, ...], unit: str = "", **answers: str | bytes | Missing) -> Facts:
    known: dict[str, str | bytes | Missing] = {
        "native:servers": msgspec.json.encode(servers), "native:system": NO_SYSTEMD, **answers,
    }  # fmt: skip
    return facts_of(TextHost(known), unit, fields)


BOX = {
    "command:docker ps": f"{'ab' * 32}\n",
    "command:docker inspect": json.dumps([ollama()]),
    "command:docker logs": START,
    "http:GET http://127.0.0.1:11500/api/version": '{"version":"0.33.0"}',
}
ALL = ("install", "process", "effective", "log", "start", "address", "version")


def test_a_container_takes_the_place_of_a_unit() -> None:
    found = facts(serving(4321, f"/system.slice/docker-{'ab' * 32}.scope"), fields=ALL, **BOX)
    assert found.install is not None and (found.install.way, found.install.name) == ("compose", "ai-ollama-1")
    assert found.process is not None and found.process.pid == 4321
    assert found.effective is not None and found.effective.value("OLLAMA_NUM_PARALLEL") == "2"
    assert found.start is not None and (found.start.config or {})["OLLAMA_NUM_PARALLEL"] == "2"
    assert (found.address, found.version) == ("127.0.0.1:11500", "0.33.0")


def test_the_process_of_a_container_is_the_server_below_its_init() -> None:
    found = facts(serving(5000, "/", ppid=4321), fields=("process", "installs"), **BOX)
    assert found.process is not None and found.process.pid == 5000
    assert found.installs is not None and [i.way for i in found.installs] == ["compose"]


def test_a_user_unit_and_a_server_by_hand_are_told_apart() -> None:
    one = serving(7, "/user.slice/user-1000.slice/user@1000.service/app.slice/ollama.service")
    two = serving(8, "/user.slice/user-0.slice/session-3.scope", user="root")
    found = facts(one, two, fields=("installs", "install", "process"))
    assert [(i.way, i.uid) for i in found.installs or ()] == [("user-unit", 1000), ("hand", None)]
    assert found.install is None and found.why("install").kind == "unasked"
    assert "user-unit:ollama.service" in found.why("install").detail
    chosen = facts(one, two, fields=("process",), unit="user-unit:ollama.service")
    assert chosen.process is not None and chosen.process.pid == 7


def test_the_log_of_a_server_by_hand_is_the_file_that_it_writes_to() -> None:
    by_hand = serving(8, "/user.slice/user-0.slice/session-3.scope")
    answers: dict[str, str | bytes | Missing] = {
        "stat:/proc/8/fd/2": '{"type":"link","target":"/root/nohup.out"}', "command:tail.*nohup.out": START,
    }  # fmt: skip
    found = facts(by_hand, fields=("log", "start"), **answers)
    assert found.log is not None and found.log.where == "/root/nohup.out" and found.start is not None
    answers["stat:/proc/8/fd/2"] = answers["stat:/proc/8/fd/1"] = '{"type":"link","target":"/dev/pts/3"}'
    found = facts(by_hand, fields=("log",), **answers)
    assert found.log is None and "/dev/pts/3" in found.why("log").detail


def test_nothing_at_all_is_said() -> None:
    found = facts(fields=("install", "process", "log"))
    assert found.install is None and found.why("install").kind == "absent"
    assert found.process is None and found.log is None


@pytest.mark.parametrize(
    ("owner", "boxes", "who", "fix"),
    [
        ("docker-proxy", True, "for the container ai-ollama-1", "sudo docker stop ai-ollama-1 && "),
        ("ollama", True, "for the container ai-ollama-1", "sudo docker stop ai-ollama-1 && "),  # network host
        ("docker-proxy", False, "for a container", "sudo docker ps --filter publish=11500 "),
        ("rootlessport", False, "for a container", "sudo podman ps --filter publish=11500 "),
        ("ollama", False, "pid 4321", "sudo kill 4321 && "),
    ],
)
def test_a_port_that_a_container_holds_is_given_up_by_its_engine(owner: str, boxes: bool, who: str, fix: str) -> None:
    host = Variable(name="OLLAMA_HOST", value="127.0.0.1:11500", origin=Origin(layer="environment"))
    machine = Facts(
        service=Service(id="ollama.service", active_state="activating", sub_state="auto-restart", n_restarts=7),
        effective=Effective(variables={"OLLAMA_HOST": host}),
        listeners=(Listener(address="127.0.0.1", port=11500, pid=4321, name=owner),),
        containers=with_ollama((ollama(),), "docker") if boxes else (),
    )
    (found,) = run(machine, only=["port_in_use"]).findings
    assert who in found.summary and found.remedy.startswith(fix)


def test_whose_a_server_is_only_systemd_can_say_where_it_does_not_answer() -> None:
    """A process of a unit is not started by hand because systemctl fails."""
    silent = Missing("failed", "systemctl: Failed to connect to bus: No such file or directory")
    booted = '{"os":"linux","hostname":"h","init":"systemd"}'
    answers = {"native:system": booted, "command:systemctl list-unit-files": silent}
    got = facts(serving(7, "/system.slice/ollama.service"), fields=("install", "units", "servers"), **answers)
    assert got.install is None and got.why("install").detail.startswith("systemd does not answer")
    (finding,) = run(got, only=["systemd_does_not_answer"]).findings
    assert "process 7" in " ".join(finding.evidence)
    by_hand = facts(serving(7, "/user.slice/user-0.slice/session-3.scope"), fields=("install",), **answers)
    assert by_hand.install and by_hand.install.way == "hand"
