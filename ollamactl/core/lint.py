"""What is wrong with a request before anything is touched. Errors refuse it (exit 6) unless overridden by id."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from ollamactl.core import govalues, settings
from ollamactl.core.dropin import Managed
from ollamactl.core.settings import MAX_SLOTS, Setting

# Options of llama-server that Ollama always passes as arguments, which beat the environment.
PASSED_BY_OLLAMA = {
    "LLAMA_ARG_N_PARALLEL": "--parallel",
    "LLAMA_ARG_CTX_SIZE": "--context-length",
    "LLAMA_ARG_MODEL": "",
    "LLAMA_ARG_PORT": "",
    "LLAMA_ARG_HOST": "",
    "LLAMA_ARG_FLASH_ATTN": "--flash-attention",
    "LLAMA_ARG_BATCH": "",
    "LLAMA_ARG_UBATCH": "",
}


class Lint(msgspec.Struct, frozen=True):
    id: str
    severity: Literal["error", "warning"]
    text: str
    hint: str = ""
    name: str = ""


def lint(new: Managed, asked: dict[str, str], release: str, known_keys: frozenset[str]) -> Iterator[Lint]:
    """`new` is what will be managed, `asked` what this request sets; `release` the running one (empty: not known);
    `known_keys` the variables that its `server config` line shows (empty: no such line)."""
    for name, value in asked.items():
        yield from _name(name, release, known_keys)
        if (setting := settings.lookup(name)) is not None:
            yield from _value(setting, value, release)
    yield from _together(new, asked, release)


def _name(name: str, release: str, known_keys: frozenset[str]) -> Iterator[Lint]:
    setting = settings.lookup(name)
    if setting is None:
        near = settings.nearest(name)
        if name.upper().startswith("OLLAMA") or near:
            text = f"Ollama knows no variable {name} and would ignore it silently"
            hint = f"did you mean {near}?" if near else "the names are in: ollamactl apply --help"
            yield Lint("unknown_ollama_variable", "error", text, hint, name)
        else:
            text = f"{name} is not a setting of Ollama, its engine, GPU visibility or a proxy"
            yield Lint("foreign_variable", "error", text, "if it is meant: --override foreign_variable", name)
        return
    if name in PASSED_BY_OLLAMA:
        instead = PASSED_BY_OLLAMA[name]
        text = f"{name} has no effect: Ollama passes that option itself"
        yield Lint("llama_arg_without_effect", "error", text, f"use {instead}" if instead else "", name)
    elif not settings.known_in(setting, release) or (
        setting.printed and known_keys and name not in known_keys and name.startswith("OLLAMA_")
    ):
        span = f"until {setting.until}" if setting.until else f"since {setting.since}"
        text = f"{name} is not known to the Ollama that runs here ({release or 'its server config lacks it'})"
        yield Lint("variable_unknown_to_release", "error", text, f"Ollama knows it {span}", name)
    if name in settings.CLIENT_ONLY:
        text = f"{name} is read by the client, not by the server"
        yield Lint("client_side_variable_in_service", "warning", text, "set it in the user's shell", name)


def _value(setting: Setting, value: str, release: str) -> Iterator[Lint]:
    name, flag = setting.name, settings.option(setting)
    read = setting.read(value, release)
    if read.problem:
        kind = "boolean_counts_as_true" if setting.kind == "bool" else "invalid_value"
        hint = f"{flag} 1 or 0" if setting.kind == "bool" else setting.help
        yield Lint(kind, "error", f"{name}={value}: {read.problem}", hint, name)
    chosen = govalues.trimmed(value)
    if setting.choices and chosen and chosen.lower() not in setting.choices:
        text = f"{name}={value}: the engine has no such type, so every model would fail to load"
        yield Lint("kv_type_invalid", "error", text, "one of " + ", ".join(setting.choices), name)
    if name == "OLLAMA_NUM_PARALLEL" and not read.problem:
        if int(read.printed) > MAX_SLOTS:
            text = f"{read.printed} slots: the engine loads no model with more than {MAX_SLOTS}"
            yield Lint("parallel_above_maximum", "error", text, f"--parallel {MAX_SLOTS} or fewer", name)
        if int(read.printed) == 0 and settings.version(release) >= (0, 10):
            yield Lint("invalid_value", "warning", f"{name}=0 runs with one slot", "say --parallel 1", name)
    if name == "OLLAMA_HOST" and exposed(read.printed):
        where = read.printed.split("://", 1)[-1]
        text = f"{where} would be open to everyone who reaches this host: Ollama has no authentication"
        hint = (
            "keep 127.0.0.1 and use an ssh tunnel, a private network, or ollamactl front nginx; "
            "or --override api_exposed_without_auth"
        )
        yield Lint("api_exposed_without_auth", "error", text, hint, name)


def exposed(printed_host: str) -> bool:
    """Whether a printed OLLAMA_HOST is reachable from other machines."""
    found = govalues.address(printed_host)
    name = found[0] if found else ""
    return found is not None and not (name == "localhost" or name == "::1" or re.match(r"127\.", name))


def _together(new: Managed, asked: dict[str, str], release: str) -> Iterator[Lint]:
    kv = govalues.trimmed(new.values.get("OLLAMA_KV_CACHE_TYPE", "")).lower()
    flash = new.values.get("OLLAMA_FLASH_ATTENTION")
    if not ({"OLLAMA_KV_CACHE_TYPE", "OLLAMA_FLASH_ATTENTION"} & set(asked)) or kv in ("", "f32", "f16", "bf16"):
        return
    off = flash is not None and settings.REGISTRY["OLLAMA_FLASH_ATTENTION"].read(flash).printed == "false"
    if off and flash:
        text = f"a {kv} cache needs flash attention, which is off: "
        old = settings.version(release) and settings.version(release) < (0, 30)
        text += "Ollama would use f16 instead" if old else "every model would fail to load"
        hint = f"--flash-attention 1 --kv-cache-type {kv}"
        yield Lint("kv_type_without_flash_attention", "error", text, hint, "OLLAMA_KV_CACHE_TYPE")
    elif not flash and settings.version(release) and settings.version(release) < (0, 30):
        text = f"a {kv} cache is used only with flash attention, which {release} leaves off by itself"
        hint = f"--flash-attention 1 --kv-cache-type {kv}"
        yield Lint("kv_type_without_flash_attention", "error", text, hint, "OLLAMA_KV_CACHE_TYPE")
