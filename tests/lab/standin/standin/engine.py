"""One runner process: its command line, its start, what its output says, and requests to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from . import envconfig, switches
from .gofmt import log, raw

# Lines that Ollama keeps as the cause of a failed load
_CAUSE = re.compile(
    rb"insufficient memory|failed to allocate|failed to initialize the context|error loading model|GGML_ASSERT"
)
_BUFFER = re.compile(rb"^\S+:\s+(\S+) (model|KV|compute|RS)? *(?:output)? *buffer size\s*=\s*([\d.]+) MiB")
_POLL = 0.25  # seconds between two looks at a loading runner


class LoadFailed(Exception):
    """The text is the error body and the journal's cause."""


class RunnerGone(Exception):
    """The runner died under a request."""


class Spec(NamedTuple):
    """What decides a runner's command line."""

    model: str
    ctx: int  # of one slot
    parallel: int
    batch: int
    kv_type: str
    flash: str
    embedding: bool
    mmap: bool
    threads: int
    gpu_layers: int

    def arguments(self) -> list[str]:
        kv = ["--cache-type-k", self.kv_type, "--cache-type-v", self.kv_type] if self.kv_type else []
        return [
            "-c", str(self.ctx * self.parallel), "-np", str(self.parallel),
            "--log-verbosity", "4", "--no-log-prefix", "--no-log-timestamps",
            *([] if self.mmap else ["--load-mode", "none"]), *kv, "--flash-attn", self.flash,
            *(["--embedding"] if self.embedding else []), "-b", str(self.batch), "-ub", str(self.batch),
            *(["-t", str(self.threads)] if self.threads > 0 else []),
            *(["-ngl", str(self.gpu_layers)] if self.gpu_layers >= 0 else []), "--context-shift", "--keep", "4",
        ]  # fmt: skip


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def program(name: str) -> str:
    """Beside this very program, wherever the tree was put."""
    prefix = os.path.dirname(os.path.dirname(os.readlink("/proc/self/exe")))
    return os.path.join(prefix, "bin", "ollama") if name == "ollama" else os.path.join(prefix, "lib", "ollama", name)


class Runner:
    """A started runner. `size` and `size_vram` are bytes from the engine's buffer lines, as Ollama reads them."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.port = free_port()
        self.slots = asyncio.Semaphore(spec.parallel)
        self.process: asyncio.subprocess.Process | None = None
        self.causes: list[str] = []
        self.buffers: dict[tuple[bytes, bytes], int] = {}
        self._relay: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        return self.process.pid if self.process else 0

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    @property
    def size(self) -> int:
        return sum(self.buffers.values())

    @property
    def size_vram(self) -> int:
        return sum(size for (device, _), size in self.buffers.items() if not device.startswith(b"CPU"))

    def command(self) -> list[str]:
        if switches.has_old_runner():
            return [
                program("ollama"),
                "runner",
                "--ollama-engine",
                "--model",
                self.spec.model,
                "--port",
                str(self.port),
            ]
        head = [program("llama-server"), "--model", self.spec.model, "--port", str(self.port), "--host", "127.0.0.1"]
        return [*head, "--no-webui", "--offline", *self.spec.arguments()]

    async def start(self) -> None:
        command = self.command()
        env = dict(os.environ)
        library = os.path.dirname(program("llama-server"))
        env["LD_LIBRARY_PATH"] = library
        if switches.has_old_runner():
            env["STANDIN_RUNNER_ARGS"] = " ".join(self.spec.arguments())
            log.info("server.go:392", "starting runner", cmd=" ".join(command))
            for step in ("fit", "alloc", "commit"):
                log.info("runner.go:1172", "load", request=self._load_request(step))
        else:
            log.info("llama_server.go:433", "starting llama-server", cmd=" ".join(command))
        log.debug("llama_server.go:434", "subprocess", PATH=os.environ.get("PATH", ""), LD_LIBRARY_PATH=library)
        self.process = await asyncio.create_subprocess_exec(
            *command, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, limit=1 << 20,
        )  # fmt: skip
        self._relay = asyncio.create_task(self._read())

    def _load_request(self, step: str) -> str:
        spec = self.spec
        return (
            f"{{Operation:{step} LoraPath:[] Parallel:{spec.parallel} BatchSize:{spec.batch} "
            f"FlashAttention:{'true' if spec.flash == 'on' else 'false'} KvSize:{spec.ctx * spec.parallel} "
            f"KvCacheType:{spec.kv_type} NumThreads:{os.cpu_count()} GPULayers:[] MultiUserCache:false ProjectorPath: "
            "MainGPU:0 UseMmap:false}"
        )

    async def _read(self) -> None:
        assert self.process is not None and self.process.stdout is not None
        async for line in self.process.stdout:
            text = line.rstrip(b"\n")
            if match := _BUFFER.match(text):
                # one entry a device and kind: of a model with two caches the later line stays alone
                kind = match[2] or b"output"
                self.buffers[match[1], kind] = int(float(match[3]) * (1 << 20))
            if _CAUSE.search(text) and b"common_" not in text:
                self.causes.append(text.decode("utf-8", "replace"))
            raw(text.decode("utf-8", "surrogateescape"))

    async def wait_ready(self) -> None:
        """Polls as Ollama does. Raises LoadFailed when the process ends or the time is over."""
        began, said = time.monotonic(), ""
        log.info("llama_server.go:1295", "waiting for llama-server to start responding")
        while True:
            await self._fail_if_gone()
            status = await self._health()
            if status == "llm server ready":
                break
            if status != said:
                log.info("llama_server.go:1350", "waiting for llama-server to become available", status=status)
                said = status
            if time.monotonic() - began > envconfig.load_timeout() / 1e9:
                await self.stop()
                raise LoadFailed(f"timed out waiting for llama-server to start - {status}")
            await asyncio.sleep(_POLL)
        log.info("llama_server.go:1362", f"llama-server started in {time.monotonic() - self.began:.2f} seconds")

    began = 0.0

    async def _fail_if_gone(self) -> None:
        assert self.process is not None
        if self.process.returncode is None:
            return
        if self._relay:
            await self._relay
        status = exit_text(self.process.returncode)
        if self.causes:
            log.error("llama_server.go:1023", "llama-server terminated", error=status, exit=self.process.returncode)
        tail = ": " + "\n".join(self.causes) if self.causes else ""
        raise LoadFailed(f"llama-server process has terminated: {status}{tail}")

    async def _health(self) -> str:
        try:
            status, _ = await asyncio.wait_for(self.call("GET", "/health"), 10)
        except (OSError, RunnerGone, TimeoutError, asyncio.TimeoutError):
            return "llm server not responding"
        return "llm server ready" if status == 200 else "llm server loading model"

    async def stop(self) -> None:
        if self.process is None:
            return
        log.debug("llama_server.go:2580", "stopping llama-server", pid=self.pid)
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)
        log.debug("llama_server.go:2585", "waiting for llama-server to exit", pid=self.pid)
        try:
            await asyncio.wait_for(self.process.wait(), 5)
        except (TimeoutError, asyncio.TimeoutError):
            self.process.kill()
            await self.process.wait()
        if self._relay:
            await self._relay
        log.debug("llama_server.go:2588", "llama-server stopped", pid=self.pid)

    def ping(self) -> bool:
        """Whether the process still runs; Ollama learns of a dead one only here."""
        if self.alive:
            return True
        code = self.process.returncode if self.process else 0
        number = -(code or 0)
        log.warn(
            "llama_server.go:1196", "llama-server process no longer running", sys=number, string=exit_text(code or 0)
        )
        return False

    async def _open(self, method: str, path: str, body: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, int]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nConnection: close\r\n"
        writer.write(f"{head}Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        line = await reader.readline()
        if not line:
            writer.close()
            raise RunnerGone("EOF")
        return reader, writer, int(line.split()[1])

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and decoded JSON. Raises OSError or RunnerGone."""
        reader, writer, status = await self._open(method, path, body)
        try:
            data = b"".join([chunk async for chunk in _body(reader)])
            return status, json.loads(data) if data else None
        except (ValueError, asyncio.IncompleteReadError) as error:
            raise RunnerGone(str(error)) from error
        finally:
            writer.close()

    async def stream(self, path: str, body: Any) -> AsyncIterator[dict[str, Any]]:
        """The engine's server-sent events. Leaving the loop closes the connection, which cancels the engine's task."""
        try:
            reader, writer, status = await self._open("POST", path, body)
        except OSError as error:
            raise RunnerGone(str(error)) from error
        try:
            rest, ended = b"", False
            async for chunk in _body(reader):
                rest += chunk
                if status != 200:
                    continue
                *events, rest = rest.split(b"\n\n")
                for event in events:
                    if event.startswith(b"data: {"):
                        value = json.loads(event[6:])
                        ended = ended or bool(value.get("stop"))
                        yield value
            if status != 200:
                raise LoadFailed(json.loads(rest).get("error", {}).get("message", "unknown error"))
            if not ended:
                raise RunnerGone("unexpected EOF")
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise RunnerGone("unexpected EOF") from error
        finally:
            writer.close()


def exit_text(code: int) -> str:
    names = {9: "killed", 15: "terminated", 11: "segmentation fault", 6: "aborted"}
    return f"exit status {code}" if code >= 0 else f"signal: {names.get(-code, str(-code))}"


async def _body(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    length, chunked = None, False
    while (line := (await reader.readline()).strip().lower()) != b"":
        if line.startswith(b"content-length:"):
            length = int(line.split(b":")[1])
        chunked = chunked or line.startswith(b"transfer-encoding: chunked")
    if chunked:
        while size := int((await reader.readline()).strip() or b"0", 16):
            yield await reader.readexactly(size)
            await reader.readexactly(2)
    elif length is not None:
        yield await reader.readexactly(length)
    else:
        yield await reader.read()
