"""What the models that are loaded hold of each device and of host memory. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ollamactl.core.facts import Facts, Runner


class Held(msgspec.Struct, frozen=True):
    """What one loaded model holds: bytes on each GPU (by position in Facts.gpus; -1 where it is not known which), and
    bytes of host memory that its end would give back."""

    model: str
    gpus: dict[int, int]
    host: int = 0
    path: str = ""
    whole: bool = False  # on the GPU, all of it

    @property
    def device_bytes(self) -> int:
        return sum(self.gpus.values())


def held(facts: Facts, mapped: Mapping[str, int] | None = None) -> tuple[Held, ...]:
    """What each runner holds. `mapped`: bytes of its file by model path, which its process maps and does not own."""
    from ollamactl.core.runners import model_of

    found = []
    for runner in facts.runners or ():
        model = model_of(runner, facts)
        gpus = _driver_bytes(runner, facts)
        if not gpus and model is not None and model.size_vram:
            gpus = {0: model.size_vram} if len(facts.gpus or ()) == 1 else {-1: model.size_vram}
        rss = runner.process.rss or 0
        host = max(0, rss - (mapped or {}).get(runner.model, rss))
        whole = bool(model and model.size and model.size_vram >= model.size)
        name = model.name if model else runner.model.rsplit("/", 1)[-1]
        found.append(Held(name, gpus, host, runner.model, whole))
    return tuple(found)


def _driver_bytes(runner: Runner, facts: Facts) -> dict[int, int]:
    """Bytes of a runner on each device, in the driver's words."""
    found: dict[int, int] = {}
    for where, gpu in enumerate(facts.gpus or ()):
        used = [p.used for p in gpu.processes if p.pid == runner.process.pid and p.used]
        if used:
            found[where] = sum(used)
    return found
