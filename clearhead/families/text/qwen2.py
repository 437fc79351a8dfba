"""Qwen 2 (Yang 2024): LLaMA with biases on queries, keys and values."""

from dataclasses import replace

from ...errors import SpecError
from ...nn import Attention, Block, SingleStack, Tower
from ..family import Config, HeadKind
from ..shared import blocks_by_layer_type, decoder_classes, sliding_from
from . import llama


def spec(c: Config, task: HeadKind) -> SingleStack:
    base = llama.spec(c, task).edit(Attention, bias="qkv")
    assert isinstance(base.tower.block, Block)
    layers = sliding_from(c, c["max_window_layers"])
    window = c["sliding_window"] if c["use_sliding_window"] else None
    if not window and "sliding_attention" in (c.get("layer_types") or ()):
        raise SpecError(
            "layer_types has sliding_attention, but use_sliding_window is false: there is no window"
        )
    return base.edit(Tower, block=blocks_by_layer_type(base.tower.block, layers, window))


QWEN25 = {"rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}}
FAMILY = replace(
    llama.FAMILY,
    name="qwen2",
    title="Qwen 2",
    year=2024,
    paper="https://arxiv.org/abs/2407.10671",
    spec=spec,
    parent="llama",
    architectures=decoder_classes("Qwen2"),
    defaults={
        **llama.DEFAULTS, "vocab_size": 151936, "intermediate_size": 22016, "num_key_value_heads": 32,
        "max_position_embeddings": 32768, "use_sliding_window": False, "layer_types": None,
        "sliding_window": 4096,
        "max_window_layers": 28, "bos_token_id": None, "eos_token_id": None,
    },
    sizes={
        "qwen2.5-0.5b": {
            **QWEN25, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
            "num_attention_heads": 14, "num_key_value_heads": 2, "tie_word_embeddings": True,
        },
        "qwen2.5-1.5b": {
            **QWEN25, "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
            "num_attention_heads": 12, "num_key_value_heads": 2, "tie_word_embeddings": True,
        },
        "qwen2.5-3b": {
            **QWEN25, "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36,
            "num_attention_heads": 16, "num_key_value_heads": 2, "tie_word_embeddings": True,
        },
        "qwen2.5-7b": {
            **QWEN25, "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944,
            "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
        },
        "qwen2.5-14b": {
            **QWEN25, "vocab_size": 152064, "hidden_size": 5120, "intermediate_size": 13824,
            "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8,
        },
        "qwen2.5-32b": {
            **QWEN25, "vocab_size": 152064, "hidden_size": 5120, "intermediate_size": 27648,
            "num_hidden_layers": 64, "num_attention_heads": 40, "num_key_value_heads": 8,
        },
        "qwen2.5-72b": {
            **QWEN25, "vocab_size": 152064, "hidden_size": 8192, "intermediate_size": 29568,
            "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
        },
    },
)  # fmt: skip
