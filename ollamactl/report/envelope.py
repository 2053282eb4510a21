"""The JSON envelope: one document, alone on standard output."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from ollamactl.errors import Exit, Failure

STATUS = {
    Exit.OK: "ok",
    Exit.FINDINGS: "findings",
    Exit.USAGE: "usage",
    Exit.RESTORED: "restored",
    Exit.NOT_RESTORED: "not-restored",
    Exit.UNSEEN: "unseen",
    Exit.REFUSED: "refused",
}
OPEN = ""  # what is said of a change that is open; only then the envelope has it


def envelope(command: str, code: int, data: Any, failures: list[Failure] | None = None, status: str = "") -> bytes:
    """`{"schema": 1, "command", "status", "exit_code", "data", "errors"}`."""
    errors = [{"id": f.id, "text": f.text, "hint": f.hint} for f in failures or []]
    document = {
        "schema": 1,
        "command": command,
        "status": status or STATUS[Exit(code)],
        "exit_code": int(code),
        "data": data,
        "errors": errors,
    } | ({"open_transaction": OPEN} if OPEN else {})
    return msgspec.json.format(msgspec.json.encode(document, enc_hook=_other), indent=2) + b"\n"


def _other(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def write(document: bytes) -> None:
    if sys.stdout is not None:  # None: started with the output closed
        sys.stdout.buffer.write(document)
        sys.stdout.buffer.flush()
