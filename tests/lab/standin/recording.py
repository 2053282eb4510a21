"""The recordings beside what the stand-in wrote: both with times, pids, ports, paths and digests blotted out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).resolve().parents[2] / "recorded"
_OWN = re.compile(r"^(time=|\d{4}/|Error: |warn: |error while handling|\[GIN\].*POST)")
_NOISE = re.compile(r"model_recommendations|model_show_cache|llama_server\.go:1350")  # the last one is a poll
_BLOT = (
    (re.compile(r"^time=\S+"), "time=T"),
    (re.compile(r"^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d"), "DATE"),
    (re.compile(r"^\[GIN\] \S+ - \S+ \| (\d+) \| +\S+ \| +\S+ \|"), r"[GIN] \1"),
    (re.compile(r"/\S*?(?=/usr/local/lib/ollama|/usr/share/ollama)"), ""),
    (re.compile(r"OLLAMA_MODELS:\S+"), "OLLAMA_MODELS:M"),
    (re.compile(r"sha256-[0-9a-f]{64}"), "sha256-D"),
    (re.compile(r"--port \d+"), "--port P"),
    (re.compile(r"(127\.0\.0\.1|0\.0\.0\.0|\[::\]):\d{4,5}"), r"\1:P"),
    (re.compile(r"started in [\d.]+ seconds"), "started in S seconds"),
    (re.compile(r"\b(elapsed|duration|total|available|free|free_swap|runner\.pid|pid)=(\"[^\"]*\"|\S+)"), r"\1=V"),
    (re.compile(r"total blobs: \d+"), "total blobs: N"),
    (re.compile(r"\bmodels=\d+"), "models=N"),
    (re.compile(r"\S*/ollama-request-logs-\w+"), "/tmp/LOGS"),
    (re.compile(r"LOGS/\d{8}T\d{6}\.\d{9}Z"), "LOGS/STAMP"),
    (re.compile(r" PATH=\S+ LD_LIBRARY_PATH=\S+"), " PATH=V"),
    (re.compile(r"alloc_tensor_range|ggml_backend_buft_alloc_buffer_n_default"), "ALLOC"),  # renamed in the engine
    (re.compile(r'runner\.size="[^"]+"'), "runner.size=V"),
)


def blot(line: str) -> str:
    for pattern, new in _BLOT:
        line = pattern.sub(new, line)
    return line


def own(lines: list[str]) -> list[str]:
    """The server's own lines, blotted."""
    return [blot(line) for line in lines if _OWN.match(line) and not _NOISE.search(line)]


def text(scenario: str, name: str) -> str:
    return (RECORDED / scenario / name).read_text()


def load(scenario: str, name: str) -> Any:
    return json.loads(text(scenario, name))


def journal(scenario: str) -> list[str]:
    return own(text(scenario, "journal.txt").splitlines())


def kind(value: Any) -> Any:
    """Numbers, times and digests of a reply become their type; names, texts and structure stay."""
    if isinstance(value, dict):
        return {key: kind(item) for key, item in value.items()}
    if isinstance(value, list):
        return [kind(item) for item in value]
    if isinstance(value, str):
        if re.fullmatch(r"[0-9a-f]{64}", value):
            return "DIGEST"
        return "TIME" if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", value) else value
    return value
