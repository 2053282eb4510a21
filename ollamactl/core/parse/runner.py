"""The runner's command line and load request, in the form of every release.

up to 0.11.4   ollama_llama_server [runner] | ollama runner … --ctx-size TOTAL --batch-size B --parallel N --port P
0.11.5 – 0.24  ollama runner [--ollama-engine] --model M --port P; context and slots only in `load request="{…}"`
0.30 on        llama-server --model M --port P … -c TOTAL -np N -b B -ub B …
Without --model it is GPU discovery or a refresh of free memory, not a load.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ollamactl.core.facts import Record

_NAMES = {
    "-m": "model", "--model": "model", "--port": "port", "--mmproj": "projector", "--host": "host",
    "-c": "context", "--ctx-size": "context", "-np": "slots", "--parallel": "slots",
    "-b": "batch", "--batch-size": "batch", "-ub": "ubatch", "--ubatch-size": "ubatch",
    "-ctk": "kv_k", "--cache-type-k": "kv_k", "-ctv": "kv_v", "--cache-type-v": "kv_v", "--kv-cache-type": "kv",
    "-fa": "flash", "--flash-attn": "flash",
    "-ngl": "layers", "--gpu-layers": "layers", "--n-gpu-layers": "layers",
}  # fmt: skip
_FLAG = re.compile(r"(?:^|\s)(--?[A-Za-z][\w-]*)(?=\s|=|$)")


class RunnerArgs(Record, frozen=True, kw_only=True):
    """What a runner was told. None or empty: not on its command line."""

    program: str = ""
    model: str = ""
    port: int | None = None
    context_total: int | None = None
    slots: int | None = None
    batch: int | None = None
    ubatch: int | None = None
    kv_type_k: str = ""
    kv_type_v: str = ""
    flash_attention: str = ""  # on, off, auto
    gpu_layers: int | None = None
    projector: str = ""

    @property
    def loads(self) -> bool:
        """Whether it loads a model (else: device discovery)."""
        return bool(self.model)

    @property
    def context(self) -> int | None:
        """Context of one slot."""
        return self.context_total // self.slots if self.context_total and self.slots else None


def parse_argv(argv: Sequence[str]) -> RunnerArgs:
    """Reads the arguments of a runner process, of any release. Never raises; what is no number is None."""
    values: dict[str, str] = {}
    words = list(argv)
    program = words[0] if words else ""
    for at, word in enumerate(words[1:], 1):
        flag, equals, value = word.partition("=")
        name = _NAMES.get(flag)
        if name is None:
            continue
        if equals:
            values[name] = value
            continue
        following = words[at + 1] if at + 1 < len(words) else ""
        if not re.match(r"--?[A-Za-z]", following):
            values[name] = following
        elif name == "flash":
            values[name] = "on"  # a bare flag up to 0.24
    if "flash" in values:
        values["flash"] = values["flash"] if values["flash"] in ("off", "auto") else "on"
    both = values.get("kv", "")
    return RunnerArgs(
        program=program,
        model=values.get("model", ""),
        port=_number(values.get("port")),
        context_total=_number(values.get("context")),
        slots=_number(values.get("slots")),
        batch=_number(values.get("batch")),
        ubatch=_number(values.get("ubatch")),
        kv_type_k=values.get("kv_k", both),
        kv_type_v=values.get("kv_v", both),
        flash_attention=values.get("flash", ""),
        gpu_layers=_number(values.get("layers")),
        projector=values.get("projector", ""),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"-?\d{1,15}", text) else None


def split_command(text: str) -> tuple[str, ...]:
    """The words of a command as Ollama logs it: joined by blanks without quotes, so a path may hold blanks.
    Whatever stands between two flags is one value; `program [runner]` stands before the first."""
    flags = list(_FLAG.finditer(text))
    head = text[: flags[0].start()].strip() if flags else text.strip()
    words = [head[:-7].rstrip(), "runner"] if head.endswith(" runner") else [head]
    for found, following in zip(flags, [*flags[1:], None], strict=False):
        value = text[found.end() : following.start() if following else len(text)].strip()
        words.append(found[1] + value if value.startswith("=") else found[1])
        if value and not value.startswith("="):
            words.append(value)
    return tuple(word for word in words if word)


class LoadRequest(Record, frozen=True, kw_only=True):
    """`msg=load request="{Operation:commit … Parallel:1 … KvSize:4096 …}"` (0.11.5 – 0.24)."""

    operation: str  # fit, alloc, commit, close
    slots: int | None = None
    batch: int | None = None
    context_total: int | None = None  # KvSize = context × slots
    kv_type: str = ""
    flash_attention: str = ""
    gpu_layers: int | None = None


_FIELD = re.compile(r"(Operation|Parallel|BatchSize|FlashAttention|KvSize|KvCacheType):(\S*?)(?=[ }]|$)")


def parse_load_request(text: str) -> LoadRequest | None:
    """The fields of a load request, or None where it has no operation."""
    found: dict[str, str] = dict(_FIELD.findall(text))
    if not found.get("Operation"):
        return None
    flash = found.get("FlashAttention", "").lower()
    layers = re.search(r"GPULayers:(\d+)\[", text)
    return LoadRequest(
        operation=found["Operation"],
        slots=_number(found.get("Parallel")),
        batch=_number(found.get("BatchSize")),
        context_total=_number(found.get("KvSize")),
        kv_type=found.get("KvCacheType", ""),
        flash_attention={"true": "on", "enabled": "on", "false": "off", "disabled": "off"}.get(flash, flash),
        gpu_layers=_number(layers[1]) if layers else None,
    )
