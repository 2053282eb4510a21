"""Models of real widths and hosts with GPUs, for the tests of `plan` and of the pre-flight."""

from __future__ import annotations

from typing import Any

from ollamactl.core.capacity import Budget, budget
from ollamactl.core.facts import Compute, Facts, Gpu, GpuProcess, HostMemory, Start, System
from ollamactl.core.memory.reading import from_header
from ollamactl.core.memory.runner_args import Settings
from ollamactl.core.parse.gguf import read_header
from ollamactl.core.sizing import Model
from tests.engine.models import header

GiB = 1 << 30
MiB = 1 << 20
F32, Q4_K, Q6_K = 0, 12, 14
Tensors = list[tuple[str, list[int], int]]


def qwen3(
    blocks: int = 36, kind: int = Q4_K, architecture: str = "qwen3", **more: Any
) -> tuple[dict[str, Any], Tensors]:
    """Metadata and tensors with the widths of Qwen3 8B: 147,456 bytes of f16 cache a token in 36 blocks."""
    e, ff, vocabulary = 4096, 12288, 151936
    a = architecture
    metadata = {
        "general.architecture": a, "general.file_type": 15, f"{a}.block_count": blocks, f"{a}.embedding_length": e,
        f"{a}.context_length": 40960, f"{a}.feed_forward_length": ff, f"{a}.attention.head_count": 32,
        f"{a}.attention.head_count_kv": 8, f"{a}.attention.key_length": 128, f"{a}.attention.value_length": 128,
        f"{a}.attention.layer_norm_rms_epsilon": 1e-6, f"{a}.rope.freq_base": 1e6,
        **{f"{a}.{name}": value for name, value in more.items()},
    }  # fmt: skip
    tensors: Tensors = [
        ("token_embd.weight", [e, vocabulary], kind), ("output.weight", [e, vocabulary], Q6_K),
        ("output_norm.weight", [e], F32),
    ]  # fmt: skip
    for i in range(blocks):
        for name, dims in (
            ("attn_q", [e, 4096]), ("attn_k", [e, 1024]), ("attn_v", [e, 1024]), ("attn_output", [4096, e]),
            ("ffn_gate", [e, ff]), ("ffn_up", [e, ff]), ("ffn_down", [ff, e]),
        ):  # fmt: skip
            tensors.append((f"blk.{i}.{name}.weight", dims, kind))
        tensors += [(f"blk.{i}.{n}.weight", [e], F32) for n in ("attn_norm", "ffn_norm")]
        tensors += [(f"blk.{i}.{n}.weight", [128], F32) for n in ("attn_q_norm", "attn_k_norm")]
    return metadata, tensors


def model(name: str = "qwen3:8b", **more: Any) -> Model:
    fixed = {k: more.pop(k) for k in ("num_ctx", "num_gpu", "num_batch", "projector") if k in more}
    metadata, tensors = qwen3(**more)
    head, data = header({**metadata, "tokenizer.ggml.model": "no_vocab"}, tensors)
    size = len(head) + data
    hyper = from_header(read_header(lambda at, n: head[at : at + n], size))
    return Model(name=name, hyper=hyper, path=f"/models/{name}", size=size, parameters=8_190_735_360,
                 quantization="Q4_K_M", **fixed)  # fmt: skip


def gpu(index: int = 0, free: float = 22.9, total: float = 24.0, **more: Any) -> Gpu:
    uuid = f"GPU-{index}"
    fields: dict[str, Any] = {"vendor": "nvidia", "name": "RTX 4090", "uuid": uuid, "compute": "8.9", **more}
    return Gpu(index=index, total=int(total * GiB), free=int(free * GiB), **fields)


def host(
    *gpus: Gpu, computes: tuple[Compute, ...] | None = None, config: dict[str, str] | None = None, **more: Any
) -> Facts:
    """A host whose server found those devices at its start (or `computes`), with 64 GiB of its own."""
    if computes is None:
        computes = tuple(Compute(id=g.uuid, library="CUDA", name=f"CUDA{g.index}", total=g.total) for g in gpus)
    fields: dict[str, Any] = {
        "version": "0.33.0", "start": Start(computes=computes, config=config or {}), "gpus": gpus,
        "memory": HostMemory(total=64 * GiB, available=60 * GiB), "system": System(os="linux", cpus=16), **more,
    }  # fmt: skip
    return Facts(**fields)


def room(*gpus: Gpu, **more: Any) -> Budget:
    return budget(host(*gpus), {}, **more)


def settings(**more: Any) -> Settings:
    return Settings(**{"context_length": 8192, "parallel": 1, **more})


def processes(pid: int, used: int) -> tuple[GpuProcess, ...]:
    return (GpuProcess(pid=pid, used=used),)
