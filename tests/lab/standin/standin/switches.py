"""Faults and other releases for tests, by variables of our own. Real Ollama knows none of these.

STANDIN_RELEASE=0.12.6     version text; from 0.11.5 to 0.24 `starting runner` and `load request` lines, and that
                           runner's command line without context and slots
STANDIN_NO_CONFIG_LINE=1   no `server config` line
STANDIN_HANG=start         lives, but never listens;  =answer  listens, but never replies
STANDIN_DIE_AFTER=S        exits with status 2, S seconds after it began to listen
STANDIN_LOAD_DELAY=S       every load takes S seconds longer (float)
STANDIN_LOAD_GATE=PATH     every load waits until PATH is there
"""

from __future__ import annotations

import os

VERSION = "0.33.0-rc2"


def release() -> str:
    return os.environ.get("STANDIN_RELEASE") or VERSION


def has_old_runner() -> bool:
    return (0, 11, 5) <= _numbers() < (0, 30, 0)


def no_config_line() -> bool:
    return bool(os.environ.get("STANDIN_NO_CONFIG_LINE"))


def hang() -> str:
    return os.environ.get("STANDIN_HANG", "")


def die_after() -> float:
    return float(os.environ.get("STANDIN_DIE_AFTER", "0"))


def _numbers() -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in release().split("-")[0].split("."))
    except ValueError:
        return (99,)


# Keys of the `server config` map by the release that began to print them
_SINCE = {
    (0, 12, 3): ("OLLAMA_REMOTES",),
    (0, 17, 7): ("OLLAMA_EDITOR", "OLLAMA_NO_CLOUD"),
    (0, 19, 0): ("OLLAMA_DEBUG_LOG_REQUESTS",),
    (0, 24, 0): ("OLLAMA_MAX_TRANSFER_STREAMS",),
    (0, 30, 11): ("LLAMA_ARG_FIT", "LLAMA_ARG_FIT_TARGET", "OLLAMA_GO_TEMPLATE", "OLLAMA_IGPU_ENABLE"),
}


def config_map(values: dict[str, str]) -> dict[str, str]:
    """The keys that this release prints."""
    numbers = _numbers()
    out = dict(values)
    for since, keys in _SINCE.items():
        if numbers < since:
            for key in keys:
                del out[key]
    if numbers < (0, 30, 11):
        out |= {"OLLAMA_MULTIUSER_CACHE": "false", "OLLAMA_NEW_ENGINE": "false"}
    return out
