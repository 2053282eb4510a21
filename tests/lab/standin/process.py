"""The stand-in as an ordinary process on loopback: for tests that need the server but no systemd."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .install import MODELS

PATIENCE = 90.0  # seconds until a wait counts as failed; a busy machine loads slowly


class Answer(NamedTuple):
    status: int
    body: str
    headers: dict[str, str]

    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """`ollama serve` with variables; its output is in `lines()`. Use as a context manager."""

    def __init__(
        self, root: Path, work: Path, variables: dict[str, Any] | None = None, address_space: int = 0
    ) -> None:
        self.root, self.output = root, work / "output.txt"
        self.port = free_port()
        self.env = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(work),
            "LANG": "C.UTF-8",
            "TMPDIR": str(work), "OLLAMA_HOST": f"127.0.0.1:{self.port}", "OLLAMA_MODELS": str(root / MODELS),
        }  # fmt: skip
        self.env |= {key: str(value) for key, value in (variables or {}).items()}
        limit = (address_space, address_space)
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                [str(root / "usr/local/bin/ollama"), "serve"], env=self.env, stdout=out, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_AS, limit)) if address_space else None,
            )  # fmt: skip

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """Ends it as systemd does; its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()

    def lines(self) -> list[str]:
        return self.output.read_text("utf-8", "replace").splitlines()

    def wait_line(self, part: str, count: int = 1) -> str:
        """The count-th line that holds `part`. Raises TimeoutError with the output."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = [line for line in self.lines() if part in line]
            if len(found) >= count:
                return found[count - 1]
            time.sleep(0.02)
        raise TimeoutError(f"no line with {part!r} in:\n" + "\n".join(self.lines()))

    def wait_ready(self) -> Server:
        self.wait_line("vram-based default context")
        return self

    def call(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        return call(self.port, method, path, body, headers)

    def generate(self, model: str = "gemma3:270m", prompt: str = "The sky is", **more: Any) -> Answer:
        options = {"num_predict": 2, "temperature": 0, "seed": 1} | more.pop("options", {})
        return self.call("POST", "/api/generate", {"model": model, "prompt": prompt, "options": options} | more)

    def runners(self) -> list[int]:
        """Pids of the runners, by the kernel."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def runner_port(self) -> int:
        words = Path(f"/proc/{self.runners()[-1]}/cmdline").read_text().split("\0")
        return int(words[words.index("--port") + 1])

    def kill_runner(self) -> None:
        os.kill(self.runners()[-1], signal.SIGKILL)
        while self.runners():
            time.sleep(0.01)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def call(port: int, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request(method, path, data, headers or {})
        answer = connection.getresponse()
        return Answer(answer.status, answer.read().decode("utf-8", "replace"), dict(answer.getheaders()))
    finally:
        connection.close()


@contextlib.contextmanager
def side_by_side(count: int, work: Any) -> Iterator[list[Any]]:
    """Runs `work(number)` in threads; the list holds the results once the block has been left."""
    out: list[Any] = [None] * count

    def one(number: int) -> None:
        out[number] = work(number)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    yield out
    for thread in threads:
        thread.join(PATIENCE)
