"""The same start in every form that people paste gives the same facts."""
# ruff: noqa: E501  (log lines stand as they are printed)

from __future__ import annotations

import json

import pytest

from ollamactl.core.facts import Start
from tests.unit.logs import FORMS, entries, lines, parse, recorded

SCENARIOS = ("03-parallel4-ctx8192", "07g-kv-q9_9", "07m-parallel300-over-256-seqs", "18-lifecycle-and-errors")


def essence(start: Start) -> dict[str, object]:
    return {
        "version": start.version,
        "listening": start.listening,
        "config": start.config,
        "counts": start.counts,
        "computes": [(one.library, one.total) for one in start.computes],
        "loads": [
            (one.context_total, one.slots, one.context, one.batch, one.kv_type_k, one.outcome, one.seconds, one.error)
            for one in start.loads
        ],
        "buffers": [[(buffer.kind, buffer.bytes, buffer.swa) for buffer in one.buffers] for one in start.loads],
        "requests": [(one.path, one.status, one.count, one.seconds_sum) for one in start.requests],
        "default_context": start.default_context,
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_form_gives_the_same(form: str, scenario: str) -> None:
    plain = parse(recorded(scenario))
    log = parse(FORMS[form](entries(scenario)))
    assert essence(log.starts[-1]) == essence(plain.starts[-1])
    assert log.unread == 0
    start = log.starts[-1]
    assert start.config_line is not None and start.config_line.text.startswith("time=")


@pytest.mark.parametrize("form", ["short", "short-iso", "spanish", "japanese", "short-full"])
def test_pids_of_text_forms(form: str) -> None:
    start = parse(FORMS[form](entries("03-parallel4-ctx8192"))).starts[-1]
    assert start.pid == 347


@pytest.mark.parametrize("size", [1, 7, 4096, 1 << 20])
def test_chunks_may_end_anywhere(size: int) -> None:
    whole = recorded("03-parallel4-ctx8192")
    chunks = (whole[at : at + size] for at in range(0, len(whole), size))
    assert parse(*chunks) == parse(whole)


def test_forms_in_one_file_are_told_apart_line_by_line() -> None:
    found = entries("03-parallel4-ctx8192")
    half = next(at for at, one in enumerate(found) if "starting llama-server" in one["MESSAGE"])
    text = FORMS["short"](found[:half]) + FORMS["cat"](found[half:])
    log = parse(text)
    assert log.form == "mixed"
    assert log.starts[-1].loads[0].slots == 4


def test_pretty_json() -> None:
    message = 'time=2026-11-30T02:56:38Z level=INFO source=routes.go:1 msg="Listening on 127.0.0.1:1 (version 1.2.3)"'
    log = lines("{", f'\t"MESSAGE" : {json.dumps(message)},', '\t"_PID" : "7"', "}")
    assert log.starts[0].version == "1.2.3"


def test_prompts_and_spinners_before_a_line() -> None:
    listening = 'time=2026-11-30T02:56:38Z level=INFO source=routes.go:1 msg="Listening on 127.0.0.1:1 (version 1.2.3)"'
    for before in ("⠙ ", "⠙ ⠹ ", "pulling manifest ⠋ ", "user@host1:~$ ", "/content# ", "pulling 40%\r", "  ", "> "):
        assert lines(before + listening).starts[0].version == "1.2.3", before


def test_escapes_and_spinners_within_json() -> None:
    listening = 'time=2026-11-30T02:56:38Z level=INFO source=routes.go:1 msg="Listening on 127.0.0.1:1 (version 1.2.3)"'
    for before in ("\x1b[32m", "⠙ ", "\0"):
        for ascii_only in (True, False):
            line = json.dumps({"MESSAGE": before + listening, "_PID": "7"}, ensure_ascii=ascii_only, separators=(",", ":"))
            assert lines(line, line).starts[0].version == "1.2.3", before


def test_lines_that_a_pager_cut_are_counted_and_not_believed() -> None:
    whole = next(one["MESSAGE"] for one in entries("02-parallel4") if "server config" in one["MESSAGE"])
    for end in ("…", ">"):
        log = lines("Nov 30 02:56:38 vm ollama[9]: " + whole[:200] + end)
        assert log.unread == 1
        assert log.starts[0].config is None
        assert log.starts[0].counts == {"config_cut": 1}


def test_bytes_that_are_no_text() -> None:
    log = parse(b"\xff\xfe\x00\x01\n" * 3 + b"\x80\x81\n" + recorded("01-defaults"))
    assert log.lines > 0
    broken = recorded("01-defaults").replace(b"Gemma 3 270m", b"Gemma \xff\xfe 270m")
    assert essence(parse(broken).starts[-1]) == essence(parse(recorded("01-defaults")).starts[-1])


def test_null_messages_are_counted() -> None:
    log = parse('{"MESSAGE":null,"_PID":"3"}\n{"MESSAGE":7,"_PID":"3"}\nnot json\n{"half": \n')
    assert log.unread == 3
    assert log.lines == 4
    assert log.starts == ()


def test_an_empty_log() -> None:
    log = parse(b"")
    assert (log.lines, log.starts, log.form) == (0, (), "")


def test_a_very_long_line_costs_no_memory_and_loses_nothing_after_it() -> None:
    chunks = [b"x" * (1 << 20)] * 20 + [b"\n" + recorded("01-defaults")]
    assert parse(*chunks).starts[-1].version == "0.33.0-rc2"
