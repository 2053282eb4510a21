"""HTTP/1.1 as a client of many streams needs it: where requests go, their bytes, and responses in any pieces."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from ollamactl.errors import Exit, Failure

HEAD = 64 << 10  # bytes of status line and headers at most
CONNECT = 2.0  # seconds for one of several addresses of a name
Place = tuple[socket.AddressFamily, tuple[Any, ...]]  # an address as sockets have it


class Target(msgspec.Struct, frozen=True):
    """Where requests go."""

    url: str
    family: int
    address: tuple[Any, ...]
    name: str
    host: str  # the Host header
    prefix: str
    tls: bool
    key: str = ""  # sent as a bearer token


def target(url: str, key: str = "") -> Target:
    """Raises Failure: usage for what is no http address, unseen for a name that nothing knows."""
    try:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        name, tls = parts.hostname or "", parts.scheme == "https"
        port = parts.port or (443 if tls else 80)
    except ValueError as error:
        raise Failure(f"{url}: {error}", code=Exit.USAGE, id="usage") from None
    odd = parts.username is not None or parts.query or parts.fragment or any(c <= " " or c > "~" for c in url)
    if parts.scheme not in ("http", "https") or not name or odd:
        hint = "http://HOST:PORT; a key goes into a file: --key-file FILE"
        raise Failure(f"{url} is not the address of a server", hint=hint, code=Exit.USAGE, id="usage")
    try:
        family, address = _reached([(f[0], f[4]) for f in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)])
    except (OSError, UnicodeError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise Failure(f"{name}: {said}", hint="is the name right?", id="absent") from None
    host = f"[{name}]" if ":" in name else name
    host += "" if port == (443 if tls else 80) else f":{port}"
    shown = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
    return Target(shown, int(family), address, name, host, parts.path.rstrip("/"), tls, key)


def _reached(found: list[Place]) -> Place:
    """Of the addresses of a name the first that takes a connection: `localhost` is ::1 before it is 127.0.0.1, where
    Ollama listens. Where none does, the first."""
    for family, address in found if len(found) > 1 else ():
        with socket.socket(family, socket.SOCK_STREAM) as made:
            made.settimeout(CONNECT)
            if made.connect_ex(address) == 0:
                return family, address
    return found[0]


class NotHttp(Exception):
    """The peer does not speak HTTP/1.x, or says more than a client should keep."""


class Parser:
    """An HTTP/1.1 response, fed in pieces. `body(piece)` is called with what the body holds."""

    def __init__(self, body: Callable[[bytes], None]) -> None:
        self.status: int | None = None
        self.headers: dict[bytes, bytes] = {}  # names in small letters
        self.done = False
        self._body = body
        self._rest = b""
        self._left: int | None = None  # bytes of the body or the chunk; None: until the end
        self._state: Literal["head", "plain", "size", "chunk", "crlf", "trailer"] = "head"

    def feed(self, data: bytes) -> None:
        """Raises NotHttp."""
        rest = self._rest + data if self._rest else data
        while rest and not self.done:
            before = len(rest), self._state
            rest = getattr(self, f"_{self._state}")(rest)
            if (len(rest), self._state) == before:
                break
        if len(rest) > HEAD:
            raise NotHttp("a line of the protocol without an end")
        self._rest = rest

    def eof(self) -> bool:
        """The peer has closed. Whether that is where a body without a length ends."""
        if self._state == "plain" and self._left is None:
            self.done = True
        return self.done

    def _head(self, rest: bytes) -> bytes:
        head, found, after = rest.partition(b"\r\n\r\n")
        if not found:
            if not b"HTTP/1.".startswith(rest[:7]):
                raise NotHttp("not an HTTP answer")
            return rest
        if len(head) > HEAD:
            raise NotHttp("headers without an end")
        first, *lines = head.split(b"\r\n")
        words = first.split(b" ", 2)
        if not first.startswith(b"HTTP/1.") or len(words) < 2 or not words[1].isdigit():
            raise NotHttp("not an HTTP answer")
        status = int(words[1])
        if 100 <= status < 200:
            return after
        self.status = status
        headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(b":") for line in lines)}
        self.headers = headers
        if headers.get(b"transfer-encoding", b"").lower().endswith(b"chunked"):
            self._state = "size"
        else:
            length = headers.get(b"content-length")
            if length is not None and not length.isdigit():
                raise NotHttp("a length that is no number")
            self._left = None if length is None else int(length)
            self._state, self.done = "plain", self._left == 0 or status in (204, 304)
        return after

    def _plain(self, rest: bytes) -> bytes:
        if self._left is None:
            self._body(rest)
            return b""
        taken = rest[: self._left]
        self._left -= len(taken)
        self._body(taken)
        self.done = self._left == 0
        return rest[len(taken) :]

    def _size(self, rest: bytes) -> bytes:
        line, found, after = rest.partition(b"\r\n")
        if not found:
            return rest
        try:
            self._left = int(line.split(b";", 1)[0].strip(), 16)
        except ValueError:
            raise NotHttp("a chunk whose length is no number") from None
        if self._left < 0:
            raise NotHttp("a chunk of negative length")
        self._state = "chunk" if self._left else "trailer"
        return after

    def _chunk(self, rest: bytes) -> bytes:
        assert self._left is not None
        taken = rest[: self._left]
        self._left -= len(taken)
        self._body(taken)
        if not self._left:
            self._state = "crlf"
        return rest[len(taken) :]

    def _crlf(self, rest: bytes) -> bytes:
        if len(rest) < 2:
            return rest
        if rest[:2] != b"\r\n":
            raise NotHttp("a chunk longer than it said")
        self._state = "size"
        return rest[2:]

    def _trailer(self, rest: bytes) -> bytes:
        line, found, after = rest.partition(b"\r\n")
        if found and not line:
            self.done = True
        return after if found else rest


def request(where: Target, path: str, body: bytes | None, method: str = "POST") -> bytes:
    """The bytes of one request."""
    head = f"{method} {where.prefix}{path} HTTP/1.1\r\nHost: {where.host}\r\nUser-Agent: ollamactl\r\n"
    head += "Accept: */*\r\nConnection: close\r\n"
    head += f"Authorization: Bearer {where.key}\r\n" if where.key else ""
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode("latin-1") + b"\r\n" + (body or b"")
