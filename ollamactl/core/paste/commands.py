"""What commands print that people paste beside a log: `nvidia-smi`, `lsmod`, `ls -l /dev/…`, `id`, `free`, `df`, `ps`,
`docker inspect`, replies of the API, `ollama --version`, `systemctl is-enabled`.

Each reader takes the numbered lines that are no log and looks for its own form. What has a place among the facts
becomes a fact; the rest becomes a message, by the name that checks ask for.
"""

# ruff: noqa: E501 - a pattern is read more easily whole
from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

import msgspec

from ollamactl.core.facts import Gpu, GpuDriver, GpuProcess, HostMemory, InstalledModel, LoadedModel, LogEvent
from ollamactl.core.paste import client_config, compared, documents, outcomes, processes, screens
from ollamactl.core.paste.documents import Slots
from ollamactl.core.paste.screens import Lines

# what readers here say beside facts, to checks
KINDS = {
    "uvm_unlisted", "amdgpu_loaded", "kfd_group_foreign", "user_without_render", "disk_full", "two_servers",
    "port_published", "memory_limit", "runner_killed", "container_without_gpu", "unit_masked", "unit_disabled",
    "unit_inactive", "folder_closed", "lists_differ", "slots_busy", "connections_wait", "kfd_denied", processes.STOPPED, *compared.KINDS, *outcomes.KINDS, *client_config.KINDS,
}  # fmt: skip
MIB = 1 << 20

_SMI = re.compile(
    r"NVIDIA-SMI +(?P<smi>[\d.]+) +Driver Version: +(?P<driver>[\d.]+) +CUDA Version: +(?P<cuda>[\d.]+|N/A)"
)
_SMI_GPU = re.compile(
    r"\| +(?P<index>\d+) +(?P<name>[A-Z][\w /().-]+?)(?: +(?:On|Off|N/A))? +\| +(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+)"
)
_SMI_MEMORY = re.compile(r"\|\s+(?P<used>\d+)MiB / +(?P<total>\d+)MiB \|")
_SMI_PROCESS = re.compile(
    r"\| +(?P<gpu>\d+) +(?:\S+ +\S+ +)?(?P<pid>\d+) +[CGM+]+ +(?P<name>\S.*?) +(?P<used>\d+)MiB +\|"
)
_SMI_LIST = re.compile(r"GPU (?P<index>\d+): (?P<name>.+?) \(UUID: (?P<uuid>GPU-[0-9a-f-]+)\)")
_MODULE = re.compile(r"(?P<name>nvidia(?:_\w+)?|amdgpu)\s+\d{4,}\s+-?\d+(?:\s|$)")
_NODE = re.compile(
    r"c[rw-]{9}[+.@]?\s+(?:\d+\s+)?(?P<owner>\S+)\s+(?P<group>\S+)\s+(?:\d+,\s*\d+\s.*?)?(?P<path>/dev/\S+|kfd|renderD\d+|nvidia\S*)\s*$"
)
_ID = re.compile(
    r"(?:(?:uid=\d+\((?P<user>[\w.-]+)\).*|\bid (?P<asked>[\w.-]+): ?.*?)\bgroups=|(?:^|\bgroups(?: of)?:? )(?P<member>ollama) ?: )(?P<groups>\S.*)"
)
_KFD = re.compile(
    r"/dev/kfd:? +c[rw-]{6}---[+.@]? +(?:\d+ +)?\S+ +(?P<group>render|video)\b|c[rw-]{6}---[+.@]? +\d+ +\S+ +(?P<other>render|video)\b.* (?:/dev/)?kfd\s*$"
)
_FREE = re.compile(r"(?:Mem|Swap|Speicher|Mém)\w*\.?:\s+(?P<numbers>[\d.]+\w*(?:\s+[\d.]+\w*)+)")
_DF = re.compile(r"\S+\s+[\d.]+\w?\s+[\d.]+\w?\s+[\d.]+\w?\s+(?P<use>\d+)%\s+(?P<mount>/\S*)\s*$")
_SERVE = re.compile(r"(?P<user>[\w+.-]+)\s+(?P<pid>\d+)\s.*?(?P<exe>\S*ollama)(?:\.exe)? serve\s*$")
_VERSION = re.compile(
    r"\bollama version is (?P<version>\d+\.\d+\.\d+[\w.-]*)|^ollama,? version:? (?P<other>\d+\.\d+\.\d+[\w.-]*)", re.I
)
# the server's own end of a connection, in ss and in netstat
_ESTABLISHED = re.compile(
    r"^(?:\s*ESTAB\s+\d+\s+\d+|\s*tcp6?\s+\d+\s+\d+)\s+\S+:11434\s+\S+:\d+(?:\s+(?:ESTABLISHED|users:)|\s*$)"
)
MANY = 64  # connections that more than a few slots serve
_HOST_IP = re.compile(r"\"HostIp\": \"(?P<ip>[^\"]*)\"")
_HOST_PORT = re.compile(r"\"HostPort\": \"(?P<port>\d+)\"")


class Found(msgspec.Struct):
    """Facts and messages of the pasted commands; None where no command told it."""

    gpus: tuple[Gpu, ...] | None = None
    drivers: tuple[GpuDriver, ...] | None = None
    memory: HostMemory | None = None
    loaded: tuple[LoadedModel, ...] | None = None
    installed: tuple[InstalledModel, ...] | None = None
    slots: Slots | None = None
    version: str = ""
    messages: list[LogEvent] = []


def read(lines: Lines) -> Found:
    """Everything that commands tell in these lines (number, text)."""
    found = Found(messages=[])
    _nvidia_smi(lines, found)
    found.memory = _free(lines)
    _replies(lines, found)
    for kind, number, text in (*_devices(lines), *_disks(lines), *_servers(lines), *_containers(lines), *_units(lines), *_sockets(lines, found.slots),
                               *_folders(lines), *_lists(lines), *_stopped(lines), *compared.read(lines), *outcomes.read(lines), *client_config.read(lines)):  # fmt: skip
        found.messages.append(LogEvent(kind=kind, text=text.strip()[:400], line=number))
    return found


def _stopped(lines: Lines) -> Iterable[tuple[str, int, str]]:
    if seen := processes.stopped(lines):
        yield processes.STOPPED, *seen


def _nvidia_smi(lines: Lines, found: Found) -> None:
    gpus: dict[int, Gpu] = {}
    holders: dict[int, list[GpuProcess]] = {}
    last = -1
    for _, text in lines:
        if match := _SMI.search(text):
            gpus, holders = {}, {}  # the last of several tables counts
            found.drivers = (GpuDriver(vendor="nvidia", version=match["driver"], api=match["cuda"]),)
        elif match := _SMI_GPU.match(text.strip()):
            last = int(match["index"])
            gpus[last] = Gpu(index=last, vendor="nvidia", name=match["name"].strip(), pci=match["bus"])
        elif last in gpus and (match := _SMI_MEMORY.search(text)) and gpus[last].total is None:
            used, total = int(match["used"]) * MIB, int(match["total"]) * MIB
            gpus[last] = msgspec.structs.replace(gpus[last], used=used, total=total, free=total - used)
        elif match := _SMI_PROCESS.match(text.strip()):
            one = GpuProcess(pid=int(match["pid"][:9]), used=int(match["used"]) * MIB, name=match["name"])
            holders.setdefault(int(match["gpu"]), []).append(one)
        elif match := _SMI_LIST.search(text):
            index = int(match["index"])
            gpus.setdefault(index, Gpu(index=index, vendor="nvidia", name=match["name"], uuid=match["uuid"]))
    if gpus:
        found.gpus = tuple(
            msgspec.structs.replace(g, processes=tuple(holders.get(g.index, ()))) for g in gpus.values()
        )


def _free(lines: Lines) -> HostMemory | None:
    """`free` with or without -m, -g, -h: only with a unit, or where the header's kind of numbers can be told."""
    memory, swap = None, (0, 0)
    for _, text in lines:
        match = _FREE.match(text.strip())
        if match is None:
            continue
        sizes = [_amount(word) for word in match["numbers"].split()]
        if None in sizes or len(sizes) < 3:
            continue
        whole = [size for size in sizes if size is not None]
        if text.strip()[:4] == "Swap":
            swap = (whole[0], whole[2])
        elif len(whole) >= 6:
            memory = (whole[0], whole[5])
    if memory is None or memory[0] < 64 * MIB:
        return None
    return HostMemory(total=memory[0], available=memory[1], swap_total=swap[0], swap_free=swap[1])


def _amount(word: str) -> int | None:
    match = re.fullmatch(r"([\d.]+)(?:([KMGT])i?)?B?", word)
    if match is None or match[1].count(".") > 1 or match[1] == ".":
        return None
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}.get(match[2] or "", 0)
    number = float(match[1])
    if unit:
        return int(number * unit)
    # without -h: KiB, or MiB where the number is too small for that
    return int(number * (1 << 10)) if number > 4_000_000 else int(number * MIB)


def _replies(lines: Lines, found: Found) -> None:
    replies = documents.read(lines)
    found.loaded, found.installed, found.slots = replies.loaded, replies.installed, replies.slots
    told = [match["version"] or match["other"] for _, text in lines if (match := _VERSION.search(text))]
    found.version = replies.version or (told[-1] if told else "")


def _sockets(lines: Lines, slots: Slots | None) -> Iterable[tuple[str, int, str]]:
    """Connections to the server, where there are more than its slots serve."""
    clients = [(n, text) for n, text in lines if _ESTABLISHED.search(text)]
    if slots and slots.busy == slots.count:
        yield "slots_busy", slots.line, f"/slots: {slots.busy} of {slots.count} are at work"
    if clients and len(clients) > (slots.count if slots else MANY):
        yield "connections_wait", clients[0][0], f"{len(clients)} connections to port 11434: {clients[0][1].strip()}"


def _devices(lines: Lines) -> Iterable[tuple[str, int, str]]:
    modules = {m["name"]: n for n, text in lines if (m := _MODULE.match(text.strip()))}
    if "amdgpu" in modules:
        yield "amdgpu_loaded", modules["amdgpu"], "lsmod: amdgpu"
    if {"nvidia", "nvidia_modeset"} <= set(modules) and "nvidia_uvm" not in modules:
        yield "uvm_unlisted", modules["nvidia"], "lsmod: nvidia and no nvidia_uvm"
    nodes = [(n, m) for n, text in lines if (m := _NODE.match(text.strip()))]
    names = {m["path"].rsplit("/", 1)[-1] for _, m in nodes}
    if "nvidiactl" in names and "nvidia-uvm" not in names:
        yield "uvm_unlisted", nodes[0][0], "ls /dev: nvidiactl and no nvidia-uvm"
    for n, match in nodes:
        name = match["path"].rsplit("/", 1)[-1]
        if name == "kfd" and match["group"] in ("nobody", "nogroup", "65534", "daemon", "bin"):
            yield "kfd_group_foreign", n, match[0]
    for n, text in lines:
        who = _ID.search(text)
        if who is None or "ollama" not in (who["user"], who["asked"], who["member"]):
            continue
        if not re.search(r"\brender\b", who["groups"]):
            yield "user_without_render", n, text
        needed = next((m["group"] or m["other"] for _, row in lines if (m := _KFD.search(row))), "")
        if needed and not re.search(rf"\b{needed}\b", who["groups"]):
            yield "kfd_denied", n, f"/dev/kfd is for the group {needed}: {text.strip()}"


def _disks(lines: Lines) -> Iterable[tuple[str, int, str]]:
    for n, text in lines:
        match = _DF.match(text.strip())
        if match and int(match["use"]) >= 100 and not re.match(r"/(?:snap|boot|sys|proc|dev|run)\b", match["mount"]):
            yield "disk_full", n, text + ("  (/tmp)" if match["mount"].startswith("/tmp") else "")


def _servers(lines: Lines) -> Iterable[tuple[str, int, str]]:
    seen: dict[str, tuple[int, str, str]] = {}
    for n, text in lines:
        match = _SERVE.match(text.strip())
        if match and "grep" not in text:
            seen.setdefault(match["pid"], (n, match["user"], text))
    if len({user for _, user, _ in seen.values()}) > 1:
        for n, _, text in seen.values():
            yield "two_servers", n, text


def _containers(lines: Lines) -> Iterable[tuple[str, int, str]]:
    ip: str | None = None
    for n, text in lines:
        if match := _HOST_IP.search(text):
            ip = match["ip"]
        if (match := _HOST_PORT.search(text)) and ip is not None:
            if ip in ("", "0.0.0.0", "::"):
                yield "port_published", n, f'"HostIp": "{ip}", "HostPort": "{match["port"]}"'
            ip = None
        if match := re.search(r"^\s*\"Memory\": (\d{8,})", text):
            yield "memory_limit", n, text
        if re.search(r"\"OOMKilled\": true", text):
            yield "runner_killed", n, text
        if re.search(r"\"DeviceRequests\": (?:null|\[\])", text):
            yield "container_without_gpu", n, text


def _units(lines: Lines) -> Iterable[tuple[str, int, str]]:
    """The one word that `systemctl is-enabled` and its like print below their command."""
    command = ""
    for n, text in lines:
        if (asked := screens.prompt(text.rstrip())) is not None:
            command = asked
            continue
        word = text.strip()
        if not word:
            continue
        if re.search(r"systemctl (?:--user )?is-(?:enabled|active) \S*ollama", command):
            if word == "masked":
                yield "unit_masked", n, f"{command}: {word}"
            elif word in ("disabled", "inactive"):
                yield "unit_" + word, n, f"{command}: {word}"
        command = ""


_FOLDER = re.compile(
    r"d[rwxst-]{8}(?P<others>[xtTs-])[+.@]?\s+\d+\s+(?P<owner>\S+)\s+\S+\s+\d+\s.*?\s(?P<path>/\S*)\s*$"
)
_LISTED = re.compile(r"(?P<name>[\w./-]+:[\w.-]+)\s+[0-9a-f]{12}\s+[\d.]+ [KMGT]?B\s+\d+ \w+ ago")


def _folders(lines: Lines) -> Iterable[tuple[str, int, str]]:
    """Folders of `ls -ld` that only their owner may pass, and that owner is somebody other than the service's user."""
    for n, text in lines:
        match = _FOLDER.match(text.strip())
        if match and match["others"] in "-T" and match["owner"] != "ollama" and match["path"] != "/root":
            yield "folder_closed", n, text


def _lists(lines: Lines) -> Iterable[tuple[str, int, str]]:
    """Two `ollama list`, of which the later lacks models of the earlier though none was removed."""
    tables: list[tuple[int, set[str]]] = []
    for n, text in lines:
        if re.match(r"\s*NAME\s+ID\s+SIZE\s+MODIFIED", text):
            tables.append((n, set()))
        elif tables and (match := _LISTED.match(text.strip())):
            tables[-1][1].add(match["name"])
    if any(re.search(r"ollama (?:rm|cp)\b", text) for _, text in lines):
        return
    for (_, before), (n, after) in itertools.pairwise(tables):
        if len(before - after) >= 2:
            yield "lists_differ", n, f"ollama list: {', '.join(sorted(before - after)[:4])} no longer listed"
