"""The environment that a service is given, and where each variable comes from."""

from __future__ import annotations

from ollamactl.core.facts.record import Record


class Origin(Record, frozen=True, kw_only=True):
    """Where a variable's value comes from. `layer` is one of: manager, service (what systemd itself adds),
    pass, environment, environment-file, unset, wrapper; on a Mac also brew-file (brew's environment file) and app
    (Ollama.app's own settings)."""

    layer: str
    file: str = ""
    line: int = 0


class Variable(Record, frozen=True, kw_only=True):
    name: str
    value: str | None  # None: removed
    origin: Origin
    shadowed: tuple[tuple[str, Origin], ...] = ()  # earlier values that lost, oldest first


class Effective(Record, frozen=True, kw_only=True):
    """The environment that systemd will pass at the next start, computed in its order."""

    variables: dict[str, Variable]
    problems: tuple[str, ...] = ()  # what could not be computed, e.g. an unreadable environment file
    wrapper: tuple[str, ...] = ()  # programs in ExecStart before `ollama`

    def value(self, name: str) -> str | None:
        found = self.variables.get(name)
        return found.value if found else None
