"""Each recorded journal against what the host itself said: environment, command lines, /api/ps, memory."""

from __future__ import annotations

import csv
from typing import Any

import pytest

from ollamactl.core.facts import Load, LoadedModel, Start
from ollamactl.core.parse.ollama_ps import format_row
from ollamactl.core.parse.ollama_ps import parse as parse_ps
from ollamactl.core.parse.runner import parse_argv
from tests.unit.logs import DATA, SCENARIOS, entries, expected, parse, recorded

LISTENING = [name for name in SCENARIOS if name != "09-port-in-use"]
LOADING = [name for name in LISTENING if expected()[name]["runners"]]
# how the recorded server prints a value that it reads otherwise
READ_AS = {
    ("OLLAMA_NUM_PARALLEL", "abc"): "1",
    ("OLLAMA_NUM_PARALLEL", "-1"): "1",
    ("OLLAMA_NUM_PARALLEL", " 4 "): "4",
    ("OLLAMA_MAX_QUEUE", "4.0"): "512",
    ("OLLAMA_MAX_LOADED_MODELS", "abc"): "0",
    ("OLLAMA_CONTEXT_LENGTH", "xyz"): "0",
    ("OLLAMA_KEEP_ALIVE", "bogus"): "5m0s",
    ("OLLAMA_FLASH_ATTENTION", "1"): "true",
    ("OLLAMA_FLASH_ATTENTION", "maybe"): "true",
    ("OLLAMA_DEBUG", "yes"): "INFO",
    ("OLLAMA_DEBUG", "1"): "DEBUG",
    ("OLLAMA_DEBUG", "2"): "DEBUG-4",
    ("OLLAMA_DEBUG_LOG_REQUESTS", "1"): "true",
    ("OLLAMA_HOST", "0.0.0.0:11434"): "http://0.0.0.0:11434",
}


NOT_OLLAMAS = {
    "OLLAMA_NUM_PARALEL",
    "LLAMA_ARG_ENDPOINT_METRICS",
    "LLAMA_ARG_CACHE_RAM",
    "LLAMA_ARG_N_PARALLEL",
    "LLAMA_ARG_CTX_SIZE",
}


def last(name: str) -> Start:
    return parse(recorded(name)).starts[-1]


@pytest.mark.parametrize("name", LISTENING)
def test_one_start_listens_with_its_configuration(name: str) -> None:
    log = parse(recorded(name), unit="ollama")
    start = log.starts[-1]
    assert log.form == "journal-json"
    assert log.lines == len(entries(name))
    assert start.version == "0.33.0-rc2"
    assert start.listening == ("[::]:11434" if name == "07h-host-0000" else "127.0.0.1:11434")
    assert start.config is not None and start.config_before_listening
    assert len(start.config) == 39
    assert "http://localhost https://localhost " in start.config["OLLAMA_ORIGINS"]
    assert start.default_context == 4096
    assert start.total_vram == 0
    assert [one.library for one in start.computes] == ["cpu"]
    assert log.start_of(start.invocation) == start


@pytest.mark.parametrize("name", [name for name in LISTENING if expected()[name].get("env")])
def test_configuration_is_what_was_set(name: str) -> None:
    config = last(name).config
    assert config is not None
    for variable, value in expected()[name]["env"].items():
        if variable in config:
            assert config[variable] == READ_AS.get((variable, str(value)), str(value))
        else:  # a name that Ollama doesn't know is never printed
            assert variable in NOT_OLLAMAS, variable


@pytest.mark.parametrize("name", LOADING)
def test_the_runner_is_the_process_that_was_there(name: str) -> None:
    loads = {load.argv: load for load in last(name).loads}
    for argv in expected()[name]["runners"]:
        load = loads.get(tuple(argv))
        if name == "12-num_ctx-in-request":
            continue  # its journal ends before that runner's start: it keeps 1,500 lines
        assert load is not None, argv
        args = parse_argv(argv)
        assert (load.context_total, load.slots, load.context) == (args.context_total, args.slots, args.context)
        assert load.model == args.model and load.port == args.port
        assert load.outcome == "loaded"
        assert load.seconds is not None and 0.5 < load.seconds < 30


@pytest.mark.parametrize("name", LOADING)
def test_context_of_a_slot_is_that_of_api_ps(name: str) -> None:
    contexts = {load.context for load in last(name).loads if load.outcome == "loaded"}
    for model in expected()[name]["loaded"]:
        assert model["context_length"] in contexts


def measured() -> list[dict[str, str]]:
    with (DATA / "memory.csv").open() as file:
        return [row for row in csv.DictReader(file) if row["http"] == "200"]


def sums(load: Load) -> dict[str, float]:
    found: dict[str, float] = {}
    for buffer in load.buffers:
        kind = buffer.kind + ("-swa" if buffer.swa else "")
        found[kind] = found.get(kind, 0.0) + buffer.bytes / 2**20
    return found


@pytest.mark.parametrize("name", [name for name in LOADING if "embedding" not in name and "two-models" not in name])
def test_buffers_are_those_measured(name: str) -> None:
    """Against the table of measurements at the same slots, context and cache type."""
    checked = 0
    for load in last(name).loads:
        if load.outcome != "loaded":
            continue
        kv = load.kv_type_k.lower()
        rows = [
            row
            for row in measured()
            if (row["np_arg"], row["c_arg"], row["kv"]) == (str(load.slots), str(load.context_total), kv)
            and row["batch_arg"] == str(load.batch)
        ]
        found = sums(load)
        for row in rows:
            assert found["model"] == pytest.approx(float(row["model_mib"]), abs=0.02)
            assert found["kv"] == pytest.approx(float(row["kv_mib_nonswa"]), abs=0.02)
            assert found["kv-swa"] == pytest.approx(float(row["kv_mib_swa"]), abs=0.02)
            assert found["output"] == pytest.approx(float(row["output_mib"]), abs=0.02)
            checked += 1
    assert checked or name in NOT_MEASURED


NOT_MEASURED = {
    "07n-parallel64-ctx131072", "12-num_ctx-in-request", "14f-llama-server-killed-9", "10e-two-dropins-and-bak"
}  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_ollama_ps_as_it_was_printed(name: str) -> None:
    models = [
        LoadedModel(
            name=one["name"],
            digest=one["digest"],
            size=one["size"],
            size_vram=one["size_vram"],
            context=one["context_length"],
        )
        for one in expected()[name]["loaded"]
    ]
    pasted = parse_ps(expected()[name]["ollama_ps"])
    printed = expected()[name]["ollama_ps"].splitlines()[1:]
    assert len(pasted) == len(printed)
    for row, model in zip(printed, models, strict=False):
        size, processor, context = format_row(model)
        assert row.split()[2:4] == size.split()
        assert f" {processor} " in row and f" {context} " in row
    for seen, model in zip(pasted, models, strict=False):
        assert (seen.name, seen.context) == (model.name, model.context)
        assert model.digest.startswith(seen.digest)
        assert seen.size_vram == 0
        assert seen.size == pytest.approx(model.size, rel=0.02)


def kinds(name: str) -> dict[str, int]:
    return last(name).counts


NORMAL = {
    "cloud_unreachable", "template_missing", "system_memory", "prompt_cache_enabled", "prompt_cache", "slot_launched",
    "host_memory_projection",
}  # fmt: skip
SAYS: dict[str, dict[str, int]] = {
    "06c-kv-q8_0-fa-unset": {"flash_attention_forced_on": 1},
    "07a-parallel-abc": {"invalid_environment": 4},
    "07b-parallel-minus1": {"invalid_environment": 4},
    "07e-ctx-xyz": {"invalid_environment": 9},
    "07i-maxloaded-abc": {"invalid_environment": 4},
    "07j-parallel-4.0-and-space": {"invalid_environment": 4},
    "07g-kv-q9_9": {"kv_type_unsupported": 3, "load_failed": 3},
    "07m-parallel300-over-256-seqs": {"parallel_above_maximum": 9, "runner_terminated": 3, "load_failed": 3},
    "14b-truncated-header": {"model_metadata_error": 3},
    "14c-bad-magic": {"model_metadata_error": 3, "model_file_damaged": 3},
    "14f-llama-server-killed-9": {"runner_gone": 2, "runner_killed": 2},
    "18-lifecycle-and-errors": {"prompt_truncated": 1, "invalid_option": 1},
    "22-client-gives-up": {"client_gone_during_load": 1, "load_cancelled": 1, "client_gone": 1},
    "01-defaults": {},
    "02-parallel4": {},
    "03-parallel4-ctx8192": {},
    "05a-parallel4-8conc": {},
    "06a-kv-q8_0-fa1": {},
    "06e-fa1-only": {},
    "13-embedding-model-parallel4": {},
}


@pytest.mark.parametrize("name", SAYS)
def test_what_each_says_beyond_the_normal(name: str) -> None:
    found = {kind: count for kind, count in kinds(name).items() if kind not in NORMAL}
    assert found == SAYS[name]


def test_port_in_use_flaps_without_configuration() -> None:
    log = parse(recorded("09-port-in-use"), unit="ollama.service")
    assert len(log.starts) == 7
    for start in log.starts:
        assert start.config is None and not start.listening and start.ended
        assert start.counts == {"bind_error": 1, "fatal_error": 1}
        assert start.events[0].fields["address"] == "127.0.0.1:11434"
    assert len({start.invocation for start in log.starts}) == 7
    restarts = [event.fields["counter"] for event in log.systemd if event.kind == "restart_scheduled"]
    assert restarts == ["1", "2", "3", "4", "5", "6"]
    exits = [event.fields for event in log.systemd if event.kind == "main_exited"]
    assert exits[0] == {"code": "exited", "status": "1/FAILURE"}


@pytest.mark.parametrize(
    ("name", "file_line", "words"),
    [
        ("10b-no-section-header", 1, "Assignment outside of section"),
        ("10c-spaces-percent-quotes", 2, "Invalid environment assignment"),
        ("10h-broken-section", 1, "Invalid section header"),
    ],
)
def test_systemds_complaints(name: str, file_line: int, words: str) -> None:
    complaints = parse(recorded(name)).complaints
    assert {(one.file, one.line) for one in complaints} == {
        ("/etc/systemd/system/ollama.service.d/override.conf", file_line)
    }
    assert all(words in one.text and one.at for one in complaints)


def test_failed_loads_carry_their_cause() -> None:
    for load in last("07g-kv-q9_9").loads:
        assert load.outcome == "failed"
        assert "Unsupported cache type: q9_9" in load.error
    for load in last("07o-parallel64-ctx131072-LimitAS3G").loads:
        assert load.outcome == "failed" and "failed to allocate buffer for kv cache" in load.error
    for load in last("07m-parallel300-over-256-seqs").loads:
        assert load.outcome == "failed" and "n_seq_max must be <= 256" in load.error
    aborted = last("22-client-gives-up").loads[0]
    assert aborted.outcome == "aborted"


def test_truncation_says_by_how_much() -> None:
    event = next(one for one in last("18-lifecycle-and-errors").events if one.kind == "prompt_truncated")
    assert event.fields == {"limit": "2051", "prompt": "9002", "keep": "5", "new": "2051"}
    assert event.level == "WARN"


def test_refused_and_queued_requests() -> None:
    cold = last("04b-queue2-12conc-cold")
    refused = next(one for one in cold.requests if one.status == 503)
    assert refused.count == 9 and refused.path == "/api/generate"
    assert len([one for one in cold.failed if one.status == 503]) == 9
    warm = last("04a-queue2-12conc-warm")
    assert not [one for one in warm.requests if one.status >= 400]
    served = next(one for one in warm.requests if one.path == "/api/generate")
    assert served.count == len(warm.recent) >= 12
    assert served.seconds_max > 10


def test_prompt_cache_grows() -> None:
    sizes = [float(one.fields["mib"]) for one in last("20a-promptcache-rss-np1").events if one.kind == "prompt_cache"]
    assert sizes[0] == 0 and sizes[-1] > 400


def test_embedding_model_has_one_slot_without_a_word() -> None:
    start = last("13-embedding-model-parallel4")
    assert start.config is not None and start.config["OLLAMA_NUM_PARALLEL"] == "4"
    assert start.loads[0].slots == 1
    assert "parallel_forced_to_1" not in start.counts


def test_times_are_the_journals() -> None:
    def at(entry: dict[str, Any]) -> float:
        return int(entry["__REALTIME_TIMESTAMP"]) / 1e6

    found = entries("01-defaults")
    log = parse(recorded("01-defaults"))
    assert log.first_at is not None and log.last_at is not None
    assert at(found[0]) <= log.first_at < log.last_at <= at(found[-1])
