"""A server that was just started: does this very invocation answer, what did it read, and models into memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from ollamactl.core import govalues
from ollamactl.core.dropin import Managed
from ollamactl.core.facts import Effective, Facts, LoadedModel, Service, Start
from ollamactl.core.feeds import Collector, Unknown, client_address
from ollamactl.core.feeds.processes import descendants, listeners_of
from ollamactl.core.parse import api
from ollamactl.core.source import Host, Source, http
from ollamactl.errors import Failure
from ollamactl.host.journal import ModelBefore

VERIFY = (
    "service", "unit_files", "env_files", "manager_environment", "effective", "process", "listeners",
    "runners", "address", "version", "loaded", "start", "connections",
)  # fmt: skip


class UnitState(Protocol):
    @property
    def active(self) -> str: ...
    @property
    def sub(self) -> str: ...
    @property
    def invocation(self) -> str: ...
    @property
    def main_pid(self) -> int: ...
    @property
    def n_restarts(self) -> int: ...
    @property
    def load(self) -> str: ...
    @property
    def job(self) -> int: ...
    @property
    def identity(self) -> tuple[str, int, int]: ...


class Manager(Protocol):
    """What a platform does to a service."""

    name: str  # as its users call it

    def state(self, unit: str) -> UnitState: ...
    def remember(self, unit: str, after: Managed) -> dict[str, str | None]:
        """What an undo must know beside the files, where these will manage `after`."""
        ...

    def reload(self, kept: Mapping[str, str | None] | None = None, unit: str = "") -> str:
        """Our files are heard; with `kept` (what was remembered), everything beside them is as it was. What was done,
        in words."""
        ...

    def restart_commands(self, unit: str) -> tuple[str, ...]:
        """What a person types to start it anew with what the files say."""
        ...

    def log_command(self, unit: str) -> str: ...
    def restart(self, unit: str, timeout: float) -> None: ...
    def start(self, unit: str, timeout: float) -> None: ...
    def stop(self, unit: str, timeout: float) -> None: ...
    def reset_failed(self, unit: str) -> None: ...
    def arm(self, unit: str) -> None: ...  # an interrupted transaction is recovered at the next boot
    def disarm(self) -> None: ...


class Door(msgspec.Struct, frozen=True):
    """Where a server is asked: host:port, and whether only the server's own network has it."""

    address: str
    apart: bool = False

    def at(self, path: str, pid: int, *, body: dict[str, object] | None = None, timeout: float = 5.0) -> Source:
        """A request of the server `pid`: GET, or POST with a `body`."""
        url, inside = f"http://{self.address}{path}", pid if self.apart else 0
        if body is None:
            return http(url, timeout=timeout, inside=inside)
        return http(url, method="POST", body=msgspec.json.encode(body).decode(), timeout=timeout, inside=inside)


def door(host: Host, unit: str, effective: Effective | None, service: Service | None) -> Door:
    """By what the server is given; a container is asked at its published port, where it has one."""
    apart = service is not None and (service.private_network or bool(service.network_namespace_path))
    given = (effective.value("OLLAMA_HOST") if effective else None) or ""
    published = Collector(host, unit).get("address") if unit.startswith("compose:") and not apart else None
    return Door(published or client_address(given), apart)


class NotServing(Failure):
    """The invocation that was started does not serve; `cause` is found from its log by the caller."""


def wait_answer(host: Host, manager: Manager, unit: str, door: Door, timeout: float) -> UnitState:
    """Until the unit's current invocation answers /api/version on a socket of its own process. Raises NotServing
    when it dies, flaps or does not answer in `timeout` seconds."""
    until = time.monotonic() + timeout
    first = manager.state(unit)
    while True:
        now = manager.state(unit)
        if now.active == "failed" or now.sub == "auto-restart" or now.active == "inactive":
            raise NotServing(f"{unit} started and died ({now.active}/{now.sub})", id="service_died")
        if first.main_pid and now.identity != first.identity:
            raise NotServing(f"{unit} flaps: it was restarted while being watched", id="service_restart_loop")
        if not first.main_pid:
            first = now
        if now.main_pid:
            left = min(2.0, max(0.1, until - time.monotonic()))
            reading = host.read(door.at("/api/version", now.main_pid, timeout=left))
            if reading.missing is None and _owns(Collector(host), now.main_pid, door):
                if manager.state(unit).identity == now.identity:
                    return now
                continue
        if time.monotonic() > until:
            where = f"{door.address} after {timeout:.0f} s"
            raise NotServing(f"{unit} runs but does not answer at {where}", id="no_answer")
        time.sleep(0.01)


def _owns(c: Collector, pid: int, door: Door) -> bool:
    """Whether the answer came from the unit's own process: it, or a child of it, listens on that port."""
    port = int(door.address.rpartition(":")[2])
    try:
        owners = {x.pid for x in listeners_of(c, pid) if x.port == port and x.pid is not None}
        return not owners or pid in owners or bool(owners & {x.pid for x in descendants(c, pid)})
    except Unknown:
        return True  # not to be seen


def wait_start(host: Host, unit: str, timeout: float, known: Mapping[str, Any] | None = None) -> Collector:
    """Facts of this invocation, read once its log has the `Listening` line; as they are after `timeout`. `known` are
    facts that need not be read, by field; None is not known."""
    until = time.monotonic() + timeout
    while True:
        found = Collector(host, unit)
        found.known |= {name: fact for name, fact in (known or {}).items() if fact is not None}
        start: Start | None = found.get("start")
        if (start is not None and start.listening) or time.monotonic() > until:
            return found
        time.sleep(0.02)


def gather(host: Host, unit: str, fields: tuple[str, ...] = VERIFY) -> Facts:
    return Collector(host, unit).facts(fields, taken=time.time())


# -- models --


def models_before(facts: Facts, now: float) -> tuple[ModelBefore, ...]:
    """The loaded models, as they have to be loaded again."""
    return tuple(_before(m, facts, now) for m in facts.loaded or ())


def _before(model: LoadedModel, facts: Facts, now: float) -> ModelBefore:
    return ModelBefore(
        name=model.name,
        keep_alive=_seconds_left(model.expires, now),
        context=_context_of_client(model, facts),
        embedding=_embeds(model, facts),
        size=model.size,
        size_vram=model.size_vram,
    )


def _seconds_left(expires: str, now: float) -> float:
    """Seconds until /api/ps' `expires_at`; negative for a model that never expires."""
    until = api.moment(expires)
    if until is None:
        return 300.0
    left = until - now
    return -1.0 if left > 50 * 365 * 86400 else max(left, 1.0)


def _context_of_client(model: LoadedModel, facts: Facts) -> int | None:
    """The context that a client asked for: the loaded one, where the server's default does not explain it."""
    start = facts.start
    if model.context is None or start is None or start.config is None:
        return None
    default = start.config.get("OLLAMA_CONTEXT_LENGTH", "0")
    usual = int(default) if default.isdigit() and int(default) else start.default_context
    if usual is None or model.context == usual:
        return None
    capped = any(e.kind == "num_ctx_capped" for e in start.events)
    return None if capped and model.context < usual else model.context


def _embeds(model: LoadedModel, facts: Facts) -> bool:
    runners = facts.runners or ()
    loaded = facts.loaded or ()
    embedding = [r for r in runners if any(a in ("--embedding", "--embeddings") for a in r.process.argv)]
    if len(embedding) == len(runners):
        return bool(runners)
    families = ("bert", "embed", "nomic")
    return bool(embedding) and (len(loaded) == 1 or any(f in model.family for f in families))


def proof_keep_alive(facts: Facts, most: float) -> float:
    """Seconds that a model stays loaded which only a proof needs: no longer than the server's own keep-alive, so
    that nothing is pinned, and long enough to look at its runner."""
    text = ((facts.start.config if facts.start else None) or {}).get("OLLAMA_KEEP_ALIVE", "")
    usual = govalues.seconds(text)
    return most if usual is None or usual < 0 else max(10.0, min(most, usual))


def remaining(model: ModelBefore, since: float, now: float) -> float | None:
    """Seconds of keep-alive that are left of what there was at `since`; negative: for ever; None: it is over."""
    if model.keep_alive < 0:
        return model.keep_alive
    left = model.keep_alive - max(0.0, now - since)
    return left if left > 0 else None


def port_holder(facts: Facts) -> int | None:
    """Process that listens on the service's port and is not of the service."""
    if facts.address is None or facts.listeners is None:
        return None
    port = facts.address.rsplit(":", 1)[-1]
    mine = facts.service.main_pid if facts.service else 0
    return next((x.pid for x in facts.listeners if str(x.port) == port and x.pid and x.pid != mine), None)


class LoadFailed(Failure):
    """The server would not load a model, in its own words."""


def load(host: Host, door: Door, pid: int, model: ModelBefore, timeout: float) -> float:
    """Loads a model into the server `pid` without asking it anything; seconds. Raises LoadFailed with the server's
    words."""
    began = time.monotonic()
    keep = -1 if model.keep_alive < 0 else f"{max(1, round(model.keep_alive))}s"
    body: dict[str, object] = {"model": model.name, "keep_alive": keep, "stream": False}
    if model.context:
        body["options"] = {"num_ctx": model.context}
    generate = door.at("/api/generate", pid, body=body, timeout=timeout)
    embed = door.at("/api/embed", pid, body={**body, "input": ""}, timeout=timeout)
    reading = host.read(embed if model.embedding else generate)
    if not model.embedding and reading.status == 400 and b"does not support generate" in (reading.body or b""):
        reading = host.read(embed)
    if reading.missing is not None:
        said = api.error_text(reading.body) if reading.body else str(reading.missing.detail or reading.missing)
        kind = "model_not_found" if reading.status == 404 else "load_failed"
        raise LoadFailed(f"{model.name} could not be loaded: {said}", id=kind)
    return time.monotonic() - began


def wait_idle(host: Host, unit: str, seconds: float, tell: Callable[[str], None]) -> bool:
    """Until no request is in flight; False when some still are after `seconds`."""
    from ollamactl.core.inflight import in_flight

    until = time.monotonic() + seconds
    fields = ("service", "process", "listeners", "runners", "address", "connections")
    while True:
        now = in_flight(gather(host, unit, fields))
        if now.idle:
            return True
        if time.monotonic() >= until:
            return False
        tell(now.sentence())
        time.sleep(0.2)
