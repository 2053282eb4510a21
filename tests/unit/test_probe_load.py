"""The client that watches replies: HTTP in any pieces, lies of peers, patience, interruption."""

from __future__ import annotations

import asyncio
import itertools
import json
import resource
import socket
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollamactl.core.measure import Sent
from ollamactl.errors import Failure
from ollamactl.host import load, probing, wire
from ollamactl.host.load import Halt, Session
from ollamactl.host.probing import Wanted
from ollamactl.host.wire import NotHttp, Parser

LINES = [
    b'{"model":"m","response":"a","done":false}\n',
    b'{"model":"m","response":"","thinking":"b","done":false}\n',
    b'{"model":"m","response":"","done":true,"done_reason":"length","context":[1,2],"total_duration":2000000000,'
    b'"load_duration":100000000,"prompt_eval_count":9,"prompt_eval_duration":300000000,"eval_count":7,'
    b'"eval_duration":1000000000}\n',
]


def chunked(*lines: bytes) -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(line), line) for line in lines)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"


def plain(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d Said\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


# -- the parser --


def parse(pieces: list[bytes]) -> tuple[Parser, bytes]:
    got: list[bytes] = []
    parser = Parser(got.append)
    for piece in pieces:
        parser.feed(piece)
    return parser, b"".join(got)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = sorted({p % (len(data) + 1) for p in places} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(at)]


@given(st.lists(st.integers(0, 10_000), max_size=40), st.sampled_from(["chunked", "length", "close", "continue"]))
def test_a_response_in_any_pieces_is_the_same(places: list[int], form: str) -> None:
    body = b"".join(LINES)
    data = {
        "chunked": chunked(*LINES),
        "length": plain(200, body),
        "close": b"HTTP/1.0 200 OK\r\n\r\n" + body,
        "continue": b"HTTP/1.1 100 Continue\r\n\r\n" + chunked(body),
    }[form]
    parser, got = parse(cut(data, places))
    assert (parser.status, got) == (200, body)
    assert parser.eof() is True


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_rubbish_is_refused_or_waited_for_never_more(data: bytes, places: list[int]) -> None:
    try:
        parser, _ = parse(cut(data, places))
    except NotHttp:
        return
    assert parser.status is None or data.startswith(b"HTTP/1.")


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 70_000,
    ],
)
def test_what_is_no_http_is_refused(data: bytes) -> None:
    with pytest.raises(NotHttp):
        parse([data])


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://", "http://a:99999", "http://u:p@h", "http://h/?q=1", "http://h\r\nX: y", "http://ü"]
)
def test_what_is_no_address_is_usage(url: str) -> None:
    with pytest.raises(Failure):
        wire.target(url)


@pytest.mark.touches("loopback")
def test_of_a_name_with_two_addresses_the_one_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `localhost` of a host with IPv6 has, before a server on 127.0.0.1 only."""
    with socket.socket() as silent, socket.create_server(("127.0.0.1", 0)) as server:
        silent.bind(("127.0.0.1", 0))
        addresses = [silent.getsockname(), server.getsockname()]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        assert wire.target("http://localhost").address == server.getsockname()
        found.pop()
        assert wire.target("http://localhost").address == silent.getsockname()


# -- whole requests --

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def ask(
    answer: Answer,
    *,
    patience: float | None = None,
    after: float | None = None,
    count: int = 1,
    tls: ssl.SSLContext | None = None,
) -> list[Sent]:
    """`count` requests at once to a server that answers each connection with `answer`; `after` seconds all halts."""

    async def run() -> list[Sent]:
        async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.startswith(b"Content-Length"))
                await reader.readexactly(length)
                await answer(reader, writer)
                await writer.drain()
            except (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(served, "127.0.0.1", 0, ssl=tls)
        port = server.sockets[0].getsockname()[1]
        halt = Halt()
        session = Session(wire.target(f"http{'s' if tls else ''}://127.0.0.1:{port}"), halt, patience)
        if after is not None:
            asyncio.get_running_loop().call_later(after, halt.set, "interrupt")
        bodies = iter(lambda: json.dumps({"model": "m"}).encode(), None)
        await session.closed(count, 1, bodies, lambda: None)
        server.close()
        return session.sent

    return asyncio.run(run())


def writes(*pieces: bytes, pause: float = 0.0) -> Answer:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            if pause:
                await asyncio.sleep(pause)

    return answer


touches = pytest.mark.touches("loopback")


@touches
def test_a_stream_is_read_to_its_last_object() -> None:
    data = chunked(*LINES)
    (sent,) = ask(writes(data[:80], data[80:150], data[150:], pause=0.02))
    assert sent.complete and sent.status == 200 and sent.tokens == 7
    assert len(sent.arrivals) == 2 and sent.first == sent.arrivals[0] <= sent.arrivals[1] <= sent.end
    assert sent.reply is not None
    assert sent.reply.wait == pytest.approx(2.0 - 0.1 - 0.3 - 1.0)
    assert (sent.reply.prompt_tokens, sent.reply.reason) == (9, "length")
    assert sent.rate == pytest.approx(7.0)


@touches
@pytest.mark.parametrize(
    ("data", "status", "says"),
    [
        (plain(503, b'{"error":"server busy, please try again."}'), 503, "server busy, please try again."),
        (plain(404, b'{"error":"model \'m\' not found"}'), 404, "model 'm' not found"),
        (plain(502, b"<html>\n<h1>502 Bad Gateway</h1>"), 502, "<html>"),
        (plain(301, b""), 301, "HTTP 301"),
        (chunked(LINES[0], b'{"error":"the runner died"}\n'), 200, "the runner died"),
        (chunked(b"no json\n"), 200, "not a stream of /api/generate"),
        (chunked(b'{"response": 5}\n'), 200, "not a stream of /api/generate"),
        (chunked(b"[" * 100_000 + b"\n"), 200, "not a stream of /api/generate"),
        (chunked(LINES[0])[:-5], 200, "the server closed the connection before the reply's end"),
        (b"", None, "the server closed the connection before the reply's end"),
        (chunked(), 200, "the stream ended without its last object"),
        (b"220 mail.example.org ESMTP\r\n", None, "not an HTTP answer"),
    ],
)
def test_what_went_wrong_is_said(data: bytes, status: int | None, says: str) -> None:
    (sent,) = ask(writes(data))
    assert (sent.status, sent.error, sent.ended_by) == (status, says, "error")
    assert not sent.complete


@touches
def test_a_reply_that_is_broken_off_is_complete_without_durations() -> None:
    (sent,) = ask(writes(chunked(*LINES[:2])))
    assert sent.complete and sent.reply is None and sent.tokens == 2


@pytest.mark.touches("loopback", "process")
def test_a_stream_over_tls_only_from_whom_we_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=x", "-addext",
            "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]  # fmt: skip
    subprocess.run(make, check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    (stranger,) = ask(writes(chunked(*LINES)), tls=tls)
    assert stranger.status is None and "CERTIFICATE_VERIFY_FAILED" in stranger.error
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    pieces = [chunked(*LINES)[n : n + 50] for n in range(0, len(chunked(*LINES)), 50)]
    for sent in ask(writes(*pieces, pause=0.01), tls=tls, count=4):
        assert sent.complete and sent.tokens == 7 and len(sent.arrivals) == 2


@touches
def test_a_client_gives_up() -> None:
    (sent,) = ask(writes(chunked(*LINES)[:90], pause=5.0), patience=0.2)
    assert (sent.ended_by, sent.status, sent.error, sent.reply) == ("timeout", 200, "", None)


@touches
def test_a_halt_ends_what_is_in_flight() -> None:
    found = ask(writes(b"", pause=30.0), after=0.2, count=8)
    assert [s.ended_by for s in found] == ["interrupt"] * 8


@touches
def test_nothing_listens() -> None:
    async def run() -> Sent:
        with socket.socket() as bound:  # and never listens
            bound.bind(("127.0.0.1", 0))
            where = wire.target(f"http://127.0.0.1:{bound.getsockname()[1]}")
            return await Session(where, Halt()).generate(0, b"{}")

    sent = asyncio.run(run())
    assert (sent.error, sent.status) == ("nothing listens there", None)


@touches
def test_slots_are_counted() -> None:
    async def run() -> tuple[object, object]:
        bodies = [b'[{"id":0,"is_processing":true,"x":[1]},{"id":1,"is_processing":false}]', b'{"error":"no"}']

        async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(plain(200, bodies.pop(0)))
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(served, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        return await load.slots(port), await load.slots(port)

    assert asyncio.run(run()) == ((2, 1), None)


@touches
def test_arrivals_do_not_wait_for_those_before() -> None:
    async def run() -> tuple[list[Sent], int]:
        async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(30)

        server = await asyncio.start_server(served, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        session = Session(wire.target(f"http://127.0.0.1:{port}"), Halt(), 0.5)
        bodies = iter(lambda: b"{}", None)
        left_out = await session.open([0.0, 0.01, 0.02, 0.03], bodies, 3, lambda: None)
        return session.sent, left_out

    sent, left_out = asyncio.run(run())
    assert left_out == 1  # three hang on, the fourth is one too many
    assert [s.ended_by for s in sent] == ["timeout"] * 3


@pytest.mark.parametrize(
    ("limits", "wanted", "most", "becomes"),
    [
        ((1024, 1 << 20), 64, 64, None),
        ((1024, 1 << 20), 4096, 4096, 4224),
        ((1024, 4096), 4096, 3968, 4096),  # an old systemd's hard limit
        ((4096, 4096), 4096, 3968, 4096),
        ((256, resource.RLIM_INFINITY), 4096, 4096, 4224),
    ],
)
def test_as_many_connections_as_may_be_open(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], wanted: int, most: int, becomes: int | None
) -> None:
    now = [limits]
    monkeypatch.setattr(resource, "getrlimit", lambda _: now[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: now.append(new))
    assert load.allow_connections(wanted) == most
    assert [new[0] for new in now[1:]] == ([] if becomes is None else [becomes])


def test_more_at_once_than_may_be_open_is_usage_arrivals_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "allow_connections", lambda count: min(count, 100))
    with pytest.raises(Failure) as failed:
        probing._most(Wanted(model="m", clients=(8, 200)))
    assert failed.value.id == "too_many_files"
    assert probing._most(Wanted(model="m", clients=(8, 64))) == 64
    assert probing._most(Wanted(model="m", rate=5.0)) == 100
