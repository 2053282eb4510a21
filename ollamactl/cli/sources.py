"""`--from`: a bundle, a pasted log, or pasted `ollama ps` text, instead of this host."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec

from ollamactl.core.facts import Facts
from ollamactl.core.parse import log, ollama_ps
from ollamactl.core.source import Host, Missing
from ollamactl.errors import Exit, Failure
from ollamactl.host.live import LiveHost

LIMIT = 1 << 30  # bytes of a pasted log


class Opened(msgspec.Struct, frozen=True):
    """Where facts come from: a host to ask, or facts that a text holds."""

    host: Host
    origin: str
    facts: Facts | None = None


def open_source(source: str | None, unit: str = "") -> Opened:
    """This host, or what `--from` names. Raises Failure (usage) for what is none of the known forms."""
    if source is None:
        return Opened(LiveHost(), "live")
    if source == "-":
        return Opened(LiveHost(), "log:standard input", text_facts(sys.stdin.buffer.read(LIMIT), "standard input"))
    path = Path(source)
    try:
        if path.is_dir():
            return _bundle(path)
        with path.open("rb") as f:
            head = f.read(4)
            if head[:2] == b"\x1f\x8b" or head[:4] == b"PK\x03\x04":
                return _bundle(path)
            return Opened(LiveHost(), f"log:{path.name}", text_facts(head + f.read(LIMIT), source))
    except OSError as error:
        raise Failure(f"{source}: {error.strerror}", code=Exit.USAGE, id="usage") from None


def _bundle(path: Path) -> Opened:
    from ollamactl.host.bundle import Replay

    return Opened(Replay(str(path)), f"bundle:{path.name}")


def text_facts(data: bytes, where: str) -> Facts:
    """Facts of a pasted text: `ollama ps`, else a log in whatever form."""
    text = data[:65536].decode("utf-8", "replace")
    if re.search(r"^NAME\s+ID\s+SIZE\s+PROCESSOR", text, re.M):
        missing = {f: Missing("unasked", "only `ollama ps` text was given") for f in ("service", "start", "process")}
        return Facts(origin=f"ps:{where}", loaded=ollama_ps.parse(text), missing=missing)
    parsed = log.parse_log([data], where=where)
    if not parsed.starts and not parsed.systemd:
        raise Failure(
            f"{where} holds no line of an Ollama server",
            hint="journalctl -u ollama --no-pager -o short-iso > FILE",
            id="no_log",
        )
    gone = Missing("unasked", "only a log was given")
    missing = dict.fromkeys(("service", "process", "effective", "runners", "loaded"), gone)
    start = parsed.starts[-1] if parsed.starts else None
    version = start.version if start and start.version else None
    return Facts(origin=f"log:{where}", log=parsed, start=start, version=version, missing=missing)
