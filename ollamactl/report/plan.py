"""The screen and the JSON of `plan`."""

from __future__ import annotations

from typing import Any

from ollamactl.core.answer import Answer, context_band, tokens, words
from ollamactl.core.capacity import Place
from ollamactl.core.memory.predict import HOST, Prediction
from ollamactl.core.preflight import Preflight
from ollamactl.core.sizing import Cell, Row
from ollamactl.core.ways import Option
from ollamactl.report import text
from ollamactl.report.text import Terminal, columns

LONG = {
    "cache": "KV cache", "window cache": "sliding-window cache", "recurrent": "recurrent state",
}  # fmt: skip


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
    if not result.focus.fits and result.focus.need:
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
    shape = f"{hyper.architecture}, {hyper.blocks} layers"
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
    for place in budget.places:
        driver = f", {size(place.context)} for the driver" if place.context else ""
        out.wrap(f"{place.label or place.device.name}: {size(place.free)} free, {size(kept)} kept free by the engine"
                 f"{driver}", hang=2)  # fmt: skip
    for held in budget.beside:
        if held.device_bytes:
            out.wrap(f"{held.model} stays loaded beside it and holds {size(held.device_bytes)}", hang=2)


def verdict(cell: Cell) -> str:
    """A cell's text: its size if it fits, else what happens."""
    if cell.verdict == "fits":
        return size(cell.need)
    maybe = "" if cell.fit.certain else "~"
    if cell.verdict == "spills":
        return f"{maybe}spills {cell.fit.spilled}/{len(cell.fit.layout.layers)}"
    return "cannot load" if not cell.need else f"{maybe}no: {size(cell.need)}"


def _table(out: Terminal, result: Answer) -> None:
    several = len({r.kv_type for r in result.rows}) > 1
    wide = [f"{n} slot{'s' * (n != 1)}" for n in result.slots]
    cells = [["", *wide, ""]]
    for row in result.rows:
        name = f"{tokens(row.context)}" + (f" {row.kv_type}" if several else "")
        cells.append([name, *(verdict(c) for c in row.cells), _most(row)])
    for line in columns(cells, set(range(len(wide) + 1)), out.table_width, 3):
        out.line(line)
    if any(not c.fit.certain and not c.fits for r in result.rows for c in r.cells):
        out.line("~ within the band of the prediction: it may fit after all")


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
    kv = f" --cache-type-k {args.kv_cache_type} --cache-type-v {args.kv_cache_type}"
    line = f"-c {args.total_context} -np {args.slots} -b {args.batch} -ub {args.batch}"
    line += f" --flash-attn {args.flash_attention}"
    out.wrap(f"{said}: the runner gets {line}{kv if args.kv_cache_type != 'f16' else ''}", hang=2)
    for reason in args.reasons:
        out.wrap(f"{reason}", indent=2, hang=4)
    if one.fit.why:
        out.wrap(one.fit.why, indent=2, hang=4)
    if not one.need:
        return
    places = [result.budget.places[i] for i in one.places]
    for line in columns(_terms(one.full, places), {*range(1, len(places) + 2)}, out.table_width - 2, 3):
        out.line("  " + line)
    if one.verdict == "spills":
        spilled = one.fit.spilled
        on = sum(one.fit.prediction.on(i) for i in range(len(places)))
        out.wrap(f"{spilled} of {len(one.fit.layout.layers)} layers go to host memory: {size(on)} on the GPU, "
                 f"{size(one.fit.prediction.on(HOST))} on the host", indent=2, hang=4)  # fmt: skip


def _terms(full: Prediction, places: list[Place]) -> list[list[str]]:
    rows = [["", *(p.device.name for p in places), "host", ""]]
    names = dict.fromkeys(t.name for t in full.terms)
    for name in names:
        mine = [t for t in full.terms if t.name == name]
        by = {t.device: t.bytes for t in mine}
        cells = [size(by[i]) if i in by else "" for i in range(len(places))]
        rows.append([LONG.get(name, name), *cells, size(by[HOST]) if HOST in by else "", _kind(mine)])
    if any(p.context for p in places):
        rows.append(["driver", *(size(p.context) for p in places), "", "of the process"])
    sums = [size(full.on(i) + p.context) for i, p in enumerate(places)]
    rows.append(["together", *sums, size(full.on(HOST)), ""])
    return rows


def _kind(terms: list[Any]) -> str:
    kinds = {t.kind for t in terms}
    above = max(t.above for t in terms)
    if "unknown" in kinds:
        return f"unknown architecture, ± {size(above)}" if above else "unknown architecture"
    if kinds == {"exact"}:
        return "exact"
    return f"± {size(above)}" if above else "modelled"


def _ways(out: Terminal, result: Answer) -> None:
    one = result.focus
    room = "" if one.room is None else f", {size(max(0, one.room))} may be used"
    said = f"{tokens(one.args.context)} × {one.args.slots} needs {size(one.need)}{room}"
    if not result.ways:
        out.wrap(f"{said}. No cache type, context, slot count or usual build of it would fit.")
        return
    out.wrap(f"{said}. Ways to make it fit, cheapest first:")
    rows = []
    for way in result.ways:
        saved = f"−{size(way.saved)}" if way.saved > 0 else ""
        left = "fits" if way.left is None else f"fits, {size(way.left)} left"
        rows.append([way.what + (" (estimated)" if way.estimated else ""), saved, left, way.command])
    for line in columns(rows, {1}, out.table_width - 2, 3):
        out.line("  " + line)


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


# -- JSON --


def data(result: Answer, worst: str) -> dict[str, Any]:
    """All of it, for programs. Bytes, tokens and counts as numbers."""
    model, hyper, budget = result.model, result.model.hyper, result.budget
    chosen = None if result.auto is None else {"slots": result.auto[0], "why": result.auto[1]}
    return {
        "model": {
            "name": model.name,
            "path": model.path,
            "architecture": hyper.architecture,
            "known": hyper.known,
            "layers": hyper.blocks,
            "trained_context": hyper.trained_context,
            "window": hyper.window,
            "embedding_model": hyper.is_embedding,
            "quantization": model.quantization,
            "size": model.size,
            "parameters": model.parameters,
            "projector": model.projector,
            "num_ctx": model.num_ctx,
            "num_gpu": model.num_gpu,
        },
        "budget": {
            "devices": [
                {
                    "name": p.device.name,
                    "label": p.label,
                    "kind": p.device.kind,
                    "free": p.free,
                    "total": p.device.total,
                    "driver": p.context,
                    "unified": p.device.unified,
                }
                for p in budget.places
            ],
            "kept_free": budget.kept(model.projector) if budget.places else 0,
            "host_available": budget.host_free,
            "cpu_only": not budget.places,
            "why_cpu": budget.why_cpu,
            "stay_loaded": [{"model": h.model, "device": h.device_bytes, "host": h.host} for h in budget.beside],
        },
        "slots": list(result.slots),
        "rows": [
            {
                "context": r.context,
                "kv_cache_type": r.kv_type,
                "largest": r.largest,
                "next_slot": None if r.next is None else {"cost": r.step, **_cell(r.next, terms=False)},
                "cells": [_cell(c) for c in r.cells],
            }
            for r in result.rows
        ],
        "focus": _cell(result.focus),
        "auto": chosen,
        "alternatives": [_option(w) for w in result.ways],
        "words": words(result),
        "worst_case": worst,
        "loads": {"count": result.loads, "error": result.loads_error, "why": result.loads_why},
        "notes": list(result.notes),
    }


def _cell(one: Cell, *, terms: bool = True) -> dict[str, Any]:
    args = one.args
    found: dict[str, Any] = {
        "slots": one.slots,
        "runner": {
            "-c": args.total_context,
            "-np": args.slots,
            "-b": args.batch,
            "-ub": args.batch,
            "flash_attention": args.flash_attention,
            "kv_cache_type": args.kv_cache_type,
            "engine": args.engine,
            "reasons": list(args.reasons),
        },
        "context": args.context,
        "verdict": one.verdict,
        "certain": one.fit.certain,
        "spilled": one.fit.spilled if one.verdict == "spills" else 0,
        "layers": len(one.fit.layout.layers),
        "need": one.need,
        "may_be_used": one.room,
        "headroom": one.headroom,
        "kv": one.kv,
        "total": one.full.total(),
        "band": {"below": one.band[0], "above": one.band[1]},
        "devices": list(one.places),
        "why": one.fit.why,
    }
    if terms:
        found["terms"] = [
            {
                "name": t.name,
                "device": "host" if t.device == HOST else one.places[t.device],
                "bytes": t.bytes,
                "kind": t.kind,
                "below": t.below,
                "above": t.above,
            }
            for t in one.full.terms
        ]
    return found


def _option(way: Option) -> dict[str, Any]:
    return {
        "what": way.what,
        "option": way.command,
        "cost": way.cost,
        "saved": way.saved,
        "left": way.left,
        "estimated": way.estimated,
        "cell": None if way.cell is None else _cell(way.cell, terms=False),
    }


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


def forecast_data(found: Preflight) -> list[dict[str, Any]]:
    return [
        {
            "model": one.name,
            "loaded": one.subject.loaded,
            "before": _cell(one.before, terms=False),
            "after": _cell(one.after),
        }
        for one in found.forecasts
    ]
