"""The watcher of slots ends with its phase, also where a cancellation is lost on the way."""

from __future__ import annotations

import asyncio

import pytest

from ollamactl.core.plan import full_name
from ollamactl.core.source import Missing, Reading, Source
from ollamactl.host import load, probing, wire
from ollamactl.host.load import Halt, Session
from ollamactl.host.slots import Slots


class Nothing:
    """A host on which nothing is to be seen."""

    def read(self, source: Source) -> Reading:
        return Reading(source.key, None, Missing("denied", "not here"))


def test_a_lost_cancellation_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[int] = []

    async def watch(session: Session, find: object) -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:  # as asyncio.wait_for before Python 3.12
                lost.append(1)
                if len(lost) > 1:
                    raise

    monkeypatch.setattr(load, "watch", watch)

    async def run() -> None:
        where = wire.target("http://127.0.0.1:9")
        async with probing._watching(Session(where, Halt()), Slots(Nothing(), where, "m")):
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(run(), 20))
    assert len(lost) == 2


@pytest.mark.parametrize(
    ("url", "here"), [("http://127.0.0.1:1", True), ("http://[::1]:1", True), ("http://192.0.2.7", False)]
)
def test_which_addresses_are_here(url: str, here: bool) -> None:
    slots = Slots(Nothing(), wire.target(url), "m")
    assert slots.here is here
    assert slots() is None
    assert slots.why


def test_names_are_those_of_the_server() -> None:
    assert full_name("gemma3") == "gemma3:latest"
    assert full_name("gemma3:270m") == "gemma3:270m"
    assert full_name("host:5000/a/b") == "host:5000/a/b:latest"


def test_what_is_sent_has_no_option_that_loads_the_model_anew() -> None:
    import json

    run = probing._Run(wire.target("http://127.0.0.1:9"), probing.Wanted(model="m"), None, lambda _: None, None)  # type: ignore[arg-type]
    first, second = json.loads(run.body(24, 8)), json.loads(run.body(24, 8))
    assert set(first) == {"model", "prompt", "options"} and set(first["options"]) == {"num_predict", "seed"}
    assert first["prompt"].split()[0] != second["prompt"].split()[0]
