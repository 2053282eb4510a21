"""TCP sockets as the kernel lists them → who waits for an answer, who listens.

The reading `native:sockets PORT [PID]` holds the fields of `facts.Connections` as judged when it was taken, and
what they were judged by: `"by"` and `"sockets": [row…]`, a row being
`{"state", "local", "local_port", "remote", "remote_port", "inode", "receive_queue", "send_queue",
"sent", "received", "since_sent", "since_received", "since_acked", "segments_received"}`: bytes and
data segments of the connection's life, seconds since the last data (and since the other side's last
acknowledgement), None where the kernel did not say. For a listener the queues are connections not accepted
yet, and how many may be.
"""

from __future__ import annotations

import msgspec

from ollamactl.core.facts import Connections

STREAMING = 2.0  # seconds: even a slow model sends a token that often


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    state: str
    local: str
    local_port: int
    remote: str = ""
    remote_port: int = 0
    inode: int = 0  # 0: no process has accepted it, or it is closing
    receive_queue: int = 0
    send_queue: int = 0
    sent: int | None = None
    received: int | None = None
    since_sent: float | None = None
    since_received: float | None = None
    since_acked: float | None = None
    segments_received: int | None = None
    interface: int = 0


class Table(msgspec.Struct, frozen=True, kw_only=True):
    port: int
    by: str = ""  # inet_diag or ss
    sockets: tuple[Row, ...] = ()


def connections(body: bytes) -> Connections:
    """The server's side of every connection on its port. msgspec.MsgspecError for another text.

    Waiting is: a request was received and nothing was sent since. A connection kept alive after its last
    reply has sent last, so it is not waiting and, `STREAMING` seconds on, not replying either.
    """
    return judge(msgspec.json.decode(body, type=Table))


def judge(table: Table) -> Connections:
    """Counts what `connections` describes."""
    established = [r for r in table.sockets if r.state == "established"]
    accepted = [r for r in established if r.inode]
    waiting = [r for r in accepted if awaits(r)]
    return Connections(
        port=table.port,
        established=len(accepted),
        awaiting_reply=len(waiting),
        replying=sum(
            1 for r in accepted if r.sent and not awaits(r) and (r.send_queue or _since(r.since_sent) < STREAMING)
        ),
        close_wait=sum(r.state == "close_wait" for r in table.sockets),
        backlog=sum(r.receive_queue for r in table.sockets if r.state == "listen"),
        oldest_wait=max((_since(r.since_received) for r in waiting), default=None),
    )


def awaits(row: Row) -> bool:
    """A request was received and no byte sent after it.

    Until its first byte a connection's clocks hold the moment of its birth, so bytes decide before clocks do.
    The clocks tick every 1 to 10 ms, and a client that asks again at once does so within the same tick as
    the last reply; a server that answers at once also does. What tells the two apart is the client's
    acknowledgement of that answer, which comes later than the request when the answer did.
    """
    if not row.received and not row.receive_queue:
        return False
    if not row.sent:
        return True
    received, sent = _since(row.since_received), _since(row.since_sent)
    if received != sent:
        return received < sent
    if row.since_acked is None or row.segments_received is None:
        return False
    return row.segments_received > 1 and row.since_acked >= received


def _since(seconds: float | None) -> float:
    return 0.0 if seconds is None else seconds
