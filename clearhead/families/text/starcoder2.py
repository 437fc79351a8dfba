"""StarCoder 2 (Lozhkov 2024): LLaMA with layer norm, biases and a plain feed-forward layer; for code."""

from dataclasses import replace

from ...nn import MLP, Attention, Block, SingleStack, Tokens, Tower
from ...nn.norm import Layer
from ...weights import Name, Table
from ..family import Config, HeadKind
from ..shared import activation, blocks_by_layer_type, decoder_classes, override
from . import llama


def spec(c: Config, task: HeadKind) -> SingleStack:
    base = llama.decoder(c, task, Layer(eps=c["norm_epsilon"])).edit(Tokens, dropout=c["embedding_dropout"])
    assert isinstance(base.tower.block, Block)
    block = replace(
        base.tower.block.edit(Attention, bias="qkvo" if c["use_bias"] else ""),
        feedforward=MLP(hidden=c["intermediate_size"], act=activation(c["hidden_act"]), bias=c["use_bias"]),
        dropout=c["residual_dropout"],
    )
    alike = Config({**c, "layer_types": None})  # the window is for all layers
    return base.edit(Tower, block=blocks_by_layer_type(block, alike, c["sliding_window"]))


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "model.layers.{i}.mlp.", "tower.blocks.{i}.ff."
    own = Name(theirs + "c_fc.{p}", ours + "up.{p}"), Name(theirs + "c_proj.{p}", ours + "down.{p}")
    return override(llama.weights(c, task), own)


STARCODER2 = {"max_position_embeddings": 16384, "sliding_window": 4096, "bos_token_id": 0, "eos_token_id": 0}
FAMILY = replace(
    llama.FAMILY,
    name="starcoder2",
    title="StarCoder 2",
    year=2024,
    paper="https://arxiv.org/abs/2402.19173",
    uses="continuation of code",
    spec=spec,
    weights=weights,
    parent="llama",
    head_prefix={},
    architectures=decoder_classes("Starcoder2", "span"),
    defaults={
        "vocab_size": 49152, "hidden_size": 3072, "intermediate_size": 12288, "num_hidden_layers": 30,
        "num_attention_heads": 24, "num_key_value_heads": 2, "hidden_act": "gelu_pytorch_tanh",
        "max_position_embeddings": 4096, "initializer_range": 0.018042, "norm_epsilon": 1e-5,
        "sliding_window": None, "attention_dropout": 0.0, "residual_dropout": 0.0, "embedding_dropout": 0.0,
        "use_bias": True, "tie_word_embeddings": True, "bos_token_id": 50256, "eos_token_id": 50256,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    sizes={
        "starcoder2-3b": {
            **STARCODER2, "rope_parameters": {"rope_type": "default", "rope_theta": 999999.4420358813},
        },
        "starcoder2-7b": {
            **STARCODER2, "hidden_size": 4608, "intermediate_size": 18432, "num_hidden_layers": 32,
            "num_attention_heads": 36, "num_key_value_heads": 4,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        },
    },
)  # fmt: skip
