"""A text as lines that `redact_patterns` can be tried on one by one, and which of them can match where.

A log has a hundred thousand lines of which a few hold anything to take out: looking for a word costs far less than
trying a pattern, and most patterns are tried on a few lines only.
"""

from __future__ import annotations

from ollamactl.core import redact_patterns as patterns

FARTHEST = 512  # lines that a secret may run across


def cut(text: str) -> tuple[list[str], dict[str, list[int]]]:
    """What joins to the text by newlines: lines, and together those that a secret runs across. By cue of
    `patterns.CUE_WORDS`, the places in that list where a pattern with that cue may match."""
    lines = text.split("\n")
    pieces: list[str] = []
    places: dict[str, list[int]] = {}
    at = 0
    while at < len(lines):
        piece, taken = lines[at], 1
        found = _cues(piece)
        while ("key" in found or "token" in found) and taken < FARTHEST and at + taken < len(lines) and _open(piece):
            taken *= 2
            piece = "\n".join(lines[at : at + taken])
            found = _cues(piece)
        for cue in found:
            places.setdefault(cue, []).append(len(pieces))
        pieces.append(piece)
        at += taken
    return pieces, places


def _cues(piece: str) -> list[str]:
    low = piece.lower()
    found = []
    for cue, words in patterns.CUE_WORDS.items():
        for word in words:
            if word in low:
                if cue != "key" or patterns.KEY_START.search(piece):
                    found.append(cue)
                break
    return found


def _open(piece: str) -> bool:
    """Whether a secret that begins in it may go on behind its end: in quotes, behind a backslash, after `name:`, or
    as the body of a private key."""
    for pem in patterns.PEM_START.finditer(piece):
        if "-----" not in piece[pem.end() :]:
            return True
    for start in patterns.KEY_START.finditer(piece):
        gap = patterns.VALUE_GAP.match(piece, start.end())
        begins = gap.end() if gap else start.end()
        value = patterns.VALUE.match(piece, begins)
        ends = value.end() if value else begins
        escaped = piece.startswith('\\"', begins) and piece.find('\\"', begins + 2) < 0
        if begins == len(piece) or piece[ends : ends + 1] == '"' or escaped or piece.endswith("\\"):
            return True
    return False
