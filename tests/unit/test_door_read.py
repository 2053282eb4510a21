"""Files, folders and commands of the live door."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ollamactl.core.source import Source, command, file, listing, native, stat
from ollamactl.host.live import LiveHost

HOST = LiveHost()
PYTHON = sys.executable


def kind(source: Source) -> str:
    missing = HOST.read(source).missing
    return missing.kind if missing else ""


# -- files --


def test_file_body_time_and_key(tmp_path: Path) -> None:
    path = tmp_path / "a b"
    path.write_bytes(b"one\xff\0two\n")
    before = time.time()
    reading = HOST.read(file(str(path)))
    assert reading.body == b"one\xff\0two\n" and reading.missing is None
    assert reading.key == f"file:{tmp_path}/a%20b"
    assert before <= reading.at <= time.time() and reading.seconds >= 0


def test_empty_file_is_not_missing(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    reading = HOST.read(file(str(tmp_path / "a")))
    assert reading.body == b"" and reading.missing is None


def test_what_a_file_may_lack(tmp_path: Path) -> None:
    (tmp_path / "text").touch()
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "fifo")
    assert kind(file(str(tmp_path / "none"))) == "absent"
    assert kind(file(str(tmp_path / "text" / "below"))) == "absent"
    assert kind(file(str(tmp_path / "loop"))) == "failed"
    assert kind(file("a\0b")) == "absent"
    folder = HOST.read(file(str(tmp_path)))
    assert folder.missing and folder.missing.kind == "failed" and "is a folder" in folder.missing.detail
    fifo = HOST.read(file(str(tmp_path / "fifo")))  # must not wait for a writer
    assert fifo.missing and "not a regular file" in fifo.missing.detail and fifo.body is None


def test_masked_unit_reads_as_empty(tmp_path: Path) -> None:
    (tmp_path / "ollama.service").symlink_to("/dev/null")
    reading = HOST.read(file(str(tmp_path / "ollama.service")))
    assert reading.body == b"" and reading.missing is None


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 600_000])
def test_limit_of_a_file(tmp_path: Path, size: int) -> None:
    (tmp_path / "a").write_bytes(b"x" * size)
    reading = HOST.read(file(str(tmp_path / "a"), limit=10))
    assert reading.body == b"x" * min(size, 10)
    assert reading.stderr == (f"cut: first 10 bytes of {size}" if size > 10 else "")


@pytest.mark.touches("machine")
def test_file_of_proc() -> None:
    reading = HOST.read(file("/proc/self/status"))
    assert reading.body and reading.body.startswith(b"Name:")


@pytest.mark.touches("process")
@pytest.mark.skipif(os.geteuid() != 0, reason="changes to an ordinary user, which only root may")
def test_denied_without_root(tmp_path: Path) -> None:
    """As an ordinary user: another's file, folder and program are denied, with the hint that shows them."""
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "folder").mkdir(mode=0o700)
    (tmp_path / "folder" / "x").touch()
    (tmp_path / "program").write_text("#!/bin/sh\n")
    (tmp_path / "program").chmod(0o700)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    code = """
import json, os, sys
from ollamactl.core.source import *
from ollamactl.host.live import LiveHost
import ollamactl.host.http, ollamactl.host.processes, pwd
os.setgroups([]); os.setgid(65534); os.setuid(65534)
at = sys.argv[1]
sources = [file(at + "/secret"), listing(at + "/folder"), listing(at + "/folder/*"), file(at + "/folder/x"),
           stat(at + "/folder/x"), command(at + "/program")]
process = LiveHost().read(native("process", "1"))
print(json.dumps([[r.missing.kind, r.missing.hint] for r in map(LiveHost().read, sources)]))
print(json.dumps(json.loads(process.body).get("environ")))
"""
    done = subprocess.run(
        [PYTHON, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True, env=as_anyone()
    )
    answers, environ = done.stdout.splitlines()
    assert json.loads(answers) == [["denied", "sudo shows it"]] * 6
    assert json.loads(environ) is None


def as_anyone() -> dict[str, str]:
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}


# -- stat and lists --


def test_stat(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("four")
    path.chmod(0o640)
    (tmp_path / "link").symlink_to("nowhere")
    found = json.loads(HOST.read(stat(str(path))).text)
    assert found["type"] == "file" and found["mode"] == 0o640 and found["size"] == 4 and found["target"] is None
    assert found["mtime"] == path.stat().st_mtime and found["uid"] == os.geteuid()
    link = json.loads(HOST.read(stat(str(tmp_path / "link"))).text)
    assert link["type"] == "link" and link["target"] == "nowhere"
    assert json.loads(HOST.read(stat(str(tmp_path))).text)["type"] == "folder"
    assert json.loads(HOST.read(stat("/dev/null")).text)["type"] == "char"
    assert kind(stat(str(tmp_path / "none"))) == "absent"


def test_list_of_folder_and_glob(tmp_path: Path) -> None:
    tmp_path = tmp_path / "x-glob0"
    tmp_path.mkdir()
    for name in ("b.conf", "a.conf", ".hidden.conf", "c.bak"):
        (tmp_path / name).touch()
    assert json.loads(HOST.read(listing(str(tmp_path))).text) == [".hidden.conf", "a.conf", "b.conf", "c.bak"]
    assert json.loads(HOST.read(listing(f"{tmp_path}/*.conf")).text) == [f"{tmp_path}/a.conf", f"{tmp_path}/b.conf"]
    assert json.loads(HOST.read(listing(f"{tmp_path}/[ab].c*")).text) == [f"{tmp_path}/a.conf", f"{tmp_path}/b.conf"]
    assert json.loads(HOST.read(listing(f"{tmp_path}/*.none")).text) == []
    assert json.loads(HOST.read(listing(f"{tmp_path.parent}/*glob0/a.conf")).text) == [f"{tmp_path}/a.conf"]
    assert kind(listing(str(tmp_path / "none"))) == "absent"
    assert kind(listing(f"{tmp_path}/none/*.conf")) == "absent"


# -- commands --


def python(code: str, **how: object) -> Source:
    return command(PYTHON, "-c", code, **how)  # type: ignore[arg-type]


@pytest.mark.touches("process")
def test_command_output_and_errors() -> None:
    fine = HOST.read(python("import sys; print('out'); print('err', file=sys.stderr)"))
    assert fine.body == b"out\n" and fine.status == 0 and fine.stderr == "err" and fine.missing is None
    failed = HOST.read(python("import sys; print('half'); sys.exit('first\\nlast line')"))
    assert failed.missing and failed.missing.kind == "failed" and "last line (exit 1)" in failed.missing.detail
    assert failed.body == b"half\n" and failed.status == 1
    allowed = HOST.read(python("print('x'); exit(3)", any_exit=True))
    assert allowed.missing is None and allowed.status == 3 and allowed.body == b"x\n"
    killed = HOST.read(python("import os; os.kill(os.getpid(), 9)"))
    assert killed.missing and "signal 9" in killed.missing.detail
    assert kind(command("no-such-program-here")) == "absent"


@pytest.mark.touches("process")
def test_command_gets_no_shell_no_input_and_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    monkeypatch.setenv("LANGUAGE", "de")
    monkeypatch.setenv("LC_MESSAGES", "de_DE.UTF-8")
    code = "import sys,os,json; print(json.dumps([sys.argv[1:], sys.stdin.read(), {k: v for k, v in os.environ.items() if k[:2] == 'LC' or k[:4] == 'LANG'}]))"  # noqa: E501
    reading = HOST.read(command(PYTHON, "-c", code, "$HOME; echo *"))
    assert json.loads(reading.text) == [["$HOME; echo *"], "", {"LC_ALL": "C.UTF-8"}]


@pytest.mark.touches("process", "machine")
def test_timeout_kills_the_whole_group(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 300 & echo $$ $! > {pids}; wait"
    reading = HOST.read(command("sh", "-c", script, timeout=0.5))
    assert reading.missing and reading.missing.kind == "timeout"
    for pid in pids.read_text().split():
        for _ in range(200):  # the orphan is reaped by init, which may take a moment
            state = Path(f"/proc/{pid}/stat")
            if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
                break
            time.sleep(0.01)
        else:
            pytest.fail(f"{pid} still runs")


@pytest.mark.touches("process")
def test_limit_ends_an_endless_command() -> None:
    reading = HOST.read(command("yes", limit=1_000_000))
    assert reading.body == b"y\n" * 500_000 and reading.stderr == "cut: at 1000000 bytes"


@pytest.mark.touches("process")
def test_large_output_of_both_pipes_does_not_block() -> None:
    reading = HOST.read(
        python("import sys\nfor _ in range(300): sys.stderr.write('e' * 9999 + '\\n'); print('o' * 9999)")
    )
    assert len(reading.body or b"") == 3_000_000 and reading.missing is None and len(reading.stderr) <= 8 << 10


@pytest.mark.touches("process")
def test_stream_in_chunks_and_stopped_early() -> None:
    stream = HOST.stream(python("print('x' * 3_000_000)"))
    chunks = list(stream)
    assert sum(map(len, chunks)) == 3_000_001 and len(chunks) > 1 and max(map(len, chunks)) <= 256 << 10
    assert stream.reading.status == 0 and stream.reading.missing is None and stream.reading.body is None
    endless = HOST.stream(command("yes", limit=1 << 40))
    for _ in endless:
        break
    endless.close()
    assert endless.reading.missing is None
    missing = HOST.stream(command("no-such-program-here"))
    assert list(missing) == [] and missing.reading.missing is not None and missing.reading.missing.kind == "absent"


@pytest.mark.touches("process")
def test_a_slow_reader_is_no_timeout() -> None:
    """Patience counts waiting for the program: it had written everything long before it was read."""
    stream = HOST.stream(python("print('x' * 2_500_000)", timeout=5.0))
    total, now = 0, time.monotonic
    began = now()
    for chunk in stream:
        total += len(chunk)
        while now() - began < 0.6 and total < 1_000_000:
            pass
    assert total == 2_500_001 and stream.reading.missing is None


@pytest.mark.touches("process")
def test_interrupt_leaves_no_process(tmp_path: Path) -> None:
    """^C while reading: the program, in a group of its own, is ended with us."""
    code = f"""
import signal, sys, os
from ollamactl.core.source import command
from ollamactl.host.live import LiveHost
signal.signal(signal.SIGALRM, lambda *a: (_ for _ in ()).throw(KeyboardInterrupt()))
signal.setitimer(signal.ITIMER_REAL, 0.4)
try:
    LiveHost().read(command("sh", "-c", "echo $$ > {tmp_path}/pid; exec sleep 300"))
except KeyboardInterrupt:
    pid = int(open("{tmp_path}/pid").read())
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        print("ended")
"""
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "ended\n"


def test_unknown_native_reading() -> None:
    assert kind(native("no-such-thing")) == "unsupported"


def test_a_hanging_library_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    from ollamactl.host import gpu_sysfs

    monkeypatch.setattr(gpu_sysfs, "read", lambda: time.sleep(3) or b"")
    reading = HOST.read(native("gpu_sysfs", timeout=0.1))
    assert reading.missing and reading.missing.kind == "timeout" and reading.body is None
