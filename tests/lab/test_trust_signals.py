"""Signals, closed outputs and reboots in the middle of a change: undone or finished, never half."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest

from tests.lab import ollama
from tests.lab.machine import Machine
from tests.lab.ollama import TINY, ctl, ctl_json
from tests.lab.service import OURS, environ, etc
from tests.lab.trust.host import SLOW, Before, ended, exists, loading, loads, started, until

pytestmark = pytest.mark.lab
BOOT = "/etc/systemd/system/ollamactl-recover.service"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_undoes(lab: Machine, number: signal.Signals) -> None:
    before = Before(lab)
    process = loading(lab, "apply", "--parallel", "2")
    process.send_signal(number)
    done = ended(process)
    assert done["exit_code"] == 3 and done["errors"][0]["id"] == "interrupted", json.dumps(done["errors"])
    before.holds()


def test_a_second_one_does_not_stop_the_undo(lab: Machine) -> None:
    before = Before(lab)
    process = loading(lab, "apply", "--parallel", "2")
    pid = process.guest()
    assert pid is not None
    for _ in range(200):  # as fast as nobody can press ^C, through the whole undo
        try:
            os.kill(pid, signal.SIGINT)
        except ProcessLookupError:
            break
        time.sleep(0.01)
    assert ended(process)["exit_code"] == 3
    before.holds()


def test_one_that_is_ignored_from_the_start_stays_so(lab: Machine) -> None:
    """nohup: a terminal that goes away does not undo."""
    process = started(lab, "apply", "--parallel", "2", "--model", TINY, before=["nohup"])
    until(lambda: exists(lab, OURS))
    process.send_signal(signal.SIGHUP)
    assert ended(process)["exit_code"] == 0


def test_an_output_that_is_closed_does_not_stop_it(lab: Machine) -> None:
    command = f"{ollama.OLLAMACTL[0]} apply --parallel 2 --model {TINY} | head -1; exit ${{PIPESTATUS[0]}}"
    done = lab.run(["bash", "-c", command], check=False)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert environ(lab)["OLLAMA_NUM_PARALLEL"] == "2"
    assert ctl_json(lab, "history")["data"]["open"] is None


def test_a_terminal_that_is_gone_undoes(lab: Machine) -> None:
    """A dropped ssh session: the terminal hangs up, and what is written to it fails."""
    before = Before(lab)
    words = " ".join([ollama.OLLAMACTL[0], "apply", "--parallel", "2", *SLOW])
    session = lab.popen(["script", "-qec", words, "/dev/null"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: loads(lab))
    session.kill()
    session.wait()
    until(lambda: not exists(lab, "/var/lib/ollamactl/open.json"))
    before.holds()


def interrupted(machine: Machine) -> None:
    """A change that was killed after its restart."""
    process = loading(machine, "apply", "--parallel", "2")
    process.kill()
    process.wait()


def test_commands_that_read_report_it_and_touch_nothing(lab: Machine) -> None:
    lab.run(["useradd", "-m", "guest"], check=False)
    before = Before(lab)
    interrupted(lab)
    now = etc(lab), lab.run(["ls", "-AR", "/var/lib/ollamactl"]).stdout
    for command in (["verify"], ["facts"], ["history"], ["apply", "--parallel", "3", "--check"]):
        seen = ctl(lab, *command)
        assert "interrupted" in seen.stderr + seen.stdout and "recover" in seen.stderr + seen.stdout, command
    assert "a change was interrupted" in ctl_json(lab, "verify")["open_transaction"]
    assert "a change of this host is open" in ctl(lab, "verify", user="guest").stderr
    assert (etc(lab), lab.run(["ls", "-AR", "/var/lib/ollamactl"]).stdout) == now
    # The next one that changes finishes it first.
    done = ctl_json(lab, "rollback")
    assert done["errors"][0]["text"] == "no change was made here yet" and not exists(lab, OURS), done
    interrupted(lab)
    done = ctl_json(lab, "apply", "--parallel", "3")
    assert done["exit_code"] == 0 and any("was interrupted" in n for n in done["data"]["notes"]), done
    assert "STANDIN_LOAD_GATE" not in environ(lab)
    assert ctl_json(lab, "rollback")["exit_code"] == 0
    before.holds()
    assert "open_transaction" not in ctl_json(lab, "verify")


def test_the_next_boot_puts_the_host_back() -> None:
    with Machine() as machine:
        ollama.setup(machine)
        before = Before(machine)
        interrupted(machine)
        assert exists(machine, BOOT) and "OLLAMA_NUM_PARALLEL=2" in machine.read(OURS)
        # The models are a mount that ends with the boot.
        machine.run(["bash", "-c", f"umount -l {ollama.MODELS}; chown ollama:ollama {ollama.MODELS}"])
        machine.reboot()
        until(lambda: not exists(machine, BOOT), 60)
        assert etc(machine) == before.etc
        ollama.wait_answer(machine)
        assert "OLLAMA_NUM_PARALLEL" not in environ(machine)
        [entry] = ctl_json(machine, "history")["data"]["entries"]
        assert entry["outcome"] == "restored"
