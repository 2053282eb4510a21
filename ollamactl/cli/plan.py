"""`ollamactl plan`: how much memory, how many slots, before anything is restarted."""

from __future__ import annotations

import re
import time

import click
import msgspec

from ollamactl.cli.common import Number, color_option, from_option, json_option, unit_option
from ollamactl.cli.sources import open_source
from ollamactl.core.answer import Answer, Asked, answer, worst_case
from ollamactl.core.capacity import budget
from ollamactl.core.facts import Facts
from ollamactl.core.feeds import Collector
from ollamactl.core.loaded import Held, held
from ollamactl.core.memory.runner_args import engine_class
from ollamactl.core.memory_settings import number, release_of, settings_of, values_now
from ollamactl.core.plan import full_name
from ollamactl.core.queueing import Demand, Service, demand
from ollamactl.core.settings import KV_TYPES, MAX_SLOTS
from ollamactl.core.sizing import Model
from ollamactl.errors import Exit, Failure
from ollamactl.host import loads, measured, modelfiles
from ollamactl.host.measured import Measured
from ollamactl.host.modelfiles import Found
from ollamactl.report import envelope
from ollamactl.report.plan import show
from ollamactl.report.plan_data import data
from ollamactl.report.queue import queue_data, show_queue
from ollamactl.report.text import Terminal

FIELDS = (
    "service", "unit_files", "env_files", "manager_environment", "effective", "process", "start", "version", "loaded",
    "runners", "gpus", "memory", "system", "listeners",
)  # fmt: skip
MOST_DEVICES = 16  # llama_max_devices()
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.I)


@click.command()
@click.argument("model", required=False)
@click.option("--parallel", metavar="N,…|auto", help="Slot counts of the table; auto: as many as fit.")
@click.option("--context-length", metavar="N,…", help="Contexts per slot: 8192, 8k.")
@click.option("--kv-cache-type", metavar="T,…", help="Types of the KV cache: f16, q8_0, q4_0.")
@click.option("--flash-attention", type=click.Choice(["on", "off"]), help="Instead of what the service has.")
@click.option("--gpu-free", metavar="SIZE,…", help="Assume GPUs with that much free memory; 0 for none.")
@click.option("--client-timeout", metavar="S", type=Number(0.1, 86400),
              help="How long clients wait for a whole reply: how many may wait.")  # fmt: skip
@click.option("--service-time", metavar="S", type=Number(0.001, 86400),
              help="Seconds that a request holds its slot (else as probe measured it last).")  # fmt: skip
@click.option("--rate", metavar="R", type=Number(1e-6, 1e6), help="Requests that arrive in a second.")
@click.option("--percentile", metavar="P", type=Number(50, 99.9), default=95.0,
              help="Share of the requests that have to be in time. [95]")  # fmt: skip
@from_option
@unit_option
@color_option
@json_option
def plan(
    model: str | None,
    parallel: str | None,
    context_length: str | None,
    kv_cache_type: str | None,
    flash_attention: str | None,
    gpu_free: str | None,
    client_timeout: float | None,
    service_time: float | None,
    rate: float | None,
    percentile: float,
    source: str | None,
    unit: str,
    no_color: bool,
    as_json: bool,
) -> int:
    """Say how much memory MODEL takes with each context and slot count, what fits, and what to do where it does not.

    MODEL is an installed model's name or a GGUF file. No server is needed, nothing is loaded or changed.
    With --client-timeout it also says how many requests may wait for a slot; MODEL may be left out then.

    \b
    ollamactl plan qwen3:8b
    ollamactl plan --client-timeout 60 --service-time 10 --parallel 4
    ollamactl plan qwen3:8b --parallel 1,2,4,8 --context-length 8k,32k \\
        --kv-cache-type f16,q8_0
    ollamactl plan ./model.gguf --parallel auto --gpu-free 24G
    """
    asked = Asked(
        slots=slot_counts(parallel),
        contexts=token_counts(context_length),
        kinds=tuple(_kv(item) for item in _items("--kv-cache-type", kv_cache_type)),
        auto="auto" in [item.lower() for item in _items("--parallel", parallel)],
    )
    assumed = _devices(gpu_free) if gpu_free is not None else None
    if client_timeout is None and (service_time is not None or rate is not None):
        raise _usage("--service-time and --rate say nothing without --client-timeout", "--client-timeout 60")
    if model is None and client_timeout is None:
        raise _usage("no MODEL was named", "ollamactl plan MODEL; ollama list shows them")
    facts = facts_for(source, unit)
    out = Terminal(colour=False if no_color else None)
    result = None
    if model is not None:
        found = modelfiles.find(model, modelfiles.folders(facts))
        wanted = modelfiles.model(found)
        result = answered(wanted, found, facts, asked, flash=flash_attention, gpu_free=assumed, live=source is None)
    queue = None
    if client_timeout is not None:
        queue = _queue(client_timeout, service_time, rate, percentile / 100, model, asked, facts, result)
    worst = worst_case(result, facts) if result else ""
    if as_json:
        document = data(result, worst) if result else {}
        envelope.write(envelope.envelope("plan", Exit.OK, {**document, "queue": queue and queue_data(*queue)}))
        return Exit.OK
    if result:
        show(out, result, worst)
    if queue:
        if result:
            out.line()
        show_queue(out, *queue)
    return Exit.OK


def _queue(
    patience: float,
    seconds: float | None,
    rate: float | None,
    share: float,
    model: str | None,
    asked: Asked,
    facts: Facts,
    result: Answer | None,
) -> tuple[Demand, Measured | None]:
    """How many may wait, by a service time that is given or was measured last."""
    name = full_name(result.model.name) if result else ""
    seen = measured.last(name)
    if seconds is not None:
        of = Service(mean=seconds, variation=seen.variation if seen else 0.0)
    elif seen is not None:
        of = seen.service
    else:
        whose = f" of {name}" if name else ""
        raise Failure(
            f"no service time{whose} was measured on this host yet",
            hint=f"ollamactl probe {model or 'MODEL'} measures it; or say it: --service-time 10",
            code=Exit.USAGE,
            id="no_service_time",
        )
    slots, context, fits = asked.slots[0] if asked.slots else None, 0, None
    if result:
        one = result.focus
        row = next((r for r in result.rows if r.context == one.context), result.rows[0])
        context, fits = one.context, row.largest
        slots = slots or (result.auto[0] if result.auto else result.settings.parallel)
        if one.args.slots < one.slots:  # embedding models and some families get one, whatever is asked for
            slots = one.args.slots
    slots = slots or (seen.slots if seen else None) or number(values_now(facts), "OLLAMA_NUM_PARALLEL")
    found = demand(
        patience, slots or 1, of, share=share, rate=rate, fits=fits, context=context,
        lengths=seen.lengths if seen and context else (),
    )  # fmt: skip
    return found, seen if seconds is None else None


def facts_for(source: str | None, unit: str) -> Facts:
    """What a plan wants of the host. A host without Ollama is well: the file and the devices are enough."""
    opened = open_source(source, unit)
    if opened.facts is not None:
        return opened.facts
    collector = Collector(opened.host, unit)
    if collector.get("unit") is None:
        missing = collector.missing["unit"]
        if missing.kind == "unasked" and source is None:
            raise Failure(missing.detail, hint="name one: --unit NAME", code=Exit.USAGE, id="several_units")
    facts = collector.facts(FIELDS, taken=time.time(), origin=opened.origin)
    if unit and facts.service is None:
        missing = facts.why("service")
        raise Failure(missing.detail or str(missing), hint=missing.hint, id=missing.kind)
    return facts


def answered(
    model: Model,
    found: Found,
    facts: Facts,
    asked: Asked,
    *,
    flash: str | None = None,
    gpu_free: tuple[int, ...] | None = None,
    live: bool = True,
) -> Answer:
    """The answer for one model on a host: the same model's runner is taken as ended, others as staying."""
    values = values_now(facts)
    release, known = release_of(facts)
    settings = settings_of(values, release)
    if flash is not None:
        settings = msgspec.structs.replace(settings, flash_attention=flash == "on")
    stored, why = loads.read() if live else ((), "")
    engine = engine_class(release)
    context = loads.spread(stored, engine, "").context
    here = held(facts, modelfiles.mapped(facts))
    leave = [h for h in here if _same(h, model)]
    stay = [h for h in here if not _same(h, model)]
    room = budget(facts, values, stay=stay, leave=leave, context=context, gpu_free=gpu_free)
    notes = [] if known else ["no release of Ollama is known here: the newest is assumed"]
    smaller = [modelfiles.model(other) for other in modelfiles.smaller_builds(found)]
    current = number(values, "OLLAMA_NUM_PARALLEL") or 0
    result = answer(model, settings, room, asked, smaller=smaller, notes=notes, current=current)
    kind = room.places[0].device.kind if result.focus.places else ""
    said = loads.spread(stored, engine, kind, why)
    return msgspec.structs.replace(
        result, loads=said.count, loads_error=said.error, loads_why=said.why, context_measured=kind in context
    )


def _same(one: Held, model: Model) -> bool:
    return one.model.lower() == model.name.lower() or bool(one.path and one.path == model.path)


# -- the words of the command line --


def _items(option: str, text: str | None) -> list[str]:
    """Parts of a list that an option was given; none where it was not."""
    found = [item.strip() for item in (text or "").split(",") if item.strip()]
    if text is not None and not found:
        raise _usage(f"{option} {text!r}: an empty list", f"ollamactl plan --help shows what {option} takes")
    return found


def slot_counts(text: str | None) -> tuple[int, ...]:
    found = []
    for item in _items("--parallel", text):
        if item.lower() == "auto":
            continue
        if not re.fullmatch(r"\d{1,6}", item) or not 1 <= int(item) <= MAX_SLOTS:
            hint = f"a number from 1 to {MAX_SLOTS}, or auto: --parallel 1,2,4"
            raise _usage(f"--parallel {item}: no slot count", hint)
        found.append(int(item))
    return tuple(dict.fromkeys(found))


def token_counts(text: str | None) -> tuple[int, ...]:
    return tuple(_tokens(item) for item in _items("--context-length", text))


def _tokens(text: str) -> int:
    match = re.fullmatch(r"(\d{1,9})([kKmM]?)", text)
    count = int(match[1]) * {"": 1, "k": 1024, "m": 1 << 20}[match[2].lower()] if match else 0
    if not 1 <= count <= 1 << 27:
        raise _usage(f"--context-length {text}: no number of tokens", "--context-length 4k,8192,32k")
    return count


def _kv(text: str) -> str:
    if text.lower() not in KV_TYPES:
        raise _usage(f"--kv-cache-type {text}: the engine has no such type", "one of " + ", ".join(KV_TYPES))
    return text.lower()


def _devices(text: str) -> tuple[int, ...]:
    found = tuple(_bytes(item) for item in _items("--gpu-free", text))
    if len(found) > MOST_DEVICES:
        raise _usage(f"--gpu-free: {len(found)} GPUs", f"the engine takes at most {MOST_DEVICES}")
    return found


def _bytes(text: str) -> int:
    """Bytes of 24G, 22.9GiB, 8000M (all powers of 1024, as drivers print them) or a plain number of bytes."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise _usage(f"--gpu-free {text}: no size", "--gpu-free 24G, --gpu-free 22.9GiB,22.9GiB")
    power = " KMGT".index(match[2].upper()) if match[2] else 0
    size = int(float(match[1]) * 1024**power)
    if not match[2] and 0 < size < 1 << 20:
        raise _usage(f"--gpu-free {text}: {text} bytes are no GPU", f"with a unit: --gpu-free {text}G")
    if size > 1 << 50:
        raise _usage(f"--gpu-free {text}: more than any GPU has", "--gpu-free 24G")
    return size


def _usage(text: str, hint: str) -> Failure:
    return Failure(text, hint=hint, code=Exit.USAGE, id="usage")
