"""Granite (IBM 2024): LLaMA with factors on embeddings, scores, residual additions and logits (muP)."""

from dataclasses import replace
from typing import Any

from ...errors import SpecError
from ...nn import Attention, Block, SingleStack, TokenHead, Tokens
from ..family import Config, HeadKind
from ..shared import decoder_classes
from . import llama


def spec(c: Config, task: HeadKind) -> SingleStack:
    if c["logits_scaling"] == 0:
        raise SpecError("logits_scaling is 0, and logits are divided by it; expected another number")
    base = (
        llama.spec(c, task)
        .edit(Tokens, scale=float(c["embedding_multiplier"]))
        .edit(Attention, scale=float(c["attention_multiplier"]))
        .edit(Block, scale=float(c["residual_multiplier"]))
    )
    return base.edit(TokenHead, scale=1 / c["logits_scaling"]) if task == "tokens" else base


GRANITE3: dict[str, Any] = {
    "vocab_size": 49155, "num_hidden_layers": 40, "num_key_value_heads": 8, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "embedding_multiplier": 12.0,
    "residual_multiplier": 0.22, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
}  # fmt: skip
FAMILY = replace(
    llama.FAMILY,
    name="granite",
    title="Granite",
    year=2024,
    paper="https://github.com/ibm-granite/granite-3.0-language-models/blob/main/paper.pdf",
    spec=spec,
    parent="llama",
    head_prefix={},
    architectures=decoder_classes("Granite", "labels", "tags", "span"),
    defaults={
        **llama.DEFAULTS, "embedding_multiplier": 1.0, "logits_scaling": 1.0, "residual_multiplier": 1.0,
        "attention_multiplier": 1.0,
    },
    sizes={
        "granite3-2b": {
            **GRANITE3, "hidden_size": 2048, "intermediate_size": 8192, "logits_scaling": 8.0,
            "attention_multiplier": 0.015625,
        },
        "granite3-8b": {
            **GRANITE3, "intermediate_size": 12800, "logits_scaling": 16.0,
            "attention_multiplier": 0.0078125,
        },
    },
)  # fmt: skip
