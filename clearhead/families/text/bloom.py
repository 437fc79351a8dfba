"""BLOOM (Scao 2022): ALiBi, a norm of the embeddings, queries, keys and values fused head by head."""

from ...nn import MLP, Alibi, Attention, Block, Normal, SingleStack, Softmax, TokenHead, Tokens, Tower
from ...nn.norm import Layer
from ...weights import Fused, Name, Table
from ..family import Config, Family, HeadKind
from ..shared import decoder_head, decoder_head_rules


def spec(c: Config, task: HeadKind) -> SingleStack:
    norm = Layer(eps=c["layer_norm_epsilon"])
    return SingleStack(
        tower=Tower(
            width=c["hidden_size"],
            depth=c["n_layer"],
            causal=True,
            embed=Tokens(vocab=c["vocab_size"], norm=norm),
            positions=Alibi(),
            block=Block(
                attention=Attention(
                    heads=c["n_head"], bias="qkvo", kernel=Softmax(dropout=c["attention_dropout"])
                ),
                norm=norm,
                order="normed" if c["apply_residual_connection_post_layernorm"] else "pre",
                feedforward=MLP(hidden=4 * c["hidden_size"], act="gelu_tanh"),
                dropout=c["hidden_dropout"],
            ),
            last_norm=norm,
        ),
        head=decoder_head(c, task, TokenHead(vocab=c["vocab_size"], tied=c["tie_word_embeddings"])),
        init=Normal(std=c["initializer_range"]),
    )


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "transformer.h.{i}.", "tower.blocks.{i}."
    qkv = tuple(f"{ours}attn.{x}.{{p}}" for x in "qkv")
    return (
        Name("transformer.word_embeddings.weight", "tower.embed.table.weight"),
        Name("transformer.word_embeddings_layernorm.{p}", "tower.embed.norm.{p}"),
        Name(theirs + "input_layernorm.{p}", ours + "attn_norm.{p}"),
        Fused(theirs + "self_attention.query_key_value.{p}", qkv, per_head=c["n_head"]),
        Name(theirs + "self_attention.dense.{p}", ours + "attn.out.{p}"),
        Name(theirs + "post_attention_layernorm.{p}", ours + "ff_norm.{p}"),
        Name(theirs + "mlp.dense_h_to_4h.{p}", ours + "ff.up.{p}"),
        Name(theirs + "mlp.dense_4h_to_h.{p}", ours + "ff.down.{p}"),
        Name("transformer.ln_f.{p}", "tower.norm.{p}"),
        *decoder_head_rules(c, task, "lm_head.weight", tags="classifier"),
    )


FAMILY = Family(
    name="bloom",
    title="BLOOM",
    year=2022,
    paper="https://arxiv.org/abs/2211.05100",
    mode="causal",
    uses="continuation, in 46 languages",
    spec=spec,
    weights=weights,
    prefix="transformer.",
    parent="gpt2",
    architectures={
        "tokens": "BloomForCausalLM", "labels": "BloomForSequenceClassification",
        "tags": "BloomForTokenClassification", "span": "BloomForQuestionAnswering", "hidden": "BloomModel",
    },
    defaults={
        "vocab_size": 250880, "hidden_size": 64, "n_layer": 2, "n_head": 8, "layer_norm_epsilon": 1e-5,
        "initializer_range": 0.02, "apply_residual_connection_post_layernorm": False, "hidden_dropout": 0.0,
        "attention_dropout": 0.0, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2,
    },
    sizes={
        "bloom-560m": {"hidden_size": 1024, "n_layer": 24, "n_head": 16, "pad_token_id": 3},
        "bloom-7b1": {"hidden_size": 4096, "n_layer": 30, "n_head": 32, "pad_token_id": 3},
        "bloom": {"hidden_size": 14336, "n_layer": 70, "n_head": 112, "pad_token_id": 3},
    },
)  # fmt: skip
