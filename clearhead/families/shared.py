"""What several families share: activations, rotary scaling, heads and layer types of a config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import SpecError, nearest
from ..nn import (
    Activation,
    Attention,
    Block,
    DynamicNTK,
    Head,
    Labels,
    LinearStretch,
    Llama3,
    Rope,
    Span,
    Stretch,
    Tags,
    TokenHead,
    Transform,
    Yarn,
)
from ..nn.norm import Norm
from ..weights import Alias, Ignore, Name, Table, WeightRule
from .family import Config, HeadKind

HF_ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "quick_gelu": "quick_gelu",
    "tanh": "tanh",
}


def activation(word: str) -> Activation:
    if word not in HF_ACTIVATIONS:
        raise SpecError(f"unknown activation {word!r} in config.json; {nearest(word, HF_ACTIVATIONS)}")
    return HF_ACTIVATIONS[word]


def rope(c: Config, fraction: float = 1.0) -> Rope:
    """Rotary positions from `rope_parameters`."""
    parameters = c["rope_parameters"]
    kind, theta = parameters.get("rope_type", "default"), float(parameters.get("rope_theta", 10000.0))
    if kind == "default":
        return Rope(theta=theta, fraction=fraction)
    if kind not in STRETCHES:
        raise SpecError(f"unknown rope_type {kind!r} in config.json; {nearest(kind, STRETCHES)}")
    return Rope(theta=theta, fraction=fraction, stretch=STRETCHES[kind](c, parameters))


def _trained_length(c: Config, parameters: dict[str, Any]) -> int:
    return int(parameters.get("original_max_position_embeddings") or c["max_position_embeddings"])


def _yarn(c: Config, parameters: dict[str, Any]) -> Stretch:
    if parameters.get("mscale") or parameters.get("mscale_all_dim"):
        raise SpecError("rope_parameters with mscale (DeepSeek's YaRN) are not known here")
    return Yarn(
        factor=float(parameters["factor"]),
        length=_trained_length(c, parameters),
        fast=float(parameters.get("beta_fast") or 32),
        slow=float(parameters.get("beta_slow") or 1),
        rounded=bool(parameters.get("truncate", True)),
        amplify=parameters.get("attention_factor"),
    )


STRETCHES: dict[str, Callable[[Config, dict[str, Any]], Stretch]] = {
    "linear": lambda c, parameters: LinearStretch(factor=float(parameters["factor"])),
    "dynamic": lambda c, parameters: DynamicNTK(
        factor=float(parameters["factor"]), length=c["max_position_embeddings"]
    ),
    "yarn": _yarn,
    "llama3": lambda c, parameters: Llama3(
        factor=float(parameters["factor"]),
        length=_trained_length(c, parameters),
        low=float(parameters["low_freq_factor"]),
        high=float(parameters["high_freq_factor"]),
    ),
}


def blocks_by_layer_type(block: Block, c: Config, window: int | None) -> Block | tuple[Block, ...]:
    """A block for every layer, where `layer_types` gives some layers a sliding window."""
    if not window:
        return block
    # Theirs counts the token itself, ours only the tokens before it.
    sliding = block.edit(Attention, window=(window - 1, 0))
    kinds = c.get("layer_types") or ["sliding_attention"] * c["num_hidden_layers"]
    blocks = tuple(sliding if kind == "sliding_attention" else block for kind in kinds)
    return blocks[0] if len(set(blocks)) == 1 else blocks


def encoder_head(c: Config, task: HeadKind, norm: Norm, pooler: Transform) -> Head | None:
    """The heads of BERT-like models; `pooler` is between the first token and the labels."""
    act = activation(c.get("head_act", c["hidden_act"]))
    explicit = c.get("classifier_dropout")
    dropout = float(c.get("hidden_dropout_prob", 0.0) if explicit is None else explicit)
    heads: dict[HeadKind, Head | None] = {
        "hidden": None,
        "tokens": TokenHead(
            vocab=c["vocab_size"],
            tied=c["tie_word_embeddings"],
            bias=True,
            transform=Transform(act=act, norm=norm),
        ),
        "labels": Labels(count=c.labels, transform=pooler, dropout=dropout),
        "choice": Labels(count=1, transform=pooler, dropout=dropout),
        "pair": Labels(count=2, transform=pooler),
        "tags": Tags(count=c.labels, dropout=dropout),
        "span": Span(),
    }
    return heads["tokens" if task == "pretrain" else task]


def decoder_head(c: Config, task: HeadKind, tokens: TokenHead) -> Head | None:
    """The heads of GPT-like models: logits over tokens, or labels from the last token."""
    heads: dict[HeadKind, Head | None] = {
        "hidden": None,
        "tokens": tokens,
        "labels": Labels(count=c.labels, pool="last", bias=False),
    }
    return heads[task]


def decoder_head_rules(c: Config, task: HeadKind, theirs: str) -> Table:
    if task == "labels":
        return (Name("score.weight", "head.project.weight"),)
    tied = task != "tokens" or c["tie_word_embeddings"]
    return (Alias(theirs, "tower.embed.table.weight") if tied else Name(theirs, "head.weight"),)


def encoder_head_rules(c: Config, task: HeadKind, names: Mapping[str, str]) -> Table:
    """`names` are theirs for: dense, norm, bias, decoder (masked words); pooler, classifier, pair, span.

    Tensors of a head that this model does not have are kept for export, not used.
    """
    words = {"dense": "head.transform.dense.{p}", "norm": "head.transform.norm.{p}", "bias": "head.bias"}
    pooled = {"pooler": "head.transform.dense.{p}"}
    second = {"pooler": "second.transform.dense.{p}", "pair": "second.project.{p}"}
    used: dict[HeadKind, dict[str, str]] = {
        "hidden": {},
        "tokens": words,
        "labels": {**pooled, "classifier": "head.project.{p}"},
        "choice": {**pooled, "classifier": "head.project.{p}"},
        "pair": {**pooled, "pair": "head.project.{p}"},
        "pretrain": {**words, **second},
        "tags": {"classifier": "head.project.{p}"},
        "span": {"span": "head.project.{p}"},
    }
    rules: list[WeightRule] = [Name(names[part], ours) for part, ours in used[task].items()]
    if "bias" in used[task]:
        bias = names["decoder"].replace("weight", "bias")
        tied = c["tie_word_embeddings"]
        table = "tower.embed.table.weight"
        rules.append(Alias(names["decoder"], table) if tied else Name(names["decoder"], "head.weight"))
        rules.append(Alias(bias, "head.bias"))
    used_names = {rule.theirs for rule in rules}
    unused = {name for name in names.values() if name not in used_names}
    return (*rules, *(Ignore(name, "a part of another head") for name in sorted(unused)))
