"""The environment that systemd passes at the next start, computed from the files in systemd's own order.

Later layers win; systemd.exec(5), "Environment Variables in Spawned Processes":

    manager           DefaultEnvironment=, `systemctl set-environment`, the locale and PATH of the manager
    service           what systemd itself adds: USER and HOME of User=, RUNTIME_DIRECTORY, INVOCATION_ID, …
    pass              PassEnvironment=, from the environment of the manager's own process
    environment       Environment= in the order of files and lines; an empty one drops those before it
    environment-file  EnvironmentFile= after all of those, in their order; an empty one drops those before it
    unset             UnsetEnvironment=, by name or by NAME=value
    wrapper           `env`, a shell line, … before the program in ExecStart=
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from ollamactl.core import envlayers
from ollamactl.core.envlayers import SET_AT_START, Extra, Layers
from ollamactl.core.facts import Effective, EnvFile, Origin, Service, UnitFile
from ollamactl.core.parse import unitfile
from ollamactl.core.parse.specifiers import expand, unit_context
from ollamactl.core.source import Missing

__all__ = [
    "SET_AT_START",
    "EnvFileRef",
    "Explanation",
    "Extra",
    "assemble",
    "context",
    "effective",
    "explain",
    "files_to_read",
]


class EnvFileRef(msgspec.Struct, frozen=True):
    """One `EnvironmentFile=` that is in force: a path or glob, without the `-`."""

    pattern: str
    optional: bool
    declared_in: str
    declared_line: int

    @property
    def is_glob(self) -> bool:
        return any(char in self.pattern for char in "*?[\\")


class Explanation(msgspec.Struct, frozen=True):
    """Who wins for one variable, and who lost, oldest first. `winner` is None where nothing names it."""

    name: str
    value: str | None
    winner: Origin | None
    losers: tuple[tuple[str, Origin], ...] = ()
    text: str = ""


def context(service: Service, extra: Extra) -> dict[str, str]:
    """Values of specifiers by letter."""
    return unit_context(
        service.id, fragment=service.fragment_path, manager=service.manager, more=extra.specifiers
    )


def files_to_read(unit_files: Sequence[UnitFile], letters: Mapping[str, str]) -> tuple[EnvFileRef, ...]:
    """The `EnvironmentFile=` lines in force, in the order of reading. A path with a specifier whose value is
    not known keeps the specifier, so that its file is missing, and said to be."""
    refs: list[EnvFileRef] = []
    for value, file, line in unitfile.values(tuple(unit_files), "Service", "EnvironmentFile"):
        if not value:
            refs.clear()
            continue
        path = expand(value, letters).text or value
        refs.append(EnvFileRef(_simplify(path.removeprefix("-")), path[:1] == "-", file.path, line.line))
    return tuple(refs)


def assemble(
    refs: Sequence[EnvFileRef],
    paths: Callable[[str], Sequence[str]],
    read: Callable[[EnvFileRef, str], EnvFile],
) -> tuple[EnvFile, ...]:
    """The files behind `refs`, in systemd's order. `paths` gives the matches of a glob, sorted by their
    bytes; `read` makes one file's record: envfile.parse, or one with `missing` set."""
    made: list[EnvFile] = []
    for ref in refs:
        found = paths(ref.pattern) if ref.is_glob else [ref.pattern]
        made += [read(ref, path) for path in found]
        if not found:
            made.append(
                EnvFile(
                    path=ref.pattern,
                    declared_in=ref.declared_in,
                    declared_line=ref.declared_line,
                    optional=ref.optional,
                    missing=Missing("absent", "no file of this pattern"),
                )
            )
    return tuple(made)


def effective(
    service: Service,
    unit_files: Sequence[UnitFile],
    env_files: Sequence[EnvFile],
    manager_environment: Mapping[str, str] | None,
    extra: Extra | None = None,
) -> Effective:
    """Compute the environment from files in systemd's order (main unit, then DropInPaths).

    A removed variable has the value None. A variable whose value can't be known here is left out, and
    `problems` says so, except for those that systemd itself sets at each start (SET_AT_START, and what User=
    brings where `extra` does not tell). Values are exact; bytes that are not UTF-8 are surrogates.
    """
    extra = extra or Extra()
    files = tuple(f for f in unit_files if f.missing is None)
    letters = context(service, extra)
    layers = Layers()
    problems = [f"{f.path}: {f.missing}" for f in unit_files if f.missing is not None]
    for file in files:
        if file.role == "main" and (broken := unitfile.stop(file)):
            problems.append(f"{file.path}:{broken.line}: {broken.why}; the service can't start")
    if manager_environment is None:
        problems.append("the manager's own environment is not known")
    for name, value in (manager_environment or {}).items():
        layers.put(name, value, Origin(layer="manager"))
    problems += envlayers.service(layers, service, files, letters, extra)
    problems += envlayers.passed(layers, files, letters, extra)
    problems += envlayers.environment(layers, files, letters)
    problems += envlayers.env_files(layers, env_files)
    problems += envlayers.unset(layers, files, letters)
    programs, said = envlayers.wrapper(layers, service, files, letters, extra.program)
    problems += said
    for name, variable in layers.unknown.items():
        if variable.origin.layer != "service":
            problems.append(f"{name} is set {_place(variable.origin)} to a value that is not known here")
    return Effective(variables=layers.made, problems=tuple(dict.fromkeys(problems)), wrapper=programs)


def explain(found: Effective, name: str) -> Explanation:
    """The winning and the losing origins of one variable, and a sentence of them."""
    variable = found.variables.get(name)
    if variable is None:
        told = next((p for p in found.problems if p.startswith(name + " ")), "")
        return Explanation(name, None, None, (), told or f"nothing sets {name}")
    said = f"{name} is {'removed' if variable.value is None else repr(variable.value)} {_place(variable.origin)}"
    for value, origin in reversed(variable.shadowed):
        said += f"; {value!r} {_place(origin)} does not count"
    return Explanation(name, variable.value, variable.origin, variable.shadowed, said)


def _place(origin: Origin) -> str:
    if origin.file:
        return f"by {origin.file}:{origin.line}"
    names = {"manager": "by the manager's environment", "service": "by systemd itself"}
    return names.get(origin.layer, f"by {origin.layer}")


def _simplify(path: str) -> str:
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))
