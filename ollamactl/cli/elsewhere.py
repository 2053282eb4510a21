"""What `apply` says where ollamactl changes nothing itself: the request is judged like any other, then the advice."""

from __future__ import annotations

from ollamactl.core import elsewhere, lint
from ollamactl.core import plan as planning
from ollamactl.core.advice import Advice
from ollamactl.core.dropin import Managed
from ollamactl.core.facts import Facts
from ollamactl.core.feeds import Collector
from ollamactl.core.plan import Request
from ollamactl.core.source import Host
from ollamactl.errors import Exit, Failure

# Refusals of a change that mean: no unit of systemd that we could change.
NO_UNIT = ("no_unit", "unsupported", "absent", "denied", "pystemd_missing")
FIELDS = ("install", "containers", "system", "process", "start", "version")


class Elsewhere(Exception):
    """The settings of this server stand where ollamactl changes nothing; `advice` says what to do."""

    def __init__(self, advice: Advice) -> None:
        super().__init__(advice.said)
        self.advice = advice


def seen(host: Host, unit: str, error: Failure) -> Facts | None:
    """What runs Ollama here, where that is why no unit of systemd could be changed; None for any other `error`."""
    if error.id not in NO_UNIT:
        return None
    collector = Collector(host, unit)
    if collector.get("unit") is not None and collector.get("service") is not None:
        return None
    found: Facts = collector.facts(FIELDS)
    return found if found.install is not None and found.install.way in elsewhere.RULES else None


def advised(host: Host, unit: str, request: Request, facts: Facts) -> Advice:
    """What to do there. Raises Failure for a request that is refused anywhere."""
    try:
        found = elsewhere.advice(meant(request, facts, Collector(host, unit)), facts)
    except ValueError as wrong:
        raise Failure(str(wrong), hint="a value is one line of text", code=Exit.USAGE, id="value_refused") from None
    assert found is not None, "a way that has a rule"
    return found


def of_unit(request: Request, facts: Facts, collector: Collector) -> None:
    """Raises Elsewhere for a unit that a drop-in would not change."""
    if facts.service is not None and elsewhere.of_unit(request, facts.service, facts.system) is not None:
        found = elsewhere.of_unit(meant(request, facts, collector), facts.service, facts.system)
        if found is not None:
            raise Elsewhere(found)


def meant(request: Request, facts: Facts, collector: Collector) -> Request:
    """The request with `auto` as a number. Raises Failure for what Ollama would ignore or read otherwise."""
    if request.set.get("OLLAMA_NUM_PARALLEL", "").strip().lower() == "auto":
        from ollamactl.cli import sizes

        request, _ = sizes.with_auto(request, collector.facts((*planning.NEEDS, *planning.NICE)), collector)
    start = facts.start
    keys = frozenset(start.config) if start is not None and start.config else frozenset[str]()
    release = facts.version or (start.version if start else "") or ""
    lints = lint.lint(Managed(request.set), request.set, release, keys)
    wrong = [x for x in lints if x.severity == "error" and x.id not in request.overrides]
    if wrong:
        first = wrong[0]
        hint = "; ".join(filter(None, (first.hint, f"if it is meant: --override {first.id}")))
        raise Failure("; ".join(x.text for x in wrong), hint=hint, code=Exit.REFUSED, id=first.id)
    return request
