"""The mechanism of checks: needs, defaults, crashes, ignores, order, and what every check must have."""

# ruff: noqa: E501 - lines of logs and shells
from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ollamactl.core.checks import CHECKS, Finding, base, run
from ollamactl.core.facts import Facts, HostMemory, Service, System
from ollamactl.core.needs import MADE, NO_SIGNS, Signs
from ollamactl.core.parse.manager import KERNEL, ROWS
from ollamactl.core.parse.messages import EVENTS
from ollamactl.core.parse.phrases import PHRASES
from ollamactl.core.paste.claim_rules import RULES
from ollamactl.core.paste.claims import GPU_WORKS, HALVED
from ollamactl.core.paste.commands import KINDS
from ollamactl.core.paste.units import PASSED_OVER
from ollamactl.core.source import Missing

SOURCES = sorted((Path(base.__file__).parent).glob("*.py"))
# said by what compares several pieces of a text, or by the log parser itself
ELSEWHERE = {
    "ps_flips", "loaded_in_turn", "ps_gpu_to_cpu", "size_grew", "stopping_model", "until_soon", "ipv6_only_shown", "other_warning", "other_error",
    "config_cut", "fatal_error",
}  # fmt: skip


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, base.Check]:
    mine: dict[str, base.Check] = {}
    monkeypatch.setattr(base, "CHECKS", mine)
    return mine


@pytest.mark.parametrize("check", CHECKS.values(), ids=lambda c: c.id)
def test_every_check_says_what_it_is(check: base.Check) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]+", check.id)
    assert 10 < len(check.title) < 110 and not check.title.endswith(".")
    for part in ("Why", "Seen", "Do"):
        assert len(check.part(part)) > 5, part
    known = set(Facts.__struct_fields__) | set(MADE)
    assert set(check.needs) | set(check.wants) <= known
    assert check.explains <= set(CHECKS) and check.id not in check.explains


def test_every_sign_that_a_check_asks_for_can_be_said() -> None:
    said = {e.kind for e in EVENTS} | {p.kind for p in PHRASES} | {r.kind for r in RULES} | ELSEWHERE | {HALVED, GPU_WORKS, PASSED_OVER}
    said |= KINDS | {f"unit:{r.kind}" for r in ROWS} | {f"kernel:{r.kind}" for r in (*KERNEL, *ROWS)}
    asked = set()
    for path in SOURCES:
        for call in re.findall(r"signs\.(?:has|of|lines|count)\(([^()]*)\)", path.read_text()):
            asked |= set(re.findall(r'"([a-z_0-9:]+)"', call))
    unsaid = asked - said
    assert unsaid == set()


def test_a_missing_need_skips_with_the_reason_and_a_missing_wish_is_its_default(registry: dict[str, base.Check]) -> None:
    @base.check()
    def needs_service(service: Service) -> Iterator[Finding]:
        """Needs."""
        yield Finding("error", service.id)

    @base.check()
    def wants_signs(system: System, memory: HostMemory | None = None, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
        """Wants."""
        assert memory is None and signs is NO_SIGNS
        yield Finding("info", system.os)

    facts = Facts(system=System(os="linux"), missing={"service": Missing("denied", "no")})
    report = run(facts)
    assert [(s.check, s.fact, s.kind, s.hint) for s in report.skipped] == [
        ("needs_service", "service", "denied", "sudo ollamactl doctor")
    ]
    assert [f.summary for f in report.findings] == ["linux"] and report.well == 0


def test_a_crash_is_neither_well_nor_hides_others(registry: dict[str, base.Check]) -> None:
    @base.check()
    def crashes(system: System) -> Iterator[Finding]:
        """Crashes."""
        yield Finding("error", str(1 / (len(system.os) - 5)))

    @base.check()
    def holds(system: System) -> Iterator[Finding]:
        """Holds."""
        return iter(())

    report = run(Facts(system=System(os="linux")))
    assert report.well == 1 and report.findings == ()
    assert report.crashed[0].check == "crashes" and "ZeroDivisionError" in report.crashed[0].error


def test_roots_stand_above_their_consequences_and_take_their_severity(registry: dict[str, base.Check]) -> None:
    @base.check(weight=10, explains=("middle",))
    def root(system: System) -> Iterator[Finding]:
        """Root."""
        yield Finding("warning", "root")

    @base.check(weight=90, explains=("leaf",))
    def middle(system: System) -> Iterator[Finding]:
        """Middle."""
        yield Finding("error", "middle")

    @base.check(weight=95)
    def leaf(system: System) -> Iterator[Finding]:
        """Leaf."""
        yield Finding("info", "leaf")

    @base.check(weight=50)
    def other(system: System) -> Iterator[Finding]:
        """Other."""
        yield Finding("warning", "other")

    report = run(Facts(system=System(os="linux")))
    assert [(f.check, f.severity) for f in report.findings] == [("root", "error"), ("other", "warning")]
    assert set(report.findings[0].consequences) == {"middle: middle", "leaf: leaf"}
    ignored = run(Facts(system=System(os="linux")), ignore={"root": "why"})
    assert [f.check for f in ignored.findings] == ["middle", "other"] and ignored.ignored[0].reason == "why"


def test_evidence_is_bounded(registry: dict[str, base.Check]) -> None:
    @base.check()
    def wordy(system: System) -> Iterator[Finding]:
        """Wordy."""
        yield Finding("info", "x", tuple(f"{n}" + "y" * 9000 for n in range(50)))

    found = run(Facts(system=System(os="linux"))).findings[0]
    assert len(found.evidence) == base.EVIDENCE and all(len(e) <= base.TEXT for e in found.evidence)


def test_nothing_known_skips_all_that_needs_something() -> None:
    report = run(Facts())
    assert not report.crashed and not [f for f in report.findings if f.severity != "info"]
    assert report.ran == len(CHECKS) and report.well + len(report.skipped) == report.ran - len(report.findings)


def test_facts_survive_json_with_the_new_fields() -> None:
    facts = Facts(missing={"log": Missing("denied")})
    assert msgspec.json.decode(msgspec.json.encode(facts), type=Facts) == facts
