"""The screen of `plan`, and the rows that `apply` shows of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ollamactl.core.answer import Answer, context_band, tokens, words
from ollamactl.core.capacity import Place
from ollamactl.core.memory.layout import HOST
from ollamactl.core.memory.terms import Prediction
from ollamactl.core.preflight import Preflight
from ollamactl.core.sizing import Cell, Row
from ollamactl.report import text
from ollamactl.report.text import Terminal, columns

GAP = 3  # between columns
LONG = {
    "cache": "KV cache", "window cache": "sliding-window cache", "recurrent": "recurrent state",
}  # fmt: skip
SHORT = {**LONG, "window cache": "window", "recurrent": "state"}  # as heads of columns


def size(n: int) -> str:
    return "< 1 MiB" if 0 < n < 1 << 19 else text.size(n)


def show(out: Terminal, result: Answer, worst: str) -> None:
    _head(out, result)
    out.line()
    _table(out, result)
    out.line()
    _start(out, result)
    out.line()
    out.wrap(f"In other words: {words(result)}.")
    if result.auto is not None:
        out.wrap(f"--parallel auto: {result.auto[0]} ({result.auto[1]})", hang=2)
    if not result.focus.fits and (result.focus.need or result.ways):
        out.line()
        _ways(out, result)
    if worst:
        out.wrap(f"· {worst}", hang=2)
    for note in result.notes:
        out.wrap(f"· {note}", hang=2)
    out.line()
    out.wrap(_proof(result))


def _head(out: Terminal, result: Answer) -> None:
    model, hyper = result.model, result.model.hyper
    parts = [model.name]
    heads = {(x.kv_heads, x.key) for x in hyper.layers if x.k}
    shape = f"{hyper.architecture}, {hyper.blocks} layer{'s' * (hyper.blocks != 1)}"
    if len(heads) == 1:
        kv, key = next(iter(heads))
        shape += f", {kv} KV head{'s' * (kv != 1)} × {key}"
    windowed = sum(x.swa for x in hyper.layers)
    if windowed:
        shape += f", {windowed} with a window of {hyper.window}"
    recurrent = sum(bool(x.r or x.s) for x in hyper.layers)
    if recurrent:
        shape += f", {recurrent} recurrent"
    parts += [shape, f"{model.quantization} {size(model.size)}".strip()]
    out.wrap(" · ".join(parts), hang=2)
    budget = result.budget
    if not budget.places:
        have = "not known" if budget.host_free is None else f"{size(budget.host_free)} available"
        out.wrap(f"CPU only ({budget.why_cpu or 'num_gpu 0'}): host memory is the budget, {have}", hang=2)
        return
    kept = budget.kept(model.projector)
    for said, count in Counter(_have(place, kept) for place in budget.places).items():
        out.wrap(f"{count} × {said}" if count > 1 else said, hang=2)
    for held in budget.beside:
        if held.device_bytes:
            out.wrap(f"{held.model} stays loaded beside it and holds {size(held.device_bytes)}", hang=2)


def _have(place: Place, kept: int) -> str:
    driver = f", {size(place.context)} for the driver" if place.context else ""
    return f"{place.label or place.device.name}: {size(place.free)} free, {size(kept)} kept free by the engine{driver}"


def verdict(cell: Cell) -> str:
    """A cell's text: its size if it fits, else what happens."""
    if cell.verdict == "fits":
        return size(cell.need)
    maybe = "" if cell.fit.certain else "~"
    if cell.verdict == "spills":
        return f"{maybe}spills {cell.fit.spilled}/{len(cell.fit.layout.layers)}"
    return "cannot load" if not cell.need else f"{maybe}no: {size(cell.need)}"


def _table(out: Terminal, result: Answer) -> None:
    """A row for each context, a column for each slot count; as many columns beside each other as there is room for."""
    several = len({r.kv_type for r in result.rows}) > 1
    names = ["", *(tokens(r.context) + (f" {r.kv_type}" if several else "") for r in result.rows)]
    counts = [
        [f"{n} slot{'s' * (n != 1)}", *(verdict(r.cells[i]) for r in result.rows)] for i, n in enumerate(result.slots)
    ]
    most = ["", *(_most(r) for r in result.rows)]
    for number, part in enumerate(_beside(names, counts, most, out.table_width)):
        if number:
            out.line()
        right = {i for i, column in enumerate(part) if column is not most}
        lines = columns([list(row) for row in zip(*part, strict=True)], right, out.table_width, GAP)
        for line in lines if lines[0] else lines[1:]:
            out.line(line)
    cells = [c for r in result.rows for c in r.cells]
    if any(c.verdict == "spills" for c in cells):
        out.wrap("spills N/M: N of the M layers would lie in host memory, which is slow", hang=2)
    if any(c.verdict == "cannot load" and c.need for c in cells):
        out.wrap("no: it cannot load; the size is what it would need", hang=2)
    if any(not c.fit.certain and not c.fits for c in cells):
        out.wrap("~ within the band of the prediction: it may fit after all", hang=2)


def _beside(names: list[str], counts: list[list[str]], last: list[str], width: int) -> Iterator[list[list[str]]]:
    """Columns in groups that fit beside the names."""
    part = [names]
    for column in (*counts, last):
        if len(part) > 1 and _width([*part, column]) > width:
            yield part
            part = [names]
        part.append(column)
    yield part


def _width(made: list[list[str]]) -> int:
    """Width of columns beside each other."""
    return sum(max(map(len, column)) for column in made) + GAP * (len(made) - 1)


def _most(row: Row) -> str:
    if not row.largest:
        return "none fits"
    if row.cells and all(c.args.slots == 1 for c in row.cells) and row.next is None:
        return "always 1 slot"
    if row.next is None:
        return f"fits up to {row.largest}"
    return f"fits up to {row.largest} (+{size(row.step)} each)" if row.step > 0 else f"fits up to {row.largest}"


def _start(out: Terminal, result: Answer) -> None:
    """One start in full: its arguments and why, its terms by device."""
    one = result.focus
    args = one.args
    said = f"{tokens(args.context)} × {args.slots}, {args.kv_cache_type}"
    out.wrap(f"{said}: the runner gets {args.told}", hang=2)
    for reason in args.reasons:
        out.wrap(f"{reason}", indent=2, hang=4)
    if one.fit.why:
        out.wrap(one.fit.why, indent=2, hang=4)
    if not one.need:
        return
    places = [result.budget.places[i] for i in one.places]
    if 0 < len(places) < len(result.budget.places):
        out.wrap(f"Ollama puts it on {places[0].device.name} alone, which has room by its own guess; "
                 "OLLAMA_SCHED_SPREAD=1 takes all", indent=2, hang=4)  # fmt: skip
    if places and not one.fits:
        out.line("  with every layer on the GPU:" if len(places) == 1 else "  with every layer on the GPUs:")
    _show_terms(out, one.full, places)
    if one.verdict == "spills":
        whose = "layers goes to host memory" if one.fit.spilled == 1 else "layers go to host memory"
        if one.fit.layout.lent:
            whose += ", wholly or with their experts alone"
        on = sum(one.fit.prediction.on(i) for i in range(len(places)))
        out.wrap(f"{one.fit.spilled} of {len(one.fit.layout.layers)} {whose}: {size(on)} on the GPU, "
                 f"{size(one.fit.prediction.on(HOST))} on the host", indent=2, hang=4)  # fmt: skip


def _show_terms(out: Terminal, full: Prediction, places: list[Place]) -> None:
    """Terms by device. Many devices stand below each other."""
    rows, width = _terms(full, places, LONG), out.table_width - 2
    if _width(_turned(rows)) > width:
        rows = _turned(_terms(full, places, SHORT))
    for line in columns(rows, {*range(1, len(rows[0]) - (rows[0][-1] == ""))}, width, GAP):
        out.line("  " + line)


def _turned(rows: list[list[str]]) -> list[list[str]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _terms(full: Prediction, places: list[Place], names: dict[str, str]) -> list[list[str]]:
    rows = [["", *(p.device.name for p in places), "host", ""]]
    for name in dict.fromkeys(t.name for t in full.terms):
        mine = [t for t in full.terms if t.name == name]
        by = {t.device: t.bytes for t in mine}
        cells = [size(by[i]) if i in by else "" for i in range(len(places))]
        rows.append([names.get(name, name), *cells, size(by[HOST]) if HOST in by else "", _kind(mine)])
    rows.append(["together", *(size(full.on(i)) for i in range(len(places))), size(full.on(HOST)), ""])
    if any(p.context for p in places):
        rows.append(["+ driver", *(size(p.context) for p in places), "", "beside"])
    return rows


def _kind(terms: list[Any]) -> str:
    kinds = {t.kind for t in terms}
    above = max(t.above for t in terms)
    if "unknown" in kinds:
        return f"unknown architecture, ± {size(above)}" if above else "unknown architecture"
    if kinds == {"exact"}:
        return "exact"
    return f"± {size(above)}" if above else "modelled"


def _lack(one: Cell) -> str:
    """What may be used beside what a start that does not fit needs."""
    if one.room is None or one.headroom is None:
        return ""
    usable = f", {size(max(0, one.room))} may be used"
    if one.headroom < 0:
        close = size(one.need) == size(one.room)
        return f", {size(-one.headroom)} more than may be used" if close else usable
    several = len(one.places) > 1
    return usable + (", yet not every GPU's share holds its layers" if several else ": too close to be sure")


def _ways(out: Terminal, result: Answer) -> None:
    one = result.focus
    said = f"{tokens(one.args.context)} × {one.args.slots} needs {size(one.need)}{_lack(one)}"
    if not one.need:
        out.wrap("Ways to start it:")
    elif not result.ways:
        out.wrap(f"{said}. No cache type, context, slot count or usual build of it would fit.")
        return
    else:
        out.wrap(f"{said}. Ways to make it fit, cheapest first:")
    rows = []
    for way in result.ways:
        saved = f"−{size(way.saved)}" if way.saved > 0 else ""
        left = "fits" if way.left is None else f"fits, {size(way.left)} left"
        rows.append([way.what + (" (estimated)" if way.estimated else ""), saved, left, way.command])
    width = out.table_width - 2
    if _width([list(column) for column in zip(*rows, strict=True)]) <= width:
        for line in columns(rows, {1}, width, GAP):
            out.line("  " + line)
        return
    for line, row in zip(columns([row[:-1] for row in rows], {1}, width, GAP), rows, strict=True):
        out.line("  " + line)
        if row[-1]:  # what is to be typed is never cut
            out.line("      " + row[-1])


def _proof(result: Answer) -> str:
    one = result.focus
    computed = [t for t in one.full.terms if t.name == "compute"]
    total = sum(t.bytes for t in computed)
    share = 100 * sum(t.above for t in computed) / total if total else 0.0
    band = "" if not total else f"± {share:.0f} %" if share >= 1 else "± < 1 %"
    parts = ["KV exact" if result.model.hyper.known else "KV of an unknown architecture"]
    parts += [f"compute {band}"] if band else []
    if any(p.context for p in result.budget.places):
        context = result.budget.places[0].context
        band = "as measured here" if result.context_measured else f"± {size(context_band(context))}"
        parts.append(f"driver {band}")
    if result.loads:
        parts.append(f"from {result.loads} verified load{'s' * (result.loads != 1)} on this host: "
                     f"± {size(result.loads_error) if result.loads_error else '0 MiB'}")  # fmt: skip
    elif result.loads_why:
        parts.append(f"loads of this host not read: {result.loads_why}")
    return " · ".join(parts)


# -- rows of the screen of `apply` --


def forecast_rows(found: Preflight) -> list[list[str]]:
    """What loaded or named models are started with and take, before and after a change."""
    rows = []
    for one in found.forecasts:
        was, new = one.before.args, one.after.args
        if was == new and one.before.need == one.after.need and one.subject.loaded:
            continue  # it will be loaded again as it is
        same = "as before" if was.batch == new.batch else f"before {was.batch}"
        rows.append([f"{one.name}  -c / -np", f"{was.total_context}/{was.slots}", f"{new.total_context}/{new.slots}",
                     f"predicted, batch {new.batch} {same}"])  # fmt: skip
        exact = "exact" if one.subject.model.hyper.known else "unknown architecture"
        rows.append(["  KV cache", size(one.before.kv), size(one.after.kv), f"{exact}, {new.kv_cache_type}"])
        left = one.after.headroom
        room = "" if left is None else f", {size(left)} left" if left >= 0 else f", {size(-left)} too much"
        where = "  on the GPU" if one.after.places else "  host memory"
        rows.append([where, size(one.before.need), size(one.after.need), f"± {size(one.after.band[1])}{room}"])
    return rows
