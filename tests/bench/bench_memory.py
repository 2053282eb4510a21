"""The plain formula of guides beside ours on the same loads and observations; speed of plans and header reader."""

from __future__ import annotations

import sys
import time
import tracemalloc
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from memory_data import hyper, observed_metadata, rows, stored_tensors

from ollamactl.core.memory.cache import cells, layer_bytes
from ollamactl.core.memory.fit import fit
from ollamactl.core.memory.predict import predict
from ollamactl.core.memory.request import Device, Request
from ollamactl.core.memory.runner_args import plain_cache
from ollamactl.core.parse.gguf import read_header
from tests.bench.figures import figure, goal
from tests.engine import models

MiB = 1 << 20


def pairs() -> list[tuple[float, float, float]]:
    """(measured, plain formula, ours) in MiB of cache, for every observation and load with a cache."""
    found = []
    for row in rows("observations.jsonl"):
        measured = row["observed"].get("kv_mib")
        if not measured or not row["hyperparameters"].get("block_count") or not row.get("n_ctx_total"):
            continue
        model = hyper(observed_metadata(row))
        at = cells(
            row["n_ctx_total"],
            row.get("parallel", 1),
            row.get("n_ubatch", 512),
            model.window,
            unified=bool(row.get("kv_unified")),
            swa_full=bool(row.get("swa_full")),
            padding=row.get("pad") or 256,
        )
        k = row.get("kv_type_k", "f16")
        v = row.get("kv_type_v") or k
        padded = bool(row.get("v_padded"))
        ours = sum(sum(layer_bytes(model, x, at, k, v, transposed=padded, padded=False)) for x in model.layers)
        found.append((measured, plain_cache(model, row["n_ctx_total"]) / MiB, ours / MiB))
    for row in rows("truth.jsonl.gz"):
        measured = sum(size for _, size in row["buf"].get("kv", []))
        if not row["ok"] or not measured or row["device"] not in ("cpu", "fake1"):
            continue
        model = hyper(row["meta"])
        request = Request(
            context=row["ctx_slot"],
            slots=row["np"],
            type_k=row["ctk"],
            type_v=row["ctv"],
            flash_attention=row["fa"],
            batch=row["ub"],
            engine="newest" if row["engine"].startswith("x") else "current",
        )
        gpu = (Device(kind="other"),) if row["device"] == "fake1" else ()
        prediction = predict(model, request, gpu)
        ours = sum(prediction.total(name) for name in ("cache", "window cache", "indexer cache"))
        found.append((measured, plain_cache(model, row["ctx_slot"] * row["np"]) / MiB, ours / MiB))
    return found


def table(found: list[tuple[float, float, float]]) -> None:
    """Relative errors of both, side by side."""
    print(f"   cache of {len(found)} loads and observations  {'median':>9} {'p90':>9} {'max':>9} {'within 1 %':>11}")
    for name, index in (("plain formula", 1), ("ours", 2)):
        errors = sorted(abs(row[index] / row[0] - 1) for row in found)
        share = sum(e <= 0.01 for e in errors) / len(errors)
        median, high = errors[len(errors) // 2], errors[int(len(errors) * 0.9)]
        print(f"   {name:<38}  {median:9.1%} {high:9.1%} {errors[-1]:9.1%} {share:11.1%}")


def plan_cells() -> float:
    """Seconds for 10,000 cells: contexts by slots by cache types, each with its fit."""
    meta, _ = models.stored()["real-qwen3-8b"]
    model = hyper(meta, stored_tensors()["real-qwen3-8b"])
    devices = (Device(kind="cuda", free=24 << 30, total=24 << 30),)
    began = time.perf_counter()
    made = 0
    for context in range(1024, 1024 + 512 * 250, 512):
        for slots in range(1, 11):
            for kind in ("f16", "q8_0", "q4_0", "bf16"):
                batch = 2048 if context * slots > 32768 else 1024 if context * slots > 4096 else 512
                request = Request(context=context, slots=slots, type_k=kind, type_v=kind, batch=batch)
                predict(model, request, devices)
                made += 1
    assert made == 10_000
    seconds = time.perf_counter() - began
    began = time.perf_counter()
    for slots in range(1, 101):
        fit(model, Request(context=32768, slots=slots, batch=2048), devices)
    figure("100 fits that spill, one device", time.perf_counter() - began, "s")
    return seconds


def header() -> tuple[float, float]:
    """Seconds and peak MiB of reading a header with 256,000 tokens, in chunks as from a file."""
    tokens = [f"token number {i}" for i in range(256_000)]
    metadata = {"general.architecture": "llama", "llama.block_count": 2, "tokenizer.ggml.tokens": tokens}
    data = models.header(metadata, [("token_embd.weight", [64, 256_000], 1)])[0]
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        read_header(lambda offset, length: data[offset : offset + length], len(data))
        seconds.append(time.perf_counter() - began)
    tracemalloc.start()
    read_header(lambda offset, length: data[offset : offset + length], len(data))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return min(seconds), most / MiB


def main() -> bool:
    table(pairs())
    missed = goal("10,000 cells of a plan", plan_cells(), 1.0, "s")
    seconds, most = header()
    missed |= goal("header with 256,000 tokens", seconds, 0.1, "s")
    return missed | goal("its memory", most, 60.0, "MiB")
