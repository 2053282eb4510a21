"""The transaction's journal: how to undo is on disk, synced, before the host is touched.

`/var/lib/ollamactl` (0700) holds `lock`, `open.json` while a transaction is under way, and `history/NNNNNN.json`
for each that ended. One rename ends a transaction, so it is open or ended, never half. Before-images in it are not
redacted (0600); `redacted()` is what may be shown.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
import shlex
import stat
import time
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from ollamactl.errors import Exit, Failure
from ollamactl.host import files
from ollamactl.host.files import Image

FOLDER = "/var/lib/ollamactl"
FRONT = "nginx.service"  # the unit of a front's entries
SCHEMA = 1
_NAME = re.compile(r"([0-9]{6,})\.json")
Kind = Literal["apply", "rollback", "reset", "tune", "front"]
Outcome = Literal["open", "applied", "restored", "not-restored"]


def default_folder() -> str:
    """A Mac's user changes services of the own session, without root."""
    if platform.system() == "Darwin" and os.geteuid():
        return os.path.expanduser("~/Library/Application Support/ollamactl")
    return FOLDER


class FileUndo(msgspec.Struct, frozen=True):
    path: str
    before: Image
    after: Image  # what this transaction writes there
    made: tuple[str, ...] = ()  # folders that it has to make first
    emptied: tuple[str, ...] = ()  # folders that it removes after the file, if they are empty then
    between: tuple[str, ...] = ()  # digests of what this transaction wrote there before `after`


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
    schema: int = SCHEMA
    id: int
    kind: Kind
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
    kept: dict[str, str | None] = {}  # what the manager must know to undo, beside files
    conflicts: tuple[str, ...] = ()  # files that somebody else changed meanwhile, left alone

    def of(self, unit: str) -> bool:
        """Whether it changed that unit, as a user names it; empty: any."""
        return not unit or self.unit in (unit, f"{unit}.service")


class _Schema(msgspec.Struct, frozen=True):
    schema: int = 1


class Holder(msgspec.Struct, frozen=True):
    pid: int
    command: str
    since: float


class Store:
    """The folder of transactions. `folder` is another one only in tests."""

    def __init__(self, folder: str = "") -> None:
        self.folder = folder or default_folder()

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _ready(self) -> None:
        files.make_folders(self.folder, 0o700)
        files.make_folders(self._path("history"), 0o700)
        for folder in (self.folder, self._path("history")):
            info = os.lstat(folder)
            if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
                raise Failure(
                    f"{folder} is not a folder of root's own",
                    hint=f"look at it: ls -ld {folder}",
                    code=Exit.REFUSED,
                    id="state",
                )
            if info.st_mode & 0o077:
                os.chmod(folder, 0o700)

    @contextlib.contextmanager
    def lock(self, command: str, wait: float, waiting: Callable[[Holder], None] | None = None) -> Iterator[None]:
        """The only one who may change this host. Waits up to `wait` seconds, then says who holds it."""
        import fcntl  # not on Windows, where the measurements in this folder may still be asked for

        try:
            self._ready()
            fd = os.open(self._path("lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            code = Exit.UNSEEN if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else Exit.REFUSED
            hint = "run it with sudo" if os.geteuid() else f"look at it: ls -ld {self.folder}; df {self.folder}"
            raise Failure(
                f"{self.folder} can't be written: {error.strerror}", hint=hint, code=code, id="state"
            ) from None
        held = False
        try:
            until, told = time.monotonic() + wait, False
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    held = True
                    break
                except BlockingIOError:
                    holder = self._holder(fd)
                    if time.monotonic() >= until:
                        raise _locked(holder) from None
                    if waiting and not told:
                        waiting(holder)
                        told = True
                    time.sleep(0.05)
            with contextlib.suppress(OSError):  # on a full disk the lock has no name, and still holds
                os.ftruncate(fd, 0)
                os.pwrite(fd, msgspec.json.encode(Holder(os.getpid(), command, time.time())), 0)
            yield
        finally:
            if held:  # what stands there is else the holder's name
                with contextlib.suppress(OSError):
                    os.ftruncate(fd, 0)
            os.close(fd)

    def under_way(self) -> Holder | None:
        """Who changes this host now, found without touching the lock. None: nobody, or not to be seen."""
        try:
            fd = os.open(self._path("lock"), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            holder = self._holder(fd)
            if not os.path.isdir("/proc/self"):  # a Mac: the pid that wrote its name there, while it lives
                return holder if holder.pid and _lives(holder.pid) else None
            mine = os.fstat(fd)
            for name in os.listdir(f"/proc/{holder.pid}/fd"):
                with contextlib.suppress(OSError):
                    theirs = os.stat(f"/proc/{holder.pid}/fd/{name}")
                    if (theirs.st_dev, theirs.st_ino) == (mine.st_dev, mine.st_ino):
                        return holder
            return None
        except OSError:
            return None
        finally:
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
                data = f.read()
            return msgspec.json.decode(data, type=Entry)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError:
            raise Failure(f"{path}: permission denied", hint="sudo shows it", code=Exit.UNSEEN, id="denied") from None
        except OSError as error:
            raise _unreadable(path, f"can't be read: {error.strerror}") from None
        except msgspec.MsgspecError as error:
            if _schema(data) > SCHEMA:
                raise _unreadable(path, "was written by a newer ollamactl", "ask that one, or ") from None
            raise _unreadable(path, f"is damaged: {error}") from None

    def begin(self, entry: Entry) -> None:
        """The entry on disk, synced; from here on everything can be undone."""
        self.sweep()
        files.write(self._path("open.json"), msgspec.json.encode(entry), 0o600)

    def sweep(self) -> None:
        """Temporary files of a write that was killed: they hold before-images too."""
        files.sweep(self.folder, "open.json")

    def end(self, entry: Entry) -> None:
        """The entry with its outcome in the history; the rename is what ends the transaction."""
        done = msgspec.structs.replace(entry, ended=time.time())
        files.write(self._path("open.json"), msgspec.json.encode(done), 0o600)
        os.rename(self._path("open.json"), self._path(f"history/{entry.id:06d}.json"))
        # From here on the transaction has ended; a failing sync can't be answered with an undo any more.
        with contextlib.suppress(OSError):
            files.sync_folder(self._path("history"))
            files.sync_folder(self.folder)

    def drop(self) -> None:
        """The transaction ends without a trace in the history."""
        with contextlib.suppress(OSError):
            files.remove(self._path("open.json"))

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
        return sorted(int(found[1]) for n in names if (found := _NAME.fullmatch(n)))

    def entry(self, id: int) -> Entry | None:
        """Ended transaction number `id`. Raises Failure where it can't be read."""
        found = self._read(self._path(f"history/{id:06d}.json"))
        return msgspec.structs.replace(found, id=id) if found is not None else None  # its name is its number

    def entries(self, first: int = 1) -> tuple[tuple[Entry, ...], dict[int, Failure]]:
        """Ended transactions from `first` on, oldest first; and why others of them, by number, can't be read."""
        found, damaged = [], {}
        for number in (i for i in self.ids() if i >= first):
            try:
                entry = self.entry(number)
            except Failure as error:
                damaged[number] = error
                continue
            if entry is not None:
                found.append(entry)
        return tuple(found), damaged


def _schema(data: bytes) -> int:
    """Which form of an entry that is; 0 where it is none."""
    try:
        return msgspec.json.decode(data, type=_Schema).schema
    except msgspec.MsgspecError:
        return 0


def _unreadable(path: str, why: str, first: str = "") -> Failure:
    hint = f"{first}look at it: sudo less {shlex.quote(path)}"
    if os.path.basename(path) == "open.json":
        hint += f"; nothing is undone by it. To go on with the host as it is: sudo mv {shlex.quote(path)} /root/"
    return Failure(f"{path} {why}", hint=hint, id="state")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _locked(holder: Holder) -> Failure:
    since = time.strftime("%H:%M:%S", time.localtime(holder.since)) if holder.since else "an unknown time"
    return Failure(
        f"another change is under way: {holder.command} (pid {holder.pid}), since {since}",
        hint="wait for it, or give it longer: --wait 300",
        code=Exit.UNSEEN,
        id="locked",
    )
