"""[GIN] lines: one for each request that has *ended*, with its status and how long it took.

    [GIN] 2026/11/30 - 02:56:39 | 200 |  1.275773246s |       127.0.0.1 | POST     "/api/generate"
"""

from __future__ import annotations

import re
from collections import deque

from ollamactl.core.facts import Request, RequestStats

_LINE = re.compile(
    r"\[GIN\] ?((?:\d{4}/\d\d/\d\d - \d\d:\d\d:\d\d)?) ?\| *(\d{3}) ?\| *([0-9a-zµμ.]+) ?"
    r"\| *([^|]{0,60}?) *\| *([A-Z]+) *\"([^\"]*)\"?"
)
_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|μs|ms|s|m|h)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_BLOB = re.compile(r"sha256[:-][0-9a-f]{64}")
RUNS_A_MODEL = {"/api/generate", "/api/chat", "/api/embed", "/api/embeddings"} | {
    f"/v1/{name}" for name in ("chat/completions", "completions", "embeddings", "responses", "messages")
}
KEPT = 300  # requests of each list
PATHS = 400  # groups kept apart; a scanner may ask for any number of paths


def parse(text: str) -> tuple[str, int, float, str, str, str] | None:
    """(time as printed or empty, status, seconds, client, method, path) of a [GIN] line, or None."""
    found = _LINE.match(text)
    if found is None:
        return None
    took = duration(found[3])
    if took is None:
        return None
    path = found[6].split("?", 1)[0]
    return found[1], int(found[2]), took, found[4], found[5], _BLOB.sub("sha256:…", path)[:200]


def duration(text: str) -> float | None:
    """Seconds of a Go duration as gin rounds it: 16.724µs, 4.0196ms, 5.048484163s, 2m48s, 1h0m0s, 0s."""
    total, at = 0.0, 0
    for part in _PART.finditer(text):
        if part.start() != at:
            return None
        total += float(part[1]) * _UNITS[part[2]]
        at = part.end()
    return total if at == len(text) and at else None


class _Group:
    """Running figures of one method, path and status."""

    __slots__ = ("count", "first", "high", "last", "low", "text", "total")

    def __init__(self, line: int) -> None:
        self.count, self.total, self.low, self.high = 0, 0.0, float("inf"), 0.0
        self.first, self.text = line, ""
        self.last: float | None = None


class Requests:
    """Gathers the requests of one start in bounded memory."""

    def __init__(self) -> None:
        self.groups: dict[tuple[str, str, int], _Group] = {}
        self.recent: deque[Request] = deque(maxlen=KEPT)
        self.failed: deque[Request] = deque(maxlen=KEPT)

    def add(self, one: Request, text: str) -> None:
        key = (one.method, one.path, one.status)
        if key not in self.groups and len(self.groups) >= PATHS and one.path not in RUNS_A_MODEL:
            key = (one.method, "(others)", one.status)
        group = self.groups.setdefault(key, _Group(one.line or 0))
        group.count += 1
        group.total += one.seconds
        group.low, group.high = min(group.low, one.seconds), max(group.high, one.seconds)
        group.last, group.text = one.at, text
        if one.path in RUNS_A_MODEL:
            self.recent.append(one)
        if one.status >= 400:
            self.failed.append(one)

    def stats(self) -> tuple[RequestStats, ...]:
        """One record for each method, path and status, in the order of their first line."""
        return tuple(
            RequestStats(
                method=method,
                path=path,
                status=status,
                count=group.count,
                seconds_min=group.low,
                seconds_max=group.high,
                seconds_sum=group.total,
                last_at=group.last,
                first_line=group.first,
                text=group.text,
            )
            for (method, path, status), group in self.groups.items()
        )
