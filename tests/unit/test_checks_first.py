"""What is told first where several things are true, and what does not follow from what stands beside it."""

# ruff: noqa: E501 - lines of logs
from __future__ import annotations

import pytest
from wording_rows import fires_first, near_miss_is_quiet, report

from tests.system.small import Log, journal, offload, on_cpu, served

UNEVEN = Log("0.6.6").config().listen().gpu("NVIDIA GeForce RTX 3090", "24.0 GiB", "23.0 GiB").gpu("NVIDIA GeForce GTX 1070", "8.0 GiB", "7.5 GiB", cc="6.1")


def uneven(full: str, on: int) -> str:
    log = Log("0.6.6")
    log.rows = list(UNEVEN.rows)
    return offload(log, layers=(on, 81), free="23.0 GiB 7.5 GiB", full=full, kv="640.0 MiB").load(2048, layers=(on, 81), ngl=on).text()


def held(free: str, weights: float) -> str:
    log = Log("0.33.0").config(OLLAMA_CONTEXT_LENGTH="4096").listen().gpu("NVIDIA L40S", "44.4 GiB", free)
    return log.load(4096, layers=(40, 65), weights_mib=weights, kv_mib=900, says="load_tensors:   CPU_Mapped model buffer size =  6000.00 MiB").text()


def minute(times: int) -> str:
    log = served(OLLAMA_NUM_PARALLEL="2").load(4096, 2, layers=(33, 33), kv_mib=400)
    for _ in range(times):
        log.later(300).gin(500, "1m0s").gin(200, "2.1s")
    return log.text()


def refused(times: int) -> str:
    log = on_cpu("0.17.0").load(4096, layers=(0, 33), device="CPU")
    for _ in range(times):
        log.say("invalid option provided", "WARN", "types.go:976", option="mirostat")
    return log.text()


IN_HOST = on_cpu("0.9.3").load(4096, layers=(0, 33), device="CPU", weights_mib=4100)
FOUND_UNUSED = "\n".join(
    [
        *Log("0.9.3").config(OLLAMA_NUM_PARALLEL="1").listen().gpu("NVIDIA A100-SXM-64GB", "63.4 GiB", "63.0 GiB").load(4096, ngl=33, ok=False).rows,
        "load_tensors:          CPU model buffer size =  4437.80 MiB",
        *Log("0.9.3").say("llama runner started in 2.51 seconds", source="server.go:637").gin(500, "30.0s").gin(500, "30.0s").gin(500, "30.0s").rows,
    ]
)  # fmt: skip

ROWS = [
    ("partial_offload", uneven("44.5 GiB", 61), uneven("28.0 GiB", 81)),
    ("gpu_uneven_split", uneven("28.0 GiB", 70), uneven("44.5 GiB", 61)),
    ("vram_used_by_other_process", held("15.4 GiB", 14000), held("43.9 GiB", 14000)),
    ("vram_used_by_other_process", held("15.4 GiB", 14000), held("15.4 GiB", 52000)),  # it would not fit anyhow
    ("proxy_timeout_60s", minute(3), minute(1)),
    ("discovery_ok_but_runner_cpu", FOUND_UNUSED, IN_HOST.text()),
    ("api_exposed_without_auth", served(listen="[::]:11434", OLLAMA_HOST="http://0.0.0.0:11434", OLLAMA_ORIGINS="[* http://localhost]").text(), served(OLLAMA_ORIGINS="[* http://localhost]").text()),
]  # fmt: skip


def only_config(host: str) -> str:
    return Log("0.4.1").config(OLLAMA_HOST=host).text()


def symbols(device: bool) -> str:
    log = Log("0.5.7").config().listen()
    if device:
        log.say("no nvidia devices detected by library /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14", source="gpu.go:620")
    log.say("Unable to load cudart library /usr/lib/libcuda.so.470.1: symbol lookup for cuCtxCreate_v3 failed: /usr/lib/libcuda.so.470.1: undefined symbol: cuCtxCreate_v3", source="gpu.go:630")
    return log.say("no compatible GPUs were discovered", source="gpu.go:392").cpu().text()


def quantised(architecture: str) -> str:
    log = served("0.13.5").say("quantized kv cache requested but flash attention disabled", "WARN", "server.go:257", type="q8_0")
    log.line("starting runner", 'cmd="/usr/bin/ollama runner --ollama-engine --model /m/blobs/sha256-aa --port 41001"', source="server.go:430")
    log.line("", f'architecture={architecture} file_type=F16 name=some description="" num_tensors=112 num_key_values=25', source="ggml.go:136")
    return log.say("llama runner started in 2.10 seconds", source="server.go:1289").gin(200, "1.1s").text()


def gave_up(words: str) -> str:
    log = served("0.12.0").load(4096, layers=(33, 33), kv_mib=400).gin(200, "8s")
    return log.raw(words).gin(500, "45.0s").text()


def by_turns(*durations: str) -> str:
    log = Log("0.9.6")
    for took in durations:
        log.later(90).gin(200, took)
    return log.text()



def part_hidden(other: str) -> str:
    """One of two GPUs is chosen, and the other one comes in by this backend."""
    log = Log("0.32.0").config(CUDA_VISIBLE_DEVICES="0").listen().gpu("NVIDIA A40", "44.4 GiB", "44.0 GiB")
    return log.gpu("NVIDIA A40", "44.4 GiB", "44.0 GiB", lib=other, cc="0.0", id=1).text()


STATUS = "$ systemctl status ollama\n● ollama.service - Ollama Service\n     Loaded: loaded (/etc/systemd/system/ollama.service; enabled; preset: enabled)\n     Active: {}\n{}"
SKIPPED = (
    ("ollama.service - Ollama Service was skipped because of an unmet condition check (ConditionPathIsMountPoint=/data).",),
    ("Condition check resulted in Ollama Service being skipped.",),
    ("ollama.service: Starting requested but asserts failed.", "Assertion failed for Ollama Service."),
)
RUNS = journal("Started Ollama Service.").replace("10:00", "11:00") + "\n".join(f"May 04 11:00:01 host ollama[901]: {row}" for row in served().rows) + "\n"

ROWS += [
    ("api_exposed_without_auth", only_config("http://0.0.0.0:6006"), only_config("http://127.0.0.1:6006")),
    ("no_gpu_found", symbols(True), symbols(True)),
    ("nvidia_driver_too_old", symbols(False), symbols(True)),
    ("kv_type_without_flash_attention", quantised("llama"), quantised("nomic-bert")),
    ("client_timeout_500_clusters", gave_up("app  | WARNING app.llm: giving up (ReadTimeout)"), gave_up("app  | INFO app.llm: asks again")),
    ("client_overrides_keep_alive", by_turns("4s", "48s", "5s", "51s", "4s", "4s"), by_turns("4s", "25s", "5s", "110s", "4s", "4s")),
    ("malformed_env_assignment", "nohup: failed to run command 'OLLAMA_KEEP_ALIVE=1h': No such file or directory\n", "$ OLLAMA_KEEP_ALIVE=1h nohup ollama serve\n" + served(OLLAMA_KEEP_ALIVE="1h0m0s").text()),
    ("malformed_env_assignment", "run.sh: line 7: OLLAMA_HOST=0.0.0.0: command not found\n", "run.sh: line 7: FOO=1: command not found\n" + served().text()),
    *(("service_not_started_at_boot", journal(*skipped), journal(*skipped) + RUNS) for skipped in SKIPPED),
    ("service_not_started_at_boot", STATUS.format("inactive (dead)", "  Condition: start condition unmet at Mon 2026-05-04 09:00:01 UTC; 5min ago\n             └─ ConditionPathIsMountPoint=/data was not met\n"), STATUS.format("active (running) since Mon 2026-05-04 09:00:01 UTC; 5min ago", "")),
    ("models_dir_no_access", served().text() + 'time=2026-06-03T09:00:09Z level=INFO source=images.go:660 msg="couldn\'t write to /srv/llm/manifests/registry.ollama.ai/library/mini/1b"\n', served().text() + 'time=2026-06-03T09:00:09Z level=INFO source=download.go:177 msg="downloading ab12 in 8 100 MB part(s)"\n'),
    ("models_dir_no_access", "Error: mkdir /var/lib/ollama: file exists: ensure path elements are traversable\n", "Error: mkdir /srv/llm: file exists\n" + served().text()),
    ("ollama_not_installed", "nohup: failed to run command 'ollama': No such file or directory\n", served().text() + "nohup: failed to run command 'chat': No such file or directory\n"),
    ("load_oom", "Configured MLX memory limit from free device memory active=\"40.1 GiB\" limit=\"87.5 GiB\"\nmlx: cudaMallocAsync(&data, size, stream) failed: out of memory\n", served().text()),
    ("gpu_hidden_in_one_backend_only", part_hidden("Vulkan"), part_hidden("CUDA")),
    ("models_in_two_dirs", "After I started it by hand all my models are gone, ollama list is empty.\n", "With the plugin the model is gone half a minute later.\n"),
    ("ollama_not_installed", "Command 'ollama' not found, did you mean:\n", served().text() + "Command 'olama' not found, did you mean:\n"),
    ("ollama_not_installed", "-bash: /usr/local/bin/ollama: No such file or directory\n", served().text() + "ls: cannot access '/usr/bin/ollama': No such file or directory\n"),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_it_is_first(row: tuple[str, str, str]) -> None:
    fires_first(row)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_its_near_miss_is_quiet(row: tuple[str, str, str]) -> None:
    near_miss_is_quiet(row)


def test_no_gpu_is_told_before_what_is_only_worth_knowing() -> None:
    log = on_cpu().say("requested context size too large for model", "WARN", "server.go:167", num_ctx=8192, n_ctx_train=2048)
    assert [f.check for f in report(log.text()).findings][:2] == ["no_gpu_found", "num_ctx_capped_to_trained_context"]


@pytest.mark.parametrize("times", [3, 60])
def test_refused_options_do_no_harm(times: int) -> None:
    found = report(refused(times)).findings
    assert found[0].check == "no_gpu_found"
    flood = next(f for f in found if f.check == "invalid_option_flood")
    assert flood.severity == "info" and "mirostat" in flood.remedy and "num_predict" not in flood.remedy


def test_a_flood_hides_a_log_and_is_told_before_slots() -> None:
    log = served(OLLAMA_NUM_PARALLEL="1").load(4096, layers=(33, 33), kv_mib=400)
    for _ in range(12):
        log.gin(200, "9.1s").gin(200, "8.2s").gin(200, "7.9s")
    for _ in range(60):
        log.say("invalid option provided", "WARN", "types.go:976", option="max_tokens")
    found = report(log.text()).findings
    assert found[0].check == "invalid_option_flood" and "num_predict" in found[0].remedy


def test_a_context_of_the_tier_that_no_load_took_explains_nothing() -> None:
    log = Log("0.33.0").config(OLLAMA_CONTEXT_LENGTH="0").listen().gpu("NVIDIA L4", "23.5 GiB", "23.0 GiB").tier("23.5 GiB", 32768)
    chosen = log.load(4096, layers=(40, 65), weights_mib=21000, says="load_tensors:   CPU_Mapped model buffer size =  9000.00 MiB").text()
    assert report(chosen).findings[0].check == "partial_offload"
    assert "vram_tiered_default_context" not in {f.check for f in report(chosen).findings}


def test_a_load_whose_context_was_cut_away_is_no_change_of_options() -> None:
    log = served("0.13.5").load(2048, layers=(13, 13)).later(900)
    log.line("starting runner", 'cmd="/usr/local/bin/ollama runner --model {} --port 40001"'.format("/m/blobs/sha256-aa"), source="server.go:400")
    text = log.later(900).load(2048, layers=(13, 13)).text()
    assert "model_reload_every_request" not in {f.check for f in report(text).findings}


def test_what_the_log_loads_is_no_listing_of_a_package() -> None:
    log = on_cpu().raw("load_backend: loaded CPU backend from /usr/lib/ollama/libggml-cpu-haswell.so")
    assert report(log.text()).findings[0].check == "no_gpu_found"


def test_a_bare_word_of_another_program_damages_no_model() -> None:
    assert "model_blob_truncated" not in {f.check for f in report(served().text() + "unexpected EOF\n").findings}


def test_a_build_that_has_libraries_for_an_old_driver_needs_no_newer() -> None:
    """`variant=v11` of 0.7 to 0.9: the GPU is used."""
    old = Log("0.9.0").config().listen().gpu("NVIDIA GeForce RTX 4050 Laptop GPU", "6.0 GiB", "5.0 GiB", driver="12.0").text()
    assert "nvidia_driver_too_old" in {f.check for f in report(old).findings}
    assert "nvidia_driver_too_old" not in {f.check for f in report(old.replace("variant=v12", "variant=v11")).findings}


def test_inputs_of_an_embedding_are_not_cured_by_a_longer_context() -> None:
    log = served("0.17.7").load(256, layers=(7, 7), embedding=True)
    for _ in range(3):
        log.say("llm embedding error: the input length exceeds the context length", source="server.go:1751").gin(400, "21ms", "/api/embed")
    found = report(log.text()).findings[0]
    assert found.check == "prompt_truncated" and found.summary.startswith("3 inputs")
    assert "apply" not in found.remedy and not any("status 200" in text for text in found.consequences)
