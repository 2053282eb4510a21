"""The collection on several real hosts over ssh, from the installation to a host that goes away in the middle.

The tests build on each other: the fleet is installed once, in order of this file.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ollamactl import __version__
from ollamactl.core.sizing import AUTO_MOST
from tests.lab import ollama

from .control import Controller, Run, tasks
from .hosts import Fleet

pytestmark = pytest.mark.lab
GATE = "/run/load-gate"
PORT = "127.0.0.1:11500"


def role(**profile: Any) -> list[dict[str, Any]]:
    """The role on all hosts."""
    variables = {"ollamactl_profile": profile} if profile else {}
    return tasks({"include_role": {"name": "ollamactl.host.ollamactl"}, "vars": variables})


def config(hosts: str = "ollama", **options: Any) -> list[dict[str, Any]]:
    """The module alone."""
    return tasks({"ollamactl.host.config": options}, hosts=hosts)


def traces(fleet: Fleet) -> dict[str, tuple[str, str]]:
    return {name: (host.etc(), host.invocation()) for name, host in fleet.hosts.items()}


def slots(fleet: Fleet) -> dict[str, str]:
    return {name: host.environ().get("OLLAMA_NUM_PARALLEL", "") for name, host in fleet.hosts.items()}


def until(true: Callable[[], bool], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def well(run: Run) -> None:
    assert run.code == 0, run.output


def test_check_mode_before_the_installation_says_so_and_leaves_no_trace(fleet: Fleet, controller: Controller) -> None:
    before = traces(fleet)
    run = controller.play(role(parallel=2), "--check", "--diff")
    well(run)
    assert all(run.of(name)["changed"] for name in fleet.hosts)
    assert "not installed" in run.output
    assert traces(fleet) == before


def test_the_role_installs_from_the_package(fleet: Fleet, controller: Controller) -> None:
    well(controller.play(role()))
    for host in fleet.hosts.values():
        assert host.machine.run(["ollamactl", "--version"]).stdout == f"ollamactl {__version__}\n"
        assert host.machine.run(["sh", "-c", "command -v gcc cc"], check=False).stdout == ""
    again = controller.play(role())
    well(again)
    assert again.changed == dict.fromkeys(fleet.hosts, 0)


def test_check_mode_shows_the_diff_and_leaves_no_trace(fleet: Fleet, controller: Controller) -> None:
    before = traces(fleet)
    run = controller.play(role(parallel=2, models=[ollama.CHAT]), "--check", "--diff")
    well(run)
    assert "+Environment=" in run.output and "zz-ollamactl.conf" in run.output
    assert "-OLLAMA_NUM_PARALLEL=1" in run.output and "+OLLAMA_NUM_PARALLEL=2" in run.output
    for name in fleet.hosts:
        found = run.of(name)
        assert found["changed"] and found["restarted"] and not found["rolled_back"]
        (change,) = found["changes"]
        assert (change["name"], change["now"], change["new"]) == ("OLLAMA_NUM_PARALLEL", "1", "2")
    assert traces(fleet) == before


def test_apply_on_all_hosts_at_once_and_nothing_the_second_time(fleet: Fleet, controller: Controller) -> None:
    run = controller.play(role(parallel=2, models=[ollama.CHAT]), "--forks=3")
    well(run)
    applied = [r for r in run.results if r["action"] == "ollamactl.host.config"]
    assert len(applied) == 3
    assert max(r["started"] for r in applied) < min(r["ended"] for r in applied), "the hosts are served side by side"
    for name in fleet.hosts:
        found = run.of(name)
        assert found["changed"] and found["restarted"] and found["status"] == "applied"
        rows = {row["name"]: row["layers"] for row in found["settings"]}
        assert (rows["OLLAMA_NUM_PARALLEL"]["process"], rows["OLLAMA_NUM_PARALLEL"]["runner"]) == ("2", "-np 2")
    assert slots(fleet) == dict.fromkeys(fleet.hosts, "2")
    before = traces(fleet)
    again = controller.play(role(parallel=2, models=[ollama.CHAT]))
    well(again)
    assert again.changed == dict.fromkeys(fleet.hosts, 0)
    assert traces(fleet) == before


def test_what_only_looks_changes_nothing(fleet: Fleet, controller: Controller) -> None:
    before = traces(fleet)
    looks = [
        {"ollamactl.host.info": {}},
        {"ollamactl.host.doctor": {"fail_on": "never"}},
        {"ollamactl.host.plan": {"model": ollama.CHAT, "parallel": ["1", "4"], "context_length": ["4k"]}},
    ]
    run = controller.play(tasks(*looks))
    well(run)
    assert run.changed == dict.fromkeys(fleet.hosts, 0)
    for name in fleet.hosts:
        info = run.of(name, "ollamactl.host.info")
        assert info["unit"] == "ollama.service" and info["version"] and info["open_transaction"] == ""
        assert [model["name"] for model in info["loaded"]] == [ollama.CHAT]
        rows = {row["name"]: row["layers"] for row in info["settings"]}
        assert rows["OLLAMA_NUM_PARALLEL"]["process"] == "2"
        assert run.of(name, "ollamactl.host.doctor")["counts"]["error"] == 0
        assert run.of(name, "ollamactl.host.plan")["plan"]
    assert traces(fleet) == before


@pytest.mark.parametrize("core", ["this", "older"])
def test_modules_run_on_python_3_9_of_the_target(
    fleet: Fleet, controller: Controller, older: Path, python39: Path, core: str
) -> None:
    play = controller_of_its_own(controller)
    play.bin = older if core == "older" else play.bin
    before = fleet["alpha"].etc()
    changes = {"settings": {"OLLAMA_ORIGINS": "https://a b"}, "secrets": {"HTTPS_PROXY": "http://u:p@10.213.0.1:1"}}
    looks = [
        {"ansible.builtin.setup": {"gather_subset": ["!all"], "filter": ["ansible_python_version"]}},
        {"ollamactl.host.info": {}},
        {"ollamactl.host.doctor": {"fail_on": "never"}},
        {"ollamactl.host.plan": {"model": ollama.CHAT}},
        {"ollamactl.host.config": changes},
    ]
    interpreter = f"ansible_python_interpreter={python39}"
    run = play.play(tasks(*looks, hosts="alpha"), "-e", interpreter)
    well(run)
    facts = run.of("alpha", "ansible.builtin.setup")["ansible_facts"]
    assert facts["ansible_python_version"].startswith("3.9.")
    assert run.of("alpha", "ollamactl.host.info")["version"] and run.of("alpha", "ollamactl.host.plan")["plan"]
    assert run.of("alpha")["status"] == "applied" and run.changed["alpha"] == 1
    assert fleet["alpha"].environ()["OLLAMA_ORIGINS"] == "https://a b"
    well(play.play(config(hosts="alpha", release=["OLLAMA_ORIGINS", "HTTPS_PROXY"]), "-e", interpreter))
    assert fleet["alpha"].etc() == before


def test_an_older_ansible_core(fleet: Fleet, controller: Controller, older: Path) -> None:
    play = controller_of_its_own(controller)
    play.bin = older
    before = traces(fleet)
    run = play.play(role(parallel=2, models=[ollama.CHAT]), "--check", "--diff")
    well(run)
    assert run.changed == dict.fromkeys(fleet.hosts, 0)
    assert traces(fleet) == before


def test_what_is_refused_fails_and_touches_nothing(fleet: Fleet, controller: Controller) -> None:
    before = traces(fleet)
    wrong: dict[str, dict[str, Any]] = {
        "'A=B' is no name of a variable": {"settings": {"A=B": "c"}},
        "HTTPS_PROXY has no value": {"secrets": {"HTTPS_PROXY": None}},
        "OLLAMA_ORIGINS is a list": {"settings": {"OLLAMA_ORIGINS": ["a"]}},
        "may not begin with @": {"settings": {"OLLAMA_ORIGINS": "@/etc/shadow"}},
        "a line end or NUL": {"settings": {"OLLAMA_ORIGINS": "a\nb"}},
        "not a whole number": {"parallel": "--check"},
        "parallel can not stand beside it": {"state": "absent", "parallel": "4"},
        "'--help' is no name of a unit": {"unit": "--help", "parallel": "4"},
        "OLLAMA_NUM_PARALEL": {"settings": {"OLLAMA_NUM_PARALEL": 4}},
    }
    each = ({"ollamactl.host.config": options, "ignore_errors": True} for options in wrong.values())
    run = controller.play(tasks(*each, hosts="alpha"))
    well(run)
    results = [r for r in run.results if r["action"] == "ollamactl.host.config"]
    for (said, options), row in zip(wrong.items(), results, strict=True):
        assert row["kind"] == "ignored" and said in row["result"]["msg"], (options, row)
        assert not row["result"].get("changed")
    last = results[-1]["result"]
    assert last["exit_code"] == 6 and last["errors"][0]["hint"]
    assert traces(fleet) == before


def test_a_profile_with_a_misspelt_name_is_refused(fleet: Fleet, controller: Controller) -> None:
    before = traces(fleet)
    run = controller.play(role(paralel=4, models=[ollama.CHAT]))
    assert run.code == 2 and "no option of ollamactl.host.config: paralel" in run.output
    assert not [r for r in run.results if r["action"] == "ollamactl.host.config"]
    assert traces(fleet) == before


def test_secrets_are_shown_nowhere(fleet: Fleet, controller: Controller) -> None:
    run = controller.play(config(hosts="alpha", secrets={"HTTPS_PROXY": "http://user:pa55word@10.213.0.1:3128"}),
                          "--diff", "-vvv")  # fmt: skip
    well(run)
    assert fleet["alpha"].environ()["HTTPS_PROXY"].count("pa55word") == 1
    assert "pa55word" not in run.output + json.dumps(run.results)
    well(controller.play(config(hosts="alpha", release=["HTTPS_PROXY"])))
    assert "HTTPS_PROXY" not in fleet["alpha"].environ()


def test_a_held_port_fails_one_host_puts_it_back_and_ends_the_play(fleet: Fleet, controller: Controller) -> None:
    holds = "import socket,time; s=socket.create_server(('127.0.0.1',11500)); print(1,flush=True); time.sleep(600)"
    holder = fleet["beta"].machine.popen(["/usr/bin/python3", "-c", holds])
    assert holder.stdout and holder.stdout.readline() == "1\n"
    before = traces(fleet)
    profile = {"ollamactl_profile": {"host": PORT, "override": ["port_taken", "port_in_use"]}}
    run = controller.play("ollamactl.host.slots", "-e", json.dumps(profile))
    assert run.code != 0
    assert run.of("alpha")["status"] == "applied"
    failed = run.of("beta")
    assert failed["failed"] and failed["rolled_back"] and not failed["changed"], failed
    assert failed["exit_code"] == 3 and failed["mismatches"] + [s for s in failed["steps"] if not s["ok"]]
    assert not [r for r in run.results if r["host"] == "gamma"], "the play has stopped"
    after = traces(fleet)
    assert after["beta"][0] == before["beta"][0] and after["gamma"] == before["gamma"]
    assert "OLLAMA_HOST" not in fleet["beta"].environ()
    ollama.wait_answer(fleet["beta"].machine)
    holder.kill()
    holder.communicate()
    well(controller.play(config(hosts="alpha", release=["OLLAMA_HOST"])))


def test_the_report_names_what_has_drifted(fleet: Fleet, controller: Controller, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    profile = json.dumps({"ollamactl_profile": {"parallel": 2, "models": [ollama.CHAT]}})
    well_now = controller.play("ollamactl.host.drift", "-e", profile, "-e", f"report={path}")
    rows = {row["host"]: row for row in json.loads(path.read_text())["hosts"]}
    assert well_now.code == 0, well_now.output + path.read_text()
    assert all(row["ok"] and row["slots_effective"] == "2" for row in rows.values())
    drop = "/etc/systemd/system/ollama.service.d/zzz-someone.conf"
    fleet["beta"].machine.write(drop, "[Service]\nEnvironment=OLLAMA_NUM_PARALLEL=7\n")
    fleet["beta"].machine.run(["systemctl", "daemon-reload"])
    ollama.api(fleet["beta"].machine, "/api/generate", {"model": ollama.CHAT, "stream": False, "keep_alive": "20m"})
    before = traces(fleet)
    run = controller.play("ollamactl.host.drift", "-e", profile, "-e", f"report={path}", "-e", "target=with_lost")
    rows = {row["host"]: row for row in json.loads(path.read_text())["hosts"]}
    assert run.code == 2, run.output
    assert sorted(name for name, row in rows.items() if not row["ok"]) == ["beta", "delta"]
    assert not rows["delta"]["reached"] and "ssh" in rows["delta"]["why"]
    assert rows["beta"]["mismatches"] and not rows["alpha"]["drifted"] and rows["beta"]["headroom"]["host_memory"] > 0
    assert (rows["beta"]["slots_wanted"], rows["beta"]["models"], rows["beta"]["gpus"]) == (2, [ollama.CHAT], [])
    only = controller.play("ollamactl.host.drift", "-e", profile, "-e", f"report={path}", "--limit", "alpha,gamma")
    well(only)
    assert sorted(row["host"] for row in json.loads(path.read_text())["hosts"]) == ["alpha", "gamma"]
    assert traces(fleet) == before
    assert controller.play("ollamactl.host.drift", "-e", "target=none_such").code != 0
    fleet["beta"].machine.run(["rm", drop])
    fleet["beta"].machine.run(["systemctl", "daemon-reload"])


def test_a_host_that_goes_away_in_the_middle_is_found_restored(fleet: Fleet, controller: Controller) -> None:
    gamma = fleet["gamma"].machine
    before = fleet["gamma"].etc()
    options = {"parallel": 3, "models": [ollama.CHAT], "settings": {"STANDIN_LOAD_GATE": GATE},
               "override": ["foreign_variable"]}  # fmt: skip
    for host in ("alpha", "beta"):
        fleet[host].machine.run(["touch", GATE])
    process = controller.start(config(**options))
    until(lambda: gamma.run(["pgrep", "-f", "llama-server.*-np 3"], check=False).returncode == 0)
    # Others look meanwhile: it is said that a change is open, and it stays open.
    looked = controller_of_its_own(controller).play(tasks({"ollamactl.host.info": {}}, hosts="gamma"))
    well(looked)
    assert looked.of("gamma", "ollamactl.host.info")["open_transaction"]
    gamma.run(["systemctl", "kill", "--signal=KILL", "ssh.service"])
    fleet["gamma"].cut_power()
    run = controller.end(process)
    assert run.code == 4 or run.stats["gamma"]["unreachable"] + run.stats["gamma"]["failures"] == 1, run.output
    assert run.of("alpha")["status"] == run.of("beta")["status"] == "applied"
    until(lambda: gamma.run(["test", "-e", "/var/lib/ollamactl/open.json"], check=False).returncode == 1)
    assert fleet["gamma"].etc() == before
    ollama.wait_answer(gamma)
    assert fleet["gamma"].environ()["OLLAMA_NUM_PARALLEL"] == "2"
    back = controller.play(tasks({"ollamactl.host.info": {}}, hosts="gamma"))
    well(back)
    assert back.of("gamma", "ollamactl.host.info")["open_transaction"] == ""


def test_each_host_of_a_mixed_fleet_takes_what_fits_on_it(fleet: Fleet, controller: Controller) -> None:
    counted = controller.play(tasks({"ansible.builtin.command": "nproc"}))
    processors = {name: int(counted.of(name, "ansible.builtin.command")["stdout"]) for name in fleet.hosts}
    assert processors["gamma"] == 1 < processors["alpha"], "hosts of two kinds"
    run = controller.play("ollamactl.host.mixed", "-e", f"model={ollama.CHAT}")
    well(run)
    # Without a GPU, and with a small model, the processors are what is short.
    assert slots(fleet) == {name: str(min(count, AUTO_MOST)) for name, count in processors.items()}
    for name in fleet.hosts:
        rows = {row["name"]: row["layers"] for row in run.of(name)["settings"]}
        assert rows["OLLAMA_NUM_PARALLEL"]["runner"] == f"-np {slots(fleet)[name]}"
    again = controller.play("ollamactl.host.mixed", "-e", f"model={ollama.CHAT}")
    well(again)
    assert again.changed == dict.fromkeys(fleet.hosts, 0)


def test_absent_takes_everything_away(fleet: Fleet, controller: Controller) -> None:
    check = controller.play(config(state="absent"), "--check")
    assert check.changed == dict.fromkeys(fleet.hosts, 1)
    well(controller.play(config(state="absent")))
    for host in fleet.hosts.values():
        assert "OLLAMA_NUM_PARALLEL" not in host.environ()
        assert host.machine.run(["ls", "/etc/systemd/system/ollama.service.d"], check=False).stdout == ""
    again = controller.play(config(state="absent"))
    well(again)
    assert again.changed == dict.fromkeys(fleet.hosts, 0)


def controller_of_its_own(controller: Controller) -> Controller:
    """A second one beside a playbook that runs: it records elsewhere."""
    other = copy.copy(controller)
    other.name = "beside"
    return other
