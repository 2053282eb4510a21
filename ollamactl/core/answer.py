"""What `plan` answers, as one record: the table, the start worth a closer look, ways out, words. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ollamactl.core.capacity import CONTEXT_BAND, Budget
from ollamactl.core.facts import Facts
from ollamactl.core.memory.fit import reserve
from ollamactl.core.memory.runner_args import Settings
from ollamactl.core.memory.shape import CLASSIC
from ollamactl.core.sizing import AUTO_MOST, Cell, Model, Row, as_set, auto, cell, focus, table
from ollamactl.core.ways import Option, options

PROMPT_CACHE = 8192 << 20  # bytes of llama-server's --cache-ram where it is not set
USUAL_SLOTS = (1, 2, 4, 8)
USUAL_CONTEXTS = (4096, 8192, 32768)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The axes of the table. Empty: the usual values and those in use. `auto`: slots as many as fit."""

    slots: tuple[int, ...] = ()
    contexts: tuple[int, ...] = ()
    kinds: tuple[str, ...] = ()
    auto: bool = False


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    model: Model
    budget: Budget
    settings: Settings
    slots: tuple[int, ...]
    rows: tuple[Row, ...]
    focus: Cell
    ways: tuple[Option, ...]
    auto: tuple[int, str] | None = None
    loads: int = 0  # stored loads of this host of the same kind
    loads_error: int = 0  # bytes that they were off at most
    loads_why: str = ""
    context_measured: bool = False  # the driver's context is from loads of this host
    notes: tuple[str, ...] = ()


def answer(
    model: Model,
    settings: Settings,
    budget: Budget,
    asked: Asked,
    *,
    smaller: Iterable[Model] = (),
    notes: Iterable[str] = (),
    current: int = 0,
) -> Answer:
    """The whole answer. `current`: the slots that are set now, for `auto`."""
    now = as_set(model, settings, budget)
    contexts = asked.contexts or _contexts(model, now)
    kinds = asked.kinds or (now.args.kv_cache_type,)
    chosen = None
    slots = asked.slots
    if asked.auto:
        base = msgspec.structs.replace(settings, kv_cache_type=kinds[0])
        one = msgspec.structs.replace(model, num_ctx=asked.contexts[0]) if asked.contexts else model
        chosen = auto((one,), base, budget, current)
        slots = tuple(sorted({*slots, *(n for n in USUAL_SLOTS if n <= AUTO_MOST), max(1, chosen[0])}))
    if not slots:
        slots = tuple(sorted({*USUAL_SLOTS, now.slots}))
    rows = table(model, settings, budget, slots, contexts, kinds)
    if chosen is not None:
        close = cell(model, settings, budget, max(1, chosen[0]), context=contexts[0] if asked.contexts else None,
                     kv=kinds[0])  # fmt: skip
    else:
        close = _close(rows, now, asked)
    ways = tuple(options(model, settings, budget, close, smaller)) if not close.fits else ()
    return Answer(
        model=model, budget=budget, settings=settings, slots=slots, rows=rows, focus=close, ways=ways, auto=chosen,
        notes=tuple(dict.fromkeys((*notes, *budget.notes, *_notes(model, settings, budget, close, asked)))),
    )  # fmt: skip


def _contexts(model: Model, now: Cell) -> tuple[int | None, ...]:
    most = model.hyper.trained_context or max(USUAL_CONTEXTS)
    found = sorted({now.context, *(c for c in USUAL_CONTEXTS if c <= most)})
    return tuple(None if c == now.context else c for c in found)


def _close(rows: tuple[Row, ...], now: Cell, asked: Asked) -> Cell:
    """The start worth a closer look: what would start now, in what was not asked."""
    if not (asked.slots or asked.contexts or asked.kinds):
        return now
    rows = rows if asked.contexts else tuple(r for r in rows if r.context == now.context)
    return focus([c for r in rows for c in r.cells if asked.slots or c.slots == now.slots])


def _notes(model: Model, settings: Settings, budget: Budget, close: Cell, asked: Asked) -> Iterable[str]:
    yield from close.full.notes
    if model.lacking:
        yield f"{model.name} lacks {gib(model.lacking)} of its tensors: no engine loads it; pull or download it again"
    if model.num_ctx and asked.contexts:
        yield (f"{model.name} has num_ctx {model.num_ctx} in its Modelfile, which goes before OLLAMA_CONTEXT_LENGTH: "
               "another context needs a request's or a Modelfile's own num_ctx")  # fmt: skip
    if model.num_gpu:
        yield (f"{model.name} has num_gpu {model.num_gpu} in its Modelfile: the engine then does not fit by itself, "
               "and fails where the layers asked for do not fit")  # fmt: skip
    elif model.num_gpu == 0 and budget.places:
        yield f"{model.name} has num_gpu 0 in its Modelfile: it runs on the CPU"
    if close.args.engine == CLASSIC:
        yield "releases before 0.30 place layers by an estimate of their own, so spilled layers may differ"
        devices = tuple(budget.devices[i] for i in close.places)
        if more := reserve(model.hyper, close.args.request(), devices):
            yield f"Ollama counts {gib(more)} more for its compute buffer there than it takes"
    left = close.headroom
    if not close.places and close.args.engine != CLASSIC and left is not None and 0 <= left < PROMPT_CACHE:
        yield ("the engine may keep up to 8 GiB of old prompts in host memory beside this "
               "(LLAMA_ARG_CACHE_RAM sets how much)")  # fmt: skip
    if model.size > sum(m for m in (budget.host_free or 0, budget.device_bytes) if m) and budget.host_free:
        yield "the file alone is larger than the memory that is free"


def words(result: Answer) -> str:
    """One sentence for people who do no sums."""
    one, model = result.focus, result.model
    count = one.args.slots
    slots = f"{count} slot{'s' * (count != 1)} × {tokens(one.args.context)}"
    weights = gib(one.full.total("weights"))
    if not one.need:
        return f"{slots} of {model.name} can't be started: {one.fit.why}"
    held = _held(one)
    need = f"{slots} of {model.name} need{'s' * (count == 1)} {gib(one.kv)} of {held} beside {weights} of weights"
    if not one.kv:
        need = f"{model.name} needs no cache beside {weights} of weights"
    free = result.budget.device_bytes if one.places else result.budget.host_free
    this = (one.context, one.args.kv_cache_type)
    most = next((r.largest for r in result.rows if (r.context, r.kv_type) == this), count if one.fits else 0)
    have = "" if free is None else f"; with {gib(free)} of {'GPU' if one.places else 'host'} memory free, "
    if not have:
        return need
    if not most:
        return f"{need}{have}not even one slot fits"
    alone = one.args.slots == 1 and most == 1 and one.slots > 1
    said = "1 slot fits" if most == 1 else f"{most} slots fit"
    return f"{need}{have}{said}" + (" (Ollama gives it one whatever is set)" if alone else "")


def _held(one: Cell) -> str:
    state, kv = one.full.total("recurrent"), one.kv
    if not state:
        return "cache"
    return "recurrent state" if state == kv else "cache and recurrent state"


def tokens(count: int) -> str:
    return f"{count // 1024}k" if count >= 1024 and count % 1024 == 0 else f"{count}"


def gib(size: int) -> str:
    return f"{size / (1 << 30):,.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):,.0f} MiB"


def context_band(context: int) -> int:
    """Bytes that the driver's context may be off where no load of this host has shown it."""
    return int(context * CONTEXT_BAND)


def worst_case(result: Answer, facts: Facts) -> str:
    """Loaded models × slots, which is what a host must hold at worst."""
    config = (facts.start.config if facts.start else None) or {}
    text = config.get("OLLAMA_MAX_LOADED_MODELS", "")
    most = int(text) if text.isdigit() and int(text) else 3 * max(1, len(result.budget.places))
    if most < 2 or not result.focus.need:
        return ""
    slots = result.focus.args.slots
    total = most * result.focus.need
    return (f"at worst {most} such models are loaded at once, each with its {slots} slot{'s' * (slots != 1)}: "
            f"{gib(total)} (OLLAMA_MAX_LOADED_MODELS)")  # fmt: skip
