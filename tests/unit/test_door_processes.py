"""Processes as the live door reads them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from ollamactl.core.facts import HostMemory, Process, System
from ollamactl.core.source import native
from ollamactl.host.live import LiveHost
from ollamactl.host.processes import is_server

pytestmark = pytest.mark.touches("machine", "process")
HOST = LiveHost()


def test_one_process_with_odd_arguments_and_environment() -> None:
    env = {"A": "b=c", "EMPTY": "", "SPACES": " two  words ", "LINE": "x\ny", "TOKEN": "é"}
    raw = {**{k.encode(): v.encode() for k, v in env.items()}, b"BYTES": b"a\xffb"}
    child = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()", "two words", "", "-np"],
        env=raw, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout and child.stdin
    try:
        child.stdout.readline()
        found = msgspec.json.decode(HOST.read(native("process", str(child.pid))).body or b"", type=Process)
    finally:
        child.communicate(b"\n")
    assert (found.pid, found.ppid, found.uid) == (child.pid, os.getpid(), os.geteuid())
    assert found.argv[2:] == ("print(flush=True); input()", "two words", "", "-np")
    assert found.environ is not None and {k: found.environ[k] for k in env} == env
    assert found.environ["BYTES"] == "a\\xffb"  # what is not UTF-8 stays recognisable
    assert found.started is not None and abs(time.time() - found.started) < 3600
    assert found.rss and found.rss > 1 << 20 and found.state and found.exe and found.comm
    assert found.net_ns == os.stat("/proc/self/ns/net").st_ino
    reading = HOST.read(native("process", str(child.pid)))
    assert reading.missing and reading.missing.kind == "absent"


@pytest.mark.parametrize("pid", ["0", "-1", "999999999", "99999999999999999999"])
def test_no_such_process(pid: str) -> None:
    for name in ("process", "children"):
        reading = HOST.read(native(name, pid))
        assert reading.missing is None or reading.missing.kind == "absent", reading


def test_children_and_their_children() -> None:
    child = subprocess.Popen(
        ["sh", "-c", "sh -c 'echo up; sleep 60; :' & wait"], stdout=subprocess.PIPE, start_new_session=True
    )
    assert child.stdout
    try:
        child.stdout.readline()
        deadline = time.monotonic() + 20
        while True:
            found = msgspec.json.decode(HOST.read(native("children", str(child.pid))).body or b"", type=list[Process])
            if any(p.comm == "sleep" for p in found) or time.monotonic() > deadline:
                break
        by_name = {p.comm: p for p in found}
        assert set(by_name) == {"sh", "sleep"}
        assert by_name["sh"].ppid == child.pid and by_name["sleep"].ppid == by_name["sh"].pid
    finally:
        os.killpg(child.pid, 9)
        child.communicate()


def test_servers_are_found_and_clients_are_not(tmp_path: Path) -> None:
    program = tmp_path / "ollama"
    program.write_text(f"#!{sys.executable}\nprint(flush=True); input()\n")
    program.chmod(0o755)
    started = [
        subprocess.Popen([str(program), word], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for word in ("serve", "run", "start")
    ]
    try:
        for each in started:
            assert each.stdout and each.stdout.readline()
        found = msgspec.json.decode(HOST.read(native("servers")).body or b"", type=list[Process])
        pids = {p.pid for p in found}
        assert [each.pid in pids for each in started] == [True, False, True]
    finally:
        for each in started:
            each.communicate(b"\n")


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("/usr/local/bin/ollama serve", True), ("ollama start", True), ("ollama --verbose serve", True),
        ("python3 /usr/bin/ollama serve", True), ("ollama run serve", False), ("ollama runner --model x", False),
        ("sudo ollama serve", False), ("sh -c ollama\\ serve", False), ("ollama", False), ("", False),
        ("/usr/bin/ollama-exporter serve", False), ("vim ollama serve", False),
    ],
)  # fmt: skip
def test_which_command_lines_are_servers(line: str, is_one: bool) -> None:
    assert is_server(tuple(line.split())) is is_one


def test_machine_and_memory() -> None:
    found = msgspec.json.decode(HOST.read(native("system")).body or b"", type=System)
    assert found.os == "linux" and found.kernel == os.uname().release and found.euid == os.geteuid()
    assert found.cpus == len(os.sched_getaffinity(0)) and found.init and len(found.boot_id) == 36
    memory = msgspec.json.decode(HOST.read(native("memory")).body or b"", type=HostMemory)
    told = {
        k: int(v.split()[0]) << 10
        for k, _, v in (x.partition(":") for x in Path("/proc/meminfo").read_text().splitlines())
    }
    assert memory.total == told["MemTotal"] and 0 < memory.available <= memory.total
    assert memory.swap_total == told["SwapTotal"]


def test_importing_the_door_loads_nothing_heavy() -> None:
    heavy = ("psutil", "pynvml", "http.client", "ssl", "ctypes", "pystemd")
    code = f"import sys, ollamactl.host.live; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
