"""Homebrew's answers: `brew --version`, `brew services info ollama --json`, and the environment file of a formula."""

from __future__ import annotations

import re

import msgspec

from ollamactl.core.facts import BrewService, EnvFile, EnvFileEntry, UnitProblem
from ollamactl.core.source import Missing

LABEL = "homebrew.mxcl.ollama"
ENV_FILES_SINCE = (6, 0, 15)  # the first release that reads services/FORMULA.env and writes the plist anew each time


def parse_version(text: str) -> tuple[int, ...]:
    """`Homebrew 6.0.16-32-gabcdef0` → (6, 0, 16); empty where there is none."""
    found = re.search(r"^Homebrew\D{0,5}(\d{1,6}(?:\.\d{1,6})*)", text, re.M)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def parse_info(body: bytes) -> BrewService | None:
    """The entry of ollama; None where the text is no such list."""
    try:
        found = msgspec.json.decode(body, type=list[BrewService])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    return next((x for x in found if x.name.rpartition("/")[2] == "ollama"), None)


def parse_env_file(path: str, text: str, missing: Missing | None = None) -> EnvFile:
    """A formula's environment file, as brew reads it: lines are stripped, blank ones and those with # first dropped,
    the first = separates, both sides are stripped. No quotes, no `export`, no expansion; a later line wins."""
    entries: list[EnvFileEntry] = []
    problems: list[UnitProblem] = []
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not name:
            problems.append(UnitProblem(line=number, text=raw, why="brew skips a line without NAME=value"))
            continue
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            exported = name.startswith("export ")
            why = "brew takes `export` for a part of the name" if exported else "no name of a variable"
            problems.append(UnitProblem(line=number, text=raw, why=why))
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            problems.append(UnitProblem(line=number, text=raw, why="brew keeps the quotes in the value"))
        entries.append(EnvFileEntry(name=name, value=value, line=number))
    return EnvFile(path=path, optional=True, entries=tuple(entries), problems=tuple(problems), missing=missing)
