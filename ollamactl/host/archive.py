"""Reads a bundle's files into memory, from a folder or a `.tar.gz` that may be hostile: limits, no links, and no
names that lead out of it."""

from __future__ import annotations

import gzip
import io
import os
import stat
import struct
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO

from ollamactl.errors import Failure

INDEX = "index.json"
MEMBERS = 4000
MEMBER_BYTES = 128 << 20
TOTAL_BYTES = 256 << 20


def bad(path: str, why: str) -> Failure:
    return Failure(
        f"{path} is not a bundle that can be read: {why}",
        hint="make one with: ollamactl bundle FILE.tar.gz",
        id="bad_bundle",
    )


def _refused(name: str) -> str:
    """Why a member's name may not be read; empty where it may."""
    if not name or "\0" in name or "\\" in name:
        return "a name that is none"
    path = PurePosixPath(name)
    if path.is_absolute():
        return f"an absolute name ({name})"
    return f"a name with .. ({name})" if ".." in path.parts else ""


def folder(path: Path, members: Callable[[str, bytes], list[str]]) -> dict[str, bytes]:
    """The index and the members that it names (`members` tells them from the index); nothing else in the folder
    is opened."""
    files: dict[str, bytes] = {}
    room = TOTAL_BYTES
    try:
        files[INDEX] = read_under(path, INDEX, room)
        names = members(str(path), files[INDEX])
        if len(names) > MEMBERS:
            raise bad(str(path), f"more than {MEMBERS} members")
        for name in names:
            if refused := _refused(name):
                raise bad(str(path), refused)
            files[name] = read_under(path, name, room)
            room -= len(files[name])
    except OSError as error:
        raise bad(str(path), f"{error.filename or ''} {error.strerror}".strip()) from None
    return files


def read_under(folder: Path, name: str, room: int) -> bytes:
    """A regular file under a folder, reached through no link."""
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        *parents, last = PurePosixPath(name).parts
        for part in parents:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at = inner
        fd = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    finally:
        os.close(at)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(22, "not a regular file", name)
        body = file.read(min(room, MEMBER_BYTES) + 1)
    if len(body) > min(room, MEMBER_BYTES):
        raise OSError(27, f"larger than {min(room, MEMBER_BYTES)} bytes", name)
    return body


class _Limited(io.RawIOBase):
    """A decompressed stream that ends with an error rather than fill the memory."""

    def __init__(self, inner: IO[bytes]) -> None:
        self._inner, self._room = inner, TOTAL_BYTES + MEMBERS * 2048

    def read(self, size: int = -1) -> bytes:
        data = self._inner.read(min(size if size >= 0 else 1 << 20, 1 << 20))
        self._room -= len(data)
        if self._room < 0:
            raise _TooLarge
        return data


class _TooLarge(Exception):
    pass


def packed(path: str) -> dict[str, bytes]:
    """The files of a `.tar.gz` by name. Failure where it is none, or holds what a bundle can't."""
    files: dict[str, bytes] = {}
    try:
        # Non-blocking: a FIFO must not hold us up.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise bad(path, "not a regular file")
            with gzip.GzipFile(fileobj=file) as unzipped:
                limited = _Limited(unzipped)  # type: ignore[arg-type]
                with tarfile.open(fileobj=limited, mode="r|", bufsize=64 << 10) as tar:
                    count = 0
                    for member in tar:
                        count += 1
                        if count > MEMBERS + 1:
                            raise bad(path, f"more than {MEMBERS} members")
                        if refused := _refused(member.name):
                            raise bad(path, refused)
                        if member.isdir():
                            continue
                        if not member.isreg() or member.issparse():
                            raise bad(path, f"{member.name} is not a plain file")
                        if member.size > MEMBER_BYTES:
                            raise bad(path, f"{member.name} is larger than {MEMBER_BYTES} bytes")
                        if member.name in files:
                            raise bad(path, f"{member.name} is in it twice")
                        content = tar.extractfile(member)
                        files[member.name.removeprefix("./")] = content.read() if content else b""
    except _TooLarge:
        raise bad(path, f"larger than {TOTAL_BYTES} bytes") from None
    except OSError as error:
        raise bad(path, error.strerror or str(error)) from None
    except (tarfile.TarError, zlib.error, struct.error, EOFError, ValueError, OverflowError, RecursionError) as error:
        raise bad(path, f"not a tar.gz archive ({error})") from None
    return _without_folder(files)


def _without_folder(files: dict[str, bytes]) -> dict[str, bytes]:
    """An archive of a bundle's folder, made by hand, has that folder's name before each member."""
    if INDEX in files:
        return files
    heads = {name.partition("/")[0] for name in files}
    if len(heads) == 1:
        head = heads.pop() + "/"
        return {name.removeprefix(head): body for name, body in files.items()}
    return files
