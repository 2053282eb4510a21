"""TCP sockets of a network namespace, by inet_diag over netlink, else by `ss`, and their owners."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import struct
from collections.abc import Iterator

import msgspec

from ollamactl.core.facts import Listener
from ollamactl.core.parse.sockets import Row, Table, judge
from ollamactl.core.source import Missing, command
from ollamactl.host import commands, netns

KEPT = 20_000  # rows of one reading at most

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_REQUEST_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_INET_DIAG_INFO = 2
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_QUERY = struct.Struct("=BBBxI HH")  # inet_diag_req_v2 up to the ports; those are big-endian
_MESSAGE = struct.Struct("=BBBB 2s2s 16s16s I 8x IIIII")  # inet_diag_msg
_STATES = {1: "established", 3: "syn_recv", 8: "close_wait", 10: "listen", 12: "syn_recv"}
_LISTEN = 1 << 10
_OF_A_SERVER = 1 << 1 | 1 << 3 | 1 << 8 | _LISTEN


def table(port: int, pid: int | None = None, timeout: float = 5.0) -> bytes:
    """JSON of `parse.sockets.Table` and of what it says (`facts.Connections`): what is on the local port `port` in
    the network namespace of `pid`.

    PermissionError where that namespace is not ours and we are not root; Unsupported where neither inet_diag
    nor ss answers.
    """
    try:
        rows = list(_dump(port, _OF_A_SERVER, pid, timeout))
        by = "inet_diag"
    except PermissionError:
        raise
    except OSError as error:
        rows, by = parse_ss(_ss(port, pid, timeout, error)), "ss"
    rows = [r for r in rows if r.local_port == port]
    found = Table(port=port, by=by, sockets=tuple(rows))
    kept = msgspec.structs.replace(found, sockets=found.sockets[:KEPT])
    return msgspec.json.encode(msgspec.to_builtins(judge(found)) | msgspec.to_builtins(kept))


class Unsupported(Exception):
    """The kernel's socket tables can't be asked; `missing` says why."""

    def __init__(self, missing: Missing) -> None:
        super().__init__(str(missing))
        self.missing = missing


def listeners(pid: int | None = None, timeout: float = 5.0) -> tuple[bytes, str]:
    """JSON list of `facts.Listener` of the namespace of `pid`, and a note where owners could not be seen.

    A socket of several processes (a parent's, handed down) is given the oldest one's pid.
    """
    try:
        rows = list(_dump(0, _LISTEN, pid, timeout))
    except PermissionError:
        raise
    except OSError as error:
        rows = [r for r in parse_ss(_ss(0, pid, timeout, error)) if r.state == "listen"]
    owners, complete = _owners({r.inode for r in rows})
    found = sorted(
        (
            Listener(
                address=r.local,
                port=r.local_port,
                pid=owners.get(r.inode, (None, ""))[0],
                name=owners.get(r.inode, (None, ""))[1],
            )
            for r in rows
        ),
        key=lambda one: (one.port, one.address, one.pid or 0),
    )
    unseen = sum(one.pid is None for one in found)
    note = f"owners of {unseen} sockets not readable; sudo shows them" if unseen and not complete else ""
    return msgspec.json.encode(found), note


def _dump(port: int, states: int, pid: int | None, timeout: float) -> Iterator[Row]:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            yield from _dump_family(family, port, states, pid, timeout)
        except OSError as error:
            absent = (errno.ENOENT, errno.EAFNOSUPPORT, errno.EINVAL)
            if family == socket.AF_INET6 and error.errno in absent:
                return  # a kernel without IPv6
            raise


def _dump_family(family: int, port: int, states: int, pid: int | None, timeout: float) -> Iterator[Row]:
    if not hasattr(socket, "AF_NETLINK"):
        raise OSError(errno.EAFNOSUPPORT, "no netlink on this system")
    with netns.make(pid, socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
        netlink.settimeout(timeout)
        wanted = 1 << (_INET_DIAG_INFO - 1)
        query = _QUERY.pack(family, socket.IPPROTO_TCP, wanted, states, socket.htons(port), 0)
        query += bytes(32) + struct.pack("=I", 0) + b"\xff" * 8  # any address and device, no cookie
        head = _HEADER.pack(_HEADER.size + len(query), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0)
        netlink.sendto(head + query, (0, 0))
        while True:
            data = netlink.recv(1 << 17)
            at = 0
            while at + _HEADER.size <= len(data):
                length, kind, _flags, _seq, _pid = _HEADER.unpack_from(data, at)
                if length < _HEADER.size:
                    raise OSError(errno.EPROTO, "a netlink message without a length")
                body = data[at + _HEADER.size : at + length]
                at += (length + 3) & ~3
                if kind == _NLMSG_DONE:
                    return
                if kind == _NLMSG_ERROR:
                    number = -int(struct.unpack_from("=i", body)[0])
                    raise OSError(number, os.strerror(number))
                if kind == _SOCK_DIAG_BY_FAMILY:
                    yield row(body)


def row(message: bytes) -> Row:
    """One inet_diag_msg with its attributes (linux/inet_diag.h)."""
    (
        family,
        state,
        _timer,
        _retrans,
        sport,
        dport,
        source,
        target,
        interface,
        _expires,
        rqueue,
        wqueue,
        _uid,
        inode,
    ) = _MESSAGE.unpack_from(message)
    info = b""
    at = _MESSAGE.size
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        if length < 4:
            break
        if kind == _INET_DIAG_INFO:
            info = message[at + 4 : at + length]
        at += (length + 3) & ~3
    listening = state == 10
    if listening:  # its tcp_info means nothing here
        info = b""
    return Row(
        state=_STATES.get(state, "other"),
        local=_address(family, source),
        local_port=int.from_bytes(sport, "big"),
        remote="" if listening else _address(family, target),
        remote_port=int.from_bytes(dport, "big"),
        inode=inode,
        interface=interface,
        receive_queue=rqueue,
        send_queue=wqueue,
        sent=_sent(info),
        received=_u64(info, 128),
        since_sent=_seconds(info, 44),
        since_received=_seconds(info, 52),
        since_acked=_seconds(info, 56),
        segments_received=_u32(info, 152),
    )


def _sent(info: bytes) -> int | None:
    """bytes_sent since Linux 4.19; before it, what was acknowledged or is under way."""
    sent = _u64(info, 200)
    return _u64(info, 120) if sent is None else sent


def _u32(info: bytes, at: int) -> int | None:
    """A field of tcp_info (linux/tcp.h), or None where this kernel's is shorter."""
    return int(struct.unpack_from("=I", info, at)[0]) if len(info) >= at + 4 else None


def _seconds(info: bytes, at: int) -> float | None:
    milliseconds = _u32(info, at)
    return None if milliseconds is None else milliseconds / 1000


def _u64(info: bytes, at: int) -> int | None:
    return int(struct.unpack_from("=Q", info, at)[0]) if len(info) >= at + 8 else None


def _address(family: int, raw: bytes) -> str:
    if family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, raw[:4])
    return socket.inet_ntop(socket.AF_INET6, raw).removeprefix("::ffff:")


# -- ss --


def _ss(port: int, pid: int | None, timeout: float, first: OSError) -> str:
    enter = ("nsenter", "-t", str(pid), "-n") if pid is not None and netns.differs(pid) else ()
    wanted = (f"sport = :{port}",) if port else ("-l",)
    outcome = commands.Outcome()
    source = command(*enter, "ss", "-tianeH", *wanted, timeout=timeout, limit=16 << 20)
    text = b"".join(commands.run(source, outcome)).decode("utf-8", "replace")
    if outcome.missing:
        detail = f"inet_diag: {first.strerror}; {outcome.missing.detail}"
        raise Unsupported(Missing(outcome.missing.kind, detail, outcome.missing.hint))
    return text


_SS_STATES = {"ESTAB": "established", "CLOSE-WAIT": "close_wait", "LISTEN": "listen", "SYN-RECV": "syn_recv"}


def parse_ss(text: str) -> list[Row]:
    """Rows of `ss -tianeH`: one line for the socket and, indented or on the same line, its tcp_info.

    Sample: `ESTAB 0 0 127.0.0.1:11434 127.0.0.1:50922 ino:77 sk:3 <->`, `cubic … bytes_sent:9 lastsnd:12 …`.
    """
    found = []
    for block in re.split(r"\n(?=\S)", text):
        words = block.split()
        if len(words) < 5 or words[0] not in _SS_STATES:
            continue
        values = dict(w.split(":", 1) for w in words[5:] if ":" in w)
        local, local_port = _split(words[3])
        remote, remote_port = _split(words[4])
        listening = words[0] == "LISTEN"
        shown = "lastack" in values or "bytes_received" in values or "bytes_acked" in values
        told = shown and not listening
        found.append(
            Row(
                state=_SS_STATES[words[0]],
                local=local,
                local_port=local_port,
                remote="" if listening else remote,
                remote_port=0 if listening else remote_port,
                inode=_number(values.get("ino")),
                receive_queue=_number(words[1]),
                send_queue=_number(words[2]),
                # ss leaves out what is zero
                sent=_number(values.get("bytes_sent", values.get("bytes_acked"))) if told else None,
                received=_number(values.get("bytes_received")) if told else None,
                since_sent=_number(values.get("lastsnd")) / 1000 if told else None,
                since_received=_number(values.get("lastrcv")) / 1000 if told else None,
                since_acked=_number(values.get("lastack")) / 1000 if told else None,
                segments_received=_number(values.get("data_segs_in")) if told else None,
            )
        )
    return found


def _split(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    address = address.strip("[]").partition("%")[0].removeprefix("::ffff:")
    return ("::" if address == "*" else address), _number(port)


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


# -- owners --


def _owners(inodes: set[int]) -> tuple[dict[int, tuple[int, str]], bool]:
    """pid and name of the process that holds each socket, and whether every process could be looked into."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes if inode}
    found: dict[int, tuple[int, str]] = {}
    complete = True
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()) if wanted else ():
        if len(found) == len(wanted):
            break
        try:
            descriptors = os.listdir(f"/proc/{pid}/fd")
        except PermissionError:
            complete = False
            continue
        except OSError:
            continue
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                inode = wanted.get(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
                if inode is not None:
                    found.setdefault(inode, (pid, _name(pid)))
    return found, complete


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="backslashreplace") as file:
            return file.read().rstrip("\n")
    except OSError:
        return ""
