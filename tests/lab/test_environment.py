"""The computed environment of random units equals what a real systemd gives their processes, byte for byte."""

from __future__ import annotations

import base64
import json
import os
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
print(json.dumps({"units": made, "manager": systemctl("show-environment"), "first": b64(first), "letters": letters}))
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
    kind = draw(st.integers(0, 19))
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

    if service.load_state != "loaded":
        return f"systemd did not load it: {service.load_state} {service.load_error}"
    unit_files = (load(service.fragment_path, "main"), *(load(path, "dropin") for path in service.dropin_paths))
    user = next((v for v, _, _ in reversed(unitfile.values(unit_files, "Service", "User"))), "")
    home, shell = ACCOUNTS.get(user, ("/root", "/bin/bash"))
    extra = environment.Extra(
        manager_process=environ.parse(base64.b64decode(answer["first"])),
        home=home,
        shell=shell,
        specifiers=answer["letters"],
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
