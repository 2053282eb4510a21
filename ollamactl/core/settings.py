"""One row per variable that Ollama knows: how Ollama reads it, its default by release, what it costs.

Flags of `apply`, validation, the drop-in, verification by meaning and the table in the README all come from
here. `since`/`until` are the releases that know the variable (from the keys that each release prints in
`server config`); `printed` is whether `server config` shows it.
"""

from __future__ import annotations

import difflib
import re

from ollamactl.core.setting import Setting, known_in, own_part, same, version

__all__ = [
    "CLIENT_ONLY", "FLAGGED", "KV_TYPES", "MAX_SLOTS", "MISTAKEN", "REGISTRY", "SETTINGS", "Setting", "known_in",
    "lookup", "meaning", "nearest", "option", "own_part", "same", "shown", "version",
]  # fmt: skip

# The types that the engine's --cache-type-k/-v take; anything else starts well and then fails at every load.
KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
MAX_SLOTS = 256  # llama.cpp refuses more sequences: n_seq_max must be <= 256

SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="OLLAMA_NUM_PARALLEL",
        flag="--parallel",
        kind="uint",
        metavar="N|auto",
        since="0.1.33",
        defaults=(("0.1.33", "1"), ("0.2.0", "0"), ("0.10.0", "1")),
        example="2",
        help="slots: requests that a loaded model serves at the same time",
        cost="each slot has its own KV cache of the whole context",
    ),
    Setting(
        name="OLLAMA_CONTEXT_LENGTH",
        flag="--context-length",
        kind="uint",
        since="0.5.13",
        defaults=(("0.5.13", "2048"), ("0.6.7", "4096"), ("0.15.5", "0")),
        example="2048",
        help="tokens of context per slot; 0 leaves it to the VRAM (4096, 32768 or 262144)",
        cost="the KV cache grows with it, times the slots",
    ),
    Setting(
        name="OLLAMA_MAX_QUEUE",
        flag="--max-queue",
        kind="uint",
        since="0.1.33",
        defaults=(("0.1.33", "10"), ("0.1.34", "512")),
        example="64",
        help="requests that may wait for a load; it does not bound those that wait for a loaded model",
    ),
    Setting(
        name="OLLAMA_MAX_LOADED_MODELS",
        flag="--max-loaded-models",
        kind="uint",
        since="0.1.33",
        defaults=(("0.1.33", "1"), ("0.2.0", "0")),
        example="2",
        help="models that may be loaded at once; 0 is three per GPU",
        cost="the memory of each loaded model, times its slots",
    ),
    Setting(
        name="OLLAMA_KEEP_ALIVE",
        flag="--keep-alive",
        kind="duration",
        metavar="D",
        defaults=(("", "5m0s"),),
        example="7m",
        help="how long an idle model stays loaded (5m, 300, -1 for ever); a request's own value beats it",
    ),
    Setting(
        name="OLLAMA_FLASH_ATTENTION",
        flag="--flash-attention",
        kind="bool",
        metavar="V",
        defaults=(("", "false"),),
        since="0.1.39",
        example="1",
        help="flash attention on (1) or off (0); unset leaves it to the engine",
    ),
    Setting(
        name="OLLAMA_KV_CACHE_TYPE",
        flag="--kv-cache-type",
        kind="text",
        metavar="T",
        since="0.5.0",
        choices=KV_TYPES,
        example="q8_0",
        help="type of the KV cache: f16, q8_0 (half the memory), q4_0 (a quarter); needs flash attention",
    ),
    Setting(
        name="OLLAMA_HOST",
        flag="--host",
        kind="host",
        metavar="H",
        defaults=(("", "http://127.0.0.1:11434"),),
        example="127.0.0.1:11434",
        help="address to listen on; anything but loopback is open to everyone who reaches it",
    ),
    Setting(
        name="OLLAMA_MODELS",
        kind="path",
        metavar="DIR",
        help="folder of the models; the service's user must be able to read and write it",
        example="/usr/share/ollama/.ollama/models",
    ),
    Setting(
        name="OLLAMA_ORIGINS",
        kind="origins",
        metavar="LIST",
        help="web origins that may call the API, beside the local ones",
        example="https://chat.example",
    ),
    Setting(
        name="OLLAMA_DEBUG",
        kind="debug",
        defaults=(("", "false"), ("0.9.0", "INFO")),  # a boolean up to 0.6.8 at least, a level from 0.9 at the latest
        help="debug lines in the log: 1, 2",
        example="1",
    ),
    Setting(
        name="OLLAMA_LOAD_TIMEOUT",
        kind="timeout",
        since="0.3.14",
        defaults=(("", "5m0s"),),
        example="10m",
        help="how long a load may stand still before it is given up",
    ),
    Setting(
        name="OLLAMA_GPU_OVERHEAD",
        kind="uint",
        since="0.3.14",
        defaults=(("", "0"),),
        example="1048576",
        help="bytes of VRAM on each GPU that Ollama leaves free",
    ),
    Setting(
        name="OLLAMA_SCHED_SPREAD",
        kind="bool",
        since="0.1.45",
        defaults=(("", "false"),),
        example="1",
        help="spread a model over all GPUs even where one would hold it",
    ),
    Setting(name="OLLAMA_LLM_LIBRARY", kind="text", help="name of the backend to force", example="cpu"),
    Setting(
        name="OLLAMA_NOPRUNE",
        kind="bool",
        defaults=(("", "false"),),
        example="1",
        help="do not remove unused blobs at the start",
    ),
    Setting(
        name="OLLAMA_NOHISTORY",
        kind="bool",
        since="0.1.48",
        defaults=(("", "false"),),
        example="1",
        help="no history in the interactive client",
    ),
    Setting(
        name="OLLAMA_MULTIUSER_CACHE",
        kind="bool",
        since="0.3.14",
        until="0.30.11",
        defaults=(("", "false"),),
        help="prompt cache for several users (releases before 0.30.11)",
    ),
    Setting(
        name="OLLAMA_NEW_ENGINE",
        kind="bool",
        since="0.5.13",
        until="0.30.11",
        defaults=(("", "false"),),
        help="Ollama's own engine where it can serve the model (releases before 0.30.11)",
    ),
    Setting(
        name="OLLAMA_REMOTES",
        kind="items",
        since="0.12.3",
        defaults=(("", "[ollama.com]"),),
        example="models.example",
        help="hosts that remote models may come from",
    ),
    Setting(
        name="OLLAMA_NO_CLOUD",
        kind="bool",
        since="0.17.7",
        defaults=(("", "false"),),
        example="1",
        help="no cloud models",
    ),
    Setting(name="OLLAMA_EDITOR", kind="text", since="0.17.7", help="editor of the client", example="vi"),
    Setting(
        name="OLLAMA_DEBUG_LOG_REQUESTS",
        kind="bool",
        since="0.19.0",
        defaults=(("", "false"),),
        example="1",
        help="write each request's body to a file: prompts end up on the disk",
    ),
    Setting(
        name="OLLAMA_MAX_TRANSFER_STREAMS",
        kind="uint",
        since="0.24.0",
        defaults=(("", "4"),),
        example="2",
        help="parallel streams of a pull or push",
    ),
    Setting(
        name="OLLAMA_IGPU_ENABLE",
        kind="text",
        since="0.30.0",
        example="1",
        help="use an integrated GPU (dropped otherwise since 0.30)",
    ),
    Setting(
        name="OLLAMA_GO_TEMPLATE",
        kind="bool",
        since="0.30.11",
        defaults=(("", "true"),),
        example="0",
        help="Go chat templates of models that have no own",
    ),
    Setting(
        name="OLLAMA_VULKAN",
        kind="bool",
        since="0.12.6",
        defaults=(("", "false"), ("0.30.0", "true")),
        example="0",
        help="the Vulkan backend",
    ),
    Setting(name="OLLAMA_MAX_VRAM", kind="uint", until="0.2.8", help="VRAM limit (releases before 0.2.8)"),
    Setting(name="OLLAMA_TMPDIR", kind="path", until="0.5.7", help="folder for runners (before 0.5.7)"),
    Setting(name="OLLAMA_RUNNERS_DIR", kind="path", until="0.5.7", help="folder of runners (before 0.5.7)"),
    Setting(
        name="LLAMA_ARG_FIT",
        kind="text",
        since="0.30.11",
        example="on",
        help="the engine's fitting to free memory (on, off)",
    ),
    Setting(
        name="LLAMA_ARG_FIT_TARGET",
        kind="text",
        since="0.30.11",
        metavar="MIB",
        example="2048",
        help="MiB of each GPU that the engine leaves free (1024 without it)",
    ),
    Setting(
        name="LLAMA_ARG_CACHE_RAM",
        kind="text",
        since="0.30.0",
        printed=False,
        metavar="MIB",
        example="0",
        help="MiB of host memory for the prompt cache of a runner (8192 without it, 0 for none)",
    ),
    Setting(
        name="LLAMA_ARG_ENDPOINT_METRICS",
        kind="text",
        since="0.30.0",
        printed=False,
        example="1",
        help="/metrics on the runner's own port",
    ),
    *(
        Setting(name=name, kind="text", metavar="IDS", help=f"devices that {backend} may use", example="0")
        for name, backend in (
            ("CUDA_VISIBLE_DEVICES", "CUDA"),
            ("ROCR_VISIBLE_DEVICES", "ROCm"),
            ("HIP_VISIBLE_DEVICES", "HIP"),
            ("GPU_DEVICE_ORDINAL", "older ROCm"),
            ("GGML_VK_VISIBLE_DEVICES", "Vulkan"),
        )
    ),
    Setting(
        name="HSA_OVERRIDE_GFX_VERSION",
        kind="text",
        metavar="X.Y.Z",
        example="10.3.0",
        help="gfx version that ROCm takes an AMD GPU for",
    ),
    *(
        Setting(
            name=name,
            kind="text",
            metavar="URL",
            since="0.3.14",
            example="http://proxy.example:3128" if "no" not in name.lower() else "localhost,127.0.0.1",
            help="proxy for pulls; not for the local API",
            secret=True,
        )
        for name in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy")
    ),
)
REGISTRY: dict[str, Setting] = {s.name: s for s in SETTINGS}
FLAGGED: tuple[Setting, ...] = tuple(s for s in SETTINGS if s.flag)

# Names that guides and people invent for a setting that has another name, or that is no variable at all.
MISTAKEN: dict[str, str] = {
    "OLLAMA_NUM_CTX": "OLLAMA_CONTEXT_LENGTH",
    "OLLAMA_CTX": "OLLAMA_CONTEXT_LENGTH",
    "OLLAMA_CONTEXT": "OLLAMA_CONTEXT_LENGTH",
    "OLLAMA_CTX_SIZE": "OLLAMA_CONTEXT_LENGTH",
    "OLLAMA_MAX_PARALLEL": "OLLAMA_NUM_PARALLEL",
    "OLLAMA_MAX_MODELS": "OLLAMA_MAX_LOADED_MODELS",
    "OLLAMA_QUEUE": "OLLAMA_MAX_QUEUE",
    "OLLAMA_KV_CACHE": "OLLAMA_KV_CACHE_TYPE",
    "OLLAMA_CACHE_TYPE": "OLLAMA_KV_CACHE_TYPE",
    "OLLAMA_FLASH_ATTN": "OLLAMA_FLASH_ATTENTION",
    "OLLAMA_PORT": "OLLAMA_HOST",
    "OLLAMA_CORS": "OLLAMA_ORIGINS",
}

# Variables of the client, of old releases or of packaging that are well known and do nothing in the service.
CLIENT_ONLY = {"OLLAMA_NOHISTORY", "OLLAMA_EDITOR"}


def option(setting: Setting) -> str:
    """How a user sets it on the command line."""
    return setting.flag or f"--set {setting.name}="


def lookup(name: str) -> Setting | None:
    """The row of a variable; any LLAMA_ARG_* has one, since the runner inherits it."""
    found = REGISTRY.get(name)
    if found is None and re.fullmatch(r"LLAMA_ARG_[A-Z0-9_]+", name):
        return Setting(name=name, kind="text", since="0.30.0", printed=False, help="option of llama-server")
    return found


def shown(name: str, value: str) -> str:
    """A value as others may read it. What is no setting of Ollama may be anything, a token too; of a proxy only the
    user and password are hidden."""
    setting = lookup(name)
    if setting is None:
        public = name.startswith("OLLAMA_") and not re.search("KEY|TOKEN|SECRET|PASS", name)
        return value if public or not value else "(secret)"
    return re.sub(r"//[^/@]*@", "//(secret)@", value) if setting.secret else value


def nearest(name: str) -> str:
    """The known name that a mistyped one most resembles, or an empty string."""
    upper = name.upper().replace("-", "_")
    for candidate in (upper, f"OLLAMA_{upper}"):
        if candidate in REGISTRY or candidate in MISTAKEN:
            return MISTAKEN.get(candidate, candidate)
    parts = set(upper.removeprefix("OLLAMA_").split("_"))

    def score(known: str) -> float:
        words = set(known.removeprefix("OLLAMA_").split("_"))
        shared = len(parts & words) / len(parts | words)
        return difflib.SequenceMatcher(None, upper, known).ratio() + 0.3 * shared

    best = max(REGISTRY, key=score)
    return best if score(best) >= 0.75 else ""


def meaning(name: str, text: str | None, release: str = "") -> str:
    """The value as Ollama reads it, for comparing two texts; unset and unknown names included."""
    setting = lookup(name)
    if setting is None:
        return text or ""
    return setting.read(text or "", release).printed
