"""A socket that something listens on, as `ss`, `netstat` and `lsof` print it, or a sentence says."""

# ruff: noqa: E501 - a pattern is read more easily whole
from __future__ import annotations

import re

from ollamactl.core.facts import Listener

_LISTEN = (
    re.compile(r"\b(?:LISTEN|[Ll]isten(?:s|ing)? (?:only )?on|shows|bound to|binds to) +(?P<at>\[::1?\]|[\d.]+|localhost|\*):(?P<port>\d{2,5})(?P<name>)(?P<pid>)(?=\s*(?:$|[,.;)]| only| before| after| afterwards))"),
    re.compile(r"(?:tcp6?\s+)?LISTEN\s+\d+\s+\d+\s+(?P<at>\S+):(?P<port>\d+)\s+\S+(?:.*\(\(\"(?P<name>[^\"]+)\",pid=(?P<pid>\d+))?"),
    re.compile(r"tcp6?\s+\d+\s+\d+\s+(?P<at>\S+):(?P<port>\d+)\s+\S+\s+LISTEN(?:\s+(?P<pid>\d+)/(?P<name>\S+))?"),
    re.compile(r"(?P<name>\S+)\s+(?P<pid>\d+)\s+\S+.*TCP (?P<at>\S+):(?P<port>\d+) \(LISTEN\)"),
)  # fmt: skip


def listener(line: str) -> Listener | None:
    """The socket of a line, None where it names none."""
    if not re.search(r"LISTEN|[Ll]isten|shows|bound to|binds to", line) or "version" in line or len(line) > 400:
        return None
    found = next((match for pattern in _LISTEN if (match := pattern.search(line))), None)
    if found is None:
        return None
    at = found["at"].strip("[]")
    at = "127.0.0.1" if at.startswith("localhost") else {"*": "::", "": "::"}.get(at, at)
    pid = found["pid"]
    return Listener(
        address=at, port=int(found["port"][:6]), pid=int(pid[:9]) if pid else None, name=found["name"] or ""
    )
