"""One error type for users, and the exit codes. Everything a user may see go wrong is a `Failure`."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every command."""

    OK = 0
    FINDINGS = 1  # findings at or above --fail-on, or a verify mismatch
    USAGE = 2
    RESTORED = 3  # apply failed, the host is as it was
    NOT_RESTORED = 4  # apply failed and the host could not be put back
    UNSEEN = 5  # could not look: denied, locked, no server
    REFUSED = 6  # refused by pre-flight, nothing touched


class Failure(Exception):
    """Something that the user must know: what is wrong, and what to do.

    `text` says what is (no trailing full stop), `hint` what to do (a command where possible), `code` is the
    process exit code, `id` a stable snake_case name for JSON output.
    """

    def __init__(self, text: str, *, hint: str = "", code: Exit = Exit.UNSEEN, id: str = "error") -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint
        self.code = code
        self.id = id
