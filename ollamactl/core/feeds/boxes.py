"""Feeds of one container of a compose project, asked for as `compose:NAME`: it stands in the place of a unit.

They take the place of the feeds of the same name that ask systemd.
"""

from __future__ import annotations

from ollamactl.core import compose
from ollamactl.core.facts import (
    Compose,
    Container,
    Effective,
    EnvFile,
    Log,
    Origin,
    Process,
    Service,
    Start,
    UnitFile,
    Variable,
)
from ollamactl.core.feeds import installs
from ollamactl.core.feeds.api import client_address
from ollamactl.core.feeds.collector import BOX, Collector, Unknown, box
from ollamactl.core.feeds.log import of_install
from ollamactl.core.feeds.processes import server_of
from ollamactl.core.parse import api
from ollamactl.core.source import Missing, command, file

ACTIVE = {"running": "active", "restarting": "activating", "paused": "active", "created": "inactive"}


@box
def container(c: Collector) -> Container:
    name = c.unit.removeprefix(compose.WAY)
    found: tuple[Container, ...] = c.need("containers")
    for one in found:
        if one.name == name and one.compose is not None:
            return one
    raise Unknown(Missing("absent", f"docker has no container {name} of a compose project that runs Ollama"))


@box
def own_text(c: Collector) -> str:
    """Our file; empty where it is not there."""
    reading = c.read(file(compose.override_file(_project(c)), limit=1 << 20))
    if reading.missing is not None and reading.missing.kind != "absent":
        raise Unknown(reading.missing)
    return reading.text if reading.missing is None else ""


def _project(c: Collector) -> Compose:
    project: Compose = c.need("container").compose
    return project


def files_now(c: Collector) -> tuple[str, ...]:
    """The project's files, and ours where it is there: the container's labels name those that it was made of."""
    project = _project(c)
    own = compose.override_file(project)
    text = c.need("own_text")
    there = compose.ours(text) or (text and own in project.files)
    return (*compose.without(project, own), own) if there else compose.without(project, own)


@box
def unit(c: Collector) -> str:
    c.need("container")
    return c.unit


@box
def service(c: Collector) -> Service:
    has: Container = c.need("container")
    server = _server(c, has)
    failed = has.status in ("exited", "dead") and has.exit_code not in (0, 143)
    since = api.moment(has.started)
    project = _project(c)
    return Service(
        id=c.unit,
        load_state="loaded",
        active_state=ACTIVE.get(has.status, "failed" if failed else "inactive"),
        sub_state=has.status,
        invocation_id=has.id,
        main_pid=server.pid if server else has.pid,
        n_restarts=has.restarts,
        result=has.error or (f"exit {has.exit_code}" if failed else ""),
        exec_main_status=has.exit_code,
        exec_main_start=since,
        active_enter=since,
        environment=has.environment,
        exec_start=has.command,
        memory_max=has.memory_max,
        private_network=has.network != "host" and not installs.published(has),
        manager="compose",
        way="compose",
        restart_commands=(" ".join(compose.argv(project, project.files, "up", "-d", project.service)),),
        managed=_managed(c),
    )


def _managed(c: Collector) -> dict[str, str | None]:
    now = compose.managed(c.get("own_text"))
    return {**now.values, **dict.fromkeys(now.unset)}


def _server(c: Collector, has: Container) -> Process | None:
    return server_of(c, has.pid) if has.pid else None


@box
def unit_files(c: Collector) -> tuple[UnitFile, ...]:
    return ()


@box
def env_files(c: Collector) -> tuple[EnvFile, ...]:
    return ()


@box
def manager_environment(c: Collector) -> dict[str, str]:
    """What the image sets."""
    has: Container = c.need("container")
    return compose.image_environment(c.body(command("docker", "image", "inspect", has.image)))


@box
def base_environment(c: Collector) -> dict[str, str]:
    """What the project's files give without ours."""
    project = _project(c)
    return _asked(c, compose.without(project, compose.override_file(project)))


def _asked(c: Collector, files: tuple[str, ...]) -> dict[str, str]:
    project = _project(c)
    body = c.body(command(*compose.argv(project, files, "config", "--format", "json"), timeout=30.0))
    found = compose.passed(body, project.service)
    if found is None:
        raise Unknown(Missing("unparsable", f"docker compose config has no service {project.service}"))
    return found


@box
def effective(c: Collector) -> Effective:
    """What compose would make the container with now."""
    image, given = c.need("manager_environment"), _asked(c, files_now(c))
    own = compose.override_file(_project(c))
    mine = compose.managed(c.need("own_text"))
    variables = {}
    for name, value in {**image, **given}.items():
        ours = mine.values.get(name) == value
        origin = Origin(layer="container", file=own if ours else "docker compose config" if name in given else "image")
        variables[name] = Variable(name=name, value=value, origin=origin)
    return Effective(variables=variables)


@box
def process(c: Collector) -> Process:
    has: Container = c.need("container")
    found = _server(c, has)
    if found is None:
        raise Unknown(Missing("absent", f"the container {has.name} is {has.status}: no process"))
    return found


@box
def log(c: Collector) -> Log:
    return of_install(c, installs.of_container(c.need("container")))


@box
def start(c: Collector) -> Start:
    lines: Log = c.need("log")
    if not lines.starts:
        raise Unknown(Missing("absent", f"{lines.where} holds no start of a server"))
    return lines.starts[-1]


@box
def address(c: Collector) -> str:
    """Where it is published; else as it has it itself, in its own network or in the host's."""
    has: Container = c.need("container")
    if where := installs.published(has):
        return where
    given = (e.partition("=") for e in has.environment)
    return client_address(next((value for name, _, value in given if name == "OLLAMA_HOST"), ""))


__all__ = ["BOX"]
