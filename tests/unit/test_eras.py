"""Engines before Ollama 0.30: what a plan for such a release says of caches, buffers and arguments."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from memory_data import hyper as observed_hyper
from memory_data import observed_metadata, rows
from planned import GiB, MiB, gpu, host, model, qwen3

from ollamactl.core.answer import Asked, answer
from ollamactl.core.capacity import budget
from ollamactl.core.memory import eras
from ollamactl.core.memory.eras import Era
from ollamactl.core.memory.model import Hyper
from ollamactl.core.memory.predict import predict
from ollamactl.core.memory.reading import from_header
from ollamactl.core.memory.request import Device
from ollamactl.core.memory.runner_args import Release, RunnerArgs, Settings, runner_args
from ollamactl.core.memory.terms import Prediction
from ollamactl.core.parse.gguf import read_header
from ollamactl.core.sizing import as_set, cell
from tests.engine.models import header, stored

GPU = (Device(kind="cuda", free=24 * GiB, total=24 * GiB),)


def hyper(architecture: str, **keys: Any) -> Hyper:
    metadata, tensors = qwen3(architecture=architecture, **keys)
    head, size = header({**metadata, "tokenizer.ggml.model": "no_vocab"}, tensors)
    return from_header(read_header(lambda at, n: head[at : at + n], len(head) + size))


def args(of: Hyper, release: Release, **more: Any) -> RunnerArgs:
    return runner_args(of, Settings(**{"parallel": 1, "context_length": 8192, "release": release, **more}), GPU)


def held(of: Hyper, release: Release, **more: Any) -> Prediction:
    return predict(of, args(of, release, **more).request(), GPU)


QWEN2 = hyper("qwen2")
LOGITS = 4 * 512 * (151_936 + 4096)


def test_logits_of_a_whole_batch_are_reserved_before_0_30() -> None:
    for release in ((0, 5, 7), (0, 9, 6), (0, 12, 6), (0, 24, 0)):
        prediction = held(QWEN2, release, flash_attention=True)
        assert sum(t.bytes for t in prediction.terms if t.name == "compute" and t.device == 0) == LOGITS, release
    assert held(QWEN2, (0, 30, 0)).total("compute") < LOGITS


def test_ollama_s_own_engine_reserves_none() -> None:
    of = hyper("qwen3")
    assert held(of, (0, 13, 5)).total("compute") < LOGITS < held(of, (0, 11, 0)).total("compute")


@pytest.mark.parametrize(
    ("release", "chosen", "flash"),
    [
        ((0, 11, 10), None, "off"), ((0, 11, 10), True, "on"), ((0, 13, 5), None, "auto"), ((0, 24, 0), False, "off"),
        ((0, 30, 0), None, "auto"),
    ],
)  # fmt: skip
def test_flash_attention_was_off_before_llama_cpp_decided(release: Release, chosen: bool | None, flash: str) -> None:
    assert args(QWEN2, release, flash_attention=chosen).flash_attention == flash


def test_flash_attention_is_on_by_itself_for_listed_architectures_only() -> None:
    of = hyper("qwen3")
    assert args(of, (0, 12, 3)).flash_attention == "off"
    assert args(of, (0, 12, 4)).flash_attention == "on"
    uneven = hyper("qwen3", **{"attention.value_length": 64})
    assert args(uneven, (0, 12, 6), flash_attention=True).flash_attention == "off"


def test_a_cache_type_is_dropped_in_silence_where_flash_attention_is_off() -> None:
    plain = args(QWEN2, (0, 9, 6), kv_cache_type="q8_0")
    assert plain.kv_cache_type == "f16" and any("OLLAMA_FLASH_ATTENTION=1" in r for r in plain.reasons)
    assert args(QWEN2, (0, 9, 6), kv_cache_type="q8_0", flash_attention=True).kv_cache_type == "q8_0"
    assert args(QWEN2, (0, 4, 9), kv_cache_type="q8_0", flash_attention=True).kv_cache_type == "f16"
    assert args(QWEN2, (0, 9, 6), kv_cache_type="q5_0", flash_attention=True).kv_cache_type == "f16"


def cache_bytes(prediction: Prediction) -> int:
    return prediction.total("cache") + prediction.total("window cache")


def test_windowed_layers_were_kept_whole_by_llama_cpp() -> None:
    of = hyper("gemma2", **{"attention.sliding_window": 4096})
    whole = 36 * 16384 * 8 * (128 + 128) * 2
    assert cache_bytes(held(of, (0, 24, 0), context_length=16384)) == whole
    assert cache_bytes(held(of, (0, 30, 0), context_length=16384)) < whole


def test_ollama_s_own_engine_keeps_windows() -> None:
    row = 8 * (128 + 128) * 2
    of = hyper("gemma3", **{"attention.sliding_window": 1024})
    for slots, seen in ((1, 1024 + 512), (4, 4 * 1025 + 512)):
        got = cache_bytes(held(of, (0, 12, 6), context_length=8192, parallel=slots))
        assert got == row * (6 * 8192 * slots + 30 * -(-seen // 256) * 256), slots
    of = hyper("gpt-oss", **{"attention.sliding_window": 128})
    assert cache_bytes(held(of, (0, 11, 10))) == row * (18 * 8192 + 18 * 4608)  # 4096 tokens behind the window
    assert cache_bytes(held(of, (0, 11, 10), context_length=4096)) == row * 36 * 4096


def test_v_of_absorbed_latent_attention_was_cached() -> None:
    metadata, tensors = stored()["deepseek2-mla-a"]
    head, size = header({**metadata, "tokenizer.ggml.model": "no_vocab"}, tensors)
    of = from_header(read_header(lambda at, n: head[at : at + n], len(head) + size))
    layer = of.layers[0]
    now, then = (cache_bytes(held(of, release)) for release in ((0, 30, 0), (0, 24, 0)))
    assert then * layer.key == now * (layer.key + layer.value)


def test_encoders_had_a_cache() -> None:
    of = hyper("nomic-bert", **{"attention.causal": False, "pooling_type": 1})
    assert cache_bytes(held(of, (0, 9, 6), context_length=2048)) == 36 * 2048 * 8 * (128 + 128) * 2
    assert not cache_bytes(held(of, (0, 13, 5), context_length=2048))


def test_states_have_copies_in_ollama_s_own_engine() -> None:
    metadata, tensors = stored()["real-qwen3.5-9b"]
    head, size = header({**metadata, "tokenizer.ggml.model": "no_vocab"}, tensors)
    of = from_header(read_header(lambda at, n: head[at : at + n], len(head) + size))
    now, then = held(of, (0, 30, 0)).total("recurrent"), held(of, (0, 24, 0))
    assert then.total("recurrent") == 25 * now
    [term] = [t for t in then.terms if t.name == "recurrent"]
    assert term.kind == "modelled" and term.bytes - term.below == pytest.approx(9 * now, rel=1e-6)


@pytest.mark.parametrize(
    ("release", "said"),
    [
        ((0, 9, 6), "--ctx-size 16384 --parallel 2 --batch-size 512 --flash-attn --kv-cache-type q8_0"),
        ((0, 24, 0), "KvSize:16384 Parallel:2 BatchSize:512 KvCacheType:q8_0, flash attention on"),
        ((0, 30, 0), "-c 16384 -np 2 -b 1024 -ub 1024 --flash-attn on --cache-type-k q8_0 --cache-type-v q8_0"),
    ],
)
def test_what_a_runner_is_told(release: Release, said: str) -> None:
    assert args(QWEN2, release, parallel=2, kv_cache_type="q8_0", flash_attention=True).told == said


def test_slots_that_are_not_set() -> None:
    def slots(release: Release, chosen: int | None) -> int:
        return args(QWEN2, release, parallel=chosen).slots

    found = [slots(r, None) for r in ((0, 1, 48), (0, 2, 0), (0, 6, 7), (0, 9, 6), (0, 10, 0))]
    assert found == [1, 4, 2, 2, 1]
    assert (slots((0, 6, 0), 0), slots((0, 10, 0), 0)) == (4, 1)  # 0 was "by itself" once
    assert any("1 where they would not fit" in r for r in args(QWEN2, (0, 6, 0), parallel=None).reasons)


def test_what_releases_before_0_30_keep_free() -> None:
    old = budget(host(gpu(), version="0.24.0"), {"OLLAMA_GPU_OVERHEAD": str(512 * MiB)})
    [place] = old.places
    assert place.context + old.kept() == (457 + 512) * MiB
    assert budget(host(gpu()), {"OLLAMA_GPU_OVERHEAD": str(512 * MiB)}).kept() == 1024 * MiB


def test_the_start_as_set_has_every_default_s_reason() -> None:
    settings = Settings(release=(0, 24, 0))
    result = answer(model(), settings, budget(host(gpu(), version="0.24.0"), {}), Asked())
    assert result.focus == as_set(model(), settings, result.budget)
    reasons = " ".join(result.focus.args.reasons)
    assert "1 slot: the default of this release" in reasons
    assert "context 32768: the devices have 24.0 GiB in all" in reasons


def test_own_engine_by_release() -> None:
    assert not eras.serves("qwen3", (0, 11, 11)) and eras.serves("qwen3", (0, 12, 6))
    assert not eras.serves("gemma3", (0, 30, 0)) and not eras.serves("llama", (0, 24, 0))
    assert eras.era("llama", (0, 30, 0), flash=True) is None


ESTIMATES = {"m255": 2.1, "m257": 3.1, "m258": 0.494, "m260": 2.6, "m263": 0.273}  # GiB of `compute graph` lines


def test_layers_are_placed_by_a_graph_without_flash_attention() -> None:
    for row in rows("observations.jsonl"):
        if row["id"] in ESTIMATES:
            of = observed_hyper(observed_metadata(row))
            old = eras.era(row["arch"], (0, 15, 2), flash=True)
            assert old is not None
            at = eras.cells_of(of, old, row["n_ctx_total"], 1, 512)
            taken = eras.compute_bytes(of, old, at, 512, flash=True)
            more = eras.reserved(of, old, row["n_ctx_total"], 1, 512, flash=True)
            assert (taken + more) / GiB == pytest.approx(ESTIMATES[row["id"]], abs=0.05), row["id"]
    assert eras.reserved(QWEN2, Era(own=True), 8192, 1, 512, flash=True) == 0


def test_a_model_spills_where_ollama_s_estimate_does_not_fit() -> None:
    wide = hyper("qwen2", **{"attention.head_count": 32})
    of = msgspec.structs.replace(model(), hyper=wide)
    old, new = (Settings(flash_attention=True, release=r, context_length=32768) for r in ((0, 15, 4), (0, 30, 0)))
    free = 10.5
    assert cell(of, new, budget(host(gpu(free=free)), {}), 1).fits
    before = budget(host(gpu(free=free), version="0.15.4"), {})
    assert not cell(of, old, before, 1).fits
    result = answer(of, old, before, Asked(slots=(1,), contexts=(32768,)))
    assert any("more for its compute buffer" in note for note in result.notes)
