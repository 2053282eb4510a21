"""NVIDIA's own library through nvidia-ml-py, as JSON for `core.parse.nvml`. What a device does not support is None."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ollamactl.core.source import Missing

PROC = "/proc/driver/nvidia"
WSL = "/usr/lib/wsl/lib/libnvidia-ml.so.1"  # Windows's driver brings it, and it is not always on the linker's path
_NO_LIBRARY = "no libnvidia-ml.so.1"


def read() -> tuple[bytes | None, Missing | None]:
    """The body, and why NVML does not answer. Beside such a reason the body holds what the kernel's driver says of
    itself in /proc/driver/nvidia, or is None where there is no such driver.

    Body: `{"driver", "cuda", "nvml", "gpus": [gpu…], "problem", "proc": {"version", "gpus": [{key: value}…]}}`; a gpu
    is `{"index", "name", "uuid", "pci", "memory": {"total", "free", "used", "reserved"} | null, "compute": [major,
    minor] | null, "mig": bool | null, "slices": [like gpu], "processes": [{"pid", "used", "name"}] | null,
    "said": {what was asked: NVML's words}}`. Sizes in bytes.
    """
    if _no_library():
        return _without(Missing("absent", _NO_LIBRARY))
    try:
        import pynvml
    except ImportError:
        return _without(Missing("absent", "the Python package nvidia-ml-py is not installed"))
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _without(_why(pynvml, error))
    try:
        said: dict[str, str] = {}
        ask = _asker(pynvml, said)
        body = {
            "driver": ask("driver", pynvml.nvmlSystemGetDriverVersion),
            "cuda": ask("cuda", pynvml.nvmlSystemGetCudaDriverVersion),
            "nvml": ask("nvml", pynvml.nvmlSystemGetNVMLVersion),
            "gpus": [_gpu(pynvml, index) for index in range(ask("count", pynvml.nvmlDeviceGetCount) or 0)],
            "said": said,
        }
    finally:
        pynvml.nvmlShutdown()
    return json.dumps(body).encode(), None


def _no_library() -> bool:
    """Most hosts have no NVIDIA driver: one look, and pynvml (8,000 lines) need not be imported to say so."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    for library in ("libnvidia-ml.so.1", WSL):  # once opened by its path it is the one that its name means
        with contextlib.suppress(OSError):
            ctypes.CDLL(library)
            return False
    return True


def _why(pynvml: Any, error: Exception) -> Missing:
    code = getattr(error, "value", None)
    words = _words(pynvml, error)
    if code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return Missing("absent", _NO_LIBRARY)
    if code == pynvml.NVML_ERROR_NO_PERMISSION:
        return Missing("denied", f"NVML: {words}", "sudo shows it" if os.geteuid() else "")
    return Missing("failed", f"NVML: {words}")


def _words(pynvml: Any, error: Exception) -> str:
    """The library's own words, which nvidia-smi prints too; pynvml's differ for some errors."""
    try:
        return _word(pynvml.nvmlErrorString(getattr(error, "value", -1)))
    except pynvml.NVMLError:
        return str(error)


def _without(missing: Missing) -> tuple[bytes | None, Missing]:
    proc = _proc()
    if proc is None:
        return None, missing
    body = {"gpus": [], "problem": missing.detail, "proc": proc}
    if missing.kind == "absent":  # a driver without its library is a fault, not an absence
        missing = Missing("failed", f"{missing.detail}, though the kernel has NVIDIA's driver")
    return json.dumps(body).encode(), missing


def _asker(pynvml: Any, said: dict[str, str]) -> Callable[..., Any]:
    """Calls NVML; a refusal is None, and its words go to `said`."""

    def ask(what: str, function: Callable[..., Any], *args: Any) -> Any:
        try:
            answer = function(*args)
        except pynvml.NVMLError as error:
            said[what] = _words(pynvml, error)
            return None
        return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer

    return ask


def _gpu(pynvml: Any, index: int) -> dict[str, Any]:
    said: dict[str, str] = {}
    ask = _asker(pynvml, said)
    handle = ask("handle", pynvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return {"index": index, "said": said}
    device = _device(pynvml, ask, index, handle)
    pci = ask("pci", pynvml.nvmlDeviceGetPciInfo, handle)
    mig = ask("mig", pynvml.nvmlDeviceGetMigMode, handle)
    slices = []
    if mig and mig[0]:
        for number in range(ask("mig_count", pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
            try:
                inner = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            except pynvml.NVMLError:
                continue  # places are numbered, most are empty
            words: dict[str, str] = {}
            slices.append(_device(pynvml, _asker(pynvml, words), number, inner) | {"said": words})
    return device | {
        "pci": _word(pci.busId) if pci else "",
        "compute": ask("compute", pynvml.nvmlDeviceGetCudaComputeCapability, handle),
        "mig": bool(mig[0]) if mig else None,
        "slices": slices,
        "said": said,
    }


def _device(pynvml: Any, ask: Callable[..., Any], index: int, handle: Any) -> dict[str, Any]:
    # The second version tells what the driver keeps for itself; drivers before 510 have only the first.
    memory = ask("memory_v2", pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    if memory is None:
        memory = ask("memory", pynvml.nvmlDeviceGetMemoryInfo, handle)
    return {
        "index": index,
        "name": ask("name", pynvml.nvmlDeviceGetName, handle) or "",
        "uuid": ask("uuid", pynvml.nvmlDeviceGetUUID, handle) or "",
        "memory": memory
        and {
            "total": memory.total,
            "free": memory.free,
            "used": memory.used,
            "reserved": getattr(memory, "reserved", None),
        },
        "processes": _processes(pynvml, ask, handle),
    }


def _processes(pynvml: Any, ask: Callable[..., Any], handle: Any) -> list[dict[str, Any]] | None:
    found: dict[int, dict[str, Any]] = {}
    answered = False
    for kind in ("Compute", "Graphics"):
        for version in ("_v3", "_v2", ""):
            function = getattr(pynvml, f"nvmlDeviceGet{kind}RunningProcesses{version}", None)
            listed = function and ask(f"processes_{kind.lower()}{version}", function, handle)
            if listed is not None:
                answered = True
                for each in listed:
                    known = found.setdefault(each.pid, {"pid": each.pid, "used": None, "name": ""})
                    used = each.usedGpuMemory
                    if used is not None and (known["used"] is None or used > known["used"]):
                        known["used"] = used  # one process in both lists is one amount of memory
                break
    for pid, each in found.items():
        each["name"] = ask("process_name", pynvml.nvmlSystemGetProcessName, pid) or ""
    return sorted(found.values(), key=lambda p: p["pid"]) if answered else None


def _word(text: bytes | str) -> str:
    return text.decode("ascii", "replace") if isinstance(text, bytes) else text


def _proc() -> dict[str, Any] | None:
    try:
        with open(f"{PROC}/version", encoding="utf-8", errors="replace") as file:
            version = file.read(4096)
    except OSError:
        return None
    return {"version": version.strip(), "gpus": list(_proc_gpus())}


def _proc_gpus() -> Iterator[dict[str, str]]:
    try:
        names = sorted(os.listdir(f"{PROC}/gpus"))
    except OSError:
        return
    for name in names:
        try:
            with open(f"{PROC}/gpus/{name}/information", encoding="utf-8", errors="replace") as file:
                lines = file.read(4096).splitlines()
        except OSError:
            continue
        yield {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in lines) if v}
