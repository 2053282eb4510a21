"""`facts` and `bundle`: what is known of a host, and its raw readings for others to look at."""

from __future__ import annotations

import time

import click
import msgspec

from ollamactl.cli.common import color_option, from_option, json_option, outputs, unit_option
from ollamactl.cli.sources import open_source
from ollamactl.core.facts import Facts
from ollamactl.core.feeds import FEEDS, Collector
from ollamactl.core.source import Host
from ollamactl.errors import Exit, Failure
from ollamactl.host.live import LiveHost
from ollamactl.report import envelope
from ollamactl.report.screens import header
from ollamactl.report.text import Terminal, day, size

LOG_LINES = 20_000  # of the journal in a bundle
ALL = tuple(f for f in FEEDS if f in Facts.__struct_fields__)


def gather_all(host: Host, unit: str, origin: str) -> Facts:
    """Every fact; what can't be known has its reason in `missing`."""
    collector = Collector(host, unit, thorough=True)
    return collector.facts((*ALL, *collector.only_here()), taken=time.time(), origin=origin)


@click.command()
@from_option
@unit_option
@color_option
@json_option
def facts(source: str | None, unit: str, no_color: bool, as_json: bool) -> int:
    """Show what is known of this host: in short, or with --json every fact, and why others are not known."""
    opened = open_source(source, unit)
    found = opened.facts or gather_all(opened.host, unit, opened.origin)
    nothing = found.service is None and found.start is None and found.loaded is None and found.servers in (None, ())
    code = Exit.UNSEEN if nothing and found.system is None else Exit.OK
    if as_json:
        envelope.write(envelope.envelope("facts", code, msgspec.to_builtins(found)))
        return code
    _screen(Terminal(colour=False if no_color else None), found)
    return code


def _screen(out: Terminal, found: Facts) -> None:
    out.wrap(header(found))
    out.line()
    rows: list[list[str]] = []
    if (s := found.system) is not None:
        where = f" in {s.container}" if s.container else ""
        rows.append(["host", f"{s.hostname}, {s.distribution or s.os}, {s.arch}, {s.cpus} CPUs, {s.init}{where}"])
    if (m := found.memory) is not None:
        swap = f", swap {size(m.swap_free)} of {size(m.swap_total)} free" if m.swap_total else ""
        rows.append(["memory", f"{size(m.available)} of {size(m.total)} available{swap}"])
    for gpu in found.gpus or ():
        held = size(gpu.total) if gpu.total is not None else "host memory"
        others = f", {len(gpu.processes)} processes" if gpu.processes else ""
        rows.append([f"GPU {gpu.index}", f"{gpu.name}, {size(gpu.free)} of {held} free{others}"])
    if (v := found.service) is not None:
        since = f" since {day(v.active_enter)}" if v.active_enter else ""
        rows.append(["service", f"{v.id}: {v.active_state} ({v.sub_state}){since}, {v.unit_file_state}"])
        rows.append(["files", ", ".join(f.path for f in found.unit_files or ()) or "–"])
    for way in found.installs or ():
        if way.way not in ("unit", "snap"):
            rows.append(["install", f"{way.key}: {way.why}"])
    if (p := found.process) is not None:
        rows.append(["process", f"pid {p.pid}, user {p.user}, {size(p.rss)}: {' '.join(p.argv)}"])
    if found.address:
        rows.append(["address", found.address])
    for runner in found.runners or ():
        slots = f"-c {runner.context_total} -np {runner.slots}"
        rows.append(["runner", f"pid {runner.process.pid}, {slots}, {size(runner.process.rss)}"])
    for model in found.loaded or ():
        gpu_share = f"{model.size_vram / model.size:.0%} GPU" if model.size else ""
        rows.append(["loaded", f"{model.name}, {size(model.size)}, {gpu_share}, context {model.context or '–'}"])
    if found.installed is not None:
        names = ", ".join(m.name for m in found.installed[:6]) + (" …" if len(found.installed) > 6 else "")
        rows.append(["installed", f"{len(found.installed)} models: {names}" if found.installed else "no model"])
    if (log := found.log) is not None:
        starts = f"{len(log.starts)} start" + "s" * (len(log.starts) != 1)
        rows.append(["log", f"{log.where}: {log.lines:,} lines, {starts}"])
    label = max(len(r[0]) for r in rows)
    for name, value in rows:
        out.wrap(f"{name.ljust(label)}  {value}", hang=label + 2)
    reasons: dict[str, list[str]] = {}
    for name, missing in found.missing.items():
        if missing.kind not in ("absent", "unasked"):
            hint = f" ({missing.hint})" if missing.hint else ""
            reasons.setdefault(f"{missing}{hint}", []).append(name)
    if reasons:
        out.line()
    for why, fields in reasons.items():
        out.wrap(f"not seen: {', '.join(fields)}: {why}", hang=2)


@click.command()
@click.argument("path", metavar="FILE.tar.gz")
@unit_option
@json_option
def bundle(path: str, unit: str, as_json: bool) -> int:
    """Write the raw readings of this host to FILE.tar.gz, with names, addresses and secrets taken out.

    `ollamactl verify --from FILE.tar.gz` and the other commands with --from read it in the host's place.
    """
    from ollamactl.host.bundle import Recorder

    if not path.endswith((".tar.gz", ".tgz")):
        raise Failure(
            f"{path}: a bundle is a .tar.gz file", hint="ollamactl bundle host.tar.gz", code=Exit.USAGE, id="usage"
        )
    outputs(path)
    recorder = Recorder(LiveHost())
    found = gather_all(recorder, unit, "live")
    Collector(recorder, unit, whole_log=True, lines=LOG_LINES).get("log")  # earlier starts too, for doctor
    removed = recorder.write(path)
    if as_json:
        data = {"path": path, "removed": removed, "missing": {k: str(v) for k, v in found.missing.items()}}
        envelope.write(envelope.envelope("bundle", Exit.OK, data))
        return Exit.OK
    out = Terminal()
    out.line(f"{path} written, readable by you only")
    taken = ", ".join(f"{count:,} {kind}" for kind, count in sorted(removed.items())) or "nothing"
    out.wrap(f"taken out: {taken}", hang=2)
    gone = {k: v for k, v in found.missing.items() if v.kind == "denied"}
    if gone:
        out.wrap(f"not in it: {', '.join(sorted(gone))} (sudo ollamactl bundle {path})", hang=2)
    out.line("look at it before you send it: tar -tzf, and ollamactl facts --from " + path)
    return Exit.OK
