"""Models that no family here describes: their config.json in; one line that says what they are out.

The line names the nearest family by architecture: the keys of config.json, weighted by how few families have
them, the class in `architectures`, and how alike the names are. Then the keys which that family does not
have: a start for those who want to add the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from ..errors import quoted
from .family import Family, class_suffix
from .key_names import normalize_config

SHOWN_KEYS = 3
OTHER_MODE = 0.15  # how much similarity a family loses that reads in another direction
NEAR = 0.25  # similarity of architectures from which a family is worth naming

WHERE_TO_LOOK = "'clearhead families' lists what is supported, CONTRIBUTING.md how to add a family"

# What a key of config.json tells about models that read or compute something else.
MEDIA = {
    "images": ("vision_config", "image_size", "patch_size", "num_channels", "backbone_config"),
    "sound": (
        "audio_config", "num_mel_bins", "sampling_rate", "feat_extract_norm", "audio_channels",
        "codebook_size", "num_codebooks",
    ),
    "time series": ("prediction_length",),
}  # fmt: skip
RECURRENT = (
    "state_size", "mamba_d_state", "mamba_d_conv", "ssm_state_size", "lru_width", "linear_conv_kernel_dim",
    "linear_num_value_heads", "conv_L_cache", "time_step_rank", "rescale_every",
)  # fmt: skip
# Keys without effect on the architecture, and parts of the names of such keys.
NO_ARCHITECTURE = {
    "model_type", "architectures", "dtype", "transformers_version", "_name_or_path", "auto_map",
    "id2label", "label2id", "problem_type", "return_dict", "is_encoder_decoder", "chunk_size_feed_forward",
    "num_return_sequences", "finetuning_task", "task_specific_params", "prefix", "pretraining_tp",
    "torchscript", "dense_act_fn", "is_gated_act",
}  # fmt: skip
NO_ARCHITECTURE_PARTS = ("drop", "init", "token_id", "output_", "use_cache", "loss", "cls_token", "_coef")
# Which way a model with this head reads.
MODE_BY_SUFFIX = {
    "ForCausalLM": "causal",
    "LMHeadModel": "causal",
    "ForMaskedLM": "bidirectional",
    "ForConditionalGeneration": "encoder-decoder",
}


class Nearest(NamedTuple):
    """The nearest family, how near it is (0 to 1), and the keys it does not have."""

    family: Family
    similarity: float
    new_keys: list[str]


def explain_unsupported(config: Mapping[str, Any], families: Iterable[Family]) -> str:
    """One line for a model type that is not supported: what it is, the nearest family, what to do."""
    kind = quoted(config.get("model_type"))
    line = f"model_type {kind} is not supported"
    if config.get("auto_map"):
        line += " and needs code from its repository, which Clearhead never runs"
    if media := _media(config):
        return f"{line}: it reads {media}; only text families are supported ('clearhead families' lists them)"
    found = nearest_family(config, families)
    if any(key in config for key in RECURRENT):
        near = f"; its other layers are like {found.family.title}'s" if found.similarity >= NEAR else ""
        return (
            f"{line}: it has recurrent layers (state space, linear attention), which no family here has{near}"
        )
    if found.similarity < NEAR:
        return (
            f"{line}; no family is near it, by its keys {found.family.title} is the closest. {WHERE_TO_LOOK}"
        )
    return f"{line}; {_describe(found)}. {WHERE_TO_LOOK}"


def _describe(found: Nearest) -> str:
    """The nearest family and how it differs."""
    family, keys = found.family, found.new_keys
    more = f", and {len(keys) - SHOWN_KEYS} more" if len(keys) > SHOWN_KEYS else ""
    shown = ", ".join(key[:40] for key in keys[:SHOWN_KEYS]) + more
    difference = f", which does not know {shown}" if keys else ", which has the same keys"
    return f"nearest: {family.title} ({family.key!r}){difference}"


def nearest_family(config: Mapping[str, Any], families: Iterable[Family]) -> Nearest:
    families = list(families)
    own = architecture_keys(config)
    weights = _weights(families)
    modes = _modes(config)
    ranked = [
        (_similarity(config, own, family, weights) - OTHER_MODE * (family.mode not in modes), family)
        for family in families
    ]
    similarity, family = max(ranked, key=lambda pair: pair[0])
    known = {*family.defaults, *(key for size in family.sizes.values() for key in size)}
    return Nearest(family, similarity, sorted(key for key in own - known if config.get(key)))


def architecture_keys(config: Mapping[str, Any]) -> set[str]:
    """The keys that could matter, under their current names."""
    return {
        key
        for key in normalize_config(config)
        if key not in NO_ARCHITECTURE
        and not key.startswith("_")
        and not any(part in key for part in NO_ARCHITECTURE_PARTS)
    }


def _weights(families: list[Family]) -> dict[str, float]:
    """A key that few families have says more about a model than one that all have."""
    keys = {key for family in families for key in family.defaults}
    count = {key: sum(key in family.defaults for family in families) for key in keys}
    return {key: math.log(1 + len(families) / count[key]) for key in keys}


def _similarity(
    config: Mapping[str, Any], own: set[str], family: Family, weights: Mapping[str, float]
) -> float:
    theirs = architecture_keys(family.defaults)
    rare = math.log(1 + len(weights))  # the weight of a key that no family has
    both = sum(weights[key] for key in own & theirs)
    either = both + sum(weights.get(key, rare) for key in own ^ theirs)
    same_values = [config.get(key) == family.defaults[key] for key in own & theirs]
    values = sum(same_values) / len(same_values) if same_values else 0.0
    return 0.6 * both / (either or 1.0) + 0.1 * values + 0.3 * _name_similarity(config, family)


def _name_similarity(config: Mapping[str, Any], family: Family) -> float:
    """By model type or by class, whichever is closer."""
    by_type = _alike(str(config.get("model_type")), family.key)
    stems = {_stem(name) for name in family.architectures.values()}
    return max([by_type, *(_alike(_stem(name), stem) for name in _classes(config) for stem in stems)])


def _alike(one: str, two: str) -> float:
    return SequenceMatcher(None, one.lower()[:80], two.lower()).ratio()


def _classes(config: Mapping[str, Any]) -> list[str]:
    classes = config.get("architectures")
    return [name for name in classes if isinstance(name, str)] if isinstance(classes, list) else []


def _stem(name: str) -> str:
    """`Llama` of `LlamaForCausalLM`."""
    return name[:80].removesuffix(class_suffix(name[:80]) or "")


def _modes(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The directions in which it may read, as far as the config says."""
    if config.get("is_encoder_decoder") is True:
        return ("encoder-decoder",)
    by_class = (MODE_BY_SUFFIX.get(class_suffix(name) or "") for name in _classes(config))
    return tuple(mode for mode in by_class if mode) or ("causal", "bidirectional")


def _media(config: Mapping[str, Any]) -> str:
    """What it reads beside text, or instead of it."""
    return " and ".join(what for what, keys in MEDIA.items() if any(key in config for key in keys))
