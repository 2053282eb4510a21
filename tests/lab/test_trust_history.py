"""What is taken back when the host or the history is no longer what it was: a unit that was uninstalled, entries that
can't be read."""

from __future__ import annotations

import json

import pytest

from tests.lab import ollama
from tests.lab.machine import Machine
from tests.lab.ollama import ctl, ctl_json
from tests.lab.service import DROPINS, OURS, environ, etc
from tests.lab.trust.host import UNIT, exists

pytestmark = pytest.mark.lab
HISTORY = "/var/lib/ollamactl/history"
SECRET = "/etc/ollamactl/ollama.service.env"


def sh(machine: Machine, script: str) -> str:
    return machine.run(["bash", "-c", script]).stdout


@pytest.mark.parametrize("first", ["systemctl disable -q --now ollama", "true"], ids=["stopped", "still-running"])
def test_a_unit_that_was_uninstalled_leaves_nothing(lab: Machine, first: str) -> None:
    sh(lab, "echo https://chat.example >/root/origins")
    args = ("--parallel", "2", "--set", "OLLAMA_ORIGINS=@/root/origins")
    assert ctl_json(lab, "apply", *args)["exit_code"] == 0
    sh(lab, f"{first}; rm {UNIT}; systemctl daemon-reload")
    before, pid = etc(lab), sh(lab, "pgrep -x ollama || true")
    checked = ctl_json(lab, "reset", "--check")
    assert checked["exit_code"] == 0 and set(checked["data"]["files"]) == {OURS, SECRET}, checked
    assert etc(lab) == before
    done = ctl_json(lab, "reset")
    assert (done["exit_code"], done["status"]) == (0, "applied"), done
    assert any("not installed" in n for n in done["data"]["notes"]), done["data"]["notes"]
    said = done["data"]["steps"][0]["text"]
    assert OURS in said and SECRET in said and "removed" in said, said
    assert not exists(lab, DROPINS) and not exists(lab, "/etc/ollamactl")
    assert sh(lab, "pgrep -x ollama || true") == pid  # whatever still runs is left alone
    # It can be taken back, and then again.
    assert ctl_json(lab, "rollback")["exit_code"] == 0
    assert etc(lab) == before and lab.run(["stat", "-c", "%a", SECRET]).stdout.strip() == "600"
    sh(lab, f"rm -rf {HISTORY}")  # our files alone tell whose they are
    assert ctl_json(lab, "reset")["exit_code"] == 0
    assert not exists(lab, DROPINS) and not exists(lab, "/etc/ollamactl")
    unknown = ctl_json(lab, "reset", "--unit", "never")
    assert unknown["exit_code"] == 5 and "never.service" in unknown["errors"][0]["text"], unknown
    # Installed anew, it starts with nothing of ours.
    sh(lab, f"cp -p /root/installed/ollama.service {UNIT}; systemctl daemon-reload; systemctl restart ollama")
    ollama.wait_answer(lab)
    assert not {"OLLAMA_NUM_PARALLEL", "OLLAMA_ORIGINS"} & set(environ(lab))


def test_an_entry_that_can_not_be_read_is_told_and_stops_only_what_needs_it(lab: Machine) -> None:
    before = etc(lab)
    for number in ("2", "3", "4"):
        assert ctl_json(lab, "apply", "--parallel", number)["exit_code"] == 0
    sh(lab, f"cd {HISTORY}; head -c 100 000002.json >x; mv x 000002.json; chmod 600 000002.json")
    listed = ctl_json(lab, "history")
    assert listed["exit_code"] == 0 and [e["id"] for e in listed["data"]["entries"]] == [1, 3]
    assert len(listed["data"]["damaged"]) == 1 and f"{HISTORY}/000002.json" in listed["data"]["damaged"][0]
    refused = ctl_json(lab, "rollback", "1")
    assert (refused["exit_code"], refused["errors"][0]["id"]) == (6, "history_damaged"), refused
    assert "ollamactl reset" in refused["errors"][0]["hint"]
    assert ctl_json(lab, "rollback")["exit_code"] == 0  # of the third: the second is not asked
    assert environ(lab)["OLLAMA_NUM_PARALLEL"] == "3"
    done = ctl_json(lab, "reset")
    assert done["exit_code"] == 0, done
    assert [x["id"] for x in done["data"]["lints"]] == ["history_damaged"]
    assert etc(lab) == before and "OLLAMA_NUM_PARALLEL" not in environ(lab)


def test_an_open_change_that_can_not_be_read_says_how_to_go_on(lab: Machine) -> None:
    sh(lab, "install -d -m 700 /var/lib/ollamactl && echo '{' >/var/lib/ollamactl/open.json")
    before = etc(lab)
    for command in (("apply", "--parallel", "2"), ("rollback",), ("reset",), ("recover",)):
        done = ctl_json(lab, *command)
        assert done["exit_code"] == 5 and "open.json is damaged" in done["errors"][0]["text"], done
        assert "sudo mv /var/lib/ollamactl/open.json /root/" in done["errors"][0]["hint"], done
    assert etc(lab) == before
    assert "open.json is damaged" in ctl(lab, "verify").stderr
    assert "open.json is damaged" in json.dumps(ctl_json(lab, "history")["data"]["damaged"])
    lab.run(["mv", "/var/lib/ollamactl/open.json", "/root/"])
    assert ctl_json(lab, "apply", "--parallel", "2")["exit_code"] == 0
