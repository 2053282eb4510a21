"""The recorded journals, and the forms in which people paste them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from ollamactl.core.facts import Log
from ollamactl.core.parse.log import parse_log

DATA = Path(__file__).parent.parent / "data" / "logs"
SCENARIOS = sorted(path.name.removesuffix(".jsonl.gz") for path in (DATA / "recorded").glob("*.jsonl.gz"))


@cache
def recorded(scenario: str) -> bytes:
    return gzip.decompress((DATA / "recorded" / f"{scenario}.jsonl.gz").read_bytes())


@cache
def expected() -> dict[str, dict[str, Any]]:
    return json.loads((DATA / "expected.json").read_text())  # type: ignore[no-any-return]


def entries(scenario: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in recorded(scenario).splitlines()]


def parse(*chunks: bytes | str, unit: str | None = None) -> Log:
    whole = (chunk.encode() if isinstance(chunk, str) else chunk for chunk in chunks)
    return parse_log(whole, where="test", unit=unit)


def lines(*texts: str) -> Log:
    return parse("\n".join(texts) + "\n")


def _text(prefix: str) -> Callable[[Iterable[dict[str, Any]]], bytes]:
    def write(found: Iterable[dict[str, Any]]) -> bytes:
        out = []
        for one in found:
            ident = f"{one['SYSLOG_IDENTIFIER']}[{one['_PID']}]"
            out.append(prefix.replace("IDENT", ident) + one["MESSAGE"])
        return "\n".join(out).encode() + b"\n"

    return write


def _server(prefix: str, end: str = "\n") -> Callable[[Iterable[dict[str, Any]]], bytes]:
    def write(found: Iterable[dict[str, Any]]) -> bytes:
        return "".join(prefix + one["MESSAGE"] + end for one in found if one["_PID"] != "1").encode()

    return write


def _docker_json(found: Iterable[dict[str, Any]]) -> bytes:
    return "".join(
        json.dumps({"log": one["MESSAGE"] + "\n", "stream": "stderr", "time": "2026-11-30T02:56:38.618111222Z"}) + "\n"
        for one in found
        if one["_PID"] != "1"
    ).encode()


def _json_lists(found: Iterable[dict[str, Any]]) -> bytes:
    """journalctl writes a message with control characters as a list of byte numbers."""
    return "".join(
        json.dumps(one | {"MESSAGE": list(b"\x1b[32m" + one["MESSAGE"].encode() + b"\x1b[0m")}) + "\n" for one in found
    ).encode()


def _coloured(found: Iterable[dict[str, Any]]) -> bytes:
    return "".join(f"\x1b[1m\x1b[34m{one['MESSAGE']}\x1b[0m\r\n" for one in found if one["_PID"] != "1").encode()


FORMS: dict[str, Callable[[Iterable[dict[str, Any]]], bytes]] = {
    "short": _text("Nov 30 02:56:38 vm IDENT: "),
    "short-precise": _text("Nov 30 02:56:38.618123 vm IDENT: "),
    "short-iso": _text("2026-11-30T02:56:38+0000 vm IDENT: "),
    "short-iso-precise": _text("2026-11-30T02:56:38.618123+00:00 vm IDENT: "),
    "short-full": _text("Mon 2026-11-30 02:56:38 UTC vm IDENT: "),
    "short-monotonic": _text("[ 1739.948438] vm IDENT: "),
    "short-unix": _text("1796007398.553740 vm IDENT: "),
    "spanish": _text("nov 30 02:56:38 vm IDENT: "),
    "japanese": _text("11月 30 02:56:38 vm IDENT: "),
    "day first": _text("30 nov. 02:56:38 vm IDENT: "),
    "indented": _text("    Nov 30 02:56:38 vm IDENT: "),
    "cat": _server(""),
    "crlf": _server("", "\r\n"),
    "nul": _server("\0", "\0\n"),
    "compose": _server("ollama-1  | "),
    "compose short": _server("ollama | "),
    "docker -t": _server("2026-11-30T02:56:38.618111222Z "),
    "cri": _server("2026-11-30T02:56:38.618111222Z stderr F "),
    "docker json-file": _docker_json,
    "json lists": _json_lists,
    "coloured": _coloured,
    "utf-16": lambda found: _server("", "\r\n")(found).decode().encode("utf-16"),
}
