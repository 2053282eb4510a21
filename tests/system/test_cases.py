"""Public cases as small machines: the right finding comes first."""

from __future__ import annotations

import pytest

from ollamactl.cli.sources import text_facts
from ollamactl.core.checks import run
from tests.system import cases_host, cases_logs

CASES = cases_logs.CASES | cases_host.CASES


@pytest.mark.parametrize("name", CASES)
def test_right_finding_first(name: str) -> None:
    check, text = CASES[name]
    report = run(text_facts(text.encode(), "case"))
    assert not report.crashed
    assert [f.check for f in report.findings][:1] == [check], [(f.severity, f.check) for f in report.findings]
    assert report.findings[0].summary and report.findings[0].remedy


def test_enough_cases() -> None:
    assert len(CASES) >= 120
