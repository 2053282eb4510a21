"""[GIN] lines and their aggregation."""
# ruff: noqa: E501  (log lines stand as they are printed)

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollamactl.core.facts import Request
from ollamactl.core.govalues import format_duration
from ollamactl.core.parse import gin


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("16.724µs", 16.724e-6),
        ("4.0196ms", 4.0196e-3),
        ("5.048484163s", 5.048484163),
        ("2m48s", 168.0),
        ("10m12s", 612.0),
        ("5m0s", 300.0),
        ("1h0m3s", 3603.0),
        ("0s", 0.0),
        ("712ns", 712e-9),
        ("", None),
        ("5", None),
        ("5sx", None),
        ("x5s", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    found = gin.duration(text)
    assert found == pytest.approx(seconds) if seconds is not None else found is None


@given(st.integers(0, 10**15))
def test_every_go_duration(ns: int) -> None:
    assert gin.duration(format_duration(ns)) == pytest.approx(ns / 1e9, rel=1e-9)


def test_line() -> None:
    assert gin.parse('[GIN] 2026/11/30 - 02:57:03 | 503 |    73.08794ms |       127.0.0.1 | POST     "/api/generate"') == (
        "2026/11/30 - 02:57:03", 503, pytest.approx(0.07308794), "127.0.0.1", "POST", "/api/generate",
    )  # fmt: skip


def test_a_client_that_somebody_masked() -> None:
    row = '[GIN] 2024/08/07 - 13:30:29 | 500 | 20.000781644s | ip of mine | POST "/api/generate"'
    found = gin.parse(row)
    assert found is not None
    assert found[1:] == (500, pytest.approx(20.000781644), "ip of mine", "POST", "/api/generate")


def test_query_and_digests_make_no_groups_of_their_own() -> None:
    line = '[GIN] 2026/11/30 - 02:57:03 | 201 | 1s | ::1 | POST "/api/blobs/sha256:' + "ab" * 32 + '?x=1"'
    found = gin.parse(line)
    assert found is not None
    assert found[5] == "/api/blobs/sha256:…"


def test_lost_blanks_of_console_copies() -> None:
    found = gin.parse('[GIN]2024/03/12 - 18:54:13 |200 |138.182µs |127.0.0.1 |HEAD"/"')
    assert found is not None
    assert found[1:] == (200, pytest.approx(138.182e-6), "127.0.0.1", "HEAD", "/")


def test_aggregates_and_bounds() -> None:
    requests = gin.Requests()
    for at in range(5000):
        requests.add(
            Request(method="GET", path=f"/scan/{at}", status=404, seconds=at / 1000, at=float(at), line=at), "line"
        )
    for seconds in (1.0, 3.0):
        requests.add(Request(method="POST", path="/api/chat", status=200, seconds=seconds, line=9), "text")
    stats = requests.stats()
    assert len(stats) <= gin.PATHS + 2
    assert sum(one.count for one in stats) == 5002
    assert [one.seconds_sum for one in stats if one.path == "/api/chat"] == [4.0]
    assert len(requests.failed) == gin.KEPT
    assert [one.seconds for one in requests.recent] == [1.0, 3.0]


@given(st.text(max_size=120))
def test_never_raises(text: str) -> None:
    gin.parse("[GIN] 2026/11/30 - 02:57:03 | 503 | " + text)
    gin.parse(text)
    gin.duration(text)
