"""What a pasted line is by its form: of a log, of another program's journal, a sentence, a kind of host."""

# ruff: noqa: E501 - a pattern is read more easily whole
from __future__ import annotations

import re

LONGEST = 2000  # characters of a line
LOG_LINE = re.compile(
    r"\s*\{\"(?:[^\n]{0,1500}\")?(?:MESSAGE|__CURSOR|_PID|__REALTIME_TIMESTAMP|SYSLOG_IDENTIFIER|log|function)\"|"
    r"[^`'\"“]{0,90}?\btime=\d{4}-|[^`'\"“]{0,60}?\blevel=[A-Z]+ source=|\W*\[GIN\] \d{4}|.{0,90}\bollama(?:\.service|-serve|\.listener)?\[\d+\]:"
    r"|(?:llama|ggml|llm|load|print_info|common|clip|set_|alloc|init|system_info|main|cmn|resolve|sched|graph_reserve|done_getting|create_)[\w.]*(?:\(\))?: "
    r"|(?:slot|srv|que) +\w+[: ]|  Device \d|\d{4}/\d\d/\d\d \d\d:\d\d:\d\d "
)
WORLDS = (
    ("wsl", r"\bWSL2?\b|microsoft-standard|/mnt/[a-z]/(?:Users|Windows)|\bsetx\b.*\bwsl\b|/etc/wsl\.conf|usr/lib/wsl"),
    ("snap", r"\bsnap (?:set|install|restart|get|list|services|logs|connect)\b|/snap/ollama|/var/snap/|\b(?:the|as a|from a) snap\b|\b[Ss]nap (?:on|package|version)\b|\bUbuntu Core\b"),
    ("nixos", r"\b[Nn]ix[Oo][Ss]\b|/nix/store/|services\.ollama"),
    (
        "docker",
        r"\bdocker (?:run|compose|exec|logs|ps)\b|(?<!github\.com/)ollama/ollama(?![\w/.-]*\.go)|container_name:|^services:|\bpodman run\b|\brootless\b|rocminfo in container"
        r"|^\s*[\w.-]*ollama[\w.-]*\s+\| ",
    ),
    ("darwin", r"launchctl|brew services|LaunchAgents?|/Applications/Ollama\.app|homebrew|\bmacOS\b"),
    ("windows", r"[A-Z]:\\|AppData|\$env:|\bsetx\b|ollama\.exe|taskkill"),
)
_JOURNAL = re.compile(
    r"(?:\S{1,6} +\d{1,2} [\d:.]{8,20}|\d{4}-\d\d-\d\dT\S{8,40}) \S{1,80} ([\w@.-]{1,60})(?:\[\d+\])?: "
)


def named(lines: list[str]) -> bool:
    """Whether a journal names the server: then another program's lines are never the server's."""
    return any("ollama" in found[1].lower() for line in lines if (found := _JOURNAL.match(line)))


def foreign(line: str, apart: bool = False) -> bool:
    """Whether a journal's line is of another program, or of systemd about another unit. `apart`: what the program
    says does not matter."""
    found = _JOURNAL.match(line)
    if found is None or found[1] == "kernel":
        return False
    if apart and "ollama" not in found[1].lower() and not found[1].startswith("systemd"):
        return True
    text = line[:LONGEST].lower()
    return "ollama" not in text and "suspend" not in text and "hibernat" not in text


def clauses(line: str) -> list[str]:
    """The parts of a sentence between semicolons, where it is one: code and configuration have no blank after them."""
    parts = line.split("; ")
    return (
        parts if 1 < len(parts) < 12 and not re.search(r"[{}$&]|^\s*(?:export|set|for|if|while)\b", line) else [line]
    )


def plain(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line.rstrip("\r")).replace("\0", "")
