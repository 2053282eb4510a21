"""AMD's, Intel's and driverless devices, from trees of /sys as kernels show them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from ollamactl.core.facts import Gpu, GpuDriver
from ollamactl.core.parse import gpu
from ollamactl.core.parse.gpu_sysfs import gfx_name, pci_devices
from ollamactl.core.source import Missing, Reading, Source
from ollamactl.host import gpu_sysfs

GIB = 1 << 30


def card(fs: FakeFilesystem, number: int, pci: str, vendor: str, driver: str, **files: object) -> None:
    device = f"/sys/devices/pci0000:00/{pci}"
    texts = {"vendor": vendor, "device": "0x1234", "class": "0x030000", **files}
    for name, value in texts.items():
        fs.create_file(f"{device}/{name}", contents=f"{value}\n")
    fs.create_dir(f"{device}/drm/card{number}")
    fs.create_dir(f"{device}/drm/renderD{128 + number}")
    fs.create_symlink(f"/sys/bus/pci/devices/{pci}", device)
    if driver:
        if not fs.exists(f"/sys/bus/pci/drivers/{driver}"):
            fs.create_dir(f"/sys/bus/pci/drivers/{driver}")
        fs.create_symlink(f"{device}/driver", f"/sys/bus/pci/drivers/{driver}")
    fs.create_dir(f"/sys/class/drm/card{number}")
    fs.create_symlink(f"/sys/class/drm/card{number}/device", device)
    fs.create_dir(f"/sys/class/drm/card{number}-DP-1")


def node(fs: FakeFilesystem, number: int, minor: int, gfx: int, *, cpus: int = 0) -> None:
    text = f"cpu_cores_count {cpus}\nsimd_count {120 if gfx else 0}\n"
    text += f"gfx_target_version {gfx}\ndrm_render_minor {minor}\n"
    fs.create_file(f"/sys/class/kfd/kfd/topology/nodes/{number}/properties", contents=text)


def read(missing: Missing = Missing("absent", "no libnvidia-ml.so.1")) -> Callable[[Source], Reading]:  # noqa: B008
    body = gpu_sysfs.read()
    json.loads(body)
    answers = {"native:gpu_sysfs": body}
    return lambda s: Reading(s.key, answers.get(s.key), None if s.key in answers else missing)


def test_amd_card_and_apu(fs: FakeFilesystem) -> None:
    card(fs, 1, "0000:03:00.0", "0x1002", "amdgpu", mem_info_vram_total=24 * GIB, mem_info_vram_used=2 * GIB,
         mem_info_gtt_total=32 * GIB, mem_info_gtt_used=GIB,
         product_name="Radeon RX 7900 XTX", unique_id="9f3c")  # fmt: skip
    card(fs, 0, "0000:0e:00.0", "0x1002", "amdgpu", mem_info_vram_total=GIB // 2, mem_info_vram_used=1000)
    node(fs, 0, 0, 0, cpus=16)
    node(fs, 1, 129, 110000)
    node(fs, 2, 128, 100306)
    fs.create_file("/dev/kfd")
    fs.create_file("/sys/module/amdgpu/version", contents="6.10.5\n")
    fs.create_file("/opt/rocm/.info/version", contents="6.3.1-48\n")
    apu, discrete = gpu.devices(read())
    assert discrete == Gpu(
        index=1, vendor="amd", name="Radeon RX 7900 XTX", uuid="GPU-9f3c", pci="0000:03:00.0", total=24 * GIB,
        used=2 * GIB, free=22 * GIB, compute="gfx1100",
        notes=(f"{32 * GIB} bytes of host memory addressable, {GIB} used",),
    )  # fmt: skip
    assert (apu.index, apu.compute, apu.unified, apu.total) == (0, "gfx1036", True, GIB // 2)
    assert gpu.drivers(read()) == (GpuDriver(vendor="amd", version="6.10.5", api="6.3.1-48"),)


def test_amd_without_compute(fs: FakeFilesystem) -> None:
    card(fs, 0, "0000:03:00.0", "0x1002", "amdgpu", mem_info_vram_total=8 * GIB, mem_info_vram_used=0)
    (found,) = gpu.devices(read())
    assert "compute topology" in found.notes[0] and found.free == 8 * GIB
    assert gpu.drivers(read())[0].problem == "no /dev/kfd"


def test_intel_inside_and_discrete(fs: FakeFilesystem) -> None:
    card(fs, 0, "0000:00:02.0", "0x8086", "i915")
    card(fs, 1, "0000:04:00.0", "0x8086", "xe")
    inside, discrete = gpu.devices(read())
    assert (inside.vendor, inside.unified, inside.total) == ("intel", True, None)
    assert (discrete.unified, discrete.total) == (False, None) and discrete.notes


def test_nvidia_without_its_driver(fs: FakeFilesystem) -> None:
    card(fs, 0, "0000:01:00.0", "0x10de", "nouveau")
    (found,) = gpu.devices(read())
    assert (found.vendor, found.total, found.unified, found.pci) == ("nvidia", None, False, "0000:01:00.0")
    (driver,) = gpu.drivers(read())
    assert "nouveau" in driver.problem
    assert pci_devices(gpu_sysfs.read())[0].driver == "nouveau"


def test_nvidia_whose_library_does_not_answer(fs: FakeFilesystem) -> None:
    card(fs, 0, "0000:01:00.0", "0x10de", "nvidia")
    mismatch = Missing("failed", "NVML: Driver/library version mismatch")
    (found,) = gpu.devices(read(mismatch))
    assert found.notes == ("NVML: Driver/library version mismatch",) and found.total is None
    assert gpu.drivers(read(mismatch)) == (
        GpuDriver(vendor="nvidia", problem="NVML: Driver/library version mismatch"),
    )


def test_kernel_driver_without_nvml_names_the_device(fs: FakeFilesystem) -> None:
    from ollamactl.host import nvml

    version = (
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 13\n"
    )
    fs.create_file("/proc/driver/nvidia/version", contents=version)
    about = "Model: \t\t NVIDIA A10\nIRQ:   \t\t 90\nGPU UUID: \t GPU-1\nBus Location: \t 0000:00:1E.0\n"
    fs.create_file("/proc/driver/nvidia/gpus/0000:00:1e.0/information", contents=about)
    body, missing = nvml._without(Missing("absent", "no libnvidia-ml.so.1"))
    assert missing.kind == "failed" and "though the kernel has" in missing.detail
    answers = {"native:nvml": Reading("native:nvml", body, missing), "native:gpu_sysfs": Reading("", gpu_sysfs.read())}
    (found,) = gpu.devices(lambda s: answers[s.key])
    assert (found.name, found.uuid, found.pci, found.total) == ("NVIDIA A10", "GPU-1", "0000:00:1e.0", None)
    (driver,) = gpu.drivers(lambda s: answers[s.key])
    assert driver.version == "550.54.15" and driver.problem == "no libnvidia-ml.so.1"


def test_device_files(fs: FakeFilesystem) -> None:
    for path, mode in (("/dev/dri/renderD128", 0o660), ("/dev/kfd", 0o666)):
        fs.create_file(path)
        fs.chmod(path, mode)
    nodes = {n["path"]: n["mode"] for n in json.loads(gpu_sysfs.read())["nodes"]}
    assert nodes == {"/dev/dri/renderD128": 0o660, "/dev/kfd": 0o666}


def test_nothing_at_all(fs: FakeFilesystem) -> None:
    assert gpu.devices(read()) == () and gpu.drivers(read()) == ()


@pytest.mark.parametrize(
    ("version", "name"),
    [(90010, "gfx90a"), (110000, "gfx1100"), (100306, "gfx1036"), (110501, "gfx1151"), (90402, "gfx942"), (0, "")],
)
def test_names_of_architectures(version: int, name: str) -> None:
    assert gfx_name(version) == name


def test_xe_tells_the_memory_of_each_tile(fs: FakeFilesystem) -> None:
    card(fs, 0, "0000:04:00.0", "0x8086", "xe", **{"tile0/physical_vram_size_bytes": 12 * GIB,
                                                   "tile1/physical_vram_size_bytes": hex(4 * GIB)})  # fmt: skip
    (found,) = gpu.devices(read())
    assert (found.total, found.free, found.unified) == (16 * GIB, None, False)
    assert found.notes == ("the kernel does not say how much memory is free",)


def test_an_older_intel_driver_tells_its_memory_and_what_is_free(fs: FakeFilesystem) -> None:
    card(fs, 0, "0000:04:00.0", "0x8086", "i915", lmem_total_bytes=16 * GIB, lmem_avail_bytes=15 * GIB)
    (found,) = gpu.devices(read())
    assert (found.total, found.free, found.unified) == (16 * GIB, 15 * GIB, False)


@pytest.mark.parametrize(
    ("files", "unified"),
    [
        ({"mem_info_vram_total": 4 * GIB, "mem_info_gtt_total": 16 * GIB}, True),
        ({"mem_info_vram_total": 4 * GIB, "mem_info_gtt_total": 16 * GIB, "board_info": "type : Unknown"}, True),
        ({"mem_info_vram_total": 4 * GIB, "mem_info_gtt_total": 16 * GIB, "mem_info_vram_vendor": "samsung"}, False),
        ({"mem_info_vram_total": 4 * GIB, "mem_info_gtt_total": 16 * GIB, "board_info": "type : oam"}, False),
        ({"mem_info_vram_total": 8 * GIB, "mem_info_gtt_total": 64 * GIB}, False),
        ({"mem_info_vram_total": GIB // 2, "mem_info_gtt_total": 7 * GIB}, False),
        ({"mem_info_vram_total": 3 * GIB, "mem_info_gtt_total": 11 * GIB}, False),
    ],
)
def test_an_integrated_device_that_no_list_knows(fs: FakeFilesystem, files: dict[str, object], unified: bool) -> None:
    card(fs, 0, "0000:c4:00.0", "0x1002", "amdgpu", mem_info_vram_used=0, mem_info_gtt_used=0, **files)
    node(fs, 1, 128, 119999)
    (found,) = gpu.devices(read())
    assert found.unified is unified


def test_a_jetson_without_nvml_is_known_by_its_board(fs: FakeFilesystem) -> None:
    fs.create_file("/etc/nv_tegra_release", contents="# R35 (release), REVISION: 4.1\n")
    fs.create_file("/proc/device-tree/model", contents="NVIDIA Orin NX Developer Kit\0")
    (found,) = gpu.devices(read())
    assert (found.vendor, found.name, found.unified, found.total) == (
        "nvidia", "NVIDIA Orin NX Developer Kit", True, None,
    )  # fmt: skip
