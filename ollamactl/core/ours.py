"""Our files of one server, whatever starts it: what they manage, and what would follow if they held other text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from ollamactl.core.adopt import Adopted, Edit
from ollamactl.core.dropin import Managed
from ollamactl.core.facts import Effective
from ollamactl.core.lint import Lint


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    before: str | None  # None: absent
    after: str | None
    mode: int | None = 0o644  # None: a file of others, which keeps its owner and mode
    secret: bool = False


class Ours(Protocol):
    """Made of readings and pure: asked as often as a plan likes."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Our files, there or not."""
        ...

    def without(self) -> dict[str, str | None]:
        """Our files with nothing of ours in them; None: gone."""
        ...

    def managed(self, texts: Mapping[str, str | None] | None = None) -> Managed:
        """What they manage; with `texts`, if these stood in them."""
        ...

    def adoptable(self, before: Managed, release: str) -> Adopted:
        """Lines of others that can be taken over."""
        ...

    def in_file(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that can only win from the file that is read last."""
        ...

    def where(self, name: str, after: Managed) -> str:
        """The name of the file that will hold a managed variable."""
        ...

    def changes(self, after: Managed) -> tuple[FileChange, ...]:
        """Our files as they must be, in the order of writing; those that stay are left out. Raises Failure (usage)
        for a value that they can't hold."""
        ...

    def effective(self, changes: tuple[FileChange, ...], edits: tuple[Edit, ...] = ()) -> Effective:
        """The environment of a start after these changes."""
        ...

    def lints(self, after: Managed) -> list[Lint]:
        """What is to be said of a change here, whatever its values."""
        ...
