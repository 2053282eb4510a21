"""Command lines and load requests of the runner, of every era."""
# ruff: noqa: E501  (log lines stand as they are printed)

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollamactl.core.parse.runner import RunnerArgs, parse_argv, parse_load_request, split_command

MODEL = "/usr/share/ollama/.ollama/models/blobs/sha256-" + "a5" * 32

ERAS = {
    "0.1.38": (
        f"/tmp/ollama2108205731/runners/cuda_v11/ollama_llama_server --model {MODEL} --ctx-size 8192 --batch-size 512 "
        "--embedding --log-disable --n-gpu-layers 33 --parallel 4 --port 43889",
        {"context_total": 8192, "slots": 4, "batch": 512, "gpu_layers": 33, "port": 43889, "context": 2048},
    ),
    "0.5.4": (
        f"C:\\Users\\My Name\\ollama\\cuda_v12_avx\\ollama_llama_server.exe runner --model {MODEL} --ctx-size 2048 "
        "--batch-size 512 --n-gpu-layers 43 --threads 8 --flash-attn --kv-cache-type q8_0 --no-mmap --parallel 1 --port 53122",
        {
            "context_total": 2048, "slots": 1, "flash_attention": "on", "kv_type_k": "q8_0", "kv_type_v": "q8_0", "port": 53122,
            "program": "C:\\Users\\My Name\\ollama\\cuda_v12_avx\\ollama_llama_server.exe",
        },
    ),
    "0.9.6": (
        f"/usr/local/bin/ollama runner --ollama-engine --model {MODEL} --ctx-size 16384 --batch-size 512 "
        "--n-gpu-layers 27 --threads 16 --parallel 2 --port 40001",
        {"context_total": 16384, "slots": 2, "context": 8192},
    ),
    "0.13.5": (
        f"/usr/local/bin/ollama runner --ollama-engine --model {MODEL} --port 37003",
        {"context_total": None, "slots": None, "port": 37003, "context": None},
    ),
    "0.33.0": (
        f"/usr/local/lib/ollama/llama-server --model {MODEL} --port 36519 --host 127.0.0.1 --no-webui --offline -c 32768 "
        "-np 4 --log-verbosity 4 --no-log-prefix --no-log-timestamps --cache-type-k q8_0 --cache-type-v q4_0 "
        "--load-mode none --flash-attn auto -ngl -1 -b 1024 -ub 512 --context-shift --keep 4 --mmproj /m/p.gguf",
        {
            "context_total": 32768, "slots": 4, "context": 8192, "batch": 1024, "ubatch": 512, "kv_type_k": "q8_0", "kv_type_v": "q4_0",
            "flash_attention": "auto", "gpu_layers": -1, "projector": "/m/p.gguf", "port": 36519,
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("era", ERAS)
def test_each_era(era: str) -> None:
    command, expected = ERAS[era]
    args = parse_argv(split_command(command))
    assert args.loads
    assert args.model == MODEL
    assert {name: getattr(args, name) for name in expected} == expected


def test_discovery_is_no_load() -> None:
    args = parse_argv(split_command("/usr/local/bin/ollama runner --ollama-engine --port 37003"))
    assert not args.loads
    assert args.program == "/usr/local/bin/ollama"


def test_a_model_path_with_blanks_is_one_word() -> None:
    argv = split_command("/opt/my ollama/llama-server --model /home/u/my models/blob x -c 4096 -np 1")
    assert argv == ("/opt/my ollama/llama-server", "--model", "/home/u/my models/blob x", "-c", "4096", "-np", "1")


def test_argv_of_a_process_and_equals_signs() -> None:
    args = parse_argv(["llama-server", "--model=/m", "--ctx-size=100", "-np", "x", "--flash-attn", "off"])
    assert args == RunnerArgs(program="llama-server", model="/m", context_total=100, flash_attention="off")
    assert parse_argv([]) == RunnerArgs()


@given(st.lists(st.text(max_size=20), max_size=20))
def test_never_raises(argv: list[str]) -> None:
    parse_argv(argv)
    parse_argv(split_command(" ".join(argv)))
    parse_load_request(" ".join(argv))


flags = st.tuples(
    st.sampled_from(["--model", "-m", "-c", "--ctx-size", "-np", "--parallel", "-b", "-ub", "--port", "--kv-cache-type"]),
    st.sampled_from(["/m/x", "/m/with blank", "8192", "4", "-1", "q8_0"]),
)


@given(st.lists(flags, max_size=8), st.sampled_from(["llama-server", "/opt/o llama/ollama"]), st.booleans())
def test_splitting_a_joined_command_gives_its_words(pairs: list[tuple[str, str]], program: str, runner: bool) -> None:
    argv = (program, *(["runner"] if runner else []), *(word for pair in pairs for word in pair))
    assert split_command(" ".join(argv)) == argv


def test_load_request() -> None:
    request = parse_load_request(
        "{Operation:commit LoraPath:[] Parallel:2 BatchSize:512 FlashAttention:Enabled KvSize:8192 KvCacheType:q8_0 "
        "NumThreads:64 GPULayers:80[ID:GPU-0 Layers:80(0..79)] MultiUserCache:false ProjectorPath: MainGPU:0 UseMmap:true}"
    )
    assert request is not None
    assert (request.operation, request.slots, request.context_total, request.batch) == ("commit", 2, 8192, 512)
    assert (request.kv_type, request.flash_attention, request.gpu_layers) == ("q8_0", "on", 80)
    assert parse_load_request("{}") is None
