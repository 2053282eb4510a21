"""A Mac: who may change a server of launchd, and our file for it. Acts in the session of the user at the screen."""

from __future__ import annotations

import os
import sys

from ollamactl.core import launchd as rules
from ollamactl.core.dropin import Managed
from ollamactl.core.facts import Facts, Launch, Session
from ollamactl.core.feeds import Collector
from ollamactl.core.ours import Ours
from ollamactl.core.ours_launchd import LaunchdFiles, registered
from ollamactl.core.parse import plist
from ollamactl.core.source import Host, file
from ollamactl.errors import Exit, Failure
from ollamactl.host import journal
from ollamactl.host.serving import Manager
from ollamactl.platforms import templates


def ours(collector: Collector, facts: Facts) -> Ours:
    """Our file of the server that `facts` are of. Raises Failure where it is there and can't be read."""
    launch: Launch = collector.need("launch")
    app = collector.get("app_settings") if launch.kind == "app" else None
    theirs = _read(collector.host, launch.plist) if launch.plist else None
    text = _read(collector.host, launch.own_file)
    wrote = registered(theirs) if launch.kind == "brew" and "/LaunchAgents/" in launch.plist else None
    text_now = None if text is None else text.decode("utf-8", "surrogateescape")
    return LaunchdFiles(facts, launch, text_now, theirs, render, app, wrote)


def _read(host: Host, path: str) -> bytes | None:
    reading = host.read(file(path, limit=1 << 20))
    if reading.missing is None:
        return reading.body or b""
    if reading.missing.kind == "absent":
        return None
    raise Failure(f"{path}: {reading.missing}", hint="run it with sudo", code=Exit.UNSEEN, id="denied")


def render(launch: Launch, managed: Managed, base: bytes | None) -> str:
    """The text of our plist."""
    kind = "session" if launch.holds == "session" else "service"
    environment: dict[str, str] = {}
    others = ""
    if kind == "service":
        theirs = plist.parse(base).environment if base is not None else {}
        environment = rules.merged_environment(theirs, managed)
        others = rules.other_keys(base, launch.program, launch.log)
    return templates.render(
        f"launchd/{kind}.plist.j2",
        label=launch.own_label,
        base=launch.plist.replace("--", "- -"),  # as a comment of XML can hold it
        values=managed.values,
        absent=managed.unset,
        secret=managed.in_file,
        environment=environment,
        others=others,
    )


def manager(host: Host) -> Manager:
    from ollamactl.platforms.launchd import Launchd

    return Launchd(host)


def may_change(host: Host, unit: str, command: str) -> None:
    """A daemon takes root. Everything else belongs to the user at the screen: under sudo the same command begins anew
    as that user, in that session. Raises Failure where there is none, or where it is somebody else."""
    collector = Collector(host, unit)
    session: Session | None = collector.get("session")
    if session is None:
        raise Failure(f"who is logged in is not known: {collector.missing['session']}", id="no_session")
    launch: Launch | None = collector.get("launch")
    if launch is not None and launch.domain == "system":
        if session.euid:
            raise Failure(
                f"{launch.unit} is a daemon: this change needs root", hint=f"sudo {command}", code=Exit.UNSEEN,
                id="denied",
            )  # fmt: skip
        return
    if not session.euid and (not unit or launch is None) and _interrupted_as_root():
        return
    if session.uid is None:
        raise Failure(
            "nobody is logged in at the screen of this Mac, so there is no session whose server could be changed",
            hint="log in there (screen sharing will do), then run it again", code=Exit.UNSEEN, id="no_session",
        )  # fmt: skip
    if not session.euid:
        _again_as(session.uid)
    if session.euid != session.uid:
        raise Failure(
            f"{session.user} is logged in at the screen, and these services are of that session",
            hint=f"sudo {command}", code=Exit.UNSEEN, id="denied",
        )  # fmt: skip


def _interrupted_as_root() -> bool:
    """A change of a daemon that root left open is root's to undo."""
    return journal.Store(journal.FOLDER).open_entry() is not None


def _again_as(uid: int) -> None:
    """This command anew, as the user at the screen and in that session. Does not return."""
    argv = ["launchctl", "asuser", str(uid), "sudo", "-u", f"#{uid}", "-H", *templates.program(), *sys.argv[1:]]
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        raise Failure(f"launchctl: {error.strerror}", hint="run it without sudo", id="no_session") from None
