"""One wording of one message, as the tables of `messages` list them."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Event(NamedTuple):
    kind: str
    needle: str
    how: Literal["msg", "prefix", "text"] = "msg"
    releases: str = ""
    pattern: str = ""  # named groups become fields
    keep: int = 100  # first and last so many are kept of a start; all are counted
    sure: bool = True  # whether the needle alone tells; else the pattern must fit too
