"""`systemctl show`, `show-environment` and `list-units`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ollamactl.core.parse import environ, systemctl

RECORDED = Path(__file__).resolve().parents[1] / "recorded"
SHOWN = sorted(RECORDED.glob("*/systemctl_show.txt"))


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.parent.name)
def test_recorded(path: Path) -> None:
    found = systemctl.parse_show(path.read_text())
    state = "bad" if path.parent.name == "10h-broken-section" else "enabled"
    assert (found.load_state, found.unit_file_state, found.load_error) == ("loaded", state, "")
    assert found.fragment_path == "/etc/systemd/system/ollama.service"
    assert found.exec_main_start is not None and 1796007000 < found.exec_main_start < 1796020000
    assert len(found.invocation_id) == 32
    assert (found.main_pid > 0) == (found.active_state == "active")
    assert found.need_daemon_reload == ("NeedDaemonReload=yes" in path.read_text())
    process = path.with_name("proc_environ.txt")
    if found.main_pid and process.exists() and path.parent.name != "11-edited-no-daemon-reload":
        have = environ.parse(process.read_bytes().replace(b"\n", b"\0"))
        assert {a.partition("=")[0]: a.partition("=")[2] for a in found.environment}.items() <= have.items()


def test_all_recordings_are_here() -> None:
    assert len(SHOWN) == 55


FULL = r"""Id=ollama.service
MainPID=0
ExecMainCode=exited
ExecMainStatus=1
ExecMainStartTimestamp=@1796007396
ActiveEnterTimestamp=Mon 2026-11-30 02:56:36.250000 UTC
ExecStart={ path=/bin/sh ; argv[]=/bin/sh -c exec ollama serve ; ignore_errors=no ; pid=0 ; code=(null) ; status=0/0 }
ExecStartPre={ path=/bin/a ; argv[]=/bin/a ; ignore_errors=yes ; start_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }
ExecStartPre={ path=/bin/b ; argv[]=/bin/b ; ignore_errors=yes ; start_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }
Environment="A=two words" "B=a\"b\\c\$d" "C=\001\n" D=ü
EnvironmentFiles=/etc/default/ollama (ignore_errors=no)
EnvironmentFiles=/etc/a b/* (ignore_errors=yes)
DropInPaths=/etc/systemd/system/ollama.service.d/10-a.conf "/etc/systemd/system/ollama.service.d/my file.conf"
PassEnvironment=HTTP_PROXY NO_PROXY
RestartUSec=1min 30.500s
StartLimitIntervalUSec=infinity
StartLimitBurst=5
MemoryMax=infinity
MemoryHigh=18446744073709551615
MemoryCurrent=[not set]
DeviceAllow=/dev/nvidia0 rw
DeviceAllow=char-drm rw
WorkingDirectory=!/var/lib/ollama
PrivateNetwork=yes
LoadError=org.freedesktop.systemd1.BadUnitSetting "Unit ollama.service has a bad unit file setting."
CanReload=no
"""


def test_every_kind_of_value() -> None:
    s = systemctl.parse_show(FULL)
    assert (s.exec_main_code, s.exec_main_status, s.main_pid) == (1, 1, 0)
    assert s.exec_main_start == 1796007396.0 and s.active_enter == 1796007396.25
    assert s.environment == ("A=two words", 'B=a"b\\c$d', "C=\x01\n", "D=ü")
    assert s.environment_files == (("/etc/default/ollama", False), ("/etc/a b/*", True))
    assert s.dropin_paths[1] == "/etc/systemd/system/ollama.service.d/my file.conf"
    assert s.exec_start == ("/bin/sh", "-c", "exec", "ollama", "serve")
    assert s.exec_start_pre == ("/bin/a",)
    assert (s.restart_seconds, s.start_limit_interval, s.start_limit_burst) == (90.5, float("inf"), 5)
    assert (s.memory_max, s.memory_high, s.memory_current) == (None, None, None)
    assert s.device_allow == ("/dev/nvidia0 rw", "char-drm rw")
    assert (s.working_directory, s.private_network, s.can_reload) == ("/var/lib/ollama", True, False)
    assert s.load_error == "Unit ollama.service has a bad unit file setting."


def test_of_several_units_the_first_is_taken_and_nothing_printed_is_no_unit() -> None:
    assert systemctl.parse_show("Id=a.service\nMainPID=1\n\nId=b.service\nMainPID=2\n").main_pid == 1
    assert systemctl.parse_show("").id == ""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Mon 2026-11-30 02:56:36 UTC", 1796007396.0),
        ("2026-11-30 02:56:36 UTC", 1796007396.0),
        ("Mon 2026-11-30 05:56:36 +03", 1796007396.0),
        ("Sun 2026-11-29 21:26:36 -0530", 1796007396.0),
        ("@1796007396", 1796007396.0),
        ("@1796007396500000us", None),
        ("Mon 2026-11-30 02:56:36 CET", None),  # the name does not say where: UTC+1 here, another offset elsewhere
        ("Mon 2026-13-30 02:56:36 UTC", None),
        ("n/a", None),
        ("", None),
        ("0", None),
    ],
)
def test_times(text: str, seconds: float | None) -> None:
    found = systemctl.parse_time(text)
    assert found == (1796007396.5 if text.endswith("us") else seconds)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("100ms", 0.1), ("3s", 3.0), ("1min 30s", 90.0), ("1d 2h", 93600.0), ("3000000", 3.0), ("x", None)],
)
def test_spans(text: str, seconds: float | None) -> None:
    assert systemctl.parse_span(text) == seconds


def test_show_environment() -> None:
    text = "LANG=C.UTF-8\nPATH=/bin\nA=$'two words \\'x\\' \\n\\303\\244'\nB=\n"
    assert systemctl.parse_show_environment(text) == {
        "LANG": "C.UTF-8", "PATH": "/bin", "A": "two words 'x' \nä", "B": "",
    }  # fmt: skip
