"""The skip-reader of GGUF headers: against the gguf package, and against damaged, hostile and random headers."""

from __future__ import annotations

import random
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ollamactl.core.parse.gguf import GgufError, GgufHeader, Skipped, read_header
from tests.engine import models


class Counted:
    """Bytes behind a reader that counts what is asked for. `size` may claim more than there is."""

    def __init__(self, data: bytes, size: int | None = None) -> None:
        self.data, self.size, self.read_bytes = data, size if size is not None else len(data), 0

    def __call__(self, offset: int, length: int) -> bytes:
        self.read_bytes += length
        return self.data[offset : offset + length]

    def header(self) -> GgufHeader:
        return read_header(self, self.size)


def packed(name: str = "qwen3-a", *, vocabulary: bool = False, **more: Any) -> bytes:
    metadata, tensors = models.stored()[name]
    tokens = models.pieces(metadata["qwen3.vocab_size"]) if vocabulary else {}
    return models.header({**metadata, **tokens, **more}, tensors)[0]


def big_vocabulary(size: int) -> bytes:
    tokens = [f"token number {i}" for i in range(size)]
    metadata = {
        "general.architecture": "llama", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": tokens,
        "tokenizer.ggml.scores": [0.0] * size, "llama.block_count": 2,
    }  # fmt: skip
    return models.header(metadata, [("token_embd.weight", [64, size], 1)])[0]


TOYS = [n for n in sorted(models.stored()) if not n.startswith(("real-", "held-", "wide-"))]


@pytest.mark.parametrize("name", [*TOYS[::10], pytest.param("held-qwen2.5-14b", marks=pytest.mark.long)])
def test_same_as_the_gguf_package(name: str, tmp_path: Path) -> None:
    """With a vocabulary of a thousand: the package takes ten seconds for a real one, so only the last has its own."""
    gguf = pytest.importorskip("gguf")
    metadata, tensors = models.stored()[name]
    size = metadata["qwen2.vocab_size"] if name == "held-qwen2.5-14b" else 1000
    path = models.write(tmp_path / "model.gguf", metadata | models.pieces(size), tensors)
    theirs = gguf.GGUFReader(path)
    data = path.read_bytes()[: 64 << 20]
    ours = Counted(data, path.stat().st_size).header()
    assert {t.name: (t.dims, t.nbytes) for t in ours.tensors} == {
        t.name: (tuple(int(x) for x in t.shape), int(t.n_bytes)) for t in theirs.tensors
    }
    assert ours.data_offset == theirs.data_offset
    for key, field in theirs.fields.items():
        if key.startswith("GGUF."):
            continue
        value = field.contents()
        got = ours.metadata[key]
        if isinstance(got, Skipped):
            assert len(value) == got.length
        elif isinstance(value, list):
            assert list(got) == pytest.approx(value) if not isinstance(value[0], str) else list(got) == value
        else:
            assert got == (pytest.approx(value) if isinstance(value, float) else value)


def test_every_cut_is_an_error() -> None:
    data = packed()
    for cut in range(0, len(data) - 64, 7):
        with pytest.raises(GgufError) as caught:
            Counted(data[:cut]).header()
        assert caught.value.text
        assert caught.value.hint


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "too few"),
        (b"GGML" + bytes(60), "not with GGUF"),
        (b"<!DOCTYPE html><html>not found</html>", "not with GGUF"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack("<IQQ", 99, 0, 0), "version 99"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1), "claims"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "claims"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 62) + bytes(40), "claims"),
        (
            b"GGUF"
            + struct.pack("<IQQ", 3, 0, 1)
            + struct.pack("<Q", 1)
            + b"k"
            + struct.pack("<IIQ", 9, 8, 1 << 40)
            + bytes(20),
            "claims",
        ),
        (
            b"GGUF"
            + struct.pack("<IQQ", 3, 0, 1)
            + struct.pack("<Q", 1)
            + b"k"
            + struct.pack("<IIQ", 9, 9, 1)
            + bytes(20),
            "unknown type 9",
        ),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k" + struct.pack("<I", 77) + bytes(20),
            "value type 77",
        ),
    ],
)
def test_what_is_wrong_is_said(data: bytes, says: str) -> None:
    with pytest.raises(GgufError, match=says):
        Counted(data).header()


def test_twice_the_same_key_or_tensor() -> None:
    one = struct.pack("<Q", 1) + b"k" + struct.pack("<II", 4, 1)
    with pytest.raises(GgufError, match="twice"):
        Counted(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + one + one + bytes(64)).header()
    head, _ = models.header({"general.architecture": "llama"}, [("a", [32], 0), ("a", [32], 0)])
    with pytest.raises(GgufError, match="twice"):
        Counted(head).header()


def test_impossible_tensors() -> None:
    for dims, says in (([1 << 40, 1 << 40], "dimensions"), ([0], "dimensions")):
        head, _ = models.header({"general.architecture": "llama"}, [("a", [32], 0)])
        at = head.index(struct.pack("<Q", 32), 24)
        bad = head[: at - 4] + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, 0) + bytes(64)
        with pytest.raises(GgufError, match=says):
            Counted(bad).header()
    head, _ = models.header({"general.architecture": "llama"}, [("a", [32], 0)])
    at = head.index(struct.pack("<QIQ", 32, 0, 0), 24)
    with pytest.raises(GgufError, match="unknown type 999"):
        Counted(head[:at] + struct.pack("<QIQ", 32, 999, 0) + bytes(32)).header()
    with pytest.raises(GgufError, match="multiple"):
        Counted(head[:at] + struct.pack("<QIQ", 33, 8, 0) + bytes(32)).header()


def test_a_large_vocabulary_costs_little() -> None:
    """Texts are stepped over: what stays in memory is a chunk, whatever the vocabulary's size."""
    data = big_vocabulary(256_000)
    reader = Counted(data)
    tracemalloc.start()
    header = reader.header()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert header.metadata["tokenizer.ggml.tokens"] == Skipped(256_000, "array")
    assert len(header.tensors) == 1
    assert most < 8 << 20
    assert reader.read_bytes < len(data) + (1 << 20)


def test_a_hostile_header_is_bounded() -> None:
    """Millions of empty texts in a large file: refused by their number, not read."""
    size = 1 << 30
    count = 100_000_000
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", 9, 8, count)
    reader = Counted(head + bytes(4 << 20), size)
    with pytest.raises(GgufError, match="claims"):
        reader.header()
    assert reader.read_bytes <= 2 << 20


def test_texts_spread_over_a_huge_file_are_not_followed() -> None:
    """Each length leads into another chunk: the number of chunks is bounded, not only that of the texts."""
    wide, size = 4 << 20, 8 << 40
    start = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", 9, 8, 2_000_000)
    read = 0

    def spread(offset: int, length: int) -> bytes:
        nonlocal read
        read += 1
        if not offset:
            return (start + struct.pack("<Q", wide)).ljust(length, b"\0")
        return struct.pack("<Q", wide).ljust(length, b"\0")

    with pytest.raises(GgufError, match="where no header reaches"):
        read_header(spread, size)
    assert read < 100


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_random_bytes(data: bytes) -> None:
    for whole in (data, b"GGUF" + struct.pack("<IQQ", 3, 2, 3) + data):
        try:
            Counted(whole).header()
        except GgufError as error:
            assert error.text


def test_flipped_bytes() -> None:
    """Any damage gives a header or a GgufError, never anything else."""
    good = packed(vocabulary=True)
    rng = random.Random(5)
    refused = 0
    for _ in range(600):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(0, 2048 if rng.random() < 0.7 else len(data))] = rng.randrange(256)
        try:
            Counted(bytes(data)).header()
        except GgufError:
            refused += 1
    assert refused > 100
