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
    ("snap", r"\bsnap (?:set|install|restart|get|list|services|logs|connect)\b|/snap/ollama|/var/snap/"),
    ("nixos", r"\bnixos\b|/nix/store/|services\.ollama"),
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


_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_QUOTE = re.compile(r" ?> ?")


def unwrapped(text: str) -> str:
    """The text without colours, without the marks of a mail's or Markdown's quotation, and without an indentation that
    all lines share. Lines stay lines. A single line that begins with `>` is somebody's prompt."""
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    lines = text.split("\n")
    if "\n>" in text or "\n >" in text or text.startswith(">"):
        marked = [line.startswith((">", " >")) for line in lines]
        for n, line in enumerate(lines):
            near = (n > 0 and marked[n - 1]) or (n + 1 < len(lines) and marked[n + 1])
            if marked[n] and near:
                lines[n] = _QUOTE.sub("", line, count=1)
    said = [line for line in lines if line.strip()]
    if said and all(line[:2] in ("  ", "\t") or line[:1] == "\t" for line in said):
        by = min(len(line) - len(line.lstrip(" \t")) for line in said)
        lines = [line[by:] if line.strip() else line for line in lines]
    return "\n".join(_unfolded(_joined(lines)))


def _joined(lines: list[str]) -> list[str]:
    """Quotations within a sentence that its line's end broke (`bind: address` / `already in use`) are whole again, on
    the first of their lines."""
    for n in range(len(lines) - 1):
        line, after = lines[n], lines[n + 1]
        if line.count("`") % 2 and after.count("`") % 2 and "```" not in line + after and len(line) < LONGEST:
            rest, _, more = after.partition("`")
            lines[n], lines[n + 1] = f"{line} {rest.lstrip()}`", more.lstrip(" ,;")
    return lines


_RECORD = re.compile(r"\blevel=(?:DEBUG|INFO|WARN|ERROR)\b|^\s*time=\d{4}-")
_KEY = r"(?:\"[\w .]+\"|[A-Za-z_][\w.]*)="
_GOES_ON = re.compile(rf"[ \t]+{_KEY}\S|(?:{_KEY}(?:\"[^\"]*\"|\S+)\s*)+$")


def _unfolded(lines: list[str]) -> list[str]:
    """Records that were folded for the reader (the rest of their fields on lines of their own) as one line; the
    others are left empty."""
    record = -1
    for n, line in enumerate(lines):
        begins = _RECORD.search(line) is not None
        if record >= 0 and not begins and _GOES_ON.match(line) and len(lines[record]) < LONGEST:
            lines[record], lines[n] = f"{lines[record]} {line.strip()}", ""
        elif line.strip():
            record = n if begins else -1
    return lines


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
