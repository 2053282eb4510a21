"""The service of a lab machine: its files, and what systemd, the kernel and the journal have of it."""

from __future__ import annotations

from typing import Any

from .machine import Machine

DROPINS = "/etc/systemd/system/ollama.service.d"
OURS = f"{DROPINS}/zz-ollamactl.conf"


def dropin(machine: Machine, name: str, *lines: str) -> None:
    machine.write(f"{DROPINS}/{name}", "[Service]\n" + "".join(f"{line}\n" for line in lines))
    machine.run(["systemctl", "daemon-reload"])


def environ(machine: Machine) -> dict[str, str]:
    pid = machine.run(["systemctl", "show", "-P", "MainPID", "ollama"]).stdout.strip()
    raw = machine.run(["cat", f"/proc/{pid}/environ"]).stdout
    return dict(item.split("=", 1) for item in raw.split("\0") if "=" in item)


def server_config(machine: Machine) -> str:
    invocation = machine.run(["systemctl", "show", "-P", "InvocationID", "ollama"]).stdout.strip()
    found = machine.run(["journalctl", "-o", "cat", f"_SYSTEMD_INVOCATION_ID={invocation}", "--grep", "server config"])
    return found.stdout.splitlines()[0]


def invocation(machine: Machine) -> str:
    return machine.run(["systemctl", "show", "-P", "InvocationID", "ollama"]).stdout.strip()


def etc(machine: Machine) -> str:
    return machine.run(["bash", "-c", "find /etc -type f | sort | xargs sha256sum"]).stdout


def environ_without_ids(machine: Machine) -> dict[str, str]:
    gone = ("INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID")
    return {k: v for k, v in environ(machine).items() if k not in gone}


def ids(done: dict[str, Any]) -> list[str]:
    return [m["id"] for m in done["data"]["mismatches"]]
