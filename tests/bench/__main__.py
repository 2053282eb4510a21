"""`make bench`: every figure, measured side by side in one run. `python -m tests.bench [NAME…]` runs some."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import time
from pathlib import Path


def main() -> int:
    wanted = sys.argv[1:]
    found = sorted(m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)]) if m.name.startswith("bench_"))
    missed = 0
    for name in found:
        if wanted and name.removeprefix("bench_") not in wanted:
            continue
        print(f"\n== {name.removeprefix('bench_')} ==", flush=True)
        began = time.monotonic()
        missed += bool(importlib.import_module(f"tests.bench.{name}").main())
        print(f"   ({time.monotonic() - began:.0f} s)", flush=True)
    if missed:
        print(f"\n{missed} of the goals were missed")
    return min(missed, 1)


sys.exit(main())
