"""apply beside the same steps by hand, an apply that changes nothing, and --help beside an import of click."""

from __future__ import annotations

import json
import subprocess
import sys
import time

from tests.bench.figures import figure, goal, median
from tests.lab import ollama
from tests.lab.machine import Machine

RUNS = 10
# What a person does: write the drop-in, reload, restart, wait for an answer, load the model. One process, so that
# no start of a shell or of curl is counted against it.
BY_HAND = """
import http.client, json, subprocess, sys, time
slots = sys.argv[1]
began = time.monotonic()
folder = "/etc/systemd/system/ollama.service.d"
subprocess.run(["mkdir", "-p", folder], check=True)
with open(f"{folder}/zz-ollamactl.conf", "w") as f:
    f.write(f'[Service]\\nEnvironment="OLLAMA_NUM_PARALLEL={slots}"\\n')
subprocess.run(["systemctl", "daemon-reload"], check=True)
subprocess.run(["systemctl", "restart", "ollama"], check=True)
while True:
    try:
        c = http.client.HTTPConnection("127.0.0.1", 11434)
        c.request("GET", "/api/version")
        if c.getresponse().status == 200:
            break
    except OSError:
        time.sleep(0.01)
c = http.client.HTTPConnection("127.0.0.1", 11434)
c.request("POST", "/api/generate", json.dumps({"model": "gemma3:270m", "stream": False}))
assert c.getresponse().status == 200
print(time.monotonic() - began)
"""
TIMED = """
import subprocess, sys, time
began = time.monotonic()
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(time.monotonic() - began)
sys.exit(done.returncode)
"""


def _seconds(machine: Machine, code: str, *args: str) -> float:
    return float(machine.run([sys.executable, "-c", code, *args], timeout=180).stdout.strip().splitlines()[-1])


def _help() -> bool:
    programs = ([sys.executable, "-c", "import click"], [*ollama.OLLAMACTL, "--help"])
    taken: list[list[float]] = [[], []]
    for _ in range(20):
        for at, argv in enumerate(programs):
            began = time.monotonic()
            subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
            taken[at].append(time.monotonic() - began)
    figure("python -c 'import click'", median(taken[0]), "s")
    figure("ollamactl --help", median(taken[1]), "s")
    return goal("ollamactl --help, times an import of click", median(taken[1]) / median(taken[0]), 3.0, "×")


def main() -> int:
    hand: list[float] = []
    ours: list[float] = []
    same: list[float] = []
    with Machine() as machine:
        ollama.setup(machine)
        ollama.api(machine, "/api/generate", {"model": ollama.CHAT})
        for run in range(RUNS):
            hand.append(_seconds(machine, BY_HAND, str(2 + run % 2)))
            ours.append(_seconds(machine, TIMED, *ollama.OLLAMACTL, "apply", "--parallel", str(3 - run % 2)))
            same.append(_seconds(machine, TIMED, *ollama.OLLAMACTL, "apply", "--parallel", str(3 - run % 2)))
        last = json.loads(machine.run([*ollama.OLLAMACTL, "verify", "--json"]).stdout)
        assert last["exit_code"] == 0, last
    figure("by hand: drop-in, reload, restart, first load", median(hand), "s")
    figure("ollamactl apply: the same, proven", median(ours), "s")
    extra = median([o - h for o, h in zip(ours, hand, strict=True)])
    missed = goal("what apply takes beyond it (median of the pairs)", extra, 0.5, "s")
    ratio = median([o / h for o, h in zip(ours, hand, strict=True)])
    figure("ratio (aim 1.25)", ratio, "×")
    missed |= goal("an apply that changes nothing", median(same), 0.5, "s")
    missed |= _help()
    return int(missed)
