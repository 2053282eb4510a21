"""A container of a compose project: the file for values that win, what ours holds, and the commands.

Compose merges the files that it is given from left to right, `environment` key by key; beside the project's only file
it reads `compose.override.yaml` by itself, so that is ours. `!reset` takes a key away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ollamactl.core.dropin import Managed
from ollamactl.core.facts import Compose

WAY = "compose:"  # how such a server is named: compose:CONTAINER
MARK = "# Written by ollamactl:"
_LINE = re.compile(r'^      ([A-Za-z_][A-Za-z0-9_]*): (?:(?P<value>".*")|!reset null)$')


def override_file(project: Compose) -> str:
    """The file for values that win: the one that compose reads by itself after the project's only file, or the last
    of several."""
    base = project.files[-1] if project.files else f"{project.folder}/compose.yaml"
    if len(project.files) > 1:
        return base
    folder, _, name = base.rpartition("/")
    stem, dot, end = name.rpartition(".")
    usual = stem in ("compose", "docker-compose")
    return f"{folder or project.folder}/{stem}.override.{end}" if usual and dot else base


def ours(text: str | None) -> bool:
    return text is not None and text.startswith(MARK)


def managed(text: str | None) -> Managed:
    """What our file holds; nothing, where it is not ours."""
    values: dict[str, str] = {}
    unset: list[str] = []
    for line in (text or "").splitlines() if ours(text) else ():
        if found := _LINE.match(line):
            if found["value"] is None:
                unset.append(found[1])
            else:
                values[found[1]] = msgspec.json.decode(found["value"], type=str).replace("$$", "$")
    return Managed(values, tuple(unset))


def quoted(value: str) -> str:
    """A value as YAML that compose takes for itself: JSON, and no `$` of it is a variable. Raises ValueError for text
    that YAML can't hold."""
    if re.search("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff]", value):
        raise ValueError("a control character or bytes that are no text")
    return escaped(value)


def escaped(value: str) -> str:
    """The same for a text to be read: what YAML can't hold is shown in its stead."""
    return msgspec.json.encode(value.encode("utf-8", "replace").decode().replace("$", "$$")).decode()


def argv(project: Compose, files: tuple[str, ...], *words: str) -> tuple[str, ...]:
    """A compose command for just these files."""
    where = ("--project-directory", project.folder) if project.folder else ()
    named = (w for f in files for w in ("-f", f))
    return ("docker", "compose", "-p", project.project, *where, *named, *words)


def without(project: Compose, own: str) -> tuple[str, ...]:
    """The project's files that are not ours."""
    return tuple(f for f in project.files if f != own)


def passed(body: bytes, service: str) -> dict[str, str] | None:
    """The environment of `compose config --format json`, which writes `$$` for `$`; None where it is no such
    document."""
    try:
        found: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    services = found.get("services") if isinstance(found, dict) else None
    one = services.get(service) if isinstance(services, dict) else None
    if not isinstance(one, dict):
        return None
    given = one.get("environment")
    return {n: str(v).replace("$$", "$") for n, v in given.items() if v is not None} if isinstance(given, dict) else {}


def image_environment(body: bytes) -> dict[str, str]:
    """The variables that an image sets itself, of `docker image inspect`."""
    try:
        found: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return {}
    first = found[0] if isinstance(found, list) and found else None
    config = first.get("Config") if isinstance(first, dict) else None
    given = config.get("Env") if isinstance(config, dict) else None
    pairs = (e.partition("=") for e in given or () if isinstance(e, str) and "=" in e)
    return {name: value for name, _, value in pairs}


def together(image: Mapping[str, str], base: Mapping[str, str], after: Managed) -> dict[str, str]:
    """What a container gets: its image's, its project's, then what we manage."""
    return {**image, **{n: v for n, v in base.items() if n not in after.unset}, **after.values}
