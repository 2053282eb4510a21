"""Loads that take too long or end without a result."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check, times
from ollamactl.core.facts import Start
from ollamactl.core.needs import Signs

NO_TIMEOUT = "waiting for server to start|context canceled"  # a client's own start, and a client that went away


@check(weight=56, explains=("runner_crash_on_load", "vram_recovery_timeout", "client_timeout_500_clusters"))
def load_timeout(signs: Signs, start: Start | None = None) -> Iterator[Finding]:
    """A load took longer than OLLAMA_LOAD_TIMEOUT.

    Why: it is given up when nothing moved for five minutes: slow disk, swap, or a driver that compiles kernels.
    Seen: "timed out waiting for … to start".
    Do: a faster disk, or a longer OLLAMA_LOAD_TIMEOUT.
    """
    events = [e for e in signs.of("load_timeout") if not re.search(NO_TIMEOUT, e.text)]
    later = [
        x
        for x in (start.loads if start else ())
        if x.outcome == "loaded" and events and (x.line or 0) > (events[-1].line or 0)
    ]
    if events and not later:
        limit = (start.config or {}).get("OLLAMA_LOAD_TIMEOUT", "5m0s") if start else "5m0s"
        yield Finding(
            "error",
            f"a load was given up after {limit} (OLLAMA_LOAD_TIMEOUT)",
            signs.quotes(events),
            "sudo ollamactl apply --set OLLAMA_LOAD_TIMEOUT=15m",
        )


@check(weight=72, explains=("load_oom", "runner_crash_on_load", "runner_killed", "no_gpu_found"))
def rebar_disabled(signs: Signs) -> Iterator[Finding]:
    """Resizable BAR is off for an Intel Arc GPU.

    Why: Arc cards need it; without it prompts fail or hang with no other message.
    Seen: an Arc GPU, and the words on BAR in the kernel's or the tool's lines.
    Do: turn on "Resizable BAR" and "Above 4G decoding" in the firmware.
    """
    if signs.has("small_bar"):
        yield Finding(
            "error",
            "resizable BAR is not active for the GPU",
            signs.lines("small_bar"),
            "lspci -vv | grep -A2 'Resizable BAR'    # then: firmware set-up",
        )


@check(weight=22)
def slow_after_upgrade(signs: Signs, release: tuple[int, ...] = ()) -> Iterator[Finding]:
    """Answers are slower since an upgrade.

    Why: 0.30 changed the engine; on older GPUs its defaults for splitting and flash attention are slower.
    Seen: the engine's tokens per second, on GPUs older than compute 7.
    Do: OLLAMA_FLASH_ATTENTION=0 as a trial; compare releases with ollamactl probe.
    """
    if signs.has("slower_now"):
        yield Finding(
            "info",
            "answers are slower since the upgrade",
            signs.lines("slower_now"),
            "ollamactl probe MODEL -n 1; sudo ollamactl apply --flash-attention 0",
        )


@check(weight=14)
def loads_given_up(start: Start) -> Iterator[Finding]:
    """Loads that began and did not end in this log.

    Why: a load that is replaced or cut by a stop leaves no result line.
    Seen: the runner's start without an end.
    Do: nothing by itself.
    """
    aborted = [x for x in start.loads if x.outcome == "aborted" and x.at is not None]  # lines without a time: cut out
    if len(aborted) >= 3:
        yield Finding(
            "info",
            f"{times(len(aborted), 'load')} began and did not end",
            tuple(x.text for x in aborted[-2:]),
            "journalctl -u ollama --no-pager | grep -E 'starting|Load failed'",
        )
