"""Specifiers (`%n`, `%%`, …) of systemd.unit(5): those whose value is known are expanded, others are
named."""

from __future__ import annotations

import string
from collections.abc import Mapping

import msgspec

from ollamactl.core.parse.quoting import decode, encode

# All that a unit's settings may hold, 247 to 258. %D came with 255, %J and %y with 247 or later; a release
# that lacks one drops the assignment with a line in the journal.
KNOWN = frozenset("aAbBcCdDEfgGhHiIjJlLmMnNoPpqrRsStTuUvVwWyY")
_LETTERS = frozenset(string.ascii_letters + string.digits)

SYSTEM_DIRECTORIES = {
    "C": "/var/cache",
    "D": "/usr/share",
    "E": "/etc",
    "L": "/var/log",
    "S": "/var/lib",
    "T": "/tmp",
    "V": "/var/tmp",
    "t": "/run",
}
ROOT = {"u": "root", "U": "0", "g": "root", "G": "0", "h": "/root"}  # of the system manager, not of User=


class Expansion(msgspec.Struct, frozen=True):
    """`text` is None where it can't be made: `invalid` (systemd refuses the value) or `unknown` (it has a
    value on the host that was not read)."""

    text: str | None
    unknown: tuple[str, ...] = ()
    invalid: str = ""


def expand(text: str, context: Mapping[str, str]) -> Expansion:
    """Expand the specifiers in `text`; `context` holds values by letter. A `%` before anything but a letter
    or digit, or at the end, stays as it is; before an unknown letter or digit, systemd gives the value up."""
    made: list[str] = []
    unknown: list[str] = []
    at = 0
    while (found := text.find("%", at)) >= 0:
        made.append(text[at:found])
        letter = text[found + 1 : found + 2]
        at = found + 2
        if letter == "%":
            made.append("%")
        elif letter in context:
            made.append(context[letter])
        elif letter and letter in KNOWN:
            unknown.append("%" + letter)
        elif letter in _LETTERS:
            return Expansion(None, invalid="%" + letter)
        else:
            made.append("%" + letter)
    made.append(text[at:])
    if unknown:
        return Expansion(None, unknown=tuple(dict.fromkeys(unknown)))
    return Expansion("".join(made))


def unit_context(
    unit: str,
    *,
    fragment: str = "",
    hostname: str = "",
    machine_id: str = "",
    boot_id: str = "",
    kernel: str = "",
    manager: str = "system",
    more: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Values by letter for one unit, of what is known. Empty arguments are not known. Of a user manager, the
    directories and the user are not known unless `more` has them."""
    name, _, _ = unit.rpartition(".")
    prefix, at, instance = name.partition("@")
    last = prefix.rpartition("-")[2]
    values = {
        "n": unit,
        "N": name,
        "p": prefix,
        "P": unescape(prefix),
        "i": instance if at else "",
        "I": unescape(instance),
        "j": last,
        "J": unescape(last),
        "f": _as_path(instance or prefix),
    }
    if manager == "system":
        values |= SYSTEM_DIRECTORIES | ROOT
    if hostname:
        values |= {"H": hostname, "l": hostname.partition(".")[0]}
    for letter, value in (("m", machine_id), ("b", boot_id.replace("-", "")), ("v", kernel), ("y", fragment)):
        if value:
            values[letter] = value
    if fragment:
        values["Y"] = fragment.rpartition("/")[0] or "/"
    return values | dict(more or {})


def unescape(name: str) -> str:
    """The text behind a part of a unit's name: `-` is `/`, `\\x2d` is `-`."""
    data = encode(name).replace(b"-", b"/")
    made, at = bytearray(), 0
    while at < len(data):
        if data[at : at + 2] == b"\\x":
            try:
                made.append(int(data[at + 2 : at + 4], 16))
                at += 4
                continue
            except ValueError:
                pass
        made.append(data[at])
        at += 1
    return decode(bytes(made))


def _as_path(name: str) -> str:
    text = unescape(name)
    return text if text.startswith("/") else "/" + text
