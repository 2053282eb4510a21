"""Which containers use a GPU and which run Ollama, as docker and podman tell it."""

from __future__ import annotations

import json

from ollamactl.core.facts import Compose, Port
from ollamactl.core.parse.containers import inspected, with_gpu, with_ollama
from ollamactl.core.source import Missing
from tests.hosts import TextHost, facts_of

ALL = {"DeviceRequests": [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]}


def box(name: str, **config: object) -> dict[str, object]:
    return {"Name": f"/{name}", "HostConfig": config}


def raw(*records: object) -> tuple[dict[str, object], ...]:
    return inspected(json.dumps(records).encode())


def test_every_way_of_giving_a_gpu_is_seen() -> None:
    boxes = [
        box("web", Devices=[], DeviceRequests=None, Runtime="runc"),
        box("all", **ALL),
        box("runtime", Runtime="nvidia"),
        box("node", Devices=[{"PathOnHost": "/dev/nvidia0", "PathInContainer": "/dev/nvidia0"}]),
        box("rocm", Devices=[{"PathOnHost": "/dev/kfd"}, {"PathOnHost": "/dev/dri"}]),
        box("cdi", Devices=[{"PathOnHost": "nvidia.com/gpu=all"}]),
        box("request", DeviceRequests=[{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0"], "Capabilities": None}]),
        box("sound", Devices=[{"PathOnHost": "/dev/snd"}]),
        box("other", DeviceRequests=[{"Capabilities": [["tpu"]]}, None]),
        box("stopped", **ALL) | {"State": {"Running": False}},
    ]
    assert with_gpu(raw(*boxes)) == ("all", "runtime", "node", "rocm", "cdi", "request")


def test_what_is_no_such_reply_has_none() -> None:
    for body in (b"", b"{}", b"[1]", b"[" * 5000):
        assert inspected(body) == ()
    for config in (1, None, [], "x"):
        wrong = {"HostConfig": config, "Config": config, "State": config, "NetworkSettings": config, "Mounts": config}
        assert with_gpu(raw(wrong)) == () and with_ollama(raw(wrong), "docker") == ()


def test_both_engines_are_asked_and_none_is_a_reason() -> None:
    answers: dict[str, str | bytes | Missing] = {
        "command:podman ps": "abc\n", "command:podman inspect abc": json.dumps([box("all", **ALL)]),
    }  # fmt: skip
    assert facts_of(TextHost(answers), fields=("gpu_containers",)).gpu_containers == ("all",)
    nothing = facts_of(TextHost({}), fields=("gpu_containers",))
    assert nothing.gpu_containers is None and nothing.why("gpu_containers").kind == "absent"


def ollama(**changes: object) -> dict[str, object]:
    """A container as docker 20 to 29 prints it, in the fields that are read."""
    record: dict[str, object] = {
        "Id": "ab" * 32,
        "Name": "/ai-ollama-1",
        "State": {"Status": "running", "Running": True, "Pid": 4321, "ExitCode": 0, "OOMKilled": False,
                  "StartedAt": "2026-01-02T03:04:05.678901234Z"},
        "RestartCount": 2,
        "HostConfig": {"NetworkMode": "ai_default", "Memory": 8 << 30, "RestartPolicy": {"Name": "unless-stopped"},
                       "LogConfig": {"Type": "json-file"}, "PortBindings": {"11434/tcp": [{"HostPort": "11434"}]},
                       **ALL},
        "Mounts": [{"Type": "volume", "Name": "models", "Destination": "/root/.ollama"}],
        "Config": {"Env": ["OLLAMA_NUM_PARALLEL=2", "OLLAMA_HOST=0.0.0.0:11434", "UNSET"], "Cmd": ["serve"],
                   "Entrypoint": ["/bin/ollama"], "Image": "ollama/ollama:latest",
                   "Labels": {"com.docker.compose.project": "ai", "com.docker.compose.service": "ollama",
                              "com.docker.compose.project.working_dir": "/srv/ai",
                              "com.docker.compose.project.config_files": "/srv/ai/a.yaml,/srv/ai/b.yaml"}},
        "NetworkSettings": {"Ports": {"11434/tcp": [{"HostIp": "0.0.0.0", "HostPort": "11500"},
                                                    {"HostIp": "::", "HostPort": "11500"}], "9/udp": None}},
    }  # fmt: skip
    return record | changes


def test_a_container_that_runs_ollama_is_read_in_full() -> None:
    (found,) = with_ollama(raw(ollama()), "docker")
    assert (found.name, found.pid, found.status, found.restarts) == ("ai-ollama-1", 4321, "running", 2)
    assert found.environment == ("OLLAMA_NUM_PARALLEL=2", "OLLAMA_HOST=0.0.0.0:11434")
    both = [Port(inside=11434, host=11500, address=address) for address in ("0.0.0.0", "::")]
    assert found.ports == tuple(both)
    assert found.compose == Compose(
        project="ai", service="ollama", folder="/srv/ai", files=("/srv/ai/a.yaml", "/srv/ai/b.yaml")
    )
    assert found.gpu and found.gpu_requests == ("all",) and found.memory_max == 8 << 30
    assert found.mounts == ("models:/root/.ollama",) and found.options == ("--memory", str(8 << 30))
    assert found.restart_policy == "unless-stopped" and found.networks == ()


def test_what_a_container_was_given_is_kept_in_the_words_of_run() -> None:
    host = {
        "NetworkMode": "ai_default", "Privileged": True, "AutoRemove": True, "Init": None, "IpcMode": "host",
        "PidMode": "", "Runtime": "runc", "ShmSize": 1 << 30, "NanoCpus": 1_500_000_000, "CpusetCpus": "0-3",
        "Memory": 8 << 30, "MemorySwap": -1, "GroupAdd": ["video", "render"], "SecurityOpt": ["label=disable"],
        "CapAdd": ["SYS_ADMIN"], "CapDrop": None, "ExtraHosts": ["a:1.2.3.4"], "Dns": [], "Tmpfs": {"/tmp": "size=1g"},
        "Ulimits": [{"Name": "memlock", "Soft": -1, "Hard": -1}], "RestartPolicy": {"Name": "on-failure",
        "MaximumRetryCount": 3}, "LogConfig": {"Type": "json-file", "Config": {"max-size": "10m"}},
        "Devices": [{"PathOnHost": "/dev/kfd", "PathInContainer": "/dev/kfd"}, {"PathOnHost": "/dev/a",
        "PathInContainer": "/dev/b"}],
    }  # fmt: skip
    labels = {"traefik.enable": "true", "org.opencontainers.image.version": "1"}
    config = {"Cmd": ["serve"], "Entrypoint": ["/bin/ollama"], "Image": "ollama/ollama", "User": "1000:1000",
              "Hostname": "gpu1", "Labels": labels}  # fmt: skip
    mounts = [
        {"Type": "bind", "Source": "/m", "Destination": "/models", "Mode": "ro,Z", "RW": False},
        {"Type": "volume", "Name": "v", "Source": "/var/lib/docker/volumes/v/_data", "Destination": "/root/.ollama",
         "Mode": "z", "RW": True},
        {"Type": "tmpfs", "Destination": "/tmp"},
    ]  # fmt: skip
    networks = {"Networks": {"ai_default": {}, "web": {}}}
    (found,) = with_ollama(raw({"Id": "ab" * 32, "Name": "/x", "HostConfig": host, "Config": config, "Mounts": mounts,
                                "NetworkSettings": networks}), "docker")  # fmt: skip
    assert found.mounts == ("/m:/models:ro,Z", "v:/root/.ollama")
    assert (found.networks, found.restart_policy, found.gpu_requests) == (("web",), "on-failure:3", ("/dev/kfd",))
    assert " ".join(found.options) == (
        "--privileged --rm --group-add video --group-add render --security-opt label=disable --cap-add SYS_ADMIN "
        "--add-host a:1.2.3.4 --ipc host --memory 8589934592 --memory-swap -1 --shm-size 1073741824 --cpus 1.5 "
        "--cpuset-cpus 0-3 --ulimit memlock=-1:-1 --device /dev/a:/dev/b --log-driver json-file "
        "--log-opt max-size=10m --tmpfs /tmp:size=1g --user 1000:1000 --hostname gpu1 --label traefik.enable=true"
    )


def test_ollama_is_known_by_its_program_and_by_its_image_and_others_are_not() -> None:
    def config(image: str, entry: list[str] | None, *cmd: str) -> dict[str, object]:
        return {"Name": f"/{image}", "Config": {"Image": image, "Entrypoint": entry, "Cmd": list(cmd) or None}}

    ours = (
        config("ollama/ollama", ["/bin/ollama"], "serve"),
        config("registry.example:5000/me/own@sha256:0", None, "/usr/local/bin/ollama", "serve"),
        config("ghcr.io/x/ollama:rocm", ["/bin/sh", "-c"], "ollama serve & wait"),
        config("base", ["tini", "--"], "ollama", "serve"),
    )
    others = (
        config("ghcr.io/open-webui/open-webui:ollama", ["bash"], "start.sh"),
        config("ollama-exporter", None, "./exporter"),
        config("tool", ["ollama"], "pull", "x"),
    )
    assert len(with_ollama(raw(*ours), "docker")) == len(ours)
    assert with_ollama(raw(*others), "docker") == ()
