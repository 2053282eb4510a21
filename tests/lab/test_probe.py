"""`ollamactl probe` on a real systemd and a real llama.cpp: who is served, who queues, who is refused."""

from __future__ import annotations

import csv
import io
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab import ollama
from tests.lab.machine import Machine
from tests.lab.ollama import CHAT, ctl, ctl_json
from tests.lab.trust.host import until

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def lab() -> Iterator[Machine]:
    with Machine() as machine:
        ollama.setup(machine)
        yield machine


def results(phase: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = phase["summary"]["counts"]
    return found


def runner(machine: Machine) -> str:
    return machine.run(["pgrep", "-a", "llama-server"]).stdout


def test_eight_on_four_slots_are_four_served_and_four_queued(lab: Machine) -> None:
    assert ctl(lab, "apply", "--parallel", "4", "--model", CHAT).returncode == 0
    before = runner(lab)
    done = ctl_json(
        lab, "probe", CHAT, "-n", "8", "--output-tokens", "16", "--csv", "/tmp/p.csv", "--html", "/tmp/p.html"
    )
    assert done["exit_code"] == 0, done
    data = done["data"]
    (warm,) = data["phases"]
    assert (data["slots"], data["judged_by"], data["version"]) == (4, "slots", "0.33.0-rc2")
    assert results(warm) == {"served": 4, "queued": 4}, warm["requests"]
    assert {r["proof"] for r in warm["requests"]} == {"slots"}
    assert max(s["busy"] for s in warm["samples"]) == 4
    queued = [r for r in warm["requests"] if r["result"] == "queued"]
    served = [r for r in warm["requests"] if r["result"] == "served"]
    assert min(r["wait"] for r in queued) > max(r["wait"] for r in served)
    assert runner(lab) == before  # nothing that was asked for had the model loaded anew
    rows = list(csv.DictReader(io.StringIO(lab.read("/tmp/p.csv"))))
    assert sorted(r["result"] for r in rows) == ["queued"] * 4 + ["served"] * 4
    assert "<svg" in lab.read("/tmp/p.html")
    queue = ctl_json(lab, "plan", CHAT, "--client-timeout", "600")["data"]["queue"]
    assert (queue["service"]["samples"], queue["service"]["model"], queue["slots"]) == (8, CHAT, 4)
    assert queue["service"]["seconds"] == pytest.approx(warm["summary"]["service"]["mean"])
    assert queue["queue"] == 4 * queue["per_slot"] > 0 and queue["last_done"] <= 600


def test_arrivals_at_random_are_served_queued_and_counted(lab: Machine) -> None:
    """More than the slots serve, however many they are."""
    args = ("--rate", "60", "--for", "0.5", "--output-tokens", "4", "--seed", "7")
    data = ctl_json(lab, "probe", CHAT, *args)["data"]
    [phase] = data["phases"]
    moments = sorted(r["at"] for r in phase["requests"])
    assert (phase["kind"], phase["rate"]) == ("arrivals", 60.0)
    assert 12 < len(moments) < 55  # 30 in the mean
    assert results(phase)["served"] >= 1 and results(phase)["queued"] > 5
    assert sum(results(phase).values()) == len(moments)
    assert {r["status"] for r in phase["requests"]} == {200}
    assert phase["summary"]["busy_max"] == data["slots"]
    late = [r["wait"] for r in sorted(phase["requests"], key=lambda r: r["at"]) if r["result"] == "queued"]
    assert late[-1] > late[0]  # the queue grows


def test_another_user_judges_by_time_alone_and_says_so(lab: Machine) -> None:
    done = ctl_json(lab, "probe", CHAT, "-n", "8", "--output-tokens", "16", user="daemon", cwd="/")
    assert done["exit_code"] == 0, done
    data = done["data"]
    assert data["judged_by"] == "time" and "sudo" in data["unseen"]
    assert results(data["phases"][0]).get("queued", 0) == 4, data["phases"][0]["requests"]


def test_one_slot_serves_one_and_a_cold_burst_is_refused_beyond_the_queue(lab: Machine) -> None:
    args = ("--parallel", "1", "--max-queue", "2", "--set", "STANDIN_LOAD_DELAY=2", "--override", "foreign_variable")
    assert ctl(lab, "apply", *args, "--model", CHAT).returncode == 0
    done = ctl_json(lab, "probe", CHAT, "-n", "8", "--cold", "--output-tokens", "12")
    cold, warm = done["data"]["phases"]
    assert (cold["kind"], warm["kind"]) == ("cold", "warm")
    assert results(warm) == {"served": 1, "queued": 7}, warm["requests"]
    assert results(cold) == {"served": 1, "queued": 2, "rejected": 5}, cold["requests"]
    assert {r["status"] for r in cold["requests"] if r["result"] == "rejected"} == {503}
    assert cold["summary"]["load"]["count"] == 3
    assert "OLLAMA_MAX_QUEUE bounds only who waits for a load" in " ".join(done["data"]["conclusions"])


def test_patience_ends_in_the_queue(lab: Machine) -> None:
    """One slot, as the test before left it."""
    done = ctl_json(lab, "probe", CHAT, "-n", "3", "--client-timeout", "6", "--output-tokens", "2000")
    (warm,) = done["data"]["phases"]
    assert results(warm) == {"gave_up": 3}, warm["requests"]
    assert sum(r["waiting"] for r in warm["requests"]) == 2
    # As the log of a real Ollama has clients that give up: 500 from the queue, 200 mid-stream.
    until(lambda: sorted(gin(lab)[-3:]) == ["200", "500", "500"], 60)
    assert "aborting completion request due to client closing the connection" in log(lab)


def log(machine: Machine) -> str:
    return "\n".join(str(e["MESSAGE"]) for e in machine.journal("ollama"))


def gin(machine: Machine) -> list[str]:
    """Statuses of /api/generate, as they ended."""
    return re.findall(r"\[GIN\].*?\| (\d{3}) \|.*/api/generate", log(machine))


def test_an_interrupt_gives_the_results_so_far(lab: Machine) -> None:
    process = lab.popen(
        [*ollama.OLLAMACTL, "probe", CHAT, "-n", "2", "--rounds", "1000", "--output-tokens", "4", "--json"]
    )
    ollama.wait_answer(lab)
    for _ in range(600):  # until the burst runs: both requests are in flight
        seen = ctl_json(lab, "verify")["data"]
        if seen["running"] and seen["waiting"]:
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 5, err
    assert '"status": "interrupted"' in out
    assert '"cut": ' in out
    assert "Traceback" not in err


def test_what_is_not_there_is_said(lab: Machine) -> None:
    for args, id in (
        (("probe", "nothing:1b"), "model_not_found"),
        (("probe", ollama.EMBED), "no_generation"),
        (("probe", CHAT, "--url", "http://127.0.0.1:9"), "absent"),
        (("probe", CHAT, "--prompt-tokens", "100000"), "context_too_short"),
    ):
        done = ctl_json(lab, *args)
        assert [e["id"] for e in done["errors"]] == [id], done
        assert done["errors"][0]["hint"]
