"""Gemma 2 (2024): LLaMA with norms on both sides, capped scores, a sliding window in every other layer."""

from dataclasses import replace

from ...nn import Attention, Block, Gated, SingleStack, Softmax, TokenHead, Tokens, Tower
from ...nn.norm import RMS
from ...weights import Name, Table
from ..family import Config, HeadKind
from ..shared import activation, blocks_by_layer_type, decoder_classes, override
from . import llama


def spec(c: Config, task: HeadKind) -> SingleStack:
    base = (
        llama.spec(c, task)
        .edit(RMS, centred=True)
        .edit(Tokens, scale=c["hidden_size"] ** 0.5)
        .edit(Block, order="sandwich")
        .edit(Gated, act=activation(c["hidden_activation"]))
        .edit(Attention, scale=c["query_pre_attn_scalar"] ** -0.5)
        .edit(Softmax, cap=c["attn_logit_softcapping"])
    )
    if task == "tokens":
        base = base.edit(TokenHead, cap=c["final_logit_softcapping"])
    assert isinstance(base.tower.block, Block)
    alternating = [("sliding_attention", "full_attention")[i % 2] for i in range(c["num_hidden_layers"])]
    config = Config({**c, "layer_types": c.get("layer_types") or alternating})
    return base.edit(Tower, block=blocks_by_layer_type(base.tower.block, config, c["sliding_window"]))


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "model.layers.{i}.", "tower.blocks.{i}."
    norms = {
        "post_attention_layernorm": "attn_after",
        "pre_feedforward_layernorm": "ff_norm",
        "post_feedforward_layernorm": "ff_after",
    }
    own = tuple(Name(f"{theirs}{them}.{{p}}", f"{ours}{us}.{{p}}") for them, us in norms.items())
    return override(llama.weights(c, task), own)


FAMILY = replace(
    llama.FAMILY,
    name="gemma2",
    title="Gemma 2",
    year=2024,
    paper="https://arxiv.org/abs/2408.00118",
    spec=spec,
    weights=weights,
    parent="gemma",
    architectures=decoder_classes("Gemma2", "span"),
    defaults={
        **llama.DEFAULTS, "vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216,
        "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 8192, "layer_types": None,
        "sliding_window": 4096,
        "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
        "tie_word_embeddings": True, "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0,
    },
    sizes={
        "gemma2-2b": {},
        "gemma2-9b": {
            "hidden_size": 3584, "intermediate_size": 14336, "num_hidden_layers": 42,
            "num_attention_heads": 16, "num_key_value_heads": 8,
        },
        "gemma2-27b": {
            "hidden_size": 4608, "intermediate_size": 36864, "num_hidden_layers": 46,
            "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128,
            "query_pre_attn_scalar": 144,
        },
    },
)  # fmt: skip
