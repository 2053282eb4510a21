"""Feed of users' own units that run Ollama beside the service: the system's manager knows nothing of them."""

from __future__ import annotations

import posixpath

import msgspec

from ollamactl.core.facts import LogEvent
from ollamactl.core.feeds.collector import Collector, feed
from ollamactl.core.parse import events, journal
from ollamactl.core.source import command, listing

FOLDERS = ("/etc/systemd/user", "/usr/lib/systemd/user", "/root/.config/systemd/user", "/home/*/.config/systemd/user")
LINES = 40  # of each unit, the newest


@feed
def user_log(c: Collector) -> tuple[LogEvent, ...]:
    """What such a unit's server said of late, with the `unit` file that it is of; nothing of one that was stopped."""
    found: list[LogEvent] = []
    for folder in FOLDERS:
        listed = c.read(listing(f"{folder}/*llama*.service"))
        if listed.body and listed.missing is None:
            for path in msgspec.json.decode(listed.body, type=list[str]):
                found += _said(c, path)
    return tuple(found)


def _said(c: Collector, path: str) -> list[LogEvent]:
    name = posixpath.basename(path)
    reading = c.read(command("journalctl", "-b", "-q", "-o", "json", "--no-pager", "-n", str(LINES),
                             "--output-fields=MESSAGE", f"_SYSTEMD_USER_UNIT={name}", "+", f"USER_UNIT={name}",
                             any_exit=True))  # fmt: skip
    lines = journal.messages(reading.body or b"")
    if _was_stopped([text for _, text in lines]):
        return []
    return [
        LogEvent(kind=event.kind, text=text[:2000], at=at, fields=fields | {"unit": path})
        for at, text in lines
        for event, fields in events.find(text, None)
    ]


def _was_stopped(lines: list[str]) -> bool:
    """Whether somebody stopped it: systemd may write "Stopped" between two starts of what dies, too."""
    *earlier, last = lines or [""]
    return last.startswith("Stopped ") and "Scheduled restart job" not in "".join(earlier[-1:])
