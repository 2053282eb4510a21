"""How soon the front refuses what is more than its places: Debian's nginx with our file, 64 clients whose connections
are open, two slots and a queue of two before a server that keeps its slots.

Each refusal is timed from the moment its request was written to the first byte of its answer, and nothing else runs in
the client but one loop over ready sockets; the processor's time that nginx takes is told beside it. As root all of it
has the cores before other programs.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from ollamactl.platforms import nginx
from tests.bench.figures import figure, goal, median, undisturbed

CLIENTS, SLOTS, QUEUE = 64, 2, 2
HOLD = 2.0  # seconds that a served request keeps its slot
BODY = b'{"model":"m","prompt":"x"}'
ASKED = b"POST /api/generate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


def keep(ready: Any, most: Any) -> None:
    """A server that answers each request HOLD seconds after it came, and counts how many it had at once."""
    server = socket.create_server(("127.0.0.1", 0), backlog=256)
    ready.send(server.getsockname()[1])
    chosen = selectors.DefaultSelector()
    chosen.register(server, selectors.EVENT_READ)
    held: dict[socket.socket, float] = {}
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
    while True:
        now = time.monotonic()
        for made in [s for s, since in held.items() if now - since >= HOLD]:
            del held[made]
            with contextlib.suppress(OSError):
                made.sendall(answer)
            made.close()
        for key, _ in chosen.select(0.01):
            if key.fileobj is server:
                made, _ = server.accept()
                chosen.register(made, selectors.EVENT_READ)
            else:
                made = key.fileobj  # type: ignore[assignment]
                chosen.unregister(made)
                if made.recv(65536):
                    held[made] = time.monotonic()
                    most.value = max(most.value, len(held))
                else:
                    made.close()


def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as s:
        return int(s.getsockname()[1])


@contextlib.contextmanager
def front(upstream: int, folder: Path) -> Iterator[int]:
    """Our file under Debian's nginx, in a folder of its own; the port."""
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    outer = port()
    made = nginx.Front(listen=f"127.0.0.1:{outer}", inner=f"127.0.0.1:{port()}", upstream=f"127.0.0.1:{upstream}",
                       slots=SLOTS, queue=QUEUE, per_client=1000, rate=10_000, auth="none")  # fmt: skip
    (folder / "front.conf").write_text(nginx.render(made))
    temps = "".join(
        f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off;\npid {folder}/pid;\nerror_log {folder}/error.log;\nworker_processes auto;\n"
        + ("user root;\n" if os.geteuid() == 0 else "")
        + f"events {{ worker_connections 2048; }}\nhttp {{\n"
        f"access_log {folder}/access.log;\n{temps}include {folder}/front.conf;\n}}\n"
    )
    process = subprocess.Popen([program, "-c", str(folder / "nginx.conf")], stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", outer), 0.1):
                break
            time.sleep(0.02)
        yield outer
    finally:
        process.terminate()
        process.wait()


def burst(at: int) -> list[float]:
    """Milliseconds of each refusal, when all that were not refused have their replies too."""
    opened = [socket.create_connection(("127.0.0.1", at)) for _ in range(CLIENTS)]
    chosen = selectors.DefaultSelector()
    for s in opened:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        chosen.register(s, selectors.EVENT_READ)
    time.sleep(0.1)  # the connections are accepted
    sent = {}
    for s in opened:
        s.sendall(ASKED)
        sent[s] = time.monotonic()
    refused, others = [], 0
    while len(refused) + others < CLIENTS:
        for key, _ in chosen.select():
            now = time.monotonic()
            s = key.fileobj  # type: ignore[assignment]
            chosen.unregister(s)
            if s.recv(4096).startswith(b"HTTP/1.1 503"):
                refused.append(1000 * (now - sent[s]))
            else:
                others += 1
    for s in opened:
        s.close()
    return refused


@contextlib.contextmanager
def keeping(most: Any) -> Iterator[int]:
    """The server of `keep` in a process of its own; its port."""
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=keep, args=(theirs, most), daemon=True)
    server.start()
    try:
        yield ours.recv()
    finally:
        server.terminate()
        server.join()


def figures(rounds: int = 5) -> dict[str, Any]:
    most = multiprocessing.Value("i", 0)
    with (
        undisturbed(),
        keeping(most) as upstream,
        tempfile.TemporaryDirectory() as folder,
        front(upstream, Path(folder)) as at,
    ):
        began = busy()
        bursts = [burst(at) for _ in range(rounds)]
        spent = busy() - began
    refused = [ms for times in bursts for ms in times]
    return {
        "in_flight": most.value,
        "refused": len(refused),
        "refused_ms": median(refused),
        "slowest_ms": max(refused),
        "cpu_ms": 1000 * spent / len(refused),
    }


def busy() -> float:
    """Seconds of processor time of all nginx processes of ours."""
    times = [c.cpu_times() for c in psutil.Process().children(recursive=True) if c.name() == "nginx"]
    return sum(t.user + t.system for t in times)


def main() -> bool:
    """Whether a goal was missed."""
    found = figures()
    missed = goal(f"{CLIENTS} clients at {SLOTS} slots: most in flight", found["in_flight"], SLOTS + QUEUE)
    figure("refused in all", found["refused"])
    figure("a refusal, median, from its writing", found["refused_ms"], "ms")
    figure("nginx's processor time for one", found["cpu_ms"], "ms")
    return missed | goal("the slowest refusal of all rounds", found["slowest_ms"], 50.0, "ms")


if __name__ == "__main__":
    sys.exit(main())
