"""Which model is loaded, for how long, and who waits for a load: Ollama's three answers to a request."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from . import envconfig, gguf, store
from .engine import LoadFailed, Runner, Spec
from .gofmt import MAX_DURATION, duration, human_bytes2, log

# Families that Ollama serves one request at a time, whatever was asked
SINGLE_SLOT = frozenset((
    "mllama", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen3next", "lfm2", "lfm2moe", "nemotron_h",
    "nemotron_h_moe", "nemotron_h_omni",
))  # fmt: skip
RUNNER_OPTIONS = ("num_ctx", "num_batch", "num_gpu", "main_gpu", "use_mmap", "num_thread")


class Busy(Exception):
    """The load queue is full."""


@dataclass(eq=False)
class Request:
    model: store.Model
    options: dict[str, Any]
    keep_alive: int | None  # nanoseconds; None = the server's own
    future: asyncio.Future[Loaded] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    served: asyncio.Event = field(default_factory=asyncio.Event)  # the loop is done with it

    @property
    def key(self) -> tuple[Any, ...]:
        return tuple(self.options.get(name) for name in RUNNER_OPTIONS)


@dataclass(eq=False)
class Loaded:
    model: store.Model
    runner: Runner
    key: tuple[Any, ...]
    num_ctx: int
    keep_alive: int
    references: int = 0
    expires_ns: int = 0
    expired: bool = False
    fresh: bool = True  # the request that loaded it still runs
    timer: asyncio.TimerHandle | None = None
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    def logged(self) -> dict[str, Any]:
        return {
            "runner__name": self.model.full_name, "runner__size": human_bytes2(self.runner.size),
            "runner__vram": human_bytes2(self.runner.size_vram), "runner__parallel": self.runner.spec.parallel,
            "runner__pid": self.runner.pid, "runner__model": self.model.path, "runner__num_ctx": self.num_ctx,
        }  # fmt: skip


class Scheduler:
    def __init__(self) -> None:
        self.loaded: dict[str, Loaded] = {}  # by blob: two names over one blob share a runner
        self.max_queue = envconfig.uint("OLLAMA_MAX_QUEUE")
        self._queue: deque[Request] = deque()
        self._receiver: asyncio.Future[Request] | None = None
        self._current: Request | None = None  # what the loop loads or waits for
        self._max_loaded = 3
        self._unloads: set[asyncio.Task[None]] = set()

    async def get(self, request: Request) -> Loaded:
        """A loaded runner with one reference taken; give it back with `done`. Raises Busy or LoadFailed."""
        current = self.loaded.get(request.model.path)
        if current is not None and not self._needs_reload(current, request):
            return self._use(current, request)
        if self._receiver is not None and not self._receiver.done():
            self._receiver.set_result(request)  # an idle loop takes it even where the queue has no room at all
        elif len(self._queue) < self.max_queue:
            self._queue.append(request)
        else:
            raise Busy
        try:
            return await request.future
        except asyncio.CancelledError:
            if request.future.done() and not request.future.cancelled() and not request.future.exception():
                self.done(request.future.result())  # loaded in the very moment in which the client left
            if self._current is request:
                request.future.cancel()
                await request.served.wait()  # the access line of an aborted load follows the abort
            raise

    async def run(self) -> None:
        """One load or swap at a time; everything behind it waits."""
        log.debug("sched.go:215", "starting llm scheduler")
        self._max_loaded = envconfig.uint("OLLAMA_MAX_LOADED_MODELS")
        while True:
            if self._queue:
                request = self._queue.popleft()
            else:
                self._receiver = asyncio.get_running_loop().create_future()
                request = await self._receiver
                self._receiver = None
            if request.future.done():
                log.debug("sched.go:252", "pending request cancelled or timed out, skipping scheduling")
                continue
            self._current = request
            try:
                await self._serve(request)
            except (LoadFailed, gguf.Broken) as error:
                if not request.future.done():
                    request.future.set_exception(LoadFailed(str(error)))
            finally:
                self._current = None
                request.served.set()

    async def _serve(self, request: Request) -> None:
        log.trace("sched.go:241", "processing incoming request", model=request.model.path)
        while True:
            current = self.loaded.get(request.model.path)
            if current is not None and not self._needs_reload(current, request):
                self._use(current, request, resolve=True)
                return None
            if current is None and len(self.loaded) < self._limit():
                return await self._load(request)
            victim = current or min(self.loaded.values(), key=lambda item: (item.references > 0, item.keep_alive))
            self.expire(victim)
            await victim.gone.wait()

    def _limit(self) -> int:
        return self._max_loaded or 3  # 3 a GPU, and 3 without any

    def _needs_reload(self, current: Loaded, request: Request) -> bool:
        log.debug("sched.go:1382", "evaluating already loaded", model=request.model.path)
        return current.expired or current.key != request.key or not current.runner.ping()

    def _use(self, current: Loaded, request: Request, resolve: bool = False) -> Loaded:
        current.references += 1
        if current.timer:
            current.timer.cancel()
            current.timer = None
        if request.keep_alive is not None:
            current.keep_alive = request.keep_alive
        if resolve:
            if request.future.done():
                self.done(current)
            else:
                request.future.set_result(current)
        return current

    def done(self, current: Loaded) -> None:
        """Gives one reference back; the last one starts the timer."""
        if current.fresh:
            log.debug("sched.go:748", "context for request finished")
        else:
            log.debug("sched.go:489", "context for request finished", **current.logged())
        current.fresh = False
        current.references -= 1
        if current.references == 0:
            if current.keep_alive <= 0 or current.expired:
                self.expire(current)
            else:
                log.debug("sched.go:394", "runner with non-zero duration has gone idle, adding timer",
                          **current.logged(), duration=duration(current.keep_alive))  # fmt: skip
                current.expires_ns = time.time_ns() + current.keep_alive
                if current.keep_alive < MAX_DURATION:
                    loop = asyncio.get_running_loop()
                    current.timer = loop.call_later(current.keep_alive / 1e9, self.expire, current)
        log.debug("sched.go:412", "after processing request finished event", **current.logged(),
                  refCount=current.references)  # fmt: skip

    def expire(self, current: Loaded) -> None:
        """Unloads now, or when the last of its requests ends."""
        current.expired, current.keep_alive = True, 0
        if current.references == 0 and not current.gone.is_set():
            task = asyncio.get_running_loop().create_task(self._unload(current))
            self._unloads.add(task)
            task.add_done_callback(self._unloads.discard)

    async def _unload(self, current: Loaded) -> None:
        if self.loaded.get(current.model.path) is current:
            del self.loaded[current.model.path]
            await current.runner.stop()
            current.gone.set()

    async def _load(self, request: Request) -> None:
        model, options = request.model, request.options
        log.debug("runner.go:272", "refreshing free memory")
        log.debug("runner.go:42", "overall device VRAM discovery took", duration=duration(20290))
        if self._max_loaded == 0:
            self._max_loaded = self._limit()
            log.debug(
                "sched.go:290", "updating default concurrency", OLLAMA_MAX_LOADED_MODELS=self._limit(), gpu_count=0
            )
        if not self.loaded:
            log.debug("sched.go:299", "loading first model", model=model.path)
        parallel = max(envconfig.uint("OLLAMA_NUM_PARALLEL"), 1)
        try:
            file = model.gguf()
        except gguf.Broken as error:
            log.info("sched.go:529", "failed to load model metadata", model=model.path, error=str(error))
            raise
        spec, clipped = self._spec(model, file, options, parallel)
        others = bool(self.loaded)
        runner = Runner(spec)
        began = runner.began = time.monotonic()
        await runner.start()
        total, free, swap = memory()
        log.info(
            "sched.go:613",
            "system memory",
            total=human_bytes2(total),
            free=human_bytes2(free),
            free_swap=human_bytes2(swap),
        )
        log.info("llama_server.go:1048", "loading model via llama-server", model=model.path)
        await self._wait(runner, request)
        log.info("images.go:381", "template selection", model=model.full_name, selected="none", renderer="", parser="",
                 go_template="null", chat_template="null", harmony="null", renderer_parser="null")  # fmt: skip
        keep = request.keep_alive if request.keep_alive is not None else envconfig.keep_alive()
        current = Loaded(model, runner, request.key, clipped, keep)
        self.loaded[model.path] = current
        log.info("sched.go:728", "loaded runners", count=len(self.loaded))
        if others:
            log.debug("sched.go:312", "new model fits with existing models, loading")
        log.info("llama_server.go:1295", "waiting for llama-server to start responding")
        log.info("llama_server.go:1362", f"llama-server started in {time.monotonic() - began:.2f} seconds")
        log.debug("sched.go:740", "finished setting up", **current.logged())
        self._use(current, request, resolve=True)

    async def _wait(self, runner: Runner, request: Request) -> None:
        ready = asyncio.ensure_future(runner.wait_ready())
        waits: set[asyncio.Future[Any]] = {ready, request.future}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            log.warn(
                "llama_server.go:1301", "client connection closed before llama-server finished loading, aborting load"
            )
            await runner.stop()
            raise LoadFailed("context canceled")
        try:
            ready.result()
        except LoadFailed as error:
            log.info("sched.go:641", "Load failed", model=runner.spec.model, error=str(error))
            raise

    def _spec(self, model: store.Model, file: gguf.Gguf, options: dict[str, Any], parallel: int) -> tuple[Spec, int]:
        if file.is_embedding:
            parallel = 1  # without a word
        elif file.arch in SINGLE_SLOT and parallel > 1:
            parallel = 1
            log.warn(
                "sched.go:553",
                "model architecture does not currently support parallel requests",
                architecture=file.arch,
            )
        mmap = bool(options.get("use_mmap"))
        if options.get("use_mmap") is None:
            log.info(
                "sched.go:1147", "disabling mmap for llama-server load by default", model=model.path, reason="cpu"
            )
        log.info("server.go:109", "using llama-server for model", model=model.path)
        ctx, trained = int(options["num_ctx"]), int(file.key("context_length", 0))
        if trained and ctx > trained:
            log.warn("server.go:114", "requested context size too large for model", num_ctx=ctx, n_ctx_train=trained)
            ctx = trained
        total = ctx * parallel
        batch = 2048 if file.is_embedding or total > 32768 else 1024 if total > 4096 else 512
        flash = "auto"
        if envconfig.var("OLLAMA_FLASH_ATTENTION"):
            flash = "on" if envconfig.boolean("OLLAMA_FLASH_ATTENTION") else "off"
        return Spec(
            model=model.path, ctx=ctx, parallel=parallel, batch=int(options.get("num_batch") or batch),
            kv_type=envconfig.var("OLLAMA_KV_CACHE_TYPE").lower(), flash=flash, embedding=file.is_embedding, mmap=mmap,
            threads=int(options.get("num_thread") or 0), gpu_layers=int(options.get("num_gpu", -1)),
        ), ctx  # fmt: skip

    async def close(self) -> None:
        log.debug("sched.go:372", "shutting down scheduler completed loop")
        for current in list(self.loaded.values()):
            log.debug("sched.go:1707", "shutting down runner", model=current.model.path)
            await current.runner.stop()


def memory() -> tuple[int, int, int]:
    """Total, available and free swap of the host, bytes."""
    found = {}
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            name, _, rest = line.partition(":")
            found[name] = int(rest.split()[0]) * 1024
    return found["MemTotal"], found["MemAvailable"], found.get("SwapFree", 0)
