"""Qwen 1.5/2 MoE and Qwen 3 MoE (Yang 2024, 2025): Qwen with many small experts; Qwen 2 has a shared one."""

from dataclasses import replace
from typing import Any

from ...nn import Attention, Experts, Gated, Router, SingleStack
from ...weights import Name, Table
from ..family import Config, HeadKind
from ..shared import activation, decoder_classes, expert_rules, with_experts
from . import qwen2, qwen3


def qwen2_spec(c: Config, task: HeadKind) -> SingleStack:
    shared = Gated(hidden=c["shared_expert_intermediate_size"], act=activation(c["hidden_act"]))
    experts = replace(_experts(c), shared=shared, shared_gate=True)
    layers = Config({**_llama_config(c), "layer_types": c.get("layer_types") or _every_other_sliding(c)})
    dense = qwen2.spec(layers, task).edit(Attention, bias="qkv" if c["qkv_bias"] else "")
    return with_experts(dense, experts, _sparse(c))


def qwen3_spec(c: Config, task: HeadKind) -> SingleStack:
    # A window is for all layers.
    alike = Config({**_llama_config(c), "layer_types": None, "max_window_layers": 0})
    return with_experts(qwen3.spec(alike, task), _experts(c), _sparse(c))


def _every_other_sliding(c: Config) -> list[str]:
    """Which layers have a window, if any has: every other one, up to a layer."""
    last = c["max_window_layers"] if c["use_sliding_window"] else 0
    sliding = [i % 2 == 0 and i < last for i in range(c["num_hidden_layers"])]
    return ["sliding_attention" if here else "full_attention" for here in sliding]


def _experts(c: Config) -> Experts:
    return Experts(
        count=c.get("num_experts") or c["num_local_experts"],  # in newer files of Qwen 3 the second
        expert=Gated(hidden=c["moe_intermediate_size"], act=activation(c["hidden_act"])),
        router=Router(chosen=c["num_experts_per_tok"], normalised=c["norm_topk_prob"]),
    )


def _sparse(c: Config) -> list[bool]:
    """Whether a layer has experts: every n-th does, except those that are listed."""
    dense, every = c["mlp_only_layers"] or (), c["decoder_sparse_step"]
    return [i not in dense and (i + 1) % every == 0 for i in range(c["num_hidden_layers"])]


def _llama_config(c: Config) -> Config:
    """With the keys of LLaMA that these configs do not have."""
    return Config({"attention_bias": False, "mlp_bias": False, "head_dim": None, **c})


THEIR_NAMES = {x: f"{x}_proj" for x in ("gate", "up", "down")}
THEIR_MLP = "model.layers.{i}.mlp."


def qwen2_weights(c: Config, task: HeadKind) -> Table:
    ours = "tower.blocks.{i}.ff."
    return (
        *qwen2.FAMILY.weights(c, task),
        *expert_rules(THEIR_MLP, THEIR_NAMES, router="gate.{p}"),
        *(
            Name(f"{THEIR_MLP}shared_expert.{THEIR_NAMES[x]}.{{p}}", f"{ours}shared.{x}.{{p}}")
            for x in THEIR_NAMES
        ),
        Name(THEIR_MLP + "shared_expert_gate.weight", ours + "shared_gate.weight"),
    )


def qwen3_weights(c: Config, task: HeadKind) -> Table:
    return qwen3.weights(c, task) + expert_rules(THEIR_MLP, THEIR_NAMES, router="gate.{p}")


DEFAULTS: dict[str, Any] = {
    key: value for key, value in qwen2.FAMILY.defaults.items()
    if key not in ("attention_bias", "mlp_bias", "head_dim")
} | {
    "hidden_size": 2048, "num_hidden_layers": 24, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "norm_topk_prob": False,
}  # fmt: skip
QWEN2_MOE = replace(
    qwen2.FAMILY,
    name="qwen2_moe",
    title="Qwen 2 MoE",
    spec=qwen2_spec,
    weights=qwen2_weights,
    parent="qwen2",
    head_prefix={},
    architectures=decoder_classes("Qwen2Moe"),
    defaults={
        **DEFAULTS, "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 5632,
        "qkv_bias": True, "moe_intermediate_size": 1408, "num_experts": 60,
        "shared_expert_intermediate_size": 5632, "num_experts_per_tok": 4,
    },
    sizes={
        "qwen1.5-moe-a2.7b": {
            "max_position_embeddings": 8192,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        },
    },
)  # fmt: skip
QWEN3_MOE = replace(
    qwen3.FAMILY,
    name="qwen3_moe",
    title="Qwen 3 MoE",
    spec=qwen3_spec,
    weights=qwen3_weights,
    names_of_experts=frozenset({"gate_proj", "up_proj", "down_proj"}),
    parent="qwen3",
    architectures=decoder_classes("Qwen3Moe"),
    defaults={
        **DEFAULTS, "num_attention_heads": 32, "num_key_value_heads": 4, "intermediate_size": 6144,
        "attention_bias": False, "moe_intermediate_size": 768, "num_local_experts": 128,
        "num_experts_per_tok": 8,
    },
    sizes={
        "qwen3-30b-a3b": {
            "num_hidden_layers": 48, "norm_topk_prob": True, "max_position_embeddings": 40960,
            "head_dim": 128, "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        },
    },
)  # fmt: skip
