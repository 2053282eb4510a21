"""What systemd makes of the values of one setting: which are ignored, which end the file, which are misread.

Covered are the settings that decide a service's environment, command and output, and every boolean; the
values of others are taken as they stand (systemd's own complaints in the journal tell of them).
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from ollamactl.core.parse.quoting import is_assignment, is_env_name, split
from ollamactl.core.parse.specifiers import KNOWN, expand
from ollamactl.core.parse.unitkeys import BOOLEAN

STOPS = "systemd stops reading the file here"
_TYPOGRAPHIC = "“”„«»‘’‚"
_TIME_UNIT_NAMES = """usec us µs μs msec ms seconds second sec s minutes minute min months month M m
hours hour hr h days day d weeks week w years year y"""
_TIME_UNITS = frozenset(("", *_TIME_UNIT_NAMES.split()))
_SIZE_UNITS = frozenset({"", "B", "K", "M", "G", "T", "P", "E"})
_QUANTITY = re.compile(r"\s*(?:\d+(?:\.\d*)?|\.\d+)\s*([^\W\d]*)\s*")
_LONG = 4096  # characters of a value that are looked at for reasons
_SHOWN_WORDS = 8  # bad words of one line that are told
_BOOLEANS = frozenset({"1", "yes", "y", "true", "t", "on", "0", "no", "n", "false", "f", "off"})
_CHOICES = {
    "Type": "simple exec forking oneshot dbus notify notify-reload idle",
    "Restart": "no on-success on-failure on-abnormal on-watchdog on-abort always",
    "KillMode": "control-group process mixed none",
    "DevicePolicy": "auto closed strict",
    "PrivateTmp": "1 yes y true t on 0 no n false f off disconnected",
    "ProtectHome": "1 yes y true t on 0 no n false f off read-only tmpfs",
    "ProtectSystem": "1 yes y true t on 0 no n false f off full strict",
}
_TIMES = frozenset(
    {
        "RestartSec", "TimeoutSec", "TimeoutStartSec", "TimeoutStopSec", "RuntimeMaxSec", "WatchdogSec",
        "StartLimitIntervalSec", "StartLimitInterval", "LogRateLimitIntervalSec",
    }
)  # fmt: skip
_MEMORY = frozenset({"MemoryMax", "MemoryHigh", "MemoryLow", "MemoryMin", "MemorySwapMax", "MemoryLimit"})
_JOINED = re.compile(r"([,;]|(?<=\S)(?= ))\s*(?:OLLAMA|LLAMA_ARG|GGML|CUDA|HIP|ROCR|HSA|GPU)_[A-Z0-9_]*=")
# Where one quoted assignment ends and another begins. A quote behind a backslash is part of a value.
_BETWEEN = re.compile(r"""(?<!\\)["']([,;])["'](?=[A-Za-z_]\w*=)""")
_SPACED = re.compile(r"""[^\s"'=]+(?:\s+=\s*|=\s+)[^\s"']+""")
# Stand in for the values of specifiers: whether a word is a name or an assignment hangs on their kind alone.
_ALL = {
    **dict.fromkeys(KNOWN, "x"), **dict.fromkeys("CDELSTVYcdfhrRsty", "/x"), **dict.fromkeys("GUw", "0"),
    "n": "x.service", "v": "6.1-x", "a": "x86-64",
}  # fmt: skip


class Judgement(msgspec.Struct, frozen=True):
    """`ignored`: the whole assignment has no effect. `fatal`: systemd reads no further in the file."""

    problems: tuple[str, ...] = ()
    ignored: bool = False
    fatal: bool = False


def judge(section: str, key: str, value: str, swallowed: str = "") -> Judgement:
    """Judge one assignment whose key belongs in its section. `swallowed` is a finding of the line reader
    about a continuation line; it is named before anything else, being the cause of the rest."""
    resets = not value and key not in BOOLEAN and key not in _CHOICES and key not in _TIMES
    found = Judgement() if resets else _judge(section, key, value)
    if swallowed:
        return Judgement((swallowed, *found.problems), found.ignored, found.fatal)
    if value and not found.problems and (odd := _invisible(value)):
        return Judgement((odd,))
    return found


def _judge(section: str, key: str, value: str) -> Judgement:
    if section == "Service" and (own := _JUDGES.get(key)):
        return own(value)
    if section == "Service" and key.startswith("Exec") and key not in ("ExecPaths", "ExecSearchPath"):
        return _exec(value)
    allowed = _BOOLEANS if key in BOOLEAN else frozenset(_CHOICES.get(key, "").split())
    if allowed and (value.lower() if key in BOOLEAN else value) not in allowed:
        if key in _CHOICES and value.lower() in _BOOLEANS and value.lower() in allowed:
            return Judgement()
        return Judgement((f"{value!r} is not a value of {key}=" + _comment(value),), ignored=True)
    if key in _TIMES and not (value == "infinity" or _quantities(value, _TIME_UNITS)):
        return Judgement((f"{value!r} is not a time span" + _comment(value),), ignored=True)
    if key in _MEMORY and not (re.fullmatch(r"infinity|\d+(\.\d+)?\s*%", value) or _quantities(value, _SIZE_UNITS)):
        return Judgement((f"{value!r} is not a size" + _comment(value),), ignored=True)
    if key in ("User", "Group", "WorkingDirectory", "LogNamespace") and " #" in value:
        return Judgement((f"a comment needs a line of its own; here it is part of {key}=",))
    return Judgement()


def _quantities(value: str, units: frozenset[str]) -> bool:
    """Whether a value is one or more numbers with units: `1min 30s`, `1.5G`."""
    at = 0
    while at < len(value) and (found := _QUANTITY.match(value, at)) and found.group(1) in units:
        at = found.end()
    return bool(value) and at == len(value)


def _comment(value: str) -> str:
    return "; a comment needs a line of its own" if " #" in value or " ;" in value else ""


def _environment(value: str) -> Judgement:
    """Each word is judged by itself: systemd drops the bad ones and keeps the others."""
    problems: list[str] = []
    found = split(value)
    heard = 0
    for word in found.words:
        made = expand(word, _ALL)
        if len(problems) >= _SHOWN_WORDS:
            heard += made.text is not None and is_assignment(made.text)
        elif made.text is None:
            problems.append(f"{made.invalid} in {word!r} is no specifier of systemd: write %% for a per cent sign")
        elif not is_assignment(made.text):
            problems.append(_no_assignment(word, value[:_LONG]))
        else:
            heard += 1
            problems += _misread(word, value)
    if found.error:
        problems.append(f"{found.error}: systemd ignores the rest of the line")
    return Judgement(tuple(dict.fromkeys(problems)), ignored=not heard)


def _no_assignment(word: str, value: str) -> str:
    name, equals, _ = word.partition("=")
    if word[:1] in _TYPOGRAPHIC:
        return f"{word!r}: typographic quotes; systemd knows only \" and '"
    if word == "export":
        return "'export' belongs to a shell, not here"
    if (found := _SPACED.search(value)) and word in found.group(0):
        return f"{found.group(0)!r} is no assignment: no blanks may stand around the `=`"
    if "#" in value and word in value[value.index("#") :]:
        return f"{word!r} is no assignment: a comment needs a line of its own"
    if not equals and re.match(r"[A-Za-z_]\w*:", word):
        return f"{word!r} is no assignment: it takes `=`, not `:`"
    if not equals:
        return f"{word!r} is no assignment: a value with blanks must be quoted as a whole, \"NAME=a value\""
    return f"{word!r} is no assignment: {name!r} is no name of a variable, or the value is no text"


def _misread(word: str, raw: str) -> list[str]:
    """Why an assignment that systemd accepts can hardly be what its author meant; mostly nothing."""
    name, _, value = word.partition("=")
    if name == "Environment" and "=" in value:
        return [f"this sets a variable called Environment, to {value!r}"]
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" and "\\" + value[0] not in raw
    if quoted and not name.startswith("OLLAMA_"):  # Ollama strips them from its own
        return [f"{name}'s value holds the quotes: {value}"]
    if value[:1] in _TYPOGRAPHIC and value:
        return [f"typographic quotes are part of {name}'s value; systemd knows only \" and '"]
    if found := _JOINED.search(value) or _BETWEEN.search(raw):
        how = f"blanks separate them, not `{found.group(1)}`" if found.group(1) else "each needs quotes of its own"
        return [f"several assignments in the value of {name}: {how}"]
    for found in re.finditer(r"%(%|([bBmMaAoqvwW])|([CEDLSTVUdfgc])([0-9A-Fa-f]))", value):
        if found.group(1) != "%":
            return [f"{found.group(0)[:2]} in {name} expands; write %% for a per cent sign"]
    return []


def _invisible(value: str) -> str:
    for char in value:
        if char in "\u00a0\u200b\u200c\u200d\u2060\ufeff\u00ad":
            return f"an invisible character (U+{ord(char):04X}) is part of the value"
    return ""


def _names(value: str, *, escapes: bool, assignments: bool) -> Judgement:
    problems: list[str] = []
    found = split(value, escapes=escapes)
    heard = 0
    for word in found.words:
        made = expand(word, _ALL)
        if made.text is None:
            problems.append(f"{made.invalid} in {word!r} is no specifier of systemd")
        elif is_env_name(made.text) or (assignments and is_assignment(made.text)):
            heard += 1
        elif "=" in word and not assignments:
            problems.append(f"{word!r}: only names can stand here, without a value")
        else:
            problems.append(f"{word!r} is no name of a variable: blanks separate names")
    if found.error:
        problems.append(f"{found.error}: systemd ignores the rest of the line")
    return Judgement(tuple(problems), ignored=not heard)


def _pass(value: str) -> Judgement:
    return _names(value, escapes=False, assignments=False)


def _unset(value: str) -> Judgement:
    return _names(value, escapes=True, assignments=True)


def _environment_file(value: str) -> Judgement:
    made = expand(value, _ALL)
    if made.text is None:
        return Judgement((f"{made.invalid} is no specifier of systemd: write %% for a per cent sign",), ignored=True)
    path = value.removeprefix("-")
    if path[:1] in ("\"'" + _TYPOGRAPHIC) and path:
        return Judgement(("the path must stand without quotes; the line is ignored",), ignored=True)
    if not path.startswith(("/", "%")):
        return Judgement(("the path is not absolute; the line is ignored",), ignored=True)
    if ".." in path.split("/"):
        return Judgement(("the path holds `..`; the line is ignored",), ignored=True)
    if " " in path:
        return Judgement(("one file a line: blanks, and what follows them, are part of the path",))
    return Judgement()


def _exec(value: str) -> Judgement:
    found = split(value, relaxed=True)
    if found.error:
        return Judgement((f"{found.error}; {STOPS}",), True, True)
    for word in found.words:
        if (made := expand(word, _ALL)).text is None:
            why = f"{made.invalid} in {word!r} is no specifier of systemd: write %% for a per cent sign"
            return Judgement((f"{why}; {STOPS}",), True, True)
    problems = [f"{escape} is no escape that systemd knows; it stays as written" for escape in found.kept[:1]]
    first = found.words[0].lstrip("@-:+!") if found.words else ""
    if " " in first:
        problems.append(f"the quotes make {first!r} the program; they belong around single arguments")
    elif any(word in (">", ">>", "2>&1", "|", "&&", "<", "||") for word in found.words):
        problems.append("this is no shell: redirections and pipes are plain arguments of the program")
    elif "#" in found.words:
        problems.append("a comment needs a line of its own; here it is arguments of the program")
    return Judgement(tuple(problems))


def _directory(value: str) -> Judgement:
    path = value.removeprefix("-")
    if not path.startswith(("/", "~", "%")):
        why = "the path is not absolute"
        if value.startswith("-"):
            return Judgement((why,), ignored=True)
        return Judgement((f"{why}; {STOPS}",), True, True)
    return Judgement()


_JUDGES: dict[str, Callable[[str], Judgement]] = {
    "Environment": _environment,
    "PassEnvironment": _pass,
    "UnsetEnvironment": _unset,
    "EnvironmentFile": _environment_file,
    "WorkingDirectory": _directory,
}
