"""A container of a compose project, in a real Docker with a real compose: changed by a file of ours beside the
project's, proven from the container's log, its process and its runner, or put back."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab import docker, ollama
from tests.lab.machine import Machine

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]  # the engine's programs are fetched first
FOLDER = "/srv/ai"
OURS = f"{FOLDER}/compose.override.yaml"


def compose(machine: Machine, *words: str) -> str:
    done = machine.run(["docker", "compose", "--project-directory", FOLDER, *words], check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def project(machine: Machine, *ports: str, **environment: str) -> None:
    """The project's only file, and its container made of it."""
    service: dict[str, Any] = {
        "image": docker.IMAGE,
        "ports": ports,
        "volumes": [f"{path}:{path}" for path in docker.volumes(machine)],
        "environment": {"OLLAMA_NUM_PARALLEL": "1"} | environment,
    }
    machine.write(f"{FOLDER}/compose.yaml", json.dumps({"name": "ai", "services": {"llm": service}}))
    compose(machine, "up", "-d")


@pytest.fixture(scope="module")
def host() -> Iterator[Machine]:
    with docker.machine() as booted:
        docker.setup(booted)
        yield booted


@pytest.fixture
def box(host: Machine) -> Iterator[Machine]:
    project(host, "127.0.0.1:11500:11434")
    ollama.wait_answer(host, 11500)
    yield host
    down(host)


def down(machine: Machine) -> None:
    compose(machine, "down", "-t", "1")
    machine.run(["bash", "-c", f"rm -rf {FOLDER}/* /var/lib/ollamactl"])


def environment(machine: Machine) -> dict[str, str]:
    text = machine.run(["docker", "inspect", "-f", "{{json .Config.Env}}", "ai-llm-1"]).stdout
    return dict(e.split("=", 1) for e in json.loads(text))


def there(machine: Machine, path: str = OURS) -> bool:
    return machine.run(["test", "-e", path], check=False).returncode == 0


def test_apply_is_proven_and_taken_back(box: Machine) -> None:
    ollama.api(box, "/api/generate", {"model": ollama.CHAT, "stream": False}, 11500)
    done = ollama.ctl(box, "apply", "--parallel", "4", "--set", "OLLAMA_ORIGINS=https://a$b c")
    assert done.returncode == 0, done.stdout + done.stderr
    for said in ("compose will pass", "server config: OLLAMA_NUM_PARALLEL=4", "-np 4", "compose.override.yaml"):
        assert said in done.stdout, done.stdout
    assert environment(box)["OLLAMA_ORIGINS"] == "https://a$b c"
    again = ollama.ctl_json(box, "apply", "--parallel", "4")
    assert (again["exit_code"], again["data"]["changed"]) == (0, False)
    verified = ollama.ctl_json(box, "verify")
    assert verified["exit_code"] == 0, verified
    layers = {r["name"]: r["layers"] for r in verified["data"]["rows"]}["OLLAMA_NUM_PARALLEL"]
    assert (layers["drop-in"], layers["process"], layers["server"], layers["runner"]) == ("4", "4", "4", "-np 4")
    assert ollama.ctl_json(box, "rollback")["exit_code"] == 0
    assert environment(box)["OLLAMA_NUM_PARALLEL"] == "1" and not there(box)
    assert ollama.ctl_json(box, "apply", "--parallel", "2")["exit_code"] == 0
    assert ollama.ctl_json(box, "reset")["exit_code"] == 0
    assert environment(box)["OLLAMA_NUM_PARALLEL"] == "1" and not there(box)


def test_a_server_that_only_its_own_network_has_is_asked_there(host: Machine) -> None:
    project(host)
    try:
        until = time.monotonic() + 20
        while ollama.ctl_json(host, "facts")["data"].get("version") is None:
            assert time.monotonic() < until
        done = ollama.ctl_json(host, "apply", "--parallel", "3", "--model", ollama.CHAT)
        assert (done["exit_code"], done["data"]["changed"]) == (0, True), done
        layers = {r["name"]: r["layers"] for r in done["data"]["rows"]}["OLLAMA_NUM_PARALLEL"]
        assert (layers["drop-in"], layers["process"], layers["server"], layers["runner"]) == ("3", "3", "3", "-np 3")
        assert ollama.ctl_json(host, "rollback")["exit_code"] == 0
        assert environment(host)["OLLAMA_NUM_PARALLEL"] == "1" and not there(host)
    finally:
        down(host)


def test_a_value_that_fails_at_load_is_found_and_undone(box: Machine) -> None:
    before = environment(box)
    done = ollama.ctl(box, "apply", "--parallel", "2", "--model", "tiny-lfm2:latest")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "one slot" in done.stdout and "previous settings restored" in done.stdout
    assert environment(box) == before and not there(box)
    ollama.wait_answer(box, 11500)


def test_a_project_that_would_make_another_container_and_a_file_of_somebody_else_are_left_alone(box: Machine) -> None:
    text = box.run(["cat", f"{FOLDER}/compose.yaml"]).stdout
    box.write(f"{FOLDER}/compose.yaml", text.replace("127.0.0.1:11500", "127.0.0.1:11600"))
    refused = ollama.ctl_json(box, "apply", "--parallel", "4")
    assert refused["exit_code"] == 6 and "compose_files_changed" in json.dumps(refused)
    box.write(f"{FOLDER}/compose.yaml", text)
    box.write(OURS, "services: {llm: {labels: {mine: yes}}}\n")
    advised = ollama.ctl_json(box, "apply", "--parallel", "4")
    assert advised["exit_code"] == 6 and advised["data"]["advice"]["way"] == "compose"
    assert "mine" in box.run(["cat", OURS]).stdout and environment(box)["OLLAMA_NUM_PARALLEL"] == "1"


def test_a_kill_half_way_is_undone_by_recover(box: Machine) -> None:
    run = box.popen([*ollama.OLLAMACTL, "apply", "--parallel", "4"])
    until = time.monotonic() + 60
    while not there(box):
        assert time.monotonic() < until and run.poll() is None
        time.sleep(0.01)
    run.send_signal(signal.SIGKILL)
    run.wait()
    assert ollama.ctl(box, "recover").returncode == 0
    ollama.wait_answer(box, 11500)
    assert not there(box) and environment(box)["OLLAMA_NUM_PARALLEL"] == "1"
    assert not there(box, "/etc/systemd/system/ollamactl-recover.service")
