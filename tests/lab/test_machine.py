"""The lab machine is what it says: a real systemd, apart from the host, and nothing of it is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from . import kernel
from .machine import CHECKOUT, STATES, LabError, Machine, attach

pytestmark = pytest.mark.lab
PYTHON = Path(sys.executable)
PACKAGE = Machine.__module__  # "tests.lab.machine" or, as pytest imports it, "lab.machine"


def until(true: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"still not so after {seconds:g} s"
        time.sleep(0.02)


# Footprint: everything that a machine of this name, or these processes' namespaces, may leave on the host


def processes() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def family(pid: int) -> set[int]:
    """The process, its children, and theirs."""
    return {pid}.union(*(family(child) for child in kernel.children(pid)))


def of_machine(name: str) -> dict[int, str]:
    """Command lines of all processes in the machine's cgroups: its own and those that entered it.

    Namespaces live by their processes (or by mounts, which are compared); their numbers are given anew at once, so
    they say nothing where other machines come and go."""
    found = {}
    for pid in processes():
        with contextlib.suppress(OSError):
            if kernel.started(pid) and f"ollamactl-lab-{name}/" in Path(f"/proc/{pid}/cgroup").read_text():
                found[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return found


def cgroups(name: str) -> list[str]:
    return [folder for folder, _, _ in os.walk("/sys/fs/cgroup") if f"ollamactl-lab-{name}" in folder]


def links() -> list[str]:
    return sorted(os.listdir("/sys/class/net"))


class Footprint:
    """What is on the host before a machine boots; `gone` compares with it after."""

    def __init__(self) -> None:
        self.mounts = Path("/proc/self/mountinfo").read_text()
        self.links = links()

    def note(self, machine: Machine) -> None:
        """Remember what the machine has while it is up, and see that there is something to leave behind."""
        self.name = machine.name
        self.pids = {pid: kernel.started(pid) for pid in family(machine._facts["keeper"])}
        assert machine.leader in self.pids and len(self.pids) >= 6, (
            "keeper, init, nspawn, systemd, journald, dbus"
        )
        seen = of_machine(self.name)
        assert {machine.leader, machine._facts["keeper"]} <= set(seen) and len(seen) >= 6
        assert cgroups(self.name) and (STATES / self.name).is_dir()

    def processes_gone(self) -> bool:
        alive = [
            pid for pid, began in self.pids.items() if began is not None and kernel.started(pid) == began
        ]
        return not alive and not of_machine(self.name)

    def gone(self) -> None:
        assert self.processes_gone()
        self.folders_gone()

    def folders_gone(self) -> None:
        assert cgroups(self.name) == []
        assert not (STATES / self.name).exists()
        assert Path("/proc/self/mountinfo").read_text() == self.mounts
        assert links() == self.links


BUSY = "mount -t tmpfs more /srv && (sleep 1000 >/dev/null 2>&1 &) && systemd-run --quiet sleep 1000"

# A shell that starts the tests behind itself has SIGINT ignored, which children inherit.
OWNER = f"""
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from {PACKAGE} import Machine
machine = Machine(sys.argv[1])
machine.boot()
machine.run(["sh", "-c", {BUSY!r}])
working = machine.popen(["sleep", "1000"])
print("up", flush=True)
time.sleep(1000)
"""


@contextlib.contextmanager
def owner(name: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that has booted a machine and is busy in it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    argv = [PYTHON, "-c", OWNER, name]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment, cwd=CHECKOUT)
    try:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def test_nothing_is_left_after_stop() -> None:
    before = Footprint()
    with Machine() as machine:
        machine.run(["sh", "-c", BUSY])
        with machine.popen(["sleep", "1000"]) as working:
            before.note(machine)
            machine.stop()
            assert working.wait(20) == -signal.SIGKILL
    before.gone()


def test_nothing_is_left_after_an_exception() -> None:
    before = Footprint()
    with pytest.raises(ZeroDivisionError), Machine() as machine:
        before.note(machine)
        raise ZeroDivisionError
    before.gone()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_after_the_owner_was_killed(number: signal.Signals) -> None:
    before = Footprint()
    with owner(f"killed-{os.getpid()}") as process:
        before.note(attach(f"killed-{os.getpid()}"))
        process.send_signal(number)
        process.wait(20)
        until(lambda: before.processes_gone() and not (STATES / before.name).exists())
    before.gone()


def test_after_the_keeper_was_killed_all_processes_end_and_the_next_boot_sweeps() -> None:
    before = Footprint()
    with owner(f"orphan-{os.getpid()}"):
        machine = attach(f"orphan-{os.getpid()}")
        before.note(machine)
        os.kill(machine._facts["keeper"], signal.SIGKILL)
        until(before.processes_gone)
        assert (STATES / before.name).exists(), "otherwise the sweep has nothing to show"
        with pytest.raises(LabError, match="gone"):
            attach(before.name)
        with Machine():
            before.folders_gone()


def test_nothing_is_left_after_a_boot_that_failed() -> None:
    before = Footprint()
    machine = Machine(nspawn=["--no-such-option"])
    with pytest.raises(LabError, match="no-such-option"):
        machine.boot()
    before.name = machine.name
    before.folders_gone()


# What is inside


def test_boots_a_minimal_target_and_nothing_of_the_host(machine: Machine) -> None:
    assert machine.run(["systemctl", "is-system-running"]).stdout == "running\n"
    assert machine.run(["systemctl", "get-default"]).stdout == "lab.target\n"
    with Machine() as fresh:
        units = json.loads(fresh.run(["systemctl", "list-units", "--output=json"]).stdout)
        active = {
            unit["unit"]
            for unit in units
            if unit["unit"].endswith((".service", ".socket", ".timer", ".path"))
        }
        names = fresh.run(["ps", "-e", "--no-headers", "-o", "comm"]).stdout.split()
    assert active == {
        *("systemd-journald.service", "systemd-journal-flush.service", "dbus.service"),
        *("dbus.socket", "systemd-journald.socket", "systemd-journald-dev-log.socket"),
    }
    assert sorted(names) == ["dbus-daemon", "ps", "systemd", "systemd-journal"]


def test_has_an_identity_of_its_own(machine: Machine) -> None:
    assert machine.run(["hostname"]).stdout == "lab\n" and socket.gethostname() != "lab"
    own = machine.read("/etc/machine-id")
    assert len(own.strip()) == 32 and own != Path("/etc/machine-id").read_text()
    assert machine.journal()[0]["_MACHINE_ID"] == own.strip()
    assert machine.read("/proc/1/comm") == "systemd\n"


def test_network_is_loopback_alone(machine: Machine) -> None:
    interfaces = json.loads(machine.run(["ip", "-json", "address"]).stdout)
    assert [row["ifname"] for row in interfaces] == ["lo"]
    assert "127.0.0.1" in {address["local"] for address in interfaces[0]["addr_info"]}
    assert machine.run(["ip", "route"]).stdout == ""


CONNECT = """
import socket, sys
for family, address in ((socket.AF_INET, ("127.0.0.1", int(sys.argv[1]))), (socket.AF_UNIX, sys.argv[2]),
                        (socket.AF_UNIX, chr(0) + sys.argv[3])):
    try:
        socket.socket(family).connect(address)
        print("connected")
    except OSError as problem:
        print(problem.strerror)
"""


def test_the_hosts_sockets_are_out_of_reach(machine: Machine) -> None:
    with (
        tempfile.TemporaryDirectory(dir=CHECKOUT, prefix=".lab-test-") as folder,
        contextlib.ExitStack() as open_,
    ):
        inet = open_.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract = f"lab-test-{os.getpid()}"
        for address in (f"{folder}/socket", f"\0{abstract}"):
            unix = open_.enter_context(socket.socket(socket.AF_UNIX))
            unix.bind(address)
            unix.listen()
        argv = ["/usr/bin/python3", "-c", CONNECT, str(inet.getsockname()[1]), f"{folder}/socket", abstract]
        assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == "connected\n" * 3
        assert Path(f"{folder}/socket").is_socket() and machine.run(["test", "-S", f"{folder}/socket"])
        assert machine.run(argv).stdout == "Connection refused\n" * 3


def test_the_checkout_and_its_interpreter_work_inside_and_are_never_changed() -> None:
    project = CHECKOUT / "pyproject.toml"
    original = project.read_text()
    with Machine() as machine:
        script = "import ollamactl, sys; print(sys.prefix, ollamactl.__file__)"
        seen = machine.run([PYTHON, "-c", script], cwd=CHECKOUT).stdout.split()
        assert seen == [sys.prefix, str(CHECKOUT / "ollamactl/__init__.py")]
        machine.write(project, "changed\n")
        assert machine.read(project) == "changed\n"
        machine.run(["rm", "-r", CHECKOUT / "ollamactl", "/etc/passwd"])
        machine.write("/etc/systemd/system/lab-test.service", "[Service]\nExecStart=true\n")
    assert project.read_text() == original
    assert (CHECKOUT / "ollamactl").is_dir() and Path("/etc/passwd").exists()
    assert not Path("/etc/systemd/system/lab-test.service").exists()


def test_folders_on_other_filesystems_and_in_tmp_can_be_shared(tmp_path: Path) -> None:
    """A checkout may lie in /tmp or on a filesystem of its own; the machine has a fresh /tmp."""
    (tmp_path / "a, b:c").mkdir()
    (tmp_path / "a, b:c/file").write_text("host")
    with Machine(share=[tmp_path / "a, b:c"]) as machine:
        assert machine.run(["ls", tmp_path]).stdout == "a, b:c\n"
        assert machine.read(tmp_path / "a, b:c/file") == "host"
        machine.write(tmp_path / "a, b:c/file", "lab")
        assert machine.read(tmp_path / "a, b:c/file") == "lab"
    assert (tmp_path / "a, b:c/file").read_text() == "host"


def test_machines_are_apart_and_names_are_taken_once() -> None:
    with Machine() as one, Machine() as other:
        one.write("/run/only-here", "")
        assert other.run(["test", "-e", "/run/only-here"], check=False).returncode == 1
        assert one.read("/etc/machine-id") != other.read("/etc/machine-id")
        with pytest.raises(LabError, match="is up already"):
            Machine(one.name).boot()
        assert one.run(["true"]).returncode == 0


def test_boots_inside_itself_where_systemd_runs_the_host() -> None:
    """The machine is a host run by systemd with cgroup v2, and with a filesystem of its own below the root."""
    lab = [PYTHON, "-m", PACKAGE]
    folders = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with Machine() as outer:
        outer.run(["sh", "-c", "mount -t tmpfs -o mode=0750 own /srv; echo host >/srv/file"])
        mounts = outer.read("/proc/1/mountinfo")
        outer.run([*lab, "boot", "inner"], cwd=CHECKOUT, env=folders)
        scope = "ollamactl-lab-inner.scope"
        assert outer.run(["systemctl", "is-active", scope]).stdout == "active\n"
        script = "cat /srv/file; echo x >/srv/file; stat -c %a /srv; systemctl is-system-running; echo $1 >&2; exit 3"
        inner = outer.run([*lab, "run", "inner", "--", "sh", "-c", script, "sh", "x y"], cwd=CHECKOUT, env=folders,
                          check=False)  # fmt: skip
        assert (inner.stdout, inner.stderr, inner.returncode) == ("host\n750\nrunning\n", "x y\n", 3)
        again = outer.run([*lab, "boot", "inner"], cwd=CHECKOUT, env=folders, check=False)
        assert again.returncode == 5 and "up already" in again.stderr
        outer.run([*lab, "stop", "inner"], cwd=CHECKOUT, env=folders)
        assert outer.read("/srv/file") == "host\n" and outer.read("/proc/1/mountinfo") == mounts
        assert outer.run(["ls", STATES]).stdout == ""
        until(lambda: scope not in outer.run(["systemctl", "list-units", "--all", scope]).stdout)
        assert "inner" not in outer.run(["find", "/sys/fs/cgroup", "-type", "d"]).stdout


def test_left_out_with_one_line_or_required() -> None:
    """Where systemd-nspawn is missing (it is removed inside a machine) the lab's tests are left out and it is said."""
    argv = [PYTHON, "-m", "pytest", "-p", "no:cacheprovider", Path(__file__).with_name("test_inside.py")]
    with Machine() as machine:
        machine.run(["rm", "/usr/bin/systemd-nspawn"])
        left_out = machine.run(argv, cwd=CHECKOUT, check=False)
        lines = [line for line in left_out.stdout.splitlines() if "left out: " in line]
        assert len(lines) == 1 and "apt-get install systemd-container" in lines[0], left_out.stdout
        assert left_out.returncode == 5 and " passed" not in left_out.stdout  # pytest: nothing was run
        argv += ["-k", "user_of_the_service"]
        required = machine.run(argv, cwd=CHECKOUT, check=False, env={"OLLAMACTL_LAB": "required"})
        assert required.returncode == 1 and "OLLAMACTL_LAB=required, but the lab needs" in required.stdout
