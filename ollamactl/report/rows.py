"""The rows of `verify`: a line per setting, a column per layer; and the memory of what is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ollamactl.core.facts import Facts, LoadedModel, Runner, Start
from ollamactl.core.parse import ollama_ps
from ollamactl.core.runners import model_of
from ollamactl.core.verify import ABSENT, LAYERS, Judgement, Row
from ollamactl.report.text import Terminal, columns, size


def rows_json(judgement: Judgement) -> list[dict[str, Any]]:
    return [{"name": r.name, "layers": r.cells, "lost": r.lost, "default": r.default} for r in judgement.rows]


def worth_showing(row: Row) -> bool:
    """Rows that only hold defaults say nothing; what only the server knows (a log alone) is not one."""
    if any(v != ABSENT for k, v in row.cells.items() if k != "server"):
        return True
    return row.cells["server"] not in (ABSENT, row.default) and not row.lost


def known(row: Row) -> bool:
    return row.cells["server"] not in (ABSENT, "unknown")


def table(
    out: Terminal, judgement: Judgement, container: bool = False, titles: Mapping[str, str] | None = None
) -> None:
    """Columns that hold nothing in any row are left out where it gets too wide. A `container` has neither drop-ins nor
    environment files; what it was made with stands in the place of the unit. `titles`: columns by another name."""
    shown = {"unit": "container"} if container else dict(titles or {})
    rows = [r for r in judgement.rows if worth_showing(r)] or [r for r in judgement.rows if known(r)]
    held = [x for x in LAYERS if any(r.cells[x] != ABSENT for r in rows)]
    known_here = [x for x in LAYERS if not container or x not in ("drop-in", "env file")]
    layers = held if set(held) <= {"server", "runner"} or out.width < 72 else known_here
    if not rows:
        return
    cells = _cells(rows, layers, shown)
    if sum(max(map(len, column)) + 2 for column in zip(*cells, strict=True)) - 2 > out.table_width:
        layers = [x for x in layers if x in held]
        cells = _cells(rows, layers, shown)
    for line in columns(cells, set(range(1, len(layers) + 1)), out.table_width, 2):
        out.line(line)


def _cells(rows: list[Row], layers: list[str], titles: Mapping[str, str]) -> list[list[str]]:
    head = ["", *(titles.get(x, x) for x in layers)]
    return [head, *([row.name, *(_cell(row, layer) for layer in layers)] for row in rows)]


def _cell(row: Row, layer: str) -> str:
    value = row.cells[layer]
    if value == "2562047h47m16.854775807s":
        value = "for ever"
    value = value if len(value) <= 24 else value[:23] + "…"  # the whole stands in --json
    return f"{value} ←" if row.lost == layer else value


def memory_lines(facts: Facts, before: Facts | None = None) -> list[str]:
    """SIZE, PROCESSOR and CONTEXT as `ollama ps` prints them (before → after), beside what is really held."""
    found = []
    was = {m.name: m for m in (before.loaded if before else None) or ()}
    for model in facts.loaded or ():
        shown = zip(("SIZE", "PROCESSOR", "CONTEXT"), ollama_ps.format_row(model), strict=True)
        old = ollama_ps.format_row(was[model.name]) if model.name in was else None
        parts = []
        for at, (label, value) in enumerate(shown):
            changed = f"{old[at]} → " if old and old[at] != value else ""
            parts.append(f"{label} {changed}{value}")
        found.append(f"{model.name}   {' · '.join(parts)}   (ollama ps)")
        runner = next((r for r in facts.runners or () if model_of(r, facts) == model), None)
        held = held_line(runner, model, facts.start)
        if held:
            found.append(held)
    return found


def held_line(runner: Runner | None, model: LoadedModel, start: Start | None) -> str:
    """The buffers that the engine printed for this load, and the process's own memory."""
    if runner is None:
        return ""
    loads = [x for x in (start.loads if start else ()) if x.port == runner.port and x.buffers]
    parts = []
    if loads:
        sums: dict[str, int] = {}
        for buffer in loads[-1].buffers:
            name = {"model": "weights", "kv": "KV cache", "rs": "state"}.get(buffer.kind, buffer.kind)
            sums[name] = sums.get(name, 0) + buffer.bytes
        parts.append(f"holds {size(sum(sums.values()))}: " + ", ".join(f"{k} {size(v)}" for k, v in sums.items()))
    if runner.process.rss is not None:
        parts.append(f"its process {size(runner.process.rss)} of host memory")
    return "; ".join(parts)
