"""Unit files and drop-ins that systemd ignores, refuses or reads otherwise than meant."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, Severity, assignments, check, in_force, stated
from ollamactl.core.facts import Complaint, Facts, Log, UnitFile, UnitProblem
from ollamactl.core.needs import NO_SIGNS, Given, Signs
from ollamactl.core.remedies import edited

# a variable whose value may be cut -> what its rest leads to
CUT = {
    "OLLAMA_MODELS": ("models_dir_no_access", "models_dir_missing", "models_in_two_dirs", "service_home_missing"),
    "OLLAMA_HOST": ("bind_refused", "client_host_differs_from_server"),
}
_OUTSIDE = ("outside of section", "before any section", "no section")
# settings below the header of another section, as the parser of files and as systemd say it
_MISPLACED = re.compile(
    r"Environment(?:File)?= belongs under \[Service\]"
    r"|Unknown (?:key|lvalue)(?: name)? '(?:Pass)?Environment(?:File)?' in section '?\[?(?!Service\b)\w+"
)


def _problems(files: tuple[UnitFile, ...]) -> Iterator[tuple[UnitFile, UnitProblem]]:
    for file in files:
        for problem in file.problems:
            yield file, problem


def _complaints(facts: Facts) -> tuple[Complaint, ...]:
    """systemd's own words, where the files themselves were not read (they tell what is true now)."""
    if facts.unit_files is not None:
        return ()
    return facts.complaints or (facts.log.complaints if facts.log else ())


@check(weight=88, explains=("need_daemon_reload", "env_not_in_server_config", "malformed_env_assignment"))
def dropin_missing_section_header(facts: Facts, log: Log | None = None, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """A drop-in has no [Service] header above its lines.

    Why: systemd ignores assignments outside of a section, with one line in the journal; the file is listed still.
    Seen: the file, or systemd's complaint.
    Do: put [Service] on the first line.
    """
    for file, problem in _problems(facts.unit_files or ()):
        header = problem.text.startswith("[") and ("header" in problem.why or "section" in problem.why)
        if _MISPLACED.search(problem.why):
            yield Finding(
                "error",
                f"{file.path} has settings below another header than [Service]: systemd ignores them",
                (f"{file.path}:{problem.line}: {problem.text} ({problem.why})",),
                edited(file.path) + f"    # above line {problem.line}: [Service]",
            )
            return
        if any(word in problem.why.lower() for word in _OUTSIDE) or (header and not problem.text.startswith("[X-")):
            what = "a broken section header" if header else "lines outside of any section"
            said = f"{file.path} has {what}: systemd ignores its settings"
            fix = (
                "printf '[Service]\\n' | cat - {0} | sudo tee {0} && sudo systemctl daemon-reload"
                if not header
                else ""
            )
            yield Finding(
                "error",
                said,
                (f"{file.path}:{problem.line}: {problem.text} ({problem.why})",),
                edited(file.path) + "    # first line: [Service]"
                if header or not fix
                else f"sudo sed -i '1i [Service]' {file.path} && sudo systemctl daemon-reload "
                "&& sudo systemctl restart ollama",
            )
            return
    for complaint in _complaints(facts):
        if _MISPLACED.search(complaint.text):
            where = complaint.file or "the drop-in"
            said = f"{where} has settings below another header than [Service]: systemd ignores them"
            fix = edited(where) + "    # above these lines: [Service]"
            yield Finding("error", said, (complaint.text,), fix)
            return
        if re.search(r"(?i)outside of section|Invalid section header|Unknown section", complaint.text):
            where = complaint.file or "the drop-in"
            yield Finding(
                "error",
                f"{where} has no [Service] header above its lines: systemd ignores them",
                (complaint.text,),
                f"sudo sed -i '1i [Service]' {where} && sudo systemctl daemon-reload && sudo systemctl restart ollama",
            )
            return
    if signs.has("outside_section"):
        yield Finding(
            "error",
            "a drop-in has no [Service] header above its lines: systemd ignores them",
            signs.lines("outside_section"),
            "sudo systemctl edit ollama    # first line: [Service]",
        )


@check(weight=86, explains=("env_not_in_server_config", "config_newer_than_process"))
def malformed_env_assignment(
    facts: Facts, signs: Signs = NO_SIGNS, given: tuple[Given, ...] = ()
) -> Iterator[Finding]:
    """An assignment that assigns nothing, or something else.

    Why: a colon for `=`, blanks around `=`, unbalanced quotes, a key in lower case or a blank outside of quotes make
    systemd or the shell drop or cut the value.
    Seen: the line in the file, or systemd's complaint.
    Do: write Environment="NAME=value".
    """
    if facts.unit_files is not None:
        for file, problem in _problems(facts.unit_files):
            why = problem.why.lower()
            if any(word in why for word in _OUTSIDE) or problem.text.startswith("[") or _MISPLACED.search(problem.why):
                continue
            if "OLLAMA" in problem.text.upper() or re.match(r"(?i)environment", problem.text):
                said = f"{file.path}:{problem.line} does not set what it names: {problem.why}"
                yield Finding(
                    "error",
                    said,
                    (f"{file.path}:{problem.line}: {problem.text}",),
                    edited(file.path),
                    explains=_follows(problem.text),
                )
    for read in facts.env_files or ():
        for problem in read.problems:
            said = f"{read.path}:{problem.line} does not set what it names: {problem.why}"
            yield Finding("warning", said, (f"{read.path}:{problem.line}: {problem.text}",), edited(read.path))
    for complaint in _complaints(facts):
        words = r"(?i)invalid environment|Missing '='|unbalanced quot|Unknown key.*nvironment"
        if re.search(words, complaint.text) and not _MISPLACED.search(complaint.text):
            yield Finding(
                "error",
                "systemd ignores a malformed Environment= line",
                (complaint.text,),
                edited(complaint.file or "the drop-in"),
            )
    if signs.has("spaces_told") and not signs.has("malformed_assignment"):
        said = "a blank beside the = of an assignment: NAME=VALUE without blanks is needed"
        yield Finding("error", said, signs.lines("spaces_told"), "sudo ollamactl apply --set NAME=VALUE")
    for event in signs.of("malformed_assignment"):
        name, value = event.fields.get("name", ""), event.fields.get("value", "")
        said = f"this line does not set {name}: NAME=VALUE without blanks is needed"
        fix = f"sudo ollamactl apply --set {name}={value}"
        ran = re.search(r"run command|command not found", event.text) is not None
        if ran:
            said = f"the assignment of {name} was run as a command: nothing was started"
            fix = f"env {name}={value} nohup ollama serve    # as a service: {fix}"
        yield Finding("error", said, signs.quotes([event]), fix, explains=("api_exposed_without_auth",) if ran else ())


def _follows(text: str) -> tuple[str, ...]:
    """What comes of a value that is cut."""
    found = [checks for name, checks in CUT.items() if name in text]
    return tuple(check for checks in found for check in checks)


@check(weight=85, explains=("need_daemon_reload", "config_newer_than_process"))
def dropin_not_readable(facts: Facts) -> Iterator[Finding]:
    """A drop-in is a link to nowhere, or a folder.

    Why: systemd lists it, reads nothing of it, and asks for a daemon-reload for ever.
    Seen: the entry of the drop-ins' folder.
    Do: put the file there, or take the entry away.
    """
    for file in facts.unit_files or ():
        if file.role == "dropin" and file.missing is not None and file.missing.kind == "failed":
            fix = f"sudo rm -r {file.path} && sudo systemctl daemon-reload    # or put the file there"
            said = f"{file.path} can't be read: systemd gets nothing of it"
            yield Finding("warning", said, (str(file.missing),), fix)


@check(weight=80)
def unit_file_problem(facts: Facts) -> Iterator[Finding]:
    """systemd ignores a line of the unit's files.

    Why: a misspelt key or a wrong section name is dropped with one line in the journal.
    Seen: the file, or systemd's complaint.
    Do: correct the line, then systemctl daemon-reload.
    """
    for file, problem in _problems(facts.unit_files or ()):
        why = problem.why.lower()
        if any(word in why for word in _OUTSIDE) or (problem.text.startswith("[") and "header" in why):
            continue
        if "OLLAMA" in problem.text.upper() or re.match(r"(?i)environment", problem.text):
            continue
        said = f"{file.path}:{problem.line}: {problem.why}"
        yield Finding("warning", said, (f"{file.path}:{problem.line}: {problem.text}",), edited(file.path))
    for complaint in _complaints(facts):
        if not re.search(r"(?i)outside of section|section header|nvironment|Missing '='", complaint.text):
            yield Finding(
                "warning",
                "systemd ignores a line of the unit's files",
                (complaint.text,),
                edited(complaint.file or "/etc/systemd/system/ollama.service"),
            )
            return


@check(weight=90, explains=("service_restart_loop", "execstart_203_exec"))
def client_command_in_start_pre(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """A client command runs before the server does.

    Why: ExecStartPre=/ExecStartPost= with `ollama pull`, `run` or `list` needs a server that is not there yet.
    Seen: the line in the unit, or systemd's "Control process exited".
    Do: move it to a unit of its own that waits for the port.
    """
    files = facts.unit_files or ()
    for file, one in (*in_force(files, "ExecStartPre"), *in_force(files, "ExecStartPost")):
        if re.search(r"ollama['\"]?\s+(?:pull|run|list|show|ps|create|cp|rm)\b", one.value):
            failing = signs.has("unit:control_exited")
            if one.key == "ExecStartPost" and not failing:
                continue
            yield Finding(
                "error",
                f"{one.key}= runs a client command before the server listens",
                (stated(file, one), *(signs.lines("unit:control_exited"))),
                edited(file.path) + f"    # without line {one.line}",
            )
            return
    if signs.has("unit:control_exited", "start_pre_failed"):
        yield Finding(
            "error",
            "a command of ExecStartPre= or ExecStartPost= fails, so the server is not started",
            signs.lines("start_pre_failed", "unit:control_exited", "client_cannot_connect"),
            "systemctl cat ollama | grep ExecStartP    # take client commands out",
        )


@check(weight=66, explains=("nixos_acceleration_not_set", "nixos_driver_not_configured"))
def unit_sandbox_hides_gpu(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """The unit's hardening hides the GPU's device nodes.

    Why: PrivateDevices=yes or a closed DeviceAllow= list leaves no /dev/nvidia* and /dev/kfd to the service.
    Seen: the unit's properties, and a start that found no GPU.
    Do: relax it in a drop-in.
    """
    service = facts.service
    closed = ""
    if service is not None and service.private_devices:
        closed = "PrivateDevices=yes"
    elif (
        service is not None
        and service.device_policy == "closed"
        and not any(word in " ".join(service.device_allow) for word in ("nvidia", "kfd", "dri", "drm", "195"))
    ):
        closed = "DevicePolicy=closed"
    for file, one in list(assignments(facts.unit_files or (), "PrivateDevices"))[-1:]:
        if not closed and one.value.lower() in ("yes", "true", "1", "on"):
            closed = stated(file, one)
    if not closed and signs.has("sandbox_devices"):
        closed = signs.lines("sandbox_devices")[0]
    if not closed and signs.has("hidden_from_unit"):
        closed = signs.lines("hidden_from_unit")[0]
    if not closed and signs.has("gpu_by_hand") and signs.has("cpu_instead"):
        closed = signs.lines("gpu_by_hand")[0]
    found = {c.library.lower() not in ("cpu", "") for c in facts.start.computes} if facts.start else set()
    if closed and (found == {True} or (True in found and not signs.has("serve_by_hand"))):
        return
    if closed and (facts.gpus or facts.gpus is None):
        yield Finding(
            "warning",
            "the unit's sandbox hides the GPU from the service",
            (closed,),
            "sudo mkdir -p /etc/systemd/system/ollama.service.d && printf '[Service]\\nPrivateDevices=no\\n"
            "DevicePolicy=auto\\nDeviceAllow=\\n' | sudo tee /etc/systemd/system/ollama.service.d/zz-devices.conf "
            "&& sudo systemctl daemon-reload && sudo systemctl restart ollama",
        )


@check(weight=90, explains=("service_restart_loop", "runner_crash_on_load"))
def ld_preload_in_unit(given: tuple[Given, ...] = (), signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """LD_PRELOAD is set for the service.

    Why: a preload library that is missing or does not fit crashes the server or its runners at the start.
    Seen: the variable, or the dynamic linker's own line.
    Do: take the library out.
    """
    lines = signs.lines("preload_missing", "preload_told")
    for one in given:
        if one.name == "LD_PRELOAD" and one.scope in ("service", "process", "env"):
            dumped = bool(signs.matching("dumped", kinds=("unit:main_exited",)))
            severity: Severity = "error" if lines or dumped else "warning"
            yield Finding(
                severity,
                f"the service preloads {one.value}",
                (one.place, *lines),
                edited(one.place.split(":")[0]),
            )
            return
    if lines:
        yield Finding(
            "error",
            "a preload library of the service does not exist",
            lines,
            "systemctl cat ollama | grep -n LD_PRELOAD    # take it out",
        )
