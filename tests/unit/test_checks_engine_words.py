"""Messages of the server, the engine, the drivers and a client, as releases word them: each is told, its near miss not.

A row: the check, lines that make it fire, and nearly the same, on which it must say nothing at warning or above."""

# ruff: noqa: E501 - lines of logs
from __future__ import annotations

import pytest
from wording_rows import Row, fires_first, near_miss_is_quiet, report

from tests.system.small import A, Log, on_cpu, served

CLIENT = "Error: {}\n"
KERNEL = "Aug 28 08:33:58 host kernel: {}\n"
SYSTEMD = "Aug 28 08:33:58 host systemd[1]: ollama.service: {}\n"


def failed(release: str, *says: str, error: str = "exit status 2") -> str:
    """A load that fails: what the engine says, then what the server makes of it."""
    log = served(release).load(4096, ok=False).raw(*says)
    msg, level = ("Load failed", "INFO") if release >= "0.11.5" and not release.startswith("0.5") else ("error loading llama server", "ERROR")
    return log.say(msg, level, model=A, error=f"llama runner process has terminated: {error}").gin(500, "1.2s").text()


def worked(release: str, *says: str, status: int = 200) -> str:
    """A load that goes well, and what the engine says after it."""
    return served(release).load(4096, layers=(33, 33)).raw(*says).gin(status, "3.1s").text()


def cpu_only(release: str, msg: str, level: str = "INFO", **fields: object) -> str:
    return on_cpu(release).say(msg, level, "gpu.go:600", **fields).text()


HARMLESS = worked("0.12.6")
ROWS: dict[str, Row] = {
    # fragments and old releases
    "the engine leaves a part out": ("partial_offload",
        "common_params_fit_impl: projected to use 9120 MiB of device memory vs. 5810 MiB of free device memory\ncommon_params_fit_impl: cannot meet free memory target of 1024 MiB, need to reduce device memory by 4334 MiB\n",
        "common_params_fit_impl: projected to use 4120 MiB of device memory vs. 5810 MiB of free device memory\ncommon_params_fit_impl: cannot meet free memory target of 1024 MiB, need to reduce device memory by 334 MiB\ncommon_params_fit_impl: entire model can be fit by reducing context\n"),
    "no library goes with the GPU": ("package_without_gpu_libs", Log("0.6.2").line("compatible gpu libraries", "compatible=[]", "DEBUG", "server.go:259").text(), on_cpu("0.6.2").line("compatible gpu libraries", "compatible=[]", "DEBUG", "server.go:259").text()),
    "runners for the CPU, a GPU in use": ("package_without_gpu_libs",
        Log("0.5.1").say("Dynamic LLM libraries", runners="[cpu]").say("updated VRAM based on existing loaded models", gpu="GPU-1", library="cuda").text(),
        Log("0.5.1").say("Dynamic LLM libraries", runners="[cpu]").say("updated VRAM based on existing loaded models", gpu="0", library="cpu").text()),
    # memory
    "cuBLAS has no memory": ("load_oom", worked("0.6.5", "CUDA error: the resource allocation failed", "  current device: 0, in function cublas_handle", status=500), HARMLESS),
    "cuBLAS by its code": ("load_oom", worked("0.5.7", "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED", status=500),
                           worked("0.5.7", "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED", status=500)),
    "Vulkan's host memory": ("load_oom", failed("0.12.6", "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfHostMemory"), failed("0.12.6", "ggml_vulkan: vk::Queue::submit: ErrorDeviceLost")),
    "Vulkan's largest buffer": ("load_oom", failed("0.33.0", "ggml_vulkan: Requested buffer size (7290077184) exceeds device buffer size limit (4294967296)"), HARMLESS),
    "Metal": ("load_oom", worked("0.6.5", "ggml_metal_graph_compute: command buffer 0 failed with status 5", "error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)", status=500),
              worked("0.6.5", "ggml_metal_graph_compute: command buffer 0 failed with status 5", "error: Internal Error (0000000e:Internal Error)", status=500)),
    "C++": ("load_oom", failed("0.5.7", "terminate called after throwing an instance of 'std::bad_alloc'"), failed("0.5.7", "terminate called after throwing an instance of 'std::runtime_error'")),
    "the C library": ("load_oom", failed("0.5.7", "llama_model_load: error loading model: mmap failed: Cannot allocate memory"),
                      worked("0.5.7", "warning: failed to mlock 497111040-byte buffer (after previously locking 0 bytes): Cannot allocate memory")),
    "a smaller buffer does": ("load_oom", failed("0.33.0", "ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 5000000000", "graph_reserve: failed to allocate compute buffers"),
                              served("0.33.0").load(4096, layers=(33, 33), ok=False).raw("ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 5000000000",
                              "llama_context: compute buffer allocation failed, retrying without pipeline parallelism").say("llama-server started in 2.10 seconds").gin(200, "3s").text()),
    "num_gpu refused": ("num_gpu_override_too_high", served("0.12.6").load(4096, ok=False).say("Load failed", error="memory layout cannot be allocated with num_gpu = 99").gin(500, "1s").text(), failed("0.12.6")),
    # the model and the release
    "a tensor that is not there": ("version_outdated", failed("0.5.7", "llama_model_load: error loading model: missing tensor 'output_norm.weight'"), failed("0.5.7", "llama_model_load: error loading model: read error: Input/output error")),
    "a type of tensor that is too new": ("version_outdated", failed("0.5.7", "gguf_init_from_file_impl: tensor 'blk.0.ffn' has invalid ggml type 39 (NONE)", "gguf_init_from_file_impl: failed to read tensor info"), HARMLESS),
    "an architecture for the Go engine": ("version_outdated", served("0.9.0").load(4096, ok=False).say("error loading llama server", "ERROR", error='unable to load model: /m: unsupported model architecture "gptoss"').text(), HARMLESS),
    "by the client's words": ("version_outdated", CLIENT.format("this model may be incompatible with your version of Ollama. If you previously pulled this model, try updating it by running `ollama pull x`"),
                              CLIENT.format("model 'x' not found, try pulling it first")),
    "whatever the reason": ("version_outdated", CLIENT.format("500 Internal Server Error: unable to load model: /m/blobs/sha256-9811"), failed("0.5.7", "cudaMalloc failed: out of memory", "panic: unable to load model: /m/blobs/sha256-9811")),
    "a tokenizer of another time": ("version_outdated", CLIENT.format("llama runner process has terminated: error loading modelvocabulary: cannot find tokenizer merges in model file"), CLIENT.format("llama runner process has terminated: exit status 2")),
    "tensor info that breaks off": ("model_blob_truncated", failed("0.5.7", "gguf_init_from_file_impl: failed to read tensor info"), failed("0.5.7", "gguf_init_from_file_impl: tensor 'blk.0.ffn' has invalid ggml type 39 (NONE)", "gguf_init_from_file_impl: failed to read tensor info")),
    "a blob, Windows": ("model_blob_missing", CLIENT.format("open C:\\Users\\me\\.ollama\\models\\blobs\\sha256-" + "a" * 64 + ": The system cannot find the file specified."), CLIENT.format("open C:\\Users\\me\\Modelfile: The system cannot find the file specified.")),
    "a blob, the engine": ("model_blob_missing", failed("0.5.7", f"gguf_init_from_file: failed to open '{A}': 'No such file or directory'"), failed("0.5.7", "gguf_init_from_file: failed to open '/tmp/x.gguf': 'No such file or directory'")),
    # the runner
    "an answer that breaks off": ("runner_crash_on_load", CLIENT.format("an error was encountered while running the model: unexpected EOF"), CLIENT.format("max retries exceeded: unexpected EOF")),
    "POST predict": ("runner_crash_on_load", CLIENT.format('POST predict: Post "http://127.0.0.1:38181/completion": EOF'), CLIENT.format('POST predict: Post "http://127.0.0.1:38181/completion": context canceled')),
    "the runner of 0.30 is gone": ("runner_crash_on_load", served("0.33.0").load(4096, layers=(33, 33)).say("llama-server chat error", "ERROR", error='Post "http://127.0.0.1:4/v1/chat/completions": EOF').gin(500, "3s").text(),
                                   served("0.33.0").load(4096, layers=(33, 33)).say("aborting chat request due to client closing the connection").gin(499, "3s").text()),
    "ROCm hangs": ("runner_crash_on_load", worked("0.5.7", "HW Exception by GPU node-1 (Agent handle: 0x7f) reason :GPU Hang", status=500), worked("0.5.7")),
    "an instruction that the CPU lacks": ("cpu_lacks_avx", failed("0.5.7", error="exit status 0xc000001d"), failed("0.5.7", error="exit status 0xc0000005")),
    "the kernel on that instruction": ("cpu_lacks_avx", KERNEL.format("traps: ollama_llama_se[2211] trap invalid opcode ip:55d0 sp:7ffd error:0 in ollama_llama_server"), KERNEL.format("traps: firefox[2211] trap invalid opcode ip:55d0 sp:7ffd error:0 in firefox")),
    "a DLL that is not there": ("package_without_gpu_libs", failed("0.5.7", error="exit status 0xc0000135"), failed("0.5.7", error="exit status 0xc0000005")),
    "a C library that is too old": ("library_missing", "ollama: /lib64/libstdc++.so.6: version `GLIBCXX_3.4.25' not found (required by ollama)\n", CLIENT.format("model 'x' not found")),
    # drivers
    "no code for the GPU": ("gpu_not_supported_by_backend", failed("0.6.5", "CUDA error: invalid device function", "  current device: 0, in function ggml_cuda_compute_forward"), failed("0.6.5", "CUDA error: misaligned address")),
    "no code, ROCm": ("gpu_not_supported_by_backend", failed("0.5.7", "hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"), failed("0.5.7")),
    "the runner's driver": ("nvidia_driver_too_old", failed("0.12.3", "CUDA error: the provided PTX was compiled with an unsupported toolchain."), worked("0.12.3", "ggml_cuda_init: failed to initialize CUDA: CUDA driver version is insufficient for CUDA runtime version")),
    "the driver's library, 0.5": ("driver_library_mismatch", cpu_only("0.5.7", "version mismatch between driver and cuda driver library - reboot or upgrade may be required: library /usr/lib/libcuda.so.560", "WARN"), cpu_only("0.5.7", "no nvidia devices detected by library /usr/lib/libcuda.so.560")),
    "the driver's library, by its code": ("driver_library_mismatch", cpu_only("0.5.7", "Unable to load cudart library /usr/lib/libcuda.so.550: cuda driver library init failure: 804"), cpu_only("0.5.7", "Unable to load cudart library /usr/lib/libcuda.so.550: cuda driver library init failure: 100")),
    "unknown error, 0.5": ("cuda_init_999", cpu_only("0.5.7", "unknown error initializing cuda driver library /usr/lib/libcuda.so.550: cuda driver library init failure: 999. see the documentation", "WARN"), served("0.5.7").say("unknown error initializing cuda driver library /usr/lib32/libcuda.so: cuda driver library init failure: 999", "WARN").text()),
    "unknown error at a refresh": ("cuda_init_999", served("0.3.0").say("error looking up nvidia GPU memory", "WARN", error="cudaSetDevice err: 999").text(), served("0.3.0").say("error looking up nvidia GPU memory", "WARN", error="cudaSetDevice err: 46").text()),
    "no system call": ("nvidia_uvm_not_loaded", on_cpu("0.20.6").raw("ggml_cuda_init: failed to initialize CUDA: OS call failed or operation not supported on this OS").text(), on_cpu("0.20.6").text()),
    "the runner has no device": ("discovery_ok_but_runner_cpu", served("0.12.6").load(4096, says="ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected").gin(200, "9s").text(),
                                 served("0.12.6").raw("ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected").load(4096, layers=(33, 33)).gin(200, "9s").text()),
    "a GPU that fell off the bus": ("gpu_error_in_kernel", worked("0.9.0", "CUDA error: unknown error", status=500) + KERNEL.format("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus."), worked("0.9.0", "CUDA error: unknown error", status=500)),
    "an override that breaks the probe": ("gfx_override", Log("0.12.6").config(HSA_OVERRIDE_GFX_VERSION="10.3.0").listen().say("failure during GPU discovery", error="runner crashed").cpu().text(),
                                          Log("0.12.6").config(HSA_OVERRIDE_GFX_VERSION="10.3.0").listen().say("failure during GPU discovery", error="runner crashed").gpu("RX 6800", lib="ROCm").text()),
    "a blob that may not be read": ("models_dir_no_access", failed("0.9.0", f"gguf_init_from_file: failed to open '{A}': 'Permission denied'"), failed("0.9.0", f"gguf_init_from_file: failed to open '{A}': 'Too many open files'")),
    "a library to preload": ("ld_preload_in_unit", "ERROR: ld.so: object '/usr/local/vgpu/libvgpu.so' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.\n" + HARMLESS, HARMLESS),
    "a load that its client left": ("client_timeout_during_load", CLIENT.format("timed out waiting for llama runner to start: context canceled"), CLIENT.format("timed out waiting for llama runner to start - progress 0.00 - ")),
    "a header that is not there": ("model_blob_missing", served("0.33.0").say("failed to load model metadata", "WARN", model=A, error=f"open {A}: no such file or directory").text(), served("0.33.0").say("failed to load model metadata", "WARN", model=A, error="unexpected EOF").text()),
    "a ring that hangs": ("gpu_error_in_kernel", KERNEL.format("amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=1, emitted seq=3"), KERNEL.format("amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 uses VM inv eng 0 on hub 0")),
    # around the server
    "a disk, Windows": ("disk_full", CLIENT.format("write C:\\Users\\me\\.ollama\\models\\blobs\\sha256-a-partial: There is not enough space on the disk."), CLIENT.format("write: broken pipe")),
    "a quota": ("disk_full", CLIENT.format("write /home/u/.ollama/models/blobs/sha256-a-partial: disk quota exceeded"), CLIENT.format("quota of requests exceeded")),
    "a name for an address": ("bind_refused", CLIENT.format("listen tcp: lookup gpu-box: no such host"), CLIENT.format("dial tcp: lookup gpu-box: no such host")),
    "noexec, in one process": ("tmp_noexec", served("0.1.29").say("Failed to load dynamic library /tmp/ollama1/cpu_avx2/libext_server.so  Unable to load dynamic library: Unable to load dynamic server library: /tmp/ollama1/cpu_avx2/libext_server.so: failed to map segment from shared object", "WARN").text(),
                               served("0.1.29").say("Failed to load dynamic library /tmp/ollama1/cpu_avx2/libext_server.so", "WARN").text()),
    "a watchdog": ("watchdog_ends_server", SYSTEMD.format("Watchdog timeout (limit 30s)!") + SYSTEMD.format("Failed with result 'watchdog'."), SYSTEMD.format("Deactivated successfully.")),
    "a client that started the app": ("server_not_reachable", CLIENT.format("timed out waiting for server to start"), CLIENT.format("timed out waiting for llama runner to start: ")),
    "a name server that fails": ("proxy_not_in_service", CLIENT.format('pull model manifest: Get "https://registry.ollama.ai/v2/library/x/manifests/1": dial tcp: lookup registry.ollama.ai on 127.0.0.53:53: server misbehaving'), CLIENT.format("pull model manifest: file does not exist")),
    "no GPU for a container": ("no_gpu_found", 'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].\n', "docker: Error response from daemon: No such container: ollama.\n"),
    "no driver for a container": ("no_gpu_found", "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown\n", "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown\n"),
    "an image that needs more": ("nvidia_driver_too_old", "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.2, please update your driver to a newer version\n", "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown\n"),
    "a port that a container has": ("port_in_use", "Error response from daemon: Bind for 0.0.0.0:11434 failed: port is already allocated\n", "Error response from daemon: No such container: ollama\n"),
    "pinned memory": ("load_oom", failed("0.6.5", "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 0: cudaMalloc failed: out of memory"),
                      worked("0.6.5", "ggml_cuda_host_malloc: failed to allocate 1024.00 MiB of pinned memory: out of memory")),
    "the Go engine's layout": ("load_oom", failed("0.12.6", "panic: insufficient memory - required allocations: {CPU:{Name:CPU}}"), failed("0.12.6")),
    "Windows' memory": ("load_oom", failed("0.5.7", "llama_model_load: error loading model: MapViewOfFile failed: Not enough memory resources are available to process this command."), failed("0.5.7")),
    "a prompt that is refused": ("prompt_truncated", CLIENT.format("400 Bad Request: the prompt is longer than the context length currently available to the model; shorten the prompt"), CLIENT.format("400 Bad Request: prompt is required")),
    "a context that is full": ("prompt_truncated", worked("0.33.0", "srv  update_slots: Context size has been exceeded. i = 0, n_batch = 1, ret = 1", status=500),
                               worked("0.33.0", "srv  update_slots: failed to find free space in the KV cache, retrying with smaller batch size, i = 0, n_batch = 256, ret = 1")),
    "an input to embed, 0.5": ("prompt_truncated", served("0.5.7").say("embedding generation failed", "ERROR", error="input length exceeds maximum context length").text(), served("0.5.7").say("embedding generation failed", "ERROR", error="context canceled").text()),
    "a setting of 0.1": ("invalid_value", served("0.1.38").say("invalid setting must be greater than zero", "ERROR", OLLAMA_NUM_PARALLEL="0").text(), served("0.1.38").text()),
    "the target of the fit": ("invalid_value", served("0.33.0").say("invalid llama-server fit target", "WARN", env="LLAMA_ARG_FIT_TARGET", value="1G").text(), served("0.33.0").text()),
    "too little VRAM, 0.1": ("discovery_ok_but_runner_cpu", served("0.1.24").say("not enough vram available, falling back to CPU only").text(), served("0.1.24").text()),
    "a library, in one process": ("package_without_gpu_libs", served("0.1.29").say("Failed to load dynamic library /tmp/o/rocm_v5/libext_server.so  Unable to load dynamic library: Unable to load dynamic server library: librocblas.so.3: cannot open shared object file", "WARN").text(),
                                  served("0.1.29").say("Unable to load CUDA management library /usr/lib32/libnvidia-ml.so: libnvidia-ml.so: cannot open shared object file", "INFO").text()),
    "no llama-server": ("package_without_gpu_libs", CLIENT.format("500 Internal Server Error: error starting llama-server: llama-server binary not found (checked: /usr/lib/ollama/llama-server)"), CLIENT.format("model 'x' not found")),
    "an exception of Windows": ("runner_crash_on_load", worked("0.6.5", "Exception 0xc0000005 0x0 0x58 0x7fff12345678", "PC=0x7fff12345678", "signal arrived during external code execution", status=500), worked("0.6.5")),
    "a bus error": ("runner_crash_on_load", worked("0.6.5", "SIGBUS: bus error", "PC=0x7f m=4 sigcode=2", status=500), worked("0.6.5")),
    "the engine of before 0.1.32": ("runner_crash_on_load", served("0.1.29").raw("llama_init_from_gpt_params: error: failed to load model '/root/.ollama/models/blobs/sha256-aa'").text(), served("0.1.29").raw("llama_model_loader: loaded meta data from /root/.ollama/models/blobs/sha256-aa").text()),
    "a model that failed to load": ("runner_crash_on_load", CLIENT.format("500 Internal Server Error: model failed to load, this may be due to resource limitations or an internal error"), CLIENT.format("model 'x' not found")),
    "a mount that is not there": ("models_dir_missing", CLIENT.format("mkdir /mnt/ssd/ollama: no such file or directory"), CLIENT.format("open /home/u/Modelfile: no such file or directory")),
    "a link to nothing": ("models_dir_missing", CLIENT.format("mkdir /usr/share/ollama/.ollama/models: file exists"), CLIENT.format("mkdir /usr/share/ollama/.ollama/models: permission denied")),
    "a drive that is not there": ("models_dir_missing", CLIENT.format("mkdir D:\\models: The system cannot find the path specified."), CLIENT.format("open D:\\Modelfile: The system cannot find the file specified.")),
    "not permitted by the mount": ("models_dir_no_access", CLIENT.format("mkdir /mnt/share/models: operation not permitted"), CLIENT.format("mkdir /mnt/share/models: no such file or directory")),
    "not permitted by the cgroup": ("container_lost_gpu_cgroup", on_cpu("0.12.6").raw("ggml_cuda_init: failed to initialize CUDA: operation not permitted").text(), on_cpu("0.12.6").raw("ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected").text()),
    "the driver's pair, newer words": ("driver_library_mismatch", on_cpu("0.12.6").raw("ggml_cuda_init: failed to initialize CUDA: system has unsupported display driver / cuda driver combination").text(), on_cpu("0.12.6").text()),
    "a server that is not there": ("server_not_reachable", CLIENT.format('Head "http://127.0.0.1:11434/": dial tcp 127.0.0.1:11434: connect: connection refused'), CLIENT.format('pull model manifest: Get "https://registry.ollama.ai/v2/": dial tcp 104.21.75.227:443: connect: connection refused')),
    "no route": ("proxy_not_in_service", CLIENT.format('pull model manifest: Get "https://registry.ollama.ai/v2/library/x/manifests/latest": dial tcp 1.1.1.1:443: connect: no route to host'), CLIENT.format("pull model manifest: file does not exist")),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_it_is_told_first(name: str) -> None:
    fires_first(ROWS[name])


@pytest.mark.parametrize("name", ROWS)
def test_its_near_miss_is_not(name: str) -> None:
    near_miss_is_quiet(ROWS[name])


@pytest.mark.parametrize("reply", ['{"error":"%s"}', '{"error":{"message":"%s","type":"api_error","param":null,"code":null}}'])
def test_a_refusal_as_the_api_wrote_it(reply: str) -> None:
    refused = "model requires more system memory (8.1 GiB) than is available (2.0 GiB)"
    assert [f.check for f in report(f"{reply % refused}\n").findings] == ["ram_too_small"]
    assert not report(f'{reply % "model not found, try pulling it first"}\n').findings


@pytest.mark.parametrize("line", ['{"error":3}', '{"error":', '{"error":{}}', '{"error":["a"],"x":1}', '{"error":' + "[" * 3000])
def test_what_only_looks_like_a_refusal_is_passed_over(line: str) -> None:
    assert not report(line + "\n").findings


def test_backends_of_a_runner_tell_whether_it_has_a_gpu() -> None:
    system = "time=2026-02-03T19:34:45.894+01:00 level=INFO source=ggml.go:104 msg=system {}CPU.0.AVX2=1 compiler=cgo(gcc)\n"
    assert [(f.check, f.severity) for f in report(system.format("")).findings] == [("no_gpu_found", "info")]
    assert not report(system.format("CUDA.0.ARCHS=500,600 ")).findings


def test_a_journal_whose_host_and_name_were_left_out_is_the_servers() -> None:
    line = 'Aug 17 10:25:15 ... level=WARN source=llama_server.go:314 msg="truncating input prompt" limit=8194 prompt=18353\n'
    assert [f.check for f in report(line).findings] == ["prompt_truncated"]


SEARCH = "Discovered GPU libraries: [{}]"


def test_a_search_of_old_releases_that_finds_no_library() -> None:
    """Nothing found is told, before the age of the release; where one driver's library is found, it is not."""
    none = Log("0.1.27").listen().say(SEARCH.format("")).say(SEARCH.format(""))
    assert [(f.check, f.severity) for f in report(none.text()).findings][:1] == [("no_gpu_found", "info")]
    one = none.say(SEARCH.format("/opt/rocm/lib/librocm_smi64.so.6.0"))
    assert "no_gpu_found" not in [f.check for f in report(one.text()).findings]


def test_a_log_below_a_drop_in_is_none_of_its_lines() -> None:
    unit = '[Service]\nEnvironment="OLLAMA_NUM_PARALLEL=2"\n'
    below = ('msg="offloaded 30/33 layers to GPU"\n', '[GIN] 2026/05/04 - 10:00:01 | 200 |  1.2s |  127.0.0.1 | POST     "/api/chat"\n')
    for lines in below:
        assert "unit_file_problem" not in [f.check for f in report(unit + lines).findings], lines
    assert report(unit + "Environmnet=OLLAMA_DEBUG=1\n").findings
