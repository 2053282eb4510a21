"""Model + settings + budget → what fits: one start, a table of context × slots × cache type, `auto`. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ollamactl.core.capacity import Budget
from ollamactl.core.memory import fit as fitting
from ollamactl.core.memory.fit import Fit, Verdict
from ollamactl.core.memory.layout import HOST
from ollamactl.core.memory.model import Hyper
from ollamactl.core.memory.predict import predict
from ollamactl.core.memory.request import Device, refusal
from ollamactl.core.memory.runner_args import RunnerArgs, Settings, plain_cache, runner_args, slots_asked
from ollamactl.core.memory.terms import Prediction
from ollamactl.core.settings import MAX_SLOTS

CACHES = ("cache", "window cache", "indexer cache", "recurrent")
# `auto` takes no more: beyond it slots only share the same device, and each request gets slower.
AUTO_MOST = 16


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model and what its Modelfile fixes. `size`: bytes of its files without the projector."""

    name: str
    hyper: Hyper
    path: str = ""
    size: int = 0
    parameters: int = 0  # numbers in its tensors
    quantization: str = ""
    projector: int = 0  # bytes of a separate projector
    num_ctx: int | None = None
    num_batch: int | None = None
    num_gpu: int | None = None
    digest: str = ""
    lacking: int = 0  # bytes of tensors that its header promises and its files do not have

    @property
    def vision(self) -> bool:
        return bool(self.projector or self.hyper.weights.projector)


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One start. `need`: bytes on the devices with everything there (on a host without any: in host memory);
    `places`: positions in the budget of the devices that Ollama gives it; `room`: bytes of them that may be used."""

    context: int
    slots: int  # asked; `args.slots` is what Ollama makes of it
    args: RunnerArgs
    fit: Fit
    full: Prediction
    places: tuple[int, ...]
    need: int
    room: int | None

    @property
    def fits(self) -> bool:
        return self.fit.verdict == "fits"

    @property
    def verdict(self) -> Verdict:
        return self.fit.verdict

    @property
    def kv(self) -> int:
        """Bytes of all caches and states."""
        return sum(self.full.total(name) for name in CACHES)

    @property
    def headroom(self) -> int | None:
        """Bytes left beyond what is kept free, negative where they lack; None where the budget is not known."""
        return None if self.room is None else self.room - self.need

    @property
    def band(self) -> tuple[int, int]:
        """Bytes that the truth may lie below and above `need`."""
        there = [t for t in self.full.terms if (t.device != HOST) == bool(self.places)]
        return sum(t.below for t in there), sum(t.above for t in there)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A context and cache type: a cell for each slot count asked, the largest count that fits, what one more costs."""

    context: int
    kv_type: str
    cells: tuple[Cell, ...]
    largest: int
    next: Cell | None  # with one slot more than the largest; None at the engine's limit
    step: int = 0  # bytes that the next slot costs


def settings_for(model: Model, base: Settings, **change: object) -> Settings:
    """The settings as they meet this model: its Modelfile's values go before the server's."""
    own: dict[str, object] = {"num_ctx": model.num_ctx, "num_batch": model.num_batch, "vision": model.vision}
    return msgspec.structs.replace(base, **{**own, **change})


def args_for(model: Model, settings: Settings, budget: Budget) -> RunnerArgs:
    """What Ollama would start the runner with."""
    available = budget.device_bytes if budget.places else budget.unlimited
    return runner_args(model.hyper, settings, _devices(model, budget), available=available)


def _devices(model: Model, budget: Budget) -> tuple[Device, ...]:
    return () if model.num_gpu == 0 else budget.devices


def given(model: Model, args: RunnerArgs, budget: Budget) -> tuple[int, ...]:
    """Positions of the devices that Ollama's scheduler gives a model: the one with the most free memory if 80 % of it
    holds Ollama's own guess (file and a plain f16 cache), else all of its library (server/sched.go)."""
    if model.num_gpu == 0:
        return ()
    everything = tuple(range(len(budget.places)))
    if len(everything) < 2 or budget.spread:
        return everything
    best = max(everything, key=lambda i: (budget.places[i].discrete, budget.places[i].free))
    guess = model.size + plain_cache(model.hyper, args.total_context)
    return (best,) if guess <= 0.8 * budget.places[best].free else everything


def start(model: Model, args: RunnerArgs, budget: Budget, slots: int | None = None) -> Cell:
    """What becomes of one start."""
    request = args.request(projector=model.projector)
    places = given(model, args, budget)
    devices = tuple(budget.places[i].device for i in places)
    found = fitting.fit(model.hyper, request, devices, host_free=budget.host_free, target=budget.target)
    full = found.prediction
    if refusal(model.hyper, request) is not None:
        return Cell(
            context=args.context, slots=slots or args.slots, args=args, fit=found, full=full, places=places, need=0,
            room=None,
        )  # fmt: skip
    if devices and found.verdict != "fits":
        full = predict(model.hyper, request, devices, fitting.split(model.hyper, devices))
    if not devices:
        need, room = full.on(HOST), budget.host_free
    else:
        kept = budget.kept(model.projector) + fitting.reserve(model.hyper, request, devices)
        need = sum(full.on(i) for i in range(len(devices)))
        room = sum(d.free - kept for d in devices)
    return Cell(
        context=args.context, slots=slots or args.slots, args=args, fit=found, full=full, places=places, need=need,
        room=room,
    )  # fmt: skip


def as_set(model: Model, base: Settings, budget: Budget) -> Cell:
    """The start as everything is set, with the reason of each number."""
    args = args_for(model, settings_for(model, base), budget)
    return start(model, args, budget, slots_asked(base))


def cell(
    model: Model, base: Settings, budget: Budget, slots: int, *, context: int | None = None, kv: str | None = None
) -> Cell:
    """One start with that many slots. `context`, `kv`: instead of what the settings and the Modelfile say."""
    settings = settings_for(model, base, parallel=slots, **_change(context, kv))
    return start(model, args_for(model, settings, budget), budget, slots)


def _change(context: int | None, kv: str | None) -> dict[str, object]:
    change: dict[str, object] = {}
    if context is not None:
        change |= {"context_length": context, "num_ctx": None}
    if kv is not None:
        change["kv_cache_type"] = kv
    return change


def largest(
    model: Model, base: Settings, budget: Budget, *, context: int | None = None, kv: str | None = None
) -> int:
    """The most slots that stay wholly on the devices (or within host memory); 0 if not even one does."""

    settings = settings_for(model, base, **_change(context, kv))

    def args(slots: int) -> RunnerArgs:
        return args_for(model, msgspec.structs.replace(settings, parallel=slots), budget)

    if args(2).slots == 1:
        return int(stays(model, args(1), budget))
    low, high = 0, MAX_SLOTS
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if stays(model, args(middle), budget) else (low, middle - 1)
    # Where memory is short a larger total context means a smaller batch, so that a few more slots may fit after all.
    while low < MAX_SLOTS and args(low + 1).batch < args(max(low, 1)).batch and stays(model, args(low + 1), budget):
        low += 1
    return low


def stays(model: Model, args: RunnerArgs, budget: Budget) -> bool:
    """Whether a start stays wholly on its devices: `start(…).fits`, without asking where the layers go if not."""
    places = given(model, args, budget)
    request = args.request(projector=model.projector)
    if len(places) != 1 or refusal(model.hyper, request) is not None:
        return start(model, args, budget).fits
    device = budget.places[places[0]].device
    full = predict(model.hyper, request, (device,), fitting.split(model.hyper, (device,)))
    kept = budget.kept(model.projector) + fitting.reserve(model.hyper, request, (device,))
    return device.free - full.most(0) >= kept


def table(
    model: Model,
    base: Settings,
    budget: Budget,
    slots: Iterable[int],
    contexts: Iterable[int | None],
    kinds: Iterable[str],
) -> tuple[Row, ...]:
    """Rows by cache type, then context. Contexts above what the model was trained for are clipped, once. None: the
    context that counts by itself, with its reason."""
    rows: list[Row] = []
    slots = tuple(slots)
    for kv in kinds:
        seen: set[int] = set()
        for context in contexts:
            first = cell(model, base, budget, 1, context=context, kv=kv)
            if first.context in seen:
                continue
            seen.add(first.context)
            most = largest(model, base, budget, context=context, kv=kv)
            cells = tuple(cell(model, base, budget, n, context=context, kv=kv) for n in slots)
            following, step = None, 0
            if most < MAX_SLOTS:
                following = cell(model, base, budget, most + 1, context=context, kv=kv)
                if following.args.slots == most:
                    following = None  # a family with one slot
                elif following.need:
                    now = cell(model, base, budget, most, context=context, kv=kv).need if most else 0
                    step = following.need - now
            kind = first.args.kv_cache_type
            rows.append(Row(context=first.context, kv_type=kind, cells=cells, largest=most, next=following, step=step))
    return tuple(rows)


def focus(cells: list[Cell]) -> Cell:
    """The cell worth a closer look: the smallest that does not fit, else the largest."""
    wrong = [c for c in cells if not c.fits]
    return min(wrong, key=lambda c: (c.need, c.slots)) if wrong else max(cells, key=lambda c: (c.need, c.slots))


def auto(models: Iterable[Model], base: Settings, budget: Budget, current: int = 0) -> tuple[int, str]:
    """Slots that `auto` stands for, and why: as many as let every model stay wholly where it is, all side by side.
    The current count stays where it fits and one or so more would not be worth a restart."""
    models = tuple(models)
    limit = min(AUTO_MOST, budget.cpus or AUTO_MOST) if not budget.places else AUTO_MOST
    several = [m for m in models if cell(m, base, budget, 2).args.slots > 1]
    if not several:
        names = ", ".join(m.name for m in models)
        return 1, f"Ollama gives {names} one slot whatever is set"
    most = 0
    for slots in range(1, limit + 1):
        if not all(c.fits for c in together(models, base, budget, slots)):
            break
        most = slots
    if not most:
        return 0, "not even one slot fits"
    where = "on the GPU" if budget.places else "in host memory"
    if current and current <= most <= current + max(1, current // 8) and current < most < limit:
        return current, f"{most} slots would fit {where}; {current} are kept, one more is not worth a restart"
    if most == limit:
        share = "the device" if budget.places else f"{budget.cpus} CPUs" if budget.cpus else "the CPUs"
        return most, f"more would fit {where}, but beyond {limit} they only share {share}"
    return most, f"{most} slots stay {where}, {most + 1} would not"


def together(models: Iterable[Model], base: Settings, budget: Budget, slots: int | None = None) -> list[Cell]:
    """All models loaded one after the other, each with what the ones before it left."""
    found = []
    for model in models:
        settings = settings_for(model, base) if slots is None else settings_for(model, base, parallel=slots)
        one = start(model, args_for(model, settings, budget), budget)
        found.append(one)
        budget = budget.without(taken(one, budget), one.fit.prediction.on(HOST) if not one.places else 0)
    return found


def taken(one: Cell, budget: Budget) -> dict[int, int]:
    """Bytes that a start takes of each place, the driver's context included."""
    return {at: one.fit.prediction.on(i) + budget.places[at].context for i, at in enumerate(one.places)}
