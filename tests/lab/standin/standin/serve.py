"""`ollama serve`: the start lines in their order, and the end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import time

from . import envconfig, gofmt, options, store, switches
from .api import Api
from .engine import program
from .gofmt import human_bytes2, log, raw
from .httpd import Connection, listen
from .requestlog import RequestLog
from .scheduler import Scheduler, memory

_OFFLINE = "dial tcp: lookup ollama.com: Temporary failure in name resolution"
_CAUSES = {
    errno.EADDRINUSE: "bind: address already in use", errno.EACCES: "bind: permission denied",
    errno.EADDRNOTAVAIL: "bind: cannot assign requested address",
}  # fmt: skip


def main(_arguments: list[str]) -> int:
    envconfig.values()  # the early warnings, in the form of the plain logger
    _, host, port, _ = envconfig.host()
    if switches.hang() == "start":
        time.sleep(1 << 30)
    try:
        sock = listen(host, port)
    except socket.gaierror:
        raw(f"Error: listen tcp: lookup {host}: no such host")
        return 1
    except OSError as error:
        raw(f"Error: listen tcp {host}:{port}: {_CAUSES.get(error.errno or 0, os.strerror(error.errno or 0))}")
        return 1
    log.structured, log.level = True, envconfig.log_level()
    values = envconfig.values()
    if not switches.no_config_line():
        log.info("routes.go:1951", "server config", env=envconfig.go_map(switches.config_map(values)))
    try:
        os.makedirs(os.path.join(envconfig.models(), "blobs"), exist_ok=True)
    except OSError as error:
        cause = os.strerror(error.errno or 0).lower()
        raw(f"Error: mkdir {error.filename}: {cause}: ensure path elements are traversable")
        return 1
    return asyncio.run(_serve(sock))


async def _serve(sock: socket.socket) -> int:
    cloud = not envconfig.boolean("OLLAMA_NO_CLOUD")
    log.info("routes.go:1953", f"Ollama cloud disabled: {'false' if cloud else 'true'}")
    if not envconfig.boolean("OLLAMA_NOPRUNE"):
        log.info("images.go:919", f"total blobs: {store.count_blobs()}")
        log.info("images.go:926", "total unused blobs removed: 0")
    requests = RequestLog() if envconfig.boolean("OLLAMA_DEBUG_LOG_REQUESTS") else None
    scheduler = Scheduler()
    address = sock.getsockname()
    shown = f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"
    log.debug("model_list_cache.go:71", "starting model list cache")
    api = Api(scheduler, envconfig.is_loopback(address[0]), requests)
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = await loop.create_server(lambda: Connection(api.handle), sock=sock, backlog=4096)
    log.info("routes.go:2008", f"Listening on {shown} (version {switches.release()})")
    jobs = [asyncio.create_task(scheduler.run()), asyncio.create_task(_discover(cloud))]
    if switches.die_after():
        loop.call_later(switches.die_after(), os._exit, 2)
    await stop.wait()
    await _end(server, scheduler, jobs)
    return 0


async def _discover(cloud: bool) -> None:
    began = time.perf_counter_ns()
    models = store.all_models()
    elapsed = gofmt.duration(time.perf_counter_ns() - began)
    log.info("model_list_cache.go:112", "model list cache hydration complete", models=len(models), failures=0,
             elapsed=elapsed)  # fmt: skip
    envconfig.values()  # the scheduler and the discovery read the variables once more
    log.info("runner.go:60", "discovering available GPUs...")
    if cloud:
        now = int(time.time())
        asked = f'Get "https://ollama.com/api/experimental/model-recommendations?ts={now}": {_OFFLINE}'
        log.warn("model_recommendations.go:168", "model recommendations refresh failed", error=asked)
        log.info("model_recommendations.go:177", "model recommendations cache sleep scheduled",
                 wait=gofmt.duration(248265096912), consecutive_failures=1)  # fmt: skip
        asked = f'Get "https://ollama.com:443/api/tags?ts={now}": {_OFFLINE}'
        log.warn("model_show_cache.go:142", "model show cloud cache hydration failed", error=asked)
    await asyncio.sleep(0.03)  # the real one runs its engine to list devices
    _discovery_details(gofmt.duration(time.perf_counter_ns() - began))
    total, free, _ = memory()
    log.info("types.go:50", "inference compute", id="cpu", library="cpu", compute="", name="cpu", description="cpu",
             libdirs="ollama", driver="", pci_id="", type="", total=human_bytes2(total),
             available=human_bytes2(free))  # fmt: skip
    log.info("routes.go:2058", "vram-based default context", total_vram="0 B", default_num_ctx=options.DEFAULT_CTX)


def _discovery_details(took: str) -> None:
    library = os.path.dirname(program("llama-server"))
    folders = f"[{library}]"
    log.debug("llama_server.go:121", "llama-server discovery: stopped subprocess after collecting GPU info",
              exit="unknown", libDirs=folders)  # fmt: skip
    log.debug("llama_server.go:52", "llama-server device discovery took", duration=took, libDirs=folders)
    log.debug(
        "runner.go:494", "bootstrap discovery took", duration=took, OLLAMA_LIBRARY_PATH=folders, extra_envs="map[]"
    )
    log.debug("runner.go:131", "evaluating which, if any, devices to filter out", initial_count=0)
    log.debug("runner.go:42", "GPU bootstrap discovery took", duration=took)


async def _end(server: asyncio.AbstractServer, scheduler: Scheduler, jobs: list[asyncio.Task[None]]) -> None:
    """Streams are cut at once, queued requests are dropped, runners stopped: there is no drain."""
    Connection.stopping = True
    server.close()
    tasks = [connection.task for connection in Connection.open if connection.task]
    for job in [*tasks, *jobs]:
        job.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait([*tasks, *jobs], timeout=1)
    for connection in list(Connection.open):
        connection.transport.abort()
    await scheduler.close()
