"""Ends of vocabularies that are remembered: a header is the same with and without, and nothing wrong is believed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ollamactl.core.parse.gguf import GgufHeader, read_header
from ollamactl.host import headers, vocabularies
from tests.engine.models import header, words


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    """As in a new process."""
    vocabularies._found.clear()
    yield
    vocabularies._found.clear()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    head, size = header({"general.architecture": "llama", **words(5000)}, [("token_embd.weight", [32, 64], 0)])
    path = tmp_path / "m.gguf"
    path.write_bytes(head + bytes(size))
    return path


def read(path: Path, ends: dict[int, int]) -> tuple[int, GgufHeader]:
    """How many bytes were looked at in chunks of a page, and the header."""
    data, pages = path.read_bytes(), []

    def page(offset: int, length: int) -> bytes:
        pages.append(offset)
        return data[offset : offset + min(length, 4096)]

    found = read_header(page, len(data), ends)
    return len(pages), found


def test_the_second_reading_steps_over_at_once(model: Path) -> None:
    ends: dict[int, int] = {}
    first, whole = read(model, ends)
    second, again = read(model, ends)
    assert again == whole and len(whole.tensors) == 1
    assert first > 10 and second <= 4


def test_remembered_by_the_file_as_it_is(model: Path, tmp_path: Path) -> None:
    headers.read((str(model),), partial(vocabularies.of, folder=str(tmp_path)))
    vocabularies.store(str(tmp_path))
    vocabularies._found.clear()
    assert vocabularies.of(os.stat(model), str(tmp_path))
    os.utime(model, (1, 1))
    assert not vocabularies.of(os.stat(model), str(tmp_path))
    assert os.stat(tmp_path / vocabularies.NAME).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("wrong", [1, 60, 10**6, 2**62, -1])
def test_a_wrong_end_changes_no_answer(model: Path, wrong: int) -> None:
    ends: dict[int, int] = {}
    whole = headers.read((str(model),), lambda _: ends)
    assert ends
    for first, end in ends.items():
        ends[first] = end + wrong
    assert headers.read((str(model),), lambda _: ends) == whole


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"a": {"b": 1}}', b"\xff" * 100])
def test_a_damaged_memory_is_an_empty_one(text: bytes, tmp_path: Path) -> None:
    (tmp_path / vocabularies.NAME).write_bytes(text)
    assert vocabularies.read(str(tmp_path)) == {}


def test_only_the_newest_are_kept(model: Path, tmp_path: Path) -> None:
    old = {f"old:{n}": {1: 2} for n in range(vocabularies.LIMIT)}
    (tmp_path / vocabularies.NAME).write_text(json.dumps(old))
    headers.read((str(model),), partial(vocabularies.of, folder=str(tmp_path)))
    vocabularies.store(str(tmp_path))
    kept = vocabularies.read(str(tmp_path))
    assert len(kept) == vocabularies.LIMIT and "old:0" not in kept and "old:1" in kept
