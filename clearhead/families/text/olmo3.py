"""OLMo 3 (2025): OLMo 2 with a window in three of four layers; only the others are stretched (YaRN)."""

from dataclasses import replace
from typing import Any

from ...nn import Block, SingleStack, Tower
from ..family import Config, HeadKind
from ..shared import blocks_by_layer_type, decoder_classes, every_nth_full, rope_of_layers
from . import olmo2


def spec(c: Config, task: HeadKind) -> SingleStack:
    base = olmo2.spec(Config({**c, "rope_parameters": {}}), task)
    assert isinstance(base.tower.block, Block)
    full = rope_of_layers(c, "full_attention", flat=True, theta=OLMO3_THETA)
    near = rope_of_layers(c, "sliding_attention", flat=False, theta=OLMO3_THETA)
    layers = Config({**c, "layer_types": every_nth_full(c, 4)})
    own = None if near == full else near
    block = blocks_by_layer_type(base.tower.block, layers, c["sliding_window"], positions=own)
    return base.edit(Tower, block=block, positions=full)


OLMO3_THETA = 500000.0
OLMO3_ROPE: dict[str, Any] = {"rope_type": "default", "rope_theta": OLMO3_THETA}
FAMILY = replace(
    olmo2.FAMILY,
    name="olmo3",
    title="OLMo 3",
    year=2025,
    paper="https://arxiv.org/abs/2512.13961",
    spec=spec,
    parent="olmo2",
    architectures=decoder_classes("Olmo3", "tags", "span"),
    defaults={
        **olmo2.DEFAULTS, "layer_types": None, "sliding_window": 4096,
        "rope_parameters": {"full_attention": OLMO3_ROPE, "sliding_attention": OLMO3_ROPE},
    },
    sizes={
        "olmo3-7b": {
            "vocab_size": 100278, "max_position_embeddings": 65536, "rms_norm_eps": 1e-6,
            "eos_token_id": 100257, "pad_token_id": 100277,
            "rope_parameters": {
                "sliding_attention": OLMO3_ROPE,
                "full_attention": {
                    "rope_type": "yarn", "rope_theta": OLMO3_THETA, "factor": 8.0, "beta_fast": 32.0,
                    "beta_slow": 1.0, "original_max_position_embeddings": 8192,
                    "attention_factor": 1.2079441541679836,
                },
            },
        },
    },
)  # fmt: skip
