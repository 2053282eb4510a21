"""`docker inspect` (podman prints nearly the same): which containers run Ollama, and which use a GPU.

Sample, shortened:
    [{"Id": "0123…", "Name": "/ollama", "State": {"Status": "running", "Pid": 4321}, "HostConfig": {"DeviceRequests":
      [{"Count": -1, "Capabilities": [["gpu"]]}]}, "Config": {"Env": ["OLLAMA_NUM_PARALLEL=2"], "Cmd": ["serve"],
      "Entrypoint": ["/bin/ollama"], "Labels": {"com.docker.compose.service": "ollama"}}}]
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ollamactl.core.facts import Compose, Container, Port
from ollamactl.core.parse import run_options
from ollamactl.core.parse.loose import Json, items, number, of, rows, texts


def inspected(body: bytes) -> tuple[Json, ...]:
    """The records of an `inspect`; none where the text is no such reply."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return ()
    return tuple(r for r in found if isinstance(r, dict)) if isinstance(found, list) else ()


def with_gpu(records: tuple[Json, ...]) -> tuple[str, ...]:
    """Names of the running containers that were given a GPU: by a device request, the nvidia runtime or a device
    node. A record without a state is of a running one."""
    running = (r for r in records if of(r, "State").get("Running", True))
    return tuple(_name(r) for r in running if gpu_requests(r))


def gpu_requests(record: Json) -> tuple[str, ...]:
    """What a container asked of GPUs, in its engine's words; empty where it has none."""
    config = of(record, "HostConfig")
    found: list[str] = []
    for request in rows(config.get("DeviceRequests")):
        capabilities = items(request.get("Capabilities"))
        ids = texts(request.get("DeviceIDs"))
        if any("gpu" in group for group in capabilities if isinstance(group, list)) or request.get("Driver") == "cdi":
            count = request.get("Count")
            named = ids if any("=" in i for i in ids) else [f"device={','.join(ids)}"] if ids else []
            found += named or (["all"] if count in (-1, None, 0) else [f"{count}"])
    if config.get("Runtime") == "nvidia":
        found.append("runtime nvidia")
    paths = [str(d.get("PathOnHost", "")) for d in rows(config.get("Devices"))]
    paths += [str(d.get("Path", d)) if isinstance(d, dict) else str(d) for d in items(config.get("CDIDevices"))]
    gpu = ("/dev/nvidia", "/dev/kfd", "/dev/dri")
    return (*found, *(p for p in paths if p.startswith(gpu) or "gpu=" in p))


def with_ollama(records: tuple[Json, ...], engine: Literal["docker", "podman"]) -> tuple[Container, ...]:
    """Those whose program is `ollama serve`, or whose image is Ollama's."""
    return tuple(_container(r, engine) for r in records if _runs_ollama(r))


def _runs_ollama(record: Json) -> bool:
    config = of(record, "Config")
    command = _command(config)
    programs = {word.rsplit("/", 1)[-1] for word in command[:4]}
    if "ollama" in programs and ("serve" in command or "start" in command):
        return True
    image = str(config.get("Image") or "").rsplit("@", 1)[0]
    name = image.rsplit("/", 1)[-1].partition(":")[0]
    served = [w for w in command if w not in ("/bin/sh", "sh", "-c", "/bin/bash", "bash")]
    return name == "ollama" and (not served or programs & {"ollama", "sh", "bash", "tini"} != set())


def _container(record: Json, engine: Literal["docker", "podman"]) -> Container:
    config, host, state = of(record, "Config"), of(record, "HostConfig"), of(record, "State")
    labels = {k: v for k, v in of(config, "Labels").items() if isinstance(v, str)}
    gpus = gpu_requests(record)
    restart = of(host, "RestartPolicy")
    tries = number(restart.get("MaximumRetryCount"))
    return Container(
        engine=engine,
        id=str(record.get("Id") or ""),
        name=_name(record),
        image=str(config.get("Image") or record.get("ImageName") or ""),
        status=str(state.get("Status") or ""),
        pid=number(state.get("Pid")),
        started=str(state.get("StartedAt") or ""),
        exit_code=number(state.get("ExitCode")),
        error=str(state.get("Error") or ""),
        oom_killed=state.get("OOMKilled") is True,
        restarts=number(record.get("RestartCount")),
        restart_policy=str(restart.get("Name") or "") + (f":{tries}" if tries else ""),
        environment=tuple(e for e in texts(config.get("Env")) if "=" in e),
        command=tuple(_command(config)),
        ports=_ports(record),
        network=str(host.get("NetworkMode") or ""),
        gpu=bool(gpus),
        gpu_requests=gpus,
        mounts=run_options.volumes(record),
        options=run_options.options(record, engine),
        networks=run_options.further_networks(record),
        memory_max=number(host.get("Memory")) or None,
        log_driver=str(of(host, "LogConfig").get("Type") or ""),
        compose=_compose(labels),
        unit=labels.get("PODMAN_SYSTEMD_UNIT", ""),
    )


def _compose(labels: dict[str, str]) -> Compose | None:
    docker, podman = "com.docker.compose.", "io.podman.compose."
    project = labels.get(docker + "project") or labels.get(podman + "project") or ""
    service = labels.get(docker + "service") or labels.get(podman + "service") or ""
    if not project or not service:
        return None
    files = labels.get(docker + "project.config_files", "")
    return Compose(
        project=project,
        service=service,
        folder=labels.get(docker + "project.working_dir", ""),
        files=tuple(f for f in files.split(",") if f),
        hash=labels.get(docker + "config-hash", ""),
    )


def _ports(record: Json) -> tuple[Port, ...]:
    """Published ports as they are; of a stopped container as they are asked for."""
    actual = of(of(record, "NetworkSettings"), "Ports")
    asked = of(of(record, "HostConfig"), "PortBindings")
    found: list[Port] = []
    for inside, bound in (actual or asked).items():
        number, _, protocol = inside.partition("/")
        if not number.isdigit() or protocol not in ("tcp", ""):
            continue
        ends = [b for b in rows(bound) if str(b.get("HostPort") or "").isdigit()]
        for row in ends:
            found.append(Port(inside=int(number), host=int(row["HostPort"]), address=str(row.get("HostIp") or "")))
        found += [] if ends else [Port(inside=int(number))]
    return tuple(found)


def _name(record: Json) -> str:
    return str(record.get("Name") or "").lstrip("/")


def _command(config: Json) -> list[str]:
    words: list[str] = []
    for key in ("Entrypoint", "Cmd"):
        value = config.get(key)
        words += value.split() if isinstance(value, str) else texts(value)
    return words
