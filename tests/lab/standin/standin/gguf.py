"""What Ollama reads of a model file before it starts the engine: metadata, tensors, and the errors of broken files."""

from __future__ import annotations

import mmap
import os
import struct
from functools import lru_cache
from typing import Any, NamedTuple

# GGML type number: name, values in a block, bytes of a block
TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292), 30: ("BF16", 1, 2),
}  # fmt: skip
FILE_TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    7: "Q8_0",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
}
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}


class Broken(Exception):
    """The text is what Ollama answers and logs."""


class Tensor(NamedTuple):
    name: str
    shape: tuple[int, ...]
    type: int
    offset: int


class Gguf(NamedTuple):
    meta: dict[str, Any]  # arrays longer than 1024 are None
    tensors: tuple[Tensor, ...]
    size: int

    @property
    def arch(self) -> str:
        return str(self.meta.get("general.architecture", "unknown"))

    def key(self, name: str, default: Any = None) -> Any:
        return self.meta.get(f"{self.arch}.{name}", default)

    @property
    def parameters(self) -> int:
        total = 0
        for tensor in self.tensors:
            count = 1
            for side in tensor.shape:
                count *= side
            total += count
        return total

    @property
    def quantization(self) -> str:
        return FILE_TYPES.get(int(self.meta.get("general.file_type", -1)), "unknown")

    @property
    def is_embedding(self) -> bool:
        return f"{self.arch}.pooling_type" in self.meta


class _Cursor:
    def __init__(self, data: Any) -> None:
        self.data, self.at = data, 0

    def take(self, shape: str) -> Any:
        size = struct.calcsize(shape)
        if self.at + size > len(self.data):
            raise Broken("EOF" if self.at >= len(self.data) else "unexpected EOF")
        (value,) = struct.unpack_from(shape, self.data, self.at)
        self.at += size
        return value

    def text(self) -> str:
        size = self.take("<Q")
        if self.at + size > len(self.data):
            raise Broken("EOF" if self.at >= len(self.data) else "unexpected EOF")
        self.at += size
        return bytes(self.data[self.at - size : self.at]).decode("utf-8", "replace")

    def skip_texts(self, count: int) -> None:
        data, at, end = self.data, self.at, len(self.data)
        read = struct.Struct("<Q").unpack_from
        for _ in range(count):
            if at + 8 > end:
                raise Broken("EOF" if at >= end else "unexpected EOF")
            at += 8 + read(data, at)[0]
        if at > end:
            raise Broken("unexpected EOF")
        self.at = at

    def value(self, kind: int) -> Any:
        if kind == 8:
            return self.text()
        if kind in _SCALARS:
            return self.take(_SCALARS[kind])
        if kind != 9:
            raise Broken(f"invalid type: {kind}")
        inner, count = self.take("<I"), self.take("<Q")
        if inner == 8 and count > 1024:
            return self.skip_texts(count)
        if inner in _SCALARS and count > 1024:
            self.at += count * struct.calcsize(_SCALARS[inner])
            if self.at > len(self.data):
                raise Broken("EOF")
            return None
        return [self.value(inner) for _ in range(count)]


@lru_cache(maxsize=16)
def _parse(path: str, size: int, _mtime: int) -> Gguf:
    with open(path, "rb") as file:
        if size < 4:
            raise Broken("EOF")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            cursor = _Cursor(data)
            if cursor.take("<4s") != b"GGUF":
                raise Broken("invalid file magic")
            cursor.take("<I")
            tensors, pairs = cursor.take("<Q"), cursor.take("<Q")
            meta = {}
            for _ in range(pairs):
                key = cursor.text()
                meta[key] = cursor.value(cursor.take("<I"))
            found = []
            for _ in range(tensors):
                name = cursor.text()
                shape = tuple(cursor.take("<Q") for _ in range(cursor.take("<I")))
                found.append(Tensor(name, shape, cursor.take("<I"), cursor.take("<Q")))
            align = int(meta.get("general.alignment", 32))
            base = (cursor.at + align - 1) // align * align
    for tensor in found:
        _, block, width = TYPES.get(tensor.type, ("F32", 1, 4))
        count = 1
        for side in tensor.shape:
            count *= side
        end = base + tensor.offset + count // block * width
        if end > size:
            raise Broken(f'tensor "{tensor.name}" offset+size ({end}) exceeds file size ({size})')
    return Gguf(meta, tuple(found), size)


def read(path: str) -> Gguf:
    """Raises Broken with Ollama's text for a file that it can't read."""
    try:
        stat = os.stat(path)
    except FileNotFoundError as error:
        raise Broken(f"open {path}: no such file or directory") from error
    return _parse(path, stat.st_size, stat.st_mtime_ns)
