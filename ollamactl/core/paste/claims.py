"""What a sentence says happened, put together from its words by the rules of `claim_rules` and `cures`.

A sentence that tells of a cure, or that all is as meant, says nothing of a fault. These are for told cases: nobody's
log is read by them.
"""

# ruff: noqa: E501 - a pattern is read more easily whole
from __future__ import annotations

import re
from functools import cache

from ollamactl.core import settings
from ollamactl.core.parse import phrases
from ollamactl.core.paste.claim_rules import NAMES, RULES
from ollamactl.core.paste.cures import CURED, CURES, UNCURED

# a sentence that says that all is as meant, or what has cured it
_WELL = re.compile(
    r"^feature request\b|^proposal\b|\bthis means\b|\bmeans (?:that )?(?:the|it|a)\b|\b(?:docs|documentation|README|FAQ) (?:say|for|of|on)\b|\bplease add\b|\bwould be (?:nice|great|good)\b|\bas (?:intended|configured|expected|wanted|designed|meant)\b|\bon purpose\b|\ball (?:answered|fine|good|well)\b|\bnothing (?:is )?wrong\b|\bhealthy\b|\b(?:is|are|was|works?) (?:used|found|fine|ok) again\b|\bworks? again\b|\b(?:GPU|card) works\b|\btook effect\b"
    r"|\bverified\b|\bconfirmed\b|\bno (?:error|problem|503|fault)s?\b|\bused to\b", re.I
)
_JOURNAL = re.compile(r"\w{3} +\d+ [\d:]{8} |\d{4}-\d\d-\d\dT")
_NAME = re.compile(rf"\b(?:OLLAMA|HSA|CUDA|ROCR|HIP|GGML|LLAMA)_[A-Z_\d]+|\b(?:{NAMES})\b")
_GAP = re.compile(r"(?<![.!?])  ")  # between columns; some type two blanks after a sentence
_READ_TOKENS = re.compile(r"\bprompt[_ ](?:eval[_ ])?(?:count|tokens)\b", re.I)
_READ = re.compile(r"\bprompt[_ ](?:eval[_ ])?(?:count|tokens)\b\D{0,14}(\d[\d,]{2,8})", re.I)
_PROMPT = re.compile(
    r"\b(?:prompt|input|text|document|transcript|conversation|file)s?\b[^.;\d]{0,24}\b(\d[\d,]{2,8})\+? ?k? ?tokens?\b"
    r"|\b(\d[\d,]{2,8})[- ]tokens? (?:long )?(?:prompt|input|text|document|transcript|conversation)\b", re.I
)
_WINDOW = re.compile(r"\b(?:num_ctx|n_ctx|context(?:[ _](?:length|size|window))?|window)\b[^.;\d]{0,8}(\d[\d,]{2,8}\b)(?! ?tokens? (?:long )?prompt)", re.I)
_COUNT = re.compile(r"(?<![\d.,])\d{4,6}(?![\d.,]*\d)")
_TOOK = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?) ?s(?:ec\w*)?\b")
_AT_ONCE = re.compile(r"\bat once\b|\bat the same (?:time|moment)\b|\bparallel\b|\bconcurrent\w*|\bsimultaneous\w*|\btogether\b", re.I)
IN_TURN = "answers_in_turn"
HALVED = "read_like_half"  # what a count says, no rule
CUT = "truncation_told"
GPU_WORKS = "gpu_works_told"
CURE = "cure"  # field of what is known by its cure alone: where nothing else is told, nothing is wrong any more
_WORKS = re.compile(r"\b(?:GPU|card) (?:works|is used|is found)\b", re.I)
LONG = 500  # characters of a sentence


_pattern = cache(lambda text: re.compile(phrases.lowered(text)))  # when first needed: most sentences need few


class _Reader:
    """A sentence, of which each pattern is looked for once."""

    def __init__(self, text: str) -> None:
        self.text = text.lower() if text.isascii() else text.translate(phrases.LOWER)
        self.known: dict[str, bool] = {}

    def says(self, pattern: str) -> bool:
        if pattern not in self.known:
            self.known[pattern] = _pattern(pattern).search(self.text) is not None
        return self.known[pattern]


def find(sentence: str) -> list[tuple[str, dict[str, str]]]:
    """The kinds that a sentence says, each once, with the setting that it names, if it does."""
    text = sentence[:LONG]
    if not _is_sentence(text):
        return []
    says = _Reader(text).says
    if says(CURED) and not says(UNCURED) and (cured := [cure for cure in CURES if says(cure.remedy)]):
        return [(cure.kind, {} if cure.alone else {CURE: "1"}) for cure in cured]
    if _WELL.search(text):
        return [(GPU_WORKS, {})] if _WORKS.search(text) else []
    found: list[str] = []
    for rule in RULES:
        if rule.kind not in found and all(map(says, rule.all)) and not any(map(says, rule.none)):
            found.append(rule.kind)
    if "prompt_half" not in found and _halved(text):
        found.append(HALVED)
    if CUT not in found and _shortened(text):
        found.append(CUT)
    if IN_TURN not in found and _stepwise(text):
        found.append(IN_TURN)
    name = _NAME.search(text)
    fields = {"name": _full(name[0])} if name else {}
    return [(kind, fields) for kind in found]


def _halved(text: str) -> bool:
    """Whether of a prompt as many tokens were read as half a window holds: a power of two and a few."""
    if _READ_TOKENS.search(text) is None:
        return False
    counts = (int(number) for number in _COUNT.findall(text))
    return any(2 <= count - (1 << (count.bit_length() - 1)) <= 8 for count in counts)


def _shortened(text: str) -> bool:
    """Whether a prompt has more tokens than its window, or than were read of it."""
    prompt, read, window = (pattern.search(text) for pattern in (_PROMPT, _READ, _WINDOW))
    if prompt is None:
        return False
    has = _number(prompt[1] or prompt[2])
    if read is not None and read.start(1) != prompt.start(1):
        return 0 < _number(read[1]) < 0.9 * has
    return window is not None and window.start(1) not in (prompt.start(1), prompt.start(2)) and 0 < _number(window[1]) < has


def _number(text: str) -> int:
    return int(text.replace(",", "") or 0)


def _stepwise(text: str) -> bool:
    """Whether of requests sent at once each took as much longer as the first one took."""
    took = [float(number) for number in _TOOK.findall(text)]
    if len(took) < 3 or _AT_ONCE.search(text) is None or took[0] < 1:
        return False
    return all(abs(seconds / took[0] - n) <= 0.15 * n for n, seconds in enumerate(took, 1))


def _is_sentence(text: str) -> bool:
    """Whether somebody's words, and no row of a program's output."""
    if _JOURNAL.match(text):
        return False
    plain = sum(char.isalnum() or char == " " for char in text)
    return plain >= 0.7 * len(text) and _GAP.search(text.strip()) is None and re.search(r"[^\W\d_]{3}", text) is not None


def _full(name: str) -> str:
    return f"OLLAMA_{name}" if f"OLLAMA_{name}" in settings.REGISTRY else name
