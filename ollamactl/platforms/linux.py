"""A Linux host run by systemd: our files for a unit, and the manager that restarts it."""

from __future__ import annotations

import os

from ollamactl.core import dropin
from ollamactl.core.dropin import Managed
from ollamactl.core.facts import Facts
from ollamactl.core.feeds import Collector
from ollamactl.core.ours import Ours
from ollamactl.core.ours_systemd import UnitFiles
from ollamactl.core.source import Host, file
from ollamactl.errors import Exit, Failure
from ollamactl.host.serving import Manager
from ollamactl.platforms import templates

__all__ = ["manager", "may_change", "must_be_root", "ours", "own_files", "render"]


def render(unit: str, managed: Managed) -> tuple[str | None, str | None]:
    """Texts of the drop-in and of the environment file that hold what is managed; None where none is needed.
    Raises Failure (usage) for a value that systemd's files can't hold."""
    if managed.empty:
        return None, None
    try:
        environment, assignments = dropin.environment_lines(managed), dropin.env_file_lines(managed)
    except ValueError as error:
        raise Failure(str(error), hint="a value is one line of text", code=Exit.USAGE, id="value_refused") from None
    text = templates.render(
        "systemd/dropin.conf.j2",
        unit=unit,
        environment=environment,
        env_file=dropin.env_file_path(unit) if managed.in_file else "",
        unset=managed.unset,
    )
    if not managed.in_file:
        return text, None
    return text, templates.render("systemd/environment.j2", unit=unit, assignments=assignments)


def own_files(host: Host, unit: str) -> tuple[str | None, str | None]:
    """Our drop-in and environment file as they are. Raises Failure where they are there and can't be read."""

    def text(path: str) -> str | None:
        reading = host.read(file(path))
        if reading.missing is None:
            return reading.text
        if reading.missing.kind == "absent":
            return None
        raise Failure(f"{path}: {reading.missing}", hint="run it with sudo", code=Exit.UNSEEN, id="denied")

    return text(dropin.dropin_path(unit)), text(dropin.env_file_path(unit))


def ours(collector: Collector, facts: Facts) -> Ours:
    """Our files of the unit that `facts` are of. Raises Failure where they are there and can't be read."""
    assert facts.service is not None
    own = own_files(collector.host, facts.service.id)
    return UnitFiles(facts, collector.host, collector.need("extra"), own, render)


def manager(host: Host) -> Manager:
    """What changes a service. Raises Failure where that takes a library that is not installed."""
    from ollamactl.platforms.systemd import Systemd

    return Systemd()


def may_change(host: Host, unit: str, command: str) -> None:
    """Raises Failure where this process may not change the host."""
    must_be_root(command)


def must_be_root(command: str) -> None:
    if os.geteuid() != 0:
        raise Failure("this change needs root", hint=f"sudo {command}", code=Exit.UNSEEN, id="denied")
