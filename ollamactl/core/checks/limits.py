"""What the unit's own limits take from the server."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check, gib, in_force, stated
from ollamactl.core.checks.memory import OOM
from ollamactl.core.checks.service import LOOP
from ollamactl.core.facts import Facts, Service, UnitFile
from ollamactl.core.needs import NO_SIGNS, Gone, Signs
from ollamactl.core.remedies import edited

CORES = 1.0  # below that a model that runs on the CPU can hardly answer
FEW = 4  # of so many CPUs of the host one
MEMORY = ("MemoryMax", "MemoryHigh", "MemoryLimit", "LimitAS", "LimitDATA")


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
def memory_limit_below_need(signs: Signs, facts: Facts, service: Service | None = None) -> Iterator[Finding]:
    """The unit's or container's memory limit is below what the model needs.

    Why: Ollama compares with the host's memory, never with MemoryMax=; the kernel then kills within the limit.
    Seen: MemoryMax= (or mem_limit) beside the kill or the refusal.
    Do: raise the limit, or shrink context × slots first.
    """
    lines, fix = _limits(facts, service.id if service else "ollama.service")
    if not lines and service is not None and service.memory_max:
        lines = (f"systemctl show: MemoryMax={gib(service.memory_max)}",)
    lines = lines or signs.lines("memory_limit", most=1)
    memcg = signs.matching("constraint_memcg", "memory cgroup out of memory")
    killed = signs.of("runner_killed", "unit:oom_killed", "kernel:oom_killed") + signs.matching(
        "oom-kill", kinds=("unit:failed",)
    )
    need = signs.of("ram_too_small", "limit_too_low") + signs.of(*OOM)
    if memcg or (lines and (killed or need)):
        yield Finding(
            "error",
            "a memory limit of the unit or container is below what the model needs",
            (*lines, *signs.quotes([*memcg[-1:], *killed[-2:], *need[-2:]])),
            fix,
        )
        return
    bytes_ = min((n for n in (service.memory_max, service.memory_high) if n), default=0) if service else 0
    who, needs = _neediest(facts)
    if 0 < bytes_ < needs:
        said = f"the service may use {gib(bytes_)} of memory, {who} {gib(needs)}"
        yield Finding("warning", said, lines or (f"systemctl show: MemoryHigh={gib(bytes_)}",), fix)
        return
    for one in facts.slices or ():
        most = min((n for n in (one.memory_max, one.memory_high) if n), default=0)
        if 0 < most < needs:
            said = f"all that runs in {one.name} may use {gib(most)} of memory together, {who} {gib(needs)}"
            key = "MemoryMax" if most == one.memory_max else "MemoryHigh"
            shown = f"systemctl show {one.name}: {key}={gib(most)}"
            fix = f"sudo systemctl set-property {one.name} MemoryMax=infinity MemoryHigh=infinity"
            yield Finding("warning", said, (shown,), fix)
            return


def _limits(facts: Facts, unit: str) -> tuple[tuple[str, ...], str]:
    """The lines of the unit's files that limit memory, and what takes the limit away."""
    found = [
        (file, one)
        for key in MEMORY
        for file, one in in_force(facts.unit_files or (), key)[-1:]
        if one.value.strip() != "infinity"
    ]
    if any(one.key.startswith("Limit") for _, one in found):  # which no running unit can be given
        fix = edited(*(file.path for file, _ in found), unit=unit)
    else:
        fix = f"sudo systemctl set-property {unit} MemoryMax=infinity MemoryHigh=infinity"
        fix += f" && sudo systemctl restart {unit}"
    return tuple(stated(file, one) for file, one in found), fix


def _neediest(facts: Facts) -> tuple[str, int]:
    """Bytes of host memory that a model needs, and whose they are: of those that were loaded the largest; where none
    was, on a host without a GPU, the largest that is installed, else the smallest: it may lie on the GPU."""
    loads = [x for x in (facts.start.loads if facts.start else ()) if x.outcome != "aborted"]
    held = [sum(b.bytes for b in x.buffers if b.device.startswith("CPU") or b.device.endswith("_Host")) for x in loads]
    if max(held, default=0):
        return "a model that was loaded needs", max(held)
    if on_host := [m.size - m.size_vram for m in facts.loaded or () if m.size > m.size_vram]:
        return "a loaded model needs", max(on_host)
    models = sorted((m for m in facts.installed or () if m.size), key=lambda m: m.size)
    if not models:
        return "", 0
    one = models[-1] if facts.gpus == () else models[0]
    return f"its {'largest' if one is models[-1] else 'smallest'} model ({one.name}) has", one.size


def _cpus(text: str) -> int:
    """How many CPUs a list of numbers and ranges names: "0 2-3" and "0,2-3" are three. 0 where it is none."""
    count = 0
    for word in re.split(r"[\s,]+", text.strip()):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", word)
        if not found:
            return 0
        count += int(found[2] or found[1]) - int(found[1]) + 1
    return count


@check(weight=54, explains=("api_answers_nothing",))
def cpu_quota_low(
    facts: Facts,
    unit_files: tuple[UnitFile, ...] = (),
    service: Service | None = None,
    signs: Signs = NO_SIGNS,
) -> Iterator[Finding]:
    """The unit may use hardly any of the host's CPUs.

    Why: CPUQuota= below 100 % stops the server and its runners for a part of each tenth of a second, CPUAffinity= and
    AllowedCPUs= keep all their threads on a few CPUs: answers, loads and even the API are slow, with nothing in the
    log.
    Seen: CPUQuota=, CPUAffinity= or AllowedCPUs= of the unit beside the host's CPUs.
    Do: take it out, or give it as many CPUs as it may use (100 % each).
    """
    if told := _throttled(signs):
        said = "the engine has more threads than CPUs that it may use: they are stopped and wait for one another"
        fix = "a higher limit of CPUs, or PARAMETER num_thread with as many as it has"
        yield Finding("warning", said, told, fix)
        return
    if service is None:
        raise Gone(facts.why("service"), "service")
    host = facts.system.cpus if facts.system else 0
    for key in ("CPUQuota", "CPUAffinity", "AllowedCPUs"):
        for file, one in in_force(unit_files, key)[-1:]:
            percent = re.fullmatch(r"(\d+(?:\.\d+)?)%", one.value.strip())
            cpus = float(percent[1]) / 100 if percent else float(_cpus(one.value) if key != "CPUQuota" else 0)
            if not _few(cpus, host):
                continue
            of = f" of {host}" if host else ""
            yield Finding(
                "warning",
                f"the service may use {one.value + ' of one CPU' if cpus < CORES else f'{cpus:g}{of} CPUs'}: "
                "everything it does is slow",
                (stated(file, one),),
                edited(file.path, unit=service.id)
                + f"    # no {key}="
                + (", or 100% for each CPU that it may use" if percent else ""),
            )
    for above in facts.slices or ():
        if above.cpus is not None and _few(above.cpus, host):
            share = f"{above.cpus:.0%} of one CPU" if above.cpus < CORES else f"{above.cpus:g} CPUs"
            yield Finding(
                "warning",
                f"all that runs in {above.name} may use {share} together: everything the service does is slow",
                (f"systemctl show {above.name}: CPUQuota={above.cpus:.0%}",),
                f"sudo systemctl set-property {above.name} CPUQuota=    # or 100% for each CPU that it may use",
            )


def _throttled(signs: Signs) -> tuple[str, ...]:
    """What tells that a limit of CPUs stops the engine's threads: the kernel's counts, or both numbers."""

    def number(kind: str) -> float:
        return next((float(v) for e in reversed(signs.of(kind)) for v in e.fields.values() if v), 0.0)

    stopped, of = number("cpu_throttled"), number("cpu_periods")
    threads, cpus = number("threads_told"), number("cpu_limit")
    if (of and stopped >= OFTEN * of) or (cpus and threads > cpus + 1):
        return signs.lines("cpu_throttled", "cpu_limit", "threads_told", most=4)
    return ()


def _few(cpus: float, host: int) -> bool:
    """Whether that is hardly any of the host's CPUs; 0 of either is not known."""
    return bool(cpus) and (cpus < CORES or (cpus == 1 < host) or cpus * FEW <= host)


OFTEN = 0.1  # share of the kernel's periods in which the threads were stopped
_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# a limit -> what the server and its runners need at least, and what they cannot do below it
LEAST: dict[str, tuple[int, str]] = {
    "LimitNOFILE": (1024, "connections, models and runners need more open files"),
    "TasksMax": (64, "the server and its runners need more threads"),
    "LimitNPROC": (64, "the server and its runners need more threads"),
    "LimitFSIZE": (1 << 30, "a model's file may be no larger, so that pulls break off"),
    "LimitCPU": (86400, "the kernel kills what has used so much time of a CPU"),
}


def _number(text: str) -> int | None:
    """A limit's value: the hard one of `soft:hard`, to which the server raises itself. None for none, or a share."""
    found = re.fullmatch(r"(\d+)\s*([KMGT]?)(?:i?B)?", text.rsplit(":", 1)[-1].strip())
    return int(found[1]) * _SIZES[found[2]] if found else None


@check(weight=56, explains=(*LOOP, "execstart_203_exec", "exec_path_missing", "runner_crash_on_load"))
def resource_limit_low(
    unit_files: tuple[UnitFile, ...], service: Service, signs: Signs = NO_SIGNS
) -> Iterator[Finding]:
    """A limit of the unit is below what the server needs.

    Why: LimitNOFILE=, TasksMax=, LimitNPROC= and the like hold for the server and each of its runners; where one is
    reached, requests, loads or the start itself fail with words that do not name it.
    Seen: the setting; "too many open files", "resource temporarily unavailable".
    Do: take it out.
    """
    lines = signs.lines("too_many_files") + signs.quotes(signs.matching("temporarily unavailable"), 1)
    for key, (least, why) in LEAST.items():
        for file, one in in_force(unit_files, key)[-1:]:
            value = _number(one.value)
            if value is not None and value < least:
                yield Finding(
                    "warning" if service.main_pid else "error",
                    f"{key}={one.value}: {why}",
                    (stated(file, one), *lines),
                    edited(file.path, unit=service.id) + f"    # no {key}=",
                )


# a setting that puts the server behind others, or has the kernel choose it first -> from which value on
BEHIND = {"Nice": 10, "OOMScoreAdjust": 500}
IDLE = {"CPUSchedulingPolicy": ("idle", "batch"), "IOSchedulingClass": ("idle", "3"), "CPUWeight": ("idle", "1")}


@check(weight=30)
def service_behind_others(unit_files: tuple[UnitFile, ...], service: Service) -> Iterator[Finding]:
    """The unit puts the server behind everything else on the host.

    Why: Nice=, an idle scheduling class or a small weight let it wait while others work; a high OOMScoreAdjust= has
    the kernel kill it first. That may be meant.
    Seen: the settings.
    Do: take them out where answers shall be fast.
    """
    found = [
        (file, one)
        for key in (*BEHIND, *IDLE)
        for file, one in in_force(unit_files, key)[-1:]
        if one.value.strip().lower() in IDLE.get(key, ())
        or (key in BEHIND and re.fullmatch(r"\d+", one.value.strip()) and int(one.value) >= BEHIND[key])
    ]
    if found:
        names = ", ".join(f"{one.key}={one.value}" for _, one in found)
        yield Finding(
            "info",
            f"the server stands behind other programs by {names}",
            tuple(stated(file, one) for file, one in found),
            edited(*(file.path for file, _ in found), unit=service.id),
        )
