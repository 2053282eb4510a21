"""GPUs that are not found or not used: what an expert would name first, by release, backend and words.

A row: the check, and a log or what was printed. Healthy ones below, in which the same words are harmless."""

# ruff: noqa: E501 - lines of logs
from __future__ import annotations

import pytest
from wording_rows import report

from tests.system.small import A, B, Log, numbers, on_cpu, served

NONE = "no compatible GPUs were discovered"
LOOKS = "discovering available GPUs..."
PROBE = "failure during GPU discovery"
SERVER_PROBE = "failure during llama-server GPU discovery"
WATCHDOG = "llama-server GPU discovery watchdog timed out"
INSTALLER = ">>> Installing ollama to /usr/local\n{}\n>>> The Ollama API is now available at 127.0.0.1:11434.\n"
OFF_THE_BUS = "May 04 11:00:00 host kernel: NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\nMay 04 11:05:00 host systemd[1]: Started ollama.service - Ollama Service.\n"
METAL = 'id=0 filter_id=0 library=Metal compute=0.0 name=Metal description="Apple M2" libdirs="" driver=0.0 pci_id="" type=discrete total="10.7 GiB" available="10.7 GiB"'
EXCERPT = "load_tensors: offloaded {}/{} layers to GPU\nload_tensors: {} model buffer size =  1918.35 MiB\nllama_kv_cache_unified: {} KV buffer size =   448.00 MiB\n"


def start(release: str, **env: str) -> Log:
    """What each release prints first; before 0.1.34 there was no `server config`."""
    log = Log(release)
    return (log.config(**env) if numbers(release) >= (0, 1, 34) else log).listen()


def said(release: str, msg: str, level: str = "INFO", **fields: object) -> str:
    """A message of the search for devices, after which only the CPU is there."""
    log = start(release).say(msg, level, "gpu.go:600", **fields)
    return (log.say("no GPU detected") if numbers(release) < (0, 1, 34) else log.say(NONE).cpu()).text()


def probe(release: str, msg: str, rest: str, level: str = "INFO") -> str:
    log = start(release).say(LOOKS).line(msg, f'OLLAMA_LIBRARY_PATH="[/usr/lib/ollama]" extra_envs=map[] {rest}', level, "runner.go:449").cpu()
    return (log.tier("0 B", 4096) if numbers(release) >= (0, 15, 5) else log).text()


def loaded(release: str, *says: str, log: Log | None = None, ngl: int | None = None) -> str:
    """A load that goes well, with what the runner says in it, and a slow answer."""
    return (log or served(release)).load(4096, ok=False, ngl=ngl).raw(*says).say("llama runner started in 2.10 seconds").gin(200, "40s").text()


ROWS: dict[str, tuple[str, str]] = {
    # nothing there, or nothing known of it
    "no library of a driver": ("no_gpu_found", start("0.1.27").say("Discovered GPU libraries: []").say("no GPU detected").text()),
    "NVML without a card": ("no_gpu_found", said("0.1.25", "Unable to load CUDA management library /usr/lib/libnvidia-ml.so.470: nvml vram init failure: 9")),
    "0.1.41": ("no_gpu_found", start("0.1.41").say(NONE).line("inference compute", 'id=0 library=cpu compute="" driver=0.0 name="" total="31.2 GiB" available="27.4 GiB"').text()),
    "a library for another word size": ("no_gpu_found", said("0.5.7", "Unable to load cudart library /usr/lib32/libcuda.so.550: wrong ELF class: ELFCLASS32", "DEBUG")),
    "Vulkan is off": ("no_gpu_found", start("0.13.0").say(LOOKS).say("experimental Vulkan support disabled.  To enable, set OLLAMA_VULKAN=1").cpu().text()),
    "the tier alone": ("no_gpu_found", start("0.21.0").tier("0 B", 4096).text()),
    "low VRAM mode alone": ("no_gpu_found", Log("0.13.3").line("entering low vram mode", '"total vram"="0 B" threshold="20.0 GiB"').text()),
    "the estimate for the CPU alone": ("no_gpu_found", start("0.3.6").line("offload to cpu", 'layers.requested=-1 layers.model=33 layers.offload=0 memory.available="[12.3 GiB]" memory.required.full="5.8 GiB"', source="memory.go:309").text()),
    "no layer": ("no_gpu_found", EXCERPT.format(0, 29, "CPU_Mapped", "CPU")),
    "host memory alone": ("no_gpu_found", "load_tensors:   CPU_Mapped model buffer size =   260.86 MiB\nllama_kv_cache_unified:        CPU KV buffer size =    96.00 MiB\n"),
    "the Go engine in host memory": ("no_gpu_found", Log("0.13.5").say("offloaded 0/35 layers to GPU", source="ggml.go:494").say("model weights", source="device.go:245", device="CPU", size="3.1 GiB").text()),
    "the installer": ("no_gpu_found", INSTALLER.format("WARNING: No NVIDIA/AMD GPU detected. Ollama will run in CPU-only mode.")),
    "the installer cannot look": ("no_gpu_found", INSTALLER.format("WARNING: Unable to detect NVIDIA/AMD GPU. Install lspci or lshw to automatically detect and install GPU dependencies.")),
    "layers on a CPU's host": ("no_gpu_found", on_cpu().load(2048, ngl=0, ok=False).raw("warning: no usable GPU found, --gpu-layers option will be ignored", "load_tensors: offloaded 0/13 layers to GPU").say("llama-server started in 1.10 seconds").gin(200, "2s").text()),
    # NVIDIA's driver
    "its library and module": ("driver_library_mismatch", said("0.1.27", "Unable to load CUDA management library /usr/lib/libnvidia-ml.so.535: nvml vram init failure: 18")),
    "the same, 0.3": ("driver_library_mismatch", said("0.3.12", "version mismatch between driver and cuda driver library - reboot or upgrade may be required: library /usr/lib/libcuda.so.560", "WARN")),
    "the kernel on it before the start": ("driver_library_mismatch", "May 04 09:59:00 host kernel: NVRM: API mismatch: the client has the version 570.133.07, but\n" + on_cpu("0.12.6").text()),
    "too old, 0.1": ("nvidia_driver_too_old", said("0.1.29", "Unable to load cudart CUDA management library /tmp/ollama1/libcudart.so.11.0: your nvidia driver is too old or missing, please upgrade to run ollama")),
    "too old, 0.30": ("nvidia_driver_too_old", start("0.30.5").say(LOOKS).line("NVIDIA driver too old", 'device="NVIDIA GeForce GTX 1070" compute=6.1 driver=535 required_driver="570 or newer"', "WARN").cpu().text()),
    "too old since an upgrade": ("nvidia_driver_too_old", start("0.24.0").gpu(driver="12.2").text() + start("0.30.2").later(90000).say(LOOKS).cpu().tier("0 B", 4096).text()),
    "999": ("cuda_init_999", said("0.5.7", "unknown error initializing cuda driver library /usr/lib/libcuda.so.565: cuda driver library init failure: 999. see the documentation", "WARN")),
    "not there yet": ("service_started_before_gpu", Log("0.3.12", "May 04 10:00:00 host ollama[900]: ").config().listen().say("no nvidia devices detected by library /usr/lib/libcuda.so.535").say(NONE).cpu().text()),
    "not permitted in a container": ("container_lost_gpu_cgroup", said("0.3.12", "unable to load cuda driver library", library="/usr/lib/libcuda.so.550", error="cuda driver library init failure: 800")),
    "fallen off the bus before this start": ("gpu_error_in_kernel", served("0.20.0").load(4096, layers=(33, 33)).gin(200, "2s").text() + OFF_THE_BUS + on_cpu("0.20.0").text()),
    "suspended before this start": ("gpu_lost_after_suspend", served("0.20.0").load(4096, layers=(33, 33)).gin(200, "2s").text() + "May 04 11:00:00 host kernel: PM: suspend entry (deep)\nMay 04 11:30:00 host kernel: PM: suspend exit\n" + on_cpu("0.20.0").text()),
    # AMD's and Intel's
    "no libraries of ROCm": ("package_without_gpu_libs", said("0.5.7", "amdgpu detected, but no compatible rocm library found.  Either install rocm v6, or follow manual install instructions", "WARN")),
    "no access": ("kfd_permission_denied", said("0.5.7", "amdgpu devices detected but permission problems block access: failed to check permission on /dev/kfd: open /dev/kfd: invalid argument", "ERROR")),
    "a driver without HIP 7": ("amd_driver_too_old", start("0.32.6").say("AMD driver is too old. Update your AMD driver to enable GPU inference.", "WARN", "amd.go:485").cpu().text()),
    "the same beside what is left out": ("igpu_dropped", start("0.32.6").say("AMD driver is too old. Update your AMD driver to enable GPU inference.", "WARN", "amd.go:485").line("dropping integrated GPU; to enable, set OLLAMA_IGPU_ENABLE=1", 'id=0 library=Vulkan compute=0.0 name=Vulkan0 description="AMD Radeon(TM) Graphics" pci_id=""').cpu().text()),
    "oneAPI's integrated one": ("igpu_dropped", said("0.1.40", "OneAPI unsupported integrated GPU detected")),
    "an integrated one since an upgrade": ("igpu_dropped", start("0.24.0").gpu("AMD Radeon 780M", "16.0 GiB", "15.0 GiB", "Vulkan", cc="0.0", driver="0.0", type="iGPU").text() + start("0.30.2").later(90000).say(LOOKS).cpu().tier("0 B", 4096).text()),
    # a release or package that cannot
    "an old CUDA card": ("gpu_not_supported_by_backend", start("0.6.2").line("CUDA GPU is too old", "compute=3.5 required=5.0", source="gpu.go:302").say(NONE).cpu().text()),
    "an old ROCm card": ("gpu_not_supported_by_backend", said("0.5.7", "amdgpu too old gfx803", "WARN", gpu=0)),
    "no code for its architecture": ("gpu_not_supported_by_backend", start("0.30.5").say(LOOKS).line("skipping CUDA device — compute capability not in compiled architectures", 'device="Quadro K2200" cc=500 archs="[750 800 860]"').cpu().text()),
    "a probe that crashes": ("gpu_not_supported_by_backend", probe("0.12.6", PROBE, 'error="runner crashed"')),
    "a probe of 0.30 that crashes": ("gpu_not_supported_by_backend", probe("0.30.8", SERVER_PROBE, 'error="llama-server --list-devices failed: exit status 0xc0000005" detail=""')),
    "since an upgrade": ("gpu_not_supported_by_backend", served("0.24.0").text() + start("0.30.2").later(90000).say(LOOKS).cpu().tier("0 B", 4096).text()),
    "no llama-server": ("package_without_gpu_libs", probe("0.30.8", SERVER_PROBE, 'error="llama-server binary not found (checked: /opt/homebrew/lib/ollama/llama-server)" detail=""')),
    "a probe that takes too long": ("gpu_discovery_timeout", probe("0.12.6", PROBE, 'error="failed to finish discovery before timeout"')),
    "a probe of 0.32 that takes too long": ("gpu_discovery_timeout", probe("0.32.4", WATCHDOG, 'error="context deadline exceeded"', "WARN")),
    # chosen away
    "hidden": ("visible_devices_override", start("0.12.6", CUDA_VISIBLE_DEVICES="GPU-7").say(LOOKS).say("user overrode visible devices", "WARN", CUDA_VISIBLE_DEVICES="GPU-7").cpu().text()),
    "one library chosen": ("visible_devices_override", start("0.12.6", OLLAMA_LLM_LIBRARY="cuda_v11").cpu().text()),
    # found before, or found and not used
    "lost since the start before": ("service_started_before_gpu", served("0.20.2").load(4096, layers=(33, 33)).gin(200, "2s").text() + start("0.20.2").later(7200).cpu().tier("0 B", 4096).text()),
    "found since the start before": ("service_started_before_gpu", on_cpu("0.12.6").text() + served("0.12.6").text()),
    "a runner without a device": ("discovery_ok_but_runner_cpu", loaded("0.12.6", "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected", "load_tensors: offloaded 0/33 layers to GPU")),
    "a runner without a backend": ("discovery_ok_but_runner_cpu", loaded("0.6.6", "load_backend: loaded CPU backend from /opt/conda/lib/ollama/libggml-cpu-icelake.so", EXCERPT.format(37, 37, "CPU_Mapped", "CPU").strip())),
    "the same, a part of a log": ("discovery_ok_but_runner_cpu", "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected\n" + EXCERPT.format(29, 29, "CPU", "CPU")),
    "a runner for the CPU": ("discovery_ok_but_runner_cpu", loaded("0.3.12", "WARN [server_params_parse] Not compiled with GPU offload support, --n-gpu-layers option will be ignored.")),
    "the Go engine's backends": ("discovery_ok_but_runner_cpu", loaded("0.6.6", "time=2026-05-04T10:00:05.894Z level=INFO source=ggml.go:109 msg=system CPU.0.SSE3=1 CPU.0.AVX2=1 compiler=cgo(gcc)")),
}  # fmt: skip
HEALTHY = {
    "an integrated one beside a card": served("0.9.5").say("unsupported Radeon iGPU detected skipping", id=0, total="512.0 MiB").load(4096, layers=(33, 33)).gin(200, "2s").text(),
    "a probe of one library": start("0.12.6").line(PROBE, 'error="runner crashed"', source="runner.go:449").gpu().load(4096, layers=(33, 33)).gin(200, "2s").text(),
    "a watchdog at a refresh": served("0.32.4").load(4096, layers=(33, 33)).gin(200, "2s").line(WATCHDOG, 'error="context deadline exceeded"', "WARN").say("unable to refresh free memory, using old values", "WARN").load(4096, model=B, layers=(33, 33)).gin(200, "3s").text(),
    "AMD's driver, and Vulkan in use": start("0.32.6").say("AMD driver is too old. Update your AMD driver to enable GPU inference.", "WARN", "amd.go:485").gpu("AMD Radeon RX 6900 XT", "16.0 GiB", "15.2 GiB", "Vulkan", cc="0.0", driver="0.0").load(4096, layers=(33, 33), device="Vulkan0").gin(200, "2s").text(),
    "one library has no code for it": start("0.30.5").line("skipping CUDA device — compute capability not in compiled architectures", 'device="NVIDIA GeForce GTX 1080" cc=610').gpu("NVIDIA GeForce GTX 1080", "8.0 GiB", "7.8 GiB", cc="6.1").load(4096, layers=(33, 33)).gin(200, "2s").text(),
    "a Mac": start("0.12.6").line("inference compute", METAL).load(4096, ok=False).raw("load_tensors: offloaded 33/33 layers to GPU", "load_tensors:   CPU_Mapped model buffer size =   281.81 MiB", "load_tensors: Metal_Mapped model buffer size =  4155.99 MiB").say("llama runner started in 2.10 seconds").gin(200, "2s").text(),
    "weights in part in host memory": loaded("0.12.6", "load_tensors: offloaded 33/33 layers to GPU", "load_tensors:   CPU_Mapped model buffer size =   281.81 MiB", "load_tensors:        CUDA0 model buffer size =  4155.99 MiB"),
    "lines of the CPU alone were picked": "load_tensors: offloaded 39/49 layers to GPU\n" + Log().say("model weights", source="device.go:245", device="CPU", size="1.7 GiB").say("kv cache", source="device.go:256", device="CPU", size="112.0 MiB").text(),
    "no layers asked for": loaded("0.33.0", "warning: no usable GPU found, --gpu-layers option will be ignored", "load_tensors: offloaded 0/13 layers to GPU", ngl=0),
    "an embedding model on the CPU": served().load(2048, model=A, embedding=True, ok=False).raw("load_tensors: offloaded 0/13 layers to GPU", "load_tensors:   CPU_Mapped model buffer size =   260.86 MiB").say("llama-server started in 1.10 seconds").gin(200, "200ms", "/api/embed").text(),
    "oneAPI": start("0.5.4").line("inference compute", 'id=0 library=oneapi variant="" compute="" driver=0.0 name="Intel(R) Arc(TM) A770 Graphics" total="15.9 GiB" available="15.1 GiB"').load(4096, layers=(33, 33), device="SYCL0").gin(200, "2s").text(),
    "a start without MLX": start("0.18.2").say("MLX dynamic library not available", "WARN", error="failed to load MLX dynamic library (searched: [/usr/lib/ollama])").gpu().load(4096, layers=(33, 33)).gin(200, "2s").text(),
    "the installer finds one": INSTALLER.format(">>> NVIDIA GPU installed."),
    "another library of the same driver": start("0.5.7").say("unknown error initializing cuda driver library /usr/lib/i386-linux-gnu/libcuda.so.550: wrong ELF class: ELFCLASS32", "INFO", "gpu.go:630").gpu().load(4096, layers=(33, 33)).gin(200, "2s").text(),
    "the kernel on another boot": "May 04 09:59:00 host kernel: NVRM: RmInitAdapter failed! (0x26:0xffff:1456)\n" + served("0.12.6").load(4096, layers=(33, 33)).gin(200, "2s").text(),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_why_no_gpu_is_used_is_told_first(name: str) -> None:
    check, text = ROWS[name]
    found = report(text)
    assert not found.crashed, found.crashed
    assert [f.check for f in found.findings][:1] == [check], [(f.check, f.summary) for f in found.findings]


@pytest.mark.parametrize("name", HEALTHY)
def test_words_of_a_gpu_in_use_raise_no_alarm(name: str) -> None:
    found = report(HEALTHY[name])
    assert not found.crashed, found.crashed
    alarms = [(f.check, f.summary) for f in found.findings if f.severity != "info"]
    assert not [a for a in alarms if a[0] != "partial_offload"], alarms
