"""Texts that are JSON, lines of JSON, or neither: taken apart, changed string by string, put together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def decoded(body: bytes) -> str:
    return body.decode("utf-8", "surrogateescape")


def parsed(text: str) -> Any:
    """A JSON document or array, or None."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def parts(body: bytes, text: Callable[[str], str] = lambda s: s) -> Iterator[str | tuple[Any, str]]:
    """A body as what joins to it by newlines: texts, through `text`, and documents of JSON with their text."""
    whole = decoded(body)
    if whole.lstrip()[:1] not in ("{", "["):
        yield text(whole)
    elif (document := parsed(whole)) is not None:
        yield document, whole
    else:
        for line in whole.split("\n"):
            document = parsed(line)
            yield text(line) if document is None else (document, line)


def walk(
    value: Any,
    member: Callable[[dict[str, Any], str, Any], Any],
    text: Callable[[str], str] = lambda s: s,
) -> Any:
    """The same document with every member and string changed. What `member` changed is not looked at again."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, list):
        return [walk(each, member, text) for each in value]
    if isinstance(value, dict):
        done = {}
        for key, each in value.items():
            changed = member(value, key, each)
            if changed is each:
                changed = text(each) if isinstance(each, str) else walk(each, member, text)
            done[text(key)] = changed
        return done
    return value
