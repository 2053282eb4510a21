"""What small programs of macOS print: sysctl, vm_stat, lsof, ps."""

from __future__ import annotations

import re

import msgspec

from ollamactl.core.facts import Listener

MiB = 1 << 20


def parse_sysctl(text: str) -> dict[str, str]:
    """`sysctl NAME…`: `hw.memsize: 17179869184`, a line each; names that are not known are not in it."""
    found = {}
    for line in text.splitlines():
        name, colon, value = line.partition(": ")
        if colon and re.fullmatch(r"[\w.-]+", name):
            found[name] = value.strip()
    return found


class Swap(msgspec.Struct, frozen=True):
    total: int
    used: int
    free: int


def parse_swap(value: str) -> Swap | None:
    """`vm.swapusage`: `total = 2048.00M  used = 100.25M  free = 1947.75M  (encrypted)`, as bytes."""
    units = {"B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    found = {}
    for name, number, unit in re.findall(r"(\w+) = (\d{1,12}(?:[.,]\d{1,6})?)([BKMGT])", value):
        found[name] = round(float(number.replace(",", ".")) * units[unit])
    if not {"total", "used", "free"} <= set(found):
        return None
    return Swap(found["total"], found["used"], found["free"])


def parse_vm_stat(text: str) -> dict[str, int]:
    """`vm_stat`: its rows in bytes, by name (`Pages free`, …), with the page size that its first line names."""
    head = re.search(r"page size of (\d{1,9}) bytes", text)
    if head is None:
        return {}
    size = int(head[1])
    rows = re.findall(r'^"?([^":\n]+)"?:\s+(\d{1,18})\.?\s*$', text, re.M)
    return {name.strip(): int(count) * size for name, count in rows}


def available(rows: dict[str, int]) -> int | None:
    """Bytes that programs can still take without swapping: free, inactive and speculative pages."""
    names = ("Pages free", "Pages inactive", "Pages speculative")
    return sum(rows.get(n, 0) for n in names) if names[0] in rows else None


def parse_lsof(text: str) -> tuple[Listener, ...]:
    """`lsof -nP +c0 -iTCP -sTCP:LISTEN -F pcn`: a `p` line a process, its `c`, and an `n` line a socket."""
    pid: int | None = None
    name = ""
    found: list[Listener] = []
    for line in text.splitlines():
        kind, value = line[:1], line[1:]
        if kind == "p":
            pid, name = (int(value) if value.isdigit() else None), ""
        elif kind == "c":
            name = value
        elif kind == "n":
            address, _, port = value.removesuffix(" (LISTEN)").rpartition(":")
            if port.isdigit():
                shown = {"*": "0.0.0.0"}.get(address, address.strip("[]"))
                one = Listener(address=shown, port=int(port), pid=pid, name=name)
                if one not in found:
                    found.append(one)
    return tuple(found)


def parse_ps_environment(line: str, argv: tuple[str, ...]) -> dict[str, str] | None:
    """`ps -Eww -p PID -o command=`: the command, then `NAME=value` words without quotes. Values with blanks can't be
    told apart safely: a word that is no assignment belongs to the value before it. None: no variable is in it, which
    means that they may not be read, not that there are none."""
    command = " ".join(argv)
    rest = line.strip()
    if command and rest.startswith(command):
        rest = rest[len(command) :]
    found: dict[str, str] = {}
    last = ""
    for word in rest.split(" "):
        name, equals, value = word.partition("=")
        if equals and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            found[name], last = value, name
        elif last:
            found[last] += f" {word}"
    return found or None
