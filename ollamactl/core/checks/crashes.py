"""Runners that die: while a model is loaded, and after they answered."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check
from ollamactl.core.facts import Facts, LoadedModel, LogEvent, Start
from ollamactl.core.needs import Signs
from ollamactl.core.parse.gin import RUNS_A_MODEL
from ollamactl.core.runners import model_of

KINDS = (
    "assertion_failed",
    "abort",
    "segfault",
    "gpu_error",
    "runner_terminated",
    "runner_gone",
    "runner_dropped",
    "load_failed",
    "kernel:segfault",
)
OWN = ("assertion_failed", "abort", "gpu_error")  # what the engine says before it ends itself
ONCE = ("runner_terminated", "runner_dropped", "assertion_failed", "segfault")  # said once of each death
# of a client that went away; of a runner that ends with its server
NO_CRASH = re.compile(r"context canceled|context deadline")
WITH_SERVER = re.compile(r"signal: (?:terminated|interrupt|hangup)")


@check(weight=35)
def runner_crash_on_load(signs: Signs, start: Start | None = None) -> Iterator[Finding]:
    """The runner dies while a model is loaded, or ends itself while it is used.

    Why: a fault of the engine, a model that this release cannot run, or a damaged installation.
    Seen: the engine's last words: an assertion, a signal, an exit status.
    Do: upgrade; try the model with num_gpu 0; report the trace.
    """
    events = _crashes(signs)
    raw = _panics(signs)
    loads = start.loads if start else ()
    failed = [x for x in loads if x.outcome == "failed"]
    told = signs.of("runner_exit")
    served = _served_before(events, start)
    if (not events and not failed and not told) or (served and not _ended_itself(events, signs)):
        return
    last = next(reversed(events or told), None)
    cured = _loaded_since(last, start) and not (loads and loads[-1].outcome == "failed")
    error = failed[-1].error if failed else ""
    words = [line.strip() for line in error.splitlines() if line.strip()]
    why = " ".join(words[: 2 if words[:1] and words[0].endswith(":") else 1]) or (last.text if last else "")
    said = f"{'a runner that had served' if served else 'the runner'} died: {_message(why)}"
    said += "; it was loaded again since" if cured else ""
    yield Finding(
        "error" if not cured else "warning" if served and _several(signs) else "info",
        said,
        (*signs.quotes([*events[-2:], *raw[-1:], *told[-1:]]), failed[-1].text if failed else ""),
        "ollama --version; curl -fsSL https://ollama.com/install.sh | sh",
        weight=35 if not cured else 16,
    )


@check(weight=60, explains=("runner_crash_on_load",))
def runner_killed(signs: Signs, facts: Facts) -> Iterator[Finding]:
    """A runner that served is gone without a word, or was killed by a signal; /api/ps may still list its model.

    Why: killed from outside, by the OOM killer, or crashed at a request; the server notices at the next one.
    Seen: "signal: killed"; a signal or a dropped connection after answers; a model in /api/ps without a process.
    Do: ask the model again: it is loaded anew; look who killed it, or report the engine's last words.
    """
    start = facts.start
    killed = signs.of("runner_killed")[-1:]
    if killed:
        later = _loaded_since(killed[0], start)
        yield Finding(
            "warning" if later else "error",
            "a runner was killed" + ("; its model was loaded again since" if later else ""),
            signs.lines("runner_killed"),
            "sudo journalctl -k -b --grep 'Killed process'",
        )
    elif _served_before(crashes := _crashes(signs), start) and not _ended_itself(crashes, signs):
        later = _loaded_since(crashes[-1], start)
        said = f"a runner that had served died: {_message(crashes[-1].text)}"
        yield Finding(
            "error" if not later else "warning" if _several(signs) else "info",
            said + ("; its model was loaded again since" if later else ""),
            signs.quotes(crashes),
            "ollama --version; sudo dmesg | tail -n 40    # upgrade; else report the engine's last words",
            weight=36,
        )
    elif (gone := _without_runner(facts)) and facts.process is not None and start is not None:
        there = len(facts.runners or ())
        names, count = ", ".join(m.name for m in gone), f"only {there}" if there else "no"
        yield Finding(
            "warning",
            f"/api/ps lists {names}, but {count} runner is there: it was killed or is gone",
            (f"processes: {count} child of pid {facts.process.pid} serves a model", start.loads[-1].text),
            f"ollama stop {gone[0].name}",
        )


def _crashes(signs: Signs) -> list[LogEvent]:
    """What says that a runner died, in the order of its kinds and lines."""
    events = [e for e in signs.of(*KINDS) if not NO_CRASH.search(e.text)]
    events = [e for e in events if e.kind != "runner_terminated" or not WITH_SERVER.search(e.text)]
    # the kernel's own journal, read beside the server's, does not tell which load it was
    events = [e for e in events if e.kind != "kernel:segfault" or e.line]
    if signs.has("client_gone_during_load"):  # a load that fails without an error was given up
        events = [e for e in events if e.kind != "load_failed" or e.fields.get("error")]
    return events


def _panics(signs: Signs) -> list[LogEvent]:
    return [e for e in signs.of("panic") if "unable to" in e.text or "panic recovered" not in e.text]


def _ended_itself(crashes: list[LogEvent], signs: Signs) -> bool:
    """Whether the engine says why it ended: an assertion, an error of the GPU, a panic."""
    return any(event.kind in OWN for event in crashes) or bool(_panics(signs))


def _several(signs: Signs) -> bool:
    return max(signs.count(kind) for kind in ONCE) > 1


def _served_before(crashes: list[LogEvent], start: Start | None) -> bool:
    """Whether the runner that died last had answered: after its load, or where a part of a log shows none."""
    if not crashes or start is None:
        return False
    line = max(e.line or 0 for e in crashes)
    load = next((x for x in reversed(start.loads) if (x.line or 0) <= line), None)
    if load is not None and load.outcome != "loaded":
        return False
    if any(e.kind == "load_failed" and (e.line or 0) >= line for e in crashes):
        return False
    begun = (load.line or 0) if load is not None else 0
    answered = any(r.status == 200 and r.path in RUNS_A_MODEL and begun < (r.line or 0) < line for r in start.recent)
    return answered or (load is None and any(" sys=" in e.text for e in crashes if e.kind == "runner_gone"))


def _loaded_since(event: LogEvent | None, start: Start | None) -> bool:
    if event is None or start is None:
        return False
    return any(
        x.outcome == "loaded" and x.seconds is not None and (x.line or 0) > (event.line or 0) for x in start.loads
    )


_RECORD = re.compile(r"^(?:time=\S+ )?level=\w+ ")
_REASON = re.compile(r'\berror="((?:[^"\\]|\\.)+)"')  # of a record: its last words
_SAID = re.compile(r'\bmsg=(?:"((?:[^"\\]|\\.)+)"|(\S+))')


def _message(text: str) -> str:
    """What a line says of a death: of a record the error that it names, else its message; else the line."""
    if not _RECORD.match(text):
        return text.strip(" :")[:160]
    found = _REASON.search(text) or _SAID.search(text)
    said = next(filter(None, found.groups()), "") if found else text
    return re.sub(r"(?:\\[rn])+", " ", said.replace('\\"', '"')).strip(" :")[:160]


def _without_runner(facts: Facts) -> list[LoadedModel]:
    """Models that /api/ps lists and no process serves; where files do not tell which, all of them."""
    loaded, runners = facts.loaded or (), facts.runners
    if runners is None or len(runners) >= len(loaded) or facts.start is None or not facts.start.loads:
        return []
    served = {m.name for r in runners if (m := model_of(r, facts)) is not None}
    return [m for m in loaded if m.name not in served]
