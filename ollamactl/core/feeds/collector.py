"""The collector: reads facts of one host on demand, each once, and keeps why others are not known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from ollamactl.core.facts import (
    Facts,
)
from ollamactl.core.source import Host, Missing, Reading, Source

T = TypeVar("T")
Reader = Callable[[Source], Reading]


class Unknown(Exception):
    """A fact that can't be known, and why."""

    def __init__(self, missing: Missing) -> None:
        super().__init__(str(missing))
        self.missing = missing


class Collector:
    """Reads facts of one host on demand. `unit` is a full unit name, or empty: the only one that there is. `thorough`
    looks through all of the current start's log, not its two ends only."""

    def __init__(
        self, host: Host, unit: str = "", *, thorough: bool = False, whole_log: bool = False, lines: int = 0
    ) -> None:
        self.host = host
        self.unit = unit
        self.thorough = thorough
        self.whole_log = whole_log
        self.lines = lines  # the last so many of a whole log; 0 for all
        self.known: dict[str, Any] = {}
        self.missing: dict[str, Missing] = {}
        self._kept: dict[str, Reading] = {}
        self._begun: dict[str, Callable[[], Reading]] = {}
        self._asked: set[str] = set()  # keys of readings that were made or begun: none is begun twice

    def read(self, source: Source) -> Reading:
        self._asked.add(source.key)
        begun = self._begun.pop(source.key, None)
        return begun() if begun is not None else self.host.read(source)

    def once(self, source: Source) -> Reading:
        """A reading that several feeds stand on."""
        if source.key not in self._kept:
            self._kept[source.key] = self.read(source)
        return self._kept[source.key]

    def begin(self, *fields: str) -> None:
        """Starts the readings of these fields that can be named by now, where the host can read several at once."""
        begin = getattr(self.host, "begin", None)
        if begin is not None and not self._mac():
            wanted = [f for f in fields if f in AHEAD and f not in self.known and f not in self.missing]
            sources = {s.key: s for f in wanted for s in AHEAD[f](self) if s.key not in self._asked}
            self._begun |= {key: begin(s) for key, s in sources.items()}
            self._asked |= sources.keys()

    def body(self, source: Source) -> bytes:
        """The body of a reading; raises Unknown with the reason why there is none."""
        reading = self.read(source)
        if reading.missing is not None:
            raise Unknown(reading.missing)
        return reading.body or b""

    def text(self, source: Source) -> str:
        return self.body(source).decode("utf-8", "surrogateescape")

    def record(self, source: Source, kind: type[T]) -> T:
        """A reading of JSON, as a record."""
        try:
            return msgspec.json.decode(self.body(source), type=kind)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise Unknown(Missing("unparsable", f"{source.key}: {error}")) from None

    def get(self, field: str) -> Any:
        """A fact, or None with `missing[field]` set."""
        if field in self.known:
            return self.known[field]
        if field in self.missing:
            return None
        try:
            self.known[field] = self._feed(field)(self)
        except Unknown as unknown:
            self.missing[field] = unknown.missing
            return None
        return self.known[field]

    def take(self, **facts: Any) -> None:
        """Facts that are known otherwise, and need no reading."""
        self.known |= facts
        for field in facts:
            self.missing.pop(field, None)

    def _feed(self, field: str) -> Feed:
        """The feed of a field: on a Mac, the one that asks launchd where there is one; of a container that is named
        like a unit, the one that asks its engine."""
        if self.unit.startswith("compose:"):
            import ollamactl.core.feeds.boxes  # noqa: F401 - they register themselves

            if field in BOX:
                return BOX[field]
        if field != "system" and self._mac() and field in MAC:
            return MAC[field]
        if field not in FEEDS:
            raise Unknown(Missing("unsupported", "this is no Mac"))
        return FEEDS[field]

    def _mac(self) -> bool:
        host = self.get("system")
        if host is None or host.os != "darwin":
            return False
        import ollamactl.core.feeds.mac
        import ollamactl.core.feeds.mac_files
        import ollamactl.core.feeds.mac_memory
        import ollamactl.core.feeds.mac_service  # noqa: F401 - they register themselves

        return True

    def only_here(self) -> tuple[str, ...]:
        """Facts that only this kind of host has."""
        return tuple(f for f in MAC if f not in FEEDS and f in Facts.__struct_fields__) if self._mac() else ()

    def need(self, field: str) -> Any:
        """A fact that another stands on; raises Unknown with its reason."""
        found = self.get(field)
        if found is None:
            raise Unknown(self.missing[field])
        return found

    def facts(self, fields: Iterable[str], *, taken: float | None = None, origin: str = "live") -> Facts:
        wanted = list(fields)
        values = {}
        for field in wanted:
            self.begin(*wanted)  # those too that stand on what is known by now
            values[field] = self.get(field)
        return Facts(
            taken=taken,
            origin=origin,
            missing={k: v for k, v in self.missing.items() if k in wanted},
            **values,
        )


Feed = Callable[[Collector], Any]
FEEDS: dict[str, Feed] = {}
AHEAD: dict[str, Callable[[Collector], tuple[Source, ...]]] = {}  # what a feed will read, as far as that is known
BOX: dict[str, Feed] = {}  # what is read another way of a container of a compose project
MAC: dict[str, Feed] = {}  # what is read another way there, and what there is only there


def feed(function: Callable[[Collector], T]) -> Callable[[Collector], T]:
    FEEDS[function.__name__] = function
    return function


def ahead(sources: Callable[[Collector], tuple[Source, ...]]) -> Callable[[Feed], Feed]:
    """Marks a feed: these are readings that it will make, as far as the facts that are known by now tell."""

    def mark(function: Feed) -> Feed:
        AHEAD[function.__name__] = sources
        return function

    return mark


def box(function: Callable[[Collector], T]) -> Callable[[Collector], T]:
    BOX[function.__name__] = function
    return function


def mac(function: Callable[[Collector], T]) -> Callable[[Collector], T]:
    MAC[function.__name__.rstrip("_")] = function
    return function
