"""Feeds of the server's API: its address, release, loaded and installed models."""

from __future__ import annotations

import msgspec

from ollamactl.core import settings
from ollamactl.core.facts import (
    InstalledModel,
    LoadedModel,
)
from ollamactl.core.feeds import installs
from ollamactl.core.feeds.collector import Collector, Unknown, feed
from ollamactl.core.govalues import address as split_address
from ollamactl.core.govalues import joined
from ollamactl.core.parse import (
    api,
)
from ollamactl.core.source import Missing, http

ASKED = ("version", "loaded", "installed")  # of the API


@feed
def address(c: Collector) -> str:
    """host:port to ask, from what the process was started with; wildcard addresses are asked on loopback."""
    value = None
    if c.get("service") is None and (found := c.get("install")) is not None:
        box = installs.container_of(c, found)
        if box is not None and box.network != "host":
            if where := installs.published(box):
                return where
            if _inside(c) == 0:
                raise Unknown(Missing("absent", f"the container {box.name} publishes no port of its server"))
    if (has := c.get("process")) is not None and has.environ is not None:
        value = has.environ.get("OLLAMA_HOST", "")
    elif (begun := c.get("start")) is not None and begun.config is not None:
        value = begun.config.get("OLLAMA_HOST")
    elif (will := c.get("effective")) is not None:
        value = will.value("OLLAMA_HOST")
    return client_address(value or "")


def client_address(value: str) -> str:
    """Where a client on this host reaches a server with that OLLAMA_HOST."""
    read = settings.REGISTRY["OLLAMA_HOST"].read(value)
    found = split_address(read.printed)
    name, port = found if found else ("127.0.0.1", 11434)
    name = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(name, name)
    return joined(name, port)


def _api(c: Collector, path: str, **body: str) -> bytes:
    """A reply of the server; with a `body` the request is a POST."""
    if (has := c.get("service")) is not None and not has.main_pid:
        raise Unknown(Missing("absent", f"{has.id} is {has.active_state}: no server to ask"))
    if has is not None and has.frozen:
        raise Unknown(Missing("timeout", f"{has.id} is frozen and answers nothing"))
    if (process := c.get("process")) is not None and process.state in ("stopped", "tracing-stop"):
        raise Unknown(Missing("timeout", f"process {process.pid} is stopped and answers nothing"))
    if silent := next((c.missing[f] for f in ASKED if f in c.missing and c.missing[f].kind == "timeout"), None):
        raise Unknown(silent)  # each would wait as long
    said = msgspec.json.encode(body).decode() if body else ""
    method = "POST" if body else "GET"
    return c.body(http(f"http://{c.need('address')}{path}", method=method, body=said, inside=_inside(c)))


def _inside(c: Collector) -> int:
    """The server's pid where only its own network has the address: a service with a private network, a container that
    publishes no port. 0 where it is the host's, or may not be entered."""
    service, process = c.get("service"), c.get("process")
    apart = service is not None and (service.private_network or service.network_namespace_path)
    if service is None and (found := c.get("install")) is not None:
        box = installs.container_of(c, found)
        apart = box is not None and box.network != "host" and not installs.published(box)
    return process.pid if apart and process is not None and process.net_ns is not None else 0


@feed
def version(c: Collector) -> str:
    try:
        return api.version(_api(c, "/api/version"))
    except Unknown:
        begun = c.get("start")
        if begun is None or not begun.version:
            raise
        return str(begun.version)


@feed
def loaded(c: Collector) -> tuple[LoadedModel, ...]:
    return api.loaded(_api(c, "/api/ps"))


@feed
def installed(c: Collector) -> tuple[InstalledModel, ...]:
    return api.installed(_api(c, "/api/tags"))


def shown(c: Collector, name: str) -> str:
    """The file of a model as the server tells it; empty where it knows none, or does not answer."""
    try:
        return api.model_file(_api(c, "/api/show", model=name))
    except Unknown:
        return ""
