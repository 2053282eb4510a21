"""What a client's own configuration asks the server for: its context, its keep_alive, the address that it calls.

    models:                                          Continue, LiteLLM, a Modelfile-like YAML or JSON of any client
      - model: qwen2.5-coder:7b
        apiBase: http://gpu.lan:11434/v1
        contextLength: 32768
    OLLAMA_BASE_URL=http://localhost:11434           in the environment of a container

Only lines that set something are read, no sentences. Each entry that names a model begins anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core.paste.screens import Lines

KINDS = {"reloaded_each_time", "keep_alive_reset", "num_ctx_on_v1", "container_asks_itself", "path_unknown"}


def _setting(names: str, value: str) -> re.Pattern[str]:
    """A line that sets one of these names, in YAML, JSON, TOML or a shell's file."""
    return re.compile(
        rf"^[\s\-{{,]*[\"']?(?:\w+\.){{0,4}}(?:{names})[\"']?\s*[:=]\s*[\"']?(?P<value>{value})[\"']?\s*[,}}]?\s*(?:#.*)?$"
    )


_MODEL = _setting(r"model(?:_id)?", r"[\w./:-]+")
_CONTEXT = _setting(r"num_ctx|numCtx|context_?[lL]ength|context_window", r"\d{3,7}")
_KEEP = _setting(r"keep_?[aA]live", r"-?\d+(?:\.\d+)?(?:ms|[smh])?")
_PROVIDER = _setting(r"provider|type|api", r"[oO]llama")
_BASE = _setting(r"api_?[bB]ase(?:_?[uU][rR][lL])?|base_?[uU][rR][lL]|endpoint|host|url", r"https?://\S+?")
_OF_CONTAINER = re.compile(
    r"OLLAMA_(?:BASE_URLS?|API_BASE_URL)[\"']?\s*[=:]\s*[\"']?https?://(?:localhost|127\.0\.0\.1)(?::\d+)?"
)
_CONTAINER = re.compile(r"^\s*(?:image|container_name|services)\s*:|\bdocker (?:run|create)\b")
_HOST_NETWORK = re.compile(r"network_mode\s*:\s*[\"']?host|--net(?:work)?[= ]host")
FAMILY = re.compile(r"11434|\bollama\b", re.I)  # what makes a configuration one of Ollama's clients


def read(lines: Lines) -> Iterator[tuple[str, int, str]]:
    """(kind, number of the line, text) of what the settings in these numbered lines lead to."""
    if not any(FAMILY.search(text) for _, text in lines):
        return
    yield from _asks_itself(lines)
    yield from _asks_another_path(lines)
    contexts: dict[str, dict[str, tuple[int, str]]] = {}
    model = base = ""
    for n, text in lines:
        if found := _MODEL.match(text):
            model, base = found["value"].removeprefix("ollama/").removeprefix("ollama_chat/"), ""
        elif found := _BASE.match(text):
            base = found["value"]
        elif found := _CONTEXT.match(text):
            contexts.setdefault(model, {})[found["value"]] = (n, text)
            if re.search(r"/v1/?$", base):
                yield "num_ctx_on_v1", n, f"{base}: {text.strip()}"
        elif (found := _KEEP.match(text)) and float(re.sub(r"[a-z]+", "", found["value"])) == 0:
            yield "keep_alive_reset", n, text.strip()
    for name, values in contexts.items():
        if name and len(values) > 1:
            n, _ = list(values.values())[-1]
            yield "reloaded_each_time", n, f"{name} is asked for with a context of {', '.join(values)}"


def _asks_another_path(lines: Lines) -> Iterator[tuple[str, int, str]]:
    """A client for Ollama's own API whose base address ends in /v1, and that gets 404."""
    if not any(_PROVIDER.match(text) for _, text in lines) or not any(re.search(r"\b404\b", x) for _, x in lines):
        return
    for n, text in lines:
        if (found := _BASE.match(text)) and re.search(r"/v1/?$", found["value"]):
            yield "path_unknown", n, text.strip()


def _asks_itself(lines: Lines) -> Iterator[tuple[str, int, str]]:
    """A container whose client calls localhost, which is the container itself."""
    if not any(_CONTAINER.search(text) for _, text in lines) or any(_HOST_NETWORK.search(text) for _, text in lines):
        return
    for n, text in lines:
        if _OF_CONTAINER.search(text):
            yield "container_asks_itself", n, text.strip()
