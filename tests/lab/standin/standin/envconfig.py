"""How Ollama reads its variables: one function a kind, and the `server config` map.

Every number is read anew at each use, and a bad one warns each time: the recordings count these lines.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable

from . import gofmt
from .gofmt import MAX_DURATION, log

WARNED = "invalid environment variable, using default"
UINTS = {
    "OLLAMA_CONTEXT_LENGTH": 0,
    "OLLAMA_GPU_OVERHEAD": 0,
    "OLLAMA_MAX_LOADED_MODELS": 0,
    "OLLAMA_MAX_QUEUE": 512,
    "OLLAMA_MAX_TRANSFER_STREAMS": 4,
    "OLLAMA_NUM_PARALLEL": 1,
}
BOOLS = {
    "OLLAMA_DEBUG_LOG_REQUESTS": False,
    "OLLAMA_FLASH_ATTENTION": False,
    "OLLAMA_GO_TEMPLATE": True,
    "OLLAMA_NOHISTORY": False,
    "OLLAMA_NOPRUNE": False,
    "OLLAMA_NO_CLOUD": False,
    "OLLAMA_SCHED_SPREAD": False,
    "OLLAMA_VULKAN": True,
}
TEXTS = (
    "CUDA_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "HIP_VISIBLE_DEVICES",
    "HSA_OVERRIDE_GFX_VERSION", "HTTPS_PROXY", "HTTP_PROXY", "LLAMA_ARG_FIT", "LLAMA_ARG_FIT_TARGET", "NO_PROXY",
    "OLLAMA_EDITOR", "OLLAMA_IGPU_ENABLE", "OLLAMA_KV_CACHE_TYPE", "OLLAMA_LLM_LIBRARY", "ROCR_VISIBLE_DEVICES",
    "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip


def var(key: str) -> str:
    """The value less the blanks and quotes around it."""
    return os.environ.get(key, "").strip().strip("\"'")


def uint(key: str) -> int:
    text = var(key)
    if text == "":
        return UINTS[key]
    if not text.isascii() or not text.isdigit() or int(text) >= 1 << 64:
        log.warn("config.go:263", WARNED, key=key, value=text, default=UINTS[key])
        return UINTS[key]
    return int(text)


def boolean(key: str) -> bool:
    text = var(key)
    if text == "":
        return BOOLS[key]
    value = gofmt.parse_bool(text)
    return True if value is None else value  # text that Go refuses counts as true


def _duration(key: str, default: int) -> int:
    text = var(key)
    value = gofmt.parse_duration(text) if text else None
    if value is None:
        digits = text[1:] if text[:1] in ("-", "+") else text
        value = int(text) * 10**9 if digits.isascii() and digits.isdigit() else default
    return value


def keep_alive() -> int:
    """Nanoseconds; negative is for ever."""
    value = _duration("OLLAMA_KEEP_ALIVE", 300 * 10**9)
    return MAX_DURATION if value < 0 else value


def load_timeout() -> int:
    value = _duration("OLLAMA_LOAD_TIMEOUT", 300 * 10**9)
    return MAX_DURATION if value <= 0 else value


def log_level() -> int:
    text = var("OLLAMA_DEBUG")
    if gofmt.parse_bool(text):
        return -4
    number = text.lstrip("+-")
    return int(text) * -4 if number.isdigit() else 0


def level_name(level: int) -> str:
    for base, name in ((8, "ERROR"), (4, "WARN"), (0, "INFO")):
        if level >= base:
            return name if level == base else f"{name}+{level - base}"
    return "DEBUG" if level == -4 else f"DEBUG{level + 4:+d}"


def _split(hostport: str) -> tuple[str, str] | None:
    """net.SplitHostPort."""
    if hostport.startswith("["):
        host, closed, rest = hostport[1:].partition("]")
        return (host, rest[1:]) if closed and rest.startswith(":") else None
    host, colon, port = hostport.partition(":")
    return (host, port) if colon and ":" not in port else None


def host() -> tuple[str, str, int, str]:
    """Scheme, host, port and path of OLLAMA_HOST; a scheme without a port means port 80 or 443."""
    text, default = var("OLLAMA_HOST").strip(), "11434"
    scheme, found, hostport = text.partition("://")
    if not found:
        scheme, hostport = "http", text
    elif scheme in ("http", "https"):
        default = "80" if scheme == "http" else "443"
    hostport, _, path = hostport.partition("/")
    pair = _split(hostport)
    if pair is None:
        name, port = hostport.strip("[]") or "127.0.0.1", default
    else:
        name, port = pair
    digits = port[1:] if port[:1] in ("+", "-") else port
    if not digits.isdigit() or not 0 <= int(port) <= 65535:
        log.warn("config.go:60", "invalid port, using default", port=port, default=default)
        port = default
    return scheme, name, int(port), path


def host_url() -> str:
    scheme, name, port, path = host()
    joined = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
    return f"{scheme}://{joined}" + (f"/{path}" if path else "")


def origins() -> list[str]:
    text = var("OLLAMA_ORIGINS")
    out = text.split(",") if text else []
    for name in ("localhost", "127.0.0.1", "0.0.0.0"):
        out += [f"http://{name}", f"https://{name}", f"http://{name}:*", f"https://{name}:*"]
    return [*out, "app://*", "file://*", "tauri://*", "vscode-webview://*", "vscode-file://*"]


def models() -> str:
    return var("OLLAMA_MODELS") or os.path.join(os.path.expanduser("~"), ".ollama", "models")


def is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def values() -> dict[str, str]:
    """Everything as `server config` prints it. Reads in Ollama's order, so that warnings come in its order."""
    remotes = var("OLLAMA_REMOTES")
    special: dict[str, Callable[[], str]] = {
        "OLLAMA_DEBUG": lambda: level_name(log_level()),
        "OLLAMA_HOST": host_url,
        "OLLAMA_KEEP_ALIVE": lambda: gofmt.duration(keep_alive()),
        "OLLAMA_LOAD_TIMEOUT": lambda: gofmt.duration(load_timeout()),
        "OLLAMA_MODELS": models,
        "OLLAMA_ORIGINS": lambda: "[" + " ".join(origins()) + "]",
        "OLLAMA_REMOTES": lambda: "[" + " ".join(remotes.split(",") if remotes else ["ollama.com"]) + "]",
    }
    out = {key: read() for key, read in special.items()}
    order = (
        "GPU_OVERHEAD",
        "MAX_LOADED_MODELS",
        "MAX_QUEUE",
        "MAX_TRANSFER_STREAMS",
        "NUM_PARALLEL",
        "CONTEXT_LENGTH",
    )
    out |= {f"OLLAMA_{key}": str(uint(f"OLLAMA_{key}")) for key in order}
    out |= {key: "true" if boolean(key) else "false" for key in BOOLS}
    return out | {key: var(key) for key in TEXTS}


def go_map(pairs: dict[str, str]) -> str:
    """fmt's %v of a map: keys sorted by byte."""
    return "map[" + " ".join(f"{key}:{pairs[key]}" for key in sorted(pairs)) + "]"
