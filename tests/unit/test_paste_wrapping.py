"""The same lines, quoted, shipped and copied in every way: doctor says what it says of the lines themselves."""

# ruff: noqa: E501 - a line of a log is read more easily whole
from __future__ import annotations

import html
import itertools
import json
import re
import time
from collections.abc import Callable

import pytest
from wording_rows import report

from ollamactl.core.paste import wrapping
from ollamactl.core.pasted import facts_of

T = "time=2026-03-04T10:11:12.123+01:00 "
STAMP = "2026-03-04T09:11:12.1234567Z"
LINES: dict[str, str] = {
    "prompt_truncated": T + 'level=WARN source=runner.go:152 msg="truncating input prompt" limit=4096 prompt=18231 keep=4 new=4096',
    "parallel_forced_to_1_by_architecture": T + 'level=WARN source=sched.go:433 msg="model architecture does not currently support parallel requests" architecture=qwen3vl',
    "ram_too_small": T + 'level=WARN source=server.go:170 msg="model request too large for system" requested="41.2 GiB" available="14.9 GiB" total="15.5 GiB" free="14.9 GiB" swap="0 B"',
    "parallel_is_one": T + 'level=INFO source=routes.go:1608 msg="server config" env="map[HTTP_PROXY: OLLAMA_CONTEXT_LENGTH:0 OLLAMA_HOST:http://127.0.0.1:11434 OLLAMA_KEEP_ALIVE:5m0s OLLAMA_NUM_PARALLEL:1 OLLAMA_ORIGINS:[http://localhost]]"',
    "no_gpu_found": T + 'level=INFO source=types.go:60 msg="inference compute" id=cpu library=cpu compute="" name=cpu description=cpu total="31.2 GiB" available="28.0 GiB"',
    "queue_full_503": '[GIN] 2026/03/04 - 10:11:12 | 503 |     41.2µs |      10.1.2.3 | POST     "/api/chat"',
    "context_multiplied_by_parallel": T + 'level=INFO source=server.go:405 msg="starting runner" cmd="/usr/bin/ollama runner --model /m/blobs/sha256-aabb --ctx-size 32768 --n-gpu-layers 20 --parallel 4 --port 41233"',
    "port_in_use": "Error: listen tcp 127.0.0.1:11434: bind: address already in use",
    "load_oom": "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9216.00 MiB on device 0: cudaMalloc failed: out of memory",
    "vram_recovery_timeout": T + 'level=WARN source=sched.go:649 msg="gpu VRAM usage didn\'t recover within timeout" seconds=5.12 runner.size="12.1 GiB" runner.parallel=2',
    "execstart_203_exec": "Mar 04 10:11:12 box systemd[1]: ollama.service: Main process exited, code=exited, status=203/EXEC",
}


def apostrophes(line: str) -> str:
    return re.sub(r'msg="([^"\']*)"', r"msg='\1'", line)


def curly(line: str) -> str:
    marks = itertools.cycle("“”")
    return re.sub('"', lambda _: next(marks), line).replace("'", "’")


WAYS: dict[str, Callable[[str], str]] = {
    "without its time": lambda line: re.sub(r"^time=\S+ ", "", line),
    "from msg on": lambda line: re.sub(r"^time=\S+ level=\S+ source=\S+ ", "", line),
    "apostrophes": apostrophes,
    "curly": curly,
    "Markdown's backslashes": lambda line: re.sub(r"([_\[\]*])", r"\\\1", line),
    "entities": html.escape,
    "numbered entities": lambda line: line.replace('"', "&#34;").replace("'", "&#39;"),
    "HTML": lambda line: f"<pre><code>{html.escape(line)}<br>\n</code></pre>",
    "blanks that do not break": lambda line: line.replace(" ", "\u00a0"),
    "invisible": lambda line: "\u200b" + line,
    "a JSON string": lambda line: json.dumps(f"{line}\n{line}"),
    "within a JSON string": lambda line: json.dumps(line)[1:-1],
    "an issue's form": lambda line: json.dumps({"title": "slow", "logs": f"first\n{line}\n"}, indent=1),
    "Loki, a line": lambda line: json.dumps({"line": line, "timestamp": "1772615472123456789", "fields": {"app": "llm"}}),
    "Loki, a query": lambda line: json.dumps({"data": {"result": [{"stream": {"app": "llm"}, "values": [["1772615472123456789", line]]}]}}),
    "Datadog": lambda line: json.dumps({"id": "AZ", "content": {"host": "gpu3", "service": "llm", "message": line}}),
    "ECS": lambda line: json.dumps({"@timestamp": STAMP, "log.level": "info", "message": line}),
    "Cloud Logging": lambda line: json.dumps([{"textPayload": line, "severity": "ERROR"}], indent=2),
    "CSV": lambda line: 'Date,Host,Message\n"2026-03-04","gpu3","' + line.replace('"', '""') + '"',
    "a table": lambda line: f"| time | line |\n|---|---|\n| 10:11 | {line} |",
    "a table of code": lambda line: f"| time | line |\n|---|---|\n| 10:11 | `{line}` |",
    "numbers": lambda line: f"  117  {line}",
    "grep -n": lambda line: f"server.log:117:{line}",
    "bat": lambda line: f" 117 │ {line}",
    "a quotation": lambda line: f"As you asked:\n\n> {line}\n> \n\nWhat is it?",
    "a quotation of one": lambda line: f">> {line}\n>> thanks",
    "a list": lambda line: f"- {line}",
    "a patch": lambda line: f"+{line}",
    "bold": lambda line: f"**{line}**",
    "a fence": lambda line: f"The log:\n```\n{line}\n```\n",
    "a sentence": lambda line: f"I get `{line}` in the log.",
    "a sentence's quotation": lambda line: 'It says "' + line.replace('"', "'") + '" and stops.',
    "kubectl": lambda line: f"[pod/llm-7d9f8b6c5-x2x4z/server] {line}",
    "stern": lambda line: f"llm-7d9f8b6c5-x2x4z server {line}",
    "compose": lambda line: f"llm-1  | {line}",
    "a workflow": lambda line: f"build\tRun tests\t{STAMP} {line}",
    "syslog": lambda line: f"<30>1 {STAMP} gpu3 llm 4242 - - {line}",
    "run together": lambda line: f'{line} {T}level=INFO source=routes.go:1 msg="a word" {line}',
}


@pytest.mark.parametrize("way", WAYS)
def test_a_line_says_the_same_however_it_was_copied(way: str) -> None:
    wrong = {}
    for check, line in LINES.items():
        found = report(WAYS[way](line))
        assert not found.crashed, found.crashed
        if [f.check for f in found.findings][:1] != [check]:
            wrong[check] = [f.check for f in found.findings]
    assert not wrong


def test_lines_themselves_are_left_alone() -> None:
    journal = f"Mar 04 10:11:12 box ollama[41]: {LINES['context_multiplied_by_parallel']}"
    text = "\n".join([*LINES.values(), journal, "    " + journal, "A sentence; its <b> and &copy; \\d+ stay.", 'Environment=“OLLAMA_HOST=0.0.0.0”'])
    assert wrapping.unwrapped(text) == (text, None)


@pytest.mark.parametrize("piece", ["msg='a ", 'level=INFO msg=\\"', "[GIN] \" '/ ", '{"a":["', T + 'level=INFO source=a.go:1 msg="x" ', "NUM_PARALLEL=4 -c "])
def test_a_hostile_line_takes_no_time_without_end(piece: str) -> None:
    begun = time.process_time()
    facts_of((piece * 20000).encode(), "paste")
    assert time.process_time() - begun < 20  # a search that takes the square of the length takes a minute and more


def test_evidence_is_on_the_line_where_it_was_pasted() -> None:
    line = LINES["prompt_truncated"]
    shipped = json.dumps({"logs": f"{line}\n{line}"})
    facts = facts_of(f"what is this?\n{shipped}\n".encode(), "paste")
    assert facts is not None and facts.start is not None
    assert [e.line for e in facts.start.events if e.kind == "prompt_truncated"] == [2, 2]


def test_a_record_of_which_a_shipper_made_an_object() -> None:
    record = {"level": "warn", "source": "runner.go:152", "msg": "truncating input prompt", "limit": 4096, "prompt": 18231}
    text = json.dumps({"content": {"service": "llm", "attributes": record}})
    assert [f.check for f in report(text).findings] == ["prompt_truncated"]


@pytest.mark.parametrize("way", WAYS)
def test_what_was_copied_from_a_healthy_host_stays_silent(way: str) -> None:
    healthy = (
        T + 'level=INFO source=server.go:1289 msg="llama runner started in 2.11 seconds"',
        '[GIN] 2026/03/04 - 10:11:12 | 200 |     1.2s |      10.1.2.3 | POST     "/api/chat"',
        T + 'level=INFO source=types.go:42 msg="inference compute" id=GPU-1 library=CUDA compute=8.9 name=CUDA0 description="NVIDIA L4" total="22.0 GiB" available="21.6 GiB"',
        "load_tensors: offloaded 33/33 layers to GPU",
    )
    for line in healthy:
        assert [f for f in report(WAYS[way](line)).findings if f.severity != "info"] == []


def at_blanks(line: str, width: int = 78) -> list[str]:
    """As PowerShell writes a program's words to a file: broken behind the last blank before the console's width."""
    lines = [""]
    for word in re.findall(r"\S+\s*", line):
        if lines[-1] and len(lines[-1] + word.rstrip()) > width:
            lines.append("")
        lines[-1] += word
    return lines


def at_width(line: str, width: int = 90) -> list[str]:
    """As a terminal's screen is copied: broken wherever its edge is."""
    return [line[at : at + width] for at in range(0, len(line), width)]


@pytest.mark.parametrize("fold", [at_blanks, at_width])
def test_records_that_a_console_broke(fold: Callable[[str], list[str]]) -> None:
    whole = [line for line in LINES.values() if line.startswith("time=")]
    text, _ = wrapping.unwrapped("\n".join(part for line in whole for part in fold(line)))
    assert [line for line in text.splitlines() if line.strip()] == whole


def test_a_value_that_is_never_closed_takes_nothing_in() -> None:
    """A line that was cut, and the engine's lines after it."""
    cut = LINES["parallel_is_one"][:120]
    engine = "load_tensors: offloaded 33/33 layers to GPU"
    text, _ = wrapping.unwrapped("\n".join((cut, engine, LINES["prompt_truncated"])))
    assert text.splitlines() == [cut, engine, LINES["prompt_truncated"]]
