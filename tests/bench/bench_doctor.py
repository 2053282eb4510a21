"""doctor on the lab beside the sum of its raw readings, and on a journal of a million lines beside journalctl."""

# ruff: noqa: E501 - lines of logs and shells
from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.figures import figure, goal, median
from tests.lab import ollama
from tests.lab.machine import Machine

RUNS = 5
LINES = 1_000_000
READINGS = """
import time
from ollamactl.core.feeds import FEEDS, Collector
from ollamactl.core.facts import Facts
from ollamactl.host.live import LiveHost
class Timed:
    def __init__(self): self.host, self.seconds = LiveHost(), 0.0
    def read(self, source):
        began = time.monotonic(); r = self.host.read(source); self.seconds += time.monotonic() - began; return r
h = Timed()
Collector(h).facts(tuple(f for f in FEEDS if f in Facts.__struct_fields__))
print(h.seconds)
"""


def main() -> bool:
    return any([_live(), _long()])


def _live() -> bool:
    with Machine() as machine:
        ollama.setup(machine)
        ollama.api(machine, "/api/generate", {"model": ollama.CHAT, "prompt": "hi", "stream": False, "options": {"num_predict": 2}})
        whole, readings = [], []
        for _ in range(RUNS):
            done = json.loads(machine.run([*ollama.OLLAMACTL, "doctor", "--json"], timeout=60).stdout)
            whole.append(float(done["data"]["seconds"]))
            readings.append(float(machine.run([sys.executable, "-c", READINGS], timeout=60).stdout))
    one, raw = median(whole), median(readings)
    figure("the readings that doctor needs, alone", raw, "s")
    missed = goal("doctor on the lab", one, 1.0, "s")
    return goal("doctor, as a multiple of its readings", one / max(raw, 0.001), 1.5) or missed


def _long() -> bool:
    """A journal of a million lines of a busy server, as `journalctl -o json` prints it, read from a file."""
    row = {"_PID": "5", "SYSLOG_IDENTIFIER": "ollama", "_SYSTEMD_UNIT": "ollama.service", "_TRANSPORT": "stdout"}
    say = "slot print_timing: id  0 | task 0 |       total time =     181.70 ms /    20 tokens"
    access = '[GIN] 2026/05/04 - 10:00:00 | 200 |  1.26s |       127.0.0.1 | POST     "/api/generate"'
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        for n in range(LINES):
            text = access if n % 40 == 0 else say
            file.write(json.dumps(row | {"MESSAGE": text, "__REALTIME_TIMESTAMP": str(1796007400000000 + n * 1000)}) + "\n")
        file.flush()
        size = Path(file.name).stat().st_size
        began = time.monotonic()
        subprocess.run(["cat", file.name], stdout=subprocess.DEVNULL, check=True)
        floor = time.monotonic() - began
        began = time.monotonic()
        subprocess.run([*ollama.OLLAMACTL, "doctor", "--from", file.name, "--json"], stdout=subprocess.DEVNULL)
        took = time.monotonic() - began
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    figure("size of a journal of a million lines", size / (1 << 20), "MiB")
    figure("copying it", floor, "s")
    figure("doctor --from it", took, "s")
    return goal("memory at most", peak, 200, "MiB")
