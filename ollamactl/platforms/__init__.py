"""What differs between systems: who may change a service, our files for it, and the manager that restarts it."""

from __future__ import annotations

from typing import Protocol

from ollamactl.core.facts import Facts
from ollamactl.core.feeds import Collector
from ollamactl.core.ours import Ours
from ollamactl.core.source import Host
from ollamactl.host.serving import Manager


class Platform(Protocol):
    """A module of this package."""

    def may_change(self, host: Host, unit: str, command: str) -> None:
        """Raises Failure where this process may not change what starts the server. It may leave and not come back:
        as the user whose services these are, the same command begins anew."""
        ...

    def ours(self, collector: Collector, facts: Facts) -> Ours:
        """Our files of the server that `facts` are of."""
        ...

    def manager(self, host: Host) -> Manager:
        """What restarts it."""
        ...


def of(host: Host, unit: str = "") -> Platform:
    """The platform of a host, or of a container that is named like a unit."""
    if unit.startswith("compose:"):
        from ollamactl.platforms import compose

        return compose
    found = Collector(host).get("system")
    if found is not None and found.os == "darwin":
        from ollamactl.platforms import darwin

        return darwin
    from ollamactl.platforms import linux

    return linux
