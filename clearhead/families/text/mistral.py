"""Mistral (Jiang 2023): LLaMA with a sliding window."""

from dataclasses import replace

from ...nn import Block, SingleStack, Tower
from ..family import Config, HeadKind
from ..shared import blocks_by_layer_type, decoder_classes
from . import llama


def spec(c: Config, task: HeadKind) -> SingleStack:
    base = llama.spec(c, task)
    assert isinstance(base.tower.block, Block)
    return base.edit(Tower, block=blocks_by_layer_type(base.tower.block, c, c["sliding_window"]))


FAMILY = replace(
    llama.FAMILY,
    name="mistral",
    title="Mistral",
    paper="https://arxiv.org/abs/2310.06825",
    spec=spec,
    parent="llama",
    head_prefix={},
    architectures=decoder_classes("Mistral"),
    defaults={
        **llama.DEFAULTS, "intermediate_size": 14336, "num_key_value_heads": 8, "sliding_window": 4096,
        "max_position_embeddings": 131072,
    },
    sizes={"mistral-7b": {"max_position_embeddings": 32768, "rms_norm_eps": 1e-5}},
)  # fmt: skip
