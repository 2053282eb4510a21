"""`apply --adopt`: an admin's lines move into our drop-in, nothing is restarted, and it can be taken back."""

from __future__ import annotations

import pytest

from tests.lab import ollama
from tests.lab.machine import Machine
from tests.lab.ollama import ctl, ctl_json
from tests.lab.service import DROPINS, OURS, environ, etc, invocation
from tests.lab.trust.host import UNIT as MAIN
from tests.lab.trust.host import clean, exists

pytestmark = pytest.mark.lab
OVERRIDE = f"{DROPINS}/override.conf"


@pytest.fixture
def lab(serving: Machine) -> Machine:
    """The unit as an admin may have edited it, running."""
    clean(serving, edited)
    return serving


def edited(machine: Machine) -> None:
    text = machine.read(MAIN).replace("[Service]\n", '[Service]\nEnvironment="OLLAMA_KEEP_ALIVE=7m"\n', 1)
    machine.write(MAIN, text, 0o640)
    machine.run(["chown", ":adm", MAIN])
    own = '[Service]\n# site\nEnvironment="OLLAMA_NUM_PARALLEL=2" "SITE=a b"\nEnvironment=OLLAMA_NUM_PARALEL=3\n'
    machine.write(OVERRIDE, own)


def test_lines_move_and_come_back(lab: Machine) -> None:
    before, process, was = etc(lab), environ(lab), invocation(lab)
    owner = lab.run(["stat", "-c", "%a %U:%G", MAIN]).stdout
    done = ctl_json(lab, "apply", "--adopt")
    assert (done["exit_code"], done["status"]) == (0, "applied"), done
    assert any("OLLAMA_NUM_PARALEL stays" in x["text"] for x in done["data"]["lints"])
    assert lab.read(MAIN) == lab.read("/root/installed/ollama.service")
    assert lab.read(OVERRIDE) == '[Service]\n# site\nEnvironment="SITE=a b"\nEnvironment=OLLAMA_NUM_PARALEL=3\n'
    assert lab.run(["stat", "-c", "%a %U:%G", MAIN]).stdout == owner
    assert 'Environment="OLLAMA_KEEP_ALIVE=7m"' in lab.read(OURS)
    # The service is passed what it was passed before, so it was not restarted, and a restart changes nothing.
    assert invocation(lab) == was and not done["data"]["restarted"]
    lab.run(["systemctl", "restart", "ollama"])
    ollama.wait_answer(lab)
    ids = ("INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID")
    assert {k: v for k, v in environ(lab).items() if k not in ids} == {
        k: v for k, v in process.items() if k not in ids
    }
    again = ctl_json(lab, "apply", "--adopt")
    assert (again["exit_code"], again["status"]) == (0, "unchanged"), again
    assert ctl_json(lab, "rollback")["exit_code"] == 0
    assert etc(lab) == before
    assert lab.run(["stat", "-c", "%a %U:%G", MAIN]).stdout == owner


def label(machine: Machine, path: str, new: str = "") -> str:
    """The security label of a file, which is given a `new` one before."""
    give = f"os.setxattr({path!r}, 'security.selinux', {new.encode()!r})" if new else "pass"
    show = f"print(os.getxattr({path!r}, 'security.selinux').decode())"
    return str(machine.run(["/usr/bin/python3", "-I", "-c", f"import os\n{give}\n{show}"]).stdout.strip())


def test_labels_stay_and_come_back(lab: Machine) -> None:
    given = "system_u:object_r:lab_unit_t:s0"
    assert label(lab, MAIN, given) == label(lab, OVERRIDE, given) == given
    assert ctl(lab, "apply", "--adopt").returncode == 0
    assert "OLLAMA_KEEP_ALIVE" not in lab.read(MAIN)
    assert label(lab, MAIN) == label(lab, OVERRIDE) == given
    lab.run(["cp", "--remove-destination", MAIN, f"{MAIN}.new"])  # without its label
    lab.run(["mv", f"{MAIN}.new", MAIN])
    assert ctl(lab, "rollback").returncode == 0
    assert "OLLAMA_KEEP_ALIVE" in lab.read(MAIN)
    assert label(lab, MAIN) == label(lab, OVERRIDE) == given


def test_a_change_with_it_that_fails_leaves_every_byte(lab: Machine) -> None:
    before = etc(lab)
    done = ctl_json(lab, "apply", "--adopt", "--parallel", "3", "--model", ollama.FORCED)
    assert done["exit_code"] == 3, done
    assert etc(lab) == before
    assert environ(lab)["OLLAMA_NUM_PARALLEL"] == "2"


def test_an_edit_that_ours_shadows_is_reported_and_not_fought(lab: Machine) -> None:
    assert ctl(lab, "apply", "--adopt").returncode == 0
    lab.write(OVERRIDE, '[Service]\nEnvironment="OLLAMA_NUM_PARALLEL=8"\n')
    lab.run(["systemctl", "daemon-reload"])
    seen = ctl_json(lab, "verify")
    assert "OLLAMA_NUM_PARALLEL" not in [m["name"] for m in seen["data"]["mismatches"]], seen
    notes = [n for n in seen["data"]["notes"] if f"{OVERRIDE}:2" in n]
    assert len(notes) == 1 and "OLLAMA_NUM_PARALLEL=8" in notes[0] and "--release" in notes[0]
    assert "OLLAMA_NUM_PARALLEL=8" in lab.read(OVERRIDE)


def test_a_rollback_goes_back_behind_all_later_changes(lab: Machine) -> None:
    before, main, override = etc(lab), lab.read(MAIN), lab.read(OVERRIDE)
    for args in (["--parallel", "3"], ["--adopt"], ["--max-queue", "9"]):
        assert ctl(lab, "apply", *args).returncode == 0
    assert "OLLAMA_KEEP_ALIVE" not in lab.read(MAIN)
    done = ctl_json(lab, "rollback", "1")
    assert done["exit_code"] == 0, done
    assert etc(lab) == before
    changes = {c["name"]: (c["now"], c["new"]) for c in done["data"]["changes"]}
    assert changes["OLLAMA_KEEP_ALIVE"] == ("7m0s", "7m0s") and changes["OLLAMA_NUM_PARALLEL"] == ("3", "2")
    assert ctl_json(lab, "rollback")["exit_code"] == 0  # of the rollback
    assert (lab.read(MAIN), lab.read(OVERRIDE)) != (main, override) and "OLLAMA_MAX_QUEUE=9" in lab.read(OURS)
    shown = ctl(lab, "history", "2").stdout
    assert '-Environment="OLLAMA_KEEP_ALIVE=7m"' in shown and MAIN in shown
    assert ctl(lab, "reset").returncode == 0  # puts the lines back too
    assert etc(lab) == before


def test_what_was_edited_since_is_never_written_over(lab: Machine) -> None:
    assert ctl(lab, "apply", "--adopt").returncode == 0
    upgraded = lab.read(MAIN) + "# a new release\n"
    lab.write(MAIN, upgraded)
    lab.run(["systemctl", "daemon-reload"])
    refused = ctl_json(lab, "rollback")
    assert (refused["exit_code"], refused["errors"][0]["id"]) == (6, "changed_by_others"), refused
    assert MAIN in refused["errors"][0]["text"] and exists(lab, OURS)
    done = ctl_json(lab, "reset")
    assert done["exit_code"] == 0, done
    [said] = [x["text"] for x in done["data"]["lints"] if x["id"] == "changed_by_others"]
    assert MAIN in said and "OLLAMA_KEEP_ALIVE=7m" in said
    assert lab.read(MAIN) == upgraded and "OLLAMA_NUM_PARALLEL=2" in lab.read(OVERRIDE) and not exists(lab, OURS)
    # Taken over once more, from what stands there now, and put back to that.
    lab.write(MAIN, upgraded.replace("[Service]\n", "[Service]\nEnvironment=OLLAMA_KEEP_ALIVE=8m\n", 1))
    lab.run(["systemctl", "daemon-reload"])
    now = etc(lab)
    assert ctl(lab, "apply", "--adopt").returncode == 0
    assert 'Environment="OLLAMA_KEEP_ALIVE=8m"' in lab.read(OURS)
    assert ctl(lab, "reset").returncode == 0
    assert etc(lab) == now
