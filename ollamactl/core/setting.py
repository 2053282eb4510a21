"""One variable of Ollama: how it is read, what it is where nobody sets it, which releases know it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

import msgspec

from ollamactl.core import govalues
from ollamactl.core.govalues import Read

Kind = Literal["uint", "bool", "duration", "timeout", "text", "host", "origins", "items", "debug", "path"]


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: Kind
    help: str
    flag: str = ""  # option of apply; without one: --set NAME=VALUE
    metavar: str = "N"
    defaults: tuple[tuple[str, str], ...] = (("", ""),)  # (first release, printed value), oldest first
    since: str = "0.1.21"
    until: str = ""  # first release that no longer knows it
    printed: bool = True
    choices: tuple[str, ...] = ()  # values that the engine accepts; others fail at load
    example: str = ""  # a harmless value that is not the default, used by the tests
    cost: str = ""  # what raising it costs
    secret: bool = False

    def default(self, release: str = "") -> str:
        """The printed value of an unset variable in a release (the newest where unknown)."""
        known = version(release)
        found = self.defaults[0][1]
        for first, value in self.defaults:
            if not known or version(first) <= known:
                found = value
        return found

    def read(self, text: str, release: str = "") -> Read:
        """What Ollama makes of the text: the printed value, and why not the one that was meant."""
        default = self.default(release)
        return _READERS[self.kind](text, default)


def _text(text: str, default: str) -> Read:
    return Read(govalues.trimmed(text) or default)


_READERS: dict[str, Callable[[str, str], Read]] = {
    "uint": govalues.uint,
    "bool": govalues.boolean,
    "duration": govalues.duration,
    "timeout": lambda text, default: govalues.duration(text, default, zero_is_forever=True),
    "text": _text,
    "path": _text,
    "host": govalues.host,
    "origins": lambda text, default: govalues.items(text),
    "items": lambda text, default: govalues.items(text) if govalues.trimmed(text) else Read(default),
    "debug": lambda text, default: govalues.debug_level(text),
}


def version(text: str) -> tuple[int, ...]:
    """The numbers of a release (`0.33.0-rc2` → (0, 33, 0)); empty for none, and for own builds (0.0.0)."""
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", text)
    numbers = tuple(int(n or 0) for n in found.groups()) if found else ()
    return () if numbers == (0, 0, 0) else numbers


def known_in(setting: Setting, release: str) -> bool:
    """Whether a release knows the variable; True where the release is not known."""
    now = version(release)
    return not now or (version(setting.since) <= now and (not setting.until or now < version(setting.until)))


def same(setting: Setting, text: str | None, printed: str, release: str = "") -> bool:
    """Whether `printed` (of `server config`) is what Ollama makes of a variable's text (None: unset)."""
    if setting.kind == "origins":  # Ollama appends its own local origins
        wanted = govalues.items(text or "").printed.strip("[]").split()
        return printed.strip("[]").split()[: len(wanted)] == wanted
    if setting.kind == "path" and not govalues.trimmed(text or ""):
        return True  # the default is the user's home, which the log alone knows
    if setting.kind == "debug" and printed in ("true", "false"):
        return govalues.boolean(text or "", "false").printed == printed
    return setting.read(text or "", release).printed == printed


def own_part(setting: Setting, printed: str) -> str:
    """What `server config` prints, without what Ollama adds by itself: local origins, behind those that were set."""
    if setting.kind != "origins":
        return printed
    items = printed.strip("[]").split()
    return f"[{' '.join(items[: items.index('http://localhost')])}]" if "http://localhost" in items else printed
