"""Which rows of `messages` a line of the server is of.

A row of Ollama's own messages (`msg`, `prefix`) needs a line in the log's own form; a `text` row may stand anywhere
in a raw line of the engine or the Go runtime, and in Ollama's own lines of level WARN or ERROR or about a failed load,
but never in another one, where a prompt or a file name could hold it.
"""

from __future__ import annotations

import re
from functools import cache

from ollamactl.core.parse.event_row import Event
from ollamactl.core.parse.messages import EVENTS
from ollamactl.core.parse.slog import Line

# printed at every normal start: no event, and no unknown WARN either
NORMAL = ("waiting for server to become available", "waiting for llama-server to become available")
_BY_MSG = {row.needle: row for row in EVENTS if row.how == "msg" and row.kind != "load_cancelled"}
_CANCELLED = next(row for row in EVENTS if row.kind == "load_cancelled")
_PREFIXES = tuple(row for row in EVENTS if row.how == "prefix")
_TEXTS = tuple(row for row in EVENTS if row.how == "text")
_ANY = re.compile("|".join(re.escape(row.needle) for row in _TEXTS))
_pattern = cache(re.compile)  # when first needed: most logs need few of them
_BY_KIND = {row.kind: row for row in EVENTS}
_FREQUENT = {"slot launch_slot_": _BY_KIND["slot_launched"], "srv        update": _BY_KIND["prompt_cache"]}
_FAILING = {
    "gpu_library_failed",
    "load_failed",
    "model_metadata_error",
    "runner_terminated",
    "runner_gone",
    "discovery_failed",
}
VALUE = 600  # characters of a field that are kept


def find(text: str, line: Line | None) -> list[tuple[Event, dict[str, str]]]:
    """The rows that a line is of, each once a kind, with their fields. `line` is the record, for Ollama's own."""
    if line is None:
        row = _FREQUENT.get(text[:17])
        if row is not None:  # the bulk of what a busy server says
            return [(row, groups)] if (groups := _groups(row, text)) else []
        return _texts(text, {}, set())
    found: list[tuple[Event, dict[str, str]]] = []
    row = _BY_MSG.get(line.msg) or next((row for row in _PREFIXES if line.msg.startswith(row.needle)), None)
    fields = {name: value[:VALUE] for name, value in list(line.fields.items())[:24]}
    if row is not None and row.kind == "load_failed" and "context canceled" in fields.get("error", ""):
        row = _CANCELLED
    if row is not None and ((groups := _groups(row, text)) or row.sure):
        found.append((row, fields | groups))
    if line.level in ("WARN", "ERROR", "") or (row is not None and row.kind in _FAILING):
        found += _texts(text, fields, {one.kind for one, _ in found})
        if not found and line.level in ("WARN", "ERROR") and line.msg not in NORMAL:
            found.append((_OTHER[line.level], {"msg": line.msg[:VALUE]} | fields))
    elif not found and _ANY.search(line.msg):  # an INFO message itself, never its fields
        found += _texts(line.msg, fields, set())
    return found


_OTHER = {
    "WARN": Event("other_warning", "", keep=50),
    "ERROR": Event("other_error", "", keep=50),
}


def _texts(text: str, fields: dict[str, str], kinds: set[str]) -> list[tuple[Event, dict[str, str]]]:
    if _ANY.search(text) is None:
        return []
    found = []
    for row in _TEXTS:
        if row.needle in text and row.kind not in kinds:
            groups = _groups(row, text)
            if not row.sure and not groups:
                continue
            kinds.add(row.kind)
            found.append((row, fields | groups))
    return found


def _groups(row: Event, text: str) -> dict[str, str]:
    if not row.pattern:
        return {}
    found = _pattern(row.pattern).search(text[:4000])
    return {name: value[:VALUE] for name, value in found.groupdict().items() if value} if found else {}
