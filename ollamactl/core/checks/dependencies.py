"""Units without which systemd does not start the service, or ends it."""

from __future__ import annotations

from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, assignments, check, stated
from ollamactl.core.checks.service import LOOP
from ollamactl.core.facts import Service, UnitFile, UnitName
from ollamactl.core.needs import NO_SIGNS, Signs
from ollamactl.core.parse.unitkeys import REQUIRING
from ollamactl.core.remedies import edited

UNUSABLE = {
    "not-found": "is not there",
    "masked": "is masked",
    "error": "can't be loaded",
    "bad-setting": "is refused",
}


@check(weight=93, explains=(*LOOP, "service_not_started_at_boot", "config_newer_than_process"))
def required_unit_missing(
    service: Service, required: tuple[UnitName, ...], unit_files: tuple[UnitFile, ...], signs: Signs = NO_SIGNS
) -> Iterator[Finding]:
    """A unit that the service requires is not there, or not active.

    Why: with Requires=, BindsTo= or Requisite= systemd starts the service only together with that unit; one that runs
    already goes on until it is next restarted, and with BindsTo= it ends with the other.
    Seen: the line of the unit's file, and what systemd knows of that name.
    Do: take the line out, or bring that unit up; Wants= starts the other where it is there, and does without it.
    """
    runs = service.active_state in ("active", "activating", "reloading")
    for unit in required:
        down = unit.active in ("inactive", "failed") and not runs
        if unit.load not in UNUSABLE and not down:
            continue
        lines = [
            (file, one)
            for key in REQUIRING
            for file, one in assignments(unit_files, key, "Unit")
            if unit.name in one.value.split()
        ]
        state = UNUSABLE.get(unit.load) or f"is {unit.active}"
        said = f"{service.id} requires {unit.name}, which {state}"
        said += ": it runs still, and its next start will fail" if runs else ": systemd does not start it"
        start = f"sudo systemctl start {unit.name} {service.id}    # or: " if unit.load == "loaded" else ""
        edit = edited(*(file.path for file, _ in lines), unit=service.id)
        shown = (f"systemctl show {unit.name}: LoadState={unit.load} ActiveState={unit.active}",)
        told = signs.lines("unit:dependency_failed", most=1)
        fix = start + edit + ("" if start else f"    # without {unit.name}")
        yield Finding(
            "warning" if runs else "error", said, (*(stated(file, one) for file, one in lines), *shown, *told), fix
        )
