"""The collector: readings that begin ahead of their need are those that are needed, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import permutations

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
