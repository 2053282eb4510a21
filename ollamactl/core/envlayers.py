"""The layers of a service's environment, one function each: what lies over what is `environment.effective`'s.

Each function puts its assignments on `Layers` and returns what it can't know, in words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from ollamactl.core.facts import Assignment, EnvFile, Origin, Service, UnitFile, Variable
from ollamactl.core.parse import execstart, unitfile
from ollamactl.core.parse.quoting import is_assignment, is_env_name, split
from ollamactl.core.parse.specifiers import Expansion, expand

# Set at each start to values that no file tells: they are not in `Effective.variables`.
SET_AT_START = frozenset(
    {
        "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC",
        "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID", "MAINPID", "MANAGERPID", "MANAGERPIDFDID",
        "MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE", "CREDENTIALS_DIRECTORY", "FDSTORE", "TERM",
        "TRIGGER_UNIT", "TRIGGER_PATH", "DEBUG_INVOCATION",
    }
)  # fmt: skip
_DIRECTORIES = (
    ("RuntimeDirectory", "RUNTIME_DIRECTORY", "/run/"),
    ("StateDirectory", "STATE_DIRECTORY", "/var/lib/"),
    ("CacheDirectory", "CACHE_DIRECTORY", "/var/cache/"),
    ("LogsDirectory", "LOGS_DIRECTORY", "/var/log/"),
    ("ConfigurationDirectory", "CONFIGURATION_DIRECTORY", "/etc/"),
)
_NO_SHELLS = ("nologin", "false")
_YES = ("1", "yes", "y", "true", "t", "on")
Files = tuple[UnitFile, ...]
Letters = Mapping[str, str]


class Extra(msgspec.Struct, frozen=True, kw_only=True):
    """What else of the host decides values. What is None is told where it matters, not guessed.

    manager_process   environment of the manager's own process (/proc/1/environ), for PassEnvironment=
    home, shell       of User= in the user database
    specifiers        values by letter beyond those that the unit's name gives (specifiers.unit_context)
    program           name of the program that ExecStart= is there for; another one may be a script that sets more
    """

    manager_process: Mapping[str, str] | None = None
    home: str | None = None
    shell: str | None = None
    specifiers: Mapping[str, str] = msgspec.field(default_factory=dict)
    program: str = "ollama"


class Layers:
    """Variables while layers are laid over each other. `unknown` are those set to a value not known here."""

    def __init__(self) -> None:
        self.made: dict[str, Variable] = {}
        self.unknown: dict[str, Variable] = {}

    def put(self, name: str, value: str | None, origin: Origin) -> None:
        """A later assignment (None: removal); the value before it is lost to it."""
        before = self.made.get(name) or self.unknown.pop(name, None)
        lost = before.shadowed if before else ()
        if before and before.value is not None:
            lost = (*lost, (before.value, before.origin))
        self.made[name] = Variable(name=name, value=value, origin=origin, shadowed=lost)

    def put_unknown(self, name: str, origin: Origin) -> None:
        self.put(name, None, origin)
        self.unknown[name] = self.made.pop(name)

    def lose(self, name: str, value: str, origin: Origin, reset: Origin) -> None:
        """An assignment that a later line drops (`reset`), so that what was there before it counts again."""
        for held in (self.made, self.unknown):
            if name in held:
                lost = (*held[name].shadowed, (value, origin))
                held[name] = msgspec.structs.replace(held[name], shadowed=lost)
                return
        self.made[name] = Variable(name=name, value=None, origin=reset, shadowed=((value, origin),))


def last(files: Files, key: str, letters: Letters) -> str:
    """The value in force of a [Service] setting that has one value; empty where unset or not known."""
    found = unitfile.values(files, "Service", key)
    return (expand(found[-1][0], letters).text or "") if found else ""


def service(layers: Layers, unit: Service, files: Files, letters: Letters, extra: Extra) -> list[str]:
    problems = _login(layers, unit, files, letters, extra) if unit.manager == "system" else []
    origin = Origin(layer="service")
    for key, name, base in _DIRECTORIES if unit.manager == "system" else ():
        folders: list[str] = []
        for value, _, _ in unitfile.values(files, "Service", key):
            if not value:
                folders.clear()
            for word in split(value, escapes=False).words:
                path = (expand(word, letters).text or "").partition(":")[0].strip("/")
                if path:
                    folders.append(base + path)
        if folders:
            layers.put(name, ":".join(dict.fromkeys(folders)), origin)
    if value := last(files, "LogNamespace", letters):
        layers.put("LOG_NAMESPACE", value, origin)
    if value := last(files, "PIDFile", letters):
        layers.put("PIDFILE", value if value.startswith("/") else "/run/" + value, origin)
    search: list[str] = []
    for value, _, _ in unitfile.values(files, "Service", "ExecSearchPath"):
        found = [path for path in (expand(value, letters).text or "").split(":") if path.startswith("/")]
        search = search + found if value else []
    if search:
        layers.put("PATH", ":".join(search), origin)
    if last(files, "PAMName", letters):
        problems.append("PAMName= is set: PAM modules may add or change variables")
    return problems


def _login(layers: Layers, unit: Service, files: Files, letters: Letters, extra: Extra) -> list[str]:
    """What User= brings with it; a home of `/` and shells that refuse logins are not passed on. Of root and
    nobody systemd has its own rows instead of those of the user database."""
    origin = Origin(layer="service")
    user = last(files, "User", letters)
    if not user and last(files, "DynamicUser", letters).lower() in _YES:
        user = unit.id.partition("@")[0].removesuffix(".service")
    login = last(files, "SetLoginEnvironment", letters).lower()  # since 255
    if login and login not in _YES:
        return []
    user = user or ("root" if login else "")
    needs_home = last(files, "WorkingDirectory", letters) in ("~", "-~")  # then the manager's own HOME will do
    if user or needs_home:
        home = {"root": "/root", "0": "/root", "nobody": "", "65534": "", "": ""}.get(user, extra.home)
        if home == "" and needs_home and extra.manager_process is not None:
            layers.put("HOME", extra.manager_process.get("HOME", "/root"), origin)
        elif home is None or (home == "" and needs_home):
            layers.put_unknown("HOME", origin)
        elif home.rstrip("/"):
            layers.put("HOME", home.rstrip("/"), origin)
    if not user:
        return []
    for name in ("USER", "LOGNAME"):
        if user.isdigit():  # the name that the user database has for it
            layers.put_unknown(name, origin)
        else:
            layers.put(name, user, origin)
    if user in ("nobody", "65534"):
        return []
    if extra.shell is None:
        layers.put_unknown("SHELL", origin)
    elif extra.shell and extra.shell.rpartition("/")[2] not in _NO_SHELLS:
        layers.put("SHELL", extra.shell, origin)
    return []


def passed(layers: Layers, files: Files, letters: Letters, extra: Extra) -> list[str]:
    problems: list[str] = []
    wanted: dict[str, Origin] = {}
    for value, file, line in unitfile.values(files, "Service", "PassEnvironment"):
        if not value:
            wanted.clear()
        for word in split(value, escapes=False).words:
            made = expand(word, letters)
            if made.unknown:
                problems.append(_told(made, file, line))
            elif made.text is not None and is_env_name(made.text):
                wanted[made.text] = _origin("pass", file, line)
    for name, origin in wanted.items():
        if extra.manager_process is None:
            problems.append(f"{name} is passed on from the manager's process, whose environment was not read")
        elif name in extra.manager_process:
            layers.put(name, extra.manager_process[name], origin)
    return problems


def environment(layers: Layers, files: Files, letters: Letters) -> list[str]:
    """An empty line drops only what Environment= itself has set before, so it is looked for first."""
    problems: list[str] = []
    all_lines = unitfile.values(files, "Service", "Environment")
    resets = [number for number, (value, _, _) in enumerate(all_lines) if not value]
    alive = resets[-1] if resets else -1
    for number, (value, file, line) in enumerate(all_lines):
        origin = _origin("environment", file, line)
        reset = next((n for n in resets if n > number), None)
        for word in split(value).words:
            made = expand(word, letters)
            name, _, text = (made.text or "").partition("=")
            if made.unknown and number > alive:
                problems.append(_told(made, file, line))
                layers.put_unknown(word.partition("=")[0], origin)
            elif made.text is None or not is_assignment(made.text):
                continue
            elif reset is None:
                layers.put(name, text, origin)
            else:
                layers.lose(name, text, origin, _origin("environment", *all_lines[reset][1:]))
    return problems


def env_files(layers: Layers, files: Sequence[EnvFile]) -> list[str]:
    problems: list[str] = []
    for file in files:
        if file.missing is None:
            for entry in file.entries:
                origin = Origin(layer="environment-file", file=file.path, line=entry.line)
                layers.put(entry.name, entry.value, origin)
            continue
        declared = f" (EnvironmentFile= in {file.declared_in}:{file.declared_line})" if file.declared_in else ""
        if file.missing.kind not in ("absent", "unparsable"):
            problems.append(f"{file.path}{declared} was not read ({file.missing}); it may set any variable")
        elif not file.optional:
            problems.append(f"{file.path}{declared}: {file.missing}; the service can't start")
    return problems


def unset(layers: Layers, files: Files, letters: Letters) -> list[str]:
    problems: list[str] = []
    wanted: dict[str, Origin] = {}
    for value, file, line in unitfile.values(files, "Service", "UnsetEnvironment"):
        if not value:
            wanted.clear()
        for word in split(value).words:
            made = expand(word, letters)
            if made.unknown:
                problems.append(_told(made, file, line))
            elif made.text is not None:
                wanted[made.text] = _origin("unset", file, line)
    for text, origin in wanted.items():
        name, equals, value = text.partition("=")
        held = layers.made.get(name)
        known = held is not None and held.value is not None and (not equals or held.value == value)
        if known or (name in layers.unknown and not equals):
            layers.put(name, None, origin)
    return problems


def wrapper(
    layers: Layers, unit: Service, files: Files, letters: Letters, program: str
) -> tuple[tuple[str, ...], list[str]]:
    """The programs before `program`. The command is the unit files' (`systemctl show` can't tell arguments with
    blanks apart), else the unit's."""
    value, origin = "", Origin(layer="wrapper")
    for found, file, line in unitfile.values(files, "Service", "ExecStart"):
        value, origin = found, _origin("wrapper", file, line)
    problems: list[str] = []
    argv = unit.exec_start
    if value:
        command = execstart.parse(value)
        argv = tuple(_argument(word, ":" in command.prefixes, letters, layers, problems) for word in command.argv)
    wrapping = execstart.unwrap(argv)
    for change in wrapping.changes:
        if change.kind == "set":
            layers.put(change.name, change.value, origin)
            continue
        for name in [*layers.made, *layers.unknown] if change.kind == "clear" else [change.name]:
            held = layers.made.get(name)
            if name in layers.unknown or (held is not None and held.value is not None):
                layers.put(name, None, origin)
    programs = wrapping.programs
    if wrapping.unknown:
        problems.append(f"{' '.join(programs)} stands before the program in ExecStart=: {wrapping.unknown}")
    elif wrapping.argv and program not in wrapping.argv[0].rpartition("/")[2]:
        programs = (*programs, wrapping.argv[0])
        problems.append(f"ExecStart= runs {wrapping.argv[0]}, not {program}: it may set or change variables")
    return programs, problems if programs else []


def _argument(word: str, literal: bool, letters: Letters, layers: Layers, problems: list[str]) -> str:
    """One argument of ExecStart= after specifiers and, unless the command begins with `:`, variables."""
    made = expand(word, letters)
    if made.text is None:
        problems.append(f"ExecStart=: {', '.join(made.unknown) or made.invalid} in {word!r} is not known here")
        return word
    if literal:
        return made.text

    def one(found: re.Match[str]) -> str:
        if found.group(0) == "$$":
            return "$"
        name = found.group(1)
        if name in SET_AT_START or name in layers.unknown:
            problems.append(f"ExecStart=: the value of ${{{name}}} is not known here")
            return found.group(0)
        held = layers.made.get(name)
        return (held.value if held else None) or ""

    whole = re.fullmatch(r"\$([A-Za-z_]\w*)", made.text, re.ASCII)
    return one(whole) if whole else re.sub(r"\$\$|\$\{([A-Za-z_]\w*)\}", one, made.text, flags=re.ASCII)


def _origin(layer: str, file: UnitFile, line: Assignment) -> Origin:
    return Origin(layer=layer, file=file.path, line=line.line)


def _told(made: Expansion, file: UnitFile, line: Assignment) -> str:
    return f"{file.path}:{line.line}: the value of {', '.join(made.unknown)} is not known here"
