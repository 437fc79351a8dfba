"""Gemma (2024): LLaMA with centred norms, scaled embeddings, a gelu gate and wider heads."""

from dataclasses import replace

from ...nn import Gated, SingleStack, Tokens
from ...nn.norm import RMS
from ..family import Config, HeadKind
from ..shared import activation, decoder_classes
from . import llama


def spec(c: Config, task: HeadKind) -> SingleStack:
    # The first files say "gelu" and mean its approximation by tanh, with which the model was trained.
    act = "gelu_pytorch_tanh" if c["hidden_act"] == "gelu" else c["hidden_act"]
    return (
        llama.spec(c, task)
        .edit(RMS, centred=True)
        .edit(Tokens, scale=c["hidden_size"] ** 0.5)
        .edit(Gated, act=activation(act))
    )


FAMILY = replace(
    llama.FAMILY,
    name="gemma",
    title="Gemma",
    year=2024,
    paper="https://arxiv.org/abs/2403.08295",
    spec=spec,
    parent="llama",
    head_prefix={},
    architectures=decoder_classes("Gemma", "span"),
    defaults={
        **llama.DEFAULTS, "vocab_size": 256000, "hidden_size": 3072, "intermediate_size": 24576,
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256,
        "hidden_act": "gelu_pytorch_tanh", "max_position_embeddings": 8192, "tie_word_embeddings": True,
        "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0,
    },
    sizes={
        "gemma-2b": {
            "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 18,
            "num_attention_heads": 8, "num_key_value_heads": 1,
        },
        "gemma-7b": {},
    },
)  # fmt: skip
