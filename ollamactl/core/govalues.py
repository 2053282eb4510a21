"""How Ollama (a Go program) reads the text of a variable, and how it prints what it read in `server config`.

Every reader returns `Read`: the canonical text as printed, and why the text was not taken at its word.
Sources: the recorded behaviour of 0.33 (bad numbers fall back with a WARN, bad booleans count as true, bad
durations fall back silently) and Go's strconv.ParseUint, strconv.ParseBool and time.ParseDuration.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

FOREVER = (1 << 63) - 1  # nanoseconds; Go's largest duration, printed as 2562047h47m16.854775807s


class Read(NamedTuple):
    """`printed` is what `server config` shows; `problem` says how the text was not taken at its word."""

    printed: str
    problem: str = ""


def trimmed(text: str) -> str:
    """A variable's text as Ollama sees it: blanks, then quotes are stripped from both ends."""
    return text.strip(" \t\r\n\v\f\x85\xa0").strip("\"'")


def uint(text: str, default: str) -> Read:
    text = trimmed(text)
    if not text:
        return Read(default)
    if re.fullmatch(r"[0-9]+", text) and int(text) < 1 << 64:
        return Read(str(int(text)))
    return Read(default, f"not a whole number of 0 or more: Ollama warns and uses {default}")


_TRUE = {"1", "t", "T", "TRUE", "true", "True"}
_FALSE = {"0", "f", "F", "FALSE", "false", "False"}


def boolean(text: str, default: str) -> Read:
    text = trimmed(text)
    if not text:
        return Read(default)
    if text in _FALSE:
        return Read("false")
    if text in _TRUE:
        return Read("true")
    return Read("true", "not a boolean that Ollama knows (1, true, 0, false): it counts as true")


_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9}
_UNITS |= {"m": 60 * _UNITS["s"], "h": 3600 * _UNITS["s"]}


def parse_duration(text: str) -> int | None:
    """Go's time.ParseDuration in nanoseconds, or None where Go refuses the text."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return 0
    if not re.fullmatch(r"((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+", rest):
        return None
    total = 0
    for whole, fraction, unit in re.findall(r"(\d*)\.?(\d*)(ns|us|µs|μs|ms|s|m|h)", rest):
        scale = _UNITS[unit]
        total += int(whole or 0) * scale + (int(fraction) * scale // 10 ** len(fraction) if fraction else 0)
    return sign * total if total <= FOREVER else None


def format_duration(ns: int) -> str:
    """Go's Duration.String: 5m0s, 1h0m0s, 1.5s, 250ms, 0s."""
    if ns == 0:
        return "0s"
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    if ns < 10**9:
        for unit, scale in (("ms", 10**6), ("µs", 10**3), ("ns", 1)):
            if ns >= scale:
                return sign + _decimal(ns, scale) + unit
    seconds = _decimal(ns % (60 * 10**9), 10**9) + "s"
    minutes = ns // (60 * 10**9)
    if minutes == 0:
        return sign + seconds
    if minutes < 60:
        return f"{sign}{minutes}m{seconds}"
    return f"{sign}{minutes // 60}h{minutes % 60}m{seconds}"


def _decimal(value: int, scale: int) -> str:
    whole, rest = divmod(value, scale)
    digits = str(rest).rjust(len(str(scale)) - 1, "0").rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)


def duration(text: str, default: str, *, zero_is_forever: bool = False) -> Read:
    """A duration, or whole seconds. Negative (for a load timeout: also 0) means for ever."""
    text = trimmed(text)
    if not text:
        return Read(default)
    ns = parse_duration(text)
    if ns is None and re.fullmatch(r"[+-]?[0-9]+", text):
        ns = int(text) * 10**9
        if abs(ns) > FOREVER:  # Go multiplies without a check and wraps around
            ns = (ns + (1 << 63)) % (1 << 64) - (1 << 63)
    if ns is None:
        return Read(default, f"not a duration (5m, 1h30m, 300): Ollama silently uses {default}")
    if ns < 0 or (zero_is_forever and ns == 0):
        ns = FOREVER
    return Read(format_duration(ns))


def seconds(printed: str) -> float | None:
    """The seconds of a printed duration, None if it is none; for ever is infinite."""
    ns = parse_duration(printed)
    return None if ns is None else float("inf") if ns >= FOREVER else ns / 1e9


def host(text: str, default: str = "http://127.0.0.1:11434") -> Read:
    """[scheme://]host[:port][/path]. No port: 11434, with http:// 80, with https:// 443."""
    text = trimmed(text)
    scheme, found, rest = text.partition("://")
    if not found:
        scheme, rest, port_default = "http", text, "11434"
    else:
        port_default = {"http": "80", "https": "443"}.get(scheme, "11434")
    hostport, _, path = rest.partition("/")
    name, port = _split_host_port(hostport)
    problem = ""
    if port is None:
        bare = hostport.strip("[]")
        name, port = (bare or "127.0.0.1"), port_default
        if found and scheme in ("http", "https") and not problem:
            problem = f"with {scheme}:// and no port the port is {port_default}, not 11434"
        if _ip(bare) is None and hostport:
            name = hostport
    if not re.fullmatch(r"[+-]?[0-9]+", port) or not 0 <= int(port) <= 65535:
        problem = f"port {port} is not valid: Ollama warns and uses {port_default}"
        port = port_default
    return Read(f"{scheme}://{joined(name, port)}" + (f"/{path}" if path else ""), problem)


def joined(host: str, port: int | str) -> str:
    """host:port, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _split_host_port(text: str) -> tuple[str, str | None]:
    """Go's net.SplitHostPort; port None where Go returns an error."""
    if text.startswith("["):
        end = text.find("]")
        if end > 0 and text[end + 1 : end + 2] == ":":
            return text[1:end], text[end + 2 :]
        return text, None
    if text.count(":") == 1:
        name, _, port = text.partition(":")
        return name, port
    return text, None


def address(printed: str) -> tuple[str, int] | None:
    """(host, port) of a printed OLLAMA_HOST, or None."""
    read = re.fullmatch(r"[a-z]+://(\[[^\]]*\]|[^:/]*):(\d+)(/.*)?", printed)
    return (read[1].strip("[]"), int(read[2])) if read else None


def debug_level(text: str) -> Read:
    """OLLAMA_DEBUG: a boolean, or a number that slog takes as level -4 × n (1 DEBUG, 2 DEBUG-4)."""
    text = trimmed(text)
    if not text:
        return Read("INFO")
    if text in _TRUE:
        return Read("DEBUG")
    if text in _FALSE:
        return Read("INFO")
    if re.fullmatch(r"-?[0-9]+", text):
        level = int(text) * -4
        for base, name in ((8, "ERROR"), (4, "WARN"), (0, "INFO"), (-(1 << 62), "DEBUG")):
            if level >= base or name == "DEBUG":
                offset = level - (base if name != "DEBUG" else -4)
                return Read(name if offset == 0 else f"{name}{offset:+d}")
    return Read("INFO", "not a boolean or number: it is ignored")


def items(text: str) -> Read:
    """A comma-separated list as Go prints a slice."""
    text = trimmed(text)
    return Read("[" + " ".join(p for p in text.split(",") if p) + "]" if text else "[]")
