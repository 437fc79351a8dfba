"""GPT-NeoX and Pythia (Black 2022): parallel attention and feed-forward, a quarter of each head rotated."""

from dataclasses import replace

from ...nn import MLP, Attention, Block, Normal, SingleStack, Softmax, TokenHead, Tokens, Tower
from ...nn.norm import Layer
from ...weights import Fused, Ignore, Name, Table
from ..family import Config, Family, HeadKind
from ..shared import activation, decoder_classes, decoder_head, decoder_head_rules, rope


def spec(c: Config, task: HeadKind) -> SingleStack:
    norm = Layer(eps=c["layer_norm_eps"])
    fraction = c["rope_parameters"].get("partial_rotary_factor") or c.get("rotary_pct", 0.25)
    return SingleStack(
        tower=Tower(
            width=c["hidden_size"],
            depth=c["num_hidden_layers"],
            causal=True,
            embed=Tokens(vocab=c["vocab_size"], dropout=c["hidden_dropout"]),
            positions=rope(c, fraction=fraction),
            block=Block(
                attention=Attention(
                    heads=c["num_attention_heads"],
                    bias="qkvo" if c["attention_bias"] else "",
                    kernel=Softmax(dropout=c["attention_dropout"]),
                ),
                norm=norm,
                order="parallel" if c["use_parallel_residual"] else "pre",
                feedforward=MLP(hidden=c["intermediate_size"], act=activation(c["hidden_act"])),
                dropout=c["hidden_dropout"],
            ),
            last_norm=norm,
        ),
        head=decoder_head(c, task, TokenHead(vocab=c["vocab_size"], tied=c["tie_word_embeddings"])),
        init=Normal(std=c["initializer_range"]),
    )


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "gpt_neox.layers.{i}.", "tower.blocks.{i}."
    qkv = tuple(f"{ours}attn.{x}.{{p}}" for x in "qkv")
    return (
        Name("gpt_neox.embed_in.weight", "tower.embed.table.weight"),
        Name(theirs + "input_layernorm.{p}", ours + "attn_norm.{p}"),
        Fused(theirs + "attention.query_key_value.{p}", qkv, per_head=c["num_attention_heads"]),
        Name(theirs + "attention.dense.{p}", ours + "attn.out.{p}"),
        Name(theirs + "post_attention_layernorm.{p}", ours + "ff_norm.{p}"),
        Name(theirs + "mlp.dense_h_to_4h.{p}", ours + "ff.up.{p}"),
        Name(theirs + "mlp.dense_4h_to_h.{p}", ours + "ff.down.{p}"),
        Name("gpt_neox.final_layer_norm.{p}", "tower.norm.{p}"),
        *decoder_head_rules(c, task, "embed_out.weight", tags="classifier"),
        Ignore(theirs + "attention.bias", "a causal mask"),
        Ignore(theirs + "attention.masked_bias", "a constant"),
        Ignore(theirs + "attention.rotary_emb.inv_freq", "rotary frequencies"),
    )


def class_weights(c: Config, task: HeadKind) -> Table:
    """The names of the modules of transformers, which calls the head `embed_out` in files alone."""
    return tuple(
        replace(rule, theirs=rule.theirs.replace("embed_out", "lm_head")) for rule in weights(c, task)
    )


FAMILY = Family(
    name="gpt_neox",
    title="GPT-NeoX",
    also=("Pythia",),
    year=2022,
    paper="https://arxiv.org/abs/2204.06745",
    mode="causal",
    uses="continuation",
    spec=spec,
    weights=weights,
    class_weights=class_weights,
    prefix="gpt_neox.",
    parent="gpt2",
    architectures=decoder_classes("GPTNeoX"),
    defaults={
        "vocab_size": 50432, "hidden_size": 6144, "num_hidden_layers": 44, "num_attention_heads": 64,
        "intermediate_size": 24576, "hidden_act": "gelu", "attention_dropout": 0.0, "hidden_dropout": 0.0,
        "classifier_dropout": 0.1,
        "max_position_embeddings": 2048, "initializer_range": 0.02, "layer_norm_eps": 1e-5,
        "use_parallel_residual": True, "attention_bias": True, "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "rotary_emb_base": 10000,
        "bos_token_id": 0, "eos_token_id": 2,
    },
    sizes={
        "neox-20b": {},
        "pythia-70m": {
            "vocab_size": 50304, "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8,
            "intermediate_size": 2048,
        },
        "pythia-160m": {
            "vocab_size": 50304, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
            "intermediate_size": 3072,
        },
        "pythia-410m": {
            "vocab_size": 50304, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
        "pythia-1b": {
            "vocab_size": 50304, "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 8,
            "intermediate_size": 8192,
        },
        "pythia-1.4b": {
            "vocab_size": 50304, "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16,
            "intermediate_size": 8192,
        },
        "pythia-2.8b": {
            "vocab_size": 50304, "hidden_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 32,
            "intermediate_size": 10240,
        },
        "pythia-6.9b": {
            "vocab_size": 50432, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
            "intermediate_size": 16384,
        },
        "pythia-12b": {
            "vocab_size": 50688, "hidden_size": 5120, "num_hidden_layers": 36, "num_attention_heads": 40,
            "intermediate_size": 20480,
        },
    },
)  # fmt: skip
