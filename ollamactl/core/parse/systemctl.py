"""What `systemctl` prints: `show` and `show-environment`, of systemd 247 to 258.

    MainPID=265
    Environment=PATH=/usr/bin "A=two words"
    ExecMainStartTimestamp=Mon 2026-11-30 02:56:36 UTC      (or @1764471396 with --timestamp=unix)
    ExecStart={ path=/usr/local/bin/ollama ; argv[]=/usr/local/bin/ollama serve ; ignore_errors=no ; … }

Times are in the zone of the process that ran `systemctl`: run it with TZ=UTC (`SHOW`), since the name of a zone
does not say where it is. `argv[]` is joined by blanks without quotes: where an argument holds blanks, only the
unit files tell the arguments apart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Literal

from ollamactl.core.facts import Service, Slice
from ollamactl.core.parse.quoting import split_shown, unescape_shell

PROPERTIES = (
    "Id", "LoadState", "ActiveState", "SubState", "UnitFileState", "FragmentPath", "SourcePath",
    "DropInPaths", "NeedDaemonReload", "InvocationID", "MainPID", "NRestarts", "Result", "ExecMainCode",
    "ExecMainStatus", "ExecMainStartTimestamp", "ActiveEnterTimestamp", "Type", "Restart",
    "RestartUSec", "Environment", "EnvironmentFiles", "PassEnvironment", "UnsetEnvironment",
    "ExecStart", "ExecStartPre", "User", "Group", "SupplementaryGroups", "WorkingDirectory",
    "StandardOutput", "StandardError", "LogNamespace", "PrivateNetwork", "NetworkNamespacePath",
    "ProtectHome", "ProtectSystem", "PrivateDevices", "DevicePolicy", "DeviceAllow", "MemoryMax",
    "MemoryHigh", "MemoryCurrent", "ControlGroup", "StartLimitBurst", "StartLimitIntervalUSec",
    "LoadError", "CanReload", "FreezerState", "RuntimeMaxUSec", "LogLevelMax",
)  # fmt: skip
SHOW = ("env", "TZ=UTC", "LC_ALL=C", "systemctl", "show", "--no-pager", f"--property={','.join(PROPERTIES)}")

_UNSET = ("[not set]", "[no data]", "n/a", "", "18446744073709551615")
_UNITS = {
    "us": 1e-6, "μs": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0,
    "w": 604800.0, "month": 2629800.0, "y": 31557600.0,
}  # fmt: skip
_CODES = {"exited": 1, "killed": 2, "dumped": 3, "trapped": 4, "stopped": 5, "continued": 6}


def parse_properties(text: str) -> dict[str, list[str]]:
    """Values by name, in order. A line that is no `Name=` continues the one before (a value with
    newlines)."""
    found: dict[str, list[str]] = {}
    last: list[str] | None = None
    for line in text.split("\n"):
        match = re.match(r"([A-Z][A-Za-z0-9]*)=", line)
        if match:
            last = found.setdefault(match.group(1), [])
            last.append(line[match.end() :].removesuffix("\r"))
        elif last and line:
            last[-1] += "\n" + line
    return found


def parse_show(text: str, *, manager: Literal["system", "user"] = "system", checked: tuple[str, ...] = ()) -> Service:
    """One unit. Properties that were not printed keep the record's own empty values; `Id` may be missing
    where it was not asked for. Of several units in the text the first counts."""
    first = re.split(r"\n\s*\n(?=[A-Z][A-Za-z]*=)", text.strip("\n"), maxsplit=1)[0]
    p = parse_properties(first)

    def one(name: str) -> str:
        return p.get(name, [""])[-1]

    def many(name: str) -> tuple[str, ...]:
        return tuple(word for value in p.get(name, []) for word in split_shown(value))

    return Service(
        id=one("Id"),
        load_state=one("LoadState"),
        active_state=one("ActiveState"),
        sub_state=one("SubState"),
        unit_file_state=one("UnitFileState"),
        fragment_path=one("FragmentPath"),
        source_path=one("SourcePath"),
        dropin_paths=many("DropInPaths"),
        need_daemon_reload=one("NeedDaemonReload") == "yes",
        invocation_id=one("InvocationID"),
        main_pid=_int(one("MainPID")) or 0,
        n_restarts=_int(one("NRestarts")) or 0,
        result=one("Result"),
        frozen=one("FreezerState") == "frozen",
        exec_main_code=_CODES.get(one("ExecMainCode"), _int(one("ExecMainCode")) or 0),
        exec_main_status=_int(one("ExecMainStatus").partition("/")[0]) or 0,
        exec_main_start=parse_time(one("ExecMainStartTimestamp")),
        active_enter=parse_time(one("ActiveEnterTimestamp")),
        type=one("Type"),
        restart=one("Restart"),
        restart_seconds=parse_span(one("RestartUSec")),
        environment=many("Environment"),
        environment_files=tuple(map(_environment_file, p.get("EnvironmentFiles", []))),
        pass_environment=many("PassEnvironment"),
        unset_environment=many("UnsetEnvironment"),
        exec_start=_argv(p, "ExecStart"),
        exec_start_pre=_argv(p, "ExecStartPre"),
        user=one("User"),
        group=one("Group"),
        supplementary_groups=many("SupplementaryGroups"),
        working_directory=one("WorkingDirectory").removeprefix("!"),
        standard_output=one("StandardOutput"),
        standard_error=one("StandardError"),
        log_namespace=one("LogNamespace"),
        log_level_max=one("LogLevelMax"),
        runtime_max=parse_span(one("RuntimeMaxUSec")),
        private_network=one("PrivateNetwork") == "yes",
        network_namespace_path=one("NetworkNamespacePath"),
        protect_home=one("ProtectHome"),
        protect_system=one("ProtectSystem"),
        private_devices=one("PrivateDevices") == "yes",
        device_policy=one("DevicePolicy"),
        device_allow=tuple(value for value in p.get("DeviceAllow", []) if value),
        memory_max=_int(one("MemoryMax")),
        memory_high=_int(one("MemoryHigh")),
        memory_current=_int(one("MemoryCurrent")),
        control_group=one("ControlGroup"),
        start_limit_burst=_int(one("StartLimitBurst")),
        start_limit_interval=parse_span(one("StartLimitIntervalUSec")),
        load_error=_load_error(one("LoadError")),
        can_reload=one("CanReload") == "yes",
        drop_in_dirs_checked=checked,
        manager=manager,
    )


def parse_slice(text: str) -> Slice:
    """Id, MemoryMax, MemoryHigh and CPUQuotaPerSecUSec of one slice; what is unlimited is None."""
    p = {name: values[-1] for name, values in parse_properties(text).items()}
    quota = parse_span(p.get("CPUQuotaPerSecUSec", ""))
    return Slice(
        name=p.get("Id", ""),
        memory_max=_int(p.get("MemoryMax", "")),
        memory_high=_int(p.get("MemoryHigh", "")),
        cpus=quota if quota is not None and not math.isinf(quota) else None,
    )


def parse_time(text: str) -> float | None:
    """Seconds since the epoch of a printed time; None where unset, or in a zone whose place its name
    hides."""
    if text in _UNSET or text == "0":
        return None
    if match := re.fullmatch(r"@(\d+(?:\.\d+)?)(us)?", text):
        return float(match.group(1)) / (1e6 if match.group(2) else 1)
    match = re.fullmatch(r"(?:[^\d\s]+ )?(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d+))? ([A-Z]+|[+-]\d{2,4})", text)
    if not match:
        return None
    zone = match.group(3)
    if zone in ("UTC", "GMT", "Z"):
        offset = timedelta()
    elif zone[0] in "+-":
        minutes = int(zone[1:3]) * 60 + int(zone[3:] or 0)
        offset = timedelta(minutes=-minutes if zone[0] == "-" else minutes)
    else:
        return None
    try:
        moment = datetime.strptime(match.group(1), "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone(offset))
    except ValueError:
        return None
    return moment.timestamp() + float("0." + (match.group(2) or "0"))


def parse_span(text: str) -> float | None:
    """Seconds of `1min 30s`, `100ms`, `infinity` (inf) or a plain number of microseconds; None where
    unset."""
    if text == "infinity":
        return float("inf")
    if text in _UNSET:
        return None
    if text.isdigit():
        return int(text) / 1e6
    total = 0.0
    for part in text.split():
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([a-zμµ]+)", part)
        if not match or match.group(2) not in _UNITS:
            return None
        total += float(match.group(1)) * _UNITS[match.group(2)]
    return total


def parse_show_environment(text: str) -> dict[str, str]:
    """`systemctl show-environment`: the manager's own block, values with special characters in `$'…'`."""
    found = {}
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if equals and name:
            found[name] = unescape_shell(value)
    return found


def _int(text: str) -> int | None:
    return int(text) if text.isdigit() and text not in _UNSET else None


def _environment_file(text: str) -> tuple[str, bool]:
    path, found, rest = text.rpartition(" (ignore_errors=")
    return (path, rest.startswith("yes")) if found else (text, False)


def _argv(p: Mapping[str, list[str]], name: str) -> tuple[str, ...]:
    """Of the first command only: a service of a type other than oneshot has one."""
    for value in p.get(name, []):
        match = re.match(r"\{ path=.*? ; argv\[\]=(.*?) ; (?:flags|ignore_errors)=", value, re.DOTALL)
        if match:
            return tuple(match.group(1).split(" "))
    return ()


def _load_error(text: str) -> str:
    """`NAME "text"` without the name of the D-Bus error; two empty strings are none."""
    match = re.fullmatch(r'\S+ "(.*)"', text, re.DOTALL)
    return match.group(1) if match else text.replace('"', "").strip()
