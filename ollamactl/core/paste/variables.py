"""Variables that a pasted line sets: in a shell, a container, a property list, Windows, …"""

# ruff: noqa: E501 - a pattern is read more easily whole
from __future__ import annotations

import re

_NAME = r"(?P<name>O?LL?AMA_\w+|OLAMA_\w+|LLAMA_ARG_\w+|CUDA_VISIBLE_DEVICES|RO?CR_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|" \
        r"GGML_VK_VISIBLE_DEVICES|HSA_OVERRIDE_GFX_VERSION\w*|LD_PRELOAD|HTTPS?_PROXY|NO_PROXY|https?_proxy|no_proxy)"  # fmt: skip
_VALUE = r"(?P<value>\"[^\"\n]*\"|'[^'\n]*'|(?:[^\s\"'`,;\\]|,(?=[^\s\"'`,;\\]))*)"  # a comma within a list, not after it
SETS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("launchctl", re.compile(rf"launchctl setenv {_NAME} {_VALUE}")),
    ("snap", re.compile(r"snap set ollama (?P<name>[a-z][a-z-]*)=(?P<value>\S+)")),
    ("windows", re.compile(rf"(?:\bsetx {_NAME.replace('?P<name>', '')} )", re.I)),
    ("windows", re.compile(rf"\bsetx(?:\.exe)?\s+{_NAME}\s+{_VALUE}", re.I)),
    ("windows", re.compile(rf"\$env:{_NAME}\s*=\s*{_VALUE}", re.I)),
    ("windows", re.compile(rf"^\s*set {_NAME}={_VALUE}", re.I)),
    ("service", re.compile(rf"\s*Environment=[\"']?{_NAME}={_VALUE}")),
    ("docker", re.compile(rf"(?:-e|--env)[ =][\"']?{_NAME}={_VALUE}")),
    ("client", re.compile(rf"\bos\.environ\[[\"']{_NAME}[\"']\]\s*=\s*{_VALUE}")),
    ("client", re.compile(rf"\bprocess\.env\.{_NAME}\s*=\s*{_VALUE}")),
    ("shell", re.compile(rf"\bexport\s+{_NAME}={_VALUE}")),
    ("shell", re.compile(rf"^\s*(?:[$#]\s*)?(?:\w+=\S+\s+)*{_NAME}={_VALUE}\s+(?:\w+=\S+\s+)*(?:nohup\s+)?(?:\S*/)?ollama\b")),
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
    ("launchctl", re.compile(rf"launchctl getenv {_NAME}\s*$"), re.compile(r"^(?P<value>[^\s$%#]\S*)\s*$")),
)
