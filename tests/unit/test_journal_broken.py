"""Lines that journald broke at its LineMax= are read as the one line that was written; what it dropped is told."""

# ruff: noqa: E501 - lines of logs
from __future__ import annotations

import json
from typing import Any

import pytest

from ollamactl.core.checks import run
from ollamactl.core.facts import Facts
from ollamactl.core.parse import lines
from ollamactl.core.parse.log import parse_log

UNIT = "ollama.service"
CONFIG = (
    'time=2026-11-30T10:00:00.000Z level=INFO source=routes.go:1 msg="server config" env="map['
    f"OLLAMA_NUM_PARALLEL:4 OLLAMA_ORIGINS:[{' '.join(f'https://host-{n}.example.org' for n in range(40))}]"
    ' OLLAMA_VULKAN:true]"'
)
LISTENING = 'time=2026-11-30T10:00:01.000Z level=INFO source=routes.go:2 msg="Listening on 127.0.0.1:11434 (version 0.33.0)"'
OF_SYSTEMD = {"MESSAGE": "Started ollama.service.", "_PID": "1", "UNIT": UNIT, "INVOCATION_ID": "i1", "_COMM": "systemd"}


def record(message: str, **more: Any) -> dict[str, Any]:
    return {"MESSAGE": message, "_PID": "7", "_SYSTEMD_UNIT": UNIT, "_SYSTEMD_INVOCATION_ID": "i1", **more}


def body(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(r, separators=(",", ":")).encode() + b"\n" for r in records)


def broken(text: str, size: int) -> list[dict[str, Any]]:
    """What journald makes of a line with this LineMax=."""
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    return [record(part, _LINE_BREAK="line-max") for part in parts[:-1]] + [record(parts[-1])]


@pytest.mark.parametrize("size", [79, 300, len(CONFIG) - 1])
def test_a_broken_line_is_read_as_it_was_written(size: int) -> None:
    whole = parse_log([body(record(CONFIG), record(LISTENING))], where="journal", unit=UNIT)
    parts = broken(CONFIG, size)
    mixed = [parts[0], OF_SYSTEMD, record("other", _PID="9"), *parts[1:], record(LISTENING)]
    parsed = parse_log([body(*mixed)], where="journal", unit=UNIT)
    assert parsed.starts[0].config == whole.starts[0].config and len(parsed.starts) == 1
    assert parsed.starts[0].config_line and parsed.starts[0].config_line.line == 1


def test_parts_in_different_pieces_of_the_stream_belong_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "PIECE", 400)
    text = body(*broken(CONFIG, 200), record(LISTENING))
    parsed = parse_log([text], where="journal", unit=UNIT)
    assert (parsed.starts[0].config or {})["OLLAMA_NUM_PARALLEL"] == "4"


def test_a_line_whose_end_is_not_there_is_read_as_far_as_it_goes() -> None:
    parsed = parse_log([body(record(LISTENING), *broken("time=2026-11-30T10:00:02Z level=ERROR msg=x " * 9, 99)[:-1])],
                       where="journal", unit=UNIT)  # fmt: skip
    assert parsed.starts[0].last_line == 2


def test_a_broken_line_without_end_costs_no_memory() -> None:
    endless = (body(record("x" * 4000, _LINE_BREAK="line-max")) for _ in range(1000))
    assert parse_log(endless, where="journal", unit=UNIT).lines == 1000


def suppressed(count: int, unit: str) -> dict[str, Any]:
    return {"MESSAGE": f"Suppressed {count} messages from {unit}", "_TRANSPORT": "driver", "_PID": "30",
            "SYSLOG_IDENTIFIER": "systemd-journald", "OBJECT_SYSTEMD_UNIT": unit}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        body(record(CONFIG), record(LISTENING), suppressed(40, UNIT), suppressed(2, UNIT), suppressed(9, "x.service")),
        f"Nov 30 10:00:00 host ollama[7]: {LISTENING}\n"
        "Nov 30 10:00:31 host systemd-journald[30]: Suppressed 42 messages from ollama.service\n"
        "Nov 30 10:00:31 host systemd-journald[30]: Suppressed 9 messages from cron.service\n".encode(),
    ],
    ids=["json", "text"],
)
def test_what_journald_dropped_is_told(text: bytes) -> None:
    parsed = parse_log([text], where="journal", unit=UNIT)
    assert parsed.suppressed == 42 and len(parsed.starts) == 1
    report = run(Facts(origin="log:x", log=parsed, start=parsed.starts[0]))
    (finding,) = (f for f in report.findings if f.check == "log_lines_suppressed")
    assert finding.severity == "info" and "42 lines" in finding.summary


def test_the_server_s_own_words_about_dropped_lines_count_for_nothing() -> None:
    said = parse_log([body(record(LISTENING), record(f"Suppressed 5 messages from {UNIT}"))], where="journal", unit=UNIT)
    assert said.suppressed == 0
