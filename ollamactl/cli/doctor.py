"""`ollamactl doctor` and `explain`: what is wrong with this host, with the evidence."""

from __future__ import annotations

import difflib
import functools
import re
import time
from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from ollamactl.cli.common import color_option, from_option, json_option, unit_option
from ollamactl.cli.folder import Joined, is_collection, join
from ollamactl.cli.sources import open_source, text_facts
from ollamactl.core.about import files_in, files_of, names_in, report_about
from ollamactl.core.checks import CHECKS, Check, Report, run
from ollamactl.core.checks.base import ORDER
from ollamactl.core.facts import Facts
from ollamactl.core.feeds import FEEDS, Collector
from ollamactl.core.feeds.surroundings import model_files
from ollamactl.errors import Exit, Failure
from ollamactl.report import envelope, findings
from ollamactl.report.text import Terminal

IGNORE = Path("/etc/ollamactl/doctor-ignore")  # lines `ID reason`
USUAL = "ollama.service"  # the installer's: it is judged where several units run Ollama and none is named
ALL = tuple(f for f in FEEDS if f in Facts.__struct_fields__)


def known(name: str) -> Check:
    """The check of that id. Raises Failure (usage) with the nearest ones."""
    if name in CHECKS:
        return CHECKS[name]
    near = difflib.get_close_matches(name, CHECKS, 3) or [c for c in CHECKS if name in c][:3]
    hint = f"did you mean {', '.join(near)}?" if near else "ollamactl doctor --list"
    raise Failure(f"there is no check {name}", hint=hint, code=Exit.USAGE, id="usage")


def kept_ignores(path: Path = IGNORE) -> dict[str, str]:
    """Ids that this host ignores for good, and why. An unreadable file ignores nothing."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        name, _, reason = line.partition("#")[0].strip().partition(" ") if line.lstrip()[:1] != "#" else ("", "", "")
        if name in CHECKS:
            found[name] = reason.strip(" :") or f"in {path}"
    return found


@click.command()
@from_option
@unit_option
@click.option(
    "--model",
    metavar="NAME",
    default="",
    help="Findings that this model is the reason of; of the host, its errors only.",
)
@click.option("--only", metavar="ID", multiple=True, help="Run this check only (may be given several times).")
@click.option("--ignore", metavar="ID", multiple=True, help="Count a finding and do not report it.")
@click.option(
    "--keep-ignore", metavar="ID=REASON", multiple=True, help="Ignore it for good, here: /etc/ollamactl/doctor-ignore."
)
@click.option("--fail-on", type=click.Choice(["error", "warning", "info"]), default="error", show_default=True,
              help="Exit with 1 for findings from this severity on.")  # fmt: skip
@click.option("--list", "listing", is_flag=True, help="List all checks and what each needs.")
@click.option("--html", "html", metavar="FILE", help="Write a page of its own, too.")
@click.option("--details", is_flag=True, help="Name the checks that could not look.")
@color_option
@json_option
def doctor(
    source: str | None,
    unit: str,
    model: str,
    only: tuple[str, ...],
    ignore: tuple[str, ...],
    keep_ignore: tuple[str, ...],
    fail_on: str,
    listing: bool,
    html: str | None,
    details: bool,
    no_color: bool,
    as_json: bool,
) -> int:
    """Say what is wrong with this host, or with a bundle, a folder of collected output, or pasted text (--from):
    root cause first, with the lines that show it and a command that cures it.

    Exit code 0: nothing at or above --fail-on (warnings alone: 0, unless --fail-on warning) · 1: findings from there
    on · 5: nothing could be judged, or a check crashed.
    """
    out = Terminal(colour=False if no_color else None)
    if listing:
        return _list(out, as_json)
    for name in (*only, *ignore):
        known(name)
    if keep_ignore:
        _keep(keep_ignore)
    began = time.monotonic()
    joined = join(Path(source)) if source not in (None, "-") and is_collection(Path(source or "")) else None
    facts, files = gather(source, unit, model) if joined is None else (text_facts(joined.text, str(source)), ())
    ignored = kept_ignores() if source is None else {}
    ignored |= dict.fromkeys(ignore, "--ignore")
    judge = functools.partial(run, only=only, ignore=ignored)
    report = judge(facts) if not model else _about(facts, model, files, judge)
    if joined is not None:
        report = _placed(report, facts, joined)
    took = time.monotonic() - began
    code = verdict(report, fail_on)
    if html:
        _write_html(html, facts, report, took)
    if as_json:
        envelope.write(envelope.envelope("doctor", code, findings.document(facts, report, took)))
    else:
        findings.screen(out, facts, report, took, details=details)
    return code


def gather(source: str | None, unit: str, model: str = "") -> tuple[Facts, tuple[str, ...]]:
    """Facts of this host, of a bundle, or of a text; and the files of a model, where they can be asked for."""
    opened = open_source(source, unit)
    if opened.facts is not None:
        return opened.facts, ()
    collector = Collector(opened.host, unit, thorough=True)
    facts = collector.facts(ALL, taken=time.time(), origin=opened.origin)
    missing = facts.why("service")
    if facts.service is None and missing.kind == "unasked" and "several" in missing.detail:
        if any(found.name == USUAL for found in facts.units or ()):
            return gather(source, USUAL, model)  # the others are told where they are in its way
        raise Failure(missing.detail, hint="name one: --unit NAME", code=Exit.USAGE, id="several_units")
    return facts, model_files(collector, model) if model else ()


def _placed(report: Report, facts: Facts, joined: Joined) -> Report:
    """Evidence with the names of a folder's files and the numbers of their lines."""
    name = re.escape((facts.log.where if facts.log else "").rstrip("/").rsplit("/", 1)[-1])
    line = re.compile(rf"(?:{name}|pasted unit(?: \d+)?|/\S+\.(?:conf|service)):(\d+)(?:: |$)")

    def placed(text: str) -> str:
        found = line.match(text)
        if found is None:
            return text
        file, at = joined.place(int(found[1]))
        shown = found[0].rsplit(":", 2)[0]
        return f"{file}:{at}: {'' if re.fullmatch(name, shown) else shown + ': '}{text[found.end() :]}"

    findings = (msgspec.structs.replace(f, evidence=tuple(placed(one) for one in f.evidence)) for f in report.findings)
    return msgspec.structs.replace(report, findings=tuple(findings))


def verdict(report: Report, fail_on: str) -> Exit:
    """A crash, or nothing judged at all, is never well."""
    limit = ORDER[fail_on]  # type: ignore[index]
    if any(ORDER[f.severity] <= limit for f in report.findings):
        return Exit.FINDINGS
    if report.crashed or (not report.well and not report.findings and not report.ignored):
        return Exit.UNSEEN
    return Exit.OK


def _about(facts: Facts, model: str, files: tuple[str, ...], judge: Callable[[Facts], Report]) -> Report:
    """Findings that this model is the reason of. Raises Failure where nothing tells which model that is."""
    names, known_files = names_in(facts), files_in(facts)
    full = model if ":" in model.rsplit("/", 1)[-1] else f"{model}:latest"
    name = full if full in names else model
    its = frozenset(files) | files_of(facts, name)
    if not its and name in names and not known_files:
        its = frozenset((name,))  # it was never to be loaded
    if its:
        return report_about(facts, name, its, judge)
    shown = sorted({*names, *(f.rsplit("/", 1)[-1][:19] for f in known_files)})
    near = difflib.get_close_matches(full, [s for s in shown if s != name], 1)
    hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(shown[:6]) or 'none'}"
    said = f"which of the files that were loaded is {name} is not told" if name in names else f"no model {model} here"
    raise Failure(said, hint=hint, code=Exit.UNSEEN, id="model_not_found")


def _keep(pairs: tuple[str, ...]) -> None:
    lines = []
    for pair in pairs:
        name, _, reason = pair.partition("=")
        known(name)
        if not reason.strip() or "\n" in reason:
            raise Failure(
                f"--keep-ignore {name} needs a reason", hint=f"--keep-ignore '{name}=why'", code=Exit.USAGE, id="usage"
            )
        lines.append(f"{name} {reason.strip()}\n")
    try:
        IGNORE.parent.mkdir(parents=True, exist_ok=True)
        before = IGNORE.read_text() if IGNORE.exists() else ""
        names = {line.split()[0] for line in lines}
        rest = [line for line in before.splitlines(keepends=True) if line.split()[:1] and line.split()[0] not in names]
        IGNORE.write_text("".join([*rest, *lines]))
    except OSError as error:
        raise Failure(f"cannot write {IGNORE}: {error.strerror}", hint="run it with sudo", id="denied") from None


def _list(out: Terminal, as_json: bool) -> int:
    if as_json:
        rows = [{"check": c.id, "title": c.title, "needs": c.needs, "wants": c.wants} for c in CHECKS.values()]
        envelope.write(envelope.envelope("doctor", Exit.OK, {"checks": rows}))
        return Exit.OK
    width = max(map(len, CHECKS))
    for check in sorted(CHECKS.values(), key=lambda c: c.id):
        out.wrap(f"{check.id.ljust(width)}  {check.title}", hang=width + 2)
    out.line(f"{len(CHECKS)} checks · ollamactl explain ID")
    return Exit.OK


def _write_html(path: str, facts: Facts, report: Report, took: float) -> None:
    from ollamactl.report.html import page

    try:
        Path(path).write_text(page(facts, report, took), encoding="utf-8", errors="replace")
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}", code=Exit.USAGE, id="usage") from None


@click.command()
@click.argument("name", metavar="ID")
@color_option
@json_option
def explain(name: str, no_color: bool, as_json: bool) -> int:
    """Explain a check: what it finds, why that matters, how it is seen, what to do."""
    check = known(name)
    if as_json:
        data = {
            "check": check.id,
            "title": check.title,
            "why": check.part("Why"),
            "seen": check.part("Seen"),
            "do": check.part("Do"),
            "needs": check.needs,
            "wants": check.wants,
            "explains": sorted(check.explains),
        }
        envelope.write(envelope.envelope("explain", Exit.OK, data))
        return Exit.OK
    findings.explanation(Terminal(colour=False if no_color else None), check)
    return Exit.OK
