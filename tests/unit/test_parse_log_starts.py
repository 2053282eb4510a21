"""Which lines belong to which start, and what is never believed."""
# ruff: noqa: E501  (log lines stand as they are printed)

from __future__ import annotations

import json

from tests.unit.logs import entries, lines, parse

CONFIG = 'time=2026-11-30T02:56:38.618Z level=INFO source=routes.go:1951 msg="server config" env="map[OLLAMA_HOST:{} OLLAMA_NUM_PARALLEL:{}]"'
LISTEN = 'time=2026-11-30T02:56:38.619Z level=INFO source=routes.go:2008 msg="Listening on 127.0.0.1:11434 (version {})"'
GIN = '[GIN] 2026/11/30 - 02:56:39 | 200 |  1.275773246s |       127.0.0.1 | POST     "/api/generate"'
WARN = 'time=2026-11-30T02:56:39.000Z level=WARN source=sched.go:1 msg="model architecture does not currently support parallel requests" architecture=qwen35'


def config(parallel: int, host: str = "h") -> str:
    return CONFIG.format(host, parallel)


def entry(message: str, pid: int, invocation: str = "a" * 32, **more: str) -> str:
    fields = {
        "MESSAGE": message, "_PID": str(pid), "_COMM": "ollama", "SYSLOG_IDENTIFIER": "ollama", "_TRANSPORT": "stdout",
        "_SYSTEMD_UNIT": "ollama.service", "_SYSTEMD_INVOCATION_ID": invocation, "__REALTIME_TIMESTAMP": "1796007398553740",
    }  # fmt: skip
    return json.dumps(fields | more, separators=(",", ":"))


def manager(message: str, invocation: str, **more: str) -> str:
    fields = {
        "MESSAGE": message, "_PID": "1", "_COMM": "systemd", "SYSLOG_IDENTIFIER": "systemd", "UNIT": "ollama.service",
        "_SYSTEMD_UNIT": "init.scope", "INVOCATION_ID": invocation, "__REALTIME_TIMESTAMP": "1796007398553740",
    }  # fmt: skip
    return json.dumps(fields | more, separators=(",", ":"))


def values(log: object) -> list[str | None]:
    return [one.config and one.config["OLLAMA_NUM_PARALLEL"] for one in log.starts]  # type: ignore[attr-defined]


def test_two_invocations() -> None:
    log = lines(
        entry(config(1), 10, "a" * 32),
        entry(LISTEN.format("1"), 10, "a" * 32),
        manager("Stopped ollama.service - Ollama Service.", "a" * 32),
        manager("Started ollama.service - Ollama Service.", "b" * 32),
        entry(config(4), 20, "b" * 32),
        entry(LISTEN.format("2"), 20, "b" * 32),
        entry(GIN, 20, "b" * 32),
    )
    assert values(log) == ["1", "4"]
    assert [one.ended for one in log.starts] == [True, False]
    newest = log.start_of("b" * 32)
    assert newest is not None and newest.requests[0].count == 1 and newest.pid == 20


def test_a_later_line_of_the_same_process_changes_nothing() -> None:
    """A prompt printed with DEBUG may hold any line."""
    log = lines(entry(config(4), 10), entry(LISTEN.format("1"), 10), entry(config(99), 10), entry(LISTEN.format("9"), 10))
    assert values(log) == ["4"]
    assert log.starts[0].version == "1"


def test_another_process_of_the_same_invocation_is_not_the_server() -> None:
    log = lines(
        entry(config(4), 10),
        entry(LISTEN.format("1"), 10),
        entry(config(99), 11),
        entry(LISTEN.format("9"), 11),
    )
    assert values(log) == ["4"]


def test_a_forged_line_before_the_servers_own() -> None:
    """What a client run by ExecStartPre prints is not the server's."""
    log = lines(entry(config(99), 9), entry(config(4), 10), entry(LISTEN.format("1"), 10), entry(GIN, 10))
    assert values(log) == ["4"]
    assert log.starts[0].pid == 10


def test_a_line_of_another_unit_or_user_is_not_read() -> None:
    log = parse(
        "\n".join(
            [
                entry(config(4), 10),
                entry(LISTEN.format("1"), 10),
                entry(config(99), 66, "c" * 32, _SYSTEMD_UNIT="session-3.scope"),
                entry(LISTEN.format("9"), 66, "c" * 32, _SYSTEMD_UNIT="session-3.scope"),
                entry(WARN, 10, "d" * 32, _SYSTEMD_UNIT="ollama@gpu1.service"),
            ]
        ),
        unit="ollama",
    )
    assert values(log) == ["4"]
    assert log.starts[0].counts == {}


def test_without_a_unit_given_other_units_without_ollama_in_their_name_are_left_out() -> None:
    log = lines(
        entry(config(4), 10),
        entry(LISTEN.format("1"), 10),
        entry(config(99), 66, "c" * 32, _SYSTEMD_UNIT="session-3.scope"),
        entry(LISTEN.format("9"), 66, "c" * 32, _SYSTEMD_UNIT="session-3.scope"),
    )
    assert values(log) == ["4"]


def test_a_message_that_only_contains_the_line_is_not_one() -> None:
    inner = json.dumps(config(99))
    log = lines(
        entry(config(4), 10),
        entry(f"time=2026-11-30T02:56:38.700Z level=DEBUG source=x.go:1 msg=\"chat request\" prompt={inner}", 10),
        entry(f"  {config(98)}", 10),
        entry(LISTEN.format("1"), 10),
        entry(f"the user wrote {config(97)}", 10),
    )
    assert values(log) == ["4"]


def test_a_manager_line_is_believed_of_pid_1_only() -> None:
    log = lines(
        entry(config(4), 10),
        entry(LISTEN.format("1"), 10),
        manager("ollama.service: Main process exited, code=exited, status=1/FAILURE", "a" * 32, _PID="666", _COMM="evil"),
        manager("Started ollama.service - Ollama Service.", "b" * 32, _PID="666", _COMM="evil"),
        entry(GIN, 10),
    )
    assert not log.starts[0].ended
    assert log.systemd == ()


def test_text_form_with_pids() -> None:
    def text(pid: int, message: str, ident: str = "ollama") -> str:
        return f"Nov 30 02:56:38 vm {ident}[{pid}]: {message}"

    log = lines(
        text(1, "Started ollama.service - Ollama Service.", "systemd"),
        text(10, config(1)),
        text(10, LISTEN.format("1")),
        text(11, "INFO [main] model loaded | tid=1"),  # a runner that writes for itself
        text(12, config(99)),  # nobody listens after it
        text(10, GIN),
        text(1, "ollama.service: Deactivated successfully.", "systemd"),
        text(1, "Started ollama.service - Ollama Service.", "systemd"),
        text(20, config(4)),
        text(20, LISTEN.format("2")),
        text(1, "Started unrelated.service.", "systemd"),
        text(20, GIN),
    )
    assert values(log) == ["1", "4"]
    assert [one.pid for one in log.starts] == [10, 20]
    assert [one.requests[0].count for one in log.starts] == [1, 1]
    assert [one.ended for one in log.starts] == [True, False]


def test_plain_log_with_several_starts() -> None:
    log = lines(config(1), LISTEN.format("1"), GIN, config(4), LISTEN.format("2"), GIN, GIN)
    assert values(log) == ["1", "4"]
    assert [one.requests[0].count for one in log.starts] == [1, 2]
    assert [one.ended for one in log.starts] == [True, False]


def test_plain_log_with_a_forged_configuration() -> None:
    log = lines(config(4), LISTEN.format("1"), GIN, config(99), GIN, GIN)
    assert values(log) == ["4"]
    assert log.starts[0].requests[0].count == 3


def test_releases_without_server_config() -> None:
    old = "2024/01/10 12:36:43 routes.go:930: Listening on 127.0.0.1:11434 (version 0.1.19)"
    log = lines(old, GIN, old, GIN, GIN)
    assert [one.version for one in log.starts] == ["0.1.19", "0.1.19"]
    assert [one.requests[0].count for one in log.starts] == [1, 2]
    assert values(log) == [None, None]


def test_warnings_before_slog_is_set_up_belong_to_the_new_start() -> None:
    early = "2026/11/30 02:58:54 config.go:263: WARN invalid environment variable, using default key=A value=abc default=1"
    log = lines(config(1), LISTEN.format("1"), GIN, early, config(4), LISTEN.format("2"), GIN)
    assert values(log) == ["1", "4"]
    assert [one.counts.get("invalid_environment", 0) for one in log.starts] == [0, 1]


def test_a_held_port_in_a_plain_log_is_a_start_of_its_own() -> None:
    log = lines(config(1), LISTEN.format("1"), GIN, "Error: listen tcp 127.0.0.1:11434: bind: address already in use")
    assert [one.ended for one in log.starts] == [False, True]
    assert log.starts[1].counts == {"bind_error": 1, "fatal_error": 1}


def test_a_tail_without_the_beginning() -> None:
    log = lines(GIN, WARN, GIN)
    assert len(log.starts) == 1
    assert log.starts[0].config is None
    assert log.starts[0].counts == {"parallel_forced_to_1": 1}
    assert log.starts[0].requests[0].count == 2


def test_containers_are_known_by_their_id() -> None:
    def container(message: str) -> str:
        return entry(message, 500, "e" * 32, CONTAINER_ID="0123456789ab", _SYSTEMD_UNIT="docker.service", _COMM="dockerd",
                     SYSLOG_IDENTIFIER="ollama")  # fmt: skip

    log = lines(*map(container, [config(1), LISTEN.format("1"), GIN, config(4), LISTEN.format("2"), GIN]))
    assert values(log) == ["1", "4"]


def test_a_start_that_fails_in_text_form() -> None:
    text = "Nov 30 02:56:38 vm {}[{}]: {}"
    bind = "Error: listen tcp 127.0.0.1:11434: bind: address already in use"
    log = lines(
        *(
            text.format(*one)
            for number in (10, 11, 12)
            for one in [
                ("systemd", 1, "Started ollama.service - Ollama Service."),
                ("ollama", number, bind),
                ("systemd", 1, "ollama.service: Main process exited, code=exited, status=1/FAILURE"),
                ("systemd", 1, f"ollama.service: Scheduled restart job, restart counter is at {number}."),
            ]
        )
    )
    assert [one.pid for one in log.starts] == [10, 11, 12]
    assert all(one.ended and one.counts["bind_error"] == 1 for one in log.starts)


def test_kernel_kills() -> None:
    kernel = {"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel", "_SYSTEMD_UNIT": "", "_COMM": ""}
    killed = "Out of memory: Killed process 2211 (llama-server) total-vm:99kB, anon-rss:8192kB, file-rss:0kB, shmem-rss:0kB"
    report = (
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/system.slice/ollama.service,"
        "task_memcg=/system.slice/ollama.service,task=llama-server,pid=2211,uid=999"
    )
    other = "Out of memory: Killed process 9 (chrome) total-vm:99kB, anon-rss:1kB"
    log = lines(entry(killed, 0, **kernel), entry(report, 0, **kernel), entry(other, 0, **kernel))
    assert [one.kind for one in log.kernel] == ["oom_killed", "oom_report"]
    assert log.kernel[0].fields == {"pid": "2211", "name": "llama-server", "anon_kb": "8192", "ours": "1"}
    assert log.kernel[1].fields["constraint"] == "CONSTRAINT_MEMCG"
    text = lines("Nov 30 02:56:38 vm kernel: " + killed)
    assert [one.fields["pid"] for one in text.kernel] == ["2211"]


def test_many_starts_keep_the_newest() -> None:
    log = lines(*(line for number in range(500) for line in (config(number), LISTEN.format(number), GIN)))
    assert len(log.starts) == 200
    assert values(log)[-1] == "499"


def test_events_and_loads_are_bounded_and_counted() -> None:
    start = 'time=2026-11-30T02:56:38.725Z level=INFO source=llama_server.go:433 msg="starting llama-server" cmd="llama-server --model /m -c 8 -np 2"'
    log = lines(config(1), LISTEN.format("1"), *[WARN] * 5000, *[start] * 2000)
    only = log.starts[0]
    assert only.counts["parallel_forced_to_1"] == 5000
    kept = [one for one in only.events if one.kind == "parallel_forced_to_1"]
    assert len(kept) == 200
    assert (kept[0].line, kept[-1].line) == (3, 5002)
    assert len(only.loads) == 500
    assert only.loads[0].outcome == "aborted" and only.loads[-1].outcome == "loading"


def test_line_numbers_are_those_of_the_file() -> None:
    found = entries("03-parallel4-ctx8192")
    log = parse("\n".join(json.dumps(one, separators=(",", ":")) for one in found))
    start = log.starts[-1]
    assert start.config_line is not None and start.config_line.line is not None
    assert "server config" in found[start.config_line.line - 1]["MESSAGE"]
    load = start.loads[0]
    assert load.line is not None and found[load.line - 1]["MESSAGE"] == load.text
    for event in start.events:
        assert event.line is not None and found[event.line - 1]["MESSAGE"] == event.text
