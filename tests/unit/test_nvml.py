"""NVML through the real pynvml, over a stand-in of NVIDIA's library; each reading in a process of its own, since a
library once loaded stays."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ollamactl.core.facts import Gpu, GpuDriver, GpuProcess
from ollamactl.core.source import Missing

pytestmark = [
    pytest.mark.touches("process", "machine"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to build the stand-in"),
]
SOURCE = Path(__file__).resolve().parents[1] / "nvml" / "standin.c"
MIB = 1 << 20
READ = """
import sys, msgspec
from ollamactl.core.parse import gpu
from ollamactl.core.source import native
from ollamactl.host.live import LiveHost
read = LiveHost().read
found = {"missing": read(native("nvml")).missing, "gpus": gpu.devices(read), "drivers": gpu.drivers(read)}
sys.stdout.buffer.write(msgspec.json.encode(found))
"""


class Answer(msgspec.Struct):
    gpus: tuple[Gpu, ...]
    drivers: tuple[GpuDriver, ...]
    missing: Missing | None = None

    def nvidia(self) -> list[Gpu]:
        return [g for g in self.gpus if g.vendor == "nvidia"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {}
    for name, options in (("new", ()), ("old", ("-DOLD",))):
        folders[name] = tmp_path_factory.mktemp(name)
        target = folders[name] / "libnvidia-ml.so.1"
        flags = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-Wl,-soname,libnvidia-ml.so.1")
        subprocess.run(["cc", *flags, *options, "-o", str(target), str(SOURCE)], check=True)
    return folders


def ask(folder: Path | None, config: str, tmp_path: Path, first: str = "") -> Answer:
    written = tmp_path / "nvml.conf"
    written.write_text(config)
    env = {**os.environ, "NVML_STANDIN": str(written)}
    if folder:
        env["LD_LIBRARY_PATH"] = str(folder)
    done = subprocess.run([sys.executable, "-c", first + READ], capture_output=True, check=True, env=env)
    return msgspec.json.decode(done.stdout, type=Answer)


def test_no_gpu(built: dict[str, Path], tmp_path: Path) -> None:
    found = ask(built["new"], "", tmp_path)
    assert found.nvidia() == [] and found.missing is None
    assert found.drivers[0] == GpuDriver(vendor="nvidia", version="550.54.15", api="12.4")


@pytest.mark.parametrize("age", ["new", "old"])
def test_two_gpus_and_other_processes(built: dict[str, Path], tmp_path: Path, age: str) -> None:
    config = """driver 470.57.02
cuda 11040
gpu 24564 2048 512 8.9 NVIDIA GeForce RTX 4090
process 1234 1500 compute /usr/bin/python3
process 1234 1500 graphics
process 999 - graphics Xorg
gpu 8192 0 300 7.5 NVIDIA GeForce RTX 2070
"""
    found = ask(built[age], config, tmp_path)
    one, two = found.nvidia()
    assert (one.name, one.compute, one.total) == ("NVIDIA GeForce RTX 4090", "8.9", 24564 * MIB)
    assert one.free == (24564 - 2048 - 512) * MIB and not one.unified and one.mig_of is None
    assert one.processes == (
        GpuProcess(pid=999, name="Xorg"),
        GpuProcess(pid=1234, used=1500 * MIB, name="/usr/bin/python3"),
    )
    assert (two.index, two.pci, two.free) == (1, "00000000:02:00.0", (8192 - 300) * MIB)
    assert one.uuid != two.uuid and one.uuid.startswith("GPU-")
    assert one.notes == ((f"{512 * MIB} bytes reserved by the driver",) if age == "new" else ())
    assert found.drivers[0] == GpuDriver(vendor="nvidia", version="470.57.02", api="11.4")


def test_mig_slices_stand_for_their_gpu(built: dict[str, Path], tmp_path: Path) -> None:
    config = """gpu 81920 0 600 9.0 NVIDIA H100
mig
slice 20000 100 NVIDIA H100 MIG 2g.20gb
slice 10000 9000 NVIDIA H100 MIG 1g.10gb
process 77 8800 compute vllm
gpu 81920 0 600 9.0 NVIDIA H100
mig
"""
    first, second, empty = ask(built["new"], config, tmp_path).nvidia()
    assert (first.mig_of, first.index, first.total, first.compute) == (0, 0, 20000 * MIB, "9.0")
    assert (second.mig_of, second.free, second.processes[0].pid) == (0, 1000 * MIB, 77)
    assert second.uuid.startswith("MIG-")
    assert (empty.mig_of, empty.index, empty.total, empty.free) == (None, 1, 0, 0) and "no instance" in empty.notes[0]


def test_memory_not_supported_is_the_hosts(built: dict[str, Path], tmp_path: Path) -> None:
    (found,) = ask(built["new"], "gpu - - - 12.1 NVIDIA GB10\n", tmp_path).nvidia()
    assert (found.total, found.free, found.used, found.unified) == (None, None, None, True)


def test_a_lost_gpu_is_listed_and_not_called_unified(built: dict[str, Path], tmp_path: Path) -> None:
    one, lost = ask(built["new"], "gpu 8192 0 0 8.6 A\ngpu 8192 0 0 8.6 B\nlost\n", tmp_path).nvidia()
    assert one.total == 8192 * MIB
    assert (lost.index, lost.total, lost.unified) == (1, None, False) and "GPU is lost" in lost.notes[0]


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (18, "failed", "Driver/library version mismatch"),
        (9, "failed", "Driver Not Loaded"),
        (4, "denied", "Insufficient Permissions"),
    ],
)
def test_init_errors_in_nvmls_words(built: dict[str, Path], tmp_path: Path, code: int, kind: str, words: str) -> None:
    found = ask(built["new"], f"init {code}\ngpu 8192 0 0 8.6 A\n", tmp_path)
    assert found.missing and found.missing.kind == kind and words in found.missing.detail
    assert found.nvidia() == [] and words in found.drivers[0].problem


def test_no_library(tmp_path: Path) -> None:
    found = ask(None, "", tmp_path)
    if found.missing is None:
        pytest.skip("this machine has NVIDIA's library")
    assert found.missing.kind == "absent" and found.missing.detail == "no libnvidia-ml.so.1"
    assert found.nvidia() == []


def test_the_library_that_windows_brings_into_wsl_is_found_by_its_path(built: dict[str, Path], tmp_path: Path) -> None:
    first = f"import ollamactl.host.nvml as nvml\nnvml.WSL = {str(built['new'] / 'libnvidia-ml.so.1')!r}\n"
    assert len(ask(None, "gpu 8192 0 300 7.5 NVIDIA GeForce RTX 2070\n", tmp_path, first).nvidia()) == 1
