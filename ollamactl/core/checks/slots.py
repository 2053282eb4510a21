"""Slots and the queue before them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import msgspec

from ollamactl.core import runners, settings
from ollamactl.core.checks.base import Finding, check, configured, times
from ollamactl.core.facts import Facts, Load, Runner, Start
from ollamactl.core.inflight import waited
from ollamactl.core.needs import NO_SIGNS, Given, Signs


def wanted_slots(facts: Facts, given: tuple[Given, ...]) -> int | None:
    """Slots that the configuration asks for, where it does."""
    slots = runners.expected_slots(facts.start, facts.version or (facts.start.version if facts.start else ""))
    if slots is None:
        for one in given:
            if one.name == "OLLAMA_NUM_PARALLEL" and one.value.strip("'\" ").isdigit():
                slots = max(1, int(one.value.strip("'\" ")))
    return slots


def is_embedding(load: Load) -> bool:
    text = " ".join(load.argv).lower()
    name = load.model.lower() + " " + load.architecture.lower()
    return "--embedding" in text or re.search(r"bert|embed|bge-|minilm|gte-|e5-", name) is not None


@check(weight=66, explains=("parallel_lower_than_configured", "parallel_is_one"))
def parallel_forced_to_1_by_architecture(signs: Signs, start: Start | None = None) -> Iterator[Finding]:
    """Ollama forces the model's family to one slot.

    Why: for some families (list in its scheduler) it does not run requests in parallel, whatever the setting.
    Seen: its own warning at the load.
    Do: nothing makes that family parallel in this release; use another family, or several servers.
    """
    events = signs.of("parallel_forced_to_1")
    if not events:
        single = any(x.slots == 1 for x in (start.loads if start else ()))
        otherwise = signs.has("mlx_parallel", "one_model_only")
        if signs.has("serial_family") and (signs.has("answers_in_turn") or single) and not otherwise:
            yield Finding(
                "warning",
                "a model of that family gets one slot, whatever OLLAMA_NUM_PARALLEL says",
                signs.lines("serial_family", "answers_in_turn", most=2),
                "journalctl -u ollama --no-pager | grep 'does not currently support parallel requests'",
            )
        return
    families = sorted({e.fields.get("architecture", "mllama") for e in events})
    wanted = (start.config or {}).get("OLLAMA_NUM_PARALLEL", "") if start else ""
    said = f"Ollama runs {', '.join(families)} with one slot" + (
        f", not {wanted}" if wanted.isdigit() and int(wanted) > 1 else ""
    )
    yield Finding(
        "warning" if not wanted or wanted not in ("0", "1") else "info",
        said,
        signs.lines("parallel_forced_to_1"),
        "ollamactl probe MODEL    # a model of another family serves several at once",
    )


@check(weight=64, explains=("parallel_lower_than_configured", "parallel_is_one"))
def parallel_forced_to_1_embedding(
    facts: Facts, given: tuple[Given, ...] = (), signs: Signs = NO_SIGNS
) -> Iterator[Finding]:
    """Embedding models get one slot, whatever the setting.

    Why: the engine gives wrong vectors with several; Ollama sets one without any warning.
    Seen: a runner of an embedding model with one slot where more are configured.
    Do: send many texts in one /api/embed request: "input": [...].
    """
    wanted = wanted_slots(facts, given)
    if wanted is None and signs.has("embedding_parallel"):
        said = "embedding models run with one slot, whatever is configured"
        yield Finding("info", said, signs.lines("embedding_parallel"), "send many texts in one /api/embed request")
    if not wanted or wanted < 2:
        return
    fix = 'curl -s http://127.0.0.1:11434/api/embed -d \'{"model": "MODEL", "input": ["one", "two"]}\''
    for load in reversed(facts.start.loads if facts.start else ()):
        if load.slots == 1 and is_embedding(load):
            yield Finding("info", f"an embedding model runs with one slot, not {wanted}", (load.text,), fix)
            return
    for runner in facts.runners or ():
        if runner.slots == 1 and any(a.startswith("--embedding") for a in runner.process.argv):
            yield Finding(
                "info",
                f"{runner.name or 'an embedding model'} runs with one slot, not {wanted}",
                (" ".join(runner.process.argv)[:300],),
                fix,
            )
            return
    embeds = sum(r.count for r in (facts.start.requests if facts.start else ()) if "embed" in r.path)
    if signs.has("embedding_parallel"):
        yield Finding(
            "info", f"embedding models run with one slot, not {wanted}", signs.lines("embedding_parallel"), fix
        )
    elif embeds > 4 and facts.start is not None and not facts.start.loads:
        yield Finding("info", f"embedding models run with one slot, not {wanted}", (), fix)


@check(weight=55)
def parallel_lower_than_configured(
    facts: Facts, given: tuple[Given, ...] = (), signs: Signs = NO_SIGNS
) -> Iterator[Finding]:
    """A model was loaded with fewer slots than configured.

    Why: slots are decided at the load: the setting came later, the release chose by memory, or the family is forced.
    Seen: -np (or Parallel) of the load beside OLLAMA_NUM_PARALLEL.
    Do: load the model anew; where a line of Ollama's names the cause, that counts.
    """
    wanted = wanted_slots(facts, given)
    if not wanted or wanted < 2 or signs.has("embedding_parallel"):
        return
    config_line = configured(facts.start, "OLLAMA_NUM_PARALLEL")
    for runner in facts.runners or ():
        if (
            runner.slots
            and runner.slots < wanted
            and not any(a.startswith("--embedding") for a in runner.process.argv)
        ):
            yield _lower(runner, wanted, config_line)
            return
    if facts.runners:
        return
    for load in reversed(facts.start.loads if facts.start else ()):
        if load.slots and load.slots < wanted and not is_embedding(load) and load.outcome != "failed":
            said = f"a model was loaded with {times(load.slots, 'slot')}, {wanted} are configured"
            yield Finding("warning", said, (load.text, config_line), "ollama stop MODEL    # then ask it again")
            return


def _lower(runner: Runner, wanted: int, line: str) -> Finding:
    who = runner.name or runner.model.rsplit("/", 1)[-1][:19]
    return Finding(
        "warning",
        f"{who} runs with {times(runner.slots or 1, 'slot')}, {wanted} are configured",
        (" ".join(runner.process.argv)[:300], line),
        f"ollama stop {runner.name or 'MODEL'}",
    )


@check(weight=6)
def parallel_is_one(facts: Facts, signs: Signs = NO_SIGNS, given: tuple[Given, ...] = ()) -> Iterator[Finding]:
    """Requests for one model are answered one after another: there is one slot.

    Why: since 0.10 the default is one slot; a second user waits until the first is served.
    Seen: OLLAMA_NUM_PARALLEL:1, and requests whose ends are spaced by their durations.
    Do: sudo ollamactl plan MODEL --parallel 1,2,4 shows what fits; apply proves it.
    """
    start = facts.start
    config = (start.config if start else None) or {}
    one = config.get("OLLAMA_NUM_PARALLEL") == "1"
    loads = [x for x in (start.loads if start else ()) if not is_embedding(x)]
    if (
        not one
        and not (loads and all(x.slots == 1 for x in loads) and config.get("OLLAMA_NUM_PARALLEL", "0") in ("", "0"))
        and not (signs.has("answers_in_turn"))
    ):
        return
    waited = _serial(start) if start else 0
    if one or waited or (signs.has("answers_in_turn")):
        said = "one slot: requests for a model are answered one after another"
        said += f"; {waited} of the last requests waited for another" if waited else ""
        line = configured(start, "OLLAMA_NUM_PARALLEL")
        yield Finding(
            "info",
            said,
            (line, *(signs.lines("answers_in_turn"))),
            "sudo ollamactl apply --parallel 2",
            weight=28 if waited > 2 else 16 if one and signs.has("answers_in_turn") else 6,
        )


def _serial(start: Start) -> int:
    """Requests that began before another one ended and ended after it: they waited, with one slot."""
    waited = 0
    recent = [r for r in start.recent if r.at is not None and r.status == 200 and r.seconds > 1]
    for before, after in itertools.pairwise(recent):
        if after.at is not None and before.at is not None and after.at - after.seconds < before.at - 0.5:
            waited += int(after.at >= before.at)
    return waited


@check(weight=7)
def parallel_auto_value_unknown(
    facts: Facts, release: tuple[int, ...] = (), signs: Signs = NO_SIGNS
) -> Iterator[Finding]:
    """The number of slots is chosen by the release, by memory.

    Why: unset meant 4 or 1 (0.2 to 0.6.6), then 2 or 1 (to 0.9.6); since 0.10 it is 1.
    Seen: OLLAMA_NUM_PARALLEL:0 in `server config`, and what loads were given.
    Do: set it.
    """
    start = facts.start
    config = (start.config if start else None) or {}
    if signs.has("auto_slots_told") and not config:
        said = "where OLLAMA_NUM_PARALLEL is not set, releases before 0.10 take several slots if they fit, else one"
        yield Finding("info", said, signs.lines("auto_slots_told"), "sudo ollamactl apply --parallel 2", weight=16)
        return
    auto = config.get("OLLAMA_NUM_PARALLEL") == "0" or (start is not None and not config and bool(start.loads))
    if (start is None or not auto or not (0, 2) <= release < (0, 10)) and not (
        start is not None
        and not config
        and not release
        and any((x.slots or 1) == 2 for x in start.loads)
        and any("--ctx-size" in x.argv for x in start.loads)
    ):
        return
    slots = sorted({x.slots for x in start.loads if x.slots})
    most = 4 if release < (0, 6, 7) else 2
    said = f"OLLAMA_NUM_PARALLEL is not set: this release takes {most} slots where they fit, else 1"
    said += f" (loads had {', '.join(map(str, slots))})" if slots else ""
    evidence = (configured(start, "OLLAMA_NUM_PARALLEL"), *(x.text for x in start.loads[-2:]))
    yield Finding("info", said, evidence, "sudo ollamactl apply --parallel 2")


@check(
    weight=84, explains=("runner_crash_on_load", "load_oom", "context_multiplied_by_parallel", "server_panic_restarts")
)
def parallel_above_maximum(facts: Facts, signs: Signs = NO_SIGNS, given: tuple[Given, ...] = ()) -> Iterator[Finding]:
    """More slots are configured than the engine can hold.

    Why: llama.cpp refuses more than 256 sequences: every load fails.
    Seen: "n_seq_max must be <= 256", or the setting.
    Do: at most 256.
    """
    wanted = wanted_slots(facts, given) or 0
    if (signs.has("parallel_above_maximum")) or wanted > settings.MAX_SLOTS:
        lines = signs.lines("parallel_above_maximum", "load_failed")
        line = configured(facts.start, "OLLAMA_NUM_PARALLEL")
        yield Finding(
            "error",
            f"{wanted or 'more than 256'} slots: the engine loads no model with more than 256",
            (*lines, line),
            "sudo ollamactl apply --parallel 4",
        )


@check(weight=25)
def parallel_exceeds_useful_concurrency(
    facts: Facts, signs: Signs = NO_SIGNS, start: Start | None = None
) -> Iterator[Finding]:
    """More slots than requests at the same time.

    Why: slots beyond the clients' own concurrency only take memory, and the GPU is shared among them.
    Seen: the most requests in flight at one moment beside the slots.
    Do: as many slots as there are requests.
    """
    slots = wanted_slots(facts, ()) or 0
    if signs.has("no_speedup"):
        said = "more slots bring no more: the GPU is shared, and a client may send no more at once"
        fix = "ollamactl probe MODEL -n 4    # what several at once bring"
        yield Finding("info", said, signs.lines("no_speedup"), fix)
        return
    if start is None or slots < 6 or len(start.recent) < 40:
        return
    most = waited(_one_slot(start)) + 1
    if most * 2 <= slots:
        yield Finding(
            "info",
            f"{slots} slots are configured, at most {most} requests ran at the same time",
            (configured(start, "OLLAMA_NUM_PARALLEL"),),
            f"sudo ollamactl apply --parallel {most}",
        )


def _one_slot(start: Start) -> Start:
    return msgspec.structs.replace(start, config={"OLLAMA_NUM_PARALLEL": "1"})


@check(weight=24)
def parallel_reported_but_serial(
    facts: Facts, signs: Signs = NO_SIGNS, start: Start | None = None
) -> Iterator[Finding]:
    """The runner has several slots and answers one request after another.

    Why: the MLX runner accepts slots and runs them in turn; only timing shows it.
    Seen: an MLX runner with more than one slot.
    Do: count on one slot.
    """
    for load in start.loads if start else ():
        if "mlx" in " ".join(load.argv).lower() + load.runner.lower() and (load.slots or 0) > 1:
            yield Finding(
                "info",
                f"the MLX runner has {load.slots} slots and answers one request after another",
                (load.text,),
                "ollamactl probe MODEL -n 4",
            )
            return
    if signs.has("mlx_parallel"):
        yield Finding(
            "info",
            "the MLX runner reports several slots and answers one request after another",
            signs.lines("mlx_parallel"),
            "ollamactl probe MODEL -n 4",
        )


@check(weight=15)
def several_instances_expected(signs: Signs) -> Iterator[Finding]:
    """Parallel slots are not copies of the model.

    Why: all slots share the weights of one runner; only the KV cache grows with them.
    Seen: a question about a second copy.
    Do: for a real second copy run a second server on another port.
    """
    if signs.has("copies_expected"):
        yield Finding(
            "info",
            "slots share one copy of the weights; only the KV cache grows",
            signs.lines("copies_expected"),
            "ollamactl plan MODEL --parallel 1,2",
        )
