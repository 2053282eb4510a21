"""One HTTP request to a server on this machine: no proxies, no redirects, one deadline, a body limit."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import threading
from urllib.parse import urlsplit

import msgspec

from ollamactl.core.source import Missing
from ollamactl.host import netns


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
    """The answer of `url`. A status other than 2xx is a `missing` beside the body. http.client knows nothing
    of proxy variables. `service_pid`: a process in whose network namespace the connection is made."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        return Answer(missing=Missing("failed", f"{url}: {error}"))
    if parts.scheme not in ("http", "https") or not host:
        return Answer(missing=Missing("failed", f"{url}: not an http address"))
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(host, port, timeout=timeout)
    try:
        connection.sock = _socket(service_pid, host, port, timeout)
    except OSError as error:
        return Answer(missing=_why(error, where, timeout))
    expired = threading.Event()
    # The socket's own timeout restarts with every byte; this one ends a trickle.
    watch = threading.Timer(timeout, _cut, (connection, expired))
    watch.daemon = True
    watch.start()
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        kept = response.read(limit + 1)
        if expired.is_set():
            raise TimeoutError
        if response.length and len(kept) <= limit:  # http.client says nothing where a limit was asked for
            raise http.client.IncompleteRead(kept, response.length)
        note = ""
        if len(kept) > limit:
            kept, note = kept[:limit], f"cut: at {limit} bytes"
        return Answer(kept, _status(response, kept), response.status, note)
    except (OSError, http.client.HTTPException, ValueError) as error:
        if expired.is_set():
            return Answer(missing=Missing("timeout", f"{where}: no full answer within {timeout:g} s"))
        return Answer(missing=_why(error, where, timeout))
    finally:
        watch.cancel()
        connection.close()


def _socket(pid: int | None, host: str, port: int, timeout: float) -> socket.socket | None:
    """A connection made in the namespace of `pid`; None (http.client makes it) where that is ours, or where
    `host` is not this machine."""
    if pid is None or host not in ("127.0.0.1", "localhost", "::1") or not netns.differs(pid):
        return None
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = netns.make(pid, family, socket.SOCK_STREAM)
    try:
        made.settimeout(timeout)
        made.connect(("127.0.0.1" if host == "localhost" else host, port))
    except OSError:
        made.close()
        raise
    return made


def _cut(connection: http.client.HTTPConnection, expired: threading.Event) -> None:
    expired.set()
    if connection.sock:
        with contextlib.suppress(OSError):  # closed already
            connection.sock.shutdown(socket.SHUT_RDWR)


def _status(response: http.client.HTTPResponse, body: bytes) -> Missing | None:
    if 200 <= response.status < 300:
        return None
    if 300 <= response.status < 400:
        target = response.headers.get("Location", "")
        return Missing("failed", f"HTTP {response.status}: sends elsewhere, to {target}")
    first = body[:200].decode("utf-8", "replace").strip().partition("\n")[0]
    return Missing("failed", f"HTTP {response.status}: {first}" if first else f"HTTP {response.status}")


def _why(error: Exception, where: str, timeout: float) -> Missing:
    if isinstance(error, ConnectionRefusedError):
        return Missing("absent", f"nothing listens on {where}")
    if isinstance(error, TimeoutError):
        return Missing("timeout", f"{where}: no answer within {timeout:g} s")
    if isinstance(error, socket.gaierror):
        return Missing("absent", f"{where}: no such host name")
    if isinstance(error, PermissionError):
        return Missing("denied", f"{where}: {error.strerror}", "" if os.geteuid() == 0 else "sudo shows it")
    if isinstance(error, http.client.RemoteDisconnected | ConnectionResetError | BrokenPipeError):
        return Missing("failed", f"{where}: the server closed the connection without an answer")
    if isinstance(error, ssl.SSLError):
        return Missing("failed", f"{where}: {error.reason or error}")
    if isinstance(error, http.client.HTTPException):
        return Missing("failed", f"{where}: not an HTTP answer ({type(error).__name__})")
    return Missing("failed", f"{where}: {error}")
