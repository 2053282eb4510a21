"""A client's own keep_alive is seen from what is loaded, and from loads that nothing else explains."""

from __future__ import annotations

import msgspec
import pytest

from ollamactl.core.checks import run
from ollamactl.core.facts import Facts, Load, LoadedModel, LogEvent, Start
from tests.unit.check_machines import host

FOREVER, NOW = "2562047h47m16.854775807s", 1_000_000.0


def start(keep: str, *at: float, died: bool = False) -> Start:
    one = Load(model="/m/a", context=4096, slots=1, outcome="loaded")
    loads = tuple(msgspec.structs.replace(one, at=NOW + t, text=f"load {t}") for t in at)
    events = (LogEvent(kind="runner_terminated", text="llama-server terminated"),) if died else ()
    return Start(config={"OLLAMA_KEEP_ALIVE": keep}, listening="127.0.0.1:11434", loads=loads, events=events)


def found(facts: Facts) -> list[str]:
    return [f.check for f in run(facts, only=["client_overrides_keep_alive", "model_reload_every_request"]).findings]


@pytest.mark.parametrize(
    ("begun", "says"),
    [
        (start(FOREVER, 0, 2, 4), ["client_overrides_keep_alive"]),
        (start(FOREVER, 0, 2), []),  # once may be `ollama stop`
        (start(FOREVER, 0, 2, 4, died=True), []),
        (start("5m0s", 0, 400, 800, 1200, 1600), []),
        (start("5m0s", 0, 20, 40, 60), ["client_overrides_keep_alive"]),
        (start("5m0s", 0, 20, 40), []),  # twice may be `ollama stop`
        (start("5m0s", 0, 20, 40, 60, died=True), []),
        (start("10s", 0, 20, 40, 60), []),
        (start("", 0, 20, 40, 60), ["client_overrides_keep_alive"]),  # five minutes by default
        (start("", 0, 400, 800, 1200), []),
        (start("0s", 0, 2, 4), ["model_reload_every_request"]),
        (start("0s", 0), []),
    ],
)
def test_loads_of_the_same_model(begun: Start, says: list[str]) -> None:
    assert found(host(start=begun)) == says


@pytest.mark.parametrize(
    ("keep", "expires", "says"),
    [
        (FOREVER, "1970-01-12T13:51:40Z", ["client_overrides_keep_alive"]),  # five minutes from then
        (FOREVER, "2318-01-01T00:00:00Z", []),
        ("1h0m0s", "1970-01-12T13:51:40Z", []),  # the last request may be a while ago
    ],
)
def test_when_a_loaded_model_goes(keep: str, expires: str, says: list[str]) -> None:
    loaded = (LoadedModel(name="a:1b", expires=expires),)
    assert found(host(start=start(keep), loaded=loaded, taken=NOW)) == says


@pytest.mark.parametrize(
    ("first", "other", "says"),
    [
        (("--threads", "2"), ("--threads", "4"), ["model_reload_every_request"]),
        (("--no-mmap",), (), ["model_reload_every_request"]),
        (("--port", "40001"), ("--port", "40002"), []),
    ],
)
def test_options_of_the_runner_that_change_to_and_fro(
    first: tuple[str, ...], other: tuple[str, ...], says: list[str]
) -> None:
    one = Load(model="/m/a", context=4096, slots=1, outcome="loaded")
    loads = tuple(msgspec.structs.replace(one, argv=argv) for argv in (first, other, first, other))
    begun = msgspec.structs.replace(start("5m0s"), loads=loads)
    assert found(host(start=begun)) == says
