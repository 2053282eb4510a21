"""`ollamactl tune` on a real systemd and a real llama.cpp: measured, and all as it was before, whatever ends it."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.lab import ollama
from tests.lab.machine import Machine
from tests.lab.ollama import CHAT, EMBED, FORCED, ctl, ctl_json
from tests.lab.service import DROPINS, environ, etc, invocation
from tests.lab.trust.host import Before, ended, started, until

pytestmark = pytest.mark.lab
QUICK = ("--output-tokens", "4", "--rounds", "1")
LONG = ("tune", CHAT, "--max", "2", "--output-tokens", "200", "--rounds", "100")


def starts(machine: Machine) -> int:
    """Invocations of the service so far."""
    return len({e["_SYSTEMD_INVOCATION_ID"] for e in machine.journal("ollama") if "_SYSTEMD_INVOCATION_ID" in e})


def test_it_loads_measures_and_puts_back(lab: Machine) -> None:
    ollama.api(lab, "/api/generate", {"model": CHAT, "keep_alive": "1h"})
    before, count = Before(lab), starts(lab)
    done = ctl_json(lab, "tune", CHAT, "--max", "2", "--context-length", "2k", "--html", "/tmp/t.html", *QUICK)
    assert done["exit_code"] == 0, done
    data = done["data"]
    assert (data["slots_before"], data["context"], data["where"]) == (1, 2048, "host")
    first = data["loads"][0]
    assert (first["slots"], first["loaded"], first["resident"]) == (2, True, True)
    assert {c["name"] for c in first["changes"]} == {"OLLAMA_NUM_PARALLEL", "OLLAMA_CONTEXT_LENGTH"}
    assert [p["at_once"] for p in first["points"]] == [1, 2]
    assert all(p["tokens_per_second_in_all"] > 0 and p["first_token"] > 0 and not p["failed"] for p in first["points"])
    assert abs(first["error"]) < 3 << 20 and first["held"] == first["predicted"] + first["error"]
    assert first["cache_per_slot"] == first["cache"] // 2 > 1 << 20
    for later in data["loads"][1:]:  # one thing at a time
        assert [c["name"] for c in later["changes"] if c["now"] != c["new"]] == ["OLLAMA_NUM_PARALLEL"]
    slots = data["recommendation"]["slots"]
    assert slots in (1, 2) and f"--parallel {slots} --context-length 2048" in data["recommendation"]["command"]
    before.holds()
    assert data["restored"] and not data["applied"]
    assert data["restarts"] == starts(lab) - count <= 3
    assert [m["name"] for m in ollama.api(lab, "/api/ps")["models"]] == [CHAT]  # it was loaded, for an hour
    [entry] = ctl_json(lab, "history")["data"]["entries"]
    assert (entry["kind"], entry["outcome"]) == ("tune", "restored")
    assert f"recommends OLLAMA_NUM_PARALLEL={slots}" == entry["summary"]
    assert "svg" in lab.read("/tmp/t.html")


def test_what_it_recommends_is_applied_and_can_be_taken_back(lab: Machine) -> None:
    before, count = Before(lab), starts(lab)
    done = ctl_json(lab, "tune", CHAT, "--max", "2", "--ttft", "0.001", "--apply", *QUICK)
    assert done["exit_code"] == 0 and done["status"] == "applied", done
    assert done["data"]["recommendation"]["slots"] == 1  # no number keeps that limit
    assert "0.001 allowed" in done["data"]["recommendation"]["why"]
    assert environ(lab)["OLLAMA_NUM_PARALLEL"] == "1" and starts(lab) - count == done["data"]["restarts"] == 2
    assert ctl_json(lab, "verify")["exit_code"] == 0
    assert ctl_json(lab, "rollback")["exit_code"] == 0
    before.holds()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_it_measures_puts_back(lab: Machine, number: signal.Signals) -> None:
    before = Before(lab)
    process = started(lab, *LONG)
    until(lambda: measures(lab), 90)
    process.send_signal(number)
    done = ended(process)
    assert done["exit_code"] == 3 and done["errors"][0]["id"] == "interrupted", done
    assert number.name in done["errors"][0]["text"] and done["data"]["recommendation"] is None
    before.holds()


def measures(machine: Machine) -> bool:
    """Requests of the measurement have been answered."""
    lines = machine.run(["journalctl", "-o", "cat", f"_SYSTEMD_INVOCATION_ID={invocation(machine)}"], check=False)
    return lines.stdout.count("/api/generate") >= 3


def test_killed_while_it_measures_it_is_recovered(lab: Machine) -> None:
    before = Before(lab)
    process = started(lab, *LONG)
    until(lambda: measures(lab), 90)
    process.kill()
    process.wait()
    assert environ(lab)["OLLAMA_NUM_PARALLEL"] == "2"
    assert "a change was interrupted: ollamactl tune" in ctl_json(lab, "verify")["open_transaction"]
    done = ctl_json(lab, "recover")
    assert done["exit_code"] == 0 and done["data"]["recovered"], done
    before.holds()


def test_a_load_that_fails_is_an_answer_and_is_put_back(lab: Machine) -> None:
    """A cache type that the server takes at its start and no load survives, in a file that no start has read yet."""
    lab.write(f"{DROPINS}/kv.conf", "[Service]\nEnvironment=OLLAMA_KV_CACHE_TYPE=q9_9\n")
    files, count = etc(lab), starts(lab)
    done = ctl_json(lab, "tune", CHAT, "--max", "4", *QUICK)
    data: dict[str, Any] = done["data"]
    assert done["exit_code"] == 1 and data["recommendation"] is None, done
    assert [(x["slots"], x["loaded"]) for x in data["loads"]] == [(4, False), (2, False)]
    assert "q9_9" in data["loads"][0]["failure"], data["loads"]
    assert etc(lab) == files and starts(lab) - count == data["restarts"] == 3
    ollama.wait_answer(lab)
    assert "OLLAMA_NUM_PARALLEL" not in environ(lab)


def test_what_can_not_be_tuned_is_said_before_anything_is_touched(lab: Machine) -> None:
    before = Before(lab)
    for args, id in (
        ((EMBED,), "no_generation"),
        (("nothing:1b",), "model_not_found"),
        ((CHAT, "--context-length", "2k,4k"), "usage"),
        ((CHAT, "--html", "/nowhere/x.html"), "usage"),
    ):
        done = ctl_json(lab, "tune", *args)
        assert [e["id"] for e in done["errors"]] == [id] and done["exit_code"] in (2, 5), done
    assert ctl_json(lab, "tune", CHAT, user="daemon", cwd="/")["errors"][0]["id"] == "denied"
    assert ctl_json(lab, "history")["data"]["entries"] == []
    before.holds()
    lab.run(["systemctl", "stop", "ollama"])
    done = ctl_json(lab, "tune", CHAT)
    assert done["errors"][0]["id"] == "not_running" and "systemctl start" in done["errors"][0]["hint"]


def test_a_family_with_one_slot_is_known_before(lab: Machine) -> None:
    done = ctl_json(lab, "tune", FORCED, *QUICK)
    assert done["exit_code"] == 0 and done["data"]["max"] == 1, done
    assert done["data"]["restarts"] == 0 and done["data"]["recommendation"]["command"] is None
    assert ctl(lab, "verify").returncode == 0
