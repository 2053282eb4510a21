"""What else runs Ollama: containers and other ways."""

from __future__ import annotations

from typing import Literal

from ollamactl.core.facts.record import Record

Way = Literal[
    "unit", "user-unit", "snap", "nixos", "docker", "podman", "compose", "quadlet", "kubernetes", "lxc", "openrc",
    "runit", "hand", "app", "brew", "agent", "daemon",
]  # fmt: skip


class Compose(Record, frozen=True, kw_only=True):
    """Which compose project a container belongs to, from its labels."""

    project: str
    service: str
    folder: str = ""  # project.working_dir
    files: tuple[str, ...] = ()  # project.config_files, in the order in which they are merged
    hash: str = ""  # config-hash: of all that the container was made of


class Port(Record, frozen=True, kw_only=True):
    """A port of a container: `address` and `host` are empty and 0 where it is not published."""

    inside: int
    host: int = 0
    address: str = ""


class Container(Record, frozen=True, kw_only=True):
    """A container that runs Ollama, as `inspect` has it. `environment` is the image's and its own in one."""

    engine: Literal["docker", "podman"]
    id: str
    name: str
    image: str = ""
    status: str = ""  # created, running, paused, restarting, exited, dead
    pid: int = 0  # of its first process, as the host sees it
    started: str = ""  # RFC 3339, as printed
    exit_code: int = 0
    error: str = ""
    oom_killed: bool = False
    restarts: int = 0
    restart_policy: str = ""  # as --restart takes it
    environment: tuple[str, ...] = ()  # NAME=value
    command: tuple[str, ...] = ()  # entrypoint and its arguments
    ports: tuple[Port, ...] = ()
    network: str = ""  # bridge, host, PROJECT_default, …
    gpu: bool = False
    gpu_requests: tuple[str, ...] = ()  # what was asked for: all, 2, device=0, nvidia.com/gpu=all, /dev/kfd, …
    mounts: tuple[str, ...] = ()  # as -v takes them: volume or folder, where it is seen inside, and how
    options: tuple[str, ...] = ()  # what else `run` was given, in its own words
    networks: tuple[str, ...] = ()  # beside the first
    memory_max: int | None = None
    log_driver: str = ""
    compose: Compose | None = None
    unit: str = ""  # the systemd unit that podman's label names (quadlet)


class Install(Record, frozen=True, kw_only=True):
    """One way in which Ollama runs, or is set up to run, on this host. `name` is a unit, a container, a service of
    another init, or a command line."""

    way: Way
    name: str
    pid: int | None = None
    uid: int | None = None
    running: bool = False
    why: str = ""  # what shows it
    source: str = ""  # the .container file of a quadlet

    @property
    def key(self) -> str:
        """How it is named on a command line (`--unit`)."""
        return self.name if self.way in ("unit", "snap", "nixos") else f"{self.way}:{self.name}"
