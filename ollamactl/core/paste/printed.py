"""What the commands of a paste printed that has no form of its own: lines of files, and environments."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core.facts import EnvFile, Process, UnitFile
from ollamactl.core.parse import envfile, unitfile
from ollamactl.core.paste import screens

_ENVIRON = re.compile(r"/proc/(?:(?P<pid>\d+)|\$?\([^()]*\)|`[^`]*`|[^/\s]*)/?environ\b")
_SHELL = re.compile(
    r"(?:sudo )?(?:systemctl --user show-environment|env|printenv|export -p|declare -x|set)\b(?: *\||$)"
)
_PROFILE = re.compile(r"/etc/environment$|/etc/profile\b|\.(?:bashrc|zshrc|profile|bash_profile|zprofile|zshenv)$")
_ENVIRONMENT = re.compile(r"/etc/(?:default|sysconfig|conf\.d)/ollama\b|/etc/ollama\b")
_ASSIGNED = re.compile(r"\s*(?:export )?(?P<name>[A-Za-z_]\w*)=(?P<value>.*?)\s*$")


_ECHOED = re.compile(
    r"(?:echo|printf '%s\\n') \"?\$\{?(?P<name>[A-Z]\w+)\}?\"?\s*$|printenv (?P<printed>[A-Z]\w+)\s*$"
)
_VALUE_ONLY = re.compile(r"systemctl\b.*\bshow\b")
_PROPERTY = re.compile(r"(?:-p|-P|--property)[ =]?(?P<name>[A-Z]\w+)(?!\S)")


class Printed:
    """The screen that is being read: begun by each prompt, given every line below it."""

    def __init__(self) -> None:
        self.command = ""
        self._named = ""  # the command whose one value was read
        self._path = ""
        self._environ: tuple[int, dict[str, str]] | None = None
        self._files: dict[str, list[tuple[int, str]]] = {}

    def begin(self, command: str) -> None:
        self.command = command
        self._named = ""
        self._path = screens.opened(command)
        found = _ENVIRON.search(command)
        if found and not re.search(r"\bgrep\b", command):  # of a part of it nothing tells what is unset
            self._environ = (int((found["pid"] or "0")[:9]), {})

    def take(self, number: int, line: str) -> None:
        if self._path and "/environ" not in self._path:
            self._files.setdefault(self._path, []).append((number, line))
        if self._environ is None or not _ENVIRON.search(self.command):
            return
        if found := _ASSIGNED.match(line):
            self._environ[1].setdefault(found["name"], found["value"])

    def named(self, line: str) -> str:
        """A line with the name that only the command has: of a variable that is echoed, of a property."""
        command, text = self.command, line.strip()
        if not text or self._named == command:
            return line
        if found := _ECHOED.match(command):
            self._named = command
            return f"{found['name'] or found['printed']}={text}"
        asked = _PROPERTY.findall(command)
        bare = "--value" in command or " -P" in command
        if bare and len(asked) == 1 and _VALUE_ONLY.search(command):
            self._named = command
            return f"{asked[0]}={text}"
        return line

    def scope(self, name: str, value: str) -> str:
        """Where an assignment on this screen is in force; empty where the command does not say."""
        if _ENVIRON.search(self.command):
            return "process"
        if not (_SHELL.match(self.command) or _ECHOED.match(self.command) or _PROFILE.search(self._path)):
            return ""
        return "client" if name == "OLLAMA_HOST" and "0.0.0.0" not in value else "shell"

    def process(self, pid: int) -> Process | None:
        """The server's process by its environment, where that was printed; `pid` is the service's own."""
        if self._environ is None or not self._environ[1] or (pid and self._environ[0] not in (0, pid)):
            return None
        return Process(pid=self._environ[0] or pid, environ=self._environ[1])

    def environment_files(self, files: tuple[UnitFile, ...]) -> tuple[EnvFile, ...]:
        """Those of the printed files that the unit reads, as systemd would. Numbers of lines are the paste's."""
        found = []
        for value, file, row in unitfile.values(files, "Service", "EnvironmentFile"):
            path = value.lstrip("-")
            lines = next((lines for name, lines in self._files.items() if screens.same_file(path, name)), None)
            if lines:
                text = "\n" * (lines[0][0] - 1) + "\n".join(text for _, text in lines) + "\n"
                found.append(envfile.parse(text, path, declared_in=file.path, declared_line=row.line))
        return tuple(found)

    def unnamed(self, files: tuple[UnitFile, ...]) -> Iterator[tuple[str, int, str, str]]:
        """(path, number of the line, name, value) of environment files of Ollama that were printed and that no unit's
        file names, where the unit itself was printed too."""
        if not any(file.role == "main" for file in files):
            return
        named = [value.lstrip("-") for value, _, _ in unitfile.values(files, "Service", "EnvironmentFile")]
        for path, lines in self._files.items():
            if _ENVIRONMENT.match(path) and not any(screens.same_file(path, one) for one in named):
                for number, line in lines:
                    if (found := _ASSIGNED.match(line)) and found["name"].startswith("OLLAMA_"):
                        yield path, number, found["name"], found["value"].strip("\"'")

    def lines_of(self, read: tuple[EnvFile, ...]) -> set[int]:
        """Numbers of the lines of these files."""
        return {entry.line for file in read for entry in file.entries}
