"""Facts of Macs whose files lie in a fake file system, at their real places, and whose programs answer in the shapes
of shapes/."""

from __future__ import annotations

import os
import plistlib
import re
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyfakefs.fake_filesystem import FakeFilesystem

from ollamactl.core import launchd
from ollamactl.core import plan as planning
from ollamactl.core.capacity import budget
from ollamactl.core.dropin import Managed
from ollamactl.core.facts import Effective, Launch, Listener, Process, Session, System
from ollamactl.core.feeds import Collector
from ollamactl.core.parse import plist
from ollamactl.core.plan import Plan, Request
from ollamactl.core.source import Missing, Reading, Source
from ollamactl.host import appdb, journal
from ollamactl.host.live import LiveHost
from ollamactl.platforms import darwin

HOME = "/Users/me"
LABEL = "homebrew.mxcl.ollama"
AGENTS = f"{HOME}/Library/LaunchAgents"
KEG = f"/opt/homebrew/opt/ollama/{LABEL}.plist"
PROGRAM = "/opt/homebrew/opt/ollama/bin/ollama"
TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
LOG = """time=2026-11-30T10:00:00.000Z level=INFO source=routes.go:1951 msg="server config" env="map[{}]"
time=2026-11-30T10:00:00.100Z level=INFO source=routes.go:2004 msg="Listening on 127.0.0.1:11434 (version 0.33.0)"
"""


class Mac:
    """Files by the door itself; programs by what a test says. `jobs` are loaded: label → (pid, variables)."""

    def __init__(self, **more: Any) -> None:
        self.files = LiveHost()
        self.session = Session(euid=501, uid=501, user="me", home=HOME)
        self.arch, self.kernel = "arm64", "24.6.0"
        self.brew = ""
        self.jobs: dict[str, tuple[int | None, dict[str, str]]] = {}
        self.variables = {"OLLAMA_HOST": "127.0.0.1:11434"}
        self.servers: list[Process] = []
        self.listeners = "p4321\ncollama\nn127.0.0.1:11434\n"
        self.sysctl = {"hw.memsize": str(32 << 30), "machdep.cpu.brand_string": "Apple M4"}
        self.sysctl["iogpu.wired_limit_mb"] = "0"
        for name, value in more.items():
            setattr(self, name, value)

    def read(self, source: Source) -> Reading:
        if source.kind in ("file", "stat", "list"):
            return self.files.read(source)
        if source.kind == "native":
            return self.native(source)
        if source.kind == "command":
            return self.command(source)
        return Reading(source.key, None, Missing("absent", source.key))

    def native(self, source: Source) -> Reading:
        name, *rest = source.args
        made: Any = {
            "system": System(os="darwin", kernel=self.kernel, arch=self.arch, init="launchd"),
            "session": self.session, "servers": self.servers,
        }.get(name)  # fmt: skip
        if name == "process":
            made = next((p for p in self.servers if str(p.pid) == rest[0]), None)
        if name == "app_settings":
            try:
                return Reading(source.key, appdb.settings(rest[0]))
            except OSError as error:
                return Reading(source.key, None, Missing("absent", str(error)))
        if made is None:
            return Reading(source.key, None, Missing("absent", source.key))
        return Reading(source.key, msgspec.json.encode(made))

    def command(self, source: Source) -> Reading:
        said, code = self.answer(*source.args)
        if code and not source.any_exit:
            return Reading(source.key, said.encode(), Missing("failed", said), status=code)
        if code == 127:
            return Reading(source.key, None, Missing("absent", f"{source.args[0]}: not installed"))
        return Reading(source.key, said.encode(), None, status=code, stderr=said if code else "")

    def answer(self, program: str, *args: str) -> tuple[str, int]:
        name = program.rpartition("/")[2]
        if name == "brew":
            known = {"--version": f"Homebrew {self.brew}\n", "--prefix": "/opt/homebrew\n"}
            return (known.get(args[0], ""), 0) if self.brew else ("", 127)
        if name == "sysctl":
            return "".join(f"{n}: {self.sysctl[n]}\n" for n in args if n in self.sysctl), 1
        if name == "vm_stat":
            return (Path(__file__).parent / "shapes/vm_stat.txt").read_text(), 0
        if name == "lsof":
            return self.listeners, 0 if self.listeners else 1
        if name == "ps":
            return "", 1
        if name == "tail":
            log = Path(args[-1])
            return (log.read_text(), 0) if log.exists() else ("", 1)
        if args[:1] == ("print",):
            return self.printed(args[1])
        return ("disabled services = {\n}\n", 0) if args[:1] == ("print-disabled",) else ("", 127)

    def printed(self, target: str) -> tuple[str, int]:
        words = target.split("/")
        label = "/".join(words[1 if words[0] == "system" else 2 :])
        if not label:
            pairs = "".join(f"\t\t{k} => {v}\n" for k, v in self.variables.items())
            return f"{target} = {{\n\tenvironment = {{\n{pairs}\t}}\n}}\n", 0
        if label not in self.jobs:
            return f'Bad request.\nCould not find service "{label}" in domain for user gui: 501', 113
        pid, own = self.jobs[label]
        pairs = "".join(f"\t\t{k} => {v}\n" for k, v in own.items())
        state = f"\tstate = running\n\tpid = {pid}\n" if pid else "\tstate = not running\n\tlast exit code = 1\n"
        return f"{target} = {{\n{state}\truns = 1\n\tenvironment = {{\n{pairs}\t}}\n}}\n", 0


@pytest.fixture(autouse=True)
def disk(fs: FakeFilesystem) -> FakeFilesystem:
    fs.add_real_directory(TEMPLATES)
    fs.add_real_directory(Path(__file__).parent / "shapes")
    fs.create_dir(AGENTS)
    return fs


def put(fs: FakeFilesystem, path: str, label: str, environment: dict[str, str] | None = None, **more: Any) -> None:
    values = {"Label": label, "ProgramArguments": [PROGRAM, "serve"], "KeepAlive": True, "RunAtLoad": True,
              "StandardErrorPath": "/opt/homebrew/var/log/ollama.log", **more}  # fmt: skip
    if environment is not None:
        values["EnvironmentVariables"] = environment
    fs.create_file(path, contents=plistlib.dumps(values))


def server(pid: int = 4321, exe: str = PROGRAM, **environ: str) -> Process:
    return Process(pid=pid, ppid=1, exe=exe, argv=(exe, "serve"), environ=environ, started=1_796_032_799.0)


def found(mac: Mac, unit: str = "") -> dict[str, str]:
    launches: tuple[Launch, ...] = Collector(mac, unit).need("launches")
    return {x.unit: x.kind for x in launches}


def plan(mac: Mac, request: Request, unit: str = "") -> Plan:
    collector = Collector(mac, unit)
    facts = collector.facts((*planning.NEEDS, *planning.NICE))
    assert facts.service is not None, facts.missing
    return planning.plan(request, facts, darwin.ours(collector, facts))


# -- the ways --


def test_each_way_is_recognised_by_what_is_there(fs: FakeFilesystem) -> None:
    assert found(Mac()) == {}
    fs.create_file("/usr/local/bin/ollama")
    assert found(Mac()) == {"ollama": "agent"}
    assert found(Mac(servers=[server(99, "/usr/local/bin/ollama")])) == {"ollama": "hand"}
    put(fs, KEG, LABEL)
    assert found(Mac(brew="6.0.16")) == {LABEL: "brew"}
    put(fs, f"{AGENTS}/com.example.llm.plist", "com.example.llm")
    put(fs, "/Library/LaunchDaemons/com.example.llmd.plist", "com.example.llmd")
    put(fs, f"{AGENTS}/com.other.plist", "x", ProgramArguments=["/bin/ls", "ollama"])
    fs.create_file(f"{AGENTS}/com.broken.plist", contents=b"ollama serve, and no list")
    app = "/Applications/Ollama.app/Contents/Resources/ollama"
    fs.create_file(app)
    mac = Mac(brew="6.0.16", servers=[server(5000, app)])
    expected = {LABEL: "brew", "com.example.llm": "agent", "com.example.llmd": "daemon", "Ollama.app": "app"}
    assert found(mac) == expected
    domains = {x.unit: x.domain for x in Collector(mac).need("launches")}
    assert domains["com.example.llmd"] == "system" and domains["com.example.llm"] == "gui/501"


@pytest.mark.parametrize(
    "argv",
    [["/bin/sh", "-c", "exec /opt/homebrew/bin/ollama serve >> /tmp/log"], ["/usr/local/bin/ollama", "start"],
     ["/usr/bin/env", "OLLAMA_DEBUG=1", "ollama", "serve"]],
)  # fmt: skip
def test_a_server_below_another_program_is_one(fs: FakeFilesystem, argv: list[str]) -> None:
    put(fs, f"{AGENTS}/a.plist", "a", ProgramArguments=argv)
    assert found(Mac()) == {"a": "agent"}


def test_the_one_that_runs_and_the_one_that_owns_the_port_are_meant(fs: FakeFilesystem) -> None:
    put(fs, f"{AGENTS}/{LABEL}.plist", LABEL)
    put(fs, f"{AGENTS}/b.plist", "b")
    mac = Mac()
    assert Collector(mac).get("unit") is None and Collector(mac, "b").need("unit") == "b"
    mac.jobs = {"b": (4321, {})}
    mac.servers = [server()]
    assert Collector(mac).need("unit") == "b"
    mac.jobs[LABEL] = (77, {})
    mac.servers.append(server(77))
    assert Collector(mac).need("unit") == "b"  # its pid listens on 11434
    mac.listeners = ""
    missing = Collector(mac)
    assert missing.get("unit") is None and missing.missing["unit"].hint == "--unit NAME"


@pytest.mark.parametrize(
    ("version", "holds", "own"),
    [
        ("6.0.15", "brew-file", f"{HOME}/.homebrew/services/ollama.env"),
        ("7.1", "brew-file", f"{HOME}/.homebrew/services/ollama.env"),
        ("6.0.14", "plist", f"{AGENTS}/ollamactl.{LABEL}.plist"),
        ("", "plist", f"{AGENTS}/ollamactl.{LABEL}.plist"),
    ],
)
def test_our_file_by_the_release_of_brew(fs: FakeFilesystem, version: str, holds: str, own: str) -> None:
    put(fs, f"{AGENTS}/{LABEL}.plist", LABEL)
    put(fs, KEG, LABEL)
    launch: Launch = Collector(Mac(brew=version)).need("launch")
    assert (launch.holds, launch.own_file) == (holds, own)


def test_brews_file_follows_xdg_and_a_plist_of_ours_stays_ours(fs: FakeFilesystem) -> None:
    put(fs, f"{AGENTS}/{LABEL}.plist", LABEL)
    put(fs, KEG, LABEL)
    mac = Mac(brew="6.0.16")
    mac.session = msgspec.structs.replace(mac.session, config_home="/Users/me/.config")
    assert Collector(mac).need("launch").own_file == "/Users/me/.config/homebrew/services/ollama.env"
    put(fs, f"{AGENTS}/ollamactl.{LABEL}.plist", f"ollamactl.{LABEL}")  # written while brew was older
    assert Collector(mac).need("launch").holds == "plist" and found(mac) == {LABEL: "brew"}


def test_a_daemon_of_sudo_brew_reads_no_environment_file(fs: FakeFilesystem) -> None:
    put(fs, f"/Library/LaunchDaemons/{LABEL}.plist", LABEL)
    put(fs, KEG, LABEL)
    launch: Launch = Collector(Mac(brew="6.0.16")).need("launch")
    assert (launch.domain, launch.holds) == ("system", "plist")
    assert launch.own_file == f"/Library/LaunchDaemons/ollamactl.{LABEL}.plist"


# -- the layers --


def test_layers_of_brew(fs: FakeFilesystem) -> None:
    formula = {"OLLAMA_FLASH_ATTENTION": "1", "OLLAMA_KV_CACHE_TYPE": "q8_0"}
    put(fs, KEG, LABEL, formula)
    put(fs, f"{AGENTS}/{LABEL}.plist", LABEL, formula)
    text = "OLLAMA_KV_CACHE_TYPE=f16\nOLLAMA_NUM_PARALLEL=2\n"
    fs.create_file(f"{HOME}/.homebrew/services/ollama.env", contents=text, st_mode=0o100644)
    mac = Mac(brew="6.0.16", jobs={LABEL: (4321, formula)}, servers=[server()])
    effective: Effective = Collector(mac).need("effective")
    value = effective.variables["OLLAMA_KV_CACHE_TYPE"]
    assert (value.value, value.origin.layer, value.origin.line) == ("f16", "brew-file", 1)
    assert [v for v, _ in value.shadowed] == ["q8_0"]
    assert effective.variables["OLLAMA_HOST"].origin.layer == "manager"
    assert effective.value("OLLAMA_FLASH_ATTENTION") == "1" and effective.problems == ()


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_an_environment_file_that_others_may_write_is_ignored(fs: FakeFilesystem, mode: int) -> None:
    put(fs, KEG, LABEL)
    put(fs, f"{AGENTS}/{LABEL}.plist", LABEL)
    fs.create_file(f"{HOME}/.homebrew/services/ollama.env", contents="OLLAMA_NUM_PARALLEL=2\n")
    mac = Mac(brew="6.0.16")
    own = f"{HOME}/.homebrew/services/ollama.env"
    real = mac.files.read

    def read(source: Source) -> Reading:  # the fake file system changes a file's mode when it is opened
        os.chmod(own, mode)
        return real(source)

    mac.files.read = read  # type: ignore[method-assign]
    collector = Collector(mac)
    (only,) = collector.need("env_files")
    assert only.missing.kind == "failed" and "chmod go-w" in only.missing.detail
    assert collector.need("effective").value("OLLAMA_NUM_PARALLEL") is None


def app_db(fs: FakeFilesystem, monkeypatch: pytest.MonkeyPatch, **row: Any) -> None:
    """SQLite does not look into the fake file system: the door's answer is made from a database in memory."""
    db = sqlite3.connect(":memory:")
    db.execute(f"CREATE TABLE settings (id INTEGER, {', '.join(row)})")
    db.execute(f"INSERT INTO settings VALUES (1, {', '.join('?' * len(row))})", tuple(row.values()))
    monkeypatch.setattr(appdb.sqlite3, "connect", lambda *args, **more: db)
    fs.create_file(f"{HOME}/Library/Application Support/Ollama/db.sqlite")


def test_what_the_app_sets_beats_the_session(fs: FakeFilesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    app = "/Applications/Ollama.app/Contents/Resources/ollama"
    fs.create_file(app)
    fs.create_dir("/Volumes/models")
    app_db(fs, monkeypatch, expose=1, browser=1, models="/Volumes/models", context_length=4096, schema_version=14)
    mac = Mac(servers=[server(5000, app)], variables={"OLLAMA_HOST": "127.0.0.1:9", "OLLAMA_KEEP_ALIVE": "1h"})
    collector = Collector(mac)
    effective: Effective = collector.need("effective")
    assert {n: v.value for n, v in effective.variables.items()} == {
        "OLLAMA_HOST": "0.0.0.0", "OLLAMA_KEEP_ALIVE": "1h", "OLLAMA_ORIGINS": "*",
        "OLLAMA_MODELS": "/Volumes/models", "OLLAMA_CONTEXT_LENGTH": "4096",
    }  # fmt: skip
    assert effective.variables["OLLAMA_HOST"].origin.layer == "app"
    assert collector.need("app_settings").schema == 14
    assert collector.need("service").log_path == f"{HOME}/.ollama/logs/server.log"
    assert [x.id for x in plan(mac, Request(set={"OLLAMA_HOST": "127.0.0.1:11434"})).refused] == ["app_setting_wins"]


def test_an_older_app_has_fewer_columns(fs: FakeFilesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    fs.create_file("/Applications/Ollama.app/Contents/Resources/ollama")
    app_db(fs, monkeypatch, expose=0, models="/nowhere")
    assert Collector(Mac()).need("app_settings").variables == {}


def test_an_environment_that_may_not_be_read_is_not_an_empty_one(fs: FakeFilesystem) -> None:
    put(fs, f"{AGENTS}/a.plist", "a")
    collector = Collector(Mac(jobs={"a": (4321, {})}, servers=[server()]))
    process: Process = collector.need("process")
    assert process.environ is None


def test_the_log_of_this_run_tells_its_settings(fs: FakeFilesystem) -> None:
    put(fs, f"{AGENTS}/a.plist", "a")
    fs.create_file("/opt/homebrew/var/log/ollama.log", contents=LOG.format("OLLAMA_NUM_PARALLEL:7"))
    mac = Mac(jobs={"a": (4321, {})}, servers=[server()])
    assert Collector(mac).need("start").config["OLLAMA_NUM_PARALLEL"] == "7"
    mac.servers = [msgspec.structs.replace(server(), started=1_796_040_000.0)]  # begun two hours after these lines
    assert Collector(mac).get("start") is None


# -- memory --


def test_the_gpu_of_an_apple_chip_is_its_working_set() -> None:
    mac = Mac()
    (gpu,) = Collector(mac).need("gpus")
    assert (gpu.vendor, gpu.name, gpu.unified, gpu.total) == ("apple", "Apple M4", True, (32 << 30) * 2 // 3)
    mac.sysctl["iogpu.wired_limit_mb"] = "28672"
    assert Collector(mac).need("gpus")[0].total == 28 << 30
    mac.arch = "x86_64"
    assert Collector(mac).need("gpus") == ()
    mac.sysctl["hw.memsize"] = "many"
    assert Collector(mac).missing == {} and Collector(mac).get("memory") is None


def test_a_model_may_use_what_metal_and_the_memory_that_is_free_allow() -> None:
    mac = Mac()
    facts = Collector(mac).facts(("system", "memory", "gpus"))
    (place,) = budget(facts, {}).places
    assert facts.memory is not None and place.free == facts.memory.available  # less than the working set
    mac.sysctl["iogpu.wired_limit_mb"] = "1024"
    (place,) = budget(Collector(mac).facts(("system", "memory", "gpus")), {}).places
    assert (place.free, place.device.kind) == (1 << 30, "metal")


# -- our files --


def test_a_plan_is_empty_once_it_was_carried_out(fs: FakeFilesystem) -> None:
    put(fs, f"{AGENTS}/a.plist", "a", {"OLLAMA_MAX_QUEUE": "9"})
    mac = Mac(jobs={"a": (4321, {"OLLAMA_MAX_QUEUE": "9"})}, servers=[server(OLLAMA_MAX_QUEUE="9")])
    made = plan(mac, Request(set={"OLLAMA_NUM_PARALLEL": "4"}, unset=("OLLAMA_MAX_QUEUE",)))
    (change,) = made.files
    assert made.refused == () and made.restart and change.path == f"{AGENTS}/ollamactl.a.plist"
    fs.create_file(change.path, contents=change.after)
    mac.jobs = {"ollamactl.a": (4321, {"OLLAMA_NUM_PARALLEL": "4"})}
    mac.servers = [server(OLLAMA_NUM_PARALLEL="4")]
    again = plan(mac, Request(set={"OLLAMA_NUM_PARALLEL": "4"}))
    assert again.empty and again.managed == Managed({"OLLAMA_NUM_PARALLEL": "4"}, ("OLLAMA_MAX_QUEUE",))
    gone = plan(mac, Request(release=("OLLAMA_NUM_PARALLEL", "OLLAMA_MAX_QUEUE")))
    assert gone.files[0].after is None and gone.restart


TEXT = st.text(st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="\ufffe\uffff"), max_size=20)
NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,12}", fullmatch=True)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(NAMES, TEXT, max_size=4), st.dictionaries(NAMES, TEXT, max_size=3), st.sampled_from([0, 1]))
def test_any_value_comes_back_from_our_plist(values: dict[str, str], theirs: dict[str, str], secrets: int) -> None:
    state = Managed(dict(sorted(values.items())), ("GONE_1",), tuple(sorted(values))[:secrets])
    base = plistlib.dumps({"Label": "b", "ProgramArguments": ["/x y/ollama", "serve"], "KeepAlive": {"Crashed": True},
                           "EnvironmentVariables": theirs | {"GONE_1": "x"}})  # fmt: skip
    launch = Launch(unit="b", kind="agent", plist="/a--b/b.plist", own_label="ollamactl.b", own_file="/o.plist")
    text = darwin.render(launch, state, base)
    assert launchd.managed("plist", text) == state
    wrote = plistlib.loads(text.encode())
    assert wrote["EnvironmentVariables"] if values or theirs else True
    assert plist.parse(text.encode()).environment == {**theirs, **values}
    assert (wrote["Label"], wrote["KeepAlive"]) == ("ollamactl.b", {"Crashed": True})
    session = msgspec.structs.replace(launch, holds="session", own_label=launchd.SESSION)
    text = darwin.render(session, state, None)
    assert launchd.managed("session", text) == state
    words = plistlib.loads(text.encode())["ProgramArguments"]
    assert words[2:] == [w for pair in state.values.items() for w in pair] or words == ["/usr/bin/true"]


@pytest.mark.parametrize("value", ["a\x1bb", "a\x00b", "a\udcffb"])
def test_what_a_plist_can_not_hold_is_refused(fs: FakeFilesystem, value: str) -> None:
    put(fs, f"{AGENTS}/a.plist", "a")
    with pytest.raises(Exception, match="property list can't hold"):
        plan(Mac(jobs={"a": (4321, {})}, servers=[server()]), Request(set={"OLLAMA_ORIGINS": value}))


def test_a_users_history_is_in_the_users_library(monkeypatch: pytest.MonkeyPatch) -> None:
    assert journal.default_folder() == journal.FOLDER
    monkeypatch.setattr(journal.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(journal.os, "geteuid", lambda: 501)
    assert re.fullmatch(r"/.*/Library/Application Support/ollamactl", journal.default_folder())
    monkeypatch.setattr(journal.os, "geteuid", lambda: 0)
    assert journal.default_folder() == journal.FOLDER


def test_what_lsof_does_not_show_is_not_absent() -> None:
    mac = Mac(listeners="")
    collector = Collector(mac)
    assert collector.get("listeners") is None and collector.missing["listeners"].kind == "denied"
    expected = (Listener(address="127.0.0.1", port=11434, pid=4321, name="ollama"),)
    assert Collector(Mac()).need("listeners") == expected
