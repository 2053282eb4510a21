"""The API: routes, Host and Origin checks, and the life of one request."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator
from typing import Any

from . import gguf, options, store, switches
from .engine import LoadFailed, RunnerGone
from .gofmt import log, rfc3339nano
from .guard import allowed
from .httpd import Exchange
from .requestlog import RequestLog
from .scheduler import Busy, Loaded, Request, Scheduler
from .show import show

BUSY = "server busy, please try again.  maximum pending requests exceeded"
_TYPES = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}


class Api:
    def __init__(self, scheduler: Scheduler, loopback: bool, requests: RequestLog | None) -> None:
        self.scheduler, self.loopback, self.requests = scheduler, loopback, requests
        self._warned: set[tuple[str, str]] = set()

    async def handle(self, x: Exchange) -> None:
        if switches.hang() == "answer":
            await asyncio.Event().wait()
        if not allowed(x, self.loopback):
            x.send(403, b"", "")
            return
        if x.method == "OPTIONS":
            x.send(204, b"", "")
            return
        if self.requests and x.method == "POST":
            self.requests.write(x)
        route = ("GET" if x.method == "HEAD" else x.method, x.path)
        simple = {
            ("GET", "/"): self.root, ("GET", "/api/version"): self.version, ("GET", "/api/tags"): self.tags,
            ("GET", "/api/ps"): self.ps, ("POST", "/api/show"): self.show,
        }  # fmt: skip
        if route in simple:
            simple[route](x)
        elif route in (("POST", "/api/generate"), ("POST", "/api/chat")):
            await self.complete(x, chat=x.path == "/api/chat")
        elif route in (("POST", "/api/embed"), ("POST", "/api/embeddings")):
            await self.embed(x, legacy=x.path == "/api/embeddings")
        else:
            x.send(404, b"404 page not found", "text/plain")

    def root(self, x: Exchange) -> None:
        x.send(200, b"Ollama is running", "text/plain; charset=utf-8")

    def version(self, x: Exchange) -> None:
        x.json(200, {"version": switches.release()})

    def tags(self, x: Exchange) -> None:
        x.json(200, {"models": [model.tag() for model in store.all_models()]})

    def ps(self, x: Exchange) -> None:
        rows = []
        for item in self.scheduler.loaded.values():
            # busy since its load: not yet idle, so nothing has set the time
            expires = item.expires_ns or time.time_ns() + item.keep_alive
            rows.append({
                "name": item.model.name, "model": item.model.name, "size": item.runner.size,
                "digest": item.model.digest,
                "details": item.model.details(), "expires_at": rfc3339nano(expires),
                "size_vram": item.runner.size_vram,
                "context_length": item.num_ctx,
            })  # fmt: skip
        x.json(200, {"models": sorted(rows, key=lambda row: row["expires_at"], reverse=True)})

    def show(self, x: Exchange) -> None:
        body = self._decode(x, "api.ShowRequest")
        if body is None:
            return
        name = body.get("model") or body.get("name") or ""
        try:
            model = self._model(name, "show")
            x.json(200, show(model, bool(body.get("verbose"))))
        except store.NotFound:
            x.error(404, f"model '{name}' not found")
        except gguf.Broken as error:
            x.error(500, str(error))

    def _decode(self, x: Exchange, kind: str) -> dict[str, Any] | None:
        if not x.body.strip():
            x.error(400, "missing request body")
            return None
        try:
            value = json.loads(x.body)
        except ValueError as error:
            at = getattr(error, "pos", 0)
            char = x.body.decode("utf-8", "replace")[at : at + 1]
            text = f"invalid character '{char}' looking for beginning of value" if char else "unexpected EOF"
            x.error(400, text)
            return None
        if not isinstance(value, dict):
            x.error(400, f"json: cannot unmarshal {_TYPES.get(type(value), 'null')} into Go value of type {kind}")
            return None
        return value

    def _model(self, name: str, use: str = "run") -> store.Model:
        model = store.find(name)
        if (use, model.path) not in self._warned and not self._is_embedding(
            model
        ):  # what runs and what is shown have caches of their own
            self._warned.add((use, model.path))
            log.warn(
                "images.go:798", "model is missing tokenizer.chat_template and Go TEMPLATE support is unavailable; "
                "chat responses may be poorly formatted", model=model.full_name, env="OLLAMA_GO_TEMPLATE=1",
            )  # fmt: skip
        return model

    async def _schedule(self, x: Exchange, kind: str, wants: str) -> tuple[dict[str, Any], Request, Loaded] | None:
        """Decodes, finds the model and waits until it is loaded; answers every refusal itself."""
        body = self._decode(x, kind)
        if body is None:
            return None
        name = str(body.get("model") or "")
        try:
            keep = options.keep_alive(body.get("keep_alive"))
        except ValueError as error:
            x.error(400, str(error))
            return None
        try:
            model = self._model(name)
            if keep == 0 and wants != "embeddings" and not body.get("prompt") and not body.get("messages"):
                self._unload(x, model, name, chat=wants == "chat")
                return None
            merged = options.merged(model, body.get("options") or {})
            if wants != "embeddings" and self._is_embedding(model):
                x.error(400, f'"{name}" does not support {wants}')
                return None
            request = Request(model, merged, keep)
            return body, request, await self.scheduler.get(request)
        except store.NotFound:
            x.error(404, f"model '{name}' not found")
        except Busy:
            x.error(503, BUSY)
        except (options.BadOption, LoadFailed) as error:
            x.error(500, str(error))
        return None

    def _is_embedding(self, model: store.Model) -> bool:
        try:
            return model.gguf().is_embedding
        except gguf.Broken:
            return False  # the load will say what is wrong

    def _unload(self, x: Exchange, model: store.Model, name: str, chat: bool) -> None:
        current = self.scheduler.loaded.get(model.path)
        if current:
            self.scheduler.expire(current)
        x.json(200, self._line(name, "", chat) | {"done": True, "done_reason": "unload"})

    def _line(self, name: str, text: str, chat: bool) -> dict[str, Any]:
        content: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if chat else {"response": text}
        return {"model": name, "created_at": rfc3339nano(time.time_ns()), **content, "done": False}

    async def complete(self, x: Exchange, chat: bool) -> None:
        kind = "api.ChatRequest" if chat else "api.GenerateRequest"
        got = await self._schedule(x, kind, "chat" if chat else "generate")
        if got is None:
            return
        body, request, loaded = got
        loaded_ns = x.elapsed_ns
        try:
            name = body["model"]
            if not (body.get("messages") if chat else body.get("prompt")):
                x.json(200, self._line(name, "", chat) | {"done": True, "done_reason": "load"})
                return
            await self._answer(x, body, request, loaded, chat, loaded_ns)
        finally:
            self.scheduler.done(loaded)

    async def _answer(
        self, x: Exchange, body: dict[str, Any], request: Request, loaded: Loaded, chat: bool, loaded_ns: int
    ) -> None:
        stream, name, text = body.get("stream") is not False, body["model"], ""
        try:
            prompt = await self._chat_prompt(loaded, body["messages"]) if chat else body["prompt"]
            final: dict[str, Any] = {}
            async with contextlib.aclosing(self._events(x, loaded, request.options, prompt)) as events:
                async for event in events:
                    text += event.get("content", "")
                    if event.get("stop"):
                        final = event
                    elif stream and event.get("content"):
                        x.chunk(self._line(name, event["content"], chat))
            last = self._line(name, "" if stream else text, chat)
            last |= {"done": True, "done_reason": "length" if final.get("stop_type") == "limit" else "stop"}
            if not chat:
                _, tokens = await loaded.runner.call("POST", "/tokenize", {"content": f"{prompt}{text}"})
                last["context"] = tokens["tokens"]
            last |= durations(final, x.elapsed_ns, loaded_ns)
            if not stream:
                x.json(200, last)
                return
            x.chunk(last)
        except (RunnerGone, LoadFailed, OSError) as error:
            message = f"an error was encountered while running the model: {error}"
            if not x.streaming:
                x.error(500, message)
                return
            x.chunk({"error": message})
        x.end()

    async def _events(
        self, x: Exchange, loaded: Loaded, merged: dict[str, Any], prompt: str
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The engine's events of one completion, once a slot is free. The wait for one has no limit."""
        runner = loaded.runner
        log.debug("llama_server.go:1529", "llama-server completion request", media=0, prompt_len=len(prompt))
        held = False
        try:
            held = await runner.slots.acquire()
            fitted = await self._truncated(loaded, prompt)
            async for event in runner.stream("/completion", options.completion(merged, fitted)):
                yield event
        except asyncio.CancelledError:
            if not x.streaming:  # in the queue, or in the slot that another who gave up left at the same moment
                log.info("llama_server.go:1538", "aborting completion request due to client closing the connection")
                x.status = 500
            raise
        finally:
            if held:
                runner.slots.release()

    async def _truncated(self, loaded: Loaded, prompt: str) -> Any:
        if len(prompt) < loaded.num_ctx:
            return prompt
        _, answer = await loaded.runner.call("POST", "/tokenize", {"content": prompt, "add_special": True})
        tokens, keep = answer["tokens"], 5
        if len(tokens) < loaded.num_ctx:
            return prompt
        limit = loaded.num_ctx - (loaded.num_ctx - keep) // 2
        log.warn(
            "llama_server.go:317", "truncating input prompt", limit=limit, prompt=len(tokens), keep=keep, new=limit
        )
        return tokens[:keep] + tokens[keep - limit :]

    async def _chat_prompt(self, loaded: Loaded, messages: Any) -> str:
        _, answer = await loaded.runner.call("POST", "/apply-template", {"messages": messages})
        return str(answer["prompt"])

    async def embed(self, x: Exchange, legacy: bool) -> None:
        got = await self._schedule(x, "api.EmbeddingRequest" if legacy else "api.EmbedRequest", "embeddings")
        if got is None:
            return
        body, _, loaded = got
        loaded_ns, runner = x.elapsed_ns, loaded.runner
        try:
            given = body.get("prompt") if legacy else body.get("input")
            texts = given if isinstance(given, list) else [given or ""]
            vectors, count = [], 0
            async with runner.slots:
                for text in texts:
                    status, answer = await runner.call("POST", "/embedding", {"content": text})
                    if status != 200:
                        x.error(500, answer["error"]["message"])
                        return
                    vectors.append(answer[0]["embedding"][0])
                    _, tokens = await runner.call("POST", "/tokenize", {"content": text, "add_special": True})
                    count += len(tokens["tokens"])
            if legacy:
                x.json(200, {"embedding": vectors[0]})
                return
            x.json(200, {"model": body["model"], "embeddings": vectors, "total_duration": x.elapsed_ns,
                         "load_duration": loaded_ns, "prompt_eval_count": count})  # fmt: skip
        except (RunnerGone, OSError) as error:
            x.error(500, str(error))
        finally:
            self.scheduler.done(loaded)


def durations(event: dict[str, Any], total_ns: int, loaded_ns: int) -> dict[str, int]:
    times = event["timings"]
    return {
        "total_duration": total_ns, "load_duration": loaded_ns, "prompt_eval_count": event["tokens_evaluated"],
        "prompt_eval_duration": round(times["prompt_ms"] * 1000) * 1000, "eval_count": event["tokens_predicted"],
        "eval_duration": round(times["predicted_ms"] * 1000) * 1000,
    }  # fmt: skip
