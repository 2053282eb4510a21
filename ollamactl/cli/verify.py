"""`ollamactl verify`: what runs, layer by layer."""

from __future__ import annotations

import time

import click

from ollamactl.cli.common import chosen_unit, color_option, from_option, json_option, unit_option
from ollamactl.cli.sources import Opened, open_source
from ollamactl.core.feeds import Collector
from ollamactl.core.inflight import in_flight
from ollamactl.core.verify import judge, managed_now
from ollamactl.errors import Exit, Failure
from ollamactl.host.serving import VERIFY
from ollamactl.report import envelope
from ollamactl.report.rows import memory_lines, rows_json, table
from ollamactl.report.screens import header
from ollamactl.report.text import Terminal

FIELDS = (*VERIFY, "system", "gpus", "complaints", "install", "containers")


@click.command()
@from_option
@unit_option
@color_option
@json_option
def verify(source: str | None, unit: str, no_color: bool, as_json: bool) -> int:
    """Show each setting in each layer (files, process, server, runner), and where and why a value was lost.

    Exit code 0: all agree · 1: a setting does not run as wanted · 5: could not look.
    """
    opened: Opened = open_source(source, unit)
    if opened.facts is not None:
        facts = opened.facts
    else:
        collector = Collector(opened.host, unit)
        if collector.get("unit") is not None or collector.get("install") is None:
            chosen_unit(collector)
        elif collector.get("install").way == "compose":
            named = Collector(opened.host, collector.get("install").key)
            collector = named if named.get("service") is not None else collector
        facts = collector.facts(FIELDS, taken=time.time(), origin=opened.origin)
    if facts.service is None and facts.start is None and facts.loaded is None:
        why = facts.why("service")
        raise Failure(why.detail or str(why), hint=why.hint, id=why.kind)
    wanted = managed_now(facts)
    judgement = judge(facts, wanted)
    code = Exit.FINDINGS if judgement.mismatches else Exit.OK
    flight = in_flight(facts)
    if as_json:
        data = {
            "unit": facts.service.id if facts.service else None,
            "install": facts.install,
            "version": facts.version,
            "rows": rows_json(judgement),
            "mismatches": list(judgement.mismatches),
            "notes": [n.text for n in judgement.notes],
            "unproven": list(judgement.unproven),
            "loaded": list(facts.loaded or ()),
            "slots": flight.slots,
            "running": flight.running,
            "waiting": flight.waiting,
        }
        envelope.write(envelope.envelope("verify", code, data, status="mismatch" if code else "ok"))
        return code
    out = Terminal(colour=False if no_color else None)
    out.wrap(header(facts))
    out.line()
    boxed = facts.install is not None and facts.service is None and facts.effective is not None
    by = facts.service.manager if facts.service is not None else ""
    titles = {"drop-in": "ours", "unit": by} if by in ("launchd", "compose") else None
    table(out, judgement, container=boxed, titles=titles)
    for mismatch in judgement.mismatches:
        out.line()
        out.wrap(mismatch.text, hang=2, mark="✗", kind="error")
        for line in mismatch.evidence:
            out.wrap(line[:400], indent=2)
        if mismatch.fix:
            out.wrap(f"fix: {mismatch.fix}", indent=2)
    lines = memory_lines(facts)
    if lines:
        out.line()
        for line in lines:
            out.wrap(line, hang=2)
    if flight.slots is not None:
        said = f"{flight.running} of {flight.slots} slots busy"
        said += f", {flight.waiting} waiting" if flight.waiting is not None else ""
        out.line(said)
    if facts.loaded == ():
        loading = any(r.loading for r in facts.runners or ())
        out.line("a model is being loaded" if loading else "no model is loaded, so the runner's side can't be seen")
    for note in judgement.notes:
        out.wrap(f"· {note.text}", hang=2)
    if facts.service is None and facts.install is None:
        out.line()
        out.wrap("only a text was given: what the files and the process say is not known", hang=2)
    if judgement.unproven:
        out.line()
        for text in judgement.unproven:
            out.wrap(f"not seen: {text}", hang=2)
    out.line()
    wrong = len(judgement.mismatches)
    verdict = f"{wrong} setting{'s do' if wrong > 1 else ' does'} not run as wanted"
    whole = not judgement.unproven and facts.service is not None and facts.runners
    agrees = "all layers agree" if whole else "what could be read agrees"
    out.line(f"✓ {agrees}" if code == Exit.OK else verdict)
    return code
