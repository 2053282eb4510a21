"""Headers of GGUF files on the disk: opened without a wait, read in chunks, refused where no engine loads them."""

from __future__ import annotations

import contextlib
import math
import os
import re
import stat
from collections.abc import Callable

import msgspec

from ollamactl.core.memory.model import Hyper
from ollamactl.core.parse.gguf import GgufHeader, Skipped, read_header
from ollamactl.errors import Exit, Failure
from ollamactl.host.vocabularies import Ends

# llama.cpp's names of general.file_type (llama.h, llama_ftype).
FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4",
}  # fmt: skip

EndsOf = Callable[[os.stat_result], Ends]  # where the vocabularies of a file end, as far as that is known
SPLIT = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf$")
MOST_BLOCKS = 512  # LLAMA_MAX_LAYERS
MOST_WIDE = 1 << 24  # numbers in a row or heads of a block; real models stay below a sixteenth of it
_WIDTH = re.compile(r"(?!.*context).*_length(?:_mla|_swa)?|.*head_count(?:_kv)?|vocab_size")
_AGAIN = "its header is damaged: pull or download it again"


def nowhere(info: os.stat_result) -> Ends:
    """Where nothing is known of a file's vocabularies."""
    return {}


def read(parts: tuple[str, ...], ends: EndsOf = nowhere) -> GgufHeader:
    """The header of a model, that of its first file with the tensors of all. Raises Failure."""
    heads = [_header(path, ends) for path in parts]
    first = heads[0]
    if len(heads) == 1 and first.split_count > 1:
        text = f"{os.path.basename(parts[0])} is one of {first.split_count} files of a split model"
        raise Failure(text, hint="name the first one, as NAME-00001-of-0000N.gguf", id="gguf_split")
    tensors = tuple(t for head in heads for t in head.tensors)
    return msgspec.structs.replace(first, tensors=tensors, size=sum(h.size for h in heads))


def _header(path: str, ends: EndsOf) -> GgufHeader:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        hint = "a part of a split model is missing" if SPLIT.fullmatch(path) else "ollama list names what there is"
        raise Failure(f"{path}: no such file", hint=hint, code=Exit.UNSEEN, id="model_not_found") from None
    except PermissionError:
        raise Failure(f"{path}: permission denied", hint="sudo shows it", code=Exit.UNSEEN, id="denied") from None
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}", code=Exit.UNSEEN, id="model_unreadable") from None
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            what = "a folder" if stat.S_ISDIR(info.st_mode) else "not a regular file"
            raise Failure(f"{path} is {what}", hint="name a GGUF file", code=Exit.USAGE, id="usage")
        try:
            return _of(fd, info, ends(info))
        except Failure as error:
            raise Failure(f"{path}: {error.text}", hint=error.hint, code=error.code, id=error.id) from None
    finally:
        os.close(fd)


def _of(fd: int, info: os.stat_result, ends: Ends) -> GgufHeader:
    def chunk(offset: int, length: int) -> bytes:
        return os.pread(fd, length, offset)

    if ends:
        with contextlib.suppress(Failure):  # what is remembered is not to be trusted with the answer
            return read_header(chunk, info.st_size, ends)
        ends.clear()
    return read_header(chunk, info.st_size, ends)


def sane(head: GgufHeader, name: str) -> None:
    """Raise Failure where no engine would load such numbers."""
    for key, value in head.metadata.items():
        if key.startswith(f"{head.architecture}."):
            wrong = _wrong(key.removeprefix(f"{head.architecture}."), value if isinstance(value, tuple) else (value,))
            if wrong:
                raise Failure(f"{key} of {name} {wrong}", hint=_AGAIN, id="gguf_unreadable")


def _wrong(key: str, values: tuple[object, ...]) -> str:
    """What is wrong with the values of a key, or nothing."""
    limit = MOST_BLOCKS if key == "block_count" else MOST_WIDE if _WIDTH.fullmatch(key) else 0
    for value in values:
        if isinstance(value, float) and not math.isfinite(value):
            return f"is {value}, which is no number"
        if limit and not isinstance(value, int):
            return "is no list of numbers" if isinstance(value, Skipped) else f"is {value!r}, not a whole number"
        if limit and isinstance(value, int) and not 0 <= value <= limit:
            return f"is {value}, no engine takes more than {limit}"
    return ""


def lacking(head: GgufHeader, files: int) -> int:
    """Bytes of tensors that the header of so many files promises and they do not have."""
    if files > 1:
        return max(0, sum(t.nbytes for t in head.tensors) - head.size)
    end = max((t.offset + t.nbytes for t in head.tensors), default=0)
    return max(0, head.data_offset + end - head.size)


def planned(head: GgufHeader, hyper: Hyper, name: str) -> None:
    """Raise Failure where a file holds no model whose memory could be planned."""
    if not hyper.layers:
        kind = head.metadata.get("general.type", head.architecture or "no model")
        text = f"{name} is no language model: it has no blocks ({kind})"
        raise Failure(text, hint="name the model itself, not its projector or adapter", id="no_model")
    if not head.tensors:
        raise Failure(f"{name} holds no tensors, only a header", hint=_AGAIN, id="gguf_unreadable")
    if hyper.known and not hyper.family.recurrent and not any(layer.heads for layer in hyper.layers):
        text = f"the header of {name} says nothing of its attention heads"
        raise Failure(text, hint=_AGAIN, id="gguf_unreadable")
