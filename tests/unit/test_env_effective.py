"""The effective environment: order of layers, who wins, who lost, and what can't be known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ollamactl.core import environment
from ollamactl.core.facts import Effective, EnvFile, Service, UnitFile
from ollamactl.core.parse import envfile, environ, unitfile
from ollamactl.core.source import Missing

RECORDED = Path(__file__).resolve().parents[1] / "recorded"
MANAGER = {"LANG": "C.UTF-8", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
INSTALLED = """[Unit]
Description=Ollama Service
[Service]
ExecStart=/usr/local/bin/ollama serve
User=ollama
Group=ollama
Restart=always
RestartSec=3
Environment="PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
[Install]
WantedBy=default.target
"""
HOME = environment.Extra(home="/usr/share/ollama", shell="/bin/false")
SERVICE = Service(id="ollama.service", fragment_path="/u")


def files(*texts: str) -> tuple[UnitFile, ...]:
    return tuple(
        unitfile.parse(f"/{number}.conf" if number else "/u", text, "dropin" if number else "main")
        for number, text in enumerate(texts)
    )


def compute(*texts: str, env: tuple[EnvFile, ...] = (), extra: environment.Extra = HOME) -> Effective:
    return environment.effective(SERVICE, files(*texts), env, MANAGER, extra)


@pytest.mark.parametrize("scenario", sorted(p.parent.name for p in RECORDED.glob("*/proc_environ.txt")))
def test_recorded_processes(scenario: str) -> None:
    """From the recorded drop-ins, with the unit that the installer writes."""
    process = environ.parse((RECORDED / scenario / "proc_environ.txt").read_bytes().replace(b"\n", b"\0"))
    dropins = RECORDED / scenario / "dropin.txt"
    parts = re.split(r"^### (.*)\n", dropins.read_text() if dropins.exists() else "", flags=re.MULTILINE)
    both = [(path, text) for path, text in zip(parts[1::2], parts[2::2], strict=True) if path.endswith(".conf")]
    loaded = [unitfile.parse(path, text) for path, text in both]
    if not process:
        assert scenario == "09-port-in-use"
        return
    extra = environment.Extra(
        home="/usr/share/ollama", shell="/bin/false", specifiers={"b": "c47e0a107414438ba604b12af87f42bf"}
    )
    found = environment.effective(SERVICE, (*files(INSTALLED), *loaded), (), MANAGER, extra)
    want = {name: v.value for name, v in found.variables.items() if v.value is not None}
    have = {name: value for name, value in process.items() if name not in environment.SET_AT_START}
    if scenario == "11-edited-no-daemon-reload":
        assert want != have
    else:
        assert want == have
    assert found.problems == ()


def test_layers_lie_over_each_other_and_losers_are_kept() -> None:
    env = envfile.parse("A=file\n", "/etc/e", declared_in="/1.conf", declared_line=3)
    found = compute(
        "[Service]\nExecStart=/bin/ollama serve\nEnvironment=A=main LANG=de\nPassEnvironment=A\n",
        "[Service]\nEnvironment=A=one\nEnvironmentFile=/etc/e\n",
        env=(env,),
        extra=environment.Extra(manager_process={"A": "passed"}),
    )
    a = found.variables["A"]
    assert (a.value, a.origin.layer, a.origin.file, a.origin.line) == ("file", "environment-file", "/etc/e", 1)
    assert [(value, o.layer, o.file, o.line) for value, o in a.shadowed] == [
        ("passed", "pass", "/u", 4), ("main", "environment", "/u", 3), ("one", "environment", "/1.conf", 2),
    ]  # fmt: skip
    assert found.value("LANG") == "de" and found.variables["LANG"].shadowed[0][1].layer == "manager"
    told = environment.explain(found, "A")
    assert told.winner == a.origin and told.losers == a.shadowed
    assert told.text.startswith("A is 'file' by /etc/e:1; 'one' by /1.conf:2 does not count; 'main' by /u:3")
    assert environment.explain(found, "NO").winner is None


def test_an_empty_assignment_drops_what_the_unit_files_set_before_and_says_who() -> None:
    found = compute(
        "[Service]\nEnvironment=PATH=/mine A=1\nEnvironment=A=2\n",
        "[Service]\nEnvironment=\nEnvironment=B=3 PATH=/last\n",
    )
    a = found.variables["A"]
    assert (a.value, a.origin.file, a.origin.line) == (None, "/1.conf", 2)
    assert [value for value, _ in a.shadowed] == ["1", "2"]
    assert found.value("B") == "3" and found.value("PATH") == "/last"
    back = compute("[Service]\nEnvironment=PATH=/mine\n", "[Service]\nEnvironment=\n").variables["PATH"]
    assert (back.value, back.origin.layer) == (MANAGER["PATH"], "manager")
    assert [value for value, _ in back.shadowed] == ["/mine"]


def test_unset_removes_by_name_or_by_value_and_last_of_all() -> None:
    found = compute("[Service]\nUnsetEnvironment=A B=1 C=1\nEnvironment=A=1 B=1 C=2\n")
    assert [found.value(name) for name in "ABC"] == [None, None, "2"]
    assert found.variables["A"].origin.layer == "unset" and found.variables["A"].shadowed[0][0] == "1"


def test_environment_files_are_found_by_pattern_read_in_order_and_reset() -> None:
    parsed = files(
        "[Service]\nEnvironmentFile=/etc/gone\n", "[Service]\nEnvironmentFile=\nEnvironmentFile=-/etc//e/*.env\n"
        "EnvironmentFile=/etc/%p\nEnvironmentFile=-/etc/[x]\n",
    )  # fmt: skip
    refs = environment.files_to_read(parsed, environment.context(SERVICE, HOME))
    assert [(r.pattern, r.optional, r.declared_in, r.declared_line, r.is_glob) for r in refs] == [
        ("/etc/e/*.env", True, "/1.conf", 3, True), ("/etc/ollama", False, "/1.conf", 4, False),
        ("/etc/[x]", True, "/1.conf", 5, True),
    ]  # fmt: skip
    texts = {"/etc/e/a.env": "A=1\nB=1", "/etc/e/b.env": "A=2", "/etc/ollama": "B=3"}

    def read(ref: environment.EnvFileRef, path: str) -> EnvFile:
        return envfile.parse(texts[path], path, declared_in=ref.declared_in, declared_line=ref.declared_line)

    found = environment.assemble(refs, lambda p: ["/etc/e/a.env", "/etc/e/b.env"] if "env" in p else [], read)
    assert [f.path for f in found] == ["/etc/e/a.env", "/etc/e/b.env", "/etc/ollama", "/etc/[x]"]
    assert found[-1].missing is not None and found[-1].optional
    made = environment.effective(SERVICE, parsed, found, MANAGER, HOME)
    assert (made.value("A"), made.value("B"), made.problems) == ("2", "3", ())


@pytest.mark.parametrize(
    ("kind", "optional", "told"),
    [("absent", False, "the service can't start"), ("absent", True, ""), ("denied", True, "may set any variable"),
     ("unparsable", False, "the service can't start"), ("unparsable", True, ""), ("denied", False, "may set any")],
)  # fmt: skip
def test_files_that_could_not_be_read(kind: str, optional: bool, told: str) -> None:
    missing = Missing(kind)  # type: ignore[arg-type]
    found = compute(INSTALLED, env=(EnvFile(path="/etc/e", optional=optional, missing=missing),))
    assert (told in " ".join(found.problems)) if told else found.problems == ()


def test_what_is_not_known_is_told_not_guessed() -> None:
    found = compute(
        "[Service]\nExecStart=/bin/ollama serve\nEnvironment=A=1\n"
        "Environment=A=%m B=%H\nPassEnvironment=P\nUser=1000\n",
        extra=environment.Extra(specifiers={"H": "host"}),
    )
    assert found.value("B") == "host" and "A" not in found.variables
    assert [p for p in found.problems if "%m" in p] and [p for p in found.problems if p.startswith("A is set by /u:4")]
    assert [p for p in found.problems if p.startswith("P is passed on")]
    assert not {"HOME", "USER", "SHELL"} & set(found.variables)
    assert environment.effective(SERVICE, (), (), None).problems == ("the manager's own environment is not known",)


def test_a_value_known_only_to_systemd_can_be_overridden_by_a_known_one() -> None:
    found = compute("[Service]\nEnvironment=A=%m\n", "[Service]\nEnvironment=A=2\n")
    assert found.value("A") == "2" and not [p for p in found.problems if p.startswith("A ")]


def test_what_systemd_itself_adds() -> None:
    text = "[Service]\nUser=daemon\nRuntimeDirectory=a b:c\nStateDirectory=s\nLogNamespace=n\nExecSearchPath=/x:/y\n"
    found = compute(text, extra=environment.Extra(home="/usr/sbin", shell="/bin/bash"))
    assert {n: v.value for n, v in found.variables.items() if v.origin.layer == "service"} == {
        "USER": "daemon", "LOGNAME": "daemon", "HOME": "/usr/sbin", "SHELL": "/bin/bash", "LOG_NAMESPACE": "n",
        "RUNTIME_DIRECTORY": "/run/a:/run/b", "STATE_DIRECTORY": "/var/lib/s", "PATH": "/x:/y",
    }  # fmt: skip
    assert "HOME" not in compute("[Service]\nUser=nobody\n").variables


@pytest.mark.parametrize(
    ("command", "expected", "wrapper"),
    [
        ("/usr/bin/env OLLAMA_X=2 ollama serve", {"OLLAMA_X": "2", "PATH": MANAGER["PATH"]}, ("/usr/bin/env",)),
        ("/usr/bin/env -u OLLAMA_X ollama serve", {"OLLAMA_X": None}, ("/usr/bin/env",)),
        ("/usr/bin/env -i A=${OLLAMA_X}%% B=$$ ollama serve", {"A": "1%", "B": "$", "PATH": None}, ("/usr/bin/env",)),
        (":/usr/bin/env A=${OLLAMA_X} ollama serve", {"A": "${OLLAMA_X}"}, ("/usr/bin/env",)),
        ("/bin/sh -c 'export OLLAMA_X=3; exec ollama serve'", {"OLLAMA_X": "3"}, ("/bin/sh",)),
        ("/usr/local/bin/ollama serve", {"OLLAMA_X": "1"}, ()),
    ],
)
def test_wrappers_come_last(command: str, expected: dict[str, str | None], wrapper: tuple[str, ...]) -> None:
    found = compute(f"[Service]\nExecStart=/bin/other\nExecStart=\nExecStart={command}\nEnvironment=OLLAMA_X=1\n")
    assert {name: found.value(name) for name in expected} == expected
    assert (found.wrapper, found.problems) == (wrapper, ())


def test_a_script_as_the_program_is_said() -> None:
    found = compute("[Service]\nExecStart=/opt/start.sh\n")
    assert found.wrapper == ("/opt/start.sh",) and "may set or change" in found.problems[0]
    shell = compute("[Service]\nExecStart=/bin/sh -c '. /etc/profile; ollama serve'\n")
    assert "not computed" in shell.problems[0]


def test_a_broken_unit_file_of_its_own_keeps_the_service_from_starting_a_dropin_does_not() -> None:
    assert "can't start" in compute("[Service]\nUser=x\n[Serv\n").problems[0]
    found = compute(INSTALLED, "[Service]\nEnvironment=A=1\n[Serv\nEnvironment=B=1\n")
    assert (found.value("A"), found.value("B"), found.problems) == ("1", None, ())


def test_files_that_could_not_be_read_are_said() -> None:
    gone = UnitFile(path="/x.conf", missing=Missing("denied", "mode 0600"))
    found = environment.effective(SERVICE, (*files(INSTALLED), gone), (), MANAGER, HOME)
    assert found.problems == ("/x.conf: denied: mode 0600",)


def test_a_login_environment_is_had_or_refused_by_its_own_setting() -> None:
    assert "USER" not in compute("[Service]\nUser=daemon\nSetLoginEnvironment=no\n").variables
    assert compute("[Service]\nSetLoginEnvironment=yes\n").value("HOME") == "/root"
