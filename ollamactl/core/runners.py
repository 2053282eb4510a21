"""The last layer: is what the runners were started with what the server was set to, and if not, why."""

from __future__ import annotations

from ollamactl.core import settings
from ollamactl.core.facts import Facts, LoadedModel, Process, Runner, Start
from ollamactl.core.mismatch import Mismatch, Note


def expected_slots(start: Start | None, release: str) -> int | None:
    """Slots that a model of this server gets, None where the release chooses by itself."""
    printed = (start.config or {}).get("OLLAMA_NUM_PARALLEL") if start else None
    if printed is None or not printed.isdigit():
        return None
    chooses = () < settings.version(release) < (0, 10)
    return None if printed == "0" and chooses else max(1, int(printed))


def single_slot_cause(runner: Runner, loaded: LoadedModel | None, start: Start | None) -> tuple[str, str, str]:
    """Why a runner has one slot: (id, text, evidence)."""
    if any(a in ("--embedding", "--embeddings") for a in runner.process.argv):
        return ("parallel_forced_to_1_embedding", "Ollama gives embedding models one slot", "--embedding")
    family = loaded.family if loaded else ""
    for event in reversed(start.events if start else ()):
        if event.kind == "parallel_forced_to_1":
            named = event.fields.get("architecture", "")
            if not family or not named or named == family:
                text = f"Ollama forces the family {named or family or 'of this model'} to one slot"
                return ("parallel_forced_to_1_by_architecture", text, event.text)
    return ("parallel_lower_than_configured", "the log does not say why", "")


def model_of(runner: Runner, facts: Facts) -> LoadedModel | None:
    """The /api/ps entry that a runner serves. The runner knows a blob, /api/ps a name; the only one left fits."""
    loaded, runners = facts.loaded or (), facts.runners or ()
    if runner.name:
        return next((m for m in loaded if m.name == runner.name), None)
    if len(loaded) == 1 and len(runners) == 1:
        return loaded[0]
    same = [m for m in loaded if runner.context_total and runner.slots and m.context]
    same = [m for m in same if m.context == (runner.context_total or 0) // (runner.slots or 1)]
    return same[0] if len(same) == 1 else None


def served(facts: Facts) -> tuple[Runner, ...]:
    """The runners; of a log alone, the last load of each model that came off."""
    if facts.runners is not None or facts.service is not None or facts.start is None:
        return facts.runners or ()
    last = {load.model: load for load in facts.start.loads if load.outcome == "loaded"}
    return tuple(
        Runner(
            process=Process(pid=load.pid or 0, argv=load.argv),
            model=load.model,
            port=load.port,
            context_total=load.context_total,
            slots=load.slots,
            batch=load.batch,
            kv_type_k=load.kv_type_k,
            kv_type_v=load.kv_type_v,
            flash_attention=load.flash_attention,
        )
        for load in last.values()
    )


def judge_runners(facts: Facts, named: tuple[str, ...], proof: bool) -> tuple[list[Mismatch], list[Note]]:
    wrong: list[Mismatch] = []
    notes: list[Note] = []
    release = facts.version or ""
    config = (facts.start.config if facts.start else None) or {}
    slots = expected_slots(facts.start, release)
    forced: list[Mismatch] = []
    proven = False
    for runner in served(facts):
        loaded = model_of(runner, facts)
        who = loaded.name if loaded else runner.model.rsplit("/", 1)[-1][:19]
        wrong += _disagreements(runner, facts, who)
        if slots is not None and runner.slots is not None:
            if runner.slots == slots:
                proven = True
            else:
                found = _slots_mismatch(runner, loaded, facts, who, slots)
                single = found.id.startswith("parallel_forced")
                (forced if single and not (loaded and loaded.name in named) else wrong).append(found)
        kv = config.get("OLLAMA_KV_CACHE_TYPE", "").lower() or "f16"
        has = runner.kv_type_k or "f16"
        if config and runner.process.argv and has != kv and "--embedding" not in runner.process.argv:
            text = f"{who} runs with a {has} cache, the server is set to {kv}"
            wrong.append(Mismatch("kv_type_ignored_by_architecture", "OLLAMA_KV_CACHE_TYPE", "runner", text))
        notes += _context_notes(runner, facts, who, config)
    if forced and not proven and proof:
        wrong += forced
    else:
        notes += [Note(m.id, m.text) for m in forced]
    return wrong, notes


def _slots_mismatch(runner: Runner, loaded: LoadedModel | None, facts: Facts, who: str, slots: int) -> Mismatch:
    text = f"{who} was loaded with -np {runner.slots}, wanted {slots}"
    if runner.slots == 1:
        kind, cause, evidence = single_slot_cause(runner, loaded, facts.start)
    else:
        kind, cause, evidence = "parallel_lower_than_configured", "the log does not say why", ""
    return Mismatch(kind, "OLLAMA_NUM_PARALLEL", "runner", f"{text}: {cause}", (evidence,) if evidence else ())


def _disagreements(runner: Runner, facts: Facts, who: str) -> list[Mismatch]:
    """Where the runner's command line, its own API and the log's start line do not tell the same."""
    found = []
    say = "OLLAMA_NUM_PARALLEL"
    counts = {"/props": runner.props_slots, "/slots": len(runner.slot_list) if runner.slot_list else None}
    for source, count in counts.items():
        if count is not None and runner.slots is not None and count != runner.slots:
            text = f"{who}: {source} of the runner says {count} slots, its command line -np {runner.slots}"
            found.append(Mismatch("runner_disagrees_with_itself", say, "runner", text))
    loads = [x for x in (facts.start.loads if facts.start else ()) if x.port and x.port == runner.port]
    if loads and (loads[-1].slots, loads[-1].context_total) != (runner.slots, runner.context_total):
        text = f"{who}: the log's start line and the process's command line differ"
        evidence = (loads[-1].text, " ".join(runner.process.argv))
        found.append(Mismatch("runner_disagrees_with_log", say, "runner", text, evidence))
    return found


def _context_notes(runner: Runner, facts: Facts, who: str, config: dict[str, str]) -> list[Note]:
    """A context that differs from the setting has three ordinary causes; none of them is a fault of the setting."""
    wanted = config.get("OLLAMA_CONTEXT_LENGTH", "0")
    if not (wanted.isdigit() and int(wanted) and runner.context_total and runner.slots):
        return []
    per_slot = runner.context_total // runner.slots
    if per_slot == int(wanted):
        return []
    capped = [e for e in (facts.start.events if facts.start else ()) if e.kind == "num_ctx_capped"]
    if capped and per_slot < int(wanted):
        text = f"{who}: {per_slot} tokens per slot, not {wanted}: the model was trained for no more"
        return [Note("num_ctx_capped_to_trained_context", text)]
    text = f"{who}: {per_slot} tokens per slot, not {wanted}: its Modelfile or a client's request sets num_ctx"
    return [Note("num_ctx_differs_from_declared", text)]
