"""Cohere's Command R7B (2024): Command R with a window in three of four layers; the others do not rotate."""

from dataclasses import replace

from ...errors import SpecError
from ...nn import Block, NoPositions, SingleStack, Tower
from ..family import Config, HeadKind
from ..shared import blocks_by_layer_type, decoder_classes, every_nth_full, rope
from . import cohere


def spec(c: Config, task: HeadKind) -> SingleStack:
    if c["sliding_window"] is None:
        raise SpecError("sliding_window is null; Command R7B is known here with a window (a whole number)")
    base = cohere.spec(Config({**c, "use_qk_norm": False}), task)
    assert isinstance(base.tower.block, Block)
    still = replace(base.tower.block, positions=NoPositions())
    layers = Config({**c, "layer_types": every_nth_full(c, c.get("sliding_window_pattern", 4))})
    block = blocks_by_layer_type(still, layers, c["sliding_window"])
    return base.edit(Tower, block=block, positions=replace(rope(c), pairing="neighbours"))


FAMILY = replace(
    cohere.FAMILY,
    name="cohere2",
    title="Command R7B",
    also=(),
    paper="https://arxiv.org/abs/2504.00698",
    spec=spec,
    weights=cohere.weights,
    parent="cohere",
    architectures=decoder_classes("Cohere2", "labels", "tags", "span"),
    defaults={
        **cohere.DEFAULTS, "layer_types": None, "sliding_window": 4096,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    sizes={
        "command-r7b": {
            "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "logit_scale": 0.25,
            "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0},
        },
    },
)  # fmt: skip
