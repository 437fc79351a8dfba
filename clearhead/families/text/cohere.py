"""Cohere's Command R (2024): parallel sub-layers after one norm, neighbouring channels rotated together."""

from dataclasses import replace

from ...nn import Attention, Block, Rope, SingleStack, TokenHead, Tower
from ...nn.norm import Layer
from ...weights import Stacked, Table
from ..family import Config, HeadKind
from ..shared import decoder_classes, rope
from . import llama


def spec(c: Config, task: HeadKind) -> SingleStack:
    norm = Layer(eps=c["layer_norm_eps"], bias=False)
    base = (
        llama.decoder(c, task, norm)
        .edit(Block, order="parallel-shared")
        .edit(Tower, positions=rope(c, theta=COMMAND_R_THETA))
        .edit(Rope, pairing="neighbours")
    )
    if c["use_qk_norm"]:
        base = base.edit(Attention, qk_norm=norm, qk_norm_heads="each")
    return base.edit(TokenHead, scale=float(c["logit_scale"])) if task == "tokens" else base


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "model.layers.{i}.self_attn.", "tower.blocks.{i}.attn."
    norms = tuple(Stacked(f"{theirs}{x}_norm.weight", (f"{ours}{x}_norm.{{e}}.weight",)) for x in "qk")
    return llama.weights(c, task) + norms


COMMAND_R_THETA = 500000.0
DEFAULTS = {
    "vocab_size": 256000, "hidden_size": 8192, "intermediate_size": 22528, "logit_scale": 0.0625,
    "num_hidden_layers": 40, "num_attention_heads": 64, "num_key_value_heads": None, "hidden_act": "silu",
    "max_position_embeddings": 8192, "initializer_range": 0.02, "layer_norm_eps": 1e-5,
    "tie_word_embeddings": True, "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 5,
    "eos_token_id": 255001, "pad_token_id": 0,
    "rope_parameters": {"rope_type": "default", "rope_theta": COMMAND_R_THETA},
}  # fmt: skip
FAMILY = replace(
    llama.FAMILY,
    name="cohere",
    title="Command R",
    also=("Aya 23",),
    year=2024,
    paper="https://arxiv.org/abs/2405.15032",
    spec=spec,
    weights=weights,
    parent="llama",
    head_prefix={},
    architectures=decoder_classes("Cohere", "labels", "tags", "span"),
    defaults={**DEFAULTS, "use_qk_norm": False},
    sizes={
        "command-r": {"rope_parameters": {"rope_type": "default", "rope_theta": 8000000.0}},
        "aya23-8b": {
            "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
    },
)  # fmt: skip
