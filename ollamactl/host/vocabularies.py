"""Where the vocabularies of model files end. Stepping over a quarter of a million texts is nearly all that reading a
header costs, so an apply remembers it: `/var/lib/ollamactl/vocabularies.json`, 0600, the newest LIMIT files.
"""

from __future__ import annotations

import os

import msgspec

from ollamactl.host import files
from ollamactl.host.journal import FOLDER

NAME = "vocabularies.json"
LIMIT = 64
_BYTES = 1 << 20

Ends = dict[int, int]  # offset of an array's first text in a file -> of the byte behind its last one
_found: dict[str, Ends] = {}  # of the files that this process has looked at, as they are now


def key(info: os.stat_result) -> str:
    """A file as it is: one that is written anew has another."""
    return f"{info.st_dev}:{info.st_ino}:{info.st_size}:{info.st_mtime_ns}"


def read(folder: str = FOLDER) -> dict[str, Ends]:
    """What was remembered, oldest first; nothing where that can't be read, which costs time only."""
    try:
        with open(os.path.join(folder, NAME), "rb") as f:
            return msgspec.json.decode(f.read(_BYTES), type=dict[str, Ends])
    except (OSError, msgspec.MsgspecError):
        return {}


def of(info: os.stat_result, folder: str = FOLDER) -> Ends:
    """The ends of one file, for a reader that also adds those that it finds."""
    return _found.setdefault(key(info), dict(read(folder).get(key(info), {})))


def store(folder: str = FOLDER) -> None:
    """Remembers what this process has found; the caller holds the lock of the folder. Raises OSError."""
    before = read(folder)
    new = {name: ends for name, ends in _found.items() if ends and before.get(name) != ends}
    if new:
        kept = dict(list({**before, **new}.items())[-LIMIT:])
        files.sweep(folder, NAME)
        files.write(os.path.join(folder, NAME), msgspec.json.encode(kept), 0o600)
