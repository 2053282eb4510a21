"""A folder of collected output (`systemctl show`, a journal, `ollama ps`, replies of the API, …) -> one text to look
at, and where each of its lines stands."""

from __future__ import annotations

import bisect
import re
from pathlib import Path

import msgspec

from ollamactl.core.paste.screens import heading
from ollamactl.core.pasted import SMALL
from ollamactl.errors import Exit, Failure

FILES = 300  # of a folder; more is no collection of output
DOTTED = {".env", ".bashrc", ".bash_profile", ".profile", ".zshrc", ".zprofile"}
HEADING = 512  # bytes that a file takes beside its own, at most
_ENVIRON = re.compile(rb"(?:\w+=[^\0\n]*\0)+")  # /proc/PID/environ, as it was copied
_LOGS = re.compile(r"journal|log|dmesg|kern", re.I)


class Joined(msgspec.Struct, frozen=True):
    """`text`, and for each file of it (number of the line before its first one, name)."""

    text: bytes
    places: tuple[tuple[int, str], ...]

    def place(self, line: int) -> tuple[str, int]:
        """File and line of a line of the text."""
        at = bisect.bisect_left([before for before, _ in self.places], line) - 1
        before, name = self.places[max(at, 0)]
        return name, line - before


def is_collection(path: Path) -> bool:
    """Whether a path is a folder that no `bundle` wrote."""
    return path.is_dir() and not (path / "index.json").exists()


def join(path: Path) -> Joined:
    """The files of a folder one after another, each below the prompt that its name stands for, logs last; of a log
    that is too long the end. Failure where the folder holds none, or too many."""
    try:
        files = sorted(p for p in path.rglob("*") if p.is_file() and (p.name in DOTTED or not p.name.startswith(".")))
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}", code=Exit.USAGE, id="usage") from None
    if not files or len(files) > FILES:
        why = "holds no files" if not files else f"holds more than {FILES} files"
        raise Failure(f"{path} {why}", hint="ollamactl bundle FILE.tar.gz makes one", code=Exit.USAGE, id="usage")
    files.sort(key=lambda p: _LOGS.search(p.name) is not None)
    parts: list[bytes] = []
    places: list[tuple[int, str]] = []
    size = lines = 0
    for file in files:
        try:
            data = _read(file, SMALL - size - HEADING)
        except OSError:
            continue  # what cannot be read says nothing
        if _ENVIRON.fullmatch(data):
            data = data.replace(b"\0", b"\n")
        if not data.strip() or data.count(b"\0") > len(data) // 8:
            continue
        name = str(file.relative_to(path))
        places.append((lines + 1, name))
        data = heading(name, data[:4096].decode("utf-8", "replace")).encode() + b"\n" + data.rstrip(b"\n") + b"\n\n"
        parts.append(data)
        size, lines = size + len(data), lines + data.count(b"\n")
    return Joined(b"".join(parts), tuple(places) or ((0, path.name),))


def _read(file: Path, room: int) -> bytes:
    with file.open("rb") as f:
        total = f.seek(0, 2)
        f.seek(max(0, total - max(room, 0)))
        data = f.read(max(room, 0))
    if total > len(data):
        data = data[data.find(b"\n") + 1 :]  # from a whole line on
    if file.suffix == ".json" and data[:1] in (b"{", b"[") and data.count(b"\n") > 1:
        try:
            return _one_line(msgspec.json.decode(data))
        except msgspec.DecodeError:
            return data
    return data


def _one_line(value: object) -> bytes:
    """A reply of the API on one line; anything else as people paste it, a field a line."""
    plain = msgspec.json.encode(value)
    if isinstance(value, dict) and ("models" in value or "version" in value):
        return plain
    return msgspec.json.format(plain, indent=4)
