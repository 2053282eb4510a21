"""Faults put into a live host: doctor names each, root cause first, and is quiet once they are gone."""

# ruff: noqa: E501 - lines of logs and shells
from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.lab import ollama
from tests.lab.machine import Machine
from tests.lab.ollama import CHAT, EMBED, FORCED, MODELS, OLLAMACTL, api, ctl, ctl_json

pytestmark = pytest.mark.lab

FOLDER = "/etc/systemd/system/ollama.service.d"
UNIT = "/etc/systemd/system/ollama.service"
PACKAGED = "/usr/lib/systemd/system/ollama.service"  # where a unit can be masked
RESTORE = f"""
[ -f /tmp/pids ] && kill -9 $(cat /tmp/pids) 2>/dev/null; rm -f /tmp/pids
systemctl unmask -q ollama 2>/dev/null
[ -f /var/tmp/ollama.service ] && cp /var/tmp/ollama.service {UNIT}
rm -rf {FOLDER} {PACKAGED} /etc/default/ollama /etc/ollamactl /var/lib/ollamactl /srv/models /home/models
chmod 755 /usr/share/ollama
systemctl daemon-reload; systemctl enable -q ollama; systemctl reset-failed ollama; systemctl restart ollama
"""


@pytest.fixture(scope="module")
def host() -> Iterator[Machine]:
    with Machine() as machine:
        ollama.setup(machine)
        machine.run(["cp", UNIT, "/var/tmp/ollama.service"])
        yield machine


@pytest.fixture
def lab(host: Machine) -> Iterator[Machine]:
    """The host with nothing wrong; after the test it is made so again, and doctor must agree."""
    restore(host)
    yield host
    restore(host)
    left = loud(host)
    assert left == [], left


def restore(machine: Machine) -> None:
    machine.run(["bash", "-c", RESTORE], check=False)
    ollama.wait_answer(machine)


def sh(machine: Machine, script: str) -> None:
    machine.run(["bash", "-c", script], check=False)


def dropin(machine: Machine, text: str, name: str = "override.conf", *, restart: bool = True) -> None:
    machine.write(f"{FOLDER}/{name}", text)
    sh(machine, "systemctl daemon-reload; systemctl restart ollama" if restart else "systemctl daemon-reload")
    if restart:
        time.sleep(0.4)


def service(machine: Machine, *lines: str, name: str = "override.conf", restart: bool = True) -> None:
    dropin(machine, "[Service]\n" + "".join(f"{line}\n" for line in lines), name, restart=restart)


def report(machine: Machine, *args: str) -> dict[str, Any]:
    data: dict[str, Any] = ctl_json(machine, "doctor", *args)["data"]
    assert data["crashed"] == []
    return data


def loud(machine: Machine) -> list[str]:
    return [f["check"] for f in report(machine)["findings"] if f["severity"] != "info"]


def ask(machine: Machine, model: str = CHAT, prompt: str = "hi", **options: Any) -> Any:
    return api(machine, "/api/generate", {"model": model, "prompt": prompt, "stream": False,
                                          "options": {"num_predict": 2, **options}})  # fmt: skip


def background(machine: Machine, script: str) -> None:
    sh(machine, f"{{ {script} & }} >/tmp/background.log 2>&1; echo $! >> /tmp/pids; sleep 0.7")


# -- faults --


def two_contexts(m: Machine) -> None:
    for context in (2048, 1024, 2048, 1024):
        ask(m, num_ctx=context)


def port_held(m: Machine) -> None:
    sh(m, "systemctl stop ollama")
    background(m, "setsid python3 -m http.server 11434 --bind 127.0.0.1")
    sh(m, "systemctl start ollama")
    time.sleep(3.8)


def by_hand(m: Machine) -> None:
    background(m, "HOME=/tmp OLLAMA_HOST=127.0.0.1:11999 setsid /usr/local/bin/ollama serve")


def own_models(m: Machine, damage: str) -> None:
    sh(m, f"mkdir -p /srv/models && cp -r {MODELS}/manifests /srv/models/ && mkdir /srv/models/blobs && "
          f"for b in {MODELS}/blobs/*; do [ $(stat -c %s $b) -lt 30000000 ] && cp $b /srv/models/blobs/; done; "
          "find /srv/models/manifests -name 270m -delete; "
          f"big=$(ls -S /srv/models/blobs/* | head -1); {damage}; chown -R ollama: /srv/models")  # fmt: skip
    service(m, "Environment=OLLAMA_MODELS=/srv/models")


def killed(m: Machine) -> None:
    ask(m)
    sh(m, "kill -9 $(pgrep -f 'llama-server.*--port' | head -1)")
    time.sleep(0.3)


def hung(m: Machine) -> None:
    ask(m)
    sh(m, "kill -STOP $(pgrep -f 'llama-server.*--port' | head -1)")
    background(m, "curl -s -m 20 http://127.0.0.1:11434/api/generate -d '" + json.dumps({"model": CHAT, "prompt": "x"}) + "'")


def edited(m: Machine) -> None:
    service(m, "Environment=OLLAMA_NUM_PARALLEL=2")
    m.write(f"{FOLDER}/override.conf", "[Service]\nEnvironment=OLLAMA_NUM_PARALLEL=3\n")


def in_main(m: Machine) -> None:
    sh(m, f"sed -i '/^RestartSec/a Environment=\"OLLAMA_KEEP_ALIVE=7m\"' {UNIT}; systemctl daemon-reload; systemctl restart ollama")


def exec_start(m: Machine, value: str) -> None:
    service(m, "ExecStart=", f"ExecStart={value}", "RestartSec=100ms")


def env_file(m: Machine) -> None:
    m.write("/etc/default/ollama", "OLLAMA_NUM_PARALLEL=6\n")
    service(m, "Environment=OLLAMA_NUM_PARALLEL=2", "EnvironmentFile=/etc/default/ollama")


def two_dropins(m: Machine) -> None:
    service(m, "Environment=OLLAMA_NUM_PARALLEL=2", name="10-a.conf", restart=False)
    service(m, "Environment=OLLAMA_NUM_PARALLEL=3", name="20-b.conf")


def emptied(m: Machine) -> None:
    service(m, "Environment=OLLAMA_NUM_PARALLEL=2", name="10-a.conf", restart=False)
    service(m, "Environment=", "Environment=OLLAMA_MAX_QUEUE=64", name="20-b.conf")


def protected(m: Machine) -> None:
    sh(m, "mkdir -p /home/models && chown ollama: /home/models")
    service(m, "ProtectHome=yes", "Environment=OLLAMA_MODELS=/home/models", "RestartSec=100ms")
    time.sleep(0.5)


def loads(*lines: str, model: str = CHAT) -> Callable[[Machine], None]:
    def fault(m: Machine) -> None:
        service(m, *lines)
        ollama.wait_answer(m)
        ask(m, model)

    return fault


def sets(*lines: str) -> Callable[[Machine], None]:
    return lambda m: service(m, *lines)


def writes(text: str) -> Callable[[Machine], None]:
    return lambda m: dropin(m, text)


FAULTS: dict[str, tuple[str, Callable[[Machine], None]]] = {
    "no section header": ("dropin_missing_section_header", writes('Environment="OLLAMA_NUM_PARALLEL=4"\n')),
    "broken header": ("dropin_missing_section_header", writes('[Service\nEnvironment="OLLAMA_NUM_PARALLEL=4"\n')),
    "lower-case key": ("malformed_env_assignment", sets("environment=OLLAMA_NUM_PARALLEL=4")),
    "unbalanced quotes": ("malformed_env_assignment", sets('Environment="OLLAMA_NUM_PARALLEL=4')),
    "blanks around =": ("malformed_env_assignment", sets('Environment="OLLAMA_KEEP_ALIVE = 7m"')),
    "mistyped name": ("unknown_ollama_variable", sets("Environment=OLLAMA_NUM_PARALEL=4")),
    "name of a guide": ("unknown_ollama_variable", sets("Environment=OLLAMA_NUM_CTX=8192")),
    "boolean off": ("boolean_counts_as_true", sets("Environment=OLLAMA_FLASH_ATTENTION=off")),
    "parallel abc": ("invalid_value", sets("Environment=OLLAMA_NUM_PARALLEL=abc")),
    "parallel 0": ("invalid_value", sets("Environment=OLLAMA_NUM_PARALLEL=0")),
    "keep-alive bogus": ("invalid_value", sets("Environment=OLLAMA_KEEP_ALIVE=bogus")),
    "queue of none": ("max_queue_zero", sets("Environment=OLLAMA_MAX_QUEUE=0")),
    "edited without daemon-reload": ("need_daemon_reload", edited),
    "reloaded without restart": ("config_newer_than_process",
                                 lambda m: service(m, "Environment=OLLAMA_NUM_PARALLEL=3", restart=False)),
    "later drop-in": ("dropin_overridden_by_later_dropin", two_dropins),
    "environment file": ("environment_file_overrides_dropin", env_file),
    "empty Environment": ("dropin_drops_earlier_environment", emptied),
    "settings in the main unit": ("settings_in_main_unit", in_main),
    "masked": ("service_masked", lambda m: sh(m, f"systemctl stop ollama; mv {UNIT} {PACKAGED}; systemctl mask -q ollama")),
    "stopped and disabled": ("service_not_started_at_boot",
                             lambda m: sh(m, "systemctl disable -q --now ollama")),
    "port held": ("port_in_use", port_held),
    "a second server": ("running_server_is_not_the_service", by_hand),
    "program missing": ("exec_path_missing", lambda m: exec_start(m, "/usr/bin/ollama serve")),
    "quoted command": ("execstart_203_exec", lambda m: exec_start(m, '"/usr/local/bin/ollama serve"')),
    "pull before the start": ("client_command_in_start_pre",
                              sets("ExecStartPre=/usr/local/bin/ollama list", "RestartSec=100ms")),
    "preload": ("ld_preload_in_unit", sets("Environment=LD_PRELOAD=/opt/none.so")),
    "models without access": ("models_dir_no_access", lambda m: (
        sh(m, "mkdir -p /srv/models && chmod 700 /srv/models"), sets("Environment=OLLAMA_MODELS=/srv/models")(m))[-1]),
    "models behind ProtectHome": ("protecthome_blocks_models_dir", protected),
    "every interface": ("api_exposed_without_auth", sets("Environment=OLLAMA_HOST=0.0.0.0")),
    "cache type": ("kv_type_invalid", loads("Environment=OLLAMA_KV_CACHE_TYPE=q9_9")),
    "300 slots": ("parallel_above_maximum", loads("Environment=OLLAMA_NUM_PARALLEL=300")),
    "two contexts": ("model_reload_every_request", two_contexts),
    "blob cut off": ("model_blob_truncated", lambda m: own_models(m, "truncate -s 1000 $big")),
    "blob gone": ("model_blob_missing", lambda m: own_models(m, "rm $big")),
    "blob of zeros": ("model_blob_truncated",
                      lambda m: own_models(m, "dd if=/dev/zero of=$big bs=1k count=64 conv=notrunc status=none")),
    "runner killed": ("runner_killed", killed),
    "runner hangs": ("runner_hung_parent_healthy", hung),
    "forced to one slot": ("parallel_forced_to_1_by_architecture",
                           loads("Environment=OLLAMA_NUM_PARALLEL=4", model=FORCED)),
}  # fmt: skip


# Faults whose remedy is a command that cures them, and what a person types where it opens an editor (for sed).
CURES: dict[str, str] = {
    "no section header": "",
    "broken header": "1s/.*/[Service]/",
    "lower-case key": "s/^environment/Environment/",
    "unbalanced quotes": "s/\"//",
    "blanks around =": "s/ = /=/",
    "mistyped name": "",
    "name of a guide": "",
    "boolean off": "",
    "parallel abc": "",
    "parallel 0": "",
    "keep-alive bogus": "",
    "queue of none": "",
    "edited without daemon-reload": "",
    "reloaded without restart": "",
    "later drop-in": "s/OLLAMA_NUM_PARALLEL=2/OLLAMA_NUM_PARALLEL=3/",
    "environment file": "/OLLAMA_NUM_PARALLEL/d",
    "empty Environment": "",
    "settings in the main unit": "",
    "masked": "",
    "stopped and disabled": "",
    "port held": "",
    "a second server": "",
    "program missing": "",
    "quoted command": "",
    "pull before the start": "/ExecStartPre/d",
    "preload": "/LD_PRELOAD/d",
    "models without access": "",
    "models behind ProtectHome": "",
    "every interface": "",
    "cache type": "",
    "300 slots": "",
    "runner hangs": "",
}
# What is true after the remedy: it ends the runner; the new folder holds no models, and others lie in the old one.
LEFT = {
    "runner hangs": ["runner_killed"],
    "models without access": ["models_in_two_dirs"],
    "models behind ProtectHome": ["models_in_two_dirs"],
}
# Those whose remedy is no command that could be run here, and why.
NOT_RUN: dict[str, str] = {
    "two contexts": "the clients have to be changed",
    "blob cut off": "the model is pulled again, and the lab has no registry",
    "blob gone": "the model is pulled again, and the lab has no registry",
    "blob of zeros": "the model is pulled again, and the lab has no registry",
    "runner killed": "it is over; the command shows what killed it",
    "forced to one slot": "the engine decides; there is nothing to set",
}


def test_every_fault_says_whether_its_remedy_is_run() -> None:
    assert {*CURES} | {*NOT_RUN} == {*FAULTS} and not {*CURES} & {*NOT_RUN}


def paste(machine: Machine, remedy: str, typed: str) -> None:
    """A remedy as somebody pastes it who is root; `sudoedit` is a person at an editor who types `typed`."""
    machine.write("/usr/local/bin/sudoedit", f"#!/bin/sh\nexec sed -i -e '{typed}' \"$@\"\n")
    machine.write("/usr/local/bin/sudo", '#!/bin/sh\nexec "$@"\n')
    program = f"ln -sf {OLLAMACTL[0]} /usr/local/bin/ollamactl"
    machine.run(["bash", "-c", f"chmod +x /usr/local/bin/sudo /usr/local/bin/sudoedit; {program}"])
    done = machine.run(["bash", "-c", remedy], check=False, timeout=120)
    assert done.returncode == 0, (remedy, done.stdout, done.stderr)


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_named_first_and_its_remedy_cures(lab: Machine, fault: str) -> None:
    check, inject = FAULTS[fault]
    inject(lab)
    data = report(lab)
    found = data["findings"]
    assert found and found[0]["check"] == check, [(f["severity"], f["check"], f["summary"]) for f in found]
    assert found[0]["severity"] != "info" and found[0]["evidence"] and found[0]["remedy"]
    # (what is only worth knowing stands in some of the starts of a unit that dies at once, and not in others)
    there = [x for x in from_bundle(lab) if x[1] != "info"]
    assert there == [(f["check"], f["severity"]) for f in found if f["severity"] != "info"]
    if fault in CURES:
        paste(lab, found[0]["remedy"], CURES[fault])
        ollama.wait_answer(lab)
        assert loud(lab) == LEFT.get(fault, []), found[0]["remedy"]


def test_worth_knowing_and_no_fault(lab: Machine) -> None:
    service(lab, "Environment=OLLAMA_NUM_PARALLEL=4")
    ollama.wait_answer(lab)
    api(lab, "/api/embed", {"model": EMBED, "input": "x"})
    found = {f["check"]: f["severity"] for f in report(lab)["findings"]}
    assert found.get("parallel_forced_to_1_embedding") == "info"
    assert set(found.values()) == {"info"}


def test_requests_that_wait_are_seen(lab: Machine) -> None:
    ask(lab)
    body = {"model": CHAT, "prompt": "tell", "stream": False, "options": {"num_predict": 40}}
    threads = [threading.Thread(target=api, args=(lab, "/api/generate", body)) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(1.0)
    found = [f["check"] for f in report(lab)["findings"]]
    for thread in threads:
        thread.join()
    assert "queue_building_up" in found


def test_exit_codes_ignore_and_only(lab: Machine) -> None:
    assert ctl(lab, "doctor").returncode == 0
    service(lab, "Environment=OLLAMA_NUM_PARALEL=4")
    assert ctl(lab, "doctor").returncode == 0  # a warning; --fail-on is error
    assert ctl(lab, "doctor", "--fail-on", "warning").returncode == 1
    assert ctl(lab, "doctor", "--fail-on", "warning", "--ignore", "unknown_ollama_variable").returncode == 0
    assert ctl(lab, "doctor", "--only", "no_such_check").returncode == 2
    kept = ctl(lab, "doctor", "--fail-on", "warning", "--keep-ignore", "unknown_ollama_variable=ours")
    assert kept.returncode == 0 and "1 ignored" in kept.stdout and "ours" in kept.stdout
    assert "unknown_ollama_variable ours" in lab.read("/etc/ollamactl/doctor-ignore")
    assert ctl(lab, "doctor", "--fail-on", "warning").returncode == 0


def from_bundle(machine: Machine) -> list[tuple[str, str]]:
    """What is found in the host's bundle."""
    assert ctl(machine, "bundle", "/var/tmp/host.tar.gz").returncode == 0
    found = report(machine, "--from", "/var/tmp/host.tar.gz")["findings"]
    machine.run(["rm", "/var/tmp/host.tar.gz"])
    return [(f["check"], f["severity"]) for f in found]


def test_what_lies_between_the_ends_of_a_long_journal_is_seen(lab: Machine) -> None:
    killed(lab)
    ask(lab)
    chatter = "slot print_timing: id  0 | task 7 |        eval time =     175.89 ms"
    folder = "/sys/fs/cgroup$(systemctl show -p ControlGroup --value ollama)"  # whose lines count as the unit's
    inside = f"echo \\$\\$ > {folder}/cgroup.procs; exec systemd-cat -t ollama"
    sh(lab, f"yes '{chatter}' | head -6000 | sh -c \"{inside}\"; journalctl --sync")
    assert lab.run(["bash", "-c", "journalctl -u ollama -o cat -n 4000 | grep -c 'signal: killed'"], check=False).stdout == "0\n"
    data = report(lab)
    assert data["findings"][0]["check"] == "runner_killed" and data["judged"]["log"]["gap"] == ""
    assert data["judged"]["log"]["lines"] < 4000  # the chatter was left out before it was printed
    assert from_bundle(lab) == [(f["check"], f["severity"]) for f in data["findings"]]


def test_without_root_it_says_what_it_could_not_see(lab: Machine) -> None:
    done = lab.run(["runuser", "-u", "nobody", "--", *OLLAMACTL, "doctor"], check=False)
    assert done.returncode == 0 and "sudo shows" in done.stdout and "could not look" in done.stdout


def test_a_unit_that_starts_the_server_by_a_script_is_well(lab: Machine) -> None:
    lab.write("/usr/local/bin/run-ollama", "#!/bin/sh\n/usr/local/bin/ollama serve\n")
    sh(lab, "chmod +x /usr/local/bin/run-ollama")
    service(lab, "ExecStart=", "ExecStart=/usr/local/bin/run-ollama", "Environment=OLLAMA_NUM_PARALLEL=2")
    ollama.wait_answer(lab)
    ask(lab)
    assert report(lab)["judged"]["unit"] == "ollama.service" and loud(lab) == []
    (row, *_) = ctl_json(lab, "verify")["data"]["rows"]
    assert (row["layers"]["process"], row["layers"]["server"], row["layers"]["runner"]) == ("2", "2", "-np 2")
