"""Runners and servers that die: what an expert would name first, by what was under way, the release and the words.

A row: the check, and a log. Healthy ones below, in which the same words are harmless."""

# ruff: noqa: E501 - lines of logs
from __future__ import annotations

import pytest
from wording_rows import report

from tests.system.small import A, Log, journal, numbers, on_cpu, served

ABORTED = "signal: aborted (core dumped)"
KERNEL = "May 04 10:01:59 host kernel: {}\n"
SYSTEMD = "May 04 10:02:00 host systemd[1]: ollama.service: {}\n"
CLIENT = "Error: {}\n"


def failed(release: str, *says: str, error: str = "exit status 2", log: Log | None = None) -> str:
    """A load that fails: what the engine says, then what the server makes of it."""
    log = (log or served(release)).load(4096, ok=False).raw(*says)
    msg, level = ("Load failed", "INFO") if numbers(release) >= (0, 11, 5) else ("error loading llama server", "ERROR")
    who = "llama-server" if numbers(release) >= (0, 30) else "llama runner"
    return log.say(msg, level, model=A, error=f"{who} process has terminated: {error}").gin(500, "1.2s").text()


def serving(release: str, *says: str, then: tuple[tuple[str, str], ...] = (), status: int = 500) -> Log:
    """Answers, then what the engine says and what the server logs of it, and the request that ends with it."""
    log = served(release).load(4096, layers=(33, 33))
    for _ in range(3):
        log.later(20).gin(200, "4.1s")
    log.later(60).raw(*says)
    for msg, error in then:
        log.say(msg, "ERROR", "server.go:1610", error=error)
    return log.gin(status, "2.3s")


def dropped(port: int = 41021) -> tuple[str, str]:
    return "post predict", f'Post "http://127.0.0.1:{port}/completion": EOF'


SERVED = {  # a runner that had answered
    "CUDA, the Go engine": serving("0.12.6", "CUDA error: an illegal memory access was encountered", "SIGSEGV: segmentation violation", "signal arrived during cgo execution", then=(dropped(),)),
    "CUDA, 0.3": serving("0.3.6", "CUDA error: an illegal memory access was encountered"),
    "CUDA by number, 0.1": serving("0.1.38", "CUDA error 700 at /go/src/ggml-cuda.cu:8449: an illegal memory access was encountered"),
    "cuBLAS": serving("0.6.5", "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"),
    "a launch that fails": serving("0.12.6", "CUDA error: unspecified launch failure"),
    "an assertion": serving("0.5.7", "ggml.c:3513: GGML_ASSERT(a->ne[2] == b->ne[0]) failed", then=(("llama runner terminated", "exit status 2"),)),
    "a fatal error of the engine": serving("0.5.7", "ggml.c:13942: fatal error"),
    "a Go panic of the runner": serving("0.9.6", "panic: runtime error: index out of range [-1]", "github.com/ollama/ollama/runner/llamarunner.(*Server).processBatch(0xc0001d2000)", then=(dropped(), ("llama runner terminated", "exit status 2"))),
    "llama-server aborts": serving("0.33.0", "CUDA error: unspecified launch failure", then=(("llama-server chat error", "EOF"), ("llama-server terminated", ABORTED))),
    "llama-server, without a word": serving("0.33.0", then=(("llama-server completion error", "EOF"), ("llama-server terminated", "signal: segmentation fault (core dumped)"))),
    "Windows": serving("0.12.6", "Exception 0xe06d7363 0x19930520", "signal arrived during external code execution", then=(("post predict", "read tcp 127.0.0.1:62252->127.0.0.1:62250: wsarecv: An existing connection was forcibly closed by the remote host."),)),
    "no shift of the context": serving("0.5.7", "llama.cpp:16389: Deepseek2 does not support K-shift"),
    "Vulkan loses the device": serving("0.33.0", "terminate called after throwing an instance of 'vk::DeviceLostError'"),
    "ROCm, a page": serving("0.9.6", "Memory access fault by GPU node-1 on address 0x7f1a0000. Reason: Page not present or supervisor privilege."),
    "ROCm, an exception": serving("0.12.6", ":0:rocdevice.cpp:3582: Callback: Queue aborting with error : HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception."),
    "SYCL": serving("0.5.4", "level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)"),
    "Metal": serving("0.12.6", "ggml_metal_graph_compute: command buffer 0 failed with status 5", "error: Internal Error (0000000e:Internal Error)"),
    "C++": serving("0.33.0", "terminate called after throwing an instance of 'std::runtime_error'"),
    "C++ on a Mac": serving("0.33.0", "libc++abi: terminating due to uncaught exception of type std::out_of_range"),
    "the C library": serving("0.6.2", "double free or corruption (out)"),
    "loaded again since": serving("0.12.6", "CUDA error: an illegal memory access was encountered").load(4096, layers=(33, 33)).gin(200, "4s"),
    "a part of a log, no longer running": Log("0.11.8").gin(500, "23.1s").say("llama runner process no longer running", "WARN", "server.go:1170", sys=134, string=ABORTED),
    "a part of a log, answers before": Log("0.1.38").gin(200, "262ms", "/api/embeddings").raw("GGML_ASSERT: llama.cpp:11010: seq_id < n_tokens").gin(500, "260ms", "/api/embeddings"),
}  # fmt: skip
WORDLESS = ("llama-server, without a word", "a part of a log, no longer running")  # the engine did not say why
ROWS: dict[str, tuple[str, str]] = {
    **{f"served: {name}": ("runner_killed" if name in WORDLESS else "runner_crash_on_load", log.text()) for name, log in SERVED.items()},
    "served: the kernel's segfault": ("runner_killed", serving("0.33.0", status=200).text() + KERNEL.format("llama-server[9911]: segfault at 18 ip 00007f3d sp 00007ffd error 4 in libggml-cuda.so[7f3d+7a2d]")),
    # while serving, and its cause is known
    "CUDA's memory": ("load_oom", serving("0.5.7", "CUDA error: out of memory").text()),
    "Vulkan's memory": ("load_oom", serving("0.33.0", "ggml_vulkan: Device memory allocation of size 1219690496 failed.", "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory").text()),
    "Metal's memory": ("load_oom", serving("0.12.6", "ggml_metal_graph_compute: command buffer 0 failed with status 5", "error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)").text()),
    "MLX's memory": ("load_oom", CLIENT.format("mlx runner failed: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)")),
    "a GPU that fell off the bus": ("gpu_error_in_kernel", serving("0.12.6", "CUDA error: unspecified launch failure").text() + KERNEL.format("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.")),
    "a GPU that needs the open modules": ("gpu_error_in_kernel", KERNEL.format("NVRM: installed in this system requires use of the NVIDIA open kernel modules.") + on_cpu("0.12.6").text()),
    "killed": ("oom_killed", serving("0.12.6", then=(("llama runner terminated", "signal: killed"),)).text()),
    "killed, and systemd says why": ("oom_killed", serving("0.9.6").text() + SYSTEMD.format("A process of this unit has been killed by the OOM killer.") + SYSTEMD.format("Failed with result 'oom-kill'.")),
    # the server itself
    "the server's panic": ("server_panic_restarts", "May 04 10:00:09 host ollama[900]: panic: runtime error: invalid memory address or nil pointer dereference\nMay 04 10:00:09 host ollama[900]: github.com/ollama/ollama/server.(*Server).ChatHandler(0xc000)\n" + SYSTEMD.format("Main process exited, code=exited, status=2/INVALIDARGUMENT")),
    "the server's fault": ("server_panic_restarts", served("0.9.6").text() + SYSTEMD.format("Main process exited, code=dumped, status=11/SEGV")),
    "a panic that it survived": ("server_panic_restarts", served("0.9.6").load(4096, layers=(33, 33)).raw("2026/05/04 10:00:09 [Recovery] 2026/05/04 - 10:00:09 panic recovered:").gin(500, "1s").text()),
    # while loading
    "exit status": ("runner_crash_on_load", failed("0.5.7")),
    "an assertion at a load": ("runner_crash_on_load", failed("0.5.7", error="GGML_ASSERT(sched->n_splits > 0) failed")),
    "a segmentation fault": ("runner_crash_on_load", failed("0.6.5", error="signal: segmentation fault (core dumped)")),
    "aborted": ("runner_crash_on_load", failed("0.9.6", error=ABORTED)),
    "an access violation": ("runner_crash_on_load", failed("0.12.6", error="exit status 0xc0000005")),
    "a stack overrun": ("runner_crash_on_load", failed("0.32.4", error="exit status 0xc0000409: The system detected an overrun of a stack-based buffer in this application.")),
    "nothing at all": ("runner_crash_on_load", failed("0.3.0", error="%!w(<nil>)")),
    "ended by somebody": ("runner_crash_on_load", Log("0.3.6").say("error loading llama server", "ERROR", error="llama runner process has terminated: signal: terminated").gin(500, "24s").text()),
    "no longer running, by the client": ("runner_crash_on_load", CLIENT.format("llama runner process no longer running: -1 ")),
    "a buffer that cannot run it": ("runner_crash_on_load", failed("0.12.6", "ggml-backend.cpp:822: pre-allocated tensor (cache_k_l0 (view)) in a buffer (Vulkan0) that cannot run the operation (CPY)", error=ABORTED)),
    "a panic of MLX": ("runner_crash_on_load", CLIENT.format("mlx runner failed: panic: mlx: Maximum threads per threadgroup is 896 but requested 1024 (exit: exit status 2)")),
    "the connection of Windows": ("runner_crash_on_load", CLIENT.format("error reading llm response: read tcp 127.0.0.1:51210->127.0.0.1:51207: wsarecv: An existing connection was forcibly closed by the remote host.")),
    "another model served before": ("runner_crash_on_load", failed("0.9.6", log=serving("0.9.6", status=200))),
    # a load whose reason is known
    "an instruction": ("cpu_lacks_avx", failed("0.3.12", error="signal: illegal instruction (core dumped)")),
    "killed at a load": ("oom_killed", failed("0.9.6", error="signal: killed")),
    "a library that is no part of it": ("library_missing", failed("0.3.12", "ollama_llama_server: error while loading shared libraries: libgomp.so.1: cannot open shared object file: No such file or directory", error="exit status 127")),
    "a library that is a part of it": ("package_without_gpu_libs", failed("0.3.12", "ollama_llama_server: error while loading shared libraries: libcudart.so.11.0: cannot open shared object file: No such file or directory", error="exit status 127")),
    "no MLX here": ("package_without_gpu_libs", CLIENT.format("500 Internal Server Error: mlx runner failed: MLX not available")),
    "an architecture of MLX": ("version_outdated", CLIENT.format("mlx runner failed: Error: unsupported architecture: ZetaForCausalLM (exit: exit status 1)")),
    "an architecture": ("version_outdated", failed("0.33.0", error="exit status 1: error loading model: error loading model architecture: unknown model architecture: 'zeta9'")),
    "a file of a former time": ("version_outdated", failed("0.1.38", "llama_model_load: error loading model: unknown (magic, version) combination: 46554747, 00000003; is this really a GGML file?")),
    "a format that is gone": ("model_blob_truncated", failed("0.5.7", "gguf_init_from_file: GGUFv1 is no longer supported. please use a more up-to-date version")),
    "a file that ends": ("model_blob_truncated", served("0.9.6").say("error loading llama server", "ERROR", error="unexpected EOF").gin(500, "10ms").text()),
    "a tensor out of bounds": ("model_blob_truncated", failed("0.6.5", "llama_model_load: error loading model: tensor 'blk.30.ffn_down.weight' data is not within the file bounds, model is corrupted or incomplete")),
    "CUDA's memory at a load": ("load_oom", failed("0.6.5", "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9032.10 MiB on device 0: cudaMalloc failed: out of memory")),
    "host memory at a load": ("load_oom", failed("0.33.0", error="exit status 1: ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 19192545280")),
    "ROCm's memory": ("load_oom", failed("0.6.2", ":0:rocdevice.cpp:2724: Callback: Queue aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources. Available Free mem : 0 MB")),
    "SYCL's memory": ("load_oom", failed("0.33.0", "can't allocate 4294967296 Bytes of memory on device/GPU")),
    "level zero's memory": ("load_oom", failed("0.5.4", "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)")),
    "an engine of CUDA for a newer driver": ("nvidia_driver_too_old", failed("0.32.4", error="exit status 0xc0000409: The system detected an overrun of a stack-based buffer in this application.: CUDA error: the provided PTX was compiled with an unsupported toolchain.")),
    "a kernel's image for a newer driver": ("nvidia_driver_too_old", failed("0.32.4", "CUDA error: device kernel image is invalid", log=Log("0.32.4").config().listen().gpu(driver="12.3"))),
    "a kernel's image, the driver is new": ("gpu_not_supported_by_backend", failed("0.32.4", "CUDA error: device kernel image is invalid")),
    "no kernel of ROCm": ("gpu_not_supported_by_backend", failed("0.6.2", "rocBLAS error: Cannot read /usr/lib/ollama/rocm/rocblas/library/TensileLibrary.dat: Illegal seek for GPU arch : gfx1036", error=ABORTED)),
}  # fmt: skip
HEALTHY = {
    "a runner that ends with its server": served("0.9.6").load(4096, layers=(33, 33)).gin(200, "3s").say("llama runner terminated", "ERROR", error="signal: terminated").text() + journal("Stopped ollama.service - Ollama Service."),
    "Ctrl-C": served("0.9.6").load(4096, layers=(33, 33)).gin(200, "3s").say("llama runner terminated", "ERROR", error="signal: interrupt").text(),
    "room for another graph": served("0.30.5").load(4096, layers=(33, 33)).raw("ggml_backend_sched_alloc_splits: failed to allocate graph, reserving (backend_ids_changed = 1)").gin(200, "3s").text(),
    "a context that was reduced": served("0.32.4").load(262144, ok=False).raw("ggml_backend_cuda_buffer_type_alloc_buffer: allocating 32768.00 MiB on device 0: cudaMalloc failed: out of memory").say("llama-server load failed; reducing automatic context and retrying once", "WARN", model=A, old_num_ctx=262144, new_num_ctx=32768).load(32768, layers=(33, 33)).gin(200, "9s").text(),
    "a template that fails": served("0.9.6").load(4096, layers=(33, 33)).say("template error", "WARN", error="executing at <.Foo>: can't evaluate").gin(400, "3ms").gin(200, "3s").text(),
    "models that are not there": served("0.12.6").gin(404, "300µs").gin(404, "310µs").load(4096, layers=(33, 33)).gin(200, "3s").text(),
    "a client that went away": serving("0.12.6", status=200).say("aborting completion request due to client closing the connection").gin(200, "1s").text(),
    "CUDA's graph": serving("0.33.0", "ggml_cuda_graph_update_required: CUDA graph update failed, falling back", status=200).text(),
    "an encoder's batch": serving("0.12.6", "decode: cannot decode batches with this context (calling encode() instead)", status=200).text(),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_what_died_and_why_is_told_first(name: str) -> None:
    check, text = ROWS[name]
    found = report(text)
    assert not found.crashed, found.crashed
    assert [f.check for f in found.findings][:1] == [check], [(f.check, f.summary) for f in found.findings]


@pytest.mark.parametrize("name", HEALTHY)
def test_words_of_a_healthy_server_raise_no_alarm(name: str) -> None:
    found = report(HEALTHY[name])
    assert not found.crashed, found.crashed
    assert not [(f.check, f.summary) for f in found.findings if f.severity != "info"]


def test_one_death_that_a_load_cured_is_no_alarm_and_several_are() -> None:
    dies = serving("0.12.6", "CUDA error: an illegal memory access was encountered", then=(dropped(),)).load(4096, layers=(33, 33)).gin(200, "4s")
    again = Log("0.12.6").later(900).raw("CUDA error: an illegal memory access was encountered").say(dropped()[0], "ERROR", error=dropped()[1]).gin(500, "1s").load(4096, layers=(33, 33))
    assert [f.severity for f in report(dies.text()).findings if f.check == "runner_crash_on_load"] == ["info"]
    assert [f.severity for f in report(dies.text() + again.text()).findings if f.check == "runner_crash_on_load"] == ["warning"]


def test_a_load_and_a_death_later_are_told_apart_by_answers_alone() -> None:
    """The same words: before the load ended, after it, and after an answer."""
    dies = "CUDA error: an illegal memory access was encountered"
    loaded = served("0.9.6").load(4096, layers=(33, 33)).raw(dies).gin(500, "1s")
    answered = served("0.9.6").load(4096, layers=(33, 33)).gin(200, "2s").raw(dies).gin(500, "1s")
    said = [report(text).findings[0] for text in (failed("0.9.6", dies), loaded.text(), answered.text())]
    assert {one.check for one in said} == {"runner_crash_on_load"}
    assert ["had served" in one.summary for one in said] == [False, False, True]
