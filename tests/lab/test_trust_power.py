"""A power loss at every call by which a change touches the disk: what was not synced may be gone. After the boot and
one `recover` the host is all old or all new."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.lab import ollama
from tests.lab.test_trust_kill import prepared
from tests.lab.trust import strace
from tests.lab.trust.host import UNIT
from tests.lab.trust.kill import OURS, Victim
from tests.lab.trust.strace import Disk, Tree

pytestmark = pytest.mark.lab
# A drop-in that is new, and a folder with a file for a secret.
APPLY = ("apply", "--parallel", "3", "--set", "OLLAMA_ORIGINS=@/root/origins", "--json")
ROLLBACK = ("rollback", "--json")


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
def test_a_power_loss_leaves_all_old_or_all_new() -> None:
    with Victim() as one, Victim() as two:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(prepared, (one, two)))
        for victim in (one, two):  # the files that are put there are root's
            victim.machine.run(["chown", "root:root", UNIT])
        old = one.state()
        found, new = outcomes(one, *APPLY)
        back, again = outcomes(one, *ROLLBACK)
        assert again == old != new
        todo = list((found | back).values())
        for states in (found, back):
            for path in (OURS, "/etc/ollamactl/ollama.service.env", "/var/lib/ollamactl/open.json"):
                assert len({tree.get(path) for _, tree in states.values()}) > 1, path  # there, and lost
        with ThreadPoolExecutor(2) as pool:
            wrong = list(pool.map(lambda n: endure((one, two)[n], (old, new), todo[n::2]), range(2)))
        print(f"{len(todo)} states of the disk")
        assert not [w for ws in wrong for w in ws], "\n".join(w for ws in wrong for w in ws)
