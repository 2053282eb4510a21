"""What a bundle takes to redact a journal: its lines as text, and as journalctl's JSON."""

from __future__ import annotations

import gzip
import itertools
import json
import time
from pathlib import Path

from ollamactl.core.redact import Redactor
from tests.bench.figures import figure

LINES = 100_000
RECORDED = Path(__file__).parents[1] / "data" / "logs" / "recorded" / "05a-parallel4-8conc.jsonl.gz"


def main() -> bool:
    entries = [json.loads(line) for line in gzip.decompress(RECORDED.read_bytes()).splitlines()]
    numbered = list(enumerate(itertools.islice(itertools.cycle(entries), LINES)))
    # Each line is another one, as in a real journal: times differ.
    text = [f"Nov 30 06:25:{n % 60:02} gpubox ollama[{n}]: {entry['MESSAGE']}" for n, entry in numbered]
    lines = [json.dumps(entry | {"MESSAGE": f"{entry['MESSAGE']} {n}"}) for n, entry in numbered]
    for what, body in (("text", "\n".join(text)), ("JSON", "\n".join(lines))):
        raw = body.encode()
        redactor = Redactor()
        began = time.process_time()
        redactor.learn(raw)
        redactor.body(raw)
        figure(f"redaction of {LINES:,} journal lines as {what}, processor", time.process_time() - began, "s")
    return False
