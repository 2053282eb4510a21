"""Files that we write as root: beside, synced, renamed; never through a link; with everything to put them back."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import Literal

import msgspec

_SELINUX = "security.selinux"


class Image(msgspec.Struct, frozen=True):
    """A path as it was: content, owner, mode and label, or that it was not there."""

    kind: Literal["file", "link", "absent"]
    data: bytes = b""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    label: bytes | None = None
    target: str = ""

    @property
    def digest(self) -> str:
        """What tells two images apart; not the owner or mode, which do not change what a service reads."""
        import hashlib  # with a library of its own: only where something changes

        return f"{self.kind}:{self.target}:{hashlib.sha256(self.data).hexdigest()}"


def image(path: str) -> Image:
    """The path as it is. Raises OSError for what is neither a file, a link nor absent."""
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return Image("absent")
    if stat.S_ISLNK(info.st_mode):
        return Image("link", uid=info.st_uid, gid=info.st_gid, target=os.readlink(path))
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as f:
        data = f.read()
        label: bytes | None = None
        with contextlib.suppress(OSError, AttributeError):
            label = os.getxattr(fd, _SELINUX)
    return Image("file", data, stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid, label)


def make_folders(folder: str, mode: int = 0o755) -> tuple[str, ...]:
    """Missing folders made, outermost first, each synced into its parent. Returns those that were made."""
    made: list[str] = []
    missing: list[str] = []
    at = folder
    while not os.path.isdir(at):
        missing.append(at)
        at = os.path.dirname(at)
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, mode)
            made.append(path)
        sync_folder(os.path.dirname(path))
    return tuple(made)


def sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write(
    path: str, data: bytes, mode: int = 0o600, *, uid: int = 0, gid: int = 0, label: bytes | None = None
) -> None:
    """`data` in place of a file, all or nothing also over a power loss. A link at `path` is replaced, not followed; so
    is one planted under the temporary name. Raises OSError where a folder, device or the like is in its place."""
    folder, name = os.path.split(path)
    beside = f".{name[:200]}.{os.urandom(6).hex()}.ollamactl"
    with _naming(path):
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with _naming(path):
            _replaceable(at, name)
            _write_beside(at, beside, name, data, mode, uid, gid, label)
    finally:
        os.close(at)


def _write_beside(
    at: int, beside: str, name: str, data: bytes, mode: int, uid: int, gid: int, label: bytes | None
) -> None:
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=at)
    try:
        with os.fdopen(fd, "wb") as f:
            f.write(data)
            if os.geteuid() == 0:
                os.fchown(fd, uid, gid)
            os.fchmod(fd, mode)
            if label is not None:
                with contextlib.suppress(OSError, AttributeError):
                    os.setxattr(fd, _SELINUX, label)
            f.flush()
            os.fsync(fd)
        os.rename(beside, name, src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=at)
        raise
    os.fsync(at)


def _replaceable(at: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
            raise OSError(errno.EINVAL, "not a regular file")


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Errors name the file that was meant, not the temporary one beside it."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = path, None
        raise


def remove(path: str) -> None:
    """The path gone, for good; a path that is not there is well."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    sync_folder(os.path.dirname(path))


def restore(path: str, was: Image) -> None:
    """The path as the image has it."""
    if was.kind == "absent":
        remove(path)
    elif was.kind == "file":
        make_folders(os.path.dirname(path))
        write(path, was.data, was.mode, uid=was.uid, gid=was.gid, label=was.label)
    else:
        link(path, was.target, uid=was.uid, gid=was.gid)


def link(path: str, target: str, *, uid: int = 0, gid: int = 0) -> None:
    """A symbolic link in place of whatever `path` is, all or nothing."""
    folder, name = os.path.split(path)
    beside = os.path.join(folder, f".{name[:200]}.{os.urandom(6).hex()}.ollamactl")
    with _naming(path):
        os.symlink(target, beside)
        try:
            with contextlib.suppress(OSError):
                os.lchown(beside, uid, gid)
            os.rename(beside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise
        sync_folder(folder)


def sweep(folder: str, name: str) -> None:
    """Temporary files of writes to `folder/name` that were killed half-way, gone."""
    with contextlib.suppress(OSError):
        for entry in os.listdir(folder):
            if entry.startswith(f".{name[:200]}.") and entry.endswith(".ollamactl"):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(folder, entry))
