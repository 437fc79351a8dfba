"""Key names of config.json: a file of any age in; the keys that its family reads out.

Their config classes accept other names for a key, and older files have rotary positions in several of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import SpecError, quoted

# Keys that other models, or older files, call otherwise: a name, and what a family that lacks it may call it.
OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "hidden_size": ("n_embd", "d_model", "dim"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers", "encoder_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads", "encoder_attention_heads"),
    "max_position_embeddings": ("n_positions",),
    "num_experts": ("num_local_experts", "n_routed_experts"),
    "num_local_experts": ("n_routed_experts",),
    "attention_probs_dropout_prob": ("attention_dropout",),
    "initializer_range": ("init_std",),
    "head_dim": ("d_kv",),
    "n_token": ("vocab_size",),
    "n_embed": ("hidden_size",),
}


def normalize_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Replace old key names: torch_dtype -> dtype, rope_theta and rope_scaling -> rope_parameters."""
    config = dict(config)
    if "torch_dtype" in config:
        config.setdefault("dtype", config.pop("torch_dtype"))
    theta, scaling = config.pop("rope_theta", None), config.pop("rope_scaling", None)
    rope = scaling or config.pop("rope_parameters", None)
    if theta is not None:
        rope = {"rope_theta": theta} | rope if isinstance(rope, dict) else rope or {"rope_theta": theta}
    if isinstance(rope, dict) and (theta is not None or scaling or "type" in rope):
        rope = {"rope_type": rope.get("type", "default"), **rope}  # an even older key name
        rope.pop("type", None)
    if rope is not None:
        config["rope_parameters"] = rope
    return config


def with_own_names(config: dict[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The config with the names of the family that has these defaults. Another name wins, as with theirs."""
    for name, others in OTHER_NAMES.items():
        own = next((key for key in others if key in defaults), None)
        if own is not None and name not in defaults and config.get(name) is not None:
            config[own] = config.pop(name)
    return config


def complete_rope(config: Mapping[str, Any], given: Mapping[str, Any], defaults: Mapping[str, Any]) -> Any:
    """The rotary parameters, with the family's base of the frequencies where the file has none.

    `given` is the file as it is, `config` has its keys over the defaults.
    """
    default, rope = defaults["rope_parameters"], config["rope_parameters"]
    kinds = [kind for kind, value in default.items() if isinstance(value, dict)]
    if kinds:
        _check_kinds(given, kinds)
        return rope
    if any(isinstance(value, dict) for value in rope.values()):
        raise SpecError(f"rope_parameters is {quoted(rope)}; this family has one object for all layers")
    scaled = given.get("rope_scaling") or given.get("rope_parameters")
    if default.get("rope_type", "default") != "default" and "rope_theta" in given and not scaled:
        # Theirs would take its own scaling, base included, and ignore this one.
        raise SpecError("rope_theta is given without rope_scaling; this family expects both or neither")
    theta = config["rotary_emb_base"] if "rotary_emb_base" in defaults else default.get("rope_theta")
    own = "rope_parameters" in normalize_config(given) and rope.get("rope_theta")
    return rope if own or theta is None else {**rope, "rope_theta": theta}


def _check_kinds(given: Mapping[str, Any], kinds: list[str]) -> None:
    """Of families whose kinds of layers have rotary parameters of their own."""
    # Their classes read nothing of a `rope_parameters` without such objects; older keys are flat.
    rope, scaling = given.get("rope_parameters"), given.get("rope_scaling")
    if rope and not any(kind in rope for kind in kinds):
        expected = f"expected an object for each of {', '.join(kinds)}"
        raise SpecError(f"rope_parameters is {quoted(rope)}; {expected}")
    if rope and scaling:
        raise SpecError(f"rope_scaling is {quoted(scaling)} beside rope_parameters; expected one of them")
    if scaling and "rope_type" not in scaling:
        raise SpecError(f"rope_scaling is {quoted(scaling)}; expected a rope_type in it")
