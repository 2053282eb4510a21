"""What ExecStart= names and systemd cannot execute."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core import settings
from ollamactl.core.checks.base import Finding, check, in_force, stated
from ollamactl.core.checks.sandbox import execution_forbidden
from ollamactl.core.checks.service import LOOP
from ollamactl.core.facts import Facts, Service, Start
from ollamactl.core.needs import NO_SIGNS, Signs
from ollamactl.core.remedies import edited

ABSENT = re.compile(r"(?i)no such file|not found|cannot find")


@check(weight=92, explains=(*LOOP, "client_command_in_start_pre"))
def exec_path_missing(facts: Facts, signs: Signs = NO_SIGNS, service: Service | None = None) -> Iterator[Finding]:
    """The program that ExecStart= names is not there.

    Why: the installer puts it in /usr/local/bin, packages in /usr/bin; a unit of the other kind fails with 203/EXEC.
    Seen: systemd's line with the path, and the file that is missing.
    Do: correct ExecStart=.
    """
    found = signs.of("unit:exec_failed", "unit:exec_missing")
    for event in found:
        program = event.fields.get("program", "").strip("'\"")
        why = event.fields.get("why", "")
        if any(" " in e.fields.get("program", "").strip("'\"") for e in found):
            return  # quotes around the whole command
        if not program or "EXEC" not in event.fields.get("step", "EXEC"):
            continue
        if why and not ABSENT.search(why):
            continue
        yield Finding(
            "error",
            f"{program or 'the program of ExecStart='} is not there: 203/EXEC",
            signs.lines("unit:exec_failed", "unit:exec_missing", "unit:main_exited"),
            _corrected(facts, program, service),
        )
        return
    argv = service.exec_start if service else ()
    state = (facts.paths or {}).get(argv[0]) if argv else None
    if service and argv and state is not None and state.missing is not None and state.missing.kind == "absent":
        yield Finding(
            "error",
            f"ExecStart= names {argv[0]}, which does not exist",
            (f"ExecStart={' '.join(argv)}",),
            _corrected(facts, argv[0], service),
        )


def _corrected(facts: Facts, program: str, service: Service | None) -> str:
    """The command that puts the program which is there into the line that names another; where neither is known, one
    that looks for it."""
    unit = service.id if service else "ollama"
    there = [p for p, state in (facts.paths or {}).items() if p.endswith("/bin/ollama") and state.missing is None]
    lines = [
        (file.path, one.line)
        for file, one in in_force(facts.unit_files or (), "ExecStart")
        if one.value.startswith(program + " ")
    ]
    if there and lines and there[0] != program:
        path, line = lines[-1]
        edit = f"sudo sed -i '{line}s|{program}|{there[0]}|' {path}"
        return f"{edit} && sudo systemctl daemon-reload && sudo systemctl restart {unit}"
    return f"command -v ollama; sudo systemctl edit --full {unit}    # ExecStart= with that path"


@check(weight=93, explains=(*LOOP, "exec_path_missing", "malformed_env_assignment"))
def execstart_203_exec(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """systemd cannot execute what ExecStart= names.

    Why: quotes around the whole command make one path of it; a file without x, on noexec, of another machine or
    with a wrong SELinux label is refused.
    Seen: "Failed at step EXEC", "Unable to locate executable '/usr/bin/ollama serve'", status=203/EXEC.
    Do: ExecStart=/usr/local/bin/ollama serve, without quotes.
    """
    for file, one in in_force(facts.unit_files or (), "ExecStart"):
        if re.match(r"[\"'][^\"']*\s[^\"']*[\"']\s*$", one.value):
            plain = one.value.strip("\"'")
            yield Finding(
                "error",
                "ExecStart= has quotes around the whole command: systemd takes it for one path",
                (stated(file, one),),
                f"sudo sed -i '{one.line}s|.*|ExecStart={plain}|' {file.path} "
                "&& sudo systemctl daemon-reload && sudo systemctl restart ollama",
            )
            return
    found = signs.of("unit:exec_failed", "unit:exec_missing")
    status = signs.matching("203/exec", kinds=("unit:main_exited", "status_203"))
    for event in found:
        program, why = event.fields.get("program", "").strip(), event.fields.get("why", "")
        if lines := execution_forbidden(facts.unit_files or (), program):
            said = f"NoExecPaths= forbids the service to execute {program}"
            fix = edited(*(file.path for file, _ in lines)) + "    # or ExecPaths= with that path"
            yield Finding("error", said, (*(stated(*line) for line in lines), *signs.quotes(found)), fix)
            return
        quoted = " " in program.strip("'\"")
        if quoted or (why and not ABSENT.search(why)):
            said = (
                f"systemd takes '{program}' for one path: quotes around the whole command"
                if quoted
                else f"systemd can't execute {program}: {why}"
            )
            yield Finding(
                "error",
                said,
                signs.quotes([*found, *status]),
                "sudo systemctl edit --full ollama    # ExecStart=/usr/local/bin/ollama serve"
                if quoted
                else _made_executable(program, why),
            )
            return
    told = signs.of("program_refused")
    if (status or told) and not found:
        yield Finding(
            "error" if status else "warning",
            "systemd cannot execute the program of ExecStart=: 203/EXEC"
            if status
            else "the program is there and the unit does not start it: ExecStart= names something else",
            signs.quotes(status or told),
            "systemctl cat ollama | grep ExecStart; command -v ollama",
        )


def _made_executable(program: str, why: str) -> str:
    """The command that lets systemd execute a program that is there, or shows why not."""
    if "format" in why.lower():
        return f"file {program}; uname -m    # cut off, or for another machine: install Ollama again"
    again = f"sudo chmod 755 {program} && sudo systemctl restart ollama"
    return f"{again}    # where that is not it: namei -l {program}; findmnt -T {program} (noexec)"


@check(weight=91, explains=LOOP)
def execstart_runs_no_server(facts: Facts, service: Service, start: Start | None = None) -> Iterator[Finding]:
    """ExecStart= runs Ollama's program with another command than serve.

    Why: only `ollama serve` is the server; any other word, or none, prints help or an error and ends.
    Seen: the command, of a unit that does not stay up.
    Do: ExecStart=/usr/local/bin/ollama serve.
    """
    words = service.exec_start
    serves = start is not None and bool(start.listening) and not start.ended
    if serves or not words or not re.search(r"/ollama$", words[0]) or set(words[1:]) & {"serve", "start"}:
        return
    lines = [stated(file, one) for file, one in in_force(facts.unit_files or (), "ExecStart")[-1:]]
    places = lines[0].partition(":")[0] if lines else service.fragment_path
    yield Finding(
        "error",
        f"ExecStart={' '.join(words)} is no server: the command is `serve`",
        tuple(lines) or (f"systemctl show: ExecStart={' '.join(words)}",),
        edited(places, unit=service.id) + f"    # ExecStart={words[0]} serve",
    )


# what people call the address; other options are spelt like the end of a variable's name
ADDRESS = ("host", "port", "address", "addr", "listen", "bind", "ip")
SERVE = re.compile(r"(?:[-@:+!]*\S*/)?ollama (?:serve|start) +(?!--?h(?:elp)?\b)(?P<rest>[^$\s]\S*.*)$")


@check(weight=91, explains=LOOP)
def unknown_command_flag(
    facts: Facts, signs: Signs = NO_SIGNS, service: Service | None = None, start: Start | None = None
) -> Iterator[Finding]:
    """The `ollama` command was given an option or a word that it does not have.

    Why: `ollama serve` has no options: address, folder, slots and all else are variables. With an unknown one it
    prints an error and ends.
    Seen: "unknown flag", "unknown command", or what follows `serve` in ExecStart=.
    Do: ExecStart=/usr/local/bin/ollama serve, and the variable.
    """
    if start is not None and start.listening and not start.ended:
        return
    errors = signs.of("unknown_flag")
    lines = [(file, one) for file, one in in_force(facts.unit_files or (), "ExecStart") if SERVE.match(one.value)]
    found = SERVE.match(lines[-1][1].value if lines else " ".join(service.exec_start) if service else "")
    flag = errors[-1].fields.get("flag") or errors[-1].fields.get("command", "") if errors else ""
    flag = flag or (found["rest"].split()[0] if found else "")
    if not errors and not found:
        return
    variable = _variable(flag)
    said = f"`ollama` has no {flag or 'such argument'}: it prints an error and ends"
    said = f"`ollama serve` has no {flag}: the variable for that is {variable}" if variable else said
    shown = tuple(stated(file, one) for file, one in lines[-1:])
    if found and not shown:
        shown = (f"systemctl show: ExecStart={' '.join(service.exec_start)}",) if service else ()
    value = f"; sudo ollamactl apply --set {variable}=VALUE" if variable else ""
    edit = edited(lines[-1][0].path, unit=service.id if service else "ollama") if lines else ""
    in_unit = bool(lines or found or signs.has("unit:main_exited", "unit:failed", "unit:restart_scheduled"))
    fix = f"{edit or 'sudo systemctl edit --full ollama'}    # ExecStart=… serve, without more{value}"
    if not in_unit:
        fix = f"{variable}=VALUE ollama serve" if variable else "ollama --help; ollama serve    # without arguments"
    yield Finding("error", said, (*shown, *signs.quotes(errors)), fix)


def _variable(flag: str) -> str:
    """The variable that does what somebody wanted of an option. Empty where none is known."""
    name = flag.partition("=")[0].lstrip("-").replace("-", "_").upper()
    if name.lower() in ADDRESS:
        return "OLLAMA_HOST"
    known = {"CTX_SIZE": "CONTEXT_LENGTH", "NUM_CTX": "CONTEXT_LENGTH", "PARALLEL": "NUM_PARALLEL", "VERBOSE": "DEBUG"}
    setting = settings.lookup(f"OLLAMA_{known.get(name, name)}") if flag.startswith("--") else None
    return setting.name if setting else ""
