"""Phi 3 and 4 (Abdin 2024): LLaMA with fused projections; LongRoPE in the variants for long texts."""

from dataclasses import replace

from ...errors import SpecError
from ...nn import Block, SingleStack, Tokens, Tower
from ...weights import Fused, Table
from ..family import Config, HeadKind
from ..shared import blocks_by_layer_type, decoder_classes, override, partial_rotary, rope
from . import llama


def spec(c: Config, task: HeadKind) -> SingleStack:
    kind = c["rope_parameters"].get("rope_type", "default")
    # Earlier names of the same; their "yarn" never was YaRN.
    known = {"default": "default", "longrope": "longrope", "su": "longrope", "yarn": "longrope"}
    if kind not in known:
        raise SpecError(f"rope_type is {kind!r}; Phi 3 is known here with 'default' and 'longrope'")
    # The window is for all layers.
    c = Config(
        {**c, "layer_types": None, "rope_parameters": {**c["rope_parameters"], "rope_type": known[kind]}}
    )
    base = llama.spec(c, task).edit(Tokens, dropout=c["embd_pdrop"]).edit(Block, dropout=c["resid_pdrop"])
    assert isinstance(base.tower.block, Block)
    block = blocks_by_layer_type(base.tower.block, c, c["sliding_window"])
    return base.edit(Tower, block=block, positions=rope(c, fraction=partial_rotary(c)))


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "model.layers.{i}.", "tower.blocks.{i}."
    heads = c["num_attention_heads"]
    head_dim = c.get("head_dim") or c["hidden_size"] // heads
    kv = (c["num_key_value_heads"] or heads) * head_dim
    qkv = tuple(f"{ours}attn.{x}.{{p}}" for x in "qkv")
    own = (
        Fused(theirs + "self_attn.qkv_proj.{p}", qkv, sizes=(heads * head_dim, kv, kv)),
        Fused(theirs + "mlp.gate_up_proj.{p}", (ours + "ff.gate.{p}", ours + "ff.up.{p}")),
    )
    return override(llama.weights(c, task), own)


FAMILY = replace(
    llama.FAMILY,
    name="phi3",
    title="Phi 3",
    also=("Phi 4",),
    year=2024,
    paper="https://arxiv.org/abs/2404.14219",
    spec=spec,
    weights=weights,
    parent="llama",
    head_prefix={},
    architectures=decoder_classes("Phi3", "span"),
    defaults={
        "vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": None, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
        "attention_dropout": 0.0, "hidden_act": "silu", "max_position_embeddings": 4096,
        "original_max_position_embeddings": 4096, "initializer_range": 0.02, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False, "sliding_window": None, "bos_token_id": 1, "eos_token_id": 32000,
        "pad_token_id": 32000, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    sizes={
        "phi3-mini": {"sliding_window": 2047},
        "phi4": {
            "vocab_size": 100352, "hidden_size": 5120, "intermediate_size": 17920, "num_hidden_layers": 40,
            "num_attention_heads": 40, "num_key_value_heads": 10, "max_position_embeddings": 16384,
            "original_max_position_embeddings": 16384, "bos_token_id": 100257, "eos_token_id": 100265,
            "pad_token_id": 100349, "rope_parameters": {"rope_type": "default", "rope_theta": 250000.0},
        },
    },
)  # fmt: skip
