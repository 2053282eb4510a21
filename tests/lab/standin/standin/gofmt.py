"""Values as Go prints and reads them: durations, numbers, quoted text, JSON, log lines of slog and gin."""

from __future__ import annotations

import json
import re
import sys
import time
from datetime import datetime
from typing import Any

MAX_DURATION = (1 << 63) - 1  # nanoseconds; how Go says "for ever"
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_TERM = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
LEVELS = {-8: "TRACE", -4: "DEBUG", 0: "INFO", 4: "WARN", 8: "ERROR"}


def parse_duration(text: str) -> int | None:
    """time.ParseDuration in nanoseconds; None where Go returns an error."""
    sign, rest = 1, text
    if rest[:1] in ("+", "-"):
        sign, rest = (-1 if rest[0] == "-" else 1), rest[1:]
    if rest == "0":
        return 0
    total, at = 0.0, 0
    while at < len(rest):
        term = _TERM.match(rest, at)
        if term is None:
            return None
        number = term[1]
        total += (int(number) if number.isdigit() else float(number)) * _UNITS[term[2]]
        at = term.end()
    return sign * int(total) if rest and total <= MAX_DURATION else None


def _trim(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def duration(ns: int) -> str:
    """time.Duration.String()."""
    if ns == 0:
        return "0s"
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    for unit, size in (("ns", 1), ("µs", 10**3), ("ms", 10**6)):
        if ns < size * 1000 and size < 10**9:
            whole, part = divmod(ns, size)
            digits = len(str(size)) - 1
            return sign + (_trim(f"{whole}.{part:0{digits}d}") if digits else str(whole)) + unit
    seconds, part = divmod(ns, 10**9)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    tail = _trim(f"{seconds}.{part:09d}") + "s"
    return sign + (f"{hours}h{minutes}m{tail}" if hours else f"{minutes}m{tail}" if minutes else tail)


def parse_bool(text: str) -> bool | None:
    """strconv.ParseBool; None where Go returns an error."""
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    return None


def human_bytes(size: float) -> str:
    """Decimal size as `ollama ps` and `ollama list` print it."""
    for unit, scale in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size >= scale:
            value = size / scale
            if value >= 10:
                return f"{int(value)} {unit}"
            return f"{value:.1f} {unit}" if value != int(value) else f"{int(value)} {unit}"
    return f"{int(size)} B"


def human_bytes2(size: float) -> str:
    """Binary size as log lines print it."""
    for unit, scale in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{int(size)} B"


def human_number(count: int) -> str:
    for unit, scale, digits in (("B", 10**9, 1), ("M", 10**6, 2), ("K", 10**3, 0)):
        if count >= scale:
            value = count / scale
            return f"{value:.0f}{unit}" if value == int(value) else f"{value:.{digits}f}{unit}"
    return str(count)


def quote(text: str) -> str:
    """strconv.Quote for the characters that occur here."""
    out = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return '"' + "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in out) + '"'


def rfc3339nano(ns: int) -> str:
    seconds, part = divmod(ns, 10**9)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) if seconds < 2**40 else "2319-03-12T02:51:53"
    return (stamp + (_trim(f".{part:09d}") if part else "")).rstrip(".") + "Z"


def dumps(value: Any) -> str:
    """encoding/json: no blanks, <, > and & escaped."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


class Log:
    """slog's text handler on stderr, with Ollama's TRACE level."""

    def __init__(self) -> None:
        self.level = 0
        self.structured = False  # until the handler is set, lines have the form of Go's plain logger

    def __call__(self, level: int, source: str, msg: str, /, **keys: Any) -> None:
        if level < self.level:
            return
        pairs = [(k.replace("__", "."), v) for k, v in keys.items()]
        if not self.structured:
            tail = "".join(f" {k}={_value(v)}" for k, v in pairs)
            raw(f"{time.strftime('%Y/%m/%d %H:%M:%S')} {source}: {LEVELS[level]} {msg}{tail}")
            return
        now = datetime.now().astimezone()
        zone = now.strftime("%z")
        zone = "Z" if zone in ("+0000", "") else f"{zone[:3]}:{zone[3:]}"
        head = f"time={now.strftime('%Y-%m-%dT%H:%M:%S')}.{now.microsecond // 1000:03d}{zone}"
        tail = "".join(f" {k}={_value(v)}" for k, v in pairs)
        raw(f"{head} level={LEVELS[level]} source={source} msg={_value(msg)}{tail}")

    def trace(self, source: str, msg: str, /, **keys: Any) -> None:
        self(-8, source, msg, **keys)

    def debug(self, source: str, msg: str, /, **keys: Any) -> None:
        self(-4, source, msg, **keys)

    def info(self, source: str, msg: str, /, **keys: Any) -> None:
        self(0, source, msg, **keys)

    def warn(self, source: str, msg: str, /, **keys: Any) -> None:
        self(4, source, msg, **keys)

    def error(self, source: str, msg: str, /, **keys: Any) -> None:
        self(8, source, msg, **keys)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = "<nil>" if value is None else str(value)
    if text == "" or not text.isprintable() or any(c in ' ="' for c in text):
        return quote(text)
    return text


def raw(line: str) -> None:
    """One whole line in one write, so that lines of several writers never mix."""
    sys.stderr.buffer.write(line.encode("utf-8", "surrogateescape") + b"\n")
    sys.stderr.buffer.flush()


def gin(status: int, ns: int, client: str, method: str, path: str) -> None:
    """gin's access line; written when a request ends."""
    if ns > 60 * 10**9:
        ns -= ns % 10**9
    stamp = time.strftime("%Y/%m/%d - %H:%M:%S")
    line = f"[GIN] {stamp} | {status:3d} | {duration(ns):>13} | {client:>15} | {method:<7}  {quote(path)}\n"
    sys.stdout.buffer.write(line.encode())
    sys.stdout.buffer.flush()


log = Log()
