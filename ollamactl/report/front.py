"""What an installed front is, and how its installation ended."""

from __future__ import annotations

from typing import Any

import msgspec

from ollamactl.errors import Exit, Failure
from ollamactl.host.apply import Result
from ollamactl.host.nginxd import CONF
from ollamactl.platforms.nginx import Front
from ollamactl.report import envelope
from ollamactl.report.screens import CODES, Apply


def opening(screen: Apply, front: Front) -> None:
    if screen.quiet:
        return
    out = screen.out
    served = f"{front.slots} served at once, {front.queue} may wait, {front.per_client} of one client"
    scheme = "https" if front.certificate else "http"
    out.wrap(f"{scheme}://{front.listen} → {front.upstream} · {served} · auth: {front.auth}", hang=2)
    out.line()


def end(screen: Apply, front: Front, result: Result, as_json: bool) -> int:
    """Shows how it ended; the exit code."""
    return _end(screen, result, as_json, {"front": msgspec.to_builtins(front)}, "Installed", who(front))


def rolled_back(screen: Apply, result: Result, as_json: bool) -> int:
    return _end(screen, result, as_json, {}, "The front is as it was before", "")


def _end(screen: Apply, result: Result, as_json: bool, data: dict[str, Any], done: str, after: str) -> int:
    code = CODES[result.status]
    if as_json:
        data |= {
            "kind": "nginx",
            "files": [CONF],
            "steps": screen.steps,
            "notes": screen.notes,
            "history": result.entry,
            "conflicts": [*result.conflicts, *result.problems],
            "commands": list(result.commands),
            "seconds": result.seconds,
        }
        failures = [Failure(m.text, hint=m.fix, id=m.id) for m in result.mismatches]
        envelope.write(envelope.envelope(screen.command, code, data, failures, result.status))
        return code
    out = screen.out
    if result.status == "unchanged":
        return code
    out.line()
    if code == Exit.OK:
        out.line(f"{done} and proven. To undo: sudo ollamactl rollback")
        if after:
            out.wrap(after)
    elif code == Exit.RESTORED:
        out.line(f"Not done; the host is as it was.{'':<22}(exit 3)")
    else:
        screen.left(result)
        out.line("Not done, and the host could not be put back wholly.   (exit 4)")
    return code


def who(front: Front) -> str:
    """How a client comes in."""
    scheme = "https" if front.certificate else "http"
    if front.auth == "keys":
        return (f"Clients send `Authorization: Bearer KEY`; keys are in {front.keys_file} (sudo cat), "
                f"a new one counts after: sudo systemctl reload nginx")  # fmt: skip
    if front.auth == "basic":
        return f"Clients log in with a name and password of {front.users_file}"
    return f"Everyone who reaches {scheme}://{front.listen} may use it"
