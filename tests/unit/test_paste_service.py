"""What is pasted of the unit and its process: values of `systemctl show`, lines of a filter, states of the process."""

# ruff: noqa: E501 - pasted lines are as wide as they are
from __future__ import annotations

import pytest

from ollamactl.core import pasted
from ollamactl.core.checks import run
from ollamactl.core.paste import processes

SHOW = "$ systemctl show ollama -p {names}\n{lines}\n"
PS = "    PID STAT WCHAN                    ELAPSED CMD\n   2200 {state}  x        4-01:02:03 /usr/local/bin/ollama serve\n"
AUX = "$ ps aux | grep '[o]llama'\nollama      2200  0.4  2.1 1845200 351220 ?      {state}   Jun02  12:44 /usr/local/bin/ollama serve\n"
TOP = "    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND\n   2200 ollama    20   0 1845200 351220  21200 {state}   0.0   2.1   0:12.40 ollama\n"
JOURNAL = "Jun 03 09:00:{at} box systemd[1]: ollama.service: {said}\n"


def found(text: str, *severities: str) -> list[str]:
    facts = pasted.facts_of(text.encode(), "paste")
    wanted = severities or ("error", "warning")
    return [] if facts is None else [f.check for f in run(facts).findings if f.severity in wanted]


def shown(*lines: str) -> str:
    return SHOW.format(names=" -p ".join(line.split("=")[0] for line in lines), lines="\n".join(lines))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (shown("RuntimeMaxUSec=6h", "NRestarts=4"), ["runtime_limit_ends_server"]),
        (shown("RuntimeMaxUSec=infinity", "NRestarts=0"), []),
        (JOURNAL.format(at="01", said="Service reached runtime time limit. Stopping.") + JOURNAL.format(at="02", said="Failed with result 'timeout'."), ["runtime_limit_ends_server"]),
        (shown("StandardOutput=null", "StandardError=inherit"), ["log_not_kept"]),
        (shown("StandardOutput=journal", "StandardError=inherit"), []),
        (shown("LogLevelMax=warning", "ActiveState=active"), ["log_not_kept"]),
        (shown("LogLevelMax=-1", "ActiveState=active"), []),
        (shown("FreezerState=frozen", "ActiveState=active"), ["server_process_stopped"]),
        (shown("FreezerState=running", "ActiveState=active"), []),
    ],
)  # fmt: skip
def test_values_of_systemctl_show(text: str, expected: list[str]) -> None:
    assert found(text) == expected


LISTENS = 'time=2026-06-03T09:00:00.100Z level=INFO source=routes.go:1800 msg="Listening on 127.0.0.1:11434 (version 0.20.0)"\n'
EXPIRED = (
    LISTENS
    + JOURNAL.format(at="31", said="{} operation timed out. Terminating.")
    + JOURNAL.format(at="31", said="Failed with result 'timeout'.")
)
CAT = "$ systemctl cat ollama | grep -E 'Type|After|Exec'\nAfter=network-online.target\nType={}\nExecStart=/usr/local/bin/ollama serve\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (EXPIRED.format("start"), ["unit_type_unfit"]),
        (CAT.format("notify") + EXPIRED.format("start"), ["unit_type_unfit"]),
        (CAT.format("notify").replace("$ systemctl cat ollama | grep", "$ grep -rhE 'x' /etc/systemd/system/ollama.service #") + EXPIRED.format("start"), ["unit_type_unfit"]),
        (CAT.format("simple") + EXPIRED.format("start"), ["service_restart_loop"]),
        (EXPIRED.format("start-pre"), ["service_restart_loop"]),  # its ExecStartPre= takes too long
        (CAT.format("notify") + LISTENS, []),  # a build that tells systemd
    ],
)  # fmt: skip
def test_a_start_that_times_out_though_the_server_listens(text: str, expected: list[str]) -> None:
    assert found(text) == expected


def test_lines_of_a_filter_are_of_their_files_and_sections() -> None:
    text = (
        "$ grep -rn Environment /etc/systemd/system/ollama.service.d\n"
        "/etc/systemd/system/ollama.service.d/10-a.conf:2:Environment=OLLAMA_NUM_PARALLEL=4\n"
        "/etc/systemd/system/ollama.service.d/20-b.conf:2:Environment=OLLAMA_NUM_PARALLEL=1\n"
    )
    facts = pasted.facts_of(text.encode(), "paste")
    assert facts is not None and facts.unit_files is not None
    rows = [(f.path.rsplit("/", 1)[-1], a.line, a.value) for f in facts.unit_files for a in f.assignments]
    assert rows == [("10-a.conf", 2, "OLLAMA_NUM_PARALLEL=4"), ("20-b.conf", 3, "OLLAMA_NUM_PARALLEL=1")]
    assert not [p for f in facts.unit_files for p in f.problems]
    assert found(text, "error", "warning")[:1] == ["dropin_overridden_by_later_dropin"]


@pytest.mark.parametrize(
    "form",
    [
        PS,
        AUX,
        TOP,
        "$ ps ax | grep ollama\n   2200 ?        {state}    12:40 /usr/bin/ollama serve\n",
        "$ cat /proc/2200/status\nName:\tollama\nState:\t{state} (x)\n",
        "$ cat /proc/2200/stat\n2200 (ollama) {state} 1 2200 2200 0 -1\n",
    ],
)
def test_states_of_the_process(form: str) -> None:
    answers = "$ curl -m 3 http://127.0.0.1:11434/api/version\ncurl: (28) Operation timed out after 3002 milliseconds with 0 bytes received\n"
    assert found(answers + form.format(state="T")) == ["server_process_stopped"]
    assert "server_process_stopped" not in found(answers + form.format(state="S"))
    assert "server_process_stopped" not in found(form.format(state="T") + "$ sudo kill -CONT 2200\n")
    assert "server_process_stopped" not in found(form.format(state="T") + form.format(state="S"))


@pytest.mark.parametrize(
    ("line", "halted"),
    [
        ("[1]+  Stopped                 ollama serve", True),
        ("[1]  + 4411 suspended  ollama serve", True),
        ("[1]+  Stopped                 vim notes", False),
        ("[1]+  Running                 ollama serve &", False),
        ("3f2a  ollama/ollama  \"/bin/ollama serve\"  2 days ago  Up 2 days (Paused)  11434/tcp  ollama", True),
        ("3f2a  ollama/ollama  \"/bin/ollama serve\"  2 days ago  Up 2 days  11434/tcp  ollama", False),
        ('            "Paused": true,', True),
        ('            "Paused": false,', False),
        ("the client stopped and ollama serve goes on", False),
        ("   77 pts/1  T   0:00 less /var/log/ollama", False),
    ],
)  # fmt: skip
def test_words_of_shells_and_containers(line: str, halted: bool) -> None:
    assert (processes.stopped([(1, line)]) is not None) == halted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$ systemctl show ollama -p RuntimeMaxUSec --value\n4h\n$ systemctl is-active ollama\nactive\n", ["runtime_limit_ends_server"]),
        ("$ systemctl show ollama -P StandardOutput\nnull\n$ systemctl is-active ollama\nactive\n", ["log_not_kept"]),
        ("$ systemctl show ollama -P StandardOutput\njournal\n$ systemctl is-active ollama\nactive\n", []),
        (shown("WatchdogUSec=20s", "Result=watchdog"), ["service_restart_loop"]),
        (shown("WatchdogUSec=0", "Result=success"), []),
        (shown("ActiveState=active", "Result=watchdog"), []),  # of an earlier run
    ],
)  # fmt: skip
def test_values_that_only_their_command_names(text: str, expected: list[str]) -> None:
    assert found(text) == expected


@pytest.mark.parametrize(
    ("text", "first", "healthy"),
    [
        (
            "curl to :11434 connects and then nothing comes; /proc/901/status says State: T (stopped)",
            "server_process_stopped",
            "curl to :11434 is answered at once; /proc/901/status says State: S (sleeping)",
        ),
        (
            "The journal stays empty though ollama.service answers; systemctl show says StandardOutput=null",
            "log_not_kept",
            "The journal shows what ollama.service says; systemctl show says StandardOutput=journal",
        ),
        (
            "Each six hours all models are gone; journal: ollama.service: Service reached runtime time limit. Stopping.",
            "runtime_limit_ends_server",
            "ollama.service has RuntimeMaxUSec=infinity; it has run for months",
        ),
        (
            "It answers for 90 seconds and is killed; our unit has Type=forking; journal: ollama.service: start operation timed out. Terminating.",
            "unit_type_unfit",
            "It answers for months; our unit has Type=forking",
        ),
    ],
)  # fmt: skip
def test_told_of_the_unit(text: str, first: str, healthy: str) -> None:
    assert found(text, "error", "warning", "info")[:1] == [first]
    assert found(healthy) == []


COMPOSE = (
    "$ stat -c '%y' compose.yaml\n{changed}.502338716 +0100\n"
    "$ docker inspect ollama --format '{{{{.Created}}}} {{{{.State.StartedAt}}}}'\n"
    "2026-01-27T15:36:02.118846201Z 2026-02-20T09:12:30.740117339Z\n"
)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("2026-02-20 10:11:48", ["config_newer_than_process"]),
        ("2026-01-27 16:40:00", ["config_newer_than_process"]),  # four minutes later, in the host's zone
        ("2026-01-27 16:30:00", []),
    ],
)
def test_a_container_is_older_than_its_compose_file(changed: str, expected: list[str]) -> None:
    assert found(COMPOSE.format(changed=changed)) == expected


CAT = """$ cat /etc/systemd/system/{path}
[Service]
Environment="OLLAMA_NUM_PARALLEL=4"
$ journalctl -u ollama | grep "server config" | tail -1
time=2026-02-01T10:00:00Z level=INFO source=routes.go:1 msg="server config" env="map[OLLAMA_HOST:http://127.0.0.1:11434 OLLAMA_NUM_PARALLEL:{runs}]"
"""  # fmt: skip


@pytest.mark.parametrize(
    ("path", "runs", "check"),
    [
        ("ollama.d/override.conf", "1", "settings_file_not_read"),
        ("ollama.service.d/override.conf.bak", "1", "settings_file_not_read"),
        ("ollama.service.d/override", "1", "settings_file_not_read"),
        ("ollama.service.d/override.conf", "1", "env_not_in_server_config"),
        ("ollama.service.d/override.conf.bak", "4", ""),  # which another file sets
    ],
)
def test_a_file_that_is_shown_and_that_systemd_does_not_read(path: str, runs: str, check: str) -> None:
    assert found(CAT.format(path=path, runs=runs), "warning", "error") == ([check] if check else [])


ENV_FILE = """$ cat /etc/default/ollama
OLLAMA_NUM_PARALLEL=4
$ systemctl cat ollama
# /etc/systemd/system/ollama.service
[Service]
ExecStart=/usr/local/bin/ollama serve
{line}"""


@pytest.mark.parametrize(
    ("line", "checks"),
    [
        ("", ["settings_file_not_read"]),
        ("EnvironmentFile=/etc/default/ollama\n", []),
        ("EnvironmentFile=-/etc/default/ollama\n", []),
        ("Environment=OLLAMA_NUM_PARALLEL=4\n", ["settings_in_main_unit"]),  # which it has from elsewhere
    ],
)
def test_an_environment_file_that_is_shown_and_that_the_unit_does_not_name(line: str, checks: list[str]) -> None:
    assert found(ENV_FILE.format(line=line), "warning", "error") == checks


SERVES = "Jun 03 09:00:01 box ollama[{pid}]: time=2026-06-03T09:00:01.000Z level=INFO source=routes.go:2023 msg=\"Listening on 127.0.0.1:11434 (version 0.31.2)\"\n"
SOCKET = "$ ss -ltnp | grep 11434\nLISTEN 0      4096       127.0.0.1:11434      0.0.0.0:*    users:((\"ollama\",pid=2018,fd=3))\n"


@pytest.mark.parametrize(
    ("state", "pid", "expected"),
    [
        (("ActiveState=active",), 2018, []),
        (("ActiveState=active", "MainPID=2018"), 2018, []),
        (("ActiveState=active", "MainPID=2018"), 7, []),
        (("ActiveState=failed", "MainPID=0", "Result=exit-code"), 7, ["port_in_use"]),
    ],
)
def test_a_service_without_its_pid_holds_its_own_port(state: tuple[str, ...], pid: int, expected: list[str]) -> None:
    text = shown(*state) + "\n" + SOCKET + "\n$ journalctl -u ollama\n" + SERVES.format(pid=pid)
    assert found(text)[:1] == expected
