"""The map that `server config` prints."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from ollamactl.core.parse.server_config import parse_map

NAMES = sorted(
    [
        "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "HIP_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION", "HTTPS_PROXY",
        "HTTP_PROXY", "LLAMA_ARG_FIT", "NO_PROXY", "OLLAMA_CONTEXT_LENGTH", "OLLAMA_DEBUG", "OLLAMA_FLASH_ATTENTION",
        "OLLAMA_HOST", "OLLAMA_KEEP_ALIVE", "OLLAMA_KV_CACHE_TYPE", "OLLAMA_MAX_QUEUE", "OLLAMA_MODELS",
        "OLLAMA_NUM_PARALLEL", "OLLAMA_ORIGINS", "OLLAMA_REMOTES", "OLLAMA_VULKAN", "ROCR_VISIBLE_DEVICES",
        "http_proxy", "https_proxy", "no_proxy",
    ]
)  # fmt: skip


def go_map(values: dict[str, str]) -> str:
    return "map[" + " ".join(f"{name}:{values[name]}" for name in sorted(values)) + "]"


def test_values_with_blanks_colons_and_brackets() -> None:
    values = dict.fromkeys(NAMES, "") | {
        "OLLAMA_HOST": "http://[::1]:11434",
        "OLLAMA_MODELS": "C:\\Users\\My Name\\models",
        "OLLAMA_ORIGINS": "[http://localhost https://localhost:* app://* http://[::1]:*]",
        "OLLAMA_KEEP_ALIVE": "2562047h47m16.854775807s",
        "OLLAMA_REMOTES": "[ollama.com]",
        "HTTPS_PROXY": "http://user:pass word@proxy:3128",
        "no_proxy": "localhost, 127.0.0.1, a:b",
    }
    assert parse_map(go_map(values)) == values


def test_a_value_that_looks_like_keys_is_not_believed() -> None:
    """Fakes within a value stand before the true keys, which follow in order."""
    values = dict.fromkeys(NAMES, "") | {
        "OLLAMA_KV_CACHE_TYPE": "x OLLAMA_NUM_PARALLEL:64 OLLAMA_MAX_QUEUE:1",
        "OLLAMA_MODELS": "/m OLLAMA_NUM_PARALLEL:99 HTTP_PROXY:evil",
        "OLLAMA_NUM_PARALLEL": "4",
        "OLLAMA_MAX_QUEUE": "512",
    }
    assert parse_map(go_map(values)) == values


def test_unbalanced_brackets_swallow_nothing() -> None:
    values = dict.fromkeys(NAMES, "") | {"OLLAMA_HOST": "[", "OLLAMA_MODELS": "/a]b[c", "OLLAMA_NUM_PARALLEL": "2"}
    assert parse_map(go_map(values)) == values


def test_a_map_that_was_cut_is_none() -> None:
    whole = go_map(dict.fromkeys(NAMES, "x"))
    assert parse_map(whole[:-30]) is None
    assert parse_map("") is None
    assert parse_map("map[") is None
    assert parse_map("map[]") == {}


free = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=30)


@given(st.dictionaries(st.sampled_from(NAMES), free, min_size=1))
def test_reads_back_what_go_prints(values: dict[str, str]) -> None:
    text = go_map(values)
    assume(not any(f" {name}:" in " " + value or f"[{name}:" in value for name in NAMES for value in values.values()))
    assume(not any(value != value.strip() for value in values.values()))
    assert parse_map(text) == values


@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(NAMES), min_size=3), st.integers(0, 99))
def test_hostile_values_change_no_other_variable(fakes: dict[str, str], number: int) -> None:
    """A value that names a *later* key never changes what the real one, printed after it, says."""
    values = dict.fromkeys(NAMES, "real")
    holder = min(fakes)
    fake = max(fakes.values())
    assume(fake > holder)
    values[holder] = f"x {fake}:{number}"
    found = parse_map(go_map(values))
    assert found is not None
    assert found[fake] == "real"
    assert {name: found[name] for name in NAMES if name != holder} == {
        name: values[name] for name in NAMES if name != holder
    }


@given(st.text(max_size=300))
def test_never_raises(text: str) -> None:
    parse_map(text)
    parse_map("map[" + text + "]")
