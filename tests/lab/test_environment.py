"""The computed environment of random units equals what a real systemd gives their processes, byte for byte."""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ollamactl.core import environment
from ollamactl.core.facts import EnvFile, UnitFile
from ollamactl.core.parse import envfile, environ, systemctl, unitfile
from ollamactl.core.parse.quoting import quote_environment
from ollamactl.core.source import Missing

from .machine import Machine

pytestmark = pytest.mark.lab

UNITS = int(os.environ.get("OLLAMACTL_ENVIRONMENT_UNITS", "160"))
NUMBER = "54321"  # stands for a unit's number while it is drawn
BY_SHELL = {"PWD", "OLDPWD", "SHLVL", "_"}

# Runs inside: installs the files, starts the units, tells what systemd made of them, and takes all away again.
INSIDE = r"""
import base64, json, os, subprocess, sys
todo = json.load(sys.stdin)
def systemctl(*argv):
    return subprocess.run(["systemctl", *argv], capture_output=True).stdout.decode("utf-8", "surrogateescape")
def b64(data):
    return base64.b64encode(data).decode()
for path, data in todo["files"].items():
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(base64.b64decode(data))
units = todo["units"]
cursor = subprocess.run(["journalctl", "-qn0", "--show-cursor"], capture_output=True, text=True).stdout.split()[-1]
systemctl("daemon-reload")
systemctl("start", *units)
shown = systemctl("show", "--timestamp=unix", "--property=" + todo["properties"], *units).split("\n\n")
made = {}
for unit, text in zip(units, shown):
    pid = next((l[8:] for l in text.split("\n") if l.startswith("MainPID=")), "0")
    data = b""
    if pid != "0":
        with open(f"/proc/{pid}/environ", "rb") as file:
            data = file.read()
    made[unit] = {"show": text, "environ": b64(data), "pid": int(pid)}
subprocess.run(["journalctl", "--sync"])
journal = subprocess.run(
    ["journalctl", "-aqo", "json", "--after-cursor", cursor, "_PID=1"], capture_output=True, text=True
).stdout.splitlines()
systemctl("kill", "--signal=KILL", *units)
systemctl("stop", *units)
for path in todo["files"]:
    os.unlink(path)
systemctl("daemon-reload")
systemctl("reset-failed")
with open("/proc/1/environ", "rb") as file:
    first = file.read()
def release(key):
    with open("/etc/os-release") as file:
        for line in file:
            if line.startswith(key + "="):
                return line.split("=", 1)[1].strip().strip('"')
    return ""
def content(path):
    with open(path) as file:
        return file.read().strip()
name = os.uname()
letters = {
    "m": content("/etc/machine-id"), "b": content("/proc/sys/kernel/random/boot_id").replace("-", ""),
    "H": name.nodename, "l": name.nodename.split(".")[0], "v": name.release, "o": release("ID"),
    "w": release("VERSION_ID"), "B": release("BUILD_ID"), "W": release("VARIANT_ID"), "A": release("IMAGE_VERSION"),
    "M": release("IMAGE_ID"), "a": {"x86_64": "x86-64", "aarch64": "arm64"}[name.machine], "s": "/bin/bash",
    "q": name.nodename,
}
logged = map(json.loads, journal)
told = [(e["CONFIG_FILE"], int(e["CONFIG_LINE"]), e["MESSAGE"]) for e in logged if "CONFIG_LINE" in e]
manager = systemctl("show-environment")
print(json.dumps({"complaints": told, "units": made, "manager": manager, "first": b64(first), "letters": letters}))
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Machine]:
    """A machine of our own: type-level drop-ins here touch every service."""
    with Machine() as machine:
        yield machine


@dataclass(frozen=True)
class Unit:
    name: str
    files: dict[str, bytes] = field(default_factory=dict)

    def numbered(self, number: int) -> Unit:
        """With the placeholder of its number filled in."""
        mark, own = NUMBER, str(number)
        files = {p.replace(mark, own): data.replace(mark.encode(), own.encode()) for p, data in self.files.items()}
        return Unit(self.name.replace(mark, own), files)

    def __repr__(self) -> str:
        return self.name + "\n" + "\n".join(f"--- {path}\n{data!r}" for path, data in self.files.items())


NAMES = st.sampled_from(["A", "B", "C", "OLLAMA_X", "PATH", "LANG", "container", "_d1", "HOME", "USER"])
TEXT = st.text(
    st.one_of(
        *[st.sampled_from(list("ab1 '\"\\%$`#;=,\t/~!{}()*?xXnts0u"))] * 5,
        st.sampled_from(list("\x01\x7f\x85\xa0é€\u2028\ufeff\ufdd0\uffff\U0001f600\U0010fffd")),
        st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\r"),
    ),
    max_size=12,
)
RAW = st.text(st.sampled_from(list("AB=1 '\"\\%nmiIhHubtx0uU4ds$#;\t\r[]äç“”")), max_size=24)


OTHERS = [  # settings that the environment does not depend on, right and wrong
    *("PrivateTmp=no", "PrivateTmp=ja", "NoNewPrivileges=YES", "NoNewPrivileges=", "RemainAfterExit=no # no"),
    *("RestartSec=", "MemoryMax=", "WorkingDirectory=", "ExecReload=", "DevicePolicy=", "PrivateTmp="),
    *("Restart=Always", "Restart=no", "Restart=", "KillMode=process", "DevicePolicy=open", "ProtectHome=tmp"),
    *("RestartSec=3", "RestartSec=1min 30", "RestartSec=a", "RestartSec=3s # x", "TimeoutStopSec=infinity"),
    *("MemoryMax=infinity", "MemoryMax=90%", "MemoryMax=1.5G", "MemoryMax=12Q", "MemoryMax=4 GB", "MemoryHigh=8G"),
    *("WorkingDirectory=x", "WorkingDirectory=-x", "WorkingDirectory=/", "WorkingDirectory=-~", "Docs=1", "=1"),
    *('ExecReload=/bin/true "', "ExecReload=/bin/true \\q", "ExecReload=/bin/%2", "ExecReload=/bin/true %i > /x"),
    *("type=simple", "Wants=x.service", "export A=1", "OLLAMA_HOST=1", "Enviroment=A=1", "X-Own=1", "Type=exec"),
]


def word(name: str, value: str) -> st.SearchStrategy[str]:
    """One assignment in the ways that people write it; some of them are wrong."""
    bare = f"{name}={value}"
    return st.sampled_from(
        [quote_or(bare, name, value), bare, f'"{bare}"', f"'{bare}'", f'{name}="{value}"', f"{name} = {value}"]
    )


def quote_or(bare: str, name: str, value: str) -> str:
    try:
        return quote_environment(name, value)
    except ValueError:
        return bare


def unsplit(draw: st.DrawFn, text: str) -> str:
    """Sometimes break a line by a continuation, with a comment between."""
    if len(text) > 14 and draw(st.integers(0, 5)) == 0:
        cut = draw(st.integers(12, len(text) - 1))
        comment = draw(st.sampled_from(["", "# a comment\n", "  ; another \\\n"]))
        return text[:cut] + "\\\n" + comment + text[cut:]
    return text


@st.composite
def settings_lines(draw: st.DrawFn, folder: str) -> str:
    kind = draw(st.integers(0, 20))
    if kind < 8:
        words = [draw(word(draw(NAMES), draw(TEXT))) for _ in range(draw(st.integers(1, 3)))]
        return unsplit(draw, "Environment=" + " ".join(words))
    if kind == 8:
        return "Environment=" + draw(RAW)
    if kind == 9:
        return draw(st.sampled_from(["Environment=", "EnvironmentFile=", "PassEnvironment=", "UnsetEnvironment="]))
    if kind < 13:
        path = draw(st.sampled_from(["e0", "e1", "e2", "e*", "e[12]", "none", "f?", "%i", "e0 ", "/./e1", "%%"]))
        dash = draw(st.sampled_from(["-", "-", "-", ""]) if path != "none" else st.just("-"))
        return f"EnvironmentFile={dash}{folder}/{path}"
    if kind == 13:
        return "PassEnvironment=" + " ".join(draw(st.lists(NAMES, max_size=3)))
    if kind == 14:
        return "UnsetEnvironment=" + " ".join(draw(st.lists(st.one_of(NAMES, NAMES.map("{}=1".format)), max_size=3)))
    if kind == 15:
        return draw(st.sampled_from(["PassEnvironment=", "UnsetEnvironment="])) + draw(RAW)
    if kind == 16:
        return draw(st.sampled_from(["User=daemon", "User=root", "User=nobody", "User="]))
    if kind == 17:
        return draw(
            st.sampled_from(["[Unit]", "[Service]", "[service]", "[X-Ours]", "nonsense", "environment=A=1", "A=1"])
        )
    if kind == 19:
        return draw(st.sampled_from(OTHERS))
    if kind == 18:
        others = ["RuntimeDirectory=a%i b", "StateDirectory=s", "ExecSearchPath=/x:/bin", "ExecSearchPath=", "# c \\"]
        return draw(st.sampled_from(others))
    return draw(RAW)


@st.composite
def env_file(draw: st.DrawFn) -> bytes:
    lines = []
    for _ in range(draw(st.integers(0, 6))):
        name, value = draw(NAMES), draw(TEXT)
        lines.append(
            draw(
                st.sampled_from(
                    [
                        *(f"{name}={value}", f'{name}="{value}"', f"{name}='{value}'", f"export {name}={value}"),
                        *(f"  {name} = {value}  ", f"{name}={value}\\", f"# {value}", f"{name}={draw(RAW)}"),
                        *(f"{name}='{value}'\"{value}\" x", draw(RAW)),
                    ]
                )
            )
        )
    end = draw(st.sampled_from(["\n", "\n", "\n", "\r\n"]))
    text = end.join(lines) + draw(st.sampled_from(["", end]))
    return text.encode() + draw(st.sampled_from([b"", b"", b"", b"", b"\nB=\xff\n", b"\0"]))


@st.composite
def unit(draw: st.DrawFn) -> Unit:
    number = NUMBER
    name = draw(st.sampled_from([f"pt-{number}-x.service", f"pt{number}@inst-a.service", f"pt{number}.service"]))
    prefix = name.partition("@")[0].removesuffix(".service")
    template = f"{prefix}@.service" if "@" in name else name
    folder = f"/etc/pt/{number}"
    start = draw(
        st.sampled_from(
            ["/bin/sleep infinity"] * 7
            + ["/usr/bin/env -u B A=wrapped 'C=$$ %%' /bin/sleep infinity", "/usr/bin/env -i B=${A} /bin/sleep 9999"]
            + ["/bin/sh -c 'export A=sh; B=\"x y\" exec /bin/sleep infinity'"]
            + ["-@/usr/bin/nice other -n 1 /bin/sleep infinity"]
        )
    )
    base = f"[Service]\nType=exec\nExecStart={start}\n"
    body = "\n".join(draw(st.lists(settings_lines(folder), max_size=3)))
    files = {f"/etc/systemd/system/{template}": (base + body + "\n").encode()}
    folders = [f"/{top}/systemd/system/{name}.d" for top in ("etc", "run", "usr/lib")]
    folders += [f"/etc/systemd/system/{template}.d", f"/etc/systemd/system/{prefix.rpartition('-')[0]}-.service.d"]
    for _ in range(draw(st.integers(0, 4))):
        where = draw(st.sampled_from(folders if prefix.count("-") == 2 else folders[:4]))
        path = f"{where}/{draw(st.sampled_from(['10-a', 'z', 'override', '50-x', 'ä']))}.conf"
        header = draw(st.sampled_from(["[Service]\n"] * 9 + ["", "[Service\n", "\ufeff[Service]\r\n"]))
        lines = draw(st.lists(settings_lines(folder), min_size=1, max_size=5))
        end = draw(st.sampled_from(["\n", "\n", "\n", "\r\n", ""]))
        text = header + draw(st.sampled_from(["\n", "\n", "\r\n"])).join(lines) + end
        files[path] = text.encode() + draw(st.sampled_from([b""] * 9 + [b"\nEnvironment=A=\xff\nEnvironment=B=2\n"]))
    for known in ("e0", "e1", "e2", "f1", "inst-a"):
        if draw(st.integers(0, 2)):
            files[f"{folder}/{known}"] = draw(env_file())
    return Unit(name, files)


def collect(count: int) -> list[Unit]:
    """Random units, numbered apart. Hypothesis draws one at a time, since it is slow with large examples; all are
    installed and started together, since a reload for each would be slower still."""
    drawn: list[Unit] = []

    @settings(max_examples=40, deadline=None, phases=[Phase.generate], database=None,
              suppress_health_check=list(HealthCheck))
    @given(one=unit())
    def draw(one: Unit) -> None:
        drawn.append(one.numbered(len(drawn)))

    while len(drawn) < count:  # drawn in portions: within one, many are variations of each other
        draw()
    return drawn


def ask(lab: Machine, units: list[Unit]) -> dict[str, Any]:
    files = {path: data for unit in units for path, data in unit.files.items()}
    todo = {
        "files": {path: base64.b64encode(data).decode() for path, data in files.items()},
        "units": [unit.name for unit in units],
        "properties": ",".join(systemctl.PROPERTIES),
    }
    answer: dict[str, Any] = json.loads(lab.run([sys.executable, "-c", INSIDE], input=json.dumps(todo)).stdout)
    return answer


ACCOUNTS = {"daemon": ("/usr/sbin", "/usr/sbin/nologin"), "nobody": ("/nonexistent", "/usr/sbin/nologin")}


def compare(unit: Unit, told: dict[str, Any], answer: dict[str, Any], files: dict[str, bytes]) -> str:
    """Empty, or how the computation differs from the process."""
    service = systemctl.parse_show(told["show"])

    def load(path: str, role: Any) -> UnitFile:
        return unitfile.parse(path, files[path].decode("utf-8", "surrogateescape"), role)

    unit_files = (load(service.fragment_path, "main"), *(load(path, "dropin") for path in service.dropin_paths))
    user = next((v for v, _, _ in reversed(unitfile.values(unit_files, "Service", "User"))), "")
    home, shell = ACCOUNTS.get(user, ("/root", "/bin/bash"))
    extra = environment.Extra(
        manager_process=environ.parse(base64.b64decode(answer["first"])),
        home=home,
        shell=shell,
        specifiers=answer["letters"],
        program="sleep",
    )

    def read(ref: environment.EnvFileRef, path: str) -> EnvFile:
        data = files.get(path)
        if data is None:
            return EnvFile(path=path, optional=ref.optional, missing=Missing("absent"))
        text = data.decode("utf-8", "surrogateescape")
        return envfile.parse(text, path, optional=ref.optional, systemd=252)

    def matches(pattern: str) -> list[str]:
        return sorted(path for path in files if fnmatch(path, pattern))

    refs = environment.files_to_read(unit_files, environment.context(service, extra))
    env_files = environment.assemble(refs, matches, read)
    manager = systemctl.parse_show_environment(answer["manager"])
    found = environment.effective(service, unit_files, env_files, manager, extra)
    fails = any("can't start" in problem for problem in found.problems)
    broken = service.load_state != "loaded"
    if broken != (unitfile.stop(unit_files[0]) is not None):
        return f"{service.load_state} {service.load_error}, but computed: {found.problems}"
    if fails != (told["pid"] == 0):
        return f"runs: {told['pid'] != 0}, but computed: {found.problems}"
    if fails:
        return ""
    want = {name: v.value for name, v in found.variables.items() if v.value is not None}
    have = environ.parse(base64.b64decode(told["environ"]))
    ignored = set(environment.SET_AT_START) | (BY_SHELL if "/bin/sh" in found.wrapper else set())
    ignored -= {name for name, v in found.variables.items() if v.value is not None}
    have = {name: value for name, value in have.items() if name not in ignored}
    if found.problems:
        return f"problems: {found.problems}"
    if want != have:
        names = sorted(n for n in {*want, *have} if want.get(n) != have.get(n))
        return "\n".join(f"{n}: computed {want.get(n)!r}, process {have.get(n)!r}" for n in names)
    shown = {w.partition("=")[0]: w.partition("=")[2] for w in service.environment}
    lines = unitfile.values(unit_files, "Service", "Environment")
    for name, variable in found.variables.items():
        if variable.origin.layer == "environment" and variable.value is not None and shown.get(name) != variable.value:
            return f"systemctl show reads {name} as {shown.get(name)!r}, not {variable.value!r} ({len(lines)} lines)"
    return ""


def test_effective_environment_is_the_process_environment(lab: Machine) -> None:
    """Drop-ins of every kind of folder, resets, environment files, Pass and Unset, wrappers, broken lines."""
    differing = []
    checked = 0
    for units in batches(collect(UNITS)):
        answer = ask(lab, units)
        files = {path: data for unit in units for path, data in unit.files.items()}
        for one in units:
            checked += 1
            if why := compare(one, answer["units"][one.name], answer, files):
                differing.append(f"{why}\n{one!r}")
    assert checked >= UNITS
    assert not differing, f"{len(differing)} of {checked} units differ:\n" + "\n\n".join(differing[:5])


def batches(units: list[Unit]) -> Iterator[list[Unit]]:
    """At most 80 at a time; every second batch has a type-level drop-in too."""
    for size in range(0, len(units), 80):
        part = units[size : size + 80]
        if size % 160:
            text = '[Service]\nEnvironment="ALL=%n" A=all\nPassEnvironment=HOME\n'
            part[0].files["/etc/systemd/system/service.d/30-all.conf"] = text.encode()
        yield part


HOSTILE = st.text(
    st.one_of(
        st.sampled_from(list("\"'\\%$`{}#;=[] \t\r\x01\x1b\x7f\x85\xa0\u2028\u202e\ufeff\U0001f600nbhx0u")),
        st.characters(exclude_categories=["Cs"], exclude_characters="\0\n"),
    ),
    max_size=40,
)


def test_quoted_values_arrive_byte_for_byte(lab: Machine) -> None:
    """What quote_environment and envfile.quote accept is what the process has, and no line or variable more."""
    values = ["", " ", "\\", "\\\\", '"', "a\\", "%n %% %", "${HOME} $X $$", "a\r", "\r", "[Service]", "# ;", "'\""]

    @settings(max_examples=400, deadline=None, phases=[Phase.generate], database=None)
    @given(value=HOSTILE)
    def draw(value: str) -> None:
        values.append(value)

    draw()
    values.append("x" * (131072 - len("V9999=") - 1))
    units, wanted = [], {}
    for number in range(0, len(values), 20):
        name = f"quoted{number}.service"
        want = {f"V{number + n}": value for n, value in enumerate(values[number : number + 20]) if sendable(value)}
        lines = "".join(f"Environment={quote_environment(key, value)}\n" for key, value in want.items())
        held = {f"F{key}": value for key, value in want.items() if "\r" not in value}
        env = "".join(envfile.quote(key, value) + "\n" for key, value in held.items())
        main = f"[Service]\nType=exec\nExecStart=/bin/sleep infinity\nEnvironmentFile=/etc/{name}\n{lines}"
        main += "Environment=LAST=1\n"
        units.append(Unit(name, {f"/etc/systemd/system/{name}": main.encode(), f"/etc/{name}": env.encode()}))
        wanted[name] = want | held | {"LAST": "1"}
    answer = ask(lab, units)
    for one in units:
        have = environ.parse(base64.b64decode(answer["units"][one.name]["environ"]))
        mine = {key: value for key, value in have.items() if key[0] in "VF" or key == "LAST"}
        assert mine == wanted[one.name]
        assert set(have) - set(mine) <= environment.SET_AT_START | {"LANG", "PATH"}
        (path, data) = next(iter(one.files.items()))
        problems = unitfile.parse(path, data.decode()).problems
        assert [problem for problem in problems if "typographic" not in problem.why] == []


# Problems that systemd passes over in silence: it reads on, though hardly as meant, or never comes to the line.
SILENT = re.compile(
    r"not read:|in section \[|.* which systemd ignores$|.*'s value|.* in \w+ expands|the backslash before|"
    r"several assignments|an invisible|this is no shell|this sets a variable|"
    r"one file a line|.*not a setting of systemd|a comment needs"
)


def test_our_problems_are_the_complaints_of_systemd(lab: Machine) -> None:
    """Each line that PID 1 complains of is a problem here; each problem is a line that it complains of, or passes
    over in silence. Our lines are the first of a continued line, PID 1's the last."""
    wrong: list[str] = []
    seen = 0
    for units in batches(collect(UNITS)):
        answer = ask(lab, units)
        said: dict[str, dict[int, str]] = {}
        for path, number, message in answer["complaints"]:
            text = message if isinstance(message, str) else bytes(message).decode("utf-8", "replace")
            if "Special user nobody" not in text:  # advice: the line counts
                said.setdefault(path, {})[number] = text
        for one in units:
            service = systemctl.parse_show(answer["units"][one.name]["show"])
            for path in (service.fragment_path, *service.dropin_paths):
                data = next(u.files[path] for u in units if path in u.files)
                theirs = said.get(path, {})
                wrong += disagreements(path, data.decode("utf-8", "surrogateescape"), theirs)
                seen += len(theirs)
    assert seen > UNITS / 2
    assert not wrong, f"{len(wrong)} lines:\n" + "\n".join(wrong[:12])


def disagreements(path: str, text: str, theirs: dict[int, str]) -> list[str]:
    ends = {line.first: line.last for line in unitfile.lines(text)}
    problems = unitfile.parse(path, text).problems
    ours = {ends[problem.line] for problem in problems}
    loud = {ends[p.line]: p for p in problems if not SILENT.match(p.why)}
    # Whether a name that holds one of these specifiers is a name hangs on the host.
    vague = {line.last for line in unitfile.lines(text) if re.search("%[HIijJlmbNopPqu]", line.text)}
    wrong = [f"only systemd: {path}:{n}: {said}" for n, said in theirs.items() if n not in ours | vague]
    return wrong + [f"only we: {path}:{n}: {p.why} ({p.text!r})" for n, p in loud.items() if n not in theirs]


def sendable(value: str) -> bool:
    """Whether the value is one that we say we can send; what systemd refuses must be refused by us."""
    try:
        quote_environment("V0000", value)
    except ValueError:
        return False
    return True


