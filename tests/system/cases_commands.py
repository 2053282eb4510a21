"""Output of commands as people paste it beside a log, in our own words: what each form must lead to."""

from __future__ import annotations

from tests.system.small import Log, on_cpu, ps, served

CASES: dict[str, tuple[str, str]] = {}
SMI = """+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI {v}             Driver Version: {v}     CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
|   0  NVIDIA GeForce RTX 3090        Off |   00000000:01:00.0 Off |                  N/A |
| 30%   41C    P8             21W /  350W |   {used}MiB /  24576MiB |      0%      Default |
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |
|=========================================================================================|
{rows}+-----------------------------------------------------------------------------------------+
"""


def smi(driver: str = "570.86.15", used: int = 12, *rows: str) -> str:
    return SMI.format(v=driver, used=used, rows="".join(f"|    0   N/A  N/A   {row} |\n" for row in rows))


def case(name: str, check: str, *texts: str) -> None:
    assert name not in CASES
    CASES[name] = (check, "\n".join(texts))


# nvidia-smi, lsmod, ls -l /dev, dmesg
case("smi-there-service-blind", "service_started_before_gpu", on_cpu("0.12.9").text(), "$ nvidia-smi", smi())
case("smi-there-container-blind", "no_gpu_found", "$ docker logs ollama\n", on_cpu("0.12.9").text(), "$ nvidia-smi   # on the host", smi())
case("smi-old-driver", "nvidia_driver_too_old", on_cpu("0.32.0").text(), "$ nvidia-smi", smi("470.256.02"))
case("smi-mismatch", "driver_library_mismatch", on_cpu("0.9.0").text(), "$ nvidia-smi\nFailed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.133\n")
case("lsmod-no-uvm", "nvidia_uvm_not_loaded", on_cpu("0.9.0").text(),
     "$ lsmod | grep nvidia\nnvidia_drm            131072  4\nnvidia_modeset       1728512  3 nvidia_drm\nnvidia              98234368  88 nvidia_modeset\n")  # fmt: skip
case("ls-no-uvm", "nvidia_uvm_not_loaded", on_cpu("0.9.0").text(),
     "$ ls -l /dev/nvidia*\ncrw-rw-rw- 1 root root 195,   0 May  4 09:00 /dev/nvidia0\ncrw-rw-rw- 1 root root 195, 255 May  4 09:00 /dev/nvidiactl\n")  # fmt: skip
case("dmesg-oom", "oom_killed", "$ sudo dmesg | tail\n[ 8123.551201] Out of memory: Killed process 4411 (llama-server) total-vm:41235584kB, anon-rss:30112432kB, file-rss:0kB\n")
case("dmesg-T-oom", "oom_killed", "$ sudo dmesg -T | tail -3\n[Mon May  4 10:12:13 2026] Out of memory: Killed process 4411 (ollama_llama_se) total-vm:41235584kB, anon-rss:30112432kB\n")
# AMD
case("kfd-foreign-group", "kfd_permission_denied", "$ podman logs ollama\n", on_cpu("0.12.9").text(),
     "$ podman exec ollama ls -l /dev/kfd /dev/dri\ncrw-rw---- 1 nobody nogroup 510, 0 May  4 09:00 /dev/kfd\n/dev/dri:\ncrw-rw---- 1 nobody nogroup 226, 128 May  4 09:00 renderD128\n")  # fmt: skip
case("ollama-not-in-render", "kfd_permission_denied", on_cpu("0.12.9").text(), "$ lsmod | grep amdgpu\namdgpu              19632128  54\n$ id ollama\nuid=998(ollama) gid=998(ollama) groups=998(ollama)\n")
case("rocm-no-device", "discovery_ok_but_runner_cpu", Log("0.7.0").config().listen().gpu("Radeon RX 7900", "20.0 GiB", "14.6 GiB", "rocm", "gfx1100", "0.0").raw("ggml_cuda_init: failed to initialize ROCm: no ROCm-capable device is detected").text())
# containers and Kubernetes
case("inspect-memory-killed", "memory_limit_below_need", '$ docker inspect ollama\n        "State": {\n            "Status": "exited",\n            "OOMKilled": true,\n            "ExitCode": 137,\n        },\n        "HostConfig": {\n            "Memory": 4294967296,\n')
case("inspect-ports", "api_exposed_without_auth", '$ docker inspect ollama\n            "PortBindings": {\n                "11434/tcp": [\n                    {\n                        "HostIp": "",\n                        "HostPort": "11434"\n')
case("inspect-no-gpu", "no_gpu_found", on_cpu("0.12.9").text(), '$ docker inspect ollama\n            "DeviceRequests": null,\n')
case("inspect-env-typo", "unknown_ollama_variable", '$ docker inspect ollama\n            "Env": [\n                "OLLAMA_NUM_PARALEL=4",\n                "PATH=/usr/bin"\n            ],\n')
case("describe-pod", "memory_limit_below_need", "$ kubectl describe pod ollama-0\n    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n    Limits:\n      memory:  6Gi\n")
case("k8s-env-typo", "unknown_ollama_variable", "        env:\n        - name: OLLAMA_NUM_PARALEL\n          value: \"4\"\n        image: ollama/ollama:0.12.6\n")
case("container-refused", "bind_loopback_only", "$ docker exec -it chat curl http://host.docker.internal:11434\ncurl: (7) Failed to connect to host.docker.internal port 11434 after 0 ms: Couldn't connect to server\n")
# systemctl, ps, launchctl, brew
case("is-enabled-masked", "service_masked", "me@box:~$ systemctl is-enabled ollama\nmasked\n")
case("is-enabled-disabled", "service_not_started_at_boot", "me@box:~$ systemctl is-enabled ollama\ndisabled\nme@box:~$ systemctl is-active ollama\ninactive\n")
case("ps-two-users", "running_server_is_not_the_service", "$ ps aux | grep ollama\nollama      1201  0.1  0.2 2131072 54000 ?  Ssl  09:00   0:03 /usr/local/bin/ollama serve\nanna        4410  0.3  0.2 2131072 55000 pts/0 Sl+ 10:20 0:01 ollama serve\n")
case("launchctl-getenv", "launchctl_setenv_not_persistent", "% launchctl getenv OLLAMA_NUM_PARALLEL\n4\n", Log("0.9.0").config().listen().gpu("Apple M2", lib="metal").text())
case("api-ps-cpu-share", "partial_offload", '$ curl -s localhost:11434/api/ps\n{"models":[{"name":"a:8b","model":"a:8b","size":10000000000,"digest":"x","size_vram":6000000000,"context_length":8192}]}\n')
case("df-full", "disk_full", "$ df -h\nFilesystem      Size  Used Avail Use% Mounted on\n/dev/sda2       234G  234G     0 100% /\n", "Error: write /usr/share/ollama/.ollama/models/blobs/sha256-ab-partial: no space left on device\n")
# shortened and quoted log lines
case("short-line", "prompt_truncated", "I see this in the log: WARN runner.go:130 truncating input prompt limit=2048 prompt=9154 keep=5 new=2048\n")
case("short-msg", "parallel_forced_to_1_by_architecture", 'it says "model architecture does not currently support parallel requests" architecture=qwen3next\n', served(OLLAMA_NUM_PARALLEL="6").text())
case("no-time", "vram_tiered_default_context", 'level=INFO source=routes.go:2058 msg="vram-based default context" total_vram="24.0 GiB" default_num_ctx=32768\n', "NAME    ID              SIZE     PROCESSOR          CONTEXT    UNTIL\na:8b    365c0bd3c000    30 GB    33%/67% CPU/GPU    32768      4 minutes from now\n")
case("inside-backticks", "cuda_init_999", 'The line is `time=2025-01-28T17:02:55.661+03:00 level=WARN source=gpu.go:623 msg="unknown error initializing cuda driver library /usr/lib/libcuda.so.1: cuda driver library init failure: 999"`\n')
case("gin-cut", "origin_not_allowed_403", "GIN 403 | 14.4µs on /api/chat from the extension\n")
case("cut-in-a-load", "partial_offload", "load_tensors: offloading 5 repeating layers to GPU\nload_tensors: offloaded 5/37 layers to GPU\nload_tensors:        CUDA0 model buffer size =   511.43 MiB\nload_tensors:   CPU_Mapped model buffer size =  3565.00 MiB\nllama_context: n_ctx         = 8192\nllama_kv_cache:        CPU KV buffer size =   900.00 MiB\n")
case("stamped-without-blank", "prompt_truncated", '2026-05-04 10:00:09.000124+00:00time=2026-05-04T10:00:09.000Z level=WARN source=runner.go:153 msg="truncating input prompt" limit=4096 prompt=7551 keep=4 new=4096\n')
case("no-cuda-symbol", "nvidia_driver_too_old", 'dlerr: /usr/lib64/libcuda.so.418.74: undefined symbol: cuCtxCreate_v3\ntime=2024-07-04T17:13:20.135+08:00 level=DEBUG source=gpu.go:385 msg="Unable to load nvcuda" library=/usr/lib64/libcuda.so.418.74 error="symbol lookup for cuCtxCreate_v3 failed: undefined symbol: cuCtxCreate_v3"\n')
case("tensile", "gpu_not_supported_by_backend", Log("0.5.4").config().listen().gpu("Radeon RX 6700", "12.0 GiB", "11.0 GiB", "rocm", "gfx1031", "0.0").load(2048, ok=False).raw("rocBLAS error: Cannot read /opt/rocm/lib/rocblas/library/TensileLibrary.dat: No such file or directory for GPU arch : gfx1031").text())
case("reads-to-its-end", "model_blob_truncated", "error loading model: unexpectedly reached end of file\nllama_load_model_from_file: failed to load model\n")
case("woken-up", "gpu_lost_after_suspend", "Since the laptop woke up from sleep Ollama is only using the CPU, before that it was fast.\n")
case("old-systemd", "service_restart_loop", "".join(f"Aug 08 09:02:{s} box systemd[1]: {line}\n" for s in (29, 33, 37) for line in (
    "ollama.service: main process exited, code=exited, status=127/n/a", "Unit ollama.service entered failed state.",
    "ollama.service holdoff time over, scheduling restart.")))
case("no-program", "ollama_not_installed", "start.sh: line 4: ollama: command not found\n")
case("ps-and-buffers", "ps_says_gpu_but_cpu_busy", "NAME    ID              SIZE      PROCESSOR    CONTEXT    UNTIL\na:8b    365c0bd3c000    5.6 GB    100% GPU     4096       4 minutes from now\n"
     "llama_context: n_ctx_seq     = 4096\nllama_context:        CPU  output buffer size =     0.50 MiB\nllama_kv_cache:        CPU KV buffer size =   512.00 MiB\n")
case("family-waits", "parallel_forced_to_1_by_architecture", "With OLLAMA_NUM_PARALLEL=4 the model qwen3-vl:8b always waits for the first window to finish.\n")
case("keep-alive-reset", "client_overrides_keep_alive", "I set keep_alive to -1, but it is always reset to 5 minutes by the plugin.\n")
case("client-sets-it", "env_set_in_shell_not_service", 'os.environ["OLLAMA_NUM_PARALLEL"] = "4"   # in my script\n')
case("extension-403", "origin_not_allowed_403", "My browser extension gets 403 on every call of /api/chat, curl is fine.\n")

# -- texts of which the beginning, the time or the host was cut off --
JOURNAL_2 = "2月 04 10:00:0{} box ollama[77]: "
case("a heading before the journal", "gpu_not_supported_by_backend", "● ollama.service - Ollama Service\n",
     *(JOURNAL_2.format(n) + row for n, row in enumerate(
         Log("0.5.7").say("amdgpu is not supported (supported types:[gfx1030 gfx1100])", "WARN", "amd_linux.go:378", gpu_type="gfx1031")
         .say("no compatible GPUs were discovered", source="gpu.go:392").cpu().rows)))  # fmt: skip
case("journal without time and host", "parallel_forced_to_1_by_architecture",
     *("ollama[1773]: " + row for row in Log("0.4.1").say("mllama doesn't support parallel requests yet", "WARN", "sched.go:137").rows))  # fmt: skip
case("two of one load's lines", "partial_offload", "llm_load_tensors: offloading 20 repeating layers to GPU\nllm_load_tensors: offloaded 20/33 layers to GPU\n"
     "llm_load_tensors: CUDA_Host model buffer size =   900.00 MiB\nllm_load_tensors: CUDA0 model buffer size =  3000.00 MiB\n")  # fmt: skip
case("a client's error above the log", "load_timeout", "Error: timed out waiting for llama runner to start - progress 0.40 -\n",
     Log("0.3.0").config().listen().text())  # fmt: skip
# -- two tables in one text --
case("ps of two models, apart", "partial_offload", ps("big:70b      be39eb53a197    41 GB     40%/60% CPU/GPU    4096    4 minutes from now"),
     ps("small:8b     a6990ed6be41    5.4 GB    100% GPU           4096    4 minutes from now"))  # fmt: skip
LISTED = "NAME    ID              SIZE      MODIFIED\n"
case("ollama list before and after", "models_in_two_dirs", LISTED, "a:8b    365c0bd3c000    4.7 GB    3 days ago\nb:8b    365c0bd3c001    4.7 GB    3 days ago\n",
     "$ ollama serve\n$ ollama list\n", LISTED, "c:1b    365c0bd3c002    1.1 GB    7 days ago\n",
     "$ ollama list\nError: could not connect to ollama app, is it running?\n")  # fmt: skip
# -- other words for the same --
case("port held, Windows in German", "port_in_use", "Error: listen tcp 127.0.0.1:11434: bind: Normalerweise darf jede Socketadresse (Protokoll, Netzwerkadresse oder Anschluss) nur jeweils einmal verwendet werden.\n")
case("a parent that only its owner may pass", "models_dir_no_access", "$ ls -ld /data /data/models\ndrwx------  4 anna anna 4096 May  4 09:00 /data\n"
     "drwxrwxr-x  4 anna anna 4096 May  4 09:00 /data/models\n",
     "[Service]\nExecStart=/usr/local/bin/ollama serve\nUser=ollama\nEnvironment=\"OLLAMA_MODELS=/data/models\"\n")  # fmt: skip
case("clients that hang up, written as 200", "client_timeout_500_clusters",
     *(row for n in range(4) for row in Log("0.6.1").later(61 * n)
       .say("aborting completion request due to client closing the connection", source="runner.go:654").gin(200, "1m1s").rows))  # fmt: skip
case("given up after two minutes, told", "client_timeout_500_clusters", "My request to ollama gets cancelled after 120 seconds, whatever I set.\n")
case("one slot, told", "parallel_forced_to_1_by_architecture", "WARN architecture qwen35 does not support parallel requests, falling back to -np 1\n")
case("suspend and the GPU, told", "gpu_lost_after_suspend", "Whenever my laptop goes to sleep the GPU is lost, ollama then says: no compatible GPUs were discovered\n")
case("boot and the GPU, told", "service_started_before_gpu", "The card is detected correctly after manually restarting the ollama service.\n")
case("a client's keep_alive, told", "keep_alive_does_not_pin", "I set \"-1\" for 'Keep Alive' in the flow and see \"4 minutes from now\" in the table.\n")
case("a library's keep_alive, told", "client_overrides_keep_alive", "The library defaults to setting `keepAlive` to `5m`, which beats the server.\n")
case("a variable that stays empty", "env_not_in_server_config", Log("0.3.6").config(HSA_OVERRIDE_GFX_VERSION="").listen().text(),
     "`HSA_OVERRIDE_GFX_VERSION:` remains empty though the drop-in sets it\n")  # fmt: skip
case("from a container, told", "bind_loopback_only", "docker run --rm app: [Errno 111] Connection refused\nhttp://localhost:11434 is running, I see it in the browser\n")
case("agents and logins, told", "launchagent_needs_login", "The plist is in /Library/LaunchAgents and only works at login; it shall serve before.\n")
case("a container and its GPU, told", "container_lost_gpu_cgroup", "The docker container fails to use the GPU after some time idle; a restart of it helps.\n")
case("noexec, told", "tmp_noexec", "noexec on /tmp here\nError: llama runner process no longer running: 1\n")
case("num_ctx withheld, told", "client_num_ctx_not_sent", "The editor does not forward num_ctx to the chat endpoint.\n")
case("a reload at each turn, told", "model_reload_every_request", "I think it sends a different num_ctx each turn, so ollama has to reload the weights.\n")
case("unloaded at each turn, told", "model_reload_every_request", "ollama unloads my model at each request of the editor\n")
case("one by one, told", "parallel_is_one", "It queues the requests to ollama and processes them serially.\n")
case("a cache beside a crash", "kv_cache_exceeds_vram", Log("0.3.4").config(OLLAMA_NUM_PARALLEL="2").listen().gpu("NVIDIA GeForce RTX 3060", "6.0 GiB", "4.6 GiB", cc="8.6")
     .line("offload to cuda", 'layers.requested=-1 layers.model=33 layers.offload=0 layers.split="" memory.available="[4.6 GiB]" memory.required.full="35.3 GiB" '
           'memory.required.partial="0 B" memory.required.kv="31.2 GiB" memory.required.allocations="[0 B]" memory.weights.total="4.1 GiB"', source="memory.go:309")
     .text(), "Error: llama runner process has terminated: error:failed to create context with model\n")  # fmt: skip
# -- lines that were glued or cut --
GLUED = "cuda driver library failed to get device context 800time=2026-05-04T10:00:0{}.000Z level=WARN source=gpu.go:434 msg=\"error looking up nvidia GPU memory\""
case("words of CUDA without an end of line", "container_lost_gpu_cgroup", *(GLUED.format(n) for n in range(3)))
case("docker's json-file, cut", "container_lost_gpu_cgroup",
     *('{"log":"' + GLUED.format(n).replace('"', '\\"') + '\\n"' for n in range(3)))  # fmt: skip
case("a warning of the old form in a sentence", "invalid_value", "Each command gives me \"config.go:45: WARN invalid port,  using default port=127.0.0.1 default=11434\"\n")
case("no GPU, first releases", "no_gpu_found", "2024/02/09 00:19:57 gpu.go:39: CUDA not detected: Unable to load libnvidia-ml.so\n2024/02/09 00:19:57 routes.go:1042: no GPU detected\n")
