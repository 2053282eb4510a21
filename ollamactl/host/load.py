"""Requests to a server, many at once, over asyncio's transports. No proxies, no redirects, one connection a request,
as independent clients have."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import msgspec

from ollamactl.core.measure import Sample, Sent
from ollamactl.host.stream import Ended, Stream
from ollamactl.host.wire import NotHttp, Parser, Target, request

ROOM = 64 << 10  # bytes that are read of a connection at once
SPARE = 128  # files that are open beside connections


class Halt:
    """Ends whatever is in flight, once it is set: ^C, or the time limit."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.by: Ended = "interrupt"
        self.signal = 0
        self.flying: set[Stream] = set()

    def set(self, by: Ended, signal: int = 0) -> None:
        if not self.event.is_set():
            self.by, self.signal = by, signal
            self.event.set()
            for stream in self.flying:
                stream.leave(by)


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
        self._room = memoryview(bytearray(ROOM))

    def clock(self) -> float:
        return self._loop.time() - self._zero

    async def generate(self, number: int, body: bytes) -> Sent:
        """One request, to its end, its client's patience, or the halt."""
        over: asyncio.Future[Ended] = self._loop.create_future()
        at = self.clock()
        stream = Stream(request(self.where, "/api/generate", body), self.clock, over, self._room)
        opening = asyncio.ensure_future(self._open(stream))
        patience = None
        if self.client_timeout is not None:
            patience = self._loop.call_later(self.client_timeout, stream.leave, "timeout")
        self.halt.flying.add(stream)
        try:
            if self.halt.event.is_set():
                stream.leave(self.halt.by)
            ended = await over
        finally:
            self.halt.flying.discard(stream)
            if patience:
                patience.cancel()
            opening.cancel()
            if stream.transport:
                stream.transport.abort()
        found = stream.sent(number, at, self.clock(), ended)
        self.sent.append(found)
        return found

    async def _open(self, stream: Stream) -> None:
        made = socket.socket(self.where.family, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.sock_connect(made, self.where.address)
            name = self.where.name if self._tls else None
            await self._loop.create_connection(lambda: stream, sock=made, ssl=self._tls, server_hostname=name)
        except BaseException as error:
            made.close()
            if not isinstance(error, Exception):
                raise
            stream.fail(error)

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
        halted = asyncio.ensure_future(self.halt.event.wait())
        for number, moment in enumerate(moments):
            if (await asyncio.wait({halted}, timeout=max(0.0, moment - self.clock())))[0]:
                break
            if len(running) >= most:
                left_out += 1
                continue
            task = asyncio.ensure_future(self.generate(number, next(bodies)))
            running.add(task)
            task.add_done_callback(running.discard)
            task.add_done_callback(lambda _: tell())
        halted.cancel()
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


def allow_connections(count: int) -> int:
    """Room for that many open connections, or for as many as the system's hard limit leaves: how many."""
    if sys.platform == "win32":
        return count  # no such limit there
    import resource

    need = count + SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < need:
        soft = need if hard == resource.RLIM_INFINITY else min(need, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return count if soft == resource.RLIM_INFINITY else min(count, soft - SPARE)
