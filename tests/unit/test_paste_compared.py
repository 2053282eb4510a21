"""Machines of which only outputs of commands were pasted: what several of them say together."""

# ruff: noqa: E501 - pasted lines are as wide as they are

from __future__ import annotations

import pytest

from ollamactl.core import pasted
from ollamactl.core.checks import run
from tests.system.small import A, Log

PS = "NAME    ID    SIZE    PROCESSOR    CONTEXT    UNTIL\n"
CPU_START = (
    'time=2026-05-01T10:00:00Z level=INFO source=routes.go:1 msg="server config" env="map[{} OLLAMA_DEBUG:INFO OLLAMA_HOST:http://127.0.0.1:11434]"\n'
    'time=2026-05-01T10:00:00Z level=INFO source=routes.go:2 msg="Listening on 127.0.0.1:11434 (version 0.31.0)"\n'
    'time=2026-05-01T10:00:01Z level=INFO source=types.go:3 msg="inference compute" id=cpu library=cpu total="31.0 GiB" available="28.0 GiB"\n'
)  # fmt: skip
SMI = "ann@box:~$ nvidia-smi -L\nGPU 0: NVIDIA RTX A2000 (UUID: GPU-11aa)\n"


def found(text: str, *severities: str) -> list[str]:
    facts = pasted.facts_of(text.encode(), "paste")
    return (
        []
        if facts is None
        else [f.check for f in run(facts).findings if f.severity in (severities or ("error", "warning"))]
    )


def rate(release: str, speed: float) -> str:
    return f"ann@box:~$ ollama -v; ollama run --verbose m hi\nollama version is {release}\nprompt eval rate:  900.0 tokens/s\neval rate:   {speed} tokens/s\n"


def test_a_release_that_is_slower_than_the_one_before() -> None:
    assert found(rate("0.24.0", 61.0) + rate("0.31.0", 20.5), "info") == ["slow_after_upgrade"]


@pytest.mark.parametrize("after", [rate("0.31.0", 58.0), rate("0.24.0", 20.5), rate("0.22.1", 20.5)])
def test_noise_the_same_release_and_an_older_one_say_nothing(after: str) -> None:
    assert "slow_after_upgrade" not in found(rate("0.24.0", 61.0) + after, "info", "warning")


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ("40G\t/home/ann/.ollama/models\n8.0K\t/usr/share/ollama/.ollama/models\n", ["models_in_two_dirs"]),
        ("40G\t/home/ann/.ollama/models\n12G\t/usr/share/ollama/.ollama/models\n", []),
        ("40G\t/usr/share/ollama/.ollama/models\n", []),
    ],
)
def test_usage_of_two_model_folders(usage: str, expected: list[str]) -> None:
    assert found(f"ann@box:~$ ollama -v\nollama version is 0.31.0\nann@box:~$ sudo du -sh X Y\n{usage}") == expected


@pytest.mark.parametrize(
    ("shown", "first"),
    [
        ("ann@box:~$ ls /usr/lib/ollama\nlibggml-base.so  libggml-cpu-haswell.so\n", "package_without_gpu_libs"),
        ("ann@box:~$ pacman -Q | grep ollama\nollama 0.31.0-1\n", "package_without_gpu_libs"),
        ("ann@box:~$ ls /usr/lib/ollama\ncuda_v12  libggml-base.so  libggml-cpu-haswell.so\n", "service_started_before_gpu"),
        ("ann@box:~$ pacman -Q | grep ollama\nollama 0.31.0-1\nollama-cuda 0.31.0-1\n", "service_started_before_gpu"),
    ],
)  # fmt: skip
def test_libraries_for_the_cpu_only(shown: str, first: str) -> None:
    assert found(SMI + shown + CPU_START.format("CUDA_VISIBLE_DEVICES:"))[:1] == [first]


def test_a_choice_of_devices_explains_a_start_without_a_gpu() -> None:
    assert found(SMI + CPU_START.format("CUDA_VISIBLE_DEVICES:5"))[:1] == ["visible_devices_override"]
    assert "visible_devices_override" not in found(SMI + CPU_START.format("CUDA_VISIBLE_DEVICES:-1"))


@pytest.mark.parametrize(
    "windows",
    [
        "PS C:\\Users\\ann> [Environment]::GetEnvironmentVariable('OLLAMA_KEEP_ALIVE','User')\n2h\n",
        "PS C:\\Users\\ann> [Environment]::SetEnvironmentVariable('OLLAMA_KEEP_ALIVE','2h','User')\n",
        "C:\\Users\\ann> reg query HKCU\\Environment\n    OLLAMA_KEEP_ALIVE    REG_SZ    2h\n",
        "PS C:\\Users\\ann> $env:OLLAMA_KEEP_ALIVE\n2h\n",
    ],
)
def test_what_windows_has_does_not_reach_wsl(windows: str) -> None:
    inside = "ann@PC:~$ uname -r\n6.6.87.2-microsoft-standard-WSL2\nann@PC:~$ env | grep OLLAMA\n"
    assert found(windows + inside) == ["env_wrong_side_of_wsl"]


def test_a_server_that_is_not_the_unit() -> None:
    socket = 'LISTEN 0 4096 127.0.0.1:11434 0.0.0.0:* users:(("{}",pid=901,fd=3))\n'
    unit = "ann@box:~$ systemctl is-active ollama\n{}\nann@box:~$ sudo ss -ltnp\n"
    assert found(unit.format("inactive") + socket.format("ollama"))[:1] == ["running_server_is_not_the_service"]
    assert found(unit.format("active") + socket.format("ollama")) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ann@box:~$ ollama -v\n-bash: ollama: command not found\nann@box:~$ systemctl status ollama\nUnit ollama.service could not be found.\n", ["ollama_not_installed"]),
        ("ann@box:~$ which ollama\n/usr/local/bin/ollama\nann@box:~$ systemctl --user enable ollama\nFailed to enable unit: Unit file ollama.service does not exist.\n", ["user_unit_absent"]),
    ],
)  # fmt: skip
def test_no_unit_and_no_program(text: str, expected: list[str]) -> None:
    assert found(text)[:1] == expected


def test_an_old_server_in_memory_explains_what_it_refuses() -> None:
    text = "ann@box:~$ ollama -v\nollama version is 0.11.0\nWarning: client version is 0.31.0\nann@box:~$ ollama pull m\nError: pull model manifest: 412: requires a newer version of Ollama\n"
    assert found(text)[0] == "client_server_version_mismatch"


def test_brew_that_stops_its_service_is_no_model_that_hangs() -> None:
    text = "ann@mini ~ % brew services restart ollama\nStopping `ollama`... (might take a while)\n==> Successfully started `ollama`\n"
    assert "model_stuck_stopping" not in found(text)


def test_the_session_of_launchctl() -> None:
    text = "ann@mini ~ % launchctl managername\n{}\nann@mini ~ % launchctl setenv OLLAMA_HOST 0.0.0.0\n"
    assert found(text.format("Background"))[:1] == ["launchctl_wrong_domain"]
    assert "launchctl_wrong_domain" not in found(text.format("Aqua"))


def test_a_program_below_homebrews_folder_is_no_brew_service() -> None:
    plist = "<key>ProgramArguments</key><array><string>/opt/homebrew/bin/ollama</string></array>\n<key>EnvironmentVariables</key><dict><key>OLLAMA_HOST</key><string>127.0.0.1:11500</string></dict>\n"
    assert "brew_plist_rewritten" not in found("~/Library/LaunchAgents/org.ann.plist\n" + plist)


def test_the_kernels_word_on_a_small_bar() -> None:
    line = "[    3.2] i915 0000:03:00.0: [drm] Using a reduced BAR size of 256MiB.\n"
    assert found(f"ann@box:~$ dmesg | grep i915\n{line}ann@box:~$ ollama -v\nollama version is 0.31.0\n") == [
        "rebar_disabled"
    ]


def test_more_memory_after_an_upgrade_comes_before_what_spills() -> None:
    before = f"ollama version is 0.12.3\n{PS}m:12b  1234567890ab  10 GB  100% GPU  8192  4 minutes from now\n"
    after = f"ollama version is 0.12.5\n{PS}m:12b  1234567890ab  15 GB  24%/76% CPU/GPU  {{}}  4 minutes from now\n"
    assert found(before + after.format(8192))[0] == "memory_regression_after_upgrade"
    assert "memory_regression_after_upgrade" not in found(before + after.format(32768))


@pytest.mark.parametrize(
    ("told", "first"),
    [
        ("api/ps says size 40000000000 size_vram 20000000000 context_length 4096", ["partial_offload"]),
        ("api/ps says size 40000000000 size_vram 40000000000 context_length 4096", []),
        ("KvSize:98304; offloaded 9/33 layers", ["partial_offload"]),
        ("KvSize:98304; offloaded 33/33 layers", []),
        ("Host has 64 GB; docker inspect Memory 4294967296; error: model requires more system memory (6.0 GiB) than is available (3.8 GiB)", ["memory_limit_below_need"]),
        ("GIN 403 | 14µs POST /api/generate; Origin: moz-extension://0a1b; the add-on says: unable to connect to Ollama", ["origin_not_allowed_403"]),
        ("It runs in Debian under WSL2; I set OLLAMA_KEEP_ALIVE in the Windows environment", ["env_wrong_side_of_wsl"]),
        ("I set OLLAMA_KEEP_ALIVE in the Windows environment", []),
        ("the unit's settings never apply; ps shows ollama serve in tmux", ["running_server_is_not_the_service"]),
        ("server config: OLLAMA_NUM_PARALLEL:0 OLLAMA_DEBUG:false; I never set OLLAMA_NUM_PARALLEL", []),
    ],
)  # fmt: skip
def test_told_in_words(told: str, first: list[str]) -> None:
    assert found(told)[:1] == first


def test_a_modelfiles_own_context_is_told() -> None:
    told = "server config: OLLAMA_CONTEXT_LENGTH:65536 OLLAMA_DEBUG:false; ollama show --modelfile desk: PARAMETER num_ctx {}"
    assert "modelfile_num_ctx_overrides" in found(told.format(16384), "info", "warning")
    assert "modelfile_num_ctx_overrides" not in found(told.format(65536), "info", "warning")


GPU_START = CPU_START.replace('id=cpu library=cpu total="31.0 GiB"', 'id=0 library=ROCm name=ROCm0 total="16.0 GiB"')


def test_a_start_without_a_gpu_before_one_that_has_it() -> None:
    before, after = CPU_START.format("CUDA_VISIBLE_DEVICES:"), GPU_START.format("CUDA_VISIBLE_DEVICES:")
    assert "service_started_before_gpu" in found(before + after, "info")
    assert "service_started_before_gpu" not in found(after + after, "info", "warning")
    older = before.replace("0.31.0", "0.30.2")
    assert "service_started_before_gpu" not in found(older + after, "info", "warning")


@pytest.mark.parametrize(
    ("sizes", "fires"), [("-c 2048, -c 16384, -c 2048", True), ("-c 2048, -c 2048, -c 2048", False)]
)
def test_starts_of_a_runner_one_after_another(sizes: str, fires: bool) -> None:
    assert ("model_reload_every_request" in found(f"starting llama-server {sizes} for one blob")) is fires


def test_a_control_process_is_not_the_main_process() -> None:
    first = found("ExecStartPre=/usr/bin/ollama pull m; Control process exited, code=exited, status=1/FAILURE")[:1]
    assert first == ["client_command_in_start_pre"]


@pytest.mark.parametrize(("size", "fires"), [("7012.5", True), ("31.0", False)])
def test_a_prompt_cache_that_was_told(size: str, fires: bool) -> None:
    told = f"srv update: - cache state: 12 prompts, 20.5 MiB … 300 prompts, {size} MiB; llama-server RSS 9 GB"
    assert ("prompt_cache_growth" in found(told, "info", "warning")) is fires


@pytest.mark.parametrize(("trials", "fires"), [("4 8 16", False), ("4 8", True), ("4 16", True)])
def test_a_value_that_the_server_has_among_those_that_were_tried(trials: str, fires: bool) -> None:
    bench = "".join(f"NUM_PARALLEL={n} : 200 tok/s\n" for n in trials.split())
    said = found(bench + Log("0.31.0").config(OLLAMA_NUM_PARALLEL="16").listen().text())
    assert ("env_not_in_server_config" in said) is fires


@pytest.mark.parametrize("state", ["no kernel image is available for execution on the device", "out of memory"])
def test_no_context_cures_a_library_without_code_for_the_gpu(state: str) -> None:
    log = Log("0.31.0").config(OLLAMA_CONTEXT_LENGTH="0").listen().gpu()
    log.say("vram-based default context", source="routes.go:9", total_vram="31.7 GiB", default_num_ctx=32768)
    text = (
        log.text() + f'time=2026-05-01T10:00:02Z level=INFO source=x.go:1 msg="starting llama-server" cmd="/l/llama-server --model {A} -c 32768 -np 1"\n'
        f'CUDA error: {state}\ntime=2026-05-01T10:00:03Z level=INFO source=sched.go:641 msg="Load failed" model={A} error="llama-server process has terminated: CUDA error: {state}"\n'
    )  # fmt: skip
    assert ("vram_tiered_default_context" in found(text)) is (state == "out of memory")


def test_the_place_without_an_init_system_is_why_no_server_answers() -> None:
    refused = "Error: could not connect to ollama server, run 'ollama serve' to start it\n"
    none = "System has not been booted with systemd as init system (PID 1). Can't operate.\n"
    assert found(refused + none)[:1] == ["no_init_system"]
    assert found(refused)[:1] == ["server_not_reachable"]


@pytest.mark.parametrize("start", [CPU_START, GPU_START])
def test_a_release_that_a_build_does_not_know(start: str) -> None:
    """It is told before what is only of slots, and after a GPU that is missing, which answers wait for."""
    cpu = ["no_gpu_found"] if start is CPU_START else []
    unknown = found(start.format("").replace("0.31.0", "0.0.0"), "info")
    assert unknown[: len(cpu) + 1] == [*cpu, "version_unknown"]
    assert found(start.format(""), "info")[: len(cpu)] == cpu and "version_unknown" not in found(start.format(""), "info")


def test_a_variable_of_env_before_a_server_is_of_that_server_only() -> None:
    log = Log("0.31.0").config().listen().text()
    assert "env_not_in_server_config" not in found("ann@box:~$ env OLLAMA_NUM_PARALLEL=4 ollama serve | head\n" + log)
    assert "env_not_in_server_config" in found("OLLAMA_NUM_PARALLEL=4 was given to it\n" + log)


def test_an_embedding_model_has_one_slot_whatever_the_default_context_is() -> None:
    log = Log("0.31.0").config(OLLAMA_NUM_PARALLEL="8", OLLAMA_CONTEXT_LENGTH="0").listen().gpu()
    log.say("vram-based default context", source="routes.go:9", total_vram="23.6 GiB", default_num_ctx=32768)
    load = f'time=2026-05-01T10:00:02Z level=INFO source=x.go:1 msg="starting llama-server" cmd="/l/llama-server --model {A} -c {{}} -np {{}}"\nprint_info: arch = {{}}\n'
    first = [found(log.text() + load.format(*row), "info")[0] for row in ((2048, 1, "bert"), (262144, 8, "llama"))]
    assert first == ["parallel_forced_to_1_embedding", "vram_tiered_default_context"]


UNIT = "ann@box:~$ systemctl cat ollama\n# /etc/systemd/system/ollama.service\n[Service]\nExecStart=/usr/bin/ollama serve\n{}\n"


@pytest.mark.parametrize(
    ("shown", "fires"),
    [
        ("ls: cannot access '/data/llm/models': No such file or directory", True),
        ("ls: cannot access '/data': No such file or directory", True),
        ("stat: cannot statx '/data/llm': No such file or directory", True),
        ("ls: cannot access '/data/llm/models': Permission denied", False),
        ("ls: cannot access '/data/llmx': No such file or directory", False),
        ("ls: cannot access '/data/llm/models/old': No such file or directory", False),
    ],
)
def test_a_models_folder_that_a_listing_does_not_find(shown: str, fires: bool) -> None:
    unit = UNIT.format("Environment=OLLAMA_MODELS=/data/llm/models")
    assert ("models_dir_missing" in found(f"{unit}ann@box:~$ ls -ld X\n{shown}\n")) is fires


@pytest.mark.parametrize(("available", "used", "fires"), [("300Mi", "14Gi", True), ("6Gi", "14Gi", False), ("300Mi", "200Mi", False)])  # fmt: skip
def test_swap_that_is_full_while_the_log_loads_a_model(available: str, used: str, fires: bool) -> None:
    free = f"ann@box:~$ free -h\n       total  used  free  shared  buff/cache  available\nMem:   15Gi  14Gi  131Mi  40Mi  610Mi  {available}\nSwap:  15Gi  {used}  211Mi\n"
    if used == "200Mi":
        free = free.replace("211Mi", "14Gi")
    load = f'time=2026-05-01T10:00:02Z level=INFO source=x.go:1 msg="starting llama-server" cmd="/l/llama-server --model {A} -c 4096 -np 1"\n'
    assert ("swap_thrash" in found(free + CPU_START.format("") + load)) is fires
    assert "swap_thrash" not in found(free + CPU_START.format(""))


@pytest.mark.parametrize(("why", "fires"), [("Unable to init instance: error", True), ("port is taken", False)])
def test_an_app_without_a_desktop(why: str, fires: bool) -> None:
    line = f'time=2026-05-01T06:00:02Z level=ERROR source=app.go:241 msg="Failed to start: {why}"\n'
    start = line.replace("ERROR", "INFO").replace(f"Failed to start: {why}", "starting Ollama")
    assert ("gui_app_without_session" in found(start + line)) is fires


@pytest.mark.parametrize(("path", "first"), [("/data/llm", "snap_confinement_models_path"), ("/var/snap/ollama/common/m", "models_dir_no_access")])  # fmt: skip
def test_a_folder_that_a_snap_may_not_make(path: str, first: str) -> None:
    shown = "ann@box:~$ snap services ollama\nService  Startup  Current\nollama.listener  enabled  inactive\n"
    assert found(f"{shown}Mar 12 10:00:01 box ollama.listener[9]: Error: mkdir {path}: permission denied\n")[:1] == [
        first
    ]


def test_a_gpu_that_a_server_beside_the_closed_service_finds() -> None:
    unit = UNIT.format("PrivateDevices=yes")
    beside = "ann@box:~$ sudo -u ollama env OLLAMA_HOST=127.0.0.1:11999 ollama serve 2>&1 | grep compute\n"
    gpu = GPU_START.splitlines()[-1] + "\n"
    assert found(unit + CPU_START.format("") + beside + gpu)[:1] == ["unit_sandbox_hides_gpu"]
    assert "unit_sandbox_hides_gpu" not in found(unit + GPU_START.format(""))
    assert "env_set_in_shell_not_service" in found(
        beside.replace("127.0.0.1", "0.0.0.0") + Log("0.31.0").config().listen().text()
    )


@pytest.mark.parametrize(
    ("processor", "cpu", "fires"),
    [("100% GPU", "1290", True), ("100% GPU", "104.3", False), ("41%/59% CPU/GPU", "1290", False), ("100% CPU", "1290", False)],
)  # fmt: skip
def test_top_beside_a_model_that_is_on_the_gpu(processor: str, cpu: str, fires: bool) -> None:
    ps = f"ann@box:~$ ollama ps\n{PS}m:12b    2e2d38fdd510    9.6 GB    {processor}    4096    4 minutes from now\n"
    top = f"ann@box:~$ top -bn1\n 2210 ollama    20   0   38.2g   2.9g   1.1g R  {cpu}   4.6  31:22.10 ollama\n"
    assert ("ps_says_gpu_but_cpu_busy" in found(ps + top)) is fires
    assert "ps_says_gpu_but_cpu_busy" not in found(ps + top.replace("22.10 ollama", "22.10 python"))
