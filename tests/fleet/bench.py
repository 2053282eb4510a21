"""`make bench-fleet`: the module beside Ansible's own `template` and `systemd_service`, which do the same by hand and
prove nothing. Both change the slots of three hosts and restart them, in turn; figures are of one run."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from typing import Any

from .conftest import HOME, HOSTS, TOP
from .control import Controller, tasks
from .hosts import Fleet

ROUNDS = 5
LIMIT = 1.3
DROPIN = "/etc/systemd/system/ollama.service.d/override.conf"


def by_hand(slots: int) -> list[dict[str, Any]]:
    return tasks(
        {"ansible.builtin.template": {"src": "override.conf.j2", "dest": DROPIN, "mode": "0644"}},
        {"ansible.builtin.systemd_service": {"name": "ollama", "daemon_reload": True, "state": "restarted"}},
        vars={"slots": slots},
    )


def proven(slots: int) -> list[dict[str, Any]]:
    return tasks({"ollamactl.host.config": {"parallel": str(slots)}})


def timed(controller: Controller, play: list[dict[str, Any]]) -> float:
    began = time.monotonic()
    run = controller.play(play, "--forks=3")
    took = time.monotonic() - began
    if run.code or min(run.changed.values()) == 0:
        sys.exit(run.output)
    return took


def main() -> None:
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    build = [sys.executable, TOP / "packaging/deb/build.py", "--output", HOME / "deb"]
    deb = subprocess.run(build, capture_output=True, text=True, check=True).stdout.strip()
    (HOME / "override.conf.j2").write_text('[Service]\nEnvironment="OLLAMA_NUM_PARALLEL={{ slots }}"\n')
    with Fleet(HOSTS, HOME) as fleet:
        controller = Controller(fleet, {"ollamactl_deb": deb, "ollamactl_update_cache": False})
        installed = controller.play(tasks({"include_role": {"name": "ollamactl.host.ollamactl"}}))
        if installed.code:
            sys.exit(installed.output)
        timed(controller, proven(9))  # the folder of drop-ins is there for both
        timed(controller, by_hand(9))
        times: dict[str, list[float]] = {"by hand": [], "ollamactl": []}
        for number in range(ROUNDS):
            times["by hand"].append(timed(controller, by_hand(1 + number)))
            times["ollamactl"].append(timed(controller, proven(1 + number)))
        controller.close()
    for name, row in times.items():
        print(f"{name:<12}{statistics.median(row):6.2f} s   {' '.join(f'{took:.2f}' for took in row)}")
    ratio = statistics.median(times["ollamactl"]) / statistics.median(times["by hand"])
    print(f"{'ratio':<12}{ratio:6.2f}     at most {LIMIT}")
    sys.exit(ratio > LIMIT)


if __name__ == "__main__":
    main()
