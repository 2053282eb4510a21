"""What tests do inside a lab machine works there as it does on a server."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from . import kernel
from .machine import CHECKOUT, CommandError, Machine

pytestmark = pytest.mark.lab
PYTHON = Path(sys.executable)

RELOAD = """
import pystemd
from pystemd.dbuslib import DBus
from pystemd.systemd1 import Manager
with DBus() as bus, Manager(bus=bus) as manager:
    manager.Manager.Reload()
    print(manager.Manager.Version.decode())
with Manager() as private:
    private.Manager.Reload()
"""


@pytest.mark.parametrize("python", [PYTHON, Path("/usr/bin/python3")])
def test_pystemd_reloads_over_dbus_and_the_private_socket(machine: Machine, python: Path) -> None:
    """The virtual environment's pystemd and Debian's python3-pystemd."""
    version = machine.run([python, "-c", RELOAD]).stdout.strip()
    assert version and machine.run(["systemctl", "--version"]).stdout.split("(")[1].startswith(version)


def test_units_start_and_log_without_a_rate_limit(machine: Machine) -> None:
    machine.write(
        "/etc/systemd/system/lab-talk.service", "[Service]\nType=oneshot\nExecStart=/usr/bin/seq 30000\n"
    )
    machine.run(["systemctl", "daemon-reload"])
    machine.run(["systemctl", "start", "lab-talk"])
    said = machine.journal("lab-talk", "_COMM=seq")
    assert [entry["MESSAGE"] for entry in said] == [str(number) for number in range(1, 30001)]
    assert len({entry["_SYSTEMD_INVOCATION_ID"] for entry in said}) == 1


def test_pid_1_complains_in_the_journal(machine: Machine) -> None:
    machine.write("/etc/systemd/system/lab-bad.service", "[Service]\nExecStart=/bin/true\nNoSuchThing=1\n")
    machine.run(["systemctl", "daemon-reload"])
    machine.run(["systemctl", "start", "lab-bad"])
    said = machine.journal(None, "_PID=1", "UNIT=lab-bad.service")
    assert any("NoSuchThing" in entry["MESSAGE"] for entry in said)


@pytest.mark.parametrize(
    ("storage", "folder"), [("persistent", "/var/log/journal"), ("volatile", "/run/log/journal")]
)
def test_the_journals_storage_can_be_chosen(storage: str, folder: str) -> None:
    with Machine(storage=storage, journald=["RateLimitIntervalSec=30s", "RateLimitBurst=7"]) as machine:
        assert (
            machine.journal()
            and machine.run(["find", folder, "-name", "system.journal"]).stdout.count("\n") == 1
        )
        other = {"/var/log/journal", "/run/log/journal"} - {folder}
        assert machine.run(["find", *other, "-name", "system.journal"], check=False).stdout == ""
        script = "systemd-run --quiet --wait --unit=lab-flood seq 10000"
        machine.run(["sh", "-c", script])
        assert 7 <= len(machine.journal("lab-flood", "_COMM=seq")) < 10000


def test_user_of_the_service(machine: Machine) -> None:
    who = machine.run(
        ["sh", "-c", "id -un; id -gn; pwd; echo $HOME; touch mine && rm mine"], user="ollama"
    ).stdout
    assert who.split() == ["ollama", "ollama", "/usr/share/ollama", "/usr/share/ollama"]
    assert machine.run(["touch", "/etc/x"], user="ollama", check=False).returncode == 1
    assert machine.run(["ls", "-A", "/usr/share/ollama"]).stdout == ""
    assert machine.run(["id", "-un"]).stdout == "root\n"


def test_run_passes_input_environment_folder_and_status(machine: Machine) -> None:
    done = machine.run(["sh", "-c", 'cat; pwd; echo "$VALUE" >&2; exit 7'], input="in\n", cwd="/etc",
                       env={"VALUE": "a 'b' $c"}, check=False)  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == ("in\n/etc\n", "a 'b' $c\n", 7)
    with pytest.raises(CommandError, match=r"status 3.*\n.*out\nerr"):
        machine.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    os.environ["LAB_LEAK"] = "1"
    try:
        assert "LAB_LEAK" not in machine.run(["env"]).stdout
    finally:
        del os.environ["LAB_LEAK"]


def test_commands_are_in_all_of_the_machines_namespaces_and_bounded(machine: Machine) -> None:
    kinds = ("mnt", "pid", "net", "ipc", "uts", "cgroup")
    script = f"cd /proc/self/ns && readlink {' '.join(kinds)}; readlink /proc/self/root; grep 0:: /proc/self/cgroup"
    own = [os.readlink(f"/proc/{machine.leader}/ns/{kind}") for kind in kinds]
    assert machine.run(["sh", "-c", script]).stdout.splitlines() == [*own, "/", "0::/lab"]
    bounding = f"{machine.read('/proc/1/status').split('CapBnd:')[1].split()[0]}\n"
    assert machine.run(["sh", "-c", "awk '/^CapBnd/ {print $2}' /proc/self/status"]).stdout == bounding
    assert machine.run(["date", "--set=2020-01-01"], check=False).returncode == 1  # the clock is the host's


def test_signals_reach_the_command_itself(machine: Machine) -> None:
    script = "trap 'echo interrupted; exit 4' INT; trap 'echo terminated; exit 5' TERM; echo ready; " + (
        "while :; do sleep 0.01; done"
    )
    for number, word, code in ((signal.SIGINT, "interrupted", 4), (signal.SIGTERM, "terminated", 5)):
        with machine.popen(["sh", "-c", script]) as process:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            process.send_signal(number)
            assert process.stdout.read() == f"{word}\n" and process.wait(20) == code
    with machine.popen(["sleep", "1000"]) as process:
        process.kill()
        assert process.wait(20) == -signal.SIGKILL


def test_a_command_that_takes_too_long_is_ended(machine: Machine) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        machine.run(["sleep", "4242"], timeout=0.3)
    assert machine.run(["pgrep", "-f", "sleep 4242"], check=False).returncode == 1


def test_a_command_ends_with_its_nsenter(machine: Machine) -> None:
    with machine.popen(["sleep", "1000"]) as process:
        inside = process.guest()
        assert inside is not None and machine.run(["pgrep", "-f", "sleep 1000"]).stdout
        began = kernel.started(inside)
        os.kill(process.pid, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while kernel.started(inside) == began:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_strace_kills_at_a_chosen_call(machine: Machine) -> None:
    argv = [
        "strace",
        "-f",
        "-o",
        "/run/trace",
        "-e",
        "trace=write",
        "-e",
        "inject=write:signal=SIGKILL:when=2",
    ]
    done = machine.run([*argv, "sh", "-c", "echo one; echo two; echo three"], check=False)
    assert done.stdout == "one\n" and done.returncode == -signal.SIGKILL
    assert "killed by SIGKILL" in machine.read("/run/trace")


def test_disks_can_be_full_or_read_only() -> None:
    with Machine() as machine:
        machine.run(["mount", "-t", "tmpfs", "-o", "size=64k", "small", "/srv"])
        full = machine.run(["dd", "if=/dev/zero", "of=/srv/file", "bs=4k", "count=100"], check=False)
        assert full.returncode == 1 and "No space left on device" in full.stderr
        machine.run(["mount", "--bind", "/etc", "/etc"])
        machine.run(["mount", "-o", "remount,bind,ro", "/etc"])
        refused = machine.run(["touch", "/etc/file"], check=False)
        assert refused.returncode == 1 and "Read-only file system" in refused.stderr


def test_reboot_keeps_the_disk_and_renews_the_rest() -> None:
    with Machine() as machine:
        machine.write("/etc/kept", "disk")
        machine.write("/run/lost", "memory")
        first = machine.read("/proc/sys/kernel/random/boot_id"), machine.leader
        machine.reboot()
        assert machine.read("/proc/sys/kernel/random/boot_id") != first[0] and machine.leader != first[1]
        assert machine.read("/etc/kept") == "disk"
        with pytest.raises(FileNotFoundError):
            machine.read("/run/lost")
        assert machine.run(["systemctl", "is-system-running"]).stdout == "running\n"
        assert len({entry["_BOOT_ID"] for entry in machine.journal()}) == 2


def test_refresh_shows_a_host_file_that_was_replaced(machine: Machine, tmp_path: Path) -> None:
    folder = CHECKOUT / f".lab-test-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / "file").write_text("old")
        assert machine.read(folder / "file") == "old"
        (folder / "fresh").write_text("new")
        (folder / "fresh").rename(folder / "file")
        machine.refresh()
        assert machine.read(folder / "file") == "new"
    finally:
        shutil.rmtree(folder)


def test_write_follows_links_inside_and_not_on_the_host(machine: Machine, tmp_path: Path) -> None:
    target = tmp_path / "target"
    machine.run(["mkdir", "-p", tmp_path])
    machine.run(["ln", "-s", tmp_path, "/run/link"])
    machine.write("/run/link/target", "inside", 0o600)
    assert machine.read(target) == "inside" and not target.exists()
    assert machine.run(["stat", "-c", "%a", target]).stdout == "600\n"
