"""GPT-Neo (Black 2021): GPT-2 with unscaled scores, in which every other layer looks at a window."""

from dataclasses import replace

from ...errors import SpecError
from ...nn import MLP, Attention, Block, Learned, Normal, SingleStack, Softmax, TokenHead, Tokens, Tower
from ...nn.norm import Layer
from ...weights import Ignore, Name, Table
from ..family import Config, Family, HeadKind
from ..shared import activation, decoder_head, decoder_head_rules


def spec(c: Config, task: HeadKind) -> SingleStack:
    norm = Layer(eps=c["layer_norm_epsilon"])
    attention = Attention(
        heads=c["num_heads"], bias="o", scale=1.0, kernel=Softmax(dropout=c["attention_dropout"])
    )
    block = Block(
        attention=attention,
        norm=norm,
        feedforward=MLP(
            hidden=c["intermediate_size"] or 4 * c["hidden_size"], act=activation(c["activation_function"])
        ),
        dropout=c["resid_dropout"],
    )
    # Theirs counts the token itself, ours only the tokens before it.
    local = replace(block, attention=replace(attention, window=(c["window_size"] - 1, 0)))
    blocks = tuple(local if kind == "local" else block for kind in _kinds(c))
    return SingleStack(
        tower=Tower(
            width=c["hidden_size"],
            depth=c["num_layers"],
            causal=True,
            embed=Tokens(vocab=c["vocab_size"], dropout=c["embed_dropout"]),
            positions=Learned(length=c["max_position_embeddings"]),
            block=blocks[0] if len(set(blocks)) == 1 else blocks,
            last_norm=norm,
        ),
        head=decoder_head(c, task, TokenHead(vocab=c["vocab_size"], tied=c["tie_word_embeddings"])),
        init=Normal(std=c["initializer_range"]),
    )


def _kinds(c: Config) -> list[str]:
    """The kind of every layer, listed, or from pairs of a pattern and how often it is repeated."""
    types = c["attention_types"] or [[["global", "local"], 12]]
    listed = [kind for pattern, times in types for kind in list(pattern) * times]
    kinds = c.get("attention_layers") or listed  # theirs writes both, and reads this one
    if len(kinds) != c["num_layers"] or set(kinds) - {"global", "local"}:
        raise SpecError(
            f"attention_types is {types}; expected 'global' or 'local' for {c['num_layers']} layers"
        )
    return kinds


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "transformer.h.{i}.", "tower.blocks.{i}."
    return (
        Name("transformer.wte.weight", "tower.embed.table.weight"),
        Name("transformer.wpe.weight", "tower.positions.table.weight"),
        Name(theirs + "ln_1.{p}", ours + "attn_norm.{p}"),
        *(
            Name(f"{theirs}attn.attention.{x}_proj.{{p}}", f"{ours}attn.{x}.{{p}}")
            for x in ("q", "k", "v", "out")
        ),
        Name(theirs + "ln_2.{p}", ours + "ff_norm.{p}"),
        Name(theirs + "mlp.c_fc.{p}", ours + "ff.up.{p}"),
        Name(theirs + "mlp.c_proj.{p}", ours + "ff.down.{p}"),
        Name("transformer.ln_f.{p}", "tower.norm.{p}"),
        *decoder_head_rules(c, task, "lm_head.weight", tags="classifier"),
        Ignore(theirs + "attn.attention.bias", "a causal mask"),
        Ignore(theirs + "attn.attention.masked_bias", "a constant"),
    )


FAMILY = Family(
    name="gpt_neo",
    title="GPT-Neo",
    year=2021,
    paper="https://doi.org/10.5281/zenodo.5297715",
    mode="causal",
    uses="continuation",
    spec=spec,
    weights=weights,
    prefix="transformer.",
    parent="gpt2",
    architectures={
        "tokens": "GPTNeoForCausalLM", "labels": "GPTNeoForSequenceClassification",
        "tags": "GPTNeoForTokenClassification", "span": "GPTNeoForQuestionAnswering", "hidden": "GPTNeoModel",
    },
    defaults={
        "vocab_size": 50257, "max_position_embeddings": 2048, "hidden_size": 2048, "num_layers": 24,
        "attention_types": None, "num_heads": 16, "intermediate_size": None, "window_size": 256,
        "activation_function": "gelu_new", "resid_dropout": 0.0, "embed_dropout": 0.0,
        "attention_dropout": 0.0, "classifier_dropout": 0.1, "layer_norm_epsilon": 1e-5,
        "initializer_range": 0.02, "tie_word_embeddings": True, "bos_token_id": 50256, "eos_token_id": 50256,
    },
    sizes={
        "gpt-neo-125m": {
            "hidden_size": 768, "num_layers": 12, "num_heads": 12,
            "attention_types": [[["global", "local"], 6]],
        },
        "gpt-neo-1.3b": {},
        "gpt-neo-2.7b": {
            "hidden_size": 2560, "num_layers": 32, "num_heads": 20,
            "attention_types": [[["global", "local"], 16]],
        },
    },
)  # fmt: skip
