"""Seed-OSS (ByteDance 2025): LLaMA with biases on q, k and v, and dropout."""

from dataclasses import replace

from ...nn import Attention, Block, SingleStack
from ..family import Config, HeadKind
from ..shared import decoder_classes
from . import llama


def spec(c: Config, task: HeadKind) -> SingleStack:
    bias = ("qkv" if c["attention_bias"] else "") + ("o" if c["attention_out_bias"] else "")
    return llama.spec(c, task).edit(Attention, bias=bias).edit(Block, dropout=c["residual_dropout"])


FAMILY = replace(
    llama.FAMILY,
    name="seed_oss",
    title="Seed-OSS",
    year=2025,
    paper="https://github.com/ByteDance-Seed/seed-oss",
    spec=spec,
    parent="llama",
    architectures=decoder_classes("SeedOss"),
    defaults={
        **llama.DEFAULTS, "vocab_size": 155136, "intermediate_size": 27648, "num_hidden_layers": 64,
        "num_attention_heads": 80, "num_key_value_heads": 8, "head_dim": 128, "attention_bias": True,
        "attention_out_bias": False, "attention_dropout": 0.1, "residual_dropout": 0.1,
        "max_position_embeddings": 524288, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1,
    },
    sizes={
        "seed-oss-36b": {
            "hidden_size": 5120, "rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0},
        },
    },
)  # fmt: skip
