"""What a host offers a model, what fits, and what a change of settings would do: capacity, sizing, ways, preflight."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from ollamactl.core import dropin
from ollamactl.core.capacity import CONTEXT, budget
from ollamactl.core.facts import (
    Compute,
    Effective,
    Facts,
    HostMemory,
    LoadedModel,
    Origin,
    Process,
    Runner,
    Service,
    Variable,
)
from ollamactl.core.loaded import Held, held
from ollamactl.core.memory_settings import release_of, settings_of, values_now
from ollamactl.core.plan import Plan, Request
from ollamactl.core.preflight import Subject, judged, preflight, values_after
from ollamactl.core.sizing import AUTO_MOST, args_for, auto, cell, largest, start, stays, table, together
from ollamactl.core.ways import options
from tests.unit.planned import GiB, MiB, gpu, host, model, processes, room, settings

QWEN = model()


# -- what there is --


def test_the_driver_s_word_counts_less_its_context() -> None:
    found = room(gpu())
    assert found.places[0].free == int(22.9 * GiB)
    assert found.devices[0].free == int(22.9 * GiB) - CONTEXT["cuda"]
    assert found.kept() == 1024 * MiB and found.devices[0].kind == "cuda"
    assert room(gpu(), context={"cuda": 100 * MiB}).devices[0].free == int(22.9 * GiB) - 100 * MiB


def test_what_a_model_that_leaves_held_is_free_again_and_what_stays_is_not() -> None:
    leaving, staying = Held("a", {0: 2 * GiB}, 3 * GiB), Held("b", {0: 4 * GiB}, GiB)
    found = budget(host(gpu(free=10)), {}, leave=(leaving,), stay=(staying,))
    assert found.places[0].free == 12 * GiB
    assert found.host_free == 63 * GiB
    assert found.beside == (staying,)


def test_without_a_driver_s_word_the_start_s_own_line_counts_less_what_stays() -> None:
    line = Compute(id="GPU-x", library="CUDA", name="CUDA0", description="A100", total=40 * GiB, available=39 * GiB)
    found = budget(host(computes=(line,)), {}, stay=(Held("b", {-1: 4 * GiB}),), leave=(Held("a", {-1: GiB}),))
    assert [(p.label, p.free) for p in found.places] == [("A100", 35 * GiB)]


def test_devices_are_matched_by_id_then_by_address_then_by_maker() -> None:
    gpus = (gpu(0, free=1, pci="0000:01:00.0"), gpu(1, free=2, pci="0000:02:00.0"))
    lines = (Compute(id="1", library="CUDA", text='pci_id="0000:02:00.0"'), Compute(id="0", library="CUDA"))
    assert [p.free for p in budget(host(*gpus, computes=lines), {}).places] == [2 * GiB, GiB]
    lines = (Compute(id="GPU-1", library="CUDA"),)
    assert [p.gpu for p in budget(host(*gpus, computes=lines), {}).places] == [1]


def test_a_server_that_found_only_the_processor_has_no_gpu() -> None:
    found = budget(host(gpu(), computes=(Compute(id="cpu", library="cpu"),)), {})
    assert found.places == () and "no usable GPU" in found.why_cpu


def test_where_no_server_tells_variables_and_kinds_choose() -> None:
    gpus = (gpu(0), gpu(1), gpu(2, vendor="amd", unified=True, name="APU"))
    facts = host(*gpus, computes=())
    assert len(budget(facts, {}).places) == 2
    assert [p.gpu for p in budget(facts, {"CUDA_VISIBLE_DEVICES": "1"}).places] == [1]
    assert [p.gpu for p in budget(facts, {"CUDA_VISIBLE_DEVICES": "GPU-0"}).places] == [0]
    assert budget(facts, {"CUDA_VISIBLE_DEVICES": "-1"}).places == ()


def test_one_library_a_model() -> None:
    lines = (Compute(id="GPU-0", library="CUDA"), Compute(id="0", library="ROCm"), Compute(id="1", library="ROCm"))
    gpus = (gpu(0, free=20), gpu(1, free=15, vendor="amd", uuid=""), gpu(2, free=15, vendor="amd", uuid=""))
    found = budget(host(*gpus, computes=lines), {})
    assert [p.device.kind for p in found.places] == ["rocm", "rocm"]
    assert any("two libraries" in n for n in found.notes)


def test_assumed_devices() -> None:
    assert [p.free for p in room(gpu(), gpu_free=(8 * GiB, 4 * GiB)).places] == [8 * GiB, 4 * GiB]
    none = room(gpu(), gpu_free=(0,))
    assert none.places == () and "--gpu-free" in none.why_cpu


def test_a_limit_of_the_unit_and_a_margin_of_the_engine() -> None:
    facts = host(service=Service(id="ollama.service", memory_max=2 * GiB))
    limited = budget(facts, {})
    assert (limited.host_free, limited.unlimited) == (2 * GiB, 60 * GiB)
    base = settings(context_length=32768)
    assert args_for(QWEN, base, limited).batch == args_for(QWEN, base, budget(host(), {})).batch == 1024
    assert room(gpu()).kept(projector=100 * MiB) == 1124 * MiB
    assert budget(host(gpu()), {"LLAMA_ARG_FIT_TARGET": "2048"}).kept() == 2048 * MiB


def test_shared_memory_is_the_host_s() -> None:
    facts = host(gpu(unified=True, free=0, total=0), computes=(Compute(id="GPU-0", library="CUDA", total=64 * GiB),))
    facts = msgspec.structs.replace(facts, gpus=(msgspec.structs.replace(gpu(unified=True), free=None, total=None),))
    assert budget(facts, {}).places[0].free == 60 * GiB


def test_layers_that_leave_shared_memory_stay_in_it() -> None:
    """A host of 32 GiB whose GPU may take 21: what does not fit there is not helped by the host's part."""
    mac = gpu(free=21.3, total=21.3, vendor="apple", unified=True, uuid="0", compute="")
    metal = Compute(id="0", library="Metal", name="Metal", total=mac.total)
    facts = host(mac, computes=(metal,), memory=HostMemory(total=32 * GiB, available=14 * GiB))
    have = budget(facts, {})
    assert cell(QWEN, settings(), have, 1).verdict == "fits"
    large = cell(QWEN, settings(context_length=32768), have, 4)
    assert large.verdict == "cannot load" and "share memory" in large.fit.why
    apart = budget(host(gpu(free=14.0, total=14.0)), {})
    assert cell(QWEN, settings(context_length=32768), apart, 4).verdict == "spills"


@pytest.mark.parametrize(
    ("text", "flash"), [(None, None), ("", None), ("1", True), ("0", False), ("false", False), ("off", True)]
)
def test_booleans_as_ollama_reads_them(text: str | None, flash: bool | None) -> None:
    assert settings_of({"OLLAMA_FLASH_ATTENTION": text}, (0, 33, 0)).flash_attention is flash


def test_settings_as_ollama_reads_them() -> None:
    values = {"OLLAMA_NUM_PARALLEL": "abc", "OLLAMA_CONTEXT_LENGTH": " 8192 ", "OLLAMA_KV_CACHE_TYPE": "Q8_0"}
    found = settings_of(values, (0, 33, 0))
    assert (found.parallel, found.context_length, found.kv_cache_type) == (None, 8192, "q8_0")


def test_a_printed_default_is_no_setting() -> None:
    config = {"OLLAMA_NUM_PARALLEL": "1", "OLLAMA_FLASH_ATTENTION": "false", "OLLAMA_CONTEXT_LENGTH": "8192"}
    found = values_now(host(config=config))
    assert found["OLLAMA_NUM_PARALLEL"] is None and found["OLLAMA_FLASH_ATTENTION"] is None
    assert found["OLLAMA_CONTEXT_LENGTH"] == "8192"
    assert release_of(host()) == ((0, 33, 0), True)
    assert release_of(Facts())[1] is False


def test_what_a_runner_holds_in_the_driver_s_words_or_the_server_s() -> None:
    runner = Runner(process=Process(pid=7, rss=3 * GiB), model="/m/blobs/sha256-1", name="a:latest")
    loaded = (LoadedModel(name="a:latest", size=5 * GiB, size_vram=5 * GiB),)
    facts = host(gpu(processes=processes(7, 6 * GiB)), runners=(runner,), loaded=loaded)
    [one] = held(facts, {"/m/blobs/sha256-1": GiB})
    assert (one.gpus, one.host, one.whole) == ({0: 6 * GiB}, 2 * GiB, True)
    facts = host(gpu(), gpu(1), runners=(runner,), loaded=loaded)
    assert held(facts)[0].gpus == {-1: 5 * GiB}
    assert held(facts)[0].host == 0  # what of its process is the mapped file is not known


# -- what fits --


@pytest.mark.parametrize(("context", "slots", "gib"), [(8192, 4, 4.5), (32768, 4, 18.0), (8192, 1, 1.125)])
def test_the_cache_is_exact(context: int, slots: int, gib: float) -> None:
    assert cell(QWEN, settings(), room(gpu()), slots, context=context).kv == gib * GiB


def test_a_cell_says_what_it_needs_and_what_is_left() -> None:
    one = cell(QWEN, settings(), room(gpu()), 4)
    assert one.fits and one.args.total_context == 32768 and one.args.batch == 1024
    assert one.need == sum(t.bytes for t in one.full.terms if t.device == 0)
    assert one.room == int(22.9 * GiB) - CONTEXT["cuda"] - 1024 * MiB
    assert one.headroom == one.room - one.need


def test_a_cell_that_spills_still_says_what_it_would_need() -> None:
    one = cell(QWEN, settings(), room(gpu()), 4, context=32768)
    assert one.verdict == "spills" and 0 < one.fit.spilled < 37
    assert one.kv == 18 * GiB and one.headroom is not None and one.headroom < 0


def test_largest_is_the_last_that_fits() -> None:
    for context, kv in ((8192, "f16"), (32768, "f16"), (32768, "q8_0")):
        most = largest(QWEN, settings(), room(gpu()), context=context, kv=kv)
        assert cell(QWEN, settings(), room(gpu()), most, context=context, kv=kv).fits
        assert not cell(QWEN, settings(), room(gpu()), most + 1, context=context, kv=kv).fits
    assert largest(QWEN, settings(), room(gpu(free=3))) == 0


def test_the_quick_question_has_the_same_answer() -> None:
    rng = random.Random(5)
    for _ in range(25):
        where = room(*(gpu(i, free=rng.uniform(4, 24)) for i in range(rng.choice((1, 1, 2)))))
        args = args_for(QWEN, settings(parallel=rng.randint(1, 20), context_length=rng.choice((4096, 20000))), where)
        assert stays(QWEN, args, where) == start(QWEN, args, where).fits


def test_rows_say_what_the_next_slot_costs() -> None:
    [row] = table(QWEN, settings(), room(gpu()), (1, 4), (32768,), ("f16",))
    assert row.largest >= 3 and row.next is not None and row.next.slots == row.largest + 1
    assert abs(row.step - 4.5 * GiB) < 64 * MiB  # the cache, and what the compute buffer changes


def test_contexts_beyond_the_trained_one_are_one_row() -> None:
    rows = table(QWEN, settings(), room(gpu()), (1,), (8192, 65536, 131072), ("f16",))
    assert [r.context for r in rows] == [8192, 40960]
    assert any("trained" in reason for reason in rows[1].cells[0].args.reasons)


def test_a_family_with_one_slot_stays_there() -> None:
    forced = model(architecture="qwen3vl")
    one = cell(forced, settings(), room(gpu()), 4)
    assert one.args.slots == 1 and any("one slot" in r for r in one.args.reasons)
    assert largest(forced, settings(), room(gpu())) == 1
    assert auto((forced,), settings(), room(gpu()))[0] == 1


def test_a_modelfile_s_context_goes_before_the_server_s_and_a_table_s_before_both() -> None:
    fixed = model(num_ctx=4096)
    assert start(fixed, args_for(fixed, settings(num_ctx=fixed.num_ctx), room(gpu())), room(gpu())).context == 4096
    assert cell(fixed, settings(), room(gpu()), 1).context == 4096
    assert cell(fixed, settings(), room(gpu()), 1, context=16384).context == 16384


def test_no_gpu_layers_means_host_memory() -> None:
    one = cell(model(num_gpu=0), settings(), room(gpu()), 1)
    assert one.places == () and one.room == 60 * GiB and one.fits


def test_one_device_where_ollama_s_guess_fits_all_where_not() -> None:
    two = room(gpu(0, free=20), gpu(1, free=22))
    assert cell(QWEN, settings(), two, 1).places == (1,)
    assert cell(QWEN, settings(), two, 12).places == (0, 1)
    assert cell(QWEN, settings(), msgspec.structs.replace(two, spread=True), 1).places == (0, 1)


def test_auto_is_the_most_that_fits_within_reason() -> None:
    slots, why = auto((QWEN,), settings(context_length=32768), room(gpu()))
    assert slots == largest(QWEN, settings(context_length=32768), room(gpu())) and "GPU" in why
    assert auto((QWEN,), settings(), room(gpu(free=100)))[0] == AUTO_MOST
    assert auto((QWEN,), settings(), msgspec.structs.replace(room(), cpus=6))[0] == 6
    assert auto((QWEN,), settings(), room(gpu(free=3)))[0] == 0


def test_auto_does_not_restart_for_one_slot_more() -> None:
    most = auto((QWEN,), settings(), room(gpu()))[0]
    assert auto((QWEN,), settings(), room(gpu()), current=most - 1)[0] == most - 1
    assert auto((QWEN,), settings(), room(gpu()), current=1)[0] == most
    assert auto((QWEN,), settings(), room(gpu()), current=most + 3)[0] == most


def test_models_side_by_side_share_what_there_is() -> None:
    first, second = together((QWEN, model("other:8b")), settings(), room(gpu(free=16)))
    assert first.fits and second.fits
    assert second.room is not None and first.room is not None
    assert first.room - second.room == first.need + CONTEXT["cuda"]
    assert not together((QWEN, model("other:8b")), settings(parallel=4), room(gpu(free=16)))[1].fits


# -- ways out --


def test_every_way_fits_and_the_cheapest_comes_first() -> None:
    wanted = cell(QWEN, settings(), room(gpu()), 8, context=32768)
    found = options(QWEN, settings(), room(gpu()), wanted)
    assert [w.command.split()[0] for w in found] == ["--context-length", "--parallel", "--kv-cache-type"]
    assert found[-1].command == "--kv-cache-type q4_0"  # q8_0 would not be enough, and q4_0 costs the most
    half = cell(QWEN, settings(), room(gpu()), 4, context=32768)
    assert options(QWEN, settings(), room(gpu()), half)[0].command == "--kv-cache-type q8_0"
    for way in found:
        assert way.cell is not None and way.cell.fits and way.left is not None and way.left >= 0
        assert way.saved == wanted.need - way.cell.need


def test_a_smaller_build_that_is_installed_goes_before_an_estimate() -> None:
    where = room(gpu(free=6.6))
    wanted = cell(QWEN, settings(), where, 1)
    assert not wanted.fits
    small = model("qwen3:8b-q2", blocks=18)
    assert "qwen3:8b-q2, which is installed" in [w.what for w in options(QWEN, settings(), where, wanted, (small,))]
    guessed = [w for w in options(QWEN, settings(), where, wanted) if w.estimated]
    assert guessed and "Q3_K_M build" in guessed[0].what


def test_models_that_stay_can_be_let_go() -> None:
    where = room(gpu(free=4), stay=(Held("big:70b", {0: 18 * GiB}),))
    wanted = cell(QWEN, settings(), where, 1)
    found = options(QWEN, settings(), where, wanted)
    assert [w.command for w in found][-1] == "ollama stop big:70b"


# -- the pre-flight --


def flight(subjects: list[Subject], before: dict[str, Any], after: dict[str, Any], **more: Any) -> Any:
    base = {"OLLAMA_CONTEXT_LENGTH": "32768"}
    return preflight(subjects, {**base, **before}, {**base, **after}, (0, 33, 0), more.get("where", room(gpu())))


ONE, EIGHT = {"OLLAMA_NUM_PARALLEL": "1"}, {"OLLAMA_NUM_PARALLEL": "8"}
LOADED = Subject(model=QWEN, loaded=True, whole=True)


def test_a_change_that_pushes_a_model_off_the_gpu_is_refused_with_what_would_fit() -> None:
    [lint] = flight([LOADED], ONE, EIGHT).lints
    assert (lint.id, lint.severity) == ("fit", "error")
    assert "qwen3:8b with 8 slots × 32k" in lint.text and "may be used" in lint.text
    assert "slots fit" in lint.hint and "--kv-cache-type" in lint.hint


def test_what_fits_is_not_refused() -> None:
    assert flight([LOADED], ONE, {"OLLAMA_NUM_PARALLEL": "2"}).lints == ()


def test_a_model_that_was_partly_on_the_cpu_is_only_warned_of() -> None:
    partly = Subject(model=QWEN, loaded=True, whole=False)
    assert [x.severity for x in flight([partly], ONE, EIGHT).lints] == ["warning"]
    small = {"where": room(gpu(free=5))}
    assert flight([Subject(model=QWEN)], ONE, ONE, **small).lints == ()  # named, spills before and after
    assert [x.severity for x in flight([Subject(model=QWEN)], ONE, EIGHT, **small).lints] == ["warning"]


def test_what_can_not_load_is_refused_and_a_doubt_is_not() -> None:
    host_only = {"where": msgspec.structs.replace(room(), host_free=8 * GiB)}
    assert [x.severity for x in flight([Subject(model=QWEN)], ONE, EIGHT, **host_only).lints] == ["error"]
    tiny = {"where": msgspec.structs.replace(room(), host_free=GiB)}
    assert [x.severity for x in flight([LOADED], ONE, EIGHT, **tiny).lints] == ["warning"]  # it is loaded all the same
    bad = {"OLLAMA_KV_CACHE_TYPE": "q8_0", "OLLAMA_FLASH_ATTENTION": "0"}
    assert "flash attention" in flight([LOADED], ONE, {**ONE, **bad}).lints[0].text


def test_what_takes_no_more_than_what_runs_now_is_never_refused() -> None:
    """A model that is wholly on the GPU although the prediction has it spill: the prediction is what is wrong."""
    small = {"where": room(gpu(free=5))}
    assert flight([LOADED], ONE, ONE, **small).lints == ()
    assert flight([LOADED], ONE, {**ONE, "OLLAMA_CONTEXT_LENGTH": "8192"}, **small).lints == ()
    assert [x.severity for x in flight([LOADED], ONE, EIGHT, **small).lints] == ["error"]


def test_two_models_that_fit_only_alone() -> None:
    two = [LOADED, Subject(model=model("other:8b"), loaded=True, whole=True)]
    before = {"OLLAMA_CONTEXT_LENGTH": "8192", **ONE}
    after = {"OLLAMA_CONTEXT_LENGTH": "8192", "OLLAMA_NUM_PARALLEL": "6"}
    [lint] = flight(two, before, after).lints
    assert lint.severity == "error" and "beside each other" in lint.text
    assert flight(two, before, {**after, "OLLAMA_MAX_LOADED_MODELS": "1"}).lints == ()


def bare_plan(**more: Any) -> Plan:
    managed = dropin.managed("ollama.service", None, None)
    return Plan(**{"unit": "ollama.service", "managed": managed, "wanted": {}, "asked": (), **more})


def test_an_override_is_kept_by_its_id() -> None:
    found = flight([LOADED], ONE, EIGHT)
    assert [x.id for x in judged(bare_plan(), found, Request()).refused] == ["fit"]
    going = judged(bare_plan(), found, Request(overrides=("fit",)))
    assert going.refused == () and going.overrides == ("fit",)


def test_what_was_overridden_by_its_own_id_is_not_refused_again() -> None:
    from ollamactl.core.lint import Lint

    found = flight([LOADED], ONE, {**ONE, "OLLAMA_KV_CACHE_TYPE": "q9_9"})
    assert [x.id for x in judged(bare_plan(), found, Request()).refused] == ["fit"]
    lints = (Lint("kv_type_invalid", "error", "no such type"),)
    assert judged(bare_plan(lints=lints), found, Request(overrides=("kv_type_invalid",))).refused == ()
    slots = flight([LOADED], ONE, EIGHT)  # a cache type that is wrong does not hide that the slots do not fit
    plan = judged(bare_plan(lints=lints), slots, Request(overrides=("kv_type_invalid",)))
    assert [x.id for x in plan.refused] == ["fit"] and plan.overrides == ("kv_type_invalid",)


def test_a_variable_that_is_given_back_takes_its_former_value() -> None:
    own = dropin.dropin_path("ollama.service")
    ours = Origin(layer="environment", file=own, line=3)
    theirs = Origin(layer="environment", file="/etc/o.conf", line=2)
    both = Variable(name="OLLAMA_NUM_PARALLEL", value="8", origin=ours, shadowed=(("2", theirs),))
    facts = Facts(effective=Effective(variables={"OLLAMA_NUM_PARALLEL": both}))
    assert values_after(bare_plan(), facts, (own,))["OLLAMA_NUM_PARALLEL"] == "2"
    wanted = bare_plan(wanted={"OLLAMA_NUM_PARALLEL": "4", "OLLAMA_CONTEXT_LENGTH": None})
    assert values_after(wanted, facts, (own,))["OLLAMA_NUM_PARALLEL"] == "4"
