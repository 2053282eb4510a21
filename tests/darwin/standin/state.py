"""What the stand-ins of macOS programs keep: one JSON file in the world's folder ($MAC_ROOT), behind a lock.

    console       uid of the user at the screen, 0 for nobody
    domains       gui/UID, user/UID, system: environment, services by label, disabled by label
    dropped       label -> when it was booted out (launchd refuses it for a while after that)
"""

from __future__ import annotations

import contextlib  # what is imported here is imported for every single question to launchctl: no more than that
import fcntl
import json
import os

# What is started from a login's own environment has no such variable; its PATH begins with the world's folder.
ROOT = os.environ.get("MAC_ROOT") or os.path.dirname(os.environ["PATH"].split(":")[0])
FILE = f"{ROOT}/state.json"
HERE = os.path.dirname(os.path.realpath(__file__))


def euid() -> int:
    return int(os.environ.get("MAC_EUID", "501"))


@contextlib.contextmanager
def state():
    """The state, written back at the end."""
    with open(f"{ROOT}/state.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with open(FILE) as file:
            found = json.load(file)
        yield found
        beside = f"{FILE}.{os.getpid()}"
        with open(beside, "w") as file:
            json.dump(found, file, indent=1)
        os.rename(beside, FILE)


def alive(pid: int | None) -> bool:
    if not pid:
        return False
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
