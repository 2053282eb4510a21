"""A container of a compose project: our file beside the project's, and `docker compose up` for it."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from collections.abc import Mapping

from ollamactl.core import compose as rules
from ollamactl.core.dropin import Managed
from ollamactl.core.facts import Compose, Container, Facts, Service
from ollamactl.core.feeds import Collector
from ollamactl.core.feeds.boxes import files_now
from ollamactl.core.ours import Ours
from ollamactl.core.ours_compose import ComposeFile
from ollamactl.core.source import Host, command, file
from ollamactl.errors import Failure
from ollamactl.host import commands
from ollamactl.host.serving import Manager
from ollamactl.platforms import linux, templates
from ollamactl.platforms.systemd import State

may_change = linux.may_change


def supported(host: Host, unit: str) -> bool:
    """Whether we have a file of our own in that project: compose of today, and a place that is not somebody's."""
    collector = Collector(host, unit)
    box: Container | None = collector.get("container")
    if box is None or box.compose is None or box.engine != "docker" or not box.compose.files:
        return False
    own = rules.override_file(box.compose)
    text = host.read(file(own, limit=1 << 20))
    free = text.missing is not None and text.missing.kind == "absent" and own not in box.compose.files
    return (free or rules.ours(text.text)) and collector.get("effective") is not None


def ours(collector: Collector, facts: Facts) -> Ours:
    """Our file of the container. Raises Failure where what it is made of can't be read."""
    box: Container = collector.need("container")
    project = box.compose
    assert project is not None
    path = rules.override_file(project)
    text = collector.host.read(file(path, limit=1 << 20))
    if text.missing is not None and text.missing.kind != "absent":
        raise Failure(f"{path}: {text.missing}", hint="run it with sudo", id="denied")
    base = collector.get("base_environment")
    if base is None:
        raise Failure(f"docker compose config: {collector.missing['base_environment']}", id="compose")
    others = rules.without(project, path)
    words = rules.argv(project, others, "config", "--hash", project.service)
    said = collector.host.read(command(*words, timeout=30.0))
    return ComposeFile(
        facts, box, project, path,
        text.text if text.missing is None else None,
        collector.need("manager_environment"), base,
        said.text.split()[-1] if said.missing is None and said.text.split() else "",
        render,
    )  # fmt: skip


def render(service: str, values: Mapping[str, str], unset: tuple[str, ...]) -> str:
    return templates.render("compose/override.yaml.j2", service=service, values=values, unset=unset)


def manager(host: Host) -> Manager:
    return Engine(host)


class Engine:
    """`docker compose` for one container. Every failure says what it said."""

    name = "compose"

    def __init__(self, host: Host) -> None:
        self._host = host

    def _project(self, unit: str) -> tuple[Compose, Collector]:
        collector = Collector(self._host, unit)
        box: Container | None = collector.get("container")
        if box is None or box.compose is None:
            raise Failure(f"{unit}: {collector.missing.get('container')}", id="service_gone")
        return box.compose, collector

    def state(self, unit: str) -> State:
        collector = Collector(self._host, unit)
        has: Service | None = collector.get("service")
        if has is None:
            missing = collector.missing["service"]
            if missing.kind != "absent":
                raise Failure(f"{unit}: {missing}", id="compose")
            return State(active="inactive", sub="gone", invocation="", main_pid=0, n_restarts=0, load="not-found")
        return State(
            active=has.active_state,
            sub=has.sub_state,
            invocation=has.invocation_id,
            main_pid=has.main_pid,
            n_restarts=has.n_restarts,
        )

    def remember(self, unit: str, after: Managed) -> dict[str, str | None]:
        return {}

    def reload(self, kept: Mapping[str, str | None] | None = None, unit: str = "") -> str:
        """Compose reads its files at each command."""
        return ""

    def restart_commands(self, unit: str) -> tuple[str, ...]:
        try:
            project, collector = self._project(unit)
        except Failure:
            return ()
        words = rules.argv(project, files_now(collector), "up", "-d", "--force-recreate", project.service)
        return (f"sudo {shlex.join(words)}",)

    def log_command(self, unit: str) -> str:
        return f"docker logs --tail 50 {shlex.quote(unit.removeprefix(rules.WAY))}"

    def restart(self, unit: str, timeout: float) -> None:
        """A new container with what the files say: nothing else takes variables."""
        project, collector = self._project(unit)
        words = ("up", "-d", "--no-deps", "--force-recreate", project.service)
        self._run(rules.argv(project, files_now(collector), *words), timeout)

    start = restart

    def stop(self, unit: str, timeout: float) -> None:
        project, collector = self._project(unit)
        self._run(rules.argv(project, files_now(collector), "stop", project.service), timeout)

    def _run(self, argv: tuple[str, ...], timeout: float) -> None:
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, env=commands.environment(),
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise Failure(f"{argv[0]}: {error.strerror}", id="system_error") from None
        except subprocess.TimeoutExpired:
            raise Failure(f"{shlex.join(argv)} did not end within {timeout:.0f} s", id="job_timeout") from None
        if done.returncode:
            lines = [x.strip() for x in done.stderr.decode("utf-8", "replace").splitlines() if x.strip()]
            said = lines[-1] if lines else "no word"
            raise Failure(f"docker compose: {said} (exit {done.returncode})", hint=shlex.join(argv), id="compose")

    def reset_failed(self, unit: str) -> None:
        """An engine keeps no count that would refuse a start."""

    def arm(self, unit: str) -> None:
        """Where systemd runs this host, it recovers at the next boot, once the engine is up."""
        if os.path.isdir("/run/systemd/system"):
            from ollamactl.platforms import systemd

            systemd.arm("docker.service")

    def disarm(self) -> None:
        from ollamactl.platforms import systemd

        with contextlib.suppress(OSError):
            systemd.disarm()
