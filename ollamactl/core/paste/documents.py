"""JSON replies within a pasted text, on one line or printed over many: /api/ps, /api/tags, /slots, /api/version."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from ollamactl.core.facts import InstalledModel, LoadedModel
from ollamactl.core.parse import api
from ollamactl.core.paste.screens import Lines

LARGEST = 1 << 18  # characters of one document
_BEGINS = re.compile(r"[ \t'\"$|]*(?=[{\[])")


class Slots(msgspec.Struct, frozen=True):
    """What /slots told: `context` is that of the first, `line` where it stands."""

    line: int
    count: int
    busy: int
    context: int


class Replies(msgspec.Struct):
    """What the replies tell; None where none of that kind is there, of several the last."""

    loaded: tuple[LoadedModel, ...] | None = None
    installed: tuple[InstalledModel, ...] | None = None
    version: str = ""
    slots: Slots | None = None


def read(lines: Lines) -> Replies:
    """All replies in these numbered lines."""
    found = Replies()
    for number, value in _documents(lines):
        body = msgspec.json.encode(value)
        rows = value.get("models") if isinstance(value, dict) else value
        first = rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}
        if isinstance(value, list) and "id" in first and ("is_processing" in first or "n_ctx" in first):
            busy = sum(isinstance(row, dict) and row.get("is_processing") is True for row in value)
            context = first.get("n_ctx")
            found.slots = Slots(number, len(value), busy, context if isinstance(context, int) else 0)
        elif isinstance(value, dict) and "size_vram" in first:
            found.loaded = api.loaded(body)
        elif isinstance(value, dict) and "digest" in first:
            found.installed = api.installed(body)
        elif isinstance(value, dict) and set(value) == {"version"}:
            found.version = api.version(body)
    return found


def _documents(lines: Lines) -> Iterator[tuple[int, Any]]:
    """(line of its beginning, value) of each object or list that is whole."""
    number, text, depth = 0, "", 0
    for at, line in lines:
        if not text:
            found = _BEGINS.match(line)
            if found is None:
                continue
            number, line = at, line[found.end() :]
        text += line + "\n"
        depth += line.count("{") + line.count("[") - line.count("}") - line.count("]")
        if depth <= 0 and (value := _value(text)) is not None:
            yield number, value
        if depth <= 0 or len(text) > LARGEST:
            text, depth = "", 0


def _value(text: str) -> Any:
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, (dict, list)) else None
