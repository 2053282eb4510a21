"""What to type where Ollama is no unit that ollamactl changes: containers, user units, snaps, NixOS, by hand."""

from __future__ import annotations

import shlex

import msgspec
import pytest

from ollamactl.core.advice import Advice
from ollamactl.core.compose import MARK, managed, override_file, quoted
from ollamactl.core.dropin import Managed
from ollamactl.core.elsewhere import RULES, advice, of_unit
from ollamactl.core.elsewhere_boxes import run_lines
from ollamactl.core.facts import Compose, Container, Facts, Install, Port, Process, Service, System, Way
from ollamactl.core.plan import Request

FOUR = Request(set={"OLLAMA_NUM_PARALLEL": "4"})
BOX = Container(
    engine="docker",
    id="ab" * 32,
    name="ollama",
    image="ollama/ollama",
    status="running",
    pid=10,
    environment=("PATH=/usr/bin", "OLLAMA_HOST=0.0.0.0:11434", "OLLAMA_NUM_PARALLEL=1", "OLLAMA_ORIGINS=a b"),
    command=("/bin/ollama", "serve"),
    ports=(Port(inside=11434, host=11434, address="0.0.0.0"), Port(inside=11434, host=11434, address="::")),
    network="bridge",
    gpu_requests=("all",),
    mounts=("models:/root/.ollama",),
    restart_policy="unless-stopped",
)


def given(way: Way, name: str = "ollama", box: Container | None = None, **more: object) -> Facts:
    install = Install(way=way, name=name, pid=10, running=True, why="pid 10 runs `ollama serve`", **more)  # type: ignore[arg-type]
    return Facts(install=install, containers=(box,) if box else ())


def asked(request: Request, facts: Facts) -> Advice:
    found = advice(request, facts)
    assert found is not None
    return found


def lines(found: Advice) -> list[str]:
    return [line for step in found.steps for line in step.lines]


def test_a_container_is_made_anew_from_what_it_has() -> None:
    words = shlex.split(run_lines(BOX, FOUR)[0])
    assert words == [
        "docker", "run", "-d", "--name", "ollama", "--restart", "unless-stopped", "--gpus", "all", "-v",
        "models:/root/.ollama", "-p", "11434:11434", "-e", "OLLAMA_NUM_PARALLEL=4", "-e", "OLLAMA_ORIGINS=a b",
        "ollama/ollama",
    ]  # fmt: skip
    found = asked(FOUR, given("docker", box=BOX))
    assert lines(found)[:2] == ["docker stop ollama", "docker rename ollama ollama-before"]
    assert found.undo == ("docker rm -f ollama", "docker rename ollama-before ollama", "docker start ollama")


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        (("2",), ["--gpus", "2"]),
        (("device=0",), ["--gpus", "device=0"]),
        (("device=0,1",), ["--gpus", '"device=0,1"']),
        (("nvidia.com/gpu=all",), ["--device", "nvidia.com/gpu=all"]),
        (("/dev/kfd", "/dev/dri"), ["--device", "/dev/kfd", "--device", "/dev/dri"]),
        (("runtime nvidia",), ["--runtime", "nvidia"]),
        ((), []),
    ],
)
def test_every_way_of_asking_for_a_gpu_is_asked_again(requests: tuple[str, ...], expected: list[str]) -> None:
    words = shlex.split(run_lines(msgspec.structs.replace(BOX, gpu_requests=requests, restart_policy=""), FOUR)[0])
    assert words[5 : words.index("-v")] == expected


def test_a_port_on_one_address_an_own_network_and_another_program_are_kept() -> None:
    box = msgspec.structs.replace(
        BOX,
        ports=(
            Port(inside=11434, host=8080, address="127.0.0.1"),
            Port(inside=1),
            Port(inside=2, host=3, address="::1"),
        ),
        network="ai",
        command=("/bin/sh", "-c", "ollama serve"),
        options=("--memory", "1073741824", "--label", "a=b c"),
        networks=("web",),
        environment=("OLLAMA_HOST=127.0.0.1:9999", "X=y"),
    )
    line, join = run_lines(box, Request(unset=("X",)))
    assert join == "docker network connect web ollama"
    assert "-p 127.0.0.1:8080:11434 -p '[::1]:3:2'" in line and "--network ai" in line
    assert line.endswith("-e OLLAMA_HOST=127.0.0.1:9999 --entrypoint /bin/sh ollama/ollama -c 'ollama serve'")
    assert "--memory 1073741824 --label 'a=b c'" in line and "X=y" not in line


def test_a_container_that_goes_away_when_it_stops_is_taken_back_by_a_line_of_what_it_was() -> None:
    found = asked(FOUR, given("docker", box=msgspec.structs.replace(BOX, options=("--rm",))))
    assert lines(found)[0] == "docker rm -f ollama" and "OLLAMA_NUM_PARALLEL=4" in lines(found)[1]
    assert found.undo[0] == "docker rm -f ollama" and "OLLAMA_NUM_PARALLEL=1" in found.undo[1]
    assert not [line for line in (*lines(found), *found.undo) if "rename" in line]


def test_an_engine_that_does_not_answer_is_asked_by_whom_it_belongs_to() -> None:
    asks = lines(asked(FOUR, given("podman", "0123", uid=1000)))
    assert asks == ["podman ps --no-trunc --filter id=0123", "ollamactl apply --set OLLAMA_NUM_PARALLEL=4"]
    asks = lines(asked(FOUR, given("docker", "0123")))
    assert asks == ["sudo docker ps --no-trunc --filter id=0123", "sudo ollamactl apply --set OLLAMA_NUM_PARALLEL=4"]


def test_a_quadlet_gets_what_its_file_can_hold() -> None:
    box = msgspec.structs.replace(BOX, engine="podman", name="systemd-ollama", unit="ollama.service")
    odd = Request(set={"OLLAMA_ORIGINS": r'a"b\c$d%e'}, unset=("OLLAMA_DEBUG",))
    found = asked(odd, given("quadlet", "systemd-ollama", box, source="/etc/containers/systemd/ai/ollama.container"))
    assert [s.file for s in found.steps[:2]] == ["/etc/containers/systemd/ai/ollama.container"] * 2
    assert lines(found)[:2] == [r'Environment="OLLAMA_ORIGINS=a\"b\\c$$d%%e"', "PodmanArgs=--unsetenv=OLLAMA_DEBUG"]
    assert "sudo systemctl restart ollama.service" in lines(found)
    mine = asked(FOUR, given("quadlet", "ollama.service", uid=1000))
    assert mine.steps[0].file == "~/.config/containers/systemd/ollama.container"
    assert "systemctl --user restart ollama.service" in lines(mine)


def compose(*files: str) -> Compose:
    return Compose(project="ai", service="llm", folder="/srv/ai", files=files)


@pytest.mark.parametrize(
    ("files", "place"),
    [
        (("/srv/ai/compose.yaml",), "/srv/ai/compose.override.yaml"),
        (("/srv/ai/docker-compose.yml",), "/srv/ai/docker-compose.override.yml"),
        (("/srv/ai/stack.yml",), "/srv/ai/stack.yml"),
        (("/srv/ai/a.yml", "/srv/ai/b.yml"), "/srv/ai/b.yml"),
        ((), "/srv/ai/compose.override.yaml"),
    ],
)
def test_the_file_of_a_compose_project_that_wins(files: tuple[str, ...], place: str) -> None:
    assert override_file(compose(*files)) == place


def test_a_compose_project_gets_lines_for_its_override_file_and_a_command_that_names_all_files() -> None:
    box = msgspec.structs.replace(BOX, compose=compose("/srv/ai/compose.yaml"))
    found = asked(Request(set={"OLLAMA_ORIGINS": 'a"b'}, unset=("OLLAMA_HOST",)), given("compose", box=box))
    assert lines(found)[:5] == [
        "services:", "  llm:", "    environment:", '      OLLAMA_ORIGINS: "a\\"b"', "      OLLAMA_HOST: !reset null",
    ]  # fmt: skip
    plain = "docker compose -p ai --project-directory /srv/ai up -d llm"  # it finds both files
    assert lines(found)[5] == plain and found.undo[1] == plain
    assert "/srv/ai/compose.override.yaml" in found.undo[0], "it may hold lines of others"
    away = msgspec.structs.replace(box, compose=compose("/srv/a.yml", "/srv/ai/b.yml"))
    found = asked(FOUR, given("compose", box=away))
    assert found.steps[0].file == "/srv/ai/b.yml"
    assert found.steps[1].lines[0] == (
        "docker compose -p ai --project-directory /srv/ai -f /srv/a.yml -f /srv/ai/b.yml up -d llm"
    )


def test_values_that_a_compose_file_can_not_hold_are_shown_and_refused() -> None:
    box = msgspec.structs.replace(BOX, compose=compose("/srv/ai/compose.yaml"))
    odd = Request(set={"OLLAMA_ORIGINS": "a\x01\udcff$b"})
    assert '      OLLAMA_ORIGINS: "a\\u0001?$$b"' in lines(asked(odd, given("compose", box=box)))
    for text in ("\x01", "\udcff", "\x7f"):
        with pytest.raises(ValueError):
            quoted(text)


@pytest.mark.parametrize("value", ["", "a b", '"', "\\", "$", "$$", "${X}", "é ☃", "#", ": ", "{{x}}", "'"])
def test_what_our_compose_file_holds_is_read_back(value: str) -> None:
    text = f"{MARK} x\nservices:\n  llm:\n    environment:\n      X: {quoted(value)}\n      Y: !reset null\n"
    assert managed(text) == Managed({"X": value}, ("Y",))
    assert managed(text.removeprefix("#")) == Managed()


def test_a_user_unit_gets_a_drop_in_of_its_own() -> None:
    found = asked(FOUR, given("user-unit", "ollama.service", uid=1000))
    assert found.steps[0].file == "~/.config/systemd/user/ollama.service.d/zz-ollamactl.conf"
    assert lines(found)[:2] == ["[Service]", 'Environment="OLLAMA_NUM_PARALLEL=4"']
    assert "systemctl --user restart ollama.service" in lines(found)


def test_a_server_by_hand_is_started_anew_and_wsl_is_told_of_systemd() -> None:
    facts = given("hand", "/usr/bin/ollama serve")
    assert lines(asked(FOUR, facts))[:2] == ["kill 10", "OLLAMA_NUM_PARALLEL=4 /usr/bin/ollama serve"]
    environ = {"OLLAMA_MODELS": "/m s", "OLLAMA_DEBUG": "1", "PATH": "/bin", "https_proxy": "u:p@h"}
    both = Request(set={"OLLAMA_NUM_PARALLEL": "4"}, unset=("OLLAMA_DEBUG", "OLLAMA_HOST"))
    found = asked(both, msgspec.structs.replace(facts, process=Process(pid=10, environ=environ)))
    assert lines(found)[1] == (
        "env -u OLLAMA_DEBUG -u OLLAMA_HOST 'OLLAMA_MODELS=/m s' https_proxy=SECRET OLLAMA_NUM_PARALLEL=4 "
        "/usr/bin/ollama serve"
    )
    assert found.undo[1] == "OLLAMA_DEBUG=1 'OLLAMA_MODELS=/m s' https_proxy=SECRET /usr/bin/ollama serve"
    assert found.steps[-1].what.startswith("SECRET stands for")
    wsl = msgspec.structs.replace(facts, system=System(os="linux", container="wsl", init="sysvinit"))
    assert "systemd=true" in lines(asked(FOUR, wsl)) and "wsl --shutdown" in lines(asked(FOUR, wsl))


def test_a_secret_is_not_printed_anywhere() -> None:
    secret = Request(set={"HTTPS_PROXY": "http://me:hunter2@proxy"}, secret=("HTTPS_PROXY",))
    boxed = msgspec.structs.replace(BOX, compose=compose("/srv/ai/compose.yaml"))
    for way in RULES:
        for box in (None, BOX, boxed):
            found = asked(secret, given(way, box=box))
            assert "hunter2" not in repr(found), way
    for unit in (Service(id="snap.ollama.listener.service"), Service(id="x.service", fragment_path="/nix/store/a/x")):
        assert "hunter2" not in repr(of_unit(secret, unit, None))


def test_the_snap_takes_from_its_configuration_only_what_its_launcher_sets() -> None:
    unit = Service(id="snap.ollama.listener.service")
    found = of_unit(Request(set={"OLLAMA_HOST": "127.0.0.1:11500"}), unit, None)
    assert found is not None and lines(found)[:2] == [
        "sudo snap set ollama host=127.0.0.1:11500", "sudo snap restart ollama",
    ]  # fmt: skip
    assert of_unit(FOUR, unit, None) is None, "a drop-in does that"


def test_nixos_gets_module_lines_in_its_own_quoting() -> None:
    unit = Service(id="ollama.service", fragment_path="/etc/systemd/system/ollama.service")
    nixos = System(os="linux", distribution="NixOS 25.11 (Xantusia)", init="systemd")
    asks = {"OLLAMA_HOST": "0.0.0.0:11500", "OLLAMA_ORIGINS": 'a"${b}', "OLLAMA_MODELS": "/m"}
    found = of_unit(Request(set=asks, unset=("OLLAMA_DEBUG",)), unit, nixos)
    assert found is not None and lines(found)[:6] == [
        'services.ollama.host = "0.0.0.0";', "services.ollama.port = 11500;", 'services.ollama.models = "/m";',
        "services.ollama.environmentVariables = {", '  OLLAMA_ORIGINS = "a\\"\\${b}";', "};",
    ]  # fmt: skip
    assert found.steps[1].what == "Remove services.ollama.environmentVariables.OLLAMA_DEBUG."
    debian = System(os="linux", distribution="Debian GNU/Linux 13 (trixie)", init="systemd")
    assert of_unit(FOUR, unit, debian) is None and of_unit(FOUR, unit, None) is None
