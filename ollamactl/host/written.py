"""What transactions have written on this host, by their history: where a rollback starts from, and what is ours."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ollamactl.errors import Exit, Failure
from ollamactl.host.files import Image
from ollamactl.host.journal import Entry, Store


class Written(msgspec.Struct, frozen=True):
    """One path over several transactions. Where somebody else has changed it between two of them, `kept` is what they
    made of it, else what the first one found."""

    path: str
    before: Image  # as the first of them found it
    kept: Image
    after: Image  # as the last one left it

    @property
    def edited(self) -> bool:
        return self.kept.digest != self.before.digest


def all_since(store: Store, first: int) -> tuple[Entry, ...]:
    """All changes from number `first` on. Raises Failure where one can't be read: nobody knows what it has written."""
    entries, damaged = store.entries(first)
    for number, error in damaged.items():
        raise Failure(
            f"what change {number} did is not known: {error.text}",
            hint=f"{error.hint}; sudo ollamactl reset takes our own files away all the same",
            code=Exit.REFUSED,
            id="history_damaged",
        )
    return entries


def written(entries: Iterable[Entry]) -> tuple[Written, ...]:
    """The paths of transactions that were applied (oldest first), each once, in the order in which they were first
    written."""
    found: dict[str, Written] = {}
    for entry in entries:
        if entry.outcome != "applied":
            continue
        for file in entry.files:
            one = found.get(file.path)
            if one is None:
                found[file.path] = Written(file.path, file.before, file.before, file.after)
            else:
                kept = one.kept if file.before.digest == one.after.digest else file.before
                found[file.path] = Written(file.path, one.before, kept, file.after)
    return tuple(found.values())
