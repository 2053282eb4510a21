"""The files of a transaction: as it wants them, and as they were."""

from __future__ import annotations

import contextlib
import os

from ollamactl.host import files
from ollamactl.host.journal import Entry, FileUndo


def undo_files(entry: Entry) -> tuple[tuple[str, ...], tuple[OSError, ...]]:
    """Every file as it was, in reverse: owner, mode, label and absence too. Returns files that hold neither the
    old nor our text, which are left, and the errors of those that could not be put back."""
    conflicts: list[str] = []
    errors: list[OSError] = []
    for change in reversed(entry.files):
        try:
            if not _undo_file(change):
                conflicts.append(change.path)
        except OSError as error:
            error.filename = error.filename or change.path
            errors.append(error)
    return tuple(conflicts), tuple(errors)


def _undo_file(change: FileUndo) -> bool:
    """False where somebody else has changed the file meanwhile."""
    folder, name = os.path.split(change.path)
    files.sweep(folder, name)
    now = files.image(change.path)
    if now != change.before:
        if now.digest not in (change.after.digest, change.before.digest, *change.between):
            return False
        files.restore(change.path, change.before)
    for made in reversed(change.made):
        with contextlib.suppress(OSError):
            os.rmdir(made)
            files.sync_folder(os.path.dirname(made))
    return True


def do_files(entry: Entry) -> None:
    """Every file as the transaction wants it, in order."""
    for change in entry.files:
        files.restore(change.path, change.after)
        if change.after.kind == "absent":
            for folder in change.emptied:
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
                    files.sync_folder(os.path.dirname(folder))


def folders_to_make(path: str) -> tuple[str, ...]:
    """Folders above `path` that are not there yet, outermost first."""
    missing = []
    at = os.path.dirname(path)
    while not os.path.isdir(at) and at not in ("/", ""):
        missing.append(at)
        at = os.path.dirname(at)
    return tuple(reversed(missing))
