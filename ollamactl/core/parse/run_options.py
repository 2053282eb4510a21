"""`docker inspect` → the words of `run` that made a container so: what a container that takes its place has to be
given again. Ports, environment, GPUs and the restart policy are read elsewhere; what an engine sets by itself is left
out. podman prints nearly the same, with its own defaults filled in."""

from __future__ import annotations

from ollamactl.core.parse.loose import Json, number, of, rows, texts

DOCKER_SHM, PODMAN_SHM = 64 << 20, 65536000
# Modes that are an engine's own choice.
USUAL_MODES = ("", "private", "shareable", "host-default")
# Labels that an image or an engine puts on a container.
THEIRS = ("org.opencontainers.", "org.label-schema.", "com.docker.", "io.podman.", "io.buildah.", "PODMAN_")
LISTS = {
    "GroupAdd": "--group-add", "SecurityOpt": "--security-opt", "CapAdd": "--cap-add", "CapDrop": "--cap-drop",
    "ExtraHosts": "--add-host", "Dns": "--dns",
}  # fmt: skip
SWITCHES = {"Privileged": "--privileged", "ReadonlyRootfs": "--read-only", "Init": "--init", "AutoRemove": "--rm"}
GPU_PATHS = ("/dev/nvidia", "/dev/kfd", "/dev/dri")


def options(record: Json, engine: str) -> tuple[str, ...]:
    """The words, in an order of ours."""
    host, config = of(record, "HostConfig"), of(record, "Config")
    words = [flag for key, flag in SWITCHES.items() if host.get(key) is True]
    for key, flag in LISTS.items():
        if engine == "podman" and key in ("CapAdd", "CapDrop"):
            continue  # podman lists what it gives to every container
        words += [w for text in texts(host.get(key)) for w in (flag, text)]
    words += _modes(host) + _limits(host, engine) + _devices(host) + _log(host, engine)
    words += [w for path, how in of(host, "Tmpfs").items() for w in ("--tmpfs", f"{path}:{how}" if how else path)]
    if (user := config.get("User")) and isinstance(user, str):
        words += ["--user", user]
    name = config.get("Hostname")
    if isinstance(name, str) and name and not str(record.get("Id", "")).startswith(name) and not has_hosts_name(host):
        words += ["--hostname", name]
    for label, value in of(config, "Labels").items():
        if isinstance(value, str) and not label.startswith(THEIRS):
            words += ["--label", f"{label}={value}"]
    return tuple(words)


def has_hosts_name(host: Json) -> bool:
    """Whether a container has the host's own network, and so its name."""
    return host.get("NetworkMode") == "host" or host.get("UTSMode") == "host"


def volumes(record: Json) -> tuple[str, ...]:
    """What `-v` is given: the volume or the folder, where it is seen inside, and how."""
    found = []
    for mount in rows(record.get("Mounts")):
        if mount.get("Type") == "tmpfs":
            continue
        bound = mount.get("Type") == "bind"
        modes = str(mount.get("Mode") or "").split(",")
        how = ["ro"] if mount.get("RW") is False else []
        how += [m for m in ("z", "Z") if bound and m in modes]
        words = (mount.get("Source") if bound else mount.get("Name") or mount.get("Source"), mount.get("Destination"))
        found.append(":".join([*(str(w or "") for w in words), *([",".join(how)] if how else [])]))
    return tuple(found)


def further_networks(record: Json) -> tuple[str, ...]:
    """Networks beside the one that the container was made in."""
    first = of(record, "HostConfig").get("NetworkMode")
    named = list(of(of(record, "NetworkSettings"), "Networks"))
    return tuple(n for n in named if n != first) if first in named else tuple(named[1:])


def _modes(host: Json) -> list[str]:
    found = []
    for key, flag in (("IpcMode", "--ipc"), ("PidMode", "--pid")):
        if (mode := host.get(key)) and mode not in USUAL_MODES:
            found += [flag, str(mode)]
    runtime = host.get("Runtime")
    if runtime and runtime not in ("runc", "crun", "oci", "nvidia"):
        found += ["--runtime", str(runtime)]
    return found


def _limits(host: Json, engine: str) -> list[str]:
    memory, swap, shared = (number(host.get(key)) for key in ("Memory", "MemorySwap", "ShmSize"))
    found = ["--memory", str(memory)] if memory else []
    found += ["--memory-swap", str(swap)] if swap and swap != 2 * memory else []
    found += ["--shm-size", str(shared)] if shared and shared not in (DOCKER_SHM, PODMAN_SHM) else []
    if (cpus := number(host.get("NanoCpus"))) > 0:
        found += ["--cpus", f"{cpus / 1e9:g}"]
    if cpuset := host.get("CpusetCpus"):
        found += ["--cpuset-cpus", str(cpuset)]
    for limit in rows(host.get("Ulimits")) if engine == "docker" else ():
        found += ["--ulimit", f"{limit.get('Name')}={limit.get('Soft')}:{limit.get('Hard')}"]
    return found


def _devices(host: Json) -> list[str]:
    found = []
    for device in rows(host.get("Devices")):
        path, inside = str(device.get("PathOnHost") or ""), str(device.get("PathInContainer") or "")
        if path.startswith("/") and not path.startswith(GPU_PATHS):
            found += ["--device", path if inside in ("", path) else f"{path}:{inside}"]
    return found


def _log(host: Json, engine: str) -> list[str]:
    if engine == "podman":
        return []
    log = of(host, "LogConfig")
    kind, given = str(log.get("Type") or ""), of(log, "Config")
    found = ["--log-driver", kind] if kind and (given or kind != "json-file") else []
    return [*found, *(w for name, value in given.items() for w in ("--log-opt", f"{name}={value}"))]
