"""Recorded machines through the whole way (readings → facts → checks): the right finding, and nothing else loud."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ollamactl.cli.facts import gather_all
from ollamactl.core.checks import CHECKS, Report, run
from ollamactl.core.facts import Connections, Facts, Install, Told, ToldVariable
from ollamactl.core.feeds import FEEDS, Collector
from ollamactl.core.source import Missing, Reading, Source
from ollamactl.core.verify import judge
from ollamactl.host.bundle import Recorder, Replay
from ollamactl.host.serving import VERIFY
from tests.machines.replayed import SCENARIOS, Recorded

ALL = tuple(f for f in FEEDS if f in Facts.__struct_fields__)
# scenario → findings at warning or above, in this order; what is not named has none
LOUD = {
    "04b-queue2-12conc-cold": ["queue_full_503"],
    "04c-queue0-12conc-cold": ["queue_full_503"],
    "07a-parallel-abc": ["invalid_value"],
    "07b-parallel-minus1": ["invalid_value"],
    "07c-parallel-0": ["invalid_value"],
    "07d-maxqueue-0": ["max_queue_zero"],
    "07e-ctx-xyz": ["invalid_value"],
    "07f-keepalive-bogus": ["invalid_value"],
    "07g-kv-q9_9": ["kv_type_invalid"],
    "07h-host-0000": ["api_exposed_without_auth"],
    "07i-maxloaded-abc": ["boolean_counts_as_true", "invalid_value", "invalid_value"],  # three bad values were set
    "07j-parallel-4.0-and-space": ["invalid_value"],
    "07m-parallel300-over-256-seqs": ["parallel_above_maximum"],
    "07o-parallel64-ctx131072-LimitAS3G": ["context_multiplied_by_parallel"],
    "07p-parallel256-ctx131072": ["context_multiplied_by_parallel"],
    "09-port-in-use": ["port_in_use"],
    "10a-typo-name": ["unknown_ollama_variable"],
    "10b-no-section-header": ["dropin_missing_section_header"],
    "10c-spaces-percent-quotes": ["malformed_env_assignment"] * 2,  # quotes in a value of Ollama's own do no harm
    "10e-two-dropins-and-bak": ["dropin_overridden_by_later_dropin"],
    "10f-reset-by-empty-environment": ["dropin_drops_earlier_environment"],
    "10h-broken-section": ["dropin_missing_section_header"],
    "11-edited-no-daemon-reload": ["need_daemon_reload"],
    "12-num_ctx-in-request": ["model_reload_every_request"],
    "14a-truncated-100MB": ["model_blob_truncated"],
    "14b-truncated-header": ["model_blob_truncated"],
    "14c-bad-magic": ["model_blob_truncated"],
    "14d-header-garbage": ["model_blob_truncated"],
    "14f-llama-server-killed-9": ["runner_killed"],
    "18-lifecycle-and-errors": ["prompt_truncated"],  # one of its requests was too long on purpose
}
# what is worth knowing and first where nothing is wrong
FIRST = {
    "04a-queue2-12conc-warm": "max_queue_not_applied_to_loaded_model",
    "05b-parallel1-8conc": "parallel_is_one",
    "07n-parallel64-ctx131072": "num_ctx_capped_to_trained_context",
    "13-embedding-model-parallel4": "parallel_forced_to_1_embedding",
    "20a-promptcache-rss-np1": "prompt_cache_growth",
    "20b-promptcache-rss-np4": "prompt_cache_growth",
    "21a-LLAMA_ARG-env-passthrough": "llama_arg_without_effect",
    "21b-debug-log-requests": "request_bodies_logged",
    "22-client-gives-up": "client_timeout_during_load",
}


def report(scenario: str, change: object = None) -> tuple[Facts, Report]:
    facts = Collector(Recorded(scenario, change)).facts(ALL, origin=f"bundle:{scenario}")
    return facts, run(facts)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_right_finding_and_nothing_else(scenario: str) -> None:
    facts, found = report(scenario)
    assert not found.crashed
    loud = [f.check for f in found.findings if f.severity != "info"]
    assert loud == LOUD.get(scenario, []), [(f.severity, f.check, f.summary) for f in found.findings]
    if scenario in FIRST:
        assert found.findings[0].check == FIRST[scenario]
    for finding in found.findings:
        assert finding.summary and finding.remedy and finding.title
        assert len(finding.evidence) <= 6
    again = msgspec.json.decode(msgspec.json.encode(facts), type=Facts)
    assert run(again) == found


def test_root_cause_stands_above_what_follows_from_it() -> None:
    _, found = report("09-port-in-use")
    root = found.findings[0]
    assert root.check == "port_in_use" and root.severity == "error"
    assert any(text.startswith("service_restart_loop:") for text in root.consequences)
    assert any("pid 2398" in line for line in root.evidence)
    assert "kill 2398" in root.remedy


def test_only_and_ignore() -> None:
    facts, _ = report("09-port-in-use")
    found = run(facts, ignore={"port_in_use": "known"})
    assert [i.check for i in found.ignored] == ["port_in_use"] and found.ignored[0].reason == "known"
    assert "port_in_use" not in [f.check for f in found.findings]
    assert [f.check for f in run(facts, only=("port_in_use",)).findings] == ["port_in_use"]


def test_missing_facts_skip_with_their_reason_and_never_count_as_well() -> None:
    facts, whole = report("01-defaults")
    lean = msgspec.structs.replace(facts, log=None, start=None, effective=None, service=None, process=None)
    found = run(lean)
    assert found.ran == len(CHECKS) == found.well + len(found.skipped) + len({f.check for f in found.findings})
    assert len(found.skipped) > len(whole.skipped) and all(s.reason for s in found.skipped)


def test_what_several_places_show_is_one_finding() -> None:
    facts, _ = report("07c-parallel-0")
    assert facts.process is not None and facts.process.environ is not None
    one = ToldVariable(name="OLLAMA_NUM_PARALLEL", value="0", scope="env", where="proc_environ.txt", line=9)
    two = msgspec.structs.replace(one, where="env.json", line=2, text='"OLLAMA_NUM_PARALLEL": "0"')
    told = Told(variables=(one, two))
    found = run(msgspec.structs.replace(facts, told=told)).findings
    (same,) = (f for f in found if f.check == "invalid_value")
    assert len(same.evidence) == 3


def test_verify_says_why_no_model_is_loaded() -> None:
    facts, _ = report("07m-parallel300-over-256-seqs")
    judged = judge(facts, {})
    assert [m.id for m in judged.mismatches] == ["parallel_above_maximum"]
    assert any(n.id == "load_failed" and "n_seq_max" in n.text for n in judged.notes)
    facts, _ = report("07p-parallel256-ctx131072")
    judged = judge(facts, {})
    assert not judged.mismatches and any("insufficient memory" in n.text for n in judged.notes)
    facts, _ = report("01-defaults")
    assert not judge(facts, {}).notes


def without_the_last_runner(machine: Recorded) -> None:
    machine.data["runners"] = machine.data["runners"][:-1]


@pytest.mark.parametrize("scenario", ["01-defaults", "16b-maxloaded-default-two-models"])
def test_a_killed_runner_is_seen_before_the_server_notices(scenario: str) -> None:
    """/api/ps goes on listing its model, and the journal says nothing until the next request."""
    _, found = report(scenario, without_the_last_runner)
    assert found.findings[0].check == "runner_killed" and "gemma3:270m" in found.findings[0].summary


def test_a_held_port_is_seen_in_the_moment_between_two_deaths() -> None:
    """The unit is active then, and nothing in the log of this invocation tells what will happen to it."""

    def just_started(machine: Recorded) -> None:
        show = {"MainPID": "4242", "ActiveState": "active", "SubState": "running", "InvocationID": "f" * 32}
        lines = machine.data["show"].splitlines()
        machine.data["show"] = "\n".join(f"{k}={show.get(k, v)}" for k, _, v in (x.partition("=") for x in lines))
        machine.data["ss"] = [line.replace('"ollama"', '"python3"') for line in machine.data["ss"]]

    _, found = report("09-port-in-use", just_started)
    assert [f.check for f in found.findings if f.severity == "error"] == ["port_in_use"]

    def and_serves(machine: Recorded) -> None:
        just_started(machine)
        machine.data["ss"] = [line.replace('"python3"', '"ollama"') for line in machine.data["ss"]]

    _, found = report("09-port-in-use", and_serves)
    assert "port_in_use" not in [f.check for f in found.findings]


def test_a_unit_that_starts_the_server_by_a_script_is_the_service() -> None:
    """MainPID is the script's shell; the server, its sockets and its runner are below it."""

    class Wrapped(Recorded):
        def _command(self, source: Source) -> Any:
            body = super()._command(source)
            wrapped = b"path=/opt/run.sh ; argv[]=/opt/run.sh ;"
            server = b"path=/usr/local/bin/ollama ; argv[]=/usr/local/bin/ollama serve ;"
            return body.replace(server, wrapped) if isinstance(body, bytes) else body

        def _native(self, source: Source) -> Any:
            server = {**self._process(), "pid": self.pid + 1, "ppid": self.pid}
            if source.args == ("process", str(self.pid)):
                return {**self._process(), "comm": "run.sh", "argv": ["/bin/sh", "/opt/run.sh"]}
            if source.args[0] == "children":
                runners = [self._runner(r) for r in self.data["runners"]]
                return runners if source.args[1] == str(self.pid + 1) else [server, *runners]
            if source.args[0] == "listeners":
                return [x | {"pid": self.pid + 1} if x["pid"] == self.pid else x for x in self._listeners()]
            return [server] if source.args[0] == "servers" else super()._native(source)

    machine = Wrapped("02-parallel4")
    facts = Collector(machine).facts(ALL)
    assert facts.service is not None and facts.process is not None
    assert (facts.service.main_pid, facts.process.pid) == (machine.pid, machine.pid + 1)
    assert [r.slots for r in facts.runners or ()] == [4]
    assert not [f for f in run(facts).findings if f.severity != "info"]


@pytest.mark.parametrize("scenario", ["02-parallel4", "09-port-in-use", "14f-llama-server-killed-9"])
def test_a_bundle_tells_verify_and_doctor_what_the_host_tells_them(scenario: str, tmp_path: Path) -> None:
    recorder = Recorder(Recorded(scenario))
    gather_all(recorder, "", "live")
    recorder.write(str(tmp_path / "host.tar.gz"))
    replay = Replay(str(tmp_path / "host.tar.gz"))
    here, there = (Collector(host).facts(VERIFY) for host in (Recorded(scenario), replay))
    assert judge(there, {}).rows == judge(here, {}).rows
    assert [m.id for m in judge(there, {}).mismatches] == [m.id for m in judge(here, {}).mismatches]
    here, there = (Collector(host, thorough=True).facts(ALL) for host in (Recorded(scenario), replay))
    assert [f.check for f in run(there).findings] == [f.check for f in run(here).findings]


def test_a_port_that_is_none_is_named_as_such() -> None:
    def warned(machine: Recorded) -> None:
        lines = machine.journal.decode().splitlines(keepends=True)
        at = next(n for n, x in enumerate(lines) if "server config" in x)
        text = "2026/11/30 02:59:11 config.go:80: WARN invalid port, using default port=99999 default=11434"
        said = json.loads(lines[at]) | {"MESSAGE": text}
        machine.journal = "".join([*lines[:at], json.dumps(said) + "\n", *lines[at:]]).encode()

    _, found = report("01-defaults", warned)
    assert found.findings[0].check == "invalid_value"
    assert found.findings[0].summary == "OLLAMA_HOST: 99999 is no port, 11434 runs"


@pytest.mark.parametrize(("status", "told", "hangs"), [(503, True, False), (None, False, False), (None, True, True)])
def test_a_runner_that_loads_is_not_one_that_hangs(status: int | None, told: bool, hangs: bool) -> None:
    """While a model is loaded its runner answers with 503, or not at all as long as the log does not tell its end; one
    that was stopped later answers nothing. A client waits in each case."""

    class Silent(Recorded):
        def read(self, source: Source) -> Reading:
            if source.args[-1].endswith(("/props", "/slots")):
                return Reading(source.key, missing=Missing("failed", "no slots"), status=status)
            return super().read(source)

    def until_it_answers(machine: Recorded) -> None:
        lines = machine.journal.splitlines(keepends=True)
        at = next(n for n, line in enumerate(lines) if b"loading model tensors" in line)
        machine.journal = b"".join(lines if told else lines[:at])

    facts = Collector(Silent("02-parallel4", until_it_answers)).facts(ALL)
    facts = msgspec.structs.replace(facts, connections=Connections(port=11434, established=1, awaiting_reply=1))
    assert [r.loading for r in facts.runners or ()] == [not hangs]
    assert ("runner_hung_parent_healthy" in [f.check for f in run(facts).findings]) is hangs


def test_several_servers_by_hand_are_named_by_their_pids() -> None:
    two = tuple(Install(way="hand", name="/usr/local/bin/ollama serve", pid=pid, running=True) for pid in (71, 72))
    collector = Collector(Recorded("01-defaults"))
    collector.take(installs=two)
    assert collector.get("install") is None
    assert collector.missing["install"].detail == "several run Ollama: hand:71, hand:72"
    named = Collector(Recorded("01-defaults"), "hand:72")
    named.take(installs=two)
    assert named.get("install") == two[1]
