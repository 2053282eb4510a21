"""A change that is cut off: by SIGKILL at every call by which it touches the host, and by a power loss at each, when
what was not synced may be gone. After one `recover` the host is all old or all new."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from tests.lab import ollama
from tests.lab.trust import strace
from tests.lab.trust.host import UNIT
from tests.lab.trust.kill import OURS, Victim
from tests.lab.trust.strace import Call, Disk, Tree

pytestmark = pytest.mark.lab
# All kinds of files: a drop-in that is new, an environment file for a secret, lines taken out of an admin's file.
APPLY = ("apply", "--parallel", "3", "--set", "OLLAMA_ORIGINS=@/root/origins", "--adopt", "--json")
ROLLBACK, RECOVER = ("rollback", "1", "--json"), ("recover", "--json")
KINDS = {"apply": APPLY, "rollback": ROLLBACK, "recover": RECOVER}
# Without lines of others: the files that a replayed disk puts there are root's.
PLAIN, BACK = tuple(a for a in APPLY if a != "--adopt"), ("rollback", "--json")
TRIES = 3
MACHINES = 3  # more than cores: each waits for restarts much of its time


def prepared(victim: Victim) -> None:
    """A unit that an admin has edited, and an apply and its rollback done once: folders are there."""
    machine = victim.machine
    text = machine.read(UNIT).replace("[Service]\n", '[Service]\nEnvironment="OLLAMA_KEEP_ALIVE=7m"\n', 1)
    machine.write(UNIT, text, 0o640)
    machine.write("/root/origins", "https://chat.example")
    machine.run(["bash", "-c", f"chown :adm {UNIT}; systemctl daemon-reload; systemctl restart ollama"])
    ollama.wait_answer(machine)
    for args in (APPLY, ROLLBACK):
        done = victim.ctl(*args)
        assert done.returncode == 0, done.stdout


@dataclass
class Sweep:
    """Kills a command on one machine, each time before another call."""

    kind: str
    victim: Victim
    hosts: Hosts
    at: str = ""  # the state that is known, empty after a kill
    wrong: list[str] = field(default_factory=list)
    killed: int = 0

    def run(self, calls: list[Call]) -> None:
        for call in calls:
            for _ in range(TRIES):
                self._stand()
                said = self.victim.kill(self.hosts.half, *APPLY) if self.kind == "recover" else ""
                said = said or self.victim.kill(call, *KINDS[self.kind])
                self.at = ""
                if not said:
                    self.killed += 1
                    self._judge(f"killed before {call.text}")
                    break
            else:
                self.wrong.append(f"could not be killed before {call.text}: {said}")

    def _stand(self) -> None:
        """The host in the state that the command is to be killed in."""
        old, new = self.hosts.old, self.hosts.new
        wanted = new if self.kind == "rollback" else old
        if self.at not in (old, new):
            self.at = self.victim.recover()[1]
        if self.at != wanted:
            done = self.victim.ctl(*(APPLY if wanted == new else ROLLBACK))
            assert done.returncode == 0, done.stdout
            self.at = self.victim.state()
            assert self.at == wanted

    def _judge(self, what: str) -> None:
        done, self.at = self.victim.recover()
        if done["exit_code"] != 0 or self.at not in (self.hosts.old, self.hosts.new):
            self.wrong.append(f"{what}: {self.at}, recover {done}")


class Hosts:
    """Machines that are alike, the two states of theirs, and the points of each command."""

    def __init__(self, victims: list[Victim]) -> None:
        self.victims = victims
        with ThreadPoolExecutor(MACHINES) as pool:
            list(pool.map(prepared, victims))
        one = victims[0]
        self.old = one.state()
        self.points = {"apply": strace.points(one.trace(*APPLY))}
        self.new = one.state()
        self.points["rollback"] = strace.points(one.trace(*ROLLBACK))
        assert one.state() == self.old != self.new
        calls = self.points["apply"]
        self.half = next(c for before, c in pairwise(calls) if "RestartUnit" in before.text)
        assert one.kill(self.half, *APPLY) == ""
        self.points["recover"] = strace.points(one.trace(*RECOVER))
        assert one.state() == self.old


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with ExitStack() as stack, ThreadPoolExecutor(MACHINES) as pool:
        yield Hosts(list(pool.map(lambda _: stack.enter_context(Victim()), range(MACHINES))))


@pytest.mark.timeout(1200)  # of a machine with much else to do
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_kill_at_any_call_leaves_all_old_or_all_new(hosts: Hosts, kind: str) -> None:
    assert "value= serves=yes" in hosts.old and "value=3 serves=yes" in hosts.new
    calls = hosts.points[kind]
    named = {call.text for call in calls}
    parts = ("RestartUnit", "Reload", "open.json", "history", "zz-ollamactl.conf", ".env", UNIT, "fchown", "rename")
    for what in parts:
        assert any(what in text for text in named), f"{what} is not among {sorted(named)}"
    sweeps = [Sweep(kind, victim, hosts) for victim in hosts.victims]
    with ThreadPoolExecutor(MACHINES) as pool:
        list(pool.map(lambda n: sweeps[n].run(calls[n::MACHINES]), range(MACHINES)))
    wrong = [w for s in sweeps for w in s.wrong]
    print(f"{kind}: {len(calls)} points")
    assert not wrong, "\n".join(wrong)
    assert sum(s.killed for s in sweeps) == len(calls)


def outcomes(victim: Victim, *args: str) -> tuple[dict[object, tuple[str, Tree]], str]:
    """Everything that a loss during a change may leave, each once with the call before which it happened; and the
    state after the change."""
    disk = Disk(victim.tree())
    found: dict[object, tuple[str, Tree]] = {}
    for call in victim.trace(*args):
        if call.ours:
            for tree in (*disk.losses(), disk.whole()):
                found.setdefault(strace.normal(tree), (call.text, tree))
            disk.do(call)
    after = disk.whole()
    now = {p: v for p, v in victim.tree().items() if not p.endswith("/lock")}
    replayed = {p: v for p, v in after.items() if p in now}
    assert {p: v[2] for p, v in replayed.items() if v[0] == "file"} == {
        p: v[2] for p, v in now.items() if v[0] == "file"
    }
    return found, victim.state()


def endure(victim: Victim, well: tuple[str, str], todo: list[tuple[str, Tree]]) -> list[str]:
    wrong = []
    for text, tree in todo:
        victim.boot_with(tree)
        ollama.wait_answer(victim.machine)
        done, at = victim.recover()
        if done["exit_code"] != 0 or at not in well:
            wrong.append(f"power lost before {text}: {at}, recover {done}")
    return wrong


@pytest.mark.timeout(1200)  # of a machine with much else to do
def test_a_power_loss_leaves_all_old_or_all_new(hosts: Hosts) -> None:
    one = hosts.victims[0]
    for victim in hosts.victims:
        victim.machine.run(["chown", "root:root", UNIT])
    old = one.state()
    found, new = outcomes(one, *PLAIN)
    back, again = outcomes(one, *BACK)
    assert again == old != new
    todo = list((found | back).values())
    for states in (found, back):
        for path in (OURS, "/etc/ollamactl/ollama.service.env", "/var/lib/ollamactl/open.json"):
            assert len({tree.get(path) for _, tree in states.values()}) > 1, path  # there, and lost
    with ThreadPoolExecutor(MACHINES) as pool:
        parts = range(MACHINES)
        wrong = pool.map(lambda n: endure(hosts.victims[n], (old, new), todo[n::MACHINES]), parts)
        said = [w for ws in wrong for w in ws]
    print(f"{len(todo)} states of the disk")
    assert not said, "\n".join(said)
