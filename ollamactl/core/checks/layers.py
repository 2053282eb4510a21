"""How many layers a request, or a model itself, puts on the GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check
from ollamactl.core.facts import Facts, LogEvent, Start
from ollamactl.core.needs import NO_SIGNS, Signs


@check(weight=58, explains=("partial_offload", "load_oom"))
def num_gpu_override_too_high(signs: Signs, facts: Facts, start: Start | None = None) -> Iterator[Finding]:
    """A forced num_gpu asks for more layers than fit.

    Why: num_gpu in a request or Modelfile goes past the fitting: loads fail, hang, or overcommit shared memory.
    Seen: more GPU layers asked for than offered, and a failure to allocate.
    Do: take num_gpu out.
    """
    forced = [x for x in (start.loads if start else ()) if (x.gpu_layers or 0) >= 90 and x.outcome == "failed"]
    asked = [e for e in signs.of("memory_estimate") if re.search(r"layers\.requested=(?!-1)\d+", e.text)]
    if refused := signs.of("num_gpu_refused"):
        yield Finding(
            "error",
            f"num_gpu asks for {refused[-1].fields.get('layers', 'more')} layers on the GPU, which do not fit",
            signs.quotes(refused),
            "ollama show --modelfile MODEL | grep num_gpu    # take it out, also in clients",
        )
    elif forced:
        yield Finding(
            "error",
            f"num_gpu forces {forced[-1].gpu_layers} layers to the GPU and the load fails",
            (forced[-1].text, forced[-1].error[:200]),
            "ollama show --modelfile MODEL | grep num_gpu    # take it out, also in clients",
        )
    elif asked and signs.has("alloc_failed", "out_of_memory"):
        yield Finding(
            "error",
            "num_gpu forces more layers to the GPU than fit",
            signs.quotes([*asked[-1:], *signs.of("alloc_failed")[-1:]]),
            "ollama show --modelfile MODEL | grep num_gpu    # take it out, also in clients",
        )
    elif signs.has("num_gpu_forced") and not _limited_by(signs, start) and not _whole(facts, start):
        yield Finding(
            "warning",
            "num_gpu is forced: Ollama's own fitting is switched off",
            signs.lines("num_gpu_forced"),
            "ollama show --modelfile MODEL | grep num_gpu    # take it out, also in clients",
        )


def _whole(facts: Facts, start: Start | None) -> bool:
    """Whether the last load has all its layers on the GPU, and works; or `ollama ps` has each model there."""
    if facts.told and facts.loaded and all(0 < m.size == m.size_vram for m in facts.loaded):
        return True
    last = start.loads[-1] if start and start.loads else None
    if last is None or last.offloaded is None or last.error:
        return False
    return last.offloaded[0] == last.offloaded[1]


def _limited_by(signs: Signs, start: Start | None) -> LogEvent | None:
    """The num_gpu that was told and is the number of layers on the GPU, fewer than the model has."""
    loads = [x.offloaded for x in (start.loads if start else ()) if x.offloaded]
    part = {on for on, all_layers in loads if on < all_layers}
    for event in signs.of("memory_estimate"):
        requested = re.search(r"layers\.requested=\"?(\d+)", event.text)
        part |= {int(requested[1])} if requested and any(int(requested[1]) < of for _, of in loads) else set()
    for event in signs.of("num_gpu_forced", "num_gpu_asked"):
        if (asked := re.search(r"num_gpu[\s\"':=]{1,40}(\d+)", event.text)) and int(asked[1]) in part:
            return event
    return None


@check(weight=42, explains=("partial_offload",))
def num_gpu_option_limits_layers(start: Start, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """A client's num_gpu keeps layers off the GPU.

    Why: num_gpu is the number of layers, not of GPUs: 1 puts one layer there.
    Seen: -ngl (--n-gpu-layers) far below the model's layers with memory to spare.
    Do: take num_gpu out of the request.
    """
    asked = [e for e in (signs.of("memory_estimate")) if re.search(r"layers\.requested=[0-9]\b", e.text)]
    for event in asked if not any(x.gpu_layers for x in start.loads) else ():
        fields = dict(re.findall(r"layers\.(requested|model)=\"?(\d+)", event.text))
        if int(fields.get("model", "0")) > 12 and fields.get("requested", "0") != "0":
            said = f"num_gpu={fields['requested']} puts {fields['requested']} of {fields['model']} layers on the GPU"
            yield Finding("warning", said, signs.quotes([event]), "take num_gpu out of the request's options")
            return
    if told := _limited_by(signs, start):
        said = "num_gpu is below the model's layers: the rest runs on the CPU"
        yield Finding("warning", said, (told.text,), "take num_gpu out of the request's options or the Modelfile")
        return
    for load in reversed(start.loads):
        few = load.gpu_layers in (1, 2, 3, 4) and load.outcome == "loaded"
        if few and load.offloaded and load.offloaded[1] > 12:
            if not asked and (load.offloaded[0] != 1 or load.gpu_layers != 1):
                continue
            yield Finding(
                "warning",
                f"num_gpu={load.gpu_layers} puts {load.gpu_layers} of {load.offloaded[1]} layers on the "
                "GPU: it counts layers, not GPUs",
                (load.text,),
                "take num_gpu out of the request's options",
            )
            return
