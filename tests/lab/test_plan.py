"""`plan`, and what `apply` does with it, on a real systemd with a real engine behind the stand-in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.lab import ollama
from tests.lab.machine import Machine
from tests.lab.ollama import CHAT, EMBED, FORCED, api, ctl, ctl_json
from tests.lab.trust.host import clean

pytestmark = pytest.mark.lab

DROPINS = "/etc/systemd/system/ollama.service.d"
LOADS = "/var/lib/ollamactl/loads.jsonl"
HUGE = ("--parallel", "256", "--context-length", "32768")  # more cache than the lab's limit


@pytest.fixture
def lab(serving: Machine) -> Machine:
    """The host with nothing set, and 2 GiB for the service, so that a host of any size refuses the same."""
    limit = "[Service]\nMemoryMax=2G\n"
    clean(serving, lambda machine: machine.write(f"{DROPINS}/10-limit.conf", limit))
    return serving


def invocation(machine: Machine) -> str:
    return machine.run(["systemctl", "show", "-P", "InvocationID", "ollama"]).stdout.strip()


def stored(machine: Machine) -> list[dict[str, Any]]:
    found = machine.run(["cat", LOADS], check=False)
    return [json.loads(line) for line in found.stdout.splitlines()]


def test_an_installed_model_is_planned_without_the_server(lab: Machine) -> None:
    lab.run(["systemctl", "stop", "ollama"])
    try:
        done = ctl_json(lab, "plan", CHAT, "--parallel", "1,4", "--context-length", "4k")
    finally:
        lab.run(["systemctl", "start", "ollama"])
        ollama.wait_answer(lab)
    assert done["exit_code"] == 0, done
    data = done["data"]
    assert data["model"]["architecture"] == "gemma3" and data["budget"]["cpu_only"]
    four = data["rows"][0]["cells"][1]
    assert (four["runner"]["-c"], four["runner"]["-np"]) == (16384, 4)


def test_the_runner_gets_what_was_planned_and_takes_what_was_predicted(lab: Machine) -> None:
    planned = ctl_json(lab, "plan", CHAT, "--parallel", "4", "--context-length", "8k")["data"]["focus"]
    done = ctl_json(lab, "apply", "--parallel", "4", "--context-length", "8192", "--model", CHAT)
    assert done["exit_code"] == 0, done
    command = lab.run(["pgrep", "-a", "llama-server"]).stdout
    assert f"-c {planned['runner']['-c']} -np {planned['runner']['-np']}" in command
    assert f"-b {planned['runner']['-b']} -ub" in command
    [load] = stored(lab)
    assert lab.run(["stat", "-c", "%a %U", LOADS]).stdout.strip() == "600 root"
    measured, predicted = load["buffers"]["host"], load["predicted"]["host"]
    assert abs(measured["kv"] - predicted["kv"]) <= 2 * 5243  # printed with two digits of a MiB, for each cache
    assert predicted["kv"] == planned["kv"]
    assert load["rss"] and load["slots"] == 4
    assert any("as planned" in s["text"] for s in done["data"]["steps"]), done["data"]["steps"]
    later = ctl_json(lab, "plan", CHAT)["data"]["loads"]
    assert later["count"] == 1
    assert "from 1 verified load on this host" in ctl(lab, "plan", CHAT).stdout.replace("\n", " ")


def test_a_change_that_can_not_load_is_refused_before_anything_is_touched(lab: Machine) -> None:
    api(lab, "/api/generate", {"model": CHAT})
    was = invocation(lab)
    for more in ((), ("--check",)):
        done = ctl_json(lab, "apply", *HUGE, *more)
        assert (done["exit_code"], done["status"]) == (6, "refused"), done
        assert [e["id"] for e in done["errors"]] == ["fit"]
        assert CHAT in done["errors"][0]["text"] and "256 slots" in done["errors"][0]["text"]
        assert done["data"]["memory"][0]["after"]["verdict"] == "cannot load"
    assert invocation(lab) == was
    assert lab.run(["ls", DROPINS]).stdout.split() == ["10-limit.conf"]
    said = ctl(lab, "apply", *HUGE)
    assert "KV cache" in said.stdout and "--override fit" in said.stdout
    assert ctl_json(lab, "apply", "--parallel", "2")["exit_code"] == 0  # what fits is not refused


def test_an_override_goes_ahead_and_stands_in_the_history(lab: Machine) -> None:
    much = ("--parallel", "32", "--context-length", "32768")
    done = ctl_json(lab, "apply", *much, "--model", CHAT, "--override", "fit")
    assert done["exit_code"] in (0, 3), done  # what the kernel makes of it is its own affair
    entries = lab.run(["bash", "-c", "cat /var/lib/ollamactl/history/*.json"]).stdout
    assert json.loads(entries)["overrides"] == ["fit"]


def test_auto_takes_the_answer_of_plan(lab: Machine) -> None:
    api(lab, "/api/generate", {"model": CHAT})
    answer = ctl_json(lab, "plan", CHAT, "--parallel", "auto")["data"]["auto"]["slots"]
    done = ctl_json(lab, "apply", "--parallel", "auto")
    assert done["exit_code"] == 0, done
    assert f"-np {answer}" in lab.run(["pgrep", "-a", "llama-server"]).stdout
    assert any("--parallel auto" in n for n in done["data"]["notes"])
    was = invocation(lab)
    assert ctl_json(lab, "apply", "--parallel", "auto")["status"] == "unchanged"
    assert invocation(lab) == was


def test_auto_without_a_model_is_a_usage_error(lab: Machine) -> None:
    done = ctl_json(lab, "apply", "--parallel", "auto")
    assert done["exit_code"] == 2 and "--model" in done["errors"][0]["hint"], done


def test_families_with_one_slot_are_told(lab: Machine) -> None:
    for name in (FORCED, EMBED):
        row = ctl_json(lab, "plan", name, "--parallel", "4", "--context-length", "2k")["data"]["rows"][0]
        assert row["cells"][0]["runner"]["-np"] == 1
        assert any("one slot" in r for r in row["cells"][0]["runner"]["reasons"]), name


def test_without_root_the_plan_is_there_and_the_loads_are_said_to_be_hidden(lab: Machine) -> None:
    lab.run(["useradd", "-m", "guest"], check=False)
    assert ctl(lab, "apply", "--parallel", "2", "--model", CHAT).returncode == 0
    blob = lab.run(["bash", "-c", f"ls -S {ollama.MODELS}/blobs/* | head -1"]).stdout.strip()
    lab.run(["bash", "-c", f"chmod o+rx /usr/share/ollama /usr/share/ollama/.ollama; cp {blob} /tmp/model.gguf"])
    seen = ctl(lab, "plan", "/tmp/model.gguf", user="guest")
    assert seen.returncode == 0, seen.stderr
    assert "loads of this host not read" in seen.stdout


def test_a_bundle_and_a_pasted_log_are_hosts_to_plan_for(lab: Machine) -> None:
    assert ctl(lab, "apply", "--parallel", "2", "--model", CHAT).returncode == 0
    lab.run(["bash", "-c", "rm -f /tmp/plan.tar.gz; journalctl -u ollama -o short-iso --no-pager > /tmp/plan.log"])
    assert ctl(lab, "bundle", "/tmp/plan.tar.gz").returncode == 0
    here = ctl_json(lab, "plan", CHAT, "--parallel", "2", "--context-length", "8k")["data"]
    for source in ("/tmp/plan.tar.gz", "/tmp/plan.log"):
        there = ctl_json(lab, "plan", CHAT, "--parallel", "2", "--context-length", "8k", "--from", source)
        assert there["exit_code"] == 0, there
        assert there["data"]["focus"]["runner"] == here["focus"]["runner"], source
        assert there["data"]["budget"]["cpu_only"] and there["data"]["loads"]["count"] == 0
