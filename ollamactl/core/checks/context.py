"""Context: cut, clipped to the model's, given by a model, a request or a client."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check, configured, times
from ollamactl.core.checks.slots import is_embedding
from ollamactl.core.facts import Facts, Load, LogEvent, Start
from ollamactl.core.needs import NO_SIGNS, Given, Signs


def on_host(load: Load) -> bool:
    """Whether part of the model's layers stayed off the GPU."""
    return (load.offloaded is not None and 0 < load.offloaded[0] < load.offloaded[1] - 1) or (
        load.offloaded is not None and load.offloaded[0] == load.offloaded[1] - 1 and load.offloaded[1] > 1
    )


def spilled(start: Start) -> list[Load]:
    """Loads of which layers are left to the CPU though a GPU is there; not where the request asked for that."""
    return [
        x
        for x in start.loads
        if x.outcome == "loaded"
        and x.offloaded
        and x.offloaded[0] < x.offloaded[1]
        and x.gpu_layers != 0
        and not is_embedding(x)
    ]


def kv_bytes(load: Load) -> int:
    return sum(b.bytes for b in load.buffers if b.kind == "kv")


def newest(loads: list[Load], start: Start) -> Load | None:
    """The last of these loads, unless the same model was loaded well after it."""
    for load in reversed(loads):
        later = [x for x in start.loads if (x.line or 0) > (load.line or 0) and x.model == load.model]
        if not any(x.outcome == "loaded" and x not in loads for x in later):
            return load
    return None


@check(weight=60, explains=("client_num_ctx_not_sent", "num_ctx_capped_to_trained_context"))
def prompt_truncated(signs: Signs, start: Start | None = None, given: tuple[Given, ...] = ()) -> Iterator[Finding]:
    """Prompts were longer than the context and were cut.

    Why: what does not fit is thrown away without an error for the client; since 0.30.9 half of the window is kept.
    Seen: "truncating input prompt" with limit and length, or slots that ended truncated.
    Do: a longer context if it fits, or shorter prompts.
    """
    events = signs.of("prompt_truncated", "context_exceeded")
    count = signs.count("prompt_truncated", "context_exceeded")
    shifted = signs.count("slot_truncated") + (signs.count("context_shift") if not events else 0)
    if not count and not (shifted >= 2 or signs.count("slot_truncated")):
        withheld = signs.has("num_ctx_withheld", "num_ctx_on_v1", "num_ctx_not_in_modelfile")
        if signs.has("truncation_told") and not withheld:
            yield Finding(
                "warning",
                "a prompt is longer than the context, and is cut without an error",
                signs.lines("truncation_told"),
                "sudo ollamactl apply --context-length 16384",
            )
        elif signs.has("prompt_half", "read_like_half"):
            yield Finding(
                "warning" if signs.has("prompt_half") else "info",
                "a prompt longer than the context was cut to half of it",
                signs.lines("prompt_half", "read_like_half"),
                "sudo ollamactl apply --context-length 65536",
            )
        return
    if events and all(EMBEDS.search(e.text) for e in events):
        yield Finding(
            "warning",
            f"{times(count, 'input')} for an embedding longer than the model takes",
            signs.quotes(events),
            "ollama show MODEL | grep 'context length'    # cut inputs into pieces of at most that many tokens",
            consequences=(_of_too_long(events, start),),
        )
        return
    limits = [int(e.fields["limit"]) for e in events if e.fields.get("limit", "").isdigit()]
    prompts = [int(e.fields["prompt"]) for e in events if e.fields.get("prompt", "").isdigit()]
    if count:
        said = f"{times(count, 'prompt')} cut"
        said += f" to {max(limits):,} tokens" if limits else ""
        said += f": they were {min(prompts):,} to {max(prompts):,} long" if len(prompts) > 1 else ""
        said += f": it was {prompts[0]:,} long" if len(prompts) == 1 else ""
    else:
        said = f"{times(shifted, 'answer')} ran past the context, which was cut"
    need = 4096
    while need < max(prompts, default=8192):
        need *= 2
    lines = signs.quotes(events or signs.of("slot_truncated", "context_shift"))
    trained = max((x.trained_context or 0 for x in (start.loads if start else ())), default=0)
    over = f"    # the model was trained for {trained:,}" if trained and trained < need else ""
    yield Finding(
        "warning",
        said,
        (*lines, configured(start, "OLLAMA_CONTEXT_LENGTH")),
        f"sudo ollamactl plan --context-length {need}; sudo ollamactl apply --context-length "
        f"{min(need, trained or need)}{over}",
        consequences=("answers rest on a part of the prompt, with status 200",),
    )


EMBEDS = re.compile(r"(?i)embed|input length exceeds")  # that error is of no other endpoint


def _of_too_long(events: list[LogEvent], start: Start | None) -> str:
    """What became of inputs that are too long: Ollama cuts them, or, since 0.13.5 whatever is asked, refuses them."""
    refused = any(e.kind == "context_exceeded" for e in events)
    asked = sum(r.count for r in (start.requests if start else ()) if "embed" in r.path and r.status in (400, 500))
    if not refused:
        return "the vector is of the beginning only; with truncate: false the answer is an error"
    said = "such requests have no vector: they are refused with 400 (500 by /api/embeddings)"
    return f"{said}, {times(asked, 'time')} in this log" if asked else said


@check(weight=30, explains=("num_ctx_differs_from_declared",))
def num_ctx_capped_to_trained_context(signs: Signs, facts: Facts) -> Iterator[Finding]:
    """A context was asked for that is longer than the model was trained for.

    Why: since 0.9.3 it is clipped to the length that the model's file states.
    Seen: Ollama's own warning with both numbers.
    Do: nothing, or a model with a longer context.
    """
    events = signs.of("num_ctx_capped")
    if not events and signs.has("above_training"):
        said = "a longer context was asked for than the model was trained for: it is clipped"
        yield Finding("info", said, signs.lines("above_training"), "ollama show MODEL    # its context length")
    own = signs.of("num_ctx_in_modelfile")
    shown = [int(e.fields["tokens"]) for e in signs.of("ps_context")] + [m.context or 0 for m in facts.loaded or ()]
    if own and not events and not signs.has("above_training") and shown and max(shown) > 4096:
        own_length = int(own[-1].fields["tokens"])
        if own_length > max(shown):
            yield Finding(
                "info",
                f"the model's own num_ctx is {own_length:,}, it runs with {max(shown):,}: most likely all that it was "
                "trained for",
                (*signs.lines("num_ctx_in_modelfile", most=1), *signs.lines("ps_context", most=1)),
                "ollama show MODEL | grep 'context length'",
                explains=("env_set_in_shell_not_service",),
            )
    if events:
        one = events[-1].fields
        asked, trained = one.get("num_ctx", "?"), one.get("n_ctx_train", "?")
        said = f"a context of {asked} was asked for, the model was trained for {trained}"
        yield Finding(
            "info",
            f"{said}: it is clipped",
            signs.lines("num_ctx_capped"),
            f"sudo ollamactl apply --context-length {one.get('n_ctx_train', '4096')}",
        )


@check(weight=22)
def modelfile_num_ctx_overrides(
    facts: Facts, signs: Signs = NO_SIGNS, given: tuple[Given, ...] = ()
) -> Iterator[Finding]:
    """A model's own num_ctx beats OLLAMA_CONTEXT_LENGTH.

    Why: PARAMETER num_ctx of a Modelfile counts before the variable; a request's num_ctx before both.
    Seen: the context of the loads beside the setting.
    Do: take the PARAMETER out, or use it on purpose.
    """
    start = facts.start
    told = next((g.value for g in given if g.name == "OLLAMA_CONTEXT_LENGTH"), "0")
    wanted = ((start.config or {}).get("OLLAMA_CONTEXT_LENGTH", "0") if start and start.config else "") or told
    own = signs.of("num_ctx_in_modelfile")
    if own and wanted.isdigit() and int(wanted) and own[-1].fields.get("tokens") not in (None, wanted):
        yield Finding(
            "info",
            f"OLLAMA_CONTEXT_LENGTH is {wanted}, the model's own num_ctx {own[-1].fields['tokens']} comes first",
            (*signs.quotes(own), configured(start, "OLLAMA_CONTEXT_LENGTH")),
            "ollama show --modelfile MODEL | grep num_ctx",
        )
        return
    if start is None or not wanted.isdigit() or int(wanted) in (0, 2048, 4096) or (signs.has("num_ctx_capped")):
        return
    others = [
        x
        for x in start.loads
        if x.context
        and x.context != int(wanted)
        and not is_embedding(x)
        and x.outcome == "loaded"
        and x.trained_context != x.context
    ]
    if others and len({x.context for x in start.loads if x.model == others[-1].model}) == 1:
        yield Finding(
            "info",
            f"OLLAMA_CONTEXT_LENGTH is {wanted}, a model was loaded with {others[-1].context}: its own "
            "num_ctx or a client's",
            (others[-1].text, configured(start, "OLLAMA_CONTEXT_LENGTH")),
            "ollama show --modelfile MODEL | grep num_ctx",
        )


@check(weight=21)
def num_ctx_differs_from_declared(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """A loaded model has another context than declared.

    Why: the context is decided at each load by request, Modelfile, variable, training length, in this order; only
    /api/ps tells.
    Seen: CONTEXT of `ollama ps` beside the setting or what a client declares.
    Do: read /api/ps after the load.
    """
    start = facts.start
    wanted = (start.config or {}).get("OLLAMA_CONTEXT_LENGTH", "0") if start else "0"
    for model in facts.loaded or ():
        if wanted.isdigit() and int(wanted) and model.context and model.context != int(wanted):
            yield Finding(
                "info",
                f"{model.name} has a context of {model.context}, {wanted} is set",
                (f"ollama ps: {model.name} CONTEXT {model.context}", configured(start, "OLLAMA_CONTEXT_LENGTH")),
                "curl -s http://127.0.0.1:11434/api/ps",
            )
            return
    if signs.has("num_ctx_declared"):
        yield Finding(
            "info",
            "the declared context is not the one that is loaded",
            signs.lines("num_ctx_declared"),
            "curl -s http://127.0.0.1:11434/api/ps",
        )
