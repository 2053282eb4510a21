"""`python -m tests.engine [--seed x,y] [--count N]`: the decision against the engine's own fit, whole, as a table."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.engine import fits


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.engine", description=__doc__)
    parser.add_argument("--seed", default="", help="other random combinations; several, separated by commas")
    parser.add_argument("--count", type=int, default=2400, help="how many for each seed")
    asked = parser.parse_args()
    found: list[fits.Decision] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in asked.seed.split(","):
            found += fits.decisions(fits.cases(Path(folder), seed, asked.count))
    fits.show(found)
    score = fits.Score.of(found)
    good = not score.false_fits and len(score.false_spills) <= 0.02 * score.decided
    return 0 if good and len(score.far) <= 0.05 * score.spilled else 1


if __name__ == "__main__":
    raise SystemExit(main())
