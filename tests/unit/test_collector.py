"""The collector: what begins ahead of its need is what is needed, each once; and what a feed leaves out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import permutations

import msgspec
import pytest

from ollamactl.core.feeds import Collector
from ollamactl.core.source import Reading, Source
from tests.machines.replayed import Recorded


class Counting(Recorded):
    """A recorded host that reads several things at once, and counts what it is asked."""

    def __init__(self) -> None:
        super().__init__("04a-queue2-12conc-warm")
        self.reads: Counter[str] = Counter()

    def begin(self, source: Source) -> Callable[[], Reading]:
        self.reads[source.key] += 1
        reading = super().read(source)
        return lambda: reading

    def read(self, source: Source) -> Reading:
        self.reads[source.key] += 1
        return super().read(source)


@pytest.mark.parametrize("fields", list(permutations(("unit_files", "log", "start", "servers", "units"))))
def test_nothing_that_begins_ahead_is_read_twice(fields: tuple[str, ...]) -> None:
    host = Counting()
    collector = Collector(host)
    facts = collector.facts(("service", *fields))
    assert facts.service is not None and facts.start is not None, facts.missing
    kinds = ("command:journalctl", "command:systemctl", "native:servers")
    ahead = [key for key in host.reads if key.startswith(kinds)]
    assert len(ahead) >= 3
    assert {key: host.reads[key] for key in ahead if host.reads[key] > 1} == {}


RESTARTS = "ollama.service: Scheduled restart job, restart counter is at 3."
UNIT = "/home/anna/.config/systemd/user/ollama.service"


class WithUserUnit(Recorded):
    """A recorded host on which a user has a unit of her own, whose journal holds these lines."""

    def __init__(self, *lines: str) -> None:
        super().__init__("04a-queue2-12conc-warm")
        rows = [{"MESSAGE": line, "__REALTIME_TIMESTAMP": "1764000000000000"} for line in lines]
        self.journal = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)

    def read(self, source: Source) -> Reading:
        if source.kind == "list" and source.args[0].startswith("/home/*/"):
            return Reading(source.key, msgspec.json.encode([UNIT]))
        if source.kind == "command" and "_SYSTEMD_USER_UNIT=ollama.service" in source.args:
            return Reading(source.key, self.journal)
        return super().read(source)


@pytest.mark.parametrize(
    ("after", "kinds"),
    [
        (("Started ollama.service.",), ["bind_error"]),
        ((RESTARTS, "Stopped ollama.service."), ["bind_error"]),
        (("Stopped ollama.service.",), []),
    ],
)
def test_a_users_unit_that_was_stopped_says_nothing(after: tuple[str, ...], kinds: list[str]) -> None:
    """Between two starts of what dies systemd may say that it was stopped: by nobody."""
    refused = "Error: listen tcp 127.0.0.1:11434: bind: address already in use"
    said = Collector(WithUserUnit(refused, *after)).get("user_log")
    assert [event.kind for event in said if event.kind == "bind_error"] == kinds
