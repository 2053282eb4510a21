"""`ollama ps` text: read and written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollamactl.core.facts import LoadedModel
from ollamactl.core.parse.ollama_ps import format_processor, format_row, format_size, parse

NEW = """NAME                 ID              SIZE      PROCESSOR          CONTEXT    UNTIL
gemma3:270m          14f8ac0fb3c4    393 MB    100% CPU           4096       4 minutes from now
qwen3:8b             500a1f067a9f    10 GB     33%/67% CPU/GPU    32768      Forever
llama3.1:70b         46e0c10c039e    42.5 GB   100% GPU           8192       Stopping...
"""
OLD = """NAME         ID              SIZE      PROCESSOR          UNTIL
llama3:8b    365c0bd3c000    6.7 GB    100% GPU           4 minutes from now
phi3:3.8b    4f2222927938    3.4 GB    48%/52% CPU/GPU    9 seconds from now
"""


def test_both_column_sets() -> None:
    new = parse(NEW)
    assert [(one.name, one.digest, one.size, one.context, one.expires) for one in new] == [
        ("gemma3:270m", "14f8ac0fb3c4", 393_000_000, 4096, "4 minutes from now"),
        ("qwen3:8b", "500a1f067a9f", 10_000_000_000, 32768, "Forever"),
        ("llama3.1:70b", "46e0c10c039e", 42_500_000_000, 8192, "Stopping..."),
    ]
    assert [one.size_vram for one in new] == [0, 6_700_000_000, 42_500_000_000]
    old = parse(OLD)
    assert [(one.context, one.expires) for one in old] == [(None, "4 minutes from now"), (None, "9 seconds from now")]
    assert old[1].size_vram == round(3.4e9 * 0.52)


def test_pasted_with_a_prompt_and_rules() -> None:
    text = "user@host:~$ ollama ps\r\n" + NEW.replace("\n", "\r\n") + "user@host:~$ "
    assert len(parse(text)) == 3
    assert len(parse("\n".join("> " + line for line in NEW.splitlines()))) == 3
    assert parse("") == ()


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 KB"),
        (1500, "1.5 KB"),
        (393_960_488, "393 MB"),
        (287_246_908, "287 MB"),
        (9_960_000, "10.0 MB"),
        (10_990_000, "10 MB"),
        (1_200_000_000, "1.2 GB"),
        (3_000_000_000, "3 GB"),
        (3_049_521_151, "3.0 GB"),
        (42_600_000_000, "42 GB"),
        (1_250_000_000_000, "1.2 TB"),
    ],
)
def test_size(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("size", "vram", "text"),
    [
        (100, 0, "100% CPU"),
        (100, 100, "100% GPU"),
        (1000, 996, "0%/100% CPU/GPU"),  # 99.6 %
        (300, 200, "33%/67% CPU/GPU"),
        (200, 1, "100%/0% CPU/GPU"),
        (200, 99, "51%/49% CPU/GPU"),  # 50.5 % is rounded up
        (100, 101, "Unknown"),
        (0, 5, "Unknown"),
        (0, 0, "100% CPU"),
    ],
)
def test_processor(size: int, vram: int, text: str) -> None:
    assert format_processor(size, vram) == text


@given(st.integers(1, 10**14), st.floats(0, 1), st.one_of(st.none(), st.integers(1, 10**7)))
def test_what_is_written_is_read_back(size: int, share: float, context: int | None) -> None:
    model = LoadedModel(name="a:b", digest="14f8ac0fb3c4", size=size, size_vram=int(size * share), context=context)
    columns = format_row(model)
    found = parse(f"a:b    14f8ac0fb3c4    {columns[0]}    {columns[1]}    {columns[2]}    Forever")
    assert len(found) == 1
    assert found[0].context == context
    assert found[0].size == pytest.approx(size, rel=0.1)
    assert found[0].size_vram == pytest.approx(model.size_vram, abs=0.15 * size)


@given(st.text(max_size=200))
def test_never_raises(text: str) -> None:
    parse(text)
