"""Runs loads in a process of its own: an engine that meets a combination it does not support ends its process.

Jobs are lines of JSON on standard input, answers lines on standard output; `Worker` is the other end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def serve() -> None:
    """Answer jobs until the input ends: ["measure", load] or ["fit", load, margins, [memory of each device]]."""
    from tests.engine.engine import Load, engine

    for line in sys.stdin:
        kind, load, *rest = json.loads(line)
        request = Load(*load)
        answer: Any
        if kind == "measure":
            answer = engine().measure(request)
        else:
            margins, memory = rest
            for index, size in enumerate(memory):
                engine().memory(index, size)
            answer = engine().fit(request, margins)
        print(json.dumps(answer), flush=True)


def run(jobs: Iterable[list[Any]]) -> Iterator[tuple[list[Any], Any]]:
    """Yield (job, answer); the answer of a job that ended the engine's process is "crashed"."""
    left = list(jobs)
    while left:
        process = subprocess.run(
            [sys.executable, "-m", "tests.engine.worker"],
            input="".join(json.dumps(job) + "\n" for job in left),
            capture_output=True, text=True, cwd=ROOT, check=False, env={**os.environ, "GGML_NO_BACKTRACE": "1"},
        )  # fmt: skip
        answers = [json.loads(line) for line in process.stdout.splitlines()]
        yield from zip(left, answers, strict=False)
        if len(answers) < len(left):
            if not answers and "Traceback" in process.stderr:
                raise RuntimeError(process.stderr[-2000:])
            yield left[len(answers)], "crashed"
        left = left[len(answers) + 1 :]


if __name__ == "__main__":
    serve()
