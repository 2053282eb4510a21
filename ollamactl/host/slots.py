"""Where the slots of a model's runner can be seen, behind an address of this machine."""

from __future__ import annotations

import msgspec
import psutil

from ollamactl.core.facts import Listener, Process, Runner
from ollamactl.core.feeds import Collector
from ollamactl.core.plan import full_name
from ollamactl.core.source import Host, Missing, native
from ollamactl.host.wire import Target


def is_here(where: Target) -> bool:
    """Whether an address is one of this machine's."""
    ip = str(where.address[0])
    if ip.startswith("127.") or ip == "::1":
        return True
    return any(a.address.split("%")[0] == ip for each in psutil.net_if_addrs().values() for a in each)


class Slots:
    """Finds the runner that serves a model behind an address of this machine. `why` says why there is none."""

    def __init__(self, host: Host, where: Target, model: str, server: Process | None = None) -> None:
        self.host, self.where, self.model = host, where, model
        self.server = server
        self.here = is_here(where)
        self.why = "" if self.here else f"{where.name} is another machine"
        self.port: int | None = None

    def __call__(self, again: bool = True) -> int | None:
        """The runner's port: the last one that was found, or looked for `again` (which takes a moment)."""
        if again:
            self.port = self._find() if self.here else None
        return self.port

    def _find(self) -> int | None:
        collector = Collector(self.host)
        process = self.server or self._server(collector)
        if process is None:
            return None
        collector.known["process"] = process
        name = f"[{self.where.name}]" if ":" in self.where.name else self.where.name
        collector.known["address"] = f"{name}:{self.where.address[1]}"
        for field in ("service", "start"):  # this is about a process, whoever started it
            collector.missing[field] = Missing("unasked")
        found: tuple[Runner, ...] = collector.get("runners") or ()
        mine = [r for r in found if r.name == full_name(self.model)] or [r for r in found if len(found) == 1]
        if not mine:
            self.why = "no runner of this model is to be seen"
            return None
        if mine[0].slot_list is None:
            hidden = "another process's port can't be told from its runner's (sudo shows it)"
            self.why = hidden if mine[0].port_owned is None else "its runner has no /slots"
            return None
        self.why = ""
        return mine[0].port

    def _server(self, collector: Collector) -> Process | None:
        port = self.where.address[1]
        listening: tuple[Listener, ...] = collector.get("listeners") or ()
        owners = {x.pid for x in listening if x.port == port and x.pid is not None}
        if not owners:
            self.why = f"who listens on port {port} can't be seen (sudo shows it)"
            return None
        reading = self.host.read(native("process", str(min(owners))))
        try:
            return msgspec.json.decode(reading.body or b"", type=Process)
        except (msgspec.DecodeError, msgspec.ValidationError):
            self.why = f"the process on port {port} can't be seen"
            return None
