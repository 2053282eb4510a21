"""The stand-in of Ollama behaves as recorded: queues, refusals, reloads, lifetimes, broken files, kills and ends."""

from __future__ import annotations

import csv
import http.client
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))

from lab.standin import models
from lab.standin.install import MODELS, cache_folder, install
from lab.standin.process import Answer, Server, call, free_port, side_by_side
from lab.standin.recording import blot, journal, kind, load, text

pytestmark = pytest.mark.engine
BUSY = '{"error":"server busy, please try again.  maximum pending requests exceeded"}'
Serve = Any


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("standin")
    install(folder)
    models.register(folder / MODELS, "short", models.gemma3(cache_folder()), {"num_ctx": 1024})
    return folder


@pytest.fixture
def serve(root: Path, tmp_path: Path) -> Iterator[Serve]:
    """serve(VARIABLE=value…) starts a server and waits until it listens; all end with the test."""
    running: list[Server] = []

    def start(**variables: Any) -> Server:
        work = tmp_path / str(len(running))
        work.mkdir()
        running.append(Server(root, work, variables))
        return running[-1].wait_ready()

    yield start
    for server in running:
        server.stop()


def access(server: Server, count: int) -> list[str]:
    """The log's lines of so many requests; a server logs one when its answer is on its way already."""
    until = time.monotonic() + 10
    while True:
        found = [blot(line) for line in server.lines() if line.startswith("[GIN]") and "POST" in line]
        if len(found) >= count or time.monotonic() > until:
            return found
        time.sleep(0.02)


def busy(server: Server) -> int:
    return sum(slot["is_processing"] for slot in call(server.runner_port(), "GET", "/slots").json())


def abandoned(server: Server, model: str, **more: Any) -> subprocess.Popen[bytes]:
    """A client that can be killed in the middle of its request."""
    body = json.dumps({"model": model, "prompt": "Once upon a time", "options": {"seed": 1, "temperature": 0}, **more})
    return subprocess.Popen(["curl", "-sN", f"http://127.0.0.1:{server.port}/api/generate", "-d", body],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip


# ------------------------------------------------------------------ who waits, who is refused
def test_warm_model_refuses_nobody(serve: Serve) -> None:
    """04a: one slot, a queue of two, twelve at once: twelve 200s."""
    recorded = [row["http"] for row in csv.DictReader(text("04a-queue2-12conc-warm", "concurrent.csv").splitlines())]
    server = serve(OLLAMA_NUM_PARALLEL=1, OLLAMA_MAX_QUEUE=2)
    server.generate("tiny-gemma3")
    with side_by_side(12, lambda _: server.generate("tiny-gemma3", stream=False)) as answers:
        pass
    assert [str(answer.status) for answer in answers] == recorded


@pytest.mark.parametrize("scenario", ["04b-queue2-12conc-cold", "04c-queue0-12conc-cold"])
def test_cold_model_refuses_what_its_queue_cannot_hold(serve: Serve, scenario: str) -> None:
    recorded = sorted(row["http"] for row in csv.DictReader(text(scenario, "concurrent.csv").splitlines()))
    server = serve(STANDIN_LOAD_DELAY=2, **load(scenario, "env.json"))
    with side_by_side(12, lambda _: server.generate("tiny-gemma3", stream=False)) as answers:
        pass
    assert sorted(str(answer.status) for answer in answers) == recorded
    assert {answer.body for answer in answers if answer.status == 503} == {BUSY}
    assert sorted(line[:9] for line in access(server, len(answers))) == sorted(
        line[:9] for line in journal(scenario) if "[GIN]" in line and "generate" in line
    )


@pytest.mark.parametrize(("scenario", "parallel"), [("05a-parallel4-8conc", 4), ("05b-parallel1-8conc", 1)])
def test_as_many_at_once_as_slots(serve: Serve, scenario: str, parallel: int) -> None:
    """Eight requests: never more busy slots than were set, and at some moment all of them."""
    server = serve(**load(scenario, "env.json"))
    server.generate()
    seen = set()
    with side_by_side(8, lambda _: server.generate(stream=False, options={"num_predict": 12})) as answers:
        while None in answers:
            seen.add(busy(server))
            time.sleep(0.02)
    assert max(seen) == parallel
    replies = [answer.json() for answer in answers]
    waits = [
        r["total_duration"] - sum(r[f"{part}_duration"] for part in ("load", "prompt_eval", "eval")) for r in replies
    ]
    recorded = list(csv.DictReader(text(scenario, "concurrent.csv").splitlines()))
    assert {row["http"] for row in recorded} == {str(answer.status) for answer in answers} == {"200"}
    # the queue is in the server: those behind the first ones waited about as long as a request runs
    assert sorted(waits)[parallel] > min(reply["eval_duration"] for reply in replies) / 2


# ------------------------------------------------------------------ loads, reloads, lifetimes
def test_num_ctx_in_a_request_reloads(serve: Serve) -> None:
    """12: as do all of the runner's options, and the next request without them."""
    recorded = load("12-num_ctx-in-request", "num_ctx.json")
    server = serve(**load("12-num_ctx-in-request", "env.json"))
    server.generate("tiny-gemma3")
    for step in recorded:
        before = server.runners()
        options = step["opts"] if "opts" in step else {"num_ctx": step["num_ctx"]}
        assert server.generate("tiny-gemma3", options=options).status == step["code"]
        assert (server.runners() != before) == step["reloaded"]
        words = Path(f"/proc/{server.runners()[0]}/cmdline").read_text().split("\0")[:-1]
        known = step["cmd"][0].split()
        assert words[words.index("--host") :] == known[known.index("--host") :]
        (row,), (before_row,) = server.call("GET", "/api/ps").json()["models"], json.loads(step["ps"])["models"]
        assert row["context_length"] == before_row["context_length"]


def test_two_names_over_one_blob_swap_each_other_out(serve: Serve) -> None:
    server = serve(OLLAMA_CONTEXT_LENGTH=2048)
    for name, context in (("tiny-gemma3", 2048), ("short", 1024), ("tiny-gemma3", 2048)):
        server.generate(name)
        (row,) = server.call("GET", "/api/ps").json()["models"]
        assert (row["name"], row["context_length"]) == (f"{name}:latest", context)
    assert len([line for line in server.lines() if "starting llama-server" in line]) == 3


def test_a_second_model_evicts_the_first(serve: Serve) -> None:
    server = serve(OLLAMA_MAX_LOADED_MODELS=1)
    server.generate("tiny-gemma3")
    server.generate("tiny-lfm2")
    assert [row["name"] for row in server.call("GET", "/api/ps").json()["models"]] == ["tiny-lfm2:latest"]
    assert len(server.runners()) == 1


def test_keep_alive(serve: Serve) -> None:
    """18: 0 unloads, -1 is for ever, an empty prompt loads, an empty prompt with 0 unloads; a timer unloads."""
    scenario = "18-lifecycle-and-errors"
    server = serve()
    once = server.generate("tiny-gemma3", keep_alive=0, stream=False)
    assert once.status == load(scenario, "keepalive0.json")["g"]["code"]
    assert server.call("GET", "/api/ps").body == load(scenario, "keepalive0.json")["ps"]
    server.generate("tiny-gemma3", keep_alive=-1)
    (row,) = server.call("GET", "/api/ps").json()["models"]
    assert row["expires_at"][:4] == json.loads(load(scenario, "keepalive-1.json")["ps"])["models"][0]["expires_at"][:4]
    shown = subprocess.run(
        [str(server.root / "usr/local/bin/ollama"), "ps"], env=server.env, capture_output=True, text=True, check=True
    )
    assert shown.stdout.splitlines()[1].endswith("Forever    ")
    loaded = server.call("POST", "/api/generate", {"model": "tiny-gemma3", "keep_alive": "1h"}).json()
    known = json.loads(load(scenario, "load_only_empty_prompt.json")["body"])
    assert kind(loaded) | {"model": ""} == kind(known) | {"model": ""}
    unloaded = server.call("POST", "/api/generate", {"model": "tiny-gemma3", "keep_alive": 0}).json()
    assert unloaded["done_reason"] == "unload"
    assert server.call("GET", "/api/ps").json() == {"models": []}
    empty = subprocess.run(
        [str(server.root / "usr/local/bin/ollama"), "ps"], env=server.env, capture_output=True, text=True, check=True
    )
    assert empty.stdout == text(scenario, "ollama_stop.txt").splitlines()[0] + "\n"
    server.generate("tiny-gemma3", keep_alive="300ms")
    while server.call("GET", "/api/ps").json()["models"]:
        time.sleep(0.02)


def test_ps_is_empty_during_a_load(serve: Serve) -> None:
    server = serve(STANDIN_LOAD_DELAY=1)
    with side_by_side(1, lambda _: server.generate("tiny-gemma3")) as answers:
        server.wait_line("starting llama-server")
        assert server.call("GET", "/api/ps").json() == {"models": []}
    assert answers[0].status == 200


# ------------------------------------------------------------------ refusals
def test_error_bodies(serve: Serve) -> None:
    scenario = "18-lifecycle-and-errors"
    server = serve()
    asked: dict[str, Answer] = {
        "unknown_model.json": server.generate("nope"),
        "bad_body.json": server.call("POST", "/api/generate", "text"),
        "bad_option.json": server.generate("tiny-gemma3", options={"num_thread": "x"}),
    }
    for name, answer in asked.items():
        known = load(scenario, name)
        assert (answer.status, answer.body) == (known["code"], known["body"])
        assert answer.headers["Content-Type"] == known["headers"]["Content-Type"]
    assert (
        server.generate("tiny-gemma3", options={"nosuchoption": 1}).status
        == load(scenario, "unknown_option.json")["code"]
    )
    assert server.wait_line("types.go:1007").endswith(
        'level=WARN source=types.go:1007 msg="invalid option provided" option=nosuchoption'
    )


def test_long_prompt_is_cut(serve: Serve) -> None:
    """18: 9002 tokens of 4096."""
    server = serve()
    answer = server.generate("tiny-gemma3", prompt="\n" * 9000, stream=False)
    assert answer.json()["prompt_eval_count"] == 2051
    line = blot(server.wait_line("truncating input prompt"))
    (known,) = [line for line in journal("18-lifecycle-and-errors") if "truncating" in line]
    assert re.sub(r"prompt=\d+", "", line) == re.sub(r"prompt=\d+", "", known)


@pytest.mark.parametrize(("header", "value", "status"), [
    ("Host", "ollama.example", 403), ("Host", "localhost", 200), ("Host", "192.168.1.7:11434", 200),
    ("Host", "my.internal", 200),
    ("Origin", "http://evil.example", 403), ("Origin", "http://localhost:3000", 200),
    ("Origin", "app://obsidian.md", 200),
])  # fmt: skip
def test_host_and_origin(root: Path, tmp_path: Path, header: str, value: str, status: int) -> None:
    with Server(root, tmp_path) as server:
        server.wait_ready()
        assert server.call("GET", "/api/version", headers={header: value}).status == status


@pytest.mark.parametrize(
    "scenario", ["14a-truncated-100MB", "14b-truncated-header", "14c-bad-magic", "14d-header-garbage"]
)
def test_broken_files(root: Path, tmp_path: Path, scenario: str) -> None:
    blob = tmp_path / "sha256-broken"
    with models.gemma(cache_folder()).open("rb") as file:
        data = file.read(100_000_000 if "100MB" in scenario else 4096)
    if "header" in scenario and "truncated" in scenario:
        data = data[:24]
    if "magic" in scenario:
        data = b"XXXX" + data[4:]
    if "garbage" in scenario:  # the type of the first value
        at = 24 + 8 + int.from_bytes(data[24:32], "little")
        data = data[:at] + b"\xff" * 4 + data[at + 4 :]
    blob.write_bytes(data)
    models.register(tmp_path / "store", "gemma3:270m", blob)
    with Server(root, tmp_path, {"OLLAMA_MODELS": tmp_path / "store"}) as server:
        server.wait_ready()
        for name, stream in (("generate_nonstream_first.json", False), ("generate_stream_last.json", True)):
            answer = server.generate(stream=stream)
            assert (answer.status, answer.json()) == (500, load(scenario, name))
        (line, *_) = [blot(line) for line in server.lines() if "failed to load model metadata" in line]
    (known, *_) = [line for line in journal(scenario) if "failed to load model metadata" in line]
    assert line.replace("sha256-broken", "sha256-D").split("model=")[0] == known.split("model=")[0]
    assert line.split(" error=")[1] == known.split(" error=")[1]


# ------------------------------------------------------------------ kills, clients that leave, ends
def test_killed_runner_is_found_by_the_next_request(serve: Serve) -> None:
    """14f: until then /api/ps lists it and the journal is silent."""
    scenario = "14f-llama-server-killed-9"
    server = serve()
    server.generate("tiny-gemma3")
    quiet = len(server.lines())
    server.kill_runner()
    row = server.call("GET", "/api/ps").json()["models"][0]
    assert row.keys() == load(scenario, "after_kill_ps.json")["models"][0].keys()
    assert [line for line in server.lines()[quiet:] if "level=" in line] == []
    assert server.generate("tiny-gemma3", stream=False).status == load(scenario, "after_kill_generate1.json")["code"]
    got, known = (
        [line for line in lines if "no longer running" in line]
        for lines in ([blot(x) for x in server.lines()], journal(scenario))
    )
    assert got == known


def test_runner_killed_in_the_middle_of_a_stream(serve: Serve) -> None:
    server = serve()
    server.generate()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = {"model": "gemma3:270m", "prompt": "Tell me a long story", "options": {"num_predict": 400}}
    connection.request("POST", "/api/generate", json.dumps(body))
    answer = connection.getresponse()
    answer.readline()
    server.kill_runner()
    *_, last = answer.read().splitlines()
    assert answer.status == 200
    assert list(json.loads(last)) == ["error"]


def test_clients_that_give_up(serve: Serve) -> None:
    """22: 499 and an aborted load, 500 from the queue, 200 in the middle of a stream."""
    scenario = "22-client-gives-up"
    server = serve(STANDIN_LOAD_DELAY=1)
    loading = abandoned(server, "tiny-gemma3")
    server.wait_line("waiting for llama-server to start responding")
    loading.kill()
    server.wait_line("| 499 |")
    assert server.runners() == []

    server.generate()
    first = abandoned(server, "gemma3:270m", options={"num_predict": 2000})
    assert first.stdout is not None
    first.stdout.readline()
    second = abandoned(server, "gemma3:270m", stream=False)
    while len(established(server.port)) < 2:
        time.sleep(0.01)
    time.sleep(0.2)  # established, and now surely read
    second.kill()
    server.wait_line("| 500 |")
    first.kill()
    server.wait_line("| 200 |", 2)
    while busy(server):
        time.sleep(0.02)
    for process in (loading, first, second):
        process.wait()
    pick = ("aborting", "GIN] 499", "GIN] 500")
    got, known = (
        [line for line in lines if any(part in line for part in pick)]
        for lines in ([blot(x) for x in server.lines()], journal(scenario))
    )
    assert got == known


def established(port: int) -> list[str]:
    mark = f":{port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [row[1] for row in rows if row[1].endswith(mark) and row[3] == "01"]


def test_end_in_the_middle_of_streams(serve: Serve) -> None:
    """17: two streams are cut without an access line; one in the queue is dropped with a line and a 500."""
    scenario = "17-restart-midstream"
    server = serve(**load(scenario, "env.json"))
    server.generate()
    clients = [abandoned(server, "gemma3:270m", options={"num_predict": 2000}) for _ in range(2)]
    for client in clients:
        assert client.stdout is not None
        client.stdout.readline()
    queued = abandoned(server, "gemma3:270m")
    while len(established(server.port)) < 3:
        time.sleep(0.01)
    time.sleep(0.2)
    runner = server.runners()[0]
    assert server.stop() == 0
    assert not Path(f"/proc/{runner}").exists()
    assert [client.wait() for client in clients] == [18, 18]  # curl: closed with data outstanding
    assert queued.wait() in (52, 56)
    got, known = (
        [line for line in lines if "aborting" in line or "[GIN] 500" in line]
        for lines in ([blot(x) for x in server.lines()], journal(scenario))
    )
    assert got == known


def test_port_in_use(root: Path, tmp_path: Path) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        server = Server(root, tmp_path, {"OLLAMA_HOST": f"127.0.0.1:{port}"})
        assert server.process.wait(20) == 1
    assert [blot(line) for line in server.lines()] == [journal("09-port-in-use")[0]]


def test_typo_is_silent(root: Path, tmp_path: Path) -> None:
    scenario = "10a-typo-name"
    with Server(root, tmp_path, load(scenario, "env.json")) as server:
        server.wait_ready()
    part = "server config"
    assert [blot(x) for x in server.lines() if part in x] == [x for x in journal(scenario) if part in x]
    assert not any("NUM_PARALEL" in line for line in server.lines())


def test_port_beyond_range_falls_back(root: Path, tmp_path: Path) -> None:
    """The default port may be taken on this machine: the line is what is asked for."""
    server = Server(root, tmp_path, {"OLLAMA_HOST": "127.0.0.1:99999"})
    line = server.wait_line("invalid port, using default")
    server.stop()
    assert line.endswith("WARN invalid port, using default port=99999 default=11434")


# ------------------------------------------------------------------ the switches for tests
def test_old_release_has_its_own_shapes(serve: Serve) -> None:
    server = serve(STANDIN_RELEASE="0.12.6", OLLAMA_NUM_PARALLEL=2)
    assert server.generate("tiny-gemma3").status == 200
    words = Path(f"/proc/{server.runners()[0]}/cmdline").read_text().split("\0")
    assert words[1:3] == ["runner", "--ollama-engine"] and "-np" not in words
    assert "(version 0.12.6)" in server.wait_line("Listening on")
    assert "Parallel:2" in server.wait_line("Operation:commit") and "KvSize:8192" in server.wait_line(
        "Operation:commit"
    )
    assert "OLLAMA_GO_TEMPLATE" not in server.wait_line("server config")


def test_faults(root: Path, tmp_path: Path) -> None:
    for name, given in {"config": {"STANDIN_NO_CONFIG_LINE": 1}, "die": {"STANDIN_DIE_AFTER": 0.2},
                        "answer": {"STANDIN_HANG": "answer"},
                        "start": {"STANDIN_HANG": "start"}}.items():  # fmt: skip
        (tmp_path / name).mkdir()
        with Server(root, tmp_path / name, given) as server:
            if name == "start":
                time.sleep(0.3)
                assert server.process.poll() is None and server.lines() == []
                continue
            server.wait_line("Listening on")
            assert any("server config" in line for line in server.lines()) == (name != "config")
            if name == "die":
                assert server.process.wait(20) == 2
            elif name == "answer":
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=0.5)
                connection.request("GET", "/api/version")
                with pytest.raises(TimeoutError):
                    connection.getresponse()
            else:
                assert server.call("GET", "/").body == "Ollama is running"
