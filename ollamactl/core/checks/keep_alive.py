"""How long a model stays loaded, and clients that have their own mind about it."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator

from ollamactl.core import govalues
from ollamactl.core.checks.base import Finding, check, configured
from ollamactl.core.facts import Facts, Load, LogEvent, Start
from ollamactl.core.inflight import is_work
from ollamactl.core.needs import NO_SIGNS, Given, Signs
from ollamactl.core.parse.slog import seconds_of

ALIKE = 1.5  # durations of which the longest is so many times the shortest
DEFAULT = "5m0s"  # of OLLAMA_KEEP_ALIVE
# lines after which a load follows that no client's keep_alive has brought about
DIED = (
    "runner_killed", "runner_gone", "runner_terminated", "runner_dropped", "runner_trace", "fatal_error", "eviction",
    "expired_to_make_room",
)  # fmt: skip


@check(weight=40)
def client_overrides_keep_alive(
    facts: Facts, signs: Signs = NO_SIGNS, start: Start | None = None, given: tuple[Given, ...] = ()
) -> Iterator[Finding]:
    """A client sends its own keep_alive, which beats the server's.

    Why: keep_alive of a request counts until the next one; many integrations send five minutes, or 0.
    Seen: UNTIL of `ollama ps` beside OLLAMA_KEEP_ALIVE; a model that was unloaded earlier.
    Do: set it in the client.
    """
    config = (start.config if start else None) or {}
    told = next((g.value for g in given if g.name == "OLLAMA_KEEP_ALIVE" and g.scope in ("service", "process")), "")
    keep = config.get("OLLAMA_KEEP_ALIVE", told)
    forever = keep.startswith(("2562047h", "-"))
    lines = signs.lines("until_soon") or signs.quotes([e for e in signs.of("keep_alive_asked") if _short(e)])
    if lines and (forever or signs.has("keep_alive_expected") or _hours(keep) >= 1):
        yield Finding(
            "warning",
            "a client's keep_alive beats the server's: the model goes earlier than set",
            (*lines, configured(start, "OLLAMA_KEEP_ALIVE")),
            'set keep_alive in the client: "keep_alive": -1',
        )
        return
    if signs.has("keep_alive_reset") and not signs.has("asked_for_ever"):
        yield Finding(
            "warning",
            "a request without keep_alive, or with its own, sets the model's time anew",
            signs.lines("keep_alive_reset"),
            'sudo ollamactl apply --keep-alive -1    # and "keep_alive": -1 in the client',
        )
        return
    long = forever or _hours(keep) >= 1
    gaps = _early_reloads(start) if start and long else []
    gaps = gaps or (_unloaded_at_once(start, signs, keep or DEFAULT) if start else [])
    soon = _expires(facts) if forever else []
    if soon and not gaps:
        yield Finding(
            "warning",
            "a client's keep_alive beats the server's, which is for ever: the model goes earlier",
            (*soon, configured(start, "OLLAMA_KEEP_ALIVE")),
            'set keep_alive in the client: "keep_alive": -1',
        )
    if gaps:
        yield Finding(
            "warning",
            f"the model was unloaded though OLLAMA_KEEP_ALIVE is {'for ever' if forever else keep or 'five minutes'}: "
            "a client sends its own",
            (*gaps[-3:], configured(start, "OLLAMA_KEEP_ALIVE")),
            'set keep_alive in the client: "keep_alive": -1',
        )
        return
    slow = _alternating(start) if start else 0
    if slow:
        yield Finding(
            "warning",
            "requests alternate between fast and slow: the model is loaded anew for some of them",
            tuple(r.text for r in (start.requests if start else ()) if is_work(r.path))[:3],
            "compare keep_alive and num_ctx in the clients' requests",
        )


def _short(request: LogEvent) -> bool:
    """Whether a request asks for less than an hour; 0 is what unloads a model, and has its own sign."""
    asked = request.fields.get("keep") or request.fields.get("later") or ""
    seconds = govalues.seconds(asked) if not asked.isdigit() else float(asked[:9])
    return 0 < (seconds or 0) < 3600


def _hours(text: str) -> float:
    found = re.match(r"(\d+)h", text)
    return float(found[1]) if found else 0.0


def _early_reloads(start: Start, least: float = 60.0, most: float = math.inf) -> list[str]:
    """Loads of a model that was loaded before with the same options, so many seconds ago and nothing else between: it
    was unloaded."""
    found = []
    for before, after in zip(start.loads, start.loads[1:], strict=False):
        same = (before.model, before.context, before.slots, before.gpu_layers) == (
            after.model,
            after.context,
            after.slots,
            after.gpu_layers,
        )
        loaded = same and before.outcome == after.outcome == "loaded"
        loaded = loaded and _options(before) == _options(after)
        if loaded and before.at and after.at and least < after.at - before.at < most:
            found.append(after.text)
    return found


def _options(load: Load) -> list[str]:
    """The runner's command but for its port."""
    return [b for a, b in itertools.pairwise(("", *load.argv)) if a != "--port"]


def _unloaded_at_once(start: Start, signs: Signs, keep: str) -> list[str]:
    """The same before the time that the server keeps a model is over, where it happened more often than somebody
    stops a model, and no runner died."""
    most = govalues.seconds(keep) or 0.0
    found = [] if signs.has(*DIED) else _early_reloads(start, least=0.0, most=most)
    return found if len(found) >= (2 if most == math.inf else 3) else []


def _expires(facts: Facts) -> list[str]:
    """Loaded models that go within a day."""
    if facts.taken is None:
        return []
    found = []
    for model in facts.loaded or ():
        at = seconds_of(model.expires)
        if at is not None and facts.taken < at < facts.taken + 86400:
            found.append(f"/api/ps: {model.name} expires at {model.expires}")
    return found


def _alternating(start: Start) -> int:
    """How often durations of one path jump by more than six times and back, where no load was printed: slow ones that
    are alike, as loads of one model are; answers of different lengths are not."""
    if start.loads:
        return 0
    rows = [r.seconds for r in start.recent if r.path in ("/api/chat", "/api/generate") and r.status == 200]
    if len(rows) < 4:
        return 0
    low = sorted(rows)[len(rows) // 4]
    slow = [r > 6 * low and r > 20 for r in rows]
    longest = [r for r, is_slow in zip(rows, slow, strict=True) if is_slow]
    if len(longest) < 2 or all(slow) or max(longest) > ALIKE * min(longest):
        return 0
    return sum(a != b for a, b in itertools.pairwise(slow))
