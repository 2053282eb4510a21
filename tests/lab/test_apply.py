"""The main job on a real systemd: `ollamactl apply` arrives in every layer, or the host is as it was."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from ollamactl.core import settings
from tests.lab import ollama
from tests.lab.machine import Machine
from tests.lab.ollama import CHAT, FORCED, api, ctl, ctl_json
from tests.lab.service import DROPINS, OURS, dropin, environ, environ_without_ids, etc, ids, invocation, server_config
from tests.lab.trust.host import exists

pytestmark = pytest.mark.lab

KNOWN = [s for s in settings.SETTINGS if s.example and settings.known_in(s, "0.33.0")]


def test_every_setting_of_the_registry_arrives_in_every_layer(lab: Machine) -> None:
    args = []
    for s in KNOWN:
        args += [s.flag, s.example] if s.flag else ["--set", f"{s.name}={s.example}"]
    done = ctl_json(lab, "apply", *args, "--model", CHAT)
    assert done["exit_code"] == 0, done
    has, config = environ(lab), server_config(lab)
    text = lab.read(OURS)
    rows = {r["name"]: r["layers"] for r in ctl_json(lab, "verify")["data"]["rows"]}
    for s in KNOWN:
        assert has[s.name] == s.example
        assert f"{s.name}={s.example}" in text
        if s.printed:
            printed = s.read(s.example, "0.33.0").printed.rstrip("]")  # Ollama adds its own origins to a list
            assert f" {s.name}:{printed}" in config or f"[{s.name}:{printed}" in config, s.name
        assert rows[s.name]["process"] == s.example
    command = lab.run(["pgrep", "-a", "llama-server"]).stdout
    assert "-c 4096 -np 2" in command
    assert "--cache-type-k q8_0" in command and "--flash-attn on" in command


def test_a_variable_that_this_release_no_longer_knows_is_refused(lab: Machine) -> None:
    before = etc(lab)
    for s in settings.SETTINGS:
        if not settings.known_in(s, "0.33.0"):
            done = ctl_json(lab, "apply", "--set", f"{s.name}=1", "--set", "OLLAMA_MAX_QUEUE=9")
            assert done["exit_code"] == 6, done
            assert [e["id"] for e in done["errors"]] == ["variable_unknown_to_release"]
    assert etc(lab) == before


def burst(machine: Machine, count: int, tokens: int) -> tuple[int, int]:
    """`count` streams at once; the most slots that were busy, and the most requests that waited, at one moment."""

    def ask(n: int) -> None:
        api(machine, "/api/generate", {"model": CHAT, "prompt": f"{n} tell", "options": {"num_predict": tokens}})

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(count)]
    for t in threads:
        t.start()
    busy = waiting = 0
    while any(t.is_alive() for t in threads):
        seen = ctl_json(machine, "verify")["data"]
        busy, waiting = max(busy, seen["running"] or 0), max(waiting, seen["waiting"] or 0)
    return busy, waiting


def test_four_requests_really_run_at_once_and_then_one_at_a_time(lab: Machine) -> None:
    assert ctl(lab, "apply", "--parallel", "4", "--model", CHAT).returncode == 0
    assert burst(lab, 4, 160)[0] == 4
    assert ctl(lab, "apply", "--parallel", "1").returncode == 0
    busy, waiting = burst(lab, 4, 60)
    assert busy == 1
    assert waiting >= 2


def test_an_unchanged_apply_restarts_nothing(lab: Machine) -> None:
    assert ctl(lab, "apply", "--parallel", "2", "--keep-alive", "5m", "--flash-attention", "1").returncode == 0
    before, files = invocation(lab), etc(lab)
    for args in (("--parallel", "2"), ("--keep-alive", "300"), ("--flash-attention", "true"), ()):
        done = ctl_json(lab, "apply", *args)
        assert (done["exit_code"], done["status"], done["data"]["changed"]) == (0, "unchanged", False), done
    assert invocation(lab) == before
    assert etc(lab) == files


def test_a_process_older_than_its_files_is_restarted(lab: Machine) -> None:
    assert ctl(lab, "apply", "--parallel", "2").returncode == 0
    lab.run(["sed", "-i", "s/=2/=3/", OURS])
    old = invocation(lab)
    done = ctl_json(lab, "apply", "--parallel", "3")  # the file is right already
    assert done["status"] == "applied" and done["data"]["restarted"], done
    assert invocation(lab) != old
    assert environ(lab)["OLLAMA_NUM_PARALLEL"] == "3"


def test_check_leaves_no_trace(lab: Machine) -> None:
    before, was = etc(lab), invocation(lab)
    done = ctl_json(lab, "apply", "--parallel", "4", "--check", "--diff")
    assert done["status"] == "planned" and done["data"]["changed"], done
    assert '+Environment="OLLAMA_NUM_PARALLEL=4"' in done["data"]["diff"]
    assert (etc(lab), invocation(lab)) == (before, was)


def failed(machine: Machine, *args: str, code: int = 3) -> dict[str, Any]:
    """An apply that must fail, and leave files, process values and the loaded model as they were."""
    files, values = etc_of_systemd(machine), environ_without_ids(machine)
    done = ctl_json(machine, "apply", *args)
    assert done["exit_code"] == code, done
    assert etc_of_systemd(machine) == files
    assert environ_without_ids(machine) == values
    assert machine.run(["systemctl", "is-active", "ollama"]).stdout.strip() == "active"
    ollama.wait_answer(machine)
    shown: dict[str, Any] = done
    return shown


def etc_of_systemd(machine: Machine) -> str:
    return machine.run(["bash", "-c", "find /etc -type f | sort | xargs sha256sum; find /etc -type d | sort"]).stdout


def test_a_cache_type_that_fails_at_load_is_undone(lab: Machine) -> None:
    api(lab, "/api/generate", {"model": CHAT})
    assert failed(lab, "--kv-cache-type", "q9_9", code=6)["errors"][0]["id"] == "kv_type_invalid"
    done = failed(lab, "--kv-cache-type", "q9_9", "--override", "kv_type_invalid")
    assert ids(done) == ["kv_type_invalid"]
    assert "q9_9" in done["data"]["mismatches"][0]["text"]
    assert [m["name"] for m in api(lab, "/api/ps")["models"]] == [CHAT]  # loaded again, as it was


def test_a_family_that_is_forced_to_one_slot_is_named_and_undone(lab: Machine) -> None:
    done = failed(lab, "--parallel", "3", "--model", FORCED)
    assert ids(done) == ["parallel_forced_to_1_by_architecture"]
    assert "lfm2" in done["data"]["mismatches"][0]["text"]


def test_an_embedding_model_that_was_loaded_beside_does_not_undo(lab: Machine) -> None:
    api(lab, "/api/embed", {"model": ollama.EMBED, "input": "x"})
    api(lab, "/api/generate", {"model": CHAT})
    done = ctl_json(lab, "apply", "--parallel", "2")
    assert done["exit_code"] == 0, done
    assert sorted(done["data"]["models"]) == sorted([ollama.EMBED, CHAT])


def test_a_held_port_is_named_with_its_holder(lab: Machine) -> None:
    code = "import socket,time; s=socket.create_server(('127.0.0.1',11555)); print(1,flush=True); time.sleep(60)"
    holder = lab.popen(["/usr/bin/python3", "-c", code])
    assert holder.stdout is not None and holder.stdout.readline() == "1\n"
    try:
        done = failed(lab, "--host", "127.0.0.1:11555")
    finally:
        holder.kill()
        holder.wait()
    assert ids(done) == ["port_in_use"]
    assert "python3" in done["data"]["mismatches"][0]["text"]


def test_an_environment_file_of_others_is_outdone_by_our_own(lab: Machine) -> None:
    lab.write("/etc/default/ollama", "# site\n\nOLLAMA_NUM_PARALLEL=6\n")
    dropin(lab, "10-site.conf", "EnvironmentFile=/etc/default/ollama")
    lab.run(["systemctl", "restart", "ollama"])
    ollama.wait_answer(lab)
    done = ctl_json(lab, "apply", "--parallel", "2")
    assert done["exit_code"] == 0, done
    assert environ(lab)["OLLAMA_NUM_PARALLEL"] == "2"
    assert "EnvironmentFile=-/etc/ollamactl/ollama.service.env" in lab.read(OURS)
    assert lab.run(["stat", "-c", "%a %U", "/etc/ollamactl/ollama.service.env"]).stdout.strip() == "600 root"


@pytest.mark.parametrize(
    ("name", "line", "id"),
    [
        ("zzz-site.conf", "EnvironmentFile=/etc/default/ollama", "environment_file_overrides_dropin"),
        ("zzz-site.conf", "Environment=OLLAMA_NUM_PARALLEL=6", "dropin_overridden_by_later_dropin"),
        ("zzz-site.conf", "UnsetEnvironment=OLLAMA_NUM_PARALLEL", "unset_environment_wins"),
    ],
)
def test_what_still_wins_is_named_with_file_and_line_before_anything_is_touched(
    lab: Machine, name: str, line: str, id: str
) -> None:
    lab.write("/etc/default/ollama", "# site\n\nOLLAMA_NUM_PARALLEL=6\n")
    dropin(lab, name, line)
    was = invocation(lab)
    done = failed(lab, "--parallel", "2", code=6)
    assert [e["id"] for e in done["errors"]] == [id]
    where = "/etc/default/ollama:3" if "file" in id else f"{DROPINS}/{name}:2"
    assert where in done["errors"][0]["text"]
    assert invocation(lab) == was


def test_the_same_loss_is_found_after_the_reload_when_it_was_overridden(lab: Machine) -> None:
    dropin(lab, "zzz-site.conf", "Environment=OLLAMA_NUM_PARALLEL=6")
    was = invocation(lab)
    done = failed(lab, "--parallel", "2", "--override", "dropin_overridden_by_later_dropin")
    assert ids(done) == ["dropin_overridden_by_later_dropin"]
    assert invocation(lab) == was  # found before the restart


def test_a_missing_model_is_named_before_anything_is_touched_or_undone(lab: Machine) -> None:
    assert failed(lab, "--parallel", "2", "--model", "gemma3:27m", code=6)["errors"][0]["id"] == "model_not_found"
    done = failed(lab, "--parallel", "2", "--model", "gemma3:27m", "--override", "model_not_found")
    assert ids(done) == ["model_not_found"]


def test_a_server_that_never_answers_is_undone(lab: Machine) -> None:
    done = failed(lab, "--set", "STANDIN_HANG=answer", "--override", "foreign_variable", "--timeout", "3")
    assert ids(done) == ["no_answer"]


def test_undo_brings_back_a_file_that_was_there(lab: Machine) -> None:
    assert ctl(lab, "apply", "--parallel", "2").returncode == 0
    failed(lab, "--parallel", "3", "--model", FORCED)
    assert "OLLAMA_NUM_PARALLEL=2" in lab.read(OURS)


def test_history_rollback_and_reset(lab: Machine) -> None:
    for n in ("2", "3"):
        assert ctl(lab, "apply", "--parallel", n).returncode == 0
    assert ctl_json(lab, "rollback")["exit_code"] == 0
    assert environ(lab)["OLLAMA_NUM_PARALLEL"] == "2"
    assert ctl_json(lab, "rollback")["exit_code"] == 0  # a rollback can be rolled back
    assert environ(lab)["OLLAMA_NUM_PARALLEL"] == "3"
    assert ctl_json(lab, "rollback", "1")["exit_code"] == 0
    assert "OLLAMA_NUM_PARALLEL" not in environ(lab)
    assert [e["kind"] for e in ctl_json(lab, "history")["data"]["entries"]] == ["apply"] * 2 + ["rollback"] * 3
    assert ctl(lab, "apply", "--parallel", "2", "--unset", "OLLAMA_DEBUG").returncode == 0
    assert ctl_json(lab, "reset")["exit_code"] == 0
    assert lab.run(["ls", OURS], check=False).returncode != 0


def test_unset_makes_absent_whoever_sets_it_and_release_leaves_it_to_others(lab: Machine) -> None:
    lab.write("/etc/default/ollama", "OLLAMA_MAX_QUEUE=9\nOLLAMA_DEBUG=1\n")
    dropin(
        lab, "10-site.conf", "Environment=OLLAMA_KEEP_ALIVE=7m OLLAMA_NOPRUNE=1", "EnvironmentFile=/etc/default/ollama"
    )
    lab.run(["systemctl", "restart", "ollama"])
    ollama.wait_answer(lab)
    gone = ("OLLAMA_NOPRUNE", "OLLAMA_MAX_QUEUE")
    done = ctl_json(lab, "apply", "--keep-alive", "9m", *(word for name in gone for word in ("--unset", name)))
    assert done["exit_code"] == 0, done
    has = environ(lab)
    assert not set(gone) & set(has) and (has["OLLAMA_KEEP_ALIVE"], has["OLLAMA_DEBUG"]) == ("9m", "1")
    assert "OLLAMA_MAX_QUEUE:512" in server_config(lab) and "OLLAMA_NOPRUNE:false" in server_config(lab)
    rows = {r["name"]: r["layers"] for r in ctl_json(lab, "verify")["data"]["rows"]}
    assert {(rows[name]["drop-in"], rows[name]["process"]) for name in gone} == {("absent", "–")}
    assert ctl(lab, "verify").returncode == 0
    later = f"{DROPINS}/zzz-later.conf"
    lab.write(later, "[Service]\nUnsetEnvironment=\nEnvironment=OLLAMA_NOPRUNE=1\n")
    lab.run(["systemctl", "daemon-reload"])
    lost = ctl_json(lab, "verify")
    assert lost["exit_code"] == 1 and "OLLAMA_NOPRUNE" in [m["name"] for m in lost["data"]["mismatches"]], lost
    lab.run(["bash", "-c", f"rm {later}; systemctl daemon-reload"])
    done = ctl_json(lab, "apply", "--release", "OLLAMA_KEEP_ALIVE", "--release", "OLLAMA_NOPRUNE")
    assert done["exit_code"] == 0, done
    has = environ(lab)
    assert (has["OLLAMA_KEEP_ALIVE"], has["OLLAMA_NOPRUNE"]) == ("7m", "1") and "OLLAMA_MAX_QUEUE" not in has
    assert ctl_json(lab, "rollback", "1")["exit_code"] == 0
    assert environ(lab)["OLLAMA_MAX_QUEUE"] == "9" and not exists(lab, OURS)


def test_several_units_and_none_named(lab: Machine) -> None:
    unit = lab.read("/etc/systemd/system/ollama.service")
    own_port = "Environment=OLLAMA_HOST=127.0.0.1:1%i\n\n[Install]"
    lab.write("/etc/systemd/system/ollama@.service", unit.replace("[Install]", own_port))
    lab.run(["systemctl", "daemon-reload"])
    lab.run(["systemctl", "start", "ollama@1435"])
    try:
        ollama.wait_answer(lab, 11435)
        done = ctl_json(lab, "apply", "--parallel", "2")
        assert done["exit_code"] == 2
        assert "ollama.service" in done["errors"][0]["text"] and "ollama@1435.service" in done["errors"][0]["text"]
        assert ctl_json(lab, "apply", "--parallel", "2", "--unit", "ollama@1435")["exit_code"] == 0
        assert "OLLAMA_NUM_PARALLEL" not in environ(lab)
        rows = ctl_json(lab, "verify", "--unit", "ollama@1435")["data"]["rows"]
        assert {r["name"]: r["layers"]["process"] for r in rows}["OLLAMA_NUM_PARALLEL"] == "2"
    finally:
        lab.run(["bash", "-c", "systemctl stop ollama@1435; rm /etc/systemd/system/ollama@.service"])
        lab.run(["systemctl", "daemon-reload"])


def test_output_that_does_not_go_to_the_journal_is_read_from_its_file(lab: Machine) -> None:
    lab.run(["bash", "-c", "rm -f /var/log/ollama.log; install -o ollama -m 644 /dev/null /var/log/ollama.log"])
    dropin(lab, "log.conf", "StandardOutput=append:/var/log/ollama.log", "StandardError=append:/var/log/ollama.log")
    lab.run(["systemctl", "restart", "ollama"])
    ollama.wait_answer(lab)
    done = ctl_json(lab, "apply", "--parallel", "2", "--model", CHAT)
    assert done["exit_code"] == 0, done
    assert any("server config: OLLAMA_NUM_PARALLEL=2" in s["text"] for s in done["data"]["steps"])


def test_a_server_with_a_network_of_its_own_is_asked_in_it_and_put_back(lab: Machine) -> None:
    dropin(lab, "net.conf", "PrivateNetwork=yes")
    lab.run(["systemctl", "restart", "ollama"])
    done = ctl_json(lab, "apply", "--parallel", "2", "--model", CHAT)
    assert (done["exit_code"], done["status"]) == (0, "applied"), done
    rows = {row["name"]: row["layers"] for row in done["data"]["rows"]}
    assert rows["OLLAMA_NUM_PARALLEL"]["runner"] == "-np 2"
    failed = ctl_json(lab, "apply", "--parallel", "3", "--model", FORCED)
    assert failed["exit_code"] == 3, failed
    assert environ(lab)["OLLAMA_NUM_PARALLEL"] == "2"
    assert [m["name"] for m in ctl_json(lab, "facts")["data"]["loaded"]] == [CHAT], "loaded again, as before"


def test_a_log_namespace_is_read(lab: Machine) -> None:
    dropin(lab, "log.conf", "LogNamespace=models")
    lab.run(["systemctl", "restart", "ollama"])
    ollama.wait_answer(lab)
    done = ctl_json(lab, "apply", "--parallel", "2")
    assert done["exit_code"] == 0, done
    assert any("server config: OLLAMA_NUM_PARALLEL=2" in s["text"] for s in done["data"]["steps"])


def test_a_start_without_a_server_config_line_is_proven_by_the_process(lab: Machine) -> None:
    dropin(lab, "10-old.conf", "Environment=STANDIN_NO_CONFIG_LINE=1")
    lab.run(["systemctl", "restart", "ollama"])
    ollama.wait_answer(lab)
    done = ctl_json(lab, "apply", "--parallel", "2", "--model", CHAT)
    assert done["exit_code"] == 0, done
    assert any("server config" in n for n in done["data"]["notes"])
    seen = ctl_json(lab, "verify")["data"]
    assert any("server config" in u for u in seen["unproven"])


def test_older_releases_tell_slots_in_their_load_request(lab: Machine) -> None:
    dropin(lab, "10-old.conf", "Environment=STANDIN_RELEASE=0.12.6")
    lab.run(["systemctl", "restart", "ollama"])
    ollama.wait_answer(lab)
    done = ctl_json(lab, "apply", "--parallel", "2", "--model", CHAT)
    assert done["exit_code"] == 0, done
    rows = {r["name"]: r["layers"] for r in done["data"]["rows"]}
    assert rows["OLLAMA_NUM_PARALLEL"]["runner"] == "-np 2"


def test_without_root_what_can_not_be_read_is_said(lab: Machine) -> None:
    lab.run(["useradd", "-m", "guest"], check=False)
    ollama.api(lab, "/api/generate", {"model": ollama.CHAT})
    refused = ctl(lab, "apply", "--parallel", "2", user="guest")
    assert refused.returncode == 5
    assert f"hint: sudo {ollama.OLLAMACTL[0]} apply --parallel 2" in " ".join(refused.stderr.split())
    seen = ctl(lab, "verify", user="guest")
    assert "denied" in seen.stdout and "sudo" in seen.stdout
    assert "what could be read agrees" in seen.stdout and "all layers agree" in ctl(lab, "verify").stdout
    assert "Traceback" not in seen.stdout + seen.stderr


def test_a_stopped_unit_is_written_and_not_started(lab: Machine) -> None:
    lab.run(["systemctl", "stop", "ollama"])
    done = ctl_json(lab, "apply", "--parallel", "2")
    assert (done["exit_code"], done["status"]) == (0, "applied"), done
    assert lab.run(["systemctl", "is-active", "ollama"], check=False).stdout.strip() == "inactive"
    lab.run(["systemctl", "start", "ollama"])
    ollama.wait_answer(lab)
    assert environ(lab)["OLLAMA_NUM_PARALLEL"] == "2"


def test_a_bundle_shows_the_same_rows_as_the_host(lab: Machine) -> None:
    assert ctl(lab, "apply", "--parallel", "2", "--model", CHAT).returncode == 0
    lab.run(["rm", "-f", "/tmp/host.tar.gz"])
    assert ctl(lab, "bundle", "/tmp/host.tar.gz").returncode == 0
    assert lab.run(["stat", "-c", "%a", "/tmp/host.tar.gz"]).stdout.strip() == "600"
    here, there = ctl_json(lab, "verify"), ctl_json(lab, "verify", "--from", "/tmp/host.tar.gz")
    assert there["data"]["rows"] == here["data"]["rows"]
    assert there["exit_code"] == 0


def test_a_pasted_log_and_pasted_ps_are_understood(lab: Machine) -> None:
    assert ctl(lab, "apply", "--parallel", "2", "--model", CHAT).returncode == 0
    for form in ("short-iso", "json", "cat"):
        lab.run(["bash", "-c", f"journalctl -u ollama -o {form} --no-pager > /tmp/pasted.log"])
        seen = ctl_json(lab, "verify", "--from", "/tmp/pasted.log")
        rows = {r["name"]: r["layers"]["server"] for r in seen["data"]["rows"]}
        assert rows["OLLAMA_NUM_PARALLEL"] == "2", form
    lab.run(["bash", "-c", "ollama ps > /tmp/ps.txt"])
    found = json.loads(lab.run([*ollama.OLLAMACTL, "facts", "--from", "/tmp/ps.txt", "--json"]).stdout)
    assert [m["name"] for m in found["data"]["loaded"]] == [CHAT]


def test_gpus_of_the_host_and_containers_that_use_them_are_on_the_screen(lab: Machine) -> None:
    source = ollama.CHECKOUT / "tests" / "nvml" / "standin.c"
    lab.run(["bash", "-c", f"cc -shared -fPIC -O1 -o /usr/lib/libnvidia-ml.so.1 {source} && ldconfig"])
    lab.write("/etc/nvml-standin.conf", "gpu 24564 1024 0 8.9 NVIDIA GeForce RTX 4090\n")
    inspect = [{"Name": "/comfy", "HostConfig": {"Runtime": "nvidia"}}]
    docker = f"#!/bin/sh\ncase $1 in ps) echo abc;; inspect) echo '{json.dumps(inspect)}';; esac\n"
    lab.write("/usr/local/sbin/docker", docker, 0o755)
    try:
        shown = ctl(lab, "apply", "--parallel", "2", "--check").stdout
    finally:
        lab.run(["rm", "/usr/lib/libnvidia-ml.so.1", "/etc/nvml-standin.conf", "/usr/local/sbin/docker"])
        lab.run(["ldconfig"])
    assert "RTX 4090, 23.0 of 24.0 GiB free" in shown
    assert "1 running container uses a GPU (comfy)" in shown


def test_an_apply_waits_for_the_lock_or_says_who_holds_it(lab: Machine) -> None:
    lab.run(["mkdir", "-p", "-m", "700", "/var/lib/ollamactl"])
    code = "import fcntl,time; f=open('/var/lib/ollamactl/lock','w'); fcntl.flock(f,2); print(1,flush=True)"
    code += "; time.sleep(60)"
    holder = lab.popen(["/usr/bin/python3", "-c", code])
    assert holder.stdout is not None and holder.stdout.readline() == "1\n"
    try:
        done = ctl_json(lab, "apply", "--parallel", "2", "--wait", "1")
    finally:
        holder.kill()
        holder.wait()
    assert done["exit_code"] == 5 and done["errors"][0]["id"] == "locked", done
