"""Plans: what is refused before anything is touched, what changes, and what is already so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollamactl.core import dropin
from ollamactl.core import plan as planning
from ollamactl.core.dropin import Managed
from ollamactl.core.feeds import Collector
from ollamactl.core.plan import Plan, Request
from ollamactl.errors import Failure
from ollamactl.platforms import linux
from tests.hosts import UNIT_PATH, TextHost, recorded

UNIT = "ollama.service"
OURS, OUR_FILE = dropin.dropin_path(UNIT), dropin.env_file_path(UNIT)


def plan(host: TextHost, request: Request) -> Plan:
    collector = Collector(host, UNIT)
    facts = collector.facts((*planning.NEEDS, *planning.NICE))
    return planning.plan(request, facts, linux.ours(collector, facts))


def listed(host: TextHost, path: str) -> None:
    """A further drop-in, the last in systemd's order."""
    key = next(k for k in host.answers if "show.*ollama" in k)
    shown = host.answers[key]
    assert isinstance(shown, str)
    lines = (f"{line} {path}" if line.startswith("DropInPaths=") else line for line in shown.splitlines())
    host.answers[key] = "\n".join(lines)


def machine(scenario: str = "02-parallel4", ours: str | None = None, **files: str) -> TextHost:
    """A recorded machine, with our drop-in listed by systemd where it is given."""
    host = recorded(scenario)
    if ours is not None:
        host.files[OURS] = ours
        listed(host, OURS)
    host.files |= files
    return host


def test_a_change_is_one_file_one_reload_one_restart() -> None:
    made = plan(machine(), Request(set={"OLLAMA_NUM_PARALLEL": "2"}))
    assert [(f.path, f.before) for f in made.files] == [(OURS, None)]
    assert made.files[0].after is not None and 'Environment="OLLAMA_NUM_PARALLEL=2"' in made.files[0].after
    assert (made.restart, made.reload, made.refused) == (True, True, ())
    assert [(c.name, c.now, c.new) for c in made.changes] == [("OLLAMA_NUM_PARALLEL", "4", "2")]


def test_planning_again_after_an_apply_gives_an_empty_plan() -> None:
    text = plan(machine(), Request(set={"OLLAMA_NUM_PARALLEL": "4"})).files[0].after
    for value in ("4", " 4 ", '"4"'):  # as Ollama reads it
        again = plan(machine(ours=text), Request(set={"OLLAMA_NUM_PARALLEL": value}))
        assert again.empty, value


def test_a_file_that_is_right_with_a_process_that_is_old_is_restarted() -> None:
    text = plan(machine(), Request(set={"OLLAMA_NUM_PARALLEL": "2"})).files[0].after
    again = plan(machine(ours=text), Request(set={"OLLAMA_NUM_PARALLEL": "2"}))
    assert (again.files, again.restart) == ((), True)


@pytest.mark.parametrize(
    ("values", "id"),
    [
        ({"OLLAMA_NUM_PARALEL": "4"}, "unknown_ollama_variable"),
        ({"LD_PRELOAD": "/x.so"}, "foreign_variable"),
        ({"OLLAMA_NUM_PARALLEL": "abc"}, "invalid_value"),
        ({"OLLAMA_NUM_PARALLEL": "4.0"}, "invalid_value"),
        ({"OLLAMA_NUM_PARALLEL": "257"}, "parallel_above_maximum"),
        ({"OLLAMA_KEEP_ALIVE": "5 minutes"}, "invalid_value"),
        ({"OLLAMA_FLASH_ATTENTION": "off"}, "boolean_counts_as_true"),
        ({"OLLAMA_KV_CACHE_TYPE": "q9_9"}, "kv_type_invalid"),
        ({"OLLAMA_KV_CACHE_TYPE": "q8_0", "OLLAMA_FLASH_ATTENTION": "0"}, "kv_type_without_flash_attention"),
        ({"OLLAMA_HOST": "0.0.0.0"}, "api_exposed_without_auth"),
        ({"OLLAMA_HOST": "[::]:11434"}, "api_exposed_without_auth"),
        ({"OLLAMA_HOST": ":11434"}, "api_exposed_without_auth"),
        ({"OLLAMA_HOST": "192.168.1.5"}, "api_exposed_without_auth"),
        ({"OLLAMA_HOST": "127.0.0.1:99999"}, "invalid_value"),
        ({"OLLAMA_NEW_ENGINE": "1"}, "variable_unknown_to_release"),
        ({"OLLAMA_MAX_VRAM": "1"}, "variable_unknown_to_release"),
        ({"LLAMA_ARG_N_PARALLEL": "4"}, "llama_arg_without_effect"),
    ],
)
def test_what_would_not_work_is_refused_and_can_be_overridden(values: dict[str, str], id: str) -> None:
    refused = plan(machine(), Request(set=values)).refused
    assert [x.id for x in refused] == [id]
    assert refused[0].hint
    assert plan(machine(), Request(set=values, overrides=(id,))).refused == ()


@pytest.mark.parametrize(
    "values",
    [
        {"OLLAMA_HOST": "127.0.0.1:11500"}, {"OLLAMA_HOST": "localhost"}, {"OLLAMA_HOST": "[::1]:11434"},
        {"OLLAMA_KV_CACHE_TYPE": "Q8_0"}, {"OLLAMA_KV_CACHE_TYPE": "f16", "OLLAMA_FLASH_ATTENTION": "0"},
        {"OLLAMA_FLASH_ATTENTION": "TRUE"}, {"OLLAMA_KEEP_ALIVE": "-1"}, {"OLLAMA_NUM_PARALLEL": "256"},
        {"LLAMA_ARG_CACHE_RAM": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}, {"LLAMA_ARG_NEW_THING": "1"},
    ],
)  # fmt: skip
def test_what_works_is_not_refused(values: dict[str, str]) -> None:
    assert plan(machine(), Request(set=values)).refused == ()


def test_missing_models_are_named_with_the_nearest() -> None:
    tags = '{"models":[{"name":"gemma3:270m"},{"name":"qwen3:latest"}]}'
    host = machine()
    host.answers["api/tags"] = tags
    made = plan(host, Request(set={"OLLAMA_NUM_PARALLEL": "2"}, models=("gemma3:27m", "qwen3", "Gemma3:270M")))
    assert [(x.id, x.hint) for x in made.refused] == [("model_not_found", "did you mean gemma3:270m?")]


def test_names_that_an_environment_file_sets_go_into_our_own() -> None:
    host = machine()
    host.files[UNIT_PATH] += "[Service]\nEnvironmentFile=/etc/default/ollama\n"
    host.files["/etc/default/ollama"] = "OLLAMA_NUM_PARALLEL=6\n"
    made = plan(host, Request(set={"OLLAMA_NUM_PARALLEL": "2", "OLLAMA_MAX_QUEUE": "9"}))
    assert [f.path for f in made.files] == [OUR_FILE, OURS]  # there before the drop-in names it
    assert [f.mode for f in made.files] == [0o600, 0o644]
    assert made.refused == ()
    assert made.managed.in_file == ("OLLAMA_NUM_PARALLEL",)


@pytest.mark.parametrize(
    ("line", "id"),
    [
        ("Environment=OLLAMA_NUM_PARALLEL=6", "dropin_overridden_by_later_dropin"),
        ("EnvironmentFile=/etc/default/ollama", "environment_file_overrides_dropin"),
        ("UnsetEnvironment=OLLAMA_NUM_PARALLEL", "unset_environment_wins"),
        ("ExecStart=\nExecStart=/usr/bin/env OLLAMA_NUM_PARALLEL=6 /usr/local/bin/ollama serve",
         "wrapper_overrides_environment"),
    ],
)  # fmt: skip
def test_what_would_still_win_is_found_with_file_and_line(line: str, id: str) -> None:
    late = f"/etc/systemd/system/{UNIT}.d/zzz-late.conf"
    host = machine()
    host.files[late] = f"[Service]\n{line}\n"
    host.files["/etc/default/ollama"] = "# x\nOLLAMA_NUM_PARALLEL=6\n"
    listed(host, late)
    (lint,) = plan(host, Request(set={"OLLAMA_NUM_PARALLEL": "2"})).refused
    assert lint.id == id
    assert ("/etc/default/ollama:2" if "environment_file" in id else late) in lint.text


def test_secrets_are_in_the_file_that_only_root_reads_and_on_no_screen() -> None:
    made = plan(machine(), Request(set={"HTTPS_PROXY": "http://me:secret@proxy:1"}, secret=("HTTPS_PROXY",)))
    assert [f.secret for f in made.files] == [True, False]
    assert made.files[1].after is not None and "secret@" not in made.files[1].after
    assert made.changes[0].secret


def test_unset_and_release() -> None:
    text = plan(machine(), Request(set={"OLLAMA_NUM_PARALLEL": "4", "OLLAMA_MAX_QUEUE": "9"})).files[0].after
    absent = plan(machine(ours=text), Request(unset=("OLLAMA_MAX_QUEUE",)))
    assert absent.files[0].after is not None and "UnsetEnvironment=OLLAMA_MAX_QUEUE" in absent.files[0].after
    assert absent.wanted == {"OLLAMA_NUM_PARALLEL": "4", "OLLAMA_MAX_QUEUE": None}
    gone = plan(machine(ours=text), Request(release=("OLLAMA_MAX_QUEUE", "OLLAMA_NUM_PARALLEL")))
    assert [(f.path, f.after) for f in gone.files] == [(OURS, None)]


def test_a_release_of_what_is_not_managed_is_said_and_changes_nothing() -> None:
    found = plan(machine(), Request(release=("OLLAMA_NOSUCH",)))
    assert [(x.id, x.name) for x in found.lints] == [("not_managed", "OLLAMA_NOSUCH")]
    assert not found.refused and found.empty and not found.changes


values = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\n\r\0"), max_size=60)
names = st.sampled_from(["OLLAMA_ORIGINS", "OLLAMA_MODELS", "LLAMA_ARG_X", "OLLAMA_LLM_LIBRARY"])


@given(st.dictionaries(names, values, max_size=4), st.sets(names, max_size=2), st.sets(names, max_size=2))
def test_what_we_write_we_read_back(set_: dict[str, str], unset: set[str], in_file: set[str]) -> None:
    state = Managed(
        dict(sorted(set_.items())), tuple(sorted(unset - set_.keys())), tuple(sorted(in_file & set_.keys()))
    )
    try:
        written = linux.render(UNIT, state)
    except Failure as failure:
        assert failure.id == "value_refused"
        return
    assert dropin.managed(UNIT, *written) == state
