"""Remedies as this host needs them."""

from __future__ import annotations

import pytest

from ollamactl.core.facts import Facts, LoadedModel
from ollamactl.core.remedies import of_model

ONE = Facts(loaded=(LoadedModel(name="qwen3:8b"),))


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("sudo ollamactl plan --parallel 1,2,2", "ollamactl plan {} --parallel 1,2"),
        ("free -h; sudo ollamactl plan; x", "free -h; ollamactl plan {}; x"),
        ("ollamactl plan    # with an f16 cache", "ollamactl plan {}    # with an f16 cache"),
        ("ollamactl plan --client-timeout 60", "ollamactl plan --client-timeout 60"),
        ("ollamactl plan MODEL --parallel 1,2", "ollamactl plan MODEL --parallel 1,2"),
        ("systemctl restart ollama", "systemctl restart ollama"),
    ],
)
def test_plan_names_its_model(said: str, shown: str) -> None:
    assert of_model(said, ONE) == shown.format("qwen3:8b")
    assert of_model(said, Facts()) == shown.format("MODEL")
    two = Facts(loaded=(*(ONE.loaded or ()), LoadedModel(name="other")))
    assert of_model(said, two) == shown.format("MODEL")
