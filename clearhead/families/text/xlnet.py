"""XLNet (Yang 2019): Transformer-XL's relative positions in an encoder. One text at a time, no pairs."""

from dataclasses import replace
from typing import Literal

from ...errors import SpecError, nearest, quoted
from ...nn import (
    MLP,
    Attention,
    Block,
    Head,
    Labels,
    Normal,
    RelativeWaves,
    SingleStack,
    Softmax,
    Span,
    Tags,
    TokenHead,
    Tokens,
    Tower,
    Transform,
)
from ...nn.norm import Layer
from ...weights import Alias, Ignore, Name, Table, WeightRule
from ..family import Config, Family, HeadKind
from ..shared import activation

# Which token a text is summed up by; "cls_index" is the last one, too, because no call gives an index.
SUMMARIES: dict[str, Literal["first", "last", "mean"]] = {
    "first": "first", "last": "last", "mean": "mean", "cls_index": "last",
}  # fmt: skip


def spec(c: Config, task: HeadKind) -> SingleStack:
    if c["bi_data"] or c["same_length"] or c["attn_type"] not in ("bi", "uni"):
        raise SpecError("XLNet is known here with attn_type 'bi' or 'uni', without bi_data and same_length")
    return SingleStack(
        tower=Tower(
            width=c["d_model"],
            depth=c["n_layer"],
            causal=c["attn_type"] == "uni",
            embed=Tokens(vocab=c["vocab_size"], dropout=c["dropout"]),
            positions=RelativeWaves(farthest=c["clamp_len"] if c["clamp_len"] > 0 else None),
            block=Block(
                attention=Attention(heads=c["n_head"], kernel=Softmax(dropout=c["dropout"])),
                feedforward=MLP(
                    hidden=c["d_inner"], act=activation(c["ff_activation"]), dropout=c["dropout"]
                ),
                norm=Layer(eps=c["layer_norm_eps"]),
                order="post",
                dropout=c["dropout"],
            ),
        ),
        head=_head(c, task),
        init=Normal(std=c["initializer_range"]),
    )


def _head(c: Config, task: HeadKind) -> Head | None:
    summary = Transform(act=activation(c["summary_activation"]))
    pool = SUMMARIES.get(c["summary_type"])
    if pool is None:
        raise SpecError(
            f"summary_type is {quoted(c['summary_type'])}; {nearest(c['summary_type'], SUMMARIES)}"
        )
    one = Labels(count=1, pool=pool, transform=summary, dropout=c["summary_last_dropout"])
    heads: dict[HeadKind, Head | None] = {
        "hidden": None,
        "tokens": TokenHead(vocab=c["vocab_size"], tied=c["tie_word_embeddings"], bias=True),
        "labels": replace(one, count=c.labels),
        "choice": one,
        "tags": Tags(count=c.labels),
        "span": Span(),
    }
    return heads[task]


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "transformer.layer.{i}.", "tower.blocks.{i}."
    heads, table = c["n_head"], "tower.embed.table.weight"
    rules: list[WeightRule] = [Name("transformer.word_embedding.weight", table)]
    rules += [
        Name(f"{theirs}rel_attn.{x}", f"{ours}attn.{x}.weight", transpose=True, heads=heads) for x in "qkv"
    ]
    rules += [
        Name(theirs + "rel_attn.o", ours + "attn.out.weight", heads=heads),
        Name(theirs + "rel_attn.r", "tower.positions.project.{i}.weight", transpose=True, heads=heads),
        Name(theirs + "rel_attn.r_w_bias", "tower.positions.u.{i}"),
        Name(theirs + "rel_attn.r_r_bias", "tower.positions.v.{i}"),
        Name(theirs + "rel_attn.layer_norm.{p}", ours + "attn_norm.{p}"),
        Name(theirs + "ff.layer_1.{p}", ours + "ff.up.{p}"),
        Name(theirs + "ff.layer_2.{p}", ours + "ff.down.{p}"),
        Name(theirs + "ff.layer_norm.{p}", ours + "ff_norm.{p}"),
        Ignore(theirs + "rel_attn.r_s_bias", "for pairs of texts"),
        Ignore(theirs + "rel_attn.seg_embed", "for pairs of texts"),
        Ignore("transformer.mask_emb", "the query stream of pre-training"),
    ]
    tied = c["tie_word_embeddings"]
    summary = (
        Name("sequence_summary.summary.{p}", "head.transform.dense.{p}"),
        Name("logits_proj.{p}", "head.project.{p}"),
    )
    head_rules: dict[HeadKind, Table] = {
        "hidden": (),
        "tokens": (
            Alias("lm_loss.weight", table) if tied else Name("lm_loss.weight", "head.weight"),
            Name("lm_loss.bias", "head.bias"),
        ),
        "labels": summary,
        "choice": summary,
        "tags": (Name("classifier.{p}", "head.project.{p}"),),
        "span": (Name("qa_outputs.{p}", "head.project.{p}"),),
    }
    return (*rules, *head_rules[task])


FAMILY = Family(
    name="xlnet",
    title="XLNet",
    year=2019,
    paper="https://arxiv.org/abs/1906.08237",
    mode="bidirectional",
    uses="labels, tags, answers",
    spec=spec,
    weights=weights,
    prefix="transformer.",
    parent="transfo-xl",
    architectures={
        "tokens": "XLNetLMHeadModel", "labels": "XLNetForSequenceClassification",
        "tags": "XLNetForTokenClassification", "span": "XLNetForQuestionAnsweringSimple",
        "choice": "XLNetForMultipleChoice", "hidden": "XLNetModel",
    },
    defaults={
        "vocab_size": 32000, "d_model": 1024, "n_layer": 24, "n_head": 16, "d_inner": 4096,
        "ff_activation": "gelu", "attn_type": "bi", "initializer_range": 0.02, "layer_norm_eps": 1e-12,
        "dropout": 0.1, "bi_data": False, "clamp_len": -1, "same_length": False,
        "summary_type": "last", "summary_activation": "tanh", "summary_last_dropout": 0.1,
        "pad_token_id": 5, "bos_token_id": 1,
        "eos_token_id": 2, "tie_word_embeddings": True,
    },
    sizes={
        "xlnet-base": {"d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072},
        "xlnet-large": {},
    },
)  # fmt: skip
