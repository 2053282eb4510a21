"""What a log shows of an earlier start: of no weight once a later one serves, told as info while none has."""

from __future__ import annotations

import pytest

from ollamactl.core.checks import Report, run
from ollamactl.core.pasted import facts_of
from tests.system.cases_logs import CASES
from tests.system.small import Log, served


def later(log: Log) -> str:
    return log.text().replace("2026-05", "2026-06").replace("2026/05", "2026/06")


IDLE = later(served().gin(200, "1.2ms", "/api/tags", "GET"))
SERVES = later(served().load(4096, 1, layers=(33, 33), kv_mib=400).gin(200, "1.2s"))
OF_WORK = ("load_oom", "client_timeout_500_clusters", "models_evict_each_other", "partial_offload")


def report(text: str, where: str = "server.log") -> Report:
    found = facts_of(text.encode(), where)
    assert found is not None
    made = run(found)
    assert not made.crashed
    return made


def case(check: str) -> str:
    """A log of one start, whose finding rests on a load or a request."""
    return next(text for want, text in CASES.values() if want == check and text.count("server config") == 1)


@pytest.mark.parametrize("check", OF_WORK)
@pytest.mark.parametrize("where", ["server.log", "standard input", "/tmp/a log.txt"])
def test_a_restart_alone_cures_nothing(check: str, where: str) -> None:
    made = report(case(check) + IDLE, where)
    assert (made.findings[0].check, made.findings[0].severity) == (check, "info")
    assert made.findings[0].summary.startswith("before the last start, which has served nothing yet: ")
    assert made.worst() == "info"


@pytest.mark.parametrize("check", OF_WORK)
def test_a_start_that_serves_does(check: str) -> None:
    assert check not in {finding.check for finding in report(case(check) + SERVES).findings}


@pytest.mark.parametrize("check", OF_WORK)
def test_what_is_ignored_is_not_told_of_an_earlier_start(check: str) -> None:
    found = facts_of((case(check) + IDLE).encode(), "server.log")
    assert found is not None
    assert check not in {finding.check for finding in run(found, ignore={check: "known"}).findings}


def test_how_an_earlier_start_was_set_up_is_past() -> None:
    """The last start shows its own address."""
    open_to_all = served(listen="[::]:11434", OLLAMA_HOST="http://0.0.0.0:11434")
    text = open_to_all.load(4096, 1, layers=(33, 33), kv_mib=400).gin(200, "1.2s").text()
    assert report(text).findings[0].check == "api_exposed_without_auth"
    assert "api_exposed_without_auth" not in {finding.check for finding in report(text + IDLE).findings}
