"""What every block of a model attends with, caches and keeps as a state, by its family's rules."""

from __future__ import annotations

from ollamactl.core.memory.family import Family
from ollamactl.core.memory.keys import Keys
from ollamactl.core.memory.model import OVERLAPPING, Layer


def absorbs(keys: Keys, row: Family) -> bool:
    """Whether no V is cached: latent attention with the two *_mla keys, or keys alone."""
    if row.keys_only:
        return True
    return row.latent and bool(keys.number("attention.key_length_mla") and keys.number("attention.value_length_mla"))


def window(keys: Keys, row: Family, trunk: int) -> int:
    """Tokens of the sliding window, 0 where the family has none or the file turns it off."""
    rule = row.window
    if rule is None:
        return 0
    found, size = keys.has("attention.sliding_window"), keys.number("attention.sliding_window")
    if rule.when == "deep" and trunk != 64:  # exaone4: only the 64-block model has a window
        return 0
    if rule.when == "positive" and size <= 0:
        return 0
    if rule.when == "present" and not found:
        return 0
    if rule.when == "not-zero" and found and size == 0:
        return 0
    return rule.size if rule.forced or not found else size


def _windowed(keys: Keys, row: Family, count: int, trunk: int) -> list[bool]:
    """Which blocks have a sliding window. Draft blocks are always full."""
    rule = row.window
    if rule is None or not window(keys, row, trunk):
        return [False] * count
    name = "attention.sliding_window_pattern"
    if keys.is_array(name):
        if rule.pattern != "integer":
            return [bool(flag) for flag in keys.each(name, trunk)] + [False] * (count - trunk)
        period = rule.period  # families with a compiled-in period ignore an array
    else:
        period = rule.period if rule.pattern == "none" else keys.number(name, rule.period)
    flags = (
        [i % period != 0 if rule.full_first else i % period < period - 1 for i in range(trunk)]
        if period
        else [True] * trunk
    )
    return flags + [False] * (count - trunk)


def _recurrent_blocks(
    keys: Keys, row: Family, count: int, kv: list[int], ff: list[int], architecture: str
) -> list[bool]:
    if not row.recurrent:
        return [False] * count
    if row.both or row.cache == "none":
        return [True] * count
    if row.cache == "interval":
        if keys.is_array("attention.recurrent_layers"):
            return [bool(flag) for flag in keys.each("attention.recurrent_layers", count)]
        period = keys.number("full_attention_interval", row.interval) or row.interval
        return [(i + 1) % period != 0 for i in range(count)]
    if not row.gate and row.hybrid:  # nemotron_h: a block is attention, state or feed-forward
        return [kv[i] == 0 and ff[i] == 0 for i in range(count)]
    return [kv[i] == 0 for i in range(count)]


def _state(keys: Keys, row: Family, heads: int, embedding: int) -> tuple[int, int]:
    """Values a sequence of one recurrent block: (convolution R, state S), as llama_hparams::n_embd_r and n_embd_s."""
    inner, state = keys.number("ssm.inner_size"), keys.number("ssm.state_size")
    conv = keys.number("ssm.conv_kernel")
    match row.recurrent:
        case "rwkv6" | "rwkv7":
            return keys.number("token_shift_count", 2) * embedding, embedding * keys.number("wkv.head_size")
        case "conv":
            return embedding * (keys.number("shortconv.l_cache") - 1), 0
        case "kda":
            size = keys.number("kda.head_dim")
            return 3 * ((conv - 1) if conv else 3) * heads * size, size * size * heads
        case "lightning":
            size = keys.number("attention.key_length") or embedding // max(heads, 1)
            return 0, size * size * heads
        case "":
            return 0, 0
        case _:
            groups = 0 if row.recurrent == "mamba" else keys.number("ssm.group_count")  # only Mamba 2 has groups
            return max(conv - 1, 0) * (inner + 2 * groups * state), state * inner


def layers_of(keys: Keys, row: Family, architecture: str, count: int, drafts: int) -> tuple[Layer, ...]:
    trunk = count - drafts
    heads = keys.each("attention.head_count", count)
    kv = keys.each("attention.head_count_kv", count) if keys.has("attention.head_count_kv") else list(heads)
    ff = keys.each("feed_forward_length", count)
    first = heads[0] if heads else 0
    default = keys.number("embedding_length") // first if first else 0
    key = keys.number("attention.key_length", default) if first else 0
    value = keys.number("attention.value_length", default) if first else 0
    key_swa = keys.number("attention.key_length_swa", key) if first else 0
    value_swa = keys.number("attention.value_length_swa", value) if first else 0
    windowed = _windowed(keys, row, count, trunk)
    recurrent = _recurrent_blocks(keys, row, count, kv, ff, architecture)
    r, s = _state(keys, row, first, keys.number("embedding_length"))
    caching = _caching(keys, row, count, trunk, kv, ff, recurrent)
    absorbed = absorbs(keys, row)
    index = keys.number("attention.indexer.key_length")
    index *= row.index_parts
    limited = keys.above("swiglu_clamp_shexp", count if row.limits else 0)
    limited_experts = keys.above("swiglu_clamp_exp", count if row.limits else 0)
    lead = keys.number("leading_dense_block_count")
    full_index = _indexed(keys, row, count, trunk, architecture)
    kept = [i < trunk or not row.draft_apart for i in range(count)]
    ratios = keys.each("attention.compress_ratios", count) if row.compressed else [0] * count
    found = []
    for i in range(count):
        k, v = (key_swa, value_swa) if windowed[i] else (key, value)
        caches = caching[i]
        index_k = (
            index
            if caches and ((row.indexer == "keys" and full_index[i]) or (row.indexer == "keys-values" and i >= lead))
            else 0
        )
        found.append(
            Layer(
                heads=heads[i],
                kv_heads=kv[i],
                key=k,
                value=v,
                k=kv[i] * k if caches else 0,
                v=kv[i] * v if caches and not absorbed else 0,
                swa=windowed[i],
                ff=ff[i],
                r=_compressing(ratios[i], kv[i] * k, index) if ratios[i] else r if recurrent[i] and kept[i] else 0,
                s=s if recurrent[i] and kept[i] else 0,
                index_k=index if ratios[i] == OVERLAPPING else index_k,
                compressed=ratios[i],
                index_v=v if index_k and row.indexer == "keys-values" else 0,
                draft=i >= trunk,
                cached=caches and not absorbed,
                limited=row.limits and limited[i],
                limited_experts=row.limits and limited_experts[i],
            )
        )
    return tuple(found)


def _compressing(ratio: int, key: int, index: int) -> int:
    """Values a sequence that wait to be compressed, and their scores (llama_kv_cache_dsv4)."""
    if ratio == OVERLAPPING:
        return 2 * 2 * ratio * 2 * (key + index)
    return 2 * ratio * key


def _caching(
    keys: Keys, row: Family, count: int, trunk: int, kv: list[int], ff: list[int], recurrent: list[bool]
) -> list[bool]:
    """Which blocks have a place in the key-value cache of the main context."""
    if row.cache == "none":
        return [False] * count
    if row.cache == "from-start":
        if keys.has("attention.shared_kv_layers") and row.window is not None and row.window.pattern == "array":
            limit = count - keys.number("attention.shared_kv_layers")
        else:
            limit = 20 if row.window is not None and row.window.pattern == "integer" else count
        return [i < limit for i in range(count)]
    end = trunk if row.draft_apart else count
    if row.both:
        return [i < end for i in range(count)]
    if row.recurrent and not row.gate:
        return [i < end and not recurrent[i] and ff[i] == 0 for i in range(count)]
    return [i < end and not recurrent[i] for i in range(count)]


def _indexed(keys: Keys, row: Family, count: int, trunk: int, architecture: str) -> list[bool]:
    """Blocks with an indexer of their own. Models trained for a million tokens share one among four (glm-dsa)."""
    if row.indexer != "keys":
        return [False] * count
    if keys.is_array("attention.indexer.types"):
        return [bool(flag) for flag in keys.each("attention.indexer.types", count)]
    if architecture == "glm-dsa" and keys.number("context_length") >= 1 << 20:
        return [i < trunk and (i < 2 or (i - 2) % 4 == 0) for i in range(count)]
    return [i < trunk for i in range(count)]
