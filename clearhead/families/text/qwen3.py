"""Qwen 3 (Yang 2025): LLaMA with a norm on each head of the queries and keys."""

from dataclasses import replace

from ...nn import Attention, Block, SingleStack, Tower
from ...nn.norm import RMS
from ...weights import Name, Table
from ..family import Config, HeadKind
from ..shared import blocks_by_layer_type, decoder_classes, sliding_from
from . import llama


def spec(c: Config, task: HeadKind) -> SingleStack:
    base = llama.spec(c, task).edit(Attention, qk_norm=RMS(eps=c["rms_norm_eps"]))
    assert isinstance(base.tower.block, Block)
    layers = sliding_from(c, c["max_window_layers"])
    window = c["sliding_window"] if c["use_sliding_window"] else None
    return base.edit(Tower, block=blocks_by_layer_type(base.tower.block, layers, window))


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "model.layers.{i}.self_attn.", "tower.blocks.{i}.attn."
    norms = tuple(Name(f"{theirs}{x}_norm.weight", f"{ours}{x}_norm.weight") for x in "qk")
    return llama.weights(c, task) + norms


SIZE = {
    "num_key_value_heads": 8, "max_position_embeddings": 40960,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
}  # fmt: skip
FAMILY = replace(
    llama.FAMILY,
    name="qwen3",
    title="Qwen 3",
    year=2025,
    paper="https://arxiv.org/abs/2505.09388",
    spec=spec,
    weights=weights,
    parent="qwen2",
    architectures=decoder_classes("Qwen3"),
    defaults={
        **llama.DEFAULTS, "vocab_size": 151936, "intermediate_size": 22016, "num_key_value_heads": 32,
        "head_dim": 128, "max_position_embeddings": 32768, "use_sliding_window": False,
        "layer_types": None, "sliding_window": 4096, "max_window_layers": 28, "bos_token_id": None,
        "eos_token_id": None,
    },
    sizes={
        "qwen3-0.6b": {
            **SIZE, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
            "num_attention_heads": 16, "tie_word_embeddings": True,
        },
        "qwen3-1.7b": {
            **SIZE, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
            "num_attention_heads": 16, "tie_word_embeddings": True,
        },
        "qwen3-4b": {
            **SIZE, "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
            "num_attention_heads": 32, "tie_word_embeddings": True,
        },
        "qwen3-8b": {
            **SIZE, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
            "num_attention_heads": 32,
        },
        "qwen3-14b": {
            **SIZE, "hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 40,
            "num_attention_heads": 40,
        },
        "qwen3-32b": {
            **SIZE, "hidden_size": 5120, "intermediate_size": 25600, "num_hidden_layers": 64,
            "num_attention_heads": 64,
        },
    },
)  # fmt: skip
