"""`--from`: a bundle, a folder of collected output, or pasted text, instead of this host."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from ollamactl.cli.folder import is_collection, join
from ollamactl.core import pasted
from ollamactl.core.facts import Facts
from ollamactl.core.source import Host
from ollamactl.errors import Exit, Failure
from ollamactl.host.live import LiveHost


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
        return Opened(LiveHost(), "log:standard input", _stream_facts(sys.stdin.buffer, "standard input"))
    path = Path(source)
    try:
        if is_collection(path):
            return Opened(LiveHost(), f"folder:{path.name}", text_facts(join(path).text, source))
        if path.is_dir():
            return _bundle(path)
        with path.open("rb") as f:
            head = f.read(4)
            if head[:2] == b"\x1f\x8b" or head[:4] == b"PK\x03\x04":
                return _bundle(path)
            if os.fstat(f.fileno()).st_size > pasted.SMALL:
                f.seek(0)
                long = pasted.facts_of_long(_chunks(f), source)
                return Opened(LiveHost(), f"log:{path.name}", _needed(long, source))
            return Opened(LiveHost(), f"log:{path.name}", _stream_facts(f, source, head))
    except OSError as error:
        raise Failure(f"{source}: {error.strerror}", code=Exit.USAGE, id="usage") from None


def _bundle(path: Path) -> Opened:
    from ollamactl.host.bundle import Replay

    return Opened(Replay(str(path)), f"bundle:{path.name}")


def text_facts(data: bytes, where: str) -> Facts:
    """Facts of a pasted text: logs in whatever form, `ollama ps`, unit files, `systemctl` output, words of clients."""
    return _needed(pasted.facts_of(data, where), where)


def _stream_facts(file: BinaryIO, where: str, head: bytes = b"") -> Facts:
    """Of what has no size beforehand: looked through as a whole where it is small, else in one pass as a log."""
    head += file.read(pasted.SMALL + 1 - len(head))
    if len(head) <= pasted.SMALL:
        return text_facts(head, where)
    return _needed(pasted.facts_of_long(itertools.chain((head,), _chunks(file)), where), where)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: file.read(1 << 18), b"")


def _needed(found: Facts | None, where: str) -> Facts:
    if found is None:
        raise Failure(
            f"{where} holds no line of an Ollama server",
            hint="journalctl -u ollama --no-pager -o short-iso > FILE",
            id="no_log",
        )
    return found
