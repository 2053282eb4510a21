"""`plan --client-timeout`: the queue that clients' patience allows, by a given or remembered service time."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from ollamactl.cli import group
from ollamactl.cli import plan as command
from ollamactl.core.queueing import Service, demand
from ollamactl.errors import Failure
from ollamactl.host import loads, measured
from ollamactl.report.queue import per_second, queue_data, show_queue
from ollamactl.report.text import Terminal
from tests.engine.models import write
from tests.probes import probe
from tests.unit.planned import gpu, host, qwen3

Plan = Callable[..., Any]


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Measurements of this test's own."""
    monkeypatch.setattr(measured, "folder", lambda: str(tmp_path))
    monkeypatch.setattr("ollamactl.host.journal.FOLDER", str(tmp_path / "root"))
    return tmp_path


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, home: Path) -> Plan:
    monkeypatch.setattr(command, "facts_for", lambda source, unit: host(gpu()))

    def run(*args: str) -> Any:
        done = CliRunner().invoke(group, ["plan", *args, "--json"], catch_exceptions=False, standalone_mode=False)
        return json.loads(done.stdout)["data"]["queue"]

    return run


def test_the_guides_rule_from_the_command_line(plan: Plan) -> None:
    found = plan("--client-timeout", "60", "--service-time", "10", "--parallel", "4")
    assert (found["per_slot"], found["max_queue"], found["last_wait"], found["last_done"]) == (5, 20, 50.0, 60.0)
    assert found["arrivals"] is None and found["paged"] is None
    assert found["command"] == "sudo ollamactl front nginx --install --requests-in-flight 4 --queue 20"


def test_a_model_that_gets_one_slot_whatever_is_asked_for_has_one_for_its_queue(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loads, "read", lambda: ((), ""))
    path = write(tmp_path / "one.gguf", *qwen3(architecture="qwen35"))
    found = plan(str(path), "--client-timeout", "60", "--service-time", "10", "--parallel", "4")
    assert (found["slots"], found["max_queue"]) == (1, 5)


def test_a_service_time_is_measured_once_and_remembered(plan: Plan, home: Path) -> None:
    with pytest.raises(Failure) as failed:
        plan("--client-timeout", "60")
    assert failed.value.id == "no_service_time" and "ollamactl probe MODEL" in failed.value.hint
    measured.store(probe(sweep=(1, 8)))
    measured.store(probe("other:1b", sweep=(2,), taken=1.8e9))
    assert (home / measured.NAME).stat().st_mode & 0o777 == 0o600
    seen = measured.last("gemma3:270m")
    assert seen is not None and (seen.clients, seen.slots, seen.samples) == (8, 4, 8)
    assert seen.lengths == (62,) * 8  # 30 of prompt and 32 of reply
    assert seen.mean == pytest.approx(0.9, abs=0.15)
    assert plan("--client-timeout", "60")["service"]["model"] == "other:1b"  # the last one
    assert measured.last("nobody:1b") is None


def test_what_is_no_measurement_is_passed_over(home: Path) -> None:
    (home / measured.NAME).write_bytes(b'not json\n{"at": 1}\n\n' + b"\xff" * 50 + b"\n")
    measured.store(probe(sweep=(4,)))
    assert [m.clients for m in measured.read()] == [4]
    measured.store(probe(sweep=(), cold=4))  # nothing was measured with the model in memory
    assert len(measured.read()) == 1
    for n in range(measured.LIMIT + 20):
        measured.store(probe(sweep=(1,), taken=2e9 + n))
    assert len(measured.read()) <= measured.LIMIT


def text(found: Any, seen: Any = None) -> str:
    out = io.StringIO()
    show_queue(Terminal(out), found, seen)
    assert max(map(len, out.getvalue().splitlines())) <= 80
    return " ".join(out.getvalue().split())


LONG = Service(mean=10.0, variation=0.3, samples=20)


def test_what_is_said_of_a_demand() -> None:
    light = text(demand(60.0, 4, LONG, rate=0.2))
    assert "slots 50% busy" in light and "would do" not in light and "only while a model loads" in light
    more = text(demand(60.0, 4, LONG, rate=1.0, fits=16, context=8192, lengths=[500] * 9))
    assert "slots would do, and 16 fit: ollamactl tune" in more and "vLLM" not in more
    pages = text(demand(60.0, 4, LONG, rate=1.0, fits=8, context=8192, lengths=[500] * 9))
    assert "of which the memory holds 8" in pages and "would hold 64 sequences" in pages
    assert "a paged cache (vLLM, SGLang) is then the honest answer" in pages
    full = text(demand(60.0, 4, LONG, rate=1.0, fits=8, context=8192, lengths=[8000] * 9))
    assert "another kind of server would not" in full
    none = text(demand(5.0, 4, LONG, rate=1.0))
    assert "nobody may wait" in none and "no number of slots" in text(demand(5.0, 4, LONG, rate=1e5))
    once = text(demand(60.0, 4, LONG), msgspec.structs.replace(SEEN, samples=20))
    assert "20 replies of qwen3:8b, 4 at once, measured" in once


@pytest.mark.parametrize(
    ("rate", "said"),
    [(2.0, "2 requests/s"), (0.4, "0.4 requests/s"), (0.05, "3 requests/min"), (1e-4, "0.36 requests/h"),
     (1e-6, "0.086 requests/day"), (256_000.0, "256,000 requests/s"), (1e6, "1,000,000 requests/s")],
)  # fmt: skip
def test_rates_are_written_out(rate: float, said: str) -> None:
    assert per_second(rate) == said


def test_a_flood_is_told_in_times() -> None:
    assert "1,000,000 times what the slots serve" in text(demand(60.0, 4, LONG, rate=4e5))
    assert "250% of what the slots serve" in text(demand(60.0, 4, LONG, rate=1.0))


SEEN = measured.Measured(at=1.79e9, model="qwen3:8b", clients=4, slots=4, mean=10.0, variation=0.3, samples=20)


def test_what_never_ends_is_null_in_json() -> None:
    found = queue_data(demand(60.0, 4, LONG, rate=1.0), None)
    assert found["arrivals"]["wait"] is None and found["arrivals"]["met"] is False
    assert "Infinity" not in json.dumps(found)


@pytest.mark.parametrize(
    "args", [[], ["--rate", "1"], ["--service-time", "1", "m"], ["--client-timeout", "0"], ["--client-timeout", "nan"]]
)
def test_words_that_say_nothing(args: list[str]) -> None:
    done = CliRunner().invoke(group, ["plan", *args])
    assert done.exit_code != 0
