"""What is pasted or told of clients and of loads: each with what it must lead to, and what the like of it must not."""

# ruff: noqa: E501 - pasted lines are as wide as they are
from __future__ import annotations

import pytest

from ollamactl.core import pasted
from ollamactl.core.checks import run

A, B = "ab" * 32, "cd" * 32
LISTENS = 'time=2026-06-03T09:00:00.100Z level=INFO source=routes.go:1800 msg="Listening on 127.0.0.1:11434 (version 0.20.0)"\n'


def found(text: str, *severities: str) -> list[str]:
    facts = pasted.facts_of(text.encode(), "paste")
    wanted = severities or ("error", "warning")
    return [] if facts is None else [f.check for f in run(facts).findings if f.severity in wanted]


SHELL = "$ ollama list\nError: could not connect to ollama server, run 'ollama serve' to start it\n$ env | grep OLLAMA\nOLLAMA_HOST=127.0.0.1:{}\n$ journalctl -u ollama -o cat\n" + LISTENS  # fmt: skip
MODELFILE = "$ ollama show {name} --modelfile\nFROM /var/lib/ollama/blobs/sha256-{blob}\n{parameter}\n"
TWO = "$ ollama show mini\n  Model\n    architecture  llama\n  Parameters\n    num_ctx        {own}\n$ journalctl -u ollama -o cat\n" + 'time=2026-06-03T09:00:00Z level=INFO source=routes.go:1 msg="server config" env="map[OLLAMA_CONTEXT_LENGTH:16384 OLLAMA_HOST:http://127.0.0.1:11434]"\n' + LISTENS  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SHELL.format(11500), ["client_host_differs_from_server"]),
        (SHELL.format(11434), []),
        ("env: HTTP_PROXY=http://10.1.1.9:8080; proxy's access.log: TCP_MISS/503 1712 GET http://ws4.example.lan:11434/api/tags\n", ["http_proxy_hijacks_local_api"]),
        ("$ curl -v http://10.0.0.4:11434/api/tags\n* Uses proxy env variable http_proxy == 'http://10.1.1.9:8080'\n< HTTP/1.1 403 Forbidden\n", ["http_proxy_hijacks_local_api"]),
        ("proxy's access.log: TCP_TUNNEL/200 5112 CONNECT registry.ollama.ai:443; ollama version is 0.20.0\n", []),
        (MODELFILE.format(name="mini", blob=A, parameter="PARAMETER num_ctx 16384") + MODELFILE.format(name="mini-b", blob=A, parameter="TEMPLATE x"), ["one_blob_under_two_names"]),
        (MODELFILE.format(name="mini", blob=A, parameter="PARAMETER num_ctx 16384") + MODELFILE.format(name="mini-b", blob=A, parameter="PARAMETER num_ctx 16384"), []),
        (MODELFILE.format(name="mini", blob=A, parameter="PARAMETER num_ctx 16384") + MODELFILE.format(name="mini-b", blob=B, parameter="TEMPLATE x"), []),
        (MODELFILE.format(name="mini", blob=A, parameter="PARAMETER temperature 1") + MODELFILE.format(name="mini-b", blob=A, parameter="PARAMETER temperature 0"), []),
        (TWO.format(own=2048), ["modelfile_num_ctx_overrides"]),
        (TWO.format(own=16384), []),
    ],
)  # fmt: skip
def test_of_clients_and_models(text: str, expected: list[str]) -> None:
    own = [
        name
        for name in found(text, "error", "warning", "info")
        if name not in ("parallel_is_one", "env_set_in_shell_not_service")
    ]
    assert own == expected


@pytest.mark.parametrize(
    ("text", "first", "healthy"),
    [
        (
            "The chat app has a context of 20000 set for http://gpu.lan:11434/v1 and loses the first half of each document.",
            "client_num_ctx_not_sent",
            "The chat app has a context of 20000 set for http://gpu.lan:11434/v1 and finds all of each document.",
        ),
        (
            "OLLAMA_MAX_QUEUE=8 is set, the model warm, and of 60 calls at the same time not one was refused.",
            "max_queue_not_applied_to_loaded_model",
            "OLLAMA_MAX_QUEUE=8 is set, the model warm, and 6 calls at the same time are answered.",
        ),
        (
            "OLLAMA_MAX_QUEUE is 3, the model is loaded, forty calls at once are accepted and the last takes six minutes. No request gets 503.",
            "max_queue_not_applied_to_loaded_model",
            "OLLAMA_MAX_QUEUE is 3, the model is loaded, two calls at once are accepted.",
        ),
        (
            "Free memory is at 90 MB and all 16 GB of swap are in use: nothing is killed, but vmstat prints si 50210 so 41007 while the model answers.",
            "swap_thrash",
            "Free memory is at 9 GB and swap is not in use: nothing is killed, and vmstat prints si 0 so 0 while the model answers.",
        ),
        (
            "I ran launchctl setenv OLLAMA_HOST 0.0.0.0 on the Mac. Since the reboot my tablet gets connection refused, launchctl getenv OLLAMA_HOST prints nothing.",
            "launchctl_setenv_not_persistent",
            "I have OLLAMA_HOST in a LaunchAgent on the Mac. Since the reboot my tablet gets its answers as before.",
        ),
        (
            "KEEP_ALIVE is for ever, but the model is gone four minutes after the editor's extension used it; ollama ps: UNTIL 3 minutes from now",
            "client_overrides_keep_alive",
            "KEEP_ALIVE is for ever and the editor's extension uses it; ollama ps: UNTIL Forever",
        ),
        (
            "ollama ps: 4096 -> 9.1 GB 100% GPU; 65536 -> 21 GB 38%/62% CPU/GPU",
            "kv_cache_exceeds_vram",
            "ollama ps: 4096 -> 9.1 GB 100% GPU; 65536 -> 21 GB 100% GPU",
        ),
        (
            'body: options={"num_gpu": 12}; offloaded 12/41 layers to GPU, memory.available="[22.1 GiB]" layers.requested=12; from the shell: offloaded 41/41',
            "num_gpu_option_limits_layers",
            'body: options={"temperature": 0}; offloaded 41/41 layers to GPU; from the shell: offloaded 41/41',
        ),
        (
            'Parallel:6 KvSize:196608 (before: Parallel:1 KvSize:32768), msg="kv cache" device=CUDA0 size="10.0 GiB", msg="kv cache" device=CPU size="14.0 GiB"; it spills to the CPU since then',
            "context_multiplied_by_parallel",
            'Parallel:1 KvSize:32768, msg="kv cache" device=CUDA0 size="4.0 GiB"; it fits since then',
        ),
    ],
)  # fmt: skip
def test_told_cases(text: str, first: str, healthy: str) -> None:
    assert found(text, "error", "warning", "info")[:1] == [first]
    assert first not in found(healthy, "error", "warning", "info")
    assert found(healthy) == []


@pytest.mark.parametrize(
    "text",
    [
        "The model is gone from memory five minutes later, as KEEP_ALIVE says.",
        "The 8B model is slow on a card that is nearly empty.",
        "With a longer prompt the model's answer is lost halfway.",
        "each time the plug-in was used the model is gone after 5 minutes",
    ],
)
def test_what_is_gone_is_no_folder_of_models(text: str) -> None:
    assert "models_in_two_dirs" not in found(f"{text}; ollama version is 0.20.0", "error", "warning", "info")
    assert "models_in_two_dirs" in found("After the update all my models are gone; ollama version is 0.20.0")


ECHO = "$ echo $OLLAMA_HOST\n127.0.0.1:{}\n$ ollama ps\nError: could not connect to ollama server, run 'ollama serve' to start it\n$ ss -ltnp\nLISTEN 0      4096       127.0.0.1:11434      0.0.0.0:*    users:((\"ollama\",pid=1101,fd=3))\n"
KEPT = "$ systemctl show ollama -p Environment\nEnvironment=OLLAMA_KEEP_ALIVE={keep}\n$ ollama ps\nNAME        ID              SIZE      PROCESSOR    CONTEXT    UNTIL\nmini:4b     359d7dd4bcda    3.5 GB    100% GPU     4096       {until}\n"
FEW = "$ ollama show mini --modelfile\nFROM mini:4b\nPARAMETER num_gpu {}\n$ journalctl -u ollama -o cat\nload_tensors: offloaded {}/41 layers to GPU\n"
TIMED = "$ curl -s -o /dev/null -w '%{{http_code}} %{{time_total}}\\n' https://llm.example.lan/api/chat -d @q.json\n{}\n$ ollama -v\nollama version is 0.20.0\n"
PINNED = "OLLAMA_KEEP_ALIVE is {} and in the log as well.\nseen on the wire: POST /api/chat {{\"model\":\"mini\",\"messages\":[],\"keep_alive\":\"{}\"}}\n"
TURNS = "$ ollama ps\nNAME     ID              SIZE      PROCESSOR    CONTEXT    UNTIL\n{}:4b    359d7dd4bcda    3.5 GB    100% GPU     4096       4 minutes from now\n"
SHOWN = "$ ollama show mini --parameters\nnum_gpu                        {}\ntemperature                    0.3\n$ journalctl -u ollama -o cat\nload_tensors: offloaded {}/41 layers to GPU\n"
ASKS = '$ curl -s localhost:11434/api/generate -d \'{{"model":"mini",{}"keep_alive":{}}}\' | jq .load_duration\n8123456789\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ECHO.format(12000), ["client_host_differs_from_server"]),
        (KEPT.format(keep="-1", until="3 minutes from now"), ["client_overrides_keep_alive"]),
        (KEPT.format(keep="-1", until="Forever"), []),
        (KEPT.format(keep="5m", until="3 minutes from now"), []),
        (FEW.format(6, 6), ["num_gpu_option_limits_layers"]),
        (FEW.format(99, 41), []),
        (SHOWN.format(6, 6), ["num_gpu_option_limits_layers"]),
        (SHOWN.format(99, 41), []),
        (PINNED.format("24h", "45s"), ["client_overrides_keep_alive"]),
        (PINNED.format("24h", "24h"), []),
        (TURNS.format("a") + TURNS.format("b") + TURNS.format("a"), ["models_evict_each_other"]),
        (TURNS.format("a") + TURNS.format("b"), []),
        (TIMED.format("504 60.011"), ["proxy_timeout_60s"]),
        (TIMED.format("504 0.004"), []),
        (TIMED.format("200 64.123"), []),
        (ASKS.format('"prompt":"x",', 0), ["client_overrides_keep_alive"]),
        (ASKS.format('"prompt":"x",', -1), []),
        (ASKS.format("", 0), []),  # unloads the model
    ],
)  # fmt: skip
def test_outputs_of_commands_about_clients(text: str, expected: list[str]) -> None:
    assert found(text) == expected


ALONE = "$ ollama -v\nWarning: could not connect to a running Ollama instance\nWarning: client version is 0.5.4\n"
BESIDE = "$ ollama -v\nollama version is 0.5.1\nWarning: client version is 0.5.4\n"


@pytest.mark.parametrize(("text", "differ"), [(ALONE, False), (BESIDE, True), (ALONE + BESIDE, True)])
def test_a_client_that_nobody_answers_says_its_own_release(text: str, differ: bool) -> None:
    assert ("client_server_version_mismatch" in found(text)) == differ


PS = "$ docker ps\nNAMES    IMAGE            STATUS          PORTS\n{name}   {image}   Up 9 minutes    {port}\n"


@pytest.mark.parametrize(
    ("name", "image", "port", "exposed"),
    [
        ("notes", "acme/notes:latest", "0.0.0.0:8502->8502/tcp", False),
        ("notes", "acme/notes:latest", "0.0.0.0:11434->11434/tcp", True),
        ("models", "ollama/ollama", "0.0.0.0:8080->8080/tcp", True),
        ("models", "ollama/ollama", "127.0.0.1:11434->11434/tcp", False),
    ],
)
def test_ports_of_other_containers_are_not_the_servers(name: str, image: str, port: str, exposed: bool) -> None:
    text = PS.format(name=name, image=image, port=port)
    assert ("api_exposed_without_auth" in found(text)) == exposed


BREW = "$ launchctl print gui/501/homebrew.mxcl.ollama | grep OLLAMA\n\t\t{name} => {value}\n"


@pytest.mark.parametrize(
    ("name", "value", "rewritten"),
    [
        ("OLLAMA_FLASH_ATTENTION", "1", False),
        ("OLLAMA_KV_CACHE_TYPE", "q8_0", False),
        ("OLLAMA_KV_CACHE_TYPE", "q4_0", True),
        ("OLLAMA_NUM_PARALLEL", "4", True),
    ],
)
def test_what_the_formula_sets_is_no_edit_of_its_plist(name: str, value: str, rewritten: bool) -> None:
    assert ("brew_plist_rewritten" in found(BREW.format(name=name, value=value))) == rewritten
