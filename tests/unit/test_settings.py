"""The registry against what a real Ollama printed, and Go's own reading of values."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollamactl.core import govalues, settings
from ollamactl.core.settings import REGISTRY
from tests.hosts import RECORDED, facts_of, recorded

RELEASE = "0.33.0-rc2"


def config(scenario: str) -> dict[str, str]:
    start = facts_of(recorded(scenario)).start
    assert start is not None and start.config is not None
    return start.config


def test_the_registry_holds_every_variable_that_this_release_prints() -> None:
    assert set(config("01-defaults")) <= set(REGISTRY)
    newest = {s.name for s in settings.SETTINGS if s.printed and settings.known_in(s, RELEASE)}
    assert newest == set(config("01-defaults"))


def test_defaults_are_those_that_were_printed() -> None:
    printed = config("01-defaults")
    for name, setting in REGISTRY.items():
        if name in printed and setting.kind not in ("path", "origins", "debug"):
            assert setting.default(RELEASE) == printed[name], name


SET = sorted(p.parent.name for p in RECORDED.glob("*/proc_environ.txt") if p.parent.name[:2] not in ("11", "17", "24"))


@pytest.mark.parametrize("scenario", SET)
def test_every_recorded_value_is_read_as_ollama_read_it(scenario: str) -> None:
    facts = facts_of(recorded(scenario))
    if facts.start is None or facts.start.config is None:
        assert scenario == "09-port-in-use"
        return
    assert facts.process is not None and facts.process.environ is not None
    for name, printed in facts.start.config.items():
        text = facts.process.environ.get(name)
        assert settings.same(REGISTRY[name], text, printed, RELEASE), (name, text, printed)


@pytest.mark.parametrize(
    ("text", "printed", "well"),
    [
        ("", "http://127.0.0.1:11434", True),
        ("0.0.0.0", "http://0.0.0.0:11434", True),
        (":8080", "http://:8080", True),
        ("[::1]:9", "http://[::1]:9", True),
        ("::1", "http://[::1]:11434", True),
        ("http://models.example", "http://models.example:80", False),
        ("https://models.example/base", "https://models.example:443/base", False),
        ("127.0.0.1:99999", "http://127.0.0.1:11434", False),
        ("example:port", "http://example:11434", False),
        (' "127.0.0.1:11500" ', "http://127.0.0.1:11500", True),
    ],
)
def test_addresses(text: str, printed: str, well: bool) -> None:
    read = REGISTRY["OLLAMA_HOST"].read(text)
    assert (read.printed, not read.problem) == (printed, well)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("5m", "5m0s"), ("300", "5m0s"), ("1h30m", "1h30m0s"), ("-1", "2562047h47m16.854775807s"), ("90s", "1m30s"),
        ("1.5h", "1h30m0s"), ("0", "0s"), ("250ms", "250ms"), ("-5m", "2562047h47m16.854775807s"), (".5s", "500ms"),
        ("1h1m1s", "1h1m1s"), ("100us", "100µs"), ("5", "5s"), ("+5m", "5m0s"), ("1e3", "5m0s"), ("5 m", "5m0s"),
        ("24h", "24h0m0s"), ("2562047h47m16.854775807s", "2562047h47m16.854775807s"), ("9999999h", "5m0s"),
    ],
)  # fmt: skip
def test_durations(text: str, printed: str) -> None:
    assert REGISTRY["OLLAMA_KEEP_ALIVE"].read(text).printed == printed


@given(st.integers(min_value=0, max_value=govalues.FOREVER))
def test_a_printed_duration_reads_as_itself(ns: int) -> None:
    assert govalues.parse_duration(govalues.format_duration(ns)) == ns


@given(st.text(max_size=40))
def test_no_text_breaks_a_reader(text: str) -> None:
    for setting in settings.SETTINGS:
        printed = setting.read(text, RELEASE).printed
        if setting.kind in ("uint", "bool", "duration", "timeout"):
            assert setting.read(printed, RELEASE).printed == printed


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("OLLAMA_NUM_PARALEL", "OLLAMA_NUM_PARALLEL"), ("NUM_PARALLEL", "OLLAMA_NUM_PARALLEL"),
        ("OLLAMA_PARALLEL", "OLLAMA_NUM_PARALLEL"), ("OLLAMA_NUM_CTX", "OLLAMA_CONTEXT_LENGTH"),
        ("ollama_num_parallel", "OLLAMA_NUM_PARALLEL"), ("OLLAMA_CONTEXT_SIZE", "OLLAMA_CONTEXT_LENGTH"),
        ("OLLAMA_KEEPALIVE", "OLLAMA_KEEP_ALIVE"), ("OLLAMA_MAX_LOADED", "OLLAMA_MAX_LOADED_MODELS"),
        ("OLLAMA_FLASH_ATTN", "OLLAMA_FLASH_ATTENTION"), ("OLLAMA_ORIGIN", "OLLAMA_ORIGINS"),
        ("EDITOR_COLOUR", ""), ("LD_PRELOAD", ""),
    ],
)  # fmt: skip
def test_a_mistyped_name_finds_the_real_one(wrong: str, right: str) -> None:
    assert settings.nearest(wrong) == right


def test_defaults_differ_by_release() -> None:
    slots = REGISTRY["OLLAMA_NUM_PARALLEL"]
    assert [slots.default(r) for r in ("0.1.40", "0.2.0", "0.9.6", "0.10.0", "0.33.0", "", "0.0.0")] == list("1001111")
    context = REGISTRY["OLLAMA_CONTEXT_LENGTH"]
    assert [context.default(r) for r in ("0.5.13", "0.6.7", "0.15.4", "0.15.5")] == ["2048", "4096", "4096", "0"]
    assert not settings.known_in(REGISTRY["OLLAMA_NEW_ENGINE"], "0.30.11")
    assert settings.known_in(REGISTRY["OLLAMA_NEW_ENGINE"], "0.24.0")


def test_every_row_is_complete() -> None:
    flags = [s.flag for s in settings.FLAGGED]
    assert len(flags) == len(set(flags))
    for setting in settings.SETTINGS:
        assert setting.help and not setting.help.endswith(".")
        assert re.fullmatch(r"[A-Za-z_]+", setting.name)
        assert setting.example or setting.until, f"{setting.name} has no value that the lab could try"
        if setting.example:
            assert not setting.read(setting.example, RELEASE).problem


def test_of_origins_only_what_was_set_is_shown() -> None:
    setting = REGISTRY["OLLAMA_ORIGINS"]
    assert settings.own_part(setting, config("01-defaults")["OLLAMA_ORIGINS"]) == "[]"
    printed = config("01-defaults")["OLLAMA_ORIGINS"].replace("[", "[https://a https://b ", 1)
    assert settings.own_part(setting, printed) == "[https://a https://b]"
    assert settings.own_part(REGISTRY["OLLAMA_REMOTES"], "[http://localhost]") == "[http://localhost]"
