"""`ollamactl` on the Mac of a world (world.py): only the door to the machine says that it is one; what is read and
changed are the world's files and the stand-ins' answers."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

ROOT = os.environ["MAC_ROOT"]
PLACES = ("/Applications/", "/usr/local/", "/opt/homebrew/")


def euid() -> int:
    return int(os.environ.get("MAC_EUID", "501"))


def main() -> None:
    from ollamactl.core import launchd
    from ollamactl.core.facts import Session, System
    from ollamactl.core.source import Reading, Source
    from ollamactl.host import journal, live

    class MacHost(live.LiveHost):
        def read(self, source: Source) -> Reading:
            if source.kind == "native" and source.args[0] in ("system", "session"):
                made = system() if source.args[0] == "system" else session()
                return Reading(source.key, msgspec.json.encode(made))
            if source.kind in ("file", "stat", "list", "command") and source.args[0].startswith(PLACES):
                source = msgspec.structs.replace(source, args=(ROOT + source.args[0], *source.args[1:]))
            reading = super().read(source)
            if source.kind == "native" and source.args[0] == "servers":  # of this world only
                mine = [p for p in json.loads(reading.body or b"[]") if p.get("exe", "").startswith(ROOT)]
                reading = msgspec.structs.replace(reading, body=json.dumps(mine).encode())
            if source.kind == "native" and source.args[0] == "process" and os.environ.get("MAC_HIDDEN"):
                one: dict[str, Any] = json.loads(reading.body or b"{}")
                one.pop("environ", None)
                reading = msgspec.structs.replace(reading, body=json.dumps(one).encode())
            return reading

    def system() -> System:
        kernel = os.environ.get("MAC_KERNEL", "24.6.0")
        return System(os="darwin", kernel=kernel, arch="arm64", hostname="mac.local", distribution="macOS 15.6",
                      init="launchd", euid=euid(), cpus=12)  # fmt: skip

    def session() -> Session:
        console = json.loads(Path(ROOT, "state.json").read_text())["console"] or None
        me = f"{ROOT}/Users/me"
        own = os.environ.get("XDG_CONFIG_HOME", "") if euid() == console else ""
        return Session(euid=euid(), uid=console, user="me", home=me, config_home=own)

    live.LiveHost = MacHost  # type: ignore[misc]
    launchd.DAEMONS, launchd.AGENTS = f"{ROOT}/Library/LaunchDaemons", f"{ROOT}/Library/LaunchAgents"
    journal.FOLDER = f"{ROOT}/var/ollamactl-{euid()}"
    from ollamactl import cli

    cli.OPEN = (f"{journal.FOLDER}/open.json",)
    cli.main(sys.argv[1:])
