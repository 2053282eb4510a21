"""One reply of /api/generate, watched byte by byte. A token's time is the moment at which the event loop hands over
the bytes that hold it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Literal

import msgspec

from ollamactl.core.measure import Reply, Sent
from ollamactl.host.wire import NotHttp, Parser

LINE = 32 << 20  # bytes of one line: the last object of a reply lists the whole context
KEPT = 4096  # of an error's body; and moments of tokens of one request
Ended = Literal["reply", "error", "timeout", "interrupt", "limit"]


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


class Stream(asyncio.BufferedProtocol):
    """One POST /api/generate. `over` says what ended it. `room` is where the loop puts bytes on
    their way here, the same for all streams of a loop: a new one for each token would be most of a token's cost."""

    def __init__(
        self, request: bytes, clock: Callable[[], float], over: asyncio.Future[Ended], room: memoryview
    ) -> None:
        self.request, self.clock, self.over, self.room = request, clock, over, room
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

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.room

    def buffer_updated(self, nbytes: int) -> None:
        self._now = self.clock()
        try:
            self.parser.feed(bytes(self.room[:nbytes]))
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
            self._end(said(error))

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
        self.over.set_result("error" if self.error else "reply")
        if self.transport:
            self.transport.abort()

    def fail(self, error: BaseException) -> None:
        """It could not be sent."""
        self._end(said(error))

    def leave(self, by: Ended) -> None:
        """Its client goes away."""
        if not self.over.done():
            self.over.set_result(by)

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
            ended_by=ended_by,
        )


def _error_text(body: bytes) -> str:
    try:
        return _decode(body).error
    except (msgspec.DecodeError, RecursionError):
        return body[:200].decode("utf-8", "replace").strip().partition("\n")[0]


def said(error: BaseException) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "the server cut the connection"
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
