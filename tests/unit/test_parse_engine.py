"""Engine lines of every era: buffers, caches, sizes."""
# ruff: noqa: E501  (log lines stand as they are printed)

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollamactl.core.parse.engine import Loading, parse_buffer, parse_size
from ollamactl.core.parse.runner import RunnerArgs

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "kind", "device", "mib"),
    [
        ("llm_load_tensors:        CPU buffer size =    70.31 MiB", "model", "CPU", 70.31),
        ("llm_load_tensors:      CUDA0 buffer size =  3847.55 MiB", "model", "CUDA0", 3847.55),
        ("llm_load_tensors:          CPU model buffer size =   717.77 MiB", "model", "CPU", 717.77),
        ("load_tensors: Metal_Mapped model buffer size =   934.69 MiB", "model", "Metal_Mapped", 934.69),
        ("llama_kv_cache_init:      CUDA0 KV buffer size =   256.00 MiB", "kv", "CUDA0", 256),
        ("llama_kv_cache_unified:      CUDA0 KV buffer size =  1280.00 MiB", "kv", "CUDA0", 1280),
        ("llama_kv_cache:        CPU KV buffer size =    96.00 MiB", "kv", "CPU", 96),
        ("llama_memory_recurrent:      CUDA0 RS buffer size =    75.38 MiB", "rs", "CUDA0", 75.38),
        ("llama_new_context_with_model:  CUDA_Host input buffer size   =    13.02 MiB", "other", "CUDA_Host", 13.02),
        ("llama_new_context_with_model:  CUDA_Host  output buffer size =     0.13 MiB", "output", "CUDA_Host", 0.13),
        ("llama_context:      CUDA0 compute buffer size =  1088.45 MiB", "compute", "CUDA0", 1088.45),
        ("sched_reserve:    Vulkan0 compute buffer size =   925.06 MiB", "compute", "Vulkan0", 925.06),
        ("alloc_compute_meta:      CUDA0 compute buffer size =   667.50 MiB", "projector", "CUDA0", 667.5),
    ],
)
def test_buffers(text: str, kind: str, device: str, mib: float) -> None:
    buffer = parse_buffer(text)
    assert buffer is not None
    assert (buffer.kind, buffer.device, buffer.bytes) == (kind, device, round(mib * MIB))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("11.9 GiB", round(11.9 * 2**30)),
        ("0 B", 0),
        ("482.8 MiB", round(482.8 * MIB)),
        ("3.5 GB", 3_500_000_000),
        ("GiB", None),
        ("1.2.3 GiB", None),
        ("12 XB", None),
    ],
)
def test_sizes(text: str, size: int | None) -> None:
    assert parse_size(text) == size


def load(*lines: str) -> Loading:
    loading = Loading(RunnerArgs(model="/m"), (), "ollama runner", None, 1, "")
    for line in lines:
        loading.engine_line(line)
    return loading


def test_both_caches_of_a_model_with_a_sliding_window() -> None:
    built = load(
        "llama_kv_cache_iswa: creating non-SWA KV cache, size = 8192 cells",
        "llama_kv_cache:        CPU KV buffer size =    96.00 MiB",
        "llama_kv_cache: size =   96.00 MiB (  8192 cells,   3 layers,  4/4 seqs), K (q8_0):   48.00 MiB, V (f16):   48.00 MiB",
        "llama_kv_cache_iswa: creating     SWA KV cache, size = 1536 cells",
        "llama_kv_cache:        CPU KV buffer size =    90.00 MiB",
    ).build()
    assert [(buffer.bytes, buffer.swa) for buffer in built.buffers] == [(96 * MIB, False), (90 * MIB, True)]
    assert (built.kv_type_k, built.kv_type_v) == ("q8_0", "f16")


def test_context_and_slots_without_a_command_line() -> None:
    built = load(
        "llama_new_context_with_model: n_ctx      = 8192",
        '{"function":"initialize","level":"INFO","line":433,"msg":"initializing slots","n_slots":4,"tid":"1"}',
        '{"function":"initialize","level":"INFO","line":442,"msg":"new slot","n_ctx_slot":2048,"slot_id":0,"tid":"1"}',
        "llm_load_tensors: offloaded 18/33 layers to GPU",
    ).build()
    assert (built.context_total, built.slots, built.context, built.offloaded) == (8192, 4, 2048, (18, 33))


def test_the_command_line_wins_over_what_the_engine_rounds() -> None:
    loading = Loading(RunnerArgs(model="/m", context_total=10000, slots=4), (), "", None, 1, "")
    loading.engine_line("llama_context: n_ctx         = 10240")
    loading.engine_line("llama_context: n_ctx_per_seq = 2560")
    loading.engine_line("llama_context: n_ctx_train   = 32768")
    built = loading.build()
    assert (built.context_total, built.slots, built.context, built.trained_context) == (10000, 4, 2560, 32768)


def test_sizes_of_ollamas_own_engine_of_the_last_layout_only() -> None:
    loading = load()
    for size in ("1.0 GiB", "2.0 GiB"):  # the first layout is given up
        loading.go_line("model weights", {"device": "CUDA0", "size": size}, "")
        loading.go_line("kv cache", {"device": "CPU", "size": "512.0 MiB"}, "")
        loading.go_line("total memory", {"size": "9 GiB"}, "")
    loading.go_line("offloaded 33/33 layers to GPU", {}, "")
    built = loading.build()
    assert [(buffer.kind, buffer.device, buffer.bytes) for buffer in built.buffers] == [
        ("model", "CUDA0", 2 << 30),
        ("kv", "CPU", 512 * MIB),
    ]
    assert built.offloaded == (33, 33)


def test_llama_cpp_buffers_are_not_counted_beside_ollamas_estimate() -> None:
    loading = load("load_tensors:        CUDA0 model buffer size = 100.00 MiB")
    loading.go_line("model weights", {"device": "CUDA0", "size": "100.0 MiB"}, "")
    assert [buffer.bytes for buffer in loading.build().buffers] == [100 * MIB]


@given(st.text(max_size=120))
def test_never_raises(text: str) -> None:
    parse_buffer(text)
    parse_size(text)
    load(text, "llama_context: n_ctx = " + text, "offloaded " + text + " layers to GPU", "n_slots = " + text).build()
