"""`/proc/PID/environ`: NUL-separated `NAME=value`."""

from __future__ import annotations


def parse(data: bytes) -> dict[str, str]:
    """The variables of a process. Bytes that are not UTF-8 survive as surrogates; of a name that stands twice
    the first counts, as getenv(3) has it; strings without `=` are no variables."""
    made: dict[str, str] = {}
    for item in data.split(b"\0"):
        name, equals, value = item.decode("utf-8", "surrogateescape").partition("=")
        if equals and name:
            made.setdefault(name, value)
    return made
