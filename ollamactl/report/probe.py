"""A measurement for the terminal, as JSON, and as CSV."""

from __future__ import annotations

import csv
import io
from typing import Any

import msgspec

from ollamactl.core.measure import ENOUGH, Baseline, Judged, Phase, Probe, Sent, Stat, Summary, stat
from ollamactl.report.text import Terminal, columns

SHOWN = 24  # requests of one phase on the terminal; files have all
WORDS = {
    "served": "served",
    "queued": "queued",
    "rejected": "refused",
    "gave_up": "gave up",
    "failed": "failed",
    "cut": "cut",
}


def seconds(value: float | None) -> str:
    """Three digits: 0.012 s, 1.24 s, 63.1 s."""
    if value is None:
        return "–"
    return f"{value:.3f} s" if value < 0.1 else f"{value:.2f} s" if value < 10 else f"{value:,.1f} s"


def per_second(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def spread(found: Stat | None) -> str:
    """`p50 1.7 s, p95 3.4 s of 40`; the slowest in place of a percentile that so few samples don't have."""
    if found is None:
        return "–"
    if found.count == 1:
        return f"{seconds(found.p50)} (one sample)"
    high = f"p95 {seconds(found.p95)}" if found.p95 is not None else f"slowest {seconds(found.max)}"
    return f"p50 {seconds(found.p50)}, {high} ({found.count:,} samples)"


def title(phase: Phase) -> str:
    if phase.kind == "arrivals":
        return f"{phase.rate:g} requests a second, arriving at random"
    said = f"{phase.clients} at once"
    said += f", {phase.rounds} times" if phase.rounds > 1 else ""
    return said + (", model not loaded" if phase.kind == "cold" else "")


def screen(out: Terminal, probe: Probe) -> None:
    """The whole result."""
    out.wrap(head(probe))
    for phase in probe.phases:
        out.line()
        if len(probe.phases) > 1 or phase.kind != "warm":
            out.line(out.paint(title(phase), "bold"))
        if len([p for p in probe.phases if p.kind == "warm"]) <= 1 or phase.kind == "cold":
            _requests(out, phase)
        _figures(out, probe, phase)
    warm = [p for p in probe.phases if p.kind == "warm"]
    if len(warm) > 1:
        out.line()
        out.lines(*sweep_table(warm, out.table_width))
    out.line()
    for text in conclusions(probe):
        out.wrap(text)
    for note in probe.notes:
        out.wrap(f"· {note}", hang=2)


def head(probe: Probe) -> str:
    parts = [probe.model, f"Ollama {probe.version}" if probe.version else "", probe.url]
    base = probe.baseline
    if base:
        rate = f", {per_second(base.rate)} tok/s" if base.rate else ""
        parts.append(f"alone: first token {seconds(base.first)}{rate}")
    return " · ".join(p for p in parts if p)


def _requests(out: Terminal, phase: Phase) -> None:
    rows = [["#", "result", "status", "wait", "first token", "tokens", "tok/s", "gap"]]
    shown = phase.judged[:SHOWN]
    for n, j in enumerate(shown, 1):
        s = j.sent
        rows.append(
            [
                str(n),
                WORDS[j.result],
                str(s.status or "–"),
                seconds(j.wait),
                seconds(s.first_token),
                str(s.tokens) if s.tokens else "–",
                per_second(s.rate),
                seconds(gap(s)),
            ]
        )
    table = columns(rows, {0, 2, 3, 4, 5, 6, 7}, out.table_width)
    room = min(40, out.width - max(map(len, table)) - 3)
    for n, line in enumerate(table):
        strip = bar(shown[n - 1], phase.summary.seconds, room) if n and room >= 10 else ""
        out.line(f"{line.ljust(max(map(len, table)))}  ▏{strip}" if strip else line)
    if len(phase.judged) > len(shown):
        out.line(f"… and {len(phase.judged) - len(shown):,} more (--json, --csv FILE and --html FILE have all)")


def gap(sent: Sent) -> float | None:
    """Inter-token latency of one request, median."""
    found = stat(sent.gaps)
    return found.p50 if found else None


def bar(judged: Judged, whole: float, room: int) -> str:
    """Waiting as dots, the reply as blocks."""
    s = judged.sent
    scale = room / whole if whole > 0 else 0.0
    start, first, end = (int(x * scale) for x in (s.at, s.end if s.first is None else s.first, s.end))
    end = min(room, max(end, start + 1))
    first = min(first, end - 1) if s.first is not None else end
    return " " * start + "·" * (first - start) + "█" * (end - first)


def _figures(out: Terminal, probe: Probe, phase: Phase) -> None:
    s = phase.summary
    out.wrap(counts_line(s))
    if s.first_token:
        each = f" · {per_second(s.rate.p50)} per request" if s.rate else ""
        total = f" · {per_second(s.total_rate)} tok/s in all{each}" if s.total_rate else ""
        out.wrap(f"First token {spread(s.first_token)}{total}")
    if s.gap:
        out.wrap(f"Between tokens {spread(s.gap)}")
    if s.load:
        out.wrap(f"Waited for the model to load: {spread(s.load)}")


def counts_line(s: Summary) -> str:
    parts = [f"{s.slots} slot{'s' * (s.slots != 1)}"] if s.slots else []
    parts.append(f"{s.counts.get('served', 0)} served at once")
    queued = f"{s.counts.get('queued', 0)} queued"
    parts.append(f"{queued}, {seconds(s.wait.mean)} on average" if s.wait else queued)
    parts.append(f"{s.counts.get('rejected', 0)} refused")
    if gone := s.counts.get("gave_up"):
        parts.append(f"{gone} gave up" + (f", {s.waiting} of them waiting for a slot" if s.waiting else ""))
    for key, text in (("failed", "failed"), ("cut", "cut by the end of the measurement")):
        if s.counts.get(key):
            parts.append(f"{s.counts[key]} {text}")
    return " · ".join(parts)


def sweep_table(phases: list[Phase], width: int) -> list[str]:
    rows = [["at once", "first token", "slowest", "tok/s", "each", "queued", "refused", "failed"]]
    for p in phases:
        s = p.summary
        first = s.first_token
        high = first.p95 if first and first.p95 is not None else first.max if first else None
        failed = sum(s.counts.get(k, 0) for k in ("failed", "gave_up"))
        cells = [str(p.clients), seconds(first.p50 if first else None), seconds(high)]
        cells += [per_second(s.total_rate), per_second(s.rate.p50 if s.rate else None)]
        rows.append([*cells, *(str(n) for n in (s.counts.get("queued", 0), s.counts.get("rejected", 0), failed))])
    if any(p.summary.first_token and p.summary.first_token.count >= ENOUGH for p in phases):
        rows[0][2] = "p95 or slowest"
    return columns(rows, set(range(8)), width)


def conclusions(probe: Probe) -> list[str]:
    """What follows, in sentences."""
    found: list[str] = []
    warm = [p for p in probe.phases if p.kind != "cold"]
    cold = next((p for p in probe.phases if p.kind == "cold"), None)
    queued = sum(p.summary.counts.get("queued", 0) for p in warm)
    refused = sum(p.summary.counts.get("rejected", 0) for p in warm)
    if probe.slots and queued:
        found.append(f"A queue forms at request {probe.slots + 1} of those at the same time.")
    if cold and cold.judged:
        found.append(cold_sentence(cold, warm))
    elif queued and not refused:
        found.append(
            "A loaded model never refuses: OLLAMA_MAX_QUEUE bounds only loading. "
            "To refuse early: ollamactl front nginx"
        )
    if refused:
        found.append("Requests to a loaded model were refused: by a front, or while it was loaded anew.")
    if probe.phases and probe.slots is None:
        found.append(f"Judged by time alone, without the runner's slots: {probe.unseen}.")
    if broken := sum(p.summary.broken_off for p in probe.phases):
        found.append(
            f"{broken} repl{'ies' if broken > 1 else 'y'} ended without durations: "
            "Ollama breaks off a reply that repeats one token."
        )
    if any(p.summary.foreign for p in probe.phases):
        found.append("Others held slots meanwhile: the figures hold for the server with them.")
    if probe.interrupted:
        found.append("Interrupted: these are the results so far.")
    if probe.limited:
        found.append("The time limit ended the measurement (--time-limit): these are the results so far.")
    return found


def cold_sentence(cold: Phase, warm: list[Phase]) -> str:
    c = cold.summary.counts
    answered = c.get("served", 0) + c.get("queued", 0)
    refused = c.get("rejected", 0)
    were = f"{refused} of {len(cold.judged)} were" if refused else f"none of {len(cold.judged)} was"
    said = f"While the model loaded, {were} refused and {answered} answered"
    if warm:
        sent = sum(len(p.judged) for p in warm)
        refused = sum(p.summary.counts.get("rejected", 0) for p in warm)
        said += f"; once it was loaded, {refused or 'none'} of {sent}"
        said += " were refused" if refused else " was refused"
    return said + ": OLLAMA_MAX_QUEUE bounds only who waits for a load, the queue of a loaded model has no limit."


# -- files --


def document(probe: Probe) -> dict[str, Any]:
    """For the envelope. Every key is always there; moments of single tokens are left out."""
    return {
        "url": probe.url,
        "model": probe.model,
        "version": probe.version or None,
        "taken": probe.taken,
        "slots": probe.slots,
        "judged_by": "slots" if probe.slots is not None else "time",
        "unseen": probe.unseen or None,
        "interrupted": probe.interrupted,
        "limited": probe.limited,
        "prompt_tokens": probe.prompt_tokens,
        "output_tokens": probe.output_tokens,
        "client_timeout": probe.client_timeout,
        "seed": probe.seed,
        "baseline": _full(probe.baseline, Baseline),
        "phases": [_phase(p) for p in probe.phases],
        "conclusions": conclusions(probe),
        "notes": list(probe.notes),
    }


def _full(record: msgspec.Struct | None, kind: type[msgspec.Struct]) -> dict[str, Any] | None:
    """A record with the fields that are at their default too."""
    if record is None:
        return None
    return {f: _plain(getattr(record, f)) for f in kind.__struct_fields__}


def _plain(value: Any) -> Any:
    return _full(value, type(value)) if isinstance(value, msgspec.Struct) else value


def _phase(p: Phase) -> dict[str, Any]:
    return {
        "kind": p.kind,
        "clients": p.clients or None,
        "rounds": p.rounds,
        "rate": p.rate,
        "summary": _full(p.summary, Summary),
        "requests": [row(j) for j in p.judged],
        "samples": [{"at": s.answered, "slots": s.slots, "busy": s.busy} for s in p.samples],
    }


def row(j: Judged) -> dict[str, Any]:
    s, r = j.sent, j.sent.reply
    return {
        "number": s.number,
        "result": j.result,
        "proof": j.proof,
        "why": j.why or None,
        "waiting": j.waiting,
        "status": s.status,
        "at": s.at,
        "connect": s.connected - s.at if s.connected is not None else None,
        "first_token": s.first_token,
        "wait": j.wait,
        "load": r.load if r else None,
        "prompt": r.prompt if r else None,
        "generation": r.generation if r else None,
        "seconds": s.end - s.at,
        "prompt_tokens": r.prompt_tokens if r else None,
        "tokens": s.tokens,
        "tokens_per_second": s.rate,
        "between_tokens": gap(s),
        "error": s.error or None,
    }


def table(probe: Probe) -> str:
    """CSV, one line a request. Text that a spreadsheet would compute is made plain."""
    text = io.StringIO()
    first = ("phase", "clients", "rate")
    keys = (*first, *row_keys())
    writer = csv.DictWriter(text, keys, lineterminator="\n")
    writer.writeheader()
    for p in probe.phases:
        for j in p.judged:
            cells = {"phase": p.kind, "clients": p.clients or None, "rate": p.rate, **row(j)}
            writer.writerow({k: _cell(v) for k, v in cells.items()})
    return text.getvalue()


def row_keys() -> tuple[str, ...]:
    return tuple(row(Judged(sent=Sent(number=0, at=0.0, end=0.0), result="cut", proof="none")))


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.6f}"
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value
