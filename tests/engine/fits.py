"""The model's decision against the engine's own fit, on random models, settings and sizes of devices."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ollamactl.core.memory.fit import Fit, fit
from ollamactl.core.memory.model import Hyper
from ollamactl.core.memory.predict import predict
from ollamactl.core.memory.request import Device, Request, refusal
from tests.engine import models
from tests.engine.engine import Load
from tests.engine.loads import FLASH, NUMBERS, STOPS, UNLOADABLE, hyper_of, other, request_of
from tests.engine.worker import run

MiB = 1 << 20


class Case(NamedTuple):
    """One start. `margin`: bytes that every device shall keep free; the first one a projector's as well."""

    load: Load
    hyper: Hyper
    request: Request
    devices: tuple[Device, ...]
    margin: int

    @property
    def margins(self) -> list[int]:
        return [self.margin + (self.request.projector if i == 0 else 0) for i in range(len(self.devices))]

    def __str__(self) -> str:
        load, free = self.load, [d.free // MiB for d in self.devices]
        kinds = f"{self.request.type_k}/{self.request.type_v}, attention {self.request.flash_attention}"
        return (
            f"{Path(load.path).stem}: {load.context // load.slots} x {load.slots}, batch {load.ubatch}, {kinds}, "
            f"{self.devices[0].kind} {free} MiB, margins {[m // MiB for m in self.margins]}"
        )


class Decision(NamedTuple):
    """A case, how many layers the engine leaves on the host or in part elsewhere, and what the model says."""

    case: Case
    left: int
    ours: Fit

    @property
    def holds(self) -> bool:
        """Whether every device really has room for what the engine puts there: its last step looks at one only."""
        held = self.ours.prediction
        return bool(self.left) or all(held.on(i) <= d.free for i, d in enumerate(self.case.devices))

    def __str__(self) -> str:
        return f"{self.case}: engine leaves {self.left}, ours {self.ours.verdict} {self.ours.spilled}"


class Score(NamedTuple):
    """Decisions that differ, of how many."""

    decided: int
    spilled: int  # by both
    false_fits: list[Decision]
    false_spills: list[Decision]
    far: list[Decision]  # spilled layers that differ by more than one

    @classmethod
    def of(cls, found: Iterable[Decision]) -> Score:
        found = list(found)
        spills = [d for d in found if d.ours.verdict != "fits" and d.left]
        return cls(
            len(found),
            len(spills),
            [d for d in found if d.ours.verdict == "fits" and d.left],
            [d for d in found if d.ours.verdict != "fits" and not d.left],
            [d for d in spills if abs(d.left - d.ours.spilled) > 1],
        )


def cases(folder: Path, seed: str, count: int) -> Iterator[Case]:
    """Random starts, half of them within five percent of what is needed."""
    rng = random.Random(f"fits{seed}")
    paths = {
        name: path for name, path in models.write_stored(folder)
        if models.stored()[name][0]["general.architecture"] not in UNLOADABLE and name not in STOPS
    }  # fmt: skip
    made = 0
    while made < count:
        path = paths[rng.choice(sorted(paths))]
        hyper = hyper_of(path)
        if hyper.is_embedding or hyper.keys.get("nextn_predict_layers"):
            continue  # no graph for several slots; parts of draft blocks are loaded or not by architecture
        case = _case(rng, path, hyper)
        if refusal(hyper, case.request) is None:
            yield case
            made += 1


def _case(rng: random.Random, path: Path, hyper: Hyper) -> Case:
    devices = rng.choice([1, 1, 1, 2, 2, 3])
    slots, context = rng.choice([1, 1, 2, 3, 4, 8]), rng.choice([1024, 2048, 4096, 8192, 16384, 32768])
    batch, flash = rng.choice([256, 512, 512, 1024, 2048]), rng.choice(["auto", "auto", "off"])
    k, v = ("f16", "f16") if flash == "off" else rng.choice(
        [("f16", "f16"), ("f16", "f16"), ("q8_0", "q8_0"), ("q4_0", "q4_0"), ("q8_0", "f16")]
    )  # fmt: skip
    load = Load(
        str(path), devices, context * slots, slots, batch, batch, FLASH[flash], NUMBERS[k], NUMBERS[v],
        cuda=rng.random() < 0.3,
    )  # fmt: skip
    projector = rng.choice([0, 0, 0, 300, 850]) * MiB
    request = request_of(load, projector)
    margin = rng.choice([0, 64, 256, 1024]) * MiB
    needed = predict(hyper, request_of(load), other(1, cuda=load.cuda)).on(0) * (1.0 if devices == 1 else 1.08)
    factor = 1 + rng.uniform(-0.05, 0.05) if rng.random() < 0.5 else rng.uniform(0.3, 1.6)
    parts = [rng.choice([1, 1, 1.5, 2, 3.1]) for _ in range(devices)]
    sizes = [int(needed * factor * part / sum(parts) / MiB + 1) * MiB + margin for part in parts]
    sizes[0] += projector
    kind = "cuda" if load.cuda else "other"
    placed = tuple(Device(name=f"BARE{i}", kind=kind, free=size, total=size) for i, size in enumerate(sizes))
    return Case(load, hyper, request, placed, margin)


def decisions(made: Iterable[Case]) -> Iterator[Decision]:
    """What the engine and the model decide; cases that the engine cannot lay out are left out."""
    made = list(made)
    jobs = [["fit", case.load, case.margins, [d.free for d in case.devices]] for case in made]
    for case, (_, answer) in zip(made, run(jobs), strict=True):
        if answer == "crashed" or answer[0] == 2:
            continue
        yield Decision(case, _left(case, *answer), fit(case.hyper, case.request, case.devices, target=case.margin))


def _left(case: Case, status: int, gpu_layers: int, named: list[int], split: list[int]) -> int:
    """Layers that the engine leaves on the host, or in part elsewhere. It names blocks without such a part too, and
    the output: these lose nothing."""
    if gpu_layers < 0:
        return 0
    hyper = case.hyper
    apart = [_has(hyper, -1 - i, "_exps") if i < 0 else _has(hyper, i, "ffn_") for i in named]
    return hyper.blocks + 1 - gpu_layers + sum(apart)


def _has(hyper: Hyper, block: int, part: str) -> bool:
    return block < hyper.blocks and any(part in name for name in hyper.block_tensors[block].sizes)


def show(found: list[Decision]) -> None:
    """A table by number of devices and by what the model knows of a family, then every difference."""
    rows: dict[str, list[Decision]] = {"all": found}
    for one in found:
        number = len(one.case.devices)
        rows.setdefault(f"{number} device{'s' * (number > 1)}", []).append(one)
        rows.setdefault("as CUDA" if one.case.load.cuda else "as any other", []).append(one)
        rows.setdefault("graph followed" if one.case.hyper.family.built else "by formula", []).append(one)
    print(f"   {'':<16} {'decided':>8} {'false fits':>11} {'false spills':>17} {'layers within one':>22}")
    for name, group in rows.items():
        score = Score.of(group)
        near = score.spilled - len(score.far)
        print(
            f"   {name:<16} {score.decided:8} {len(score.false_fits):11} {len(score.false_spills):8} "
            f"{len(score.false_spills) / score.decided:8.2%} {near:8} of {score.spilled:<4}"
            f"{near / max(score.spilled, 1):7.1%}"
        )
    score = Score.of(found)
    for what, group in (("false fit", score.false_fits), ("false spill", score.false_spills), ("far", score.far)):
        for one in group:
            print(f"   {what}: {one}" + ("" if one.holds else " (there is no room for what the engine does)"))
    worst = Counter(one.case.hyper.architecture for one in (*score.false_spills, *score.far))
    print("   most often: " + ", ".join(f"{name} {number}" for name, number in worst.most_common(5)))
