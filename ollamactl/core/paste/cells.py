"""Columns of `ollama ps` within a sentence.

    ollama ps qwen3-embedding:4b 8.7 GB 100% GPU CONTEXT 32768 Stopping...
    ollama ps 11 GB 100% GPU CONTEXT 32768 → 9.5 GB 100% CPU CONTEXT 4096        before and after
    qwen2.5:7b at 54% CPU / 46% GPU
    10 GB 33%/67% CPU/GPU at num_ctx 40000

A state is what stands between two changes (→, "then", a comma before another size). Only PROCESSOR with a size or a
name, or the command's name beside one of its columns, makes a sentence one of these.
"""

# ruff: noqa: E501 - a pattern is read more easily whole
from __future__ import annotations

import re

import msgspec

from ollamactl.core.facts import LoadedModel
from ollamactl.core.parse import ollama_ps

_COMMAND = re.compile(r"\b(?:ollama|api)[ /]ps\b", re.I)
_PROCESSOR = re.compile(
    r"(?P<cpu>\d+)\s?%\s?(?:CPU)?\s?/\s?(?P<gpu>\d+)\s?%\s?(?:CPU/GPU|GPU)|(?P<whole>\d+)\s?%\s?(?P<where>CPU|GPU)\b", re.I
)
_BYTES = re.compile(r"\bsize\"?[ =:]+(?P<size>\d{8,15})\b.{0,40}?\bsize_vram\"?[ =:]+(?P<vram>\d{1,15})\b")  # of /api/ps
_SIZE = re.compile(r"(?<![\w.=\[])(\d+(?:\.\d+)?) ?([KMGT]i?B)\b")
_NAME = re.compile(r"(?<![\w/:.])(?:[\w.-]+/)*[A-Za-z][\w.-]*:[\w.-]*[A-Za-z\d][\w-]*(?![\w/:])")
_CONTEXT = re.compile(r"(?:\bcontext(?:_length)?\b|\bnum_ctx\b|(?<=GPU )|(?<=CPU ))(?: ?at)?[ =:]*(?P<tokens>\d{3,7})\b(?! ?[KMGT]i?B|%)", re.I)
_UNTIL = re.compile(r"Stopping(?:\.\.\.)?|Forever\b|\d+ (?:second|minute|hour|day)s? from now|(?:Less than|About) an? \w+ from now", re.I)
_CHANGE = re.compile(r"\s*(?:→|->|=>|–>|\bvs\.?\b|\bthen\b|\blater\b)\s*|[;,] (?=\d+(?:\.\d+)? ?[KMGT]i?B|\d+\s?% )")
_ASKED = re.compile(r"(?:^|[\s:])(\d{4,7})\s*$")
_EITHER = re.compile(r"\bboth\b", re.I)
SHARES = 100  # "bytes" of a row without SIZE: its shares in percent
_GIB = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class State(msgspec.Struct, frozen=True):
    """One row as told. None or empty: not told; `gpu` is the share on the GPU."""

    name: str = ""
    size: int | None = None
    gpu: float | None = None
    context: int | None = None
    until: str = ""

    def model(self) -> LoadedModel:
        """As /api/ps would give it; a size that was not told is taken as the unit of the shares."""
        size = self.size or (SHARES if self.gpu is not None else 0)
        return LoadedModel(
            name=self.name or "the model",
            digest="",
            size=size,
            size_vram=round(size * (self.gpu if self.gpu is not None else 1.0)),
            context=self.context,
            expires=self.until,
        )


def states(text: str) -> list[State]:
    """The states that a sentence tells, in their order; empty where it is not about `ollama ps`."""
    named = _COMMAND.search(text) is not None
    if not named and _PROCESSOR.search(text) is None and _BYTES.search(text) is None:
        return []
    both = _EITHER.search(text) is not None
    found: list[State] = []
    asked: re.Match[str] | None = None
    for part in _CHANGE.split(text):
        one = _state(part)
        if found and found[-1].context and (bare := re.match(r"\s*(\d{4,7})\b(?! ?[KMGT]i?B)", part)):
            one = msgspec.structs.replace(one, context=int(bare[1]))
        nothing = one.size is None and one.gpu is None and one.context is None and not one.until
        asked = (_ASKED.search(part) or asked) if nothing else asked  # "8192 → 6.6 GB": what a context took
        if nothing or (one.gpu is None and not named):
            continue
        if asked and one.context is None:
            one, asked = msgspec.structs.replace(one, context=int(asked[1])), None
        found.append(one)
    if both and found:  # "9.4 GB → 14 GB, CONTEXT 16384 both"
        context = next((s.context for s in found if s.context), None)
        found = [msgspec.structs.replace(s, context=context) for s in found if s.size or s.gpu is not None]
    name = next((s.name for s in found if s.name), "")
    return [msgspec.structs.replace(s, name=s.name or name) for s in found]


def _state(text: str) -> State:
    size, name, context, until = (p.search(text) for p in (_SIZE, _NAME, _CONTEXT, _UNTIL))
    processor, told = _PROCESSOR.search(text), _BYTES.search(text)
    whole = int(told["size"]) if told else _bytes(size[1], size[2]) if size else None
    share = int(told["vram"]) / int(told["size"]) if told else _share(processor) if processor else None
    return State(
        name=name[0] if name else "",
        size=whole,
        gpu=share,
        context=int(context["tokens"]) if context else None,
        until=until[0] if until else "",
    )


def _bytes(number: str, unit: str) -> int | None:
    if unit in _GIB:
        return int(float(number) * _GIB[unit])
    return ollama_ps.size_bytes(f"{number} {unit}")


def _share(found: re.Match[str]) -> float:
    if found["whole"]:
        share = int(found["whole"][:3]) / 100
        return share if found["where"].upper() == "GPU" else 1 - share
    return int(found["gpu"][:3]) / 100
