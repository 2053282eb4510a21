"""`verify` on every recorded machine: which setting was lost in which layer, and nothing else."""

from __future__ import annotations

import gzip
import io

import msgspec
import pytest

from ollamactl.cli.sources import text_facts
from ollamactl.core import dropin
from ollamactl.core.verify import LAYERS, Judgement, Row, judge, managed_now
from ollamactl.report.rows import table
from ollamactl.report.text import Terminal
from tests.hosts import LOGS, UNIT_PATH, facts_of, recorded

# scenario → (id, variable, layer) of what must be found; scenarios that are not listed must give nothing
EXPECTED: dict[str, set[tuple[str, str, str]]] = {
    "07a-parallel-abc": {("invalid_value", "OLLAMA_NUM_PARALLEL", "server")},
    "07b-parallel-minus1": {("invalid_value", "OLLAMA_NUM_PARALLEL", "server")},
    "07e-ctx-xyz": {("invalid_value", "OLLAMA_CONTEXT_LENGTH", "server")},
    "07f-keepalive-bogus": {("invalid_value", "OLLAMA_KEEP_ALIVE", "server")},
    "07g-kv-q9_9": {("kv_type_invalid", "OLLAMA_KV_CACHE_TYPE", "runner")},
    "07i-maxloaded-abc": {
        ("invalid_value", "OLLAMA_MAX_LOADED_MODELS", "server"),
        ("boolean_counts_as_true", "OLLAMA_FLASH_ATTENTION", "server"),
        ("invalid_value", "OLLAMA_DEBUG", "server"),
    },
    "07j-parallel-4.0-and-space": {("invalid_value", "OLLAMA_MAX_QUEUE", "server")},
    "09-port-in-use": {("port_in_use", "", "process")},
    "10a-typo-name": {
        ("unknown_ollama_variable", "OLLAMA_NUM_PARALEL", "server"),
    },
    "10b-no-section-header": {("dropin_missing_section_header", "", "unit")},
    "10c-spaces-percent-quotes": {("malformed_env_assignment", "", "unit")},
    "10h-broken-section": {("dropin_missing_section_header", "", "unit")},
    "11-edited-no-daemon-reload": {("need_daemon_reload", "OLLAMA_NUM_PARALLEL", "process")},
}
SCENARIOS = [
    "01-defaults", "02-parallel4", "03-parallel4-ctx8192", "06a-kv-q8_0-fa1", "06b-kv-q4_0-fa1",
    "06c-kv-q8_0-fa-unset", "06e-fa1-only", "06f-kv-uppercase-Q8_0", "07a-parallel-abc", "07b-parallel-minus1",
    "07c-parallel-0", "07d-maxqueue-0", "07e-ctx-xyz", "07f-keepalive-bogus", "07g-kv-q9_9", "07h-host-0000",
    "07i-maxloaded-abc", "07j-parallel-4.0-and-space", "08-export-not-reaching", "09-port-in-use", "10a-typo-name",
    "10b-no-section-header", "10c-spaces-percent-quotes", "10e-two-dropins-and-bak", "10f-reset-by-empty-environment",
    "10h-broken-section", "11-edited-no-daemon-reload", "13-embedding-model-parallel4", "15a-debug1", "15b-debug2",
    "21a-LLAMA_ARG-env-passthrough", "21b-debug-log-requests",
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_was_lost_is_found_in_its_layer_and_nothing_else(scenario: str) -> None:
    facts = facts_of(recorded(scenario))
    found = {(m.id, m.name, m.layer) for m in judge(facts, managed_now(facts)).mismatches}
    assert found == EXPECTED.get(scenario, set())


def test_the_layers_of_a_recorded_change() -> None:
    rows = {r.name: r.cells for r in judge(facts_of(recorded("03-parallel4-ctx8192")), {}).rows}
    assert rows["OLLAMA_NUM_PARALLEL"] == {
        "drop-in": "–", "unit": "4", "env file": "–", "process": "4", "server": "4", "runner": "-np 4",
    }  # fmt: skip
    assert rows["OLLAMA_CONTEXT_LENGTH"]["runner"] == "8192"


def test_a_forced_single_slot_is_a_note_unless_it_is_the_only_proof_or_was_named() -> None:
    facts = facts_of(recorded("13-embedding-model-parallel4"))
    assert [n.id for n in judge(facts, {}).notes] == ["parallel_forced_to_1_embedding"]
    assert [m.id for m in judge(facts, {}, proof=True).mismatches] == ["parallel_forced_to_1_embedding"]
    named = judge(facts, {}, named=("fake-embed:latest",), proof=True)
    assert [m.id for m in named.mismatches] == ["parallel_forced_to_1_embedding"]


def test_variables_that_ollama_passes_itself_are_said_to_have_no_effect() -> None:
    notes = judge(facts_of(recorded("21a-LLAMA_ARG-env-passthrough")), {}).notes
    assert {n.text.split()[0] for n in notes} == {"LLAMA_ARG_N_PARALLEL", "LLAMA_ARG_CTX_SIZE"}


def test_a_value_of_ours_that_an_environment_file_outdoes_is_named_with_file_and_line() -> None:
    ours = dropin.dropin_path("ollama.service")
    host = recorded("02-parallel4")
    host.files[ours] = '[Service]\nEnvironment="OLLAMA_NUM_PARALLEL=2"\n'
    host.files[UNIT_PATH] += "[Service]\nEnvironmentFile=/etc/default/ollama\n"
    host.files["/etc/default/ollama"] = "\n\nOLLAMA_NUM_PARALLEL=4\n"
    key = r"systemctl.*show.*ollama\.service"
    shown = host.answers[key]
    assert isinstance(shown, str)
    host.answers[key] = shown.replace("DropInPaths=", f"DropInPaths={ours} ")
    facts = facts_of(host)
    judgement = judge(facts, managed_now(facts))
    (mismatch,) = judgement.mismatches
    assert (mismatch.id, mismatch.layer) == ("environment_file_overrides_dropin", "env file")
    assert "/etc/default/ollama:3" in mismatch.text
    row = next(r for r in judgement.rows if r.name == "OLLAMA_NUM_PARALLEL")
    assert (row.cells["drop-in"], row.cells["env file"], row.cells["process"]) == ("2", "4", "4")


def test_files_that_systemd_has_not_read_are_said_also_where_all_agrees() -> None:
    facts = facts_of(recorded("02-parallel4"))
    assert facts.service is not None and "need_daemon_reload" not in [n.id for n in judge(facts, {}).notes]
    stale = msgspec.structs.replace(facts, service=msgspec.structs.replace(facts.service, need_daemon_reload=True))
    found = judge(stale, managed_now(stale))
    assert [n.id for n in found.notes].count("need_daemon_reload") == 1 and not found.mismatches


def test_without_root_the_process_column_says_denied() -> None:
    host = recorded("02-parallel4")
    for key, value in list(host.answers.items()):
        if key.startswith("native:process") and isinstance(value, bytes):
            host.answers[key] = value.replace(b'"environ"', b'"hidden"')
    judgement = judge(facts_of(host), {})
    row = next(r for r in judgement.rows if r.name == "OLLAMA_NUM_PARALLEL")
    assert row.cells["process"] == "denied"
    assert row.cells["server"] == "4"
    assert not judgement.mismatches
    assert any("sudo" in text for text in judgement.unproven)


@pytest.mark.parametrize(
    ("scenario", "ids"),
    [
        ("02-parallel4", []),
        ("07a-parallel-abc", ["invalid_value"]),
        ("07i-maxloaded-abc", ["invalid_value"]),
        ("09-port-in-use", ["port_in_use"]),
    ],
)
def test_a_log_alone_tells_what_it_can(scenario: str, ids: list[str]) -> None:
    log = gzip.decompress((LOGS / f"{scenario}.jsonl.gz").read_bytes())
    judgement = judge(text_facts(log, "pasted.log"), {})
    assert [m.id for m in judgement.mismatches] == ids
    if not ids:
        rows = {r.name: r.cells for r in judgement.rows}
        assert (rows["OLLAMA_NUM_PARALLEL"]["server"], rows["OLLAMA_NUM_PARALLEL"]["runner"]) == ("4", "-np 4")


def test_a_table_that_is_too_wide_loses_empty_columns_before_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "80")
    address = "http://0.0.0.0:11434"
    cells = {"unit": "0.0.0.0:11434", "process": "0.0.0.0:11434", "server": address}
    rows = (
        Row("OLLAMA_HOST", dict.fromkeys(LAYERS, "–") | cells),
        Row("OLLAMA_NUM_PARALLEL", dict.fromkeys(LAYERS, "–") | {"unit": "4", "runner": "-np 4"}),
    )
    stream = Screen()
    table(Terminal(stream, colour=False), Judgement(rows))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80 and "env file" not in lines[0]
    assert "OLLAMA_NUM_PARALLEL" in lines[2] and address in lines[1]
    narrow = Screen()
    table(Terminal(narrow, colour=False), Judgement(rows[1:]))
    assert "env file" in narrow.getvalue()  # where there is room, an empty layer is said to be empty
