"""StableLM (Bellagente 2024): LLaMA with layer norm and a quarter of each head rotated."""

from dataclasses import replace
from typing import Any

from ...nn import Attention, Block, SingleStack, Tower
from ...nn.norm import Layer
from ...weights import Name, Table
from ..family import Config, HeadKind
from ..shared import decoder_classes, partial_rotary, rope
from . import llama


def spec(c: Config, task: HeadKind) -> SingleStack:
    # Their dropout is on the output of the feed-forward layer alone; here it is on attention's as well.
    base = (
        llama.decoder(c, task, Layer(eps=c["layer_norm_eps"]))
        .edit(Attention, bias="qkv" if c["use_qkv_bias"] else "")
        .edit(Tower, positions=rope(c, fraction=partial_rotary(c, default=0.25)))
        .edit(
            Block,
            order="parallel-shared" if c["use_parallel_residual"] else "pre",
            dropout=c["hidden_dropout"],
        )
    )
    if not c["qk_layernorm"]:
        return base
    norm = Layer(eps=c["layer_norm_eps"], bias=False)
    return base.edit(Attention, qk_norm=norm, qk_norm_heads="each")


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "model.layers.{i}.self_attn.", "tower.blocks.{i}.attn."
    norms = tuple(
        Name(f"{theirs}{x}_layernorm.norms.{{e}}.weight", f"{ours}{x}_norm.{{e}}.weight") for x in "qk"
    )
    return llama.weights(c, task) + norms


STABLELM2: dict[str, Any] = {
    "vocab_size": 100352, "bos_token_id": 100257, "eos_token_id": 100257,
}  # fmt: skip
FAMILY = replace(
    llama.FAMILY,
    name="stablelm",
    title="StableLM",
    year=2023,
    paper="https://arxiv.org/abs/2402.17834",
    spec=spec,
    weights=weights,
    parent="llama",
    head_prefix={},
    architectures=decoder_classes("StableLm", "span"),
    defaults={
        "vocab_size": 50304, "intermediate_size": 6912, "hidden_size": 2560, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "hidden_act": "silu",
        "max_position_embeddings": 4096, "initializer_range": 0.02, "layer_norm_eps": 1e-5,
        "tie_word_embeddings": False, "use_qkv_bias": False, "qk_layernorm": False,
        "use_parallel_residual": False, "hidden_dropout": 0.0, "attention_dropout": 0.0,
        "bos_token_id": 0, "eos_token_id": 0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    sizes={
        "stablelm-3b": {},
        "stablelm2-1.6b": {
            **STABLELM2, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24,
            "use_qkv_bias": True,
        },
        "stablelm2-12b": {
            **STABLELM2, "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40,
            "num_key_value_heads": 8, "qk_layernorm": True, "use_parallel_residual": True,
        },
    },
)  # fmt: skip
