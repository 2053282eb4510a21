"""The stand-in of Ollama equals the recordings, setting by setting: the lab is worth what this proves."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))

from lab.standin import models
from lab.standin.install import MODELS, cache_folder, install
from lab.standin.process import Server, call
from lab.standin.recording import RECORDED, blot, journal, kind, load, own, text

pytestmark = pytest.mark.engine

# Variables as systemd hands them over, where env.json does not hold them
ENV: dict[str, dict[str, Any]] = {
    "10c-spaces-percent-quotes": {
        "OLLAMA_KEEP_ALIVE": "7m", "OLLAMA_NUM_PARALLEL": "3", "OLLAMA_MAX_QUEUE": "'9'", "OLLAMA_LLM_LIBRARY": "cpu",
        "OLLAMA_LOAD_TIMEOUT": "10m", "OLLAMA_NOPRUNE": "1",
    },
    "10e-two-dropins-and-bak": {"OLLAMA_NUM_PARALLEL": "5"},
    "10f-reset-by-empty-environment": {"OLLAMA_MAX_QUEUE": "5"},
    "07o-parallel64-ctx131072-LimitAS3G": {"OLLAMA_NUM_PARALLEL": "64", "OLLAMA_CONTEXT_LENGTH": "131072"},
}  # fmt: skip
# Loaded, with three requests and an /api/show, as they were recorded
LOADED = (
    "01-defaults", "02-parallel4", "03-parallel4-ctx8192", "06a-kv-q8_0-fa1", "06b-kv-q4_0-fa1",
    "06c-kv-q8_0-fa-unset",
    "06e-fa1-only", "06f-kv-uppercase-Q8_0", "07a-parallel-abc", "07b-parallel-minus1", "07c-parallel-0",
    "07d-maxqueue-0", "07e-ctx-xyz", "07f-keepalive-bogus", "07h-host-0000", "07i-maxloaded-abc",
    "07j-parallel-4.0-and-space", "10e-two-dropins-and-bak", "10f-reset-by-empty-environment",
    "21a-LLAMA_ARG-env-passthrough",
)  # fmt: skip
# These load the real model, whose buffers, sizes and tokens can be compared; the others a tiny one under its name
REAL = ("01-defaults", "02-parallel4", "03-parallel4-ctx8192", "06a-kv-q8_0-fa1")
FAILING = ("07g-kv-q9_9", "07m-parallel300-over-256-seqs", "07o-parallel64-ctx131072-LimitAS3G")
ORDER = (
    "server config",
    "Listening on",
    "vram-based default",
    "starting llama-server",
    "loaded runners",
    "[GIN] 200 POST",
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("standin")
    install(folder)
    return folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A models folder in which gemma3:270m is a tiny model of that family."""
    folder = tmp_path_factory.mktemp("tiny") / MODELS
    models.register(folder, "gemma3:270m", models.gemma3(cache_folder()))
    return folder


def variables(scenario: str) -> dict[str, Any]:
    return ENV.get(scenario) or load(scenario, "env.json")


def start(root: Path, work: Path, scenario: str, store: Path | None = None, **more: Any) -> Server:
    given = variables(scenario) | ({"OLLAMA_MODELS": str(store)} if store else {})
    if "OLLAMA_HOST" in given:
        given = {key: value for key, value in given.items() if key != "OLLAMA_HOST"}
        server = Server(root, work, given, **more)
        server.stop()
        return Server(root, work, given | {"OLLAMA_HOST": f"0.0.0.0:{server.port}"}, **more)
    return Server(root, work, given, **more)


def without(lines: list[str], part: str) -> list[str]:
    return [line for line in lines if part not in line]


def assert_same_lines(got: list[str], recorded: list[str]) -> None:
    """The same lines as often; and the milestones in the same order (between them two threads of the server race)."""
    assert sorted(got) == sorted(recorded)
    for part in ORDER:
        first = [next((i for i, line in enumerate(lines) if part in line), -1) for lines in (got, recorded)]
        assert (first[0] < 0) == (first[1] < 0), part
    steps = [part for part in ORDER if any(part in line for line in recorded)]
    at = [next(i for i, line in enumerate(got) if part in line) for part in steps]
    assert at == sorted(at)


@pytest.mark.parametrize("scenario", LOADED)
def test_settings_as_recorded(root: Path, tiny: Path, tmp_path: Path, scenario: str) -> None:
    real = scenario in REAL
    with start(root, tmp_path, scenario, None if real else tiny) as server:
        server.port = int(re.split(r":(?=\d+ )", server.wait_line("Listening on"))[-1].split()[0])
        server.wait_ready()
        first = server.generate(stream=False)
        assert first.status == 200, first.body
        server.generate(stream=False)
        last = server.generate().body.splitlines()[-1]
        ps = server.call("GET", "/api/ps").json()
        env = server.env | {"OLLAMA_HOST": f"127.0.0.1:{server.port}"}
        command = [str(root / "usr/local/bin/ollama"), "ps"]
        shown = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
        slots = call(server.runner_port(), "GET", "/slots").json()
        metrics = call(server.runner_port(), "GET", "/metrics").status
        (runner,) = server.runners()
        command = Path(f"/proc/{runner}/cmdline").read_text().split("\0")[:-1]
        names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in (server.process.pid, runner)]
        server.call("POST", "/api/show", {"model": "gemma3:270m"})
    assert server.process.returncode == 0
    lines = server.lines()

    recorded = [line for line in journal(scenario) if "/api/" not in line or "generate" in line or "show" in line]
    if scenario.startswith("21a"):  # there the recorder asked more
        recorded = without(recorded, "[GIN]") + [line for line in own(lines) if "[GIN]" in line]
    assert_same_lines(own(lines), recorded)

    # what the process table, the runner and the API say
    assert names == ["ollama", "llama-server"]
    assert_same_command(command, load(scenario, "runner_cmdline.json")[-1])
    parallel = int(command[command.index("-np") + 1])
    keys = load(scenario, "slots_keys.json")
    used = [set(slot) for slot in slots if "id_task" in slot]
    fresh = [set(slot) for slot in slots if "id_task" not in slot]
    assert len(slots) == parallel == len(keys)
    # a newer engine may say more, it says nothing less
    assert all(set(next(item for item in keys if "id_task" in item)) <= slot for slot in used)
    assert all(set(next(item for item in keys if "id_task" not in item)) <= slot for slot in fresh)
    assert metrics == (200 if scenario.startswith("21a") else 501)

    (row,), (before,) = ps["models"], load(scenario, "api_ps.json")["models"]
    loose = {"size": 0} if real else {"size": 0, "details": None}
    assert kind(row) | loose == kind(before) | loose
    assert list(row["details"]) == list(before["details"])
    buffers = re.findall(r"(?m)^\S+: +(\S+) (model|KV|compute| output) *buffer size = +([\d.]+) MiB", "\n".join(lines))
    assert row["size"] == sum({(device, what): int(float(size) * 2**20) for device, what, size in buffers}.values())
    # the compute buffer is the one number that differs between the two builds of the engine
    assert not real or abs(row["size"] - before["size"]) < 2 * 2**20
    head, data = shown.splitlines()
    assert head.split() == text(scenario, "ollama_ps.txt").splitlines()[0].split()
    assert re.fullmatch(
        r"gemma3:270m    [0-9a-f]{12}    [\d.]+ [KM]B +100% CPU     \d+    +\d+ (minutes|seconds|hours).*from now    ",
        data,
    )

    for answer, name in ((first.body, "generate_nonstream_first.json"), (last, "generate_stream_last.json")):
        reply, known = json.loads(answer), load(scenario, name)
        assert list(reply) == list(known)
        assert kind({**reply, "response": "", "context": []}).keys() == kind(known).keys()
        assert not real or reply["prompt_eval_count"] == known["prompt_eval_count"]
        queued = reply["total_duration"] - sum(reply[f"{part}_duration"] for part in ("load", "prompt_eval", "eval"))
        assert queued >= 0


def assert_same_command(got: list[str], recorded: list[str]) -> None:
    same = [re.sub(r"^/\S*(?=/usr/local/lib/ollama|/usr/share/ollama)", "", word) for word in got]
    port, blob = same.index("--port") + 1, same.index("--model") + 1
    for words in (same, recorded):
        words[port], words[blob] = "P", words[blob].partition("sha256-")[0]
    assert same[1:] == recorded[1:] and same[0] == recorded[0]


@pytest.mark.parametrize("scenario", FAILING)
def test_load_that_fails_as_recorded(root: Path, tmp_path: Path, scenario: str) -> None:
    space = 3 << 30 if "LimitAS3G" in scenario else 0
    with start(root, tmp_path, scenario, address_space=space) as server:
        server.wait_ready()
        answer = server.generate(stream=False)
        assert answer.status == 500
        assert blot(answer.body) == blot(text(scenario, "generate_nonstream_first.json").rstrip("\n"))
        assert server.call("GET", "/api/ps").json() == {"models": []}
        assert server.runners() == []
    recorded = journal(scenario)
    recorded = recorded[: next(i for i, line in enumerate(recorded) if "[GIN]" in line) + 1]
    assert_same_lines(own(server.lines()), recorded)


def test_context_beyond_training_is_clipped(root: Path, tmp_path: Path) -> None:
    """64 slots of 32768 need gigabytes, so the client leaves as soon as the command line stands in the journal."""
    scenario = "07n-parallel64-ctx131072"
    with start(root, tmp_path, scenario) as server:
        server.wait_ready()
        process = subprocess.Popen(
            [
                "curl",
                "-s",
                f"http://127.0.0.1:{server.port}/api/generate",
                "-d",
                '{"model":"gemma3:270m","prompt":"a"}',
            ],
            stdout=subprocess.DEVNULL,
        )
        server.wait_line("waiting for llama-server to start responding")
        process.kill()
        process.wait()
        server.wait_line("aborting load")
    part = ("requested context", "starting llama-server", "server config")
    pick = [
        [line for line in lines if any(word in line for word in part)]
        for lines in (own(server.lines()), journal(scenario))
    ]
    assert pick[0] == pick[1]


def test_start_without_a_load(root: Path, tmp_path: Path) -> None:
    scenario = "10c-spaces-percent-quotes"
    origin = {"OLLAMA_ORIGINS": re.search(r"OLLAMA_ORIGINS:\[(\S+)", text(scenario, "journal.txt"))[1]}  # type: ignore[index]
    given = variables(scenario) | (origin if "example" in origin["OLLAMA_ORIGINS"] else {})
    with Server(root, tmp_path, given | {"OLLAMA_MODELS": str(tmp_path / "my")}) as server:
        server.wait_ready()
        server.call("POST", "/api/show", {"model": "gemma3:270m"})
    assert_same_lines(own(server.lines()), journal(scenario))


def test_embedding_model_gets_one_slot_in_silence(root: Path, tmp_path: Path) -> None:
    scenario = "13-embedding-model-parallel4"
    with Server(root, tmp_path, variables(scenario)) as server:
        server.wait_ready()
        answer = server.call("POST", "/api/embed", {"model": "fake-embed", "input": "hello"}).json()
        server.call("POST", "/api/embed", {"model": "fake-embed", "input": ["a", "b"]})
        legacy = server.call("POST", "/api/embeddings", {"model": "fake-embed", "prompt": "hello"}).json()
        refused = server.generate("fake-embed")
        (row,) = server.call("GET", "/api/ps").json()["models"]
        slots = call(server.runner_port(), "GET", "/slots").json()
        server.call("POST", "/api/show", {"model": "fake-embed"})
    assert list(answer) == ["model", "embeddings", "total_duration", "load_duration", "prompt_eval_count"]
    assert len(answer["embeddings"][0]) == len(legacy["embedding"]) == 640
    assert refused.status == 400
    assert len(slots) == 1
    assert set(load(scenario, "slots_keys.json")[0]) <= set(slots[0])
    (before,) = load(scenario, "api_ps.json")["models"]
    assert kind(row) | {"size": 0} == kind(before) | {"size": 0}
    # the last lines are of another model's /api/show
    recorded = [line for line in journal(scenario) if "/api/show" not in line and "images.go:798" not in line]
    assert_same_lines([line for line in own(server.lines()) if "/api/show" not in line], recorded)


def test_forced_family_gets_one_slot_with_a_warning(root: Path, tmp_path: Path) -> None:
    with Server(root, tmp_path, {"OLLAMA_NUM_PARALLEL": "4"}) as server:
        server.wait_ready()
        assert server.generate("tiny-lfm2").status == 200
        line = server.wait_line("does not currently support parallel requests")
        assert len(call(server.runner_port(), "GET", "/slots").json()) == 1
    assert line.endswith('msg="model architecture does not currently support parallel requests" architecture=lfm2')


def test_debug_lines(root: Path, tiny: Path, tmp_path: Path) -> None:
    scenario = "15a-debug1"
    with start(root, tmp_path, scenario, tiny) as server:
        server.wait_ready()
        for stream in (False, False, True):
            server.generate(stream=stream)
        server.call("POST", "/api/show", {"model": "gemma3:270m"})
        server.wait_line('POST     "/api/show"')
        lines = own(server.lines())
    assert_same_lines(lines, journal(scenario))


def test_request_log(root: Path, tiny: Path, tmp_path: Path) -> None:
    scenario = "21b-debug-log-requests"
    with start(root, tmp_path, scenario, tiny) as server:
        server.wait_ready()
        for stream in (False, False, True):
            server.generate(stream=stream)
        server.call("POST", "/api/show", {"model": "gemma3:270m"})
    assert_same_lines(own(server.lines()), journal(scenario))
    (body, *_), (script, *_) = (
        sorted(tmp_path.glob(f"ollama-request-logs-*/*_{end}")) for end in ("body.json", "request.sh")
    )
    assert json.loads(body.read_text())["model"] == "gemma3:270m"
    assert script.read_text().startswith("curl ")


def test_scenarios_are_all_used() -> None:
    """A recording that nothing compares would prove nothing."""
    sources = "".join(path.read_text() for path in Path(__file__).parent.glob("test_standin*.py"))
    left = [path.parent.name for path in RECORDED.glob("*/journal.txt") if path.parent.name not in sources]
    assert left == []
