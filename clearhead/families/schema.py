"""Checks their config.json before anything is built from it: type and bounds of every key a family reads.

What a key may hold follows from the family's default for it, or from the few rules below; a key that no
family reads is kept for export and has no effect. So family files can be plain data, and no
other code needs to check types.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..errors import SpecError, quoted

COUNT_LIMIT = 2**31  # of a size, a count or a token id
MAX_LABELS = 10**6


class ValueKind(NamedTuple):
    """What a key may hold, and its description for error messages."""

    accepts: Callable[[Any], bool]
    description: str

    def or_null(self) -> ValueKind:
        return ValueKind(lambda value: value is None or self.accepts(value), f"{self.description}, or null")


def _is_int(value: Any) -> bool:
    return type(value) is int and -COUNT_LIMIT <= value < COUNT_LIMIT


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e30 and math.isfinite(value)


def _list_of(accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list | tuple) and all(map(accepts, value))


def _is_rope_parameter(value: Any) -> bool:
    """A value of `rope_parameters`."""
    return value is None or isinstance(value, str | bool) or _is_number(value) or _list_of(_is_number)(value)


def _is_rope_parameters(value: Any) -> bool:
    """One object, or one for each kind of layers."""
    return isinstance(value, dict) and all(
        _is_rope_parameters(part) if isinstance(part, dict) else _is_rope_parameter(part)
        for part in value.values()
    )


INTEGER = ValueKind(_is_int, f"a whole number below {COUNT_LIMIT:,}")
NUMBER = ValueKind(_is_number, "a number")
RATE = ValueKind(lambda value: _is_number(value) and 0 <= value <= 1, "a number from 0 to 1").or_null()
POSITIVE = ValueKind(lambda value: _is_number(value) and value > 0, "a number above 0")
BOOLEAN = ValueKind(lambda value: isinstance(value, bool), "true or false")
STRING_VALUE = ValueKind(lambda value: isinstance(value, str), "a string")
STRINGS = ValueKind(_list_of(lambda value: isinstance(value, str)), "a list of strings")
INT_OR_LIST = ValueKind(
    lambda value: _is_int(value) or _list_of(_is_int)(value), "a whole number or a list of them"
)
REPEATED_LISTS = ValueKind(
    _list_of(
        lambda item: (
            _list_of(lambda _: True)(item)
            and len(item) == 2
            and STRINGS.accepts(item[0])
            and _is_int(item[1])
        )
    ),
    "a list of pairs: a list of strings, and how often it is repeated",
)
OBJECT = ValueKind(lambda value: isinstance(value, dict), "an object")
TOKEN_ID = INT_OR_LIST.or_null()  # the id of a token, or several

# Keys whose default does not say what they may hold.
BY_NAME: dict[str, ValueKind] = {
    "architectures": STRINGS.or_null(),
    "model_type": STRING_VALUE,
    "dtype": STRING_VALUE.or_null(),
    "id2label": OBJECT.or_null(),
    "label2id": OBJECT.or_null(),
    "num_labels": ValueKind(
        lambda value: _is_int(value) and 0 < value <= MAX_LABELS, f"a whole number from 1 to {MAX_LABELS:,}"
    ).or_null(),
    "rope_parameters": ValueKind(_is_rope_parameters, "an object of numbers and strings"),
    "rotary_pct": RATE,
    "partial_rotary_factor": RATE,
    "original_max_position_embeddings": INTEGER.or_null(),
    "rope_local_base_freq": NUMBER,
    "sliding_window_pattern": INTEGER,
    "no_rope_layers": ValueKind(_list_of(_is_int), "a list of whole numbers").or_null(),
    "clip_qkv": NUMBER.or_null(),
    "layer_types": STRINGS.or_null(),
    "head_act": STRING_VALUE,
    "dense_act_fn": STRING_VALUE.or_null(),
    "is_gated_act": BOOLEAN.or_null(),
    "emb_layer_norm_before": BOOLEAN.or_null(),
    "token_dropout": BOOLEAN.or_null(),
    "global_rope_theta": NUMBER.or_null(),
    "local_rope_theta": NUMBER.or_null(),
    "global_attn_every_n_layers": INTEGER.or_null(),
    "attention_window": INT_OR_LIST,
    "attention_types": REPEATED_LISTS.or_null(),
    "attention_layers": STRINGS.or_null(),
    "num_buckets": INT_OR_LIST.or_null(),
    "hash_seed": ValueKind(
        lambda value: type(value) is int and 0 <= value < 2**63, "a whole number"
    ).or_null(),
    "sliding_window": INTEGER.or_null(),
    "attn_logit_softcapping": NUMBER.or_null(),
    "final_logit_softcapping": NUMBER.or_null(),
    "query_pre_attn_scalar": NUMBER,
    "scale_decoder_outputs": BOOLEAN,
    "mlp_only_layers": ValueKind(_list_of(_is_int), "a list of whole numbers").or_null(),
    "num_experts": INTEGER.or_null(),
    "q_lora_rank": INTEGER.or_null(),
    "num_key_value_heads": INTEGER.or_null(),
    "num_decoder_layers": INTEGER.or_null(),
    "head_dim": INTEGER.or_null(),
    "pos_att_type": ValueKind(
        lambda value: STRING_VALUE.accepts(value) or STRINGS.accepts(value), "a string or a list of strings"
    ).or_null(),
    "share_att_key": BOOLEAN,
    "norm_rel_ebd": STRING_VALUE,
    "position_buckets": INTEGER,
    "conv_kernel_size": INTEGER,
    "conv_groups": INTEGER,
    "conv_act": STRING_VALUE,
    "block_repeats": ValueKind(_list_of(_is_int), "a list of whole numbers").or_null(),
    "initializer_std": NUMBER.or_null(),
}
# Keys for parts that are not supported here: any other value would be loaded as another model.
ONLY_SUPPORTED: dict[str, Any] = {
    "add_cross_attention": False,
    "position_embedding_type": "absolute",
    "pruned_heads": {},
    "use_bidirectional_attention": False,
    "use_mrope": False,  # of Qwen's models for images
}
BY_TYPE: dict[type, ValueKind] = {
    bool: BOOLEAN,
    int: INTEGER,
    float: NUMBER,
    str: STRING_VALUE,
    dict: OBJECT,
    type(None): INTEGER.or_null(),  # sizes that follow from others unless they are given
}


def check_config(
    config: Mapping[str, Any], defaults: Mapping[str, Any], only: Mapping[str, Any] | None = None
) -> None:
    """Raise for the first key whose value is not of its kind. `config` uses the current key names.

    `only` are further keys of which this family supports one value.
    """
    if config.get("quantization_config"):
        raise SpecError(_quantized(config["quantization_config"]))
    supported = {key: value for key, value in ONLY_SUPPORTED.items() if key not in defaults} | dict(
        only or {}
    )
    for key, value in config.items():
        if key in supported and value not in (None, supported[key]):
            raise SpecError(f"{key} is {quoted(value)}; only {quoted(supported[key])} can be built here")
        kind = _kind_of_key(key, defaults)
        if kind is not None and not kind.accepts(value):
            raise SpecError(f"{key} is {quoted(value)}, expected {kind.description}")


def _quantized(given: Any) -> str:
    """Weights that another library packed: their tensors are no matrices."""
    method = given.get("quant_method") if isinstance(given, dict) else None
    stored = f"{quoted(method)} (quantization_config)" if method else f"quantization_config {quoted(given)}"
    return (
        f"the weights are quantized as {stored}, which cannot be read here; load a version "
        "of it in bfloat16 or float32, or a GGUF file: precision='int8' or 'int4' quantizes it here"
    )


def _kind_of_key(key: str, defaults: Mapping[str, Any]) -> ValueKind | None:
    """None for a key that nothing here reads."""
    if key in BY_NAME:
        return BY_NAME[key]
    if key.endswith("_token_id"):
        return TOKEN_ID
    if key not in defaults:
        return RATE if key == "classifier_dropout" else None
    if "drop" in key:
        return RATE
    if "eps" in key:  # of a norm: a token of zeros would become NaN
        return POSITIVE
    default = defaults[key]
    if isinstance(default, list | tuple):
        return (
            STRINGS
            if isinstance(default[0], str)
            else ValueKind(_list_of(_is_int), "a list of whole numbers")
        )
    return BY_TYPE[type(default)]
