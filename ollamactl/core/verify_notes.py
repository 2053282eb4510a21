"""What `verify` says of the service as a whole, beside the rows: what keeps it from serving, lines that are ignored,
values that were refused, lines of others that have no effect, and what could not be looked at."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ollamactl.core import dropin, settings
from ollamactl.core.cause import cause
from ollamactl.core.facts import Facts
from ollamactl.core.lint import PASSED_BY_OLLAMA
from ollamactl.core.mismatch import Mismatch, Note


def mismatches(facts: Facts) -> tuple[Mismatch, ...]:
    """What stands before the rows: why nothing of it runs, or what of it can't."""
    return (*_not_serving(facts), *_ignored_lines(facts), *_refused_values(facts))


def notes(facts: Facts, managed: dict[str, str | None]) -> tuple[Note, ...]:
    """`managed` is what our own files want."""
    return (*_without_effect(facts), *_shadowed(facts, managed), *_unread(facts), *_not_loaded(facts))


def _unread(facts: Facts) -> Iterable[Note]:
    """A file that systemd has not read yet may win at the next start; which one it is, systemd does not tell."""
    if facts.service is not None and facts.service.need_daemon_reload:
        text = (
            f"systemd has not read the files of {facts.service.id} since they were changed: this is what runs now, "
            "another start may get something else (sudo systemctl daemon-reload, then verify again)"
        )
        yield Note("need_daemon_reload", text)


def _not_loaded(facts: Facts) -> Iterable[Note]:
    """Where no model is loaded, why the last load came to nothing."""
    last = facts.start.loads[-1] if facts.start and facts.start.loads else None
    if facts.loaded == () and last is not None and last.outcome == "failed":
        why = f": {last.error}" if last.error else ""
        yield Note("load_failed", f"the last load failed{why} (ollamactl doctor)")


def _not_serving(facts: Facts) -> Iterable[Mismatch]:
    """A service that systemd can't keep up: nothing of it runs as wanted."""
    service = facts.service
    begun = facts.start
    never_up = service is None and begun is not None and not (begun.listening or begun.loads or begun.requests)
    if never_up and (why := cause(facts)):
        yield Mismatch(why.id, "", "process", f"the server did not come up: {why.text}", why.evidence, why.fix)
    if service is None or service.active_state in ("active", "inactive", "reloading"):
        return
    why = cause(facts)
    text = f"{service.id} does not serve: {service.active_state} ({service.sub_state}), result {service.result}"
    if why is not None:
        yield Mismatch(why.id, "", "process", f"{text}: {why.text}", why.evidence, why.fix)
    elif service.active_state != "activating" or service.sub_state == "auto-restart":
        yield Mismatch("service_restart_loop", "", "process", text, (), f"journalctl -u {service.id} -n 50")


def _refused_values(facts: Facts) -> Iterable[Mismatch]:
    """Of a log alone: values that this start warned of."""
    seen = set()
    for event in facts.start.events if facts.start and facts.process is None else ():
        name, value = event.fields.get("key", ""), event.fields.get("value", "")
        if event.kind == "invalid_environment" and name and name not in seen:
            seen.add(name)
            text = f"{name}={value}: Ollama refused it and uses {event.fields.get('default', 'its default')}"
            yield Mismatch("invalid_value", name, "server", text, (event.text,))


def _ignored_lines(facts: Facts) -> Iterable[Mismatch]:
    """Lines of unit files that mean to set a variable and that systemd does not take."""
    for file in facts.unit_files or ():
        for problem in file.problems:
            if not re.search(r"Environment|OLLAMA|^\s*\[|LLAMA_ARG", problem.text):
                continue
            sections = "section" in problem.why or problem.text.lstrip().startswith("[")
            kind = "dropin_missing_section_header" if sections else "malformed_env_assignment"
            who = "launchd" if facts.service and facts.service.manager == "launchd" else "systemd"
            text = f"{who} does not take a line of {file.path} as it is meant: {problem.why}"
            evidence = (f"{file.path}:{problem.line}: {problem.text}",)
            yield Mismatch(kind, "", "unit", text, evidence, f"sudoedit {file.path}")


def _without_effect(facts: Facts) -> list[Note]:
    found = []
    for name, instead in PASSED_BY_OLLAMA.items():
        if facts.effective is not None and facts.effective.value(name) is not None:
            hint = f" ({instead} sets it)" if instead else ""
            found.append(Note("llama_arg_without_effect", f"{name} has no effect: Ollama passes it itself{hint}"))
    return found


def _shadowed(facts: Facts, managed: dict[str, str | None]) -> Iterable[Note]:
    """Lines of others that ours outdo, with another value: an admin's `systemctl edit` that has no effect."""
    if facts.service is None or facts.effective is None:
        return
    unit, release = facts.service.id, facts.version or ""
    own = (dropin.dropin_path(unit), dropin.env_file_path(unit))
    edited = {f.path: f.mtime for f in facts.unit_files or ()}
    for name, value in managed.items():
        variable = facts.effective.variables.get(name)
        if variable is None or variable.origin.file not in own:
            continue
        for lost_value, origin in variable.shadowed[-1:]:
            same = settings.meaning(name, lost_value, release) == settings.meaning(name, value, release)
            if not origin.file or origin.file in own or same:
                continue
            ours, theirs = edited.get(own[0]), edited.get(origin.file)
            later = " later" if ours is not None and theirs is not None and theirs > ours else ""
            shown = settings.shown(name, lost_value)
            text = (
                f"{origin.file}:{origin.line}, written{later} by someone else, sets {name}={shown}, but ours is read "
                f"last; to let it count: sudo ollamactl apply --release {name}"
            )
            yield Note("edit_shadowed", text if later else text.replace("written by", "of"))


def unproven(facts: Facts) -> Iterable[str]:
    """Layers that could not be looked at, with the reason."""
    for field, what in (
        ("effective", "the environment that the next start gets"),
        ("process", "the running process"),
        ("start", "the `server config` line of this start"),
        ("runners", "the runners"),
    ):
        if facts.service is None and facts.why(field).kind == "unasked":
            continue  # only a text was given: that is said once, not for each layer
        if getattr(facts, field) is None:
            yield f"{what}: {facts.why(field)}"
    if facts.process is not None and facts.process.environ is None:
        yield "the environment of the process: denied (sudo shows it)"
    if facts.start is not None and facts.start.config is None:
        yield "`server config`: the log of this start holds no such line"
