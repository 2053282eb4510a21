"""What programs of macOS print, as records (shapes/README.md says where each shape was seen)."""

from __future__ import annotations

import plistlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ollamactl.core import launchd, unified
from ollamactl.core.dropin import Managed
from ollamactl.core.parse import brew, launchctl, macos, plist

SHAPES = Path(__file__).parent / "shapes"
MiB, GiB = 1 << 20, 1 << 30


def shape(name: str) -> str:
    return (SHAPES / name).read_text()


def test_a_running_job() -> None:
    job = launchctl.parse_print(shape("print-running.txt"))
    assert (job.state, job.type, job.pid, job.runs, job.last_exit) == ("running", "LaunchAgent", 4321, 3, None)
    assert job.path.endswith("/LaunchAgents/homebrew.mxcl.ollama.plist")
    assert job.arguments == ("/opt/homebrew/opt/ollama/bin/ollama", "serve")
    assert job.stderr_path == "/opt/homebrew/var/log/ollama.log" and job.working_directory == "/opt/homebrew/var"
    assert job.environment["OLLAMA_KV_CACHE_TYPE"] == "q8_0" and job.environment["OLLAMA_ORIGINS"] == "a = {, b => c"
    assert job.inherited["OLLAMA_HOST"] == "0.0.0.0" and "keepalive" in job.properties
    assert set(launchd.given(job)) == {"OLLAMA_FLASH_ATTENTION", "OLLAMA_KV_CACHE_TYPE", "OLLAMA_ORIGINS"}


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("print-running.txt", ("active", "running")),
        ("print-configuration.txt", ("failed", "not running")),
        ("print-killed.txt", ("activating", "auto-restart")),
        ("print-not-spawned.txt", ("activating", "not running")),
    ],
)
def test_states_in_the_words_of_systemd(name: str, state: tuple[str, str]) -> None:
    assert launchd.state_of(launchctl.parse_print(shape(name))) == state


def test_how_a_job_ended() -> None:
    ended, killed = (launchctl.parse_print(shape(f"print-{n}.txt")) for n in ("configuration", "killed"))
    assert (ended.last_exit, ended.last_signal, ended.pid) == (78, "", None)
    assert (killed.last_exit, killed.last_signal) == (None, "Killed: 9")


def test_a_domain_and_its_overrides() -> None:
    domain = launchctl.parse_domain(shape("print-domain.txt"))
    assert domain.environment["OLLAMA_HOST"] == "0.0.0.0" and domain.target == "gui/501"
    assert [(r.label.split(".")[-1], r.pid, r.status) for r in domain.services] == [
        ("ollama", 4321, "-"), ("failed", None, "78"), ("0A1B2C3D", 5000, "-"),
    ]  # fmt: skip
    off = {"com.example.off": True, "com.ollama.ollama": False}
    assert domain.disabled == off
    assert launchctl.parse_disabled(shape("print-disabled.txt")) == off
    assert launchctl.parse_disabled(shape("print-disabled-older.txt")) == off


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="\t{}=> \nabc\x00é\"", max_size=200))
def test_no_text_of_launchctl_breaks_the_parser(text: str) -> None:
    launchctl.parse_print(text)
    launchctl.parse_domain(text)
    launchctl.parse_disabled(text)


def test_memory() -> None:
    rows = macos.parse_vm_stat(shape("vm_stat.txt"))
    assert macos.available(rows) == (12345 + 300000 + 5000) * 16384
    assert rows["Pages occupied by compressor"] == 90000 * 16384
    assert macos.available(macos.parse_vm_stat(shape("vm_stat-intel.txt"))) == 310000 * 4096
    assert macos.parse_vm_stat("") == {} and macos.available({}) is None
    said = macos.parse_sysctl(shape("sysctl.txt"))
    assert said["hw.memsize"] == "17179869184" and said["machdep.cpu.brand_string"] == "Apple M2 Pro"
    assert macos.parse_swap(said["vm.swapusage"]) == macos.Swap(2048 * MiB, round(100.25 * MiB), round(1947.75 * MiB))
    assert macos.parse_swap("total = 0,00M  used = 0,00M  free = 0,00M") == macos.Swap(0, 0, 0)
    assert macos.parse_swap("nothing") is None


@pytest.mark.parametrize(
    ("size", "kernel", "seen"),
    [
        (8, "24.6.0", 5726), (16, "24.6.0", 11453), (24, "23.0.0", 17180), (32, "24.6.0", 22907),
        (36, "24.6.0", 28991), (64, "24.6.0", 51540), (128, "24.6.0", 103079),
        (16, "25.1.0", 12713), (24, "25.1.0", 19070), (32, "25.1.0", 26801), (36, "25.0.0", 30151),
        (48, "25.1.0", 40201), (64, "25.1.0", 55663), (128, "25.1.0", 115449),
    ],
)  # fmt: skip
def test_the_default_working_set_is_as_it_was_reported(size: int, kernel: str, seen: int) -> None:
    """`seen`: megabytes of recommendedMaxWorkingSetSize."""
    assert unified.default_working_set(size * GiB, kernel) == pytest.approx(seen * 1_000_000, rel=0.001)


def test_a_limit_that_was_set() -> None:
    assert unified.limit_set({"iogpu.wired_limit_mb": "0"}) is None
    assert unified.limit_set({"iogpu.wired_limit_mb": "24576"}) == (24 * GiB, "iogpu.wired_limit_mb=24576")
    assert unified.limit_set({"debug.iogpu.wired_limit": "1000"}) == (1000, "debug.iogpu.wired_limit=1000")


def test_sockets_and_their_owners() -> None:
    found = [(x.address, x.port, x.pid, x.name) for x in macos.parse_lsof(shape("lsof-fields.txt"))]
    assert found == [
        ("127.0.0.1", 11434, 43210, "ollama"), ("0.0.0.0", 80, 43300, "nginx"), ("::1", 8080, 43300, "nginx"),
    ]  # fmt: skip


def test_an_environment_of_ps_is_known_or_unreadable_but_never_empty() -> None:
    argv = ("/opt/homebrew/opt/ollama/bin/ollama", "serve")
    found = macos.parse_ps_environment(shape("ps-environment.txt"), argv)
    assert found == {
        "OLLAMA_NUM_PARALLEL": "4", "OLLAMA_ORIGINS": "http://a", "b": "c", "PATH": "/usr/bin:/bin",
    }  # fmt: skip
    app = ("/Applications/Ollama.app/Contents/Resources/ollama", "serve")
    assert macos.parse_ps_environment(shape("ps-without.txt"), app) is None


def test_brew() -> None:
    assert brew.parse_version(shape("brew-version.txt")) == (6, 0, 16)
    assert brew.parse_version("zsh: command not found: brew") == ()
    info = brew.parse_info(shape("brew-services-info.json").encode())
    assert info is not None and (info.status, info.pid, info.registered) == ("started", 4321, True)
    assert brew.parse_info(b"[]") is None and brew.parse_info(b"Error: no") is None


def test_brews_environment_file_is_read_as_brew_reads_it() -> None:
    found = brew.parse_env_file("/x/ollama.env", shape("brew-ollama.env"))
    assert [(e.name, e.value) for e in found.entries] == [
        ("OLLAMA_NUM_PARALLEL", "4"), ("OLLAMA_ORIGINS", '"http://a"'), ("export OLLAMA_MAX_QUEUE", "9"),
        ("OLLAMA_DEBUG", ""), ("OLLAMA_NUM_PARALLEL", "6"), ("OLLAMA_HOST", "0.0.0.0 # all"),
    ]  # fmt: skip
    assert [p.line for p in found.problems] == [4, 5, 6, 7]


NAMES = st.from_regex(r"[A-Z][A-Z0-9_]{0,12}", fullmatch=True)
VALUES = st.dictionaries(NAMES, st.text(alphabet="ab \"'$#=%&<>é\\", max_size=12).map(str.strip))


@settings(max_examples=150, deadline=None)
@given(VALUES, st.sampled_from(["", "# mine\nA=1\n", "A=1", "\n\nB = 2\n\n"]))
def test_our_lines_in_brews_file_come_back_and_the_rest_stays(values: dict[str, str], others: str) -> None:
    state = Managed(dict(sorted(values.items())), ("GONE_1",), tuple(sorted(values))[:1])
    text = launchd.with_block(others or None, state)
    assert text is not None and launchd.managed("brew-file", text) == state
    assert text.startswith(others)
    read = {e.name: e.value for e in brew.parse_env_file("f", text).entries}
    assert values.items() <= read.items() and read["GONE_1"] == ""
    left = launchd.with_block(text, Managed())
    assert left == (others if others.endswith("\n") else f"{others}\n" if others else None)


@pytest.mark.parametrize("value", [" a", "a ", "a\nb", "a\rb"])
def test_what_brew_would_read_otherwise_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="can't hold"):
        launchd.with_block(None, Managed({"A": value}))


@pytest.mark.parametrize("form", [plistlib.FMT_XML, plistlib.FMT_BINARY])
def test_a_plist_in_either_form(form: plistlib.PlistFormat) -> None:
    body = plistlib.dumps({"Label": "a", "ProgramArguments": ["/x/ollama", "serve"], "KeepAlive": True,
                           "EnvironmentVariables": {"A": "1"}}, fmt=form)  # fmt: skip
    found = plist.parse(body)
    assert (found.label, found.program, found.environment) == ("a", ("/x/ollama", "serve"), {"A": "1"})
    assert found.keep_alive and found.run_at_load and not found.problem


def test_a_value_that_is_no_text_is_a_problem() -> None:
    found = plist.parse(plistlib.dumps({"Label": "a", "EnvironmentVariables": {"A": 1, "B": "2"}}))
    assert found.problem == "EnvironmentVariables: A: no text" and found.environment == {"B": "2"}


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=120) | st.binary(max_size=60).map(lambda b: b"bplist00" + b))
def test_no_bytes_break_the_reader_of_plists(body: bytes) -> None:
    assert plist.parse(body).problem or plist.load(body) is not None
