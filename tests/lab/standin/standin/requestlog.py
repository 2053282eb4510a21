"""OLLAMA_DEBUG_LOG_REQUESTS: bodies and replay scripts of inference requests."""

from __future__ import annotations

import os
import tempfile
import time

from . import envconfig
from .gofmt import log
from .httpd import Exchange

_PATHS = ("/api/generate", "/api/chat", "/api/embed", "/api/embeddings")


class RequestLog:
    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="ollama-request-logs-")
        self.count = 0
        log.info(
            "inference_request_log.go:44", "request debug logging enabled; inference request logs will be stored in "
            f"{self.folder} and include request bodies and replay curl commands",
        )  # fmt: skip

    def write(self, x: Exchange) -> None:
        if x.path not in _PATHS:
            return
        self.count += 1
        seconds, part = divmod(time.time_ns(), 10**9)
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(seconds)) + f".{part:09d}Z"
        base = os.path.join(self.folder, f"{stamp}-{self.count:06d}{x.path.replace('/', '_')}")
        with open(f"{base}_body.json", "wb") as file:
            file.write(x.body)
        with open(f"{base}_request.sh", "w", encoding="utf-8") as script:
            script.write(f"curl -X POST {envconfig.host_url()}{x.path} --data-binary @{base}_body.json\n")
        log.info(
            "inference_request_log.go:124",
            f"logged to {base}_body.json, replay using curl with `sh {base}_request.sh`",
        )
