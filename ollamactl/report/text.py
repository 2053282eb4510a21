"""Words and numbers as all screens show them, and a terminal that may be narrow, colourless, piped or closed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import time
from typing import IO

COLOURS = {"error": "31", "warning": "33", "ok": "32", "dim": "2", "bold": "1"}


def size(n: float | None) -> str:
    """Bytes as GiB or MiB, as every screen shows them."""
    if n is None:
        return "–"
    if abs(n) >= 1 << 30:
        return f"{n / (1 << 30):,.1f} GiB"
    return f"{n / (1 << 20):,.0f} MiB" if n else "0"


def clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def day(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


_UNIT = re.compile(r"(\d) (?=(?:[KMGT]i?B|tok/s|s|ms|×|%|tokens|slots?)\b)")


def clean(text: str) -> str:
    """Text of a log or a user without what a terminal would obey; line ends and tabs become blanks."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\n", " ").replace("\t", " "))


# Where sudo looks for programs on Debian, Ubuntu, Fedora and Arch; a folder of pipx or of an environment is none.
_SUDO_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/snap/bin")


def for_sudo(text: str) -> str:
    """Text with every `sudo ollamactl` as a line that works here: by its path where sudo would not find it. Root
    himself needs no sudo, and finds it as he has just done."""
    own = os.path.abspath(sys.argv[0])
    if sys.platform == "win32":
        return text
    if (os.geteuid() == 0 and "SUDO_USER" not in os.environ) or os.path.basename(own) != "ollamactl":
        return text
    return text if os.path.dirname(own) in _SUDO_PATH else text.replace("sudo ollamactl", f"sudo {shlex.quote(own)}")


class Terminal:
    """Standard output (or another stream) for people. A closed stream is not an error: what it shows is over, what
    the command does is not."""

    def __init__(self, stream: IO[str] | None = None, *, colour: bool | None = None) -> None:
        self.stream = stream or sys.stdout
        self.closed = self.stream is None  # started with the output closed
        self.live = not self.closed and self.stream.isatty()
        plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        self.colour = (self.live and not plain) if colour is None else colour
        self._transient = 0

    @property
    def width(self) -> int:
        return max(40, min(shutil.get_terminal_size((80, 24)).columns, 160)) if self.live else 80

    @property
    def table_width(self) -> int:
        """Columns for tables: where nobody watches, nothing is cut for the screen's sake."""
        return self.width if self.live else 160

    def paint(self, text: str, kind: str) -> str:
        return f"\x1b[{COLOURS[kind]}m{text}\x1b[0m" if self.colour else text

    def line(self, text: str = "") -> None:
        text = for_sudo(text)
        self._write("\r\x1b[K" * bool(self._transient) + text + "\n")
        self._transient = 0

    def lines(self, *texts: str) -> None:
        for text in texts:
            self.line(text)

    def working(self, text: str) -> None:
        """What is being done now; replaced by the next line. Silent where nobody watches."""
        if self.live:
            shown = f"  … {clean(text)}"[: self.width - 1]
            self._write(f"\r\x1b[K{shown}")
            self._transient = 1

    def _write(self, text: str) -> None:
        if self.closed:
            return
        try:
            self.stream.write(text)
            self.stream.flush()
        except UnicodeEncodeError:
            self.stream.write(text.encode("ascii", "replace").decode())
            self.stream.flush()
        except (OSError, ValueError):
            self.closed = True

    def wrap(self, text: str, indent: int = 0, hang: int | None = None, mark: str = "", kind: str = "") -> None:
        """A paragraph broken at blanks to the width, never in the middle of a word, nor between a number and its
        unit. `mark` stands before it, in the colour of `kind`."""
        import textwrap

        rest = " " * (indent if hang is None else hang)
        wrapper = textwrap.TextWrapper(
            self.width, initial_indent=" " * indent, subsequent_indent=rest, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
        text = clean(for_sudo(text))
        whole = _UNIT.sub("\\1\N{NO-BREAK SPACE}", f"{mark} {text}" if mark else text)
        found = [line.replace("\N{NO-BREAK SPACE}", " ") for line in wrapper.wrap(whole)] or [""]
        if mark and kind:
            found[0] = found[0].replace(mark, self.paint(mark, kind), 1)
        self.lines(*found)


def columns(rows: list[list[str]], right: set[int], width: int, gap: int = 2) -> list[str]:
    """Rows as aligned columns. Where they are too wide, the widest left-aligned cells lose their middle."""
    if not rows:
        return []
    count = max(len(r) for r in rows)
    cells = [[clean(c) for c in r] + [""] * (count - len(r)) for r in rows]
    widths = [max(len(r[i]) for r in cells) for i in range(count)]
    while sum(widths) + gap * (count - 1) > width and max(widths) > 8:
        widths[widths.index(max(widths))] -= 1
    found = []
    for row in cells:
        fitted = [_fit(c, w) for c, w in zip(row, widths, strict=True)]
        parts = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(fitted, widths, strict=True))]
        found.append((" " * gap).join(parts).rstrip())
    return found


def _fit(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    keep = width - 1
    return text[: keep - keep // 2] + "…" + text[len(text) - keep // 2 :]
