"""Replies of the API and of a runner, sockets, and configuration of clients within a paste."""

from __future__ import annotations

import json

import pytest
from wording_rows import report

from ollamactl.core import pasted
from ollamactl.core.facts import Facts

MODEL = {"name": "phi4:14b", "digest": "ab", "size": 12 << 30, "size_vram": 5 << 30, "context_length": 16384}
SOCKET = "ESTAB 0      0      127.0.0.1:11434      127.0.0.1:{}"


def facts(text: str) -> Facts:
    found = pasted.facts_of(text.encode(), "paste")
    assert found is not None
    return found


def first(text: str) -> tuple[str, str] | None:
    found = report(text)
    assert not found.crashed, found.crashed
    return next(((f.check, f.severity) for f in found.findings), None)


def slots(*busy: bool) -> str:
    return json.dumps([{"id": n, "n_ctx": 8192, "is_processing": one} for n, one in enumerate(busy)])


@pytest.mark.parametrize("indent", [None, 2])
def test_loaded_models_of_a_reply_on_one_line_or_many(indent: int | None) -> None:
    text = "$ curl -s localhost:11434/api/ps\n" + json.dumps({"models": [MODEL]}, indent=indent)
    (model,) = facts(text).loaded or ()
    assert (model.name, model.size_vram, model.context) == ("phi4:14b", 5 << 30, 16384)
    assert first(text) == ("partial_offload", "warning")


def test_installed_models_and_the_release() -> None:
    tags = json.dumps({"models": [{"name": "phi4:14b", "digest": "ab", "size": 9}]}, indent=1)
    found = facts(f'{tags}\n{{"version":"0.30.2"}}\n')
    assert [m.name for m in found.installed or ()] == ["phi4:14b"]
    assert found.version == "0.30.2"
    assert [f for f in report(tags).findings if f.severity != "info"] == []


def test_slots_of_a_runner_are_its_load() -> None:
    load = facts(slots(True, False, False)).start
    assert load is not None and (load.loads[0].slots, load.loads[0].context_total) == (3, 3 * 8192)


def test_more_connections_than_slots() -> None:
    sockets = "\n".join(SOCKET.format(53000 + n) for n in range(5))
    assert first(f"{slots(True, True)}\n$ ss -tn\n{sockets}") == ("queue_building_up", "info")
    assert "queue_building_up" not in [f.check for f in report(f"{slots(True, False)}\n{sockets}").findings]


def test_what_is_no_reply_of_a_server_says_nothing() -> None:
    for text in ('{"models": [', '[1, 2, {"id": 3}]', '{"a": {"b": [{}]}}\n}}}]]', "[" * 5000, '{"version": 3}'):
        assert report(text).findings == ()


COMPOSE = "services:\n  chat:\n    image: chat-ui\n{}    environment:\n      - OLLAMA_BASE_URL=http://{}:11434\n"
ENTRY = "  - model: {}\n    apiBase: http://gpu.lan:11434{}\n    contextLength: {}\n"
CONFIGURED: dict[str, tuple[str, str, str]] = {
    "a context where the API has no such field": (
        "models:\n" + ENTRY.format("phi4:14b", "/v1", 16384),
        "client_num_ctx_not_sent",
        "models:\n" + ENTRY.format("phi4:14b", "", 16384),
    ),
    "two contexts of one model": (
        "models:\n" + ENTRY.format("phi4:14b", "", 16384) + ENTRY.format("phi4:14b", "", 4096),
        "model_reload_every_request",
        "models:\n" + ENTRY.format("phi4:14b", "", 16384) + ENTRY.format("phi4:14b-q8", "", 4096),
    ),
    "a keep_alive of nothing": (
        json.dumps({"model": "ollama/phi4:14b", "keep_alive": 0}, indent=2),
        "client_overrides_keep_alive",
        json.dumps({"model": "ollama/phi4:14b", "keep_alive": "30m"}, indent=2),
    ),
    "a container that calls itself": (
        COMPOSE.format("", "localhost"),
        "server_not_reachable",
        COMPOSE.format("    network_mode: host\n", "localhost"),
    ),
    "a container of a command line": (
        "docker run -d -e OLLAMA_BASE_URL=http://127.0.0.1:11434 chat-ui",
        "server_not_reachable",
        "docker run -d --network=host -e OLLAMA_BASE_URL=http://127.0.0.1:11434 chat-ui",
    ),
}


@pytest.mark.parametrize("kind", CONFIGURED)
def test_a_client_s_configuration(kind: str) -> None:
    text, check, healthy = CONFIGURED[kind]
    assert first(text) == (check, "warning")
    assert [f for f in report(healthy).findings if f.severity != "info"] == []
