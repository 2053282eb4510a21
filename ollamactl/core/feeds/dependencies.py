"""Facts of what the service stands on within systemd: units that it cannot be without, and the slices above it.

Both ask systemd only where the unit's files, or its place, name something beyond the usual.
"""

from __future__ import annotations

from ollamactl.core.facts import Service, Slice, UnitFile, UnitName
from ollamactl.core.feeds.collector import Collector, feed
from ollamactl.core.parse import systemctl
from ollamactl.core.parse.quoting import split_shown
from ollamactl.core.parse.unitkeys import REQUIRING
from ollamactl.core.source import command

USUAL = ("system.slice", "-.slice")
_STATES = ("Id", "LoadState", "ActiveState", "SubState")
_LIMITS = ("Id", "MemoryMax", "MemoryHigh", "CPUQuotaPerSecUSec")


def _shown(c: Collector, names: list[str], properties: tuple[str, ...]) -> list[str]:
    """What systemd tells of each of these units."""
    asked = f"--property={','.join(properties)}"
    reading = c.read(command("env", "LC_ALL=C", "systemctl", "show", "--no-pager", asked, "--", *names, any_exit=True))
    return reading.text.strip().split("\n\n") if reading.missing is None else []


@feed
def required(c: Collector) -> tuple[UnitName, ...]:
    """Units that the service's files name in Requires=, BindsTo= or Requisite=."""
    files: tuple[UnitFile, ...] = c.need("unit_files")
    lines = [one.value for file in files for one in file.assignments if one.section == "Unit" and one.key in REQUIRING]
    names = [name for value in lines for name in split_shown(value) if "%" not in name and not name.startswith("-")]
    if not names:
        return ()
    units = [systemctl.parse_show(block) for block in _shown(c, list(dict.fromkeys(names)), _STATES)]
    return tuple(UnitName(name=u.id, load=u.load_state, active=u.active_state, sub=u.sub_state) for u in units)


@feed
def slices(c: Collector) -> tuple[Slice, ...]:
    """Slices that the service runs in and whose limits hold for it too, the outermost first."""
    has: Service = c.need("service")
    above = [part for part in has.control_group.split("/")[1:-1] if part.endswith(".slice") and part not in USUAL]
    return tuple(map(systemctl.parse_slice, _shown(c, above, _LIMITS))) if above else ()
