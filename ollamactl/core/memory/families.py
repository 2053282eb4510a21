"""What differs between model families, one row each: which layers cache, how wide, what the graph holds at its peak.

Everything numeric comes from the file's own keys; a row says only how an architecture's code in llama.cpp uses them
(src/models/*.cpp and llama_model::create_memory at b10488). A row with no arguments is a plain decoder.
"""

from __future__ import annotations

import msgspec

from ollamactl.core.memory.family import Family, Window

_ENCODER = Family(
    cache="none", whole="encoder", pooled=True, loads_output=False, layer_norm=True, token_types=True, input_norm=True
)
_SINGLE = Family(
    recurrent="mamba2",
    hybrid=True,
    gate=False,
    whole="single",
    rope=False,
    squared=True,
    gating=2,
    weights_normed=None,
    late_rows="after",
)
_OPENS = Window(period=4, when="positive")

FAMILIES: dict[str, Family] = {
    # -- plain decoders --
    **dict.fromkeys(
        (
            "llama",
            "qwen2",
            "qwen3",
            "mistral3",
            "gemma",
            "internlm2",
            "seed_oss",
            "ernie4_5",
            "chatglm",
            "exaone",
            "xverse",
            "orion",
            "qwen",
            "pangu-embedded",
            "nanbeige",
        ),
        Family(),
    ),
    **dict.fromkeys(("qwen2vl", "qwen3vl", "qwen3tts", "paddleocr", "glm4"), Family(sections=True)),
    **dict.fromkeys(("granite", "minicpm"), Family(scales=True)),
    "refact": Family(rope=False),
    "smollm3": Family(rope_step=4),
    "baichuan": Family(rope_depth=32),
    "chameleon": Family(picture_tokens=8192),
    "cogvlm": Family(all_rows=True, mixes=False),
    "phi3": Family(scaled_q=True, residual_first="feed-forward"),
    "openelm": Family(residual_first="attention"),
    "deci": Family(gaps=True),
    "olmo": Family(layer_norm=True, bare_norms=True),
    **dict.fromkeys(("hunyuan-dense", "maincoder"), Family(turned_norm=True)),
    "hunyuan_vl": Family(turned_norm=True, sections=True),
    "talkie": Family(turned_norm=True, input_norm=True, bare_norms=True, bare_k_norm=True, adds_input=True),
    "orion": Family(layer_norm=True),
    "bitnet": Family(loads_output=False),
    "plamo": Family(parallel="shared", parallel_sum="attention"),
    "stablelm": Family(layer_norm=True, parallel="shared", parallel_sum="residual"),
    "command-r": Family(layer_norm=True, parallel="shared"),
    # -- without a gate --
    "apertus": Family(gate=False),
    "arcee": Family(gate=False, squared=True),
    "plm": Family(built=False, gate=False),
    **dict.fromkeys(("starcoder2", "codeshell"), Family(gate=False, layer_norm=True)),
    **dict.fromkeys(("nemotron", "jais2"), Family(gate=False, squared=True, layer_norm=True)),
    "falcon": Family(gate=False, layer_norm=True, parallel="shared", parallel_sum="attention"),
    "phi2": Family(gate=False, layer_norm=True, parallel="shared", parallel_sum="attention-first", scaled_q=True),
    "gptneox": Family(gate=False, layer_norm=True, parallel="own"),
    "gpt2": Family(gate=False, layer_norm=True, rope=False),
    "starcoder": Family(gate=False, layer_norm=True, rope=False),
    "mpt": Family(gate=False, layer_norm=True, rope=False),
    "bloom": Family(gate=False, layer_norm=True, rope=False, input_norm=True),
    "jais": Family(layer_norm=True, rope=False),
    # -- no cache: embedding and diffusion models --
    **dict.fromkeys(
        ("wavtokenizer-dec",),
        Family(built=False, cache="none", pooled=True, loads_output=False),
    ),
    "llama-embed": Family(unread=True, pooled=True),
    "eurobert": Family(cache="none", pooled=True, loads_output=False),
    **dict.fromkeys(("dream", "llada", "rnd1"), Family(cache="none")),
    "llada-moe": Family(cache="none", weights_normed=False),
    "bert": msgspec.structs.replace(_ENCODER, gate=False, rope=False),
    "jina-bert-v2": msgspec.structs.replace(_ENCODER, rope=False),
    "jina-bert-v3": msgspec.structs.replace(_ENCODER, gate=False),
    "nomic-bert": _ENCODER,
    "nomic-bert-moe": msgspec.structs.replace(_ENCODER, gate=False, experts_ff=True, weights_normed=False),
    "modern-bert": Family(
        cache="none",
        pooled=True,
        loads_output=False,
        layer_norm=True,
        input_norm=True,
        window=Window(period=3, full_first=True, when="positive"),
    ),
    "neo-bert": Family(cache="none", pooled=True, loads_output=False),
    "gemma-embedding": Family(cache="none", pooled=True, window=Window(period=6), scaled_input=True, scaled_q=True),
    "gemma-embedding2": Family(
        cache="none",
        pooled=True,
        window=Window(period=6, pattern="both"),
        per_layer_input=True,
        per_layer_table=False,
        projected=True,
        normed_v=True,
        scaled_input=True,
    ),
    "t5": Family(built=False, biased=True, crosses=True),
    "t5encoder": Family(built=False, unread=True, pooled=True, biased=True),
    # -- mixtures of experts --
    **dict.fromkeys(("qwen3moe", "grovemoe"), Family()),
    "qwen3vlmoe": Family(sections=True),
    "qwen2moe": Family(weights_normed=False),
    "granitemoe": Family(experts_ff=True, scales=True),
    "minimax-m2": Family(experts_ff=True),
    "olmoe": Family(experts_ff=True, weights_normed=False),
    "hunyuan-moe": Family(experts_ff=True, turned_norm=True),
    "phimoe": Family(experts_ff=True, scaled_q=True, residual_first="feed-forward"),
    "grok": Family(scales=True, softcaps=True, dense_beside=True, flash_attention=False),
    "dbrx": Family(experts_ff=True, layer_norm=True),
    "arctic": Family(experts_ff=True),
    "ernie4_5-moe": Family(dense_lead=True),
    "deepseek": Family(dense_lead=True, weights_normed=False),
    **dict.fromkeys(("dots1", "bailingmoe2", "bailingmoe"), Family(dense_lead=True, weights_normed=None)),
    "glm4moe": Family(dense_lead=True, weights_normed=None, sections=True),
    "exaone-moe": Family(weights_normed=None, dense_lead=True, window=Window(period=4, size=128)),
    "hy_v3": Family(weights_normed=None, dense_lead=True, draft_apart=True, draft_parts="feed-forward"),
    # -- sliding windows --
    "gemma2": Family(softcaps=True, window=Window(period=2, size=4096)),
    "gemma3": Family(window=Window(period=6, when="positive")),
    "gemma3n": Family(
        window=Window(period=5),
        cache="from-start",
        per_layer_input=True,
        normed_v=True,
        scaled_input=True,
        streams=True,
    ),
    "gemma4": Family(
        window=Window(pattern="array"),
        cache="from-start",
        per_layer_input=True,
        normed_v=True,
        scaled_input=True,
        late_rows="after",
    ),
    "gpt-oss": Family(window=Window(period=2), gating=3, weights_normed=False, late_rows="before"),
    "cohere2": Family(
        window=Window(period=4), hole_plain="always", parallel="shared", layer_norm=True, rope_windowed=True
    ),
    "cohere2moe": Family(
        draft_parts="head",
        window=Window(period=4, full_first=True, pattern="both"),
        dense_lead=True,
        parallel="shared",
        layer_norm=None,
        rope_windowed=True,
        gating=2,
        weights_normed=None,
        late_rows="after",
    ),
    "olmo2": Family(window=_OPENS),
    "exaone4": Family(window=Window(period=4, size=4096, when="deep")),
    "plamo3": Family(window=Window(period=8, when="positive")),
    "afmoe": Family(weights_normed=None, window=_OPENS, dense_lead=True),
    "laguna": Family(weights_normed=None, window=Window(period=4, when="positive", full_first=True), dense_lead=True),
    "llama4": Family(
        gating=2,
        weights_normed=False,
        window=Window(period=4, size=8192, forced=True, when="not-zero"),
        expert_rows=True,
    ),
    "smallthinker": Family(
        window=Window(period=4, size=4096, forced=True, when="positive", full_first=True),
        early_router=True,
        rope_windowed=True,
    ),
    "mellum": Family(window=Window(period=4, when="positive", pattern="both")),
    "muse-glimmer": Family(window=Window(pattern="both"), rope_windowed=True, input_norm=True),
    "granite_swa": Family(scales=True, window=Window(pattern="array"), experts_ff=True),
    "spark2_5": Family(window=Window(pattern="array")),
    "maple": Family(window=Window(pattern="array"), rope_windowed=True),
    "step35": Family(
        draft_parts="feed-forward", limits=True,
        weights_normed=None,
        window=Window(pattern="array"),
        draft_apart=True,
        dense_lead=True,
        late_rows="before",
    ),
    "mimo2": Family(window=Window(pattern="array"), draft_apart=True, dense_lead=True),
    # -- latent attention --
    "deepseek2": Family(weights_normed=None, latent=True, dense_lead=True),
    "deepseek2-ocr": Family(dense_lead=True, weights_normed=None),
    "mistral4": Family(weights_normed=None, latent=True, dense_lead=True),
    "minicpm3": Family(latent=True),
    "glm-dsa": Family(weights_normed=None, latent=True, dense_lead=True, draft_apart=True, indexer="keys"),
    "deepseek32": Family(weights_normed=None, latent=True, dense_lead=True, draft_apart=True, indexer="keys"),
    "minimax-m3": Family(weights_normed=None, indexer="keys-values", dense_lead=True),
    # -- recurrent and hybrid --
    "mamba": Family(recurrent="mamba", cache="none"),
    "mamba2": Family(recurrent="mamba2", cache="none"),
    "rwkv6": Family(recurrent="rwkv6", cache="none", whole="rwkv", layer_norm=True, input_norm=True),
    "rwkv7": Family(recurrent="rwkv7", cache="none", whole="rwkv", layer_norm=True, input_norm=True),
    "arwkv7": Family(recurrent="rwkv7", cache="none", whole="rwkv"),
    "jamba": Family(
        recurrent="mamba", hybrid=True, experts_ff=True, rope=False, weights_normed=False, residual_first="both"
    ),
    "granitehybrid": Family(scales=True, recurrent="mamba2", hybrid=True, experts_ff=True, rope_switch=True),
    "plamo2": Family(recurrent="mamba2", hybrid=True, late_rows="sum"),
    "falcon-h1": Family(recurrent="mamba2", both=True, whole="both"),
    "nemotron_h": _SINGLE,
    "nemotron_h_moe": msgspec.structs.replace(_SINGLE, draft_apart=True),
    "lfm2": Family(
        recurrent="conv", hybrid=True, residual_first="both", window=Window(when="positive", pattern="none")
    ),
    "lfm2moe": Family(recurrent="conv", hybrid=True, residual_first="both", dense_lead=True),
    "kimi-linear": Family(recurrent="kda", hybrid=True, latent=True, dense_lead=True, rope=False),
    "bailingmoe3": Family(
        sections=True,
        limits=True,
        states_first=True,
        recurrent="kda",
        hybrid=True,
        latent=True,
        dense_lead=True,
        draft_apart=True,
        weights_normed=None,
    ),
    # Only their caches are followed, not their graphs.
    "kimi-k3": Family(built=False, recurrent="kda", hybrid=True, latent=True, dense_lead=True),
    "glm5-next": Family(
        built=False,
        recurrent="kda",
        hybrid=True,
        latent=True,
        dense_lead=True,
        indexer="keys",
        index_parts=3,
        draft_apart=True,
    ),
    "qwen4exp": Family(
        built=False,
        recurrent="delta",
        cache="interval",
        draft_apart=True,
        indexer="keys",
        index_parts=2,
        sections=True,
    ),
    "deepseek4": Family(built=False, keys_only=True, compressed=True, dense_lead=True, window=Window(pattern="none")),
    "hy_v4": Family(built=False, latent=True, dense_lead=True, indexer="keys"),
    "dots3note": Family(
        built=False, latent=True, dense_lead=True, indexer="keys", window=Window(pattern="array"), draft_apart=True
    ),
    **dict.fromkeys(("hrm_text", "k2-horizon"), Family(built=False)),
    "qwen3next": Family(
        recurrent="delta",
        repeated_keys=True,
        cache="interval",
        draft_apart=True,
        hole="embedding",
        late_rows="after",
    ),
    "qwen35": Family(
        sections=True, recurrent="delta", cache="interval", draft_apart=True, hole="half", late_rows="after"
    ),
    "qwen35moe": Family(
        sections=True, recurrent="delta", cache="interval", draft_apart=True, hole="embedding", late_rows="after"
    ),
    "minimax-01": Family(
        scales=True,
        recurrent="lightning",
        whole="lightning",
        cache="interval",
        interval=8,
        draft_apart=True,
        experts_ff=True,
    ),
}

# Not here: what no rule follows (rwkv6qwen2, graniteswitch, gptj, pockettts, clef) and drafts of other models, which
# are loaded beside these (eagle3, dflash, gemma4-assistant).
FALLBACK = Family()


def family(architecture: str) -> tuple[Family, bool]:
    """The row for an architecture and whether it is known; unknown ones are taken for plain decoders."""
    row = FAMILIES.get(architecture)
    return (row, True) if row is not None else (FALLBACK, False)
