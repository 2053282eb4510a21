"""Lines of the server that say something: one row for each, with the releases that print it.

`find` names the rows that a line is of. A row of Ollama's own messages (`msg`, `prefix`) needs a line in the log's own
form; a `text` row may stand anywhere in a raw line of the engine or the Go runtime, and in Ollama's own lines of
level WARN or ERROR or about a failed load, but never in another one, where a prompt or a file name could hold it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal, NamedTuple

from ollamactl.core.parse.slog import Line


class Event(NamedTuple):
    kind: str
    needle: str
    how: Literal["msg", "prefix", "text"] = "msg"
    releases: str = ""
    pattern: str = ""  # named groups become fields
    keep: int = 100  # first and last so many are kept of a start; all are counted


EVENTS: tuple[Event, ...] = (
    # context
    Event("prompt_truncated", "truncating input prompt", "msg", "0.3.13 – "),
    Event("prompt_truncated", "truncating input messages which exceed context length", "msg", "0.2.2 –, DEBUG"),
    Event("prompt_truncated", "input truncated", "text", "up to 0.3", r"n_ctx[\"=: ]+(?P<limit>\d+)"),
    Event("num_ctx_capped", "requested context size too large for model", "msg", "0.9.3 –"),
    Event("low_vram_mode", "entering low vram mode", "msg", "0.11.4 – 0.15.4"),
    Event("context_shift", "context shift", "text", "", r"n_discard\"?[ =:]+(?P<discard>\d+)"),
    Event("context_exceeded", "exceeds the available context size", "text", "0.30 –"),
    Event("context_exceeded", "exceed the available context size", "text", "0.30 –"),
    # slots and queue
    Event("parallel_forced_to_1", "model architecture does not currently support parallel requests", "msg",
          "0.12.7 –"),
    Event("parallel_forced_to_1", "multimodal models don't support parallel requests yet", "msg", "0.2 – 0.4.0"),
    Event("parallel_forced_to_1", "mllama does not currently support parallel requests", "msg", "0.7.0 – 0.12.6"),
    Event("parallel_forced_to_1", "mllama doesn't support parallel requests yet", "msg", "0.4.1 – 0.6.8"),
    Event("parallel_above_maximum", "n_seq_max must be <=", "text", "0.30 –", r"<= (?P<limit>\d+)"),
    Event("queue_full", "server busy, please try again", "text", "0.1.33 –"),
    Event("slot_launched", "slot launch_slot_", "text", "0.30 –", r"id +(?P<slot>\d+) \| task (?P<task>\d+)", 3),
    Event("slot_truncated", "truncated = 1", "text", "0.30 –", r"n_tokens = (?P<tokens>\d+)"),
    Event("default_concurrency", "updating default concurrency", "msg", "0.2 –, DEBUG", keep=2),
    # clients
    Event("client_gone_during_load", "client connection closed before server finished loading, aborting load"),
    Event("client_gone_during_load", "client connection closed before llama-server finished loading, aborting load"),
    Event("client_gone", "aborting completion request due to client closing the connection"),
    Event("client_gone", "aborting embedding request due to client closing the connection"),
    Event("invalid_option", "invalid option provided"),
    # memory: waiting, eviction, failure
    Event("vram_recovery_timeout", "gpu VRAM usage didn't recover within timeout", "msg",
          "0.1.35 –; DEBUG from 0.12.6"),
    Event("vram_recovered", "gpu VRAM free memory converged after", "prefix", "0.1.35 –, DEBUG", keep=5),
    Event("eviction", "model requires more memory than is currently available, evicting a model to make space"),
    Event("eviction", "model requires more gpu memory than is currently available, evicting a model to make space"),
    Event("eviction", "model requires more system memory than is currently available, evicting a model to make space"),
    Event("eviction", "llama-server model predicted to exceed available memory, evicting", "msg", "0.30 –"),
    Event("expired_to_make_room", "resetting model to expire immediately to make room", "msg", "DEBUG", keep=20),
    Event("reload", "reloading", "msg", "DEBUG", keep=20),
    Event("already_loaded", "evaluating already loaded", "msg", "DEBUG", keep=3),
    Event("unloaded", "runner expired event received", "msg", "DEBUG", keep=20),
    Event("oom_retry", "evicting all other loaded models for OOM retry", "msg", "0.30 –"),
    Event("oom_retry", "llama-server load failed; evicting all other models and retrying once", "msg", "0.30 –"),
    Event("context_reduced", "llama-server load failed; reducing automatic context and retrying once", "msg",
          "0.30 –"),
    Event("ram_too_small", "model requires more system memory (", "text", "",
          r"\((?P<needed>.+?)\) than is available \((?P<free>.+?)\)"),
    Event("system_memory", "system memory", keep=5),
    Event("gpu_memory", "gpu memory", keep=10),
    Event("memory_estimate", "offload", "msg", "0.5.12 – 0.12.10", keep=20),
    Event("memory_estimate", "offload to ", "prefix", "0.1.32 – 0.5.11", keep=20),
    Event("no_layer_fits", "insufficient VRAM to load any model layers", "prefix", "DEBUG", keep=20),
    Event("fits", "new model will fit in available", "prefix", "0.1.33 – 0.12.10", keep=10),
    Event("host_memory_projection", "of host memory vs. ", "text", "0.30 –",
          r"projected to use (?P<needed>\d+ MiB) of host memory vs\. (?P<free>\d+ MiB)", 5),
    Event("alloc_failed", "failed to allocate", "text", "", r"buffer of size (?P<bytes>\d+)"),
    Event("alloc_failed", "insufficient memory (attempted", "text", "", r"allocate (?P<mb>[\d.]+) MB"),
    Event("alloc_failed", "cudaMalloc failed: out of memory", "text", "", r"allocating (?P<mib>[\d.]+) MiB"),
    Event("alloc_failed", "ErrorOutOfDeviceMemory", "text"),
    Event("alloc_failed", "unable to allocate", "text"),
    Event("alloc_failed", "cannot allocate memory", "text"),
    Event("out_of_memory", "out of memory", "text"),
    Event("prompt_cache", "cache state:", "text", "0.30 –",
          r"(?P<prompts>\d+) prompts?, (?P<mib>[\d.]+) MiB \(limits: (?P<limit_mib>[\d.]+) MiB", 3),
    Event("prompt_cache_enabled", "prompt cache is enabled", "text", "0.30 –",
          r"size limit: (?P<limit_mib>\d+) MiB", 3),
    Event("prompt_cache_disabled", "prompt cache is disabled", "text", "0.30 –", keep=3),
    # flash attention and the type of the cache
    Event("flash_attention_unsupported", "flash attention enabled but not supported by gpu", "msg", "0.5.0 – 0.24"),
    Event("flash_attention_unsupported", "flash attention enabled but not supported by model", "msg", "0.5.0 – 0.24"),
    Event("flash_attention_on", "enabling flash attention", "msg", "0.5.0 – 0.24", keep=3),
    Event("flash_attention_on", "model wants flash attention", "msg", "0.11.8 – 0.12.3", keep=3),
    Event("flash_attention_forced_off", "is not compatible with", "text", "",
          r"flash_attn is not compatible with (?P<model>\S+)"),
    Event("flash_attention_forced_on", "enabling flash_attn since it is required for quantized V cache", "text",
          "0.30 –"),
    Event("kv_type_without_flash_attention", "quantized kv cache requested but flash attention disabled"),
    Event("kv_type_without_flash_attention", "V cache quantization requires flash_attn", "text"),
    Event("kv_type_without_flash_attention", "quantized V cache requires", "text"),
    Event("kv_type_unsupported", "kv cache type not supported by model"),
    Event("kv_type_unsupported", "Unsupported cache type", "text", "", r"[Uu]nsupported cache type: (?P<type>\S+)"),
    # settings
    Event("invalid_environment", "invalid environment variable, using default", "msg", "0.2 –, two shapes"),
    Event("invalid_environment", "invalid port, using default"),
    Event("invalid_environment", "invalid setting, ignoring"),
    Event("llama_arg_overridden", "environment variable is set, but will be overwritten", "text", "0.30 –",
          r"(?P<name>LLAMA_ARG_\w+)"),
    Event("visible_devices_overridden", "user overrode visible devices", "msg", "0.13 –"),
    Event("gfx_override", "skipping rocm gfx compatibility check", "msg"),
    Event("request_logging", "request debug logging enabled", "prefix", "0.19 –", keep=2),
    # start and folders
    Event("no_systemd", "systemd is not running", "text", "the installer"),
    Event("app_respawns", "respawning", "text", "the macOS app", r"server crash (?P<count>\d+)"),
    Event("client_cannot_connect", "could not connect to ollama", "text", "a client in the same terminal"),
    Event("client_cannot_connect", "could not locate ollama app", "text", "a client in the same terminal"),
    Event("bind_error", "bind: address already in use", "text", "", r"listen tcp (?P<address>\S+): bind"),
    Event("bind_error", "Only one usage of each socket address", "text", "Windows",
          r"listen tcp (?P<address>\S+): bind"),
    Event("bind_refused", "bind: ", "text", "",
          r"listen tcp (?P<address>\S+): bind: (?P<why>cannot .*|permission .*)"),
    Event("key_created", "Couldn't find '", "text", "", r"Couldn't find '(?P<path>.+?)'", 5),
    Event("home_missing", "is not defined", "text", "", r"(?P<name>\$?HOME) is not defined"),
    Event("folder_denied", "permission denied", "text", "",
          r"(?P<call>mkdir|open|stat|lstat|chmod|unlinkat|chown|readdirent) (?P<path>/[^:]*): permission denied"),
    Event("folder_read_only", "read-only file system", "text", "",
          r"(?P<call>mkdir|open) (?P<path>/[^:]*): read-only"),
    Event("file_missing", "no such file or directory", "text", "",
          r"(?P<call>open|stat|lstat|mkdir|rename) (?P<path>/[^:]*): no such file", 20),
    Event("disk_full", "no space left on device", "text", "", r"(?P<path>/[^:]+): no space left"),
    Event("exec_denied", "fork/exec", "text", "", r"fork/exec (?P<path>/[^:]*): (?P<why>.*)"),
    Event("library_missing", "error while loading shared libraries", "text", "", r"libraries: (?P<library>\S+):"),
    Event("preload_missing", "from LD_PRELOAD cannot be preloaded", "text", "", r"object '(?P<library>[^']+)'"),
    Event("too_many_files", "too many open files", "text"),
    # loads
    Event("load_failed", "Load failed", "msg", "0.30 –"),
    Event("load_failed", "error loading llama server", "msg", "0.1.32 – 0.24"),
    Event("load_cancelled", "Load failed", "msg", "0.30 –, where the client went away"),
    Event("load_timeout", "timed out waiting for ", "text", "",
          r"timed out waiting for (?P<what>llama runner|llama-server|server)(?!.*context canceled)"),
    Event("model_metadata_error", "failed to load model metadata", "msg", "0.30 –"),
    Event("model_file_damaged", "invalid file magic", "text"),
    Event("model_file_damaged", "unexpectedly reached end of file", "text", "up to 0.1"),
    Event("model_file_damaged", "unexpected end of file", "text"),
    Event("model_file_damaged", "invalid magic", "text"),
    Event("model_file_damaged", "failed to read magic", "text"),
    Event("model_file_damaged", "failed to read tensor", "text"),
    Event("model_file_damaged", "failed to read key-value", "text"),
    Event("model_file_damaged", "tensor data is not within the file bounds", "text"),
    Event("model_file_damaged", "offset+size", "text"),
    Event("model_file_damaged", "model is corrupted or incomplete", "text"),
    Event("unknown_architecture", "unknown model architecture", "text", "",
          r"architecture: '?(?P<architecture>[^'\s]+)"),
    # the runner and the server die
    Event("runner_terminated", "llama runner terminated", "msg", "0.2.8 – 0.24"),
    Event("runner_terminated", "llama-server terminated", "msg", "0.30 –"),
    Event("runner_gone", "llama-server process no longer running", "msg", "0.30 –"),
    Event("runner_gone", "llama runner process no longer running", "msg"),
    Event("runner_killed", "signal: killed", "text"),
    Event("assertion_failed", "GGML_ASSERT", "text", "", r"GGML_ASSERT\((?P<condition>.*?)\) failed"),
    Event("panic", "panic: ", "text"),
    Event("panic", "fatal error: ", "text"),
    Event("panic", "panic recovered", "text"),
    Event("panic", "http: panic serving", "text"),
    Event("segfault", "SIGSEGV", "text"),
    Event("abort", "SIGABRT", "text"),
    Event("gpu_error", "CUDA error", "text", "", r"CUDA error:? *(?P<error>.*)"),
    Event("gpu_error", "ROCm error", "text", "", r"ROCm error:? *(?P<error>.*)"),
    Event("gpu_error", "vk::", "text"),
    # devices and drivers
    Event("nvidia_driver_too_old", "NVIDIA driver too old", "msg", "0.30 –"),
    Event("nvidia_driver_too_old", "CUDA driver version is insufficient for CUDA runtime version", "text"),
    Event("nvidia_driver_too_old", "cudart init failure: 35", "text"),
    Event("nvidia_driver_too_old", "cudaSetDevice err: 35", "text"),
    Event("nvidia_driver_too_old", "undefined symbol: cu", "text", "a function of a newer libcuda"),
    Event("gpu_library_failed", "Unable to load nvcuda", "msg", "DEBUG to 0.3.8", keep=10),
    Event("gpu_library_failed", "Unable to load cudart", "msg", "DEBUG to 0.3.8", keep=10),
    Event("gpu_library_failed", "unable to load cuda driver library", "msg", "DEBUG 0.3.9 – 0.12.3", keep=10),
    Event("nvidia_driver_too_old", "cudaGetDeviceCount returned 35", "text"),
    Event("kfd_denied", "amdgpu devices detected but permission problems block access", "text"),
    Event("kfd_denied", "permissions not set up properly", "text"),
    Event("kfd_denied", "open /dev/kfd", "text"),
    Event("kfd_denied", "Could not initialize Tensile host: No devices found", "text"),
    Event("kfd_denied", "/dev/kfd read-write: Permission denied", "text"),
    Event("igpu_dropped", "dropping integrated GPU", "prefix", "0.30 –"),
    Event("device_skipped", "skipping CUDA device", "prefix", "0.30 –"),
    Event("device_skipped", "filtering device which didn't fully initialize", "prefix", "0.12.4 –, DEBUG", keep=10),
    Event("no_compatible_gpu", "no compatible GPUs were discovered"),
    Event("no_compatible_gpu", "no GPU detected", "text", "up to 0.1.27"),
    Event("amdgpu_version_missing", "amdgpu version file missing", "text"),
    Event("rocm_library_missing", "amdgpu detected, but no compatible rocm library found", "text"),
    Event("rocm_library_missing", "unable to verify rocm library", "text"),
    Event("gpu_unsupported", "CUDA GPU is too old", "text"),
    Event("gpu_unsupported", "amdgpu is not supported", "text"),
    Event("gpu_unsupported", "no kernel image is available", "text"),
    Event("gpu_unsupported", "device kernel image is invalid", "text"),
    Event("gpu_unsupported", "TensileLibrary", "text", "", r"arch : (?P<arch>gfx\w+)"),
    Event("runner_gpu_failed", "failed to initialize ROCm", "text", "", r"ROCm: (?P<error>.*)"),
    Event("gpu_below_minimum", "amdgpu too small", "prefix"),
    Event("discovery_failed", "failure during GPU discovery", "prefix", "0.12.4 –"),
    Event("discovery_failed", "unable to refresh free memory, using old values", "prefix"),
    Event("discovery_failed", "failure during llama-server GPU discovery", "prefix", "0.30 –"),
    Event("driver_mismatch", "vram init failure: 18", "text"),
    Event("driver_mismatch", "forward compatibility was attempted on non supported HW", "text"),
    Event("driver_mismatch", "river/library version mismatch", "text"),
    Event("nvml_failed", "Failed to initialize NVML", "text"),
    Event("nvml_failed", "Unable to load CUDA management library", "text"),
    Event("nvml_failed", "nvml vram init failure", "text"),
    Event("cuda_init_failed", "cudaSetDevice err: ", "text", "", r"err: (?P<code>\d+)"),
    Event("cuda_init_failed", "library init failure: ", "text", "", r"init failure: (?P<code>\d+)"),
    Event("cuda_init_failed", "cudart init failure: ", "text", "", r"init failure: (?P<code>\d+)"),
    Event("cuda_init_failed", "nvcuda init failure: ", "text", "", r"init failure: (?P<code>\d+)"),
    Event("cuda_init_failed", "cuInit err: ", "text", "", r"err: (?P<code>\d+)"),
    Event("cuda_init_failed", "failed to initialize CUDA", "text", "", r"CUDA: (?P<error>.*)"),
    Event("cuda_init_failed", "failed to get device context", "text", "", r"context (?P<code>\d+)"),
    Event("cuda_init_failed", "no CUDA-capable device is detected", "text"),
    Event("cuda_init_failed", "cuda driver library failed", "text"),
    Event("gpu_memory_lookup_failed", "error looking up nvidia GPU memory", "text"),
    Event("no_nvidia_device", "no nvidia devices detected", "text"),
    Event("no_gpu_usable", "no usable GPU found", "text"),
    Event("cpu_lacks_avx", "does not have AVX", "text"),
    Event("cpu_lacks_avx", "does not have vector extensions", "text"),
    Event("cpu_lacks_avx", "does not have minimum vector extensions", "text"),
    # the world outside
    Event("cloud_unreachable", "model recommendations refresh failed", "msg", "0.30 –", keep=3),
    Event("cloud_unreachable", "model show cloud cache hydration failed", "msg", "0.30 –", keep=3),
    Event("html_reply", "invalid character '<' looking for beginning of value", "text"),
    Event("proxy_error", "proxyconnect", "text"),
    Event("template_missing", "model is missing tokenizer.chat_template", "prefix", "0.30 –", keep=3),
)  # fmt: skip

# printed at every normal start: no event, and no unknown WARN either
NORMAL = ("waiting for server to become available", "waiting for llama-server to become available")
_BY_MSG = {row.needle: row for row in EVENTS if row.how == "msg" and row.kind != "load_cancelled"}
_CANCELLED = next(row for row in EVENTS if row.kind == "load_cancelled")
_PREFIXES = tuple(row for row in EVENTS if row.how == "prefix")
_TEXTS = tuple(row for row in EVENTS if row.how == "text")
_ANY = re.compile("|".join(re.escape(row.needle) for row in _TEXTS))
_pattern = cache(re.compile)  # when first needed: most logs need few of them
_BY_KIND = {row.kind: row for row in EVENTS}
_FREQUENT = {"slot launch_slot_": _BY_KIND["slot_launched"], "srv        update": _BY_KIND["prompt_cache"]}
_FAILING = {
    "gpu_library_failed",
    "load_failed",
    "model_metadata_error",
    "runner_terminated",
    "runner_gone",
    "discovery_failed",
}
VALUE = 600  # characters of a field that are kept


def find(text: str, line: Line | None) -> list[tuple[Event, dict[str, str]]]:
    """The rows that a line is of, each once a kind, with their fields. `line` is the record, for Ollama's own."""
    if line is None:
        row = _FREQUENT.get(text[:17])
        if row is not None:  # the bulk of what a busy server says
            return [(row, groups)] if (groups := _groups(row, text)) else []
        return _texts(text, {}, set())
    found: list[tuple[Event, dict[str, str]]] = []
    row = _BY_MSG.get(line.msg) or next((row for row in _PREFIXES if line.msg.startswith(row.needle)), None)
    fields = {name: value[:VALUE] for name, value in list(line.fields.items())[:24]}
    if row is not None and row.kind == "load_failed" and "context canceled" in fields.get("error", ""):
        row = _CANCELLED
    if row is not None:
        found.append((row, fields | _groups(row, text)))
    if line.level in ("WARN", "ERROR", "") or (row is not None and row.kind in _FAILING):
        found += _texts(text, fields, {one.kind for one, _ in found})
        if not found and line.level in ("WARN", "ERROR") and line.msg not in NORMAL:
            found.append((_OTHER[line.level], {"msg": line.msg[:VALUE]} | fields))
    elif row is None and _ANY.search(line.msg):  # an INFO message itself, never its fields
        found += _texts(line.msg, fields, set())
    return found


_OTHER = {
    "WARN": Event("other_warning", "", keep=50),
    "ERROR": Event("other_error", "", keep=50),
}


def _texts(text: str, fields: dict[str, str], kinds: set[str]) -> list[tuple[Event, dict[str, str]]]:
    if _ANY.search(text) is None:
        return []
    found = []
    for row in _TEXTS:
        if row.needle in text and row.kind not in kinds:
            groups = _groups(row, text)
            if row.pattern and not groups and row.kind in _NEEDS_PATTERN:
                continue
            kinds.add(row.kind)
            found.append((row, fields | groups))
    return found


# rows whose needle alone is too common
_NEEDS_PATTERN = {
    "folder_denied", "folder_read_only", "file_missing", "home_missing", "bind_refused", "flash_attention_forced_off",
    "slot_launched", "prompt_cache", "load_timeout",
}  # fmt: skip


def _groups(row: Event, text: str) -> dict[str, str]:
    if not row.pattern:
        return {}
    found = _pattern(row.pattern).search(text[:4000])
    return {name: value[:VALUE] for name, value in found.groupdict().items() if value} if found else {}
