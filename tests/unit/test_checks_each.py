"""Every check, by a table: a machine on which it fires, and one that is nearly the same on which it must not.

A new check needs both: a case of tests/system/cases_*.py or a machine in check_machines.py; and where a later healthy
start does not quiet it, its near miss there. A check that is skipped is not quiet."""

from __future__ import annotations

from functools import cache

import pytest

from ollamactl.core.checks import CHECKS, Finding, run
from ollamactl.core.facts import Facts
from ollamactl.core.pasted import facts_of
from tests.system import cases_commands, cases_host, cases_logs
from tests.system.small import served
from tests.unit.check_machines import FIRES, MISSES, Machine

FRESH = served().later(86400).load(4096, 1, layers=(33, 33), kv_mib=400).gin(200, "1.2s").text()
FRESH = FRESH.replace("2026-05", "2026-06").replace("2026/05", "2026/06")
HEALTHY = served(OLLAMA_NUM_PARALLEL="4").load(4096, 4, layers=(33, 33), kv_mib=400).gin(200, "1.2s").rows


@cache
def texts() -> dict[str, list[str]]:
    """Texts on which each check fires as the first finding."""
    found: dict[str, list[str]] = {check: [m] for check, m in FIRES.items() if isinstance(m, str)}
    for check, text in (cases_logs.CASES | cases_host.CASES | cases_commands.CASES).values():
        found.setdefault(check, []).append(text)
    return found


def judged(check: str, machine: Machine) -> list[Finding] | None:
    """What one check finds; None where it could not look. A text without a trace of Ollama gives nothing to judge."""
    facts = machine if isinstance(machine, Facts) else facts_of(machine.encode(), "text")
    if facts is None:
        return None
    report = run(facts, only=[check])
    assert not report.crashed, report.crashed
    return None if report.skipped else list(report.findings)


def elsewhere(text: str) -> str:
    """The same lines in the journal of another unit, among those of a healthy server."""
    server = [f"May 04 10:00:00 host ollama[900]: {line}" for line in HEALTHY]
    other = [f"May 04 10:00:01 host grafana[77]: {line}" for line in text.splitlines() if line.strip()]
    return "\n".join((*server[:3], *other, *server[3:])) + "\n"


def log_alone(text: str) -> bool:
    facts = facts_of(text.encode(), "text")
    if facts is None or facts.start is None or facts.unit_files or facts.loaded:
        return False
    return facts.told is None or not (facts.told.messages or facts.told.variables)


@pytest.mark.parametrize("check", CHECKS)
def test_it_fires(check: str) -> None:
    machine = FIRES.get(check) or texts()[check][0]
    found = judged(check, machine)
    assert found, "a machine on which it fires is missing from check_machines.py"
    assert found[0].summary and found[0].remedy, found[0]
    assert found[0].evidence or check in ("one_blob_under_two_names",)


@pytest.mark.parametrize("check", CHECKS)
def test_its_near_miss_does_not(check: str) -> None:
    if check in MISSES:
        assert judged(check, MISSES[check]) == []
        return
    older = [text for text in texts()[check] if judged(check, text) and judged(check, text + "\n" + FRESH) == []]
    assert older, "a near miss is missing from check_machines.py: no case of it is quieted by a later start"


@pytest.mark.parametrize("check", [c for c in CHECKS if any(map(log_alone, texts().get(c, ())))])
def test_the_same_lines_of_another_unit_do_not_count(check: str) -> None:
    healthy = judged(check, elsewhere(""))
    for text in filter(log_alone, texts()[check]):
        assert judged(check, elsewhere(text)) == healthy, text


def test_the_table_names_checks_that_exist() -> None:
    assert set(FIRES) | set(MISSES) | set(texts()) <= set(CHECKS)


def test_an_exposed_api_gets_its_remedies_from_the_safest_on() -> None:
    """Loopback first, then a tunnel or a private network, then our front; and so where it is explained."""
    for text in texts()["api_exposed_without_auth"]:
        found = judged("api_exposed_without_auth", text)
        assert found
        remedy = found[0].remedy or ""
        if "front nginx" not in remedy:  # a port that docker publishes has a line of its own
            assert "127.0.0.1" in remedy, remedy
            continue
        at = [remedy.index(word) for word in ("127.0.0.1", "ssh -L", "private network", "front nginx")]
        assert at == sorted(at), remedy
    explained = CHECKS["api_exposed_without_auth"].part("Do")
    at = [explained.index(word) for word in ("127.0.0.1", "ssh tunnel", "private network", "front nginx")]
    assert at == sorted(at)
