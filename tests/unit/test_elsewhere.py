"""What to type where Ollama is no unit that ollamactl changes: containers, user units, snaps, NixOS, by hand."""

from __future__ import annotations

import shlex

import msgspec
import pytest

from ollamactl.core.compose import MARK, managed, override_file, quoted
from ollamactl.core.dropin import Managed
from ollamactl.core.elsewhere import RULES, Advice, advice, of_unit, run_line
from ollamactl.core.facts import Compose, Container, Facts, Install, Port, Service, System, Way
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
    mounts=(("models", "/root/.ollama"),),
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
    words = shlex.split(run_line(BOX, FOUR))
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
    words = shlex.split(run_line(msgspec.structs.replace(BOX, gpu_requests=requests, restart_policy=""), FOUR))
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
        memory_max=1 << 30,
        environment=("OLLAMA_HOST=127.0.0.1:9999", "X=y"),
    )
    line = run_line(box, Request(unset=("X",)))
    assert "-p 127.0.0.1:8080:11434 -p '[::1]:3:2'" in line and "--network ai" in line
    assert line.endswith("-e OLLAMA_HOST=127.0.0.1:9999 --entrypoint /bin/sh ollama/ollama -c 'ollama serve'")
    assert "--memory 1073741824" in line and "X=y" not in line


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
    assert lines(found)[5] == (
        "docker compose -p ai --project-directory /srv/ai -f /srv/ai/compose.yaml "
        "-f /srv/ai/compose.override.yaml up -d llm"
    )
    assert found.undo[0] == "rm /srv/ai/compose.override.yaml"


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
    found = of_unit(Request(set={"OLLAMA_HOST": "0.0.0.0:11500", "OLLAMA_ORIGINS": 'a"${b}'}), unit, nixos)
    assert found is not None and lines(found)[:5] == [
        'services.ollama.host = "0.0.0.0";', "services.ollama.port = 11500;",
        "services.ollama.environmentVariables = {", '  OLLAMA_ORIGINS = "a\\"\\${b}";', "};",
    ]  # fmt: skip
    debian = System(os="linux", distribution="Debian GNU/Linux 13 (trixie)", init="systemd")
    assert of_unit(FOUR, unit, debian) is None and of_unit(FOUR, unit, None) is None
