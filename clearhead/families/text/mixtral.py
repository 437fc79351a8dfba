"""Mixtral (Jiang 2024): Mistral with eight experts in every layer, two of them for each token."""

from dataclasses import replace

from ...nn import Experts, Gated, Router, SingleStack
from ...weights import Table
from ..family import Config, HeadKind
from ..shared import activation, decoder_classes, expert_rules, with_experts
from . import llama, mistral


def spec(c: Config, task: HeadKind) -> SingleStack:
    experts = Experts(
        count=c["num_local_experts"],
        expert=Gated(hidden=c["intermediate_size"], act=activation(c["hidden_act"])),
        router=Router(chosen=c["num_experts_per_tok"]),
    )
    alike = Config({**c, "layer_types": None})  # a window is for all layers
    return with_experts(mistral.spec(alike, task), experts, [True] * c["num_hidden_layers"])


def weights(c: Config, task: HeadKind) -> Table:
    names = {"gate": "w1", "up": "w3", "down": "w2"}
    theirs = "model.layers.{i}.block_sparse_moe."
    dense = tuple(rule for rule in llama.weights(c, task) if ".mlp." not in rule.theirs)
    return dense + expert_rules(theirs, names, router="gate.{p}")


FAMILY = replace(
    mistral.FAMILY,
    name="mixtral",
    title="Mixtral",
    year=2024,
    paper="https://arxiv.org/abs/2401.04088",
    spec=spec,
    weights=weights,
    parent="mistral",
    architectures=decoder_classes("Mixtral"),
    defaults={
        **mistral.FAMILY.defaults, "sliding_window": None, "rms_norm_eps": 1e-5, "num_local_experts": 8,
        "num_experts_per_tok": 2, "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    },
    sizes={
        "mixtral-8x7b": {"max_position_embeddings": 32768},
        "mixtral-8x22b": {
            "hidden_size": 6144, "intermediate_size": 16384, "num_hidden_layers": 56,
            "num_attention_heads": 48, "max_position_embeddings": 65536,
        },
    },
)  # fmt: skip
