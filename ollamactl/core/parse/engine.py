"""Lines of the engine (llama.cpp, and Ollama's own) about one load: buffers, context, slots, offload.

llama_kv_cache:        CPU KV buffer size =    96.00 MiB          0.12.6 on; before: _unified, and _init to 0.5.4
load_tensors:        CUDA0 model buffer size =  1252.41 MiB
sched_reserve:        CPU compute buffer size =    54.54 MiB
llama_context: n_ctx_seq             = 8192
"""

from __future__ import annotations

import re
from typing import Literal

from ollamactl.core.facts import Buffer, Load
from ollamactl.core.parse.runner import LoadRequest, RunnerArgs

Kind = Literal["model", "kv", "rs", "compute", "output", "projector", "other"]
MIB = 1 << 20
_BUFFER = re.compile(r"(\w+): +(\S+) +(?:(model|KV|RS|compute|output|input) +)?buffer size += +([0-9.]+) MiB")
_VALUE = re.compile(
    r"\w+: +(n_ctx|n_ctx_per_seq|n_ctx_seq|n_seq_max|n_batch|n_ubatch|flash_attn|n_ctx_train|arch) += +(\S+)\s*$"
)
_CACHE_TYPES = re.compile(r"\bK \((\w+)\): +[0-9.]+ MiB, V \((\w+)\)")
_OFFLOADED = re.compile(r"(?:\w+: )?offloaded (\d+)/(\d+) layers to GPU")
_SLOTS = re.compile(r"n_slots\"? ?[=:] ?(\d+)")
_SLOT_CONTEXT = re.compile(r"n_ctx_slot\"? ?[=:] ?(\d+)|new slot, n_ctx = (\d+)")
_SWA = re.compile(r"\w+: creating +(non-)?SWA KV cache")
_SIZE = re.compile(r"([0-9.]+) *(B|KiB|MiB|GiB|TiB|KB|MB|GB|TB)$")
_KINDS: dict[str, Kind] = {
    "model": "model", "KV": "kv", "RS": "rs", "compute": "compute", "output": "output", "input": "other"
}  # fmt: skip
_GO_KINDS: dict[str, Kind] = {"model weights": "model", "kv cache": "kv", "compute graph": "compute"}
_FLASH = {"0": "off", "1": "on", "enabled": "on", "disabled": "off", "auto": "auto", "true": "on", "false": "off"}


def parse_buffer(text: str, swa: bool = False) -> Buffer | None:
    """A buffer line of llama.cpp of any release; `swa` says which cache is being made."""
    found = _BUFFER.match(text)
    if found is None:
        return None
    where, device, word, size = found.groups()
    if where.startswith(("clip", "mtmd", "alloc_compute_meta")):
        kind: Kind = "projector"
    elif word:
        kind = _KINDS[word]
    else:  # up to 0.3.x the model's buffers carry no word
        kind = "model" if where.endswith("load_tensors") else "other"
    try:
        size_bytes = round(float(size) * MIB)
    except ValueError:
        return None
    return Buffer(kind=kind, device=device, bytes=size_bytes, text=text, swa=swa and kind == "kv")


def is_of_load(msg: str) -> bool:
    """Whether a message of Ollama's own engine is about a load."""
    return msg in _GO_KINDS or _OFFLOADED.match(msg) is not None


def parse_size(text: str) -> int | None:
    """Bytes of Go's human sizes: "11.9 GiB" (1024) and "287 MB" (1000)."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or found[1].count(".") > 1 or found[1] == ".":
        return None
    power = " KMGT".index(found[2][0]) if found[2] != "B" else 0
    unit: int = (1024 if "i" in found[2] else 1000) ** power
    return round(float(found[1]) * unit)


class Loading:
    """Gathers one load while its lines pass."""

    def __init__(
        self,
        args: RunnerArgs,
        argv: tuple[str, ...],
        runner: str,
        at: float | None,
        line: int,
        text: str,
        implied: bool = False,
    ) -> None:
        self.implied = implied  # nothing shows its beginning
        self.args, self.argv, self.runner = args, argv, runner
        self.at, self.line, self.text = at, line, text
        self.request: LoadRequest | None = None
        self.seen: dict[str, str] = {}  # what the engine itself says, first time
        self.buffers: list[Buffer] = []
        self.go_buffers: list[Buffer] = []
        self.go_group_ended = False
        self.offloaded: tuple[int, int] | None = None
        self.swa = False
        self.pid: int | None = None
        self.seconds: float | None = None
        self.outcome: Literal["loading", "loaded", "failed", "aborted"] = "loading"
        self.error = ""
        self.error_lines: list[str] = []

    def engine_line(self, text: str) -> bool:
        """Takes a raw line; True if it was about the load."""
        if "buffer size" in text:
            buffer = parse_buffer(text, self.swa)
            if buffer is not None and len(self.buffers) < 256:
                self.buffers.append(buffer)
            return buffer is not None
        found = _VALUE.match(text)
        if found is not None:
            self.seen.setdefault(found[1], found[2])
            return True
        if "layers to GPU" in text:
            offloaded = _OFFLOADED.match(text)
            if offloaded is not None:
                self.offloaded = (int(offloaded[1]), int(offloaded[2]))
            return offloaded is not None
        if "SWA KV cache" in text:
            swa = _SWA.match(text)
            self.swa = swa is not None and not swa[1]
            return True
        if "MiB, V (" in text:
            types = _CACHE_TYPES.search(text)
            if types is not None:
                self.seen.setdefault("kv_k", types[1])
                self.seen.setdefault("kv_v", types[2])
            return True
        if "n_slots" in text or "n_ctx_slot" in text or "new slot" in text:
            slots, context = _SLOTS.search(text), _SLOT_CONTEXT.search(text)
            if slots is not None:
                self.seen.setdefault("n_slots", slots[1])
            if context is not None:
                self.seen.setdefault("n_ctx_slot", context[1] or context[2])
            return True
        if "lash Attention" in text and ("enabled" in text or "disabled" in text):
            self.seen.setdefault("flash_used", "on" if "enabled" in text else "off")
            return True
        if text.startswith("llama_model_loader: loaded meta data") and self.outcome == "loading":
            self.buffers.clear()  # the engine starts over, after fitting or a retry of its own
        return False

    def go_line(self, msg: str, fields: dict[str, str], text: str) -> bool:
        """Takes a line of Ollama's own engine or memory estimate; True if it was about the load."""
        kind = _GO_KINDS.get(msg)
        if kind is not None:
            if self.go_group_ended:
                self.go_buffers, self.go_group_ended = [], False
            size = parse_size(fields.get("size", ""))
            if size is not None and len(self.go_buffers) < 256:
                device = fields.get("device") or fields.get("buffer", "")  # buffer: up to 0.11.4
                self.go_buffers.append(Buffer(kind=kind, device=device, bytes=size, text=text))
            return True
        if msg == "total memory":
            self.go_group_ended = True
            return True
        offloaded = _OFFLOADED.match(msg)
        if offloaded is not None:
            self.offloaded = (int(offloaded[1]), int(offloaded[2]))
            return True
        if not msg and "num_tensors" in fields and "architecture" in fields:
            self.seen.setdefault("arch", fields["architecture"])
            return True
        return False

    def error_line(self, text: str) -> None:
        """Keeps a raw line that looks like the reason why the load fails."""
        if text not in self.error_lines and len(self.error_lines) < 12:
            self.error_lines.append(text)

    def build(self) -> Load:
        """The load as far as it is known."""
        args, seen = self.args, self.seen
        asked = self.request or LoadRequest(operation="")
        number = {name: int(value) for name, value in seen.items() if value.isdecimal() and len(value) < 16}
        total = _first(args.context_total, asked.context_total, number.get("n_ctx"))
        slots = _first(args.slots, asked.slots, number.get("n_slots"), number.get("n_seq_max"))
        context = _first(number.get("n_ctx_seq"), number.get("n_ctx_per_seq"), number.get("n_ctx_slot"))
        if context is None and total and slots:
            context = total // slots
        flash = args.flash_attention or asked.flash_attention
        engine_flash = _FLASH.get(seen.get("flash_attn", ""), "")
        error = self.error
        outcome = self.outcome
        weights = self.offloaded is not None and not self.error_lines
        if self.implied and outcome == "loading" and (context or weights or any(b.kind == "kv" for b in self.buffers)):
            outcome = "loaded"  # its weights or context stand; the line that says so is not in what was pasted
        if outcome == "failed":
            error = "\n".join([error, *(one for one in self.error_lines if one not in error)]).strip()
        return Load(
            at=self.at,
            model=args.model,
            argv=self.argv,
            runner=self.runner,
            port=args.port,
            context_total=total,
            slots=slots,
            context=context,
            batch=_first(number.get("n_batch"), args.batch, asked.batch),
            ubatch=_first(number.get("n_ubatch"), args.ubatch),
            kv_type_k=args.kv_type_k or asked.kv_type or seen.get("kv_k", ""),
            kv_type_v=args.kv_type_v or asked.kv_type or seen.get("kv_v", ""),
            flash_attention=flash or engine_flash,
            gpu_layers=_first(args.gpu_layers, asked.gpu_layers),
            offloaded=self.offloaded,
            buffers=tuple(self.buffers or self.go_buffers),
            seconds=self.seconds,
            outcome=outcome,
            error=error,
            pid=self.pid,
            line=self.line,
            text=self.text,
            architecture=seen.get("arch", ""),
            trained_context=number.get("n_ctx_train"),
            flash_attention_used=seen.get("flash_used", "") or (engine_flash if engine_flash != "auto" else ""),
            projector=args.projector,
        )


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
