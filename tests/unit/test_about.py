"""`doctor --model`: what is found because of one model, and not because of the others or the host."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from ollamactl.cli.doctor import ALL, _about
from ollamactl.core.about import of_model
from ollamactl.core.checks import Report, run
from ollamactl.core.facts import Facts
from ollamactl.core.feeds import Collector
from ollamactl.core.feeds.surroundings import model_files
from ollamactl.errors import Failure
from tests.machines.replayed import Recorded

FOLDER = "/usr/share/ollama/.ollama/models"
CHAT, EMBED = "gemma3:270m", "fake-embed:latest"
FILES = {CHAT: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
         EMBED: "aeae8a9362acf66728d706e62f847d162854b8e9a3e57a5afe232dd2a0ada29a"}  # fmt: skip
LAYER = "application/vnd.ollama.image.model"


def manifests(machine: Recorded) -> None:
    for name, digest in FILES.items():
        model, tag = name.split(":")
        layers = [{"mediaType": LAYER, "digest": f"sha256:{digest}", "size": 1}]
        path = f"{FOLDER}/manifests/registry.ollama.ai/library/{model}/{tag}"
        machine.data["files"][path] = json.dumps({"layers": layers})


def about(scenario: str, model: str, change: Any = manifests) -> Report:
    collector = Collector(Recorded(scenario, change))
    facts = collector.facts(ALL, origin=f"bundle:{scenario}")
    return _about(facts, model, model_files(collector, model), run)


def found(report: Report) -> list[str]:
    return [f.check for f in report.findings]


def test_the_finding_stands_under_the_model_that_it_is_about_only() -> None:
    assert found(about("13-embedding-model-parallel4", EMBED)) == ["parallel_forced_to_1_embedding"]
    assert found(about("13-embedding-model-parallel4", CHAT)) == []
    assert found(about("12-num_ctx-in-request", CHAT))[0] == "model_reload_every_request"
    assert found(about("12-num_ctx-in-request", EMBED)) == []


@pytest.mark.parametrize(("scenario", "check"), [
    ("14a-truncated-100MB", "model_blob_truncated"),  # never came to a load
    ("07m-parallel300-over-256-seqs", "parallel_above_maximum"),
    ("14f-llama-server-killed-9", "runner_killed"),
    ("18-lifecycle-and-errors", "prompt_truncated"),  # the line names no model; only this one was loaded
])  # fmt: skip
def test_a_fault_of_the_only_model(scenario: str, check: str) -> None:
    assert found(about(scenario, CHAT))[:1] == [check]


def test_what_is_the_hosts_is_counted_and_its_errors_stay() -> None:
    exposed = about("07h-host-0000", CHAT)
    assert found(exposed) == []
    assert {i.check: i.reason for i in exposed.ignored}["api_exposed_without_auth"] == f"not about {CHAT}"
    assert found(about("10b-no-section-header", CHAT))[0] == "dropin_missing_section_header"


def test_lines_during_anothers_load_are_the_others() -> None:
    def chat_fails(machine: Recorded) -> None:
        manifests(machine)
        lines = machine.journal.decode().splitlines(keepends=True)
        at = next(n for n, x in enumerate(lines) if "starting llama-server" in x and FILES[EMBED] in x)
        said = json.loads(lines[at]) | {
            "MESSAGE": "ggml_aligned_malloc: insufficient memory (attempted to allocate 9 MB)"
        }
        machine.journal = "".join([*lines[: at + 1], json.dumps(said) + "\n", *lines[at + 1 :]]).encode()

    machine = Recorded("16b-maxloaded-default-two-models", chat_fails)
    facts: Facts = Collector(machine).facts(ALL)
    assert facts.start is not None and facts.start.counts.get("alloc_failed") == 1
    collector = Collector(machine)
    for name, says in ((CHAT, False), (EMBED, True)):
        only = of_model(facts, name, frozenset(model_files(collector, name)))
        assert only.start is not None
        assert bool(only.start.counts.get("alloc_failed")) is says
        assert {load.model.rsplit("-", 1)[-1] for load in only.start.loads} == {FILES[name]}


def test_names_without_a_tag_digests_and_names_that_are_not_here() -> None:
    assert found(about("13-embedding-model-parallel4", "fake-embed")) == ["parallel_forced_to_1_embedding"]
    by_digest = about("13-embedding-model-parallel4", f"sha256:{FILES[EMBED][:12]}")
    assert found(by_digest) == ["parallel_forced_to_1_embedding"]
    with pytest.raises(Failure) as failure:
        about("01-defaults", "gemma:270m")
    assert failure.value.hint == f"did you mean {CHAT}?"
    with pytest.raises(Failure) as failure:  # two models were loaded and nothing tells which is which
        about("16b-maxloaded-default-two-models", EMBED, change=None)
    assert "which of the files" in failure.value.text and "sha256-a" in failure.value.hint


def test_the_server_tells_the_file_where_the_manifest_may_not_be_read() -> None:
    class Asked(Recorded):
        def _http(self, source: Any) -> Any:
            if source.args[1].endswith("/api/show"):
                assert source.args[0] == "POST" and json.loads(source.args[2]) == {"model": EMBED}
                return {"modelfile": f"# FROM x\nFROM {FOLDER}/blobs/sha256-{FILES[EMBED]}\nTEMPLATE x\n"}
            return super()._http(source)

    collector = Collector(Asked("13-embedding-model-parallel4"))
    assert model_files(collector, "fake-embed") == (f"{FOLDER}/blobs/sha256-{FILES[EMBED]}",)


def test_a_log_alone_with_one_model_and_without_its_name() -> None:
    facts = Collector(Recorded("22-client-gives-up")).facts(("log", "start"))
    alone = msgspec.structs.replace(facts, installed=None, loaded=None)
    assert found(_about(alone, "whatever", (), run)) == ["client_timeout_during_load"]
