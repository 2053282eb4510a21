"""A pasted text of whatever mixture -> facts: unit files, output of commands, sockets, variables of shells and
containers, words of clients, and a log around and between them.

Pieces are told by their own form, line by line (`paste/`); what is recognised is taken out of what the log parser
reads (numbers of lines stay). Nothing is guessed from prose but what `parse/phrases` names.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ollamactl.core.facts import Facts, LogEvent, Start
from ollamactl.core.parse import log
from ollamactl.core.source import Missing

SMALL = 4 << 20  # bytes of a text that is looked through for more than log lines


def facts_of(data: bytes, where: str) -> Facts | None:
    """Facts of a pasted text; None where nothing in it is of an Ollama server or its surroundings."""
    if len(data) > SMALL or _is_binary(data[:4096]):
        return facts_of_long([data], where)
    # their patterns cost as much as all of a doctor on a live host
    from ollamactl.core.paste import fragments, wrapping
    from ollamactl.core.paste.splitter import Splitter

    text, places = wrapping.unwrapped(data.decode("utf-8", "surrogateescape"))
    if pieces := fragments.apart(text):
        text, places = pieces.text, tuple(places[n - 1] if places else n for n in pieces.places)
    split = Splitter(where)
    rest = split.take(text)
    made = _with_log(split.facts(), [rest.encode("utf-8", "surrogateescape")], where)
    return fragments.renumbered(made, places) if places and made else made


def facts_of_long(chunks: Iterable[bytes], where: str) -> Facts | None:
    """Facts of a long text, which is taken for a log alone, in one pass and constant memory."""
    return _with_log(Facts(origin=f"log:{where}"), chunks, where)


def _is_binary(head: bytes) -> bool:
    return head[:2] in (b"\xff\xfe", b"\xfe\xff") or head.count(b"\0") > len(head) // 8


def _with_log(facts: Facts, chunks: Iterable[bytes], where: str) -> Facts | None:
    parsed = log.parse_log(chunks, where=where)
    said = next((one for one in reversed(parsed.starts) if _says(one)), None)  # systemd's own words begin none
    start = _own(said) if said is not None else None
    says = start is not None and _says(start)
    told = facts.told
    has = (
        (told is not None and (told.variables or told.messages))
        or facts.service
        or facts.unit_files
        or facts.loaded is not None
        or facts.installed is not None
        or facts.gpus
        or facts.drivers
        or facts.version
    )
    if (
        not says
        and not parsed.systemd
        and not parsed.kernel
        and not parsed.complaints
        and not parsed.suppressed
        and not has
        and not facts.listeners
    ):
        return None
    gone = Missing("unasked", "only a text was given")
    missing = {f: gone for f in Facts.__struct_fields__ if f not in ("schema", "taken", "origin", "missing", "told")}
    version = (start.version if start and says else "") or _earlier_version(parsed.starts) or facts.version
    if not says:
        missing["start"] = Missing("absent", "the text holds no line of a server's start")
    made = msgspec.structs.replace(
        facts, log=parsed, start=start if says else None, version=version or None, missing=missing
    )
    return msgspec.structs.replace(made, missing={k: v for k, v in missing.items() if getattr(made, k) is None})


def _earlier_version(starts: tuple[Start, ...]) -> str:
    """The release of a start that said nothing but that: in a told case it stands anywhere."""
    return next((s.version for s in reversed(starts) if s.version and not (s.config or s.loads or s.computes)), "")


# what a start says before its `server config`
EARLY = {
    "key_created", "invalid_environment", "no_systemd", "app_respawns", "client_cannot_connect", "preload_missing",
}  # fmt: skip


def _own(start: Start) -> Start:
    """A start without what stands before its `server config`: a text that begins in the middle of an older process
    has lines of that one there, which nothing tells apart but their place."""
    line = start.config_line.line if start.config_line else None
    if line is None or not start.first_line or start.first_line >= line:
        return start
    older = [e for e in start.events if (e.line or line) < line and e.kind not in EARLY and not _of_client(e)]
    lines = [x.line for x in start.loads] + [r.line for r in (*start.recent, *start.failed)]
    if not older and not any((at or line) < line for at in lines):
        return start
    counts = dict(start.counts)
    for event in older:
        counts[event.kind] = max(0, counts.get(event.kind, 0) - 1)
    return msgspec.structs.replace(
        start,
        events=tuple(e for e in start.events if e not in older),
        counts={k: v for k, v in counts.items() if v},
        loads=tuple(x for x in start.loads if (x.line or line) >= line),
        requests=tuple(r for r in start.requests if (r.first_line or line) >= line),
        recent=tuple(r for r in start.recent if (r.line or line) >= line),
        failed=tuple(r for r in start.failed if (r.line or line) >= line),
    )


# what `ollama run` prints of a failure, which people put above the log
CLIENT = {
    "load_timeout", "ram_too_small", "unknown_architecture", "model_file_damaged", "alloc_failed", "fatal_error",
    "runner_dropped", "runner_killed", "illegal_instruction", "num_gpu_refused", "context_exceeded", "queue_full",
}  # fmt: skip


def _of_client(event: LogEvent) -> bool:
    return event.kind in CLIENT and not event.level and event.pid is None and event.text.startswith("Error: ")


def _says(start: Start) -> bool:
    said = start.config or start.listening or start.events or start.loads or start.requests or start.computes
    return bool(said or start.default_context)
