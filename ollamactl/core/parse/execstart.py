"""`ExecStart=`: the command, and what stands before the program that it is there for.

    ExecStart=-/usr/bin/env OLLAMA_DEBUG=1 /usr/local/bin/ollama serve
    ExecStart=/bin/sh -c 'export OLLAMA_NUM_PARALLEL=2; exec ollama serve'

A wrapper may change the environment after systemd has made it. `env`, plain shell lines and programs that
pass the environment on are understood; of anything else it is said that its doings are not known.
"""

from __future__ import annotations

import re
import shlex
from typing import Literal

import msgspec

from ollamactl.core.parse.quoting import is_env_name, split

# Programs that run another with the environment they got. Options with a value are those whose value is a
# word of its own.
_TRANSPARENT = {
    "nice": "n", "ionice": "cnPu", "chrt": "TPD", "taskset": "", "numactl": "CNmipPw", "nohup": "",
    "setsid": "", "stdbuf": "", "timeout": "ks", "setpriv": "", "prlimit": "", "choom": "n", "unbuffer": "",
    "catchsegv": "", "systemd-cat": "tp", "dumb-init": "", "tini": "", "setarch": "", "exec": "",
}  # fmt: skip
_ENV_OTHERS = ("--chdir=", "--argv0=", "--default-signal", "--ignore-signal", "--block-signal", "-v", "--debug")
_SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh")
_SHELL_WORDS = frozenset(
    {".", "source", "eval", "set", "read", "readonly", "declare", "typeset", "local", "if", "then", "else", "fi"}
    | {"for", "while", "until", "do", "done", "case", "esac", "function", "trap", "alias", "!", "time"}
)
_REFUSED = re.compile(r"[`*?<>|(){}\[\]&~]|\$[^{A-Za-z_]")


class Command(msgspec.Struct, frozen=True):
    argv: tuple[str, ...]
    prefixes: str = ""  # of @ - : + !
    error: str = ""


class Change(msgspec.Struct, frozen=True):
    """One thing that a wrapper does to the environment."""

    kind: Literal["set", "unset", "clear"]
    name: str = ""
    value: str = ""


class Wrapping(msgspec.Struct, frozen=True):
    """`programs` stand before the last program, whose words are `argv`. `unknown` says why changes may
    lack."""

    programs: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    argv: tuple[str, ...] = ()
    unknown: str = ""


def parse(value: str) -> Command:
    """The first command of a value; specifiers and variables are left as they stand."""
    found = split(value, relaxed=True)
    words = list(found.words)
    if ";" in words:
        words = words[: words.index(";")]
    if not words:
        return Command((), "", found.error)
    bare = words[0].lstrip("@-:+!|")
    prefixes = words[0][: len(words[0]) - len(bare)]
    if "@" in prefixes and len(words) > 1:  # the second word is what the program sees as its name
        words.pop(1)
    return Command((bare, *words[1:]), prefixes, found.error)


def unwrap(argv: tuple[str, ...]) -> Wrapping:
    """Go through the wrappers of a command, outermost first."""
    programs: list[str] = []
    changes: list[Change] = []
    words = list(argv)
    for _ in range(8):
        if not words:
            return Wrapping(tuple(programs), tuple(changes), (), "the wrapper runs no program that can be seen")
        name = words[0].rpartition("/")[2]
        if name == "env":
            rest, made, unknown = _env(words[1:])
        elif name in _SHELLS:
            rest, made, unknown = _shell(words)
        elif name in _TRANSPARENT:
            rest, made, unknown = _transparent(name, words[1:])
        else:
            break
        programs.append(words[0])
        changes += made
        if unknown:
            return Wrapping(tuple(programs), tuple(changes), tuple(rest), unknown)
        words = rest
    return Wrapping(tuple(programs), tuple(changes), tuple(words))


_Step = tuple[list[str], list[Change], str]


def _env(words: list[str]) -> _Step:
    changes: list[Change] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word in ("-i", "-", "--ignore-environment"):
            changes.append(Change("clear"))
        elif word in ("-u", "--unset") and at < len(words):
            changes.append(Change("unset", words[at]))
            at += 1
        elif word.startswith("--unset="):
            changes.append(Change("unset", word[8:]))
        elif word.startswith("-u") and len(word) > 2:
            changes.append(Change("unset", word[2:]))
        elif word in ("-C", "--chdir", "-a", "--argv0") and at < len(words):
            at += 1
        elif word.startswith(_ENV_OTHERS):
            continue
        elif word == "--":
            break
        elif word.startswith("-"):
            return words[at:], changes, f"what `env {word}` does is not computed"
        else:
            at -= 1
            break
    while at < len(words) and "=" in words[at]:
        name, _, value = words[at].partition("=")
        changes.append(Change("set", name, value))
        at += 1
    return words[at:], changes, ""


def _transparent(name: str, words: list[str]) -> _Step:
    """Skip a program's own options. Where the start of the next program is not plain, say so."""
    taking = _TRANSPARENT[name]
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        option = words[at]
        at += 1
        if len(option) == 2 and option[1] in taking:
            at += 1
    if at < len(words) and words[at] == "--":
        at += 1
    if name in ("taskset", "chrt", "timeout") and at < len(words):
        at += 1  # mask or list, priority, duration
    return words[at:], [], ""


def _shell(words: list[str]) -> _Step:
    at = 1
    script = ""
    while at < len(words) and words[at].startswith("-"):
        option = words[at]
        at += 1
        if not option.startswith("--") and "c" in option:
            script = words[at] if at < len(words) else ""
            break
        if "l" in option or option in ("--login", "--rcfile", "--init-file"):
            return words[at:], [], f"{words[0]} {option} reads a profile, which may set variables"
    else:
        name = words[at] if at < len(words) else "its input"
        return words[at:], [], f"the script {name} may set or change variables"
    if "l" in words[at - 1].lstrip("-"):
        return [], [], f"{words[0]} {words[at - 1]} reads a profile, which may set variables"
    return script_steps(script)


def script_steps(script: str) -> _Step:
    """A shell line of assignments, `export`, `unset` and commands; anything else is not computed. Commands before
    the last are programs that can't change the shell's own environment; that they succeed is taken for granted."""
    changes: list[Change] = []
    local: dict[str, str] = {}
    parts = [part.strip() for part in re.split(r"&&|[;\n]", script) if part.strip()]
    for number, part in enumerate(parts, 1):
        bare = re.sub(r"'[^']*'", "''", part)
        if _REFUSED.search(bare):
            return [], changes, f"the shell line is more than assignments and commands: {part}"
        try:
            words = shlex.split(part, comments=True)
        except ValueError:
            return [], changes, f"the shell line can't be read: {part}"
        name = words.pop(0) if words and words[0] in ("export", "unset") else ""
        if name == "unset":
            changes += [Change("unset", word) for word in words if not word.startswith("-")]
            continue
        given: list[Change] = []
        while words and "=" in words[0] and is_env_name(words[0].partition("=")[0]):
            key, _, value = words.pop(0).partition("=")
            given.append(Change("set", key, value))
        if given and "$" in bare:
            return [], changes, f"the shell line uses variables: {part}"
        if name == "export":
            changes += given
            changes += [Change("set", word, local[word]) for word in words if word in local]
        elif not words:
            local |= {change.name: change.value for change in given}
        elif words[0] in _SHELL_WORDS:
            return [], changes, f"what the shell does at `{words[0]}` is not computed"
        elif words[0] == "exec" or number == len(parts):
            return words[1:] if words[0] == "exec" else words, changes + given, ""
    return [], changes, "the shell line runs no program that can be seen"
