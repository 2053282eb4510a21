"""doctor on the lab beside the sum of its raw readings, and on a journal of a million lines beside journalctl.

The journal is a real one: journald writes it, in the lab, from what a unit's process prints; the lines are those of a
recorded server at work, over and over. Processor seconds stand beside the wall's: on a busy machine only they compare.
"""

# ruff: noqa: E501 - lines of logs and shells
from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path
from typing import NamedTuple

from tests.bench.figures import figure, goal, median
from tests.lab import ollama
from tests.lab.machine import Machine

RUNS = 5
LONG_RUNS = 2
LINES = int(os.environ.get("BENCH_LINES", "1000000"))  # fewer for a look
RECORDED = Path(__file__).parents[1] / "data" / "logs" / "recorded" / "05a-parallel4-8conc.jsonl.gz"
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
# A command's wall seconds, its processor seconds with those of what it started, and the largest resident size.
MEASURED = """
import json, os, resource, subprocess, sys, time
began = time.monotonic()
done = subprocess.run(["bash", "-o", "pipefail", "-c", sys.argv[1]], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
took, used = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([took, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, done.returncode, done.stdout.decode()]))
"""
# Prints the lines of a file over and over, as fast as journald takes them.
CHATTER = """#!/usr/bin/python3
import sys
lines = open("/var/tmp/lines", "rb").read().splitlines(keepends=True)
left = int(sys.argv[1])
while left > 0:
    some = lines[:left]
    sys.stdout.buffer.write(b"".join(some))
    left -= len(some)
sys.stdout.buffer.flush()
"""
DROP_IN = """[Service]
ExecStartPost=/usr/bin/python3 /var/tmp/chatter {lines}
LogRateLimitIntervalSec=0
TimeoutStartSec=1800
"""
JOURNALD = ("SystemMaxUse=3G", "SystemKeepFree=64M", "SystemMaxFileSize=512M", "SystemMaxFiles=1000")


class Taken(NamedTuple):
    wall: float
    processor: float
    mib: float
    status: int
    said: str


def main() -> bool:
    return any([_live(), _long()])


def _measured(machine: Machine, command: str) -> Taken:
    said = machine.run([sys.executable, "-c", MEASURED, command], timeout=900).stdout
    return Taken(*json.loads(said))


def _live() -> bool:
    with Machine() as machine:
        ollama.setup(machine)
        ollama.api(machine, "/api/generate", {"model": ollama.CHAT, "prompt": "hi", "stream": False, "options": {"num_predict": 2}})
        inside, whole, readings = [], [], []
        for _ in range(RUNS):
            taken = _measured(machine, f"{ollama.OLLAMACTL[0]} doctor --json")
            whole.append(taken)
            inside.append(float(json.loads(taken.said)["data"]["seconds"]))
            readings.append(float(machine.run([sys.executable, "-c", READINGS], timeout=60).stdout))
    one, raw = median(inside), median(readings)
    figure("the readings that doctor needs, one after the other", raw, "s")
    figure("the whole command, processor", median([t.processor for t in whole]), "s")
    missed = goal("the whole command on the lab", median([t.wall for t in whole]), 1.0, "s")
    return goal("doctor, as a multiple of its readings", one / max(raw, 0.001), 1.5) or missed


def _busy_lines() -> str:
    """What the recorded server printed while it was at work: after its model was loaded."""
    found = [json.loads(line)["MESSAGE"] for line in gzip.decompress(RECORDED.read_bytes()).splitlines()]
    first = max(n for n, text in enumerate(found) if "llama-server started in" in text)
    last = max(n for n, text in enumerate(found) if text.startswith("[GIN]"))
    return "\n".join(found[first + 1 : last + 1]) + "\n"


def _long() -> bool:
    with Machine(journald=JOURNALD) as machine:
        ollama.setup(machine)
        machine.write("/var/tmp/lines", _busy_lines())
        machine.write("/var/tmp/chatter", CHATTER)
        machine.write("/etc/systemd/system/ollama.service.d/chatter.conf", DROP_IN.format(lines=LINES))
        machine.run(["bash", "-c", "systemctl daemon-reload && systemctl restart ollama && journalctl --sync"], timeout=1800)
        ollama.api(machine, "/api/generate", {"model": ollama.CHAT, "prompt": "hi", "stream": False, "options": {"num_predict": 2}})
        machine.run(["journalctl", "--sync"])
        whole = "journalctl -o json -u ollama --no-pager"
        ways = {
            "journalctl -o json >/dev/null": f"{whole} >/dev/null",
            "doctor on that host": f"{ollama.OLLAMACTL[0]} doctor --json >/dev/null",
            "doctor --from the file that it printed": f"{ollama.OLLAMACTL[0]} doctor --from /var/tmp/journal.json --json >/dev/null",
            "journalctl -o json | doctor --from -": f"{whole} | {ollama.OLLAMACTL[0]} doctor --from - --json >/dev/null",
        }
        machine.run(["bash", "-c", f"{whole} >/var/tmp/journal.json"], timeout=900)
        lines = int(machine.run(["wc", "-l", "/var/tmp/journal.json"]).stdout.split()[0])
        taken: dict[str, list[Taken]] = {way: [] for way in ways}
        for _ in range(LONG_RUNS):
            for way, command in ways.items():
                taken[way].append(_measured(machine, command))
                assert taken[way][-1].status in (0, 1), (way, taken[way][-1])
    figure("entries of the journal", lines)
    floor, *ours = ways
    figure(floor + ": wall", median([t.wall for t in taken[floor]]), "s")
    base = median([t.processor for t in taken[floor]])
    figure(floor + ": processor", base, "s")
    missed = lines < LINES
    for way in ours:
        figure(way + ": wall", median([t.wall for t in taken[way]]), "s")
        spent = median([t.processor for t in taken[way]])
        figure(way + ": processor", spent, "s")
        own = spent - base if "|" in way else spent  # without journalctl itself
        missed |= goal("   as a multiple of journalctl's processor time", own / base, 1.5)
        missed |= goal("   memory at most", max(t.mib for t in taken[way]), 200, "MiB")
    return missed
