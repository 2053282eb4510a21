"""`ollamactl` on a Mac of stand-ins, end to end: what it changes is what a real process of the stand-in server then
prints and has. Nothing here has run on a real Mac."""

from __future__ import annotations

import os
import plistlib
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.darwin.world import FORMULA, LABEL, World

pytestmark = pytest.mark.long
OURS = f"ollamactl.{LABEL}"


@pytest.fixture
def mac(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "mac").build()
    yield world
    world.end()


@pytest.fixture
def brewed(mac: World) -> World:
    """`brew install ollama && brew services start ollama`."""
    mac.formula()
    mac.run("brew", "services", "start", "ollama")
    mac.wait_answer()
    return mac


def env_file(mac: World) -> Path:
    return mac.home / ".homebrew/services/ollama.env"


def snapshot(mac: World) -> dict[str, bytes]:
    """Files of the user that a change may touch."""
    folders = (mac.agents, mac.home / ".homebrew", mac.root / "Library")
    return {str(p): p.read_bytes() for f in folders for p in f.rglob("*") if p.is_file()}


# -- brew with environment files --


def test_brew_keeps_the_formula_and_gets_an_environment_file(brewed: World) -> None:
    said = brewed.ctl("apply", "--parallel", "4").stdout
    assert "not yet proven on a real Mac" in " ".join(said.split())
    assert "OLLAMA_NUM_PARALLEL=4" in env_file(brewed).read_text()
    has = brewed.environ()
    assert has["OLLAMA_NUM_PARALLEL"] == "4" and FORMULA.items() <= has.items()
    assert "OLLAMA_NUM_PARALLEL:4" in brewed.log.read_text()  # `server config`
    rows = {r["name"]: r for r in brewed.json("verify")["data"]["rows"]}
    layers = {"drop-in": "4", "unit": "–", "env file": "4", "process": "4", "server": "4", "runner": "–"}
    assert rows["OLLAMA_NUM_PARALLEL"]["layers"] == layers
    assert brewed.json("apply", "--parallel", "4")["status"] == "unchanged"


def test_lines_of_the_user_stay_and_rollback_and_reset_bring_them_back(brewed: World) -> None:
    path = env_file(brewed)
    path.parent.mkdir(parents=True)
    mine = "# mine\nOLLAMA_NUM_PARALLEL=2\n\nOLLAMA_MAX_QUEUE = 64\n"
    path.write_text(mine)
    path.chmod(0o600)
    brewed.run("brew", "services", "restart", "ollama")
    brewed.wait_answer()
    brewed.ctl("apply", "--parallel", "3", "--unset", "OLLAMA_KV_CACHE_TYPE")
    assert path.read_text().startswith(mine) and path.stat().st_mode & 0o777 == 0o600
    has = brewed.environ()
    assert (has["OLLAMA_NUM_PARALLEL"], has["OLLAMA_MAX_QUEUE"], has["OLLAMA_KV_CACHE_TYPE"]) == ("3", "64", "")
    assert brewed.json("rollback")["exit_code"] == 0
    assert path.read_text() == mine and brewed.environ()["OLLAMA_NUM_PARALLEL"] == "2"
    brewed.ctl("apply", "--parallel", "5")
    brewed.ctl("reset")
    assert path.read_text() == mine and brewed.environ()["OLLAMA_NUM_PARALLEL"] == "2"
    entries = brewed.json("history")["data"]["entries"]
    assert [e["kind"] for e in entries] == ["apply", "rollback", "apply", "reset"]


def test_a_start_that_fails_is_undone(brewed: World) -> None:
    before, was = snapshot(brewed), brewed.environ()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        got = brewed.json("apply", "--host", f"127.0.0.1:{port}", "--timeout", "10", code=3)
    assert got["status"] == "restored" and "another process holds" in got["errors"][0]["text"]
    assert snapshot(brewed) == before
    assert brewed.environ()["OLLAMA_HOST"] == was["OLLAMA_HOST"] and brewed.wait_answer()


def test_a_killed_change_is_undone_by_recover(brewed: World) -> None:
    before = snapshot(brewed)
    change = subprocess.Popen([str(brewed.root / "bin/ollamactl"), "apply", "--parallel", "7"], env=brewed.env,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    while not env_file(brewed).exists():
        assert change.poll() is None
        time.sleep(0.01)
    change.send_signal(signal.SIGKILL)
    change.wait()
    recover = brewed.agents / "ollamactl.recover.plist"
    assert plistlib.loads(recover.read_bytes())["ProgramArguments"][-3:] == ["recover", "--wait", "60"]
    assert "interrupted" in brewed.ctl("facts").stderr
    assert brewed.json("recover")["data"]["recovered"] is True
    assert snapshot(brewed) == before and not recover.exists()
    brewed.wait_answer()
    assert "OLLAMA_NUM_PARALLEL" not in brewed.environ()


def test_what_brew_would_lose_or_not_read_is_refused(brewed: World) -> None:
    registered = brewed.agents / f"{LABEL}.plist"
    plist = plistlib.loads(registered.read_bytes())
    plist["EnvironmentVariables"]["OLLAMA_MAX_QUEUE"] = "9"
    registered.write_bytes(plistlib.dumps(plist))
    before = snapshot(brewed)
    got = brewed.json("apply", "--parallel", "2", code=6)
    assert [e["id"] for e in got["errors"]] == ["hand_edited_plist"] and "OLLAMA_MAX_QUEUE" in got["errors"][0]["text"]
    assert snapshot(brewed) == before
    brewed.ctl("apply", "--parallel", "2", "--max-queue", "9")  # as the hint says
    assert brewed.environ()["OLLAMA_MAX_QUEUE"] == "9"
    env_file(brewed).chmod(0o664)
    got = brewed.json("apply", "--parallel", "3", code=6)
    assert "brew_env_file_unread" in [e["id"] for e in got["errors"]]


def test_a_server_of_brew_services_run_is_refused(mac: World) -> None:
    mac.formula()
    mac.run("brew", "services", "run", "ollama")
    mac.wait_answer()
    assert [e["id"] for e in mac.json("apply", "--parallel", "2", code=6)["errors"]] == ["brew_run"]


# -- an own plist --


def test_an_older_brew_gets_a_plist_of_ours_and_reset_gives_its_own_back(brewed: World) -> None:
    old = {"MAC_BREW": "5.1.3", "MAC_OLD": "1"}
    before = snapshot(brewed)
    brewed.ctl("apply", "--parallel", "4", **old)
    ours = brewed.agents / f"{OURS}.plist"
    wrote = plistlib.loads(ours.read_bytes())
    assert wrote["Label"] == OURS and wrote["EnvironmentVariables"] == FORMULA | {"OLLAMA_NUM_PARALLEL": "4"}
    assert wrote["KeepAlive"] is True and wrote["StandardErrorPath"] == str(brewed.log)
    services = brewed.state()["domains"]["gui/501"]
    assert list(services["services"]) == [OURS] and services["disabled"] == {LABEL: True, OURS: False}
    assert brewed.environ()["OLLAMA_NUM_PARALLEL"] == "4"
    assert brewed.json("apply", "--parallel", "4", **old)["status"] == "unchanged"
    brewed.ctl("apply", "--max-queue", "33", **old)
    assert brewed.environ()["OLLAMA_MAX_QUEUE"] == "33"
    brewed.ctl("reset", **old)
    assert snapshot(brewed) == before
    services = brewed.state()["domains"]["gui/501"]
    assert list(services["services"]) == [LABEL] and not services["disabled"][LABEL]
    assert "OLLAMA_NUM_PARALLEL" not in brewed.environ()


@pytest.fixture
def agent(mac: World) -> World:
    """An agent that somebody wrote, with a comment in it."""
    program = mac.server(mac.root / "tools/bin")
    path = mac.plist(mac.agents / "com.example.llm.plist", "com.example.llm", program,
                     {"OLLAMA_NUM_PARALLEL": "2", "OLLAMA_ORIGINS": "https://a.example"}, mac.log)  # fmt: skip
    path.write_text(path.read_text().replace("<dict>", "<!-- of mine -->\n<dict>", 1))
    mac.run("launchctl", "bootstrap", "gui/501", str(path))
    mac.wait_answer()
    return mac


def test_an_agent_of_others_stays_as_it_is_and_ours_stands_in(agent: World) -> None:
    before = snapshot(agent)
    secret = agent.root / "secret"
    secret.write_text("http://me:word@proxy.example:3128")
    agent.ctl("apply", "--parallel", "6", "--unset", "OLLAMA_ORIGINS", "--set", f"HTTPS_PROXY=@{secret}")
    ours = agent.agents / "ollamactl.com.example.llm.plist"
    assert ours.stat().st_mode & 0o777 == 0o600
    has = agent.environ()
    assert has["OLLAMA_NUM_PARALLEL"] == "6" and "OLLAMA_ORIGINS" not in has and "word@" in has["HTTPS_PROXY"]
    assert {k: v for k, v in snapshot(agent).items() if k != str(ours)} == before
    assert "word@" not in agent.ctl("verify").stdout + agent.ctl("history").stdout
    agent.ctl("rollback")
    assert snapshot(agent) == before and agent.environ()["OLLAMA_NUM_PARALLEL"] == "2"


def test_a_failed_change_of_an_agent_brings_the_old_job_back(agent: World) -> None:
    before = snapshot(agent)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        host = f"127.0.0.1:{taken.getsockname()[1]}"
        assert agent.json("apply", "--host", host, "--timeout", "10", code=3)["status"] == "restored"
    assert snapshot(agent) == before
    assert list(agent.state()["domains"]["gui/501"]["services"]) == ["com.example.llm"]
    assert not agent.state()["domains"]["gui/501"]["disabled"]["com.example.llm"]
    assert agent.environ()["OLLAMA_NUM_PARALLEL"] == "2"


def test_a_plist_that_was_edited_and_not_loaded_again_is_named(agent: World) -> None:
    path = agent.agents / "com.example.llm.plist"
    path.write_text(path.read_text().replace("<string>2</string>", "<string>3</string>"))
    got = agent.json("verify", code=1)["data"]["mismatches"]
    assert [(m["id"], m["name"]) for m in got] == [("need_daemon_reload", "OLLAMA_NUM_PARALLEL")]
    assert "launchctl bootstrap gui/501" in got[0]["fix"] and "systemctl" not in got[0]["fix"]
    findings = agent.json("doctor", code=None)["data"]["findings"]
    remedies = {f["check"]: f["remedy"] for f in findings}
    assert remedies["launchctl_setenv_not_persistent"].startswith("ollamactl apply --set OLLAMA_HOST=127.0.0.1:")
    assert findings and not any("systemctl" in f["remedy"] or "journalctl" in f["remedy"] for f in findings)


def test_a_server_started_by_hand_is_refused_and_then_run_by_an_agent(mac: World) -> None:
    program = mac.server(mac.root / "usr/local/bin")
    env = mac.env | {"OLLAMA_HOST": f"127.0.0.1:{mac.port}"}
    by_hand = subprocess.Popen([str(program), "serve"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    mac.wait_answer()
    got = mac.json("apply", "--parallel", "2", code=6)
    assert [e["id"] for e in got["errors"]] == ["started_by_hand"] and str(by_hand.pid) in got["errors"][0]["text"]
    by_hand.terminate()
    by_hand.wait()
    mac.ctl("apply", "--parallel", "2", "--start")  # as the hint says
    mac.wait_answer()
    assert mac.environ()["OLLAMA_NUM_PARALLEL"] == "2"
    assert list(mac.state()["domains"]["gui/501"]["services"]) == ["ollamactl.ollama"]


# -- the app --


@pytest.fixture
def opened(mac: World) -> World:
    """Ollama.app, opened in a session where somebody had set a variable by hand."""
    mac.app()
    mac.run("launchctl", "setenv", "OLLAMA_MAX_QUEUE", "77")
    mac.run("open", "-a", str(mac.root / "Applications/Ollama.app"))
    mac.log = mac.home / ".ollama/logs/server.log"
    mac.wait_answer()
    return mac


def test_the_app_gets_its_variables_now_and_at_every_login(opened: World) -> None:
    said = opened.ctl("apply", "--parallel", "4", "--max-queue", "99").stdout
    assert "starts agents and apps in no order" in " ".join(said.split())
    assert opened.session()["OLLAMA_NUM_PARALLEL"] == "4"
    has = opened.environ()
    assert (has["OLLAMA_NUM_PARALLEL"], has["OLLAMA_MAX_QUEUE"]) == ("4", "99")
    assert "OLLAMA_NUM_PARALLEL:4" in opened.log.read_text()
    agent = plistlib.loads((opened.agents / "ollamactl.environment.plist").read_bytes())
    assert agent["RunAtLoad"] is True and agent["ProgramArguments"][:2] == ["/bin/launchctl", "setenv"]
    assert opened.json("apply", "--parallel", "4")["status"] == "unchanged"
    # The next login: the session begins with nothing, then launchd loads our agent.
    now = opened.state()
    for name in ("OLLAMA_NUM_PARALLEL", "OLLAMA_MAX_QUEUE"):
        del now["domains"]["gui/501"]["environment"][name]
    opened.change(**now)
    assert opened.json("verify", code=1)["data"]["mismatches"][0]["id"] == "env_not_in_server_config"
    opened.run("launchctl", "bootstrap", "gui/501", str(opened.agents / "ollamactl.environment.plist"))
    until = time.monotonic() + 20
    while "OLLAMA_NUM_PARALLEL" not in opened.session():
        assert time.monotonic() < until
        time.sleep(0.05)
    assert opened.json("verify")["data"]["mismatches"] == []


def test_a_rollback_of_the_app_brings_back_what_was_set_by_hand(opened: World) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        host = f"127.0.0.1:{taken.getsockname()[1]}"
        got = opened.json("apply", "--max-queue", "5", "--host", host, "--timeout", "10", code=3)
    assert got["status"] == "restored"
    assert opened.session()["OLLAMA_MAX_QUEUE"] == "77" and opened.environ()["OLLAMA_MAX_QUEUE"] == "77"
    assert list(opened.agents.iterdir()) == []


def test_what_the_app_itself_sets_is_refused(mac: World) -> None:
    mac.app(context_length=8192)
    mac.run("open", "-a", str(mac.root / "Applications/Ollama.app"))
    mac.wait_answer()
    before = mac.session()
    got = mac.json("apply", "--context-length", "16384", code=6)
    assert [e["id"] for e in got["errors"]] == ["app_setting_wins"] and "8192" in got["errors"][0]["text"]
    assert mac.session() == before and mac.environ()["OLLAMA_CONTEXT_LENGTH"] == "8192"


# -- who asks, and for whom --


def test_under_sudo_the_session_of_the_user_at_the_screen_is_changed(brewed: World) -> None:
    brewed.ctl("apply", "--parallel", "4", MAC_EUID="0")
    assert brewed.environ()["OLLAMA_NUM_PARALLEL"] == "4"
    assert brewed.json("history")["data"]["entries"][0]["outcome"] == "applied"  # in the user's own history
    assert brewed.ctl("rollback", MAC_EUID="0").returncode == 0
    assert "OLLAMA_NUM_PARALLEL" not in brewed.environ()


@pytest.mark.parametrize("euid", ["0", "501"])
def test_without_a_user_at_the_screen_nothing_is_touched(brewed: World, euid: str) -> None:
    brewed.change(console=0)
    before = snapshot(brewed)
    got = brewed.json("apply", "--parallel", "4", code=5, MAC_EUID=euid)
    assert got["errors"][0]["id"] == "no_session" and snapshot(brewed) == before


def test_another_user_at_the_screen_is_said(brewed: World) -> None:
    before = snapshot(brewed)
    got = brewed.json("apply", "--parallel", "4", code=5, MAC_EUID="502")
    assert "is logged in at the screen" in got["errors"][0]["text"] and snapshot(brewed) == before


def test_a_daemon_takes_root(mac: World) -> None:
    program = mac.server(mac.root / "tools/bin")
    path = mac.plist(mac.root / "Library/LaunchDaemons/com.example.llmd.plist", "com.example.llmd", program,
                     {"OLLAMA_NUM_PARALLEL": "2"}, mac.log)  # fmt: skip
    mac.run("launchctl", "bootstrap", "system", str(path), MAC_EUID="0")
    mac.wait_answer()
    assert "sudo ollamactl apply" in mac.json("apply", "--parallel", "4", code=5)["errors"][0]["hint"]
    mac.change(console=0)  # nobody needs to be there
    assert mac.json("apply", "--parallel", "4", MAC_EUID="0")["status"] == "applied"
    assert mac.environ()["OLLAMA_NUM_PARALLEL"] == "4"
    assert mac.json("reset", MAC_EUID="0")["exit_code"] == 0
    assert mac.environ()["OLLAMA_NUM_PARALLEL"] == "2"


# -- what is read --


def test_an_environment_that_can_not_be_read_is_proven_by_the_log(brewed: World) -> None:
    blind = brewed.root / "blind/ps"
    blind.parent.mkdir()
    blind.write_text(f"#!/bin/sh\necho {brewed.prefix}/opt/ollama/bin/ollama serve\n")
    blind.chmod(0o755)
    hidden = {"MAC_HIDDEN": "1", "PATH": f"{blind.parent}:{brewed.env['PATH']}"}
    got = brewed.json("apply", "--parallel", "4", **hidden)
    assert got["status"] == "applied"
    assert any("server config: OLLAMA_NUM_PARALLEL=4" in s["text"] for s in got["data"]["steps"])
    seen = brewed.json("verify", **hidden)["data"]
    assert {r["name"]: r for r in seen["rows"]}["OLLAMA_NUM_PARALLEL"]["layers"]["process"] == "denied"
    assert "the environment of the process: denied (sudo shows it)" in seen["unproven"]


def test_several_ways_are_told_apart_by_the_port(brewed: World) -> None:
    brewed.app()
    facts = brewed.json("facts")["data"]
    assert sorted(x["kind"] for x in facts["launches"]) == ["app", "brew"]
    assert facts["service"]["id"] == LABEL and facts["listeners"][0]["port"] == brewed.port
    assert facts["brew_service"]["status"] == "started" and facts["unified"]["source"] == "default"
    assert facts["gpus"][0]["total"] == 34359738368 * 2 // 3 and facts["memory"]["total"] == 34359738368
    assert brewed.json("verify", "--unit", "app")["data"]["unit"] == "Ollama.app"


def test_a_bundle_stands_in_for_the_mac(brewed: World) -> None:
    brewed.ctl("bundle", "mac.tar.gz")
    live, replayed = (brewed.json("verify", *more)["data"] for more in ((), ("--from", "mac.tar.gz")))
    assert replayed["rows"] == live["rows"] and replayed["unit"] == LABEL
    assert brewed.json("facts", "--from", "mac.tar.gz")["data"]["unified"]["total"] == 32 << 30


def test_the_budget_of_a_plan_is_the_shared_memory(brewed: World) -> None:
    (brewed.root / "sysctl.json").write_text((brewed.root / "sysctl.json").read_text().replace(
        '"iogpu.wired_limit_mb": "0"', '"iogpu.wired_limit_mb": "8192"'))  # fmt: skip
    facts = brewed.json("facts")["data"]
    assert facts["unified"]["working_set"] == 8 << 30 and "iogpu.wired_limit_mb=8192" in facts["unified"]["source"]
    assert os.path.exists(facts["service"]["log_path"])
