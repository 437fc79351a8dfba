"""OLMo (Groeneveld 2024): LLaMA with layer norms that have no weights; q, k and v may be clipped."""

from dataclasses import replace

from ...nn import Attention, SingleStack
from ...nn.norm import NonParametric
from ..family import Config, HeadKind
from ..shared import decoder_classes
from . import llama


def spec(c: Config, task: HeadKind) -> SingleStack:
    return llama.decoder(c, task, NonParametric(eps=1e-5)).edit(Attention, clip=c["clip_qkv"])


DEFAULTS = {
    "vocab_size": 50304, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": None, "hidden_act": "silu",
    "max_position_embeddings": 2048, "initializer_range": 0.02, "tie_word_embeddings": False,
    "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": None, "eos_token_id": 50279,
    "pad_token_id": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}  # fmt: skip
FAMILY = replace(
    llama.FAMILY,
    name="olmo",
    title="OLMo",
    year=2024,
    paper="https://arxiv.org/abs/2402.00838",
    spec=spec,
    parent="llama",
    head_prefix={},
    architectures=decoder_classes("Olmo", "tags", "span"),
    defaults={**DEFAULTS, "clip_qkv": None},
    sizes={
        "olmo-1b": {
            "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
            "num_attention_heads": 16, "tie_word_embeddings": True,
        },
        "olmo-7b": {},
    },
)  # fmt: skip
