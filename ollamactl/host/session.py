"""Who sits at the screen of a Mac, and who asks: JSON of `facts.Session`."""

from __future__ import annotations

import os

import msgspec

from ollamactl.core.facts import Session


def session() -> bytes:
    """The owner of /dev/console is the user at the screen; root owns it while nobody is logged in. XDG_CONFIG_HOME
    counts only where that user asks: sudo does not hand it on."""
    import pwd

    euid = os.geteuid()
    console: int | None = None
    try:
        console = os.stat("/dev/console").st_uid or None
    except OSError:
        console = None
    who = console if console is not None else euid
    try:
        account = pwd.getpwuid(who)
        user, home = account.pw_name, account.pw_dir
    except KeyError:
        user, home = str(who), ""
    own = os.environ.get("XDG_CONFIG_HOME", "") if who == euid else ""
    return msgspec.json.encode(Session(euid=euid, uid=console, user=user, home=home, config_home=own))
