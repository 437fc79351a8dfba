"""DeBERTa, v2 and v3 (He 2020, 2021): BERT whose tokens and distances have queries and keys of their own."""

from dataclasses import replace

from ...errors import SpecError
from ...nn import (
    Attention,
    Convolution,
    Disentangled,
    Head,
    Learned,
    NoPositions,
    Positions,
    SingleStack,
    Tokens,
    Tower,
    Transform,
)
from ...nn.norm import Layer
from ...weights import Fused, Ignore, Name, Table, WeightRule
from ..family import Config, Family, HeadKind
from ..shared import activation, encoder_head, encoder_head_rules
from . import bert

POSITION_TERMS = ("c2p", "p2c")
NEWER = "lm_predictions.lm_head."  # their head for masked words with legacy false


def spec(c: Config, task: HeadKind) -> SingleStack:
    """What both versions share; they differ in the projections of distances."""
    heads, width, terms = c["num_attention_heads"], c["hidden_size"], _terms(c)
    if c.get("attention_head_size", width // heads) != width // heads:
        raise SpecError(
            f"attention_head_size is {c['attention_head_size']}; only {width // heads} is known here"
        )
    return (
        bert.spec(Config({**c, "is_decoder": False}), "hidden")
        .edit(Tower, positions=_positions(c))
        .edit(Tokens, factor=None if c.get("embedding_size", width) == width else c["embedding_size"])
        .edit(Tokens, order="project-norm-dropout")
        .edit(Attention, scale=(width // heads * (1 + len(terms))) ** -0.5)
        .edit(SingleStack, head=_head(c, task))
    )


def spec_v1(c: Config, task: HeadKind) -> SingleStack:
    if c.get("talking_head"):
        raise SpecError("talking_head is true; only false can be built here")
    both = spec(c, task).edit(Attention, bias="qvo")
    if not c["relative_attention"]:
        return both
    # The first version does not read the keys of the second.
    return both.edit(Disentangled, bias="q", project="own", buckets=None, norm=None)


def spec_v2(c: Config, task: HeadKind) -> SingleStack:
    both, size = spec(c, task), c.get("conv_kernel_size", 0)
    if size <= 0:
        return both
    if size % 2 == 0:
        raise SpecError(f"conv_kernel_size is {size}; only odd sizes keep the number of tokens")
    # Their dropout is before its activation, ours behind it, as in every other sub-layer.
    convolution = Convolution(
        size=size, act=activation(c.get("conv_act", "tanh")), groups=c.get("conv_groups", 1)
    )
    block = both.tower.pattern[0]
    first = replace(block, aside=convolution)
    return both.edit(Tower, block=(first, *(block,) * (c["num_hidden_layers"] - 1)))


def _terms(c: Config) -> tuple[str, ...]:
    given = c["pos_att_type"] or ()
    words = [word.strip() for word in given.lower().split("|")] if isinstance(given, str) else list(given)
    if unknown := [word for word in words if word not in POSITION_TERMS]:
        raise SpecError(
            f"pos_att_type has {unknown[0]!r}; only {' and '.join(POSITION_TERMS)} can be built here"
        )
    return tuple(word for word in POSITION_TERMS if word in words)


def _positions(c: Config) -> Positions:
    length = c["max_position_embeddings"]
    absolute = Learned(length=length) if c["position_biased_input"] else None
    if not c["relative_attention"]:
        return absolute or NoPositions()
    if not _terms(c):
        raise SpecError(
            "relative_attention without pos_att_type has no effect on the scores; expected c2p or p2c"
        )
    norm = c.get("norm_rel_ebd", "none").lower().strip()
    if norm not in ("none", "layer_norm"):
        raise SpecError(f"norm_rel_ebd is {norm!r}; only 'none' and 'layer_norm' can be built here")
    farthest, buckets = c["max_relative_positions"], c.get("position_buckets", -1)
    return Disentangled(
        farthest=farthest if farthest >= 1 else length,
        buckets=buckets if buckets > 0 else None,
        terms=_terms(c),  # type: ignore[arg-type]  # checked there
        project="layer" if c.get("share_att_key", False) else "own",
        norm=Layer(eps=c["layer_norm_eps"]) if norm == "layer_norm" else None,
        dropout=c["hidden_dropout_prob"],
        absolute=absolute,
    )


def _head(c: Config, task: HeadKind) -> Head | None:
    if c["pooler_dropout"] or (c.get("pooler_hidden_size") or c["hidden_size"]) != c["hidden_size"]:
        raise SpecError("a pooler with pooler_dropout or a pooler_hidden_size of its own is not known here")
    if not _legacy(c) and c.get("embedding_size", c["hidden_size"]) != c["hidden_size"]:
        raise SpecError(
            "the head lm_predictions has no projection: its embedding_size must be the hidden_size"
        )
    dropout = {"classifier_dropout": c.get("cls_dropout") if task in ("labels", "choice") else None}
    # Their newer head for masked words always uses the table.
    tied = {"tie_word_embeddings": c["tie_word_embeddings"] or not _legacy(c)}
    norm, pooler = Layer(eps=c["layer_norm_eps"]), Transform(act=activation(c["pooler_hidden_act"]))
    return encoder_head(Config({**c, **dropout, **tied}), task, norm, pooler)


def _rules(c: Config, task: HeadKind) -> Table:
    """What both versions name alike."""
    theirs, table = (
        "deberta.encoder.layer.{i}.attention.self.",
        "deberta.embeddings.position_embeddings.weight",
    )
    rules: list[WeightRule] = [
        rule for rule in bert.tower_rules("deberta.") if not rule.theirs.startswith((theirs, table))
    ]
    rules.append(Name("deberta.embeddings.embed_proj.weight", "tower.embed.project.weight"))
    if c["relative_attention"]:
        rules.append(Name("deberta.encoder.rel_embeddings.weight", "tower.positions.table.weight"))
        rules.append(Name("deberta.encoder.LayerNorm.{p}", "tower.positions.norm.{p}"))
    if c["position_biased_input"]:
        absolute = "absolute." if c["relative_attention"] else ""
        rules.append(Name(table, f"tower.positions.{absolute}table.weight"))
    else:
        rules.append(Ignore(table, "positions that are not added"))
    names = {**bert.HEAD, "pooler": "pooler.dense.{p}"}
    del names["pair"]
    others = [f"mask_predictions.{part}.{{p}}" for part in ("dense", "LayerNorm", "classifier")]
    if _legacy(c):
        others += [NEWER + "dense.{p}", NEWER + "LayerNorm.{p}", NEWER + "bias"]
    else:
        names |= {"dense": NEWER + "dense.{p}", "norm": NEWER + "LayerNorm.{p}", "bias": NEWER + "bias"}
        c = Config({**c, "tie_word_embeddings": True})
    unused = (Ignore(name, "a part of another head") for name in others)
    return (*rules, *unused, *encoder_head_rules(c, task, names))


def _legacy(c: Config) -> bool:
    """Which head for masked words it has. The files of v3 do not say: the stored tensors do."""
    return bool(c["legacy"]) and NEWER + "bias" not in c.stored


def weights_v1(c: Config, task: HeadKind) -> Table:
    theirs, ours = "deberta.encoder.layer.{i}.attention.self.", "tower.blocks.{i}.attn."
    return (
        Fused(
            theirs + "in_proj.weight",
            tuple(f"{ours}{x}.weight" for x in "qkv"),
            per_head=c["num_attention_heads"],
        ),
        Name(theirs + "q_bias", ours + "q.bias"),
        Name(theirs + "v_bias", ours + "v.bias"),
        Name(theirs + "pos_proj.weight", "tower.positions.k.{i}.weight"),
        Name(theirs + "pos_q_proj.{p}", "tower.positions.q.{i}.{p}"),
        *_rules(c, task),
    )


def weights_v2(c: Config, task: HeadKind) -> Table:
    theirs, ours = "deberta.encoder.layer.{i}.attention.self.", "tower.blocks.{i}.attn."
    qkv = {"query": "q", "key": "k", "value": "v"}
    return (
        *(Name(f"{theirs}{a}_proj.{{p}}", f"{ours}{b}.{{p}}") for a, b in qkv.items()),
        Name(theirs + "pos_key_proj.{p}", "tower.positions.k.{i}.{p}"),
        Name(theirs + "pos_query_proj.{p}", "tower.positions.q.{i}.{p}"),
        Name("deberta.encoder.conv.conv.{p}", "tower.blocks.0.aside.conv.{p}"),
        Name("deberta.encoder.conv.LayerNorm.{p}", "tower.blocks.0.aside_norm.{p}"),
        *_rules(c, task),
    )


DEFAULTS = {
    **{key: value for key, value in bert.DEFAULTS.items() if key != "is_decoder"},
    "vocab_size": 50265, "type_vocab_size": 0, "layer_norm_eps": 1e-7, "relative_attention": False,
    "max_relative_positions": -1, "position_biased_input": True, "pos_att_type": None,
    "pooler_dropout": 0.0, "pooler_hidden_act": "gelu", "legacy": True,
}  # fmt: skip
V1_BASE = {"relative_attention": True, "position_biased_input": False, "pos_att_type": ["c2p", "p2c"]}
V3_BASE = {
    **V1_BASE, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True,
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
}  # fmt: skip


def _classes(stem: str) -> dict[HeadKind, str]:
    return {
        "tokens": f"{stem}ForMaskedLM", "labels": f"{stem}ForSequenceClassification",
        "tags": f"{stem}ForTokenClassification", "span": f"{stem}ForQuestionAnswering",
        "hidden": f"{stem}Model",
    }  # fmt: skip


FAMILY = Family(
    name="deberta",
    title="DeBERTa",
    year=2020,
    paper="https://arxiv.org/abs/2006.03654",
    mode="bidirectional",
    uses="classification, tagging, question answering",
    spec=spec_v1,
    weights=weights_v1,
    prefix="deberta.",
    parent="bert",
    architectures=_classes("Deberta"),
    defaults=DEFAULTS,
    sizes={"deberta-base": V1_BASE, "deberta-large": {**V1_BASE, **bert.LARGE}},
)
DEBERTA_V2 = replace(
    FAMILY,
    name="deberta-v2",
    title="DeBERTa v2, v3",
    year=2021,
    paper="https://arxiv.org/abs/2111.09543",
    spec=spec_v2,
    weights=weights_v2,
    parent="deberta",
    architectures={**_classes("DebertaV2"), "choice": "DebertaV2ForMultipleChoice"},
    defaults={
        **DEFAULTS, "vocab_size": 128100, "hidden_size": 1536, "num_hidden_layers": 24,
        "num_attention_heads": 24, "intermediate_size": 6144,
    },
    sizes={
        "deberta-v3-small": {**V3_BASE, "num_hidden_layers": 6},
        "deberta-v3-base": V3_BASE,
        "deberta-v3-large": {**V3_BASE, **bert.LARGE},
        "mdeberta-v3-base": {**V3_BASE, "vocab_size": 251000},
        "deberta-v2-xlarge": {
            **V1_BASE, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True,
            "conv_kernel_size": 3, "conv_act": "gelu",
        },
    },
)  # fmt: skip
