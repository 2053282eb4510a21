"""The package on clean Debian 12 and 13: machines without a network, so that nothing is fetched while it installs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ollamactl import __version__
from ollamactl.cli import COMMANDS
from ollamactl.core.compose import MARK
from tests.lab import debian, ollama
from tests.lab.machine import Machine

pytestmark = pytest.mark.lab
FRONT = "/etc/nginx/conf.d/ollamactl-front.conf"
DROPIN = "/etc/systemd/system/ollama.service.d/zz-ollamactl.conf"


def apt(machine: Machine, *words: str, check: bool = True) -> Any:
    argv = ["apt-get", "-y", "--no-install-recommends", *words]
    return machine.run(argv, check=check, env={"DEBIAN_FRONTEND": "noninteractive"}, timeout=280)


@pytest.fixture(scope="module", params=debian.SUITES)
def host(request: pytest.FixtureRequest, deb: Path) -> Iterator[Machine]:
    """A clean machine with Ollama's service on it, and the package installed."""
    root = debian.image(request.param)
    ollama.stage()
    with Machine(root=root) as machine:
        assert machine.run(["ip", "-br", "link"]).stdout.split()[0] == "lo"
        assert len(machine.run(["ip", "-br", "link"]).stdout.splitlines()) == 1, "no network to fetch from"
        assert machine.run(["sh", "-c", "command -v gcc cc pip ollamactl"], check=False).stdout == ""
        apt(machine, "install", str(deb))
        ollama.setup(machine)
        yield machine


def ctl(machine: Machine, *args: str) -> Any:
    done = machine.run(["/usr/bin/ollamactl", *args, "--json"], check=False, timeout=120)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_it_runs_on_debians_own_packages(host: Machine) -> None:
    assert host.run(["ollamactl", "--version"], cwd="/").stdout == f"ollamactl {__version__}\n"
    where = "import click, psutil, jinja2, pystemd; print(click.__file__, psutil.__file__, pystemd.__file__)"
    assert host.run(["/usr/bin/python3", "-c", where]).stdout.count("/usr/lib/python3/dist-packages/") == 3
    trap = {"PYTHONPATH": "/tmp/trap"}
    host.write("/tmp/trap/click.py", "raise SystemExit('not of the package')\n")
    assert host.run(["ollamactl", "--version"], env=trap).returncode == 0


def test_apply_verify_rollback(host: Machine) -> None:
    done = ctl(host, "apply", "--parallel", "2", "--model", ollama.CHAT)
    assert done["exit_code"] == 0, done
    rows = {row["name"]: row["layers"] for row in done["data"]["rows"]}
    assert rows["OLLAMA_NUM_PARALLEL"]["runner"] == "-np 2"
    assert ctl(host, "verify")["exit_code"] == 0
    assert ctl(host, "rollback")["exit_code"] == 0
    assert host.run(["test", "-e", DROPIN], check=False).returncode == 1


def test_manual_page(host: Machine) -> None:
    page = host.run(["man", "-P", "cat", "ollamactl"], env={"MANWIDTH": "80"}).stdout
    assert [name for name in COMMANDS if f"ollamactl {name}" not in page] == []


def test_bash_completion(host: Machine) -> None:
    script = """
. /usr/share/bash-completion/completions/ollamactl
COMP_WORDS=(ollamactl ro); COMP_CWORD=1; _ollamactl_completion ollamactl; echo "${COMPREPLY[@]}"
COMPREPLY=(); COMP_WORDS=(ollamactl apply --par); COMP_CWORD=2; _ollamactl_completion ollamactl; echo "${COMPREPLY[@]}"
"""
    assert host.run(["bash", "-c", script]).stdout.split() == ["rollback", "--parallel"]


def test_the_timer_is_off_until_it_is_asked_for(host: Machine) -> None:
    state = host.run(["systemctl", "is-enabled", "ollamactl-doctor.timer"], check=False)
    assert state.stdout.strip() == "disabled"
    host.run(["systemctl", "enable", "--now", "ollamactl-doctor.timer"])
    assert "ollamactl-doctor.timer" in host.run(["systemctl", "list-timers", "--no-pager"]).stdout
    host.run(["systemctl", "start", "ollamactl-doctor.service"])
    said = [str(entry["MESSAGE"]) for entry in host.journal("ollamactl-doctor.service")]
    assert any("checks" in line for line in said), said
    # A finding makes the service fail, as a monitor of failed units sees it.
    host.write("/etc/ollamactl/doctor.env", "DOCTOR_OPTIONS=--fail-on info\n")
    host.run(["systemctl", "start", "ollamactl-doctor.service"], check=False)
    assert host.run(["systemctl", "is-failed", "ollamactl-doctor.service"], check=False).stdout.strip() == "failed"


def test_installing_again_keeps_what_the_admin_wrote(host: Machine, deb: Path) -> None:
    host.write("/etc/ollamactl/doctor.env", "DOCTOR_OPTIONS=--fail-on warning\n")
    apt(host, "install", "--reinstall", "-o", "Dpkg::Options::=--force-confold", str(deb))
    assert host.read("/etc/ollamactl/doctor.env") == "DOCTOR_OPTIONS=--fail-on warning\n"
    assert host.run(["systemctl", "is-enabled", "ollamactl-doctor.timer"]).stdout.strip() == "enabled"


def test_removal_waits_for_an_open_change(host: Machine) -> None:
    host.run(["mkdir", "-p", "/var/lib/ollamactl"])
    host.write("/var/lib/ollamactl/open.json", "{}")
    refused = apt(host, "remove", "ollamactl", check=False)
    assert refused.returncode != 0
    assert "sudo ollamactl recover" in refused.stdout + refused.stderr
    assert host.run(["ollamactl", "--version"]).returncode == 0
    host.run(["rm", "/var/lib/ollamactl/open.json"])


def test_purge_says_what_is_still_applied_and_how_to_reset_it(host: Machine, deb: Path) -> None:
    host.write("/root/origins", "https://chat.example")
    assert ctl(host, "apply", "--parallel", "3", "--set", "OLLAMA_ORIGINS=@/root/origins")["exit_code"] == 0
    host.write(FRONT, "# a front\n")
    ours, theirs = "/srv/a b/compose.override.yaml", "/srv/docker-compose.override.yml"
    host.write(ours, f"{MARK} x\nservices: {{}}\n")
    host.write(theirs, "services: {}\n")
    host.write("/var/lib/ollamactl/history/9.json", json.dumps({"files": [{"path": ours}, {"path": theirs}]}))
    removed = apt(host, "remove", "ollamactl").stdout
    env = "/etc/ollamactl/ollama.service.env"
    assert f"the settings of ollama.service stay as they were applied: {DROPIN} {env}\n" in removed
    assert f"the front before Ollama stays: {FRONT}\n" in removed and "sudo ollamactl reset" in removed
    assert f"project stay as they were applied: {ours}\n" in removed and theirs not in removed
    timers = host.run(["systemctl", "list-timers", "--all", "--no-pager"]).stdout
    assert "ollamactl" not in timers
    said = apt(host, "purge", "ollamactl").stdout
    assert f"settings of ollama.service are still applied; nothing of this was removed:\n  {DROPIN} {env}\n" in said
    assert f"rm {FRONT} && systemctl reload nginx" in said
    host.run(["rm", FRONT])
    assert f"to reset them: rm '{ours}' && cd '/srv/a b' && docker compose up -d\n" in said and theirs not in said
    host.run(["rm", ours])
    assert "NUM_PARALLEL=3" in host.read(DROPIN)
    assert host.run(["ls", "/var/lib/ollamactl"]).stdout, "how to undo them is kept"
    fix = said.split("to reset them: ")[1].splitlines()[0]
    host.run(["sh", "-c", fix])
    environ = host.run(["sh", "-c", "tr '\\0' '\\n' < /proc/$(systemctl show -P MainPID ollama)/environ"]).stdout
    assert "OLLAMA_NUM_PARALLEL" not in environ
    ollama.wait_answer(host)
    apt(host, "install", str(deb))
    assert "still applied" not in apt(host, "purge", "ollamactl").stdout
    left = ["find", "/etc", "/usr", "/var/lib", "-xdev", "-name", "*ollamactl*"]
    assert host.run(left).stdout == ""
