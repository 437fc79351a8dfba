"""ModernBERT (Warner 2024): a pre-norm encoder with rotary positions, gated layers and no biases.

Two of three layers attend to a window, with a base of the rotary frequencies of their own; the first layer
has no norm before its attention, because the embeddings have one.
"""

from dataclasses import replace
from typing import Any

from ...errors import SpecError, nearest
from ...nn import (
    Attention,
    Block,
    Gated,
    Head,
    Labels,
    ResidualNormal,
    SingleStack,
    Softmax,
    Span,
    Tags,
    TokenHead,
    Tokens,
    Tower,
    Transform,
)
from ...nn.norm import Layer, NoNorm
from ...weights import Alias, Fused, Name, Table
from ..family import Config, Family, HeadKind
from ..shared import activation, rope

_POOLS = {"cls": "first", "mean": "mean"}
FULL, SLIDING = "full_attention", "sliding_attention"
THETAS = {FULL: 160000.0, SLIDING: 10000.0}
OLD_THETAS = {FULL: "global_rope_theta", SLIDING: "local_rope_theta"}  # of the published config files


def spec(c: Config, task: HeadKind) -> SingleStack:
    norm = Layer(eps=c["norm_eps"], bias=c["norm_bias"])
    kinds = _layer_types(c)
    full = Block(
        attention=Attention(
            heads=c["num_attention_heads"],
            bias="qkvo" if c["attention_bias"] else "",
            kernel=Softmax(dropout=c["attention_dropout"]),
        ),
        norm=norm,
        feedforward=Gated(
            hidden=c["intermediate_size"],
            act=activation(c["hidden_activation"]),
            bias=c["mlp_bias"],
            dropout=c["mlp_dropout"],
        ),
    )
    half = c["local_attention"] // 2
    sliding = replace(full.edit(Attention, window=(half, half)), positions=_rope(c, SLIDING))
    blocks = [{FULL: full, SLIDING: sliding}[kind] for kind in kinds]
    blocks[0] = replace(blocks[0], attention_norm=NoNorm())
    return SingleStack(
        tower=Tower(
            width=c["hidden_size"],
            depth=c["num_hidden_layers"],
            embed=Tokens(vocab=c["vocab_size"], norm=norm, dropout=c["embedding_dropout"]),
            positions=_rope(c, FULL),
            block=tuple(blocks),
            last_norm=norm,
        ),
        head=_head(c, task, norm),
        init=ResidualNormal(std=c["initializer_range"]),
    )


def _layer_types(c: Config) -> list[str]:
    every = c.get("global_attn_every_n_layers") or 3
    kinds = c["layer_types"] or [SLIDING if i % every else FULL for i in range(c["num_hidden_layers"])]
    if len(kinds) != c["num_hidden_layers"] or set(kinds) - {FULL, SLIDING}:
        expected = f"{FULL} or {SLIDING} for each of {c['num_hidden_layers']} layers"
        raise SpecError(f"layer_types is {kinds}, expected {expected}")
    return list(kinds)


def _rope(c: Config, kind: str) -> Any:
    """The rotary positions of one kind of layers."""
    theta = c.get(OLD_THETAS[kind]) or THETAS[kind]
    given = (c["rope_parameters"] or {}).get(kind) or {}
    return rope(Config({**c, "rope_parameters": {"rope_theta": theta, **given}}))


def _head(c: Config, task: HeadKind, norm: Layer) -> Head | None:
    pooling = c["classifier_pooling"]
    if pooling not in _POOLS:
        raise SpecError(f"classifier_pooling is {pooling!r}; {nearest(pooling, _POOLS)}")
    act = activation(c["classifier_activation"])
    transform = Transform(act=act, norm=norm, bias=c["classifier_bias"])
    dropout = float(c["classifier_dropout"])
    labels = Labels(count=c.labels, pool=_POOLS[pooling], transform=transform, dropout=dropout)  # type: ignore[arg-type]
    heads: dict[HeadKind, Head | None] = {
        "hidden": None,
        "tokens": TokenHead(
            vocab=c["vocab_size"], tied=c["tie_word_embeddings"], bias=c["decoder_bias"], transform=transform
        ),
        "labels": labels,
        "choice": replace(labels, count=1),
        "tags": Tags(count=c.labels, transform=transform, dropout=dropout),
        "span": Span(transform=transform, dropout=dropout),
    }
    return heads[task]


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "model.layers.{i}.", "tower.blocks.{i}."
    table = "tower.embed.table.weight"
    tied = c["tie_word_embeddings"]
    last: dict[HeadKind, Table] = {
        "hidden": (),
        "tokens": (
            Alias("decoder.weight", table) if tied else Name("decoder.weight", "head.weight"),
            Name("decoder.bias", "head.bias"),
        ),
    }
    projected: Table = (Name("classifier.{p}", "head.project.{p}"),)
    transform = ("dense", "norm") if task != "hidden" else ()
    return (
        Name("model.embeddings.tok_embeddings.weight", table),
        Name("model.embeddings.norm.{p}", "tower.embed.norm.{p}"),
        Name(theirs + "attn_norm.{p}", ours + "attn_norm.{p}"),
        Fused(theirs + "attn.Wqkv.{p}", tuple(f"{ours}attn.{x}.{{p}}" for x in "qkv")),
        Name(theirs + "attn.Wo.{p}", ours + "attn.out.{p}"),
        Name(theirs + "mlp_norm.{p}", ours + "ff_norm.{p}"),
        Fused(theirs + "mlp.Wi.{p}", tuple(f"{ours}ff.{x}.{{p}}" for x in ("gate", "up"))),
        Name(theirs + "mlp.Wo.{p}", ours + "ff.down.{p}"),
        Name("model.final_norm.{p}", "tower.norm.{p}"),
        *(Name(f"head.{x}.{{p}}", f"head.transform.{x}.{{p}}") for x in transform),
        *last.get(task, projected),
    )


DEFAULTS: dict[str, Any] = {
    "vocab_size": 50368, "hidden_size": 768, "intermediate_size": 1152, "num_hidden_layers": 22,
    "num_attention_heads": 12, "hidden_activation": "gelu", "max_position_embeddings": 8192,
    "initializer_range": 0.02, "norm_eps": 1e-5, "norm_bias": False, "pad_token_id": 50283,
    "eos_token_id": 50282, "bos_token_id": 50281, "attention_bias": False, "attention_dropout": 0.0,
    "layer_types": None, "local_attention": 128, "embedding_dropout": 0.0, "mlp_bias": False,
    "mlp_dropout": 0.0, "decoder_bias": True, "classifier_pooling": "cls", "classifier_dropout": 0.0,
    "classifier_bias": False, "classifier_activation": "gelu", "tie_word_embeddings": True,
    "rope_parameters": {FULL: {"rope_type": "default"}, SLIDING: {"rope_type": "default"}},
}  # fmt: skip

FAMILY = Family(
    name="modernbert",
    title="ModernBERT",
    year=2024,
    paper="https://arxiv.org/abs/2412.13663",
    mode="bidirectional",
    uses="retrieval, classification, tagging, question answering in long texts",
    spec=spec,
    weights=weights,
    prefix="model.",
    parent="bert",
    architectures={
        "tokens": "ModernBertForMaskedLM", "labels": "ModernBertForSequenceClassification",
        "tags": "ModernBertForTokenClassification", "span": "ModernBertForQuestionAnswering",
        "choice": "ModernBertForMultipleChoice", "hidden": "ModernBertModel",
    },
    defaults=DEFAULTS,
    sizes={
        "modernbert-base": {},
        "modernbert-large": {
            "hidden_size": 1024, "intermediate_size": 2624, "num_hidden_layers": 28,
            "num_attention_heads": 16,
        },
    },
)  # fmt: skip
