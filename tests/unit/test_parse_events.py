"""The registry of events: every row is found where it may be, and nowhere else."""
# ruff: noqa: E501  (log lines stand as they are printed)

from __future__ import annotations

import pytest

from ollamactl.core.parse import events
from ollamactl.core.parse.event_row import Event
from ollamactl.core.parse.messages import EVENTS
from ollamactl.core.parse.sift import CHATTER, wanted
from tests.unit.logs import lines

# a line for each row whose needle alone doesn't make one
EXAMPLES = {
    " does not support ": "Error: llama3 does not support tools",
    "input truncated": '{"function":"update_slots","level":"INFO","msg":"input truncated","n_ctx":2048,"n_keep":4}',
    "slot launch_slot_": "slot launch_slot_: id  3 | task 17 | processing task, is_child = 0",
    "truncated = 1": "slot      release: id  3 | task 0 | stop processing: n_tokens = 8191, truncated = 1",
    "context shift": "slot update_slots: id  0 | task 0 | slot context shift, n_keep = 4, n_left = 2043, n_discard = 1021",
    "cache state:": "srv        update:  - cache state: 3 prompts, 12.500 MiB (limits: 8192.000 MiB, 32768 tokens, 9 est)",
    "prompt cache is enabled": "srv    load_model: prompt cache is enabled, size limit: 8192 MiB",
    "prompt cache is disabled": "srv    load_model: prompt cache is disabled - use `--cache-ram N` to enable it",
    "is not compatible with": "llama_init_from_model: flash_attn is not compatible with Grok - forcing off",
    "enabling flash_attn since it is required for quantized V cache": (
        "llama_init_from_model: enabling flash_attn since it is required for quantized V cache"
    ),
    "bind: ": "Error: listen tcp 10.0.0.9:11434: bind: cannot assign requested address",
    "listen tcp ": "Error: listen tcp 127.0.0.1:11434: bind: Jeder Socket darf in der Regel nur für eine Anwendung vergeben werden: häufig",
    "Dynamic LLM libraries": 'time=2026-11-30T02:56:39.000Z level=INFO source=routes.go:1267 msg="Dynamic LLM libraries" runners="[cpu cpu_avx]"',
    "compatible gpu libraries": 'time=2026-11-30T02:56:39.000Z level=DEBUG source=server.go:259 msg="compatible gpu libraries" compatible=[]',
    "updated VRAM based on existing loaded models": 'time=2026-11-30T02:56:39.000Z level=INFO source=sched.go:545 msg="updated VRAM based on existing loaded models" gpu=0 library=Metal total="11.8 GiB"',
    "is not defined": "panic: $HOME is not defined",
    "permission denied": "Error: mkdir /mnt/models/blobs: permission denied",
    "Access is denied": r"Error: mkdir D:\ollama\blobs: Access is denied.",
    "post predict": 'time=2026-11-30T02:56:39.000Z level=ERROR source=server.go:1610 msg="post predict" error="Post x: EOF"',
    "read-only file system": "Error: mkdir /usr/share/ollama/.ollama: read-only file system",
    "no such file or directory": "Error: open /m/blobs/sha256-1: no such file or directory",
    "no space left on device": "Error: write /m/blobs/x-partial: no space left on device",
    "fork/exec": "Error: fork/exec /tmp/ollama1/runners/cpu/ollama_llama_server: permission denied",
    "executable file not found": 'Error: exec: "ollama_llama_server": executable file not found in $PATH',
    "timed out waiting for ": "Error: timed out waiting for llama runner to start - progress 0.00 - ",
    "listen tcp: ": "Error: listen tcp: lookup gpu-box: no such host",
    "No such file or directory": "gguf_init_from_file: failed to open '/m/blobs/sha256-1': 'No such file or directory'",
    "The system cannot find the ": r"Error: open C:\m\blobs\sha256-1: The system cannot find the file specified.",
    "ensure path elements are traversable": (
        "Error: mkdir /var/lib/ollama: file exists: ensure path elements are traversable"
    ),
    "operation not permitted": "Error: mkdir /mnt/share/models: operation not permitted",
    ": file exists": "Error: mkdir /usr/share/ollama/.ollama/models: file exists",
    ": not a directory": "Error: mkdir /mnt/models/blobs: not a directory",
    "Unable to load dynamic server library: ": (
        "Unable to load dynamic server library: librocblas.so.3: cannot open shared object file: No such file or directory"
    ),
    "failed to load model": "llama_init_from_gpt_params: error: failed to load model '/m/blobs/sha256-1'",
    "unable to load model: ": "Error: 500 Internal Server Error: unable to load model: /m/blobs/sha256-1",
    "cannot find tokenizer": "llama_model_load: error loading model: cannot find tokenizer merges in model file",
    "Permission denied": "gguf_init_from_file: failed to open '/m/blobs/sha256-1': 'Permission denied'",
    "system": "time=2026-11-30T02:56:39.000Z level=INFO source=ggml.go:104 msg=system CPU.0.AVX=1 compiler=cgo(gcc)",
    "context canceled": "Error: timed out waiting for llama runner to start: context canceled",
    "POST predict": 'Error: POST predict: Post "http://127.0.0.1:40001/completion": EOF',
    "Invalid OLLAMA_LLM_LIBRARY ": 'time=2026-11-30T02:56:39.000Z level=INFO source=server.go:158 msg="Invalid OLLAMA_LLM_LIBRARY cuda - not found"',
    "Error: unknown command ": 'Error: unknown command "server" for "ollama"',
    "failed to get direct URL; backing off and retrying": 'time=2026-11-30T02:56:39.000Z level=WARN source=download.go:1 msg="failed to get direct URL; backing off and retrying" err="Get x: dial tcp: i/o timeout"',
    "x509: ": 'Error: Get "https://registry.ollama.ai/v2/": tls: failed to verify certificate: x509: certificate signed by unknown authority',
    " stalled; retrying": 'time=2026-11-30T02:56:39.000Z level=INFO source=download.go:376 msg="4f659a1e86d7 part 5 stalled; retrying. If this persists"',
    " attempt ": 'time=2026-11-30T02:56:39.000Z level=INFO source=download.go:297 msg="4f659a1e86d7 part 5 attempt 0 failed: EOF, retrying in 1s"',
    "request failed: ": 'time=2026-11-30T02:56:39.000Z level=INFO source=images.go:1 msg="request failed: Get x: dial tcp: i/o timeout"',
    "downloading ": 'time=2026-11-30T02:56:39.000Z level=INFO source=download.go:1 msg="downloading 6a0746a1ec1a in 16 291 MB part(s)"',
    "mlx runner failed: ": "Error: 500 Internal Server Error: mlx runner failed: MLX not available",
    ": fatal error": "ggml.c:13942: fatal error",
    "error reading ll": "Error: error reading llm response: read tcp 127.0.0.1:51210->127.0.0.1:51207: wsarecv: An existing connection was forcibly closed",
    "failed with status": "ggml_metal_graph_compute: command buffer 0 failed with status 5",
    "Only one usage of each socket address": (
        "Error: listen tcp 127.0.0.1:11434: bind: Only one usage of each socket address is normally permitted."
    ),
}


def example(row: Event) -> str:
    if row.how in ("msg", "prefix") and row.needle not in EXAMPLES:
        text = row.needle + (" 1.00 seconds" if row.how == "prefix" else "")
        error = ' error="context canceled"' if row.kind == "load_cancelled" else ""
        return f'time=2026-11-30T02:56:39.000Z level=WARN source=sched.go:1 msg="{text}"{error}'
    return EXAMPLES.get(row.needle, f"ggml_x: {row.needle} 35 {{}}")


@pytest.mark.parametrize("row", EVENTS, ids=lambda row: f"{row.kind}-{row.needle[:30]}")
def test_every_row_is_found_in_a_log(row: Event) -> None:
    text = example(row)
    assert CHATTER(text.encode()) is None
    assert wanted(text.encode(), 0, len(text.encode()))
    start = lines(text).starts[0]
    assert start.counts.get(row.kind) == 1
    event = next(one for one in start.events if one.kind == row.kind)
    assert event.text == text and event.line == 1


@pytest.mark.parametrize("row", [row for row in EVENTS if row.how == "text"], ids=lambda row: row.needle[:40])
def test_a_prompt_or_a_file_name_raises_no_event(row: Event) -> None:
    """In lines of DEBUG and INFO the fields are users' data."""
    quoted = example(row).replace("\\", "").replace('"', "'")
    for level in ("DEBUG", "INFO"):
        text = f'time=2026-11-30T02:56:39Z level={level} source=routes.go:1 msg="chat request" prompt="{quoted}"'
        assert lines(text).starts[0].counts == {}


def test_rows_of_warnings_need_ollamas_own_form() -> None:
    for row in EVENTS:
        if row.how != "text":
            assert not [one for one, _ in events.find(row.needle, None) if one.how != "text"]


def test_fields_by_release() -> None:
    log = lines(
        'time=2025-11-12T19:30:29.628+05:30 level=WARN source=runner.go:136 msg="truncating input prompt" limit=4096 prompt=4604 keep=4 new=4096',
        'time=2024-11-12T19:30:29.628+05:30 level=WARN source=runner.go:129 msg="truncating input prompt" limit=2048 prompt=16101 numKeep=4',
        'time=2026-07-29T22:23:22.926+05:30 level=ERROR source=llama_server.go:985 msg="llama-server terminated" error="exit status 1" exit=1',
        'time=2025-06-17T12:53:55Z level=WARN source=sched.go:646 msg="gpu VRAM usage didn\'t recover within timeout" seconds=5.01692 model=/m',
        'time=2026-06-17T12:53:55Z level=WARN source=x.go:1 msg="NVIDIA driver too old" device="RTX 2080" compute=7.5 driver=12.2 required_driver=550',
        'time=2024-06-17T12:53:55Z level=ERROR source=amd_linux.go:404 msg="amdgpu devices detected but permission problems block access" error="failed to check permission on /dev/kfd: open /dev/kfd: permission denied"',
    )
    found = {(one.kind, one.line): one.fields for one in log.starts[0].events}
    assert found["prompt_truncated", 1] == {"limit": "4096", "prompt": "4604", "keep": "4", "new": "4096"}
    assert found["prompt_truncated", 2]["numKeep"] == "4"
    assert found["runner_terminated", 3]["exit"] == "1"
    assert found["vram_recovery_timeout", 4]["seconds"] == "5.01692"
    assert found["nvidia_driver_too_old", 5]["required_driver"] == "550"
    assert found["kfd_denied", 6]["error"].startswith("failed to check")


def test_the_normal_is_no_event() -> None:
    normal = [
        'msg="waiting for server to become available" status="llm server error"',
        'msg="waiting for llama-server to become available" status="llm server error"',
        'msg="llama runner started in 1.95 seconds"',
        'msg="loaded runners" count=1',
    ]
    log = lines(*(f"time=2026-11-30T02:56:39Z level={level} source=s.go:1 {one}" for one in normal for level in ("INFO", "WARN")))
    assert set(log.starts[0].counts) <= {"other_warning"}
    assert log.starts[0].counts.get("other_warning", 0) == 2  # the last two at a level they never have


def test_unknown_warnings_are_kept() -> None:
    log = lines('time=2026-11-30T02:56:39Z level=ERROR source=s.go:1 msg="something new" a=b')
    assert log.starts[0].events[0].kind == "other_error"
    assert log.starts[0].events[0].fields == {"msg": "something new", "a": "b"}


def test_a_client_that_went_away_is_no_failed_load() -> None:
    text = 'time=2026-11-30T02:56:39Z level=INFO source=sched.go:641 msg="Load failed" model=/m error="timed out waiting for llama-server to start: context canceled"'
    assert lines(text).starts[0].counts == {"load_cancelled": 1}


def test_long_fields_are_cut() -> None:
    log = lines(f'time=2026-11-30T02:56:39Z level=WARN source=s.go:1 msg=x a="{"y" * 100_000}"')
    event = log.starts[0].events[0]
    assert len(event.fields["a"]) == events.VALUE
    assert len(event.text) <= 4000
