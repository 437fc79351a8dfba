"""Sizes in words that all families share: width, depth, heads, ... in; the keys of a family's config out.

Families spell the same size in many ways (`hidden_size`, `d_model`, `n_embd`, `dim`). A recipe says `width`,
and so works with every family that has the head it needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from .family import Family

# A word, and the keys of config.json that mean it. A family has some of them; all that it has are set.
SIZE_WORDS: dict[str, tuple[str, ...]] = {
    "width": ("hidden_size", "d_model", "n_embd", "dim", "d_embed", "embedding_size",
        "input_embedding_size", "output_embedding_size",),
    "depth": (
        "num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers", "encoder_layers",
        "decoder_layers",
    ),
    "heads": (
        "num_attention_heads", "n_head", "n_heads", "num_heads", "num_key_value_heads",
        "encoder_attention_heads", "decoder_attention_heads",
    ),
    "feedforward": (
        "intermediate_size", "d_inner", "n_inner", "hidden_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim",
        "feed_forward_size", "ffn_dim", "ffn_hidden_size",
        "moe_intermediate_size", "shared_expert_intermediate_size",
    ),
    "positions": (
        "max_position_embeddings", "n_positions", "max_encoder_position_embeddings",
        "max_decoder_position_embeddings",
    ),
    "dropout": (
        "hidden_dropout_prob", "dropout", "dropout_rate", "resid_pdrop", "embd_pdrop", "hidden_dropout",
        "residual_dropout", "embedding_dropout", "resid_dropout", "embed_dropout",
    ),
    "attention_dropout": ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop", "dropatt"),
}  # fmt: skip
Sizes = Mapping[str, Any]


def _head_dim(sizes: Sizes) -> int:
    return int(sizes["width"]) // int(sizes["heads"])


def _axial_shape(sizes: Sizes) -> list[int]:
    """Two factors of the number of positions, as close to each other as powers of two can be."""
    side = 2 ** (int(math.log2(sizes["positions"])) // 2)
    return [side, int(sizes["positions"]) // side]


def _alternating_layers(sizes: Sizes) -> list[str]:
    return (["local", "lsh"] * int(sizes["depth"]))[: int(sizes["depth"])]


def _alternating_types(sizes: Sizes) -> list[Any]:
    """Pairs of layers, and one more where their number is odd."""
    pairs, one = divmod(int(sizes["depth"]), 2)
    return [[["global", "local"], pairs], [["global"], one]]


def _three_blocks(sizes: Sizes) -> list[int]:
    """The layers in three blocks of about the same size; fewer, where there are fewer layers."""
    depth = int(sizes["depth"])
    blocks = [depth // 3 + (i < depth % 3) for i in range(3)]
    return [size for size in blocks if size]


def _rotated(sizes: Sizes) -> int:
    """Half of a head, in whole pairs of channels."""
    return max(_head_dim(sizes) // 4, 1) * 2


# Keys that follow from several sizes; each is set if the sizes it needs are given.
DERIVED: dict[str, tuple[tuple[str, ...], Callable[[Sizes], Any]]] = {
    "head_dim": (("width", "heads"), _head_dim),
    "d_kv": (("width", "heads"), _head_dim),
    "d_head": (("width", "heads"), _head_dim),
    "attention_head_size": (("width", "heads"), _head_dim),
    "query_pre_attn_scalar": (("width", "heads"), _head_dim),
    "attn_layers": (("depth",), _alternating_layers),
    "attention_types": (("depth",), _alternating_types),
    "block_sizes": (("depth",), _three_blocks),
    "rotary_dim": (("width", "heads"), _rotated),
    "axial_pos_shape": (("positions",), _axial_shape),
    "axial_pos_embds_dim": (("width",), lambda sizes: [(width := sizes["width"]) // 4, width - width // 4]),
    # Experts as in Mixtral; other numbers are for models of billions of parameters.
    "num_experts": (("width",), lambda sizes: 8),
    "num_local_experts": (("width",), lambda sizes: 8),
    "n_routed_experts": (("width",), lambda sizes: 8),
    "num_experts_per_tok": (("width",), lambda sizes: 2),
    "n_group": (("width",), lambda sizes: 1),
    "topk_group": (("width",), lambda sizes: 1),
    "kv_lora_rank": (("width",), lambda sizes: int(sizes["width"]) // 2),
    "q_lora_rank": (("width",), lambda sizes: int(sizes["width"]) // 2),
    "qk_nope_head_dim": (("width", "heads"), _head_dim),
    "v_head_dim": (("width", "heads"), _head_dim),
    "qk_rope_head_dim": (("width", "heads"), lambda sizes: 2 * max(_head_dim(sizes) // 4, 1)),
    "first_k_dense_replace": (("depth",), lambda sizes: 1),
    "cutoffs": (("width",), lambda sizes: []),  # in one piece; parts pay off above 20,000 words
}  # fmt: skip


def config_from_words(family: Family, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The config for a family; its own keys win over words, and the words follow its own keys."""
    own = {key: value for key, value in settings.items() if key not in SIZE_WORDS or key in family.defaults}
    words = {word: value for word, value in settings.items() if word in SIZE_WORDS and value is not None}
    if not words:
        return own
    sizes = words | {
        word: own[key] for word, keys in SIZE_WORDS.items() for key in keys if own.get(key) is not None
    }
    if "width" in sizes:
        words.setdefault("feedforward", 4 * sizes["width"])
    config = {
        key: words[word]
        for word, keys in SIZE_WORDS.items()
        if word in words
        for key in keys
        if key in family.defaults and key not in family.no_size_words
    }
    for key, (needed, derive) in DERIVED.items():
        known = key in family.defaults and key not in family.no_size_words
        if known and all(word in sizes for word in needed):
            config[key] = derive(sizes)
    return {**config, **own}
