"""What we manage of one unit: read back from our own files, and what a request makes of it."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from ollamactl.core.facts import UnitFile
from ollamactl.core.parse import envfile, quoting, unitfile

DROPIN_NAME = "zz-ollamactl.conf"  # sorts after what `systemctl edit` and packages write
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Managed(msgspec.Struct, frozen=True):
    """Variables that ollamactl sets (`values`), keeps absent (`unset`); those of `in_file` stand in our
    environment file instead of the drop-in: an EnvironmentFile= of others sets them too, or they are secret."""

    values: dict[str, str] = {}
    unset: tuple[str, ...] = ()
    in_file: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.values and not self.unset


def dropin_path(unit: str) -> str:
    return f"/etc/systemd/system/{unit}.d/{DROPIN_NAME}"


def env_file_path(unit: str) -> str:
    return f"/etc/ollamactl/{unit}.env"


def managed(unit: str, dropin: str | None, env_file: str | None) -> Managed:
    """Our own files, read back. Absent files (None) manage nothing."""
    values: dict[str, str] = {}
    unset: list[str] = []
    in_file: list[str] = []
    if dropin is not None:
        for line in unitfile.parse(dropin_path(unit), dropin, "dropin").assignments:
            if line.section != "Service":
                continue
            if line.key == "Environment":
                for item in quoting.split_environment(line.value):
                    name, _, value = item.partition("=")
                    values[name] = value.replace("%%", "%")
            elif line.key == "UnsetEnvironment":
                unset.extend(quoting.split_environment(line.value))
    if env_file is not None and dropin is not None and f"EnvironmentFile=-{env_file_path(unit)}" in dropin:
        for entry in envfile.parse(env_file).entries:
            values[entry.name] = entry.value
            in_file.append(entry.name)
    return Managed(values, tuple(unset), tuple(in_file))


def merged(
    now: Managed,
    *,
    set: dict[str, str],
    unset: Iterable[str] = (),
    release: Iterable[str] = (),
    in_file: Iterable[str] = (),
) -> Managed:
    """What is managed after a request: later statements about a name replace earlier ones."""
    gone = {*unset, *release}
    values = {k: v for k, v in now.values.items() if k not in gone and k not in set} | set
    absent = [n for n in now.unset if n not in values and n not in release]
    absent += [n for n in unset if n not in absent and n not in values]
    kept = {n for n in (*now.in_file, *in_file) if n in values}
    return Managed(dict(sorted(values.items())), tuple(sorted(absent)), tuple(sorted(kept)))


def environment_lines(state: Managed) -> list[str]:
    """The quoted right-hand sides of our Environment= lines."""
    return [quoting.quote_environment(n, v) for n, v in state.values.items() if n not in state.in_file]


def env_file_lines(state: Managed) -> list[str]:
    """The lines of our environment file, quoted for systemd's reader of such files."""
    return [envfile.quote(n, state.values[n]) for n in state.in_file]


def with_file(files: tuple[UnitFile, ...], path: str, text: str | None) -> tuple[UnitFile, ...]:
    """The unit's files as they will be when `path` holds `text` (None: removed). A new drop-in takes its place
    by file name, as systemd sorts them; one that is there keeps the place that systemd gave it."""
    if text is None:
        return tuple(f for f in files if f.path != path)
    new = msgspec.structs.replace(unitfile.parse(path, text, "dropin"), text=text)
    if any(f.path == path for f in files):
        return tuple(new if f.path == path else f for f in files)
    name = path.rsplit("/", 1)[-1]
    place = next(
        (i for i, f in enumerate(files) if f.role == "dropin" and f.path.rsplit("/", 1)[-1] > name), len(files)
    )
    return (*files[:place], new, *files[place:])
