"""Statements of told cases, and what each leads to; `test_paste_told` runs them."""

# ruff: noqa: E501 - a statement is read more easily whole
from __future__ import annotations

# a statement, what it must lead to in the first place, and a near miss at which nothing may be at warning
KINDS: dict[str, tuple[str, str, str]] = {
    "cut lines": (
        "log: truncating input prompt limit=4096 prompt=12034; GIN 200 | 48.1 s on /api/chat",
        "prompt_truncated",
        "log: llama runner started in 2.1 seconds; GIN 200 | 8.1 s on /api/chat",
    ),
    "columns of ollama ps": (
        "assistant is slow; ollama ps: gemma3:12b 11 GB 40%/60% CPU/GPU",
        "partial_offload",
        "assistant is quick; ollama ps: gemma3:12b 11 GB 100% GPU",
    ),
    "shares alone": ("phi4:14b sits at 71% CPU / 29% GPU", "partial_offload", "phi4:14b sits at 100% GPU"),
    "before and after": (
        "ollama ps 6 GB 100% GPU CONTEXT 32768 → 5.5 GB 100% CPU CONTEXT 4096 with the new release",
        "igpu_dropped",
        "ollama ps 6 GB 100% GPU CONTEXT 32768 → 6 GB 100% GPU CONTEXT 32768 with the new release",
    ),
    "a longer context on the CPU": (
        "ollama ps 6 GB 100% GPU CONTEXT 8192 → 19 GB 100% CPU CONTEXT 131072",
        "kv_cache_exceeds_vram",
        "ollama ps 6 GB 100% GPU CONTEXT 8192 → 7 GB 100% GPU CONTEXT 16384",
    ),
    "a context to and fro": (
        "ollama ps CONTEXT 8192 → 2048 → 8192",
        "model_reload_every_request",
        "ollama ps CONTEXT 8192 → 8192 → 8192",
    ),
    "two settings of a load": (
        "gemma3 with -c 655360 -np 20; failed to allocate CUDA0 buffer of size 53687091200",
        "context_multiplied_by_parallel",
        "gemma3 with -c 16384 -np 4; loaded in 2 s",
    ),
    "access lines in short": ("GIN: 503 in 31 to 44 ms on /api/embed", "queue_full_503", "GIN: 200 in 31 to 44 ms on /api/embed"),
    "several durations": (
        "GIN 500 30.001 s, 30.004 s, 30.002 s on /api/chat",
        "client_timeout_500_clusters",
        "GIN 200 30.001 s, 30.004 s, 30.002 s on /api/chat",
    ),
    "systemd's words without the unit": (
        "status=203/EXEC; Failed at step EXEC spawning /opt/ollama/bin/ollama",
        "exec_path_missing",
        "Process: 411 ExecStart=/usr/local/bin/ollama serve (code=exited, status=0/SUCCESS)",
    ),
    "a journal's line without its time": (
        'ollama[811]: level=WARN source=runner.go:154 msg="truncating input prompt" limit=2048 prompt=2900 keep=4 new=2048',
        "prompt_truncated",
        'ollama[811]: level=INFO source=server.go:619 msg="llama runner started in 0.25 seconds"',
    ),
    "a setting without its prefix": ("override.conf: KV_CACHE_TYPE=q9_9", "kv_type_invalid", "override.conf: KV_CACHE_TYPE=q8_0"),
    "a name that does not exist": (
        "compose: OLLAMA_PARALLEL_REQUESTS=4",
        "unknown_ollama_variable",
        "compose: OLLAMA_NUM_PARALLEL=4",
    ),
    "after a boot": (
        "The card is found when the service is restarted, not after a boot: CPU only until then.",
        "service_started_before_gpu",
        "After a reboot the card is used as before.",
    ),
    "after sleep": ("CPU only once the laptop has resumed from sleep.", "gpu_lost_after_suspend", "The laptop sleeps at night, answers are quick in the morning."),
    "a container and a while": (
        "The container loses the GPU after about ten hours.",
        "container_lost_gpu_cgroup",
        "The container was up for ten hours, the GPU is used.",
    ),
    "an integrated GPU": ("780M is not used, models run on the CPU.", "igpu_dropped", "780M is used, models run on it."),
    "only as root": ("RX 7800 XT is only used when it runs as root: not found unless root", "kfd_permission_denied", "RX 7800 XT is used by the service."),
    "a shell's profile": (
        "OLLAMA_NUM_PARALLEL is exported in ~/.bashrc and ignored by the service.",
        "env_set_in_shell_not_service",
        "OLLAMA_HOST is exported in ~/.bashrc for the command line.",
    ),
    "the main unit and an upgrade": (
        "Each upgrade resets the Environment lines of ollama.service.",
        "settings_in_main_unit",
        "The upgrade kept the Environment lines of the drop-in.",
    ),
    "another drop-in": (
        "An installer of another product replaces override.conf with its own.",
        "dropin_overridden_by_later_dropin",
        "override.conf is the only drop-in.",
    ),
    "windows and wsl": (
        "Variables are set in Windows, the server in WSL2 ignores them.",
        "env_wrong_side_of_wsl",
        "The server in WSL2 runs with what its unit sets.",
    ),
    "launchctl and a reboot": (
        "What launchctl setenv sets is gone after every reboot.",
        "launchctl_setenv_not_persistent",
        "A LaunchAgent sets it after every reboot.",
    ),
    "a snap": ("The snap ignores OLLAMA_HOST of the shell.", "snap_config_required", "The snap listens where it shall."),
    "one by one": ("Two users are served one after another.", "parallel_is_one", "Two users are served at once."),
    "a family with one slot": (
        "qwen3.5:27b answers one request at a time, llama3.1 several.",
        "parallel_forced_to_1_by_architecture",
        "llama3.1 answers several requests at a time.",
    ),
    "models that swap": (
        "The embedding model evicts the chat model at every question.",
        "models_evict_each_other",
        "The embedding model and the chat model stay loaded.",
    ),
    "loads anew": (
        "The model is loaded anew for every message, num_ctx differs between the clients.",
        "model_reload_every_request",
        "The model stays loaded between messages.",
    ),
    "a client's keep_alive": (
        "keep_alive -1 is set in Open WebUI, the model is unloaded after 5 minutes.",
        "client_overrides_keep_alive",
        "keep_alive 5m is set in Open WebUI, the model stays for that time.",
    ),
    "a client without num_ctx": (
        "The editor's plug-in does not send num_ctx.",
        "client_num_ctx_not_sent",
        "The editor's plug-in sends num_ctx=16384.",
    ),
    "a prompt that is cut": (
        "Long documents are cut at the start and answers miss half of them.",
        "prompt_truncated",
        "Long documents are answered in full.",
    ),
    "a gateway": (
        "The ingress cuts answers with 504 after 60 s.",
        "proxy_timeout_60s",
        "The ingress waits for 600 s.",
    ),
    "a fixed time": (
        "Indexing jobs time out after 90 s.",
        "client_timeout_500_clusters",
        "Indexing jobs end after 90 s with all they need.",
    ),
    "out of reach": (
        "Other machines in the LAN cannot connect, ss: LISTEN 127.0.0.1:11434",
        "bind_loopback_only",
        "Other machines in the LAN use another server.",
    ),
    "a port that is taken": (
        "ollama serve: the port is in use right after the installation",
        "port_in_use",
        "ollama serve: the port was free",
    ),
    "by hand": (
        "ollama serve was started by hand and knows nothing of the variables in the unit.",
        "running_server_is_not_the_service",
        "The service was started by systemd with the variables of the unit.",
    ),
    "models elsewhere": (
        "ollama list lacks the models that were pulled as another user.",
        "models_in_two_dirs",
        "ollama list shows the models that were pulled.",
    ),
    "killed": ("signal: killed while a 32B model loads on a board with 16 GB", "oom_killed", "a 4B model loads on a board with 16 GB"),
    "slower": (
        "Half the token rate since the update to 0.31: 64 tok/s → 30 tok/s",
        "slow_after_upgrade",
        "The same token rate with the new driver.",
    ),
    "an old driver": ("The driver is too old for this release.", "nvidia_driver_too_old", "The driver is new enough for this release."),
    "a message of which the end is cut": (
        "log: client connection closed before server finished; 40 s per load",
        "client_timeout_during_load",
        "log: waiting for server to become; 4 s per load",
    ),
    "one setting in two drop-ins": (
        "10-a.conf: OLLAMA_KEEP_ALIVE=24h; 20-b.conf: OLLAMA_KEEP_ALIVE=5m",
        "dropin_overridden_by_later_dropin",
        "10-a.conf: OLLAMA_KEEP_ALIVE=24h; 20-b.conf: OLLAMA_NUM_PARALLEL=2",
    ),
    "two clients with their own context": (
        "chat sends num_ctx 8192, the editor num_ctx 32768",
        "model_reload_every_request",
        "chat sends num_ctx 8192, the editor num_ctx 8192",
    ),
    "a command line with its export": (
        "export OLLAMA_NUM_PARALLEL=8 && ollama run gemma3; server config OLLAMA_NUM_PARALLEL:1",
        "env_set_in_shell_not_service",
        "export OLLAMA_NUM_PARALLEL=8 && ollama serve; server config OLLAMA_NUM_PARALLEL:8",
    ),
    "who else holds the memory": (
        "nvidia-smi: python3 11000 MiB; offloaded 12/41 layers to GPU",
        "vram_used_by_other_process",
        "nvidia-smi: ollama 11000 MiB; offloaded 41/41 layers to GPU",
    ),
    "a new driver without a reboot": (
        "Since the driver was updated models run on the CPU.",
        "driver_library_mismatch",
        "The driver was updated and the host restarted.",
    ),
    "a client's own time": (
        "OLLAMA_KEEP_ALIVE=-1 is set, and with the notes plug-in the model goes after five minutes.",
        "client_overrides_keep_alive",
        "OLLAMA_KEEP_ALIVE=5m is set, and the model goes after that.",
    ),
    "options in each request": (
        "WARN invalid option provided option=tfs_z with every message of the chat app",
        "invalid_option_flood",
        "every message of the chat app is answered",
    ),
    "slots and connections": (
        "/slots: 4 of 4 is_processing true; nine requests are waiting",
        "queue_building_up",
        "/slots: 2 of 4 is_processing true; nine requests were answered",
    ),
    "a queue that refuses nobody": (
        "drop-in OLLAMA_MAX_QUEUE=2; eight scripts wait for a minute and nobody gets 503",
        "max_queue_not_applied_to_loaded_model",
        "drop-in OLLAMA_MAX_QUEUE=2; eight scripts are answered at once",
    ),
    "layers as asked for": (
        "Modelfile has PARAMETER num_gpu 12; offloaded 12/41 layers to GPU",
        "num_gpu_option_limits_layers",
        "Modelfile has PARAMETER num_ctx 8192; offloaded 41/41 layers to GPU",
    ),
    "memory on the disk": (
        "free: swap 7.1Gi used of 8Gi; replies crawl",
        "swap_thrash",
        "free: swap 0 used; replies are quick",
    ),
    "tokens that were read": (
        "The reply has prompt_eval_count 4099 for a document of 52,000 tokens",
        "prompt_truncated",
        "The reply has prompt_eval_count 4099 for a document of that length",
    ),
    "a port of a compose file": (
        "compose: ports - \"11434:11434\"; strangers can call it",
        "api_exposed_without_auth",
        "compose: ports - \"127.0.0.1:11434:11434\"; strangers cannot call it",
    ),
    "another port than the command asks": (
        "drop-in OLLAMA_HOST=127.0.0.1:12000; ollama ps: could not connect to ollama server",
        "client_host_differs_from_server",
        "drop-in OLLAMA_HOST=127.0.0.1:12000; ollama ps shows llama3",
    ),
    "an address for the server alone": (
        "OLLAMA_HOST=127.0.0.1:12345 was given to ollama serve only",
        "client_host_differs_from_server",
        "OLLAMA_HOST=127.0.0.1:12345 was given to serve and to the command",
    ),
    "a module in use": (
        "nvidia_uvm cannot be removed: it is still in use by a container",
        "gpu_lost_after_suspend",
        "nvidia_uvm is loaded, the card is used",
    ),
    "an override that is not needed": (
        "gfx1150 works out of the box with this ROCm",
        "gfx_override",
        "gfx1150 is used with this ROCm",
    ),
    "an override of former days": (
        "The stale HSA_OVERRIDE_GFX_VERSION makes every load crash.",
        "gfx_override",
        "Without HSA_OVERRIDE_GFX_VERSION every load works.",
    ),
    "an app behind a proxy": (
        "The desktop app has HTTP_PROXY set to 10.1.1.9:3128",
        "http_proxy_hijacks_local_api",
        "The desktop app has HTTP_PROXY set and NO_PROXY=localhost",
    ),
    "a cache type that does not exist": (
        "An unknown cache type falls back to f16 without a word.",
        "kv_type_invalid",
        "The cache type q8_0 is used.",
    ),
    "a name with a typing error": (
        "There was a typo in the variable's name, which is silently ignored",
        "unknown_ollama_variable",
        "There was a typo in the model name, which was refused",
    ),
    "only the log tells": (
        "KEEP_ALIVE=24h can be seen only in the env map of the log",
        "config_newer_than_process",
        "KEEP_ALIVE=24h is in the server config line, as in the unit",
    ),
    "one slot of several": (
        "llama3.1 works in slot 0 only, drop-in NUM_PARALLEL=3",
        "parallel_is_one",
        "llama3.1 works in slots 0 to 2, drop-in NUM_PARALLEL=3",
    ),
    "slots in name only": (
        "The runner claims parallel=4 and behaves like one with 1 slot",
        "parallel_reported_but_serial",
        "The runner has parallel=4 and four requests run at once",
    ),
    "requests for a loaded model": (
        "Twelve simultaneous requests to a loaded model, none was refused",
        "max_queue_not_applied_to_loaded_model",
        "Twelve simultaneous requests to a loaded model were served",
    ),
    "a table of default contexts": (
        "Defaults by VRAM: 23 GiB 32768, 47 GiB 262144; KV = context x NUM_PARALLEL",
        "vram_tiered_default_context",
        "KV cache of 2 GiB; context 8192",
    ),
    "a whole number of minutes": (
        "GIN 200 with 10m0s, the answer is cut",
        "client_timeout_500_clusters",
        "GIN 200 with 9m41s, the answer is whole",
    ),
    "models in two places": (
        "models lie under /var/lib/ollama and under the home of anna",
        "models_in_two_dirs",
        "models lie under /var/lib/ollama",
    ),
    "slots that are not set": (
        "-np 4 in the command line with NUM_PARALLEL unset",
        "parallel_auto_value_unknown",
        "-np 1 in the command line with NUM_PARALLEL unset",
    ),
    "slots in words": (
        "--ctx-size 6144 with 4 slots",
        "per_slot_context_smaller_than_believed",
        "--ctx-size 65536 for one slot",
    ),
    "half of a window": (
        "prompt_eval_count is 16388, the log says nothing",
        "prompt_truncated",
        "prompt_eval_count is 16021, the log says nothing",
    ),
    "free memory of two loads": (
        "layers.offload=20 of 49 memory.available=[9.1 GiB]; later 49 of 49 with [15.4 GiB]",
        "vram_used_by_other_process",
        "layers.offload=49 of 49 memory.available=[15.4 GiB]; answers are quick",
    ),
    "a context under a wrong name": (
        "drop-in: OLLAMA_CONTEXT_SIZE=8192 is ignored; systemd result oom-kill",
        "unknown_ollama_variable",
        "drop-in: OLLAMA_CONTEXT_LENGTH=8192; loaded",
    ),
    "contexts that were tried": (
        "num_ctx=65536 puts the whole model on the CPU, num_ctx=8192 does not",
        "kv_cache_exceeds_vram",
        "num_ctx=65536 fits, all layers are on the GPU",
    ),
    "a node that is not there yet": (
        "LXC: CUDA 999 after each reboot of the host, nvidia-smi works",
        "nvidia_uvm_not_loaded",
        "LXC: the card is used after each reboot of the host",
    ),
    "an integrated GPU that was asked for": (
        "780M is not used, models run on the CPU.",
        "igpu_dropped",
        "server config: OLLAMA_IGPU_ENABLE=true OLLAMA_HOST=127.0.0.1:11434; 780M is dropped from the list of the tool",
    ),
    "a single unknown option": (
        'level=WARN source=types.go:640 msg="invalid option provided" option=max_new_tokens',
        "invalid_option_flood",
        'level=INFO source=types.go:640 msg="option provided" option=num_predict',
    ),
    "waiting for the first": (
        "The second conversation gets no word until the first one has finished.",
        "parallel_is_one",
        "The second conversation is answered while the first goes on.",
    ),
    "a switch that takes long": (
        "Switching between mistral:7b and phi4 takes 20 s each time",
        "models_evict_each_other",
        "Both mistral:7b and phi4 stay in memory",
    ),
    "two contexts in a row": (
        "a script sends num_ctx 2048 and 12288 in turn",
        "model_reload_every_request",
        "a script sends num_ctx 12288 with all its calls",
    ),
    "a client after a request": (
        "OLLAMA_KEEP_ALIVE=8h is in the drop-in, after requests of the plug-in ollama ps has 4 minutes from now",
        "client_overrides_keep_alive",
        "OLLAMA_KEEP_ALIVE=8h is in the drop-in, ollama ps has 7 hours from now",
    ),
    "a tier in a few words": (
        "default_num_ctx=32768 with a card of 24 GB",
        "vram_tiered_default_context",
        "default_num_ctx=4096 with a card of 12 GB",
    ),
    "after the power came on": (
        "At power on models run on the CPU; a restart of the service finds the GPU.",
        "service_started_before_gpu",
        "At power on the service starts and the GPU is used.",
    ),
    "a server of a terminal": (
        "/usr/bin/ollama serve runs from a terminal of carl, OLLAMA_MODELS of the unit is not used",
        "running_server_is_not_the_service",
        "/usr/bin/ollama serve runs as ollama by its unit",
    ),
    "an assignment without its sign": (
        "Environment=OLLAMA_NUM_PARALLEL 4 in the drop-in",
        "malformed_env_assignment",
        "Environment=OLLAMA_NUM_PARALLEL=4 in the drop-in",
    ),
    "a proxy of the shell": (
        "HTTP_PROXY=http://10.3.3.3:8080 in the shell; ollama list: something went wrong",
        "http_proxy_hijacks_local_api",
        "HTTPS_PROXY=http://10.3.3.3:8080 in the shell; ollama list shows four models",
    ),
    "rates of two releases": (
        "0.20: 88 t/s; 0.30: 51 t/s, same card and model",
        "slow_after_upgrade",
        "0.20: 88 t/s; 0.30: 91 t/s, same card and model",
    ),
    "a parent that answers": (
        "/api/tags responds at once, /api/chat never comes back",
        "runner_hung_parent_healthy",
        "/api/tags responds at once, and /api/chat too",
    ),
    "one card by its number": (
        "three cards in the host, only card 1 is used",
        "gpu_subset_used",
        "three cards in the host, all are used",
    ),
    "a small card": (
        "a 4090 and a 2060: layers are split, the small card is full",
        "gpu_uneven_split",
        "two 4090s: layers are split, both cards have room",
    ),
    "an override and a crash": (
        "HSA_OVERRIDE_GFX_VERSION=9.0.0 in the unit, gfx1102: segfault at each load",
        "gfx_override",
        "HSA_OVERRIDE_GFX_VERSION=11.0.0 in the unit, gfx1103 works with it",
    ),
    "a configuration and a load in one line": (
        "server config has OLLAMA_NUM_PARALLEL=3, the runner of llama3.2:3b was started with --parallel 1 --ctx-size 8192",
        "parallel_lower_than_configured",
        "server config has OLLAMA_NUM_PARALLEL=3, the runner of llama3.2:3b was started with --parallel 3 --ctx-size 24576",
    ),
    "an environment file that wins": (
        "/etc/default/ollama has OLLAMA_MODELS=/a and wins over the drop-in",
        "environment_file_overrides_dropin",
        "/etc/default/ollama is empty",
    ),
    "a device and its group": (
        "ls -l /dev/kfd: crw-rw---- root render; groups of ollama: ollama video",
        "kfd_permission_denied",
        "ls -l /dev/kfd: crw-rw---- root render; groups of ollama: ollama video render",
    ),
    "what systemd has and what runs": (
        "systemctl cat has NUM_PARALLEL=6, /proc/812/environ of the running server still has 2",
        "config_newer_than_process",
        "systemctl cat has NUM_PARALLEL=6, /proc/812/environ has the same",
    ),
    "a setting and the configuration in one line": (
        "OLLAMA_FLASH_ATTENTION=1 is in the drop-in but the log says server config OLLAMA_FLASH_ATTENTION:false OLLAMA_HOST:http://127.0.0.1:11434",
        "env_not_in_server_config",
        "OLLAMA_FLASH_ATTENTION=1 is in the drop-in and the log says server config OLLAMA_FLASH_ATTENTION:true OLLAMA_HOST:http://127.0.0.1:11434",
    ),
    "a family that waits": (
        "NUM_PARALLEL=4 and qwen3.6:35b: the next request waits, with phi4 it does not",
        "parallel_forced_to_1_by_architecture",
        "NUM_PARALLEL=4 and phi4: the next request runs beside the first",
    ),
    "durations that rise": (
        "four calls at the same time: 6.1 s, 12.0 s, 18.4 s, 24.3 s",
        "parallel_is_one",
        "four calls at the same time: 6.1 s, 6.0 s, 6.4 s, 6.3 s",
    ),
    "a cache of all slots": (
        "OLLAMA_NUM_PARALLEL=6, KvSize 393216: CUDA out of memory",
        "context_multiplied_by_parallel",
        "OLLAMA_NUM_PARALLEL=6, KvSize 24576: all on the GPU",
    ),
    "a spill since a release": (
        "RTX 4070: default context 32768 since the update, a part of the model is on the CPU",
        "vram_tiered_default_context",
        "RTX 4070: context 8192 as before the update, the model is on the GPU",
    ),
    "a model with its own context": (
        "PARAMETER num_ctx 2048; OLLAMA_CONTEXT_LENGTH=32768",
        "modelfile_num_ctx_overrides",
        "PARAMETER num_ctx 32768; OLLAMA_CONTEXT_LENGTH=32768",
    ),
    "a cache as large as the card": (
        "KV cache of 21 GiB on a 24 GB card",
        "kv_cache_exceeds_vram",
        "KV cache of 1 GiB, the card has 24 GB",
    ),
    "cards by their numbers": (
        "the model is on GPU 0-1 only, there are four P100",
        "gpu_subset_used",
        "the model is on four P100",
    ),
    "spread by a setting": (
        "OLLAMA_SCHED_SPREAD=1: a 3B model is split over all cards",
        "gpu_spread_unneeded",
        "a 70B model needs all cards",
    ),
    "not enabled": (
        "is-enabled: disabled; after each boot it has to be started",
        "service_not_started_at_boot",
        "is-enabled: enabled; after each boot it runs",
    ),
    "a pinned model and another": (
        "keep_alive -1 is set and loading another model evicts the first",
        "keep_alive_does_not_pin",
        "keep_alive -1 is set and both models stay",
    ),
    "one file, two names": (
        "base:latest and mine:latest have the same digest and unload each other",
        "one_blob_under_two_names",
        "base:latest and mine:latest have the same digest",
    ),
    "models that are loaded in turn": (
        "the two models are loaded in turn",
        "models_evict_each_other",
        "the two models are loaded",
    ),
    "contexts in thousands": (
        "the two tools use num_ctx 4k and 64k",
        "model_reload_every_request",
        "the two tools use num_ctx 64k",
    ),
    "a container after hours": (
        "The pod works for hours, then CUDA error: unknown error; a new pod works",
        "container_lost_gpu_cgroup",
        "The pod works for hours and days",
    ),
    "two programs on one card": (
        "Three model servers share one 12 GB card: Ollama answers with 3 tok/s, alone with 35 tok/s.",
        "vram_used_by_other_process",
        "Three model servers on three cards: Ollama answers with 35 tok/s.",
    ),
    "slots that fill the card": (
        "With NUM_PARALLEL=8 it is slow and a CPU thread is busy; with 0 all layers are on the GPU.",
        "partial_offload",
        "With NUM_PARALLEL=8 and with 0 all layers are on the GPU.",
    ),
    "a request that nobody begins": (
        "The request is accepted, nothing is logged for ten minutes, then 500 at 9m59s",
        "request_never_reaches_slot",
        "The request is accepted and logged a minute later",
    ),
    "a system of images": (
        "Bazzite: the service is in a restart loop after install.sh.",
        "service_home_read_only",
        "Bazzite: the service runs since install.sh.",
    ),
    "a limit and no answer": (
        "Drop-in with NUM_PARALLEL=8 and MemoryMax=400M: curl gets HTTP 000, with 1536M a 500.",
        "memory_limit_below_need",
        "Drop-in with NUM_PARALLEL=8 and MemoryMax=40G: curl gets HTTP 200.",
    ),
    "an extension without a call": (
        "The browser extension shows nothing and the server sees no call.",
        "origin_not_allowed_403",
        "The browser extension shows the answer and the server sees the call.",
    ),
    "a cache type on an old card": (
        "OLLAMA_KV_CACHE_TYPE=q8_0 has no effect on a K80.",
        "kv_type_without_flash_attention",
        "OLLAMA_KV_CACHE_TYPE=q8_0 halves the cache on a 3090.",
    ),
    "a program that is there": (
        "The unit restarts for ever although /usr/local/bin/ollama exists and runs by hand.",
        "execstart_203_exec",
        "The unit runs, and /usr/local/bin/ollama exists and runs by hand.",
    ),
    "for ever in the request too": (
        "KEEP_ALIVE=-1 in the unit and keep_alive=-1 in the request, and still unloaded after five minutes.",
        "keep_alive_does_not_pin",
        "KEEP_ALIVE=-1 in the unit and keep_alive=-1 in the request, and still there after a day.",
    ),
    "fewer tokens than the prompt": (
        "A prompt of 160,689 tokens with num_ctx 32768: prompt_eval_count is 16387.",
        "prompt_truncated",
        "A prompt of 12,689 tokens with num_ctx 32768: prompt_eval_count is 12689.",
    ),
    "a prompt and its window": (
        "num_ctx is 8192, the document has 58,210 tokens",
        "prompt_truncated",
        "num_ctx is 65536, the document has 58,210 tokens",
    ),
    "a card that is too old": (
        "RX 580: the log says the GPU is too old; several drivers were tried",
        "gpu_not_supported_by_backend",
        "RX 7900: the log says the GPU is found; several drivers were tried",
    ),
    "an idle integrated GPU": (
        "Radeon 780M (gfx1103): the GPU is idle, 1 tok/s, always the CPU.",
        "igpu_dropped",
        "Radeon 780M (gfx1103): the GPU is busy, 20 tok/s.",
    ),
    "a card that worked": (
        "The rocm image no longer works with the RX 5700, which worked up to 0.1.27.",
        "gpu_not_supported_by_backend",
        "The rocm image works with the RX 5700.",
    ),
    "an override of another card": (
        "HSA_OVERRIDE_GFX_VERSION=10.3.0 was there as a system variable from an older card; without it all is well",
        "gfx_override",
        "HSA_OVERRIDE_GFX_VERSION=10.3.0 is set for this card",
    ),
    "an override that is taken away": (
        "After removing HSA_OVERRIDE_GFX_VERSION the GPU works.",
        "gfx_override",
        "After setting HSA_OVERRIDE_GFX_VERSION the GPU works.",
    ),
    "a pinned model that goes": (
        "Loading a second model makes the first, which is pinned with keep_alive -1, gone from memory.",
        "models_evict_each_other",
        "Loading a second model leaves the first, which is pinned with keep_alive -1, in memory.",
    ),
    "the other is gone": (
        "Either model works, but when one is loaded the other is gone.",
        "models_evict_each_other",
        "Either model works, and when one is loaded the other stays.",
    ),
    "no number of slots": ("What does OLLAMA_NUM_PARALLEL=0 mean?", "parallel_auto_value_unknown", "What does OLLAMA_NUM_PARALLEL=4 mean?"),
    "a name of former days": ("OLLAMA_MAX_VRAM=24000 is set as a cap", "unknown_ollama_variable", "OLLAMA_GPU_OVERHEAD=24000 is set as a reserve"),
    "a download that stands": (
        "Pulling a 70B model stands at 97 % and the time left grows.",
        "pull_stalled",
        "Pulling a 70B model is at 97 % and goes on.",
    ),
    "a Mac with a Radeon": (
        "MacBook Pro 2019 with a Radeon Pro 5500M\nollama ps says 100% CPU",
        "gpu_not_supported_by_backend",
        "Mac Studio with an M2 Ultra\nollama ps says 100% GPU",
    ),
    "a client in a container": (
        "n8n in docker: could not connect to http://localhost:11434",
        "server_not_reachable",
        "n8n in docker connects to http://host.docker.internal:11434",
    ),
    "a folder of libraries": (
        "The RTX 3060 is not used\n$ ls /usr/local/lib/ollama\nls: cannot access '/usr/local/lib/ollama': No such file or directory",
        "package_without_gpu_libs",
        "The RTX 3060 is used\n$ ls /usr/local/lib/ollama\ncuda_v12 cuda_v13",
    ),
    "an Xid in words": (
        "The journal of the kernel has Xid 62 at that time; afterwards: llama-server GPU discovery watchdog timed out",
        "gpu_error_in_kernel",
        "The journal of the kernel has no Xid at that time",
    ),
    "an empty list": (
        "PS> $env:OLLAMA_MODELS = 'E:\\models'\nPS> ollama list\nNAME    ID    SIZE    MODIFIED",
        "models_in_two_dirs",
        "PS> $env:OLLAMA_MODELS = 'E:\\models'\nPS> ollama list\nNAME         ID              SIZE      MODIFIED\nphi4:14b     ac896e5b8b34    9.1 GB    3 days ago",
    ),
    "more threads than CPUs": (
        "    cpus: '2.0'\ncmn init: llama threadpool init, n_threads = 16\nnr_periods 9000\nnr_throttled 6100",
        "cpu_quota_low",
        "    cpus: '16.0'\ncmn init: llama threadpool init, n_threads = 16\nnr_periods 9000\nnr_throttled 10",
    ),
    "a window of the model's": (
        "OLLAMA_CONTEXT_LENGTH=131072 is exported in the shell\nPARAMETER num_ctx 131072\nollama ps: CONTEXT 40960",
        "num_ctx_capped_to_trained_context",
        "PARAMETER num_ctx 40960\nollama ps: CONTEXT 40960",
    ),
    "a key without a byte": (
        "Error: pull model manifest: ssh: no key found",
        "service_key_not_readable",
        "pulling manifest\nsuccess",
    ),
    "a reply of JSON": (
        "{\"error\":{\"message\":\"llama2 does not support tools\",\"type\":\"api_error\"}}",
        "model_lacks_capability",
        "{\"message\":{\"role\":\"assistant\",\"content\":\"it does not support tools\"}}",
    ),
    "an address that is a path": (
        "time=2026-02-01T10:00:00Z level=WARN source=config.go:45 msg=\"invalid port, using default\" port=\"\\\\tools\\\\ollama.exe\" default=11434\nError: Head \"http://D:11434/\": dial tcp: lookup D: no such host",
        "invalid_value",
        "Error: pull model manifest: file is there",
    ),
    "a container after an idle time": (
        "The container has the card at first, after an idle hour it computes on the processor until the container is restarted.",
        "container_lost_gpu_cgroup",
        "The container has the card, after an idle hour as well.",
    ),
    "a runner that was killed": (
        "The runner of a 100B model was killed while it loaded.",
        "oom_killed",
        "The runner of a 100B model was started while another loaded.",
    ),
    "memory by slots": (
        "OLLAMA_NUM_PARALLEL=12 for several people: the memory usage increases to the maximum",
        "context_multiplied_by_parallel",
        "OLLAMA_NUM_PARALLEL=12 for several people: the memory usage stays",
    ),
    "an invented name without a value": (
        "The OLLAMA_DIR environment variable was set to another drive, the models are downloaded to C: again",
        "unknown_ollama_variable",
        "The OLLAMA_MODELS environment variable was set to another drive, the models are downloaded there",
    ),
    "an address by hand": (
        "OLLAMA_HOST is set in /etc/systemd/system/ollama.service, started with: ollama serve",
        "running_server_is_not_the_service",
        "OLLAMA_HOST is set in a drop-in, started with: systemctl start ollama",
    ),
    "a release that is slower": (
        "Since the newest release a 32B model is very slow on the 7900 XTX",
        "slow_after_upgrade",
        "Since the newest release a 32B model is quick on the 7900 XTX",
    ),
    "a proxy before a command": (
        "> HTTPS_PROXY=http://REDACTED.XXX:8080 ollama run phi4\nError: pull model manifest: Get \"https://registry.ollama.ai/v2/library/phi4/manifests/latest\": dial tcp: lookup registry.ollama.ai: no such host",
        "proxy_not_in_service",
        "> HTTPS_PROXY=http://REDACTED.XXX:8080 ollama run phi4\npulling manifest\nsuccess",
    ),
    "another folder by hand": (
        "Started by hand, ollama list shows no models and pulls them again\nOLLAMA_HOST=0.0.0.0 ollama serve",
        "models_in_two_dirs",
        "Started by the unit, ollama list shows all models",
    ),
    "memory of a virtual machine": (
        "memory.available=\"[5.1 GiB]\" memory.required.full=\"12.4 GiB\"\nlevel=ERROR source=sched.go:388 msg=\"error loading llama server\" error=\"llama runner process no longer running: -1 \"",
        "ram_too_small",
        "memory.available=\"[25.1 GiB]\" memory.required.full=\"12.4 GiB\"",
    ),
    "a library before WSL's": (
        "WSL2, driver 546\n2024/01/08 19:28:33 gpu.go:39: CUDA not detected: nvml vram init failure: 9\n/usr/lib/wsl/lib/libnvidia-ml.so.1 is there",
        "driver_library_mismatch",
        "WSL2, driver 546\n2024/01/08 19:28:33 routes.go:930: Listening on 127.0.0.1:11434 (version 0.1.18)",
    ),
    "no loaded driver": (
        "2024/01/08 19:28:33 gpu.go:39: CUDA not detected: nvml vram init failure: 9",
        "no_gpu_found",
        "2024/01/08 19:28:33 routes.go:930: Listening on 127.0.0.1:11434 (version 0.1.18)",
    ),
    "Metal without room": (
        "ggml_metal_add_buffer: allocated 'data            ' buffer, size =  3900.00 MiB, ( 3900.60 / 10922.67)\nggml_metal_add_buffer: allocated 'kv              ' buffer, size =  8192.00 MiB, (12092.23 / 10922.67)ggml_metal_add_buffer: warning: current allocated size is greater than the recommended max working set size\nggml_metal_graph_compute: command buffer 0 failed with status 5",
        "kv_cache_exceeds_vram",
        "ggml_metal_add_buffer: allocated 'data            ' buffer, size =  3900.00 MiB, ( 3900.60 / 10922.67)\nggml_metal_add_buffer: allocated 'kv              ' buffer, size =  1024.00 MiB, (4924.23 / 10922.67)",
    ),
    "a command before the start": (
        "     Active: failed (Result: exit-code) since Thu 2025-01-23 19:12:55 PST; 37s ago\n    Process: 811 ExecStartPre=/usr/bin/ollama list (code=exited, status=1/FAILURE)\nJan 23 19:12:55 host systemd[1]: ollama.service: Failed with result 'exit-code'.",
        "client_command_in_start_pre",
        "     Active: active (running) since Thu 2025-01-23 19:12:55 PST; 37s ago\n    Process: 811 ExecStartPre=/usr/bin/mkdir -p /srv/m (code=exited, status=0/SUCCESS)",
    ),
    "a folder of Windows": (
        "Docker on Windows loads a model very long from a mapped folder\nwithout mapping the folder it loads fast",
        "slow_model_storage",
        "Docker on Windows answers quickly",
    ),
    "a container on a Mac": (
        "Ollama in a docker container on an M2 Pro: 0.2 tokens/second",
        "no_gpu_found",
        "Ollama on an M2 Pro: 41 tokens/second",
    ),
    "five minutes and a second": (
        "time=2024-06-16T17:14:36.443+03:00 level=INFO source=server.go:587 msg=\"llama runner started in 40.21 seconds\"\n[GIN] 2024/06/16 - 17:18:56 | 500 |          5m1s |       127.0.0.1 | POST     \"/api/chat\"",
        "client_timeout_500_clusters",
        "[GIN] 2024/06/16 - 17:18:56 | 500 |         4m41s |       127.0.0.1 | POST     \"/api/chat\"",
    ),
    "a folder that NixOS closes": (
        "NixOS\nError: rename /mnt/m/models/blobs/sha256:04c5 /mnt/m/models/blobs/sha256-04c5: read-only file system",
        "sandbox_makes_models_read_only",
        "NixOS\nError: rename /mnt/m/models/blobs/sha256:04c5 /mnt/m/models/blobs/sha256-04c5: file exists",
    ),
    "a model without tools": (
        "Sorry, I had a problem talking to the Ollama server: hf.co/me/Home-1B:Q4_K_M does not support tools",
        "model_lacks_capability",
        "phi4 does not support tools as well as others do",
    ),
    "an address for a client": (
        "On Windows the OLLAMA_HOST env variable is set to \"0.0.0.0\"",
        "api_exposed_without_auth",
        "On Windows the OLLAMA_HOST env variable is set to \"127.0.0.1\"",
    ),
    "an interface in a container": (
        "A web interface in Docker shows no models of the server on the host itself.",
        "bind_loopback_only",
        "A web interface in Docker shows all models of the server on the host itself.",
    ),
    "a split in words": (
        "ollama ps says a CPU/GPU split\nanother client has 100% GPU",
        "partial_offload",
        "ollama ps says no split\nanother client has 100% GPU",
    ),
    "an agent of brew": (
        "`brew services start` makes a LaunchAgent that starts on login, not at boot",
        "launchagent_needs_login",
        "`brew services start` makes a LaunchAgent of the user",
    ),
    "a client without /v1": (
        "INFO: HTTP Request: POST http://127.0.0.1:11434/chat/completions \"HTTP/1.1 404 Not Found\"",
        "client_path_unknown",
        "INFO: HTTP Request: POST http://127.0.0.1:11434/v1/chat/completions \"HTTP/1.1 200 OK\"",
    ),
    "a configuration that is told last": (
        "time=2026-06-03T17:01:27.581-07:00 level=INFO source=llama_server.go:1186 msg=\"waiting for llama-server to become available\" status=\"llm server loading model\"\ntime=2026-06-03T17:01:30.085-07:00 level=INFO source=sched.go:641 msg=\"Load failed\" model=/m/blobs/sha256-5cf8 error=\"llama-server process has terminated: exit status 0xc0000094\"\nserver config: OLLAMA_CONTEXT_LENGTH:8192 OLLAMA_FLASH_ATTENTION:false",
        "runner_crash_on_load",
        "time=2026-06-03T17:01:30.085-07:00 level=INFO source=server.go:641 msg=\"llama runner started in 2.1 seconds\"\nserver config: OLLAMA_CONTEXT_LENGTH:8192 OLLAMA_FLASH_ATTENTION:false",
    ),
    "the kernel's amdgpu": (
        "RX 7900 XTX, ollama 0.12.9\n[drm:amdgpu_job_submit [amdgpu]] *ERROR* Trying to push to a killed entity",
        "gpu_error_in_kernel",
        "RX 7900 XTX, ollama 0.12.9\n[drm] amdgpu kernel modesetting enabled.",
    ),
    "a busy CPU below a table": (
        "$ ollama ps\nNAME        ID              SIZE     PROCESSOR    UNTIL\nphi4:14b    310d366232f4    11 GB    100% GPU     4 minutes from now\nthe VRAM stays empty, the CPU is busy",
        "ps_says_gpu_but_cpu_busy",
        "$ ollama ps\nNAME        ID              SIZE     PROCESSOR    UNTIL\nphi4:14b    310d366232f4    11 GB    100% GPU     4 minutes from now\nthe VRAM is full, the GPU is busy",
    ),
    "runners of the CPU": (
        "The package has no runners beyond CPU",
        "package_without_gpu_libs",
        "The package has runners for the GPU",
    ),
    "an extension with /v1": (
        "The extension gets 404\nchat.provider = Ollama\nchat.apiBaseUrl = http://10.1.2.3:11434/v1",
        "client_path_unknown",
        "The extension gets 200\nchat.provider = Ollama\nchat.apiBaseUrl = http://10.1.2.3:11434",
    ),
    "two addresses": (
        "127.0.0.1:11434 works, 192.168.1.9:11434 does not",
        "bind_loopback_only",
        "127.0.0.1:11434 works, 192.168.1.9:11434 works",
    ),
    "an option that is refused": (
        "each conversation fails with 400: top_a is no longer supported",
        "bad_request_400",
        "each conversation has 400 words: top_a helps there",
    ),
    "a system that is not ready": (
        "ggml_cuda_init: failed to initialize CUDA: system not yet initialized",
        "cuda_init_999",
        "ggml_cuda_init: found 8 CUDA devices",
    ),
    "a port of another program": (
        "Error: Head \"http://127.0.0.1:11434/\": read tcp 127.0.0.1:11114->127.0.0.1:11434: wsarecv: An existing connection was forcibly closed by the remote host.",
        "running_server_is_not_the_service",
        "ollama list shows four models",
    ),
    "a package of a distribution": (
        "Arch Linux, the GPU is found\ntime=2025-04-01T16:46:16.335+03:30 level=INFO source=ggml.go:109 msg=system CPU.0.SSE3=1 CPU.0.AVX=1 CPU.0.LLAMAFILE=1 compiler=cgo(gcc)",
        "package_without_gpu_libs",
        "Arch Linux, the GPU is found\ntime=2025-04-01T16:46:16.335+03:30 level=INFO source=ggml.go:109 msg=system CPU.0.SSE3=1 CUDA.0.ARCHS=750 CPU.0.LLAMAFILE=1 compiler=cgo(gcc)",
    ),
    "an override on Windows": (
        "HSA_OVERRIDE_GFX_VERSION is set in the system environment variables",
        "gfx_override",
        "HSA_OVERRIDE_GFX_VERSION is set nowhere",
    ),
    "a Mac of one's own making": (
        "macOS Sonoma (x86_64), AMD Radeon RX 6800 XT\nmodels run on the CPU only",
        "gpu_not_supported_by_backend",
        "Linux, AMD Radeon RX 6800 XT\nmodels run on the GPU",
    ),
    "devices that a unit lacks": (
        "The unit has a DeviceAllow list without /dev/dxg, the GPU is not found",
        "unit_sandbox_hides_gpu",
        "The unit has no list of devices, the GPU is found",
    ),
    "a service and a shell": (
        "the service computes on the CPU\nfrom a shell the same package uses the GPU",
        "unit_sandbox_hides_gpu",
        "the service computes on the GPU\nfrom a shell the same package uses the GPU",
    ),
    "one address for the service": (
        "Environment=OLLAMA_HOST=192.168.1.10:11434\n$ ollama pull phi4\nError: could not connect to ollama app, is it running?",
        "client_host_differs_from_server",
        "Environment=OLLAMA_HOST=192.168.1.10:11434\n$ OLLAMA_HOST=192.168.1.10 ollama pull phi4\nsuccess",
    ),
    "a window that changes": (
        "At each round the model is unloaded and loaded with a larger context",
        "model_reload_every_request",
        "At each round the model answers with a larger context",
    ),
    "a window of the model": (
        "OLLAMA_CONTEXT_LENGTH=16384 is set\n>>> /show parameters\nnum_ctx                        4096\nrunner with --ctx-size 4096",
        "modelfile_num_ctx_overrides",
        "OLLAMA_CONTEXT_LENGTH=16384 is set\n>>> /show parameters\nnum_ctx                        16384\nrunner with --ctx-size 16384",
    ),
    "a refused client with an empty list": (
        "The program offers no models\nError: connect ECONNREFUSED 172.17.0.1:11434",
        "bind_loopback_only",
        "The program offers four models",
    ),
    "a prompt cache by its sizes": (
        "runner RSS 9.4 GB, 27 prompts, 7377.676 MiB (limits: 8192.000 MiB), ollama ps shows nothing of it",
        "prompt_cache_growth",
        "runner RSS 0.4 GB, 2 prompts, 77.676 MiB (limits: 8192.000 MiB)",
    ),
    "a cure by a setting": (
        "AMD Ryzen AI 9 HX 370: the CPU is used\nit works again after OLLAMA_IGPU_ENABLE=1 was added",
        "igpu_dropped",
        "AMD Ryzen AI 9 HX 370: the GPU is used\nit works as before with OLLAMA_IGPU_ENABLE=1",
    ),
    "a cure by a package": (
        "The RTX 3060 is there, answers are slow\nsolved by installing ollama-cuda",
        "package_without_gpu_libs",
        "not solved by installing ollama-cuda",
    ),
    "a cure by a group": (
        "The Radeon is there, answers are slow\nIt works after usermod -aG render ollama",
        "kfd_permission_denied",
        "It does not work after usermod -aG render ollama",
    ),
    "words of a failed allocation": (
        "server.log: it could not allocate enough memory",
        "load_oom",
        "server.log: it allocated enough memory",
    ),
    "Metal's own library": (
        "ggml_metal_init: error: failed to initialize the Metal library",
        "gpu_not_supported_by_backend",
        "ggml_metal_init: loaded in 0.006 sec",
    ),
    "a tunnel": (
        "Through ngrok the server answers 403, on localhost it does not",
        "origin_not_allowed_403",
        "Through ngrok the server answers 200",
    ),
    "twenty seconds to the millisecond": (
        "Aug 07 13:30:29 host ollama[17408]: [GIN] 2024/08/07 - 13:30:29 | 500 | 20.000781644s | 10.1.1.1 | POST \"/api/generate\"",
        "client_timeout_500_clusters",
        "Aug 07 13:30:29 host ollama[17408]: [GIN] 2024/08/07 - 13:30:29 | 500 | 20.381781644s | 10.1.1.1 | POST \"/api/generate\"",
    ),
    "models of before": (
        "After the upgrade of the package ollama no longer finds the models",
        "models_in_two_dirs",
        "After the upgrade of the package ollama finds the models",
    ),
    "a command that asks the old port": (
        "Environment=OLLAMA_HOST=0.0.0.0:8200\nollama run phi4: told to call ollama serve first",
        "client_host_differs_from_server",
        "Environment=OLLAMA_HOST=127.0.0.1:11434\nollama run phi4: answers",
    ),
    "a unit that systemd does not take": (
        "Failed to start ollama.service: Unit ollama.service has a bad unit file setting.",
        "unit_refused",
        "Started ollama.service - Ollama Service.",
    ),
    "an unused memory": (
        'inference compute library=ROCm name=ROCm0 total="24.0 GiB"; nothing is in VRAM, all cores are busy',
        "discovery_ok_but_runner_cpu",
        'inference compute library=ROCm name=ROCm0 total="24.0 GiB"; 9 GiB are in VRAM',
    ),
    "the kernel's words alone": (
        "dmesg: NVRM: Xid (PCI:0000:41:00): 79, pid=811, GPU has fallen off the bus.",
        "gpu_error_in_kernel",
        "dmesg: NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95",
    ),
    "lines that were dropped": (
        "Suppressed 9120 messages from ollama.service",
        "log_lines_suppressed",
        "Suppressed 9120 messages from cron.service",
    ),
    "models that go elsewhere": (
        "OLLAMA_MODELS is exported in ~/.bashrc; new models still land in /usr/share/ollama",
        "env_set_in_shell_not_service",
        "OLLAMA_MODELS is set in the drop-in; new models land in /srv/models",
    ),
    "a CPU that is too old": ("GPU is not used since the processor has no AVX", "cpu_lacks_avx", "the processor has AVX2 and AVX512"),
    "a card without permission": ("Radeon is there without permission to use it", "kfd_permission_denied", "Radeon is there and in use"),
    "a package without its libraries": (
        "RX 7600 is not used with the package of pacman",
        "package_without_gpu_libs",
        "RX 7600 is used with the package of pacman",
    ),
    "NixOS on its CPU": ("Models run on the CPU only on NixOS.", "nixos_acceleration_not_set", "Models run on NixOS, the driver is 570."),
    "a folder of which the path is cut": (
        "mkdir …: permission denied, mode 0777 on the share",
        "models_dir_no_access",
        "mkdir made the folder, mode 0755",
    ),
    "a models folder below home": (
        "The distribution's service fails with OLLAMA_MODELS in /home/llm",
        "protecthome_blocks_models_dir",
        "The distribution's service works with OLLAMA_MODELS in /srv/llm",
    ),
    "noexec": ("/tmp is noexec, the runner fails", "tmp_noexec", "/tmp is a tmpfs of 8 GB"),
    "blanks in an assignment": (
        "drop-in with spaces around the = of an Environment line",
        "malformed_env_assignment",
        "drop-in with two Environment lines",
    ),
    "a preload": ("LD_PRELOAD in the unit, the server dies at once", "ld_preload_in_unit", "no LD_PRELOAD in the unit"),
    "a cache type of some families": (
        "The KV cache falls back to f16 for some architectures",
        "kv_type_ignored_by_architecture",
        "The KV cache is f16 by default",
    ),
    "a cache type alone": (
        "KV cache q4_0 is set and flash attention is off",
        "kv_type_without_flash_attention",
        "KV cache q4_0 is set and flash attention is on",
    ),
    "more than the model was trained for": (
        "The tool asks for 131072 tokens, the model was trained for 32768",
        "num_ctx_capped_to_trained_context",
        "The tool asks for 32768 tokens, which the model has",
    ),
    "a virtual GPU": ("GRID T4-8Q vGPU: CPU only", "vgpu_uvm_unsupported", "GRID T4-8Q vGPU: all layers are on it"),
    "a client's variable in the unit": (
        "OLLAMA_NOHISTORY set in the unit has no effect",
        "client_side_variable_in_service",
        "OLLAMA_DEBUG set in the unit tells more",
    ),
    "an override of one device": (
        "HSA_OVERRIDE_GFX_VERSION_1 is set and has no effect",
        "gfx_override",
        "HSA_OVERRIDE_GFX_VERSION is not set",
    ),
    "layers on the CPU": ("one layer is always on the CPU, both cards have room", "partial_offload", "no layer is left out, both cards have room"),
    "a setting that upgrades take": (
        "OLLAMA_ORIGINS is gone after each upgrade",
        "settings_in_main_unit",
        "OLLAMA_ORIGINS is there after each upgrade",
    ),
    "an example that was kept": (
        "the proxy's example name was copied as it stood",
        "placeholder_value_in_config",
        "the proxy's name is that of our network",
    ),
    "a tray without a session": ("The tray app fails to start over SSH", "gui_app_without_session", "The tray app starts at login"),
    "a server that dies of a prompt": (
        "A prompt that is too long kills the server, systemd restarts it",
        "server_panic_restarts",
        "A prompt that is too long gets an answer all the same",
    ),
    "drivers that come later": (
        "User services start before nvidia-uvm is there",
        "service_started_before_gpu",
        "User services start after the drivers",
    ),
    "NixOS with its driver or without": (
        'acceleration = "cuda"; models run on the CPU only',
        "nixos_driver_not_configured",
        'acceleration = "cuda"; offloaded 33/33 layers to GPU',
    ),
}  # fmt: skip
