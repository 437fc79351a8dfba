"""GPT-2 and GPT-3 (Radford 2019, Brown 2020): learned positions, pre-norm, tied head, transposed files."""

from dataclasses import replace

from ...nn import (
    MLP,
    Attention,
    Block,
    Learned,
    ResidualNormal,
    SingleStack,
    Softmax,
    TokenHead,
    Tokens,
    Tower,
)
from ...nn.norm import Layer
from ...weights import Fused, Ignore, Name, Table
from ..family import Config, Family, HeadKind
from ..shared import activation, decoder_head, decoder_head_rules


def spec(c: Config, task: HeadKind) -> SingleStack:
    norm = Layer(eps=c["layer_norm_epsilon"])
    attention = Attention(
        heads=c["n_head"],
        bias="qkvo",
        scale=None if c["scale_attn_weights"] else 1.0,
        kernel=Softmax(dropout=c["attn_pdrop"]),
    )
    block = Block(
        attention=attention,
        norm=norm,
        feedforward=MLP(hidden=c["n_inner"] or 4 * c["n_embd"], act=activation(c["activation_function"])),
        dropout=c["resid_pdrop"],
    )
    blocks: Block | tuple[Block, ...] = block
    if c["scale_attn_by_inverse_layer_idx"]:  # Stanford's Mistral runs: deeper layers have smaller scores
        scale = (c["n_embd"] // c["n_head"]) ** -0.5 if c["scale_attn_weights"] else 1.0
        scales = [scale / (i + 1) for i in range(c["n_layer"])]
        blocks = tuple(replace(block, attention=replace(attention, scale=s)) for s in scales)
    return SingleStack(
        tower=Tower(
            width=c["n_embd"],
            depth=c["n_layer"],
            causal=True,
            embed=Tokens(vocab=c["vocab_size"], dropout=c["embd_pdrop"]),
            positions=Learned(length=c["n_positions"]),
            block=blocks,
            last_norm=norm,
        ),
        head=decoder_head(c, task, TokenHead(vocab=c["vocab_size"], tied=c["tie_word_embeddings"])),
        init=ResidualNormal(std=c["initializer_range"]),
    )


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "transformer.h.{i}.", "tower.blocks.{i}."
    return (
        Name("transformer.wte.weight", "tower.embed.table.weight"),
        Name("transformer.wpe.weight", "tower.positions.table.weight"),
        Name(theirs + "ln_1.{p}", ours + "attn_norm.{p}"),
        Fused(theirs + "attn.c_attn.{p}", tuple(f"{ours}attn.{x}.{{p}}" for x in "qkv"), transpose=True),
        Name(theirs + "attn.c_proj.{p}", ours + "attn.out.{p}", transpose=True),
        Name(theirs + "ln_2.{p}", ours + "ff_norm.{p}"),
        Name(theirs + "mlp.c_fc.{p}", ours + "ff.up.{p}", transpose=True),
        Name(theirs + "mlp.c_proj.{p}", ours + "ff.down.{p}", transpose=True),
        Name("transformer.ln_f.{p}", "tower.norm.{p}"),
        *decoder_head_rules(c, task, "lm_head.weight", tags="classifier"),
        Ignore(theirs + "attn.bias", "a causal mask"),
        Ignore(theirs + "attn.masked_bias", "a constant"),
    )


FAMILY = Family(
    name="gpt2",
    title="GPT-2",
    also=("GPT-3",),
    year=2019,
    paper="https://openai.com/research/better-language-models",
    mode="causal",
    uses="continuation, dialogue",
    spec=spec,
    weights=weights,
    prefix="transformer.",
    parent="openai-gpt",
    architectures={
        "tokens": "GPT2LMHeadModel", "labels": "GPT2ForSequenceClassification",
        "tags": "GPT2ForTokenClassification", "span": "GPT2ForQuestionAnswering", "hidden": "GPT2Model",
    },
    defaults={
        "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": None,
        "activation_function": "gelu_new", "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1,
        "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False, "tie_word_embeddings": True,
        "bos_token_id": 50256, "eos_token_id": 50256,
    },
    sizes={
        "gpt2": {},
        "gpt2-medium": {"n_embd": 1024, "n_layer": 24, "n_head": 16},
        "gpt2-large": {"n_embd": 1280, "n_layer": 36, "n_head": 20},
        "gpt2-xl": {"n_embd": 1600, "n_layer": 48, "n_head": 25},
        "gpt3": {"n_embd": 12288, "n_layer": 96, "n_head": 96, "n_positions": 2048},
    },
)  # fmt: skip
