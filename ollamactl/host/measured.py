"""How long requests held a slot and how many tokens they were, as `probe` and `tune` measured it on this host, for
`plan --client-timeout`. One line a measurement, the newest LIMIT: of root beside the journal, of a user in their own
state folder.
"""

from __future__ import annotations

import os

import msgspec

from ollamactl.core.measure import Phase, Probe
from ollamactl.core.plan import full_name
from ollamactl.core.queueing import Service, service
from ollamactl.host import files, journal

NAME = "measured.jsonl"
LIMIT = 100
KEPT = 500  # lengths of one measurement
_BYTES = 4 << 20


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement: seconds that requests held their slot, with `clients` at once; tokens of prompt and reply."""

    schema: int = 1
    at: float
    model: str
    clients: int
    slots: int | None = None
    mean: float
    variation: float
    samples: int
    lengths: tuple[int, ...] = ()

    @property
    def service(self) -> Service:
        return Service(mean=self.mean, variation=self.variation, samples=self.samples)


def of(probe: Probe) -> Measured | None:
    """From the phase with the most requests at once: what they cost each other is in it. None without any reply."""
    found = [p for p in probe.phases if p.kind != "cold" and p.summary.service is not None]
    if not found:
        return None
    best: Phase = max(found, key=lambda p: p.summary.busy_max or p.clients)
    replies = [j.sent.reply for j in best.judged if j.result in ("served", "queued") and j.sent.reply]
    held = service([r.prompt + r.generation for r in replies if r.prompt or r.generation])
    if held is None:
        return None
    return Measured(
        at=probe.taken or 0.0,
        model=full_name(probe.model),
        clients=best.clients,
        slots=probe.slots,
        mean=held.mean,
        variation=held.variation,
        samples=held.samples,
        lengths=tuple(r.prompt_tokens + r.tokens for r in replies[:KEPT]),
    )


def folder() -> str:
    if os.geteuid() == 0:
        return journal.default_folder()
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "ollamactl")


def read() -> tuple[Measured, ...]:
    """All that this user may read, oldest first. Lines that are no measurements are passed over."""
    found = []
    for path in dict.fromkeys(os.path.join(f, NAME) for f in (journal.default_folder(), folder())):
        try:
            with open(path, "rb") as f:
                lines = f.read(_BYTES).splitlines()
        except OSError:
            continue
        for line in lines:
            try:
                found.append(msgspec.json.decode(line, type=Measured))
            except msgspec.MsgspecError:
                continue
    return tuple(sorted(found, key=lambda m: m.at))


def last(model: str = "") -> Measured | None:
    """The newest, of that model where one is named."""
    return next((m for m in reversed(read()) if not model or m.model == model), None)


def store(probe: Probe) -> None:
    """Adds a measurement, if there is something in it. Best effort: a measurement that can't be kept is no failure
    of the measurement."""
    new = of(probe)
    if new is None:
        return
    path = os.path.join(folder(), NAME)
    try:
        files.make_folders(folder(), 0o700)
        with open(path, "rb") as f:
            lines = f.read(_BYTES).splitlines()[-(LIMIT - 1) :]
    except FileNotFoundError:
        lines = []
    except OSError:
        return
    try:
        files.sweep(folder(), NAME)
        whole = b"".join(line + b"\n" for line in (*lines, msgspec.json.encode(new)))
        files.write(path, whole, 0o600, uid=os.geteuid(), gid=os.getegid())
    except OSError:
        return
