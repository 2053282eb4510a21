"""A host that breaks while it is changed: the old state serves and the cause is named, or what to type is."""

from __future__ import annotations

import json
import shlex
import threading
import time

import pytest

from tests.lab import ollama
from tests.lab.machine import Machine
from tests.lab.ollama import CHAT, FORCED, TINY, ctl, ctl_json
from tests.lab.service import DROPINS, OURS, dropin, environ, ids, invocation
from tests.lab.trust.host import (
    FOREIGN,
    GATE,
    PACKAGED,
    SLOW,
    UNIT,
    Before,
    between_write_and_reload,
    ended,
    exists,
    loading,
    until,
    while_loading,
)

pytestmark = pytest.mark.lab
JOURNALD = "systemd-journald.socket systemd-journald-dev-log.socket systemd-journald-audit.socket systemd-journald"


def sh(machine: Machine, script: str, check: bool = True) -> str:
    return str(machine.run(["bash", "-c", script], check=check).stdout)


# -- files --


def test_a_read_only_etc(lab: Machine) -> None:
    before = Before(lab)
    sh(lab, "mount --bind /etc/systemd /etc/systemd && mount -o remount,bind,ro /etc/systemd")
    try:
        done = ctl_json(lab, "apply", "--parallel", "2")
    finally:
        sh(lab, "umount /etc/systemd")
    assert done["exit_code"] == 3 and ids(done) == ["system_error"], done
    assert "Read-only file system" in done["errors"][0]["text"] and "/etc/systemd" in done["errors"][0]["text"]
    before.holds()


def test_a_full_disk_below_etc(lab: Machine) -> None:
    sh(lab, f"mkdir -p {DROPINS} && mount -t tmpfs -o size=4k none {DROPINS} && head -c 4096 /dev/zero > {DROPINS}/x")
    try:
        before = Before(lab)
        done = ctl_json(lab, "apply", "--parallel", "2")
        assert done["exit_code"] == 3 and ids(done) == ["system_error"], done
        assert "No space left" in done["errors"][0]["text"] and OURS in done["errors"][0]["text"]
        before.holds()
    finally:
        sh(lab, f"umount {DROPINS}")


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_full_disk_below_var(lab: Machine, when: str) -> None:
    sh(lab, "mkdir -p /var/lib/ollamactl && mount -t tmpfs -o size=64k,mode=700 none /var/lib/ollamactl")
    fill = "cat /dev/zero > /var/lib/ollamactl/fill 2>/dev/null || true"
    try:
        before = Before(lab)
        if when == "before":
            sh(lab, fill)
            was = sh(lab, "systemctl show -P InvocationID -P StateChangeTimestampMonotonic ollama")
            done = ctl_json(lab, "apply", "--parallel", "2")
            assert "nothing was touched" in done["errors"][0]["text"]
            assert sh(lab, "systemctl show -P InvocationID -P StateChangeTimestampMonotonic ollama") == was
        else:
            done = between_write_and_reload(lab, lambda: sh(lab, fill) and None, "apply", "--parallel", "2")
        assert done["exit_code"] == 3 and "No space left" in done["errors"][0]["text"], done
        sh(lab, "rm /var/lib/ollamactl/fill")
        before.holds()
        assert ctl_json(lab, "apply", "--parallel", "2")["exit_code"] == 0
    finally:
        sh(lab, "umount /var/lib/ollamactl")


def test_a_full_disk_on_the_way_back(lab: Machine) -> None:
    sh(lab, f"mkdir -p {DROPINS} && mount -t tmpfs -o size=16k none {DROPINS}")
    try:
        assert ctl_json(lab, "apply", "--parallel", "2")["exit_code"] == 0
        before = Before(lab)
        fill = f"cat /dev/zero >{DROPINS}/fill 2>/dev/null || true"
        asked = ("apply", "--parallel", "3", "--model", FORCED)
        done = while_loading(lab, lambda: sh(lab, fill) and None, *asked)
        assert done["exit_code"] == 4, json.dumps(done["errors"] or done["data"])
        assert ids(done) == ["parallel_forced_to_1_by_architecture"], done["errors"]  # why it was undone
        assert any(OURS in c and "No space left" in c for c in done["data"]["conflicts"]), done["data"]["conflicts"]
        assert done["data"]["commands"] == [f"df -h {DROPINS}", "sudo ollamactl recover"]
        ollama.wait_answer(lab)
        lab.run(["rm", f"{DROPINS}/fill"])
        typed(lab, done["data"]["commands"])
        before.holds()
    finally:
        sh(lab, f"umount {DROPINS}")


def test_a_file_that_someone_repaired_is_left_and_shown(lab: Machine) -> None:
    text = "[Service]\nEnvironment=OLLAMA_MAX_QUEUE=7\n"
    done = while_loading(lab, lambda: lab.write(OURS, text), "apply", "--parallel", "2")
    assert done["exit_code"] == 4 and done["status"] == "not-restored", done
    assert done["data"]["conflicts"] == [OURS]
    assert lab.read(OURS) == text
    ollama.wait_answer(lab)
    assert environ(lab)["OLLAMA_MAX_QUEUE"] == "7"
    assert ctl_json(lab, "recover")["data"]["recovered"] is False  # what is left is not ours to finish


# -- systemd --


@pytest.fixture
def packaged(lab: Machine) -> Machine:
    """The unit where a package has it, so that it can be masked."""
    sh(lab, f"mv {UNIT} {PACKAGED}; systemctl daemon-reload")
    return lab


def test_masked_before_the_restart(packaged: Machine) -> None:
    before, was = Before(packaged), invocation(packaged)
    mask = "systemctl mask ollama"
    done = between_write_and_reload(packaged, lambda: sh(packaged, mask) and None, "apply", "--parallel", "2")
    assert done["exit_code"] == 3 and "masked" in done["errors"][0]["text"], done
    assert invocation(packaged) == was
    sh(packaged, "systemctl unmask ollama")
    before.holds()


def test_masked_after_the_restart_is_recovered_by_what_is_typed(packaged: Machine) -> None:
    before = Before(packaged)
    mask = "systemctl mask ollama"
    done = while_loading(packaged, lambda: sh(packaged, mask) and None, "apply", "--parallel", "2", "--model", FORCED)
    assert done["exit_code"] == 4, json.dumps(done["errors"] or done["data"])
    assert done["data"]["commands"] == ["sudo systemctl unmask ollama.service", "sudo ollamactl recover"]
    refused = ctl_json(packaged, "apply", "--parallel", "3")
    assert refused["exit_code"] == 4 and "unmask" in refused["errors"][0]["hint"], refused
    typed(packaged, done["data"]["commands"])
    before.holds()


def typed(machine: Machine, commands: list[str]) -> None:
    for command in commands:
        words = shlex.split(command.removeprefix("sudo "))
        done = machine.run([*ollama.OLLAMACTL, *words[1:]] if words[0] == "ollamactl" else words, check=False)
        assert done.returncode == 0, (command, done.stdout, done.stderr)


def test_a_unit_that_is_deleted_before_the_restart(lab: Machine) -> None:
    before, was = Before(lab), invocation(lab)
    remove = f"mv {UNIT} /root/unit"
    try:
        done = between_write_and_reload(lab, lambda: sh(lab, remove) and None, "apply", "--parallel", "2")
    finally:
        sh(lab, f"mv /root/unit {UNIT}; systemctl daemon-reload")
    assert done["exit_code"] == 3, json.dumps(done["errors"] or done["data"])
    assert "ollama.service" in done["errors"][0]["text"]
    assert invocation(lab) == was
    before.holds()


def test_a_unit_that_is_deleted_after_the_restart(lab: Machine) -> None:
    before = Before(lab)
    remove = f"mv {UNIT} /root/unit; systemctl daemon-reload"
    done = while_loading(lab, lambda: sh(lab, remove) and None, "apply", "--parallel", "2", "--model", FORCED)
    assert done["exit_code"] == 4, json.dumps(done["data"])
    assert "its unit file is gone" in done["data"]["conflicts"][0]
    assert done["data"]["commands"][-1] == "sudo ollamactl recover"
    sh(lab, f"mv /root/unit {UNIT}; systemctl daemon-reload")
    typed(lab, done["data"]["commands"][-1:])
    before.holds()


def test_the_message_bus_is_gone(lab: Machine) -> None:
    sh(lab, "systemctl stop dbus.socket dbus.service")
    try:
        done = ctl_json(lab, "apply", "--parallel", "2")
        assert done["exit_code"] == 0, json.dumps(done["errors"] or done["data"])
        assert environ(lab)["OLLAMA_NUM_PARALLEL"] == "2"
        before = Before(lab)
        sh(lab, "mv /run/systemd/private /run/systemd/private.away")  # systemd itself can't be asked any more
        try:
            done = ctl_json(lab, "apply", "--parallel", "3")
        finally:
            sh(lab, "mv /run/systemd/private.away /run/systemd/private")
        assert done["exit_code"] == 5 and "systemd does not answer" in done["errors"][0]["text"], done
        assert "kill -TERM 1" in done["errors"][0]["hint"]
    finally:
        sh(lab, "systemctl start dbus.socket")
    before.holds()


def test_the_message_bus_goes_while_a_change_is_under_way(lab: Machine) -> None:
    before, was = Before(lab), invocation(lab)
    gone = "systemctl stop dbus.socket dbus.service; rm /run/systemd/private"
    done = between_write_and_reload(lab, lambda: sh(lab, gone) and None, "apply", "--parallel", "2")
    assert done["exit_code"] == 4 and "systemd does not answer" in done["errors"][0]["text"], done
    assert not exists(lab, OURS)  # the files are back; whether systemd had read them is not to be known
    ollama.wait_answer(lab)
    assert done["data"]["commands"] == ["sudo kill -TERM 1", "sudo ollamactl recover"]
    typed(lab, done["data"]["commands"][:1])
    until(lambda: exists(lab, "/run/systemd/private"))
    typed(lab, done["data"]["commands"][1:])
    sh(lab, "systemctl start dbus.socket")
    assert invocation(lab) == was
    before.holds()


@pytest.mark.parametrize(
    "disturb",
    [
        "systemctl kill -s STOP systemd-journald; sleep 1.5; systemctl kill -s CONT systemd-journald",
        "for i in 1 2 3 4 5 6; do journalctl --rotate; journalctl --vacuum-files=1; sleep 0.2; done",
        "for i in 1 2 3; do systemctl restart systemd-journald; sleep 0.5; done",
    ],
    ids=["slow", "rotated", "restarted"],
)
def test_a_journal_that_is_disturbed(lab: Machine, disturb: str) -> None:
    sh(lab, "systemctl reset-failed systemd-journald", check=False)
    thread = threading.Thread(target=sh, args=(lab, disturb, False))
    thread.start()
    try:
        done = ctl_json(lab, "apply", "--parallel", "2", "--model", TINY)
    finally:
        thread.join()
    assert done["exit_code"] == 0, json.dumps(done["errors"] or done["data"])
    assert environ(lab)["OLLAMA_NUM_PARALLEL"] == "2"
    rows = {r["name"]: r["layers"] for r in done["data"]["rows"]}
    assert rows["OLLAMA_NUM_PARALLEL"]["process"] == "2"
    assert rows["OLLAMA_NUM_PARALLEL"]["runner"] == "-np 2"


def test_no_journal_at_all(lab: Machine) -> None:
    """A start that could not log anything is proven by the process and its runner."""
    sh(lab, f"systemctl stop {JOURNALD}")
    try:
        assert sh(lab, "systemctl is-active systemd-journald", check=False).strip() == "inactive"
        done = ctl_json(lab, "apply", "--parallel", "2", "--model", TINY)
    finally:
        sh(lab, f"systemctl start {JOURNALD}")
    assert done["exit_code"] == 0, json.dumps(done["errors"] or done["data"])
    [row] = [r["layers"] for r in done["data"]["rows"] if r["name"] == "OLLAMA_NUM_PARALLEL"]
    assert (row["process"], row["runner"]) == ("2", "-np 2")
    assert any("printed no `server config` line" in n for n in done["data"]["notes"]), done["data"]["notes"]


def test_a_start_limit_of_two_does_not_hit_the_undo(lab: Machine) -> None:
    unit = lab.read(UNIT)
    lab.write(UNIT, unit.replace("[Unit]\n", "[Unit]\nStartLimitIntervalSec=300\nStartLimitBurst=2\n", 1))
    try:
        sh(lab, "systemctl daemon-reload; systemctl reset-failed ollama; systemctl restart ollama")
        ollama.wait_answer(lab)
        before = Before(lab)
        for _ in range(2):
            done = ctl_json(lab, "apply", "--parallel", "2", "--model", FORCED)
            assert done["exit_code"] == 3, json.dumps(done["errors"] or done["data"])
            before.holds()
    finally:
        lab.write(UNIT, unit)


# -- the server --


@pytest.mark.parametrize("hang", ["start", "answer"])
def test_a_server_that_hangs(lab: Machine, hang: str) -> None:
    before = Before(lab)
    done = ctl_json(lab, "apply", "--set", f"STANDIN_HANG={hang}", *FOREIGN, "--timeout", "2")
    assert done["exit_code"] == 3 and ids(done) == ["no_answer"], done
    before.holds()


def test_a_server_that_dies_while_a_model_loads(lab: Machine) -> None:
    before = Before(lab)
    done = ctl_json(lab, "apply", "--set", "STANDIN_DIE_AFTER=20", *SLOW)
    assert done["exit_code"] == 3, json.dumps(done["errors"] or done["data"])
    said = done["errors"][0]["text"]
    assert "died after it had answered" in said and "status=2" in said and TINY in said, said
    before.holds()


def test_a_server_that_dies_once_all_is_proven(lab: Machine) -> None:
    before = Before(lab)
    done = ctl_json(lab, "apply", "--set", "STANDIN_DIE_AFTER=8", *FOREIGN, "--watch", "40")
    assert done["exit_code"] == 3 and ids(done) == ["service_restart_loop"], done
    assert "status=2" in done["errors"][0]["text"], done["errors"]
    before.holds()
    done = ctl_json(lab, "apply", "--parallel", "2", "--watch", "0.5")
    assert done["exit_code"] == 0 and any("same process" in s["text"] for s in done["data"]["steps"]), done


def test_someone_restarts_it_meanwhile(lab: Machine) -> None:
    before = Before(lab)
    done = while_loading(lab, lambda: sh(lab, "systemctl restart ollama") and None, "apply", "--parallel", "2")
    assert done["exit_code"] == 3, json.dumps(done["errors"] or done["data"])
    assert "restarted by someone else" in done["errors"][0]["text"], done["errors"]
    before.holds()


def hog(machine: Machine) -> int:
    """A process that takes the server's port in the moment that it is free; its pid."""
    code = """
import socket, time
while True:
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        s.bind(("127.0.0.1", 11434))
        break
    except OSError:
        s.close()
s.listen()
time.sleep(300)
"""
    return int(sh(machine, f"nohup /usr/bin/python3 -I -S -c {shlex.quote(code)} >/dev/null 2>&1 & echo $!"))


def test_the_port_is_taken_during_the_restart(lab: Machine) -> None:
    before = Before(lab)
    pid = hog(lab)
    try:
        done = ctl_json(lab, "apply", "--parallel", "2")
        assert done["exit_code"] == 4 and ids(done) == ["port_in_use"], done
        assert f"pid {pid}" in done["errors"][0]["text"]
        assert done["data"]["commands"] == [f"sudo kill {pid}", "sudo ollamactl recover"]
        typed(lab, done["data"]["commands"])
    finally:
        sh(lab, f"kill {pid}", check=False)
    before.holds()


def test_a_model_that_is_deleted_meanwhile(lab: Machine) -> None:
    ollama.api(lab, "/api/generate", {"model": TINY})
    before = Before(lab)
    name = f"{ollama.MODELS}/manifests/registry.ollama.ai/library/tiny-gemma3/latest"
    try:
        away = f"mv {name} /root/manifest"
        done = between_write_and_reload(lab, lambda: sh(lab, away) and None, "apply", "--parallel", "2")
    finally:
        sh(lab, f"mv /root/manifest {name}; chown ollama:ollama {name}")
    assert done["exit_code"] == 3 and ids(done) == ["model_not_found"], done
    before.holds()


def test_out_of_memory(lab: Machine) -> None:
    dropin(lab, "10-memory.conf", "LimitAS=2500M")
    sh(lab, "systemctl restart ollama")
    ollama.wait_answer(lab)
    ollama.api(lab, "/api/generate", {"model": CHAT})
    before = Before(lab)
    done = ctl_json(lab, "apply", "--parallel", "128", "--override", "fit", "--override", "does_not_fit")
    assert done["exit_code"] == 3, json.dumps(done["errors"] or done["data"])
    assert ids(done) == ["load_oom"], json.dumps(done["errors"])
    before.holds()
    assert [m["name"] for m in ollama.api(lab, "/api/ps")["models"]] == [CHAT]


def test_the_kernel_kills_the_runner_while_it_loads(lab: Machine) -> None:
    """As its out-of-memory killer does."""
    before = Before(lab)
    done = while_loading(lab, lambda: sh(lab, "pkill -KILL llama-server") and None, "apply", "--parallel", "2")
    assert done["exit_code"] == 3, json.dumps(done["errors"] or done["data"])
    assert "killed" in done["errors"][0]["text"], done["errors"]
    before.holds()


# -- states of the unit --


def test_a_stopped_unit_is_started_on_demand_and_put_back(lab: Machine) -> None:
    sh(lab, "systemctl disable -q ollama; systemctl stop ollama")
    try:
        done = ctl_json(lab, "apply", "--parallel", "2", "--start", "--model", FORCED)
        assert done["exit_code"] == 3, json.dumps(done["errors"] or done["data"])
        state = sh(lab, "systemctl show -P ActiveState -P UnitFileState ollama").split()
        assert state == ["inactive", "disabled"] and not exists(lab, OURS)
        shown = ctl(lab, "apply", "--parallel", "2", "--start").stdout
        assert "Applied and verified" in shown and "not running" in shown, shown
        assert environ(lab)["OLLAMA_NUM_PARALLEL"] == "2"
        assert sh(lab, "systemctl is-enabled ollama", check=False).strip() == "disabled"
        assert ctl_json(lab, "rollback")["exit_code"] == 0  # of the settings; it runs on
    finally:
        sh(lab, "systemctl enable -q ollama")


def test_a_failed_unit_is_written_and_not_started(lab: Machine) -> None:
    dropin(lab, "10-fail.conf", "Restart=no", "Environment=STANDIN_DIE_AFTER=0.01")
    sh(lab, "systemctl restart ollama")
    until(lambda: sh(lab, "systemctl is-failed ollama", check=False).strip() == "failed")
    done = ctl_json(lab, "apply", "--parallel", "2")
    assert (done["exit_code"], done["status"]) == (0, "applied"), done
    assert sh(lab, "systemctl is-failed ollama", check=False).strip() == "failed"


# -- who is in the way --


def test_the_lock_names_its_holder_to_everyone_who_waits(lab: Machine) -> None:
    first = loading(lab, "apply")
    for _ in range(2):
        done = ctl_json(lab, "apply", "--parallel", "2", "--wait", "0.2")
        assert done["exit_code"] == 5 and done["errors"][0]["id"] == "locked", done
        assert "STANDIN_LOAD_GATE=(secret)" in done["errors"][0]["text"] and "since" in done["errors"][0]["text"]
    seen = ctl(lab, "verify")
    assert "a change is under way" in seen.stderr
    lab.run(["touch", GATE])
    assert ended(first)["exit_code"] == 0


def test_a_request_in_flight_is_drained_or_cut(lab: Machine) -> None:
    ollama.api(lab, "/api/generate", {"model": CHAT})
    body = {"model": CHAT, "prompt": "tell", "options": {"num_predict": 4000, "num_ctx": 4096}}
    stream = lab.popen(["curl", "-s", "http://127.0.0.1:11434/api/generate", "-d", json.dumps(body)])
    until(lambda: bool(ctl_json(lab, "verify")["data"]["running"]))
    before, was = Before(lab), invocation(lab)
    done = ctl_json(lab, "apply", "--parallel", "2", "--drain", "0.5")
    assert done["exit_code"] == 6 and done["errors"][0]["id"] == "still_busy", done
    assert "can't be held back without a front" in done["errors"][0]["hint"]
    assert invocation(lab) == was
    before.holds()
    assert ctl_json(lab, "apply", "--parallel", "2", "--cut")["exit_code"] == 2
    done = ctl_json(lab, "apply", "--parallel", "2", "--drain", "0.5", "--cut")
    assert done["exit_code"] == 0, json.dumps(done["errors"] or done["data"])
    cut, _ = stream.communicate(timeout=60)
    assert stream.returncode != 0 and '"done":true' not in cut


def test_models_come_back_as_they_were_and_a_proof_pins_nothing(lab: Machine) -> None:
    dropin(lab, "10-keep.conf", "Environment=OLLAMA_KEEP_ALIVE=-1")
    sh(lab, "systemctl restart ollama")
    ollama.wait_answer(lab)
    ollama.api(lab, "/api/generate", {"model": TINY, "keep_alive": "40m", "options": {"num_ctx": 2048}})
    ollama.api(lab, "/api/embed", {"model": ollama.EMBED, "input": "x", "keep_alive": -1})
    done = ctl_json(lab, "apply", "--parallel", "2")
    assert done["exit_code"] == 0, json.dumps(done["errors"] or done["data"])
    rows = {m["name"]: m for m in ollama.api(lab, "/api/ps")["models"]}
    assert sorted(rows) == sorted([TINY, ollama.EMBED])
    assert rows[TINY]["context_length"] == 2048
    assert 30 < minutes(lab, rows[TINY]["expires_at"]) <= 40 and minutes(lab, rows[ollama.EMBED]["expires_at"]) > 1e6
    sh(lab, "systemctl restart ollama")
    ollama.wait_answer(lab)
    assert ctl_json(lab, "apply", "--parallel", "2", "--model", TINY)["exit_code"] == 0
    [row] = ollama.api(lab, "/api/ps")["models"]
    assert 0 < minutes(lab, row["expires_at"]) <= 5


def minutes(machine: Machine, expires: str) -> float:
    return (float(sh(machine, f"date -d {shlex.quote(expires)} +%s")) - time.time()) / 60
