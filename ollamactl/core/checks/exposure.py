"""Who can reach the API: every interface, Docker's ports, web pages."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core import govalues
from ollamactl.core.checks.base import Finding, check, configured, quote
from ollamactl.core.facts import Container, Facts, Listener, Start
from ollamactl.core.lint import exposed
from ollamactl.core.needs import NO_SIGNS, Given, Signs

# what the container's image sets itself, and hardly anybody else
IMAGE = {"OLLAMA_MODELS": "/root/.ollama/models", "OLLAMA_HOST": "http://0.0.0.0:11434"}


def _wild(address: str) -> bool:
    return re.match(r"(?:\[::\]|0\.0\.0\.0|\*|::):\d+$", address) is not None


def _is_server(socket: Listener) -> bool:
    """Whether a socket is the server's, where no process is known."""
    return socket.name == "ollama" or (socket.name == "" and socket.port == 11434)


def _at(socket: Listener) -> str:
    return govalues.joined(socket.address, socket.port)


def _container(facts: Facts) -> bool:
    inside = facts.told is not None and facts.told.world == "docker"
    line = facts.start.listening_line.text if facts.start and facts.start.listening_line else ""
    config = (facts.start.config if facts.start else None) or {}
    if all(config.get(name) == value for name, value in IMAGE.items()):
        return True
    form = (facts.log is not None and ("docker" in facts.log.form or "compose" in facts.log.form)) or "|" in line[:40]
    return inside or form or (facts.system is not None and facts.system.container in ("docker", "podman"))


@check(weight=34, explains=("wildcard_bind_shown_as_ipv6",))
def api_exposed_without_auth(
    facts: Facts,
    signs: Signs = NO_SIGNS,
    start: Start | None = None,
    given: tuple[Given, ...] = (),
    box: Container | None = None,
) -> Iterator[Finding]:
    """The API is open to everyone who reaches this host.

    Why: Ollama has no authentication: who reaches the port can use, delete and pull models. [::] is every interface,
    IPv4 too.
    Seen: the address that the server listens on, or the published port.
    Do: listen on 127.0.0.1; who works elsewhere comes in by an ssh tunnel or a private network (WireGuard); for many
    clients a front with keys and limits: sudo ollamactl front nginx --install.
    """
    fix = (
        "sudo ollamactl apply --host 127.0.0.1:11434    # from elsewhere: ssh -L 11434:127.0.0.1:11434 HOST, or a "
        "private network; for many: sudo ollamactl front nginx --install"
    )
    if box is not None and box.network != "host":  # inside, every interface is only the container's own
        for port in box.ports:
            if port.host and not port.address.startswith(("127.", "::1")):
                at = f"{port.address or '0.0.0.0'}:{port.host}"
                yield Finding(
                    "warning",
                    f"the container's port is published on {at}: every interface",
                    (f"{box.engine} inspect {box.name}: {at} -> {port.inside}/tcp",),
                    f"{box.engine} run -p 127.0.0.1:{port.host}:{port.inside} …    # compose: "
                    f'"127.0.0.1:{port.host}:{port.inside}"',
                    consequences=("whoever reaches the port can use, pull and delete models",),
                )
                return
        return
    mine = [
        x
        for x in facts.listeners or ()
        if facts.process is not None and x.pid == facts.process.pid and _wild(f"{x.address}:{x.port}")
    ]
    listening = start.listening if start and not start.ended else ""
    if not mine and not listening and facts.process is None and not signs.has("ipv6_only_shown"):
        mine = [x for x in facts.listeners or () if _is_server(x) and exposed(f"http://{_at(x)}")]
    published = signs.lines("port_published")
    told = facts.listeners is None or facts.process is None  # no sockets were read, or nothing ties them to the server
    if mine or (listening and told and exposed(f"http://{listening}")):
        inside = _container(facts) and not published
        at = _at(mine[0]) if mine else listening
        yield Finding(
            "info" if inside else "warning",
            f"the API listens on {at}: every interface"
            if _wild(at)
            else f"the API listens on {at}, which others reach",
            (quote(start.listening_line) if start else f"socket: LISTEN {at}", *published),
            "docker run -p 127.0.0.1:11434:11434 …" if inside else fix,
            consequences=("whoever reaches the port can use, pull and delete models",),
            weight=34 if not inside else 9,  # before what is only told of slots and releases
        )
    elif signs.has("exposed_told"):
        yield Finding("warning", "the API is open to everyone who reaches the port", signs.lines("exposed_told"), fix)
    elif published:
        yield Finding(
            "warning",
            "the container's port is published on every interface",
            published,
            'docker run -p 127.0.0.1:11434:11434 …    # compose: "127.0.0.1:11434:11434"',
        )
    elif start is None or not start.listening:
        if signs.has("ipv6_only_shown"):
            return
        host = ((start.config or {}) if start and not start.ended else {}).get("OLLAMA_HOST", "")
        if exposed(host) and not signs.has("bind_error") and not _container(facts):
            said = (
                f"OLLAMA_HOST={host} listens on every interface" if _wild(host) else f"others reach OLLAMA_HOST={host}"
            )
            yield Finding("warning", said, (configured(start, "OLLAMA_HOST"),), fix)
            return
        for one in given:
            if (
                one.name == "OLLAMA_HOST"
                and one.scope not in ("shell", "docker")
                and re.search(r"0\.0\.0\.0|\[::\]|^:?\d+$", one.value)
                and exposed(
                    f"http://{one.value.split('://')[-1]}" + ("" if re.search(r":\d+$", one.value) else ":11434")
                )
            ):
                said = f"OLLAMA_HOST={one.value} listens on every interface"
                yield Finding("warning", said, (one.place,), fix, weight=4 if one.scope == "told" else 34)
                return


@check(weight=36, explains=("api_exposed_without_auth",))
def docker_bypasses_ufw(signs: Signs) -> Iterator[Finding]:
    """Docker publishes the port past the firewall.

    Why: its own iptables rules come before ufw's.
    Seen: a published port beside an active ufw.
    Do: publish on 127.0.0.1.
    """
    if signs.has("port_published") and signs.has("ufw_active"):
        yield Finding(
            "warning",
            "the published port is reachable in spite of ufw: Docker's rules come first",
            signs.lines("port_published", "ufw_active"),
            "docker run -p 127.0.0.1:11434:11434 …",
        )


@check(weight=10)
def wildcard_bind_shown_as_ipv6(
    facts: Facts, start: Start | None = None, signs: Signs = NO_SIGNS
) -> Iterator[Finding]:
    """[::] is every interface, IPv4 too.

    Why: a dual-stack socket is shown as [::]; it takes IPv4 unless net.ipv6.bindv6only is set.
    Seen: OLLAMA_HOST 0.0.0.0 beside a socket on [::].
    Do: nothing; test with the IPv4 address.
    """
    if signs.has("ipv6_only_shown"):
        yield Finding(
            "warning",
            "[::]:11434 takes IPv4 too: it is every interface, not IPv6 only",
            signs.lines("ipv6_only_shown"),
            "sysctl net.ipv6.bindv6only; curl -4 http://127.0.0.1:11434/api/version",
            weight=40,
        )


@check(weight=7, explains=("server_not_reachable",))
def bind_loopback_only(facts: Facts, signs: Signs = NO_SIGNS, start: Start | None = None) -> Iterator[Finding]:
    """Other machines and containers cannot reach the server: it listens on 127.0.0.1.

    Why: that is the default, and safe.
    Seen: a client elsewhere that is refused, beside the server's address.
    Do: a proxy with keys in front, or OLLAMA_HOST.
    """
    cannot = signs.has("no_effect", "connection_refused", "client_cannot_connect", "not_allowed")
    refused = signs.has("remote_refused") or (signs.has("remote_client") and cannot)
    if signs.has("connection_refused") and signs.has("runs_locally"):  # it answers on the host, not from elsewhere
        refused = True
    local = start is None or not start.listening or start.listening.startswith(("127.", "[::1]"))
    if any(_is_server(x) and not x.address.startswith(("127.", "::1")) for x in facts.listeners or ()):
        local = False
    if signs.has("loopback_only_told") and not refused:
        said = "the server listens on 127.0.0.1 only, as it does by default"
        yield Finding("info", said, signs.lines("loopback_only_told"), "ollamactl front nginx")
    elif refused and local:
        yield Finding(
            "warning",
            "the server listens on 127.0.0.1 only, and a client comes from elsewhere",
            (
                *signs.lines("remote_refused", "remote_client", "runs_locally"),
                quote(start.listening_line) if start else "",
            ),
            "ollamactl front nginx",
            weight=50,
        )


@check(weight=50, explains=("api_exposed_without_auth",))
def origins_open_to_all(start: Start | None = None, given: tuple[Given, ...] = ()) -> Iterator[Finding]:
    """Every web page may use the API.

    Why: OLLAMA_ORIGINS=* lets any site that a user opens call the server from the browser.
    Seen: the value in `server config`.
    Do: name the origins.
    """
    value = ((start.config or {}) if start else {}).get("OLLAMA_ORIGINS", "")
    place = configured(start, "OLLAMA_ORIGINS")
    if not value:
        value, place = next(((g.value, g.place) for g in given if g.name == "OLLAMA_ORIGINS"), ("", ""))
    if re.match(r"\[?\s*\*(?:[\s,\]]|$)", value):
        yield Finding(
            "info",
            "OLLAMA_ORIGINS=*: every web page that a user opens may use the API",
            (place,),
            "sudo ollamactl apply --set OLLAMA_ORIGINS=https://chat.example.org",
            weight=8,
        )


@check(weight=18)
def request_bodies_logged(signs: Signs) -> Iterator[Finding]:
    """Every request's body is written to a file.

    Why: OLLAMA_DEBUG_LOG_REQUESTS keeps prompts on the disk.
    Seen: the server's own line.
    Do: unset it.
    """
    if signs.has("request_logging"):
        yield Finding(
            "info",
            "the server writes every request's body to a file: prompts are on the disk",
            signs.lines("request_logging"),
            "sudo ollamactl apply --unset OLLAMA_DEBUG_LOG_REQUESTS",
        )
