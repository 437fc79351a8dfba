"""What several families share: activations, rotary scaling, heads and layer types of a config.json."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..errors import SpecError, nearest, quoted
from ..nn import (
    Activation,
    Attention,
    Block,
    DynamicNTK,
    Experts,
    Head,
    Labels,
    LinearStretch,
    Llama3,
    LongRope,
    Positions,
    Rope,
    SingleStack,
    Sinusoidal,
    Span,
    Stretch,
    Tags,
    TokenHead,
    Tower,
    Transform,
    Yarn,
    waves,
)
from ..nn.norm import Norm
from ..weights import Alias, Fused, Ignore, Name, Table, WeightRule
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


def rope(c: Config, fraction: float = 1.0, theta: float = 10000.0) -> Rope:
    """Rotary positions from `rope_parameters`; `theta` is the family's, where they have none."""
    parameters = c["rope_parameters"]
    kind, theta = parameters.get("rope_type", "default"), float(parameters.get("rope_theta") or theta)
    if kind == "default":
        return Rope(theta=theta, fraction=fraction)
    if kind not in STRETCHES:
        raise SpecError(f"unknown rope_type {kind!r} in config.json; {nearest(kind, STRETCHES)}")
    return Rope(theta=theta, fraction=fraction, stretch=STRETCHES[kind](c, parameters))


def sinusoid_table(shape: Sequence[int]) -> Tensor:
    """The table of sines and cosines that checkpoints store and that is computed here, in float64."""
    positions, width = shape
    return waves(torch.arange(positions)[None], width, Sinusoidal(layout="halves"))[0]


def partial_rotary(c: Config, default: float = 1.0) -> float:
    """How much of each head is rotated."""
    return float(c["rope_parameters"].get("partial_rotary_factor") or c.get("partial_rotary_factor", default))


def rope_of_layers(c: Config, kind: str, *, flat: bool, theta: float) -> Rope:
    """The rotary positions of one kind of layers: `rope_parameters` has an object for each kind.

    Older files have one object; `flat` says whether it is for layers of this kind.
    """
    stored = c["rope_parameters"]
    nested = any(isinstance(value, dict) for value in stored.values())
    parameters = stored.get(kind) if nested else stored if flat else None
    return rope(Config({**c, "rope_parameters": parameters or {}}), theta=theta)


def _trained_length(c: Config, parameters: dict[str, Any]) -> int:
    key = "original_max_position_embeddings"  # beside `rope_parameters` it wins over the one within
    return int(c.get(key) or parameters.get(key) or c["max_position_embeddings"])


def _longrope(c: Config, parameters: dict[str, Any]) -> Stretch:
    length = _trained_length(c, parameters)
    return LongRope(
        length=length,
        short=tuple(map(float, parameters["short_factor"])),
        long=tuple(map(float, parameters["long_factor"])),
        factor=float(parameters.get("factor") or c["max_position_embeddings"] / length),
        amplify=parameters.get("attention_factor"),
    )


def _yarn(c: Config, parameters: dict[str, Any]) -> Stretch:
    amplify, mscale, all_dim = (parameters.get(x) for x in ("attention_factor", "mscale", "mscale_all_dim"))
    if amplify is None and mscale and all_dim:
        amplify = yarn_amplitude(parameters, mscale) / yarn_amplitude(parameters, all_dim)
    return Yarn(
        factor=float(parameters["factor"]),
        length=_trained_length(c, parameters),
        fast=float(parameters.get("beta_fast") or 32),
        slow=float(parameters.get("beta_slow") or 1),
        rounded=bool(parameters.get("truncate", True)),
        amplify=amplify,
    )


def yarn_amplitude(parameters: Mapping[str, Any], mscale: float) -> float:
    """YaRN's factor on the rotated vectors, with DeepSeek's `mscale` on the logarithm."""
    factor = float(parameters["factor"])
    return 0.1 * float(mscale) * math.log(factor) + 1.0 if factor > 1 else 1.0


STRETCHES: dict[str, Callable[[Config, dict[str, Any]], Stretch]] = {
    "linear": lambda c, parameters: LinearStretch(factor=float(parameters["factor"])),
    "dynamic": lambda c, parameters: DynamicNTK(
        factor=float(parameters["factor"]), length=c["max_position_embeddings"]
    ),
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": lambda c, parameters: Llama3(
        factor=float(parameters["factor"]),
        length=_trained_length(c, parameters),
        low=float(parameters["low_freq_factor"]),
        high=float(parameters["high_freq_factor"]),
    ),
}


LAYER_TYPES = ("full_attention", "sliding_attention")


def blocks_by_layer_type(
    block: Block, c: Config, window: int | None, positions: Positions | None = None
) -> Block | tuple[Block, ...]:
    """A block for every layer, where `layer_types` gives some layers a sliding window.

    `positions` are those of the layers with a window, if not the tower's.
    """
    kinds = c.get("layer_types") or ["sliding_attention"] * c["num_hidden_layers"]
    for kind in kinds:
        if kind not in LAYER_TYPES:
            raise SpecError(f"layer_types has {quoted(kind)}; {nearest(kind, LAYER_TYPES)}")
    if len(kinds) != c["num_hidden_layers"]:
        raise SpecError(f"layer_types has {len(kinds)} entries for {c['num_hidden_layers']} layers")
    if not window and positions is None:
        return block
    # Theirs counts the token itself, ours only the tokens before it.
    sliding = block.edit(Attention, window=(window - 1, 0)) if window else block
    by_type = dict(zip(LAYER_TYPES, (block, replace(sliding, positions=positions)), strict=True))
    return one_or_all([by_type[kind] for kind in kinds])


def sliding_from(c: Config, first: int) -> Config:
    """With `layer_types`: those of the config, or a window in all layers from this one on."""
    sliding = [i >= first for i in range(c["num_hidden_layers"])]
    kinds = ["sliding_attention" if here else "full_attention" for here in sliding]
    return Config({**c, "layer_types": c.get("layer_types") or kinds})


def every_nth_full(c: Config, n: int) -> list[str]:
    """`layer_types`: those of the config, or every n-th layer with full attention, others with a window."""
    if n < 1:
        raise SpecError(f"sliding_window_pattern is {n}, expected 1 or more")
    full = [(i + 1) % n == 0 for i in range(c["num_hidden_layers"])]
    return c.get("layer_types") or ["full_attention" if here else "sliding_attention" for here in full]


def one_or_all(blocks: list[Block]) -> Block | tuple[Block, ...]:
    """The blocks of all layers; one, if they are the same."""
    return blocks[0] if len(set(blocks)) == 1 else tuple(blocks)


def with_experts(model: SingleStack, experts: Experts, sparse: Sequence[bool]) -> SingleStack:
    """The model with a mixture of experts in the layers for which `sparse` says so."""
    return model.edit(Tower, block=blocks_with_experts(model.tower, experts, sparse))


def blocks_with_experts(tower: Tower, experts: Experts, sparse: Sequence[bool]) -> Block | tuple[Block, ...]:
    """The blocks of a tower, with a mixture of experts in the layers for which `sparse` says so."""
    blocks = (tower.pattern[i % len(tower.pattern)] for i in range(tower.depth))
    routed = zip(blocks, sparse, strict=True)
    return one_or_all([replace(block, feedforward=experts) if here else block for block, here in routed])


def expert_rules(theirs: str, names: Mapping[str, str], router: str) -> Table:
    """The rules of a mixture of experts; `names` are theirs for gate, up and down of an expert."""
    ours = "tower.blocks.{i}.ff."
    return (
        Name(theirs + router, ours + "router.linear.{p}"),
        *(Name(f"{theirs}experts.{{e}}.{names[x]}.{{p}}", f"{ours}experts.{{e}}.{x}.{{p}}") for x in names),
    )


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
            transform=Transform(act=act, norm=norm, width=c.get("head_width")),
        ),
        "labels": Labels(count=c.labels, transform=pooler, dropout=dropout),
        "choice": Labels(count=1, transform=pooler, dropout=dropout),
        "pair": Labels(count=2, transform=pooler),
        "tags": Tags(count=c.labels, dropout=dropout),
        "span": Span(),
    }
    return heads["tokens" if task == "pretrain" else task]


def decoder_head(c: Config, task: HeadKind, tokens: TokenHead) -> Head | None:
    """The heads of GPT-like models: logits over tokens, labels from the last token, tags, a span."""
    dropouts = (c.get("classifier_dropout"), c.get("hidden_dropout"), 0.1)
    heads: dict[HeadKind, Head | None] = {
        "hidden": None,
        "tokens": tokens,
        "labels": Labels(count=c.labels, pool="last", bias=False),
        "tags": Tags(count=c.labels, dropout=next(float(rate) for rate in dropouts if rate is not None)),
        "span": Span(),
    }
    return heads[task]


DECODER_CLASSES: dict[HeadKind, str] = {
    "tokens": "ForCausalLM",
    "labels": "ForSequenceClassification",
    "tags": "ForTokenClassification",
    "span": "ForQuestionAnswering",
    "hidden": "Model",
}


def decoder_classes(name: str, *without: HeadKind) -> dict[HeadKind, str]:
    """Their classes of a GPT-like model, without those it does not have."""
    return {head: name + end for head, end in DECODER_CLASSES.items() if head not in without}


def decoder_head_rules(c: Config, task: HeadKind, theirs: str, tags: str = "score") -> Table:
    """`theirs` is their matrix of logits, its bias is named alike; `tags` is the layer that tags tokens."""
    if task in ("labels", "tags", "span"):
        name = {"labels": "score", "tags": tags, "span": "qa_outputs"}[task]
        return (Name(name + ".{p}", "head.project.{p}"),)
    tied = task != "tokens" or c["tie_word_embeddings"]
    matrix = Alias(theirs, "tower.embed.table.weight") if tied else Name(theirs, "head.weight")
    bias = theirs.replace("weight", "bias")
    if task == "hidden":
        return (matrix, Ignore(bias, "of a head that this model does not have"))
    return (matrix, Name(bias, "head.bias"))


def rotary_fraction(rotated: int, head_dim: int) -> float:
    """The fraction of a head that is exactly this many channels, when multiplied and rounded down."""
    fraction = rotated / head_dim
    return fraction if int(head_dim * fraction) == rotated else math.nextafter(fraction, 1.0)


def override(base: Table, own: Table) -> Table:
    """A table with rules of its own in place of those that are for the same tensors, of theirs or of ours."""
    theirs = {rule.theirs for rule in own}
    ours = {part for rule in own if isinstance(rule, Name | Fused) for part in rule.parts}
    kept = (
        rule
        for rule in base
        if rule.theirs not in theirs and not (isinstance(rule, Name | Fused) and ours & set(rule.parts))
    )
    return (*own, *kept)


def encoder_head_rules(c: Config, task: HeadKind, names: Mapping[str, str]) -> Table:
    """`names` are theirs for: dense, norm, bias, decoder (masked words); pooler, classifier, pair, span.

    The decoder's own bias is named as its weight, unless `decoder_bias` says otherwise.

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
        rules += _decoder_rules(c, rules, names)
    used_names = {rule.theirs for rule in rules}
    unused = {name for name in names.values() if name not in used_names}
    return (*rules, *(Ignore(name, "a part of another head") for name in sorted(unused)))


def _decoder_rules(c: Config, rules: list[WeightRule], names: Mapping[str, str]) -> Table:
    """The product with the vocabulary, whose bias theirs stores under two names."""
    decoder, bias = names["decoder"], names.get("decoder_bias") or names["decoder"].replace("weight", "bias")
    if c["tie_word_embeddings"]:
        table = Alias(decoder, "tower.embed.table.weight")
        return (table,) if bias == names["bias"] else (table, Alias(bias, "head.bias"))
    weight = Name(decoder, "head.weight")
    if bias == names["bias"] or (c.stored and bias not in c.stored):
        return (weight,)
    # Untied, theirs computes with the decoder's own bias and only keeps the other.
    rules.remove(Name(names["bias"], "head.bias"))
    unused = Ignore(names["bias"], "the bias of a tied head", like="head.bias")
    return weight, Name(bias, "head.bias"), unused
