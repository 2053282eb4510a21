"""Logs that no program wrote: never a crash, never an endless loop, bounded memory."""

# ruff: noqa: E501  (log lines stand as they are printed)

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ollamactl.core.facts import Log
from ollamactl.core.parse.log import parse_log
from tests.unit.logs import FORMS, SCENARIOS, entries, parse, recorded

PIECES = [b'"', b"\\", b"{", b"}", b"[", b"]", b"map[", b"msg=", b"time=", b"\0", b"\r", b"\x1b[31m", b"\xff", b"\xe2\xa0\x99", b" | ", b"=", b": ", b"9" * 40, b"\n", b"", b"\xf0\x9f\xa6\x99", b"]: "]  # fmt: skip


def mutated(line: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 4)):
        at, length = chance.randint(0, len(line)), chance.choice([0, 0, 1, 3, 40])
        line = line[:at] + chance.choice(PIECES) + line[at + length :]
    return line


@pytest.mark.parametrize("seed", range(6))
def test_mutated_recordings(seed: int) -> None:
    chance = random.Random(seed)
    names = chance.sample(SCENARIOS, 6)
    forms = [*(FORMS[form] for form in chance.sample(sorted(FORMS), 4)), None, None]
    for name, form in zip(names, forms, strict=True):
        whole = form(entries(name)) if form else recorded(name)
        found = [mutated(line, chance) for line in whole.splitlines()]
        log = parse(b"\n".join(found))
        assert msgspec.json.decode(msgspec.json.encode(log), type=Log) == log


@given(st.lists(st.binary(max_size=300), max_size=30))
@settings(max_examples=300)
def test_any_bytes(chunks: list[bytes]) -> None:
    log = parse(*chunks)
    msgspec.json.encode(log)


@given(st.lists(st.sampled_from(PIECES), max_size=60))
@settings(max_examples=300)
def test_any_mix_of_what_means_something(chunks: list[bytes]) -> None:
    parse(b"".join(chunks))
    parse(b"Nov 30 02:56:38 vm ollama[9]: " + b"".join(chunks))
    parse(b'{"MESSAGE":"' + b"".join(chunks) + b'","_PID":"1"}')


def test_hostile_lines_take_no_time() -> None:
    """Patterns that could run for ever on long lines of one character; a hang fails by the test's time limit."""
    for unit in (b" ", b"a", b'"', b"\\", b"[", b"\xe2\xa0\x99", b"time=", b"a ", b"| ", b"0", b".", b'\\"', b"K:", b" A:"):
        for head in (
            b"", b"time=2026-11-30T02:56:38Z level=INFO source=a msg=", b"[GIN] 2026/11/30 - 02:57:03 | 503 | ",
            b"2026/11/30 02:58:54 a.go:1: WARN ", b"Nov 30 02:56:38 vm ollama[9]: ", b"llama_kv_cache: ", b"load_tensors: ",
            b'time=2026-11-30T02:56:38Z level=INFO source=routes.go:1 msg="server config" env="map[A:',
            b'time=2026-11-30T02:56:38Z level=INFO source=x msg="starting llama-server" cmd="--model ', b"panic: ",
            b"2026-11-30T02:56:38Z ", b"Out of memory: Killed process ", b"slot launch_slot_: id ", b"listen tcp ",
        ):  # fmt: skip
            parse(head + unit * (50_000 // len(unit)))


def test_memory_does_not_grow_with_the_log() -> None:
    whole = recorded("18-lifecycle-and-errors") + recorded("05a-parallel4-8conc")

    def chunks(times: int) -> Iterator[bytes]:
        for _ in range(times):
            yield whole

    def peak(times: int) -> int:
        tracemalloc.start()
        parse_log(chunks(times), where="test")
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    few, many = peak(2), peak(12)
    assert many < 3 * few + (8 << 20)
    assert many < 60 << 20
