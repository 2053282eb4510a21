"""Public cases as small machines, and pasted output of commands: the right finding comes first."""

from __future__ import annotations

import pytest

from ollamactl.cli.sources import text_facts
from ollamactl.core.checks import run
from tests.system import cases_commands, cases_host, cases_logs

PUBLIC = cases_logs.CASES | cases_host.CASES
CASES = PUBLIC | cases_commands.CASES


@pytest.mark.parametrize("name", CASES)
def test_right_finding_first(name: str) -> None:
    check, text = CASES[name]
    report = run(text_facts(text.encode(), "case"))
    assert not report.crashed
    assert [f.check for f in report.findings][:1] == [check], [(f.severity, f.check) for f in report.findings]
    assert report.findings[0].summary and report.findings[0].remedy


def test_enough_cases() -> None:
    assert len(PUBLIC) >= 120
    assert len(CASES) == len(PUBLIC) + len(cases_commands.CASES)
