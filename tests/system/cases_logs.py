"""Public cases, rebuilt from what is stated of them as small logs. Key: the case; value: (right finding, text)."""

from __future__ import annotations

from tests.system.small import A, B, Log, drop_in, journal, numbers, offload, on_cpu, ps, served, unit_file

CASES: dict[str, tuple[str, str]] = {}


def case(name: str, check: str, *texts: str) -> None:
    assert name not in CASES
    CASES[name] = (check, "\n".join(texts))


# -- GPUs --
case("oll-6336", "amdgpu_version_file_missing", Log("0.3.3").config(HSA_OVERRIDE_GFX_VERSION="9.0.0").listen()
     .say("amdgpu version file missing", "WARN", "amd_linux.go:60", error="stat /sys/module/amdgpu/version: no such file or directory")
     .say("skipping rocm gfx compatibility check", "INFO", "amd_linux.go:345", HSA_OVERRIDE_GFX_VERSION="9.0.0")
     .gpu("Radeon RX Vega 56", "8.0 GiB", "7.1 GiB", "rocm", "gfx900", "0.0").text())  # fmt: skip
case("oll-6736", "kfd_permission_denied", Log("0.3.10").config().listen()
     .say("amdgpu devices detected but permission problems block access", "ERROR", "amd_linux.go:364", error="kfd driver not loaded")
     .say("no compatible GPUs were discovered", source="gpu.go:347").cpu("61.9 GiB").text())  # fmt: skip
case("oll-7723", "kfd_permission_denied", Log("0.4.2").config().listen()
     .say("amdgpu devices detected but permission problems block access: failed to check permission on /dev/kfd: open /dev/kfd: permission denied", "ERROR", "amd_linux.go:404")
     .say("no compatible GPUs were discovered", source="gpu.go:386").cpu().text())  # fmt: skip
case("oll-2442", "kfd_permission_denied", "Error: unable to initialize llm library Radeon card detected, but permissions not set up properly\n")
case("oll-6685", "kfd_permission_denied", "$ rocminfo\nUnable to open /dev/kfd read-write: Permission denied\n", Log("0.3.10").config().listen().cpu().text())
case("lingfish-22", "kfd_permission_denied", "crw-rw---- 1 root render 226, 128 /dev/dri/renderD128\nMESA: warning: /dev/dri/renderD128: Permission denied\n")
case("raw-rocm-again", "package_without_gpu_libs", Log("0.9.6").config().listen()
     .say("amdgpu detected, but no compatible rocm library found.  Either install rocm v6, or follow manual install instructions", "WARN", "amd_linux.go:443")
     .say("unable to verify rocm library: no suitable rocm found, falling back to CPU", "WARN", "amd_linux.go:348").cpu().text())  # fmt: skip
case("idx-038-libllama", "package_without_gpu_libs", Log("0.3.8").config(OLLAMA_NUM_PARALLEL="4").listen().cpu()
     .load(2048, 4, ok=False)
     .raw("/usr/local/lib/ollama/runners/cpu_avx2/ollama_llama_server: error while loading shared libraries: libllama.so: cannot open shared object file: No such file or directory")
     .say("error loading llama server", "ERROR", error="llama runner process has terminated: exit status 127").text())  # fmt: skip
case("oll-9885", "package_without_gpu_libs", "# pacman -S ollama\n", on_cpu("0.6.2").text())
case("oll-12829", "package_without_gpu_libs", "/snap/ollama/54/bin/ollama serve\n", Log("0.12.1").config().listen()
     .raw("ggml_cuda_init: failed to initialize CUDA: CUDA driver version is insufficient for CUDA runtime version")
     .say("cudaGetDeviceCount returned 35", "WARN").cpu().text())  # fmt: skip
case("oll-17290", "nvidia_driver_too_old", Log("0.32.0").config().listen()
     .say("NVIDIA driver too old", "WARN", "runner.go:410", device="Tesla P40", compute="6.1", driver="535.309.01", required_driver="550").cpu().text())  # fmt: skip
case("oll-7666", "nvidia_driver_too_old", Log("0.4.0").config().listen().cpu()
     .raw("ggml_cuda_init: failed to initialize CUDA: CUDA driver version is insufficient for CUDA runtime version").gin(200, "2m16s").text())  # fmt: skip
case("oll-10569", "nvidia_driver_too_old", Log("0.6.8").config().listen().gpu("NVIDIA GeForce RTX 2080 Ti", "11.0 GiB", "9.9 GiB", cc="7.5", driver="12.1").text())
case("oll-12770", "nvidia_driver_too_old", "| NVIDIA-SMI 470.82.01    Driver Version: 470.82.01    CUDA Version: 11.4     |\n",
     Log("0.9.3").config().listen().say("no compatible GPUs were discovered", source="gpu.go:377").cpu().text())  # fmt: skip
case("nix-290363", "driver_library_mismatch", Log("0.1.26").raw("2024/02/20 12:00:00 routes.go:1014: Listening on 127.0.0.1:11434 (version 0.1.26)")
     .say("Unable to load CUDA management library /nix/store/x/lib/libnvidia-ml.so.545.29.06: nvml vram init failure: 18", source="gpu.go:300")
     .say("no GPU detected", source="routes.go:1042").text())  # fmt: skip
case("oll-15918", "driver_library_mismatch", on_cpu("0.20.6")
     .raw("ggml_cuda_init: failed to initialize CUDA: forward compatibility was attempted on non supported HW")
     .load(4096, layers=(0, 33), weights_mib=6246, device="CPU").gin(500, "1m0s").text())  # fmt: skip
case("oll-10026", "container_lost_gpu_cgroup", "$ docker exec ollama nvidia-smi\nFailed to initialize NVML: Unknown Error\n")
case("oll-8962", "container_lost_gpu_cgroup", Log("0.5.7").config().listen().gpu().load(2048, layers=(33, 33), ngl=33)
     .say("cuda driver library failed to get device context 800", "WARN", "gpu.go:449")
     .say("error looking up nvidia GPU memory", "WARN", "gpu.go:449")
     .say("gpu VRAM usage didn't recover within timeout", "WARN", "sched.go:646", seconds="5.166", model=A).text())  # fmt: skip
case("nvctk-1744", "container_lost_gpu_cgroup", "toolkit 1.18.1, driver 580.126.20\ncontainer$ nvidia-smi\nFailed to initialize NVML: Unknown Error\n")
case("nvdocker-1730", "daemon_reload_breaks_gpu_containers", "# systemctl daemon-reload\n# docker exec gpu nvidia-smi\nFailed to initialize NVML: Unknown Error\n")
case("oll-6647", "cuda_init_999", Log("0.3.6").config().listen()
     .say("cudart init failure: 999", "INFO", "gpu.go:260", library="/opt/cuda/lib64/libcudart.so.12").cpu()
     .raw("cudaSetDevice err: 999").text())  # fmt: skip
case("oll-1895", "cuda_init_999", "2024/01/10 12:00:00 gpu.go:54: Nvidia GPU detected\n2024/01/10 12:00:01 llama.go:90: CUDA error 999 at ggml-cuda.cu: unknown error\n")
case("nix-333123", "nvidia_uvm_not_loaded", Log("0.3.1").config().listen().say("cudart init failure: 999", source="gpu.go:260").cpu().text(),
     "$ ls /dev/nvidia-uvm\nls: cannot access '/dev/nvidia-uvm': No such file or directory\n")  # fmt: skip
case("pve-5740", "nvidia_uvm_not_loaded", on_cpu("0.9.0").raw("cudart init failure: 999").text(),
     "ct# ls -l /dev/nvidia-uvm\nls: cannot access '/dev/nvidia-uvm': No such file or directory\nhost# nvidia-modprobe -u -c=0\n")  # fmt: skip
case("oll-8426", "gpu_lost_after_suspend", served("0.5.4").load(2048, layers=(47, 49), ngl=47)
     .raw("May 04 10:20:00 host kernel: PM: suspend exit", "CUDA error: unspecified launch failure").gin(500, "2.1s").text(),
     "# rmmod nvidia_uvm\nrmmod: ERROR: Module nvidia_uvm is in use\n")  # fmt: skip
case("oll-10053", "gpu_lost_after_suspend", "May 04 09:00:00 host systemd[1]: Starting systemd-suspend.service - System Suspend...\n", on_cpu("0.6.3")
     .raw("cudart init failure: 999").text())  # fmt: skip
case("oll-2934", "gpu_lost_after_suspend", "unable to init GPU: unknown error\nnvidia_uvm 1234 2 in use\nrmmod: ERROR: Module nvidia_uvm is in use\n")
case("oll-16433", "igpu_dropped", Log("0.30.0").config(OLLAMA_HOST="http://0.0.0.0:11434").listen("[::]:11434")
     .say("dropping integrated GPU; to enable, set OLLAMA_IGPU_ENABLE=1", "INFO", "runner.go:405", id="0", library="ROCm", description="AMD Radeon 890M")
     .cpu("30.0 GiB").text())  # fmt: skip
case("oll-16690", "igpu_dropped", ps("llama3.1:8b     aaaaaaaaaaaa    11 GB     100% GPU     32768      4 minutes from now"),
     ps("llama3.1:8b     aaaaaaaaaaaa    9.5 GB    100% CPU     4096       4 minutes from now"))  # fmt: skip
case("a cleaned /tmp", "runners_removed_from_tmp", served("0.3.12").load(4096, ok=False).say("error loading llama server", "ERROR", error="fork/exec /tmp/ollama2113/runners/cuda_v11/ollama_llama_server: no such file or directory").gin(500, "20ms").text())
case("a driver of AMD without HIP 7", "amd_driver_too_old", Log("0.32.6").config().listen().say("AMD driver is too old. Update your AMD driver to enable GPU inference.", "WARN", "amd.go:485").cpu().tier("0 B", 4096).text())
case("nomad-1092", "igpu_dropped", Log("0.30.1", "ollama  | ").config().listen().say("dropping integrated GPU; to enable, set OLLAMA_IGPU_ENABLE=1", source="runner.go:405")
     .cpu().tier("0 B", 4096).text())  # fmt: skip
case("idx-igpu-0331", "igpu_dropped", Log("0.33.1").config().listen().say("dropping integrated GPU; to enable, set OLLAMA_IGPU_ENABLE=1", source="runner.go:405", library="Vulkan").cpu().text())
case("idx-strix-halo-hsa", "igpu_dropped", Log("0.30.6").config(OLLAMA_VULKAN="true").listen()
     .say("dropping integrated GPU; to enable, set OLLAMA_IGPU_ENABLE=1", source="runner.go:405", description="Radeon 8060S Graphics").cpu().text())  # fmt: skip
case("idx-igpu-intel-arc", "igpu_dropped", Log("0.32.14").config().listen().say("dropping integrated GPU; to enable, set OLLAMA_IGPU_ENABLE=1", source="runner.go:405", library="Vulkan", description="Intel(R) Arc(TM) 140V GPU").cpu().tier("0 B", 4096).text())
case("oll-1992", "gpu_not_supported_by_backend", "2024/01/15 12:00:00 routes.go:930: Listening on 127.0.0.1:11434 (version 0.1.20)\n2024/01/15 12:00:00 gpu.go:138: CUDA GPU is too old. Falling back to CPU mode. Compute Capability detected: 5.2\n")
case("oll-3497", "gpu_not_supported_by_backend", Log("0.1.30").raw("2024/04/05 12:00:00 routes.go:1118: INFO Listening on 127.0.0.1:11434 (version 0.1.30)")
     .say("amdgpu is not supported", "WARN", "amd_linux.go:120", gpu_type="gfx802", supported_types="[gfx1030 gfx1100]").text())  # fmt: skip
case("nix-308206", "gpu_not_supported_by_backend", Log("0.1.31").say("amdgpu version file missing", "WARN", "amd_linux.go:53")
     .say("amdgpu is not supported", "WARN", "amd_linux.go:120", gpu_type="gfx803", supported_types="[gfx1030 gfx1100 gfx900]").text())  # fmt: skip
case("oll-8473", "gfx_override", drop_in('Environment="HSA_OVERRIDE_GFX_VERSION_0=10.3.0"', 'Environment="HSA_OVERRIDE_GFX_VERSION_1=11.0.0"'))
case("oll-12071", "gfx_override", Log("0.11.6").config(HSA_OVERRIDE_GFX_VERSION="gfx1102").listen()
     .say("skipping rocm gfx compatibility check", source="amd_windows.go:128", HSA_OVERRIDE_GFX_VERSION="gfx1102")
     .say("amdgpu is not supported (supported types:[])", "WARN", "amd_windows.go:138", gpu_type="gfx1103").cpu().text())  # fmt: skip
case("lllfa-67", "gfx_override", Log("0.5.1").config(HSA_OVERRIDE_GFX_VERSION="10.3.0").listen().say("amdgpu is not supported (supported types:[])", "WARN", "amd_windows.go:138").cpu()
     .raw("wsarecv: An existing connection was forcibly closed by the remote host.").text())  # fmt: skip
case("nomad-1075", "gfx_override", "environment:\n  - HSA_OVERRIDE_GFX_VERSION=11.0.0\nROCm 7.2 has gfx1103 and gfx1151 natively supported (780M)\n")
case("oll-17069", "gpu_discovery_timeout", Log("0.31.0").config().listen("[::]:11434")
     .say("failure during llama-server GPU discovery", source="runner.go:120", error="context deadline exceeded").cpu().text())  # fmt: skip
case("oll-16482", "visible_devices_override", Log("0.30.3").config(CUDA_VISIBLE_DEVICES="1", GGML_VK_VISIBLE_DEVICES="0", OLLAMA_IGPU_ENABLE="true", OLLAMA_KV_CACHE_TYPE="q4_0", OLLAMA_NUM_PARALLEL="2", OLLAMA_VULKAN="true").listen()
     .say("user overrode visible devices", "WARN", "runner.go:66", CUDA_VISIBLE_DEVICES="1").cpu().text())  # fmt: skip
case("oll-17766", "gpu_subset_used", "".join([g := Log("0.32.2").config().listen(), *[g.gpu("Quadro P6000", "23.9 GiB", "23.7 GiB", cc="6.1", driver="13.0", id=i) for i in range(5)]][-1].text()))
case("oll-5455", "gpu_subset_used", (g := served("0.1.48")).gpu().gpu().gpu().text())
case("oll-2825", "cpu_lacks_avx", Log("0.1.27").say("CPU does not have vector extensions", source="cpu_common.go:18")
     .say("CPU does not have AVX or AVX2, disabling GPU support.", "WARN", "gpu.go:128").text())  # fmt: skip
case("oll-1495", "cpu_lacks_avx", "Model name: Common KVM processor\nillegal instruction (core dumped)\n")
case("oll-11471", "flash_attention_disabled_by_other_gpu", Log("0.9.6").config(OLLAMA_FLASH_ATTENTION="true", OLLAMA_KV_CACHE_TYPE="q8_0", OLLAMA_NUM_PARALLEL="4").listen()
     .gpu("NVIDIA GeForce RTX 4090", cc="8.9").gpu("NVIDIA GeForce GTX 1060", "6.0 GiB", "5.8 GiB", cc="6.1")
     .say("flash attention enabled but not supported by gpu", "WARN", "server.go:211").text())  # fmt: skip
case("ipex-13246", "flash_attention_unsupported_gpu", Log("0.9.0").config(OLLAMA_FLASH_ATTENTION="true").listen()
     .gpu("Intel(R) Arc(TM) A770", "15.6 GiB", "14.9 GiB", "oneapi", "", "0.0").say("flash attention enabled but not supported by gpu", "WARN", "server.go:211").text())  # fmt: skip
case("lcpp-27923", "service_started_before_gpu", on_cpu().raw("ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected", "warning: no usable GPU found, --gpu-layers option will be ignored").text())
case("oll-4984", "vgpu_uvm_unsupported", "| 0  GRID T4-8Q  On | vGPU profile |\n", on_cpu("0.1.44").raw("cudart init failure: 801").text())
case("intelarc-17", "rebar_disabled", "Resizable BAR is not active for this device\n", Log("0.6.2").config().listen().gpu("Intel(R) Arc(TM) A770", lib="oneapi")
     .say("gpu VRAM usage didn't recover within timeout", "WARN", "sched.go:647", seconds="5.26", model=A).text())  # fmt: skip
case("oll-14258", "discovery_ok_but_runner_cpu", served("0.15.2").load(4096, layers=(0, 33), ngl=33).text())
case("oll-10883", "discovery_ok_but_runner_cpu", Log("0.7.0").config().listen().gpu("AMD Radeon RX 7600", "16.0 GiB", "15.9 GiB", "rocm", "gfx1102", "6.3")
     .load(4096, layers=(0, 33)).text())  # fmt: skip
case("raw-again-vulkan", "gpu_hidden_in_one_backend_only", Log("0.32.5").config(CUDA_VISIBLE_DEVICES="-1").listen().say("user overrode visible devices", "WARN", CUDA_VISIBLE_DEVICES="-1")
     .gpu("NVIDIA GeForce RTX 3050 Laptop GPU", "3.9 GiB", "3.5 GiB", "Vulkan").text())  # fmt: skip
case("oll-7253", "gpu_uneven_split", served("0.3.9").gpu("NVIDIA GeForce GTX 1070", "8.0 GiB", "7.5 GiB", cc="6.1").load(32768, layers=(20, 33), ngl=20).text())
# -- context --
case("roo-1372", "prompt_truncated", Log("0.5.7").say("truncating input prompt", "WARN", "runner.go:129", limit=2048, prompt=16101, keep=4, new=2048).text())
case("oll-6253", "prompt_truncated", Log("0.3.4").config(OLLAMA_DEBUG="true").listen().say("truncating input messages which exceed context length", "DEBUG", "prompt.go:51", truncated=3).text())
case("oll-4967", "prompt_truncated", Log("0.1.42").raw('{"function":"update_slots","level":"WARN","line":1840,"msg":"input truncated","n_ctx":2048,"n_keep":24,"tid":"1","timestamp":1}').text())
case("raw-again-4096", "prompt_truncated", served("0.13.5").load(4096, layers=(33, 33)).say("truncating input prompt", "WARN", "runner.go:153", limit=4096, prompt=9231, keep=4, new=4096).gin(200, "12.1s").text())
case("oll-17427", "prompt_truncated", served("0.32.0").load(65536, layers=(33, 33)).say("truncating input prompt", "WARN", "llama_server.go:900", limit=32770, prompt=65601, keep=4, new=32770).text())
case("idx-ctx-too-large-qwen", "num_ctx_capped_to_trained_context", Log("0.31.1").config().listen().gpu("Apple M2", "16.0 GiB", "15.0 GiB", "Metal", "0.0", "0.0", type="iGPU")
     .say("requested context size too large for model", "WARN", "server.go:200", num_ctx=262144, n_ctx_train=40960).load(40960).text())  # fmt: skip
case("oll-11283", "num_ctx_capped_to_trained_context", served("0.9.3", OLLAMA_CONTEXT_LENGTH="32768").say("requested context size too large for model", "WARN", "server.go:120", num_ctx=32768, num_parallel=1, n_ctx_train=8192).text())
case("idx-0333-786432", "context_multiplied_by_parallel", Log("0.33.3").load(262144, 3).text())
case("oll-10735", "context_multiplied_by_parallel", Log("0.7.0").config(OLLAMA_NUM_PARALLEL="20").listen().gpu("NVIDIA H100", "79.6 GiB", "79.0 GiB")
     .load(32768, 20, ngl=29, ok=False).raw("llama_kv_cache_unified: kv_size = 655360, type_k = 'f16'", "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 42256.00 MiB on device 0: cudaMalloc failed: out of memory")
     .say("error loading llama server", "ERROR", error="llama runner process has terminated: cudaMalloc failed: out of memory").text())  # fmt: skip
case("idx-olmo3-parallel4", "context_multiplied_by_parallel", Log("0.17.0").load(32768, 4).text())
case("idx-cpu-c8192-np2", "context_multiplied_by_parallel", Log("0.33.0", "ollama-1  | ").config(OLLAMA_NUM_PARALLEL="2").listen("[::]:11434").cpu().load(4096, 2).text())
case("lcpp-17767", "per_slot_context_smaller_than_believed", Log("0.30.0").load(1024, 4).text())
case("oll-6902", "per_slot_context_smaller_than_believed", Log("0.3.9").config().listen().gpu().load(120000, 1, ngl=33, layers=(33, 33)).later(400).load(5000, 4, ngl=33, layers=(33, 33)).text())
case("oll-14116", "vram_tiered_default_context", served("0.15.5", OLLAMA_NUM_PARALLEL="4").tier("48.0 GiB", 262144).text())
case("oll-14120", "vram_tiered_default_context", served("0.15.5", OLLAMA_NUM_PARALLEL="4").tier("24.0 GiB", 32768).text())
case("oll-14073", "vram_tiered_default_context", Log("0.15.5").config().listen().gpu("NVIDIA A6000", "52.0 GiB", "51.0 GiB").tier("52.0 GiB", 262144).load(262144, layers=(10, 25), kv_mib=30000).text())
case("raw-again-tier", "vram_tiered_default_context", served("0.19.0").tier("24.0 GiB", 32768).load(32768, layers=(49, 65), kv_mib=8192, ngl=49).text())
case("idx-declared-numctx", "num_ctx_differs_from_declared", served(OLLAMA_CONTEXT_LENGTH="32768").text(), ps("qwen3:8b        aaaaaaaaaaaa    6.5 GB    100% GPU     8192       4 minutes from now"))
case("oll-9452", "env_set_in_shell_not_service", "export OLLAMA_CONTEXT_LENGTH=32768\n", Log("0.5.13").config(OLLAMA_CONTEXT_LENGTH="2048").listen().text())
# -- slots and queue --
case("oll-14638", "parallel_forced_to_1_by_architecture", served("0.17.1", OLLAMA_NUM_PARALLEL="4").say("model architecture does not currently support parallel requests", "WARN", "sched.go:450", architecture="qwen35moe").text())
case("oll-17556", "parallel_forced_to_1_by_architecture", served("0.32.15", OLLAMA_NUM_PARALLEL="4", OLLAMA_KV_CACHE_TYPE="q8_0", OLLAMA_CONTEXT_LENGTH="8192").say("model architecture does not currently support parallel requests", "WARN", "sched.go:450", architecture="qwen35")
     .load(8192, 1, more=" --cache-type-k q8_0 --cache-type-v q8_0").text())  # fmt: skip
case("oll-12849", "parallel_forced_to_1_by_architecture", served("0.12.7", OLLAMA_NUM_PARALLEL="6", OLLAMA_CONTEXT_LENGTH="8192").say("model architecture does not currently support parallel requests", "WARN", "sched.go:450", architecture="qwen3vl").load(8192, 1).text())
case("oll-17144", "parallel_forced_to_1_by_architecture", Log("0.32.13").config(OLLAMA_NUM_PARALLEL="2").listen().say("model architecture does not currently support parallel requests", "WARN", "sched.go:450", architecture="qwen35").load(4096, 1).text())
case("idx-qwen35-waired", "parallel_forced_to_1_by_architecture", Log("0.30.2").say("model architecture does not currently support parallel requests", "WARN", "sched.go:450", architecture="qwen35").load(32768, 1).text())
case("idx-lfm2-n_slots", "parallel_forced_to_1_by_architecture", Log("0.30.2").config(OLLAMA_NUM_PARALLEL="3").listen().say("model architecture does not currently support parallel requests", "WARN", "sched.go:450", architecture="lfm2").load(4096, 1)
     .raw("srv  load_model: initializing, n_slots = 1, n_ctx_slot = 4096, kv_unified = 'false'").text())  # fmt: skip
case("mllama-old", "parallel_forced_to_1_by_architecture", served("0.4.2", OLLAMA_NUM_PARALLEL="4").say("mllama doesn't support parallel requests yet", "WARN", "sched.go:200").load(2048, 1).text())
case("oll-8778", "parallel_forced_to_1_embedding", served("0.5.7", OLLAMA_NUM_PARALLEL="8").load(2048, 1, model="/usr/share/ollama/.ollama/models/blobs/nomic-embed", ngl=13, layers=(13, 13)).gin(200, "0.4s", "/api/embed").text())
case("oll-9634", "parallel_forced_to_1_embedding", served("0.33.0", OLLAMA_NUM_PARALLEL="4").load(2048, 1, embedding=True).text())
case("idx-slots-not-in-api", "parallel_lower_than_configured", served("0.32.1", OLLAMA_NUM_PARALLEL="4").load(4096, 1).text())
case("oll-11942", "parallel_is_one", served("0.11.4").load(4096, 1, layers=(33, 33), ngl=33).gin(200, "8.2s").later(8).gin(200, "16.3s").later(8).gin(200, "24.4s").text())
case("oll-9054", "parallel_is_one", served("0.6.2", OLLAMA_NUM_PARALLEL="1").later(8).gin(200, "6.7s").later(7).gin(200, "6.6s").later(4).gin(200, "4.3s").text())
case("oll-9246", "parallel_auto_value_unknown", served("0.5.7").text())
case("oll-11196", "parallel_auto_value_unknown", Log("0.9.5").config().listen().load(4096, 2).text())
case("oll-7758", "max_queue_not_applied_to_loaded_model", (q := served("0.3.14", OLLAMA_NUM_PARALLEL="1", OLLAMA_MAX_QUEUE="1").load(2048, 1, ngl=33, layers=(33, 33)).later(10)) and "".join(
    [q.gin(200, f"{2 * n}.0s").later(2) for n in range(2, 8)][-1].text()))  # fmt: skip
case("pdl-702", "queue_full_503", (q := served("0.5.13").load(2048, 4, ngl=33, layers=(33, 33))) and [q.gin(503, f"{n}.3ms", "/api/generate") for n in range(42, 47)][-1].text())
case("oll-4124", "queue_full_503", (q := Log("0.1.33").config().listen()) and [q.gin(500, "1.2ms", "/api/embeddings") for n in range(9)][-1].text())
case("llmvision-648", "queue_full_503", "provider error: server busy, please try again. maximum pending requests exceeded\n" * 3)
case("idx-503-as-absent", "queue_full_503", '{"error":"server busy, please try again.  maximum pending requests exceeded"}\n')
# -- clients --
case("allm-2229", "queue_wait_exceeds_client_timeout", (q := served("0.3.9").load(2048, 1, ngl=13, layers=(13, 13)).later(231)) and [q.gin(200, f"3m{51 + 7 * n}s" if 51 + 7 * n < 60 else f"4m{51 + 7 * n - 60}s", "/api/embeddings").later(7) for n in range(7)][-1].gin(500, "5m0s", "/api/embeddings").text())
case("pair-57", "queue_wait_exceeds_client_timeout", 'net/http: timeout awaiting response headers\n', served("0.30.0").text())
case("oll-9006", "proxy_timeout_60s", served("0.5.7").gin(200, "45.1s").gin(200, "51.0s").gin(500, "59.794s").text())
case("oll-7373", "proxy_timeout_60s", served("0.3.6").gin(500, "1m0s").gin(500, "1m0s").gin(500, "1m0s").text())
case("raw-again-2min", "client_timeout_500_clusters", (q := on_cpu("0.12.6").load(4096, 1)) and [q.later(30).gin(500, "2m0s", "/api/generate") for _ in range(6)][-1].text())
case("lollms-37", "client_timeout_during_load", served("0.20.0").load(4096, 1, ok=False).say("client connection closed before server finished loading, aborting load", "WARN", "sched.go:580").gin(499, "30.0s").text())
case("oll-4427", "client_timeout_during_load", Log("0.1.37").config().listen().gpu().load(2048, 1, ok=False).say("client connection closed before server finished loading, aborting load", "WARN", "server.go:560")
     .say("gpu VRAM usage didn't recover within timeout", "WARN", "sched.go:507", seconds="5.1").say("error loading llama server", "ERROR", error="timed out waiting for llama runner to start: context canceled").gin(499, "1m2s").text())  # fmt: skip
case("oll-7024", "request_running_invisible_in_log", served("0.3.6").load(2048, 1, ngl=33, layers=(33, 33)).later(2000).gin(500, "32m31s", "/api/generate").text())
case("idx-hang-no-slot", "request_never_reaches_slot", served("0.32.4").load(4096, 1).later(700).gin(500, "9m59s").text())
case("oll-2425", "origin_not_allowed_403", Log("0.1.24").gin(403, "14.2µs", "/v1/chat/completions").text())
case("oll-1797", "origin_not_allowed_403", "Access to fetch at 'http://localhost:11434/api/tags' from origin 'chrome-extension://abc' has been blocked by CORS policy\n")
case("ipex-11916", "origin_not_allowed_403", served("0.3.6").gin(403, "20.1µs", "/api/tags", "OPTIONS").text())
case("owui-753", "invalid_value", '{"error":"time: missing unit in duration \\"-1\\""}\n')
case("reasonix-10245", "client_num_ctx_not_sent", "POST /v1/chat/completions {\"options\": {\"num_ctx\": 32768}}\n", served("0.33.3").load(4096, 1).text())
case("dify-1750", "client_num_ctx_not_sent", "context size set in the client is ignored\n  context length      131072\n  Parameters: temperature 0.15, no num_ctx\n")
case("flowise-3576", "client_overrides_keep_alive", served("0.5.1", OLLAMA_KEEP_ALIVE="2562047h47m16.854775807s").text(), ps("llama3:8b       aaaaaaaaaaaa    6.7 GB    100% GPU     4 minutes from now", context=False))
case("ha-135952", "client_overrides_keep_alive", (q := Log("0.5.7")) and [q.later(60).gin(200, t) for t in ("5.1s", "45.2s", "5.0s", "5.3s", "52.0s", "4.9s")][-1].text())
case("oll-8525", "client_host_differs_from_server", served("0.5.7", "[::]:3001", OLLAMA_HOST="http://0.0.0.0:3001").text(), "$ ollama list\nError: could not connect to ollama app, is it running?\n")
case("oll-10311", "client_server_version_mismatch", "$ ollama --version\nollama version is 0.6.5\nWarning: client version is 0.6.2\n")
# -- memory --
case("oll-10532", "oom_killed", Log("0.6.7").say("llama runner terminated", "ERROR", "server.go:900", error="signal: killed").text())
case("oll-8571", "oom_killed", Log("0.5.7").load(2048, 1, ok=False).raw("load_tensors:   CPU_Mapped model buffer size = 322657.21 MiB", "load_tensors: Metal model buffer size = 63032.41 MiB")
     .say("error loading llama server", "ERROR", error="llama runner process has terminated: signal: killed").gin(500, "49.9s").text())  # fmt: skip
case("oll-6238", "oom_killed", served("0.3.4").load(2048, 4, ngl=0, ok=False).say("error loading llama server", "ERROR", error="llama runner process has terminated: signal: killed").raw("Error: EOF").text())
case("oll-11231", "oom_killed", Log("0.6.0").load(2048, 1, ok=False).raw("load_tensors:          CPU model buffer size =  4977.62 MiB").text(),
     journal("ollama.service: A process of this unit has been killed by the OOM killer.", "ollama.service: Failed with result 'oom-kill'."))  # fmt: skip
case("morphik-120", "memory_limit_below_need", "    mem_limit: 12g\n", "ollama  | Error: model requires more system memory (11.3 GiB) than is available (11.2 GiB)\n")
case("idx-cgroup-memorymax", "memory_limit_below_need", drop_in("Environment=OLLAMA_CONTEXT_LENGTH=32768", "Environment=OLLAMA_NUM_PARALLEL=8", "MemoryMax=400M"),
     Log("0.34.0").load(32768, 8, ok=False).text(), journal("ollama.service: A process of this unit has been killed by the OOM killer.", "ollama.service: Failed with result 'oom-kill'."))  # fmt: skip
case("oll-13556", "ram_too_small", served("0.13.0").say("model request too large for system", "WARN", "server.go:900", requested="39.4 GiB").raw("Error: model requires more system memory (39.4 GiB) than is available (30.0 GiB)").gin(500, "1.2s").text())
case("oll-6723", "ram_too_small", "Error: model requires more system memory (21.8 GiB) than is available (14.2 GiB)\n")
case("idx-lowram-loader-oom", "ram_too_small", on_cpu("0.32.15").raw("common_params_fit_impl: projected to use 3645 MiB of host memory vs. 2973 MiB of total host memory").text())
case("oll-8447", "load_oom", Log("0.5.4").load(2048, 1, ngl=62, ok=False).raw("ggml_backend_cuda_buffer_type_alloc_buffer: allocating 35533.34 MiB on device 0: cudaMalloc failed: out of memory", "panic: unable to load model: /models/blobs/sha256-a").text())
case("oll-1952", "load_oom", "2024/01/12 12:00:00 routes.go:930: Listening on 127.0.0.1:11434 (version 0.1.20)\nCUDA error 2 at ggml-cuda.cu:6600: out of memory\n")
case("oll-9782", "load_oom", served("0.5.7").load(4096, 1, ngl=65, ok=False).raw("ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1000.00 MiB on device 0: cudaMalloc failed: out of memory").text())
case("oll-2752", "load_oom", Log("0.1.27").raw("llama_new_context_with_model: n_ctx      = 4096", "llama_new_context_with_model: KV self size  = 2048.00 MiB, K (f16): 1024.00 MiB, V (f16): 1024.00 MiB", "CUDA error: out of memory").text())
case("idx-ha-vram-warning", "partial_offload", ps("qwen2.5:7b      aaaaaaaaaaaa    5.9 GB    54%/46% CPU/GPU    4 minutes from now", context=False), Log("0.5.7").say("gpu VRAM usage didn't recover within timeout", "WARN", "sched.go:646", seconds="5.1").text())
case("oll-5756", "partial_offload", served("0.2.1", OLLAMA_NUM_PARALLEL="16").load(2048, 16, ngl=25, layers=(25, 33), weights_mib=3800).text())
case("oll-7198", "kv_cache_exceeds_vram", ps("llama3.2:3b     aaaaaaaaaaaa    10 GB     33%/67% CPU/GPU    40000      4 minutes from now"))
case("oll-10615", "kv_cache_exceeds_vram", offload(served("0.6.5"), layers=(0, 41), free="23.3 GiB 23.3 GiB", full="33.9 GiB", kv="20.0 GiB", graph="13.3 GiB").text())
case("oll-10765", "below_minimum_vram_for_any_layer", offload(Log("0.7.0").config().listen().gpu("NVIDIA GeForce GTX 1650", "4.0 GiB", "3.2 GiB"), layers=(0, 35), free="3.2 GiB", full="2.6 GiB", kv="200.0 MiB", graph="1.0 GiB").text())
case("oll-10823", "vram_used_by_other_process", offload(offload(served("0.7.0"), layers=(49, 63), free="17.8 GiB", full="23.4 GiB", kv="1.0 GiB"), layers=(62, 63), free="21.7 GiB", full="23.4 GiB", kv="1.0 GiB").text())
case("oll-6206", "vram_recovery_timeout", Log("0.3.4").say("gpu VRAM usage didn't recover within timeout", "WARN", "sched.go:642", seconds="5.065", model=A).text())
case("oll-7130", "vram_recovery_timeout", served("0.3.6").say("runner with non-zero duration has gone idle, adding timer", "DEBUG", "sched.go:467", duration="1m0s").say("gpu VRAM usage didn't recover within timeout", "WARN", "sched.go:646", seconds="5.1", model=A).text())
case("oll-7745", "vram_recovery_timeout", served("0.4.0", OLLAMA_NUM_PARALLEL="1").load(8192, 1, ngl=101, layers=(101, 101), kv_mib=672).say("gpu VRAM usage didn't recover within timeout", "WARN", "sched.go:646", seconds="5.1", model=A).text())
case("oll-7654", "vram_recovery_timeout", Log("0.4.0").load(2048, 4, ngl=33, layers=(33, 33)).say("gpu VRAM usage didn't recover within timeout", "WARN", "sched.go:646", seconds="5.2", model=A).text())
case("idx-wsl-gptoss-vram", "vram_recovery_warning_benign", "uname -r: 5.15.153.1-microsoft-standard-WSL2\n", Log("0.11.4").say("gpu VRAM usage didn't recover within timeout", "WARN", "sched.go:646", seconds="5.2", model=A).text())
case("oll-13722", "memory_regression_after_upgrade", ps("qwen3-vl:8b     aaaaaaaaaaaa    9.4 GB    100% GPU     16384      4 minutes from now"), ps("qwen3-vl:8b     aaaaaaaaaaaa    14 GB     100% GPU     16384      4 minutes from now"))
case("oll-9016", "slow_model_storage", served("0.5.7", OLLAMA_LOAD_TIMEOUT="10m0s", OLLAMA_MODELS="/models").say("gpu VRAM usage didn't recover within timeout", "WARN", "sched.go:646", seconds="5.1", model=A).text())
# -- models --
case("oll-7773", "model_reload_every_request", served("0.4.2").load(2048, 1, ngl=33, layers=(33, 33)).say("evaluating already loaded", "DEBUG", "sched.go:600").say("resetting model to expire immediately to make room", "DEBUG", "sched.go:160")
     .load(8192, 1, ngl=33, layers=(33, 33)).say("resetting model to expire immediately to make room", "DEBUG", "sched.go:160").load(2048, 1, ngl=33, layers=(33, 33)).text())  # fmt: skip
case("oll-8029", "model_reload_every_request", ps("qwq:32b         aaaaaaaaaaaa    13 GB     100% GPU     Forever", context=False), ps("qwq:32b         aaaaaaaaaaaa    3.1 GB    100% GPU     Forever", context=False), ps("qwq:32b         aaaaaaaaaaaa    13 GB     100% GPU     Forever", context=False))
case("oll-6148", "model_reload_every_request", served("0.3.3", OLLAMA_NUM_PARALLEL="4").load(8192, 4, ngl=13, layers=(13, 33)).load(8192, 1, ngl=20, layers=(20, 33)).load(8192, 4, ngl=13, layers=(13, 33)).text())
case("raw-again-evict", "models_evict_each_other", served("0.13.5").load(2048, 1, model=B, layers=(13, 13)).say("model requires more gpu memory than is currently available, evicting a model to make space", source="sched.go:600", loaded__layers=0)
     .load(8192, 1, layers=(81, 81)).load(2048, 1, model=B, layers=(13, 13)).load(8192, 1, layers=(81, 81)).text())  # fmt: skip
case("oll-13227", "models_evict_each_other", on_cpu("0.13.0").line("system memory", 'total="503.6 GiB" free="498.1 GiB" free_swap="8.0 GiB"', source="server.go:400")
     .line("model requires more memory than is currently available, evicting a model to make space", '"loaded layers"=0', source="sched.go:600").text())  # fmt: skip
case("oll-5398", "models_evict_each_other", served("0.1.48", OLLAMA_NUM_PARALLEL="4", OLLAMA_MAX_LOADED_MODELS="2").load(2048, 4, ngl=33, layers=(33, 33)).load(2048, 4, model=B, ngl=33, layers=(33, 33)).load(2048, 4, ngl=33, layers=(33, 33)).load(2048, 4, model=B, ngl=33, layers=(33, 33)).text())
case("oll-9617", "model_stuck_stopping", ps("starcoder2:3b   aaaaaaaaaaaa    3.0 GB    100% GPU     Stopping...", context=False))
case("oll-7779", "model_stuck_stopping", served("0.5.1", OLLAMA_NUM_PARALLEL="1").text(), ps("llama3:8b       aaaaaaaaaaaa    6.7 GB    100% GPU     Stopping...", context=False))
case("oll-17428", "runner_hung_parent_healthy", ps("qwen3-embedding:4b    aaaaaaaaaaaa    8.7 GB    100% GPU    32768    Stopping..."), "curl: (28) Operation timed out after 60001 milliseconds with 0 bytes received\n")
case("oll-12305", "num_gpu_override_too_high", served("0.11.11").load(4096, 1, ngl=99, ok=False).say("error loading llama server", "ERROR", error="memory layout cannot be allocated with num_gpu = 99").text())
case("idx-890m-rocm-hang", "num_gpu_override_too_high", '{"model": "qwen3:32b", "options": {"num_gpu": 99}}\n', Log("0.31.1").config().listen().gpu("AMD Radeon 890M", "47.0 GiB", "46.0 GiB", "ROCm", "gfx1150", "7.0", type="iGPU").text())
case("oll-9206", "keep_alive_does_not_pin", served("0.12.11", OLLAMA_KEEP_ALIVE="2562047h47m16.854775807s", OLLAMA_MAX_LOADED_MODELS="5").line("model requires more memory than is currently available, evicting a model to make space", '"loaded layers"=10').text())
# -- KV type --
case("oll-6279", "kv_type_without_flash_attention", Log("0.5.0").say("quantized kv cache requested but flash attention disabled", "WARN", "server.go:240", type="q8_0").text())
case("oll-15043", "kv_type_without_flash_attention", served("0.17.7", OLLAMA_KV_CACHE_TYPE="q8_0").load(4096, 1, ok=False).raw("llama_init_from_model: flash_attn is not compatible with Grok - forcing off", "llama_init_from_model: V cache quantization requires flash_attn", "panic: unable to create llama context").text())
case("idx-k80-fa", "kv_type_without_flash_attention", served("0.9.0", OLLAMA_KV_CACHE_TYPE="q8_0").text())
case("idx-kv-unknown-type", "kv_type_invalid", Log("0.21.0").config(OLLAMA_KV_CACHE_TYPE="tq3").listen().gpu("Apple M1", lib="Metal").text())
case("oll-13337", "kv_type_ignored_by_architecture", served("0.13.0", OLLAMA_KV_CACHE_TYPE="q8_0", OLLAMA_FLASH_ATTENTION="true")
     .load(4096, 1, says="llama_kv_cache: size =  512.00 MiB (  4096 cells,  32 layers,  1/1 seqs), K (f16):  256.00 MiB, V (f16):  256.00 MiB").text())  # fmt: skip
# -- loads --
case("oll-10517", "load_timeout", served("0.6.2").load(2048, 1, ngl=40, ok=False).say("error loading llama server", "ERROR", error="timed out waiting for llama runner to start - progress 0.00 - ").text())
case("oll-16533", "runner_crash_on_load", Log("0.30.5").config().listen().gpu("Tesla V100", "32.0 GiB", "31.0 GiB", cc="7.0").load(4096, 1, ok=False).say("llama-server terminated", "ERROR", "llama_server.go:700", error="signal: aborted (core dumped)").say("Load failed", "INFO", "sched.go:600", error="llama-server process has terminated: signal: aborted").text())
case("idx-no-arch", "version_outdated", Log("0.5.0").load(2048, 1, ok=False).raw("llama_model_load: error loading model: error loading model architecture: unknown model architecture: 'qwen3'").text())
case("idx-truncated", "model_blob_truncated", Log("0.33.0").load(4096, 1, ok=False).raw("llama_model_load: error loading model: tensor 'blk.9.ffn_up.weight' data is not within the file bounds, model is corrupted or incomplete").say("Load failed", error="llama-server process has terminated: exit status 1").text())
case("oll-7012", "tmp_full", on_cpu("0.3.12").raw("Error: failed to extract files: write /tmp/ollama2012/runners/cuda_v12/libggml.so: no space left on device").text())
case("oll-6985", "tmp_full", Log("0.3.12").raw("Error: unable to initialize llm library failed to extract files: write /tmp/ollama1812/runners/cuda/libcublas.so: no space left on device").text())
case("oll-4229", "tmp_noexec", Log("0.1.33").config().listen().say("error loading llama server", "ERROR", error="unable to start: fork/exec /tmp/ollama3311/runners/cpu_avx2/ollama_llama_server: permission denied").text())
_ = (unit_file, numbers)
