"""One HTTP request to a server on this machine: no proxies, no redirects, one deadline, a body limit."""

from __future__ import annotations

import os
import socket
import time
from urllib.parse import urlsplit

import msgspec

from ollamactl.core import govalues
from ollamactl.core.source import Missing
from ollamactl.host import netns, wire

CHUNK = 256 << 10


class Answer(msgspec.Struct, frozen=True):
    body: bytes | None = None
    missing: Missing | None = None
    status: int | None = None
    note: str = ""


def ask(
    url: str,
    *,
    method: str = "GET",
    body: bytes | None = None,
    timeout: float = 5.0,
    limit: int = 64 << 20,
    service_pid: int | None = None,
) -> Answer:
    """The answer of `url`. A status other than 2xx is a `missing` beside the body. `service_pid`: a process in whose
    network namespace the connection is made."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        return Answer(missing=Missing("failed", f"{url}: {error}"))
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if parts.scheme not in ("http", "https") or not host or any(not "!" <= c <= "~" for c in path):
        return Answer(missing=Missing("failed", f"{url}: not an http address"))
    where = govalues.joined(host, port)
    target = wire.Target(url, 0, (host, port), host, where, "", parts.scheme == "https")
    until = time.monotonic() + timeout
    kept: list[bytes] = []
    parser = wire.Parser(kept.append)
    try:
        with _connected(target, service_pid, until) as connection:
            connection.sendall(wire.request(target, path, body, method))
            note = _receive(connection, parser, kept, limit, until)
    except (OSError, wire.NotHttp, ValueError) as error:
        return Answer(missing=_why(error, where, timeout))
    answer = b"".join(kept)[:limit]
    return Answer(answer, _status(parser, answer), parser.status, note)


def _receive(connection: socket.socket, parser: wire.Parser, kept: list[bytes], limit: int, until: float) -> str:
    """Feeds the parser until the answer has ended, or more than `limit` bytes of its body are `kept`; a note on it.
    TimeoutError at the deadline of the whole, however slowly the bytes trickle."""
    begun = False
    counted = size = 0
    while not parser.done:
        connection.settimeout(_left(until))
        data = connection.recv(CHUNK)
        if data:
            begun = True
            parser.feed(data)
        elif not parser.eof():
            raise wire.NotHttp("an answer without its end") if begun else ConnectionResetError
        size += sum(map(len, kept[counted:]))
        counted = len(kept)
        if size > limit:
            return f"cut: at {limit} bytes"
    return ""


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _connected(target: wire.Target, pid: int | None, until: float) -> socket.socket:
    """A connection, in the namespace of `pid` where the address is this machine's."""
    host, port = target.address
    family = _family(host)
    local = host in ("127.0.0.1", "localhost", "::1")
    if pid is not None and local and netns.differs(pid):
        made = netns.make(pid, family or socket.AF_INET, socket.SOCK_STREAM)
        host = "127.0.0.1" if host == "localhost" else host
    elif family is not None:
        made = socket.socket(family, socket.SOCK_STREAM)
    else:
        made = socket.create_connection((host, port), timeout=_left(until))
        host = ""
    try:
        if host:
            made.settimeout(_left(until))
            made.connect((host, port))
        if target.tls:
            import ssl

            made = ssl.create_default_context().wrap_socket(made, server_hostname=target.name)
    except BaseException:
        made.close()
        raise
    return made


def _family(host: str) -> socket.AddressFamily | None:
    """Of a literal address; None for a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return family
    return None


def _status(parser: wire.Parser, body: bytes) -> Missing | None:
    status = parser.status or 0
    if 200 <= status < 300:
        return None
    if 300 <= status < 400:
        target = parser.headers.get(b"location", b"").decode("latin-1")
        return Missing("failed", f"HTTP {status}: sends elsewhere, to {target}")
    first = body[:200].decode("utf-8", "replace").strip().partition("\n")[0]
    return Missing("failed", f"HTTP {status}: {first}" if first else f"HTTP {status}")


def _why(error: Exception, where: str, timeout: float) -> Missing:
    if isinstance(error, ConnectionRefusedError):
        return Missing("absent", f"nothing listens on {where}")
    if isinstance(error, TimeoutError):
        return Missing("timeout", f"{where}: no full answer within {timeout:g} s")
    if isinstance(error, socket.gaierror | UnicodeError):
        return Missing("absent", f"{where}: no such host name")
    if isinstance(error, PermissionError):
        return Missing("denied", f"{where}: {error.strerror}", "" if os.geteuid() == 0 else "sudo shows it")
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return Missing("failed", f"{where}: the server closed the connection without an answer")
    if isinstance(error, wire.NotHttp):
        return Missing("failed", f"{where}: {error}")
    reason = getattr(error, "reason", None)  # of ssl
    return Missing("failed", f"{where}: {reason or error}")
