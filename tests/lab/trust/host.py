"""Things that happen to a host while it is changed, and what has to be true afterwards."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from tests.lab import ollama
from tests.lab.machine import Machine, Process
from tests.lab.service import DROPINS, OURS, environ_without_ids, etc

UNIT = "/etc/systemd/system/ollama.service"
PACKAGED = "/usr/lib/systemd/system/ollama.service"
GATE = "/run/load-gate"
FOREIGN = ("--override", "foreign_variable")  # for the stand-in's switches, which are no settings of Ollama

LEARNT = ("loads.jsonl", "measured.jsonl", "vocabularies.json")  # of earlier changes, for later plans

SLOW = ("--set", f"STANDIN_LOAD_GATE={GATE}", *FOREIGN, "--model", ollama.TINY)


def clean(machine: Machine, edit: Callable[[Machine], object] = lambda machine: None) -> None:
    """Nothing set, nothing open, all units as they were installed, serving: whatever the test before has left. With
    `edit` done to its files before it is started."""
    script = f"""
for at in {DROPINS} /var/lib/ollamactl /etc/systemd; do umount $at 2>/dev/null; done
[ -S /run/systemd/private ] || mv /run/systemd/private.away /run/systemd/private
systemctl stop 'ollama*' 2>/dev/null
[ -e /root/installed ] || cp -a /etc/systemd/system /root/installed
rm -rf /etc/systemd/system /etc/ollamactl /etc/default/ollama /var/lib/ollamactl {PACKAGED} {GATE}
cp -a /root/installed /etc/systemd/system
"""
    machine.run(["bash", "-c", script])
    edit(machine)
    machine.run(["bash", "-c", "systemctl daemon-reload; systemctl reset-failed; systemctl start ollama"])
    ollama.wait_answer(machine)


class Before:
    """The host as it was."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.etc, self.values = etc(machine), environ_without_ids(machine)

    def holds(self) -> None:
        """Files and the process's environment are as they were, nothing is open, and the server answers."""
        assert etc(self.machine) == self.etc
        assert set(self.machine.run(["ls", "-A", "/var/lib/ollamactl"]).stdout.split()) <= {"history", "lock", *LEARNT}
        ollama.wait_answer(self.machine)
        assert environ_without_ids(self.machine) == self.values


def started(machine: Machine, *args: str, before: list[str] | None = None) -> Process:
    return machine.popen([*(before or []), *ollama.OLLAMACTL, *args, "--json"])


def ended(process: Process) -> dict[str, Any]:
    """The envelope of a command that was started."""
    out, errors = process.communicate(timeout=120)
    assert out, errors
    shown: dict[str, Any] = json.loads(out)
    return shown


def until(true: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def exists(machine: Machine, path: str) -> bool:
    return machine.run(["test", "-e", path], check=False).returncode == 0


def between_write_and_reload(machine: Machine, do: Callable[[], None], *args: str) -> dict[str, Any]:
    """An apply that stands still once its drop-in is in place, before systemd is told; `do` happens meanwhile."""
    stop = "inject=renameat:signal=SIGSTOP:when=3"  # the journal, the unit for the next boot, the drop-in
    process = started(machine, *args, before=["strace", "-qq", "-o", "/dev/null", "-e", "trace=renameat", "-e", stop])
    state = ["bash", "-c", "ps -C ollamactl -o stat=,pid= | grep ^[Tt]"]

    def stands() -> bool:
        return exists(machine, OURS) and machine.run(state, check=False).returncode == 0

    until(lambda: stands() or process.poll() is not None)
    do()
    machine.run(["pkill", "-CONT", "-x", "ollamactl"], check=False)
    return ended(process)


def while_loading(machine: Machine, do: Callable[[], None], *args: str) -> dict[str, Any]:
    """An apply whose model does not load before `do` has happened, once the new server has begun to load it."""
    process = loading(machine, *args)
    do()
    machine.run(["touch", GATE])
    return ended(process)


def loading(machine: Machine, *args: str, before: list[str] | None = None) -> Process:
    """An apply that waits for its model, which loads once GATE is there."""
    process = started(machine, *args, *SLOW, before=before)
    until(lambda: loads(machine) or process.poll() is not None)
    return process


def loads(machine: Machine) -> bool:
    """Whether the new server loads a model that waits for GATE."""
    script = (
        "for p in $(pgrep -x llama-server); do tr '\\0' '\\n' </proc/$p/environ; done | grep -q ^STANDIN_LOAD_GATE="
    )
    return machine.run(["bash", "-c", script], check=False).returncode == 0
