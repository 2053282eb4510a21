"""Processes and sockets."""

from __future__ import annotations

from ollamactl.core.facts.record import Record


class Process(Record, frozen=True, kw_only=True):
    pid: int
    ppid: int = 0
    comm: str = ""
    exe: str = ""
    exe_gone: bool = False  # the file that it runs was deleted or replaced since
    argv: tuple[str, ...] = ()
    environ: dict[str, str] | None = None  # None: not readable (missing["environ"] or without root)
    started: float | None = None
    uid: int | None = None
    user: str = ""
    rss: int | None = None
    cgroup: str = ""
    state: str = ""
    net_ns: int | None = None  # inode of its network namespace


class Listener(Record, frozen=True, kw_only=True):
    address: str
    port: int
    pid: int | None = None
    name: str = ""


class Connections(Record, frozen=True, kw_only=True):
    """TCP connections accepted on the server's port, judged by tcp_info (inet_diag)."""

    port: int
    established: int = 0
    awaiting_reply: int = 0  # a request was received and no byte sent since
    replying: int = 0  # bytes sent within the last seconds: a stream under way
    close_wait: int = 0  # the client has gone away
    backlog: int = 0  # connections that the server has not accepted yet
    oldest_wait: float | None = None  # seconds since the last byte received on the longest waiting one
