"""Commands of a remedy, as this host needs them: checks and verdicts name systemd's, and a Mac has none of these; they
ask `ollamactl plan` without knowing which model is meant.
"""

from __future__ import annotations

import re
import shlex

from ollamactl.core.facts import Facts, Service

LISTEN_AGAIN = "sudo kill -TERM 1"  # systemd executes itself anew, like `systemctl daemon-reexec`; services run on
_UNIT = r"[\w@.:-]+"
_DROPPED = re.compile(rf"(sudo )?systemctl (daemon-reload|reset-failed {_UNIT})( && |; |$)")
_STARTS = re.compile(rf"(sudo )?systemctl (restart|start|enable --now|unmask) {_UNIT}")
_STOPS = re.compile(rf"(sudo )?systemctl stop {_UNIT}")
_EDITS = re.compile(rf"(sudo )?systemctl edit (--full )?{_UNIT}")
_ASKS = re.compile(rf"(sudo )?systemctl (status|cat|show) {_UNIT}")
_LOG = re.compile(rf"(sudo )?journalctl -u {_UNIT}( --no-pager)?( -n (?P<lines>\d+))?( --no-pager)?(?P<follow> -f)?")


_PLAN = re.compile(r"(?:sudo )?ollamactl plan(?= --(?!client)| *;| *$| +#)")
_COUNTS = re.compile(r"(?<=--parallel )\d+(?:,\d+)+")


def of_model(text: str, facts: Facts) -> str:
    """`ollamactl plan` names its model: the one that is loaded, or MODEL to be filled in. No count is said twice."""
    if "ollamactl plan" not in text:
        return text
    loaded = facts.loaded or ()
    name = shlex.quote(loaded[0].name) if len(loaded) == 1 else "MODEL"
    text = _PLAN.sub(f"ollamactl plan {name}", text)
    return _COUNTS.sub(lambda m: ",".join(dict.fromkeys(m[0].split(","))), text)


def edited(*paths: str, unit: str = "ollama") -> str:
    """The command for a person who takes lines out of a unit's files, or mends them."""
    return (
        f"sudoedit {' '.join(dict.fromkeys(paths))} && sudo systemctl daemon-reload && sudo systemctl restart {unit}"
    )


_PASTED = re.compile(r"sudoedit pasted unit(?: \d+)?")


def local(text: str, service: Service | None) -> str:
    """The text with commands that this host has; a unit's file that was pasted without its path is opened by name."""
    text = _PASTED.sub("sudo systemctl edit --full ollama", text)
    if service is None or service.manager != "launchd" or not text:
        return text
    begin = "; ".join(service.restart_commands) or "start it again"
    job = f"{service.domain}/{service.label}" if service.label else ""
    text = _DROPPED.sub("", text)
    text = _STARTS.sub(lambda m: begin, text)
    text = _STOPS.sub(lambda m: _stop(service, job), text)
    text = _EDITS.sub("ollamactl apply --set NAME=VALUE", text)
    text = _ASKS.sub(lambda m: f"launchctl print {job}" if job else "ollamactl facts", text)

    def log(found: re.Match[str]) -> str:
        words = "-f" if found["follow"] else f"-n {found['lines'] or 200}"
        return f"tail {words} {shlex.quote(service.log_path)}" if service.log_path else "ollamactl facts"

    return _LOG.sub(log, text).rstrip(" &;")


def _stop(service: Service, job: str) -> str:
    if service.way == "app":
        return "pkill -x Ollama"
    if service.way == "brew":
        return "brew services stop ollama"
    return f"launchctl bootout {job}" if job else f"kill {service.main_pid}"
