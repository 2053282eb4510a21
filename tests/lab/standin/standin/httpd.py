"""A small HTTP/1.1 server that notices a client that leaves, writes chunks, and logs each request as gin does."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import Any, ClassVar

from .gofmt import dumps, gin

REASONS = {200: "OK", 204: "No Content", 400: "Bad Request", 403: "Forbidden", 404: "Not Found",
           405: "Method Not Allowed", 500: "Internal Server Error", 503: "Service Unavailable"}  # fmt: skip
JSON_TYPE = "application/json; charset=utf-8"


class Exchange:
    """One request and its answer. `status` is what the access line will show, also where nothing was sent."""

    def __init__(self, connection: Connection, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.connection, self.method, self.path, self.headers, self.body = connection, method, path, headers, body
        self.began_ns = time.perf_counter_ns()
        self.status = 499  # until an answer is decided
        self.extra: dict[str, str] = {}
        self.streaming = False

    @property
    def elapsed_ns(self) -> int:
        return time.perf_counter_ns() - self.began_ns

    def send(self, status: int, body: bytes, kind: str = JSON_TYPE) -> None:
        self.status = status
        head = {"Content-Type": kind} if kind else {}
        self.connection.head(status, {**head, **self.extra, "Content-Length": str(len(body))})
        if self.method != "HEAD":
            self.connection.write(body)

    def json(self, status: int, value: Any) -> None:
        self.send(status, dumps(value).encode())

    def error(self, status: int, text: str) -> None:
        self.json(status, {"error": text})

    def chunk(self, value: Any) -> None:
        """One line of a stream; the first one sends the head."""
        if not self.streaming:
            self.streaming, self.status = True, 200
            head = {"Content-Type": "application/x-ndjson", **self.extra, "Transfer-Encoding": "chunked"}
            self.connection.head(200, head)
        data = dumps(value).encode() + b"\n"
        self.connection.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        self.connection.write(b"0\r\n\r\n")


Handler = Callable[[Exchange], Awaitable[None]]


class Connection(asyncio.Protocol):
    """Requests one after the other; a client that closes cancels the one that runs."""

    open: ClassVar[set[Connection]] = set()
    stopping = False  # a server that ends cuts its streams without an access line

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.buffer = b""
        self.task: asyncio.Task[None] | None = None
        self.exchange: Exchange | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.client = peer[0].removeprefix("::ffff:") if peer else ""
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        Connection.open.add(self)

    def connection_lost(self, _error: Exception | None) -> None:
        Connection.open.discard(self)
        if self.task:
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self._next()

    def _next(self) -> None:
        if self.task or b"\r\n\r\n" not in self.buffer:
            return
        head, _, rest = self.buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        words = first.split(" ")
        length = headers.get("content-length", "0")
        if len(words) != 3 or not length.isdigit():
            self.head(400, {"Content-Type": "text/plain; charset=utf-8", "Connection": "close", "Content-Length": "0"})
            self.transport.close()
            return
        if headers.get("expect", "").lower() == "100-continue" and len(rest) < int(length):
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = _unchunk(rest)
            if body is None:
                return
            content, self.buffer = body
        else:
            if len(rest) < int(length):
                return
            content, self.buffer = rest[: int(length)], rest[int(length) :]
        self.exchange = Exchange(self, words[0], words[1].partition("?")[0], headers, content)
        self.task = asyncio.get_running_loop().create_task(self._run(self.exchange))

    async def _run(self, exchange: Exchange) -> None:
        try:
            await self.handler(exchange)
        except asyncio.CancelledError:
            if exchange.streaming:
                exchange.status = 200
        finally:
            if not (Connection.stopping and exchange.streaming):
                gin(exchange.status, exchange.elapsed_ns, self.client, exchange.method, exchange.path)
        self.task = self.exchange = None
        if exchange.headers.get("connection", "").lower() == "close":
            self.transport.close()
        elif not self.transport.is_closing():
            self._next()

    def head(self, status: int, headers: dict[str, str]) -> None:
        out = {**headers, "Date": formatdate(usegmt=True)}
        lines = "".join(f"{name}: {value}\r\n" for name, value in out.items())
        self.write(f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}\r\n{lines}\r\n".encode("latin-1"))

    def write(self, data: bytes) -> None:
        if data and not self.transport.is_closing():
            self.transport.write(data)


def _unchunk(data: bytes) -> tuple[bytes, bytes] | None:
    """Body and what follows it; None while chunks are missing."""
    out = b""
    while True:
        line, found, rest = data.partition(b"\r\n")
        if not found:
            return None
        size = int(line.split(b";")[0], 16)
        if len(rest) < size + 2:
            return None
        out, data = out + rest[:size], rest[size + 2 :]
        if size == 0:
            return out, data


def listen(host: str, port: int) -> socket.socket:
    """As Go listens: the unspecified address means both families. Raises OSError."""
    if host in ("0.0.0.0", "::", ""):
        try:
            sock = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            host = "::"
        except OSError:  # a host without IPv6
            sock, host = socket.socket(socket.AF_INET, socket.SOCK_STREAM), "0.0.0.0"
    else:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock, host = socket.socket(family, socket.SOCK_STREAM), str(address[0])
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(4096)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock
