"""The transaction's journal: how to undo is on disk, synced, before the host is touched.

`/var/lib/ollamactl` (0700) holds `lock`, `open.json` while a transaction is under way, and `history/NNNNNN.json`
for each that ended. One rename ends a transaction, so it is open or ended, never half. Before-images in it are not
redacted (0600); `redacted()` is what may be shown.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from ollamactl.errors import Exit, Failure
from ollamactl.host import files
from ollamactl.host.files import Image

FOLDER = "/var/lib/ollamactl"
Outcome = Literal["open", "applied", "restored", "not-restored"]


class FileUndo(msgspec.Struct, frozen=True):
    path: str
    before: Image
    after: Image  # what this transaction writes there
    made: tuple[str, ...] = ()  # folders that it has to make first


class ModelBefore(msgspec.Struct, frozen=True):
    """A model that was loaded, to load it again: seconds of keep-alive left (negative: for ever), context per slot
    only where it was not the default."""

    name: str
    keep_alive: float
    context: int | None = None
    embedding: bool = False
    size: int = 0
    size_vram: int = 0


class ServiceBefore(msgspec.Struct, frozen=True):
    active: str = ""
    sub: str = ""
    invocation: str = ""
    main_pid: int = 0


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    schema: int = 1
    id: int
    kind: Literal["apply", "rollback", "reset"]
    command: str
    user: str = ""
    unit: str
    started: float
    ended: float | None = None
    outcome: Outcome = "open"
    files: tuple[FileUndo, ...] = ()
    service: ServiceBefore = ServiceBefore()
    models: tuple[ModelBefore, ...] = ()
    values: dict[str, str] = {}
    changes: tuple[tuple[str, str, str], ...] = ()  # (variable, before, after), secrets left out
    overrides: tuple[str, ...] = ()
    summary: str = ""
    conflicts: tuple[str, ...] = ()  # files that somebody else changed meanwhile, left alone


class Holder(msgspec.Struct, frozen=True):
    pid: int
    command: str
    since: float


class Store:
    """The folder of transactions. `folder` is another one only in tests."""

    def __init__(self, folder: str = FOLDER) -> None:
        self.folder = folder

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _ready(self) -> None:
        files.make_folders(self.folder, 0o700)
        files.make_folders(self._path("history"), 0o700)

    @contextlib.contextmanager
    def lock(self, command: str, wait: float, waiting: Callable[[Holder], None] | None = None) -> Iterator[None]:
        """The only one who may change this host. Waits up to `wait` seconds, then says who holds it."""
        try:
            self._ready()
            fd = os.open(self._path("lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            code = Exit.UNSEEN if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else Exit.REFUSED
            raise Failure(
                f"{self.folder} can't be written: {error.strerror}", hint="run it with sudo", code=code, id="state"
            ) from None
        try:
            until, told = time.monotonic() + wait, False
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    holder = self._holder(fd)
                    if time.monotonic() >= until:
                        raise _locked(holder) from None
                    if waiting and not told:
                        waiting(holder)
                        told = True
                    time.sleep(0.05)
            os.ftruncate(fd, 0)
            os.pwrite(fd, msgspec.json.encode(Holder(os.getpid(), command, time.time())), 0)
            yield
        finally:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
            os.close(fd)

    def _holder(self, fd: int) -> Holder:
        try:
            return msgspec.json.decode(os.pread(fd, 4096, 0), type=Holder)
        except msgspec.MsgspecError:
            return Holder(0, "another ollamactl", 0.0)

    def open_entry(self) -> Entry | None:
        """The transaction that is under way or was interrupted. Raises Failure where it can't be read."""
        return self._read(self._path("open.json"))

    def _read(self, path: str) -> Entry | None:
        try:
            with open(path, "rb") as f:
                return msgspec.json.decode(f.read(), type=Entry)
        except FileNotFoundError:
            return None
        except PermissionError:
            raise Failure(f"{path}: permission denied", hint="sudo shows it", code=Exit.UNSEEN, id="denied") from None
        except NotADirectoryError:
            return None
        except msgspec.MsgspecError as error:
            raise Failure(f"{path} is damaged: {error}", hint=f"look at it: sudo less {path}", id="state") from None

    def begin(self, entry: Entry) -> None:
        """The entry on disk, synced; from here on everything can be undone."""
        files.sweep(self.folder, "open.json")
        files.write(self._path("open.json"), msgspec.json.encode(entry), 0o600)

    def end(self, entry: Entry) -> None:
        """The entry with its outcome in the history; the rename is what ends the transaction."""
        done = msgspec.structs.replace(entry, ended=time.time())
        files.write(self._path("open.json"), msgspec.json.encode(done), 0o600)
        os.rename(self._path("open.json"), self._path(f"history/{entry.id:06d}.json"))
        files.sync_folder(self._path("history"))
        files.sync_folder(self.folder)

    def next_id(self) -> int:
        return max(self.ids(), default=0) + 1

    def ids(self) -> list[int]:
        """Ended transactions, oldest first."""
        try:
            names = os.listdir(self._path("history"))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except PermissionError:
            raise Failure(
                f"{self.folder}: permission denied", hint="sudo shows it", code=Exit.UNSEEN, id="denied"
            ) from None
        return sorted(int(n[:-5]) for n in names if n.endswith(".json") and n[:-5].isdigit())

    def entry(self, id: int) -> Entry | None:
        return self._read(self._path(f"history/{id:06d}.json"))


def _locked(holder: Holder) -> Failure:
    since = time.strftime("%H:%M:%S", time.localtime(holder.since)) if holder.since else "an unknown time"
    return Failure(
        f"another change is under way: {holder.command} (pid {holder.pid}), since {since}",
        hint="wait for it, or give it longer: --wait 300",
        code=Exit.UNSEEN,
        id="locked",
    )


def undo_files(entry: Entry) -> tuple[str, ...]:
    """Every file as it was, in reverse. Files that hold neither the old nor our text are left: they are returned."""
    conflicts = []
    for change in reversed(entry.files):
        folder, name = os.path.split(change.path)
        files.sweep(folder, name)
        now = files.image(change.path)
        if now.digest == change.before.digest and (now.kind != "file" or _same_owner(now, change.before)):
            pass
        elif now.digest == change.after.digest or now.digest == change.before.digest:
            files.restore(change.path, change.before)
        else:
            conflicts.append(change.path)
            continue
        for made in reversed(change.made):
            with contextlib.suppress(OSError):
                os.rmdir(made)
                files.sync_folder(os.path.dirname(made))
    return tuple(conflicts)


def _same_owner(a: Image, b: Image) -> bool:
    return (a.mode, a.uid, a.gid) == (b.mode, b.uid, b.gid)


def do_files(entry: Entry) -> None:
    """Every file as the transaction wants it, in order."""
    for change in entry.files:
        folder = os.path.dirname(change.path)
        files.make_folders(folder)
        files.restore(change.path, change.after)


def folders_to_make(path: str) -> tuple[str, ...]:
    """Folders above `path` that are not there yet, outermost first."""
    missing = []
    at = os.path.dirname(path)
    while not os.path.isdir(at) and at not in ("/", ""):
        missing.append(at)
        at = os.path.dirname(at)
    return tuple(reversed(missing))
