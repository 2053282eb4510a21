"""What would make a start fit that does not, cheapest for the user first, each with its numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ollamactl.core.capacity import Budget, Place
from ollamactl.core.loaded import Held
from ollamactl.core.memory import fit as fitting
from ollamactl.core.memory.request import Request
from ollamactl.core.memory.runner_args import RunnerArgs, Settings
from ollamactl.core.sizing import Cell, Model, args_for, cell, settings_for, start


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """A way to make a start fit: what to do, what it costs the user, the bytes saved and left."""

    what: str
    command: str
    cost: str
    saved: int
    left: int | None
    cell: Cell | None = None
    estimated: bool = False


# Bits a number of builds that most models are offered in, best first (llama.cpp's k-quants, measured on whole files).
_BUILDS = (("Q8_0", 8.5), ("Q6_K", 6.6), ("Q5_K_M", 5.7), ("Q4_K_M", 4.85), ("Q3_K_M", 3.9))


def options(model: Model, base: Settings, budget: Budget, wanted: Cell, smaller: Iterable[Model] = ()) -> list[Option]:
    """What would make `wanted` fit, cheapest for the user first. `smaller`: other builds that are installed."""
    places = tuple(budget.devices[i] for i in wanted.places)
    found: list[Option] = []

    def request_for(context: int, slots: int, kind: str) -> Request:
        return again(context, slots, kind).args.request(projector=model.projector)

    def again(context: int, slots: int, kind: str) -> Cell:
        return cell(model, base, budget, slots, context=context, kv=kind)

    if not wanted.need:
        return _other_starts(model, base, budget, wanted)
    request = wanted.args.request(projector=model.projector)
    ways = fitting.alternatives(
        model.hyper, request_for, request, places, target=budget.target, host_free=budget.host_free
    )
    late: list[Option] = []
    for way in ways:
        then = again(way.request.context, way.request.slots, way.request.type_k)
        if not then.fits:
            continue  # with its own share of the devices it would not
        option = Option(
            what=_what(way.what, then, wanted), command=_command(way.what, then, model), cost=way.cost,
            saved=wanted.need - then.need, left=then.headroom, cell=then,
        )  # fmt: skip
        (late if way.what == "cache q4_0" else found).append(option)
    found += late
    found += _builds(model, base, budget, wanted, smaller)
    found += _unloaded(model, base, budget, wanted)
    return found


def _what(kind: str, then: Cell, wanted: Cell) -> str:
    if kind.startswith("cache "):
        return f"{then.args.kv_cache_type} cache instead of {wanted.args.kv_cache_type}"
    if kind == "shorter context":
        return f"{then.args.context} tokens a slot instead of {wanted.args.context}"
    return f"{then.args.slots} slot{'s' * (then.args.slots != 1)} instead of {wanted.args.slots}"


def _command(kind: str, then: Cell, model: Model) -> str:
    if kind.startswith("cache "):
        return f"--kv-cache-type {then.args.kv_cache_type}"
    if kind != "shorter context":
        return f"--parallel {then.args.slots}"
    if model.num_ctx:  # which goes before the server's
        return f"PARAMETER num_ctx {then.args.context} in its Modelfile"
    return f"--context-length {then.args.context}"


def _other_starts(model: Model, base: Settings, budget: Budget, wanted: Cell) -> list[Option]:
    """For a start that the engine refuses: the same with flash attention, or with a plain cache."""
    found = []
    flash = msgspec.structs.replace(base, flash_attention=True)
    for what, command, settings, kind in (
        ("flash attention on", "--flash-attention 1", flash, wanted.args.kv_cache_type),
        (f"f16 cache instead of {wanted.args.kv_cache_type}", "--kv-cache-type f16", base, "f16"),
    ):
        then = cell(model, settings, budget, wanted.slots, context=wanted.context, kv=kind)
        if then.fits and then.args != wanted.args:
            found.append(
                Option(what=what, command=command, cost="", saved=0, left=then.headroom, cell=then)
            )
    return found


def _builds(
    model: Model, base: Settings, budget: Budget, wanted: Cell, smaller: Iterable[Model]
) -> Iterable[Option]:
    """Smaller builds: installed ones by their own file, else the first usual one that would fit, by its bits."""

    def tried(other: Model) -> Cell | None:
        then = cell(other, base, budget, wanted.slots, context=wanted.context, kv=wanted.args.kv_cache_type)
        return then if then.fits else None

    installed = False
    for other in sorted(smaller, key=lambda m: -m.size):
        if (then := tried(other)) is not None:
            installed = True
            yield Option(
                what=f"{other.name}, which is installed", command=f"ollama run {other.name}", cost="a smaller build",
                saved=wanted.need - then.need, left=then.headroom, cell=then,
            )  # fmt: skip
    if installed or not model.parameters or not model.size:
        return
    bits = 8 * model.size / model.parameters
    for name, of in _BUILDS:
        if of > 0.93 * bits:
            continue
        weights = model.hyper.weights
        less = msgspec.structs.replace(
            weights,
            blocks=tuple(int(b * of / bits) for b in weights.blocks),
            experts=tuple(int(b * of / bits) for b in weights.experts),
        )
        other = msgspec.structs.replace(
            model, hyper=msgspec.structs.replace(model.hyper, weights=less), size=int(model.size * of / bits)
        )
        if (then := tried(other)) is not None:
            now = model.quantization or f"{bits:.0f} bits"
            yield Option(
                what=f"a {name} build instead of {now}", command="", cost="answers get a little worse",
                saved=wanted.need - then.need, left=then.headroom, cell=then, estimated=True,
            )  # fmt: skip
            return


def _unloaded(model: Model, base: Settings, budget: Budget, wanted: Cell) -> Iterable[Option]:
    """Without the models that stay loaded beside it, the largest first."""
    freed: list[Held] = []
    for one in sorted(budget.beside, key=lambda h: -(h.device_bytes if budget.places else h.host)):
        size = one.device_bytes if budget.places else one.host
        if not size:
            continue
        freed.append(one)
        room = _freed(budget, freed)
        then = start(model, args_for_again(model, base, room, wanted), room)
        if then.fits:
            names = " and ".join(h.model for h in freed)
            yield Option(
                what=f"{names} unloaded", command="; ".join(f"ollama stop {h.model}" for h in freed),
                cost="the next request for it loads it again and this one goes (OLLAMA_MAX_LOADED_MODELS)",
                saved=0, left=then.headroom, cell=then,
            )  # fmt: skip
            return


def args_for_again(model: Model, base: Settings, budget: Budget, wanted: Cell) -> RunnerArgs:
    """The arguments of the same start with another budget."""
    change = {"parallel": wanted.slots, "context_length": wanted.context, "kv_cache_type": wanted.args.kv_cache_type}
    return args_for(model, settings_for(model, base, num_ctx=None, **change), budget)


def _freed(budget: Budget, gone: list[Held]) -> Budget:
    count = max(1, len(budget.places))

    def more(place: Place) -> Place:
        here = -2 if place.gpu is None else place.gpu
        add = sum(h.gpus.get(-1, 0) // count + h.gpus.get(here, 0) for h in gone)
        device = msgspec.structs.replace(place.device, free=place.device.free + add)
        return msgspec.structs.replace(place, device=device, free=place.free + add)

    room = msgspec.structs.replace(budget, places=tuple(map(more, budget.places)))
    return room.with_host(sum(h.host for h in gone))
