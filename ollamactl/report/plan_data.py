"""The JSON of `plan`, and of what `apply` says of memory: bytes, tokens and counts as numbers."""

from __future__ import annotations

from typing import Any

from ollamactl.core.answer import Answer, words
from ollamactl.core.memory.layout import HOST
from ollamactl.core.preflight import Preflight
from ollamactl.core.sizing import Cell
from ollamactl.core.ways import Option


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
                "next_slot": None if r.next is None else {"cost": r.step, **cell_data(r.next, terms=False)},
                "cells": [cell_data(c) for c in r.cells],
            }
            for r in result.rows
        ],
        "focus": cell_data(result.focus),
        "auto": chosen,
        "alternatives": [_option(w) for w in result.ways],
        "words": words(result),
        "worst_case": worst,
        "loads": {"count": result.loads, "error": result.loads_error, "why": result.loads_why},
        "notes": list(result.notes),
    }


def cell_data(one: Cell, *, terms: bool = True) -> dict[str, Any]:
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
        "cell": None if way.cell is None else cell_data(way.cell, terms=False),
    }


def forecast_data(found: Preflight) -> list[dict[str, Any]]:
    return [
        {
            "model": one.name,
            "loaded": one.subject.loaded,
            "before": cell_data(one.before, terms=False),
            "after": cell_data(one.after),
        }
        for one in found.forecasts
    ]
