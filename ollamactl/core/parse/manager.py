"""Lines of systemd (PID 1 or the user's manager) and of the kernel around the server.

    ollama.service: Main process exited, code=exited, status=1/FAILURE
    /etc/systemd/system/ollama.service.d/override.conf:1: Assignment outside of section. Ignoring.
    Out of memory: Killed process 2211 (llama-server) total-vm:…
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from ollamactl.core.facts import Complaint


class Row(NamedTuple):
    kind: str
    needle: str
    pattern: str = ""
    ends: bool = False  # the main process is gone
    begins: bool = False


ROWS: tuple[Row, ...] = (
    Row("main_exited", "Main process exited", r"code=(?P<code>\w+), status=(?P<status>\S+)", ends=True),
    Row("main_exited", "main process exited", r"code=(?P<code>\w+), status=(?P<status>\S+)", ends=True),  # to 229
    Row("control_exited", "Control process exited", r"code=(?P<code>\w+), status=(?P<status>\S+)"),
    Row("failed", "Failed with result", r"result '(?P<result>[\w-]+)'", ends=True),
    Row("restart_scheduled", "Scheduled restart job", r"counter is at (?P<counter>\d+)", ends=True),
    Row("restart_scheduled", "holdoff time over, scheduling restart", ends=True),  # systemd to 229
    Row("failed", "entered failed state", ends=True),
    Row("start_limit", "Start request repeated too quickly", ends=True),
    Row("start_limit", "start request repeated too quickly", ends=True),
    Row("start_limit", "Failed with result 'start-limit-hit'", ends=True),
    Row("exec_failed", "Failed at step ", r"at step (?P<step>\w+) spawning (?P<program>[^:]*)(?:: (?P<why>.*))?"),
    Row("exec_missing", "Unable to locate executable", r"executable '(?P<program>[^']*)': (?P<why>.*)"),
    Row("exec_missing", "Failed to locate executable", r"executable (?P<program>\S+): (?P<why>.*)"),
    Row("exec_missing", "Failed to execute", r"Failed to execute (?P<program>.*?): (?P<why>.*)"),
    Row("environment_file_failed", "Failed to load environment files", r"files: (?P<why>.*)"),
    Row("oom_killed", "has been killed by the OOM killer"),
    Row("oom_killed", "systemd-oomd killed"),
    Row("timeout", "timed out. ", r"(?P<what>.*) timed out"),
    Row("runtime_limit", "reached runtime time limit"),
    Row("watchdog", "Watchdog timeout", ends=True),
    Row("killing", "Killing process", r"process (?P<pid>\d+) \((?P<name>[^)]*)\) with signal (?P<signal>\S+?)\.?$"),
    Row("left_over", "Found left-over process", r"process (?P<pid>\d+) \((?P<name>[^)]*)\)"),
    Row("consumed", "Consumed ", r"Consumed (?P<cpu>.*?) CPU time(?:.*?(?P<memory>[\d.]+[KMGT]) memory peak)?"),
    Row("masked", "is masked"),
    Row("dependency_failed", "Dependency failed for"),
    Row("ordering_cycle", "ordering cycle"),
    Row("condition_failed", "was skipped because", r"\((?P<what>(?:Condition|Assert)\w+=[^)]*)\)"),
    Row("condition_failed", "Condition check resulted in"),
    Row("condition_failed", "requested but asserts failed"),
    Row("condition_failed", "Assertion failed for"),
    Row("stopping", "Stopping ", begins=False),
    Row("deactivated", "Deactivated successfully", ends=True),
    Row("deactivated", ": Succeeded.", ends=True),
    Row("stopped", "Stopped ", ends=True),
    Row("starting", "Starting ", begins=True),
    Row("started", "Started ", begins=True),
)
_KILLED = r"Killed process (?P<pid>\d+)[, ]+\(?(?P<name>[^),]*)\)?"
KERNEL: tuple[Row, ...] = (
    Row("oom_killed", "Killed process ", _KILLED + r".*?anon-rss:(?P<anon_kb>\d+)kB"),
    Row("oom_killed", "Killed process ", _KILLED),
    Row("oom_report", "oom-kill:constraint=",
        r"constraint=(?P<constraint>\w+).*?(?:task_memcg=(?P<cgroup>[^,]*),)?task=(?P<name>[^,]*),pid=(?P<pid>\d+)"),
    Row("oom_invoked", "invoked oom-killer", r"(?P<name>\S+) invoked oom-killer"),
    Row("gpu_xid", "NVRM: Xid", r"Xid \((?P<device>[^)]*)\): (?P<code>\d+)"),
    Row("gpu_lost", "GPU has fallen off the bus"),
    Row("gpu_lost", "RmInitAdapter failed"),
    Row("gpu_lost", "requires use of the NVIDIA open kernel modules"),
    Row("gpu_lost", "device lost from bus"),  # amdgpu
    Row("driver_mismatch", "API mismatch", r"client has the version (?P<client>[\d.]+)"),
    Row("segfault", "segfault at", r"(?P<name>\S+)\[(?P<pid>\d+)\]: segfault"),
    Row("suspend", "PM: suspend"),
    Row("suspend", "PM: hibernation"),
    Row("gpu_reset", "amdgpu: GPU reset"),
    Row("gpu_reset", "push to a killed entity"),  # amdgpu
    Row("gpu_reset", "timeout, signaled seq", r"ring (?P<ring>\S+) timeout, signaled seq"),  # amdgpu
    Row("gpu_reset", "GPU HANG"),  # i915, xe
    Row("gpu_reset", "retry page fault"),  # amdgpu
    Row("illegal_instruction", "trap invalid opcode", r"(?P<name>\S+)\[(?P<pid>\d+)\] trap invalid opcode"),
)  # fmt: skip
_pattern = cache(re.compile)  # when first needed: most logs need few of them
_COMPLAINT = re.compile(r"\[?(/[^\s:\]]+\.(?:service|conf|slice|target)):(\d+)\]?:? (.+)", re.S)
_UNIT_COMPLAINT = re.compile(
    r"(\S+\.service): .*(?:[Ii]gnoring|[Ii]nvalid|[Uu]nknown|not absolute|bad unit file|Refusing)"
)


def read_manager(text: str, kernel: bool = False) -> tuple[Row, dict[str, str]] | None:
    """The row that a line of systemd (or of the kernel) is of, and its fields."""
    for row in KERNEL if kernel else ROWS:
        if row.needle not in text:
            continue
        found = _pattern(row.pattern).search(text) if row.pattern else None
        if row.pattern and found is None and row in KERNEL:
            continue
        return row, {name: value for name, value in (found.groupdict() if found else {}).items() if value}
    return None


def read_complaint(text: str, at: float | None = None) -> Complaint | None:
    """A line of systemd about a unit's file (with file and line), or about the unit's settings; else None."""
    found = _COMPLAINT.fullmatch(text.strip())
    if found is not None:
        return Complaint(text=text.strip(), file=found[1], line=int(found[2][:9]), at=at)
    if _UNIT_COMPLAINT.match(text.strip()):
        return Complaint(text=text.strip(), at=at)
    return None
