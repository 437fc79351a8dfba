"""LLaMA 1, 2, 3 (Touvron 2023): rotary positions, RMS norm, gated feed-forward, grouped heads."""

from typing import Any

from ...nn import Attention, Block, Gated, Normal, SingleStack, Softmax, TokenHead, Tokens, Tower
from ...nn.norm import RMS, Norm
from ...weights import Ignore, Name, Table
from ..family import Config, Family, HeadKind
from ..shared import activation, decoder_classes, decoder_head, decoder_head_rules, rope


def spec(c: Config, task: HeadKind) -> SingleStack:
    return decoder(c, task, RMS(eps=c["rms_norm_eps"]))


def decoder(c: Config, task: HeadKind, norm: Norm) -> SingleStack:
    """LLaMA with another norm, for its descendants."""
    return SingleStack(
        tower=Tower(
            width=c["hidden_size"],
            depth=c["num_hidden_layers"],
            causal=True,
            embed=Tokens(vocab=c["vocab_size"]),
            positions=rope(c),
            block=Block(
                attention=Attention(
                    heads=c["num_attention_heads"],
                    kv_heads=c["num_key_value_heads"],
                    head_dim=c.get("head_dim"),
                    bias="qkvo" if c.get("attention_bias") else "",
                    kernel=Softmax(dropout=c["attention_dropout"]),
                ),
                norm=norm,
                feedforward=Gated(
                    hidden=c["intermediate_size"],
                    act=activation(c["hidden_act"]),
                    bias=bool(c.get("mlp_bias")),
                ),
            ),
            last_norm=norm,
        ),
        head=decoder_head(c, task, TokenHead(vocab=c["vocab_size"], tied=c["tie_word_embeddings"])),
        init=Normal(std=c["initializer_range"]),
    )


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "model.layers.{i}.", "tower.blocks.{i}."
    return (
        Name("model.embed_tokens.weight", "tower.embed.table.weight"),
        Name(theirs + "input_layernorm.{p}", ours + "attn_norm.{p}"),
        *(Name(f"{theirs}self_attn.{x}_proj.{{p}}", f"{ours}attn.{x}.{{p}}") for x in "qkv"),
        Name(theirs + "self_attn.o_proj.{p}", ours + "attn.out.{p}"),
        Name(theirs + "post_attention_layernorm.{p}", ours + "ff_norm.{p}"),
        *(Name(f"{theirs}mlp.{x}_proj.{{p}}", f"{ours}ff.{x}.{{p}}") for x in ("gate", "up", "down")),
        Name("model.norm.{p}", "tower.norm.{p}"),
        *decoder_head_rules(c, task, "lm_head.weight"),
        Ignore(theirs + "self_attn.rotary_emb.inv_freq", "rotary frequencies"),
    )


DEFAULTS = {
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": None, "head_dim": None, "attention_bias": False,
    "mlp_bias": False, "hidden_act": "silu", "max_position_embeddings": 2048,
    "initializer_range": 0.02, "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "attention_dropout": 0.0,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
LLAMA3: dict[str, Any] = {
    "vocab_size": 128256, "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
    "bos_token_id": 128000, "eos_token_id": 128001,
    "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    },
}  # fmt: skip

SMOLLM2 = {
    "vocab_size": 49152, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
}  # fmt: skip
FAMILY = Family(
    name="llama",
    title="LLaMA",
    year=2023,
    paper="https://arxiv.org/abs/2302.13971",
    mode="causal",
    uses="continuation, dialogue",
    spec=spec,
    weights=weights,
    prefix="model.",
    parent="gpt2",
    head_prefix={"span": "transformer."},
    architectures=decoder_classes("Llama"),
    defaults=DEFAULTS,
    sizes={
        "llama-7b": {},
        "llama-13b": {
            "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40,
            "num_attention_heads": 40,
        },
        "llama-65b": {
            "hidden_size": 8192, "intermediate_size": 22016, "num_hidden_layers": 80,
            "num_attention_heads": 64,
        },
        "llama2-70b": {
            "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
            "num_attention_heads": 64, "num_key_value_heads": 8, "max_position_embeddings": 4096,
        },
        "llama3.1-8b": {**LLAMA3, "intermediate_size": 14336},
        "llama3.1-70b": {
            **LLAMA3, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
            "num_attention_heads": 64,
        },
        "llama3.1-405b": {
            **LLAMA3, "hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126,
            "num_attention_heads": 128,
        },
        "llama3.2-1b": {
            **LLAMA3, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "head_dim": 64,
            "tie_word_embeddings": True,
            "rope_parameters": {**LLAMA3["rope_parameters"], "factor": 32.0},
        },
        "llama3.2-3b": {
            **LLAMA3, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28,
            "num_attention_heads": 24, "tie_word_embeddings": True,
            "rope_parameters": {**LLAMA3["rope_parameters"], "factor": 32.0},
        },
        "smollm2-135m": {
            **SMOLLM2, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
            "num_attention_heads": 9, "num_key_value_heads": 3,
        },
        "smollm2-360m": {
            **SMOLLM2, "hidden_size": 960, "intermediate_size": 2560, "num_attention_heads": 15,
            "num_key_value_heads": 5,
        },
    },
)  # fmt: skip
