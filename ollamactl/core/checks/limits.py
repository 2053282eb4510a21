"""What the unit's own limits and sandbox take from the server."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check, gib, in_force, stated
from ollamactl.core.checks.memory import OOM
from ollamactl.core.checks.service import LOOP
from ollamactl.core.facts import Effective, Facts, Service, UnitFile
from ollamactl.core.needs import Given, Signs

CORES = 1.0  # below that a model that runs on the CPU can hardly answer
# what ProtectSystem= makes read-only
PROTECTED = {"yes": ("/usr/", "/boot/"), "full": ("/usr/", "/boot/", "/etc/"), "strict": ("/",)}
FREE = ("/dev/", "/proc/", "/sys/")  # which strict leaves alone


@check(
    weight=76,
    explains=(
        "oom_killed",
        "runner_killed",
        "runner_crash_on_load",
        "load_oom",
        "ram_too_small",
        "service_restart_loop",
        "context_multiplied_by_parallel",
    ),
)
def memory_limit_below_need(
    signs: Signs, facts: Facts, service: Service | None = None, given: tuple[Given, ...] = ()
) -> Iterator[Finding]:
    """The unit's or container's memory limit is below what the model needs.

    Why: Ollama compares with the host's memory, never with MemoryMax=; the kernel then kills within the limit.
    Seen: MemoryMax= (or mem_limit) beside the kill or the refusal.
    Do: raise the limit, or shrink context × slots first.
    """
    limit = ""
    for file in facts.unit_files or ():
        for one in file.assignments:
            if one.key in ("MemoryMax", "MemoryHigh", "MemoryLimit") and one.value not in ("infinity", ""):
                limit = stated(file, one)
    if not limit and service is not None and service.memory_max:
        limit = f"systemctl show: MemoryMax={gib(service.memory_max)}"
    if not limit and signs.has("memory_limit"):
        limit = signs.lines("memory_limit")[-1]
    memcg = signs.matching("constraint_memcg", "memory cgroup out of memory")
    killed = signs.of("runner_killed", "unit:oom_killed", "kernel:oom_killed") + signs.matching(
        "oom-kill", kinds=("unit:failed",)
    )
    need = signs.of("ram_too_small") + signs.of(*OOM)
    if memcg or (limit and (killed or need)):
        yield Finding(
            "error",
            "a memory limit of the unit or container is below what the model needs",
            (limit, *signs.quotes([*memcg[-1:], *killed[-2:], *need[-2:]])),
            "sudo systemctl set-property ollama.service MemoryMax=infinity && sudo systemctl restart ollama",
        )
        return
    bytes_ = min((n for n in (service.memory_max, service.memory_high) if n), default=0) if service else 0
    smallest = min((m.size for m in facts.installed or () if m.size), default=0)
    if 0 < bytes_ < smallest:
        yield Finding(
            "warning",
            f"the service may use {gib(bytes_)} of memory, its smallest model has {gib(smallest)}",
            (limit or f"systemctl show: MemoryMax={gib(bytes_)}",),
            "sudo systemctl set-property ollama.service MemoryMax=infinity MemoryHigh=infinity",
        )


@check(weight=54)
def cpu_quota_low(unit_files: tuple[UnitFile, ...], service: Service) -> Iterator[Finding]:
    """The unit may use less than one CPU.

    Why: CPUQuota= below 100 % stops the server and its runners for a part of each tenth of a second: answers,
    loads and even the API are slow, with nothing in the log.
    Seen: CPUQuota= of the unit.
    Do: take it out, or give it as many times 100 % as it may use CPUs.
    """
    for file, one in in_force(unit_files, "CPUQuota")[-1:]:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)%", one.value.strip())
        if found and float(found[1]) < CORES * 100:
            yield Finding(
                "warning",
                f"the service may use {one.value} of one CPU: everything it does is slow",
                (stated(file, one),),
                f"sudoedit {file.path} && sudo systemctl daemon-reload && sudo systemctl restart {service.id}"
                "    # no CPUQuota=, or 100% for each CPU that it may use",
            )


@check(weight=61)
def sandbox_makes_models_read_only(facts: Facts, service: Service, effective: Effective) -> Iterator[Finding]:
    """ProtectSystem= makes the models folder read-only for the service.

    Why: it mounts /usr (full: /etc too, strict: all) read-only for the service; the installer's home is below /usr.
    What is there is served, but no pull, no new key and no start with an empty home can work.
    Seen: ProtectSystem=, the folder, and no ReadWritePaths= that names it.
    Do: ReadWritePaths= with the home in a drop-in.
    """
    folder = effective.value("OLLAMA_MODELS") or posixpath.join(effective.value("HOME") or "", ".ollama")
    covered = PROTECTED.get(service.protect_system, ())
    if not folder.startswith("/") or not f"{folder}/".startswith(covered) or folder.startswith(FREE):
        return
    files = facts.unit_files or ()
    for key in ("ReadWritePaths", "BindPaths", "StateDirectory"):
        for _, one in in_force(files, key):
            names = [f"/var/lib/{w}" if key == "StateDirectory" else w.lstrip("-+") for w in one.value.split()]
            if any(f"{folder}/".startswith(name.split(":")[-1].rstrip("/") + "/") for name in names):
                return
    lines = [stated(f, one) for f, one in in_force(files, "ProtectSystem")[-1:]]
    yield Finding(
        "warning",
        f"ProtectSystem={service.protect_system} makes {folder} read-only for the service: nothing can be pulled",
        (*lines, f"models: {folder}"),
        f"sudo systemctl edit {service.id}    # [Service] ReadWritePaths={folder}",
    )


@check(weight=73, explains=(*LOOP, "server_not_reachable"))
def sandbox_blocks_network(service: Service, unit_files: tuple[UnitFile, ...]) -> Iterator[Finding]:
    """The unit's sandbox keeps clients from the server.

    Why: PrivateNetwork= gives it a loopback of its own, IPAddressDeny=any drops every packet, and an address family
    that RestrictAddressFamilies= does not name can't be listened on; the server knows of none of them.
    Seen: the setting.
    Do: take it out, or allow what is needed: IPAddressAllow=localhost, AF_INET AF_INET6.
    """
    denied = in_force(unit_files, "IPAddressDeny")
    families = " ".join(one.value for _, one in in_force(unit_files, "RestrictAddressFamilies"))
    closed = [(file, one) for file, one in in_force(unit_files, "PrivateNetwork")[-1:] if service.private_network]
    allowed = in_force(unit_files, "IPAddressAllow")
    closed += [pair for pair in denied if "any" in pair[1].value.split() and not allowed]
    if families and not families.startswith("~") and not re.search(r"\bAF_INET6?\b", families):
        closed += in_force(unit_files, "RestrictAddressFamilies")
    if closed:
        lines = [stated(file, one) for file, one in closed]
        places = " ".join(dict.fromkeys(file.path for file, _ in closed))
        yield Finding(
            "warning" if service.main_pid else "error",
            f"{closed[0][1].key}={closed[0][1].value} keeps clients from the server",
            tuple(lines),
            f"sudoedit {places} && sudo systemctl daemon-reload && sudo systemctl restart {service.id}",
        )
