"""What a single name or value is, for `redact`: whether it identifies somebody, opens a door, or is nobody's."""

from __future__ import annotations

import functools
import re
from typing import Any

from ollamactl.core import redact_patterns as patterns


def safe(kind: str, name: str) -> bool:
    """Whether a name may be replaced wherever it stands as a word."""
    if kind == "secret":
        return (
            len(name) >= 6 and name.lower() not in patterns.VOCABULARY and not re.fullmatch(r"[\d.]+|true|false", name)
        )
    return len(name) >= 3 and name.lower() not in patterns.VOCABULARY


@functools.lru_cache(4096)  # a journal has the same few keys in each of its lines
def sensitive(name: str) -> bool:
    """Whether a variable or key of that name holds a secret."""
    bare = name.strip("\"' ")
    found = re.fullmatch(patterns.SENSITIVE_NAME, bare) or re.fullmatch(f"(?i:{patterns.SENSITIVE_LOWER})", bare)
    return found is not None


def harmless(head: str, value: str) -> bool:
    """Names of the pattern that hold no secret, and values that can't be one."""
    name = re.sub(r".*[\0\n]|[\"'=:\s]|^export", "", head).strip()
    return (
        bool(patterns.HARMLESS.fullmatch(name))
        or value.lower() in ("true", "false", "null", "none")
        or value in ("0", "1")
    )


def person(uid: object) -> bool:
    return isinstance(uid, int) and uid >= 1000 and uid != 65534


def after_options(words: list[Any]) -> set[int]:
    """Places in a command line that follow an option such as --api-key."""
    return {
        at
        for at in range(1, len(words))
        if isinstance(words[at], str)
        and isinstance(words[at - 1], str)
        and words[at - 1].startswith("-")
        and sensitive(words[at - 1].lstrip("-"))
    }
