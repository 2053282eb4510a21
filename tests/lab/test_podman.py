"""Ollama in a real podman: a container of its own, and a quadlet that systemd runs. It is read like a service, and
what `apply` says to type is typed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab import docker, ollama, podman
from tests.lab.machine import Machine

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]  # the engine's programs are fetched first
QUADLET = "/etc/containers/systemd/ai.container"
ODD = 'https://a"b\\c$d%e f'


@pytest.fixture(scope="module")
def host() -> Iterator[Machine]:
    with podman.machine() as booted:
        podman.setup(booted)
        yield booted


def run(host: Machine, line: str) -> str:
    done = host.run(["bash", "-c", line], check=False, timeout=120)
    assert done.returncode == 0, (line, done.stderr)
    return str(done.stdout)


def rows(host: Machine) -> dict[str, Any]:
    shown = ollama.ctl_json(host, "verify")
    assert shown["exit_code"] == 0, shown
    return {row["name"]: row["layers"] for row in shown["data"]["rows"]}


def advised(host: Machine, *words: str) -> dict[str, Any]:
    said = ollama.ctl_json(host, "apply", *words)
    assert said["exit_code"] == 6 and said["data"]["changed"] is False, said
    return dict(said["data"]["advice"])


def test_a_container_is_made_anew_and_taken_back_by_the_lines_that_apply_prints(host: Machine) -> None:
    mounts = " ".join(f"-v {path}:{path}" for path in docker.volumes(host))
    given = "-e OLLAMA_HOST=127.0.0.1:11434 -e OLLAMA_NUM_PARALLEL=2"
    run(host, f"podman run -d --name ollama --network host {mounts} {given} --label who='some one' {podman.IMAGE}")
    try:
        ollama.wait_answer(host)
        ollama.api(host, "/api/generate", {"model": ollama.CHAT, "stream": False})
        slots = rows(host)["OLLAMA_NUM_PARALLEL"]
        assert (slots["unit"], slots["process"], slots["server"], slots["runner"]) == ("2", "2", "2", "-np 2")
        advice = advised(host, "--parallel", "4", "--set", f"OLLAMA_ORIGINS={ODD}")
        for line in advice["steps"][0]["lines"]:
            run(host, line)
        ollama.wait_answer(host)
        changed = rows(host)
        assert (changed["OLLAMA_NUM_PARALLEL"]["server"], changed["OLLAMA_ORIGINS"]["process"]) == ("4", ODD)
        assert "some one" in run(host, "podman inspect -f '{{json .Config.Labels}}' ollama")
        for line in advice["undo"]:
            run(host, line)
        ollama.wait_answer(host)
        assert rows(host)["OLLAMA_NUM_PARALLEL"]["server"] == "2"
    finally:
        run(host, "podman rm -f -a")


def test_a_quadlet_takes_the_lines_that_apply_prints_byte_for_byte(host: Machine) -> None:
    mounts = "\n".join(f"Volume={path}:{path}" for path in docker.volumes(host))
    before = (
        f"[Service]\nRestart=always\n[Container]\nImage={podman.IMAGE}\nNetwork=host\n{mounts}\n"
        "Environment=OLLAMA_HOST=127.0.0.1:11434 OLLAMA_NUM_PARALLEL=2\n"
    )
    host.write(QUADLET, before)
    run(host, "systemctl daemon-reload && systemctl start ai")
    try:
        ollama.wait_answer(host)
        facts = ollama.ctl_json(host, "facts")["data"]
        assert (facts["install"]["way"], facts["install"]["source"]) == ("quadlet", QUADLET)
        assert rows(host)["OLLAMA_NUM_PARALLEL"]["server"] == "2"
        advice = advised(host, "--parallel", "4", "--set", f"OLLAMA_ORIGINS={ODD}", "--unset", "OLLAMA_MODELS")
        put, gone, then = advice["steps"]
        assert put["file"] == gone["file"] == QUADLET
        host.write(QUADLET, before + "\n".join([*put["lines"], *gone["lines"]]) + "\n")
        for line in then["lines"][:2]:
            run(host, line.removeprefix("sudo "))
        ollama.wait_answer(host)
        changed = rows(host)
        assert (changed["OLLAMA_NUM_PARALLEL"]["server"], changed["OLLAMA_ORIGINS"]["process"]) == ("4", ODD)
        assert "OLLAMA_MODELS" not in run(host, "podman inspect -f '{{json .Config.Env}}' systemd-ai")
    finally:
        run(host, f"systemctl stop ai; rm {QUADLET}; systemctl daemon-reload")
