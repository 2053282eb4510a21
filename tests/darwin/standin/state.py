"""What the stand-ins of macOS programs keep: one JSON file in the world's folder ($MAC_ROOT), behind a lock.

    console       uid of the user at the screen, 0 for nobody
    domains       gui/UID, user/UID, system: environment, services by label, disabled by label
    dropped       label -> when it was booted out (launchd refuses it for a while after that)
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# What is started from a login's own environment has no such variable; its PATH begins with the world's folder.
ROOT = Path(os.environ.get("MAC_ROOT") or Path(os.environ["PATH"].split(":")[0]).parent)
FILE = ROOT / "state.json"
HERE = Path(__file__).resolve().parent


def euid() -> int:
    return int(os.environ.get("MAC_EUID", "501"))


@contextlib.contextmanager
def state() -> Iterator[dict[str, Any]]:
    """The state, written back at the end."""
    with open(ROOT / "state.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found: dict[str, Any] = json.loads(FILE.read_text())
        yield found
        beside = FILE.with_suffix(f".{os.getpid()}")
        beside.write_text(json.dumps(found, indent=1))
        beside.rename(FILE)


def alive(pid: int | None) -> bool:
    if not pid:
        return False
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
