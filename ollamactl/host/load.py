"""Requests to a server, many at once, each watched byte by byte: a small HTTP/1.1 client over asyncio's transports.

No proxies, no redirects, one connection a request, as independent clients have. A token's time is the moment at which
the event loop hands over the bytes that hold it.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from ollamactl.core.measure import Reply, Sample, Sent
from ollamactl.errors import Exit, Failure

HEAD = 64 << 10  # bytes of status line and headers at most
LINE = 32 << 20  # of one line: the last object of a reply lists the whole context
KEPT = 4096  # of an error's body; and moments of tokens of one request
Ended = Literal["reply", "error", "timeout", "interrupt", "limit"]


class Target(msgspec.Struct, frozen=True):
    """Where requests go: the first address that its name has."""

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
        family, _, _, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise Failure(f"{name}: {said}", hint="is the name right?", id="absent") from None
    host = f"[{name}]" if ":" in name else name
    host += "" if port == (443 if tls else 80) else f":{port}"
    shown = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
    return Target(shown, int(family), address, name, host, parts.path.rstrip("/"), tls, key)


class NotHttp(Exception):
    """The peer does not speak HTTP/1.x, or says more than a client should keep."""


class Parser:
    """An HTTP/1.1 response, fed in pieces. `body(piece)` is called with what the body holds."""

    def __init__(self, body: Callable[[bytes], None]) -> None:
        self.status: int | None = None
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
        first, *lines = head.split(b"\r\n")
        words = first.split(b" ", 2)
        if not first.startswith(b"HTTP/1.") or len(words) < 2 or not words[1].isdigit():
            raise NotHttp("not an HTTP answer")
        status = int(words[1])
        if 100 <= status < 200:
            return after
        self.status = status
        headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(b":") for line in lines)}
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


class _Line(msgspec.Struct):
    """One object of a stream of /api/generate. Durations are nanoseconds."""

    response: str = ""
    thinking: str = ""
    done: bool = False
    done_reason: str = ""
    error: str = ""
    total_duration: int = 0
    load_duration: int = 0
    prompt_eval_duration: int = 0
    eval_duration: int = 0
    prompt_eval_count: int = 0
    eval_count: int = 0


_decode = msgspec.json.Decoder(_Line).decode


class Stream(asyncio.Protocol):
    """One POST /api/generate. `over` is done when nothing more will come."""

    def __init__(self, request: bytes, clock: Callable[[], float], over: asyncio.Future[None]) -> None:
        self.request, self.clock, self.over = request, clock, over
        self.connected: float | None = None
        self.first: float | None = None
        self.arrivals: list[float] = []
        self.count = 0
        self.error = ""
        self.last: _Line | None = None
        self.kept = b""  # of an error's body
        self.parser = Parser(self._body)
        self.transport: asyncio.Transport | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._now = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.connected = self.clock()
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self._now = self.clock()
        try:
            self.parser.feed(data)
        except NotHttp as error:
            self._end(str(error))
            return
        if self.parser.done:
            self._end("")

    def eof_received(self) -> None:
        self._end("" if self.parser.eof() else "the server closed the connection before the reply's end")

    def connection_lost(self, error: Exception | None) -> None:
        if self.over.done():
            return
        if error is None:
            self.eof_received()
        else:
            self._end(_said(error))

    def _end(self, error: str) -> None:
        if self.over.done():
            return
        if self._size:  # a last line without a line end
            self._line(b"".join(self._pieces))
            self._pieces, self._size = [], 0
        self.error = self.error or error
        if not self.error and self.parser.status != 200:
            self.error = _error_text(self.kept) or f"HTTP {self.parser.status}"
        if not self.error and self.last is None and self.first is None:
            self.error = "the stream ended without its last object"
        self.over.set_result(None)
        if self.transport:
            self.transport.abort()

    def _body(self, piece: bytes) -> None:
        if self.parser.status != 200:
            self.kept += piece[: KEPT - len(self.kept)]
            return
        start = 0
        while (end := piece.find(b"\n", start)) >= 0:
            line = piece[start:end]
            if self._size:
                line = b"".join([*self._pieces, line])
                self._pieces, self._size = [], 0
            self._line(line)
            start = end + 1
        if start < len(piece):
            self._pieces.append(piece[start:])
            self._size += len(piece) - start
            if self._size > LINE:
                raise NotHttp("a line without an end")

    def _line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            found = _decode(line)
        except (msgspec.DecodeError, RecursionError):
            self.error = self.error or "not a stream of /api/generate"
            return
        if found.error:
            self.error = self.error or found.error
        if found.response or found.thinking:
            if self.first is None:
                self.first = self._now
            self.count += 1
            if len(self.arrivals) < KEPT:
                self.arrivals.append(self._now)
        if found.done:
            self.last = found

    def sent(self, number: int, at: float, end: float, ended_by: Ended) -> Sent:
        last, reply = self.last, None
        if last is not None:
            reply = Reply(
                total=last.total_duration / 1e9,
                load=last.load_duration / 1e9,
                prompt=last.prompt_eval_duration / 1e9,
                generation=last.eval_duration / 1e9,
                prompt_tokens=last.prompt_eval_count,
                tokens=last.eval_count,
                reason=last.done_reason,
            )
        return Sent(
            number=number,
            at=at,
            end=end,
            connected=self.connected,
            first=self.first,
            status=self.parser.status,
            tokens=reply.tokens if reply and reply.tokens else self.count,
            arrivals=tuple(self.arrivals),
            reply=reply,
            error=self.error if ended_by in ("reply", "error") else "",
            ended_by="error" if self.error and ended_by == "reply" else ended_by,
        )


def _error_text(body: bytes) -> str:
    try:
        return _decode(body).error
    except (msgspec.DecodeError, RecursionError):
        return body[:200].decode("utf-8", "replace").strip().partition("\n")[0]


def _said(error: BaseException) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "the server cut the connection"
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def request(where: Target, path: str, body: bytes | None, method: str = "POST") -> bytes:
    """The bytes of one request."""
    head = f"{method} {where.prefix}{path} HTTP/1.1\r\nHost: {where.host}\r\nUser-Agent: ollamactl\r\n"
    head += "Accept: */*\r\nConnection: close\r\n"
    head += f"Authorization: Bearer {where.key}\r\n" if where.key else ""
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode("latin-1") + b"\r\n" + (body or b"")


class Halt:
    """Ends whatever is in flight, once it is set: ^C, or the time limit."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.by: Ended = "interrupt"

    def set(self, by: Ended) -> None:
        if not self.event.is_set():
            self.by = by
            self.event.set()


class Session:
    """One phase of load. Moments are seconds since it was made."""

    def __init__(self, where: Target, halt: Halt, client_timeout: float | None = None) -> None:
        self.where = where
        self.halt = halt
        self.client_timeout = client_timeout
        self.sent: list[Sent] = []
        self.samples: list[Sample] = []
        self._loop = asyncio.get_running_loop()
        self._tls = ssl.create_default_context() if where.tls else None
        self._zero = self._loop.time()

    def clock(self) -> float:
        return self._loop.time() - self._zero

    async def generate(self, number: int, body: bytes) -> Sent:
        """One request, to its end, its client's patience, or the halt."""
        over: asyncio.Future[None] = self._loop.create_future()
        at = self.clock()
        stream = Stream(request(self.where, "/api/generate", body), self.clock, over)
        ended: Ended = "reply"
        opening = asyncio.ensure_future(self._open(lambda: stream))
        stopping = asyncio.ensure_future(self.halt.event.wait())
        try:
            until = None if self.client_timeout is None else self._loop.time() + self.client_timeout
            steps: tuple[asyncio.Future[None], ...] = (opening, over)
            for step in steps:
                left = None if until is None else max(0.0, until - self._loop.time())
                pair: set[asyncio.Future[Any]] = {step, stopping}
                done, _ = await asyncio.wait(pair, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if step not in done:
                    ended = self.halt.by if stopping in done else "timeout"
                    break
                if step is opening and (failure := opening.exception()):
                    stream.error, ended = _said(failure), "error"
                    break
        finally:
            stopping.cancel()
            if not opening.done():
                opening.cancel()
            if stream.transport:
                stream.transport.abort()
        found = stream.sent(number, at, self.clock(), ended)
        self.sent.append(found)
        return found

    async def _open(self, make: Callable[[], asyncio.Protocol]) -> None:
        made = socket.socket(self.where.family, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.sock_connect(made, self.where.address)
            name = self.where.name if self._tls else None
            await self._loop.create_connection(make, sock=made, ssl=self._tls, server_hostname=name)
        except BaseException:
            made.close()
            raise

    async def closed(self, clients: int, rounds: int, bodies: Iterator[bytes], tell: Callable[[], None]) -> None:
        """`clients` at once, each sending its next request when its last one is over."""

        async def client(first: int) -> None:
            for turn in range(rounds):
                if self.halt.event.is_set():
                    return
                await self.generate(turn * clients + first, next(bodies))
                tell()

        await _all([client(n) for n in range(clients)])

    async def open(
        self, moments: Sequence[float], bodies: Iterator[bytes], most: int, tell: Callable[[], None]
    ) -> int:
        """Requests at given moments, whatever became of those before; the number that was left out, because `most`
        were in flight already."""
        running: set[asyncio.Future[Any]] = set()
        left_out = 0
        for number, moment in enumerate(moments):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.halt.event.wait(), max(0.0, moment - self.clock()))
            if self.halt.event.is_set():
                break
            if len(running) >= most:
                left_out += 1
                continue
            task = asyncio.ensure_future(self.generate(number, next(bodies)))
            running.add(task)
            task.add_done_callback(running.discard)
            task.add_done_callback(lambda _: tell())
        while running:
            await asyncio.wait(running)
        return left_out


async def _all(work: Sequence[Awaitable[Any]]) -> None:
    tasks = [asyncio.ensure_future(w) for w in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


class _Whole(asyncio.Protocol):
    """A small GET whose body is kept whole."""

    def __init__(self, data: bytes, over: asyncio.Future[bytes | None], limit: int) -> None:
        self.data, self.over, self.limit = data, over, limit
        self.pieces: list[bytes] = []
        self.parser = Parser(self._body)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self.data)

    def _body(self, piece: bytes) -> None:
        self.pieces.append(piece)
        self.limit -= len(piece)
        if self.limit < 0:
            raise NotHttp("too long")

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed(data)
        except NotHttp:
            self._end(False)
            return
        if self.parser.done:
            self._end(self.parser.status == 200)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(self.parser.eof() and self.parser.status == 200)

    def _end(self, good: bool) -> None:
        if not self.over.done():
            self.over.set_result(b"".join(self.pieces) if good else None)
        self.transport.abort()


class _Slot(msgspec.Struct):
    is_processing: bool


_slots = msgspec.json.Decoder(list[_Slot]).decode


async def get(where: Target, path: str, timeout: float = 5.0, limit: int = 4 << 20) -> bytes | None:
    """The body of a GET; None where there is none, or another status than 200."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[bytes | None] = loop.create_future()
    watcher = _Whole(request(where, path, None, "GET"), over, limit)
    tls = ssl.create_default_context() if where.tls else None
    opening = loop.create_connection(
        lambda: watcher, *where.address[:2], ssl=tls, server_hostname=where.name if tls else None
    )
    try:
        await asyncio.wait_for(opening, timeout)
        return await asyncio.wait_for(over, timeout)
    except (OSError, asyncio.TimeoutError):
        return None
    finally:
        if hasattr(watcher, "transport"):
            watcher.transport.abort()


def runner(port: int) -> Target:
    """A runner's own port, on loopback."""
    return Target("", int(socket.AF_INET), ("127.0.0.1", port), "127.0.0.1", f"127.0.0.1:{port}", "", False)


async def slots(port: int, timeout: float = 5.0) -> tuple[int, int] | None:
    """(slots, busy) of the runner on a loopback port; None where it does not tell."""
    body = await get(runner(port), "/slots", timeout)
    try:
        found = _slots(body) if body else []
    except (msgspec.DecodeError, RecursionError):
        return None
    return (len(found), sum(s.is_processing for s in found)) if found else None


async def watch(session: Session, find: Callable[[bool], int | None], every: float = 0.05) -> None:
    """Samples the runner's slots until cancelled. `find(again)` knows the runner's port, or (again: it may block)
    looks for it anew: a load may have put another runner in its place."""
    port = find(False)
    while True:
        if port is None:
            port = await asyncio.to_thread(find, True)
            if port is None:
                await asyncio.sleep(0.2)
                continue
        asked = session.clock()
        found = await slots(port)
        answered = session.clock()
        if found is None:
            port = None
        else:
            session.samples.append(Sample(asked=asked, answered=answered, slots=found[0], busy=found[1]))
        # Many slots make a long answer, and making it is the runner's time: about 1 KiB a slot.
        await asyncio.sleep(max(every, 0.002 * found[0] if found else 0.0))


def allow_connections(count: int) -> None:
    """Room for that many open connections. Raises Failure where the system's hard limit is below."""
    need = count + 128
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < need:
        if hard != resource.RLIM_INFINITY and hard < need:
            raise Failure(
                f"{count} connections at once are more than this process may open ({hard} files)",
                hint=f"ulimit -n {need}, or fewer at once",
                code=Exit.USAGE,
                id="too_many_files",
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
