"""Numbers of a load, of requests and of systemd that a sentence names -> the lines that would have said them.

    -c 786432 -np 3; --ctx-size 20000 --parallel 4 (5000 each); Parallel:4 KvSize:131072; n_slots=1
    offloaded 71/89; layers 65/65; layers.offload=49 of 63
    GIN: 503 in 42 to 46 ms on /api/generate; GIN 500 | 32m31s; 499 after 5.24 s
    Main process exited, code=exited, status=203/EXEC; Failed with result oom-kill; status=1/FAILURE
    bind: Only one usage of each socket address …

Only what the log's own words for these are is read; what a sentence means is left to `claims`.
"""

# ruff: noqa: E501 - a pattern is read more easily whole
from __future__ import annotations

import re

_CONTEXT = re.compile(r"(?:(?<![\w-])(?:-c|--ctx-size)|\bkvsize)[ =:]+(?P<n>\d{3,7}(?:, ?\d{4,7})*)\b", re.I)
_SLOTS = re.compile(r"(?:(?<![\w-])(?:-np|--parallel)|\b(?<!OLLAMA_NUM_)parallel|\bn_slots)(?: ?[=:] ?| )(?P<n>\d{1,3})\b|(?<=with )(?P<n2>\d{1,3})(?= slots\b)", re.I)
_SHARED = re.compile(r"NUM_PARALLEL[ =:]+(?P<slots>[1-9]\d{0,2})\b.*\b(?:kvsize|kv_size|-c|--ctx-size)[ =:]+(?P<total>\d{4,7})\b", re.I)
_TOTAL = re.compile(r"\bkv_size[ =:]+(?P<n>\d+)")
_LAYERS = re.compile(
    r"(?:offload(?:ed|ing)?\D{0,12}|layers(?:\.offload)?[ =:]+|\bGPU layers\D{0,6})(?P<on>\d{1,3}) ?(?:/|of|out of) ?(?P<of>\d{1,3})\b|(?<![\d/])(?P<on2>\d{1,3}) ?(?:/|of) ?(?P<of2>\d{1,3}) (?:\w+ )?layers", re.I
)  # fmt: skip
_STATUS = re.compile(r"(?<![\d.:/])(?P<status>200|403|404|499|500|502|503|504)(?![\d.]|s\b| ?[KMGT]i?B)")
_TOOK = re.compile(r"(?<![\w.:])(?P<n>\d+(?:\.\d+)?) ?(?P<unit>ms|µs|μs|us|ns|s|sec|seconds)\b|(?<![\w.:])(?P<go>(?:\d+h)?\d+m(?:\d+(?:\.\d+)?s)?)(?![\w])|(?<![\w.:])(?P<lone>\d+(?:\.\d+)?)(?= (?:to|and|–|-) ?\d)", re.I)
_PATH = re.compile(r"/(?:api|v1)/(?:chat(?:/completions)?|generate|embed(?:dings)?|completions|embeddings|messages|responses)\b")
_UNIT = re.compile(
    r"(?P<exit>(?:(?-i:[Mm])ain|(?-i:[Cc])ontrol) process exited, .+)|(?P<failed>Failed with result '?(?P<result>[a-z-]+)'?)|(?P<sched>Scheduled restart job.*)"
    r"|(?P<exec>Failed at step EXEC .+)|(?P<old>holdoff time over, scheduling restart)|(?P<limit>Start request repeated too quickly)"
)
_EXIT = re.compile(r"(?:code=exited,? )?status=(?P<code>[1-9]\d*)/(?P<name>[A-Z_]+|n/a)")
_STATUS_FIELD = re.compile(r"\s*(?:Process|Main PID|Active|Loaded|Drop-In): ")  # of `systemctl status`, which has a reader
_RESULT = re.compile(r"\b(?:systemd )?result[ :='\"]+(?P<result>oom-kill|exit-code|core-dump|signal|timeout|start-limit-hit)\b", re.I)
_BIND = re.compile(r"bind: (?:address already in use|Only one usage of each socket address|[^()（\n]{3,120}[(（][^()\n]{8,90}[)）])")
_NO_COLON = re.compile(r"\b(?P<call>mkdir|open|stat) (?P<path>/[^\s:,;]+),? (?P<why>permission denied|no such file or directory|read-only file system)", re.I)
_CACHED = re.compile(r"\b(\d{1,6}) prompts?, (\d{1,6}(?:\.\d+)?) ?MiB")
_BEFORE = re.compile(r"\((?:before|previously|earlier|was|formerly|instead of)\b[^()]*\)", re.I)  # what counts no more
_UNNAMED = 'level=INFO source=server.go:1 msg="starting llama server" cmd="ollama runner --model (unnamed){}"'


def lines(text: str) -> list[str]:
    """The lines that the server, the engine or systemd would have printed for what the sentence names."""
    found = [*_load(text), *requests(text), *_unit(text)]
    if "listen tcp" not in text and (bound := _BIND.search(text)):
        found.append(f"Error: listen tcp 127.0.0.1:11434: {bound[0]}")
    if ": permission" not in text and (told := _NO_COLON.search(text)):
        found.append(f"Error: {told['call']} {told['path']}: {told['why'].lower()}")
    return found


def _load(text: str) -> list[str]:
    text = _BEFORE.sub("", text)
    if (shared := _SHARED.search(text)) and int(shared["total"]) % int(shared["slots"]) == 0:
        return [load(int(shared["total"]), int(shared["slots"]))]
    contexts = [(m.start(), n) for m in _CONTEXT.finditer(text) for n in re.findall(r"\d+", m["n"])]
    slots = [(m.start(), m["n"] or m["n2"]) for m in _SLOTS.finditer(text) if m["n"] or _CONTEXT.search(text)]
    made = []
    if not contexts and (total := _TOTAL.search(text)) and not slots:
        made.append(f"llama_kv_cache_init: kv_size = {total['n']}, offload = 1")
    alone = list(slots)
    for at, tokens in contexts:
        near = min(alone, key=lambda slot: abs(slot[0] - at), default=None)
        if near:
            alone.remove(near)
        made.append(_UNNAMED.format(f" --ctx-size {tokens}" + (f" --parallel {near[1]}" if near else "")))
    made += [_UNNAMED.format(f" --parallel {n}") for _, n in alone]
    for match in _LAYERS.finditer(text):
        on, of = int(match["on"] or match["on2"]), int(match["of"] or match["of2"])
        if on <= of and of > 8:
            made.append(f"load_tensors: offloaded {on}/{of} layers to GPU")
    return made


def load(context: int, slots: int) -> str:
    """The start of a runner with a cache of that many tokens for all its slots together."""
    return _UNNAMED.format(f" --ctx-size {context} --parallel {slots}")


def loads(text: str) -> list[str]:
    """The starts of runners that the sentence names one after another (`-c 4096, -c 8192, -c 4096`)."""
    return [line for line in _load(text) if "starting llama server" in line]


def prompt_cache(text: str) -> list[str]:
    """The engine's line on its prompt cache, with the last of the sizes that the sentence names."""
    sizes = list(_CACHED.finditer(text)) if ("cache" in text or "(limits" in text) and not text.startswith("srv        update") else []
    return [f"srv        update:  - cache state: {m[1]} prompts, {m[2]} MiB (limits: 8192.000 MiB)" for m in sizes[-1:]]


def requests(text: str) -> list[str]:
    """Lines of the access log, one for each duration that the sentence names."""
    path = _PATH.search(text)
    if "GIN" not in text and path is None:
        return []
    status = _STATUS.search(text)
    if status is None:
        return []
    rest = re.sub(r"\b[2-5]\d\ds (?:of|in|after)\b", "", text[: status.start()] + text[status.end() :])
    took = _durations(rest)
    where = path[0] if path else "/api/chat"
    return [f'[GIN] | {status["status"]} | {one} |  | POST "{where}"' for one in took[:12]]


def _durations(text: str) -> list[str]:
    """Durations as gin writes them; in "42 to 46 ms" both have the unit."""
    found: list[str] = []
    waiting: list[str] = []
    for match in _TOOK.finditer(text):
        if match["lone"]:
            waiting.append(match["lone"])
            continue
        unit = {"sec": "s", "seconds": "s"}.get((match["unit"] or "").lower(), match["unit"] or "")
        found += [n + unit for n in waiting] if unit else []
        waiting = []
        found.append(match["go"] or match["n"] + unit)
    return found


def _unit(text: str) -> list[str]:
    said = []
    if _STATUS_FIELD.match(text):
        return []
    if found := _UNIT.search(text):
        said.append(f"Failed with result '{found['result']}'." if found["failed"] else found[0])
    elif found := _EXIT.search(text):
        said.append(f"Main process exited, code=exited, status={found['code']}/{found['name']}")
    elif found := _RESULT.search(text):
        said.append(f"Failed with result '{found['result'].lower()}'.")
    return [f"Jan 01 00:00:00 localhost systemd[1]: ollama.service: {one}" for one in said]
