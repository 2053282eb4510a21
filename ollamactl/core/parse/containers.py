"""`docker inspect` (podman prints nearly the same): which containers run Ollama, and which use a GPU.

Sample, shortened:
    [{"Id": "0123…", "Name": "/ollama", "State": {"Status": "running", "Pid": 4321}, "HostConfig": {"DeviceRequests":
      [{"Count": -1, "Capabilities": [["gpu"]]}]}, "Config": {"Env": ["OLLAMA_NUM_PARALLEL=2"], "Cmd": ["serve"],
      "Entrypoint": ["/bin/ollama"], "Labels": {"com.docker.compose.service": "ollama"}}}]
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ollamactl.core.facts import Compose, Container, Port

Json = dict[str, Any]


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
    running = (r for r in records if _of(r, "State").get("Running", True))
    return tuple(_name(r) for r in running if gpu_requests(r))


def gpu_requests(record: Json) -> tuple[str, ...]:
    """What a container asked of GPUs, in its engine's words; empty where it has none."""
    config = _of(record, "HostConfig")
    found: list[str] = []
    for request in _rows(config.get("DeviceRequests")):
        capabilities = _list(request.get("Capabilities"))
        ids = _texts(request.get("DeviceIDs"))
        if any("gpu" in group for group in capabilities if isinstance(group, list)) or request.get("Driver") == "cdi":
            count = request.get("Count")
            named = ids if any("=" in i for i in ids) else [f"device={','.join(ids)}"] if ids else []
            found += named or (["all"] if count in (-1, None, 0) else [f"{count}"])
    if config.get("Runtime") == "nvidia":
        found.append("runtime nvidia")
    paths = [str(d.get("PathOnHost", "")) for d in _rows(config.get("Devices"))]
    paths += [str(d.get("Path", d)) if isinstance(d, dict) else str(d) for d in _list(config.get("CDIDevices"))]
    gpu = ("/dev/nvidia", "/dev/kfd", "/dev/dri")
    return (*found, *(p for p in paths if p.startswith(gpu) or "gpu=" in p))


def with_ollama(records: tuple[Json, ...], engine: Literal["docker", "podman"]) -> tuple[Container, ...]:
    """Those whose program is `ollama serve`, or whose image is Ollama's."""
    return tuple(_container(r, engine) for r in records if _runs_ollama(r))


def _runs_ollama(record: Json) -> bool:
    config = _of(record, "Config")
    command = _command(config)
    programs = {word.rsplit("/", 1)[-1] for word in command[:4]}
    if "ollama" in programs and ("serve" in command or "start" in command):
        return True
    image = str(config.get("Image") or "").rsplit("@", 1)[0]
    name = image.rsplit("/", 1)[-1].partition(":")[0]
    served = [w for w in command if w not in ("/bin/sh", "sh", "-c", "/bin/bash", "bash")]
    return name == "ollama" and (not served or programs & {"ollama", "sh", "bash", "tini"} != set())


def _container(record: Json, engine: Literal["docker", "podman"]) -> Container:
    config, host, state = _of(record, "Config"), _of(record, "HostConfig"), _of(record, "State")
    labels = {k: v for k, v in _of(config, "Labels").items() if isinstance(v, str)}
    gpus = gpu_requests(record)
    mounts = ((m.get("Name") or m.get("Source"), m.get("Destination")) for m in _rows(record.get("Mounts")))
    return Container(
        engine=engine,
        id=str(record.get("Id") or ""),
        name=_name(record),
        image=str(config.get("Image") or record.get("ImageName") or ""),
        status=str(state.get("Status") or ""),
        pid=_int(state.get("Pid")),
        started=str(state.get("StartedAt") or ""),
        exit_code=_int(state.get("ExitCode")),
        error=str(state.get("Error") or ""),
        oom_killed=state.get("OOMKilled") is True,
        restarts=_int(record.get("RestartCount")),
        restart_policy=str(_of(host, "RestartPolicy").get("Name") or ""),
        environment=tuple(e for e in _texts(config.get("Env")) if "=" in e),
        command=tuple(_command(config)),
        ports=_ports(record),
        network=str(host.get("NetworkMode") or ""),
        gpu=bool(gpus),
        gpu_requests=gpus,
        mounts=tuple((str(a or ""), str(b or "")) for a, b in mounts),
        memory_max=_int(host.get("Memory")) or None,
        log_driver=str(_of(host, "LogConfig").get("Type") or ""),
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
    actual = _of(_of(record, "NetworkSettings"), "Ports")
    asked = _of(_of(record, "HostConfig"), "PortBindings")
    found: list[Port] = []
    for inside, bound in (actual or asked).items():
        number, _, protocol = inside.partition("/")
        if not number.isdigit() or protocol not in ("tcp", ""):
            continue
        rows = [b for b in _rows(bound) if str(b.get("HostPort") or "").isdigit()]
        for row in rows:
            found.append(Port(inside=int(number), host=int(row["HostPort"]), address=str(row.get("HostIp") or "")))
        found += [] if rows else [Port(inside=int(number))]
    return tuple(found)


def _name(record: Json) -> str:
    return str(record.get("Name") or "").lstrip("/")


def _command(config: Json) -> list[str]:
    words: list[str] = []
    for key in ("Entrypoint", "Cmd"):
        value = config.get(key)
        words += value.split() if isinstance(value, str) else _texts(value)
    return words


def _of(record: Json, key: str) -> Json:
    found = record.get(key)
    return found if isinstance(found, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _rows(value: Any) -> list[Json]:
    return [row for row in _list(value) if isinstance(row, dict)]


def _texts(value: Any) -> list[str]:
    return [text for text in _list(value) if isinstance(text, str)]


def _int(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else 0
