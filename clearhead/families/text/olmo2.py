"""OLMo 2 (Walsh 2024): OLMo with RMS norms on the outputs of sub-layers and on q and k, all heads at once."""

from dataclasses import replace
from typing import Any

from ...nn import Attention, Block, SingleStack
from ...nn.norm import RMS
from ...weights import Name, Table
from ..family import Config, HeadKind
from ..shared import decoder_classes, override
from . import llama, olmo


def spec(c: Config, task: HeadKind) -> SingleStack:
    norm = RMS(eps=c["rms_norm_eps"])
    base = llama.decoder(c, task, norm).edit(Attention, qk_norm=norm, qk_norm_heads="joint")
    return base.edit(Block, order="output")


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "model.layers.{i}.", "tower.blocks.{i}."
    own = (
        Name(theirs + "post_attention_layernorm.{p}", ours + "attn_norm.{p}"),
        Name(theirs + "post_feedforward_layernorm.{p}", ours + "ff_norm.{p}"),
        *(Name(f"{theirs}self_attn.{x}_norm.weight", f"{ours}attn.{x}_norm.weight") for x in "qk"),
    )
    return override(llama.weights(c, task), own)


DEFAULTS = {**olmo.DEFAULTS, "rms_norm_eps": 1e-5}
OLMO2: dict[str, Any] = {
    "vocab_size": 100352, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "eos_token_id": 100257,
    "pad_token_id": 100277, "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
}  # fmt: skip
FAMILY = replace(
    llama.FAMILY,
    name="olmo2",
    title="OLMo 2",
    year=2024,
    paper="https://arxiv.org/abs/2501.00656",
    spec=spec,
    weights=weights,
    parent="olmo",
    head_prefix={},
    architectures=decoder_classes("Olmo2", "tags", "span"),
    defaults=DEFAULTS,
    sizes={
        "olmo2-1b": {
            **OLMO2, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
            "num_attention_heads": 16,
        },
        "olmo2-7b": OLMO2,
    },
)  # fmt: skip
