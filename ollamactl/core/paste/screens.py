"""Prompts within a pasted text: which command printed the lines below, and what of its own words is no evidence.

    user@box:~$ systemctl show ollama -p MainPID        me@mini ~ % launchctl getenv OLLAMA_HOST
    [root@srv ~]# cat /etc/default/ollama               PS C:\\Users\\me> ollama ps

What somebody searches for or opens says nothing of the host: the pattern of `grep`, the name of a file.
A file of a folder is a screen as well: `heading` is the prompt that its name stands for.
"""

# ruff: noqa: E501 - a pattern is read more easily whole
from __future__ import annotations

import re

Lines = list[tuple[int, str]]  # numbered from 1, as the text has them

_PROMPT = re.compile(
    r"(?:\([\w.-]+\) )*(?:\[[\w.-]+@[\w.-]+ [^\]\n]{1,60}\][$#%]|[\w.-]+@[\w.-]+(?::| )[^\s$#%>]{1,60} ?[$#%>]|[\w.-]{1,30}(?::[~/]\S{0,60})?[$]|➜ {2}\S+|[$❯➜]|PS [A-Z]:\\[^>\n]{0,80}>|[A-Z]:\\[^>\n]{0,80}>)"
    r" +(?P<command>\S.*)"
)
# what is searched for, and what is opened: up to the end of that command
_ASKED = re.compile(
    r"(?<![\w./-])(?:[ef]?grep|rg|ag|ack|awk|sed|jq|yq|findstr|Select-String|sls|cat|bat|less|more|head|tail|nano|vim?|ls|echo|printf|which|test)\b"
    r"(?:\"[^\"\n]*\"|'[^'\n]*'|[^|;&\n\"'])*"
)
_JOURNAL_ASKED = re.compile(r"(?<=\s)(?:-g|--grep)[ =](?:\"[^\"\n]*\"|'[^'\n]*'|\S+)")
_OPENED = re.compile(r"(?:sudo )?(?:cat|bat|less|more|head|tail)(?: -\S+)* +(?P<path>[^\s|;&-][^\s|;&]*)")
_CHANGES = re.compile(r"\s>>?\s*\S|\btee\b|\bsed -i\b")

# -- names of files --
_WORDS = re.compile(r"[^a-z0-9]+")
_SECTION = re.compile(r"^\s*\[(?:Service|Unit)\]", re.M)
_SOURCE = re.compile(r"\.(?:ya?ml|py|sh|js|ts|nix|plist|toml|ini|md|env|html?|ps1|bat)$", re.I)
_ODD = re.compile(r"[^\w./~-]+")
_NUMBERED = re.compile(r"^\d{1,3}[-_. ]+")
_TEXT = re.compile(r"\.(?:txt|out|log|text|output|stdout|json)$", re.I)
_HYPHENATED = re.compile(r"\b(is) (enabled|active|failed)\b|\b(nvidia|rocm|amd) (smi)\b|\b(list) (units|unit files|models)\b")
_PROGRAMS = {
    "systemctl", "journalctl", "ollama", "nvidia-smi", "rocm-smi", "amd-smi", "rocminfo", "vulkaninfo", "lsmod", "lspci", "lscpu",
    "dmesg", "docker", "podman", "kubectl", "launchctl", "brew", "snap", "pacman", "dpkg", "rpm", "apt", "dnf", "ss", "netstat",
    "lsof", "ps", "pgrep", "top", "free", "df", "du", "ls", "stat", "find", "namei", "id", "groups", "mount", "findmnt", "ulimit",
    "uname", "env", "printenv", "getent", "which", "curl", "ufw", "iptables", "nft", "ip", "nmap", "getenforce", "ausearch", "wsl",
    "defaults", "pmset", "loginctl", "sysctl", "modinfo", "nginx", "diff", "git", "strings",
}  # fmt: skip
_ROOTS = {"etc", "proc", "usr", "var", "run", "home", "opt", "root", "sys", "dev", "lib"}
_PROFILES = {"bashrc", "zshrc", "profile", "zprofile", "zshenv"}
# a command without a prompt, as a heading or alone on its line
_HEADED = re.compile(r"(?:#+|>|={2,}|-{2,}) +(?P<command>\S.*?)(?: *[=:-]{1,9})?\s*$")
_TOOL = rf"(?:sudo )?(?:{'|'.join(sorted(_PROGRAMS | {'cat', 'grep', 'tail', 'tr'}, key=len, reverse=True))})"
_PLAIN = re.compile(rf"{_TOOL}(?: [a-z][a-z-]*)?(?: \S*ollama\S*)?")
_WITH_OPTIONS = re.compile(rf"{_TOOL}(?= )(?=.*(?: -\w| \| | /\w))(?!.*(?:[.!?]$|, ))")
_BARE = re.compile(rf"(?:sudo )?cat /\S+|(?:sudo )?systemctl is-(?:enabled|active) \S+|{_TOOL} [^\n|]*\| *[ef]?grep(?: -\S+)* (?:'[^'\n]*'|\"[^\"\n]*\"|\S+)")
_UNIT_FILE = re.compile(r"\.(?:service|conf)(?:\.txt)?$")
# what one word of a name stands for, where no program is named; the first that is among them counts
_ALIASES = (
    (r"^(?:ollama |unit |service |systemd )*(?:show|properties)$", "systemctl show ollama"),
    (r"\b(?:proc|process|pid|server)\b.* ?\benviron(?:ment)?\b|^environ\b", "cat /proc/PID/environ"),
    (r"\b(?:service|unit|systemd|ollama) status\b|^status\b", "systemctl status ollama"),
    (r"\b(?:is-enabled|is-active)\b", "systemctl {0} ollama"),
    (r"^(?:shell |user |my )?(?:env|printenv)\b", "env"),
)  # fmt: skip


def prompt(line: str) -> str | None:
    """The command that stands behind a prompt, in a heading (`=== ollama ps ===`) or, where it can be nothing else,
    alone; None where the line is none. A line `# words` is a comment."""
    line = line[:400]
    if found := _PROMPT.match(line):
        return found["command"]
    if (found := _HEADED.match(line)) and (_PLAIN.fullmatch(found["command"]) or _WITH_OPTIONS.match(found["command"])):
        return found["command"]
    return line if _BARE.fullmatch(line) else None


def opened(command: str) -> str:
    """The file that a command prints as it is, or empty."""
    found = _OPENED.match(command)
    return found["path"] if found and _CHANGES.search(command) is None else ""


def evidence(command: str) -> str:
    """A command without what it searches for and opens."""
    return _JOURNAL_ASKED.sub("", command if _CHANGES.search(command) else _ASKED.sub("", command))


def heading(name: str, text: str = "") -> str:
    """The prompt and the command that a file's name stands for: `systemctl-show.txt`, `03_ollama_ps.out`,
    `override.conf`, `etc-default-ollama`. Where it tells no command, the file was printed; a `.conf` whose text has a
    unit's section is a drop-in."""
    base = name.rsplit("/", 1)[-1]
    if _UNIT_FILE.search(base):
        return f"$ cat {_unit_path(base.removesuffix('.txt'), 'service.d/' in name or _SECTION.search(text) is not None)}"
    plain = _NUMBERED.sub("", base).lstrip(".")
    words = _HYPHENATED.sub(lambda m: "-".join(g for g in m.groups() if g), _WORDS.sub(" ", _TEXT.sub("", plain).lower())).strip()
    words = words.removeprefix("cat ")
    if _SOURCE.search(plain):
        return "$ cat " + _ODD.sub("-", name)
    if words.split(" ")[0] in _PROGRAMS:
        return f"$ {words}"
    if words.split(" ")[0] in _ROOTS and " " in words:
        return f"$ cat /{words.replace(' ', '/')}"
    if words in _PROFILES:
        return f"$ cat ~/.{words}"
    for pattern, command in _ALIASES:
        if found := re.search(pattern, words):
            return f"$ {command.format(found[0])}"
    return "$ cat " + _ODD.sub("-", name)


def same_file(path: str, name: str) -> bool:
    """Whether a path is what somebody's file is named after: /etc/default/ollama, `etc-default-ollama.txt`."""
    short = _WORDS.sub(" ", _TEXT.sub("", _NUMBERED.sub("", name)).lower()).strip()
    whole = _WORDS.sub(" ", path.lower()).strip()
    return whole == short or (" " in short and whole.endswith(f" {short}"))


def _unit_path(name: str, is_dropin: bool) -> str:
    """Where systemd has a file of that name; as it is where the name is of no unit."""
    if name.endswith(".service"):
        return f"/etc/systemd/system/{name}"
    known = is_dropin or name in ("override.conf", "local.conf") or "ollama" in name or re.match(r"\d\d-", name)
    return f"/etc/systemd/system/ollama.service.d/{name}" if known else name
