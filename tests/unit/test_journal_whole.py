"""The journal of one start, read as a whole without its chatter, or from both ends where that can't be."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import msgspec
import pytest

from ollamactl.core.facts import Log, Start
from ollamactl.core.feeds import Collector
from ollamactl.core.feeds.log import TAIL_LINES
from ollamactl.core.parse import sift
from ollamactl.core.parse.journal import joined
from ollamactl.core.parse.log import parse_log
from ollamactl.core.source import Missing, Reading, Source
from tests.machines.replayed import Recorded

RECORDED = sorted((Path(__file__).parents[1] / "data" / "logs" / "recorded").glob("*.jsonl.gz"))
BUSY = "04a-queue2-12conc-warm"


def entry(number: int, at: int, text: str = "x") -> bytes:
    fields = {"__CURSOR": f"s=a;i={number:x}", "__REALTIME_TIMESTAMP": str(at), "MESSAGE": text}
    return json.dumps(fields).encode() + b"\n"


def test_head_and_tail_lose_no_line_of_one_time_and_hold_none_twice() -> None:
    lines = [entry(n, 100 + n // 4) for n in range(12)]  # journald stamps what it reads at once with one time
    for cut in range(1, 12):
        for begin in range(cut + 1):
            head = b"".join(lines[:cut]) + lines[cut][:30]
            assert b"".join(joined(head, b"".join(lines[begin:]))) == b"".join(lines), (cut, begin)


def without_lines(start: Start) -> object:
    """All that a start says but the numbers of its lines."""

    def bare(value: object) -> object:
        if isinstance(value, dict):
            return {k: bare(v) for k, v in value.items() if k not in ("line", "first_line", "last_line")}
        return [bare(v) for v in value] if isinstance(value, list | tuple) else value

    return bare(msgspec.to_builtins(start))


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.name.split(".")[0])
def test_what_journalctl_leaves_out_says_nothing(path: Path) -> None:
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    kept = [x for x in lines if not sift.CHATTER(str(json.loads(x).get("MESSAGE")).encode())]
    assert len(kept) < len(lines) or len(lines) < 50
    whole, some = (parse_log([b"".join(part)], where="journal", unit="ollama.service") for part in (lines, kept))
    assert list(map(without_lines, some.starts)) == list(map(without_lines, whole.starts))


class Long(Recorded):
    """A host whose journal is longer than what is read of its two ends: `journalctl` as it is, or as `sifts` says."""

    def __init__(self, sifts: Reading | None = None) -> None:
        super().__init__(BUSY)
        lines = self.journal.splitlines(keepends=True)
        after = Later(lines[-1])
        chatter = "slot print_timing: id  0 | task 7 | eval time = 1 ms"
        self.full = [*lines, *(after.line(chatter) for _ in range(1000)), after.line(REFUSED)]
        self.full += [after.line(chatter) for _ in range(TAIL_LINES + 1)]
        self.sifts = sifts
        self.greps = 0

    def read(self, source: Source) -> Reading:
        if source.args[0] != "journalctl" or "-b" in source.args:
            return super().read(source)
        if any(a.startswith("--grep=") for a in source.args):
            self.greps += 1
            kept = [x for x in self.full if not sift.CHATTER(json.loads(x)["MESSAGE"].encode())]
            return self.sifts or Reading(source.key, b"".join(kept), status=0)
        body = b"".join(self.full[-TAIL_LINES:] if "-n" in source.args else self.full)[: source.limit]
        return Reading(source.key, body, status=0)


REFUSED = '[GIN] 2026/11/30 - 02:57:03 | 503 |   70.101185ms |       127.0.0.1 | POST     "/api/generate"'


class Later:
    """Entries of a journal after one."""

    def __init__(self, entry: bytes) -> None:
        self.fields = json.loads(entry)
        self.count = 0

    def line(self, text: str) -> bytes:
        self.count += 1
        at = str(int(self.fields["__REALTIME_TIMESTAMP"]) + self.count)
        changed = {"MESSAGE": text, "__REALTIME_TIMESTAMP": at, "__CURSOR": f"s=z;i={self.count:x}"}
        return json.dumps(self.fields | changed).encode() + b"\n"


def refusals(log: Log) -> int:
    return sum(r.count for r in log.starts[-1].requests if r.status == 503)


def test_what_stands_between_the_ends_is_read_by_who_asks_for_all_of_it() -> None:
    host = Long()
    ends: Log = Collector(host).get("log")
    assert refusals(ends) == 0 and host.greps == 0
    whole: Log = Collector(host, thorough=True).get("log")
    assert refusals(whole) == 1 and whole.gap == ""
    assert whole.starts[-1].config == ends.starts[-1].config != None  # noqa: E711 - of both


@pytest.mark.parametrize("body", [None, b""])
def test_without_pcre_both_ends_are_read_and_the_gap_is_named(body: bytes | None) -> None:
    why = "journalctl: Compiled without pattern matching support (exit 1)"
    log: Log = Collector(Long(Reading("", body, Missing("failed", why), status=1)), thorough=True).get("log")
    assert why in log.gap and log.starts[-1].config is not None and refusals(log) == 0


def test_a_journal_that_takes_too_long_gives_what_it_gave_and_its_end() -> None:
    host = Long()
    begun = b"".join(host.full[:-TAIL_LINES])
    host.sifts = Reading("", begun, Missing("timeout", "no end within 60 s"))
    log: Log = Collector(host, thorough=True).get("log")
    assert refusals(log) == 1 and "timeout" in log.gap
    host.sifts = Reading("", begun, status=None, stderr="cut: at 50331648 bytes")
    cut: Log = Collector(host, thorough=True).get("log")
    assert refusals(cut) == 1 and cut.gap.startswith("cut:")
