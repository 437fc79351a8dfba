"""GPT-1 (Radford 2018): a causal decoder with post-norm blocks and no norm at the end."""

from ...nn import (
    MLP,
    Activation,
    Attention,
    Block,
    Learned,
    Normal,
    SingleStack,
    Softmax,
    TokenHead,
    Tokens,
    Tower,
)
from ...nn.norm import Layer
from ...weights import Fused, Ignore, Name, Table
from ..family import Config, Family, HeadKind
from ..shared import decoder_head, decoder_head_rules

# Their "gelu" is the tanh form.
ACTS: dict[str, Activation] = {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}


def spec(c: Config, task: HeadKind) -> SingleStack:
    return SingleStack(
        tower=Tower(
            width=c["n_embd"],
            depth=c["n_layer"],
            causal=True,
            embed=Tokens(vocab=c["vocab_size"], dropout=c["embd_pdrop"]),
            positions=Learned(length=c["n_positions"]),
            block=Block(
                attention=Attention(heads=c["n_head"], bias="qkvo", kernel=Softmax(dropout=c["attn_pdrop"])),
                feedforward=MLP(hidden=4 * c["n_embd"], act=ACTS[c["afn"]]),
                norm=Layer(eps=c["layer_norm_epsilon"]),
                order="post",
                dropout=c["resid_pdrop"],
            ),
        ),
        head=decoder_head(c, task, TokenHead(vocab=c["vocab_size"], tied=c["tie_word_embeddings"])),
        init=Normal(std=c["initializer_range"]),
    )


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "transformer.h.{i}.", "tower.blocks.{i}."
    return (
        Name("transformer.tokens_embed.weight", "tower.embed.table.weight"),
        Name("transformer.positions_embed.weight", "tower.positions.table.weight"),
        Fused(theirs + "attn.c_attn.{p}", tuple(f"{ours}attn.{x}.{{p}}" for x in "qkv"), transpose=True),
        Name(theirs + "attn.c_proj.{p}", ours + "attn.out.{p}", transpose=True),
        Name(theirs + "ln_1.{p}", ours + "attn_norm.{p}"),
        Name(theirs + "mlp.c_fc.{p}", ours + "ff.up.{p}", transpose=True),
        Name(theirs + "mlp.c_proj.{p}", ours + "ff.down.{p}", transpose=True),
        Name(theirs + "ln_2.{p}", ours + "ff_norm.{p}"),
        *decoder_head_rules(c, task, "lm_head.weight"),
        Ignore(theirs + "attn.bias", "a causal mask"),
        Ignore("transformer.position_ids", "the numbers 0, 1, 2, ..."),
    )


FAMILY = Family(
    name="openai-gpt",
    title="GPT",
    year=2018,
    paper="https://openai.com/research/language-unsupervised",
    mode="causal",
    uses="continuation",
    spec=spec,
    weights=weights,
    prefix="transformer.",
    parent="transformer",
    architectures={
        "tokens": "OpenAIGPTLMHeadModel", "labels": "OpenAIGPTForSequenceClassification",
        "hidden": "OpenAIGPTModel",
    },
    defaults={
        "vocab_size": 40478, "n_positions": 512, "n_embd": 768, "n_layer": 12, "n_head": 12, "afn": "gelu",
        "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1, "layer_norm_epsilon": 1e-5,
        "initializer_range": 0.02, "tie_word_embeddings": True,
    },
    sizes={"openai-gpt": {}},
)  # fmt: skip
