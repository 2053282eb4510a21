"""The memory model against a real llama.cpp: what it lays out on the CPU and on devices without hardware, to the byte.

`ENGINE_GRID=1` runs every stored model with many more combinations (make engine-grid), `ENGINE_SEED=x` others.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ollamactl.core.memory.fit import split
from ollamactl.core.memory.ggml import TYPES
from ollamactl.core.memory.layout import HOST, Layout
from ollamactl.core.memory.model import Hyper
from ollamactl.core.memory.predict import predict
from ollamactl.core.memory.request import refusal
from ollamactl.core.memory.terms import Prediction
from tests.engine import fits, models
from tests.engine.engine import Load, headers
from tests.engine.loads import FLASH, NUMBERS, STOPS, UNLOADABLE, hyper_of, other, request_of
from tests.engine.worker import run

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
GRID = bool(os.environ.get("ENGINE_GRID"))
REAL = ("real-", "wide-")  # models with the widths of known ones, and with random ones of that size
SEED = os.environ.get("ENGINE_SEED", "")  # other random combinations than the usual ones

@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    headers()  # fetch before the loads, so that a missing network is not taken for a refused load
    return tmp_path_factory.mktemp("models")


def combinations(seed: str, count: int, start: int | None = None) -> Iterator[tuple[int, int, int, str, str, str]]:
    """(context of a slot, slots, batch, flash attention, type of K, type of V); without a `start` any come first."""
    rng = random.Random(seed)
    start = rng.randrange(20) if start is None else start
    for number in range(start, start + count):
        flash = ("auto", "off", "on", "auto")[number % 4]
        kinds = (("f16", "f16"), ("f16", "f16"), ("q8_0", "q8_0"), ("q4_0", "q4_0"), ("q8_0", "f16"))[number % 5]
        if flash == "off":
            kinds = ("f16", "f16")
        context = rng.choice([1024, 2048, 4096, 8192, 16384, 32768, rng.randrange(300, 20_000)])
        yield context, rng.choice([1, 2, 3, 4, 8]), rng.choice([64, 256, 512, 1024, 2048]), flash, *kinds


def loads(folder: Path, devices: int, each: int, every: int = 1) -> list[Load]:
    found = []
    for number, (name, path) in enumerate(models.write_stored(folder)):
        architecture = models.stored()[name][0]["general.architecture"]
        if architecture in UNLOADABLE or (number % every and not GRID):
            continue
        hyper = hyper_of(path)
        real = name.startswith(REAL)  # with flash attention and without
        count = each * 12 if GRID else each + real
        for context, slots, batch, flash, k, v in combinations(f"{name}{devices}{SEED}", count, 0 if real else None):
            if hyper.is_embedding:
                slots = 1  # as Ollama starts them; no graph without a cache is built for several
            total = context * slots
            load = Load(
                str(path),
                devices,
                total,
                slots,
                batch,
                batch,
                FLASH[flash],
                NUMBERS[k],
                NUMBERS[v],
                embedding=hyper.is_embedding,
            )
            if refusal(hyper, request_of(load)) is None:
                found.append(load)
    return found


def measured(loads_: list[Load]) -> list[tuple[Load, Any]]:
    answers = [(Load(*job[1]), answer) for job, answer in run([["measure", load] for load in loads_])]
    assert len(answers) == len(loads_)
    return answers


def checked(answers: list[tuple[Load, Any]]) -> list[tuple[Load, Hyper, Any]]:
    """Loads that the engine laid out. One that it refused has to be known to stop it, or to be an embedding model,
    whose graph it cannot build for every number of slots."""
    good = []
    for load, answer in answers:
        name = Path(load.path).stem
        if answer is None or answer == "crashed":
            assert name in STOPS or load.embedding, f"{load}: {answer}"
        else:
            good.append((load, hyper_of(Path(load.path)), answer))
    return good


def assert_close(predicted: list[tuple[Load, float, float]], within: float, share: float) -> None:
    """Share of (load, predicted, measured) with a relative error of at most `within`."""
    errors = sorted(((abs(p / m - 1), load) for load, p, m in predicted), key=lambda e: e[0])
    good = sum(e <= within for e, _ in errors)
    assert good >= share * len(errors), f"{good} of {len(errors)} within {within:.1%}; worst {errors[-3:]}"


@pytest.fixture(scope="session")
def on_cpu(folder: Path) -> list[tuple[Load, Hyper, Any]]:
    return checked(measured(loads(folder, 0, 1, every=4)))


@pytest.fixture(scope="session")
def on_one(folder: Path) -> list[tuple[Load, Hyper, Any]]:
    return checked(measured(loads(folder, 1, 1)))


def test_enough_loads(on_cpu: list[Any], on_one: list[Any]) -> None:
    assert len(on_cpu) >= 50
    assert len(on_one) >= 300


def test_cache_and_state_to_the_byte(on_cpu: list[Any], on_one: list[Any]) -> None:
    for load, hyper, answer in on_cpu + on_one:
        device = 0 if load.devices else HOST
        prediction = predict(hyper, request_of(load), other(load.devices))
        names = ("cache", "window cache", "indexer cache", "recurrent")
        got = sum(t.bytes for t in prediction.terms if t.name in names and t.device == device)
        assert got == answer[0][1], load


def test_weights_to_the_byte(on_one: list[Any]) -> None:
    for load, hyper, answer in on_one:
        prediction = predict(hyper, request_of(load), other(1))
        weights = next(t.bytes for t in prediction.terms if t.name == "weights" and t.device == 0)
        assert weights == answer[0][0], load


def test_compute_within_its_band(on_cpu: list[Any], on_one: list[Any]) -> None:
    held = total = 0
    widths = []
    for load, hyper, answer in on_cpu + on_one:
        device = 0 if load.devices else HOST
        prediction = predict(hyper, request_of(load), other(load.devices))
        term = next(t for t in prediction.terms if t.name == "compute" and t.device == device)
        few = 32 * min(load.ubatch, load.context) + 8192  # a few numbers a token: positions, scales
        total += 1
        held += term.bytes - term.below - few <= answer[0][2] <= term.bytes + term.above + few
        widths.append(max(term.below, term.above) / sum(answer[0]))
    widths.sort()
    assert held >= 0.95 * total, f"{held} of {total}"
    assert widths[len(widths) // 2] <= 0.05
    assert widths[int(len(widths) * 0.95)] <= 0.20


def test_compute_of_recurrent_models_to_the_byte(on_cpu: list[Any], on_one: list[Any]) -> None:
    """Models with recurrent state, whose blocks differ from each other: whole graphs are followed."""
    seen = set()
    for load, hyper, answer in on_cpu + on_one:
        if not hyper.family.recurrent or not hyper.family.built or hyper.keys.get("nextn_predict_layers"):
            continue
        prediction = predict(hyper, request_of(load), other(load.devices))
        device = 0 if load.devices else HOST
        assert next(t.bytes for t in prediction.terms if t.name == "compute" and t.device == device) == answer[0][2], (
            load
        )
        seen.add(hyper.architecture)
    assert len(seen) >= 15


@pytest.mark.parametrize(("flash", "share"), [(True, 0.97), (False, 0.94)])
def test_compute_of_real_widths(on_cpu: list[Any], on_one: list[Any], flash: bool, share: float) -> None:
    pairs = []
    for load, hyper, answer in on_cpu + on_one:
        if not Path(load.path).stem.startswith(REAL) or TYPES[load.type_k].name != "f16":
            continue
        prediction = predict(hyper, request_of(load), other(load.devices))
        if prediction.flash == flash:
            device = 0 if load.devices else HOST
            term = next(t for t in prediction.terms if t.name == "compute" and t.device == device)
            pairs.append((load, float(term.bytes), float(answer[0][2])))
    assert len(pairs) >= 20
    assert_close(pairs, 0.05, share)


def compute_of(prediction: Prediction, device: int) -> float:
    return float(next(t.bytes for t in prediction.terms if t.name == "compute" and t.device == device))


def test_compute_beside_a_device(on_one: list[Any]) -> None:
    pairs = []
    for load, hyper, answer in on_one:
        if not hyper.family.built:
            continue
        pairs.append((load, compute_of(predict(hyper, request_of(load), other(1)), HOST), float(answer[1][2])))
    assert_close(pairs, 0.05, 0.97)


def test_two_devices(folder: Path) -> None:
    """What every device holds when a model is split over two or three, and the host, pipeline copies included."""
    for devices in (2, 3):
        pairs, hosts = [], []
        inside: list[bool] = []  # of recurrent models, whose blocks exchange more than is known
        answers = checked(measured([load for load in loads(folder, devices, 1, every=4) if not load.embedding]))
        for load, hyper, answer in answers:
            layout = split(hyper, other(devices))
            prediction = predict(hyper, request_of(load), other(devices), layout, projected=True)
            names = ("cache", "window cache", "indexer cache", "recurrent")
            for device in range(devices):
                got = sum(t.bytes for t in prediction.terms if t.name in names and t.device == device)
                if not hyper.keys.get("nextn_predict_layers"):
                    assert got == answer[device][1], (load, device)
            if not hyper.family.built:
                continue
            held = [device for device in range(devices) if answer[device][2]]
            if hyper.family.recurrent and not hyper.keys.get("nextn_predict_layers"):
                few = 32 * load.ubatch + 8192  # a few numbers a token: positions, scales
                inside += [prediction.least(d) - few <= sum(answer[d]) <= prediction.most(d) + few for d in held]
            if hyper.family.recurrent:
                continue
            pairs += [(load, compute_of(prediction, device), float(answer[device][2])) for device in held]
            hosts.append((load, compute_of(prediction, HOST), float(answer[devices][2])))
        assert_close(pairs, 0.05, 0.95)
        assert_close(hosts, 0.05, 0.95)
        assert sum(inside) >= 0.95 * len(inside) >= 20


def test_partial_offload(folder: Path) -> None:
    """The device that runs what lies in host memory borrows one matrix at a time."""
    pairs = []
    held: list[bool] = []  # of recurrent models, whose blocks on the host are only estimated
    todo = []
    for load in loads(folder, 1, 1, every=4):
        hyper = hyper_of(Path(load.path))
        if hyper.family.built and not hyper.keys.get("nextn_predict_layers"):
            todo.append(load._replace(gpu_layers=hyper.blocks // 2))
    for load, hyper, answer in checked(measured(todo)):
        spilled = hyper.blocks + 1 - load.gpu_layers
        layout = Layout((HOST,) * spilled + (0,) * load.gpu_layers)
        prediction = predict(hyper, request_of(load), other(1), layout)
        compute_ = next(t.bytes for t in prediction.terms if t.name == "compute" and t.device == 0)
        if hyper.family.recurrent:
            held.append(prediction.least(0) <= sum(answer[0]) <= prediction.most(0))
        else:
            pairs.append((load, float(compute_), float(answer[0][2])))
        weights = sum(t.bytes for t in prediction.terms if t.name == "weights" and t.device == 0)
        assert abs(weights - answer[0][0]) <= 64 * 1024, load
    assert len(pairs) >= 20
    assert_close(pairs, 0.05, 0.95)
    assert sum(held) >= 0.95 * len(held)


def test_decision_as_the_engine(folder: Path) -> None:
    """Fits or spills, and how many layers, against the engine's own fit (the whole of it: python -m tests.engine)."""
    found = list(fits.decisions(fits.cases(folder, SEED, 260)))
    assert len(found) >= 0.9 * 260
    score = fits.Score.of(found)
    assert not score.false_fits
    assert len(score.false_spills) <= 0.02 * score.decided, score.false_spills
    assert len(score.far) <= 0.05 * score.spilled, score.far


@pytest.mark.parametrize(
    ("name", "devices", "context", "slots", "batch", "flash", "margins"),
    [
        ("minimax-m3-a", (2509,), 8192, 8, 2048, "auto", (1874,)),
        ("wide-lfm2-b", (1314, 598), 8192, 1, 256, "off", (256, 256)),
    ],
)
def test_models_that_once_seemed_to_fit(
    folder: Path, name: str, devices: tuple[int, ...], context: int, slots: int, batch: int, flash: str,
    margins: tuple[int, ...],
) -> None:  # fmt: skip
    """The engine leaves layers of these on the host, and so says the model."""
    path = dict(models.write_stored(folder, [name]))[name]
    load = Load(str(path), len(devices), context * slots, slots, batch, batch, FLASH[flash], cuda=len(devices) > 1)
    projector = (margins[0] - 1024) * fits.MiB if len(devices) == 1 else 0
    margin = margins[-1] * fits.MiB - projector
    placed = tuple(d for size in devices for d in other(1, size * fits.MiB, cuda=load.cuda))
    case = fits.Case(load, hyper_of(path), request_of(load, projector), placed, margin)
    (found,) = fits.decisions([case])
    assert found.left
    assert found.ours.verdict == "spills"
