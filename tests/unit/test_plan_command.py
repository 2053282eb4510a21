"""`plan` from the words of the command line to the screen and the JSON; models on the disk; remembered loads."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ollamactl.cli import group
from ollamactl.cli import plan as command
from ollamactl.core.answer import Answer, Asked, answer, words, worst_case
from ollamactl.core.capacity import budget
from ollamactl.core.facts import Buffer, Compute, Facts, Load, Process, Runner, Service, Start
from ollamactl.core.loaded import Held
from ollamactl.core.memory.reading import from_header
from ollamactl.core.parse.gguf import read_header
from ollamactl.core.sizing import Cell, cell
from ollamactl.errors import Exit, Failure
from ollamactl.host import loads, modelfiles
from ollamactl.report import envelope
from ollamactl.report.plan import show
from ollamactl.report.plan_data import data
from ollamactl.report.text import Terminal
from tests.engine.models import header, stored, write
from tests.unit.planned import GiB, MiB, gpu, host, model, processes, qwen3, room, settings

QWEN = model()


# -- the command line --


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--parallel", "0"], "--parallel 0"),
        (["--parallel", "257"], "--parallel 257"),
        (["--parallel", "four"], "--parallel four"),
        (["--context-length", "0"], "--context-length 0"),
        (["--context-length", "8q"], "--context-length 8q"),
        (["--kv-cache-type", "q9_9"], "--kv-cache-type q9_9"),
        (["--gpu-free", "lots"], "--gpu-free lots"),
        (["--gpu-free", "9999999T"], "--gpu-free 9999999T"),
        (["--gpu-free", "24"], "--gpu-free 24"),
        (["--gpu-free", ","], "--gpu-free ','"),
        (["--gpu-free", ",".join(["8G"] * 17)], "17 GPUs"),
        (["--parallel", " "], "--parallel ' '"),
    ],
)
def test_words_that_mean_nothing_are_usage_errors(args: list[str], said: str) -> None:
    with pytest.raises(Failure) as failed:
        group.main(["plan", "m.gguf", *args], standalone_mode=False)
    assert failed.value.code == Exit.USAGE and said in failed.value.text and failed.value.hint


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A host of which nothing is known but two GPUs; a model's file in a folder."""
    monkeypatch.setattr(command, "facts_for", lambda source, unit: host(gpu(0), gpu(1)))
    monkeypatch.setattr(loads, "read", lambda: ((), ""))
    return write(tmp_path / "q.gguf", *qwen3())


def run(capfdbinary: pytest.CaptureFixture[bytes], *args: str) -> bytes:
    assert group.main(["plan", *args], standalone_mode=False) == 0
    found: bytes = capfdbinary.readouterr().out
    return found


def test_json_holds_the_table(bare: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    args = ("--parallel", "1,4", "--context-length", "8k,32k", "--kv-cache-type", "f16,Q8_0", "--gpu-free", "22.9G")
    found = json.loads(run(capfdbinary, str(bare), *args, "--json"))
    assert (found["command"], found["exit_code"]) == ("plan", 0)
    rows = {(r["context"], r["kv_cache_type"]): r for r in found["data"]["rows"]}
    assert list(rows) == [(8192, "f16"), (32768, "f16"), (8192, "q8_0"), (32768, "q8_0")]
    four = rows[32768, "f16"]["cells"][1]
    assert four["runner"]["-c"] == 131072 and four["verdict"] == "spills" and four["spilled"] > 0
    assert sum(t["bytes"] for t in four["terms"] if t["name"] == "cache") == 18 * GiB
    assert {t["kind"] for t in four["terms"]} == {"exact", "modelled"}
    assert rows[32768, "f16"]["largest"] == 3 and rows[32768, "f16"]["next_slot"]["cost"] > 4 * GiB
    assert found["data"]["alternatives"][0]["option"] == "--kv-cache-type q8_0"


def test_flash_attention_can_be_assumed(bare: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    seen = json.loads(run(capfdbinary, str(bare), "--flash-attention", "off", "--json"))["data"]["focus"]
    assert seen["runner"]["flash_attention"] == "off"


def test_a_folder_of_collected_output_is_a_host_to_plan_for(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    recorded = Path(__file__).parents[1] / "recorded" / "02-parallel4"
    file = write(tmp_path / "q.gguf", *qwen3())
    found = json.loads(run(capfdbinary, str(file), "--from", str(recorded), "--json"))["data"]
    assert (found["focus"]["runner"]["-np"], found["budget"]["cpu_only"]) == (4, True)
    assert found["budget"]["host_available"] > 20 * GiB  # what its server saw at its start


# -- the screen --


def shown(result: Answer, worst: str = "") -> str:
    stream = io.StringIO()
    show(Terminal(stream), result, worst)
    return stream.getvalue()


def answered(*gpus: Any, asked: Asked | None = None, **more: Any) -> Answer:
    axes = asked or Asked(slots=(1, 2, 4, 8), contexts=(8192, 32768))
    return answer(more.pop("of", QWEN), settings(), room(*gpus, **more), axes)


def test_the_screen_says_what_fits_and_what_to_do() -> None:
    text = shown(answered(gpu()))
    assert "qwen3:8b · qwen3, 36 layers, 8 KV heads × 128" in text
    assert "22.9 GiB free" in text and "1.0 GiB kept free" in text
    assert "fits up to 3" in text and "spills" in text
    assert "-c 131072 -np 4" in text
    flat = " ".join(text.split())
    assert "4 slots × 32k of qwen3:8b need 18.0 GiB of cache" in flat and "3 slots fit" in flat
    assert "--kv-cache-type q8_0" in text and "--context-length" in text and "--parallel 3" in text
    assert all(len(line) <= 100 for line in text.splitlines())


def narrow(result: Answer) -> list[str]:
    """The lines on a terminal of 80 columns."""
    stream = io.StringIO()
    out = Terminal(stream)
    out.live = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        show(out, result, "")
    return [line.replace("\r\x1b[K", "") for line in stream.getvalue().splitlines()]


def test_many_slot_counts_stand_below_each_other() -> None:
    lines = narrow(answered(gpu(), asked=Asked(slots=tuple(range(1, 13)), contexts=(8192, 32768))))
    assert all(len(line) <= 80 for line in lines)
    text = "\n".join(lines)
    assert "12 slots" in text and "…" not in text
    assert len([line for line in lines if line.lstrip().startswith("8k ")]) >= 2


def test_many_devices_stand_below_each_other() -> None:
    lines = narrow(answered(*(gpu(i, 4.0) for i in range(9)), asked=Asked(slots=(2,), contexts=(32768,))))
    assert all(len(line) <= 80 for line in lines)
    rows = [line.split()[0] for line in lines if line.startswith("  CUDA")]
    assert rows == [f"CUDA{i}" for i in range(9)]


def test_equal_devices_are_said_once_and_the_one_that_is_taken_is_named() -> None:
    text = " ".join(shown(answered(gpu(), gpu(1), asked=Asked(slots=(1,), contexts=(8192,)))).split())
    assert "Ollama puts it on CUDA0 alone" in text and "OLLAMA_SCHED_SPREAD=1" in text
    spread = " ".join(shown(answered(gpu(0, 4.0), gpu(1, 4.0), asked=Asked(slots=(1,), contexts=(8192,)))).split())
    assert "alone" not in spread


def test_what_does_not_fit_is_laid_out_as_if_it_did() -> None:
    assert "with every layer on the GPU:" in shown(answered(gpu()))
    assert "with every layer" not in shown(answered(gpu(), asked=Asked(slots=(1,), contexts=(8192,))))


def test_a_host_without_a_gpu_says_so() -> None:
    text = shown(answered())
    assert "CPU only" in text and "60.0 GiB available" in text and "spills" not in text


def test_what_can_not_fit_at_all_says_so() -> None:
    text = " ".join(shown(answered(gpu(free=1.2))).split())
    assert "not even one slot fits" in text and "No cache type, context" in text


def test_an_unknown_architecture_is_said() -> None:
    text = shown(answered(gpu(), of=model(architecture="brandnew9")))
    assert "brandnew9" in text and "not known" in text and "unknown architecture" in text


def test_auto_and_other_models_and_notes_are_on_the_screen() -> None:
    beside = Held("big:70b", {0: 18 * GiB})
    text = shown(answered(gpu(free=4.9), stay=(beside,), asked=Asked(auto=True)))
    assert "big:70b stays loaded beside it and holds 18.0 GiB" in text
    assert "--parallel auto:" in text and "ollama stop big:70b" in text
    text = " ".join(shown(answered(gpu(), of=model(num_ctx=4096))).split())
    assert "num_ctx 4096" in text and "goes before OLLAMA_CONTEXT_LENGTH" in text


def test_a_start_that_is_refused_says_why_and_what_starts() -> None:
    off = msgspec.structs.replace(settings(), flash_attention=False)
    result = answer(QWEN, off, room(gpu()), Asked(slots=(1,), contexts=(8192,), kinds=("q8_0",)))
    text = " ".join(shown(result).split())
    assert "1 slot × 8k of qwen3:8b can't be started: a q8_0 cache needs flash attention" in text
    assert [(w.command, w.cell.fits) for w in result.ways if w.cell] == [
        ("--flash-attention 1", True), ("--kv-cache-type f16", True),
    ]  # fmt: skip
    assert "--flash-attention 1" in text and "no cache beside" not in text


def test_a_shorter_context_of_a_modelfile_is_set_there() -> None:
    result = answered(gpu(), of=model(num_ctx=32768), asked=Asked(slots=(4,)))
    [way] = [w for w in result.ways if "tokens a slot" in w.what]
    assert way.command.startswith("PARAMETER num_ctx ") and way.command.endswith("in its Modelfile")


def test_what_is_not_asked_is_what_is_set() -> None:
    """Of several contexts the one in use is looked at, of several slot counts the one in use."""
    assert answered(gpu(), of=model(num_ctx=16384), asked=Asked(slots=(2,))).focus.context == 16384
    assert answered(gpu(), asked=Asked(contexts=(4096, 32768))).focus.slots == 1
    kinds = answer(QWEN, settings(context_length=32768, parallel=4), room(gpu()), Asked(kinds=("q8_0", "f16")))
    assert (kinds.focus.args.kv_cache_type, kinds.focus.slots, kinds.focus.fits) == ("f16", 4, False)


def test_a_recurrent_state_is_no_cache() -> None:
    metadata, tensors = stored()["real-mamba2-2.7b"]
    head, size = header({**metadata, "tokenizer.ggml.model": "no_vocab"}, tensors)
    hyper = from_header(read_header(lambda at, n: head[at : at + n], len(head) + size))
    of = msgspec.structs.replace(QWEN, hyper=hyper, name="mamba2")
    assert "of recurrent state beside" in words(answered(gpu(), of=of))
    assert "of cache beside" in words(answered(gpu()))


def test_the_sum_of_the_terms_is_the_cell_and_the_driver_stands_beside_it() -> None:
    text = shown(answered(gpu(), asked=Asked(slots=(1,), contexts=(8192,))))
    [row] = [line for line in text.splitlines() if line.startswith("8k   ")]
    [total] = [line for line in text.splitlines() if line.lstrip().startswith("together")]
    assert total.split()[1:3] == row.split()[1:3]
    assert "+ driver   305 MiB" in text


def test_shares_of_devices_that_do_not_hold_their_layers_are_told() -> None:
    def lack(free: float) -> tuple[Cell, str]:
        gpus = [gpu(at, free=free, total=free) for at in (0, 1)]
        result = answered(*gpus, asked=Asked(slots=(8,), contexts=(8192,)))
        return result.focus, " ".join(shown(result).split())

    one, text = lack(8.05)
    assert one.verdict == "spills" and (one.headroom or 0) >= 0
    assert "not every GPU's share holds its layers" in text
    one, text = lack(8.0)
    assert one.headroom is not None and -GiB < one.headroom < 0
    assert "more than may be used" in text


def test_a_log_tells_the_host_s_memory_where_nothing_was_asked() -> None:
    seen = Compute(id="cpu", library="cpu", total=24 * GiB, available=20 * GiB)
    facts = Facts(start=Start(computes=(seen,)))
    assert budget(facts, {}).host_free == 20 * GiB
    assert "--gpu-free" in budget(Facts(), {}).why_cpu


def test_stored_loads_give_the_band() -> None:
    result = msgspec.structs.replace(answered(gpu()), loads=12, loads_error=100 * MiB, context_measured=True)
    text = " ".join(shown(result).split())
    assert "from 12 verified loads on this host: ± 100 MiB" in text and "driver as measured here" in text


def test_every_answer_has_a_json_form() -> None:
    for result in (answered(gpu()), answered(), answered(gpu(), asked=Asked(auto=True)), answered(gpu(free=1))):
        found = json.loads(envelope.envelope("plan", 0, data(result, worst_case(result, host()))))
        assert found["data"]["words"] == words(result)


def test_the_worst_case_counts_all_models_that_may_be_loaded() -> None:
    result = answered(gpu())
    assert "3 such models" in worst_case(result, host())
    assert "2 such models" in worst_case(result, host(config={"OLLAMA_MAX_LOADED_MODELS": "2"}))
    assert worst_case(result, host(config={"OLLAMA_MAX_LOADED_MODELS": "1"})) == ""


# -- models on the disk --


def installed(folder: Path, name: str, weights: bytes = b"", **more: Any) -> Path:
    """A model in Ollama's folder, as its manifests and blobs are."""
    registry, space, base, tag = name.split("/")[0], *name.split("/")[1:3], name.split("/")[3]

    def blob(content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        path = folder / "blobs" / f"sha256-{digest}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return {"digest": f"sha256:{digest}", "size": len(content)}

    kind = "application/vnd.ollama.image."
    layers = [{"mediaType": f"{kind}model", **blob(weights)}]
    if "params" in more:
        layers.append({"mediaType": f"{kind}params", **blob(json.dumps(more["params"]).encode())})
    if "projector" in more:
        layers.append({"mediaType": f"{kind}projector", **blob(more["projector"])})
    path = folder / "manifests" / registry / space / base / tag
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    return path


def tiny() -> bytes:
    head, size = header(*qwen3(blocks=1, kind=0))
    return head + b"\0" * min(size, 64)


def test_a_name_is_found_in_every_way_that_people_write_it(tmp_path: Path) -> None:
    installed(tmp_path, "registry.ollama.ai/library/qwen3/8b", b"a", params={"num_ctx": 4096}, projector=b"clip")
    installed(tmp_path, "hf.co/Someone/Thing-GGUF/Q4_K_M", b"b")
    installed(tmp_path, "registry.ollama.ai/library/plain/latest", b"c")
    where = (str(tmp_path / "absent"), str(tmp_path))
    found = modelfiles.find("qwen3:8b", where)
    assert (found.name, found.params, len(found.projectors)) == ("qwen3:8b", {"num_ctx": 4096}, 1)
    for name in ("QWEN3:8B", "library/qwen3:8b", "registry.ollama.ai/library/qwen3:8b"):
        assert modelfiles.find(name, where).parts == found.parts, name
    assert Path(modelfiles.find("hf.co/Someone/Thing-GGUF:Q4_K_M", where).parts[0]).read_bytes() == b"b"
    assert Path(modelfiles.find("plain", where).parts[0]).read_bytes() == b"c"
    assert modelfiles.find(found.digest, where).parts == found.parts
    names = {"qwen3:8b", "hf.co/Someone/Thing-GGUF:Q4_K_M", "plain:latest"}
    assert set(modelfiles.names_in(str(tmp_path))) == names


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/../b:c", "x:..", "a/b/c/d/e:f", "", "qwen3:8b\0"])
def test_names_that_leave_the_folder_are_none(tmp_path: Path, name: str) -> None:
    assert modelfiles.path_of(name) is None
    if not name.startswith("."):
        with pytest.raises(Failure):
            modelfiles.find(name, (str(tmp_path),))


def test_a_missing_model_names_what_is_near(tmp_path: Path) -> None:
    installed(tmp_path, "registry.ollama.ai/library/qwen3/8b", b"a")
    with pytest.raises(Failure) as failed:
        modelfiles.find("qwen3:8", (str(tmp_path),))
    assert failed.value.id == "model_not_found" and "did you mean qwen3:8b?" in failed.value.hint


def test_damaged_and_foreign_manifests(tmp_path: Path) -> None:
    path = installed(tmp_path, "registry.ollama.ai/library/m/latest", b"a")
    for text, id in (("{", "manifest_unreadable"), ("[]", "manifest_unreadable"), ('{"layers": []}', "no_weights"),
                     ('{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:../x"}]}',
                      "no_weights")):  # fmt: skip
        path.write_text(text)
        with pytest.raises(Failure) as failed:
            modelfiles.find("m", (str(tmp_path),))
        assert failed.value.id == id, text


@pytest.mark.parametrize("lost", ["weights", "projector"])
def test_a_blob_that_is_gone_is_to_be_pulled_again(tmp_path: Path, lost: str) -> None:
    installed(tmp_path, "registry.ollama.ai/library/m/latest", tiny(), projector=b"clip")
    found = modelfiles.find("m", (str(tmp_path),))
    [gone] = found.parts if lost == "weights" else found.projectors
    os.remove(gone)
    with pytest.raises(Failure) as failed:
        modelfiles.find("m", (str(tmp_path),))
    assert failed.value.id == "model_incomplete" and gone in failed.value.text
    assert failed.value.hint == "ollama pull m"


def test_a_file_that_ends_before_its_tensors_is_planned_and_told(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", *qwen3(blocks=2))
    assert not modelfiles.model(modelfiles.find(str(path), ())).lacking
    os.truncate(path, path.stat().st_size - 300 * MiB)
    cut = modelfiles.model(modelfiles.find(str(path), ()))
    assert cut.lacking == pytest.approx(300 * MiB, abs=64)
    assert "lacks 300 MiB of its tensors" in " ".join(shown(answered(gpu(), of=cut)).split())


def test_a_modelfile_s_values_reach_the_model(tmp_path: Path) -> None:
    params = {"num_ctx": 8192, "num_gpu": 0, "temperature": 0.5, "stop": ["x"]}
    installed(tmp_path, "registry.ollama.ai/library/m/latest", tiny(), params=params, projector=b"x" * 1000)
    found = modelfiles.model(modelfiles.find("m", (str(tmp_path),)))
    assert (found.num_ctx, found.num_gpu, found.projector, found.vision) == (8192, 0, 1000, True)
    assert found.quantization == "Q4_K_M" and found.parameters > 4096 * 151936


def test_split_files_are_one_model(tmp_path: Path) -> None:
    metadata, tensors = qwen3(blocks=2)
    half = len(tensors) // 2
    for at, part in enumerate((tensors[:half], tensors[half:]), 1):
        extra = {"split.count": 2, "split.no": at - 1}
        write(tmp_path / f"m-{at:05d}-of-00002.gguf", {**(metadata if at == 1 else {}), **extra}, part)
    whole = modelfiles.model(modelfiles.find(str(write(tmp_path / "whole.gguf", metadata, tensors)), ()))
    for first in ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf"):
        found = modelfiles.model(modelfiles.find(str(tmp_path / first), ()))
        assert found.hyper.weights == whole.hyper.weights
    os.rename(tmp_path / "m-00001-of-00002.gguf", tmp_path / "alone.gguf")
    with pytest.raises(Failure) as failed:
        modelfiles.model(modelfiles.find(str(tmp_path / "alone.gguf"), ()))
    assert failed.value.id == "gguf_split"
    with pytest.raises(Failure) as failed:
        modelfiles.model(modelfiles.find(str(tmp_path / "m-00002-of-00002.gguf"), ()))
    assert failed.value.id == "model_not_found"


def test_what_is_no_model_is_said(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("hello, this is no model at all")
    (tmp_path / "folder.gguf").mkdir()
    os.mkfifo(tmp_path / "pipe.gguf")
    clip = write(tmp_path / "clip.gguf", {"general.architecture": "clip", "general.type": "mmproj"}, [])
    for name, id in (("text.gguf", "gguf_unreadable"), ("folder.gguf", "usage"), ("pipe.gguf", "usage"),
                     (clip.name, "no_model"), ("gone.gguf", "model_not_found")):  # fmt: skip
        with pytest.raises(Failure) as failed:
            modelfiles.model(modelfiles.find(str(tmp_path / name), ()))
        assert failed.value.id == id, (name, failed.value.text)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"block_count": 11_206_666}, "is 11206666, no engine takes more than 512"),
        ({"block_count": -1}, "is -1"),
        ({"attention.head_count_kv": 1 << 31}, "attention.head_count_kv"),
        ({"attention.key_length": 1 << 30}, "attention.key_length"),
        ({"embedding_length": (1 << 32) - 1}, "embedding_length"),
        ({"attention.head_count": 0}, "nothing of its attention heads"),
        ({"attention.head_count": math.nan}, "is nan, which is no number"),
        ({"context_length": math.inf}, "is inf, which is no number"),
        ({"rope.freq_base": [8.0, math.nan]}, "which is no number"),
        ({"block_count": 1e30}, "not a whole number"),
        ({"embedding_length": "wide"}, "is 'wide', not a whole number"),
    ],
)
def test_numbers_that_no_engine_loads_are_refused(tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    path = write(tmp_path / "m.gguf", *qwen3(blocks=2, **keys))
    with pytest.raises(Failure, match=re.escape(said)) as failed:
        modelfiles.model(modelfiles.find(str(path), ()))
    assert failed.value.id == "gguf_unreadable" and failed.value.hint


def test_a_header_without_tensors_is_no_model(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", qwen3()[0], [])
    with pytest.raises(Failure, match="no tensors"):
        modelfiles.model(modelfiles.find(str(path), ()))


def test_a_long_context_is_no_damage(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", *qwen3(blocks=2, context_length=(1 << 31) - 1))
    assert modelfiles.model(modelfiles.find(str(path), ())).hyper.trained_context == (1 << 31) - 1


def test_smaller_builds_are_found_beside_it(tmp_path: Path) -> None:
    for tag, size in (("8b", 300), ("8b-q2", 100), ("8b-fp16", 900)):
        installed(tmp_path, f"registry.ollama.ai/library/qwen3/{tag}", tag.encode() * size)
    installed(tmp_path, "registry.ollama.ai/library/other/tiny", b"x")
    found = modelfiles.smaller_builds(modelfiles.find("qwen3:8b", (str(tmp_path),)))
    assert [f.name for f in found] == ["qwen3:8b-q2"]


def test_folders_come_from_what_the_service_is_told(tmp_path: Path) -> None:
    process = Process(pid=1, environ={"OLLAMA_MODELS": ' "/srv/models/" ', "HOME": "/home/o"})
    runner = Runner(process=Process(pid=2), model="/data/m/blobs/sha256-1")
    facts = Facts(process=process, runners=(runner,), service=Service(id="o.service"))
    found = modelfiles.folders(facts)
    assert found[:3] == ("/srv/models", "/data/m", "/home/o/.ollama/models")


# -- remembered loads --


def loaded(*buffers: tuple[str, str, int], slots: int = 4) -> tuple[Facts, Runner]:
    runner = Runner(process=Process(pid=9, rss=GiB), port=555, context_total=8192 * slots, slots=slots)
    lines = tuple(Buffer(kind=k, device=d, bytes=n) for k, d, n in buffers)  # type: ignore[arg-type]
    load = Load(port=555, buffers=lines, outcome="loaded", flash_attention_used="on")
    where = gpu(processes=processes(9, 10 * GiB))
    return host(where, runners=(runner,), taken=5.0, start=Start(loads=(load,))), runner


BUFFERS = (
    ("model", "CUDA0", 5 * GiB), ("model", "CPU_Mapped", GiB), ("kv", "CUDA0", int(4.5 * GiB)),
    ("compute", "CUDA0", 200 * MiB), ("compute", "CUDA_Host", 30 * MiB), ("output", "CUDA_Host", 2 * MiB),
)  # fmt: skip


def test_a_load_is_compared_with_its_prediction() -> None:
    one = cell(QWEN, settings(), room(gpu()), 4)
    stored = loads.measured(QWEN, one, *loaded(*BUFFERS), kind="cuda")
    assert stored is not None
    assert stored.buffers["device"]["kv"] == stored.predicted["device"]["kv"] == int(4.5 * GiB)
    assert stored.context == 10 * GiB - 5 * GiB - int(4.5 * GiB) - 200 * MiB
    smaller = {**stored.buffers, "device": {**stored.buffers["device"], "kv": GiB}}
    grown = msgspec.structs.replace(stored, buffers=smaller)
    assert stored.error - grown.error == int(3.5 * GiB)
    assert (stored.rss, stored.driver, stored.slots, stored.flash_attention) == (GiB, 10 * GiB, 4, "on")


def test_what_is_not_the_planned_load_is_not_stored() -> None:
    one = cell(QWEN, settings(), room(gpu()), 4)
    assert loads.measured(QWEN, one, *loaded(*BUFFERS, slots=2), kind="cuda") is None
    facts, runner = loaded(*BUFFERS)
    for batch, kept in ((one.args.batch, True), (one.args.batch * 2, False)):
        seen = msgspec.structs.replace(runner, batch=batch)
        assert (loads.measured(QWEN, one, facts, seen, kind="cuda") is not None) is kept
    assert loads.measured(QWEN, one, *loaded(("kv", "CUDA0", GiB)), kind="cuda") is None  # its last lines lack yet


def record(at: float, **more: Any) -> loads.Stored:
    sums = {"device": {"kv": 100 * MiB}, "host": {"compute": MiB, "model": GiB}}
    fields: dict[str, Any] = {"predicted": sums, "buffers": sums, "engine": "current", "device": "cuda", **more}
    return loads.Stored(at=at, **fields)


def test_loads_are_kept_to_a_bound_and_for_root_only(tmp_path: Path) -> None:
    loads.store([record(float(n)) for n in range(150)], str(tmp_path))
    loads.store([record(float(n)) for n in range(150, 300)], str(tmp_path))
    path = tmp_path / loads.NAME
    assert path.stat().st_mode & 0o777 == 0o600
    with path.open("ab") as f:
        f.write(b'{"damaged\n\xff\xfe\n[]\n{"at": "x"}\n')
    found, why = loads.read(str(tmp_path))
    assert ([x.at for x in found], why) == ([float(n) for n in range(100, 300)], "")
    assert loads.read(str(tmp_path / "absent")) == ((), "")


def test_the_spread_is_of_the_same_engine_and_device() -> None:
    off = {"device": {"kv": 103 * MiB}, "host": {"compute": MiB, "model": 5 * GiB}}
    found = loads.spread(
        [record(1, context=200 * MiB), record(2, buffers=off, context=300 * MiB), record(3, context=400 * MiB),
         record(4, device=""), record(5, engine="classic")], "current", "cuda",
    )  # fmt: skip
    assert (found.count, found.error, found.context) == (3, 3 * MiB, {"cuda": 300 * MiB})
    assert loads.spread([], "current", "", "sudo shows them").why == "sudo shows them"


@pytest.mark.touches("process")
def test_an_apply_that_changes_nothing_does_not_pay_for_the_memory_model() -> None:
    code = "import sys, ollamactl.cli.apply; print([m for m in sys.modules if 'memory' in m or 'gguf' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
