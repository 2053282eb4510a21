"""Settings of Ollama that stand where the service does not read them: files beside its drop-ins, people's shells."""

from __future__ import annotations

import posixpath

import msgspec

from ollamactl.core.facts import Service, Stray
from ollamactl.core.feeds.collector import Collector, Unknown, feed
from ollamactl.core.parse import strays as parse
from ollamactl.core.source import Missing, command, listing

FOLDERS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system", "/etc/systemd")
USERS = ("/etc/systemd/user", "/root/.config/systemd/user", "/home/*/.config/systemd/user")
MANAGER = ("/etc/systemd/system.conf", "/etc/systemd/system.conf.d/*.conf", "/usr/lib/systemd/system.conf.d/*.conf")
KEYS = {"unit": "Environment", "user-unit": "Environment", "manager": "DefaultEnvironment"}
ENVIRONMENT_FILES = (
    "/etc/default/ollama*", "/etc/sysconfig/ollama*", "/etc/ollama/*", "/etc/ollama.*", "/etc/ollama",
)  # fmt: skip
SHELLS = (
    "/etc/environment", "/etc/profile", "/etc/bash.bashrc", "/etc/bashrc", "/etc/zsh/zshrc", "/etc/zshrc",
)  # fmt: skip
HOMES = ("/root", "/home/*")
SHELL_FOLDERS = ("/etc/profile.d/*.sh", "/etc/environment.d/*.conf")
IN_HOME = (
    ".bashrc", ".bash_profile", ".profile", ".zshrc", ".zprofile", ".zshenv", ".config/fish/config.fish",
    ".config/environment.d/*.conf",
)  # fmt: skip
MOST = 200  # files that are looked through


@feed
def strays(c: Collector) -> tuple[Stray, ...]:
    """Each with the reason why the service does not get it. Of a file only lines that name a variable of Ollama are
    read, by `grep`: what else people keep in their shells' files is nobody's business."""
    has: Service = c.need("service")
    if has.manager != "system":
        raise Unknown(Missing("unsupported", f"{has.id} is no unit of the system's manager"))
    read = {has.fragment_path, has.source_path, *has.dropin_paths, *(path for path, _ in has.environment_files)}
    groups: dict[str, list[str]] = {
        "unit": _named(c, [f"{folder}/{name}" for folder in FOLDERS for name in _near(has.id)]),
        "user-unit": _named(c, [f"{folder}/{_stem(has.id)}*.d/*" for folder in USERS]),
        "manager": _named(c, MANAGER),
        "env-file": _named(c, ENVIRONMENT_FILES),
        "shell": [*SHELLS, *_named(c, SHELL_FOLDERS), *_named(c, [f"{h}/{n}" for h in HOMES for n in IN_HOME])],
    }  # fmt: skip
    kinds = {path: kind for kind, paths in groups.items() for path in paths if path not in read}
    paths = [path for path in list(kinds)[:MOST] if not _of_other_unit(c, path, has.id)]
    found = c.read(command("grep", "-sHnE", parse.PATTERN, "--", *paths, any_exit=True, timeout=4.0))
    if found.missing is not None:
        raise Unknown(found.missing)
    return tuple(
        Stray(name=name, value=value, path=path, line=line, text=text, kind=kinds[path])
        for path, line, text in parse.lines(found.text)
        if path in kinds
        for name, value in parse.assignments(text, only=KEYS.get(kinds[path], ""))
    )


def _named(c: Collector, patterns: list[str] | tuple[str, ...]) -> list[str]:
    """Paths that may be there: a pattern is looked up, a plain path is left to `grep`."""
    found = [pattern for pattern in patterns if "*" not in pattern]
    for pattern in patterns:
        if "*" not in pattern:
            continue
        reading = c.read(listing(pattern))
        if reading.body and reading.missing is None:
            found += msgspec.json.decode(reading.body, type=list[str])
    return found


def _near(unit: str) -> tuple[str, ...]:
    """Names of what is meant for a unit: its folder, also misspelt, and files that stand outside of it."""
    stem = _stem(unit)
    wide = f"{stem[:2]}*{stem[-2:]}" if stem == "ollama" else stem
    first = f"[{wide[0].lower()}{wide[0].upper()}]{wide[1:]}"
    return f"{first}*.d/*", f"{first}*.conf"


def _stem(unit: str) -> str:
    return unit.removesuffix(".service")


def _of_other_unit(c: Collector, path: str, unit: str) -> bool:
    """Whether it is a drop-in of another unit that is there."""
    folder = posixpath.basename(posixpath.dirname(path)).removesuffix(".d")
    return folder != unit and folder.endswith(".service") and any(u.name == folder for u in c.get("units") or ())
