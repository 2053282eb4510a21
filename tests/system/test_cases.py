"""Public cases as small machines, and pasted output of commands: the right finding comes first."""

from __future__ import annotations

import pytest

from ollamactl.cli.sources import text_facts
from ollamactl.core.checks import run
from tests.system import cases_commands, cases_healthy, cases_host, cases_logs, cases_screens

PUBLIC = cases_logs.CASES | cases_host.CASES
CASES = PUBLIC | cases_commands.CASES | cases_screens.CASES
HEALTHY = cases_healthy.CASES | cases_screens.HEALTHY


@pytest.mark.parametrize("name", CASES)
def test_right_finding_first(name: str) -> None:
    check, text = CASES[name]
    report = run(text_facts(text.encode(), "case"))
    assert not report.crashed
    assert [f.check for f in report.findings][:1] == [check], [(f.severity, f.check) for f in report.findings]
    assert report.findings[0].summary and report.findings[0].remedy


def test_enough_cases() -> None:
    assert len(PUBLIC) >= 120
    assert len(CASES) == len(PUBLIC) + len(cases_commands.CASES) + len(cases_screens.CASES)


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_at_warning_where_nothing_is_wrong(name: str) -> None:
    report = run(text_facts(HEALTHY[name].encode(), "case"))
    assert not report.crashed
    assert [(f.check, f.summary) for f in report.findings if f.severity != "info"] == []


FORMS = {
    "issue": lambda text: f"### What is the issue?\n\nPlease help.\n\n```shell\n{text}\n```\n\n### OS\n\nLinux\n",
    "quotation": lambda text: "\n".join(f"> {line}" for line in text.split("\n")),
    "indented": lambda text: "\n".join(f"    {line}" for line in text.split("\n")),
    "crlf and colours": lambda text: "\r\n".join(f"\x1b[32m{line}\x1b[0m" for line in text.split("\n")),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_a_paste_changes_nothing(form: str) -> None:
    for name, (check, text) in CASES.items():
        report = run(text_facts(FORMS[form](text).encode(), "case"))
        assert [f.check for f in report.findings][:1] == [check], name
