"""The table of settings in the README, from the registry. `python -m tests.contract.readme` writes it."""

from __future__ import annotations

import re
from pathlib import Path

from ollamactl.core import settings

README = Path(__file__).resolve().parents[2] / "README.md"
BETWEEN = re.compile(r"(<!-- settings: [^\n]*-->\n).*?(<!-- /settings -->)", re.S)


def table() -> str:
    rows = ["| variable | flag | default | releases | what |", "| --- | --- | --- | --- | --- |"]
    for s in settings.SETTINGS:
        default = s.default("").replace("|", "\\|") or "–"
        span = f"{s.since} –" + (f" before {s.until}" if s.until else "")
        rows.append(f"| `{s.name}` | {f'`{s.flag}`' if s.flag else '`--set`'} | {default} | {span} | {s.help} |")
    return "\n".join(rows) + "\n"


def with_table(text: str) -> str:
    return BETWEEN.sub(lambda found: found[1] + table() + found[2], text)


if __name__ == "__main__":
    README.write_text(with_table(README.read_text()))
