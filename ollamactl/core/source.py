"""What can be read on a host, and what came of it: the protocol between the pure part and the effects.

A `Source` names one thing to read; its `key` is the same on a live host and in a bundle, so that a bundle
can answer in the host's place. A `Reading` is the raw answer, or the reason why there is none.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

Kind = Literal["file", "stat", "list", "command", "http", "native"]
Why = Literal["absent", "denied", "failed", "timeout", "unparsable", "unsupported", "unasked"]


class Missing(msgspec.Struct, frozen=True):
    """Why a fact is not known. `kind` is the class of reason, `detail` one line, `hint` what helps."""

    kind: Why
    detail: str = ""
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" if self.detail else self.kind


class Source(msgspec.Struct, frozen=True):
    """One thing that can be read.

    kind     args                                 body of the reading
    file     path                                 the bytes of the file
    stat     path                                 JSON `{"type","mode","uid","gid","size","mtime","target"}`
    list     folder or glob pattern               JSON list of names (folder) or full paths (glob), sorted
    command  argv                                 standard output; non-zero is a Missing unless `any_exit`
    http     method, url, [JSON body]             the body; a status other than 2xx is a Missing with the body
    native   name, further arguments              JSON made by a library: nvml, sockets, processes
    """

    kind: Kind
    args: tuple[str, ...]
    timeout: float = 10.0
    limit: int = 64 << 20  # bytes of body kept at most
    any_exit: bool = False
    inside: int = 0  # of http: a process in whose network namespace a loopback address is meant
    merge: bool = False  # of a command: standard error belongs to the body (docker logs)

    @property
    def key(self) -> str:
        """The name of this source in a bundle."""
        return self.kind + ":" + " ".join(a.replace("%", "%25").replace(" ", "%20") for a in self.args)


class Reading(msgspec.Struct, frozen=True):
    """The raw answer of one source. One of `body` and `missing` is set; a failed command or
    HTTP request may carry what it printed (`body`) beside the reason (`missing`)."""

    key: str
    body: bytes | None = None
    missing: Missing | None = None
    at: float = 0.0  # seconds since the epoch, when the reading began
    seconds: float = 0.0  # how long it took
    status: int | None = None  # exit code or HTTP status
    stderr: str = ""

    @property
    def text(self) -> str:
        """The body as text; bytes that are not UTF-8 survive as surrogates."""
        return (self.body or b"").decode("utf-8", "surrogateescape")


class Host(Protocol):
    """The only door for reading. Never raises for what a host may lack: that is a Missing."""

    def read(self, source: Source) -> Reading: ...


def file(path: str, *, limit: int = 64 << 20) -> Source:
    return Source("file", (path,), limit=limit)


def stat(path: str) -> Source:
    return Source("stat", (path,))


def listing(pattern: str) -> Source:
    return Source("list", (pattern,))


def command(
    *argv: str, timeout: float = 10.0, limit: int = 64 << 20, any_exit: bool = False, merge: bool = False
) -> Source:
    return Source("command", argv, timeout=timeout, limit=limit, any_exit=any_exit, merge=merge)


def http(url: str, *, method: str = "GET", body: str = "", timeout: float = 5.0, inside: int = 0) -> Source:
    return Source("http", (method, url, body) if body else (method, url), timeout=timeout, inside=inside)


def native(name: str, *args: str, timeout: float = 10.0) -> Source:
    return Source("native", (name, *args), timeout=timeout)
