"""A measurement as one HTML file that needs no network and no script."""

from __future__ import annotations

import re
import time
from typing import Any

from ollamactl.core.measure import Judged, Phase, Probe, Sample
from ollamactl.platforms import templates
from ollamactl.report import probe as text
from ollamactl.report.probe import per_second, seconds, spread

WIDTH, LEFT, RIGHT = 1000.0, 46.0, 14.0  # of a drawing
ROOM = 460.0  # height that the rows of one timeline may take together
MOST = 2000  # requests of one phase that are drawn and listed


def page(probe: Probe) -> str:
    """The whole file. Everything that came from a server or a user is escaped by the template."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(probe.taken)) if probe.taken else ""
    warm = [p for p in probe.phases if p.kind == "warm"]
    return templates.page(
        "html/probe.html.j2",
        probe=probe,
        at=at,
        facts=_facts(probe),
        conclusions=text.conclusions(probe),
        phases=[_phase(p) for p in probe.phases],
        sweep=_sweep(warm) if len(warm) > 1 else None,
    )


def _facts(probe: Probe) -> list[tuple[str, str]]:
    base = probe.baseline
    rows = [("Server", probe.url), ("Ollama", probe.version or "version unknown")]
    rows.append(("Slots", str(probe.slots) if probe.slots is not None else f"not seen: {probe.unseen}"))
    if base:
        rows.append(("Alone: first token", f"{seconds(base.first)} (median of {base.requests})"))
        if base.rate:
            rows.append(("Alone: tokens/s", per_second(base.rate)))
    asked = f"{probe.output_tokens} tokens" + (f" after {probe.prompt_tokens}" if probe.prompt_tokens else "")
    rows.append(("Asked for", asked))
    if probe.client_timeout is not None:
        rows.append(("Clients' patience", seconds(probe.client_timeout)))
    return rows


def _phase(p: Phase) -> dict[str, Any]:
    shown = p.judged[:MOST]
    s = p.summary
    figures = [text.counts_line(s)]
    if s.first_token:
        figures.append(f"First token {spread(s.first_token)}")
    if s.gap:
        figures.append(f"Between tokens {spread(s.gap)}")
    if s.rate:
        total = f", {per_second(s.total_rate)} in all" if s.total_rate else ""
        between = f" ({per_second(s.rate.min)} to {per_second(s.rate.max)})" if s.rate.count > 1 else ""
        figures.append(f"Tokens/s of one request p50 {per_second(s.rate.p50)}{between}{total}")
    if s.load:
        figures.append(f"Waited for the model to load: {spread(s.load)}")
    return {
        "title": text.title(p),
        "figures": figures,
        "drawing": _timeline(shown, p.samples, max(s.seconds, 1e-6)),
        "rows": [_row(n, j) for n, j in enumerate(shown, 1)],
        "more": len(p.judged) - len(shown),
    }


def _row(number: int, j: Judged) -> list[str]:
    s = j.sent
    return [
        str(number),
        text.WORDS[j.result],
        j.proof,
        str(s.status or "–"),
        seconds(j.wait),
        seconds(s.first_token),
        str(s.tokens or "–"),
        per_second(s.rate),
        seconds(text.gap(s)),
        seconds(s.end - s.at),
        j.why,
    ]


def _timeline(judged: tuple[Judged, ...], samples: tuple[Sample, ...], whole: float) -> dict[str, Any]:
    """Busy slots over time above, one bar a request below, on one axis."""
    scale = (WIDTH - LEFT - RIGHT) / whole

    def x(moment: float) -> float:
        return round(LEFT + max(0.0, min(moment, whole)) * scale, 2)

    top, high = 18.0, 70.0 if samples else 0.0
    slots = max((s.slots for s in samples), default=0)
    unit = high / slots if slots else 0.0
    points = [(x(s.answered), round(top + high - s.busy * unit, 2)) for s in samples if s.answered >= 0]
    steps: list[tuple[float, float]] = []
    for px, py in points:
        if steps:
            steps.append((px, steps[-1][1]))
        steps.append((px, py))
    start = top + high + (26.0 if samples else 6.0)
    height = max(0.8, min(16.0, ROOM / max(1, len(judged))))
    bars = [_bar(n, j, x, start + n * height, height) for n, j in enumerate(judged)]
    end = start + len(judged) * height
    step = _tick(whole)
    ticks = [(x(n * step), f"{n * step:g} s") for n in range(int(whole / step) + 1)]
    area = f"{steps[0][0]},{top + high} " + " ".join(f"{a},{b}" for a, b in steps) if steps else ""
    return {
        "width": WIDTH,
        "height": round(end + 26, 2),
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "slots": slots,
        "top": top,
        "floor": top + high,
        "area": f"{area} {steps[-1][0]},{top + high}" if steps else "",
        "bars": bars,
        "names": height >= 9,
        "start": round(start, 2),
        "end": round(end, 2),
        "ticks": ticks,
    }


def _bar(number: int, j: Judged, x: Any, top: float, height: float) -> dict[str, Any]:
    s = j.sent
    first = s.end if s.first is None else s.first
    waits = first if j.wait is None or s.first is None else min(first, j.holds if j.holds is not None else first)
    thick = round(height * 0.72, 2)
    told = f"request {number + 1}: {text.WORDS[j.result]}"
    told += f", {j.why}" if j.why else ""
    told += f", waited {seconds(j.wait)}" if j.wait is not None else ""
    told += f", first token {seconds(s.first_token)}, {s.tokens} tokens" if s.first is not None else ""
    return {
        "kind": j.result,
        "name": str(number + 1),
        "middle": round(top + height / 2, 2),
        "top": round(top + (height - thick) / 2, 2),
        "thick": thick,
        "begin": x(s.at),
        "holds": x(waits),
        "first": x(first),
        "end": x(s.end),
        "stream": round(max(0.8, x(s.end) - x(first)), 2) if s.first is not None else 0,
        "told": told,
    }


def _tick(whole: float) -> float:
    """A round distance of at most twelve ticks."""
    step = 0.001
    while whole / step > 12:
        for factor in (2.0, 2.5, 2.0):
            step *= factor
            if whole / step <= 12:
                break
    return step


def _sweep(phases: list[Phase]) -> dict[str, Any]:
    """First token and tokens/s over the number of requests at once, and the table of both."""
    table = text.sweep_table(phases, 10_000)
    rows = [[c.strip() for c in _split(line)] for line in table]
    firsts = [(p.clients, p.summary.first_token) for p in phases]
    curves = [
        curve("First token, seconds", [("median", [(n, f.p50) for n, f in firsts if f]),
                                        ("slowest", [(n, f.max) for n, f in firsts if f])]),
        curve("Tokens per second", [("in all", [(p.clients, p.summary.total_rate) for p in phases
                                                if p.summary.total_rate is not None]),
                                     ("one request", [(p.clients, p.summary.rate.p50) for p in phases
                                                      if p.summary.rate])]),
    ]  # fmt: skip
    return {"rows": rows, "curves": [c for c in curves if c]}


def _split(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def curve(title: str, lines: list[tuple[str, list[tuple[int, Any]]]]) -> dict[str, Any] | None:
    """Named lines over the number of requests at once, as `html/curves.html.j2` draws them; None without a point."""
    every = [point for _, points in lines for point in points]
    if not every:
        return None
    wide, tall, left, low = 500.0, 220.0, 52.0, 190.0
    most, high = max(n for n, _ in every), max(v for _, v in every) or 1.0
    step = _tick(high)

    def at(n: float, v: float) -> tuple[float, float]:
        return round(left + (wide - left - 90) * n / most, 2), round(
            low - (low - 20) * v / (step * -(-high // step)), 2
        )

    drawn = []
    for number, (name, points) in enumerate(lines):
        if points:
            places = [at(n, v) for n, v in sorted(points)]
            drawn.append(
                {"name": name, "number": number, "points": " ".join(f"{a},{b}" for a, b in places), "dots": places}
            )
    marks = sorted({n for n, _ in every})
    return {
        "title": title,
        "wide": wide,
        "tall": tall,
        "left": left,
        "low": low,
        "lines": drawn,
        "x": [(at(n, 0)[0], str(n)) for n in marks],
        "y": [(at(0, k * step)[1], f"{k * step:g}") for k in range(int(-(-high // step)) + 1)][::2],
    }
