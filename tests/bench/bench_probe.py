"""What probe's own client costs: its first-token times beside those of bare sockets, from a server that paces its
tokens on the other core.

Both clients take turns, and each turn is compared with the one beside it; the first turn of both is not counted. As
root all three have their cores before other programs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import resource
import selectors
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from ollamactl.host import wire
from ollamactl.host.load import Halt, Session
from tests.bench.figures import figure, goal, undisturbed

TOKENS, FIRST, GAP = 20, 0.3, 0.05  # of each reply: tokens, seconds to the first one, seconds between


def serve(ready: Any, core: int | None) -> None:
    """Replays one stream to each connection at its own pace: the first token FIRST seconds after the request."""
    if core is not None:
        os.sched_setaffinity(0, {core})
    line = json.dumps({"model": "m", "created_at": "2026-01-01T00:00:00Z", "response": " a", "done": False}).encode()
    last = json.dumps({"model": "m", "response": "", "done": True, "done_reason": "length",
                       "total_duration": int((FIRST + GAP * TOKENS) * 1e9), "prompt_eval_duration": int(FIRST * 1e9),
                       "eval_duration": int(GAP * TOKENS * 1e9), "eval_count": TOKENS}).encode()  # fmt: skip
    chunk = b"%x\r\n%b\n\r\n" % (len(line) + 1, line)
    end = b"%x\r\n%b\n\r\n0\r\n\r\n" % (len(last) + 1, last)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"

    class Replay(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self.transport, self.data = transport, b""
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def data_received(self, data: bytes) -> None:
            self.data += data
            if self.data.endswith(b"}"):
                self.at, self.sent = asyncio.get_running_loop().time() + FIRST, 0
                asyncio.get_running_loop().call_at(self.at, self.next)

        def next(self) -> None:
            if self.transport.is_closing():
                return
            self.sent += 1
            self.transport.write((head if self.sent == 1 else b"") + chunk)
            if self.sent == TOKENS:
                self.transport.write(end)
                self.transport.close()
            else:
                asyncio.get_running_loop().call_at(self.at + GAP * self.sent, self.next)

    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(Replay, "127.0.0.1", 0, backlog=4096)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def bare(port: int, moments: list[float]) -> list[float]:
    """First-token times of plain sockets and a selector, each sent at its moment: nothing is parsed."""
    body = b'{"model":"m"}'
    asked = b"POST /api/generate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    chosen, sent, firsts = selectors.DefaultSelector(), [], {}  # type: ignore[var-annotated]
    zero = time.monotonic()
    while len(sent) < len(moments) or chosen.get_map():
        if len(sent) < len(moments) and time.monotonic() - zero >= moments[len(sent)]:
            made = socket.create_connection(("127.0.0.1", port))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            chosen.register(made, selectors.EVENT_READ, len(sent))
            sent.append(time.monotonic())
            made.sendall(asked)
            continue
        left = max(0.0, moments[len(sent)] - (time.monotonic() - zero)) if len(sent) < len(moments) else None
        for key, _ in chosen.select(left):
            data = key.fileobj.recv(65536)  # type: ignore[union-attr]
            if b'"response"' in data:
                firsts.setdefault(key.data, time.monotonic() - sent[key.data])
            if not data:
                chosen.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]
    return list(firsts.values())


def paced(port: int, moments: list[float]) -> list[float]:
    """First-token times of probe's client, each sent at its moment."""

    async def run() -> Session:
        session = Session(wire.target(f"http://127.0.0.1:{port}"), Halt())
        await session.open(moments, iter(lambda: b'{"model":"m"}', None), len(moments), lambda: None)
        return session

    return [s.first_token for s in asyncio.run(run()).sent if s.complete and s.first_token]


def probed(port: int, count: int) -> tuple[list[float], int]:
    """First-token times of probe's client, all at once, and how many requests were not complete."""

    async def run() -> Session:
        session = Session(wire.target(f"http://127.0.0.1:{port}"), Halt())
        await session.closed(count, 1, iter(lambda: b'{"model":"m"}', None), lambda: None)
        return session

    sent = asyncio.run(run()).sent
    return [s.first_token for s in sent if s.complete and s.first_token], sum(not s.complete for s in sent)


@contextlib.contextmanager
def replaying() -> Iterator[int]:
    """The server on one core and this process on another; its port."""
    cores = sorted(os.sched_getaffinity(0))
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(theirs, cores[1] if len(cores) > 1 else None), daemon=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 8192), hard), hard))
    server.start()
    os.sched_setaffinity(0, {cores[0]})
    try:
        yield ours.recv()
    finally:
        os.sched_setaffinity(0, cores)
        server.terminate()
        server.join()


class Turn(msgspec.Struct, frozen=True):
    """One client's streams: median first token and the client's processor time for a token, seconds."""

    first: float
    busy: float


def turn(client: Callable[[int, list[float]], list[float]], port: int, streams: int) -> Turn:
    moments = [n * 0.004 for n in range(streams)]  # all are in flight before the first reply begins
    began = time.process_time()
    firsts = client(port, moments)
    busy = time.process_time() - began
    assert len(firsts) == streams
    return Turn(statistics.median(firsts), busy / (streams * TOKENS))


def figures(streams: int = 64, many: int = 1000, rounds: int = 9) -> dict[str, Any]:
    """Medians of turns with `streams`, and `many` streams at once on one core."""
    with undisturbed(), replaying() as port:
        pairs: list[tuple[Turn, Turn]] = []  # bare, probe
        for n in range(rounds + 1):
            clients = (bare, paced) if n % 2 else (paced, bare)
            found = {client: turn(client, port, streams) for client in clients}
            pairs.append((found[bare], found[paced]))
        del pairs[0]
        began = time.process_time()
        firsts, failed = probed(port, many)
        busy = time.process_time() - began
    return {
        "bare_ms": 1000 * statistics.median(b.first for b, _ in pairs),
        "probe_ms": 1000 * statistics.median(p.first for _, p in pairs),
        "difference_ms": 1000 * statistics.median(p.first - b.first for b, p in pairs),
        "bare_us": 1e6 * statistics.median(b.busy for b, _ in pairs),
        "probe_us": 1e6 * statistics.median(p.busy for _, p in pairs),
        "many_failed": failed,
        "many_first_ms": 1000 * statistics.median(firsts),
        "many_cpu_s": busy,
    }


def main() -> bool:
    """Whether a goal was missed."""
    streams, many = 64, 1000
    found = figures(streams, many)
    figure(f"first token, median of {streams} streams, bare sockets", found["bare_ms"], "ms")
    figure(f"first token, median of {streams} streams, probe", found["probe_ms"], "ms")
    missed = goal("difference, median of turns side by side", abs(found["difference_ms"]), 2.0, "ms")
    figure("the client's processor time for a token, bare sockets", found["bare_us"], "µs")
    figure("the client's processor time for a token, probe", found["probe_us"], "µs")
    missed |= goal(f"{many} streams on one core: requests that failed", found["many_failed"], 0.0)
    figure(f"{many} streams on one core: first token", found["many_first_ms"], "ms")
    figure(f"{many} streams on one core: CPU time of the client", found["many_cpu_s"], "s")
    return missed


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
