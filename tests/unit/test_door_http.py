"""HTTP of the live door, against real servers on loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from ollamactl.core.source import Source, http
from ollamactl.host.live import LiveHost

pytestmark = pytest.mark.touches("loopback")
HOST = LiveHost()


@contextmanager
def serving(
    answer: Callable[[socket.socket, bytes], None], family: int = socket.AF_INET
) -> Iterator[tuple[int, list[bytes]]]:
    """A server that reads one request a connection; its port, and the requests it got."""
    got: list[bytes] = []
    server = socket.socket(family)
    server.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
    server.listen()

    def run() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                request = b""
                while b"\r\n\r\n" not in request and (part := connection.recv(65536)):
                    request += part
                got.append(request)
                with suppress(OSError):
                    answer(connection, request)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1], got
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(5)


def said(text: bytes) -> Callable[[socket.socket, bytes], None]:
    return lambda connection, request: connection.sendall(text)


def reply(status: str, body: bytes, *headers: str) -> bytes:
    head = "".join(f"{h}\r\n" for h in (*headers, f"Content-Length: {len(body)}"))
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body


def test_get_and_post_with_proxies_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with serving(said(reply("200 OK", b'{"version":"0.33.0"}'))) as (port, got):
        reading = HOST.read(http(f"http://127.0.0.1:{port}/api/version?x=1"))
        assert reading.body == b'{"version":"0.33.0"}' and reading.status == 200 and reading.missing is None
        posted = HOST.read(http(f"http://127.0.0.1:{port}/api/show", method="POST", body='{"model":"a"}'))
        assert posted.missing is None
    assert got[0].startswith(b"GET /api/version?x=1 HTTP/1.1\r\n")
    assert f"Host: 127.0.0.1:{port}".encode() in got[0]
    assert got[1].startswith(b"POST /api/show HTTP/1.1") and b"Content-Type: application/json" in got[1]


def test_ipv6() -> None:
    with serving(said(reply("200 OK", b"x")), socket.AF_INET6) as (port, _):
        assert HOST.read(http(f"http://[::1]:{port}/")).body == b"x"


def test_chunked() -> None:
    text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    with serving(said(text)) as (port, _):
        assert HOST.read(http(f"http://127.0.0.1:{port}/")).body == b"abcde"


@pytest.mark.parametrize("status", [400, 404, 500, 503])
def test_an_error_keeps_its_body(status: int) -> None:
    body = b'{"error":"server busy, please try again.  maximum pending requests exceeded"}'
    with serving(said(reply(f"{status} Said", body))) as (port, _):
        reading = HOST.read(http(f"http://127.0.0.1:{port}/"))
    assert reading.body == body and reading.status == status
    assert (
        reading.missing and reading.missing.kind == "failed" and reading.missing.detail.startswith(f"HTTP {status}: ")
    )


def test_redirects_are_not_followed() -> None:
    with serving(said(reply("302 Found", b"", "Location: http://127.0.0.1:1/elsewhere"))) as (port, got):
        reading = HOST.read(http(f"http://127.0.0.1:{port}/"))
    assert reading.missing and reading.missing.kind == "failed" and "elsewhere" in reading.missing.detail
    assert len(got) == 1 and reading.status == 302


def test_nothing_listens() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: refused, and nobody else can take it
        port = closed.getsockname()[1]
        reading = HOST.read(http(f"http://127.0.0.1:{port}/"))
    assert reading.missing and reading.missing.kind == "absent"
    assert reading.missing.detail == f"nothing listens on 127.0.0.1:{port}"


def silent(connection: socket.socket, request: bytes) -> None:
    connection.recv(1)  # until the client goes


def trickle(connection: socket.socket, request: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        connection.sendall(b"x")
        threading.Event().wait(0.02)


def trickled_headers(connection: socket.socket, request: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"x")
        threading.Event().wait(0.02)


@pytest.mark.parametrize("server", [silent, trickle, trickled_headers])
def test_deadline_for_the_whole(server: Callable[[socket.socket, bytes], None]) -> None:
    with serving(server) as (port, _):
        reading = HOST.read(http(f"http://127.0.0.1:{port}/", timeout=0.3))
    assert reading.missing and reading.missing.kind == "timeout", reading


def test_a_backlog_that_nobody_accepts_is_a_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        reading = HOST.read(http(f"http://127.0.0.1:{server.getsockname()[1]}/", timeout=0.2))
    assert reading.missing and reading.missing.kind == "timeout"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"", "failed"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "failed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "failed"),
        (b"HTTP/1.1 abc OK\r\n\r\n", "failed"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "failed"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000 + b"\r\n", "failed"),
    ],
)
def test_what_is_no_answer(text: bytes, kind: str) -> None:
    with serving(said(text)) as (port, _):
        reading = HOST.read(http(f"http://127.0.0.1:{port}/"))
    assert reading.missing and reading.missing.kind == kind and reading.body is None


def test_limit() -> None:
    with serving(said(reply("200 OK", b"x" * 5000))) as (port, _):
        reading = HOST.read(Source("http", ("GET", f"http://127.0.0.1:{port}/"), limit=1000))
    assert reading.body == b"x" * 1000 and reading.stderr == "cut: at 1000 bytes" and reading.missing is None


@pytest.mark.parametrize(
    "url", ["ftp://127.0.0.1/", "http://127.0.0.1:99999/", "http:///x", "nonsense", "http://[::1/"]
)
def test_bad_addresses(url: str) -> None:
    reading = HOST.read(http(url))
    assert reading.missing and reading.missing.kind == "failed"
