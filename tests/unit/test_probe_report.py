"""What a measurement looks like: terminal, JSON, CSV, HTML."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser

import msgspec
import pytest

from ollamactl.core.judge import phase
from ollamactl.core.measure import Probe, Sent
from ollamactl.report import probe as report
from ollamactl.report.probe_html import page
from ollamactl.report.text import Terminal
from tests.probes import BASE, burst, probe


def shown(found: Probe) -> str:
    out = io.StringIO()
    report.screen(Terminal(out), found)
    return out.getvalue()


def test_the_screen_says_what_happened_to_each() -> None:
    text = shown(probe())
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*\d+\s+(served|queued)", line)]
    assert [r[1] for r in rows] == ["served"] * 4 + ["queued"] * 4
    assert {r[2] for r in rows} == {"200"}
    assert "4 slots · 4 served at once · 4 queued" in text
    assert "A queue forms at request 5" in text
    assert "OLLAMA_MAX_QUEUE bounds only loading" in text


@pytest.mark.parametrize("found", [probe(), probe(sweep=(1, 2, 4, 8)), probe(cold=12), probe(sweep=(64,))])
def test_80_columns_hold_it(found: Probe) -> None:
    assert max(map(len, shown(found).splitlines())) <= 80


def test_cold_and_warm_are_told_apart_in_one_sentence() -> None:
    text = " ".join(shown(probe(cold=12)).split())
    assert (
        "While the model loaded, 6 of 12 were refused and 6 answered; once it was loaded, none of 8 was refused"
        in text
    )


def test_many_requests_are_shortened_on_the_terminal_only() -> None:
    found = probe(sweep=(64,))
    assert "… and 40 more" in shown(found)
    assert len(report.document(found)["phases"][0]["requests"]) == 64
    assert len(report.table(found).splitlines()) == 65


def test_time_alone_is_said() -> None:
    sent, _ = burst(8, 4)
    bare = probe(
        phases=(phase("warm", sent, [], BASE, clients=8),), slots=None, unseen="example.net is another machine"
    )
    text = " ".join(shown(bare).split())
    assert "Judged by time alone, without the runner's slots: example.net is another machine." in text
    assert {r["proof"] for r in report.document(bare)["phases"][0]["requests"]} == {"time"}


def test_percentiles_stand_beside_their_number_of_samples() -> None:
    assert "(8 samples)" in shown(probe()) and "slowest" in shown(probe())
    assert re.search(r"First token p50 [\d.]+ s, p95 [\d.]+ s \(64 samples\)", shown(probe(sweep=(64,))))


def test_json_has_every_key_and_no_more_than_json() -> None:
    whole = report.document(probe(cold=4))
    again = json.loads(msgspec.json.encode(whole))
    assert again["slots"] == 4 and again["judged_by"] == "slots"
    keys = {tuple(r) for p in again["phases"] for r in p["requests"]}
    assert len(keys) == 1
    assert again["phases"][1]["summary"]["first_token"]["count"] == 8


def test_csv_is_read_back_and_computes_nothing() -> None:
    evil = Sent(number=0, at=0.0, end=1.0, status=500, error="=cmd|' /C calc'!A0", ended_by="error")
    found = probe(phases=(phase("warm", [evil, *burst(3, 4)[0]], [], BASE, clients=4),))
    rows = list(csv.DictReader(io.StringIO(report.table(found))))
    assert [r["result"] for r in rows] == ["failed", "served", "served", "served"]
    assert rows[0]["error"].startswith("'=") and rows[0]["why"].startswith("'=")
    assert float(rows[1]["first_token"]) > 0


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.all: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing() -> None:
    text = page(probe(sweep=(1, 2, 4, 8), cold=6))
    tags = Tags(text)
    assert tags.open == []
    names = {t for t, _ in tags.all}
    assert not names & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    loading = {"src", "href", "srcset", "xlink:href", "action", "poster", "background"}
    assert not [a for _, has in tags.all for a in has if a in loading or a.startswith("on")]
    assert "@import" not in text and "url(" not in text
    assert len([1 for t, has in tags.all if t == "g" and has.get("class") == "request"]) == 6 + 1 + 2 + 4 + 8


def test_what_servers_and_users_say_is_escaped() -> None:
    evil = '"><script>alert(1)</script>'
    bad = Sent(number=0, at=0.0, end=1.0, status=500, error=evil, ended_by="error")
    found = probe(model=evil, version=evil, phases=(phase("warm", [bad], [], BASE, clients=1),), notes=(evil,))
    assert "<script" not in page(found)
    assert "\x1b" not in shown(probe(model="\x1b[31mred"))


def test_a_thousand_requests_make_a_page_of_bearable_size() -> None:
    text = page(probe(sweep=(1000,)))
    assert len(text) < 1_500_000
    assert text.count('<g class="request">') == 1000


def test_nothing_measured_is_shown_too() -> None:
    empty = probe(phases=(), interrupted=True, slots=None, unseen="no sample was taken")
    assert "Interrupted" in shown(empty)
    assert "results so far" in page(empty)
    assert report.table(empty).count("\n") == 1
