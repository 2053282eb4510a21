"""Who waits for a reply: the kernel's counters of real connections, through netlink and through ss alike."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import msgspec
import pytest

from ollamactl.core.facts import Connections, Listener
from ollamactl.core.parse.sockets import STREAMING, Row, Table, awaits, connections, judge
from ollamactl.core.source import http, native
from ollamactl.host import sockets
from ollamactl.host.live import LiveHost

pytestmark = pytest.mark.touches("loopback", "netlink", "machine")
HOST = LiveHost()
REQUEST = b"POST /api/generate HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"


class Served:
    """A listening server whose connections the test drives by hand, one pair at a time."""

    def __init__(self, listening: socket.socket, address: str) -> None:
        self.listening, self.address = listening, address
        self.port = listening.getsockname()[1]
        self.open = ExitStack()

    def pair(self) -> tuple[socket.socket, socket.socket]:
        client = self.open.enter_context(socket.create_connection((self.address, self.port)))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        served, _ = self.listening.accept()
        self.open.enter_context(served)
        return client, served

    def ask(self) -> tuple[socket.socket, socket.socket]:
        client, served = self.pair()
        client.sendall(REQUEST)
        assert served.recv(65536) == REQUEST
        return client, served

    def read(self) -> Connections:
        reading = HOST.read(native("sockets", str(self.port)))
        assert reading.missing is None and reading.body
        found = connections(reading.body)
        assert msgspec.json.decode(reading.body, type=Connections) == found  # the reading says so itself
        return found


FAMILIES = {
    "IPv4": (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
    "IPv6": (socket.AF_INET6, "::1", "::1"),
    "dual stack, IPv4 client": (socket.AF_INET6, "::ffff:127.0.0.1", "127.0.0.1"),
}


@pytest.fixture(params=FAMILIES)
def served(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    family, bound, address = FAMILIES[request.param]
    with socket.socket(family) as listening:
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind((bound, 0))
        listening.listen(8)
        made = Served(listening, address)
        with made.open:
            yield made


def test_idle_waiting_replied_and_gone(served: Served) -> None:
    served.pair()  # kept open by a browser, nothing asked
    waiting, _ = served.ask()
    _, answered = served.ask()
    answered.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    gone, _ = served.ask()
    gone.close()
    time.sleep(0.05)  # the FIN's way, and a tick of the kernel's clock
    found = served.read()
    assert (found.established, found.awaiting_reply, found.close_wait, found.backlog) == (3, 1, 1, 0)
    assert found.oldest_wait is not None and found.oldest_wait >= 0.04
    waiting.close()


def test_a_stream_is_replying_and_an_old_reply_is_not(served: Served) -> None:
    _, streaming = served.ask()
    streaming.sendall(b"token")
    found = served.read()
    assert (found.replying, found.awaiting_reply, found.oldest_wait) == (1, 0, None)
    rows = msgspec.json.decode(HOST.read(native("sockets", str(served.port))).body or b"", type=Table)
    later = [
        msgspec.structs.replace(r, since_sent=(r.since_sent or 0) + STREAMING, since_received=9.0)
        for r in rows.sockets
        if r.state == "established"
    ]
    old = judge(Table(port=served.port, sockets=tuple(later)))
    assert (old.established, old.replying, old.awaiting_reply) == (1, 0, 0)


def test_not_accepted_is_backlog(served: Served) -> None:
    with socket.create_connection((served.address, served.port)) as client:
        client.sendall(REQUEST)
        time.sleep(0.02)
        found = served.read()
        assert (found.backlog, found.established, found.awaiting_reply) == (1, 0, 0)
        accepted, _ = served.listening.accept()
        with accepted:
            found = served.read()
            assert (found.backlog, found.established, found.awaiting_reply) == (0, 1, 1)


@pytest.mark.parametrize("replies", [1, 2, 5])
def test_asking_again_within_a_tick_of_the_clock(served: Served, replies: int) -> None:
    """A client that reads a reply asks again within less than the kernel's resolution: it waits all the same."""
    for _ in range(10):
        client, server = served.pair()
        for _ in range(replies):
            client.sendall(REQUEST)
            server.recv(65536)
            server.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            client.recv(65536)
        client.sendall(REQUEST)
    time.sleep(0.1)
    assert served.read().awaiting_reply == 10


@pytest.mark.parametrize("replies", [1, 2, 5])
def test_answering_within_a_tick_of_the_clock(served: Served, replies: int) -> None:
    """A server that answers at once has answered, though both clocks say the same."""
    for _ in range(10):
        client, server = served.pair()
        for _ in range(replies):
            client.sendall(REQUEST)
            server.recv(65536)
            server.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            client.recv(65536)
    time.sleep(0.2)  # a delayed acknowledgement takes 40 ms
    found = served.read()
    assert (found.established, found.awaiting_reply) == (10, 0)


@pytest.mark.touches("process")
@pytest.mark.skipif(shutil.which("ss") is None, reason="no ss here")
def test_ss_says_the_same_as_netlink(served: Served) -> None:
    served.pair()
    served.ask()
    _, answered = served.ask()
    time.sleep(0.02)
    answered.sendall(b"x")
    gone, _ = served.ask()
    gone.close()
    with socket.create_connection((served.address, served.port)):
        time.sleep(0.05)
        by_netlink = msgspec.json.decode(sockets.table(served.port), type=Table)
        text = sockets._ss(served.port, None, 5.0, OSError(1, "not asked"))
    by_ss = sockets.parse_ss(text)
    assert by_netlink.by == "inet_diag" and len(by_ss) == len(by_netlink.sockets) == 6

    def steady(row: Row) -> Row:
        return msgspec.structs.replace(row, since_sent=None, since_received=None, since_acked=None, interface=0)

    assert sorted(map(repr, map(steady, by_ss))) == sorted(map(repr, map(steady, by_netlink.sockets)))
    assert judge(Table(port=served.port, sockets=tuple(by_ss))).awaiting_reply == 1


def test_rows_without_tcp_info_are_not_called_waiting() -> None:
    row = Row(state="established", local="::1", local_port=1, inode=7)
    assert not awaits(row)


def test_both_ends_on_loopback_are_counted_once(served: Served) -> None:
    served.ask()
    time.sleep(0.02)
    assert served.read().established == 1


# -- listeners --


def mine(port: int) -> list[Listener]:
    reading = HOST.read(native("listeners"))
    assert reading.missing is None
    return [x for x in msgspec.json.decode(reading.body or b"", type=list[Listener]) if x.port == port]


def test_listener_and_its_owner(served: Served) -> None:
    (found,) = mine(served.port)
    assert found.pid == os.getpid() and found.name
    assert found.address == served.listening.getsockname()[0].removeprefix("::ffff:")


@pytest.mark.touches("process")
@pytest.mark.skipif(os.geteuid() != 0, reason="changes to an ordinary user, which only root may")
def test_owner_of_anothers_socket_is_unknown_without_root() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"""
import os
from ollamactl.core.source import http, native
from ollamactl.host.live import LiveHost
import ollamactl.host.sockets
os.setgroups([]); os.setgid(65534); os.setuid(65534)
reading = LiveHost().read(native("listeners"))
found = [x for x in __import__("json").loads(reading.body) if x["port"] == {port}]
print([x.get("pid") for x in found], "sudo" in reading.stderr)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[None] True\n"


# -- another network namespace --


@pytest.mark.touches("process")
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="making a namespace takes root")
def test_a_service_with_a_network_of_its_own() -> None:
    """Its sockets, its listeners and its API are seen by way of its pid, and not without it."""
    code = """
import socket, subprocess
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
s = socket.create_server(("127.0.0.1", 11434)); print("up", flush=True)
c, _ = s.accept(); c.recv(65536)
c.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nhi")
w = socket.create_connection(("127.0.0.1", 11434)); w.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
a, _ = s.accept(); a.recv(9)
print("waiting", flush=True); input()
"""
    child = subprocess.Popen(
        ["unshare", "-n", sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout and child.stdin
    try:
        assert child.stdout.readline() == "up\n"
        answer = HOST.read(http("http://127.0.0.1:11434/", inside=child.pid))
        assert answer.body == b"hi", answer
        assert child.stdout.readline() == "waiting\n"
        there = connections(HOST.read(native("sockets", "11434", str(child.pid))).body or b"")
        assert (there.awaiting_reply, there.established) == (1, 1)
        seen = HOST.read(native("listeners", str(child.pid)))
        assert [x.pid for x in msgspec.json.decode(seen.body or b"", type=list[Listener])] == [child.pid]
        here = connections(HOST.read(native("sockets", "11434")).body or b"")
        assert here.awaiting_reply == 0
        # the thread that went there is gone, and we are where we were
        assert os.stat("/proc/self/ns/net").st_ino == os.stat(f"/proc/{os.getpid()}/ns/net").st_ino
        assert all(
            os.stat(f"/proc/self/task/{t}/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino
            for t in os.listdir("/proc/self/task")
        )
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def test_a_namespace_of_no_process_is_absent() -> None:
    reading = HOST.read(native("sockets", "11434", "999999999"))
    assert reading.missing and reading.missing.kind == "absent"


def test_no_leak_of_descriptors_or_threads(served: Served) -> None:
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(20):
        HOST.read(native("sockets", str(served.port)))
        HOST.read(native("listeners"))
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before
