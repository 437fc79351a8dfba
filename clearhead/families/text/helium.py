"""Helium (Kyutai 2025): LLaMA that rotates neighbouring channels together."""

from dataclasses import replace

from ...nn import Attention, Rope, SingleStack, Tower
from ..family import Config, HeadKind
from ..shared import decoder_classes, rope
from . import llama


def spec(c: Config, task: HeadKind) -> SingleStack:
    return (
        llama.spec(c, task)
        .edit(Tower, positions=rope(c, theta=100000.0))
        .edit(Rope, pairing="neighbours")
        .edit(Attention, bias="qkv" if c["attention_bias"] else "")
    )


FAMILY = replace(
    llama.FAMILY,
    name="helium",
    title="Helium",
    year=2025,
    paper="https://huggingface.co/kyutai/helium-1-preview-2b",
    spec=spec,
    parent="llama",
    head_prefix={},
    architectures=decoder_classes("Helium", "span"),
    defaults={
        **llama.DEFAULTS, "vocab_size": 48000, "hidden_size": 2560, "intermediate_size": 7040,
        "num_hidden_layers": 24, "num_attention_heads": 20, "num_key_value_heads": 20, "head_dim": 128,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-8, "pad_token_id": 3,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    },
    sizes={"helium1-preview-2b": {}},
)  # fmt: skip
