"""Lines of `grep -Hn` that set a variable of Ollama: in a unit's file, an environment file, a shell.

/etc/profile.d/ollama.sh:1:export OLLAMA_NUM_PARALLEL=4
/etc/systemd/system/ollama.service.d/override.conf.bak:2:Environment="OLLAMA_KEEP_ALIVE=1h"
"""

from __future__ import annotations

import re
from collections.abc import Iterator

PATTERN = r"^[^#;]*(OLLAMA_[A-Z_]+|HSA_OVERRIDE_GFX_VERSION|(CUDA|ROCR|HIP|GGML_VK)_VISIBLE_DEVICES)[= ]"  # of grep
_NAME = r"(?P<name>OLLAMA_[A-Z_]+|HSA_OVERRIDE_GFX_VERSION|(?:CUDA|ROCR|HIP|GGML_VK)_VISIBLE_DEVICES)"
_VALUE = r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s\"';]*)"
_ASSIGNED = re.compile(rf"(?<![\w$]){_NAME}={_VALUE}")
_SET = re.compile(rf"^\s*(?:set\s+(?:-\S+\s+)+|setenv\s+){_NAME}\s+{_VALUE}")  # fish, csh


def lines(text: str) -> Iterator[tuple[str, int, str]]:
    """(path, number, line) of each."""
    for line in text.splitlines():
        found = re.match(r"(/[^:]*):(\d{1,9}):(.*)", line)
        if found is not None:
            yield found[1], int(found[2]), found[3]


def assignments(line: str, *, only: str = "") -> list[tuple[str, str]]:
    """What a line sets. `only`: by that key of a unit's or manager's file (a file's name may stand there too, or a
    command)."""
    if re.match(r"\s*[#;]", line) or (only and not re.match(rf"\s*{only}\s*=", line)):
        return []
    found = [*_ASSIGNED.finditer(line)] or [*_SET.finditer(line)]
    return [(one["name"], one["value"].strip("\"'")) for one in found]
