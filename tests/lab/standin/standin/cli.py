"""`ollama ps`, `list`, `stop` and `--version`, as far as people paste their output."""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from datetime import datetime
from typing import Any

from . import envconfig, switches
from .gofmt import human_bytes


def _call(path: str, body: Any = None) -> Any:
    scheme, host, port, _ = envconfig.host()
    host = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
    data = None if body is None else json.dumps(body).encode()
    url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{path}"
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        urllib.request.Request(url, data), timeout=60
    ) as answer:
        return json.load(answer)


def human_duration(seconds: float) -> str:
    minutes, hours = int(seconds // 60), round(seconds / 3600)
    if seconds < 1:
        return "Less than a second"
    if seconds < 60:
        return "1 second" if int(seconds) == 1 else f"{int(seconds)} seconds"
    if minutes < 60:
        return "About a minute" if minutes == 1 else f"{minutes} minutes"
    if hours < 48:
        return "About an hour" if hours == 1 else f"{hours} hours"
    for limit, unit, name in ((24 * 14, 24, "days"), (24 * 60, 24 * 7, "weeks"), (24 * 730, 24 * 30, "months")):
        if hours < limit:
            return f"{hours // unit} {name}"
    return f"{hours // (24 * 365)} years"


def _seconds(stamp: str) -> float:
    whole, _, rest = stamp.rstrip("Z").partition(".")
    return datetime.fromisoformat(whole + "+00:00").timestamp() + float(f"0.{rest or 0}")


def until(expires_at: str, now: float) -> str:
    left = _seconds(expires_at) - now
    if left <= 0:
        return "Stopping..."
    return "Forever" if left > 20 * 365 * 86400 else f"{human_duration(left)} from now"


def processor(size: int, vram: int) -> str:
    if vram == 0:
        return "100% CPU"
    if vram == size:
        return "100% GPU"
    share = round((size - vram) / size * 100)
    return f"{share}%/{100 - share}% CPU/GPU"


def table(head: list[str], rows: list[list[str]]) -> str:
    """Ollama's table writer: the head ends with one blank, a row with four."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = ["    ".join(f"{text:<{width}}" for text, width in zip(head, widths, strict=True)) + " "]
    lines += ["".join(f"{text:<{width}}    " for text, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    command = arguments[0] if arguments else "--help"
    try:
        if command in ("--version", "-v"):
            return _version()
        if command == "ps":
            print(table(["NAME", "ID", "SIZE", "PROCESSOR", "CONTEXT", "UNTIL"], [
                [row["name"], row["digest"][:12], human_bytes(row["size"]), processor(row["size"], row["size_vram"]),
                 str(row["context_length"]), until(row["expires_at"], time.time())]
                for row in _call("/api/ps")["models"]
            ]))  # fmt: skip
        elif command in ("list", "ls"):
            print(table(["NAME", "ID", "SIZE", "MODIFIED"], [
                [row["name"], row["digest"][:12], human_bytes(row["size"]),
                 f"{human_duration(time.time() - _seconds(row['modified_at']))} ago"]
                for row in _call("/api/tags")["models"]
            ]))  # fmt: skip
        elif command == "stop" and len(arguments) > 1:
            _call("/api/generate", {"model": arguments[1], "keep_alive": 0})
        else:
            print(f'Error: unknown command {command!r} for "ollama"', file=sys.stderr)
            return 1
    except urllib.error.HTTPError as error:
        print(f"Error: {json.load(error).get('error', error)}", file=sys.stderr)
        return 1
    except (urllib.error.URLError, OSError):
        print("Error: could not connect to ollama app, is it running?", file=sys.stderr)
        return 1
    return 0


def _version() -> int:
    try:
        print(f"ollama version is {_call('/api/version')['version']}")
    except (urllib.error.URLError, OSError):
        print("Warning: could not connect to a running Ollama instance")
        print(f"Warning: client version is {switches.release()}")
    return 0
