"""Models: evicting each other, loaded anew at every request, stuck."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check, configured, quote, times
from ollamactl.core.facts import Facts, Load, LogEvent, Start
from ollamactl.core.needs import NO_SIGNS, Given, Signs


def _options(load: Load) -> tuple[object, ...]:
    """What makes a runner another one."""
    total = next((b for a, b in itertools.pairwise(load.argv) if a == "--ctx-size"), "")
    threads = next((b for a, b in itertools.pairwise(load.argv) if a in ("--threads", "-t")), "")
    mapped = tuple(word for word in load.argv if word in ("--mmap", "--no-mmap"))
    return (load.context or total, load.slots, load.gpu_layers, load.kv_type_k, load.batch, threads, mapped)


@check(
    weight=64,
    explains=(
        "partial_offload",
        "client_timeout_500_clusters",
        "client_overrides_keep_alive",
        "load_oom",
        "client_timeout_during_load",
        "vram_recovery_timeout",
    ),
)
def model_reload_every_request(signs: Signs, facts: Facts, start: Start | None = None) -> Iterator[Finding]:
    """A model is loaded anew because requests ask for different options.

    Why: num_ctx, num_batch, num_thread, num_gpu and use_mmap belong to the runner: a request with others throws it
    away,
    and the next one brings it back.
    Seen: loads of one model with options that change to and fro.
    Do: the same options in all clients, or OLLAMA_CONTEXT_LENGTH and none in the clients.
    """
    loads = [x for x in (start.loads if start else ()) if x.model]
    worst: list[Load] = []
    for model in dict.fromkeys(x.model for x in loads):
        mine = [x for x in loads if x.model == model and (x.outcome != "aborted" or x.at is None)]
        mine = [x for x in mine if x.context] or mine  # of a load whose lines were cut nothing is known
        changes = [b for a, b in itertools.pairwise(mine) if _options(a) != _options(b)]
        again = any(
            _options(x) in [_options(y) for y in mine[: i - 1]] and _options(x) != _options(mine[i - 1])
            for i, x in enumerate(mine)
            if i > 1
        )
        reset = signs.count("expired_to_make_room") >= 2 and len(changes) >= 1
        if (again and len(changes) >= 2) or reset or len({_options(x) for x in mine}) >= 4:
            worst = max(worst, mine, key=len)
    if worst:
        contexts = " → ".join(f"{x.context or '?'}" for x in worst[-4:])
        same = len({x.context for x in worst}) == 1
        said = f"one model was loaded {times(len(worst), 'time')} with changing options (context {contexts})"
        if same:
            said = f"one model was loaded {times(len(worst), 'time')} with changing options"
        yield Finding(
            "warning",
            said,
            tuple(x.text for x in worst[-3:]),
            f"sudo ollamactl apply --context-length {max(x.context or 4096 for x in worst)}",
        )
    elif (start and (start.config or {}).get("OLLAMA_KEEP_ALIVE") in ("0s", "0")) and len(loads) > 1:
        yield Finding(
            "warning",
            f"OLLAMA_KEEP_ALIVE=0 unloads the model after each reply: it was loaded {times(len(loads), 'time')}",
            (configured(start, "OLLAMA_KEEP_ALIVE"), *(x.text for x in loads[-2:])),
            "sudo ollamactl apply --keep-alive 5m",
        )
    elif signs.count("expired_to_make_room") >= 2 and len({x.model for x in loads}) <= 1:
        yield Finding(
            "warning",
            "a model is thrown out and loaded anew for requests with other options",
            signs.lines("expired_to_make_room", "already_loaded"),
            "the same num_ctx in all clients",
        )
    elif loaded := _thrown_out_for_itself(signs):
        yield Finding(
            "info",
            "a model that was loaded is thrown out for a request with other options",
            (quote(loaded), *signs.lines("expired_to_make_room", most=1)),
            "the same num_ctx in all clients",
        )
    elif signs.has("kv_too_large"):
        return  # contexts were tried: what does not fit is no change between requests
    elif signs.has("reloaded_each_time") and not signs.has("eviction", "client_gone_during_load", "keep_alive_reset"):
        yield Finding(
            "warning",
            "a model is loaded anew for every request: requests differ in num_ctx or other options of the runner",
            signs.lines("reloaded_each_time"),
            "journalctl -u ollama --no-pager | grep -E 'starting (llama|runner)'    # what differs between the loads",
        )
    elif signs.has("ps_flips") and not signs.has("num_ctx_on_v1"):
        yield Finding(
            "warning",
            "a model is loaded anew with another context for each client",
            signs.lines("ps_flips"),
            "sudo ollamactl apply --context-length 32768    # and no num_ctx in the clients",
        )


def _thrown_out_for_itself(signs: Signs) -> LogEvent | None:
    """The request's own model, loaded already, that had to go before the request was served."""
    gone = {e.fields.get("modelPath") or e.fields.get("model") for e in signs.of("expired_to_make_room")} - {None}
    return next((e for e in signs.of("already_loaded") if e.fields.get("model") in gone), None)


@check(
    weight=66,
    explains=(
        "client_timeout_500_clusters",
        "num_ctx_capped_to_trained_context",
        "prompt_truncated",
        "client_overrides_keep_alive",
        "client_timeout_during_load",
        "partial_offload",
        "vram_recovery_timeout",
    ),
)
def models_evict_each_other(
    signs: Signs, facts: Facts, start: Start | None = None, given: tuple[Given, ...] = ()
) -> Iterator[Finding]:
    """Two models throw each other out.

    Why: both do not fit together (weights, and cache × slots), or OLLAMA_MAX_LOADED_MODELS allows one; each use loads.
    Seen: "evicting a model to make space", or loads of two models in turn.
    Do: shorter context or fewer slots for the large one, the small one on the CPU, or one server for each.
    """
    loads = [x for x in (start.loads if start else ()) if x.model and x.outcome != "failed"]
    turns = sum(
        1
        for a, b, c in zip(loads, loads[1:], loads[2:], strict=False)
        if a.model == c.model != b.model and _soon(a, c)
    )
    full = signs.count("max_runners")
    evictions = signs.count("eviction") + full
    several = len({x.model for x in loads}) > 1
    config = (start.config if start else None) or {}
    pinned = _for_ever(config, given)
    if (evictions >= 1 and (turns >= 1 or (not loads and not pinned))) or turns >= 2 or (evictions >= 2 and several):
        limit = config.get("OLLAMA_MAX_LOADED_MODELS", "")
        why = f"OLLAMA_MAX_LOADED_MODELS={limit}" if limit == "1" else "they do not fit together"
        why = "more of them than OLLAMA_MAX_LOADED_MODELS allows" if full and limit != "1" else why
        yield Finding(
            "warning",
            f"models throw each other out {times(max(turns, evictions), 'time')}: {why}",
            (*signs.lines("eviction", "max_runners"), *(x.text for x in loads[-3:])),
            "sudo ollamactl apply --max-loaded-models 2"
            if limit == "1"
            else "sudo ollamactl plan --context-length 4096 --parallel 1",
        )
    elif signs.has("loaded_in_turn"):
        yield Finding(
            "warning",
            "each of two models takes the other's place: they do not fit together",
            signs.lines("loaded_in_turn"),
            "sudo ollamactl plan --context-length 4096 --parallel 1",
        )
    elif signs.has("one_model_only"):
        yield Finding(
            "warning",
            "the second model does not fit beside the first, so they throw each other out",
            signs.lines("one_model_only"),
            "sudo ollamactl plan --parallel 1",
        )


def _soon(a: Load, c: Load) -> bool:
    return a.at is None or c.at is None or c.at - a.at < 4 * 3600


@check(weight=56)
def one_blob_under_two_names(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """Two names share one model file and throw each other out.

    Why: Ollama tells runners apart by the file: another name with other options replaces the runner.
    Seen: two installed models of one digest, and loads of one file with changing contexts.
    Do: the same parameters in both.
    """
    start = facts.start
    by_file: dict[str, set[str]] = {}
    for model in facts.installed or ():
        by_file.setdefault(model.digest, set()).add(model.name)
    twins = [sorted(names) for names in by_file.values() if len(names) > 1]
    contexts = {
        x.model: {y.context for y in (start.loads if start else ()) if y.model == x.model}
        for x in (start.loads if start else ())
    }
    if signs.has("twin_names"):
        said = "two names are one file: with different parameters they replace each other"
        yield Finding("info", said, signs.lines("twin_names"), "ollama list    # names with one ID are one file")
        return
    if twins and any(len(c) > 1 for c in contexts.values()):
        yield Finding(
            "info",
            f"{' and '.join(twins[0])} are one file: with different parameters they replace each other",
            (),
            f"ollama show --modelfile {twins[0][0]}",
        )


@check(weight=60)
def model_stuck_stopping(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """A model stays in "Stopping...".

    Why: it is unloaded when its last request ends; an endless generation or a hung runner keeps it.
    Seen: UNTIL of `ollama ps`.
    Do: bound answers (num_predict); end the runner's process.
    """
    lines = signs.lines("stopping_model")
    stuck = [m for m in facts.loaded or () if "stopping" in m.expires.lower()]
    hung = signs.has("no_reply")
    if (stuck or lines) and not hung:
        who = stuck[0].name if stuck else "a model"
        yield Finding(
            "warning",
            f"{who} is stopping and does not stop: its runner is still at work or hangs",
            (*lines, *(f"ollama ps: {m.name} UNTIL {m.expires}" for m in stuck[:2])),
            "pgrep -a 'llama-server|ollama.*runner'; sudo kill PID    # the runner's, not the server's",
            explains=("port_in_use",) if facts.service is None else (),  # of a start beside the server that hangs
        )


@check(weight=68, explains=("model_stuck_stopping",))
def runner_hung_parent_healthy(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """A runner hangs under a server that answers.

    Why: /api/version is answered by the parent; a hung child shows only in requests without a byte of reply.
    Seen: busy connections and a runner that does not answer, or a client that got nothing.
    Do: end the runner's process; the next request loads the model anew.
    """
    fix = "pgrep -a 'llama-server|ollama.*runner'; sudo kill -9 PID    # the runner's, not the server's"
    for runner in facts.runners or ():
        waits = facts.connections is not None and facts.connections.awaiting_reply > 0
        silent = (
            runner.port_owned
            and runner.slot_list is None
            and runner.props_slots is None
            and not runner.loading
            and "llama-server" in " ".join(runner.process.argv)
        )
        stopped = runner.process.state in ("T", "t", "stopped", "tracing-stop")
        who = runner.name or runner.model.rsplit("/", 1)[-1][:19]
        if stopped or (silent and waits):
            yield Finding(
                "error",
                f"the runner of {who} (pid {runner.process.pid}) does not answer, the server does",
                (
                    f"process {runner.process.pid}: state {runner.process.state or '?'}",
                    f"port {runner.port}: no reply to /props and /slots",
                ),
                f"sudo kill -9 {runner.process.pid}",
            )
            return
    if signs.has("no_reply") and (signs.has("stopping_model", "server_answers") or facts.loaded):
        yield Finding(
            "error",
            "a runner hangs: requests are accepted and get no byte, the server itself answers",
            signs.lines("no_reply", "stopping_model"),
            fix,
        )


def _for_ever(config: dict[str, str], given: tuple[Given, ...]) -> bool:
    """Whether OLLAMA_KEEP_ALIVE keeps models for ever, as the server prints it or as it was given."""
    told = any(g.name == "OLLAMA_KEEP_ALIVE" and g.value.startswith("-") for g in given)
    return config.get("OLLAMA_KEEP_ALIVE", "").startswith("2562047h") or (told and "OLLAMA_KEEP_ALIVE" not in config)


@check(weight=45)
def keep_alive_does_not_pin(
    signs: Signs = NO_SIGNS, start: Start | None = None, given: tuple[Given, ...] = ()
) -> Iterator[Finding]:
    """A model with keep_alive -1 is unloaded all the same.

    Why: -1 keeps a model until room is needed; it is no protection against eviction, and a client's value beats it.
    Seen: OLLAMA_KEEP_ALIVE for ever, and evictions or loads of others.
    Do: OLLAMA_MAX_LOADED_MODELS and what fits; a second server for the pinned one.
    """
    config = (start.config if start else None) or {}
    forever = _for_ever(config, given)
    evicted = signs.count("eviction") > 0
    if forever and evicted and signs is not None:
        yield Finding(
            "warning",
            "OLLAMA_KEEP_ALIVE=-1 does not pin a model: it is unloaded when room is needed",
            (*signs.lines("eviction"), configured(start, "OLLAMA_KEEP_ALIVE")),
            "sudo ollamactl plan",
        )
    elif (
        signs.has("keep_alive_expected")
        and signs.has("until_soon", "unloaded_anyway")
        and (signs.has("asked_for_ever") or not signs.has("keep_alive_reset"))
    ):
        yield Finding(
            "warning",
            "keep_alive -1 is not in force for that model",
            signs.lines("keep_alive_expected", "until_soon", "unloaded_anyway", "asked_for_ever"),
            "sudo ollamactl apply --keep-alive -1; ollamactl verify",
            weight=44,
        )
    elif signs.has("pin_evicted"):
        said = "keep_alive -1 keeps a model until room is needed: it is no protection against another"
        fix = "sudo ollamactl plan    # what fits together"
        yield Finding("warning", said, signs.lines("pin_evicted"), fix, explains=("models_evict_each_other",))
    elif signs.has("pin_wanted"):
        said = "keep_alive -1 keeps a model until room is needed: nothing pins it against eviction"
        yield Finding("info", said, signs.lines("pin_wanted"), "sudo ollamactl plan")
