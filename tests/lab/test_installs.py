"""Ollama that is no unit of the system's systemd, on a live host: in a real Docker container, in a user's systemd,
started by hand. It is read like a service, and what `apply` says to type is typed."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab import docker, ollama
from tests.lab.machine import Machine

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]  # the engine's programs are fetched first


@pytest.fixture(scope="module")
def host() -> Iterator[Machine]:
    with docker.machine() as booted:
        docker.setup(booted)
        yield booted


def run(host: Machine, *words: str) -> str:
    done = host.run(list(words), check=False, timeout=60)
    assert done.returncode == 0, (words, done.stderr)
    return str(done.stdout)


def container(host: Machine, *words: str) -> None:
    mounts = [w for path in docker.volumes(host) for w in ("-v", f"{path}:{path}")]
    run(host, "docker", "run", "-d", "--name", "ollama", *mounts, *words, docker.IMAGE)
    ollama.wait_answer(host)


@pytest.fixture
def box(host: Machine) -> Iterator[Machine]:
    """A container with two slots, published on loopback."""
    container(host, "-p", "127.0.0.1:11434:11434", "-e", "OLLAMA_NUM_PARALLEL=2")
    yield host
    for name in run(host, "docker", "ps", "-aq").split():
        run(host, "docker", "rm", "-f", name)


def rows(host: Machine) -> dict[str, Any]:
    shown = ollama.ctl_json(host, "verify")
    assert shown["exit_code"] == 0, shown
    return {row["name"]: row["layers"] for row in shown["data"]["rows"]}


def test_a_container_is_read_to_its_runner_and_is_well(box: Machine) -> None:
    ollama.api(box, "/api/generate", {"model": ollama.CHAT, "stream": False})
    facts = ollama.ctl_json(box, "facts")["data"]
    assert facts["install"]["way"] == "docker" and facts["install"]["running"]
    assert facts["start"]["config"]["OLLAMA_NUM_PARALLEL"] == "2"
    assert facts["runners"][0]["props_slots"] == 2, "the runner's own API is inside the container's network"
    slots = rows(box)["OLLAMA_NUM_PARALLEL"]
    assert (slots["unit"], slots["process"], slots["server"], slots["runner"]) == ("2", "2", "2", "-np 2")
    screen = ollama.ctl(box, "verify").stdout
    assert "docker:ollama" in screen and "container" in screen and "drop-in" not in screen
    assert "CMD" not in screen and "only a text was given" not in screen
    found = ollama.ctl_json(box, "doctor")["data"]["findings"]
    assert [f["check"] for f in found if f["severity"] != "info"] == []


def test_a_port_on_every_interface_is_open_and_one_that_is_not_published_is_asked_inside(host: Machine) -> None:
    mounts = [w for path in docker.volumes(host) for w in ("-v", f"{path}:{path}")]
    run(host, "docker", "run", "-d", "--name", "closed", *mounts, docker.IMAGE)
    try:
        until = time.monotonic() + 20
        while (facts := ollama.ctl_json(host, "facts")["data"]).get("version") is None or not facts.get("installed"):
            assert time.monotonic() < until, facts["missing"]
        assert len(facts["installed"]) == 4
    finally:
        run(host, "docker", "rm", "-f", "closed")
    container(host, "-p", "11434:11434")
    try:
        found = ollama.ctl_json(host, "doctor")["data"]["findings"]
        assert found[0]["check"] == "api_exposed_without_auth" and "127.0.0.1:11434:11434" in found[0]["remedy"]
    finally:
        run(host, "docker", "rm", "-f", "ollama")


def test_the_lines_that_apply_prints_change_the_container_and_take_it_back(box: Machine) -> None:
    said = ollama.ctl_json(box, "apply", "--parallel", "4", "--set", "OLLAMA_ORIGINS=https://a b")
    assert said["exit_code"] == 6 and said["data"]["changed"] is False
    advice = said["data"]["advice"]
    assert rows(box)["OLLAMA_NUM_PARALLEL"]["server"] == "2", "nothing was touched"
    for line in advice["steps"][0]["lines"]:
        run(box, "bash", "-c", line)
    ollama.wait_answer(box)
    changed = rows(box)
    assert changed["OLLAMA_NUM_PARALLEL"]["server"] == "4" and changed["OLLAMA_ORIGINS"]["process"] == "https://a b"
    for line in advice["undo"]:
        run(box, "bash", "-c", line)
    ollama.wait_answer(box)
    assert rows(box)["OLLAMA_NUM_PARALLEL"]["server"] == "2"


def test_a_server_by_hand_is_read_from_the_file_that_it_writes_to(host: Machine) -> None:
    given = f"OLLAMA_MODELS={ollama.MODELS} OLLAMA_NUM_PARALLEL=3"
    pid = run(host, "bash", "-c", f"cd /root; {given} setsid ollama serve >out.log 2>&1 & echo $!").strip()
    try:
        ollama.wait_answer(host)
        facts = ollama.ctl_json(host, "facts")["data"]
        assert facts["install"]["way"] == "hand" and facts["log"]["where"] == "/root/out.log"
        assert rows(host)["OLLAMA_NUM_PARALLEL"]["server"] == "3"
        found = ollama.ctl_json(host, "doctor")["data"]["findings"]
        assert [f["check"] for f in found if f["severity"] != "info"] == []
        advice = ollama.ctl_json(host, "apply", "--parallel", "4")["data"]["advice"]
        start = f"OLLAMA_MODELS={ollama.MODELS} OLLAMA_NUM_PARALLEL=4 ollama serve"  # it had the models from its shell
        assert advice["steps"][0]["lines"] == [f"kill {facts['process']['pid']}", start]
        assert advice["undo"][-1] == start.replace("PARALLEL=4", "PARALLEL=3")
    finally:
        run(host, "kill", pid)


def test_a_user_unit_is_read_from_the_users_journal_and_changed_by_the_lines_that_apply_prints(host: Machine) -> None:
    unit = "[Service]\nExecStart=/usr/local/bin/ollama serve\n"
    run(host, "useradd", "-m", "-u", "1500", "someone")
    host.write("/home/someone/.config/systemd/user/ollama.service", unit)
    run(host, "chown", "-R", "someone:", "/home/someone")
    # Without a login manager: what pam_systemd does at a login is done here.
    host.write("/etc/systemd/system/user@1500.service.d/lab.conf",
               "[Service]\nPAMName=\nEnvironment=XDG_RUNTIME_DIR=/run/user/1500\n")  # fmt: skip
    run(host, "install", "-d", "-o", "someone", "-m", "700", "/run/user/1500")
    run(host, "systemctl", "daemon-reload")
    run(host, "systemctl", "start", "user@1500")

    def as_user(line: str) -> None:
        words = ["setpriv", "--reuid=1500", "--regid=1500", "--clear-groups", "env", "HOME=/home/someone",
                 "XDG_RUNTIME_DIR=/run/user/1500", "bash", "-c", line]  # fmt: skip
        run(host, *words)

    as_user("systemctl --user start ollama")
    try:
        ollama.wait_answer(host)
        facts = ollama.ctl_json(host, "facts")["data"]
        assert (facts["install"]["way"], facts["install"]["uid"]) == ("user-unit", 1500)
        assert facts["start"]["config"]["OLLAMA_NUM_PARALLEL"] == "1", facts["missing"]
        advice = ollama.ctl_json(host, "apply", "--parallel", "4")["data"]["advice"]
        drop, then = advice["steps"]
        place = drop["file"].replace("~", "/home/someone")
        as_user(f"mkdir -p {shlex.quote(place.rpartition('/')[0])}")
        as_user("printf '%s\\n' " + " ".join(map(shlex.quote, drop["lines"])) + f" > {shlex.quote(place)}")
        for line in then["lines"][:2]:
            as_user(line)
        ollama.wait_answer(host)
        assert rows(host)["OLLAMA_NUM_PARALLEL"]["server"] == "4"
    finally:
        as_user("systemctl --user stop ollama")
        run(host, "systemctl", "stop", "user@1500")
