"""What a family of models is to the memory model: how its architecture's code in llama.cpp uses a file's keys."""

from __future__ import annotations

from typing import Literal

import msgspec


class Window(msgspec.Struct, frozen=True):
    """Sliding window attention: every `period`-th layer is full, the others see `attention.sliding_window` tokens.

    `when`: "always" (a missing key means `size`), "positive" (only if the key is above 0), "present" (only if the key
    is there), "not-zero" (also if it is missing). `forced`: `size` counts whatever the key says.
    `pattern`: whether `attention.sliding_window_pattern` may be an integer (the period), an array, both, or neither.
    """

    period: int = 0
    full_first: bool = False
    size: int = 0
    forced: bool = False
    when: Literal["always", "positive", "present", "not-zero", "deep"] = "always"
    pattern: Literal["integer", "array", "both", "none"] = "integer"


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """One architecture. See the module's docstring; field comments say what each is for."""

    window: Window | None = None
    cache: Literal["all", "none", "trunk", "from-start", "interval"] = "all"  # which blocks cache
    interval: int = 4  # for "interval": every n-th block caches unless full_attention_interval says otherwise
    # Parts of nextn blocks that are loaded though nothing is drafted: their head, or the feed-forward as well.
    draft_parts: Literal["", "head", "feed-forward"] = ""
    draft_apart: bool = False  # nextn blocks do not cache in the main context, even before the newest engines
    latent: bool = False  # MLA: absorbed if the file has the two *_mla keys
    keys_only: bool = False  # values are read from the keys
    compressed: bool = False  # beside a window, blocks keep one row for every few tokens, and states of their making
    indexer: Literal["", "keys", "keys-values"] = ""  # a second cache of the sparse attention's indexer
    index_parts: int = 1  # keys side by side in it: pooled ones too, and gates
    recurrent: Literal["", "mamba", "mamba2", "delta", "kda", "rwkv6", "rwkv7", "lightning", "conv"] = ""
    hybrid: bool = False  # recurrent and attention blocks mixed by head_count_kv
    both: bool = False  # every block has both (falcon-h1)
    gate: bool = True  # a gated feed-forward: gate, up and their product live at once
    experts_ff: bool = False  # experts are feed_forward_length wide
    dense_lead: bool = False  # leading_dense_block_count blocks have a plain feed-forward
    hole: Literal["values", "none", "embedding", "half"] = "values"  # what lives beside the feed-forward
    hole_plain: Literal["narrow", "always"] = "narrow"  # the same without flash attention
    expert_rows: bool = False  # experts' results are kept at full width for every chosen expert
    flash_attention: bool = True  # False: the engine never turns it on
    per_layer_input: bool = False  # gemma3n and the gemma4 E models
    per_layer_table: bool = True  # that input is looked up too, not only made of the embeddings
    unread: bool = False  # it has a cache, but attends to the batch alone
    biased: bool = False  # scores get a bias by distance, which rules flash attention out in the graph
    crosses: bool = False  # attends to what an encoder made of as many tokens as it was trained for
    sections: bool = False  # rope.dimension_sections makes a position four numbers
    # How the graph is built, where it can be followed step by step (decoder.py).
    built: bool = True
    layer_norm: bool | None = False  # norms by mean and variance, which need room of their own; None: by the file
    picture_tokens: int = 0  # of the vocabulary; they are never chosen
    all_rows: bool = False  # logits of all tokens, whichever are asked for
    bare_norms: bool = False  # the norms before attention and feed-forward have no weights
    parallel: Literal["", "shared", "own"] = ""  # the feed-forward takes the attention's normed input, or its own norm
    # In what order these are added: its result to the input, to the attention's, the latter first, or to the residual.
    parallel_sum: Literal["input", "attention", "attention-first", "residual"] = "input"
    scaled_input: bool = False
    scales: bool = False  # embeddings and residuals, by keys of the file
    softcaps: bool = False  # scores of attention, by a key of the file
    scaled_q: bool = False
    rope: bool = True
    rope_depth: int = 0  # only models of so many blocks turn queries and keys
    rope_windowed: bool = False  # only blocks with a sliding window turn queries and keys
    rope_step: int = 0  # every so manieth block turns none
    gaps: bool = False  # blocks may lack attention or feed-forward
    streams: bool = False  # several streams of embeddings (altup.py)
    pooled: bool = False  # ends in vectors, without logits
    projected: bool = False  # through a last matrix
    loads_output: bool = True  # a tied embedding is loaded once more as the output
    token_types: bool = False
    input_norm: bool = False  # the embeddings are normed before the first block
    squared: bool = False
    limits: bool = False  # what a gated feed-forward holds may be limited, by keys of the file
    normed_v: bool = False
    adds_input: bool = False  # every block adds the embeddings to what it gives
    bare_k_norm: bool = False  # keys are normed without weights
    turned_norm: bool = False  # queries and keys are normed after their rotation
    # Engines before the newest compute the last block for all tokens, and choose rows before or after the last norm,
    # or before the last sum.
    late_rows: Literal["", "before", "after", "sum"] = ""
    mixes: bool = True  # the newest engines take a batch of tokens and embeddings at once
    # Blocks that are laid out in a way of their own.
    whole: Literal["", "both", "single", "rwkv", "lightning", "encoder"] = ""
    states_first: bool = False  # states are read before the block's first norm is made
    repeated_keys: bool = False  # delta net: keys are repeated where there are fewer of their heads
    rope_switch: bool = False  # rope.scaling.finetuned turns the rotation on and off
    residual_first: Literal["", "attention", "feed-forward", "both"] = ""  # sums whose first part is the residual
    dense_beside: bool = False  # a dense feed-forward beside the experts
    early_router: bool = False  # experts are chosen by what the block was given
    gating: int = 1  # default of expert_gating_func: 1 softmax, 2 sigmoid, 3 softmax of the chosen
    weights_normed: bool | None = True  # None: by expert_weights_norm

    @property
    def attends_batch(self) -> bool:
        """Whether attention sees the tokens of the batch and no cache, or there is none."""
        return self.cache == "none" or self.unread

    def norm_weights(self, keys: dict[str, int | float]) -> bool:
        """Whether the weights of the chosen experts are divided by their sum."""
        return bool(keys.get("expert_weights_norm", 0)) if self.weights_normed is None else self.weights_normed
