"""The wordings of one cause in different releases and systems: each is told, and its near miss is not.

A row: the check, what makes it fire, and nearly the same, on which it must say nothing at warning or above."""

# ruff: noqa: E501 - lines of logs
from __future__ import annotations

import pytest
from wording_rows import Row, fires_first, near_miss_is_quiet, report

from tests.system.small import A, B, Log, on_cpu, served

GO_STACK = "goroutine 29 gp=0xc000585dc0 m=0 mp=0x64b1b235c780 [syscall]:\ngithub.com/ollama/ollama/{frame}(0x7f2778ad5c10, 0x1)"
CRASH = "SIGSEGV: segmentation violation"
UNIT = "ollama.service:"
CRASHED = (
    "Aug 28 08:33:58 host ollama[900]: panic: runtime error: invalid memory address or nil pointer dereference\n"
    "Aug 28 08:33:58 host systemd[1]: ollama.service: Main process exited, code=exited, status=2/INVALIDARGUMENT\n"
)
RETURNS = (
    "Aug 28 08:34:01 host systemd[1]: ollama.service: {}\n"
    'Aug 28 08:34:01 host ollama[901]: time=2026-08-28T08:34:01Z level=INFO source=routes.go:1 msg="Listening on 127.0.0.1:11434 (version 0.1.14)"\n'
)
EXEC = "unable to start server fork/exec /var/tmp/o1/runners/cpu_avx2/ollama_llama_server: permission denied"


def amd(release: str, msg: str, level: str = "WARN", **fields: object) -> Log:
    log = Log(release).listen() if release < "0.1.34" else Log(release).config().listen()
    return log.say(msg, level, "amd_linux.go:114", **fields)


def nvidia(release: str, library: str, error: str) -> Log:
    return Log(release).config().listen().say("unable to load cuda driver library", "INFO", "gpu.go:568", library=library, error=error)


def runners(names: str, release: str = "0.5.4") -> Log:
    return Log(release).config().listen().say("Dynamic LLM libraries", source="routes.go:1267", runners=names).gpu()


def layers(on: int, of: int) -> str:
    return Log().say(f"offloading {on} repeating layers to GPU", source="ggml.go:482").say(f"offloaded {on}/{of} layers to GPU", source="ggml.go:494").text()


def estimate(asked: int, of: int, on: int) -> str:
    fields = {"layers__requested": asked, "layers__model": of, "layers__offload": on, "memory__available": "[10.9 GiB]", "memory__required__full": "11.0 GiB", "memory__required__kv": "0.6 GiB"}
    return Log("0.9.6").say("offload", source="server.go:175", library="cuda", **fields).text()


def loading(layers: int) -> str:
    return f'time=2026-05-04T10:00:02.000Z level=INFO source=server.go:438 msg="starting llama server" cmd="/usr/bin/ollama runner --model {A} --ctx-size 2048 --batch-size 512 --n-gpu-layers {layers} --parallel 1 --port 39041"\n'


GAVE_UP = 'time=2026-05-04T10:00:00.000Z level=WARN source=llama_server.go:1299 msg="client connection closed before llama-server finished loading, aborting" error="context deadline exceeded"\n'
LATE = 'time=2026-05-04T10:00:00.000Z level=INFO source=sched.go:470 msg="Load failed" model=/m error="timed out waiting for llama runner to start - progress 0.82 - "\n'
EDITED = (
    "### Editing /etc/systemd/system/ollama.service.d/override.conf\n"
    "### Anything between here and the comment below will become the contents of the drop-in file\n\n{}\n\n"
    "### Edits below this comment will be discarded\n"
)
KV_HEAVY = (  # a load of which only its end was pasted
    Log("0.17.4").say("offloaded 34/49 layers to GPU", source="ggml.go:494").say("model weights", source="device.go:240", device="CUDA0", size="11.9 GiB").text()
    + 'time=2026-05-04T10:00:08.000Z level=INFO source=device.go:251 msg="kv cache" device=CUDA0 size="{}"\n'
    + 'time=2026-05-04T10:00:08.000Z level=INFO source=device.go:256 msg="kv cache" device=CPU size="{}"\n'
    + Log("0.17.4").say("llama runner started in 7.10 seconds", source="server.go:1388").text()
)
PINNED = "llm_load_tensors: ggml ctx size =    0.83 MiB\nggml_cuda_host_malloc: failed to allocate 16607.35 MiB of pinned memory: out of memory\n"


def graphed(graph: str) -> str:
    fields = {"layers__requested": -1, "layers__model": 25, "layers__offload": 0, "memory__available": "[22.2 GiB]", "memory__required__full": "14.8 GiB", "memory__required__kv": "3.1 GiB", "memory__graph__full": graph}
    return Log("0.11.3").say("offload", source="server.go:175", library="cuda", **fields).text()


def queued(*durations: str) -> str:
    """Requests that began at one time and end one after another, as a compose log that was indented has them."""
    rows = ["  embedder  | Embedding 6 chunks of text."]
    for took in durations:
        minutes, _, rest = took.rpartition("m")
        seconds = int(minutes or 0) * 60 + int(rest.rstrip("s"))
        rows.append(f'  ollama    | [GIN] 2026/05/04 - 10:{seconds // 60:02}:{seconds % 60:02} | 200 |  {took} |  172.30.0.3 | POST     "/api/embeddings"')
    return "\n".join(rows) + "\n"

def shown_with_pod(message: str) -> str:
    """A line as `kubectl logs --prefix` shows it."""
    return "[pod/llm-0/ollama] " + Log("0.20.0").say(message, "WARN", "server.go:257", type="q8_0").text()


def thrown_out(loaded: str, gone: str) -> str:
    return Log("0.5.4").say("evaluating already loaded", "DEBUG", "sched.go:575", model=loaded).say("resetting model to expire immediately to make room", "DEBUG", "sched.go:283", modelPath=gone, refCount=0).text()


def igpu(pid: int, used: bool) -> str:
    log = Log("0.31.0", f"Aug 28 08:33:58 host ollama[{pid}]: ")
    return (log.gpu("AMD Radeon 780M", lib="Vulkan", type="iGPU") if used else log.say("dropping integrated GPU; to enable, set OLLAMA_IGPU_ENABLE=1", source="runner.go:396", library="Vulkan", description="AMD Radeon 780M")).text()


ROWS: dict[str, Row] = {
    "amd of 0.1.29": ("gpu_not_supported_by_backend",
                      amd("0.1.29", "amdgpu [0] gfx1012 is not supported by /tmp/ollama77/rocm [gfx1030 gfx1100]").say("no GPU detected").text(),
                      amd("0.1.29", "amdgpu [0] gfx1100 is supported", "INFO").text()),
    "amd too old": ("gpu_not_supported_by_backend", amd("0.5.1", "amdgpu too old gfx803", gpu="0").cpu().text(),
                    amd("0.5.1", "amdgpu is supported", "INFO", gpu_type="gfx1100").gpu("RX 7900", lib="rocm").text()),
    "amd of 0.30": ("gpu_not_supported_by_backend", amd("0.32.0", "dropping ROCm device — no rocblas support for gfx target", device="ROCm0", gfx_target="gfx1034").cpu().text(),
                    amd("0.32.0", "dropping ROCm device — no rocblas support for gfx target", device="ROCm1", gfx_target="gfx1036").gpu("RX 7900 XT", lib="ROCm").text()),
    "amd's list unreadable": ("package_without_gpu_libs", amd("0.3.3", "failed to lookup supported GFX types: no such file").cpu().text(),
                              amd("0.3.3", "amdgpu is supported", "INFO").gpu("RX 6800", lib="rocm").text()),
    "integrated, 0.5": ("igpu_dropped", amd("0.5.1", "unsupported Radeon iGPU detected skipping", "INFO", id="0", total="512.0 MiB").cpu().text(),
                        amd("0.5.1", "unsupported Radeon iGPU detected skipping", "INFO", id="1", total="512.0 MiB").gpu("RX 7900", lib="rocm").text()),
    "integrated, 0.1.30": ("igpu_dropped", amd("0.1.30", "amdgpu [0] appears to be an iGPU with 512M reported total memory, skipping", "INFO").text(),
                           amd("0.1.30", "[0] amdgpu totalMemory 16368M", "INFO").text()),
    "probe of 0.30 timed out": ("gpu_discovery_timeout", Log("0.30.4").config().listen().say("llama-server discovery: timed out waiting for server startup", "WARN", error="context deadline exceeded").cpu().text(),
                                Log("0.30.4").config().listen().say("llama-server discovery: timed out waiting for server startup", "WARN", error="context deadline exceeded").gpu().text()),
    "no symbol, Windows": ("nvidia_driver_too_old", nvidia("0.3.9", "C:\\WINDOWS\\system32\\nvcuda.dll", "symbol lookup for cuCtxCreate_v3 failed: \\xd5").cpu().text(),
                           nvidia("0.3.9", "/usr/lib32/libcuda.so.1", "Unable to load it: wrong ELF class: ELFCLASS32").gpu().text()),
    "driver too old or missing": ("nvidia_driver_too_old", nvidia("0.4.1", "/usr/lib/libcudart.so.11.0", "your nvidia driver is too old or missing.").cpu().text(),
                                  nvidia("0.4.1", "/usr/lib/libcudart.so.11.0", "your nvidia driver is too old or missing.").gpu().text()),
    "runners for the CPU only": ("package_without_gpu_libs", runners("[cpu cpu_avx cpu_avx2]").text(), runners("[cpu cpu_avx cuda_v12_avx]").text()),
    "context of before 0.9.3": ("num_ctx_capped_to_trained_context",
                                served("0.1.48").say("requested context length is greater than the model's training context window size", "WARN", requested=16384, **{"training size": 8192}).text(),
                                served("0.1.48").load(8192, 1).text()),
    "context, said by the engine": ("num_ctx_capped_to_trained_context",
                                    served("0.6.0").load(8192, 1, layers=(33, 33), says="llama_init_from_model: n_ctx_per_seq (8192) > n_ctx_train (2048) -- possible training context overflow").text(),
                                    served("0.6.0").load(2048, 1, layers=(33, 33), says="llama_init_from_model: n_ctx_per_seq (2048) < n_ctx_train (8192) -- the full capacity of the model will not be utilized").text()),
    "refused by the new engine": ("ram_too_small", served("0.13.0").say("model request too large for system", "WARN", "server.go:1044", requested="338.1 GiB", available="337.2 GiB", total="344.0 GiB").text(),
                                  served("0.13.0").say("model request too large for system", "WARN", "server.go:1044", requested="38.1 GiB", available="37.2 GiB").load(4096, layers=(33, 33)).text()),
    "noexec, with a hint": ("tmp_noexec", served("0.1.37").say("NewLlamaServer failed", source="sched.go:308", model=A, error=EXEC + ".  /var/tmp/o1 may have noexec set.").text(),
                            served("0.1.37").say("NewLlamaServer failed", source="sched.go:308", model=A, error="context canceled").text()),
    "a reserved port of Windows": ("bind_refused", "Error: listen tcp 127.0.0.1:11434: bind: An attempt was made to access a socket in a way forbidden by its access permissions.\n",
                                   "Error: dial tcp 127.0.0.1:11434: bind is not the word here\n"),
    "Windows in its language": ("port_in_use", "Error: listen tcp 127.0.0.1:11434: bind: Une seule utilisation de chaque adresse de socket est normalement autorisée.\n",
                                "Error: listen tcp 10.9.9.9:11434: bind: cannot assign requested address\n"),
    "the runner's own stack": ("runner_crash_on_load", f"{CRASH}\nPC=0x7f27 m=0 sigcode=1\n{GO_STACK.format(frame='llama._Cfunc_llama_decode')}\n", served().load(4096, layers=(33, 33)).text()),
    "the server's own stack": ("server_panic_restarts", f"{CRASH}\nPC=0x7f27 m=0 sigcode=1\n{GO_STACK.format(frame='server.(*Scheduler).processPending')}\n",
                               f"{CRASH}\nPC=0x7f27 m=0 sigcode=1\n{GO_STACK.format(frame='runner/ollamarunner.(*Server).run')}\n"),
    "layers without their load": ("partial_offload", layers(29, 37), layers(37, 37)),
    "one request of ten minutes": ("client_timeout_500_clusters", served().load(4096, layers=(33, 33)).gin(500, "10m0s").text(), served().load(4096, layers=(33, 33)).gin(500, "9m41s").text()),
    "emphasised": ("client_timeout_500_clusters", '**[GIN] 2026/05/04 - 10:00:01 | 500 |          2m0s |       127.0.0.1 | POST     "/api/chat"**\n',
                   '**[GIN] 2026/05/04 - 10:00:01 | 200 |          2m0s |       127.0.0.1 | POST     "/api/chat"**\n'),
    "no flash attention on that GPU": ("flash_attention_unsupported_gpu", served("0.9.0").say("flash attention enabled but not supported by gpu", "WARN").text(),
                                       served("0.18.0").say("flash attention enabled but not supported by model", "WARN").text()),
    "the first releases without a GPU": ("no_gpu_found", Log("0.1.9").raw("2023/11/15 10:00:00 routes.go:891: warning: gpu support may not be enabled, check that you have installed GPU drivers: nvidia-smi command failed").text(),
                                         on_cpu("0.1.40").gpu().text()),
    "a journal without its hosts": ("server_panic_restarts", f"Feb 26 05:23:36 {UNIT} Main process exited, code=dumped, status=6/ABRT\n",
                                    f"Feb 26 05:23:36 {UNIT} Main process exited, code=exited, status=0/SUCCESS\n"),
    "a journal of which times were cut": ("models_dir_no_access", f"… ollama[77]: Error: mkdir /srv/m/blobs: permission denied\n… systemd[1]: {UNIT} Main process exited, code=exited, status=1/FAILURE\n",
                                          f"… ollama[77]: Error: mkdir /srv/m/blobs: no space left on device\n… systemd[1]: {UNIT} Main process exited, code=exited, status=1/FAILURE\n"),
    "started by itself after a crash": ("server_panic_restarts", CRASHED + RETURNS.format("Scheduled restart job, restart counter is at 4."),
                                        CRASHED + RETURNS.format("Stopping Ollama Service.")),
    "a tokenizer that is too new": ("version_outdated", Log("0.1.44").raw("llama_model_load: error loading model: error loading model vocabulary: unknown pre-tokenizer type: 'newtok'")
                                    .say("error loading llama server", "ERROR", error="llama runner process has terminated: signal: aborted").text(),
                                    served("0.9.0").load(4096, says="llama_model_loader: - kv  14: tokenizer.ggml.pre str = llama-bpe", layers=(33, 33)).text()),
    "a record folded for the reader": ("client_timeout_during_load", 'time=… level=ERROR source=sched.go:571 msg="error loading llama server"\n  error="timed out waiting for llama runner to start: context canceled"\n',
                                       'time=… level=ERROR source=sched.go:571 msg="error loading llama server"\n  error="timed out waiting for llama runner to start - progress 0.40 - "\n'),
    "folded after its source": ("prompt_truncated", '  level=WARN source=llama_server.go:318\n  msg="truncating input prompt"\n  limit=8194 prompt=18353 keep=4 new=8194\n',
                                '  level=WARN source=llama_server.go:318\n  msg="something else"\n  limit=8194 prompt=18353 keep=4 new=8194\n'),
    "an adapter that does not start": ("gpu_error_in_kernel", "[   42.118201] NVRM: GPU 0000:00:04.0: RmInitAdapter failed! (0x26:0xffff:1456)\n", "[   42.118201] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.14\n"),
    "a driver that is not loaded": ("no_gpu_found", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that it is installed and running.\n",
                                    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that it is installed and running.\n" + served().text()),
    "the watchdog of discovery": ("gpu_discovery_timeout", 'level=WARN source=runner.go:584 msg="llama-server GPU discovery watchdog timed out"\n    error="context deadline exceeded"\nlevel=INFO msg="failure during llama-server GPU discovery"\n',
                                  'time=2026-10-06T21:31:00.000Z level=WARN source=runner.go:584 msg="llama-server GPU discovery watchdog timed out" error="context deadline exceeded"\n' + Log("0.32.14").gpu().text()),
    "a quantised cache, newer words": ("kv_type_without_flash_attention", "llama_init_from_model: quantized V cache was requested, but this requires Flash Attention\n",
                                       "llama_init_from_model: Flash Attention was auto, set to enabled\n"),
    "journal without a host, parts in bold": ("client_timeout_during_load", 'Feb 28 01:25:01  ollama[1794]: time=2025-02-28T01:25:01.793+01:00 level=WARN source=server.go:562 **msg="client connection closed before server finished loading, aborting load"**\n',
                                              'Feb 28 01:25:01  ollama[1794]: time=2025-02-28T01:25:01.793+01:00 level=INFO source=server.go:562 **msg="llama runner started in 2.10 seconds"**\n'),
    "hidden, as the server says": ("visible_devices_override", 'Aug 27 09:44:18 host ollama[83]: level=WARN source=runner.go:536 msg="user overrode visible devices" GGML_VK_VISIBLE_DEVICES=-1\nAug 27 09:44:19 host ollama[83]: source=types.go:60 msg="inference compute" id=cpu library=cpu total="62.6 GiB"\n',
                                   'Aug 27 09:44:18 host ollama[83]: level=WARN source=runner.go:536 msg="user overrode visible devices" CUDA_VISIBLE_DEVICES=1\n' + Log("0.24.0").gpu().text()),
    "all of a model in host memory": ("no_gpu_found", "load_tensors:   CPU_Mapped model buffer size = 14898.60 MiB\nllama_kv_cache_init:        CPU KV buffer size =  2944.00 MiB\n" + Log("0.5.13").say("llama runner started in 1.76 seconds", source="server.go:596").text(),
                                      "load_tensors:        CUDA0 model buffer size = 14898.60 MiB\nllama_kv_cache_init:      CUDA0 KV buffer size =  2944.00 MiB\n" + Log("0.5.13").say("llama runner started in 1.76 seconds", source="server.go:596").text()),
    "a folder refused on Windows": ("models_dir_no_access", "Error: mkdir D:\\ollama\\blobs: Access is denied.: ensure path elements are traversable\n",
                                    "Error: mkdir D:\\ollama\\blobs: The system cannot find the path specified.\n"),
    "a request that the runner dropped": ("runner_crash_on_load", 'time=2026-08-07T10:00:00.000Z level=ERROR source=server.go:1610 msg="post predict" error="Post \\"http://127.0.0.1:51220/completion\\": EOF"\n',
                                          'time=2026-08-07T10:00:00.000Z level=ERROR source=server.go:1610 msg="post predict" error="Post \\"http://127.0.0.1:51220/completion\\": context canceled"\n'),
    "a status tail that cut the library": ("gpu_not_supported_by_backend", amd("0.5.12", "amdgpu too old gfx803", gpu="0").text() + 'time=2025-02-26T01:11:02.714Z level=INFO source=types.go:130 msg="inference compute" id=0 library=c…="119.2 GiB"\n',
                                           amd("0.5.12", "amdgpu too old gfx803", gpu="0").gpu().text()),
    "a proxy of pulls that refuses": ("proxy_misconfigured", 'Error: pull model manifest: Get "https://registry.ollama.ai/v2/library/x/manifests/4b": proxyconnect tcp: dial tcp 127.0.0.1:1080: connect: connection refused\n',
                                      'Error: Get "http://127.0.0.1:11434/api/tags": dial tcp 127.0.0.1:11434: connect: connection refused\n'),
    "an input to embed that is too long": ("prompt_truncated", Log("0.13.5").config().listen().gpu().say("embedding failed: the input length exceeds the context length", "ERROR", "routes.go:700").text(),
                                           Log("0.13.5").config().listen().gpu().say("input length is fine", "INFO", "routes.go:700").text()),
    "an estimate one layer short, before its load": ("partial_offload", estimate(49, 49, 48) + loading(49), estimate(20, 49, 20) + loading(20)),
    "a socket of lsof, by its name": ("port_in_use", "COMMAND   PID   USER   FD   TYPE DEVICE SIZE/OFF NODE NAME\nollama  90210 ollama    3u  IPv4  55501      0t0  TCP localhost.lan:11434 (LISTEN)\n# ollama serve\nError: listen tcp 127.0.0.1:11434: bind: address already in use\n",
                                      "COMMAND   PID   USER   FD   TYPE DEVICE SIZE/OFF NODE NAME\nollama  90210 ollama    3u  IPv4  55501      0t0  TCP localhost.lan:11434 (LISTEN)\n"),
    "a load given up, shorter words": ("client_timeout_during_load", GAVE_UP + Log("0.33.0").say("Load failed", "INFO", "sched.go:641", model="/m/blobs/sha256-1").text(),
                                       Log("0.33.0").say("Load failed", "INFO", "sched.go:641", model="/m/blobs/sha256-1", error="exit status 2").text()),
    "a runner that talks on after its time-out": ("load_timeout", LATE + "llama_context: n_ctx         = 4096\nllama_context: n_ctx_seq     = 4096\n",
                                                  LATE + "llama_model_loader: loaded meta data with 31 key-value pairs\nload_tensors: offloaded 33/33 layers to GPU\nllama_context: n_ctx         = 4096\n"),
    "a record without a level": ("no_gpu_found", 'time=2026-01-02T13:02:01.537Z msg="inference compute" id=cpu library=cpu\n', 'time=2026-01-02T13:02:01.537Z msg="inference compute" id=GPU-1 library=CUDA\n'),
    "a port held, in a quoted journal": ("port_in_use", " > Apr 17 23:45:38 box ollama[345]: Error: listen tcp 0.0.0.0:6000: bind: address already in use\n > Apr 17 23:45:38 box systemd[1]: ollama.service: Main process exited, code=exited, status=1/FAILURE\n\n$ ollama list\nError: could not connect to ollama app, is it running?\n",
                                         " > Apr 17 23:45:38 box ollama[345]: Error: something that nobody knows\n > Apr 17 23:45:38 box systemd[1]: ollama.service: Main process exited, code=exited, status=1/FAILURE\n"),
    "a quotation that its line's end broke": ("port_in_use", "The journal says `Error: listen tcp 0.0.0.0:11434: bind: address\nalready in use`, again and again.\n", "The journal says `Listening on 0.0.0.0:11434 (version\n0.33.0)`, and all is well.\n"),
    "back from hibernation": ("gpu_lost_after_suspend", "It happens when the laptop comes back from hibernation, this helps:\nsudo rmmod nvidia_uvm; sudo modprobe nvidia_uvm\n", "It happens after an update, this helps:\nsudo modprobe nvidia_uvm\n"),
    "no runner but the built-in one": ("package_without_gpu_libs", Log("0.5.4").config().listen().say("no dynamic runners detected, using only built-in", "DEBUG", "common.go:85").text(),
                                       Log("0.5.4").config().listen().say("no dynamic runners detected, using only built-in", "DEBUG", "common.go:85").gpu(lib="metal").text()),
    "no engine beside the program": ("package_without_gpu_libs", 'level=WARN source=runner.go:90 msg="failure during llama-server GPU discovery" error="llama-server binary not found (checked: /opt/x/llama-server)"\n',
                                     'level=INFO source=runner.go:90 msg="llama-server binary found" path=/opt/x/llama-server\n'),
    "what was typed in systemctl edit": ("dropin_missing_section_header", EDITED.format('Environment="OLLAMA_MODELS=/srv/m"'), EDITED.format('[Service]\nEnvironment="OLLAMA_MODELS=/srv/m"')),
    "only the extension's model goes": ("client_overrides_keep_alive", "OLLAMA_KEEP_ALIVE=60 is set. With the CLI UNTIL is right, but with the browser extension UNTIL is still 5 minutes.\n", "OLLAMA_KEEP_ALIVE=60m is set. With the browser extension UNTIL is 59 minutes.\n"),
    "a client's own time": ("client_overrides_keep_alive", "Its keep_alive of 30 seconds overrides our default of a day, so the model is unloaded and loaded all the time.\n", "Its keep_alive of 30 seconds is as long as our default.\n"),
    "a cache without a context told": ("kv_cache_exceeds_vram", KV_HEAVY.format("9.0 GiB", "3.7 GiB"), KV_HEAVY.format("1.0 GiB", "0.7 GiB")),
    "a cause above systemd's cut lines": ("protecthome_blocks_models_dir", "[Service]\nUser=me\nProtectHome=yes\n\nError: mkdir /home/me: permission denied\n: Main process exited, code=exited, status=1/FAILURE\n: ollama.service: Failed with result 'exit-code'.\n",
                                          "[Service]\nUser=me\nProtectHome=no\n\nError: mkdir /home/me: permission denied\n: Main process exited, code=exited, status=1/FAILURE\n"),
    "the root of a new disk": ("models_dir_no_access", "The models folder is on a new drive whose root directory permissions are incorrect, so the service fails.\n", "The models folder is on a new drive, and the service works.\n"),
    "a container that a restart cures": ("container_lost_gpu_cgroup", "Two days ago it used both cards.  Today it did the generation on a CPU instead of GPU.\nThe solution was to **restart** the docker container.\n", "It did the generation on a CPU instead of GPU.\nThe solution was to pay for another GPU.\n"),
    "a GPU that compose loses with time": ("container_lost_gpu_cgroup", "services:\n  ollama:\n    image: ollama/ollama:latest\n    container_name: ollama\n\nAfter some 12 hours Ollama will stop using the GPU.\n", "After some 12 hours Ollama answers as before, it did not stop.\n"),
    "brew and setenv": ("brew_plist_rewritten", "launchctl setenv doesn't work for me (homebrew service), the variable is not read.\n", "The homebrew service works for me.\n"),
    "setenv of another session": ("launchctl_wrong_domain", "launchctl setenv OLLAMA_HOST 0.0.0.0 has to be run on the desktop, not in a ssh session\n", "launchctl setenv OLLAMA_HOST 0.0.0.0 was run on the desktop\n"),
    "a profile that the app does not read": ("env_set_in_shell_not_service", "OLLAMA_MODELS is in our .zshrc, which isn't read when the app starts.\n", "OLLAMA_MODELS is in our .zshrc, all as intended.\n"),
    "pages of a browser": ("vram_used_by_other_process", "When I opened several web pages, which took up VRAM, a part of the model went to the CPU.\n", "When I opened several web pages, nothing changed.\n"),
    "released after five minutes": ("keep_alive_does_not_pin", "Without interaction for about 5 minutes the graphics memory is released.\nOLLAMA_KEEP_ALIVE=-1 is in the unit.\n", "OLLAMA_KEEP_ALIVE=-1 is in the unit, and the model stays.\n"),
    "a request that restarts the model": ("model_reload_every_request", "Only one client triggers the model to restart, the others use the one that is loaded.\n", "Only one client uses the model.\n"),
    "two windows of one model": ("model_reload_every_request", "The model with a context of 20k is unloaded and the one with 8k is loaded, for each application.\n", "The model with a context of 20k serves all applications.\n"),
    "an engine that is not on the path": ("package_without_gpu_libs", 'Error: error starting the external llama server: exec: "ollama_llama_server": executable file not found in $PATH\n', 'Error: error starting the external llama server: exec: "nvidia-smi": executable file not found in $PATH\n'),
    "a context that does not fit": ("kv_cache_exceeds_vram", "A large context and the model do not both fit in VRAM, and layers are taken off the GPU.\n", "A large context and the model both fit in VRAM.\n"),
    "a list of devices in the unit": ("unit_sandbox_hides_gpu", 'services.ollama.acceleration = "cuda";\nThe service fails to detect the GPU: the device allow list in the systemd unit lacks it.\n', 'services.ollama.acceleration = "cuda";\n' + served().text()),
    "typed again at each upgrade": ("settings_in_main_unit", "I have modified /etc/systemd/system/ollama.service, and after every upgrade I must insert the option again.\n", "I have a drop-in, and after every upgrade all is as intended.\n"),
    "an update that erases": ("settings_in_main_unit", "I set variables in ollama.service; can one update without erasing the service?\n", "I set variables in ollama.service; how does one update?\n"),
    "a blob that a proxy garbles": ("proxy_not_in_service", 'download.go:166: couldn\'t download blob: Get "https://cdn.example/blobs/x": tls: first record does not look like a TLS handshake\n', 'download.go:166: downloading blob from "https://cdn.example/blobs/x"\n'),
    "a chip of which support was dropped": ("gpu_not_supported_by_backend", "The last update dropped support for gfx900, so the chip does not work.\n", "The last update of the documents names gfx900.\n"),
    "a single GPU preferred": ("gpu_subset_used", "Both are found, but the release favors a single GPU and the other idles.\n", "Both are found and used as intended.\n"),
    "split over both for nothing": ("gpu_spread_unneeded", "It splits the load among both, which is counterproductive: one link is slow.\n", "It splits the load among both, as configured.\n"),
    "started faster than the GPU": ("service_started_before_gpu", "The service is started faster than the GPUs are ready.\n", "The service is started after the GPUs, as intended.\n"),
    "no UVM in a virtual GPU": ("vgpu_uvm_unsupported", "The machine has a vGPU, for which UVM is not supported.\n", "The machine has a vGPU, for which UVM is supported.\n"),
    "two versions of a driver": ("driver_library_mismatch", "apt has nvidia-driver-550 550.107.02-0ubuntu1, and /proc says NVIDIA UNIX x86_64 Kernel Module  550.90.07\n",
                                "apt has nvidia-driver-550 550.107.02-0ubuntu1, and /proc says NVIDIA UNIX x86_64 Kernel Module  550.107.02\n"),
    "lists answer, answers do not": ("runner_hung_parent_healthy", "/api/generate hangs indefinitely, while /api/version and /api/tags keep responding.\n", "/api/generate works, and /api/version and /api/tags keep responding.\n"),
    "serve and the unit's variables": ("running_server_is_not_the_service", "`ollama serve` does not use what the systemd unit sets.\n", "The service uses what the systemd unit sets.\n"),
    "never both": ("models_evict_each_other", "The chat model and the small one cannot be loaded simultaneously.\n", "The chat model and the small one are loaded simultaneously.\n"),
    "a fresh reboot": ("service_started_before_gpu", "The service does not detect the GPU after a fresh reboot, only when it is restarted manually.\n", "The service detects the GPU after a fresh reboot, as intended.\n"),
    "one row of embeddings after the other": ("parallel_forced_to_1_embedding", "The embeddings API handles 1 request at a time.\n", "The embeddings API is fast.\n"),
    "requests of a compose log, indented": ("queue_wait_exceeds_client_timeout", queued("3m51s", "3m59s", "4m6s", "4m12s", "4m19s", "4m28s"), queued("31s", "31s", "31s", "31s", "31s", "31s")),
    "a context for each slot": ("context_multiplied_by_parallel", "NUM_PARALLEL allocates a context for each parallel request, and the KV cache does not fit.\n", "NUM_PARALLEL is one.\n"),
    "gave up before the model was there": ("client_timeout_during_load", "The client disconnects before the model is ready.\n", "The client disconnects after its answer.\n"),
    "an old word for no GPU": ("no_gpu_found", "2023/11/28 14:54:33 routes.go:797: GPU support may not enabled, check you have installed GPU drivers\n", "2023/11/28 14:54:33 routes.go:777: Listening on 127.0.0.1:11434 (version 0.1.12)\n"),
    "pinned memory is not needed": ("partial_offload", PINNED + "llm_load_tensors: offloaded 11/33 layers to GPU\n", PINNED + "llm_load_tensors: offloaded 33/33 layers to GPU\n"),
    "a graph larger than any GPU": ("kv_cache_exceeds_vram", graphed("32.0 GiB"), graphed("0.4 GiB")),
    "a graph of a long context": ("kv_cache_exceeds_vram", "The context of 262144 makes a graph of 124G, which is too big for a card.\n", "The context of 4096 makes a small graph.\n"),
    "stopped and started by docker": ("container_lost_gpu_cgroup", "The model runs on the CPU instead; docker stop ollama and docker start ollama get the GPU again.\n", "The model runs on the CPU instead; docker ps lists it.\n"),
    "a code of CUDA's start": ("cuda_init_999", nvidia("0.6.6", "/usr/lib/libcuda.so.575", "cuda driver library init failure: 3").text() + Log("0.6.6").cpu().text(), nvidia("0.6.6", "/usr/lib/libcuda.so.575", "cuda driver library init failure: 3").gpu().text()),
    "a cache in host memory": ("no_gpu_found", "llama_context: n_ctx_seq     = 32768\nllama_kv_cache:        CPU KV buffer size =  1640.00 MiB\n", "llama_context: n_ctx_seq     = 32768\nllama_kv_cache:      CUDA0 KV buffer size =  1640.00 MiB\n"),
    "a pod's name before the line": ("kv_type_without_flash_attention", shown_with_pod("quantized kv cache requested but flash attention disabled"), shown_with_pod("key not found")),
    "more models than allowed": ("models_evict_each_other", Log("0.9.0").say("max runners achieved, unloading one to make room", "DEBUG", "sched.go:197", runner_count=3).text(), Log("0.9.0").say("updating default concurrency", "DEBUG", "sched.go:182", OLLAMA_MAX_LOADED_MODELS=3).text()),
    "a grep over two services": ("igpu_dropped", igpu(900, used=False), igpu(411, used=False) + igpu(900, used=True)),
    "an estimate for the CPU": (
        "below_minimum_vram_for_any_layer",
        Log("0.3.12").say("offload to cuda", source="memory.go:326", layers__requested=-1, layers__model=29, layers__offload=0, memory__available="[4.6 GiB]", memory__required__full="3.4 GiB", memory__required__kv="0.8 GiB").text(),
        Log("0.3.12").say("offload to cpu", source="memory.go:326", layers__requested=-1, layers__model=29, layers__offload=0, memory__available="[4.6 GiB]", memory__required__full="3.4 GiB", memory__required__kv="0.8 GiB").text(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_it_is_told_first(name: str) -> None:
    fires_first(ROWS[name])


@pytest.mark.parametrize("name", ROWS)
def test_its_near_miss_is_not(name: str) -> None:
    near_miss_is_quiet(ROWS[name])


def test_one_client_that_hung_up_is_told_without_alarm() -> None:
    """A person may have cancelled it: no warning; and what the log names as the cause goes before it."""
    row = '[GIN] 2026/05/04 - 10:00:07 | 500 |  6.270837667s | 127.0.0.1 | POST "/api/chat"\n'
    gone = Log("0.13.5").say("aborting completion request due to client closing the connection", source="runner.go:916").text()
    assert [(f.check, f.severity) for f in report(row + gone).findings] == [("client_timeout_500_clusters", "info")]
    failed = Log("0.13.5").say("llama runner terminated", "ERROR", "server.go:1", error="exit status 2").text()
    assert report(failed + row + gone).findings[0].check == "runner_crash_on_load"
    assert not report(row).findings


def test_a_short_time_out_is_told_where_the_log_says_that_clients_hung_up() -> None:
    """A second or two is no pattern of its own: failures of the server's own are as fast."""
    rows = "".join(f'[GIN] 2026/05/04 - 10:00:0{n} | 500 |  2.00{n}s | 127.0.0.1 | POST "/api/chat"\n' for n in range(3))
    gone = Log("0.13.5").say("aborting completion request due to client closing the connection", source="runner.go:916").text()
    found = report(rows + gone * 3).findings
    assert [(f.check, f.severity) for f in found] == [("client_timeout_500_clusters", "warning")]
    assert "3 requests ended with 500 after 2.00 s" in found[0].summary
    assert not report(rows).findings


def test_a_death_is_told_by_its_reason_not_by_the_record_that_holds_it() -> None:
    error = 'error="llama-server process has terminated: exit status 0xc0000094: {EXCEPTION}\\r\\nInteger division by zero."'
    text = f'time=2026-06-03T17:01:30.085-07:00 level=INFO source=sched.go:641 msg="Load failed" model=/m/sha256-5cf8 {error}\n'
    said = "the runner died: llama-server process has terminated: exit status 0xc0000094: {EXCEPTION} Integer division by zero."
    assert [f.summary for f in report(text).findings] == [said]
    bare = 'level=ERROR source=sched.go:388 msg="error loading llama server" error="llama runner process no longer running: -1 "\n'
    assert report(bare).findings[0].summary == "the runner died: llama runner process no longer running: -1"


def test_a_cure_that_is_told_is_no_setting() -> None:
    """The words before an assignment say whether it is set or was what helped."""
    cured = report("The GPU sits idle. The fix is one environment variable: export HSA_OVERRIDE_GFX_VERSION=11.0.0\n")
    assert "env_set_in_shell_not_service" not in [f.check for f in cured.findings]
    typed = report("I typed this in my terminal: export OLLAMA_NUM_PARALLEL=4\n")
    assert [f.check for f in typed.findings] == ["env_set_in_shell_not_service"]


def test_the_images_own_defaults_are_a_containers() -> None:
    """Every interface of a container is only its own: a GPU that it lacks is told before."""
    log = Log("0.5.4").config(OLLAMA_HOST="http://0.0.0.0:11434", OLLAMA_MODELS="/root/.ollama/models").listen("[::]:11434").cpu()
    found = {f.check: f.severity for f in report(log.text()).findings}
    assert next(iter(found)) == "no_gpu_found"
    assert found["api_exposed_without_auth"] == "info"
    host = Log("0.5.4").config(OLLAMA_HOST="http://0.0.0.0:11434").listen("[::]:11434").cpu()
    assert {f.check: f.severity for f in report(host.text()).findings}["api_exposed_without_auth"] == "warning"


def test_a_model_that_goes_for_its_own_request_is_loaded_anew() -> None:
    """The scheduler throws out the model that a request asks for only where the request's options differ."""
    assert [f.check for f in report(thrown_out(A, A)).findings] == ["model_reload_every_request"]
    assert not report(thrown_out(B, A)).findings


def test_a_timeout_after_the_gpu_was_found_is_no_loss_of_it() -> None:
    timed_out = Log("0.12.6").say("failure during GPU discovery", source="runner.go:545", error="failed to finish discovery before timeout").text()
    found = report(Log("0.12.6").config().listen().gpu().text() + timed_out).findings
    assert [(f.check, f.severity) for f in found][:1] == [("gpu_discovery_timeout", "info")]


def test_a_model_without_flash_attention_is_told_after_a_gpu_that_was_not_found() -> None:
    log = Log("0.18.0").config().listen().cpu().say("flash attention enabled but not supported by model", "WARN", "server.go:209")
    assert [f.check for f in report(log.text()).findings][:2] == ["no_gpu_found", "flash_attention_unsupported_gpu"]


def test_a_virtual_gpu_whose_load_is_given_up_is_no_fault_of_it() -> None:
    gone = Log("0.20.0").say("client connection closed before server finished loading, aborting load", "WARN", "server.go:1370")
    failed = gone.say("Load failed", source="sched.go:516", error="timed out waiting for llama runner to start: context canceled")
    assert report("tensors load into the vGPU\n" + failed.text()).findings[0].check == "client_timeout_during_load"


def test_a_unit_that_was_pasted_without_its_path_is_opened_by_its_name() -> None:
    found = report("[Service]\nRuntimeMaxSec=5\n").findings[0]
    assert found.remedy.startswith("sudo systemctl edit --full ollama && ")
