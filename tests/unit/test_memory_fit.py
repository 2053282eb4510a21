"""Fit, slots, alternatives and the runner's arguments: pure answers to questions of a user."""

from __future__ import annotations

import pytest
from memory_data import hyper, rows, stored_tensors

from ollamactl.core.memory import placement, shape
from ollamactl.core.memory.fit import MARGIN, alternatives, fit, margin, split
from ollamactl.core.memory.layout import HOST
from ollamactl.core.memory.model import Hyper
from ollamactl.core.memory.predict import predict
from ollamactl.core.memory.request import Device, Request, refusal
from ollamactl.core.memory.runner_args import (
    ONE_SLOT,
    Settings,
    default_context,
    engine_class,
    plain_cache,
    runner_args,
)

GiB, MiB = 1 << 30, 1 << 20


def qwen3_8b(architecture: str = "qwen3", **more: object) -> Hyper:
    """qwen3:8b in q4_K_M: 4.9 GiB of weights."""
    from ollamactl.core.parse.gguf import GgufTensor

    a = architecture
    metadata = {
        "general.architecture": a, f"{a}.block_count": 36, f"{a}.context_length": 40960, f"{a}.embedding_length": 4096,
        f"{a}.feed_forward_length": 12288, f"{a}.attention.head_count": 32, f"{a}.attention.head_count_kv": 8,
        f"{a}.attention.key_length": 128, f"{a}.attention.value_length": 128, f"{a}.vocab_size": 151936, **more,
    }  # fmt: skip

    def tensor(name: str, *dims: int, kind: str = "q4_k") -> GgufTensor:
        values = dims[0] * (dims[1] if len(dims) > 1 else 1)
        sizes = {"q4_k": (256, 144), "q6_k": (256, 210), "f32": (1, 4)}
        block, size = sizes[kind]
        return GgufTensor(name, kind, dims, 0, values // block * size)

    tensors = [tensor("token_embd.weight", 4096, 151936), tensor("output.weight", 4096, 151936, kind="q6_k")]
    for i in range(36):
        for name, width in (("attn_q", 4096), ("attn_k", 1024), ("attn_v", 1024), ("attn_output", 4096)):
            tensors.append(tensor(f"blk.{i}.{name}.weight", 4096, width))
        tensors += [tensor(f"blk.{i}.{n}.weight", 4096, 12288) for n in ("ffn_gate", "ffn_up")]
        tensors.append(tensor(f"blk.{i}.ffn_down.weight", 12288, 4096, kind="q6_k"))
        tensors += [tensor(f"blk.{i}.{n}.weight", 4096, kind="f32") for n in ("attn_norm", "ffn_norm")]
        tensors += [tensor(f"blk.{i}.{n}.weight", 128, kind="f32") for n in ("attn_q_norm", "attn_k_norm")]
    return hyper(metadata, tuple(tensors))


def gpu(free: float, total: float | None = None, **more: object) -> Device:
    return Device(name="GPU0", free=int(free * GiB), total=int((total or free) * GiB), **more)  # type: ignore[arg-type]


def start(context: int, slots: int, kind: str = "f16", batch: int = 2048) -> Request:
    return Request(context=context, slots=slots, type_k=kind, type_v=kind, batch=batch)


def test_a_token_of_qwen3_8b_takes_147456_bytes() -> None:
    model = qwen3_8b()
    assert predict(model, start(8192, 4), (gpu(24),)).total("cache") == 147_456 * 8192 * 4
    assert predict(model, start(32768, 4), (gpu(24),)).total("cache") == 18 * GiB


def test_where_a_number_of_slots_spills_no_larger_one_fits() -> None:
    model = qwen3_8b()
    for free in (6.0, 8.0, 12.0, 16.0, 22.9, 24.0):
        verdicts = [fit(model, start(8192, slots), (gpu(free),)).verdict for slots in range(1, 24)]
        assert verdicts == sorted(verdicts) and set(verdicts) <= {"fits", "spills"}, free  # in the alphabet's order
        assert verdicts[-1] == "spills"


def test_more_memory_never_makes_it_worse() -> None:
    model = qwen3_8b()
    spilled = [fit(model, start(8192, 4), (gpu(free / 4),)).spilled for free in range(8, 60)]
    assert spilled == sorted(spilled, reverse=True)
    assert spilled[0] > 20
    assert spilled[-1] == 0


def test_the_margin_is_kept() -> None:
    model = qwen3_8b()
    need = predict(model, start(8192, 1), (gpu(24),)).most(0)
    just = Device(name="GPU0", free=need + MARGIN, total=24 * GiB)
    less = Device(name="GPU0", free=need + MARGIN - MiB * 8, total=24 * GiB)
    assert fit(model, start(8192, 1), (just,)).verdict == "fits"
    assert fit(model, start(8192, 1), (less,)).verdict == "spills"
    assert fit(model, start(8192, 1), (less,), target=512 * MiB).verdict == "fits"


def test_the_margin_grows_with_a_projector() -> None:
    assert margin() == 1024 * MiB
    assert margin(912 * MiB) == 1936 * MiB
    assert margin(912 * MiB, target=100) == 100


def test_several_devices_share_by_their_free_memory() -> None:
    model = qwen3_8b()
    even = split(model, (gpu(12), gpu(12)))
    assert [even.layers.count(d) for d in (0, 1)] in ([19, 18], [18, 19])
    assert even.layers[-1] == 1
    uneven = split(model, (gpu(18), gpu(6)))
    assert uneven.layers.count(0) == 28


def test_two_small_devices_hold_what_one_cannot() -> None:
    model = qwen3_8b()
    assert fit(model, start(8192, 2), (gpu(8),)).verdict == "spills"
    found = fit(model, start(8192, 2), (gpu(8), gpu(8)))
    assert found.verdict == "fits"
    assert len(found.headroom) == 2
    assert min(found.headroom) >= 0


def test_the_host_has_to_hold_the_rest() -> None:
    model = qwen3_8b()
    assert fit(model, start(8192, 4), (gpu(4),), host_free=1 * GiB).verdict == "cannot load"
    assert fit(model, start(8192, 4), (gpu(4),), host_free=32 * GiB).verdict == "spills"
    assert fit(model, start(8192, 1), (), host_free=2 * GiB).verdict == "cannot load"
    assert fit(model, start(8192, 1), (), host_free=32 * GiB).verdict == "fits"


def test_alternatives_in_the_order_of_what_they_cost() -> None:
    model = qwen3_8b()
    devices = (gpu(16),)
    wanted = start(32768, 4)
    assert fit(model, wanted, devices).verdict == "spills"
    ways = list(alternatives(model, start, wanted, devices))
    assert [way.what for way in ways] == ["cache q8_0", "shorter context", "fewer slots", "cache q4_0"]
    for way in ways:
        assert fit(model, way.request, devices).verdict == "fits"
        assert way.cost
    shorter = next(way.request for way in ways if way.what == "shorter context")
    assert fit(model, start(shorter.context + 1024, 4), devices).verdict == "spills"
    assert next(w.what for w in alternatives(model, start, start(16384, 4), devices)) == "cache q8_0"


def test_a_quantized_cache_is_copied_on_cuda() -> None:
    """CUDA's flash attention reads f16: a layer's whole cache is copied into the compute buffer."""
    model = qwen3_8b()
    request = start(32768, 2, "q8_0", batch=512)
    cuda = predict(model, request, (gpu(24),)).total("compute")
    others = predict(model, request, (gpu(24, kind="vulkan"),)).total("compute")
    assert cuda - others > 2 * 32768 * 2 * 2048 * 0.75  # the rest lies where the feed-forward will


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (Request(context=4096, slots=300), "at most 256"),
        (Request(context=4096, type_k="q9_9", type_v="q9_9"), "q9_9"),
        (Request(context=4096, type_k="q8_0", type_v="q8_0", flash_attention="off"), "needs flash attention"),
    ],
)
def test_refusals(request_: Request, says: str) -> None:
    refused = refusal(qwen3_8b(), request_)
    assert refused is not None
    assert says in refused.why
    found = fit(qwen3_8b(), request_, (gpu(24),))
    assert found.verdict == "cannot load"
    assert says in found.why


def test_an_unknown_architecture_is_said() -> None:
    model = qwen3_8b("brandnew")
    assert not model.known
    prediction = predict(model, start(8192, 1), (gpu(24),))
    assert "brandnew" in prediction.notes[0]
    assert {t.kind for t in prediction.terms if t.name in ("cache", "compute") and t.device == 0} == {"unknown"}
    assert prediction.total("cache") == 147_456 * 8192


# -- the runner's arguments --


def test_batch_by_total_context() -> None:
    model = qwen3_8b()
    devices = (gpu(80),)
    got = {
        (context, slots): runner_args(model, Settings(context_length=context, parallel=slots), devices).batch
        for context, slots in ((2048, 1), (4096, 1), (2048, 2), (4096, 2), (8192, 4), (8192, 5), (32768, 2))
    }
    assert got == {
        (2048, 1): 512,
        (4096, 1): 512,
        (2048, 2): 512,
        (4096, 2): 1024,
        (8192, 4): 1024,
        (8192, 5): 2048,
        (32768, 2): 2048,
    }
    assert runner_args(model, Settings(context_length=32768, parallel=4, release=(0, 24, 0)), devices).batch == 512


def test_batch_is_lowered_where_memory_is_short() -> None:
    args = runner_args(qwen3_8b(), Settings(context_length=32768, parallel=2), (gpu(10),))
    assert args.batch < 2048
    assert any("memory is short" in reason for reason in args.reasons)


@pytest.mark.parametrize(("total", "context"), [(8, 4096), (22.9, 4096), (23, 32768), (46, 32768), (47, 262144)])
def test_default_context_by_total_memory(total: float, context: int) -> None:
    assert default_context((gpu(1, total),), (0, 33, 0))[0] == context
    assert default_context((gpu(1, total),), (0, 12, 0))[0] == 4096
    assert default_context((gpu(1, total),), (0, 6, 6))[0] == 2048


def test_two_cards_count_together_and_overhead_counts_off() -> None:
    pair = (gpu(1, 24), gpu(1, 24))
    assert default_context(pair, (0, 33, 0))[0] == 262144
    assert default_context(pair, (0, 33, 0), overhead=1 * GiB)[0] == 32768


def test_context_is_clipped_to_the_trained_one() -> None:
    args = runner_args(qwen3_8b(), Settings(parallel=2), (gpu(48),))
    assert args.context == 40960
    assert args.total_context == 81920
    assert any("trained" in reason for reason in args.reasons)


def test_num_ctx_goes_before_the_variable() -> None:
    args = runner_args(qwen3_8b(), Settings(num_ctx=2048, context_length=8192), (gpu(48),))
    assert args.context == 2048
    assert any("num_ctx" in reason for reason in args.reasons)


@pytest.mark.parametrize("architecture", sorted(set(ONE_SLOT) & {"qwen35", "lfm2", "qwen3vl", "nemotron_h"}))
def test_families_forced_to_one_slot(architecture: str) -> None:
    args = runner_args(qwen3_8b(architecture), Settings(parallel=4, context_length=4096), (gpu(48),))
    assert args.slots == 1
    assert any(architecture in reason for reason in args.reasons)
    older = runner_args(
        qwen3_8b(architecture), Settings(parallel=4, context_length=4096, release=(0, 5, 0)), (gpu(48),)
    )
    assert older.slots == 4


def test_embedding_models_get_one_slot() -> None:
    model = qwen3_8b("nomic-bert", **{"nomic-bert.attention.causal": False, "nomic-bert.pooling_type": 1})
    args = runner_args(model, Settings(parallel=4, context_length=8192), (gpu(48),))
    assert (args.slots, args.batch) == (1, 2048)


def test_defaults_of_releases() -> None:
    model = qwen3_8b()
    slots = {
        r: runner_args(model, Settings(release=r), ()).slots
        for r in ((0, 5, 0), (0, 6, 7), (0, 9, 6), (0, 10, 0), (0, 33, 0))
    }
    assert slots == {(0, 5, 0): 4, (0, 6, 7): 2, (0, 9, 6): 2, (0, 10, 0): 1, (0, 33, 0): 1}
    assert engine_class((0, 24, 0)) == shape.CLASSIC
    assert engine_class((0, 30, 0)) == shape.CURRENT
    assert engine_class((0, 40, 0), build=11_549) == shape.NEWEST


def test_older_releases_drop_a_quantized_cache_without_flash_attention() -> None:
    old = Settings(kv_cache_type="q8_0", flash_attention=False, release=(0, 12, 0))
    assert runner_args(qwen3_8b(), old, ()).kv_cache_type == "f16"
    assert runner_args(qwen3_8b(), Settings(kv_cache_type="Q8_0"), ()).kv_cache_type == "q8_0"


def test_the_plain_formula() -> None:
    assert plain_cache(qwen3_8b(), 8192 * 4) == 147_456 * 8192 * 4


def mixtral() -> Hyper:
    """A mixture of experts of two blocks."""
    meta = next(r["meta"] for r in rows("models.jsonl.gz") if r["name"] == "real-mixtral-8x7b")
    return hyper(meta, stored_tensors()["real-mixtral-8x7b"])


def test_experts_go_to_the_host_first() -> None:
    """A mixture of experts that does not fit keeps its attention on the device."""
    model = mixtral()
    device = Device(name="GPU0", kind="other", free=4500 * MiB, total=4500 * MiB)
    found = fit(model, start(8192, 1, batch=512), (device,))
    assert found.verdict == "spills"
    assert HOST not in found.layout.layers
    assert found.layout.lent == {1}  # the block behind; the one in front is whole


def test_layers_fill_devices_from_the_last_to_the_first() -> None:
    model = qwen3_8b()

    def used(slices: placement.Slices) -> list[int]:
        return [10 * one.layers for one in slices]

    slices = placement.place(model, used, [100, 205], experts_apart=False)
    assert [one.layers for one in slices] == [10, 20]
    assert placement.layout(model, slices).layers == (HOST,) * 7 + (0,) * 10 + (1,) * 20


def test_experts_stay_on_the_host_where_the_last_device_has_no_layer() -> None:
    """The engine makes blocks whole from the front only while the devices up to the last one have some."""
    model = mixtral()

    def used(slices: placement.Slices) -> list[int]:
        return [10 * one.layers + 30 * one.whole for one in slices]

    assert not placement.layout(model, placement.place(model, used, [100, 100, 40], experts_apart=True)).spilled
    left = placement.layout(model, placement.place(model, used, [100, 100, 30], experts_apart=True))
    assert left.host_experts == set(range(model.blocks))


def test_a_part_of_a_devices_own_last_layer_ends_the_search() -> None:
    """Devices behind one that keeps a part of its last layer are left as they are, whatever room they have."""
    model = mixtral()

    def used(slices: placement.Slices) -> list[int]:
        part = {"experts": 0, "attention": 5, "up": 10, "gate": 20}
        sizes = [10 * one.layers + 30 * one.whole + part[one.fraction] * bool(one.partial) for one in slices]
        return [size + 200 * (one.layers == 3) for size, one in zip(sizes, slices, strict=True)]  # never all on one

    slices = placement.place(model, used, [35, 200], experts_apart=True)
    assert slices[0] == placement.Slice(1, 1, "gate", 1)
    assert slices[1].partial == 1


def test_all_layers_are_tried_before_fewer() -> None:
    """A device that borrows nothing from the host may hold all layers where it could not hold one less."""
    model = qwen3_8b()

    def used(slices: placement.Slices) -> list[int]:
        return [10 * slices[0].layers + (50 if slices[0].layers < 37 else 0)]

    assert placement.layout(model, placement.place(model, used, [380], experts_apart=False)).whole
    assert placement.layout(model, placement.place(model, used, [360], experts_apart=False)).spilled == 6


def test_a_device_without_room_for_anything_gets_nothing() -> None:
    def used(slices: placement.Slices) -> list[int]:
        return [10 * one.layers + 50 for one in slices]

    assert placement.place(qwen3_8b(), used, [40, 60], experts_apart=False)[0].layers == 0
