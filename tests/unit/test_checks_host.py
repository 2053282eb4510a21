"""What a host's own state tells, without a line of the log: limits, folders, whether it comes back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ollamactl.core.checks import run
from ollamactl.core.facts import (
    Buffer,
    Effective,
    Facts,
    InstalledModel,
    Listener,
    Load,
    LogEvent,
    Origin,
    PathState,
    Process,
    Service,
    Slice,
    Start,
    Stray,
    System,
    UnitFile,
    UnitName,
    Variable,
)
from ollamactl.core.pasted import facts_of
from ollamactl.core.source import Missing
from tests.system.small import journal
from tests.unit.check_machines import host, requiring, unit_with, variable

MIB = 1 << 20
SERVED = Start(invocation="a" * 32, config={}, listening="127.0.0.1:11434")


def service(**more: Any) -> Service:
    return Service(**{"id": "ollama.service", "load_state": "loaded", "active_state": "active", "main_pid": 900,
                      "unit_file_state": "enabled", "invocation_id": "a" * 32, **more})  # fmt: skip


def found(facts: Facts, check: str) -> list[str]:
    report = run(facts, only=[check])
    assert not report.crashed
    return [f.severity for f in report.findings]


@pytest.mark.parametrize(
    ("facts", "check", "says"),
    [
        (host(service=service(unit_file_state="disabled")), "service_not_started_at_boot", ["info"]),
        (host(), "service_not_started_at_boot", []),
        (host(service=service(n_restarts=2), start=SERVED), "service_restart_loop", ["info"]),
        (host(service=service(), start=SERVED), "service_restart_loop", []),
    ],
)
def test_whether_it_comes_back(facts: Facts, check: str, says: list[str]) -> None:
    assert found(facts, check) == says


@pytest.mark.parametrize(("limit", "says"), [(64 * MIB, ["warning"]), (900 * MIB, []), (None, [])])
@pytest.mark.parametrize("key", ["memory_max", "memory_high"])
def test_a_memory_limit_below_the_smallest_model(key: str, limit: int | None, says: list[str]) -> None:
    models = (InstalledModel(name="a", size=300 * MIB), InstalledModel(name="b", size=9000 * MIB))
    facts = host(service=service(**{key: limit}), installed=models, start=SERVED)
    assert found(facts, "memory_limit_below_need") == says


@pytest.mark.parametrize(
    ("gpus", "limit", "says"), [((), 2000 * MIB, ["warning"]), (None, 2000 * MIB, []), ((), 9500 * MIB, [])]
)
def test_without_a_gpu_the_largest_model_has_to_fit_the_limit(gpus: Any, limit: int, says: list[str]) -> None:
    models = (InstalledModel(name="a", size=300 * MIB), InstalledModel(name="b", size=9000 * MIB))
    facts = host(service=service(memory_max=limit), installed=models, gpus=gpus, start=SERVED)
    assert found(facts, "memory_limit_below_need") == says


@pytest.mark.parametrize(("device", "says"), [("CPU", ["warning"]), ("CUDA_Host", ["warning"]), ("CUDA0", [])])
def test_a_limit_is_compared_with_what_a_load_put_into_host_memory(device: str, says: list[str]) -> None:
    buffers = (Buffer(kind="model", device=device, bytes=700 * MIB), Buffer(kind="kv", device=device, bytes=200 * MIB))
    start = msgspec.structs.replace(SERVED, loads=(Load(model="/m/a", outcome="loaded", buffers=buffers),))
    models = (InstalledModel(name="a", size=700 * MIB),)
    facts = host(service=service(memory_high=800 * MIB), installed=models, start=start)
    assert found(facts, "memory_limit_below_need") == says


def test_a_limit_of_the_address_space_is_the_reason_of_a_load_without_memory() -> None:
    failed = LogEvent(kind="alloc_failed", text="failed to allocate buffer of size 233316864")
    start = msgspec.structs.replace(SERVED, events=(failed,))
    limited = unit_with("LimitAS=300M", start=start)
    assert [f.check for f in run(limited).findings if f.severity == "error"] == ["memory_limit_below_need"]
    lifted = unit_with("LimitAS=300M", "LimitAS=infinity", start=start)
    assert [f.check for f in run(lifted).findings if f.severity == "error"] == ["load_oom"]


@pytest.mark.parametrize(
    ("line", "cpus", "says"),
    [
        ("CPUQuota=20%", 8, ["warning"]),
        ("CPUQuota=100%", 16, ["warning"]),
        ("CPUQuota=800%", 16, []),
        ("CPUQuota=", 16, []),
        ("CPUAffinity=0", 2, ["warning"]),
        ("CPUAffinity=0", 1, []),
        ("CPUAffinity=0-3 8,9", 16, []),
        ("CPUAffinity=0-1", 16, ["warning"]),
        ("CPUAffinity=numa", 16, []),
        ("AllowedCPUs=3", 4, ["warning"]),
        ("AllowedCPUs=0-3", 4, []),
    ],
)
def test_how_many_cpus_the_unit_may_use(line: str, cpus: int, says: list[str]) -> None:
    facts = msgspec.structs.replace(unit_with(line), system=System(os="linux", cpus=cpus))
    assert found(facts, "cpu_quota_low") == says


@pytest.mark.parametrize(
    ("above", "memory", "cpus"),
    [
        (Slice(name="models.slice", memory_max=64 * MIB, cpus=0.2), ["warning"], ["warning"]),
        (Slice(name="models.slice", memory_high=64 * MIB), ["warning"], []),
        (Slice(name="models.slice", memory_max=900 * MIB, cpus=4.0), [], []),
        (Slice(name="models.slice"), [], []),
    ],
)
def test_limits_of_a_slice_hold_for_the_service(above: Slice, memory: list[str], cpus: list[str]) -> None:
    models = (InstalledModel(name="a", size=300 * MIB),)
    host_of_8 = System(os="linux", cpus=8)
    facts = host(installed=models, slices=(above,), unit_files=(), system=host_of_8, start=SERVED)
    assert found(facts, "memory_limit_below_need") == memory
    assert found(facts, "cpu_quota_low") == cpus


@pytest.mark.parametrize(
    ("load", "active", "state", "says"),
    [
        ("not-found", "inactive", "active", ["warning"]),
        ("masked", "inactive", "inactive", ["error"]),
        ("loaded", "failed", "inactive", ["error"]),
        ("loaded", "inactive", "active", []),  # a oneshot that did its work
        ("loaded", "active", "failed", []),
    ],
)
def test_units_that_the_service_requires(load: str, active: str, state: str, says: list[str]) -> None:
    assert found(requiring(load, active, active_state=state), "required_unit_missing") == says


def test_a_watchdog_is_a_fault_before_it_bites() -> None:
    assert found(unit_with("WatchdogSec=30"), "watchdog_ends_server") == ["warning"]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (("SystemCallFilter=~@process",), ["warning"]),
        (("SystemCallFilter=~@clock fork:EPERM",), ["warning"]),
        (("SystemCallFilter=~@process", "SystemCallFilter="), []),
        (("SystemCallFilter=@system-service",), []),
    ],
)
def test_a_filter_of_system_calls_that_forbids_runners(lines: tuple[str, ...], says: list[str]) -> None:
    assert found(unit_with(*lines), "system_call_filter_forbids_runners") == says


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ('/bin/sh -c "/usr/local/bin/ollama serve &"', ["error"]),
        ("/bin/bash -c '/usr/local/bin/ollama serve > /var/log/o 2>&1 &'", ["error"]),
        ('/bin/sh -c "ollama serve 2>&1"', []),
        ('/bin/sh -c "sleep 1 && ollama serve"', []),
        ("/usr/local/bin/ollama serve", []),
    ],
)
def test_a_server_that_is_sent_into_the_background(command: str, says: list[str]) -> None:
    assert found(unit_with(f"ExecStart={command}"), "unit_type_unfit") == says


EXEC = (
    "Failed at step EXEC spawning /usr/local/bin/ollama: Permission denied",
    "Main process exited, code=exited, status=203/EXEC",
)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (("NoExecPaths=/usr/local",), "NoExecPaths= forbids"),
        (("NoExecPaths=/", "ExecPaths=/usr/local/bin"), "Permission denied"),
        (("NoExecPaths=/srv",), "Permission denied"),
        (("NoExecPaths=/usr/local", "NoExecPaths="), "Permission denied"),
    ],
)
def test_what_forbids_to_execute_the_program(lines: tuple[str, ...], says: str) -> None:
    told = facts_of(journal(*(f"ollama.service: {line}" for line in EXEC)).encode(), "text")
    dead = unit_with(*lines, main_pid=0, active_state="failed")
    (first, *_) = run(msgspec.structs.replace(dead, log=told.log if told else None)).findings
    assert first.check == "execstart_203_exec" and says in first.summary
    assert ("chmod" in first.remedy) == (says == "Permission denied")


@pytest.mark.parametrize(("value", "says"), [("/root", "HOME="), ("/usr/share/ollama", "chown")])
def test_a_home_that_a_line_gives_is_no_fault_of_folders(value: str, says: str) -> None:
    denied = LogEvent(kind="folder_denied", text="Error: mkdir /root/.ollama: permission denied",
                      fields={"call": "mkdir", "path": "/root/.ollama"})  # fmt: skip
    start = msgspec.structs.replace(SERVED, listening="", events=(denied,))
    facts = host(service=service(), effective=variable("HOME", value, "environment", "/etc/x.conf"), start=start)
    (first, *_) = run(facts, only=["models_dir_no_access"]).findings
    assert says in first.remedy


def test_a_home_that_a_line_gives_and_that_is_not_there() -> None:
    denied = LogEvent(kind="folder_denied", text="Error: mkdir /srv/none: permission denied",
                      fields={"call": "mkdir", "path": "/srv/none"})  # fmt: skip
    start = msgspec.structs.replace(SERVED, listening="", events=(denied,))
    facts = host(service=service(), effective=variable("HOME", "/srv/none", "environment", "/etc/x.conf"), start=start)
    (first, *_) = run(facts, only=["service_home_missing"]).findings
    assert first.summary == "/srv/none, the home of the service, is not there"
    assert first.remedy.startswith("sudoedit /etc/x.conf") and "HOME=/srv/none" in first.evidence[0]


def test_a_variable_that_systemd_is_configured_with_is_not_lost_at_a_boot() -> None:
    name, file = "OLLAMA_NUM_PARALLEL", "/etc/systemd/system.conf"
    lost = host(effective=variable(name, "4", "manager", ""), strays=())
    kept = Stray(name=name, value="4", path=file, line=3, text=f"DefaultEnvironment={name}=4", kind="manager")
    assert found(lost, "setting_lost_at_reboot") == ["warning"]
    assert found(msgspec.structs.replace(lost, strays=(kept,)), "setting_lost_at_reboot") == []
    other = msgspec.structs.replace(kept, value="2")
    assert found(msgspec.structs.replace(lost, strays=(other,)), "setting_lost_at_reboot") == ["warning"]
    assert found(msgspec.structs.replace(lost, strays=(kept,)), "settings_file_not_read") == []


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("LimitNOFILE=64", ["warning"]),
        ("LimitNOFILE=64:524288", []),  # the server raises itself to the hard limit
        ("LimitNOFILE=1024", []),
        ("TasksMax=5", ["warning"]),
        ("TasksMax=50%", []),
        ("LimitFSIZE=1M", ["warning"]),
        ("LimitFSIZE=200G", []),
        ("LimitCPU=60", ["warning"]),
    ],
)
def test_limits_that_the_server_runs_into(line: str, says: list[str]) -> None:
    assert found(unit_with(line), "resource_limit_low") == says


def test_a_program_that_could_not_be_started_for_a_limit_is_there() -> None:
    said = "ollama.service: Failed at step EXEC spawning /usr/local/bin/ollama: Resource temporarily unavailable"
    exits = "ollama.service: Main process exited, code=exited, status=203/EXEC"
    told = facts_of(journal(said, exits).encode(), "text")
    dead = unit_with("LimitNPROC=5", main_pid=0, active_state="failed")
    report = run(msgspec.structs.replace(dead, log=told.log if told else None))
    assert [f.check for f in report.findings if f.severity == "error"] == ["resource_limit_low"]


@pytest.mark.parametrize(
    ("lines", "check", "says"),
    [
        (("ReadOnlyPaths=/usr/share/ollama",), "sandbox_makes_models_read_only", ["warning"]),
        (("ReadOnlyPaths=/",), "sandbox_makes_models_read_only", ["warning"]),
        (("ReadOnlyPaths=/", "ReadWritePaths=/usr/share"), "sandbox_makes_models_read_only", []),
        (("ReadOnlyPaths=/etc /opt",), "sandbox_makes_models_read_only", []),
        (("TemporaryFileSystem=/usr/share:ro",), "sandbox_hides_models_dir", ["error"]),
        (("TemporaryFileSystem=/usr/share", "BindPaths=/usr/share/ollama"), "sandbox_hides_models_dir", []),
        (("TemporaryFileSystem=/var/lib",), "sandbox_hides_models_dir", []),
        (("PrivateTmp=yes",), "sandbox_hides_models_dir", []),
        (("RestrictAddressFamilies=~AF_INET AF_INET6",), "sandbox_blocks_network", ["warning"]),
        (("RestrictAddressFamilies=~AF_INET6",), "sandbox_blocks_network", []),
        (("RestrictAddressFamilies=AF_UNIX", "RestrictAddressFamilies=AF_INET"), "sandbox_blocks_network", []),
        (("RestrictAddressFamilies=none",), "sandbox_blocks_network", ["warning"]),
    ],
)
def test_what_a_sandbox_takes(lines: tuple[str, ...], check: str, says: list[str]) -> None:
    assert found(unit_with(*lines), check) == says


@pytest.mark.parametrize(("models", "says"), [("/tmp/models", ["error"]), ("/srv/models", [])])
def test_a_models_folder_behind_a_tmp_of_the_services_own(models: str, says: list[str]) -> None:
    used = Variable(name="OLLAMA_MODELS", value=models, origin=Origin(layer="environment"))
    effective = Effective(variables={"OLLAMA_MODELS": used})
    facts = msgspec.structs.replace(unit_with("PrivateTmp=true"), effective=effective)
    assert found(facts, "sandbox_hides_models_dir") == says


@pytest.mark.parametrize(
    ("name", "sub", "host_of", "restarts", "says"),
    [
        ("ollama2.service", "auto-restart", "", 3, ["error"]),
        ("ollama2.service", "running", "127.0.0.1:11434", 7, ["error"]),  # for a moment
        ("ollama2.service", "auto-restart", "127.0.0.1:11500", 3, []),
        ("ollama2.service", "dead", "", 0, []),
        ("ollama.service", "running", "", 3, []),
    ],
)
def test_another_unit_that_wants_the_port_which_the_service_holds(
    name: str, sub: str, host_of: str, restarts: int, says: list[str]
) -> None:
    environment = (f"OLLAMA_HOST={host_of}",) if host_of else ()
    other = UnitName(
        name=name, load="loaded", active="activating", sub=sub, restarts=restarts, environment=environment
    )
    mine = UnitName(name="ollama.service", load="loaded", active="active", sub="running", pid=900)
    socket = Listener(address="127.0.0.1", port=11434, pid=900, name="ollama")
    facts = host(units=(mine, other), listeners=(socket,), start=SERVED)
    assert found(facts, "port_in_use") == says


@pytest.mark.parametrize(
    ("address", "ago", "says"),
    [("127.0.0.1:11434", 4, ["error"]), ("127.0.0.1:11500", 4, []), ("127.0.0.1:11434", 900, [])],
)
def test_a_users_own_unit_that_wants_the_port_which_the_service_holds(address: str, ago: int, says: list[str]) -> None:
    fields = {"address": address, "unit": "/home/anna/.config/systemd/user/ollama.service"}
    said = LogEvent(kind="bind_error", text=f"Error: listen tcp {address}: bind: …", at=5000.0 - ago, fields=fields)
    socket = Listener(address="127.0.0.1", port=11434, pid=900, name="ollama")
    facts = host(listeners=(socket,), start=SERVED, user_log=(said,), taken=5000.0)
    assert found(facts, "port_in_use") == says


def test_a_port_that_another_unit_holds_is_given_up_by_that_unit() -> None:
    other = Process(pid=700, argv=("ollama", "serve"), cgroup="/system.slice/ollama2.service")
    units = (UnitName(name="ollama.service", load="loaded"), UnitName(name="ollama2.service", load="loaded", pid=700))
    socket = Listener(address="127.0.0.1", port=11434, pid=700, name="ollama")
    dead = service(main_pid=0, active_state="activating", sub_state="auto-restart", n_restarts=4)
    facts = host(service=dead, process=None, servers=(other,), units=units, listeners=(socket,))
    (first, *_) = run(facts).findings
    assert (first.check, first.remedy.partition(" &&")[0]) == (
        "port_in_use",
        "sudo systemctl disable --now ollama2.service",
    )


@pytest.mark.parametrize(
    ("result", "check"), [("success", "running_server_is_not_the_service"), ("exit-code", "port_in_use")]
)
def test_a_server_beside_a_service_that_was_stopped_or_has_died(result: str, check: str) -> None:
    other = Process(pid=700, argv=("ollama", "serve"), user="anna", cgroup="/user.slice/user-1000.slice")
    socket = Listener(address="127.0.0.1", port=11434, pid=700, name="ollama")
    state = "inactive" if result == "success" else "failed"
    dead = service(main_pid=0, active_state=state, result=result)
    facts = host(service=dead, process=None, servers=(other,), units=(), listeners=(socket,))
    assert [f.check for f in run(facts).findings if f.severity != "info"] == [check]


@pytest.mark.parametrize(("lines", "says"), [((4, 2), ["warning"]), ((4, 4), [])])
def test_a_variable_that_one_drop_in_sets_twice(lines: tuple[int, int], says: list[str]) -> None:
    path = "/etc/systemd/system/ollama.service.d/override.conf"
    first, last = (Origin(layer="environment", file=path, line=n) for n in (2, 3))
    one = Variable(name="OLLAMA_NUM_PARALLEL", value=str(lines[1]), origin=last, shadowed=((str(lines[0]), first),))
    facts = host(effective=Effective(variables={"OLLAMA_NUM_PARALLEL": one}))
    assert found(facts, "dropin_overridden_by_later_dropin") == says


@pytest.mark.parametrize(("user", "says"), [("root", ["warning"]), ("ollama", [])])
def test_models_are_looked_for_in_the_home_of_the_units_user(user: str, says: list[str]) -> None:
    homes = {"root": "/root", "ollama": "/usr/share/ollama"}
    there, gone = PathState(path="x", type="dir"), PathState(path="x", missing=Missing("absent", "no"))
    home = Variable(name="HOME", value=homes[user], origin=Origin(layer="service"))
    paths = {"/usr/share/ollama/.ollama/models/manifests": there, "/root/.ollama/models/manifests": gone}
    facts = host(effective=Effective(variables={"HOME": home}), paths=paths, installed=())
    assert found(facts, "models_in_two_dirs") == says


@pytest.mark.parametrize(("https", "says"), [("", ["warning"]), ("http://10.0.0.9:3128", ["info"])])
def test_a_proxy_for_plain_http_in_the_units_environment(https: str, says: list[str]) -> None:
    names = {"HTTP_PROXY": "http://10.0.0.9:3128"} | ({"HTTPS_PROXY": https} if https else {})
    where = Origin(layer="environment", file="/etc/systemd/system/ollama.service.d/p.conf", line=2)
    effective = Effective(variables={n: Variable(name=n, value=v, origin=where) for n, v in names.items()})
    assert found(host(effective=effective, start=SERVED), "http_proxy_hijacks_local_api") == says


@pytest.mark.parametrize(
    ("load", "active", "says"),
    [("not-found", "active", ["warning"]), ("loaded", "active", []), ("not-found", "inactive", [])],
)
def test_a_server_whose_unit_file_is_gone(load: str, active: str, says: list[str]) -> None:
    unit = UnitName(name="ollama.service", load=load, active=active, sub="running", pid=900)
    assert found(Facts(units=(unit,), servers=(Process(pid=900),)), "user_unit_absent") == says


@pytest.mark.parametrize(("frozen", "says"), [(True, ["error"]), (False, [])])
def test_a_unit_that_is_frozen_answers_nothing(frozen: bool, says: list[str]) -> None:
    assert found(host(service=service(frozen=frozen), start=SERVED), "server_process_stopped") == says


@pytest.mark.parametrize(
    ("status", "says"), [("killed, status=9/KILL", "killed by SIGKILL"), ("exited, status=1/FAILURE", "dies at once")]
)
def test_how_the_server_ended(status: str, says: str) -> None:
    told = facts_of(journal(f"ollama.service: Main process exited, code={status}").encode(), "text")
    assert told is not None
    (finding,) = run(told, only=["service_restart_loop"]).findings
    assert says in finding.summary


@pytest.mark.parametrize(
    ("free", "files", "says"),
    [
        (0, 9, ["error"]),
        (800 * MIB, 9, ["warning"]),
        (9000 * MIB, 9, []),
        (9000 * MIB, 0, ["error"]),
        (9000 * MIB, None, []),
    ],
)
def test_room_on_the_disk_of_the_models(free: int, files: int | None, says: list[str]) -> None:
    state = PathState(path="/srv/models", type="dir", free=free, total=100_000 * MIB, files_free=files)
    assert found(host(paths={"/srv/models": state}), "disk_full") == says


@pytest.mark.parametrize(("gone", "there", "says"), [(True, True, ["warning"]), (True, False, []), (False, True, [])])
def test_a_program_that_was_replaced_under_the_server(gone: bool, there: bool, says: list[str]) -> None:
    program = "/usr/local/bin/ollama"
    state = PathState(path=program, missing=None if there else Missing("absent", "no"))
    process = Process(pid=900, exe=program, exe_gone=gone, environ={})
    facts = host(process=process, paths={program: state}, start=SERVED)
    assert found(facts, "client_server_version_mismatch") == says


@pytest.mark.parametrize(
    ("own", "installed", "says"),
    [
        (True, (InstalledModel(name="a"),), ["info"]),  # both hold some
        (True, (), ["warning"]),
        (False, (), ["warning"]),  # a new folder, which has no manifests yet
    ],
)
def test_a_service_that_looks_where_no_models_are(own: bool, installed: Any, says: list[str]) -> None:
    there, gone = PathState(path="x", type="dir"), PathState(path="x", missing=Missing("absent", "no"))
    used = Variable(name="OLLAMA_MODELS", value="/srv/models", origin=Origin(layer="environment"))
    paths = {"/srv/models/manifests": there if own else gone, "/usr/share/ollama/.ollama/models/manifests": there}
    facts = host(paths=paths, installed=installed, effective=Effective(variables={"OLLAMA_MODELS": used}))
    assert found(facts, "models_in_two_dirs") == says


@pytest.mark.parametrize(
    ("value", "says"), [("~/models", True), ("models/x", True), ("/srv/models", False), ("", False)]
)
def test_a_folder_that_is_no_absolute_path(value: str, says: bool) -> None:
    used = Variable(name="OLLAMA_MODELS", value=value, origin=Origin(layer="environment", file="/x", line=1))
    facts = host(effective=Effective(variables={"OLLAMA_MODELS": used}))
    assert found(facts, "invalid_value") == ["warning"] * says


def test_a_process_that_is_not_known_is_not_well() -> None:
    """Whether the process is older than its configuration can't be told without its environment."""
    value = Variable(name="OLLAMA_NUM_PARALLEL", value="4", origin=Origin(layer="environment", file="/x", line=1))
    for process in (None, Process(pid=900, environ=None)):
        facts = host(effective=Effective(variables={"OLLAMA_NUM_PARALLEL": value}), process=process)
        report = run(facts, only=["config_newer_than_process"])
        assert not report.well and [s.check for s in report.skipped] == ["config_newer_than_process"]


def test_a_process_younger_than_the_files_was_not_forgotten() -> None:
    """Its command sets the variable itself: a restart would change nothing."""
    file = "/etc/systemd/system/ollama.service.d/a.conf"
    value = Variable(name="OLLAMA_NUM_PARALLEL", value="4", origin=Origin(layer="environment", file=file, line=2))
    for written, check in ((50.0, "command_sets_own_value"), (150.0, "config_newer_than_process")):
        facts = host(
            effective=Effective(variables={"OLLAMA_NUM_PARALLEL": value}),
            unit_files=(UnitFile(path=file, mtime=written),),
            process=Process(pid=900, started=100.0, environ={"OLLAMA_NUM_PARALLEL": "1"}),
        )
        both = run(facts, only=["command_sets_own_value", "config_newer_than_process"])
        assert [f.check for f in both.findings] == [check]


BLOB = "/srv/models/blobs/sha256-" + "a" * 64
MANIFEST, OTHERS = "/m/manifests/r/l/a/1b", "/root/.ollama/models/manifests"
ACCOUNT = PathState(path="account", uid=990, gid=990)
FILES = ("model_blob_truncated", "model_blob_missing", "models_dir_no_access")


@pytest.mark.parametrize(
    ("path", "state", "says"),
    [
        (BLOB, PathState(path=BLOB, type="file", mode=0o644, uid=0, size=9, expected=9), []),
        (BLOB, PathState(path=BLOB, type="file", mode=0o600, uid=990, size=9, expected=9), []),
        (BLOB, PathState(path=BLOB, type="file", mode=0o600, uid=0, size=9, expected=9), ["models_dir_no_access"]),
        (BLOB, PathState(path=BLOB, missing=Missing("unparsable", "begins with 00")), ["model_blob_truncated"]),
        ("/m/manifests/r/l/a/1b", PathState(path="x", missing=Missing("unparsable", "")), ["model_blob_missing"]),
        (MANIFEST, PathState(path=MANIFEST, type="file", mode=0o600, uid=0), ["models_dir_no_access"]),
        ("/m/blobs", PathState(path="/m/blobs", type="folder", mode=0o711, uid=0), ["models_dir_no_access"]),
        ("/m/blobs", PathState(path="/m/blobs", type="folder", mode=0, uid=990), ["models_dir_no_access"]),
        ("/m/blobs", PathState(path="/m/blobs", type="folder", mode=0o750, uid=0, gid=990), []),
        (OTHERS, PathState(path=OTHERS, type="folder", mode=0o700, uid=0), []),
    ],
)  # fmt: skip
def test_a_model_s_files(path: str, state: PathState, says: list[str]) -> None:
    facts = host(paths={"account": ACCOUNT, path: state}, service=service(user="ollama"), start=SERVED)
    assert [f.check for f in run(facts, only=FILES).findings] == says


@pytest.mark.parametrize(("again", "says"), [("/m/b", ["model_blob_truncated"]), ("/m/a", [])])
def test_a_damaged_file_is_cured_by_a_load_of_the_same_model_only(again: str, says: list[str]) -> None:
    damaged = LogEvent(kind="model_file_damaged", text="gguf: failed to read key-value pairs", line=20)
    loads = (Load(model="/m/a", outcome="failed", line=18), Load(model=again, outcome="loaded", line=30))
    facts = host(start=msgspec.structs.replace(SERVED, events=(damaged,), loads=loads))
    assert [f.check for f in run(facts, only=FILES).findings] == says


@pytest.mark.parametrize(("locked", "says"), [(True, ["warning"]), (False, []), (None, [])])
def test_models_on_a_file_system_that_is_read_only(locked: bool | None, says: list[str]) -> None:
    state = PathState(path="/srv/models", type="folder", mode=0o755, read_only=locked)
    assert found(host(paths={"/srv/models": state}, start=SERVED), "service_home_read_only") == says
