"""XLM-R XL and XXL (Goyal 2021): XLM-R with the norms before each sub-layer and after the last layer."""

from dataclasses import replace

from ...nn import Block, SingleStack, Tokens, Tower
from ...nn.norm import Layer
from ...weights import Name, Table
from ..family import Config, HeadKind
from . import roberta


def spec(c: Config, task: HeadKind) -> SingleStack:
    return (
        roberta.spec(c, task)
        .edit(Tokens, norm=None)
        .edit(Block, order="pre")
        .edit(Tower, last_norm=Layer(eps=c["layer_norm_eps"]))
    )


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "roberta.encoder.layer.{i}.", "tower.blocks.{i}."
    return (
        Name(theirs + "attention.self_attn_layer_norm.{p}", ours + "attn_norm.{p}"),
        Name(theirs + "LayerNorm.{p}", ours + "ff_norm.{p}"),
        Name("roberta.encoder.LayerNorm.{p}", "tower.norm.{p}"),
        *(rule for rule in roberta.weights(c, task) if "LayerNorm" not in rule.theirs),
    )


FAMILY = replace(
    roberta.XLMR,
    name="xlm-roberta-xl",
    title="XLM-R XL",
    year=2021,
    paper="https://arxiv.org/abs/2105.00572",
    spec=spec,
    weights=weights,
    parent="xlm-roberta",
    architectures=roberta.classes("XLMRobertaXL"),
    defaults={
        **roberta.DEFAULTS, "vocab_size": 250880, "hidden_size": 2560, "num_hidden_layers": 36,
        "num_attention_heads": 32, "intermediate_size": 10240, "max_position_embeddings": 514,
        "type_vocab_size": 1, "layer_norm_eps": 1e-5,
    },
    sizes={
        "xlm-roberta-xl": {},
        "xlm-roberta-xxl": {
            "hidden_size": 4096, "num_hidden_layers": 48, "intermediate_size": 16384,
        },
    },
)  # fmt: skip
