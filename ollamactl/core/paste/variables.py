"""Variables that a pasted line sets: in a shell, a container, a property list, Windows, …"""

# ruff: noqa: E501 - a pattern is read more easily whole
from __future__ import annotations

import re

from ollamactl.core import settings

_NAME = r"(?P<name>O?LL?AMA_\w+|OLAMA_\w+|LLAMA_ARG_\w+|CUDA_VISIBLE_DEVICES|RO?CR_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|" \
        r"GGML_VK_VISIBLE_DEVICES|HSA_OVERRIDE_GFX_VERSION\w*|LD_PRELOAD|HTTPS?_PROXY|NO_PROXY|https?_proxy|no_proxy)"  # fmt: skip
_VALUE = r"(?P<value>\"[^\"\n]*\"|'[^'\n]*'|(?:[^\s\"'`,;\\]|,(?=[^\s\"'`,;\\]))*)"  # a comma within a list, not after it
SETS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("launchctl", re.compile(rf"launchctl setenv {_NAME} {_VALUE}")),
    ("snap", re.compile(r"snap set ollama (?P<name>[a-z][a-z-]*)=(?P<value>\S+)")),
    ("windows", re.compile(rf"(?:\bsetx {_NAME.replace('?P<name>', '')} )", re.I)),
    ("windows", re.compile(rf"\bsetx(?:\.exe)?\s+{_NAME}\s+{_VALUE}", re.I)),
    ("windows", re.compile(rf"\$env:{_NAME}\s*=\s*{_VALUE}", re.I)),
    ("windows", re.compile(rf"SetEnvironmentVariable\([\"']{_NAME}[\"'], *[\"'](?P<value>[^\"']*)[\"']")),
    ("windows", re.compile(rf"GetEnvironmentVariable\([\"']{_NAME}[\"'][^)\n]*\)\s+(?P<value>[^\s$%#]\S*)")),
    ("windows", re.compile(rf"^\s*{_NAME}\s+REG_(?:EXPAND_)?SZ\s+(?P<value>\S.*?)\s*$")),
    ("windows", re.compile(rf"^\s*set {_NAME}={_VALUE}", re.I)),
    ("service", re.compile(rf"\s*Environment=[\"']?{_NAME}={_VALUE}")),
    ("docker", re.compile(rf"(?:-e|--env)[ =][\"']?{_NAME}={_VALUE}")),
    ("client", re.compile(rf"\bos\.environ\[[\"']{_NAME}[\"']\]\s*=\s*{_VALUE}")),
    ("client", re.compile(rf"\bprocess\.env\.{_NAME}\s*=\s*{_VALUE}")),
    ("shell", re.compile(rf"\bexport\s+{_NAME}={_VALUE}")),
    ("shell", re.compile(rf"\b(?:declare|typeset)\s+-\w*x\w*\s+{_NAME}={_VALUE}")),
    ("shell", re.compile(rf"\bset (?:-(?!e|-)\w+\s+|--(?!erase)\w+\s+)+{_NAME} {_VALUE}")),  # fish
    ("shell", re.compile(rf"^(?!.*\blaunchctl\b).*\b(?:setenv|set-env)\s+(?:E:)?{_NAME} {_VALUE}")),  # csh, elvish
    ("shell", re.compile(rf"\$env\.{_NAME}\s*=\s*{_VALUE}")),  # nushell
    ("shell", re.compile(rf"^\s*SETUVAR --export {_NAME}:(?P<value>\S*)\s*$")),  # fish_variables
    ("shell", re.compile(rf"^\s*(?:[$#]\s*)?(?:\w+=\S+\s+)*{_NAME}={_VALUE}\s+(?:\w+=\S+\s+)*(?:nohup\s+)?(?:\S*/)?ollama\b")),
    ("shell", re.compile(rf"\benv\s+(?:\w+=\S+\s+)*{_NAME}={_VALUE}\s+(?:\w+=\S+\s+)*(?:\S*/)?ollama serve\b")),
    ("compose", re.compile(rf"^\s*-\s*[\"']?{_NAME}=(?P<value>[^\"'\n]*?)[\"']?\s*$")),
    ("compose", re.compile(rf"^\s+[\"']?{_NAME}[\"']?:\s+(?P<value>\"[^\"]*\"|'[^']*'|[^\"'\n]*?),?\s*$")),
    ("launchctl", re.compile(rf"^\s*{_NAME} => (?P<value>.*?)\s*$")),
    ("docker", re.compile(rf"^\s*\"{_NAME}=(?P<value>[^\"]*)\",?\s*$")),
    ("plist", re.compile(rf"<key>{_NAME}</key>\s*<string>(?P<value>[^<]*)</string>")),
    ("nix", re.compile(rf"^\s*{_NAME}\s*=\s*\"(?P<value>[^\"]*)\";")),
    ("env", re.compile(rf"^\s*{_NAME}={_VALUE}\s*$")),
)  # fmt: skip
SETS = tuple(row for row in SETS if "value" in row[1].groupindex)
# a name whose value stands on the next line: (scope, line with the name, line with the value)
SPLIT: tuple[tuple[str, re.Pattern[str], re.Pattern[str]], ...] = (
    ("plist", re.compile(rf"<key>{_NAME}</key>\s*$"), re.compile(r"<string>(?P<value>[^<]*)</string>")),
    ("compose", re.compile(rf"^\s*-?\s*[\"']?name[\"']?:\s*[\"']?{_NAME}[\"']?,?\s*$"), re.compile(r"^\s*[\"']?value[\"']?:\s*[\"']?(?P<value>[^\"'\n]*)")),
    ("windows", re.compile(rf"(?:GetEnvironmentVariable\([\"']|PS [A-Z]:[^>\n]*> *(?:echo )?\$env:|> *echo %){_NAME}(?:[\"'][^\n]*\)|%)?\s*$"), re.compile(r"^(?P<value>[^\s$%#]\S*)\s*$")),
    ("launchctl", re.compile(rf"launchctl getenv {_NAME}\s*$"), re.compile(r"^(?P<value>[^\s$%#]\S*)\s*$")),
)

# -- named in a sentence --

_SHORT = "|".join(
    sorted((n.removeprefix("OLLAMA_") for n in settings.REGISTRY if n.startswith("OLLAMA_") and "_" in n[7:]), key=len, reverse=True)
)
_MENTION = re.compile(
    rf"(?<![\w.$/:-])(?P<name>O?LL?AMA_[A-Z]\w+|OLAMA_\w+|HSA_OVERRIDE_GFX_VERSION\w*|[A-Z]{{3,4}}R?_VISIBLE_DEVICES|GGML_VK_VISIBLE_DEVICES|HTTPS?_PROXY|NO_PROXY|{_SHORT})"
    r"(?:[\"'`]?\s?(?:=>|=|:)\s?|[\"'`]?\s(?:env(?:ironment)? (?:var(?:iable)? )?)?(?:(?:is |was )?set to |is |was |to )?(?=[\"'`]?(?:-?\d|true\b|false\b|q\d|f16)))[\"'`]?(?P<value>[^\s\"'`,;)]+)"
)
_PLACES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("shell", re.compile(r"\.(?:bashrc|zshrc|profile|bash_profile|zprofile)\b|\bexport(?:ed|s)?\b|\bshell\b|/etc/environment\b", re.I)),
    ("launchctl", re.compile(r"\blaunchctl\b", re.I)),
    ("plist", re.compile(r"\bplist\b|EnvironmentVariables|\bCellar\b", re.I)),
    ("snap", re.compile(r"\bsnap set\b")),
    ("windows", re.compile(r"\bsetx\b|\bWindows\b|system variables?\b|\$env:", re.I)),
    ("service", re.compile(r"\bunit\b|\bdrop-?ins?\b|override\.conf|systemctl edit|\bollama\.service\b|\bservice file\b|\[Service\]|\bEnvironment=", re.I)),
    ("docker", re.compile(r"\bcompose\b|\bdocker\b|\bcontainers?\b|\bpods?\b|\bimage\b|\bhelm\b|\bkubernetes\b|\bk8s\b", re.I)),
)
# what a sentence recommends, or says to have cured the fault, is no setting of the host that is asked about
_ADVICE = re.compile(
    r"\bto enable\b|\b(?:docs|documentation|README|FAQ) (?:say|says|tells?|reads?)\b|\b(?:try|should|must|needs?|needed|requires?)\b|\bfix(?:ed|es)?\b|\bsolv(?:ed?|es)\b|\bhelp(?:s|ed)\b|\bworks? (?:again |now |only )?(?:with|after|when|if|once)\b|\bis the (?:\w+ )?(?:issue|solution|answer|cure)\b"
    r"|\b(?:adding|added|removing|removed|without|unless|until)\b|\bafter (?:setting|raising|lowering)\b", re.I
)


_CURE = re.compile(r"\b(?:docs?|documentation|README|FAQ|fix(?:ed|es)?|solv(?:ed?|es)|solution|help(?:s|ed)|cured?|try|should|must|have to|works? (?:when|if|with|once|after))\b", re.I)


def calls_another_host(name: str, value: str) -> bool:
    """Whether a variable tells a client which server to ask: the name of a host is nothing to listen on."""
    return name == "OLLAMA_HOST" and re.match(r"(?:https?://)?(?!localhost\b|x+\.x)[a-z][\w-]*\.", value, re.I) is not None


def for_a_client(name: str, command: str) -> bool:
    """Whether the address stands before a command of a client, which asks there."""
    return name == "OLLAMA_HOST" and re.search(r"\bollama (?:pull|run|list|ls|ps|show|create|push|cp|rm|stop)\b", command) is not None


def advised(before: str) -> bool:
    """Whether the words before an assignment say that it is what cures the fault."""
    return before.count(" ") > 3 and _CURE.search(before) is not None


def mentioned(line: str) -> list[tuple[str, str, str]]:
    """(name, value, scope) of the settings that a sentence names with a value; the scope is where it says they are
    set, or `told`. Names without their OLLAMA_ are given it."""
    if _ADVICE.search(line):
        return []
    found = []
    for match in _MENTION.finditer(line):
        name = match["name"] if "_VISIBLE" in match["name"] or "LAMA_" in match["name"] or match["name"].startswith(("HSA", "HTTP", "NO_PROXY")) else f"OLLAMA_{match['name']}"
        value = match["value"].rstrip(".:]}").partition("→")
        if value[0] in ("empty", "unset", "none", ">", "0-"):
            continue
        set_to, place = (value[2] or value[0]).strip("\"'"), scope(line)
        found.append((name, set_to, "client" if place == "shell" and calls_another_host(name, set_to) else place))
    return found


def scope(line: str) -> str:
    """Where a sentence says that something is set."""
    return next((name for name, words in _PLACES if words.search(line)), "told")
