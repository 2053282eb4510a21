"""`server config`: the variables as the server read them, printed as a Go map at each start.

    map[CUDA_VISIBLE_DEVICES: HTTPS_PROXY: OLLAMA_KEEP_ALIVE:5m0s OLLAMA_NUM_PARALLEL:4
        OLLAMA_ORIGINS:[http://localhost https://localhost …] https_proxy:]

Go quotes nothing in it: values hold spaces, colons and brackets, many are empty. But it prints the keys sorted, and
each once. So of everything that looks like a key, the longest rising sequence is taken; of equally long ones that
which lies furthest to the right, since text inside a value comes before the keys that follow it.
"""

from __future__ import annotations

import re
from bisect import bisect_left

_KEY = re.compile(r"(?:(?<=\[)|(?<= ))([A-Z][A-Z0-9_]+|https?_proxy|no_proxy|all_proxy):")


def parse_map(text: str) -> dict[str, str] | None:
    """The variables of a `map[…]` text, values as printed. None where it is no whole map (a line that was cut)."""
    text = text.strip()
    if not text.startswith("map[") or not text.endswith("]"):
        return None
    body = text[3:-1]
    if body == "[":
        return {}
    keys = _rising([(found[1], found.start(), found.end()) for found in _KEY.finditer(body)])
    if not keys or keys[0][1] != 1:
        return None
    ends = [start - 1 for _, start, _ in keys[1:]] + [len(body)]
    return {name: body[after:end] for (name, _, after), end in zip(keys, ends, strict=True)}


def _rising(found: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """The longest sequence with strictly rising names, the rightmost of equally long ones. The first candidate,
    where it stands at the very beginning of the map, is a key whatever follows."""
    if found and found[0][1] == 1:
        first, rest = found[:1], [one for one in found[1:] if one[0] > found[0][0]]
    else:
        first, rest = [], found
    tails: list[str] = []  # smallest last name of a sequence of each length
    last: list[int] = []  # which candidate that is
    before: list[int] = []
    for index, (name, _, _) in enumerate(rest):
        at = bisect_left(tails, name)
        before.append(last[at - 1] if at else -1)
        if at == len(tails):
            tails.append(name)
            last.append(index)
        else:  # equal names: the later one replaces the earlier
            tails[at] = name
            last[at] = index
    chain = []
    index = last[-1] if last else -1
    while index >= 0:
        chain.append(rest[index])
        index = before[index]
    return first + chain[::-1]
