"""Log lines as people shorten them -> the form that the log parser reads.

    WARN runner.go:130 truncating input prompt limit=2048 prompt=91541          level and source without their keys
    "model architecture does not currently support parallel requests" architecture=qwen35moe        quoted in a sentence
    the error is `time=2025-01-28T17:02:55.661+03:00 level=WARN source=gpu.go:623 msg="…"`          inside a sentence
    GIN 500 | 59.794 s on /api/chat                                                                 without its time
    server config: OLLAMA_NUM_PARALLEL=1 OLLAMA_HOST=http://0.0.0.0:11434                           without the map

Only what the server's own messages begin with is taken for one, and only in lines that are not of a log.
"""

# ruff: noqa: E501 - a pattern is read more easily whole
from __future__ import annotations

import re

from ollamactl.core import settings
from ollamactl.core.parse import events, messages, slog

# what a line must hold to be looked at closer
_WORTH = re.compile(
    r"time=\d|level=[A-Z]|msg=|\] \S|Listening |OLLAMA_\w+[:=]|server config|map\[|\bGIN\b|\| +\"?/|\" ?/|-c \d|-np \d|--(?:ctx-size|parallel|model)\b"
    r"|inference compute|default_num_ctx|NVRM: |Out of memory: |oom-kill:|Memory cgroup|amdgpu |traps: |Suppressed \d|\.service: (?:[A-Z]|start)|\.(?:conf|service):\d+: |^\W*(?:Start|Stop)(?:ed|ing|ped|ping) |\| [A-Z]+ +\""
)
_FRAME = re.compile(r"^[\s>*|`\"'“”‘’–—\-]+(?=[\w\[#/])|[\s`\"'“”’|>]+$")
_ACCESS = re.compile(r"\[GIN\] \d{4}/\d\d/\d\d - [\d:]{8} \| *\d{3} \|.*")
_INNER = re.compile(r"time=\d{4}-\d\d-\d\dT\S+ level=[A-Z]+ .*")
_RECORD = re.compile(r"(?:level=[A-Z]+ source=\S+ msg=|msg=[\"\w]).*")
_HEAD = re.compile(
    r"(?:(?:level=)?(?P<level>DEBUG|INFO|WARN|WARNING|ERROR)\b:?\s+)?(?:\[?(?:source=)?(?P<source>[\w/]+\.go:\d+)\]?:?\s+)?"
    r"(?:(?P<after>DEBUG|INFO|WARN|ERROR) )?"  # as releases before 0.7 print them without OLLAMA_DEBUG
)
_FIELD = re.compile(r"(?:^|(?<=[\s,;(]))([A-Za-z_][\w.]*|\"loaded layers\"|\"total vram\")=")
_LISTENING = re.compile(r"Listening (?:on )?(?:(?:\[[0-9a-fA-F:]*\]|[\w.]+):\d+|…|\.\.\.) \(version [\w.+-]+\)")
_SETTING = re.compile(r"(?<![\w$])([A-Z][A-Z0-9_]{3,}|https?_proxy|no_proxy)[=:](?=\S| |$)")
_UNSET = re.compile(r"\b([A-Z][A-Z0-9]*_[A-Z0-9_]+) (?:is |was |stays )?(?:empty|unset|not set|missing)\b")
_GIN = re.compile(
    r"\[?\bGIN\b\]?[^\n]{0,40}?(?<!\d)(?P<status>[1-5]\d\d)(?!\d)\W{0,4}(?:in\s+)?(?:\|\s*)?"
    r"(?P<took>\d+(?:\.\d+)?(?:h\d+m\d*s?|m\d+(?:\.\d+)?s|\s?(?:ns|µs|μs|us|ms|s|m)\b))"
    r"[^\n]*?(?P<path>/(?:api|v1)/[\w/]+)"
)
_TAIL = re.compile(
    r"^\W*(?P<status>[1-5]\d\d) +\| +(?P<took>[0-9][0-9a-zµμ.]*) +\| +(?P<who>\S+) +\| +(?P<how>[A-Z]+) +\"(?P<path>/\S*)\""
)
_ESTIMATE = re.compile(r"\blayers\.(?:model|offload|requested)=-?\d")
_COMMAND = re.compile(
    r"(?:^|[\s\"'`])(?P<cmd>(?:\S*/)?(?:ollama_llama_server|llama-server|ollama)(?:\.exe)?(?: runner)? [^\n]*?--?(?:model|m|ctx-size|c) ?[^\n]*)"
)
_STARTING = re.compile(
    r"starting (?:llama server|runner|llama-server)\b[^\w-]*(?:cmd=)?[^\w/-]*(?P<cmd>[^\n]*--?(?:ctx-size|parallel|c|np)\b[^\n]*)"
)
_SLOTTED = re.compile(r"--?(?:ctx-size|c|parallel|np)[ =]\d")
_MESSAGES: tuple[tuple[str, str], ...] = tuple(
    (row.needle, row.how) for row in messages.EVENTS if row.how in ("msg", "prefix") and len(row.needle) > 16
)
_DMESG = re.compile(r"\[ *(?:\d+\.\d{3,}|\w{3} \w{3} +\d+ [\d:]{8} \d{4})\] (?P<said>(?:Out of memory|oom-kill|Memory cgroup|\S+ invoked oom|NVRM|nvidia|amdgpu|PM:|kfd|BUG|traps)[^\n]*)")
_KERNEL = re.compile(r"(?:(?:\d{4}-\d\d-\d\dT\S+|\w{3} +\d+ [\d:]{8}) (?=kernel: ))?(?:(?:dmesg|kernel|journalctl -k)\b:? )?(?P<said>(?:NVRM: |Out of memory: |oom-kill:|Memory cgroup out of memory|amdgpu \S+: |traps: )\S.*)")
_SUPPRESSED = re.compile(r"Suppressed \d+ messages from \S+")
# a line of systemd without its journal's prefix, as `journalctl -o cat` and some people leave it
_SYSTEMD = re.compile(
    r"/\S+\.(?:service|conf):\d+: .+|[\w@-]*ollama[\w@-]*\.service: (?:[A-Z]|start(?:-\w+)? operation timed).+"
    r"|(?:Started|Stopped|Stopping|Starting) (?:[\w@-]*ollama\S*|Ollama Service)\b.{0,60}"
)
_DEVICE = re.compile(r"(?:inference compute|vram-based default context)\W+\w+=|default_num_ctx=\d")
_TIER = re.compile(r"\bdefault_num_ctx[=:] ?(\d{4,6})\b")
_OWN = ("inference compute", "vram-based default context", "system memory", "gpu memory", "entering low vram mode")
_ANY = re.compile("|".join(re.escape(needle) for needle in (*(n for n, _ in _MESSAGES), *_OWN)))
_END = re.compile(r"[,;:(]|…|\.\.\.| \d")
_QUOTABLE = re.compile(rf"{_ANY.pattern}|layers\.(?:model|offload|requested)=|\.go:\d+|msg=")


def canonical(line: str) -> str | None:
    """The line as the server would have written it, or None where it holds none of the server's."""
    if len(line) < 10 or _WORTH.search(line) is None:
        return None
    if "time=" in line and (found := _INNER.search(line)) is not None:
        if re.search(r"device context \d+$", line[: found.start()]):
            return None  # the CUDA library's own words, without an end of line: they say more
        return _closed(found[0])
    if "[GIN]" in line and (found := _ACCESS.search(line)) is not None:
        return _closed(found[0])
    if "[" in line and (found := _DMESG.search(line)) is not None:
        return f"Jan 01 00:00:00 localhost kernel: {found['said']}"
    text = _FRAME.sub("", line)
    if found := _KERNEL.match(text):
        return f"Jan 01 00:00:00 localhost kernel: {found['said']}"
    if _SUPPRESSED.fullmatch(text):
        return f"Jan 01 00:00:00 localhost systemd-journald[1]: {text}"
    if _SYSTEMD.fullmatch(text):
        return f"Jan 01 00:00:00 localhost systemd[1]: {text}"
    if (found := _RECORD.match(text)) is not None and "=" in text:
        return text if text.startswith("level=") else "level=INFO " + text
    if "Listening " in text and (found := _LISTENING.search(text)):
        said = re.sub(r"Listening (?:on )?", "Listening on ", found[0])
        return f'level=INFO source=routes.go:1 msg="{said}"'
    if "vram-based" not in text and (found := _TIER.search(text)):
        return f'level=INFO source=routes.go:1 msg="vram-based default context" default_num_ctx={found[1]}'
    return _config(text) or _request(text) or _runner(text) or (_message(text) if _DEVICE.search(text) else None)


def quoted(line: str) -> list[tuple[str, dict[str, str]]]:
    """Events of the server's own messages that a line of prose quotes, with their fields. They are about the server
    that is asked after, wherever they stand."""
    text = _FRAME.sub("", line)
    if _QUOTABLE.search(line) is None:
        return [(kind, {}) for kind in _cut(text)]
    record = _message(text)
    parsed = slog.parse(record) if record else None
    if record is None or parsed is None:
        return []
    return [(row.kind, fields) for row, fields in events.find(record, parsed) if not row.kind.startswith("other_")]


def _cut(text: str) -> list[str]:
    """The kind of a message of the server's own of which the line begins with a part, four words at least."""
    part = _END.split(text, maxsplit=1)[0].strip(" .\"'`")
    if len(part) < 20 or part.count(" ") < 3:
        return []
    kinds = {row.kind for row in messages.EVENTS if part in row.needle}
    return list(kinds) if len(kinds) == 1 else []


def _closed(text: str) -> str:
    """Without what closes the quotation around it."""
    text = text.rstrip()
    return text.rstrip("`'”’)*_").rstrip() if text[-1:] in "`'”’)*_" else text


def _config(text: str) -> str | None:
    if "OLLAMA_" not in text and "server config" not in text.lower():
        return None
    names = list(_SETTING.finditer(text))
    known = [m for m in names if _known(m[1])]
    map_at = text.find("map[")
    if map_at >= 0 and len(known) >= 2:
        body = text[map_at + 4 :].rstrip("\"`'” ").removesuffix("]")
        return f'level=INFO source=routes.go:1 msg="server config" env="map[{body}]"'
    titled = re.search(r"(?i)server config\b", text) is not None
    if len([m for m in known if m[0].endswith(":")]) >= 3 and (titled or text.rstrip("\"`' ").endswith("]")):
        body = text[known[0].start() :].rstrip("\"`'” ").removesuffix("]")
        return f'level=INFO source=routes.go:1 msg="server config" env="map[{body}]"'
    if not titled or not known:
        return None
    pairs = [f"{m[1]}:" for m in _UNSET.finditer(text)]
    for at, match in enumerate(names):
        end = names[at + 1].start() if at + 1 < len(names) else len(text)
        value = text[match.end() : end].strip().split(" ")[0].strip("\"'`,;.")
        value = "" if value in ("empty", "unset", "(empty)", "not") else value
        pairs.append(f"{_known(match[1]) or match[1]}:{value}")
    return f'level=INFO source=routes.go:1 msg="server config" env="map[{" ".join(sorted(pairs))}]"'


def _known(name: str) -> str:
    """The full name of a setting, which people write without its OLLAMA_."""
    if name in settings.REGISTRY or name.startswith("OLLAMA_"):
        return name
    return f"OLLAMA_{name}" if f"OLLAMA_{name}" in settings.REGISTRY else ""


def _request(text: str) -> str | None:
    if "/" not in text or not ("GIN" in text or "|" in text):
        return None
    if found := _TAIL.match(text):
        return f'[GIN] | {found["status"]} | {found["took"]} | {found["who"]} | {found["how"]} "{found["path"]}"'
    if found := _GIN.search(text):
        took = re.sub(r"\s", "", found["took"])
        return f'[GIN] | {found["status"]} | {took} |  | POST "{found["path"]}"'
    return None


def _runner(text: str) -> str | None:
    if _SLOTTED.search(text) is None:
        return None
    if found := _STARTING.search(text):
        command = found["cmd"].strip().rstrip("`\"'”)")
        if not re.search(r"--model\b|(?:^|\s)-m\b", command):
            command = f"ollama runner --model (unnamed) {command[command.index('-') :]}"
        return f'level=INFO source=server.go:1 msg="starting llama server" cmd="{_escaped(command)}"'
    found = _COMMAND.search(text)
    if found and _SLOTTED.search(found["cmd"]) and re.search(r"--model\b|(?:^|\s)-m\b", found["cmd"]):
        command = re.split(r"[`|;]|\s{2,}", found["cmd"])[0].strip().rstrip("\"'”)")
        return f'level=INFO source=server.go:1 msg="starting llama server" cmd="{_escaped(command)}"'
    return None


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', "")


def _message(text: str) -> str | None:
    head = _HEAD.match(text)
    rest = text[head.end() :] if head else text
    rest = re.sub(r" {2,}", " ", rest)
    level = (head["level"] or head["after"] if head else "") or ""
    source = (head["source"] if head else "") or ""
    if rest.startswith("msg="):
        return f"level={level or 'WARN'} source={source or 'sched.go:1'} {rest}"
    if _ESTIMATE.search(rest):
        at = _FIELD.search(rest)
        return _record(level, source, "offload", rest[at.start() :] if at else rest)
    if "default_num_ctx=" in rest and "vram-based" not in rest:
        rest = "vram-based default context " + rest[_first_field(rest) :]
    if found := _ANY.search(rest):
        end = found.end()
        row = next((how for needle, how in _MESSAGES if needle == found[0]), "msg")
        fields = _FIELD.search(rest, end)
        message = found[0]
        if row == "prefix":
            message = rest[found.start() : fields.start() if fields else len(rest)].strip().rstrip("\"'`,.;:) ")
        if found[0] in _OWN and fields is None:
            return None
        return _record(level, source, message, rest[fields.start() :] if fields else "")
    if level and source:
        fields = _FIELD.search(rest)
        message = rest[: fields.start() if fields else len(rest)].strip().strip('"')
        if message and ":" not in message[:12]:
            return _record(level, source, message, rest[fields.start() :] if fields else "")
    return None


def _first_field(text: str) -> int:
    found = _FIELD.search(text)
    return found.start() if found else len(text)


def _record(level: str, source: str, message: str, fields: str) -> str:
    level = {"WARNING": "WARN", "": "WARN"}.get(level, level)
    return f'level={level} source={source or "sched.go:1"} msg="{_escaped(message)}" {_fields(fields)}'.rstrip()


def _fields(text: str) -> str:
    """`key=value` pairs with values quoted that need it."""
    found = list(_FIELD.finditer(text))
    pairs = []
    for at, match in enumerate(found):
        value = text[match.end() : found[at + 1].start() if at + 1 < len(found) else len(text)].strip()
        value = value.rstrip(",;`”")
        if value.startswith('"') and value.count('"') >= 2:
            value = value[1 : value.index('"', 1)]
        pairs.append(f'{match[1]}="{_escaped(value)}"')
    return " ".join(pairs)
